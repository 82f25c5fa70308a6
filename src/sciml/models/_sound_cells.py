r"""Sound at one cell, for kernels.

Kernels take arrays of one shape, and velocity is known at one face more than there are cells between walls. So along
these axes every field gets a last cell behind the upper wall. It holds the image of the cell before the wall, and since
the equations have the same symmetry, it stays that image. Ghost cells are images, too.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact

from ..kernels.stencil import StencilRates
from ..spatial import AbstractWall, Boundaries, Grid, Periodic
from ..spatial._stencil import along
from ..spatial._weights import midway
from ._mirrored import Sides


class _Image(AbstractWall):
    """The field goes on as an image of itself, whose first cell is that of a layer.

    Attributes:
        first: The layer: 0 or 1 where the wall is half a cell or none beyond the array, 2 half a cell before its
            end; there the last ghost layer, which nothing reads, is a copy.
        sign: That of the image.
        width: The number of ghost layers.
    """

    first: int = eqx.field(static=True)
    sign: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def points(self, offset: float, accuracy: int) -> int:
        del offset, accuracy
        return self.width + (self.first > 0)

    def ghosts(
        self, layers: Inexact[Array, "..."], width: int, *, axis: int, spacing: float, offset: float, accuracy: int = 2
    ) -> Inexact[Array, "..."]:
        del spacing
        last = self.points(offset, accuracy) - 1
        index = np.minimum(self.first + np.arange(width), last)
        return self.sign * jnp.concatenate([jax.lax.slice_in_dim(layers, i, i + 1, axis=axis) for i in index], axis)

    def homogeneous(self) -> "_Image":
        return self


def rates(
    grid: Grid,
    sides: Sides,
    order: int,
    stiffness: Array,
    density: list[Array],
    damping: dict[str, Array],
) -> StencilRates:
    """Returns the rates of pressure and velocity at one cell.

    Args:
        grid: The grid.
        sides: The walls.
        order: The order of accuracy.
        stiffness: A number, or an array over cells.
        density: For each axis that at its faces, a number or an array over faces.
        damping: By field what it is damped by, an array that broadcasts over the field; only those that are.
    """
    ndim, width = grid.ndim, order // 2
    parts, speeds = tuple(f"p{a}" for a in range(ndim)), tuple(f"v{a}" for a in range(ndim))
    weights = [midway(order, 1)[width:] / h for h in grid.spacing]
    shape = tuple(n + (pair[0] != "periodic") for n, pair in zip(grid.shape, sides))
    given = {"stiffness": stiffness} | {f"density {a}": x for a, x in enumerate(density)}
    given |= {f"damping {name}": x for name, x in damping.items()}
    params = {name: x for name, x in given.items() if not x.ndim}
    coefficients = {name: _to_shape(x, shape) for name, x in given.items() if x.ndim}

    def fn(nb: Callable[..., Array], params: dict[str, Array]) -> dict[str, Array]:
        def value(name: str) -> Array:
            return params[name] if name in params else nb(name)

        def pressure(*shift: int) -> Array:
            values = [nb(name, *shift) for name in parts]
            return sum(values[1:], values[0])

        def damped(name: str, rate: Array) -> Array:
            return rate - value(f"damping {name}") * nb(name) if name in damping else rate

        found = {}
        for a in range(ndim):

            def difference(read: Callable[..., Array], first: int, a: int = a) -> Array:
                terms = [
                    float(w) * (read(*along(a, ndim, first + j)) - read(*along(a, ndim, first - 1 - j)))
                    for j, w in enumerate(weights[a])
                ]
                return sum(terms[1:], terms[0])

            divergence = difference(lambda *shift, a=a: nb(speeds[a], *shift), 1)
            found[parts[a]] = damped(parts[a], -value("stiffness") * divergence)
            found[speeds[a]] = damped(speeds[a], -difference(pressure, 0) / value(f"density {a}"))
        return found

    def lead(name: str) -> list[int]:
        """The axes along which a field gets a last cell behind the upper wall."""
        return [a for a in range(ndim) if sides[a][0] != "periodic" and name != speeds[a]]

    def split(y: Any) -> tuple[Array, ...]:
        fields = []
        for name, x in zip(parts + speeds, (*y.parts, *y.velocity)):
            for a in lead(name):
                last = jax.lax.slice_in_dim(x, x.shape[a] - 1, x.shape[a], axis=a)
                x = jnp.concatenate([x, -last if sides[a][1] == "free" else last], a)
            fields.append(x)
        return tuple(fields)

    def join(fields: tuple[Array, ...], y: Any) -> Any:
        found = []
        for name, x in zip(parts + speeds, fields):
            for a in lead(name):
                x = jax.lax.slice_in_dim(x, 0, x.shape[a] - 1, axis=a)
            found.append(x)
        return type(y)(jnp.stack(found[:ndim]), tuple(found[ndim:]))

    across: dict[str, int | None] = dict.fromkeys(parts) | {name: a for a, name in enumerate(speeds)}
    boundary = {name: _images(shape, sides, width, a) for name, a in across.items()}
    return StencilRates(fn, parts + speeds, params, width, boundary, coefficients, split=split, join=join)


def _to_shape(x: Array, shape: tuple[int, ...]) -> Array:
    """An array with the last cell behind the walls, which repeats the one before; axes of length 1 broadcast."""
    more = [(0, n - m if m > 1 else 0) for n, m in zip(shape, x.shape)]
    return jnp.broadcast_to(jnp.pad(x, more, mode="edge"), shape)


def _images(shape: tuple[int, ...], sides: Sides, width: int, across: int | None) -> Boundaries:
    """The boundary of the pressure, or of the velocity across the faces of an axis."""
    grid, found = Grid(shape), {}
    for a, (name, pair) in enumerate(zip(grid.names, sides)):
        if pair[0] == "periodic":
            found[name] = Periodic()
            continue
        for end, kind, first in zip("-+", pair, (0, 2) if across != a else (1, 1)):
            even = (kind == "rigid") == (across != a)
            found[name + end] = _Image(first, 1 if even else -1, width)
    return Boundaries(grid, found)
