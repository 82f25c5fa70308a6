r"""For which steps an explicit method is stable, from the eigenvalues of a vector field's derivative.

A step of length $h$ multiplies a mode with the eigenvalue $\lambda$ by $R(h \lambda)$. A method's `Stability` says how
far from zero $h \lambda$ may lie, in each direction of the left half-plane.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact, Real

from ..._interfaces._model import AbstractPartitioned, AbstractSecondOrder, AbstractSemilinear
from ..._jax._loops import scan
from ..._jax._vma import match
from ..._types import Args, RealScalarLike, Y

TOLERATED = 1e-3
"""The growth that a step may add to a mode beyond the method's own damping: many methods let waves grow by less."""

_ANGLES = np.linspace(np.pi / 2, np.pi, 181)
_SAMPLES = 4000


class Stability(eqx.Module):
    r"""For which steps times eigenvalues an explicit method is stable.

    Attributes:
        real: Up to where on the negative real axis, as for diffusion: $|R(x)| \le 1$ for $-$`real` $\le x \le 0$.
        imaginary: Up to where on the imaginary axis, as for waves.
        reach: How far from zero in directions from the imaginary to the negative real axis, where a mode that
            grows by less than a thousandth a step counts as stable.

    Example:
        ```python
        import diffrax
        import sciml

        stability = sciml.solvers.stability(diffrax.Bosh3())
        assert abs(stability.real - 2.5127) < 1e-4 and abs(stability.imaginary - 3**0.5) < 1e-6
        ```
    """

    real: float = eqx.field(static=True)
    imaginary: float = eqx.field(static=True)
    reach: tuple[float, ...] = eqx.field(static=True)

    def longest_step(self, eigenvalues: Inexact[Array, "..."]) -> Real[Array, ""]:
        """Returns the longest step that is stable; infinite where none is too long.

        Args:
            eigenvalues: Those that limit the step, real or complex. Others may lie between zero and these. Those
                with a positive real part grow by themselves and do not count.
        """
        values = jnp.ravel(eigenvalues)
        real, size = jnp.real(values), jnp.abs(values)
        slack = jnp.asarray(1e-6, size.dtype) * size
        angle = jnp.clip(jnp.arctan2(jnp.abs(jnp.imag(values)), real), *map(float, (_ANGLES[0], _ANGLES[-1])))
        reach = jnp.interp(angle, jnp.asarray(_ANGLES, size.dtype), jnp.asarray(self.reach, size.dtype))
        counts = (size > 0) & (real <= slack)
        steps = jnp.where(counts, reach / jnp.where(counts, size, jnp.ones_like(size)), jnp.inf)
        return jnp.min(jnp.where(jnp.isnan(size), size, steps))


def says_spectrum(model: Any) -> bool:
    """Returns whether a model says its eigenvalues; see `spectrum_of`."""
    return isinstance(model, AbstractSemilinear) or hasattr(model, "spectrum") or hasattr(model, "spectral_radius")


def spectrum_of(model: Callable, t: RealScalarLike, y: Y, args: Args) -> Inexact[Array, " eigenvalues"]:
    """Returns the eigenvalues that limit a step, as a model says them.

    They come from its method `spectrum`; or are the linear part of a semilinear model; or follow from its method
    `spectral_radius`, as the eigenvalues of a diffusion, or of waves if the model has second order or two halves.
    """
    said: Any = getattr(model, "spectrum", None)
    if said is not None:
        return jnp.ravel(jnp.asarray(said(t, y, args)))
    if isinstance(model, AbstractSemilinear):
        linear = [jnp.ravel(x) for x in jax.tree.leaves(model.linear(args))]
        return jnp.concatenate([x.astype(jnp.result_type(*linear)) for x in linear])
    radius = jnp.ravel(jnp.asarray(model.spectral_radius(t, y, args)))  # type: ignore[attr-defined]
    if isinstance(model, AbstractSecondOrder | AbstractPartitioned):
        return jax.lax.complex(jnp.zeros_like(radius), radius)
    return -radius


@functools.cache
def of_polynomial(coefficients: tuple[float, ...]) -> Stability:
    """Returns the stability of a one-step method from the coefficients of $R$, starting with $z^0$."""
    values = np.array(coefficients)
    powers = np.arange(len(values))
    size = 2.0 * len(values) + 2.0
    squared = np.polynomial.polynomial.polymul(values * 1j**powers, values * (-1j) ** powers).real
    below = np.polynomial.polynomial.polymul(values * (-1.0) ** powers, values * (-1.0) ** powers)
    reach = _reach(lambda z: np.abs(np.polynomial.polynomial.polyval(z, values)), size)
    return Stability(_first_excess(below), _first_excess(squared), reach)


def of_growth(growth: Callable[[np.ndarray], np.ndarray], size: float) -> Stability:
    """Returns the stability of a method from by how much a step multiplies a mode at most."""
    axes = _exits(growth, size, np.array([np.pi, np.pi / 2]), 1e-9)
    real, imaginary = (0.0 if x < 1e-3 else round(float(x), 7) for x in axes)
    return Stability(real, imaginary, _reach(growth, size))


def of_frequencies(largest: float) -> Stability:
    """Returns the stability of a method whose steps frequencies limit, and damping does not.

    Args:
        largest: The largest frequency times step.
    """
    # a node ahead, so that what is interpolated between two nodes is below the curve
    angles = np.maximum(_ANGLES - (_ANGLES[1] - _ANGLES[0]), _ANGLES[0])
    return Stability(math.inf, largest, tuple(float(x) for x in largest / np.sin(angles)))


def of_real_interval(length: float) -> Stability:
    """Returns the stability of a method for modes that decay, whatever their direction."""
    return Stability(length, 0.0, (length,) * len(_ANGLES))


def _first_excess(polynomial: np.ndarray) -> float:
    """Up to where a polynomial with the value 1 at 0 stays at most 1, for positive arguments."""
    rest = polynomial.astype(float)
    rest[0] -= 1.0
    rest[np.abs(rest) < 1e-13] = 0.0
    nonzero = np.flatnonzero(rest)
    if not nonzero.size or rest[nonzero[0]] > 0:
        return 0.0 if nonzero.size else math.inf
    roots = np.polynomial.polynomial.polyroots(np.trim_zeros(rest[nonzero[0] :], "b"))
    found = sorted(z.real for z in roots if abs(z.imag) < 1e-9 * max(1.0, abs(z)) and z.real > 1e-9)
    return float(found[0]) if found else math.inf


def _exits(growth: Callable, size: float, angles: np.ndarray, tolerated: float) -> np.ndarray:
    """How far one can go from zero in each direction before a mode grows."""
    directions = np.exp(1j * angles)
    steps = np.linspace(0.0, size, _SAMPLES)
    firsts = []
    for direction in directions:  # one at a time: all of them would be an array of megabytes
        over = growth(steps * direction) > 1 + tolerated
        firsts.append(float(steps[int(np.argmax(over))]) if np.any(over) else math.inf)
    high = np.minimum(firsts, size)
    low = np.where(np.isinf(firsts), size, np.maximum(high - size / (_SAMPLES - 1), 0.0))
    for _ in range(50):
        middle = (low + high) / 2
        over = growth(middle * directions) > 1 + tolerated
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return low


def _reach(growth: Callable, size: float) -> tuple[float, ...]:
    return tuple(map(float, _exits(growth, size, _ANGLES, TOLERATED)))


# The spectral radius of a vector field's derivative, estimated.


_POWER_ITERATIONS = 30
_SAFETY = 1.2


def estimated_radius(field: Callable[[Y], Y], y: Y) -> Real[Array, ""]:
    """Returns a bound of the spectral radius of the derivative of `field` at `y`, by power iteration.

    From a direction that holds all frequencies, the same at each call, thirty products with the derivative are
    taken; a fifth is added to what these show. It is meant for symmetric derivatives, as of a diffusion.
    """
    leaves, structure = jax.tree.flatten(y)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    start = [jax.random.rademacher(k, x.shape, jnp.finfo(x.dtype).dtype).astype(x.dtype) for k, x in zip(keys, leaves)]
    direction = match(jax.tree.unflatten(structure, start), y)

    def iterate(carry, _):
        direction, _ = carry
        _, image = jax.jvp(field, (y,), (direction,))
        size, before = _norm(image), _norm(direction)
        # a derivative of zero has the radius zero, not NaN, and leaves the direction for the next product
        some, safe = size > 0, jnp.where(size > 0, size, jnp.ones_like(size))
        image = jax.tree.map(lambda x, d: jnp.where(some, x / safe.astype(x.dtype), d), image, direction)
        return (image, size / before), None

    zero = match(jnp.zeros((), max((jnp.finfo(x.dtype).dtype for x in leaves), key=lambda d: d.itemsize)), y)
    (_, radius), _ = scan(iterate, (direction, zero), length=_POWER_ITERATIONS, like=y)
    return _SAFETY * radius


def _norm(tree: Y) -> Array:
    dtype = max((jnp.finfo(x.dtype).dtype for x in jax.tree.leaves(tree)), key=lambda d: d.itemsize)
    return jnp.sqrt(sum(jnp.sum(jnp.abs(x) ** 2).astype(dtype) for x in jax.tree.leaves(tree)))
