"""Maxwell's equations by the differences of Yee."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._parameters import Parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Grid
from . import _mirrored as mirrored
from ._absorbing import Absorber
from ._dispersion import AbstractDispersion, check_medium
from ._field_source import Source, densities, read_sources
from ._staggered_fields import Places, WaveFields, coefficient
from ._staggered_wave import AbstractStaggeredWave, check_order, eigenvalue_bounds, key_of, read_absorber
from ._wave_blocks import read_domain

_KINDS = ("conductor", "magnetic", "periodic")
"""Behind a conductor the magnetic field along it is an image of itself, as a pressure is behind a rigid wall."""

_COMPONENTS = ("Ex", "Ey", "Ez", "Hx", "Hy", "Hz")


class _Drive(NamedTuple):
    """The effect of the fields of one kind on the other kind: the curl, with sources, and its derivatives in layers."""

    curl: dict[str, Array]
    layers: dict[str, Array]


class Maxwell(AbstractStaggeredWave):
    r"""Maxwell's equations in one to three dimensions, by the differences of Yee.

    $$\varepsilon\, \partial_t E = \nabla \times H - \sigma E - J - \sum_m \partial_t P_m, \qquad
      \mu\, \partial_t H = -\nabla \times E - M$$

    Components of $E$ are on the edges of cells and components of $H$ on the faces, so that both divergences are
    conserved to rounding. Without losses and sources the energy is kept at every order. Any units do: with the defaults
    the speed of light is 1 and times are lengths; in SI give $\varepsilon$ and $\mu$ with $\varepsilon_0$ and $\mu_0$.

    If an axis is missing, nothing depends on it. In two dimensions the equations separate into two independent systems:
    `polarization` is a component of the one that is wanted, `"Ez"` for $E_z, H_x, H_y$ or `"Hz"` for $H_z, E_x, E_y$;
    in one dimension `"Ey"` or `"Ez"`.

    In the absorbing layers along the sides, derivatives are taken along complex coordinates, whatever the medium there.
    The layers are the outermost cells *of the grid*: make it larger than the region of interest, and continue the media
    into them. A layer forgets the waves that it absorbed, so gradients by `Checkpointed` are suitable.

    Good values: twenty cells for the shortest wave with `order=2`, ten with `order=4`; layers of 10 cells; `dt` of 1.8
    over `spectral_radius`. With fixed steps `sciml.solve` takes `sciml.solvers.Leapfrog`: Yee's scheme, in which the
    electric field, with its currents, alternates with the magnetic field. Losses, layers and media are solved
    implicitly, at every place separately, and do not limit the step. With `order=4` and more its error in time is the
    larger one: shorten steps, or take `diffrax.Bosh3` with `dt` of 1.5 over `spectral_radius`.

    Attributes:
        permittivity: $\varepsilon$, a number or an array over the grid; on edges the mean of the cells around.
        permeability: $\mu$, a number or an array over the grid; on faces the harmonic mean of both sides.
        conductivity: $\sigma$, a number or an array over the grid.
        media: The media that follow the field with a delay.
        source: The densities $J$, by the names of components of $E$, and $M$, by the names of components of $H$.
        absorber: The layers.
        places: The positions of the components.
        sides: The conditions at both sides of each axis.
        order: The order of accuracy in space.

    Args:
        grid: The grid, with the layers.
        permittivity: $\varepsilon$.
        permeability: $\mu$.
        conductivity: $\sigma$.
        media: A list of `Drude`, `Lorentz`, `Debye`.
        boundary: The conditions at the sides, behind the layers: a perfect `"conductor"`, where $E$ along the wall is
            0, a `"magnetic"` wall, where $H$ along it is 0, or `"periodic"`; one for all, or by name,
            `{"x": "periodic", "y": "conductor"}`.
        layers: The cells of the layers: one number for all sides, or by name, `{"x": 10, "y-": 10}`; 0 for none.
        source: A `FieldSource`, a function `(t, args)` that returns a dictionary of densities, or a list of these.
        polarization: A component of the fields that are wanted; None for all.
        order: The order of accuracy in space: 2, 4, 6 or 8.
        tuned: The speed for which the layers are made, by default the largest, held constant.
        domain: A `sciml.parallel.Domain` without boundary, whose devices hold a block each within its `run`; see
            `to_blocks`.

    Raises:
        ValueError: If a coefficient or state has the wrong shape, the order is unknown, or layers do not fit.
        TypeError: If an argument has the wrong type.

    Source:
        K. S. Yee, IEEE Trans. Antennas Propag. 14:302, 1966; A. Taflove, S. C. Hagness, Computational Electrodynamics,
        Artech House, 2005.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import FieldSource, Maxwell, Ricker
        from sciml.spatial import Grid

        grid = Grid((48, 48), -1.2, 1.2)
        x, y = grid.centers
        glass = jnp.where(x + 0 * y > 0.5, 2.25, 1.0)
        empty = Maxwell(grid, glass, layers=10, polarization="Ez")
        dipole = FieldSource("Ez", empty.points("Ez", [0.0, 0.0]), Ricker(1.0))
        model = Maxwell(grid, glass, layers=10, polarization="Ez", source=dipole)
        sol = sciml.solve(model, model.start(), t0=0.0, t1=6.0, dt=0.03, saveat=[2.0, 6.0])
        before, after = jnp.max(jnp.abs(sol.ys.fields["Ez"]), axis=(1, 2))
        assert after < 0.02 * before  # it has left
        ```
    """

    kinds: ClassVar[tuple[str, str]] = ("E", "H")

    permittivity: Parameter
    permeability: Parameter
    conductivity: Parameter
    media: tuple[AbstractDispersion, ...]
    source: tuple[Source, ...]
    absorber: Absorber
    places: Places
    sides: mirrored.Sides = eqx.field(static=True)
    order: int = eqx.field(static=True)

    def __init__(
        self,
        grid: Grid,
        permittivity: Any = 1.0,
        permeability: Any = 1.0,
        conductivity: Any = 0.0,
        *,
        media: Sequence[Any] = (),
        boundary: str | Mapping[str, str] = "conductor",
        layers: int | Mapping[str, int] = 0,
        source: Any = None,
        polarization: str | None = None,
        order: int = 2,
        tuned: Any = None,
        domain: Any = None,
    ):
        self.order = check_order(order, grid, "Maxwell")
        sides = mirrored.read_sides(grid, boundary, "Maxwell", _KINDS)
        as_images: dict[str, Any] = dict(zip(_KINDS, mirrored.KINDS))
        self.sides = tuple((as_images[low], as_images[high]) for low, high in sides)
        periodic = tuple(pair[0] == "periodic" for pair in sides)
        nodes = [(name, _nodes(name, grid.ndim)) for name in _coupled(polarization, grid)]
        self.places = Places(grid, tuple(nodes), periodic, read_domain(domain, grid, "Maxwell"))
        self.permittivity = coefficient(permittivity, grid, "permittivity", "Maxwell")
        self.permeability = coefficient(permeability, grid, "permeability", "Maxwell")
        self.conductivity = coefficient(conductivity, grid, "conductivity", "Maxwell")
        self.media = tuple(check_medium(medium, grid.shape) for medium in media)
        self.source = read_sources(source, self.places.names, "Maxwell")
        fastest = _fastest(self.permittivity, self.permeability)
        self.absorber = read_absorber(layers, self.places, tuned, fastest, "Maxwell")

    def energy(self, y: WaveFields) -> Float[Array, ""]:
        r"""Returns $\tfrac12 \int \varepsilon |E|^2 + \mu |H|^2$ plus the media's energy; conserved without losses."""
        p, total = self._for(y), jnp.zeros((), y.fields[self.places.names[0]].dtype)
        for name, u in y.fields.items():
            if name[0] == "E":
                density = p.places.averaged(name, p.permittivity) * u**2 / 2
                for medium, memory in zip(p.media, y.media):
                    density = density + p._medium(medium, name).energy(memory[name])
            else:
                density = u**2 / p.places.averaged(name, 1 / p.permeability) / 2
            total = total + self.places.integrate(name, density)
        return total

    def _media_at_rest(self, fields: dict[str, Array]) -> tuple[Any, ...]:
        electric = {name: u for name, u in fields.items() if name[0] == "E"}
        return tuple({name: medium.rest(u) for name, u in electric.items()} for medium in self.media)

    def _axes(self, name: str) -> tuple[int, ...]:
        return tuple(axis for axis, _, _ in _terms(name, self.places.names, self.grid.ndim))

    def _drive(self, kind: str, t: RealScalarLike, y: WaveFields, args: Args) -> _Drive:
        r"""$\nabla \times H - J$ for the electric field, $-\nabla \times E - M$ for the magnetic one."""
        self.places.check(y, self.start, self)
        p, difference = self._for(y), mirrored.slope if kind == "E" else mirrored.divergence
        blocks = self.places.blocks
        given = densities(p.source, t, args, y.fields[self.places.names[0]].dtype, p.places)
        curl, layers = {}, {}
        for name in y.fields:
            if name[0] != kind:
                continue
            total = -given[name] if name in given else None
            for axis, other, sign in _terms(name, self.places.names, self.grid.ndim):
                along = difference(y.fields[other], axis, self.sides[axis], self.order, self.grid.spacing[axis], blocks)
                if (key := key_of(name, axis)) in y.layers:
                    layers[key] = p.absorber.within(along, axis)
                along = along if sign > 0 else -along
                total = along if total is None else total + along
            curl[name] = total
        return _Drive(curl, layers)

    def _rates(self, kind: str, y: WaveFields, drive: _Drive, h: RealScalarLike | None = None) -> WaveFields:
        p, dtype = self._for(y), y.fields[self.places.names[0]].dtype
        tau = None if h is None else jnp.asarray(h, dtype) / 2
        at, fields, layers = "node" if kind == "E" else "center", {}, {}
        media: tuple[dict[str, Any], ...] = tuple({} for _ in p.media)
        for name, total in drive.curl.items():
            for axis, _, sign in _terms(name, self.places.names, self.grid.ndim):
                if (key := key_of(name, axis)) in y.layers:
                    memory = y.layers[key]
                    layers[key] = p.absorber.rate(drive.layers[key], memory, axis, at, tau)
                    memory = memory if tau is None else memory + tau * layers[key]
                    total = p.absorber.stretched(total, memory if sign > 0 else -memory, axis)
            moving = p._off_conductors(name, dtype)
            if kind == "H":
                fields[name] = total * p.places.averaged(name, 1 / p.permeability) * moving
                continue
            total, permittivity = total * moving, p.places.averaged(name, p.permittivity)
            conductivity = p.places.averaged(name, p.conductivity)
            own = [(p._medium(medium, name), memory[name]) for medium, memory in zip(p.media, y.media)]
            given = (total, y.fields[name], permittivity, conductivity * moving)
            fields[name], remembered = _in_media(*given, own, moving, tau)
            for found, rate in zip(media, remembered):
                found[name] = rate
        return WaveFields(fields, layers, media)

    def spectrum(self, t: RealScalarLike, y: WaveFields, args: Args) -> Array:
        """Returns bounds on the eigenvalues, without losses and with them, for the stable steps of `sciml.solve`."""
        del t, args
        self.places.check(y, self.start, self)
        p, dtype = self._for(y), y.fields[self.places.names[0]].dtype
        steepest = mirrored.largest(p.order) * math.sqrt(sum(1 / h**2 for h in p.grid.spacing))
        square = (_fastest(p.permittivity, p.permeability).astype(dtype) * steepest) ** 2
        loss = p.absorber.largest(dtype) + jnp.max(p.conductivity / p.permittivity)
        for medium in p.media:
            more, damping = with_dtype(medium, dtype).limits(p.permittivity)
            square, loss = square + more.astype(dtype), loss + damping.astype(dtype)
        return eigenvalue_bounds(jnp.sqrt(square), loss)

    def _for(self, y: WaveFields) -> "Maxwell":
        """The model in the precision of a state."""
        dtype = y.fields[self.places.names[0]].dtype
        p = with_dtype(self, dtype)
        strong = [jnp.asarray(x, dtype) for x in (p.permittivity, p.permeability, p.conductivity)]
        return eqx.tree_at(lambda m: (m.permittivity, m.permeability, m.conductivity), p, strong)

    def _medium(self, medium: AbstractDispersion, name: str) -> AbstractDispersion:
        """A medium where a component is."""
        return jax.tree.map(lambda x: self.places.averaged(name, x), medium)

    def _off_conductors(self, name: str, dtype: Any) -> Array:
        """Zero for components along a conductor's surface, or through it, and one elsewhere."""
        still = tuple((low == "rigid", high == "rigid") for low, high in self.sides)
        return jnp.asarray(self.places.moving(name, still), dtype)


def _in_media(
    curl: Array,
    electric: Array,
    permittivity: Array,
    conductivity: Array,
    media: list[tuple[AbstractDispersion, Any]],
    moving: Array,
    tau: Array | None,
) -> tuple[Array, list[Any]]:
    r"""Returns the rates $r$ of an electric component and of what media remember, or $(1 - \tau L)^{-1} r$ of these.

    $L$ is the coupling between the component and the media at one place. The memory responds to the component as
    $m = m_0 + m_1 E$; with its current $c(E, m)$ that leaves
    $(\varepsilon + \tau (\sigma + c(1, m_1)))\, E = \varepsilon r - \tau c(0, m_0)$.
    """
    rate = curl - conductivity * electric
    for medium, memory in media:
        rate = rate - moving * medium.current(electric, memory)
    rates = [medium.rates(electric, memory) for medium, memory in media]
    if tau is None:
        return rate / permittivity, rates
    zero, one = jnp.zeros((), electric.dtype), jnp.ones((), electric.dtype)
    below = permittivity + tau * conductivity
    for (medium, _), r in zip(media, rates):
        alone = medium.settled(tau, zero, r)
        answer = medium.settled(tau, one, jax.tree.map(lambda _: zero, r))
        rate = rate - tau * moving * medium.current(zero, alone)
        below = below + tau * medium.current(one, answer)
    found = rate / below
    return found, [medium.settled(tau, found, r) for (medium, _), r in zip(media, rates)]


def _terms(name: str, names: tuple[str, ...], ndim: int) -> list[tuple[int, str, int]]:
    """The derivatives in the rate of a component: along which axis, of which component, with which sign."""
    kind, a = name[0], "xyz".index(name[1])
    other, sign = ("H", 1) if kind == "E" else ("E", -1)
    b, c = (a + 1) % 3, (a + 2) % 3
    found = [(b, f"{other}{'xyz'[c]}", sign), (c, f"{other}{'xyz'[b]}", -sign)]
    return [term for term in found if term[0] < ndim and term[1] in names]


def _nodes(name: str, ndim: int) -> tuple[int, ...]:
    """The axes along which a component is at nodes: a magnetic one along its own, an electric one along all others."""
    own = "xyz".index(name[1])
    return tuple(axis for axis in range(ndim) if (axis == own) == (name[0] == "H"))


def _coupled(polarization: str | None, grid: Grid) -> tuple[str, ...]:
    """The components that a component acts on, and those that these act on; or all that act on any."""
    groups = []
    for start in _COMPONENTS:
        group, found = {start}, set()
        while found != group:
            found = set(group)
            group |= {other for name in found for _, other, _ in _terms(name, _COMPONENTS, grid.ndim)}
        if len(group) > 1:
            groups.append(group)
    known = set().union(*groups)
    if polarization is not None and polarization not in known:
        raise ValueError(
            f"`Maxwell(polarization=...)` must be a component that varies over {grid}, one of {sorted(known)}, or None "
            f"for all, but is {polarization!r}."
        )
    wanted = known if polarization is None else next(group for group in groups if polarization in group)
    return tuple(name for name in _COMPONENTS if name in wanted)


def _fastest(permittivity: Array, permeability: Array) -> Array:
    """The largest speed of waves, the means on edges and faces included."""
    least = [jnp.min(x).astype(jnp.result_type(x, float)) for x in (permittivity, permeability)]
    dtype = jnp.result_type(*least)
    return 1 / jnp.sqrt(least[0].astype(dtype) * least[1].astype(dtype))
