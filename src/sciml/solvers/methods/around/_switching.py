"""A method that is explicit while the equation is not stiff, and implicit while it is."""

from typing import Any, ClassVar, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Real

from ...._jax._branches import cond
from ...._types import RealScalarLike, Y
from .._capabilities import Traits
from .._ravel import flattened, unflattened
from .._stepper import AbstractStepper, BoundField, Step
from ..explicit._runge_kutta import RungeKutta, from_diffrax
from ..implicit._rodas5p import Rodas5P
from ..implicit._rosenbrock import Rosenbrock, interpolated

_STIFF = 2.7
"""Steps times the largest eigenvalue from here on are limited by stability, which for Tsit5 ends at 3.3."""

_NOT_STIFF = 1.5
"""Below this an explicit method would take the same steps."""

_IN_A_ROW = 4.0
"""This number of steps must agree: a single step may be mistaken."""

_PRODUCTS = 4
"""This number of products with the Jacobian finds its largest eigenvalue accurately enough."""

_PLACES = np.array([0.25, 0.5, 0.75])
_BENDS = np.linalg.inv(np.vander(_PLACES, 3, increasing=True)) / (_PLACES * (1 - _PLACES))


class Mode(NamedTuple):
    """The choice of the method for the next step, as real numbers, which loops carry and record.

    Attributes:
        stiff: One where it is the implicit one, else zero.
        count: The number of steps in a row that indicated the other method.
    """

    stiff: Real[Array, ""]
    count: Real[Array, ""]


class Switching(AbstractStepper):
    r"""`diffrax.Tsit5` while the equation is not stiff, `Rodas5P` while it is.

    Each step estimates the largest eigenvalue $\rho$ of the Jacobian: an explicit step by its last two stages and one
    product with the Jacobian, an implicit one by a few products. If $h \rho$ stays at the stability limit of Tsit5, the
    implicit method takes over; it hands back when that limit would no longer restrict the steps. Under `jax.vmap` each
    member has its own method, and a step costs as much as both methods together: for an ensemble that is known to be
    stiff use `Rodas5P`.

    Source:
        E. Hairer, G. Wanner, Solving Ordinary Differential Equations II, section IV.2; L. Petzold, Automatic selection
        of methods for solving stiff and nonstiff systems, SIAM J. Sci. Stat. Comput. 4:1 (1983).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.VanDerPol(mu=100.0)
        solver = sciml.solvers.Switching()
        sol = sciml.solve(model, jnp.array([2.0, 0.0]), t0=0.0, t1=200.0, rtol=1e-4, atol=1e-6, solver=solver)
        assert sol.stats.accepted < 1000  # Tsit5 takes ten times as many
        ```
    """

    order: ClassVar[int] = 5
    evaluations: ClassVar[int] = -1
    has_error: ClassVar[bool] = True
    traits: ClassVar[Traits] = Traits(dense=True, history=True)

    @property
    def _explicit(self) -> RungeKutta:
        method = from_diffrax(diffrax.Tsit5())
        assert method is not None
        return method

    @property
    def _implicit(self) -> Rosenbrock:
        return Rosenbrock(Rodas5P().tableau, None)

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> Mode:
        """Returns the explicit method."""
        del field, t
        zero = jnp.zeros((), max((jnp.finfo(x.dtype).dtype for x in jax.tree.leaves(y)), key=lambda d: d.itemsize))
        return Mode(zero, zero)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns zeros."""
        return tuple(jax.tree.map(jnp.zeros_like, y) for _ in _PLACES)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h` by the polynomial that belongs to the method of the step."""
        del h
        return interpolated(theta, y0, y1, dense)

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: Mode) -> Step:
        """Advances `y` from `t` to `t + h`."""
        t, h = jnp.asarray(t), jnp.asarray(h)
        stiff, count = memory
        y1, error, dense, solvable, measure = cond(
            stiff > 0,
            lambda: self._implicit_step(field, t, h, y),
            lambda: self._explicit_step(field, t, h, y),
            like=(t, h, y),
        )
        measure = jax.lax.stop_gradient(measure).astype(stiff.dtype)
        says = jnp.where(stiff > 0, measure < _NOT_STIFF, measure > _STIFF)
        count = jnp.where(says, count + 1, jnp.zeros_like(count))
        changes = count >= _IN_A_ROW
        mode = Mode(jnp.where(changes, 1 - stiff, stiff), jnp.where(changes, jnp.zeros_like(count), count))
        return Step(y1, error, dense, mode, solvable)

    def _explicit_step(self, field: BoundField, t: Array, h: Array, y: Y) -> tuple:
        method = self._explicit
        step = method.step(field, t, h, y, field(t, y))
        bends = []
        for place in _PLACES:
            inside = method.interpolate(place, h, y, step.y1, step.dense)
            line = jax.tree.map(lambda a, b, s=float(place): (1 - s) * a + s * b, y, step.y1)
            bends.append(jax.tree.map(jnp.subtract, inside, line))
        dense = tuple(jax.tree.map(lambda *xs, w=row: _sum(w, xs), *bends) for row in _BENDS.tolist())
        # the last two stages are both at the end of the step
        last = jax.tree.map(
            lambda *xs: xs[0] + h.astype(xs[0].dtype) * _sum(method.rows[-2], xs[1:]), y, *step.dense[:5]
        )
        rates = jax.lax.stop_gradient(jax.tree.map(jnp.subtract, step.dense[-1], step.dense[-2]))
        states = flattened(jax.tree.map(jnp.subtract, step.y1, last))
        once = _ratio(_norm(flattened(rates)), _norm(states))
        # at tight tolerances the states also differ by slow components; their rates differ by fast ones
        _, more = jax.jvp(lambda y: field(t + h, y), (jax.lax.stop_gradient(step.y1),), (rates,))
        twice = _ratio(_norm(flattened(more)), _norm(flattened(rates)))
        measure = jnp.abs(h).astype(twice.dtype) * jnp.where(once > 0, jnp.maximum(once, twice), once)
        return step.y1, step.error, dense, jnp.ones((), bool), measure

    def _implicit_step(self, field: BoundField, t: Array, h: Array, y: Y) -> tuple:
        step = self._implicit.step(field, t, h, y, None)
        slope, along = jax.linearize(
            lambda x: flattened(field(t, unflattened(x, y))), jax.lax.stop_gradient(flattened(y))
        )
        # from a direction that has something of every eigenvector
        direction, largest = slope + _norm(slope) * jnp.asarray(np.cos(np.arange(slope.size)), slope.dtype), None
        for _ in range(_PRODUCTS):
            direction = direction * _ratio(jnp.ones_like(_norm(direction)), _norm(direction))
            direction = along(direction)
            largest = _norm(direction)
        assert largest is not None
        measure = jnp.abs(h).astype(largest.dtype) * largest
        return step.y1, step.error, step.dense, jnp.asarray(step.solvable), measure


def _sum(weights: Any, terms: Any) -> Any:
    return sum(w * x for w, x in zip(weights, terms, strict=True) if w)


def _norm(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(x * x))


def _ratio(a: Array, b: Array) -> Array:
    """One number over another, zero where that is zero."""
    return jnp.where(b > 0, a / jnp.where(b > 0, b, jnp.ones_like(b)), jnp.zeros_like(a))
