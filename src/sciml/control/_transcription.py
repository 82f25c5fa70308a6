"""Transcriptions: an optimal control problem on segments of time, as a Lagrangian of finitely many unknowns."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._jax._loops import scan
from .._types import Args, RealScalarLike
from ..solvers._solve import solve
from ..solvers.adjoints._checkpointed import Checkpointed
from ..solvers.adjoints._direct import Direct
from ..solvers.methods._ravel import flattened, unflattened
from ..solvers.methods.explicit._runge_kutta import from_diffrax
from ..solvers.terms._field import check_like, literals_as_arrays
from ._problem import ControlProblem

# Radau collocation. Segment $k$ has $d$ points $t_{kj}$, the last one at its end, and its first state $x_{k0}$ is the
# last one of the segment before. With the derivative matrix $D$ of the polynomials through these $d + 1$ states,
#
# $$\sum_i D_{ji} x_{ki} = h_k f(t_{kj}, x_{kj}, u_{kj}), \quad j = 1 \ldots d, \qquad
#   \int L \, dt \approx \sum_{kj} h_k b_j L(t_{kj}, x_{kj}, u_{kj}) .$$
#
# The Lagrangian adds the left minus the right sides, times multipliers, to the cost. An inequality $c \le 0$ adds
# $z (c + s) - \mu w \log s$, with a slack $s$ and the share $w$ of its point in the whole duration, so that results
# depend little on the mesh. All quantities are in units of their sizes.
#
# Multiple shooting is the same with one point in each segment, its end. The solution of the equation over the segment,
# $F$, from the state at its start, takes the place of the collocation equation, $x_{k1} = F(x_{k0}, u_k)$. Integrals
# and inequalities are functions of $(x_{k0}, u_k)$, too.


class SegmentFlow(NamedTuple):
    """The solution of the equation over one segment, in multiple shooting.

    Attributes:
        solver: The method.
        steps: The number of fixed steps in a segment, or None for error control.
        rtol: The tolerance of error control.
    """

    solver: Any
    steps: int | None
    rtol: float

    def end(self, rates: Callable[[RealScalarLike, Array, Any], Array], start: Array, args: Any) -> Array:
        """Returns the state at the end of the unit interval."""
        options: dict[str, Any] = dict(rtol=self.rtol, atol=self.rtol, adjoint=Checkpointed())
        if self.steps is not None:
            options = dict(dt=1 / self.steps, adjoint=Direct())
        method = from_diffrax(self.solver) if isinstance(self.solver, diffrax.AbstractSolver) else None
        if self.steps is None or method is None:
            sol = solve(rates, start, t0=0.0, t1=1.0, args=args, solver=self.solver, throw=False, **options)
            return sol.ys[-1]
        h = 1 / self.steps

        # the same steps; the program of `solve` is twice as large, and twice differentiated here
        def step(y: Array, t: Array) -> tuple[Array, None]:
            field = lambda t, y: rates(t, y, args)  # noqa: E731
            return method.step(field, t, h, y, method.init(field, t, y)).y1, None

        times = jnp.arange(self.steps, dtype=start.dtype) * h
        return scan(step, start, times, like=args)[0]


class Inequalities(NamedTuple):
    """One number for each inequality: at the start, at the points, and at the end."""

    start: Array
    points: Array
    end: Array


class Variables(NamedTuple):
    """The unknowns of the optimality conditions, for `n` states and `m` controls.

    Attributes:
        start: The first state and the duration.
        inner: The states at the points.
        controls: The controls: at the points, or one for each segment.
        defects: The multipliers of the collocation equations.
        end: The multipliers of the end conditions.
        slack: The distance of each inequality from its limit, which is positive.
        force: The multipliers of the inequalities, which are positive.
    """

    start: Float[Array, " first"]
    inner: Float[Array, "segments d n"]
    controls: Float[Array, "segments e m"]
    defects: Float[Array, "segments d n"]
    end: Float[Array, " q"]
    slack: Inequalities
    force: Inequalities

    def later(self) -> "Variables":
        """Returns the unknowns one segment later; the last segment stays."""

        def moved(x: Array) -> Array:
            return jnp.concatenate([x[1:], x[-1:]])

        return self._replace(
            start=jnp.append(self.inner[0, -1], self.start[-1]),
            inner=moved(self.inner),
            controls=moved(self.controls),
            defects=moved(self.defects),
            slack=self.slack._replace(points=moved(self.slack.points)),
            force=self.force._replace(points=moved(self.force.points)),
        )


class Basis(NamedTuple):
    """The polynomials of a segment from 0 to 1.

    Attributes:
        places: The points $c_j$, the last one 1.
        weights: Their quadrature weights $b_j$.
        derivative: $D$, of shape `(d, d + 1)`.
        spread: From the controls of a segment to its points, of shape `(d, e)`.
    """

    places: np.ndarray
    weights: np.ndarray
    derivative: np.ndarray
    spread: np.ndarray


def basis_of(degree: int, control_degree: int, dtype: Any) -> Basis:
    """Returns the Radau points of a degree, and their matrices."""
    points = _radau(degree)
    weights = np.linalg.solve(np.polynomial.legendre.legvander(2 * points - 1, degree - 1).T, np.eye(degree)[0])
    nodes = np.append(0.0, points)
    powers = np.arange(1, degree + 1)
    slopes = np.concatenate([np.zeros((degree, 1)), powers * points[:, None] ** (powers - 1)], axis=1)
    derivative = slopes @ to_powers(nodes)
    spread = np.vander(points, control_degree + 1, increasing=True) @ to_powers(_radau(control_degree + 1))
    return Basis(*(x.astype(dtype) for x in (points, weights, derivative, spread)))


def _radau(degree: int) -> np.ndarray:
    ends = np.zeros(degree + 1)
    ends[-2:] = -1, 1
    return (np.append(np.sort(np.polynomial.legendre.legroots(ends).real)[:-1], 1.0) + 1) / 2


def to_powers(nodes: np.ndarray) -> np.ndarray:
    """Returns the matrix from values at nodes to the coefficients of the powers of their polynomial."""
    return np.linalg.inv(np.vander(nodes, increasing=True))


class Boxes(NamedTuple):
    """Lower and upper bounds of state and control, and of the first state and the duration."""

    y: tuple[Array, Array]
    u: tuple[Array, Array]
    start: tuple[Array, Array]


SLACK = 1e-9
"""How far inequalities may be violated, in units of sizes: without it there is no point inside of them if end
conditions or equations put the solution on a bound, such as a tank that must be empty."""


def _outside(x: Array, bounds: tuple[Array, Array]) -> Float[Array, " sides"]:
    """Returns numbers that are negative inside of bounds, -1 for infinite ones."""

    def side(bound: Array, sign: float) -> Array:
        finite = jnp.isfinite(bound)
        return jnp.where(finite, sign * (x - jnp.where(finite, bound, jnp.zeros_like(x))), -jnp.ones_like(x))

    return jnp.concatenate([side(bounds[0], -1.0), side(bounds[1], 1.0)])


def numbers(value: PyTree, dtype: Any) -> Float[Array, " count"]:
    """Returns all elements of a result of a user's function, which may be plain numbers."""
    return flattened(jax.tree.map(lambda x: jnp.asarray(x, dtype), value))


class Transcription(NamedTuple):
    """A problem on given segments, whose unknowns are in units of `sizes`.

    Attributes:
        problem: The problem.
        args: The last argument of its functions.
        y: A state, for its structure.
        u: A control, for its structure.
        t0: The initial time.
        fixed: The first state and the duration, of which `free` elements are unknowns.
        mesh: The ends of segments, from 0 to 1.
        boxes: The bounds, in units of `sizes`.
        sizes: The sizes of state, control and duration.
        scale: The factor of the cost.
        basis: The polynomials.
        free: Which elements of `fixed` are unknowns.
        flow: The solution over a segment, in multiple shooting; otherwise None.
    """

    problem: ControlProblem
    args: Args
    y: PyTree
    u: PyTree
    t0: Float[Array, ""]
    fixed: Float[Array, " first"]
    mesh: Float[Array, " ends"]
    boxes: Boxes
    sizes: tuple[Array, Array, Array]
    scale: Float[Array, ""]
    basis: Basis
    free: np.ndarray
    flow: SegmentFlow | None = None

    @property
    def shoots(self) -> bool:
        return self.flow is not None

    @property
    def widths(self) -> Float[Array, " segments"]:
        return self.mesh[1:] - self.mesh[:-1]

    @property
    def places(self) -> Float[Array, "segments d"]:
        return self.mesh[:-1, None] + self.widths[:, None] * self.basis.places[None]

    @property
    def shares(self) -> Float[Array, "segments d"]:
        """The share of each point in the duration."""
        return self.widths[:, None] * self.basis.weights[None]

    def time(self, duration: Array, place: Array) -> Array:
        return self.t0 + duration * self.sizes[2] * place

    def at_point(self, w: Float[Array, " point"], place: Array, width: Array) -> tuple[Array, Array, Array]:
        """Returns the running cost and the rate of the state, both for the whole duration, and the inequalities.

        In multiple shooting `w` has the state at the start of a segment, cost and rate are means over the segment, and
        the inequalities are at its end.
        """
        n, duration = self.sizes[0].size, w[-1] * self.sizes[2]
        if self.flow is None:
            found = duration * self._rates(w, place)
            return found[n], found[:n], self.limits(w, place)

        def rates(s: RealScalarLike, z: Array, given: tuple) -> Array:
            problem, w, place, width = given
            w = jnp.concatenate([z[:n], w[n:]])
            return width * w[-1] * problem.sizes[2] * problem._rates(w, place + (jnp.asarray(s, w.dtype) - 1) * width)

        start = jnp.append(w[:n], jnp.zeros_like(w[0]))
        end = self.flow.end(rates, start, (self, w, place, width))
        mean, last = (end - start) / width, jnp.concatenate([end[:n], w[n:]])
        return mean[n], mean[:n], self.limits(last, place)

    def _given(self, w: Array, place: Array) -> tuple:
        """Returns time, state and control, the arguments of the functions of the problem."""
        n = self.sizes[0].size
        y, u = unflattened(w[:n] * self.sizes[0], self.y), unflattened(w[n:-1] * self.sizes[1], self.u)
        return self.time(w[-1], place), y, u, self.args

    def _rates(self, w: Array, place: Array) -> Float[Array, " rates"]:
        """Returns the rate of the state, and the running cost."""
        given, problem = self._given(w, place), self.problem
        rate = literals_as_arrays(problem.model(*given), self.y)
        check_like(self.y, jax.tree.map(jnp.asarray, rate))
        rate = flattened(jax.tree.map(jnp.asarray, rate)).astype(w.dtype) / self.sizes[0]
        cost = jnp.zeros_like(w[0])
        if problem.running is not None:
            cost = self.scale * jnp.asarray(problem.running(*given), w.dtype).reshape(())
        return jnp.append(rate, cost)

    def limits(self, w: Array, place: Array) -> Float[Array, " limits"]:
        """Returns the inequalities."""
        n = self.sizes[0].size
        limits = [_outside(w[:n], self.boxes.y), _outside(w[n:-1], self.boxes.u)]
        if self.problem.path is not None:
            limits.append(numbers(self.problem.path(*self._given(w, place)), w.dtype))
        return jnp.concatenate(limits) - SLACK

    def at_end(self, w: Float[Array, " first"]) -> tuple[Array, Array, Array]:
        """Returns the terminal cost, the end conditions, and the inequalities at the end."""
        problem, t, y = (
            self.problem,
            self.time(w[-1], jnp.ones_like(w[-1])),
            unflattened(w[:-1] * self.sizes[0], self.y),
        )
        cost, end, limits = jnp.zeros_like(w[0]), w[:0], w[:0]
        if problem.terminal is not None:
            cost = self.scale * jnp.asarray(problem.terminal(t, y, self.args), w.dtype).reshape(())
        if problem.end is not None:
            end = numbers(problem.end(t, y, self.args), w.dtype)
        if problem.end_limits is not None:
            limits = numbers(problem.end_limits(t, y, self.args), w.dtype) - SLACK
        return cost, end, limits

    def start(self, v: Variables) -> Float[Array, " first"]:
        """Returns the first state and the duration."""
        return jnp.where(self.free, v.start, self.fixed)

    def ends(self, v: Variables) -> tuple[Array, Array]:
        """Returns the state at the start of each segment, and the last state with the duration."""
        start = self.start(v)
        return jnp.concatenate([start[None, :-1], v.inner[:-1, -1]]), jnp.append(v.inner[-1, -1], start[-1])

    def points(self, v: Variables) -> Float[Array, "segments d point"]:
        """Returns state, control and duration at the points."""
        controls = jnp.einsum("je,kem->kjm", self.basis.spread, v.controls)
        duration = jnp.broadcast_to(self.start(v)[-1], (*v.inner.shape[:2], 1))
        return jnp.concatenate([v.inner, controls, duration], axis=2)

    def first_costate(self, v: Variables) -> Float[Array, " n"]:
        """Returns the derivative of the cost with respect to the first state."""
        n = v.inner.shape[2]
        if not self.shoots:
            return jnp.asarray(self.basis.derivative[:, 0]) @ v.defects[0]

        def after(w: Array) -> Array:
            cost, mean, limits = self.at_point(w, self.places[0, 0], self.widths[0])
            change = self.widths[0] * (cost - jnp.sum(v.defects[0, 0] * mean))
            return change - jnp.sum(v.defects[0, 0] * w[:n]) + jnp.sum(v.force.points[0, 0] * limits)

        return jax.grad(after)(self._arguments(v)[0, 0])[:n]

    def _arguments(self, v: Variables) -> Float[Array, "segments d point"]:
        """Returns the first arguments of `at_point`."""
        if self.flow is None:
            return self.points(v)
        return self.points(v._replace(inner=self.ends(v)[0][:, None]))

    def values(self, v: Variables) -> tuple[Array, Variables]:
        """Returns the cost, and the residuals of conditions in place of their multipliers; others are zero."""
        each = jax.vmap(jax.vmap(self.at_point, (0, 0, None)))
        costs, rates, limits = each(self._arguments(v), self.places, self.widths)
        firsts, last = self.ends(v)
        cost, end, at_end = self.at_end(last)
        defects = self._moved(firsts, v.inner) - self.widths[:, None, None] * rates
        limits = Inequalities(_outside(v.start, self.boxes.start), limits, at_end)
        total = jnp.sum(self.shares * costs) + cost
        residuals = v._replace(defects=defects, end=end, force=jax.tree.map(jnp.add, limits, v.slack))
        return total, residuals

    def gradient(self, v: Variables, mu: Array, second: bool = False) -> tuple[Variables, tuple[Array, Array]]:
        """Returns the gradient of the Lagrangian with respect to all unknowns, which is zero at the optimum.

        Args:
            v: The unknowns.
            mu: The weight of the barrier.
            second: Whether to compute second derivatives, too: of the Lagrangian at a point by state, control and
                duration, in the rows also by both kinds of multipliers there; and likewise at the end.
        """
        n, m = v.inner.shape[2], v.controls.shape[2]

        def of_point(w: Array, p: Array, z: Array, place: Array, width: Array, b: Array) -> Any:
            def lagrangian(w: Array, p: Array, z: Array) -> Array:
                cost, rate, limits = self.at_point(w, place, width)
                return width * (b * cost - jnp.sum(p * rate)) + jnp.sum(z * limits)

            return _derivatives(lagrangian, w, p, z, second)

        def lagrangian_at_end(w: Array, p: Array, z: Array) -> Array:
            cost, end, limits = self.at_end(w)
            return cost + jnp.sum(p * end) + jnp.sum(z * limits)

        along = jax.vmap(jax.vmap(of_point, (0, 0, 0, 0, None, 0)), (0, 0, 0, 0, 0, None))
        weights = jnp.asarray(self.basis.weights)
        slopes, points = along(self._arguments(v), v.defects, v.force.points, self.places, self.widths, weights)
        firsts, last = self.ends(v)
        at_end, end = _derivatives(lagrangian_at_end, last, v.end, v.force.end, second)
        of_w, of_p, limits = jnp.split(slopes, [n + m + 1, 2 * n + m + 1], axis=2)
        inner = jnp.einsum("ji,kjn->kin", self.basis.derivative[:, 1:], v.defects)
        earlier = jnp.einsum("j,kjn->kn", self.basis.derivative[:, 0], v.defects)
        inner, earlier = (inner + of_w[:, :, :n], earlier) if self.flow is None else (inner, earlier + of_w[:, 0, :n])
        inner = inner.at[:, -1].add(jnp.concatenate([earlier[1:], at_end[None, :n]]))
        duration = jnp.sum(of_w[:, :, -1]) + at_end[n]
        start = jnp.append(earlier[0], duration) + v.force.start @ self.box_slopes()
        limits = Inequalities(_outside(v.start, self.boxes.start), limits, at_end[n + 1 + v.end.size :])
        shares = self.barrier()
        gradient = Variables(
            start=jnp.where(self.free, start, v.start - self.fixed),
            inner=inner,
            controls=jnp.einsum("je,kjm->kem", self.basis.spread, of_w[:, :, n : n + m]),
            defects=self._moved(firsts, v.inner) + of_p,
            end=at_end[n + 1 : n + 1 + v.end.size],
            slack=jax.tree.map(lambda z, w, s: z - mu * w / s, v.force, shares, v.slack),
            force=jax.tree.map(jnp.add, limits, v.slack),
        )
        return gradient, (points, end)

    def barrier(self) -> Inequalities:
        """Returns the weight of each inequality in the barrier."""
        one = jnp.ones((1,), self.fixed.dtype)
        return Inequalities(one, self.shares[:, :, None], one)

    def box_slopes(self) -> Float[Array, "sides first"]:
        """Returns the derivative of the inequalities at the start."""
        low, high = (jnp.diag(jnp.isfinite(x).astype(x.dtype)) for x in self.boxes.start)
        return jnp.concatenate([-low, high])

    def _moved(self, firsts: Array, inner: Array) -> Array:
        return jnp.einsum("ji,kin->kjn", self.basis.derivative, jnp.concatenate([firsts[:, None], inner], axis=1))


def _derivatives(lagrangian: Callable, w: Array, p: Array, z: Array, second: bool) -> tuple[Array, Array]:
    """Returns all first derivatives in a row, and their derivatives by `w`."""

    def slopes(w: Array) -> Array:
        return jnp.concatenate(jax.grad(lagrangian, argnums=(0, 1, 2))(w, p, z))

    if not second:
        return slopes(w), w[:0]
    return jax.vmap(lambda x: jax.jvp(slopes, (w,), (x,)), out_axes=(None, 1))(jnp.eye(w.size, dtype=w.dtype))
