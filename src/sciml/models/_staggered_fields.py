"""Fields of waves on a staggered grid: which of them is where, and the states that hold them by name.

Along every axis a field is at the centres of cells or at the nodes between them. Nodes on walls are among the unknowns.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import check_real
from .._types import RealScalarLike
from ..spatial import Grid, Points


class WaveFields(NamedTuple):
    """The state of `Maxwell` and of `ElasticWave`, or its rates.

    Attributes:
        fields: The fields by their names, such as `"Ez"` or `"vx"`, each where it is on the staggered grid.
        layers: What the absorbing layers remember, by the field whose rate it belongs to and the axis: `"Ez x"`.
        media: What a dispersive medium remembers at each component of the electric field: a dictionary for each.

    Example:
        ```python
        from sciml.models import Maxwell
        from sciml.spatial import Grid

        y = Maxwell(Grid((8, 6)), polarization="Ez").start()
        assert {name: u.shape for name, u in y.fields.items()} == {"Ez": (9, 7), "Hx": (9, 6), "Hy": (8, 7)}
        ```
    """

    fields: dict[str, Float[Array, "..."]]
    layers: dict[str, Float[Array, "..."]]
    media: tuple[Any, ...] = ()

    def moved(self, h: RealScalarLike, rates: "WaveFields") -> "WaveFields":
        """Returns the state after a time, of which what has rates moves at these and the rest stays."""

        def moved(before: dict[str, Any], rate: dict[str, Any]) -> dict[str, Any]:
            moves = {name: before[name] for name in rate}
            return before | jax.tree.map(lambda x, r: x + jnp.asarray(h, x.dtype) * r, moves, rate)

        media = tuple(moved(before, rate) for before, rate in zip(self.media, rates.media))
        return WaveFields(moved(self.fields, rates.fields), moved(self.layers, rates.layers), media)


class Places(eqx.Module):
    """Where the fields of a model are.

    Attributes:
        grid: The grid.
        nodes: For each field, by name, the axes along which it is at nodes.
        periodic: Which axes are periodic.
    """

    grid: Grid
    nodes: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)
    periodic: tuple[bool, ...] = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(name for name, _ in self.nodes)

    def at_nodes(self, name: str) -> tuple[int, ...]:
        """Returns the axes along which a field is at nodes.

        Raises:
            ValueError: If there is no such field.
        """
        for known, axes in self.nodes:
            if known == name:
                return axes
        raise ValueError(f"there is no field {name!r}: the fields are {', '.join(self.names)}.")

    def location(self, name: str) -> tuple[str, ...]:
        """Returns where a field is, as `sciml.spatial.Grid` says it."""
        axes = self.at_nodes(name)
        return tuple(
            ("lower" if closed else "node") if axis in axes else "center" for axis, closed in enumerate(self.periodic)
        )

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a field."""
        return self.grid.shape_at(self.location(name))

    def sample(self, given: Mapping[str, Any], dtype: Any, model: str) -> dict[str, Array]:
        """Returns all fields, from numbers, arrays or functions of the coordinates for some; the others are zero.

        Raises:
            ValueError: If a name is unknown, or an array has the wrong shape.
        """
        if not isinstance(given, Mapping):
            raise TypeError(f"`{model}.start(fields)` must be a mapping of names to fields, but is {given!r}.")
        if unknown := sorted(set(given) - set(self.names)):
            raise ValueError(f"`{model}.start(fields)` names {unknown}: the fields are {', '.join(self.names)}.")
        found = {}
        for name in self.names:
            value, shape = given.get(name, 0.0), self.shape(name)
            value = value(*self.grid.coordinates(self.location(name))) if callable(value) else value
            if np.ndim(value) and not _fits(value, shape):
                raise ValueError(
                    f"`{model}.start(fields)`: {name} must have the shape {shape}, but has shape {np.shape(value)}."
                )
            found[name] = jnp.broadcast_to(jnp.asarray(value, dtype), shape)
        return found

    def points(self, name: str, positions: Any) -> Points:
        """Returns places between the unknowns of a field, to read it or to act on it there."""
        grid, lower, upper = self.grid, [], []
        wrapped = jnp.asarray(positions, None if hasattr(positions, "dtype") else jnp.result_type(float))
        for axis, (at, h) in enumerate(zip(self.location(name), grid.spacing)):
            low, high = grid.lower[axis], grid.upper[axis]
            lower.append(low if at == "center" else low - h / 2)
            upper.append(high if at == "center" else high - h / 2 if at == "lower" else high + h / 2)
            if at == "lower" and wrapped.shape and wrapped.shape[-1] == grid.ndim:
                x = wrapped[..., axis]
                length = jnp.asarray(high - low, x.dtype)
                wrapped = wrapped.at[..., axis].set(jnp.where(x > upper[-1], x - length, x))
        return Points(Grid(self.shape(name), lower, upper), wrapped)

    def centered(self, name: str, u: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns a field, or each of an array of fields, at the centres of cells: the mean of the nodes around."""
        for axis in self.at_nodes(name):
            at = axis - self.grid.ndim
            if self.periodic[axis]:
                u = (u + jnp.roll(u, -1, at)) / 2
            else:
                n = self.grid.shape[axis]
                u = (_cut(u, at, 0, n) + _cut(u, at, 1, n + 1)) / 2
        return u

    def averaged(self, name: str, x: Array) -> Array:
        """Returns a coefficient of the cells where a field is: the mean of the cells that touch it there."""
        if not x.ndim:
            return x
        for axis in self.at_nodes(name):
            n = self.grid.shape[axis]
            if self.periodic[axis]:
                x = (x + jnp.roll(x, 1, axis)) / 2
            else:
                inner = (_cut(x, axis, 0, n - 1) + _cut(x, axis, 1, n)) / 2
                x = jnp.concatenate([_cut(x, axis, 0, 1), inner, _cut(x, axis, n - 1, n)], axis)
        return x

    def moving(self, name: str, still: tuple[tuple[bool, bool], ...]) -> Float[np.ndarray, "..."]:
        """Returns a mask that broadcasts to a field: zero on the walls that keep it at zero, and one elsewhere.

        Args:
            name: The field.
            still: For each axis, whether the low and the high wall do.
        """
        mask = np.ones((1,) * self.grid.ndim)
        for axis in self.at_nodes(name):
            inside = np.ones(self.shape(name)[axis])
            for end, kept in zip((0, -1), still[axis]):
                if kept:
                    inside[end] = 0.0
            mask = mask * inside.reshape([-1 if a == axis else 1 for a in range(self.grid.ndim)])
        return mask

    def check(self, y: Any, like: Callable[[], WaveFields], model: Any) -> None:
        """Refuses what is no state of a model.

        Raises:
            TypeError: If it is no `WaveFields`, or complex.
            ValueError: If it has the wrong structure or shapes.
        """
        name = type(model).__name__
        if not isinstance(y, WaveFields):
            got = f"an array of shape {y.shape}" if hasattr(y, "shape") else f"a {type(y).__name__}"
            raise TypeError(f"the state of `{name}` must be a `WaveFields`, as `model.start()` makes it, but is {got}.")
        for x in jax.tree.leaves(y):
            check_real(x, model)
        right = jax.eval_shape(like)
        if jax.tree.structure(y) != jax.tree.structure(right):
            raise ValueError(
                f"the state of `{name}` must have the structure {jax.tree.structure(right)}, as `model.start()` has "
                f"it, but has {jax.tree.structure(y)}."
            )
        for (path, x), want in zip(jax.tree_util.tree_leaves_with_path(y), jax.tree.leaves(right)):
            if x.shape != want.shape:
                raise ValueError(
                    f"the state of `{name}` must have the shape {want.shape} at {jax.tree_util.keystr(path)}, as "
                    f"`model.start()` has it, but has shape {x.shape}."
                )


def check_coefficient(value: Array, grid: Grid, name: str, model: str) -> None:
    """Refuses a coefficient that is neither a number nor one for each cell.

    Raises:
        ValueError: If it has another shape.
    """
    if value.ndim and value.shape != grid.shape:
        raise ValueError(
            f"`{model}({name}=...)` must be a number or an array over the grid {grid.shape}, but has shape "
            f"{value.shape}."
        )


def _fits(value: Any, shape: tuple[int, ...]) -> bool:
    given = np.shape(value)
    return len(given) == len(shape) and all(m in (1, n) for m, n in zip(given, shape))


def _cut(x: Array, axis: int, start: int, stop: int) -> Array:
    return jax.lax.slice_in_dim(x, start, stop, axis=axis % x.ndim)
