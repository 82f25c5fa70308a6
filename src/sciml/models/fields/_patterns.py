"""Equations of patterns, for exponential methods."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, Inexact

from ..._checks import check_real
from ..._interfaces._model import AbstractSemilinear
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Grid, Spectral
from .. import _fourier as fourier


class GinzburgLandau(AbstractSemilinear):
    r"""The amplitude of waves near the onset of an instability, periodic in one to three dimensions.

    $$A_t = A + (1 + i \alpha) \nabla^2 A - (1 + i \beta) |A|^2 A$$

    Plane waves, spirals, and where $1 + \alpha \beta < 0$ turbulence of phase and defects. The state is the complex $A$
    on a grid of the given shape.

    Good values: `shape=(128, 128)`, `length=100.0`, `alpha=0.0`, `beta=1.5` with small random $A$ for spirals,
    `alpha=2.0`, `beta=-1.2` for turbulence; `ETDRK` with `dt=0.1`.

    Attributes:
        shape: The numbers of points along the axes.
        length: The length of the box along the axes: one number, or an array of one for each.
        alpha: $\alpha$, linear dispersion.
        beta: $\beta$, nonlinear dispersion.

    Source:
        I. S. Aranson, L. Kramer, The world of the complex Ginzburg-Landau equation, Rev. Mod. Phys. 74 (2002),
        doi:10.1103/RevModPhys.74.99.

    Example:
        ```python
        import sciml

        problem = sciml.verify.problem("ginzburg_landau_wave", points=32)
        sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=1.0, dt=0.05, solver=sciml.solvers.ETDRK(order=4))
        assert abs(sol.ys[-1] - problem.solution(1.0)).max() < 1e-3
        ```
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    length: Parameter = eqx.field(converter=parameter)
    alpha: Parameter = eqx.field(default=0.0, converter=parameter)
    beta: Parameter = eqx.field(default=1.5, converter=parameter)

    def transform(self, y: Complex[Array, "..."]) -> Complex[Array, "..."]:
        """Returns the Fourier coefficients."""
        return fourier.transform(y, len(self.shape))

    def inverse(self, modes: Complex[Array, "..."]) -> Complex[Array, "..."]:
        """Returns the state of given coefficients."""
        return fourier.inverse(modes, self.shape, False)

    def linear(self, args: Args) -> Complex[Array, "..."]:
        r"""Returns $1 - (1 + i \alpha) |k|^2$."""
        del args
        dtype = jnp.result_type(self.length)
        p = with_dtype(self, dtype)
        ks = fourier.wavenumbers(self.shape, p.length, False, dtype)
        square = sum((k**2 for k in ks[1:]), ks[0] ** 2)
        return jax.lax.complex(1 - square, -p.alpha * square)

    def rest(self, t: RealScalarLike, modes: Complex[Array, "..."], args: Args) -> Complex[Array, "..."]:
        r"""Returns the coefficients of $-(1 + i \beta) |A|^2 A$."""
        del t, args
        a = self.inverse(modes)
        p = with_dtype(self, a.real.dtype)
        square = a.real**2 + a.imag**2
        real, imag = a.real - p.beta * a.imag, a.imag + p.beta * a.real
        return self.transform(jax.lax.complex(-square * real, -square * imag))


class SwiftHohenberg(AbstractSemilinear):
    r"""Patterns of one wavelength near the onset of convection: rolls, and with a quadratic term hexagons.

    $$\partial_t u = r u - (q^2 + \nabla^2)^2 u + g u^2 - u^3$$

    The state is the field $u$. Small waves grow as $e^{\sigma t}$ with $\sigma = r - (q^2 - k^2)^2$: below the
    threshold $r = 0$ all decay, above it waves with $k \approx q$ grow, for small $r$ to rolls of amplitude
    $\sqrt{4 r / 3}$. The energy
    $\int \tfrac12 ((q^2 + \nabla^2) u)^2 - \tfrac{r}{2} u^2 - \tfrac{g}{3} u^3 + \tfrac14 u^4$ never grows; this also
    holds for the expansion in modes, whose products are therefore not dealiased.

    Good values: the defaults, a periodic box of ten wavelengths, $[0, 20 \pi]^2$, with $128^2$ cells, small noise,
    steps of 0.1 to a time of 100; `quadratic=1.0`, `rate=0.1` for hexagons.

    Attributes:
        spectral: The modes, by the conditions at the sides.
        rate: $r$, over time.
        wavenumber: $q$, over length.
        quadratic: $g$.

    Args:
        grid: The grid; a wavelength needs a few cells.
        boundary: The conditions at the sides, of $u$ and of $\nabla^2 u$; two `Periodic`, `Neumann` or `Dirichlet`
            along each axis.
        rate: $r$.
        wavenumber: $q$.
        quadratic: $g$.

    Raises:
        ValueError: If the conditions have no modes; when called, if the field has the wrong shape.
        TypeError: When called, if the field is complex.

    Source:
        J. Swift and P. C. Hohenberg, Phys. Rev. A 15:319, 1977.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import SwiftHohenberg
        from sciml.spatial import Grid, Periodic

        grid = Grid(64, 0.0, 20 * jnp.pi)
        (x,) = grid.centers
        model = SwiftHohenberg(grid, Periodic(), rate=0.1)
        sol = sciml.solve(model, 0.01 * jnp.cos(x), t0=0.0, t1=100.0, dt=0.5)
        assert abs(sol.ys[-1].max() - (4 * 0.1 / 3) ** 0.5) < 0.01
        ```
    """

    spectral: Spectral
    rate: Parameter
    wavenumber: Parameter
    quadratic: Parameter

    def __init__(self, grid: Grid, boundary: Any, rate: Any = 0.2, wavenumber: Any = 1.0, quadratic: Any = 0.0):
        self.spectral = Spectral(grid, boundary)
        self.rate, self.wavenumber, self.quadratic = parameter(rate), parameter(wavenumber), parameter(quadratic)

    def transform(self, y: Float[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns the amplitudes of the modes."""
        check_real(y, self)
        return self.spectral.transform(y)

    def inverse(self, modes: Inexact[Array, "..."]) -> Float[Array, "..."]:
        """Returns the state of given amplitudes."""
        return self.spectral.inverse(modes)

    def linear(self, args: Args) -> Float[Array, "..."]:
        r"""Returns $-(q^2 - |k|^2)^2$.

        The growth $r$ is in the rest: here it would act on amplitudes that no real field has, which rounding makes
        and no saturation stops.
        """
        del args
        laplacian = self.spectral.laplacian
        p = with_dtype(self, laplacian.dtype)
        return -jnp.square(jnp.square(p.wavenumber) + laplacian)

    def rest(self, t: RealScalarLike, modes: Inexact[Array, "..."], args: Args) -> Inexact[Array, "..."]:
        r"""Returns the amplitudes of $r u + g u^2 - u^3$."""
        del t, args
        u = self.inverse(modes)
        p = with_dtype(self, u.dtype)
        return self.transform(u * (p.rate + u * (p.quadratic - u)))

    def energy(self, y: Float[Array, "..."]) -> Float[Array, ""]:
        r"""Returns $\int \tfrac12 ((q^2 + \nabla^2) u)^2 - \tfrac r2 u^2 - \tfrac g3 u^3 + \tfrac14 u^4$."""
        p = with_dtype(self, y.dtype)
        factor = jnp.square(p.wavenumber) + p.spectral.laplacian.astype(y.dtype)
        bent = p.inverse(p.spectral.times(factor, p.transform(y)))
        density = jnp.square(bent) / 2 + y * y * (-p.rate / 2 - p.quadratic / 3 * y + y * y / 4)
        return p.spectral.grid.integrate(density, p.spectral.location)


class KuramotoSivashinsky(AbstractSemilinear):
    r"""Unstable waves on a flame front or a falling film, periodic in one dimension.

    $$u_t = -u u_x - u_{xx} - \nu\, u_{xxxx}$$

    Long waves grow, short ones are damped, and the first term carries energy from the long to the short:
    in boxes longer than about 22 the solution is chaotic. The state is $u$ on equally spaced points, shape
    `(points,)`; its mean does not change.

    Good values: `points=128`, `length=32 * pi`, $u = \cos(x/16)(1 + \sin(x/16))$, `ETDRK` with `dt=0.25`, time to 150.

    Attributes:
        points: The number of points.
        length: The length of the box.
        viscosity: $\nu$.
        dealiased: Whether the product leaves out the upper third of the modes, so that none of it is folded back.

    Source:
        Y. Kuramoto, T. Tsuzuki, Prog. Theor. Phys. 55 (1976); G. Sivashinsky, Acta Astronaut. 4 (1977);
        A.-K. Kassam, L. N. Trefethen, SIAM J. Sci. Comput. 26 (2005).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.KuramotoSivashinsky(points=64, length=22.0)
        y0 = jnp.sin(2 * jnp.pi * model.x() / 22.0)
        sol = sciml.solve(model, y0, t0=0.0, t1=10.0, dt=0.25, solver=sciml.solvers.ETDRK(order=4))
        assert abs(jnp.mean(sol.ys[-1])) < 1e-5
        ```
    """

    points: int = eqx.field(static=True)
    length: Parameter = eqx.field(converter=parameter)
    viscosity: Parameter = eqx.field(default=1.0, converter=parameter)
    dealiased: bool = eqx.field(static=True, default=True)

    def x(self) -> Float[Array, " points"]:
        """Returns the points of the grid."""
        return self.length / self.points * jnp.arange(self.points, dtype=jnp.result_type(self.length))

    def transform(self, y: Float[Array, " points"]) -> Complex[Array, " modes"]:
        """Returns the Fourier coefficients, half of them."""
        check_real(y, self)
        return fourier.transform(y, 1)

    def inverse(self, modes: Complex[Array, " modes"]) -> Float[Array, " points"]:
        """Returns the state of given coefficients."""
        return fourier.inverse(modes, (self.points,), True)

    def linear(self, args: Args) -> Float[Array, " modes"]:
        r"""Returns $k^2 - \nu k^4$."""
        del args
        dtype = jnp.result_type(self.length)
        p = with_dtype(self, dtype)
        (k,) = fourier.wavenumbers((self.points,), p.length, True, dtype)
        return k**2 - p.viscosity * k**4

    def rest(self, t: RealScalarLike, modes: Complex[Array, " modes"], args: Args) -> Complex[Array, " modes"]:
        r"""Returns the coefficients of $-(u^2/2)_x$."""
        del t, args
        u = self.inverse(modes)
        (k,) = fourier.odd_wavenumbers((self.points,), self.length, True, u.dtype)
        flux = fourier.times_i(-k / 2, self.transform(u * u))
        return fourier.kept(flux, fourier.two_thirds((self.points,), True)) if self.dealiased else flux


class IntegralKuramotoSivashinsky(AbstractSemilinear):
    r"""The height of an unstable front, periodic in one to three dimensions.

    $$h_t = -\tfrac12 |\nabla h|^2 - \nabla^2 h - \nu \nabla^4 h$$

    In one dimension $u = h_x$ obeys `KuramotoSivashinsky`. The mean height falls all along and reacts on
    nothing. The state is $h$ on a grid of the given shape.

    Good values: `shape=(128, 128)`, `length=60.0`, small smooth random heights, `ETDRK` with `dt=0.1`.

    Attributes:
        shape: The numbers of points along the axes.
        length: The length of the box along the axes: one number, or an array of one for each.
        viscosity: $\nu$.
        dealiased: Whether the product leaves out the upper third of the modes, so that none of it is folded back.

    Source:
        G. Sivashinsky, Acta Astronaut. 4 (1977); A. Kalogirou, E. E. Keaveny, D. T. Papageorgiou, Proc. R. Soc. A 471
        (2015), doi:10.1098/rspa.2014.0932.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.IntegralKuramotoSivashinsky(shape=(16, 16), length=20.0)
        x, y = jnp.meshgrid(*(2 * jnp.pi * jnp.arange(16.0) / 16,) * 2, indexing="ij")
        sol = sciml.solve(model, jnp.cos(x + y), t0=0.0, t1=2.0, dt=0.1, solver=sciml.solvers.ETDRK(order=2))
        assert jnp.mean(sol.ys[-1]) < 0
        ```
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    length: Parameter = eqx.field(converter=parameter)
    viscosity: Parameter = eqx.field(default=1.0, converter=parameter)
    dealiased: bool = eqx.field(static=True, default=True)

    def transform(self, y: Float[Array, "..."]) -> Complex[Array, "..."]:
        """Returns the Fourier coefficients, half of them."""
        check_real(y, self)
        return fourier.transform(y, len(self.shape))

    def inverse(self, modes: Complex[Array, "..."]) -> Float[Array, "..."]:
        """Returns the state of given coefficients."""
        return fourier.inverse(modes, self.shape, True)

    def linear(self, args: Args) -> Float[Array, "..."]:
        r"""Returns $|k|^2 - \nu |k|^4$."""
        del args
        dtype = jnp.result_type(self.length)
        p = with_dtype(self, dtype)
        ks = fourier.wavenumbers(self.shape, p.length, True, dtype)
        square = sum((k**2 for k in ks[1:]), ks[0] ** 2)
        return square - p.viscosity * square**2

    def rest(self, t: RealScalarLike, modes: Complex[Array, "..."], args: Args) -> Complex[Array, "..."]:
        r"""Returns the coefficients of $-|\nabla h|^2/2$."""
        del t, args
        ks = fourier.odd_wavenumbers(self.shape, self.length, True, modes.real.dtype)
        squares = [self.inverse(fourier.times_i(k, modes)) ** 2 for k in ks]
        product = self.transform(sum(squares[1:], squares[0]) / -2)
        return fourier.kept(product, fourier.two_thirds(self.shape, True)) if self.dealiased else product
