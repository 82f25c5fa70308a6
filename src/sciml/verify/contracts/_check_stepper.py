"""Checks of the contract of `sciml.solvers.AbstractStepper`."""

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...solvers._read_diffrax import stepper_of
from ...solvers._solve import solve
from ...solvers.adjoints._checkpointed import Checkpointed
from ...solvers.adjoints._direct import Direct
from ...solvers.integrate._interpolation import interpolation_of
from ...solvers.methods._stepper import AbstractStepper, Step
from ...solvers.methods.around._history import WithHistory
from ..measures._finite_difference import finite_difference_gradient
from ..measures._order import ObservedOrder, fitted
from ..problems._exact import cosine_growth
from ..problems._problem import Problem
from ._contract import check, check_close, check_same_arrays, converted, counted, largest_difference, perturbed, stacked

_STEPS = {1: (64, 128, 256), 2: (32, 64, 128)}


class StepperReport(NamedTuple):
    """The measurements of a method by `check_stepper`.

    Attributes:
        forwards: The order, the errors and the steps that it was measured from.
        backwards: The same, backwards in time.
        between: The same at times within the steps; None where steps end at saved times.
        skipped: The skipped checks, and the reasons.

    Example:
        ```python
        import diffrax
        from sciml import verify

        report = verify.check_stepper(diffrax.Heun())
        assert abs(report.forwards.order - 2) < 0.2
        ```
    """

    forwards: ObservedOrder
    backwards: ObservedOrder
    between: ObservedOrder | None
    skipped: tuple[str, ...]


class _Given(NamedTuple):
    """The differentiated values of a solution."""

    model: Any
    y0: Any


def check_stepper(
    solver: Any,
    *,
    problem: Problem | None = None,
    steps: Sequence[int] | None = None,
    dense_order: int | None = None,
    slack: float = 0.3,
    rtol: float = 1e-6,
) -> StepperReport:
    """Checks that a method satisfies the requirements of the loops of `sciml.solve`; for custom steppers.

    The checks: the step returns the required structure, shapes and dtypes; errors decrease with the declared order,
    forwards and backwards in time, and between the steps if it interpolates; error control meets the tolerances;
    gradients by Checkpointed agree with finite differences; they commute with `jax.vmap`; forward mode by Direct agrees
    with them; members may be split over devices by `jax.shard_map`; a float32 state stays float32; another instance
    with the same fields, and another state, do not compile again.

    Orders and gradients are measured in float64, whether it is on or not.

    Args:
        solver: An `AbstractStepper`, or a solver of diffrax or `sciml.solvers` that runs in sciml's own loops.
        problem: The problem to solve, smooth and not stiff, with an exact solution and a state of one dtype;
            `cosine_growth(rate=2.0)` if None. A method that needs structure of its model needs one that has it.
        steps: Three numbers of steps, which should divide the time of the problem such that errors are above
            rounding; by default they follow from the order.
        dense_order: The order within the steps; the order of the method if None.
        slack: By how much a measured order may fall short.
        rtol: How far gradients may be off, relative to their largest element.

    Returns:
        A `StepperReport`.

    Raises:
        AssertionError: If the method breaks a promise, which the message names with numbers.
        TypeError: If it is not a method, or runs through diffrax.

    Example:
        ```python
        import jax
        import sciml

        class Midpoint(sciml.solvers.AbstractStepper):
            order = 2
            evaluations = 2
            has_error = False

            def step(self, field, t, h, y, memory):
                half = jax.tree.map(lambda y, f: y + h / 2 * f, y, field(t, y))
                slope = field(t + h / 2, half)
                return sciml.solvers.Step(jax.tree.map(lambda y, f: y + h * f, y, slope))

        report = sciml.verify.check_stepper(Midpoint())
        assert abs(report.forwards.order - 2) < 0.1
        ```
    """
    name = type(solver).__name__
    small = converted(cosine_growth(rate=2.0) if problem is None else problem, jnp.float32)
    stepper = stepper_of(solver, small.y0)
    if stepper is None:
        raise TypeError(
            f"`{name}` runs in diffrax's loop, not in sciml's own. Only solvers with a Runge-Kutta tableau, solvers of "
            "`sciml.solvers` and `AbstractStepper`s run in sciml's loops."
        )
    _check_hashable(solver, name)
    with jax.enable_x64(True):
        wide = converted(small if problem is None else problem, jnp.float64)
        promised = stepper_of(solver, wide.y0)
        assert promised is not None  # as in float32
        _check_members(promised, wide, name)
        _check_elementwise_dense(promised, name)
    if problem is None:  # a model with structure cannot be wrapped in a function that counts
        _check_traced_once(solver, small, name)
    with jax.enable_x64(True):
        numbers = tuple(steps or _STEPS.get(promised.order, (16, 32, 64) if promised.order < 7 else (8, 12, 16)))
        forwards, backwards, between = _check_order(solver, promised, wide, numbers, dense_order, slack, name)
        if promised.has_error:
            _check_error_control(solver, promised, wide, name)
        gradient = _check_gradients(solver, promised, wide, rtol, name)
        skipped = _check_devices(solver, wide, gradient, name)
    _check_float32(solver, small, wide, numbers[1], name)
    return StepperReport(forwards, backwards, between, skipped)


def _check_members(stepper: AbstractStepper, problem: Problem, name: str) -> None:
    """Checks the declarations and results of the members, before the loops use them."""
    check(isinstance(stepper.order, int) and stepper.order >= 1, f"`{name}.order` must be 1 or more: {stepper.order}")
    check(isinstance(stepper.evaluations, int), f"`{name}.evaluations` must be an integer: {stepper.evaluations!r}")
    check(isinstance(stepper.has_error, bool), f"`{name}.has_error` must be a boolean: {stepper.has_error!r}")
    base = stepper.base if isinstance(stepper, WithHistory) else stepper
    t, h = jnp.asarray(problem.t0, jnp.float64), jnp.asarray(0.01)

    def step(y, t, h):
        field, y, memory = _started(base, problem.model, t, h, y)
        return y, memory, base.empty_dense(y), base.step(field, t, h, y, memory)

    y, memory, empty, made = jax.eval_shape(step, problem.y0, t, h)
    check(isinstance(made, Step), f"`{name}.step` must return a `sciml.solvers.Step`, but returns {made}")
    check_same_arrays(made.y1, y, f"`{name}.step` must return `y1` like `y`")
    check_same_arrays(made.memory, memory, f"`{name}.step` must return `memory` like `init`")
    if base.traits.dense:
        check_same_arrays(made.dense, empty, f"`{name}.step` must return `dense` like `empty_dense`")
    check(
        (made.error is not None) == stepper.has_error,
        f"`{name}.has_error` is {stepper.has_error}, but `step` returns {'no' if made.error is None else 'an'} `error`",
    )
    if made.error is not None and made.measured is None:
        check_same_arrays(made.error, y, f"`{name}.step` must return `error` like `y`")


def _check_elementwise_dense(stepper: AbstractStepper, name: str) -> None:
    """Checks a promise that nobody else would notice to be broken: states at saved times would be wrong."""
    base = stepper.base if isinstance(stepper, WithHistory) else stepper
    if not base.traits.elementwise_dense:
        return
    promise = f"`{name}.traits.elementwise_dense` is True, but"
    check(base.traits.dense, f"{promise} `dense` is not")
    found = interpolation_of(base)
    check(found is not None, f"{promise} `interpolate` is not a polynomial in `theta` of a moderate degree")
    assert found is not None
    generator, h = np.random.default_rng(0), 0.3
    y0, y1, *stages = (jnp.asarray(row) for row in generator.normal(size=(len(found.matrix), 3)))
    terms = [h * x if by else x for x, by in zip((y0, y1, *stages), found.by_length)]
    for theta in (0.25, 0.7):
        expected = base.interpolate(jnp.asarray(theta), jnp.asarray(h), y0, y1, tuple(stages))
        weights = np.array(found.matrix) @ theta ** np.arange(len(found.matrix[0]))
        close = np.allclose(sum(float(w) * x for w, x in zip(weights, terms)), expected, rtol=1e-9, atol=1e-9)
        check(close, f"{promise} `interpolate` mixes the numbers of a state")


def _started(stepper: AbstractStepper, model: Any, t: Any, h: Any, y: Any) -> tuple[Any, Any, Any]:
    """Returns vector field, state and memory before the first step."""
    closed, operands = stepper.coordinates.close(model, t, y, None, h)
    field = closed.bind(operands)
    y, _ = stepper.coordinates.prepare(field, t, y)
    return field, y, stepper.init(field, t, y)


def _rows(ys: PyTree) -> Any:
    """Returns states, one of each time, as the rows of one array."""
    return jnp.concatenate([y.reshape(y.shape[0], -1) for y in jax.tree.leaves(ys)], axis=1)


def _end(solver: Any, adjoint: Any = None) -> Callable:
    """Returns a function of the inputs of a solution; times are traced, so that it is compiled once."""

    def end(inputs: Any, t0: Any, t1: Any, dt: Any, ts: Any = None) -> Any:
        model, y0 = inputs
        options = dict(dt=dt, saveat=ts, solver=solver, adjoint=adjoint, throw=False)
        ys = _rows(solve(model, y0, t0=t0, t1=t1, **options).ys)
        return ys if ts is not None else ys[-1]

    return end


def _check_order(
    solver: Any,
    stepper: AbstractStepper,
    problem: Problem,
    steps: tuple[int, ...],
    dense_order: int | None,
    slack: float,
    name: str,
) -> tuple[ObservedOrder, ObservedOrder, ObservedOrder | None]:
    t0, t1 = (jnp.asarray(t, jnp.float64) for t in (problem.t0, problem.t1))
    end = jax.jit(_end(solver))
    exact = jax.jit(lambda t: problem.solution(t))

    def measured(run: Callable, ts: Callable, what: str, order: int) -> ObservedOrder:
        sizes = np.asarray([float(t1 - t0) / n for n in steps])
        errors = []
        for n in steps:
            truth = _rows(jax.vmap(exact)(ts(n)))
            errors.append(float(largest_difference(run(n), truth) / jnp.max(jnp.abs(truth))))
        floor = 10 * float(jnp.finfo(jnp.float64).eps)
        check(
            all(floor < e < np.inf for e in errors),
            f"{what} the errors of `{name}` with {steps} steps are {errors}, which do not determine an order; "
            "pass other numbers of `steps`",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the order says that errors hardly fall
            found = fitted(sizes, np.asarray(errors))
        check(
            found.order > order - slack,
            f"{what} `{name}` shows order {found.order:.3f} instead of {order}: errors {errors} with {steps} steps",
        )
        return found

    def forwards(n):
        return end((problem.model, problem.y0), t0, t1, (t1 - t0) / n)[None]

    def backwards(n):
        return end((problem.model, exact(t1)), t1, t0, (t0 - t1) / n)[None]

    def within(n):
        h = (t1 - t0) / n
        starts = np.linspace(0, n - 1, min(8, *steps)).astype(int)
        return t0 + h * jnp.asarray((starts[:, None] + np.array([0.13, 0.37, 0.61, 0.83])).reshape(-1))

    def between(n):
        return end((problem.model, problem.y0), t0, t1, (t1 - t0) / n, within(n))

    found = measured(forwards, lambda n: t1[None], "forwards in time", stepper.order)
    back = measured(backwards, lambda n: t0[None], "backwards in time", stepper.order)
    if not stepper.traits.dense:
        return found, back, None
    order = stepper.order if dense_order is None else dense_order
    return found, back, measured(between, within, "between the steps (`interpolate`)", order)


def _check_error_control(solver: Any, stepper: AbstractStepper, problem: Problem, name: str) -> None:
    """Checks that errors meet the tolerances, as far as local errors add up, and decrease with them."""

    @jax.jit
    def run(tolerance):
        sol = solve(
            problem.model, problem.y0, t0=problem.t0, t1=problem.t1, rtol=tolerance, atol=tolerance, solver=solver,
            throw=False,
        )  # fmt: skip
        return problem.error(jax.tree.map(lambda y: y[-1], sol.ys)), sol.stats, sol.status

    tolerances = (1e-3, 1e-5) if stepper.order < 3 else (1e-4, 1e-7)
    errors = []
    for tolerance in tolerances:
        error, stats, status = run(jnp.asarray(tolerance))
        check(int(status) == 0, f"`{name}` does not reach the end under `rtol=atol={tolerance}`: status {int(status)}")
        check(
            float(error) <= 100 * tolerance,
            f"`{name}` misses the end by {float(error):.2e} under `rtol=atol={tolerance}`, in {int(stats.accepted)} "
            "steps: `error` underestimates the error",
        )
        errors.append(float(error))
    check(
        errors[1] < errors[0] / 3,
        f"the errors of `{name}` hardly fall with the tolerances {tolerances}: {errors}",
    )


def _check_gradients(
    solver: Any, stepper: AbstractStepper, problem: Problem, rtol: float, name: str
) -> tuple[Callable, PyTree, PyTree]:
    """Checks reverse mode through fixed steps and error control, batching and forward mode; returns the findings."""
    t0, t1 = float(problem.t0), float(problem.t1)
    inputs = _Given(problem.model, problem.y0)
    ts = t0 + (t1 - t0) * np.array([0.21, 0.64, 1.0])

    def loss(adjoint, saveat, inputs):
        sol = solve(
            inputs.model, inputs.y0, t0=t0, t1=t1, dt=(t1 - t0) / 19, solver=solver, adjoint=adjoint, saveat=saveat,
            throw=False,
        )  # fmt: skip
        ys = _rows(sol.ys)
        return jnp.sum(jnp.sin(jnp.real(ys) * jnp.arange(1, ys.size + 1).reshape(ys.shape).astype(ys.real.dtype)))

    for saveat, what in ((None, "fixed steps"), (ts, "saved times")):
        fn = jax.jit(partial(loss, Checkpointed(), saveat))
        found = jax.jit(jax.grad(fn))(inputs)
        expected = finite_difference_gradient(fn, inputs)
        try:
            check_close(found, expected, rtol, f"the gradient of `{name}` through {what}", "finite differences")
        except AssertionError as error:
            t, h = jnp.asarray(t0), jnp.asarray(0.01)
            memory = jax.eval_shape(lambda y: _started(stepper, problem.model, t, h, y)[2], problem.y0)
            if jax.tree.leaves(memory):  # one with `history` has it in the state
                raise AssertionError(
                    f"{error} A gradient repeats each step from its state, with the memory that `init` returns for "
                    "it. If the memory of the previous step differs from that, the method needs "
                    "`Traits(history=True)`."
                ) from error
            raise

    end = partial(loss, Checkpointed(), None)
    batch = perturbed(inputs, 2)
    inside = jax.jit(jax.vmap(jax.grad(end)))(batch)
    around = jax.jit(jax.grad(lambda xs: jnp.sum(jax.vmap(end)(xs))))(batch)
    alone = jax.jit(jax.grad(end))
    each = stacked([alone(jax.tree.map(lambda x: x[i], batch)) for i in range(2)])  # noqa: B023
    check_close(inside, each, 1e-8, f"`vmap(grad)` of `{name}`", "the gradient of each member")
    check_close(around, inside, 1e-8, f"`grad` around `vmap` of `{name}`", "`vmap(grad)`")

    tangent = jax.tree.map(jnp.ones_like, inputs)
    forward = jax.jit(lambda x: jax.jvp(partial(loss, Direct(), None), (x,), (tangent,))[1])(inputs)
    reverse = sum(jax.tree.leaves(jax.tree.map(jnp.sum, alone(inputs))))
    check_close(forward, reverse, rtol, f"forward mode through `{name}` with `Direct()`", "reverse mode")
    return end, batch, inside


def _check_devices(solver: Any, problem: Problem, gradient: tuple, name: str) -> tuple[str, ...]:
    end, batch, expected = gradient
    devices = jax.devices()
    if len(devices) < 2:
        return ("`jax.shard_map`: there is one device",)
    mesh = jax.sharding.Mesh(np.array(devices[:2]), ("members",))
    spec = jax.sharding.PartitionSpec("members")
    found = jax.jit(jax.shard_map(jax.vmap(jax.grad(end)), mesh=mesh, in_specs=spec, out_specs=spec))(batch)
    check_close(found, expected, 1e-8, f"the gradient of `{name}` inside `jax.shard_map`", "the one on one device")
    return ()


def _check_hashable(solver: Any, name: str) -> None:
    try:
        hash(solver)
    except TypeError as error:
        raise AssertionError(
            f"`{name}` must be hashable, because JAX compiles once for each method: {error}. Store numbers in fields "
            "with `eqx.field(static=True)`, and tables of coefficients in tuples."
        ) from error


def _check_traced_once(solver: Any, problem: Problem, name: str) -> None:
    """Checks that neither another instance nor another state traces the model again."""
    model, calls = counted(problem.model)
    counts = []
    for factor in (1.0, 1.01):
        again = copy.deepcopy(solver)
        solve(model, jnp.asarray(factor, problem.y0.dtype) * problem.y0, t0=0.0, t1=0.5, dt=0.125, solver=again)
        counts.append(calls())
    check(
        counts[0] == counts[1],
        f"`{name}` is compiled again for an equal instance with another state ({counts[1] - counts[0]} more calls of "
        "the model): its fields must compare by value",
    )


def _check_float32(solver: Any, small: Problem, wide: Problem, steps: int, name: str) -> None:
    dt = (float(small.t1) - float(small.t0)) / steps
    run = partial(solve, t0=small.t0, t1=small.t1, dt=dt, solver=solver)
    ys = run(small.model, small.y0).ys
    for y, y0 in zip(jax.tree.leaves(ys), jax.tree.leaves(small.y0), strict=True):
        check(y.dtype == y0.dtype, f"`{name}` changes the dtype of the state from {y0.dtype} to {y.dtype}")
    with jax.enable_x64(True):
        expected = jax.tree.map(np.asarray, run(wide.model, wide.y0).ys)
    check_close(ys, expected, 1e-3, f"`{name}` in float32", "float64")
