"""Incompressible flow in a periodic box of three dimensions, in Fourier modes."""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from ..._checks import check_real
from ..._interfaces._model import AbstractSemilinear
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Grid
from ...spatial._blocks import AbstractBlocks
from .. import _fourier as fourier
from ..waves._wave_blocks import read_domain
from . import _split_modes as split
from ._split_modes import Resolved


class AbstractDealiasing(eqx.Module):
    r"""The multiplied modes, and their grid.

    The product of two waves $k$ and $l$ has the waves $k + l$; those that are too short for the grid look like longer
    ones on it (aliases).

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models.flows._navier_stokes_3d import AbstractDealiasing

        class AllModes(AbstractDealiasing):  # with aliases
            def fields(self, modes, shape):
                return jnp.fft.irfftn(modes, s=shape, axes=(-3, -2, -1))

            def modes(self, fields, shape):
                return jnp.fft.rfftn(fields, axes=(-3, -2, -1))

        assert AllModes().fields(jnp.zeros((4, 4, 3), complex), (4, 4, 4)).shape == (4, 4, 4)
        ```
    """

    @abc.abstractmethod
    def fields(self, modes: Complex[Array, "..."], shape: tuple[int, ...]) -> Float[Array, "..."]:
        """Returns the fields of modes, on the grid where they are multiplied.

        Args:
            modes: The coefficients over the last axes, half of them.
            shape: The grid of the model.
        """

    @abc.abstractmethod
    def modes(self, fields: Float[Array, "..."], shape: tuple[int, ...]) -> Complex[Array, "..."]:
        """Returns the modes of products that were made there.

        Args:
            fields: The products.
            shape: The grid of the model.
        """

    def resolved(self, shape: tuple[int, ...]) -> Resolved:
        """Returns on how many points fields are multiplied, and which modes take part, for fields split over devices.

        Args:
            shape: The grid of the model.

        Raises:
            TypeError: If it does not say so.
        """
        raise TypeError(
            f"`{type(self).__name__}` has no `resolved(shape)`, which fields that are split over devices require. Use "
            "`dealiasing='two_thirds'` or `'three_halves'`."
        )


class TwoThirds(AbstractDealiasing):
    """The lower two thirds of the modes along each axis take part, on the grid as it is: the cheaper way.

    In three dimensions that is three tenths of all modes.

    Source:
        S. A. Orszag, J. Atmos. Sci. 28:1074, 1971.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models.flows._navier_stokes_3d import TwoThirds

        wave = jnp.cos(2 * jnp.pi * 5 * jnp.arange(12.0) / 12)
        short = jnp.fft.rfftn(jnp.broadcast_to(wave, (12, 12, 12)))
        found = TwoThirds().fields(short, (12, 12, 12))  # of a wave of 5 on 12 points
        assert jnp.max(jnp.abs(found)) < 1e-5
        ```
    """

    def fields(self, modes: Complex[Array, "..."], shape: tuple[int, ...]) -> Float[Array, "..."]:
        """Returns the fields of the lower two thirds."""
        return fourier.inverse(fourier.kept(modes, fourier.two_thirds(shape, True)), shape, True)

    def modes(self, fields: Float[Array, "..."], shape: tuple[int, ...]) -> Complex[Array, "..."]:
        """Returns the lower two thirds of their modes."""
        return fourier.kept(fourier.transform(fields, len(shape)), fourier.two_thirds(shape, True))

    def resolved(self, shape: tuple[int, ...]) -> Resolved:
        """Returns the grid as it is, and the highest of two thirds of the modes."""
        return Resolved(shape, tuple((n + 2) // 3 - 1 for n in shape))


class ThreeHalves(AbstractDealiasing):
    """All modes take part but the highest of an even number, on a grid of half as many points again along each axis.

    The most accurate for a number of points, and in three dimensions 3.4 times as much to transform. For smooth flow
    that is cheaper than a grid on which two thirds of the modes are as many.

    Source:
        S. A. Orszag, J. Atmos. Sci. 28:1074, 1971; C. Canuto, M. Y. Hussaini, A. Quarteroni, T. A. Zang, Spectral
        Methods, Springer, 2006, section 3.4.2.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models.flows._navier_stokes_3d import ThreeHalves

        wave = jnp.broadcast_to(jnp.cos(2 * jnp.pi * 5 * jnp.arange(12.0) / 12), (12, 12, 12))
        there = ThreeHalves().fields(jnp.fft.rfftn(wave), (12, 12, 12))
        assert there.shape == (18, 18, 18)
        assert jnp.allclose(jnp.fft.irfftn(ThreeHalves().modes(there, (12, 12, 12))), wave, atol=1e-5)
        ```
    """

    def fields(self, modes: Complex[Array, "..."], shape: tuple[int, ...]) -> Float[Array, "..."]:
        """Returns the fields on the finer grid."""
        fine = _finer(shape)
        return fourier.inverse(_on_grid(modes, shape, fine, shape), fine, True)

    def modes(self, fields: Float[Array, "..."], shape: tuple[int, ...]) -> Complex[Array, "..."]:
        """Returns their modes that are on the grid of the model."""
        return _on_grid(fourier.transform(fields, len(shape)), _finer(shape), shape, shape)

    def resolved(self, shape: tuple[int, ...]) -> Resolved:
        """Returns the finer grid, and the highest mode, of an even number the one before it."""
        return Resolved(_finer(shape), tuple((n - 1) // 2 for n in shape))


def _finer(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((3 * n + 1) // 2 for n in shape)


def _on_grid(
    modes: Complex[Array, "..."], here: tuple[int, ...], there: tuple[int, ...], coarse: tuple[int, ...]
) -> Complex[Array, "..."]:
    """Returns the modes of a grid as modes of another: the ones of the coarser grid, and zeros.

    Args:
        modes: The coefficients, half of them along the last axis.
        here: The grid that they are of.
        there: The other grid.
        coarse: The coarser grid.
    """
    factor = 1.0
    for axis, (n, m, least) in enumerate(zip(here, there, coarse)):
        at, highest = modes.ndim - len(here) + axis, (least - 1) // 2
        parts = [_part(modes, at, 0, highest + 1)]
        if axis == len(here) - 1:
            parts.append(_zeros(modes, at, m // 2 - highest))
        else:
            parts += [_zeros(modes, at, m - 2 * highest - 1), _part(modes, at, n - highest, n)]
        modes, factor = jnp.concatenate(parts, at), factor * m / n
    return factor * modes


def _part(x: Array, axis: int, start: int, stop: int) -> Array:
    return x[(slice(None),) * axis + (slice(start, stop),)]


def _zeros(like: Array, axis: int, count: int) -> Array:
    return jnp.zeros((*like.shape[:axis], count, *like.shape[axis + 1 :]), like.dtype)


_NAMED = {"two_thirds": TwoThirds(), "three_halves": ThreeHalves()}


def as_dealiasing(dealiasing: str) -> AbstractDealiasing:
    """Returns how products are made, by its name.

    Raises:
        ValueError: If there is no such name.
    """
    if dealiasing not in _NAMED:
        raise ValueError(f"`dealiasing` must be 'two_thirds' or 'three_halves', but got {dealiasing!r}.")
    return _NAMED[dealiasing]


class SteadyPower(eqx.Module):
    r"""The forcing of turbulence: a force along the large eddies, which puts a constant power into the flow.

    $$\hat f(k) = \frac{P}{2 E_<}\, \hat u(k) \quad \text{for } |k| \leq k_f$$

    with $E_<$ the mean energy of these modes over the density.

    Attributes:
        power: $P$, energy per mass and time, which is the dissipation $\epsilon$ of turbulence that is stationary.
        below: $k_f$, as a number of waves along the longest side of the box.

    Source:
        S. Ghosal, T. S. Lund, P. Moin, K. Akselvoll, J. Fluid Mech. 286:229, 1995, section 5.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import NavierStokes3D, SteadyPower
        from sciml.spatial import Grid

        model = NavierStokes3D(Grid((8, 8, 8), 0.0, 2 * jnp.pi), viscosity=0.0, forcing=SteadyPower(0.3))
        x, y, z = model.grid.centers
        u = jnp.stack([jnp.sin(y) + 0 * x * z, jnp.sin(z) + 0 * x * y, jnp.sin(x) + 0 * y * z])
        assert abs(jnp.mean(jnp.sum(u * model(0.0, u, None), axis=0)) - 0.3) < 1e-5
        ```
    """

    power: Parameter = eqx.field(converter=parameter)
    below: float = eqx.field(static=True, default=2.5)


class NavierStokes3D(AbstractSemilinear):
    r"""The Navier-Stokes equations of a fluid that cannot be compressed, in a periodic box of three dimensions.

    $$\partial_t u = -\nabla \cdot (u \otimes u) - \nabla p + \nu \nabla^2 u + f, \qquad \nabla \cdot u = 0$$

    The state is the velocity, of shape `(3, nx, ny, nz)`. In Fourier modes the pressure is a projection, exact as all
    derivatives are, and viscosity is exact whatever the step (`ETDRK`). Transport takes and gives modes for which its
    products are exact, by default the lower two thirds: without viscosity and forcing it keeps the energy of these
    modes to rounding. It takes eight transforms.

    Divergence of the initial state only decays by viscosity: start with `project` of it.

    Good values: `Grid((64, 64, 64), 0.0, 2 * math.pi)`, `viscosity=1 / 100`, the vortices of Taylor and Green,
    `dt=0.02`; for sustained turbulence, `forcing=SteadyPower(0.1)` and `viscosity=0.01`.

    Attributes:
        grid: The grid, whose box is periodic, with the unknowns at centres.
        viscosity: $\nu$, a length squared over time.
        forcing: $f$, force over density: an array of shape `(3, nx, ny, nz)`, a `SteadyPower`, or None.
        dealiasing: `"two_thirds"` computes products from two thirds of the modes along each axis; `"three_halves"`
            from all modes, on three halves of the points: it resolves smooth flow on fewer points.
        blocks: How the grid is split over devices; None if it is not.

    Args:
        grid: The grid.
        viscosity: $\nu$.
        forcing: $f$.
        dealiasing: How products are made.
        domain: A `sciml.parallel.Domain` without boundary that splits only the first axis, whose devices hold a slab
            each within its `run`, and transform it with one all-to-all.

    Raises:
        ValueError: If the grid has not three axes, `forcing` or a state has another shape, or another axis is split.
        ValueError: If there is no such `dealiasing`.

    Source:
        R. S. Rogallo, NASA TM-81315, 1981; S. A. Orszag, J. Atmos. Sci. 28:1074, 1971, for the two-thirds rule;
        C. Basdevant, J. Comput. Phys. 50:209, 1983, for the number of transforms.

    Example:
        ```python
        import math

        import jax.numpy as jnp
        import sciml
        from sciml.models import NavierStokes3D
        from sciml.spatial import Grid

        model = NavierStokes3D(Grid((8, 8, 8), 0.0, 2 * math.pi), viscosity=0.1)
        x, y, z = model.grid.centers
        u = jnp.sin(x) * jnp.cos(y) * jnp.cos(z)
        v = -jnp.cos(x) * jnp.sin(y) * jnp.cos(z)
        sol = sciml.solve(model, jnp.stack([u, v, 0 * u]), t0=0.0, t1=0.5, dt=0.1)
        assert sol.solver == "ETDRK(order=4)" and model.energy(sol.ys[-1]) < 0.125
        ```
    """

    grid: Grid
    viscosity: Parameter
    forcing: Any
    dealiasing: AbstractDealiasing
    blocks: AbstractBlocks | None

    def __init__(
        self,
        grid: Grid,
        viscosity: Any = 1e-2,
        forcing: Any = None,
        *,
        dealiasing: str = "two_thirds",
        domain: Any = None,
    ):
        if not isinstance(grid, Grid) or grid.ndim != 3:
            raise ValueError(
                f"`NavierStokes3D(grid)` must be a `Grid` of three axes, but is {grid!r}. In two dimensions use "
                "`Vorticity`."
            )
        self.grid, self.viscosity, self.dealiasing = grid, parameter(viscosity), as_dealiasing(dealiasing)
        self.forcing = forcing if forcing is None or isinstance(forcing, SteadyPower) else parameter(forcing)
        self.blocks = read_domain(domain, grid, "NavierStokes3D")
        split.check_domain(self.blocks, grid, "NavierStokes3D")
        if eqx.is_array(self.forcing) and self.forcing.shape != (3, *grid.shape):
            raise ValueError(
                f"`NavierStokes3D(forcing=...)` must have the shape {(3, *grid.shape)}, or be a `SteadyPower`, but has "
                f"the shape {self.forcing.shape}."
            )

    @property
    def location(self) -> tuple[str, str, str]:
        """The places of the unknowns on the grid."""
        return "center", "center", "center"

    def transform(self, y: Float[Array, "3 nx ny nz"]) -> Complex[Array, "3 kx ky kz"]:
        """Returns the Fourier coefficients, half of them."""
        check_real(y, self)
        shape = self.grid.shape if self._split is None else (self.grid.shape[0] // self._split.devices(0),)
        shape = (3, *shape, *self.grid.shape[len(shape) :])
        if y.shape[-4:] != shape:
            raise ValueError(f"the state of `NavierStokes3D` must have shape {shape}, but has {y.shape}.")
        if self._split is not None:
            return split.transform(y, self.grid.shape, split.everything(self.grid.shape), self._split)
        return fourier.transform(y, 3)

    def inverse(self, modes: Complex[Array, "... kx ky kz"]) -> Float[Array, "... nx ny nz"]:
        """Returns the fields of given coefficients."""
        if self._split is not None:
            return split.inverse(modes, self.grid.shape, split.everything(self.grid.shape), self._split)
        return fourier.inverse(modes, self.grid.shape, True)

    def linear(self, args: Args) -> Float[Array, "1 kx ky kz"]:
        r"""Returns $-\nu |k|^2$."""
        del args
        dtype = jnp.result_type(self.viscosity)
        squares: Any = sum(k**2 for k in self._wavenumbers(dtype))
        return -self.viscosity * squares[None]

    def rest(self, t: RealScalarLike, modes: Complex[Array, "3 kx ky kz"], args: Args) -> Complex[Array, "3 kx ky kz"]:
        r"""Returns the coefficients of $P(-\nabla \cdot (u \otimes u) + f)$."""
        del t, args
        dtype = modes.real.dtype
        p = with_dtype(self, dtype)
        u, v, w = p._fields(modes)
        # of the diagonal only differences count: what all three share is a part of the pressure
        products = jnp.stack([u * u - w * w, v * v - w * w, u * v, u * w, v * w])
        uu, vv, uv, uw, vw = p._modes(products)
        kx, ky, kz = p._wavenumbers(dtype)
        rates = (
            _times(kx, uu) + _times(ky, uv) + _times(kz, uw),
            _times(kx, uv) + _times(ky, vv) + _times(kz, vw),
            _times(kx, uw) + _times(ky, vw),
        )
        total = jnp.stack([jax.lax.complex(rate.imag, -rate.real) for rate in rates])  # times -i
        if isinstance(p.forcing, SteadyPower):
            total = total + p._driven(p.forcing, modes)
        elif p.forcing is not None:
            total = total + p.transform(p.forcing if p._split is None else p._split.part_of(p.forcing, 0, 1))
        return p._projected(total)

    def project(self, y: Float[Array, "3 nx ny nz"]) -> Float[Array, "3 nx ny nz"]:
        """Returns the velocity without divergence that is closest to another."""
        return self.inverse(self._projected(self.transform(y)))

    def divergence(self, y: Float[Array, "3 nx ny nz"]) -> Float[Array, "nx ny nz"]:
        """Returns the divergence of a velocity."""
        ks = self._odd_wavenumbers(y.dtype)
        found: Any = sum(fourier.times_i(k, part) for k, part in zip(ks, self.transform(y)))
        return self.inverse(found)

    def vorticity(self, y: Float[Array, "3 nx ny nz"]) -> Float[Array, "3 nx ny nz"]:
        r"""Returns $\nabla \times u$."""
        ks = self._odd_wavenumbers(y.dtype)
        modes = self.transform(y)
        slope = lambda i, j: fourier.times_i(ks[i], modes[j])  # noqa: E731
        curl = [slope(1, 2) - slope(2, 1), slope(2, 0) - slope(0, 2), slope(0, 1) - slope(1, 0)]
        return self.inverse(jnp.stack(curl))

    def energy(self, y: Float[Array, "3 nx ny nz"]) -> Float[Array, ""]:
        r"""Returns the mean kinetic energy over the density, $\tfrac12 \langle |u|^2 \rangle$."""
        return self._mean(jnp.sum(y**2, axis=0)) / 2

    def enstrophy(self, y: Float[Array, "3 nx ny nz"]) -> Float[Array, ""]:
        r"""Returns the mean enstrophy $\tfrac12 \langle |\nabla \times u|^2 \rangle$; $2 \nu$ times it dissipates."""
        return self._mean(jnp.sum(self.vorticity(y) ** 2, axis=0)) / 2

    def energy_spectrum(self, y: Float[Array, "3 nx ny nz"]) -> tuple[Float[Array, " shells"], Float[Array, " shells"]]:
        r"""Returns wavenumbers $k$ and the energy per wavenumber, $E(k)$; $\sum E\, \Delta k$ is the mean energy.

        Args:
            y: A state.
        """
        size = jnp.sqrt(sum(k**2 for k in self._wavenumbers(y.dtype)))
        width = 2 * math.pi / max(self.grid.extent)
        energy = self._energies(self.transform(y))
        spacing = [length / n for length, n in zip(self.grid.extent, self.grid.shape)]
        shells = math.ceil(math.pi * math.sqrt(sum(h**-2 for h in spacing)) / width) + 2
        total = jnp.zeros(shells, y.dtype).at[jnp.round(size / width).astype(int)].add(energy)
        total = total if self._split is None else jax.vmap(self._split.sum)(total)
        return width * jnp.arange(shells, dtype=y.dtype), total / width

    @property
    def _split(self) -> AbstractBlocks | None:
        """The blocks, where the code that is traced runs with one."""
        return self.blocks if self.blocks is not None and self.blocks.devices(0) > 1 else None

    def _mean(self, x: Float[Array, "nx ny nz"]) -> Float[Array, ""]:
        if self._split is None:
            return jnp.mean(x)
        return self._split.sum(x) / math.prod(self.grid.shape)

    def _fields(self, modes: Complex[Array, "3 kx ky kz"]) -> Float[Array, "..."]:
        """The fields of modes where they are multiplied."""
        if self._split is None:
            return self.dealiasing.fields(modes, self.grid.shape)
        return split.inverse(modes, self.grid.shape, self.dealiasing.resolved(self.grid.shape), self._split)

    def _modes(self, fields: Float[Array, "..."]) -> Complex[Array, "..."]:
        """The modes of products."""
        if self._split is None:
            return self.dealiasing.modes(fields, self.grid.shape)
        return split.transform(fields, self.grid.shape, self.dealiasing.resolved(self.grid.shape), self._split)

    def _here(self, x: Any) -> Any:
        """Values that broadcast to all modes, for the modes of this device."""
        return x if self._split is None else split.part(x, self._split)

    def _wavenumbers(self, dtype: Any) -> list[Float[Array, "..."]]:
        return [self._here(k) for k in fourier.wavenumbers(self.grid.shape, self.grid.extent, True, dtype)]

    def _odd_wavenumbers(self, dtype: Any) -> list[Float[Array, "..."]]:
        return [self._here(k) for k in fourier.odd_wavenumbers(self.grid.shape, self.grid.extent, True, dtype)]

    def _energies(self, modes: Complex[Array, "3 kx ky kz"]) -> Float[Array, "kx ky kz"]:
        """The share of each coefficient of half of the modes in the mean energy."""
        nz = self.grid.shape[2]
        doubled = np.full(nz // 2 + 1, 2.0)
        doubled[0] = 1
        if nz % 2 == 0:
            doubled[-1] = 1
        dtype = modes.real.dtype
        weights = jnp.asarray(doubled[None, None] / (2 * float(np.prod(self.grid.shape)) ** 2), dtype)
        return weights * jnp.sum(modes.real**2 + modes.imag**2, axis=0)

    def _driven(self, forcing: SteadyPower, modes: Complex[Array, "..."]) -> Complex[Array, "..."]:
        longest = max(self.grid.extent)
        square = np.zeros((), np.float64)
        for k in self._numbers():
            square = square + (k * longest) ** 2
        driven = (square <= (2 * math.pi * forcing.below) ** 2 * (1 + 1e-9)) & (square > 0)
        large = fourier.kept(modes, self._here(driven))
        energies = self._energies(large)
        energy = jnp.sum(energies) if self._split is None else self._split.sum(energies)
        rate = jnp.where(energy > 0, forcing.power / jnp.where(energy > 0, 2 * energy, jnp.ones_like(energy)), 0.0)
        return _times(rate, large)

    def _numbers(self) -> list[np.ndarray]:
        """The wavenumbers as known numbers."""
        found = []
        for axis, (points, length) in enumerate(zip(self.grid.shape, self.grid.extent)):
            numbers = (np.fft.rfftfreq if axis == 2 else np.fft.fftfreq)(points, length / points) * 2 * math.pi
            found.append(numbers.reshape([-1 if axis == other else 1 for other in range(3)]))
        return found

    def _projected(self, modes: Complex[Array, "3 kx ky kz"]) -> Complex[Array, "3 kx ky kz"]:
        """The part of a field across its wavenumber."""
        ks = self._odd_wavenumbers(modes.real.dtype)
        square = sum(k**2 for k in ks)
        none = square == 0
        inverse = jnp.where(none, jnp.zeros_like(square), 1 / jnp.where(none, jnp.ones_like(square), square))
        product: Any = sum(_times(k, part) for k, part in zip(ks, modes))
        along = _times(inverse, product)
        return jnp.stack([part - _times(k, along) for k, part in zip(ks, modes)])


def _times(factor: Float[Array, "..."], modes: Complex[Array, "..."]) -> Complex[Array, "..."]:
    return jax.lax.complex(factor * modes.real, factor * modes.imag)
