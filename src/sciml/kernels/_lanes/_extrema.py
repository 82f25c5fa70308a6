"""Extrema along axes, whose derivative does not depend on how the compiler rounds.

JAX gives the derivative of an extremum to the elements that equal it. A compiler that computes the elements again for
that comparison, with a multiplication and an addition contracted in one place and not in the other, may find that none
does: the derivative is NaN, or zero without a word. So what is compared is computed once.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._jax._barrier import held_back
from ..._jax._interpreters import Jaxpr
from ..._jax.programs import is_literal

EXTREMA = {"reduce_max": jnp.max, "reduce_min": jnp.min}


def compared_with_extrema(jaxpr: Jaxpr) -> set:
    """Returns the variables of a program that are compared with their own extrema, as in JAX's rule of derivatives."""
    reduced = {eqn.invars[0] for eqn in jaxpr.eqns if eqn.primitive.name in EXTREMA and not is_literal(eqn.invars[0])}
    return {v for eqn in jaxpr.eqns if eqn.primitive.name == "eq" for v in eqn.invars if not is_literal(v)} & reduced


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def extremum(name: str, axes: tuple[int, ...], x: Array) -> Array:
    """Returns the largest or the smallest elements along axes.

    Args:
        name: The primitive, of `EXTREMA`.
        axes: The axes.
        x: The elements.
    """
    return EXTREMA[name](x, axis=axes)


@extremum.defjvp
def _extremum_jvp(name, axes, primals, tangents):
    (x,) = held_back(*primals)
    found = EXTREMA[name](x, axis=axes, keepdims=True)
    chosen = (x == found).astype(x.dtype)
    tangent = jnp.sum(chosen * tangents[0], axis=axes) / jnp.sum(chosen, axis=axes)
    return found.squeeze(axes), tangent
