"""`Backsolve`, `Interpolating` and `Gauss`: adjoints that integrate the adjoint equation backwards."""

import math
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._checks import check_count
from ...._jax._ad_modes import forward_only, reverse_only
from ...._jax._checkpoint_levels import NOTHING
from ...._jax._vma import match, promote
from ....kernels._lanes import Lanes, Unbatched
from ...events._event import resolution_of
from ...events._sides import BEYOND
from ...integrate._abstract import AbstractLoop
from ...integrate._batching import Batch
from ...integrate._integrator import Integrator, Operands
from ...integrate._result import Result
from ...methods.around._admissible import Within
from ...methods.around._history import WithHistory
from ...methods.around._projection import Projected
from ...methods.around._wrapped import AbstractWrappedStepper
from ...methods.implicit._esdirk import ESDIRK
from ...methods.implicit._rosenbrock import Rosenbrock
from ...terms._split_field import SplitField
from .._abstract import AbstractAdjoint
from .._discrete_rule import (
    IN_FORWARD_MODE,
    REVERSE_TWICE,
    asked_for,
    asked_parts,
    differentiable_parts,
    enter,
    instantiated,
    members_of_loop,
    without_unreached,
)
from ._backward import AdjointProblem, Backward, Variant, dense_stepping

# The rule of reverse mode of the continuous adjoints, over one member or many.


def run_with_rule(
    loop: AbstractLoop,
    y0: PyTree,
    operands: Operands,
    times: bool,
    variant: Variant,
    rtol: float | None,
    atol: float | None,
    memory: int,
    name: str,
) -> Result:
    """Runs an integration with the rule of a continuous adjoint.

    Args:
        loop: The loop to run; its `lanes` are replaced by the number of members.
        y0: The initial state.
        operands: The inputs of the integration.
        times: Whether t0, t1 and saved times are differentiated.
        variant: The quantity integrated backwards.
        rtol: The relative tolerance of the backward pass; None for the tolerance of the solve.
        atol: The absolute tolerance, likewise.
        memory: About how many bytes a record of all members may take.
        name: The adjoint, for messages.

    Raises:
        ValueError: If the adjoint does not fit the solve.
    """
    integrator = loop.integrator
    _check(integrator, operands, variant, rtol, atol, name)
    possible = differentiable_parts(operands, times)
    member = jax.eval_shape(lambda: (y0, operands))
    state_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(member[0]))

    members = members_of_loop(loop, y0)

    @members
    def plain(batch, flags, tree):
        here, y0, operands, saves = enter(loop, _engine(batch), flags, tree, state_bytes, NOTHING)
        # over lanes everything varies by device, and one member must not differ from that
        return match(here.forward(y0, operands, saves), tree)

    def reverse(spec, batch, flags, problem):
        engine = _engine(batch)
        here = dense_stepping(integrator, engine)
        back = Backward(here, variant, (spec.field, spec.t0), rtol, atol, batch.share(memory), loop.max_steps)
        like = AdjointProblem(None, None, None, None, member[0], None)  # pyright: ignore[reportArgumentType]
        return back.run(engine.enter(problem, jax.tree.leaves(flags)), like)

    @jax.custom_vjp
    def solve(inputs):
        return plain(inputs)

    def forward(inputs):
        # `asked` as shapes: JAX keeps one structure of what a rule leaves for all gradients, see `_static_flags`
        inputs, asked = asked_for(inputs, possible)
        result = plain(forward_only(inputs, REVERSE_TWICE))
        return result, (result, inputs, asked)

    def backward(kept, cotangent):
        *kept, asked = kept
        ys_bar = instantiated(cotangent.ys, kept[0].ys)
        (result, inputs), ys_bar = forward_only((kept, ys_bar), REVERSE_TWICE)
        y0, operands = inputs
        ys_bar, unreached = without_unreached(ys_bar, result)
        single = operands.saves is None
        saves = operands.span[None] if single else operands.saves
        ys, bars = result.ys, ys_bar
        if single:
            ys, bars = jax.tree.map(lambda x: x[None], (ys, bars))
        problem = AdjointProblem(bars, saves, ys, result.elapsed, y0, operands._replace(saves=None))
        back = members(partial(reverse, asked_parts(asked, possible)))
        y_bar, (field_bar, t0_bar) = back(promote(problem))
        bar = jax.tree.map(lambda x: None, operands)._replace(field=field_bar, t0=t0_bar)
        if times:
            along = _along(integrator, bars, ys, saves, operands)
            bar = bar._replace(span=along[0]) if single else bar._replace(saves=along)
        y_bar, bar = jax.tree.map(lambda x: jnp.where(unreached, jnp.full_like(x, jnp.nan), x), (y_bar, bar))
        return ((y_bar, bar),)

    solve.defvjp(forward, backward, symbolic_zeros=True)
    # promoted outside the rule, so that the promotion's transpose adds up what devices contribute
    return solve(promote(reverse_only((y0, operands), IN_FORWARD_MODE)))


def _engine(batch: Batch) -> Lanes | Unbatched:
    """Returns lanes, or for one member functions as they are, which compile faster than scattered ones."""
    return Lanes(batch.lanes) if batch.lanes is not None else Unbatched()


def _along(integrator: Integrator, bars: PyTree, ys: PyTree, saves: Array, operands: Operands) -> Array:
    """Returns the cotangents of the saved times: the product of each state's with the vector field there.

    A solve may begin and end at events, see `_between_events`: there the field is the field within the solve.
    """
    least = BEYOND * resolution_of(operands.t0, operands.t0 + operands.direction * operands.span)
    most = jnp.maximum(operands.span - least, least)

    def one(bar, y, s):
        slope = integrator.field(operands.t0 + operands.direction * jnp.clip(s, least, most), y, operands.field)
        zero = jnp.zeros_like(s)  # a state that is missing has no cotangent
        products = [
            jnp.sum(jnp.where(b == 0, zero.astype(b.real.dtype), jnp.real(b * k))).astype(s.dtype)
            for b, k in zip(jax.tree.leaves(bar), jax.tree.leaves(slope))
        ]
        return operands.direction * sum(products, zero)

    return jax.vmap(one)(bars, ys, saves)


def _check(integrator: Integrator, operands: Operands, variant: Variant, rtol: Any, atol: Any, name: str) -> None:
    if integrator.control is None and (rtol is not None or atol is not None):
        raise ValueError(
            f"`{name}(rtol=..., atol=...)` requires a solve with error control, but this one has fixed steps, which "
            "the backward pass also uses. Pass `rtol` or `atol` to `solve`, or leave them out here."
        )
    if isinstance(integrator.stepper, WithHistory):
        method = integrator.stepper.base
        while isinstance(method, AbstractWrappedStepper):  # the start of fixed steps has a method of its own
            method = method.base
        raise TypeError(
            f"`adjoint={name}()` integrates an adjoint equation from the end, where a multistep method such as "
            f"{type(method).__name__} has no earlier steps. "
            "Use `adjoint=sciml.adjoints.Checkpointed()`, or a Runge-Kutta method."
        )
    if isinstance(integrator.stepper, Within | Projected):
        raise ValueError(
            f"`adjoint={name}()` integrates an adjoint equation, which does not account for the changes that "
            "`positive`, `domain` or `project` made to the solution. Use `adjoint=sciml.adjoints.Checkpointed()`."
        )
    if isinstance(integrator.field, SplitField):
        raise TypeError(
            f"`adjoint={name}()` integrates an adjoint equation, which lacks the structure that the solver requires. "
            "Use `adjoint=sciml.adjoints.Checkpointed()`, or a Runge-Kutta method."
        )
    if not variant.state and not integrator.stepper.traits.dense:
        raise TypeError(
            f"`adjoint={name}()` requires dense output, but {type(integrator.stepper).__name__} does not interpolate "
            "(`dense = False`). Use `adjoint=sciml.adjoints.Checkpointed()`."
        )
    if not isinstance(integrator.stepper, Rosenbrock | ESDIRK):
        return
    if integrator.stepper.mass is not None:
        raise ValueError(
            f"`adjoint={name}()` does not support the mass matrix of the solver. "
            "Use `adjoint=sciml.adjoints.Checkpointed()`."
        )
    complex_operands = [x for x in operands.field if jnp.iscomplexobj(x)]
    if variant.parameters and complex_operands:
        raise ValueError(
            f"`adjoint={name}()` integrates the cotangents of the parameters, which implicit methods do not support "
            "for complex parameters. Use `adjoint=sciml.adjoints.Gauss()`, or pass the real and imaginary parts as "
            "parameters."
        )


class AbstractContinuousAdjoint(AbstractAdjoint):
    """An adjoint that integrates the adjoint equation backwards by the method of the solve.

    Attributes:
        variant: The quantity integrated together with the cotangent of the state.
        rtol: The relative tolerance of the backward pass; None for the tolerance of the solve.
        atol: The absolute tolerance, likewise.
        memory: About how many bytes a record of all members may take.
    """

    jumps_at_events: ClassVar[bool] = True

    variant: eqx.AbstractClassVar[Variant]
    rtol: eqx.AbstractVar[float | None]
    atol: eqx.AbstractVar[float | None]
    memory: eqx.AbstractVar[int]

    def __check_init__(self):
        name = type(self).__name__
        _check_tolerance(self.rtol, f"{name}(rtol=...)")
        _check_tolerance(self.atol, f"{name}(atol=...)")
        check_count(self.memory, "memory", name)

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop with the custom rule of reverse mode."""
        options = (self.variant, self.rtol, self.atol, self.memory, f"sciml.adjoints.{type(self).__name__}")
        return run_with_rule(loop, y0, operands, differentiate_times, *options)


class Backsolve(AbstractContinuousAdjoint):
    r"""A continuous adjoint that integrates the state, its cotangent and the parameters' cotangents backwards.

    $$\frac{d}{dt} \big(y, \lambda, \mu\big) = \big(f, -f_y^T \lambda, -f_p^T \lambda\big)$$

    from the end to the start. Nothing is recorded: memory does not grow with the number of steps. The price is that the
    state is integrated against the direction in which it is stable. A stiff or strongly damped system forgets its past,
    which means blow-up in backward time. The gradient is then NaN, as it is whenever the state on its backward pass has
    lost half of the digits of the tolerances. At saved times it is set to the saved state. `Gauss` has none of these
    difficulties.

    The gradient is the gradient of the differential equation, accurate to the tolerances, and not of the numbers that
    `solve` returned. All that is integrated counts in the control of the error: with many parameters these determine
    the steps. An implicit method factorises matrices of the size of the state twice plus the parameters. Mass matrices
    are refused, and so is forward mode.

    Events make the costate jump: with `events` it solves twice, to find them and then from each to the next, and beyond
    `max_events` of them derivatives are NaN.

    Attributes:
        rtol: The relative tolerance of the backward pass; by default the tolerance of the solve.
        atol: The absolute tolerance of the backward pass, relative to the largest cotangent of the saved states; by
            default the tolerance of the solve.

    Raises:
        ValueError: If a tolerance is not positive.

    Source:
        R. T. Q. Chen, Y. Rubanova, J. Bettencourt, D. Duvenaud, Neural Ordinary Differential
        Equations (2018), arXiv:1806.07366.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def end(rate):
            field = lambda t, y, args: -rate * y
            return sciml.solve(field, jnp.ones(()), t0=0.0, t1=1.0, adjoint=sciml.adjoints.Backsolve()).ys[-1]

        assert abs(float(jax.grad(end)(jnp.array(2.0))) + 0.1353353) < 1e-3
        ```
    """

    variant: ClassVar[Variant] = Variant(state=True, parameters=True)
    memory: ClassVar[int] = 1  # nothing is recorded

    rtol: float | None = eqx.field(static=True, default=None)
    atol: float | None = eqx.field(static=True, default=None)


class Interpolating(AbstractContinuousAdjoint):
    r"""A continuous adjoint that reads the state from the solve's dense output in the backward pass.

    $$\frac{d}{dt} \big(\lambda, \mu\big) = \big(-f_y^T \lambda, -f_p^T \lambda\big)$$

    is integrated from the end to the start, where $y(t)$ in $f_y$ and $f_p$ is the method's interpolation between its
    forward steps. So a stiff system, which `Backsolve` cannot follow, is stable on its backward pass. The error of
    every parameter's gradient is controlled, which costs steps, and an implicit method factorises matrices of the size
    of state plus parameters: with more than a few parameters take `Gauss`.

    The backward pass begins by integrating the solve once more and recording its steps in a table; a solve of more
    steps than the table has rows is recorded segment by segment, at the cost of about one more solve. The gradient is
    the gradient of the differential equation, accurate to the tolerances. Mass matrices are refused, and so is forward
    mode.

    Events make the costate jump: with `events` it solves twice, to find them and then from each to the next, and beyond
    `max_events` of them derivatives are NaN.

    Attributes:
        rtol: The relative tolerance of the backward pass; by default the tolerance of the solve.
        atol: The absolute tolerance of the backward pass, relative to the largest cotangent of the saved states; by
            default the tolerance of the solve.
        memory: About how many bytes the table may take for all members of a `vmap`; it has at least 16 rows. For small
            states at most 16 MiB are used.

    Raises:
        ValueError: If a tolerance or `memory` is not positive.
        TypeError: If `memory` is not an integer.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def end(rate):
            field = lambda t, y, args: -rate * y
            return sciml.solve(field, jnp.ones(()), t0=0.0, t1=1.0, adjoint=sciml.adjoints.Interpolating()).ys[-1]

        assert abs(float(jax.grad(end)(jnp.array(2.0))) + 0.1353353) < 1e-3
        ```
    """

    variant: ClassVar[Variant] = Variant(state=False, parameters=True)

    rtol: float | None = eqx.field(static=True, default=None)
    atol: float | None = eqx.field(static=True, default=None)
    memory: int = eqx.field(static=True, default=2**28)


class Gauss(AbstractContinuousAdjoint):
    r"""A continuous adjoint for stiff systems with many parameters.

    Only the cotangent of the state is integrated backwards, and the parameters' gradient is an
    integral over the same interval,

    $$\frac{d\lambda}{dt} = -f_y^T \lambda, \qquad
      \frac{dL}{dp} = \int_{t_0}^{t_1} \lambda^T f_p \, dt,$$

    taken by Gauss-Legendre quadrature over each step backwards, with $y$ and $\lambda$ from the dense output of the two
    solves. An implicit method factorises matrices of the size of the state only: for $n$ components and $p$ parameters,
    a step costs $O(n^3 + p)$, compared with $O((n + p)^3)$ for `Backsolve` and `Interpolating`. Other libraries also
    call this a quadrature adjoint; they store the backward pass and integrate it afterwards, whereas here the nodes are
    summed during the pass.

    Every saved time that the loss depends on makes $\lambda$ jump, and in a stiff system each jump is followed
    by a transient of small steps: with many saved times `Checkpointed` costs less.

    The error of $\lambda$ is controlled, but not the error of the integral, which has the order of the method. The
    record of the solve is the same as for `Interpolating`. The gradient is the gradient of the differential equation,
    accurate to the tolerances; `Checkpointed` differentiates the computed solution. Mass matrices are refused, and so
    is forward mode.

    Events make the costate jump: with `events` it solves twice, to find them and then from each to the next, and beyond
    `max_events` of them derivatives are NaN.

    Attributes:
        rtol: The relative tolerance of the backward pass; by default the tolerance of the solve.
        atol: The absolute tolerance of the backward pass, relative to the largest cotangent of the saved states; by
            default the tolerance of the solve.
        memory: About how many bytes the table may take for all members of a `vmap`; it has at least 16 rows. For small
            states at most 16 MiB are used.

    Raises:
        ValueError: If a tolerance or `memory` is not positive.
        TypeError: If `memory` is not an integer.

    Source:
        The name and the method come from SciMLSensitivity.jl's `GaussAdjoint`.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def end(rate):
            field = lambda t, y, args: -rate * y
            return sciml.solve(field, jnp.ones(()), t0=0.0, t1=1.0, adjoint=sciml.adjoints.Gauss()).ys[-1]

        assert abs(float(jax.grad(end)(jnp.array(2.0))) + 0.1353353) < 1e-3
        ```
    """

    variant: ClassVar[Variant] = Variant(state=False, parameters=False)

    rtol: float | None = eqx.field(static=True, default=None)
    atol: float | None = eqx.field(static=True, default=None)
    memory: int = eqx.field(static=True, default=2**28)


def _check_tolerance(value: Any, name: str) -> None:
    """Raises a `ValueError` unless a tolerance is None or a positive number known when traced."""
    if value is None:
        return
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not known or not math.isfinite(value) or value <= 0:
        raise ValueError(f"`{name}` must be a positive Python number, or None to use the solve's, but is {value!r}.")
