"""How the flow carries things along, itself among them."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._types import Args, RealScalarLike
from ..finite_volumes._reconstruction import as_limiter
from ._spacing import mean_by_widths, over_gaps, over_widths
from ._velocity import StaggeredVelocity, Velocity, cut, difference, mean


class AbstractTransport(eqx.Module):
    """Interpolation of carried values to faces, from the cells around them.

    Attributes:
        width: How many layers of cells at either side of a face it reads.

    Example:
        ```python
        from typing import ClassVar

        import jax
        from sciml.spatial.staggered._transport import AbstractTransport

        class FirstUpwind(AbstractTransport):
            width: ClassVar[int] = 1

            def at_faces(self, padded, axis, speed):
                n = padded.shape[axis]
                behind = jax.lax.slice_in_dim(padded, 0, n - 1, axis=axis)
                ahead = jax.lax.slice_in_dim(padded, 1, n, axis=axis)
                return jax.numpy.where(speed > 0, behind, ahead)
        ```
    """

    width: eqx.AbstractClassVar[int]

    @abc.abstractmethod
    def at_faces(self, padded: Float[Array, "..."], axis: int, speed: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the values at faces.

        Args:
            padded: The values in cells, with `width` layers of ghost cells at both ends of the axis.
            axis: The axis across the faces.
            speed: The velocity through the faces, one more along the axis than cells without ghosts.
        """


class Central(AbstractTransport):
    """The mean of both sides, of second order: nothing is smeared, and without viscosity the energy is kept.

    Structures of the size of a cell oscillate rather than fade: if the velocity times the spacing is much larger than
    twice the viscosity over long times, refine the grid, add `sciml.models.Smagorinsky` or use `LimitedUpwind`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Central

        assert jnp.all(Central().at_faces(jnp.array([1.0, 3.0, 5.0]), 0, jnp.ones(2)) == jnp.array([2.0, 4.0]))
        ```
    """

    width: ClassVar[int] = 1

    def at_faces(self, padded: Float[Array, "..."], axis: int, speed: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the means of neighbours."""
        del speed
        return mean(padded, axis)


class LimitedUpwind(AbstractTransport):
    """Upwind, with lines of limited slope: of second order, without new extrema in one dimension.

    Attributes:
        limiter: The slope from the differences to both neighbours, such as `"van_leer"` or `"minmod"`; see `Muscl`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import LimitedUpwind

        cells = jnp.array([0.0, 0.0, 1.0, 1.0])
        assert LimitedUpwind().at_faces(cells, 0, jnp.ones(1)) == 0.0
        ```
    """

    limiter: Callable[[Array, Array], Array] = eqx.field(static=True, default="van_leer", converter=as_limiter)
    width: ClassVar[int] = 2

    def at_faces(self, padded: Float[Array, "..."], axis: int, speed: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the ends of the lines in the cells upwind."""
        steps = difference(padded, axis)
        n = steps.shape[axis]
        slope = self.limiter(
            jax.lax.slice_in_dim(steps, 0, n - 1, axis=axis), jax.lax.slice_in_dim(steps, 1, n, axis=axis)
        )
        cells = cut(padded, (axis,), 1)
        n = cells.shape[axis]
        behind = jax.lax.slice_in_dim(cells + slope / 2, 0, n - 1, axis=axis)
        ahead = jax.lax.slice_in_dim(cells - slope / 2, 1, n, axis=axis)
        return jnp.where(speed > 0, behind, ahead)


def carry_momentum(
    velocity: StaggeredVelocity, transport: AbstractTransport, u: Velocity, t: RealScalarLike, args: Args
) -> Velocity:
    r"""Returns $-\nabla \cdot (u \otimes u)$ at the unknown faces."""
    grid, ndim, width, periodic = velocity.grid, velocity.grid.ndim, transport.width, velocity.pressure.periodic
    padded = [velocity.padded(i, part, width, t=t, args=args, transported=True) for i, part in enumerate(u)]
    padded = jax.lax.optimization_barrier(padded)  # or ghost cells are computed once for each read
    through = [velocity.to_all(part, i, width) for i, part in enumerate(padded)]
    found = []
    for i in range(ndim):
        total = None
        for j in range(ndim):
            along = cut(padded[i], [axis for axis in range(ndim) if axis != j], width)
            if i == j:
                speed = mean(cut(along, (j,), width - 1), j)
            else:  # at the edges where faces across both axes meet
                speed = cut(through[j], [axis for axis in range(ndim) if axis not in (i, j)], width)
                speed = velocity.to_unknown(mean_by_widths(grid, cut(speed, (i,), width - 1), i, periodic[i]), i)
            change = difference(speed * transport.at_faces(along, j, speed), j)
            if i == j:
                term = over_gaps(grid, change, j, periodic[j], velocity.component(i).location[i])
            else:
                term = over_widths(grid, change, j)
            total = term if total is None else total + term
        assert total is not None
        found.append(-total)
    return tuple(found)


def carry_scalar(
    velocity: StaggeredVelocity,
    transport: AbstractTransport,
    u: Velocity,
    c: Float[Array, "..."],
    boundary: Any,
    t: RealScalarLike,
    args: Args,
) -> Float[Array, "..."]:
    r"""Returns $-\nabla \cdot (u c)$ at centres."""
    ndim, width = velocity.grid.ndim, transport.width
    padded = boundary.pad(c, width, t=t, args=args)
    total = None
    for axis in range(ndim):
        others = [other for other in range(ndim) if other != axis]
        speed = cut(velocity.to_all(velocity.padded(axis, u[axis], t=t, args=args), axis, 1), others, 1)
        along = cut(padded, others, width)
        term = over_widths(velocity.grid, difference(speed * transport.at_faces(along, axis, speed), axis), axis)
        total = term if total is None else total + term
    assert total is not None
    return -total
