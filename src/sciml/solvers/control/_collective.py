"""Devices that hold parts of one state and take the same steps.

Inside `jax.shard_map` each device runs the solve with its part. If the vector field communicates with other devices,
all devices must take the same steps; otherwise one waits for a message that no other device sends. A norm over all
parts ensures that: every device sees the same error. The loops run on all of them as long as one of them needs it,
which the types of `shard_map` prove, and the counters are one number for all.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._jax._interpreters import Jaxpr
from ..._jax._vma import promote, vma_of
from ..._jax.programs import _names as names, equations
from ..._types import Y
from ._pid import Norm

_T = TypeVar("_T")

_SILENT = names.PROMOTIONS | {"axis_index"}
"""Primitives that name mesh axes and send no message."""


class CollectiveSteps(NamedTuple):
    """How devices take the same steps.

    Attributes:
        norm: The norm over all parts of the state; None for the root mean square over this device's.
        axes: The mesh axes that split the state, along which the norm is the same.
    """

    norm: Norm | None = None
    axes: tuple[str, ...] = ()

    def finite(self, tree: PyTree[Array]) -> Array:
        """Returns whether all elements are finite, of all parts."""
        here = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]).all()
        names = tuple(name for name in self.axes if name in vma_of(here))  # along others it is one value already
        return jax.lax.psum((~here).astype(jnp.int32), names) == 0 if names else here

    def replicated(self, tree: _T) -> _T:
        """Returns numbers that are the same on all devices, as such; the largest where they are not."""

        def agree(x):
            names = tuple(name for name in self.axes if name in vma_of(x))
            # a reduction, so that the type says that the value is the same; JAX cannot differentiate `pmax`
            return jax.lax.pmax(jax.lax.stop_gradient(x), names) if names else x

        return jax.tree.map(agree, tree)


def make_collective(norm: Norm | None, y0: Y) -> CollectiveSteps:
    """Returns how devices take the same steps under a norm."""
    if norm is None:
        return CollectiveSteps()
    found = jax.eval_shape(norm, jax.tree.map(jnp.abs, promote(y0)))
    axes = vma_of(y0) - vma_of(found)  # the norm adds up over these
    return CollectiveSteps(norm, tuple(sorted(axes)))


def check_independent(field: Callable, t: Array, y: Y, operands: Any) -> None:
    """Checks that a vector field sends no messages to devices that may take other steps.

    Raises:
        ValueError: If it does.
    """
    manual = jax.sharding.get_abstract_mesh().manual_axes
    if not manual:
        return
    closed = jax.make_jaxpr(field)(*promote((t, y, operands)))
    talks = sorted(_axes_of_messages(closed.jaxpr) & set(manual))
    if talks:
        raise ValueError(
            f"the model communicates along the mesh axes {talks}, but each device would choose its own steps, and "
            "some would wait forever. Pass a norm over all devices, `solve(..., norm=domain.rms)`."
        )


def _axes_of_messages(jaxpr: Jaxpr) -> set:
    found = set()
    for eqn in equations(jaxpr):
        if eqn.primitive.name not in _SILENT:
            for key in ("axes", "axis_name"):
                named = eqn.params.get(key, ())
                named = named if isinstance(named, tuple | list) else (named,)
                found |= {axis for axis in named if isinstance(axis, str)}
    return found
