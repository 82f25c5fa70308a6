"""The spectral radius of a vector field's derivative, estimated."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Real

from ..._jax._loops import scan
from ..._jax._vma import match
from ..._types import Y

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
