"""Values at places between the unknowns: receivers and sources."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Inexact

from ._grid import Grid


class Points(eqx.Module):
    r"""Points in a grid, to read a field there and to place sources there.

    `read` interpolates linearly along every axis between the centres of cells, `spread` is its adjoint:

    $$\sum_i \text{read}(u)_i\, s_i = \int u\, \text{spread}(s)\, dx$$

    so that $\text{spread}(s) = \sum_i s_i\, \delta(x - x_i)$ on the grid. Positions are leaves. Between the outermost
    centres and the walls, values are constant.

    Attributes:
        grid: The grid.
        positions: The points, of shape `(points, ndim)`, or `(ndim,)` for one.

    Raises:
        ValueError: If the positions have the wrong shape, or are known and outside of the box.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Grid, Points

        grid = Grid((8, 8))
        x, y = grid.centers
        points = Points(grid, [[0.3, 0.4], [0.5, 0.6]])
        assert jnp.allclose(points.read(x + 2 * y), jnp.array([1.1, 1.7]))
        assert jnp.isclose(grid.integrate(points.spread(jnp.array([1.0, 2.0]))), 3.0)
        ```
    """

    grid: Grid
    positions: Float[Array, "..."]

    def __init__(self, grid: Grid, positions: Any):
        self.grid = grid
        self.positions = jnp.asarray(positions, None if hasattr(positions, "dtype") else jnp.result_type(float))
        shape = self.positions.shape
        if len(shape) not in (1, 2) or shape[-1] != grid.ndim:
            raise ValueError(
                f"`Points(positions=...)` must have shape (points, {grid.ndim}) or ({grid.ndim},), but has shape "
                f"{shape}."
            )
        if not isinstance(self.positions, Tracer):
            known = np.asarray(self.positions)
            if np.any(known < np.asarray(grid.lower)) or np.any(known > np.asarray(grid.upper)):
                raise ValueError(f"`Points(positions=...)` must be within {grid}, but are {known.tolist()}.")

    def _corners(self, dtype: Any) -> tuple[tuple[Array, ...], Array]:
        """The indices of the cells around each place, and their weights, of shape `(corners, *points)`."""
        indices, weights = [], jnp.ones((1, *self.positions.shape[:-1]), dtype)
        for axis, (low, h, n) in enumerate(zip(self.grid.lower, self.grid.spacing, self.grid.shape)):
            at = jnp.clip((self.positions[..., axis].astype(dtype) - low) / h - 0.5, 0, n - 1)
            first = jnp.minimum(at.astype(jnp.int32), max(n - 2, 0))
            share = at - first.astype(dtype)
            indices = [jnp.concatenate([i, i]) for i in indices]
            below = jnp.broadcast_to(first, weights.shape)
            indices.append(jnp.concatenate([below, jnp.minimum(below + 1, n - 1)]))
            weights = jnp.concatenate([weights * (1 - share)[None], weights * share[None]])
        return tuple(indices), weights

    def read(self, u: Inexact[Array, "..."]) -> Array:
        """Returns the values of a field at the places, of shape `(..., points)`, or `(...)` for one.

        Args:
            u: The field, with the grid's axes last.

        Raises:
            ValueError: If it is not one over the grid.
        """
        if u.shape[u.ndim - self.grid.ndim :] != self.grid.shape:
            raise ValueError(
                f"`Points.read(u)`: `u` must end with the axes {self.grid.shape} of {self.grid}, but has shape "
                f"{u.shape}."
            )
        indices, weights = self._corners(jnp.finfo(u.dtype).dtype)
        lead = u.ndim - self.grid.ndim
        values = u[(..., *indices)]  # (*lead, corners, *points)
        weights = weights.reshape((1,) * lead + weights.shape).astype(u.dtype)
        return jnp.sum(values * weights, axis=lead)

    def spread(
        self,
        values: Inexact[Array, "..."],
        *,
        first: Sequence[Any] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> Array:
        """Returns a density over the grid of which each place holds its value, or over a part of it.

        Args:
            values: One number for each place, of shape `(points,)`, or a scalar for one.
            first: The start of the part: the index of a cell along each axis.
            shape: The shape of the part.
        """
        indices, weights = self._corners(jnp.finfo(values.dtype).dtype)
        parts = weights.astype(values.dtype) * (values / self.grid.volume)[None]
        if first is None or shape is None:
            return jnp.zeros(self.grid.shape, values.dtype).at[indices].add(parts)
        # what is outside goes nowhere; negative numbers would count from the end
        within = tuple(jnp.where(i >= start, i - start, n) for i, start, n in zip(indices, first, shape))
        return jnp.zeros(shape, values.dtype).at[within].add(parts, mode="drop")
