"""The maximum of a log density over a few variables, and its derivatives by whatever else the density depends on."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._jax._loops import while_loop
from .._jax._members_apart import members_apart
from ._derivatives import gradient_of, hessian_of, needs_forward_rule, with_forward_rule
from ._positive import cholesky, solve_factored

_MOST_STEPS = 60
# Twice the rise that Newton's step still promises, g^T B^-1 g: a step in standard deviations, squared. Rounding is
# reached long before the first of these, and what is above the second is no maximum.
_ROUNDING = {64: 1e-20, 32: 1e-10}
_NO_MAXIMUM = {64: 1e-6, 32: 1e-2}
# Damping in units in which the curvature's diagonal is one: what a step that falls starts with, and where to give up.
_FIRST_DAMPING, _MOST_DAMPING = 0.1, 1e8


class _Parabola(NamedTuple):
    """A function about a vector, with a matrix that stands for minus its Hessian."""

    value: Float[Array, ""]
    gradient: Float[Array, " q"]
    curvature: Float[Array, "q q"]


class _Climb(NamedTuple):
    z: Float[Array, " q"]
    here: _Parabola
    damping: Float[Array, ""]
    promise: Float[Array, ""]
    n_steps: Int[Array, ""]
    done: Bool[Array, ""]


def peak_of(
    function: Callable[[Array], Array],
    start: Float[Array, " q"],
    curvature: Callable[[Array], Array] | None = None,
) -> tuple[Float[Array, " q"], Bool[Array, ""]]:
    r"""Returns the maximum of a function, differentiable by what the function closes over, and whether it is one.

    The search takes Newton's steps $B^{-1} g$ with the gradient $g$, damped where they fall, until they are as small as
    rounding. At the maximum $g(z^*, \theta) = 0$, so that $dz^* = -H^{-1}\, \partial_\theta g \, d\theta$ with the
    Hessian $H$. Nothing is raised: where there is no maximum, as where the function or a derivative is not finite on
    the way, the second result is False, and the first one the best vector that was seen.

    Args:
        function: The function.
        start: Where the search begins.
        curvature: $B(z)$, a positive matrix near minus the Hessian; that itself by default.
    """
    closed = eqx.filter_closure_convert(function, start)
    own = None if curvature is None else eqx.filter_closure_convert(curvature, start)
    z, promise = _peak(closed, own, start)
    return z, promise < _NO_MAXIMUM[jnp.finfo(start.dtype).bits]


@eqx.filter_custom_jvp
def _peak(function: Any, curvature: Any, start: Array) -> tuple[Array, Array]:
    """Returns the maximum, and what one more step promises there."""
    found = members_apart(_climbed)(function, curvature, start)
    return found.z, found.promise


@_peak.def_jvp
def _peak_jvp(primals: tuple, tangents: tuple) -> tuple:
    function, curvature, start = primals
    z, promise = _peak(function, curvature, start)
    along = tangents[0]
    if not jax.tree.leaves(along):
        return (z, promise), (None, None)
    gradient = gradient_of(function, z)(z)

    def of_constants(function: Any) -> Array:
        return gradient_of(function, z)(z)

    _, change = eqx.filter_jvp(of_constants, (function,), (along,))
    matrix = -hessian_of(function, z)(z)
    # where there is no maximum nothing moves, and nothing is NaN
    sound = jnp.isfinite(promise) & jnp.all(jnp.isfinite(matrix)) & jnp.all(jnp.isfinite(gradient))
    factor = cholesky(jnp.where(sound, matrix, jnp.eye(z.size, dtype=z.dtype)))
    return (z, promise), (jnp.where(sound, solve_factored(factor, change), 0), None)


def _climbed(function: Any, curvature: Any, start: Array) -> _Climb:
    smooth = with_forward_rule(function) if needs_forward_rule(function, start) else function

    def expanded(z: Array) -> _Parabola:
        if curvature is not None:
            value, gradient = jax.value_and_grad(smooth)(z)
            return _Parabola(value, gradient, curvature(z))

        def slope(z: Array) -> tuple[Array, tuple[Array, Array]]:
            value, gradient = jax.value_and_grad(smooth)(z)
            return gradient, (value, gradient)

        hessian, (value, gradient) = jax.jacfwd(slope, has_aux=True)(z)
        return _Parabola(value, gradient, -0.5 * (hessian + hessian.T))

    eps, rounding = float(jnp.finfo(start.dtype).eps), _ROUNDING[jnp.finfo(start.dtype).bits]

    def step(s: _Climb) -> _Climb:
        taken = _step(s.here, s.damping)
        taken = jnp.where(jnp.all(jnp.isfinite(taken)), taken, 0)
        z = s.z + taken
        there = expanded(z)
        promised = s.here.gradient @ taken - 0.5 * taken @ s.here.curvature @ taken
        gained = there.value - s.here.value
        noise = 20 * eps * (1 + jnp.abs(s.here.value))
        sound = jnp.isfinite(there.value) & jnp.all(jnp.isfinite(there.gradient))
        sound = sound & jnp.all(jnp.isfinite(there.curvature))
        share = gained / jnp.where(promised > 0, promised, jnp.inf)
        better = sound & (promised > 0) & ((share > 1e-4) | ((promised < noise) & (gained > -noise)))
        less = jnp.where(s.damping < 0.1 * _FIRST_DAMPING, 0, 0.1 * s.damping)
        kept = jnp.where((share > 0.5) | (promised < noise), less, s.damping)
        damping = jnp.where(better, kept, jnp.maximum(5 * s.damping, _FIRST_DAMPING))
        z, here = jax.tree.map(lambda new, old: jnp.where(better, new, old), (z, there), (s.z, s.here))
        promise = _promise(here)
        settled = better & (promise > 0.8 * s.promise) & (promise < _NO_MAXIMUM[jnp.finfo(start.dtype).bits])
        done = (promise < rounding) | settled | (damping > _MOST_DAMPING)
        return _Climb(z, here, damping, promise, s.n_steps + 1, done)

    here = expanded(start)
    promise = _promise(here)
    done = ~jnp.isfinite(here.value) | (promise < rounding)
    first = _Climb(start, here, jnp.zeros_like(here.value), promise, jnp.zeros((), jnp.int32), done)
    return while_loop(lambda s: ~s.done & (s.n_steps < _MOST_STEPS), step, first, like=(function, curvature))


def _step(here: _Parabola, damping: Float[Array, ""]) -> Float[Array, " q"]:
    """Returns the damped step; not finite where the damped curvature is not positive."""
    diagonal = jnp.abs(jnp.diagonal(here.curvature))
    floor = jnp.finfo(diagonal.dtype).eps * jnp.max(diagonal)
    units = jax.lax.rsqrt(jnp.where(diagonal > floor, diagonal, jnp.where(floor > 0, floor, 1)))
    scaled = here.curvature * jnp.outer(units, units) + damping * jnp.eye(units.size, dtype=units.dtype)
    return units * solve_factored(cholesky(scaled), units * here.gradient)


def _promise(here: _Parabola) -> Float[Array, ""]:
    """Returns the squared length of Newton's step in standard deviations; infinite where there is none."""
    promise = here.gradient @ _step(here, jnp.zeros_like(here.value))
    return jnp.where(jnp.isfinite(promise) & jnp.isfinite(here.value), promise, jnp.inf)
