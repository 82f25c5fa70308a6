r"""Limit cycles as equations: collocation of order six on nodes that follow the cycle.

With the states $x_i$ at $N$ nodes of one period $T$, where $x_N = x_0$, and intervals of the lengths $T h_i$,

$$x_{i+1} - x_i = \frac{T h_i}{90} (7 f_0 + 32 f_{1/4} + 12 f_{1/2} + 32 f_{3/4} + 7 f_1), \qquad
\sum_i w_i \cdot (x_i - \bar x_i) = 0 .$$

The states inside of an interval follow from both ends, so that the nodes are the only unknowns. The last equation fixes
the phase relative to a cycle $\bar x$ nearby, which also sets the nodes: the fourth derivative of the cycle, to the
power 1/4, is the same in all intervals.

Floquet multipliers are eigenvalues of the monodromy matrix, the product of the matrices that carry small changes over
each interval. Time does not enter: $f$ is evaluated at one time.

Source:
    J. R. Cash and A. Singhal, IMA Journal of Numerical Analysis 2 (1982) 183 (the formula). E. J. Doedel, H. B. Keller
    and J. P. Kernevez, International Journal of Bifurcation and Chaos 1 (1991) 745 (phase and nodes).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float, Int, PyTree

from .._jax._loops import scan
from .._jax._vma import match
from .._types import Y
from ..solvers.methods._ravel import unflattened
from ._problem import Equations, Equilibria

_EVEN = 0.3
"""The part of the nodes, relative to the others, that are spread evenly."""

_STILL = 0.01
"""A component whose range is a smaller part of its size is a constant, which sets neither phase nor nodes."""

_ORDERS = 7 / 5
"""The error of an interval by the method is about this power of the one by Simpson's rule, whose order is 4."""

_SHARE = 0.05
"""The factor of the estimate. It is five to ten times the error of van der Pol's oscillator for mu = 1 and 10."""


class LimitCycle(eqx.Module):
    """A limit cycle, or several along a first axis; NaN if none was found.

    Attributes:
        period: The period.
        ts: The times of the nodes from 0 to the period.
        ys: The states there, a PyTree like the state with the nodes first; the last is the first again.
        multipliers: The Floquet multipliers, the largest first; one of them is 1. None if they are left out.
        error: An estimate of the relative error of the states. None for a tangent.
        status: A code of `sciml.Status`. None for cycles of a branch.
    """

    period: Float[Array, "*cycles"]
    ts: Float[Array, "*cycles nodes"]
    ys: PyTree
    multipliers: Complex[Array, "*cycles n"] | None = None
    error: Float[Array, "*cycles"] | None = None
    status: Int[Array, "*members"] | None = None

    @property
    def stable(self) -> Bool[Array, "*cycles"]:
        """Whether all multipliers but the one closest to 1 are inside of the unit circle.

        Raises:
            ValueError: If multipliers were left out.
        """
        if self.multipliers is None:
            raise ValueError("The cycle has no multipliers: call `continuation(eigenvalues=True)`.")
        return (outside(self.multipliers) == 0) & jnp.isfinite(self.period)


def outside(multipliers: Array) -> Int[Array, "..."]:
    """Returns the number of multipliers outside of the unit circle, without the one closest to 1."""
    distance = jnp.abs(multipliers - 1)
    others = distance > jnp.min(distance, axis=-1, keepdims=True)
    return jnp.sum((jnp.abs(multipliers) > 1) & others, axis=-1)


class Near(NamedTuple):
    """A cycle nearby.

    Attributes:
        widths: The lengths of the intervals relative to the period.
        states: The states at the nodes.
        weights: The rates there, by which the phase is fixed.
    """

    widths: Float[Array, " nodes"]
    states: Float[Array, "nodes n"]
    weights: Float[Array, "nodes n"]


class Orbits(NamedTuple):
    """A model whose limit cycles depend on one parameter, or on none; see `Equilibria`.

    Attributes:
        field: The vector field as a function of the state, followed by the parameter.
        constants: All other values that it depends on.
        start: The states at the nodes, the period, and the parameter.
        like: A state, for its structure.
        near: A cycle near the start.
    """

    field: Equations
    constants: Any
    start: Float[Array, " m"]
    like: Y
    near: Near

    @property
    def shape(self) -> tuple[int, int]:
        """The number of nodes and of state elements."""
        count, size = self.near.states.shape
        return count, size

    def nodes(self, u: Float[Array, " m"]) -> Float[Array, "nodes n"]:
        """Returns the states at the nodes."""
        count, size = self.shape
        return u[: count * size].reshape(self.shape)

    def rate(self, u: Float[Array, " m"], constants: Any) -> Any:
        """Returns the vector field of a state."""
        count, size = self.shape
        return lambda x: self.field(jnp.append(x, u[count * size + 1 :]), constants)

    def equations(self, u: Float[Array, " m"], constants: Any, *near: Array) -> Float[Array, " n"]:
        """Returns the equations of a cycle."""
        return self.open_equations(u, u[: self.shape[1]], constants, *near)

    def open_equations(self, u: Array, end: Float[Array, " k"], constants: Any, *near: Array) -> Float[Array, " n"]:
        """Returns the equations of an orbit with a given last state, which is the first one of a cycle."""
        around, x = Near(*near), self.nodes(u)
        defects, _ = self._defects(u, x, jnp.concatenate([x[1:], end[None]]), constants, around)
        return jnp.append(defects.reshape(-1), jnp.sum(around.weights * (x - around.states)))

    def multipliers(self, u: Float[Array, " m"], near: Any) -> Complex[Array, " n"]:
        """Returns the Floquet multipliers, the largest first."""
        u = jnp.where(jnp.all(jnp.isfinite(u)), u, self.start)
        x, unit = self.nodes(u), match(jnp.eye(self.shape[1], dtype=u.dtype), u)
        ends = x, jnp.roll(x, -1, 0)
        _, along = jax.linearize(lambda a, b: self._defects(u, a, b, self.constants, near)[0], *ends)
        none, every = jnp.zeros_like(x), jnp.broadcast_to(unit[:, None], (len(unit), *self.shape))
        by_start, by_end = (
            jax.vmap(f, out_axes=2)(every) for f in (lambda v: along(v, none), lambda v: along(none, v))
        )
        carry = -jnp.linalg.solve(by_end, by_start)  # over each interval
        matrix, _ = scan(lambda v, a: (jnp.matmul(a, v, precision="highest"), None), unit, carry)
        found = jnp.linalg.eigvals(matrix)
        return found[jnp.argsort(-jax.lax.stop_gradient(jnp.abs(found)))]

    def _defects(self, u: Array, a: Array, b: Array, constants: Any, near: Any) -> tuple[Array, Array]:
        """Returns the residuals of intervals between states, and the differences from Simpson's rule."""
        rates, h = jax.vmap(self.rate(u, constants)), u[a.size] * near.widths.astype(u.dtype)[:, None]
        first, last = jnp.split(rates(jnp.concatenate([a, b])), 2)
        early = (27 * a + 5 * b + h * (18 * first - 6 * last) / 4) / 32
        late = (5 * a + 27 * b + h * (6 * first - 18 * last) / 4) / 32
        early, late = jnp.split(rates(jnp.concatenate([early, late])), 2)
        middle = rates((a + b) / 2 + h * (5 * (last - first) + 16 * (early - late)) / 24)
        ends, inner = first + last, early + late
        step = h / 90 * (7 * ends + 32 * inner + 12 * middle)
        return b - a - step, step - h / 6 * (ends + 4 * middle)

    def sizes(self, x: Float[Array, " k"]) -> Float[Array, " k"]:
        """Returns the size of each unknown but the parameter: the largest value of a component over the cycle."""
        count, size = self.shape
        largest = jnp.max(jnp.abs(self.nodes(x)), axis=0, keepdims=True)
        return jnp.append(jnp.broadcast_to(largest, self.shape).reshape(-1), x[count * size :])

    def error(self, u: Float[Array, " m"], constants: Any, near: Any) -> Float[Array, ""]:
        """Returns an estimate of the error of the states, relative to their size."""
        x = self.nodes(u)
        _, small = self._defects(u, x, jnp.roll(x, -1, 0), constants, near)
        relative = jnp.max(jnp.abs(small) / _amplitude(x), axis=1)
        return _SHARE * jnp.sum(relative**_ORDERS)

    def renewed(self, u: Float[Array, " m"], constants: Any, near: Any) -> Near:
        """Returns a cycle, with new nodes, as the one that sets phase and nodes."""
        x = self.nodes(u)
        return near_of(x, near.widths, self.rate(u, constants), len(x))

    def moved(self, v: Float[Array, " m"], near: Any, to: Any) -> Float[Array, " m"]:
        """Returns unknowns, or a tangent, for other nodes."""
        x = self.nodes(v)
        there = jnp.matmul(_interpolation(near.widths, to.widths), x, precision="highest")
        return jnp.append(there.reshape(-1), v[x.size :])

    def state(self, u: Float[Array, " m"], near: Any) -> LimitCycle:
        """Returns the cycle of a vector of unknowns, or of a tangent."""
        x = self.nodes(u)
        places = jnp.append(jnp.zeros_like(near.widths[:1]), jnp.cumsum(near.widths))
        closed = jnp.concatenate([x, x[:1]])
        return LimitCycle(u[x.size], places * u[x.size], jax.vmap(lambda x: unflattened(x, self.like))(closed))


class PointsOfCycles(NamedTuple):
    """Special points of limit cycles that depend on two parameters; see `Equilibria`.

    Attributes:
        equations: The equations of such a point as a function of its unknowns, followed by the second parameter.
        constants: All other values that they depend on.
        start: A point.
        one: The cycles as they depend on the first parameter, on nodes that all points share.
        near: Empty, because all points share their nodes.
    """

    equations: Equations
    constants: Any
    start: Float[Array, " m"]
    one: Orbits
    near: tuple = ()

    def sizes(self, x: Float[Array, " k"]) -> Float[Array, " k"]:
        """Returns the size of each unknown but the second parameter; the eigenvector has one size."""
        cycle, vector = self.one.start.size, jnp.max(jnp.abs(x[self.one.start.size : -1]))
        known = jnp.append(self.one.sizes(x[: cycle - 1]), jnp.abs(x[cycle - 1]))
        return jnp.concatenate([known, jnp.broadcast_to(vector, (x.size - cycle - 1,)), jnp.abs(x[-1:])])

    def error(self, u: Float[Array, " m"], constants: Any, near: tuple) -> Float[Array, ""]:
        """Returns an estimate of the relative error of a cycle."""
        return self.one.error(u[: self.one.start.size], (constants, u[-1]), self.one.near)

    def renewed(self, u: Float[Array, " m"], constants: Any, near: tuple) -> tuple:
        """Returns what the next point is near to."""
        return near

    def moved(self, v: Float[Array, " m"], near: tuple, to: tuple) -> Float[Array, " m"]:
        """Returns unknowns, or a tangent, as they are near to another point."""
        return v


def orbits(steady: Equilibria, x: Float[Array, "nodes n"], period: Float[Array, ""], near: Near) -> Orbits:
    """Returns the limit cycles of a model near a given one.

    Args:
        steady: The model, with its parameter.
        x: The states at the nodes.
        period: The period.
        near: The cycle that sets the phase and the nodes.
    """
    parameter = steady.start[x.shape[1] :]
    start = jnp.concatenate([x.reshape(-1), period[None], parameter]).astype(steady.start.dtype)
    return Orbits(steady.equations, steady.constants, *jax.lax.stop_gradient((start, steady.like, near)))


def near_of(x: Float[Array, "nodes n"], widths: Float[Array, " nodes"], rate: Any, count: int) -> Near:
    """Returns a cycle that sets phase and nodes.

    Args:
        x: The states at the nodes that are known.
        widths: Their intervals.
        rate: The vector field.
        count: The number of the new nodes.
    """
    new = _widths(x, widths, count)
    states = jnp.matmul(_interpolation(widths, new), x, precision="highest")
    return Near(new, states, phase_weights(states, new, jax.vmap(rate)(states)))


def phase_weights(states: Array, widths: Array, rates: Array) -> Float[Array, "nodes n"]:
    """Returns the weights of the equation of the phase."""
    weights = (widths + jnp.roll(widths, 1))[:, None] * rates / _amplitude(states) ** 2
    largest = jnp.max(jnp.abs(weights))
    return weights / jnp.where(largest > 0, largest, 1)


def _amplitude(x: Float[Array, "nodes n"]) -> Float[Array, "1 n"]:
    """Returns the range of each component, or a part of its size if it hardly changes."""
    largest = jnp.max(jnp.abs(x), axis=0, keepdims=True)
    span = jnp.max(x, axis=0, keepdims=True) - jnp.min(x, axis=0, keepdims=True)
    least = float(jnp.finfo(x.dtype).eps) ** 0.5 * jnp.max(largest)
    return jnp.maximum(jnp.maximum(span, _STILL * largest), jnp.maximum(least, float(jnp.finfo(x.dtype).tiny)))


def _widths(x: Float[Array, "nodes n"], h: Float[Array, " nodes"], count: int) -> Float[Array, " count"]:
    """Returns intervals in each of which the fourth derivative to the power 1/4 has the same integral."""
    scaled = x / _amplitude(x)
    divided, before = scaled, h
    for order in range(1, 5):
        divided = (jnp.roll(divided, -1, 0) - divided) / before[:, None]
        before = before + jnp.roll(h, -order)
    fourth = jnp.roll(jnp.max(jnp.abs(divided), axis=1), 2)  # at the middle of five nodes
    at_node = fourth**0.25
    density = (at_node + jnp.roll(at_node, -1)) / 2
    density = (jnp.roll(density, 1) + 2 * density + jnp.roll(density, -1)) / 4
    mean = jnp.sum(h * density)
    density = jnp.where(mean > 0, density + _EVEN * mean, 1)
    total = jnp.append(jnp.zeros_like(h[:1]), jnp.cumsum(h * density))
    places = jnp.append(jnp.zeros_like(h[:1]), jnp.cumsum(h))
    wanted = total[-1] * jnp.arange(count + 1, dtype=h.dtype) / count
    found = jnp.interp(wanted, total, places / places[-1]).at[-1].set(1)
    return jnp.diff(found)


def _interpolation(h: Float[Array, " nodes"], new: Float[Array, " count"]) -> Float[Array, "count nodes"]:
    """Returns the matrix that interpolates a periodic function by cubics."""
    size = h.shape[0]
    places, wanted = jnp.cumsum(h) - h, jnp.cumsum(new) - new
    cell = jnp.clip(jnp.sum(wanted[:, None] >= places[None], axis=1) - 1, 0, size - 1)
    index = cell[:, None] + jnp.arange(-1, 3)[None]
    around = places[index % size] + (index // size).astype(h.dtype)
    gaps = around[:, :, None] - around[:, None, :]
    offset = wanted[:, None, None] - around[:, None, :]
    same = jnp.eye(4, dtype=bool)[None]
    factors = jnp.where(same, 1, offset / jnp.where(same, 1, gaps))
    weights = jnp.prod(factors, axis=2)
    rows = jnp.broadcast_to(jnp.arange(new.shape[0])[:, None], index.shape)
    blank = match(jnp.zeros((new.shape[0], size), h.dtype), weights)
    return blank.at[rows, index % size].add(weights)
