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

from ..._checks import check_real
from ..._parameters import parameter
from ..._structure_words import first_difference, structure_words
from ..._types import RealScalarLike
from ...spatial import Grid, Points
from ...spatial._blocks import AbstractBlocks


class WaveFields(NamedTuple):
    """The state of `Maxwell` and of `ElasticWave`, or its rates.

    Attributes:
        fields: The fields by their names, such as `"Ez"` or `"vx"`, each where it is on the staggered grid.
        layers: The memory of the absorbing layers, by the field of the rate and the axis: `"Ez x"`.
        media: The memory of a dispersive medium at each component of the electric field: a dictionary for each.

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
    """The positions of the fields of a model.

    Attributes:
        grid: The grid.
        nodes: For each field, by name, the axes along which it is at nodes.
        periodic: The periodic axes.
        blocks: How the grid is split over devices; None if it is not.
    """

    grid: Grid
    nodes: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)
    periodic: tuple[bool, ...] = eqx.field(static=True)
    blocks: AbstractBlocks | None = None

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
        """Returns the location of a field, in the words of `sciml.spatial.Grid`."""
        axes = self.at_nodes(name)
        return tuple(
            ("lower" if closed else "node") if axis in axes else "center" for axis, closed in enumerate(self.periodic)
        )

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a field, within `Domain.run` the shape of its part in a block."""
        shape = self.grid.shape_at(self.location(name))
        return tuple(
            self.cells(axis) + n - cells if self.split(axis) else n
            for axis, (n, cells) in enumerate(zip(shape, self.grid.shape))
        )

    def split(self, axis: int) -> bool:
        """Returns whether the code that is traced runs with a part of this axis."""
        return self.blocks is not None and self.blocks.devices(axis) > 1

    def cells(self, axis: int) -> int:
        """Returns the number of cells along an axis, within `Domain.run` the number of a block."""
        return self.grid.shape[axis] // (1 if self.blocks is None else self.blocks.devices(axis))

    def first(self, axis: int) -> Any:
        """Returns which unknown of the whole grid is the first along an axis."""
        return self.blocks.first_cell(axis) if self.blocks is not None and self.split(axis) else 0

    def part(self, name: str, value: Array) -> Array:
        """Returns the part of what broadcasts to a whole field that belongs to the block."""
        shape = self.shape(name)
        for axis in range(self.grid.ndim):
            at = value.ndim - self.grid.ndim + axis
            if self.split(axis) and at >= 0 and value.shape[at] > 1:
                value = jax.lax.dynamic_slice_in_dim(value, self.first(axis), shape[axis], at)
        return value

    def sample(self, given: Mapping[str, Any], dtype: Any, model: str) -> dict[str, Array]:
        """Returns all fields, from numbers, arrays or functions of the coordinates for some; the others are zero.

        Raises:
            ValueError: If a name is unknown, or an array has the wrong shape.
        """
        if not isinstance(given, Mapping):
            raise TypeError(f"`{model}.start(fields)` must be a mapping from names to fields, but is {given!r}.")
        if unknown := sorted(set(given) - set(self.names)):
            raise ValueError(f"`{model}.start(fields)` contains {unknown}, but the fields are {', '.join(self.names)}.")
        found = {}
        for name in self.names:
            value, shape = given.get(name, 0.0), self.grid.shape_at(self.location(name))
            value = value(*self.grid.coordinates(self.location(name))) if callable(value) else value
            if np.ndim(value) and not _fits(value, shape):
                raise ValueError(
                    f"`{model}.start(fields)`: {name} must have the shape {shape}, but has shape {np.shape(value)}."
                )
            found[name] = jnp.broadcast_to(self.part(name, jnp.asarray(value, dtype)), self.shape(name))
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
        return Points(Grid(grid.shape_at(self.location(name)), lower, upper), wrapped)

    def centered(self, name: str, u: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns a field, or each of an array of fields, at the centres of cells: the mean of the nodes around."""
        for axis in self.at_nodes(name):
            at, n = axis - self.grid.ndim, self.cells(axis)
            if self.periodic[axis]:
                above = _cut(u, at, 0, 1)
                if self.blocks is not None and self.split(axis):
                    above = self.blocks.neighbours(above, _cut(u, at, n, n), axis, False)[1]
                u = jnp.concatenate([u, above], at % u.ndim)
            u = (_cut(u, at, 0, n) + _cut(u, at, 1, n + 1)) / 2
        return u

    def averaged(self, name: str, x: Array) -> Array:
        """Returns a coefficient of the cells where a field is: the mean of the cells that touch it there."""
        if not x.ndim:
            return x
        for axis in range(self.grid.ndim):
            at_nodes, n, closed = axis in self.at_nodes(name), self.grid.shape[axis], not self.periodic[axis]
            if self.split(axis):
                x = self._around(x, axis) if at_nodes else _from(x, axis, self.first(axis), self.cells(axis))
            elif at_nodes:
                ends = (0, n - 1) if closed else (n - 1, 0)
                low, high = (_cut(x, axis, end, end + 1) for end in ends)
                x = jnp.concatenate([low, x, high] if closed else [low, x], axis)
            if at_nodes:
                more = x.shape[axis] - 1
                x = (_cut(x, axis, 0, more) + _cut(x, axis, 1, more + 1)) / 2
        return x

    def _around(self, x: Array, axis: int) -> Array:
        """The cells of a block, of all, with those before and behind it that touch its nodes."""
        n, cells, first = self.grid.shape[axis], self.cells(axis), self.first(axis)
        inside = _from(x, axis, first, cells)
        if self.periodic[axis]:
            return jnp.concatenate([_from(x, axis, (first - 1) % n, 1), inside], axis)
        before, behind = jnp.maximum(first - 1, 0), jnp.minimum(first + cells, n - 1)
        return jnp.concatenate([_from(x, axis, before, 1), inside, _from(x, axis, behind, 1)], axis)

    def moving(self, name: str, still: tuple[tuple[bool, bool], ...]) -> Float[Any, "..."]:
        """Returns a mask that broadcasts to a field: zero on the walls that keep it at zero, and one elsewhere.

        Args:
            name: The field.
            still: For each axis, whether the low and the high wall do.
        """
        mask: Any = np.ones((1,) * self.grid.ndim)
        whole = self.grid.shape_at(self.location(name))
        for axis in self.at_nodes(name):
            inside: Any = np.ones(whole[axis])
            for end, kept in zip((0, -1), still[axis]):
                if kept:
                    inside[end] = 0.0
            if self.split(axis):
                inside = _from(jnp.asarray(inside), 0, self.first(axis), self.shape(name)[axis])
            mask = mask * inside.reshape([-1 if a == axis else 1 for a in range(self.grid.ndim)])
        return mask

    def integrate(self, name: str, u: Float[Array, "..."]) -> Array:
        """Returns the integral of a density where a field is, over all devices."""
        if self.blocks is None or not any(map(self.split, range(self.grid.ndim))):
            return self.grid.integrate(u, self.location(name))
        for axis in self.at_nodes(name):
            if not self.periodic[axis]:  # half at both ends of a block, too: its neighbour has the other half
                weights = np.ones(self.cells(axis) + 1)
                weights[[0, -1]] = 0.5
                u = u * jnp.asarray(weights, u.dtype).reshape([-1 if a == axis else 1 for a in range(u.ndim)])
        return self.blocks.sum(u) * jnp.asarray(self.grid.volume, u.dtype)

    def check(self, y: Any, like: Callable[[], WaveFields], model: Any) -> None:
        """Raises an error if it is not a state of the model.

        Raises:
            TypeError: If it is not a `WaveFields`, or complex.
            ValueError: If it has the wrong structure or shapes.
        """
        name = type(model).__name__
        if not isinstance(y, WaveFields):
            got = f"an array of shape {y.shape}" if hasattr(y, "shape") else f"a {type(y).__name__}"
            raise TypeError(
                f"the state of `{name}` must be a `WaveFields`, as returned by `model.start()`, but is {got}."
            )
        for x in jax.tree.leaves(y):
            check_real(x, model)
        right = jax.eval_shape(like)
        if jax.tree.structure(y) != jax.tree.structure(right):
            raise ValueError(
                f"the state of `{name}` must be {structure_words(right)}, as returned by `model.start()`, but is "
                f"{structure_words(y)}.{first_difference(right, y)}"
            )
        for (path, x), want in zip(jax.tree_util.tree_leaves_with_path(y), jax.tree.leaves(right)):
            if x.shape != want.shape:
                raise ValueError(
                    f"the state of `{name}` must have shape {want.shape} at {jax.tree_util.keystr(path)}, as returned "
                    f"by `model.start()`, but has shape {x.shape}."
                    + (" Convert it with `model.to_blocks` before `Domain.run`." if self.blocks is not None else "")
                )


def coefficient(value: Any, grid: Grid, name: str, model: str) -> Array:
    """Returns a coefficient, a number or one for each cell, as a parameter.

    Raises:
        TypeError: If it is not an array of numbers.
        ValueError: If it has another shape.
    """
    wants = f"`{model}({name}=...)` must be a number or an array over the grid {grid.shape}, but"
    try:
        found = parameter(value)
    except TypeError as error:
        raise TypeError(f"{wants} is {value!r}. Set the sides with `boundary=`.") from error
    if found.ndim and found.shape != grid.shape:
        raise ValueError(f"{wants} has shape {found.shape}.")
    return found


def _fits(value: Any, shape: tuple[int, ...]) -> bool:
    given = np.shape(value)
    return len(given) == len(shape) and all(m in (1, n) for m, n in zip(given, shape))


def _from(x: Array, axis: int, start: Any, size: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(x, start, size, axis)


def _cut(x: Array, axis: int, start: int, stop: int) -> Array:
    return jax.lax.slice_in_dim(x, start, stop, axis=axis % x.ndim)
