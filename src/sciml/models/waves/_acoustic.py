"""Sound in a medium that varies, with layers that absorb what leaves.

Sound at one cell, for kernels.

Kernels take arrays of one shape, and velocity is known at one face more than there are cells between walls. So along
these axes every field gets a last cell behind the upper wall. It holds the image of the cell before the wall, and since
the equations have the same symmetry, it stays that image. Ghost cells are also images.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Inexact

from ..._checks import check_real
from ..._interfaces._model import AbstractPartitioned
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...kernels.stencil import NotForKernelsError, StencilRates
from ...spatial import AbstractWall, Boundaries, Grid, Periodic, Points
from ...spatial._blocks import AbstractBlocks
from ...spatial._stencil import along
from ...spatial._weights import midway
from . import _mirrored as mirrored
from ._absorbing import read_layers
from ._field_source import spread
from ._mirrored import Sides
from ._signals import PointSources
from ._staggered_fields import Places, coefficient
from ._staggered_wave import check_order, eigenvalue_bounds
from ._wave_blocks import read_domain, to_blocks, to_whole


class _Image(AbstractWall):
    """The field continues as an image of itself, whose first cell is the cell of a layer.

    Attributes:
        first: The layer: 0 or 1 where the wall is half a cell or none beyond the array, 2 half a cell before its
            end; there the last ghost layer, which nothing reads, is a copy.
        sign: The sign of the image.
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


def rates_of_cells(
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
        damping: The damping by field, an array that broadcasts over the field; only damped fields.
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


_REFLECTED = 1e-5
"""How much of a wave that meets a layer head on comes back, but for the grid's share."""


class Sound(NamedTuple):
    r"""The state of `Acoustic`.

    Attributes:
        parts: The pressure $p = \sum_i p_i$ at the centres of cells, a part for each direction: `(ndim, *grid)`.
        velocity: The velocity of the medium through the faces across each axis, an array each.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Acoustic
        from sciml.spatial import Grid, pulse

        grid = Grid((8, 6))
        model = Acoustic(grid)
        sound = model.rest(pulse(grid))
        assert sound.parts.shape == (2, 8, 6) and sound.velocity[0].shape == (9, 6)
        assert jnp.allclose(model.pressure(sound), pulse(grid))
        ```
    """

    parts: Float[Array, "..."]
    velocity: tuple[Float[Array, "..."], ...]


class Acoustic(AbstractPartitioned):
    r"""Sound of small amplitude in a medium whose speed of sound and density vary, in one to three dimensions.

    $$\partial_t v_i = -\tfrac{1}{\rho}\, \partial_i p - \sigma_i v_i, \qquad
      \partial_t p_i = -\rho c^2\, (\partial_i v_i - q / d) - \sigma_i p_i, \qquad p = \sum_{i=1}^d p_i$$

    with $q$ the volume that the sources emit, per volume and time. Pressure is at centres, velocity at faces. If
    $\sigma = 0$, the parts of the pressure add up to $\partial_t p = -\rho c^2 (\nabla \cdot v - q)$. In the perfectly
    matched layers along the sides $\sigma_i$ grows with the square of the depth: a wave enters without being reflected,
    at any angle and frequency, and fades. The layers are the outermost cells *of the grid*: make it larger than the
    medium of interest, and continue `speed` into them (`jnp.pad(speed, cells, mode="edge")`). At walls the field
    continues as an image of itself, so that without layers and sources the energy is kept at every order.

    In your own initial state the velocity through rigid walls must be 0: otherwise it keeps its value, and kernels, for
    which the field is an image of itself there, give another result.

    A layer forgets the waves that it absorbed, so gradients by `Checkpointed` are suitable. Without absorption,
    `sciml.adjoints.Reversible` is also supported.

    Good values: a source of at most $f = c / 10 h$ with `order=4` and $c / 20 h$ with `order=2`; layers of 10 cells;
    `dt` of 1.2 over `spectral_radius`. With fixed steps `sciml.solve` uses `sciml.solvers.Leapfrog`, which alternates
    velocity and pressure. It has second order in time, so compared with differences of order 4 its error dominates for
    long steps.

    Attributes:
        speed: $c$, a number or an array over the grid.
        density: $\rho$, a number or an array over the grid; at faces the mean of both sides.
        source: $q$, a function `(t, args)` that returns an array over the grid, such as a `PointSources`; or None.
        tuned: The speed for which the layers are made, by default the largest of `speed`, held constant.
        grid: The grid, with the layers.
        sides: The conditions at both sides of each axis.
        layers: The width of the layers in cells, a pair for each axis.
        order: The order of accuracy in space.
        blocks: How the grid is split over devices; None if it is not.

    Args:
        grid: The grid, with the layers.
        speed: $c$, a length over time.
        density: $\rho$, a mass over volume.
        boundary: The conditions at the sides, behind the layers: `"rigid"` walls, where $v = 0$, `"free"` surfaces,
            where $p = 0$, or `"periodic"`; one for all, or by name, `{"x": "periodic", "y-": "rigid", "y+": "free"}`.
        layers: The cells of the layers: one number for all sides, or by name, `{"x": 10, "y-": 10}`; 0 for none.
        source: $q$.
        order: The order of accuracy in space: 2, 4, 6 or 8.
        tuned: The speed for which the layers are made.
        domain: A `sciml.parallel.Domain` without boundary, whose devices hold a block each within its `run`; see
            `to_blocks`.

    Raises:
        ValueError: If speed, density or state have the wrong shape, the order is unknown, or layers do not fit.

    Source:
        J.-P. Berenger, J. Comput. Phys. 114:185, 1994, for the layers; X. Yuan, D. Borup, J. Wiskin et al., IEEE Trans.
        Ultrason. Ferroelectr. Freq. Control 44:816, 1997, for sound.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import Acoustic, PointSources, Ricker
        from sciml.spatial import Grid

        grid = Grid((40, 40), 0.0, 400.0)  # metres
        source = PointSources(grid, [200.0, 200.0], Ricker(15.0))
        model = Acoustic(grid, speed=1500.0, density=1000.0, layers=10, source=source)
        sol = sciml.solve(model, model.rest(), t0=0.0, t1=0.5, dt=0.002)
        assert jnp.max(jnp.abs(model.pressure(sol.ys)[-1])) < 1.0  # of 3e4 that was there before
        ```
    """

    speed: Parameter
    density: Parameter
    tuned: Parameter
    source: Callable[[RealScalarLike, Args], Array] | None
    grid: Grid
    sides: mirrored.Sides = eqx.field(static=True)
    layers: tuple[tuple[int, int], ...] = eqx.field(static=True)
    order: int = eqx.field(static=True)
    blocks: AbstractBlocks | None

    def __init__(
        self,
        grid: Grid,
        speed: Any = 1.0,
        density: Any = 1.0,
        *,
        boundary: str | Mapping[str, str] = "rigid",
        layers: int | Mapping[str, int] = 0,
        source: Callable[[RealScalarLike, Args], Array] | None = None,
        order: int = 4,
        tuned: Any = None,
        domain: Any = None,
    ):
        self.grid, self.order = grid, check_order(order, grid, "Acoustic")
        self.sides = mirrored.read_sides(grid, boundary, "Acoustic")
        self.speed = coefficient(speed, grid, "speed", "Acoustic")
        self.density = coefficient(density, grid, "density", "Acoustic")
        self.tuned = jax.lax.stop_gradient(jnp.max(self.speed)) if tuned is None else parameter(tuned)
        self.source = source
        self.layers = read_layers(grid, layers, "Acoustic")
        self.blocks = read_domain(domain, grid, "Acoustic")

    def rest(self, pressure: Float[Array, "..."] | None = None, dtype: Any = None) -> Sound:
        """Returns the state of a medium at rest, with a pressure or without.

        Args:
            pressure: The pressure over the grid; zero if None.
            dtype: The dtype of the state; by default the dtype of the pressure, or the default floating type.
        """
        grid = self.grid
        pressure = jnp.zeros(self.places.shape("p"), jnp.result_type(float)) if pressure is None else pressure
        if pressure.shape != (cells := self.places.shape("p")):
            raise ValueError(
                f"`Acoustic.rest(pressure)` requires an array over the grid, of shape {cells}, but it has "
                f"shape {pressure.shape}."
            )
        pressure = pressure if dtype is None else pressure.astype(dtype)
        shapes = self._face_shapes()
        parts = jnp.broadcast_to(pressure / grid.ndim, (grid.ndim, *pressure.shape))
        return Sound(parts, tuple(jnp.zeros(shape, pressure.dtype) for shape in shapes))

    @property
    def places(self) -> Places:
        """The positions of the fields: the pressure `"p"` at centres, and velocities, `"vx"`, at faces."""
        velocities = [(f"v{name}", (axis,)) for axis, name in enumerate(self.grid.names)]
        periodic = tuple(pair[0] == "periodic" for pair in self.sides)
        return Places(self.grid, (("p", ()), *velocities), periodic, self.blocks)

    def to_blocks(self, y: Sound) -> Sound:
        """Returns a state, or an array of states, as the blocks that `Domain.run` hands to the devices of `domain`.

        The face between two blocks is an unknown of both.

        Raises:
            ValueError: If the model has no `domain`, or its devices do not divide the cells.
        """
        return self._each_array(to_blocks, y)

    def from_blocks(self, y: Sound) -> Sound:
        """Returns the whole state, or an array of states, from the result of `Domain.run`."""
        return self._each_array(to_whole, y)

    def _each_array(self, change: Callable[..., Array], y: Sound) -> Sound:
        velocity = tuple(change(v, self.places, f"v{name}") for name, v in zip(self.grid.names, y.velocity))
        return Sound(change(y.parts, self.places, "p"), velocity)

    def pressure(self, y: Sound) -> Float[Array, "..."]:
        """Returns the pressure of a state, or of each of an array of states, over the grid."""
        return jnp.sum(y.parts, axis=-1 - self.grid.ndim)

    def record(self, y: Sound, points: Points) -> Float[Array, "..."]:
        """Returns the pressure of a state, or of each of an array of states, at receivers."""
        return points.read(self.pressure(y))

    def energy(self, y: Sound) -> Float[Array, ""]:
        r"""Returns $\tfrac12 \int p^2 / \rho c^2 + \rho |v|^2$; without layers and sources it does not change."""
        p, grid = with_dtype(self, y.parts.dtype), self.grid
        total = p.places.integrate("p", self.pressure(y) ** 2 / p._stiffness())
        for axis, v in enumerate(y.velocity):
            total = total + p.places.integrate(f"v{grid.names[axis]}", p._face_density(axis) * v**2)
        return total / 2

    def __call__(self, t: RealScalarLike, y: Sound, args: Args) -> Sound:
        """Returns the time derivative; `t` and `args` go to the source."""
        velocity = self._rates_of_velocity(y, self.first_drive(t, y, args))
        return Sound(self._rates_of_parts(y, self.second_drive(t, y, args)), velocity)

    def first_drive(self, t: RealScalarLike, y: Sound, args: Args) -> tuple[Array, ...]:
        r"""Returns the drive of the velocity: $-\tfrac{1}{\rho} \nabla p$."""
        del t, args
        self._check(y)
        p, pressure = with_dtype(self, y.parts.dtype), self.pressure(y)
        return tuple(
            -mirrored.slope(pressure, axis, pair, p.order, h, p.blocks) / p._face_density(axis)
            for axis, (pair, h) in enumerate(zip(p.sides, p.grid.spacing))
        )

    def second_drive(self, t: RealScalarLike, y: Sound, args: Args) -> Float[Array, "..."]:
        r"""Returns the drive of the pressure: for each direction $-\rho c^2 (\partial_i v_i - q / d)$."""
        self._check(y)
        p = with_dtype(self, y.parts.dtype)
        given = None if p.source is None else p._given(p.source, t, args).astype(y.parts.dtype) / p.grid.ndim
        stiffness, drives = p._stiffness(), []
        for axis, (v, pair, h) in enumerate(zip(y.velocity, p.sides, p.grid.spacing)):
            divergence = mirrored.divergence(v, axis, pair, p.order, h, p.blocks)
            drives.append(-stiffness * (divergence if given is None else divergence - given))
        return jnp.stack(drives)

    def move_first(self, h: RealScalarLike, y: Sound, drive: tuple[Array, ...], args: Args) -> Sound:
        """Returns a state in which the velocity has moved."""
        del args
        rates = self._rates_of_velocity(y, drive, h)
        return y._replace(velocity=tuple(v + jnp.asarray(h, v.dtype) * r for v, r in zip(y.velocity, rates)))

    def move_second(self, h: RealScalarLike, y: Sound, drive: Float[Array, "..."], args: Args) -> Sound:
        """Returns a state in which the pressure has moved."""
        del args
        return y._replace(parts=y.parts + jnp.asarray(h, y.parts.dtype) * self._rates_of_parts(y, drive, h))

    def _rates_of_velocity(
        self, y: Sound, drive: tuple[Array, ...], h: RealScalarLike | None = None
    ) -> tuple[Array, ...]:
        p = with_dtype(self, y.parts.dtype)
        at = [mirrored.face_names(p.sides, axis)[axis] for axis in range(p.grid.ndim)]
        return tuple(p._damped(f, v, axis, at[axis], h) for axis, (f, v) in enumerate(zip(drive, y.velocity)))

    def _rates_of_parts(self, y: Sound, drive: Float[Array, "..."], h: RealScalarLike | None = None) -> Array:
        p = with_dtype(self, y.parts.dtype)
        return jnp.stack([p._damped(f, u, axis, "center", h) for axis, (f, u) in enumerate(zip(drive, y.parts))])

    def _damped(self, drive: Array, u: Array, axis: int, at: str, h: RealScalarLike | None) -> Array:
        """A rate with what the layers take of it; for a step of a length that takes the layers implicitly."""
        if not any(self.layers[axis]):
            return drive
        damping = self._damping(axis, at, u.dtype)
        rate = drive - damping * u
        return rate if h is None else rate / (1 + jnp.asarray(h, u.dtype) / 2 * damping)

    def stencil(self, y: Sound) -> StencilRates:
        """Returns the same for one cell, for kernels; not with a source, which is a function of time."""
        self._check(y)
        if self.source is not None:
            raise NotForKernelsError("its source is a function of time")
        if any(map(self.places.split, range(self.grid.ndim))):
            raise NotForKernelsError("its grid is split over devices")
        p, dtype, axes = with_dtype(self, y.parts.dtype), y.parts.dtype, range(self.grid.ndim)
        damping = {}
        for a in axes:
            if any(self.layers[a]):
                damping[f"p{a}"] = p._damping(a, "center", dtype)
                damping[f"v{a}"] = p._damping(a, mirrored.face_names(p.sides, a)[a], dtype)
        density = [p._face_density(a) for a in axes]
        return rates_of_cells(p.grid, p.sides, p.order, p._stiffness(), density, damping)

    def _face_shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the velocities."""
        return [self.places.shape(f"v{name}") for name in self.grid.names]

    def _given(self, source: Callable[[RealScalarLike, Args], Array], t: RealScalarLike, args: Args) -> Array:
        """The value of the source, within a block the part of the block."""
        if isinstance(source, PointSources) and any(map(self.places.split, range(self.grid.ndim))):
            values = jnp.broadcast_to(jnp.asarray(source.signal(t)), source.points.positions.shape[:-1])
            return spread(source.points, values, "p", self.places)
        return self.places.part("p", source(t, args))

    def _stiffness(self) -> Array:
        r"""$\rho c^2$ at centres, within a block at the centres of the block."""
        return self.places.averaged("p", self.density * self.speed**2)

    def _check(self, y: Any) -> None:
        """Raises an error if it is not a state on the grid."""
        parts, faces = (self.grid.ndim, *self.places.shape("p")), self._face_shapes()
        right = (
            f"a `Sound` with `parts` of shape {parts} and a tuple `velocity` of arrays of shapes "
            f"{', '.join(map(str, faces))}, as returned by `model.rest(pressure)` for an array of shape "
            f"{self.grid.shape}"
        )
        if not isinstance(y, Sound):
            got = f"an array of shape {y.shape}" if hasattr(y, "shape") else f"a {type(y).__name__}"
            raise TypeError(f"the state of `Acoustic` must be {right}, but is {got}.")
        check_real(y.parts, self)
        found = tuple(v.shape for v in y.velocity)
        if y.parts.shape != parts or found != tuple(faces):
            raise ValueError(
                f"the state of `Acoustic` must be {right}, but `parts` have shape {y.parts.shape} and `velocity` "
                f"{', '.join(map(str, found))}."
            )

    def _face_density(self, axis: int) -> Array:
        """The density at the faces across an axis."""
        return self.places.averaged(f"v{self.grid.names[axis]}", self.density)

    def _damping(self, axis: int, at: str, dtype: Any) -> Array:
        r"""$\sigma_i$ at centres or faces, an array that broadcasts over the grid."""
        name, profile = "p" if at == "center" else f"v{self.grid.names[axis]}", self._profile(axis, at)
        along = jnp.asarray(profile.reshape([-1 if a == axis else 1 for a in range(self.grid.ndim)]), dtype)
        return self.tuned.astype(dtype) * self.places.part(name, along)

    def _profile(self, axis: int, at: str) -> Float[np.ndarray, " n"]:
        r"""$\sigma_i$ along an axis of the whole grid, for a speed of one."""
        cells = self.grid.shape[axis]
        n = cells + 1 if at == "node" else cells
        place = np.arange(n) + (0.5 if at == "center" else 0.0)
        low, high = self.layers[axis]
        profile = np.zeros(n)
        for width, depth in ((low, low - place), (high, place - (cells - high))):
            if width:
                size = 1.5 * math.log(1 / _REFLECTED) / (width * self.grid.spacing[axis])
                profile += size * np.clip(depth / width, 0, None) ** 2
        return profile

    def spectral_radius(self, t: RealScalarLike, y: Sound, args: Args) -> Array:
        """Returns a bound on the modulus of the eigenvalues, in the layers too."""
        return jnp.max(jnp.abs(self.spectrum(t, y, args)))

    def spectrum(self, t: RealScalarLike, y: Sound, args: Args) -> Array:
        """Returns bounds on the eigenvalues, outside of the layers and in them, for stable steps of `sciml.solve`."""
        del t, args
        self._check(y)
        p = with_dtype(self, y.parts.dtype)
        fastest = jnp.sqrt(jnp.max(p.density * p.speed**2) / jnp.min(p.density))
        frequency = fastest * mirrored.largest(p.order) * math.sqrt(sum(1 / h**2 for h in p.grid.spacing))
        strongest = max(float(p._profile(axis, "node").max()) for axis in range(p.grid.ndim))
        damping = p.tuned.astype(y.parts.dtype) * jnp.asarray(strongest, y.parts.dtype)
        return eigenvalue_bounds(frequency, damping)
