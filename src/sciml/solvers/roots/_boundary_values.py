"""`solve_bvp`: boundary value problems, by collocation."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Bool, Float, Int, PyTree, Real

from ..._checks import check_finite, check_max_steps, check_state, concrete, no_instance, time_dtype
from ..._jax._loops import while_loop
from ..._jax._members_apart import members_apart
from ..._jax._shards import on_mesh_of, sign_of
from ..._same_code import filter_jit
from ..._status import Status, raise_for_status
from ..._types import Args, IntScalarLike, RealScalarLike, Y
from .._solution import Solution, Stats
from ..control._pid import Tolerances
from ..linear._entries import DenseMatrix
from ..methods._ravel import flattened, unflattened
from ..outputs._dense import at_times
from ..terms._explain import check_callable
from ..terms._field import arrays_of, close_field
from ._implicit_root import implicit_root

# Newton's method with damped steps, for equations of any units and any scale.
#
# A step is $\Delta x = -J^{-1} F(x)$. The trial $x + \lambda \Delta x$ is accepted if the step that would follow with
# the same matrix, $-J^{-1} F(x + \lambda \Delta x)$, is shorter. Neither this nor the end depends on factors that
# equations are multiplied by, unlike a norm of $F$. Steps are measured relative to the values of each unknown, so that
# they do not depend on units either.
#
# P. Deuflhard, Newton Methods for Nonlinear Problems, Springer (2004), sections 3.3.1 and 3.3.3.


_LEAST_DAMPING = 1e-5
"""A shorter share of a step is not tried: the matrix is then singular nearby, or there is no root."""

_GROWTH = 1e3
"""How many times the tolerance a step may be that no longer gets shorter: by rounding, for which no step is too short.
`Tolerances` of the derivatives of a root allow as much."""


_NOISE = 4.0
"""Steps that rounding may cause are shorter than the tolerance by this factor, also for an unknown that is zero."""


class Root(NamedTuple):
    """A root.

    Attributes:
        x: The root, or the last iterate.
        rows: Factors that make the largest entry of each row of the scaled Jacobian one, shaped like `x`.
        sizes: The size of each unknown over the nodes, which is not zero, shape `(1, n)`.
        good: Whether it is a root.
        n_steps: The number of iterations.
    """

    x: Float[Array, "nodes n"]
    rows: Float[Array, "nodes n"]
    sizes: Float[Array, "1 n"]
    good: Bool[Array, ""]
    n_steps: Int[Array, ""]


class _Iteration(NamedTuple):
    """An iterate; `ended` is 1 for a root, 2 for a failure."""

    x: Array
    rows: Array
    sizes: Array
    damping: Array
    ended: Array
    count: Array


def damped_newton(
    f: Callable[[Array], Array],
    x: Float[Array, "nodes n"],
    tolerance: float,
    max_steps: IntScalarLike,
    like: Any = (),
) -> Root:
    """Returns a root of as many equations as unknowns; it has no derivative, see `implicit_root`.

    Args:
        f: The equations, of the shape of `x`.
        x: The start.
        tolerance: The length of a step that is neglected, relative to the largest value over the nodes.
        max_steps: The most iterations.
        like: Values that `f` closes over.
    """
    shape, matrices, eps = x.shape, DenseMatrix(np.zeros((x.size, x.size))), jnp.finfo(x.dtype).eps
    signs = np.random.default_rng(0).choice([-1.0, 1.0], x.size).astype(x.dtype)

    def sizes_of(x: Array) -> Array:
        largest = jnp.max(jnp.abs(x), axis=0, keepdims=True)
        return jnp.where(largest > 0, largest, jnp.ones_like(largest))

    def iterate(at: _Iteration) -> _Iteration:
        x, units = at.x, jnp.broadcast_to(at.sizes, shape)
        matrix = jax.jacfwd(f)(x).reshape(x.size, x.size) * units.reshape(1, -1)
        largest = jnp.max(jnp.abs(matrix), axis=1)
        rows = 1 / jnp.where(largest > 0, largest, jnp.ones_like(largest))
        matrix = matrix * rows[:, None]
        factors = matrices.factorise(matrix)

        def solved(right: Array) -> Array:
            return units * matrices.substitute(factors, right).reshape(shape)

        move = -solved(rows * f(x).reshape(-1))
        # a step that rounding of the terms of the equations may cause
        terms = jnp.matmul(jnp.abs(matrix), ((jnp.abs(x) + jnp.abs(move)) / units).reshape(-1), precision="highest")
        noise = jnp.abs(solved(eps * signs * terms))
        sizes = sizes_of(jnp.maximum(jnp.abs(x + move), _NOISE / tolerance * noise))
        trial = x + at.damping * move
        move_after = -solved(rows * f(trial).reshape(-1))
        step, after = move / sizes, move_after / sizes
        length, length_after = jnp.max(jnp.abs(step)), jnp.max(jnp.abs(after))
        bend = jnp.max(jnp.abs(after - (1 - at.damping) * step))
        shorter = length_after <= (1 - at.damping / 4) * length
        guess = 0.5 * length * at.damping**2 / jnp.where(bend > 0, bend, jnp.finfo(x.dtype).tiny)
        damping = jnp.where(jnp.isfinite(bend), guess, 0)
        damping = jnp.where(
            shorter, jnp.clip(damping, at.damping, 1), jnp.clip(damping, at.damping / 8, at.damping / 2)
        )
        full = at.damping == 1
        at_trial = full & shorter & (length_after <= tolerance)
        at_start = (length <= tolerance) | (full & ~shorter & (length <= _GROWTH * tolerance))
        failed = ~jnp.isfinite(length) | (damping < _LEAST_DAMPING)
        ended = jnp.where(at_trial | at_start, 1, jnp.where(failed, 2, 0)).astype(jnp.int32)
        last = jnp.where(at_trial, trial + move_after, x + move)
        x = jnp.where(ended == 1, last, jnp.where(shorter, trial, x))
        return _Iteration(x, rows.reshape(shape), sizes, damping, ended, at.count + 1)

    def going(at: _Iteration) -> Bool[Array, ""]:
        return (at.ended == 0) & (at.count < max_steps)

    start = _Iteration(x, jnp.ones_like(x), sizes_of(x), jnp.ones((), x.dtype), jnp.int32(0), jnp.int32(0))
    found = while_loop(going, iterate, start, like=like)
    return Root(found.x, found.rows, found.sizes, found.ended == 1, found.count)


class HermiteOutput(eqx.Module):
    """A solution that is a cubic between nodes, by states and rates there; see `Solution.evaluate`.

    Attributes:
        ts: The nodes, ascending or descending.
        ys: The states there.
        rates: Their rates.
    """

    ts: Real[Array, "*members nodes"]
    ys: PyTree
    rates: PyTree

    @staticmethod
    def between(place: Any, h: Array, y0: Array, y1: Array, f0: Array, f1: Array) -> tuple[Array, Array]:
        """Returns cubic and rate at a place from 0 to 1 of intervals, or of one."""
        h = h.reshape(h.shape + (1,) * (y0.ndim - h.ndim)).astype(y0.dtype)
        p = jnp.asarray(place, y0.dtype)
        r = 1 - p
        step, a, b = y1 - y0, h * f0, h * f1
        y = r * y0 + p * y1 + p * r * ((p - r) * step + r * a - p * b)
        rate = (6 * p * r * step + r * (r - 2 * p) * a + p * (p - 2 * r) * b) / h
        return y, rate

    def evaluate(self, t: Any) -> Y:
        """Returns the states at one time or many."""
        return at_times(lambda self, t: self._both(t, 0), self, t)

    def derivative(self, t: Any) -> Y:
        """Returns the rates at one time or many."""
        return at_times(lambda self, t: self._both(t, 1), self, t)

    def _both(self, t: Array, which: int) -> Y:
        direction = sign_of(self.ts[-1] >= self.ts[0], t.dtype)
        row = jnp.clip(jnp.sum(direction * (self.ts - t) <= 0) - 1, 0, self.ts.shape[0] - 2)
        start, end = self.ts[row], self.ts[row + 1]
        place = (t - start) / (end - start)
        outside = (direction * (t - self.ts[0]) < 0) | (direction * (t - self.ts[-1]) > 0)
        place = jnp.where(outside, jnp.full_like(place, jnp.nan), place)

        def of_leaf(y: Array, f: Array) -> Array:
            return self.between(place, end - start, y[row], y[row + 1], f[row], f[row + 1])[which]

        return jax.tree.map(of_leaf, self.ys, self.rates)


_NEWTON = 1e-3
"""How much more exactly the equations of the nodes are solved than the differential equation between these."""

_MESHES = 12
"""How often nodes are added."""

_INSIDE = 0.5 - np.sqrt(21) / 14
"""The relative places in an interval, from both ends, where the residual of the cubic is evaluated: it vanishes at both
ends and, by collocation, in the middle."""


def solve_bvp(
    model: Callable[[RealScalarLike, Y, Args], Y],
    boundary: Callable[[Y, Y, Args], PyTree],
    ts: Any,
    ys: PyTree,
    *,
    args: Args = None,
    rtol: float = 1e-3,
    solver: optx.AbstractRootFinder | optx.AbstractLeastSquaresSolver | None = None,
    max_steps: IntScalarLike = 64,
    max_nodes: IntScalarLike = 500,
    throw: bool = True,
) -> Solution:
    r"""Solves the boundary value problem $\dot y = f(t, y, \mathrm{args})$, $b(y(t_0), y(t_1), \mathrm{args}) = 0$.

    Between two nodes the solution is a cubic that satisfies the equation at both and in the middle (collocation,
    Lobatto IIIa, order 4). Nodes are added where the residual of the equation is too large, unless something is traced,
    as in a gradient, which only uses the given nodes: find them first, and pass `ts=sol.ts, ys=sol.ys`. Derivatives
    with respect to `args` follow from the implicit function theorem, in forward and reverse mode, with one linear
    solve.

    The equations of all nodes are one dense linear system, which takes about a second for 500 nodes of two unknowns. An
    unknown parameter, such as an eigenvalue, is one more component of the state whose rate is zero.

    Args:
        model: `f(t, y, args) -> dy/dt`, as for `solve`.
        boundary: $b$, a function `boundary(y_start, y_end, args)` of the states at both ends, which returns one number
            for each state component, as an array or a PyTree.
        ts: The initial nodes, of shape `(nodes,)`, ascending or descending; their ends are $t_0$ and $t_1$.
        ys: A guess of the states there: a PyTree like the state, with the nodes first on every leaf.
        args: The last argument of the model and of `boundary`, any PyTree.
        rtol: The allowed residual $\|\dot y - f\|$ between nodes, relative to $\|f\|$ plus the mean of $|y|$ over the
            length of the interval, for each component.
        solver: An optimistix solver whose result is the start of the iteration, such as `optimistix.Dogleg(1e-3, 1e-3)`
            for a poor guess. By default it starts from the guess. The iteration is a damped Newton iteration, which
            does not depend on the scaling of equations and conditions.
        max_steps: The maximum number of iterations, for each set of nodes.
        max_nodes: The maximum number of nodes.
        throw: Whether to raise an error if no solution was found; under a transformation check `status`.

    Returns:
        A `Solution` with nodes as `ts`; `evaluate` and `derivative` return it between them. NaN if none was found.

    Raises:
        ValueError: If nodes or states have the wrong shape or order, a number of the guess is known and not finite, or
            `boundary` returns another number of numbers.
        TypeError: If an argument has the wrong type.
        SolveError: If none was found and `throw` is set.

    Source:
        J. Kierzenka and L. F. Shampine, A BVP solver based on residual control and the MATLAB PSE, ACM Transactions on
        Mathematical Software 27 (2001) 299.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        # Bratu: u'' = -exp(u), u = 0 at both ends
        bratu = lambda t, y, args: jnp.stack([y[1], -jnp.exp(y[0])])
        ends = lambda start, end, args: jnp.stack([start[0], end[0]])
        ts = jnp.linspace(0.0, 1.0, 11)
        sol = sciml.solve_bvp(bratu, ends, ts, jnp.zeros((11, 2)))
        assert abs(sol.evaluate(0.5)[0] - 0.140539) < 1e-4
        ```
    """
    check_callable(model)
    if not callable(boundary):
        raise TypeError(f"`boundary` must be a function `boundary(y_start, y_end, args)`, but {no_instance(boundary)}.")
    ys = check_state(ys, "ys")
    check_finite(ys, "ys")
    dtype, known = time_dtype(ys), all(map(concrete, jax.tree.leaves((model, ts, ys, args))))
    ts = check_nodes(ts, ys, dtype)
    if not rtol > 0:
        raise ValueError(f"`rtol` must be positive, but is {rtol}.")
    newton = max(min(_NEWTON * rtol, _NEWTON**2), 16 * float(jnp.finfo(dtype).eps))
    steps, most = check_max_steps(max_steps), check_max_steps(max_nodes)
    args = arrays_of(args)
    found = _collocate(model, boundary, ts, ys, args, newton, solver, steps)
    taken = found.steps
    for _ in range(_MESHES):
        if not known or found.status != int(Status.successful):
            break
        refined = _refined(np.asarray(ts), np.asarray(found.residuals), rtol)
        if len(refined) == len(ts) or len(refined) > most:
            break
        ys = _output(ts, found).evaluate(refined)
        ts = jnp.asarray(refined, dtype)
        found = _collocate(model, boundary, ts, ys, args, newton, solver, steps)
        taken = taken + found.steps
    coarse = (found.status == int(Status.successful)) & ~(jnp.max(found.residuals) <= rtol)
    status = jnp.where(coarse, int(Status.mesh_too_coarse), found.status).astype(jnp.int32)
    if throw and concrete(status):
        raise_for_status(status, where="solve_bvp")
    none, ts = jnp.zeros_like(taken), on_mesh_of(status, ts)
    reached = jnp.where(status == int(Status.successful), ts[-1], jnp.full_like(ts[-1], jnp.nan))
    return Solution(ts, found.ys, status, reached, Stats(taken, none, none - 1, taken), dense=_output(ts, found))


class _Collocated(NamedTuple):
    """A solution on given nodes.

    Attributes:
        ys: The states there.
        rates: Their rates.
        residuals: The relative residual in each interval.
        status: A code of `Status`.
        steps: How many iterations it took.
    """

    ys: PyTree
    rates: PyTree
    residuals: Float[Array, " intervals"]
    status: Array
    steps: Array


@filter_jit
def _collocate(
    model: Callable, boundary: Callable, ts: Array, ys: PyTree, args: Args, newton: float, solver: Any, max_steps: int
) -> _Collocated:
    run = members_apart(lambda *given: _collocated(*given, newton, solver, max_steps))
    return run(model, boundary, ts, ys, args)


def _collocated(
    model: Callable, boundary: Callable, ts: Array, ys: PyTree, args: Args, newton: float, solver: Any, max_steps: int
) -> _Collocated:
    like = jax.tree.map(lambda x: jax.lax.stop_gradient(x[0]), ys)
    field, operands = close_field(model, ts[0], like, args)

    def rate(t, x, operands):
        return flattened(field(t, unflattened(x, like), operands))

    def at_ends(first, last, args):
        return flattened(jax.tree.map(jnp.asarray, boundary(unflattened(first, like), unflattened(last, like), args)))

    def equations(x, ts, operands, args):
        return collocation(lambda t, x: rate(t, x, operands), lambda *ends: at_ends(*ends, args), ts, x)

    x = jax.vmap(flattened)(ys)
    check_conditions(jax.eval_shape(at_ends, x[0], x[-1], args).shape[0], x.shape[1])
    constant, x = jax.lax.stop_gradient(((ts, operands, args), x))
    before = jnp.int32(0)
    if solver is not None:
        start = optx.root_find(
            lambda x, constant: equations(x, *constant), solver, x, constant, max_steps=max_steps, throw=False
        )
        x, before = start.value, jnp.asarray(start.stats["num_steps"], jnp.int32)
    found = damped_newton(lambda x: equations(x, *constant), x, newton, max_steps, constant)
    close = Tolerances(*(jnp.asarray(1e3 * newton, x.dtype) for _ in range(2)))
    # powers of two, by which nothing is rounded: tolerances are relative to the size of each component
    units = jnp.exp2(jnp.round(jnp.log2(found.sizes)))
    x = implicit_root(lambda x: found.rows * equations(x * units, ts, operands, args), found.x / units, close) * units
    x = jnp.where(found.good, x, jnp.full_like(x, jnp.nan))
    slope = jax.vmap(rate, (0, 0, None))(ts, x, operands)
    residuals = _residuals(lambda t, x: rate(t, x, operands), ts, x, slope, found.sizes)
    states, rates = (jax.vmap(lambda v: unflattened(v, like))(v) for v in (x, slope))
    status = jnp.where(found.good, int(Status.successful), int(Status.diverged)).astype(jnp.int32)
    return _Collocated(states, rates, residuals, status, before + found.n_steps)


def collocation(
    rate: Callable[[Array, Array], Array],
    at_ends: Callable[[Array, Array], Array],
    ts: Real[Array, " nodes"],
    x: Float[Array, "nodes n"],
) -> Float[Array, "nodes n"]:
    """Returns the conditions at the ends, then the residuals of each interval."""
    h = (ts[1:] - ts[:-1])[:, None].astype(x.dtype)
    slope = jax.vmap(rate)(ts, x)
    middle = (x[:-1] + x[1:]) / 2 + h / 8 * (slope[:-1] - slope[1:])
    between = jax.vmap(rate)((ts[:-1] + ts[1:]) / 2, middle)
    intervals = x[1:] - x[:-1] - h / 6 * (slope[:-1] + 4 * between + slope[1:])
    return jnp.concatenate([at_ends(x[0], x[-1]).astype(x.dtype)[None], intervals])


def check_conditions(count: int, size: int) -> None:
    """Checks that there are as many conditions at the ends as state elements.

    Raises:
        ValueError: If there are not.
    """
    if count != size:
        raise ValueError(
            f"`boundary` must return one number for each of the {size} state elements, but returns {count}."
        )


def _residuals(rate: Callable, ts: Array, x: Array, slope: Array, sizes: Array) -> Float[Array, " intervals"]:
    """Returns the relative residual of the cubic in each interval, a root mean square over the state."""
    h, span = jnp.abs(ts[1:] - ts[:-1])[:, None].astype(x.dtype), jnp.abs(ts[-1] - ts[0]).astype(x.dtype)
    mean = jnp.sum(h * (jnp.abs(x[1:]) + jnp.abs(x[:-1])) / 2, axis=0, keepdims=True) / span
    found, least = [], jnp.maximum(mean, _NEWTON * sizes) / span  # a component that is zero is noise
    for place in (_INSIDE, 1 - _INSIDE):
        t = ts[:-1] + place * (ts[1:] - ts[:-1])
        y, dy = HermiteOutput.between(place, ts[1:] - ts[:-1], x[:-1], x[1:], slope[:-1], slope[1:])
        wanted = jax.vmap(rate)(t, y)
        relative = (dy - wanted) / (least + jnp.abs(wanted))
        found.append(jnp.sqrt(jnp.mean(relative**2, axis=1)))
    return jax.lax.stop_gradient(jnp.maximum(*found))


def _refined(ts: np.ndarray, residuals: np.ndarray, rtol: float) -> np.ndarray:
    """Returns nodes with one more in each interval whose residual is too large, or two where it is much too large."""
    pieces = np.where(residuals > 100 * rtol, 3, np.where(residuals > rtol, 2, 1))
    starts = [a + (b - a) * np.arange(n) / n for a, b, n in zip(ts[:-1], ts[1:], pieces)]
    return np.concatenate([*starts, ts[-1:]])


def _output(ts: Array, found: _Collocated) -> HermiteOutput:
    return HermiteOutput(ts, found.ys, found.rates)


def check_nodes(ts: Any, ys: PyTree[Array], dtype: Any) -> Float[Array, " nodes"]:
    """Returns the nodes as an array.

    Raises:
        ValueError: If they have the wrong shape or order, or there are not as many states.
    """
    shape = np.shape(ts)
    if len(shape) != 1 or shape[0] < 2:
        raise ValueError(f"`ts` must have shape `(nodes,)` with at least two nodes, but has shape {shape}.")
    for path, x in jax.tree_util.tree_leaves_with_path(ys):
        if x.shape[:1] != shape:
            raise ValueError(
                f"`ys{jax.tree_util.keystr(path)}` must have a state for each of the {shape[0]} nodes `ts`, but has "
                f"shape {x.shape}."
            )
    if concrete(ts):
        steps = np.diff(np.asarray(ts, np.float64))
        if not (np.all(steps > 0) or np.all(steps < 0)):
            raise ValueError("`ts` must be strictly ascending or strictly descending.")
    return jnp.asarray(ts, dtype)
