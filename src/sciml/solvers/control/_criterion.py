"""How the error of a step is judged, for methods that judge by it themselves."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Real

from ..._types import Y
from ._pid import Control, Norm, Tolerances, scaled_error, spread


class Criterion(eqx.Module):
    """By what the error of a step is measured, and what follows from it for the length of the next one.

    Attributes:
        tolerances: The tolerances.
        control: The controller.
        norm: How large a scaled error is, or None for the root mean square.
    """

    tolerances: Tolerances
    control: Control
    norm: Norm | None = eqx.field(static=True)

    def size(self, values: Y, y0: Y, y1: Y) -> Real[Array, ""]:
        """Returns how large something like a state is, where one is the most that an error may be.

        Args:
            values: The values to measure.
            y0: A state.
            y1: Another; of each element the larger of both counts.
        """
        return jax.lax.stop_gradient(scaled_error(values, y0, y1, self.tolerances, self.norm))

    def tolerated(self, y: Y) -> Y:
        """Returns what is tolerated of each element of a state; of complex ones of both parts."""
        leaves, treedef = jax.tree.flatten(y)
        rtols, atols = (spread(tol, treedef) for tol in self.tolerances)

        def of_leaf(x: Array, rtol: Any, atol: Any) -> Array:
            size = jnp.abs(x)
            each = jnp.asarray(atol, size.dtype) + jnp.asarray(rtol, size.dtype) * size
            each = jnp.broadcast_to(each, x.shape)
            return jax.lax.complex(each, each) if jnp.iscomplexobj(x) else each

        return jax.lax.stop_gradient(jax.tree.unflatten(treedef, map(of_leaf, leaves, rtols, atols)))

    def factor(self, size: Real[Array, ""], power: Real[Array, ""]) -> Real[Array, ""]:
        """Returns by what to multiply the length of a step for an error that goes with a power of it.

        Args:
            size: The error as it is measured.
            power: The power.
        """
        return self.control.factor(size, (), size <= 1, power)

    @property
    def rtol(self) -> Real[Array, ""]:
        """The smallest relative tolerance."""
        return functools.reduce(jnp.minimum, (jnp.min(jnp.asarray(x)) for x in jax.tree.leaves(self.tolerances.rtol)))
