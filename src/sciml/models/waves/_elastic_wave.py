"""Elastic waves by velocities and stresses on a staggered grid."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._parameters import Parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Grid
from . import _mirrored as mirrored
from ._absorbing import Absorber
from ._field_source import Source, densities, read_sources
from ._staggered_fields import Places, WaveFields, coefficient
from ._staggered_wave import AbstractStaggeredWave, check_order, eigenvalue_bounds, key_of, read_absorber
from ._wave_blocks import read_domain

_KINDS = ("roller", "free", "clamped", "periodic")

_ACROSS = {"roller": "rigid", "free": "free", "clamped": "rigid", "periodic": "periodic"}
"""Behind a wall the stress across it is an image of itself, as the pressure is behind one of these walls of a fluid."""

_ALONG = {"roller": "rigid", "free": "rigid", "clamped": "free", "periodic": "periodic"}
"""The same of the velocity along the wall."""


class _Drive(NamedTuple):
    """The effect of velocities or stresses on the others.

    Attributes:
        forces: Forces of velocities and rates of strain, by the field that they drive.
        layers: Their derivatives within layers.
        given: The values of the sources.
    """

    forces: dict[str, Array]
    layers: dict[str, Array]
    given: dict[str, Array]


class ElasticWave(AbstractStaggeredWave):
    r"""Waves in an elastic solid, whose stiffness and density vary, in one to three dimensions.

    $$\rho\, \partial_t v_i = \sum_j \partial_j \sigma_{ij} + f_i, \qquad
      \partial_t \sigma_{ij} = \lambda\, \delta_{ij} \sum_k \partial_k v_k
      + \mu\, (\partial_i v_j + \partial_j v_i) + m_{ij}$$

    Normal stresses are at centres, velocities on the faces across them, shear stresses on edges. In two dimensions
    strain is plane. Pressure waves have the speed $\sqrt{(\lambda + 2 \mu) / \rho}$, shear waves $\sqrt{\mu / \rho}$;
    if $\mu = 0$ the medium is a fluid. Along a free surface run Rayleigh's waves:
    `sciml.verify.reference("rayleigh_speed")`. Without layers and sources the energy is kept.

    In the absorbing layers along the sides derivatives are taken along complex coordinates. The layers are the
    outermost cells *of the grid*: make it larger than the region of interest, and continue the media into them.

    Good values: fifteen cells for the shortest wave of shear; layers of 10 cells; `dt` of 1.8 over `spectral_radius`.
    With fixed steps `sciml.solve` takes `sciml.solvers.Leapfrog`: Virieux's scheme, velocities in turn with stresses.

    Attributes:
        lame: $\lambda$, a number or an array over the grid.
        shear: $\mu$, a number or an array over the grid; on edges the harmonic mean of the cells around.
        density: $\rho$, a number or an array over the grid; on faces the mean of both sides.
        source: The densities $f$ and $m$, by the names of the fields.
        absorber: The layers.
        places: The positions of the fields.
        sides: The conditions at both sides of each axis.
        order: The order of accuracy in space.

    Args:
        grid: The grid, with the layers.
        lame: $\lambda$, a pressure.
        shear: $\mu$, a pressure.
        density: $\rho$, a mass over volume.
        boundary: The conditions at the sides, behind the layers: a `"free"` surface, without traction; `"clamped"`,
            without motion; a `"roller"`, a plane of symmetry, without motion across it and traction along it; or
            `"periodic"`; one for all, or by name, `{"x": "periodic", "y-": "roller", "y+": "free"}`.
        layers: The cells of the layers: one number for all sides, or by name, `{"x": 10, "y-": 10}`; 0 for none.
        source: A `FieldSource`, a function `(t, args)` that returns a dictionary of densities, or a list of these.
        order: The order of accuracy in space: 2, or 4, 6 or 8 if no side is free or clamped.
        tuned: The speed for which the layers are made, by default the largest, held constant.
        domain: A `sciml.parallel.Domain` without boundary, whose devices hold a block each within its `run`; see
            `to_blocks`.

    Raises:
        ValueError: If a coefficient or state has the wrong shape, the order is unknown, or layers do not fit.
        TypeError: If an argument has the wrong type.

    Source:
        J. Virieux, Geophysics 51:889, 1986; A. R. Levander, Geophysics 53:1425, 1988, for the free surface.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import ElasticWave, FieldSource, Ricker
        from sciml.spatial import Grid

        grid = Grid((40, 30), 0.0, (40.0, 30.0))
        sides = {"x": "roller", "y-": "roller", "y+": "free"}
        layers = {"x": 8, "y-": 8}
        ground = ElasticWave(grid, 1.0, 1.0, 1.0, boundary=sides, layers=layers)
        blow = FieldSource("vy", ground.points("vy", [20.0, 30.0]), Ricker(0.07))
        model = ElasticWave(grid, 1.0, 1.0, 1.0, boundary=sides, layers=layers, source=blow)
        sol = sciml.solve(model, model.start(), t0=0.0, t1=80.0, dt=0.25, saveat=[25.0, 80.0])
        before, after = jnp.max(jnp.abs(sol.ys.fields["vy"]), axis=(1, 2))
        assert after < 0.02 * before  # it has left
        ```
    """

    kinds: ClassVar[tuple[str, str]] = ("v", "s")

    lame: Parameter
    shear: Parameter
    density: Parameter
    source: tuple[Source, ...]
    absorber: Absorber
    places: Places
    sides: tuple[tuple[str, str], ...] = eqx.field(static=True)
    order: int = eqx.field(static=True)

    def __init__(
        self,
        grid: Grid,
        lame: Any = 1.0,
        shear: Any = 1.0,
        density: Any = 1.0,
        *,
        boundary: str | Mapping[str, str] = "roller",
        layers: int | Mapping[str, int] = 0,
        source: Any = None,
        order: int = 2,
        tuned: Any = None,
        domain: Any = None,
    ):
        self.order = check_order(order, grid, "ElasticWave")
        self.sides = mirrored.read_sides(grid, boundary, "ElasticWave", _KINDS)
        if order > 2 and any(kind in ("free", "clamped") for pair in self.sides for kind in pair):
            raise ValueError(
                f"`ElasticWave(order={order})` requires `roller` or `periodic` sides, which mirror the wave, but they "
                f"are {self.sides}. Use order=2."
            )
        periodic = tuple(pair[0] == "periodic" for pair in self.sides)
        axes = "xyz"[: grid.ndim]
        nodes = [(f"v{a}", (i,)) for i, a in enumerate(axes)] + [(f"s{a}{a}", ()) for a in axes]
        nodes += [(_stress(i, j), (i, j)) for i in range(grid.ndim) for j in range(i + 1, grid.ndim)]
        self.places = Places(grid, tuple(nodes), periodic, read_domain(domain, grid, "ElasticWave"))
        self.lame = coefficient(lame, grid, "lame", "ElasticWave")
        self.shear = coefficient(shear, grid, "shear", "ElasticWave")
        self.density = coefficient(density, grid, "density", "ElasticWave")
        self.source = read_sources(source, self.places.names, "ElasticWave")
        fastest = _fastest(*(_strong(x) for x in (self.lame, self.shear, self.density)))
        self.absorber = read_absorber(layers, self.places, tuned, fastest, "ElasticWave")

    def energy(self, y: WaveFields) -> Float[Array, ""]:
        r"""Returns $\tfrac12 \int \rho |v|^2 + \sigma : \varepsilon$; without layers and sources it does not change."""
        p, d = self._for(y), self.grid.ndim
        axes = "xyz"[:d]
        normal = [y.fields[f"s{a}{a}"] for a in axes]
        mean = sum(normal[1:], normal[0]) / d
        deviation = sum(((s - mean) ** 2 for s in normal), jnp.zeros_like(mean))
        lame, shear = p._at_centers(p.lame), p._at_centers(p.shear)
        density = _over(deviation, 4 * shear) + d * mean**2 / (2 * (d * lame + 2 * shear))
        total = p.places.integrate("sxx", density)
        for name, u in y.fields.items():
            if name[0] == "v":
                held = p.places.averaged(name, p.density) * u**2 / 2
            elif name[1] != name[2]:
                held = _over(u**2, 2 * p._shear(name))
            else:
                continue
            total = total + self.places.integrate(name, held)
        return total

    def _drive(self, kind: str, t: RealScalarLike, y: WaveFields, args: Args) -> _Drive:
        r"""$\nabla \cdot \sigma$ and $f$ for the velocities, the rates of strain and $m$ for the stresses."""
        self.places.check(y, self.start, self)
        p, forces, layers = self._for(y), {}, {}
        for name in y.fields:
            if name[0] != kind:
                continue
            total = None
            for axis in self._axes(name):
                along = p._derivative(name, axis, y)
                if (key := key_of(name, axis)) in y.layers:
                    layers[key] = p.absorber.within(along, axis)
                total = along if total is None else total + along
            forces[name] = total
        given = densities(p.source, t, args, y.fields["vx"].dtype, p.places)
        return _Drive(forces, layers, {name: value for name, value in given.items() if name[0] == kind})

    def _rates(self, kind: str, y: WaveFields, drive: _Drive, h: RealScalarLike | None = None) -> WaveFields:
        return (self._of_velocities if kind == "v" else self._of_stresses)(y, drive, h)

    def _of_velocities(self, y: WaveFields, drive: _Drive, h: RealScalarLike | None) -> WaveFields:
        """The rates of velocities and of what belongs to them; in the middle of a step, if it has a length."""
        p, dtype = self._for(y), y.fields["vx"].dtype
        forces, layers = p._stretched(y, drive, h)
        rates = {}
        for name, rate in forces.items():
            rate = rate + drive.given[name] if name in drive.given else rate
            rates[name] = rate / p.places.averaged(name, p.density) * p._at_rest(name, dtype)
        return WaveFields(rates, layers)

    def _of_stresses(self, y: WaveFields, drive: _Drive, h: RealScalarLike | None) -> WaveFields:
        """The rates of stresses and of what belongs to them; in the middle of a step, if it has a length."""
        p, dtype = self._for(y), y.fields["vx"].dtype
        strains, layers = p._stretched(y, drive, h)
        normal = [strain for name, strain in strains.items() if name[1] == name[2]]
        lame, shear = p._at_centers(p.lame), p._at_centers(p.shear)
        expansion, rates = lame * sum(normal[1:], normal[0]), {}
        for name, strain in strains.items():
            rate = expansion + 2 * shear * strain if name[1] == name[2] else p._shear(name) * strain
            rate = rate + drive.given[name] if name in drive.given else rate
            rates[name] = rate * p._at_rest(name, dtype)
        return WaveFields(rates, layers)

    def _stretched(
        self, y: WaveFields, drive: _Drive, h: RealScalarLike | None
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """The rates of fields with the memory of the layers, and the rates of that memory."""
        forces, layers = {}, {}
        for name, total in drive.forces.items():
            for axis in self._axes(name):
                if (key := key_of(name, axis)) in y.layers:
                    memory, at = y.layers[key], "node" if axis in self.places.at_nodes(name) else "center"
                    tau = None if h is None else jnp.asarray(h, memory.dtype) / 2
                    layers[key] = self.absorber.rate(drive.layers[key], memory, axis, at, tau)
                    memory = memory if tau is None else memory + tau * layers[key]
                    total = self.absorber.stretched(total, memory, axis)
            forces[name] = total
        return forces, layers

    def spectrum(self, t: RealScalarLike, y: WaveFields, args: Args) -> Array:
        """Returns bounds on the eigenvalues, outside of the layers and in them, for stable steps of `sciml.solve`."""
        del t, args
        self.places.check(y, self.start, self)
        p, dtype = self._for(y), y.fields["vx"].dtype
        steepest = mirrored.largest(p.order) * math.sqrt(sum(1 / h**2 for h in p.grid.spacing))
        frequency = _fastest(p.lame, p.shear, p.density) * steepest
        return eigenvalue_bounds(frequency, p.absorber.largest(dtype))

    def _for(self, y: WaveFields) -> "ElasticWave":
        """The model in the precision of a state."""
        dtype = y.fields["vx"].dtype
        p = with_dtype(self, dtype)
        strong = [jnp.asarray(x, dtype) for x in (p.lame, p.shear, p.density)]
        return eqx.tree_at(lambda m: (m.lame, m.shear, m.density), p, strong)

    def _axes(self, name: str) -> tuple[int, ...]:
        """The axes along which there are derivatives in the rate of a field."""
        return tuple(range(self.grid.ndim)) if name[0] == "v" else tuple(sorted({"xyz".index(a) for a in name[1:]}))

    def _derivative(self, name: str, axis: int, y: WaveFields) -> Array:
        """The derivative along an axis in the rate of a field."""
        i, h, to_nodes = "xyz"[axis], self.grid.spacing[axis], axis in self.places.at_nodes(name)
        if name[0] == "v":
            field = _stress("xyz".index(name[1]), axis)
        else:
            field = f"v{name[2] if name[1] == i else name[1]}"
        # across a wall are the velocity across it and the normal stress; along it the shear stress and the others
        kinds = _ACROSS if {name, field} == {f"v{i}", f"s{i}{i}"} else _ALONG
        low, high = (kinds[kind] for kind in self.sides[axis])
        difference = mirrored.slope if to_nodes else mirrored.divergence
        return difference(y.fields[field], axis, (low, high), self.order, h, self.places.blocks)

    def _at_centers(self, x: Array) -> Array:
        """A coefficient at cell centres, within a block at the centres of the block."""
        return self.places.averaged("sxx", x)

    def _shear(self, name: str) -> Array:
        """The shear modulus on edges, zero where one of the cells around is a fluid."""
        solid = self.shear != 0
        compliance = jnp.where(solid, 1 / jnp.where(solid, self.shear, jnp.ones_like(self.shear)), jnp.inf)
        return 1 / self.places.averaged(name, compliance)

    def _at_rest(self, name: str, dtype: Any) -> Array:
        """Zero for components that a wall keeps at zero, and one elsewhere."""
        kinds = _ACROSS if name[0] == "v" else _ALONG
        still = tuple((kinds[low] == "rigid", kinds[high] == "rigid") for low, high in self.sides)
        return jnp.asarray(self.places.moving(name, still), dtype)


def _stress(i: int, j: int) -> str:
    i, j = sorted((i, j))
    return f"s{'xyz'[i]}{'xyz'[j]}"


def _over(energy: Array, stiffness: Array) -> Array:
    """An energy over a stiffness, zero where there is none."""
    solid = stiffness != 0
    return jnp.where(solid, energy / jnp.where(solid, stiffness, jnp.ones_like(stiffness)), jnp.zeros_like(energy))


def _strong(x: Array) -> Array:
    return jnp.asarray(x, jnp.result_type(x, float))


def _fastest(lame: Array, shear: Array, density: Array) -> Array:
    """The largest speed of waves of pressure."""
    stiffest, lightest = jnp.max(lame + 2 * shear), jnp.min(density)
    return jnp.sqrt(stiffest / lightest)
