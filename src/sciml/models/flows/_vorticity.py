"""Two-dimensional incompressible flow by its vorticity."""

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
from .. import _fourier as fourier


class Vorticity(AbstractSemilinear):
    r"""Two-dimensional incompressible flow, the Navier-Stokes equations for the vorticity, in a periodic box.

    $$\omega_t = -u \cdot \nabla \omega + \nu \nabla^2 \omega - \mu\, \omega + f, \qquad
      \omega = \partial_x u_y - \partial_y u_x, \qquad \nabla \cdot u = 0$$

    with the velocity $u$ of mean zero. The state is $\omega$ on the grid, $x$ along the first axis.
    The term of transport takes the lower two thirds of the modes of $u$ and gives the same ones, for which the products
    on the grid are exact. Without viscosity, drag and forcing it keeps the energy and the enstrophy of these modes to
    rounding. It takes four transforms, as $-(\partial_{xx} - \partial_{yy})(u_x u_y) -
    \partial_{xy}(u_y^2 - u_x^2)$.

    Good values: `Grid((128, 128), 0.0, 2 * math.pi)`, `viscosity=1e-3`, $\omega$ from `sciml.spatial.random_vortices`,
    `ETDRK` with `dt=0.01`, for turbulence that decays; `viscosity=1e-2`, `drag=0.1` and
    `kolmogorov_forcing(grid, waves=4)` for Kolmogorov flow.

    Attributes:
        shape: The numbers of points along x and y.
        grid: The grid, at whose centres the unknowns are; None if only the shape was given.
        length: The length of the box along the axes: one number, or an array of one for each.
        viscosity: $\nu$, a length squared over time.
        drag: $\mu$, 1/time, of a fluid over a rough bottom.
        forcing: $f$, the curl of the force over the density, 1/time squared: an array over the grid, or 0.

    Args:
        grid: The grid, whose box is periodic. Or, for a box whose sides are parameters, the numbers of points along x
            and y; the frames of a run then have no coordinates.
        length: The sides of the box if `grid` only gives the numbers of points; by default $2 \pi$.
        viscosity: $\nu$.
        drag: $\mu$.
        forcing: $f$.

    Raises:
        ValueError: If the grid does not have two axes, `length` is given together with a grid, or `forcing` has another
            shape.

    Source:
        C. Basdevant, J. Comput. Phys. 50:209, 1983, for the form of the term of transport; S. A. Orszag, J. Atmos. Sci.
        28:1074, 1971, for the two-thirds rule.

    Example:
        ```python
        import jax
        import sciml
        from sciml.models import Vorticity
        from sciml.spatial import Grid, random_vortices

        grid = Grid((32, 32))
        model = Vorticity(grid, viscosity=1e-3)
        y0 = random_vortices(grid, key=jax.random.key(0))
        sol = sciml.solve(model, y0, t0=0.0, t1=0.5, dt=0.05)
        assert sol.solver == "ETDRK(order=4)" and model.energy(sol.ys[-1]) < model.energy(y0)
        ```
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    length: Parameter
    viscosity: Parameter
    drag: Parameter
    forcing: Parameter
    grid: Grid | None = eqx.field(static=True)

    def __init__(
        self,
        grid: Grid | tuple[int, ...],
        length: Any = None,
        viscosity: Any = 1e-3,
        drag: Any = 0.0,
        forcing: Any = 0.0,
    ):
        shape, length = _box(grid, length, "Vorticity")
        self.grid = grid if isinstance(grid, Grid) else None
        self.shape, self.length = shape, parameter(length)
        self.viscosity, self.drag, self.forcing = parameter(viscosity), parameter(drag), parameter(forcing)
        if self.forcing.shape not in ((), self.shape):
            raise ValueError(
                f"`Vorticity(forcing=...)` must be an array of shape {self.shape} or 0, but has shape "
                f"{self.forcing.shape}."
            )

    @property
    def location(self) -> tuple[str, str]:
        """The places of the unknowns on the grid."""
        return "center", "center"

    def transform(self, y: Float[Array, "nx ny"]) -> Complex[Array, "nx modes"]:
        """Returns the Fourier coefficients, half of them."""
        check_real(y, self)
        if y.shape[-2:] != self.shape:
            raise ValueError(f"the state of `Vorticity` must have the grid's shape {self.shape}, but has {y.shape}.")
        return fourier.transform(y, 2)

    def inverse(self, modes: Complex[Array, "... nx modes"]) -> Float[Array, "... nx ny"]:
        """Returns the state of given coefficients."""
        return fourier.inverse(modes, self.shape, True)

    def linear(self, args: Args) -> Float[Array, "nx modes"]:
        r"""Returns $-\nu |k|^2 - \mu$."""
        del args
        dtype = jnp.result_type(self.length)
        p = with_dtype(self, dtype)
        kx, ky = fourier.wavenumbers(p.shape, p.length, True, dtype)
        return -p.viscosity * (kx**2 + ky**2) - p.drag

    def rest(self, t: RealScalarLike, modes: Complex[Array, "nx modes"], args: Args) -> Complex[Array, "nx modes"]:
        r"""Returns the coefficients of $-u \cdot \nabla \omega + f$."""
        del t, args
        dtype = modes.real.dtype
        p = with_dtype(self, dtype)
        resolved = fourier.two_thirds(p.shape, True)
        u, v = self.inverse(p._velocity_modes(fourier.kept(modes, resolved)))
        products = fourier.transform(jnp.stack([u * v, v**2 - u**2]), 2)
        kx, ky = fourier.wavenumbers(p.shape, p.length, True, dtype)
        rate = _times((kx - ky) * (kx + ky), products[0]) + _times(kx * ky, products[1])
        rate = fourier.kept(rate, resolved)
        return rate if p.forcing.ndim == 0 else rate + self.transform(p.forcing)

    def _velocity_modes(self, modes: Complex[Array, "nx modes"]) -> Complex[Array, "2 nx modes"]:
        r"""Of $u = (\partial_y \psi, -\partial_x \psi)$ with $-\nabla^2 \psi = \omega$."""
        dtype = modes.real.dtype
        kx, ky = fourier.odd_wavenumbers(self.shape, self.length, True, dtype)
        inverse = self._inverse_square(dtype)
        return jnp.stack([fourier.times_i(ky * inverse, modes), fourier.times_i(-kx * inverse, modes)])

    def _inverse_square(self, dtype: Any) -> Float[Array, "nx modes"]:
        """Of the wavenumbers; zero for the mean."""
        kx, ky = fourier.wavenumbers(self.shape, self.length, True, dtype)
        square = kx**2 + ky**2
        mean = np.zeros(square.shape, bool)
        mean[0, 0] = True
        return jnp.where(mean, 0, 1 / jnp.where(mean, 1, square))

    def velocity(self, y: Float[Array, "nx ny"]) -> Float[Array, "2 nx ny"]:
        """Returns the velocity $(u_x, u_y)$ of a state, of mean zero."""
        return self.inverse(with_dtype(self, y.dtype)._velocity_modes(self.transform(y)))

    def energy(self, y: Float[Array, "nx ny"]) -> Float[Array, ""]:
        r"""Returns the mean kinetic energy over the density, $\tfrac12 \langle |u|^2 \rangle$."""
        return jnp.mean(jnp.sum(self.velocity(y) ** 2, axis=0)) / 2

    def enstrophy(self, y: Float[Array, "nx ny"]) -> Float[Array, ""]:
        r"""Returns the mean enstrophy, $\tfrac12 \langle (\omega - \langle \omega \rangle)^2 \rangle$."""
        return jnp.mean((y - jnp.mean(y)) ** 2) / 2

    def energy_spectrum(self, y: Float[Array, "nx ny"]) -> tuple[Float[Array, " shells"], Float[Array, " shells"]]:
        r"""Returns wavenumbers $k$ and the energy per wavenumber, $E(k)$, of a state.

        The shells have the width $\Delta k$ of one mode along the shortest side of the box, and
        $\sum E\, \Delta k$ is the mean energy; the first shell is that around $k = 0$.

        Args:
            y: A state.
        """
        p = with_dtype(self, y.dtype)
        kx, ky = fourier.wavenumbers(p.shape, p.length, True, y.dtype)
        energy = (
            jnp.abs(self.transform(y) / y.size) ** 2
            * p._inverse_square(y.dtype)
            * jnp.asarray(_doubled(p.shape), y.dtype)
            / 2
        )
        width = 2 * math.pi / jnp.min(p.length)
        shells = math.ceil(math.hypot(*p.shape) / 2) + 1
        index = jnp.round(jnp.sqrt(kx**2 + ky**2) / width).astype(int)
        total = jnp.zeros(shells, y.dtype).at[index].add(energy)
        return width * jnp.arange(shells, dtype=y.dtype), total / width


def kolmogorov_forcing(
    grid: Grid | tuple[int, int],
    length: RealScalarLike | Float[Array, "2"] | None = None,
    *,
    waves: int = 4,
    amplitude: RealScalarLike = 1.0,
) -> Float[Array, "nx ny"]:
    r"""Returns the forcing of Kolmogorov flow for `Vorticity`, the curl of the force $A \sin(k y)\, e_x$.

    It is $-A k \cos(k y)$. Without drag the laminar flow $u_x = A / (\nu k^2) \sin(k y)$ becomes unstable to long waves
    if the Reynolds number $A / (\nu^2 k^3)$ exceeds $\sqrt 2$.

    Args:
        grid: The grid, with $y$ at its centres, or the numbers of points along x and y from $y = 0$, as for
            `Vorticity`.
        length: The sides of the box if `grid` only gives the numbers of points; by default $2 \pi$.
        waves: How many waves $k L_y / 2 \pi$ the box holds.
        amplitude: $A$, the largest force over the density, an acceleration.

    Returns:
        The forcing on the grid, in the default floating type.

    Source:
        L. D. Meshalkin, Ya. G. Sinai, J. Appl. Math. Mech. 25:1700, 1961.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Vorticity, kolmogorov_forcing
        from sciml.spatial import Grid

        grid = Grid((16, 16), 0.0, 2 * jnp.pi)
        model = Vorticity(grid, viscosity=0.5, forcing=kolmogorov_forcing(grid, waves=2))
        laminar = model.forcing / (0.5 * 2**2)
        assert jnp.max(jnp.abs(model(0.0, laminar, None))) < 1e-5
        ```
    """
    shape, length = _box(grid, length, "kolmogorov_forcing")
    dtype = jnp.result_type(float)
    k = 2 * math.pi * waves / jnp.broadcast_to(jnp.asarray(length, dtype), (2,))[1]
    if isinstance(grid, Grid):
        phase = k * grid.centers[1][0]
    else:
        phase = 2 * math.pi * waves / shape[1] * jnp.arange(shape[1], dtype=dtype)
    return jnp.broadcast_to(-jnp.asarray(amplitude, dtype) * k * jnp.cos(phase), shape)


def _box(grid: Any, length: Any, name: str) -> tuple[tuple[int, ...], Any]:
    """The numbers of points and the sides of a periodic box in the plane."""
    if isinstance(grid, Grid):
        if length is not None:
            raise ValueError(f"`{name}(length=...)` only applies to numbers of points, but {grid} has its own sides.")
        shape, length = grid.shape, jnp.asarray(grid.extent, jnp.result_type(float))
    else:
        shape, length = grid, 2 * math.pi if length is None else length
    if not isinstance(shape, tuple) or len(shape) != 2:
        raise ValueError(
            f"`{name}(grid)` must be a `Grid` of two axes, or two numbers of points, such as (128, 128), with the "
            f"sides of the box as `length`, but is {grid!r}."
        )
    return shape, length


def _times(factor: Float[Array, "..."], modes: Complex[Array, "..."]) -> Complex[Array, "..."]:
    return jax.lax.complex(factor * modes.real, factor * modes.imag)


def _doubled(shape: tuple[int, ...]) -> np.ndarray:
    """The number of modes that each coefficient of a real field represents."""
    count = np.full(shape[1] // 2 + 1, 2.0)
    count[0] = 1
    if shape[1] % 2 == 0:
        count[-1] = 1
    return count[None]
