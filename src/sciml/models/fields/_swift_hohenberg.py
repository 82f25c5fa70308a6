"""The Swift-Hohenberg equation."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from ..._checks import check_real
from ..._interfaces._model import AbstractSemilinear
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Grid, Spectral


class SwiftHohenberg(AbstractSemilinear):
    r"""Patterns of one wavelength near the onset of convection: rolls, and with a quadratic term hexagons.

    $$\partial_t u = r u - (q^2 + \nabla^2)^2 u + g u^2 - u^3$$

    The state is the field $u$. Small waves grow as $e^{\sigma t}$ with $\sigma = r - (q^2 - k^2)^2$: below the
    threshold $r = 0$ all decay, above it those of $k \approx q$ grow, for small $r$ to rolls of amplitude
    $\sqrt{4 r / 3}$. The energy
    $\int \tfrac12 ((q^2 + \nabla^2) u)^2 - \tfrac{r}{2} u^2 - \tfrac{g}{3} u^3 + \tfrac14 u^4$ never grows; this holds
    for the expansion in modes, too, whose products are therefore not dealiased.

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
