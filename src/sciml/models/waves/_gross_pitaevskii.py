"""The Schroedinger equation in a potential, and the Gross-Pitaevskii equation."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..._interfaces._model import AbstractSemilinear
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Grid, Spectral


class GrossPitaevskii(AbstractSemilinear):
    r"""A quantum particle in a potential, or a condensate of many.

    $$i \partial_t \psi = -\tfrac12 \nabla^2 \psi + V \psi + g |\psi|^2 \psi$$

    The state is the complex $\psi$ on the grid, in units where $\hbar$ and the mass are one. With $g = 0$ this is the
    Schroedinger equation; $g > 0$ repels, $g < 0$ attracts. In the trap $V = \tfrac12 \omega^2 x^2$ the stationary
    states of the linear equation rotate as $e^{-i E_n t}$ with $E_n = (n + \tfrac12) \omega$, and the centre of any
    state, with any $g$, oscillates as $\cos \omega t$. $\int |\psi|^2$ and the energy
    $\int \tfrac12 |\nabla \psi|^2 + V |\psi|^2 + \tfrac g2 |\psi|^4$ do not change: this holds for the expansion in
    modes, too; the methods keep both to the order of their error. Steps are explicit in $V$: $|V| \Delta t$ must stay
    below about 2.5 wherever the grid reaches. A trap that ends where $\psi$ has vanished, `jnp.minimum(V, 50.0)`,
    allows longer ones.

    `NonlinearSchroedinger` is the same without a potential, with the other sign of $g$ and a length that is a leaf.

    Good values: `Grid(128, -10, 10)`, `potential=x**2 / 2`, `coupling=1.0`, a Gaussian, `ETDRK4` with `dt=0.01`.

    Attributes:
        spectral: The modes, by the conditions at the sides.
        potential: $V$, an energy: a number or an array over the grid.
        coupling: $g$.

    Args:
        grid: The grid.
        boundary: The conditions at the sides: two `Periodic`, `Dirichlet` (hard walls) or `Neumann` along each axis.
        potential: $V$.
        coupling: $g$.

    Raises:
        ValueError: If the conditions have no modes, or the potential or, when called, the state has the wrong shape.

    Source:
        E. P. Gross, Nuovo Cimento 20:454, 1961; L. P. Pitaevskii, Sov. Phys. JETP 13:451, 1961.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import GrossPitaevskii
        from sciml.spatial import Grid, Periodic

        grid = Grid(64, -8.0, 8.0)
        (x,) = grid.centers
        model = GrossPitaevskii(grid, Periodic(), potential=x**2 / 2, coupling=2.0)
        psi = jnp.exp(-((x - 1.0) ** 2) / 2).astype(complex)  # beside the middle
        sol = sciml.solve(model, psi, t0=0.0, t1=jnp.pi, dt=jnp.pi / 300)  # half a period
        density = abs(sol.ys[-1]) ** 2
        assert abs(jnp.sum(x * density) / jnp.sum(density) + 1.0) < 1e-3
        ```
    """

    spectral: Spectral
    potential: Parameter
    coupling: Parameter

    def __init__(self, grid: Grid, boundary: Any, potential: Any = 0.0, coupling: Any = 1.0):
        self.spectral = Spectral(grid, boundary, "complex")
        self.potential, self.coupling = parameter(potential), parameter(coupling)
        if self.potential.ndim and self.potential.shape != self.spectral.shape:
            raise ValueError(
                f"`GrossPitaevskii(potential=...)` must be a number or an array over the grid, {self.spectral.shape}, "
                f"but has shape {self.potential.shape}."
            )

    def transform(self, y: Complex[Array, "..."]) -> Complex[Array, "..."]:
        """Returns the amplitudes of the modes."""
        return self.spectral.transform(y)

    def inverse(self, modes: Complex[Array, "..."]) -> Complex[Array, "..."]:
        """Returns the state of given amplitudes."""
        return self.spectral.inverse(modes)

    def linear(self, args: Args) -> Complex[Array, "..."]:
        r"""Returns $-i |k|^2 / 2$."""
        del args
        laplacian = self.spectral.laplacian
        return jax.lax.complex(jnp.zeros_like(laplacian), laplacian / 2)

    def rest(self, t: RealScalarLike, modes: Complex[Array, "..."], args: Args) -> Complex[Array, "..."]:
        r"""Returns the amplitudes of $-i (V + g |\psi|^2) \psi$."""
        del t, args
        psi = self.inverse(modes)
        p = with_dtype(self, psi.real.dtype)
        height = p.potential + p.coupling * _square(psi)
        return self.transform(jax.lax.complex(height * psi.imag, -height * psi.real))

    def mass(self, y: Complex[Array, "..."]) -> Float[Array, ""]:
        r"""Returns $\int |\psi|^2$, which does not change."""
        return self.spectral.grid.integrate(_square(y), self.spectral.location)

    def energy(self, y: Complex[Array, "..."]) -> Float[Array, ""]:
        r"""Returns $\int \tfrac12 |\nabla \psi|^2 + V |\psi|^2 + \tfrac g2 |\psi|^4$, which does not change."""
        p = with_dtype(self, y.real.dtype)
        bent = p.inverse(p.spectral.times(p.spectral.laplacian, p.transform(y)))
        square = _square(y)
        density = -(y.real * bent.real + y.imag * bent.imag) / 2 + (p.potential + p.coupling / 2 * square) * square
        return p.spectral.grid.integrate(density, p.spectral.location)


def _square(psi: Array) -> Array:
    return psi.real**2 + psi.imag**2
