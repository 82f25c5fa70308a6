"""Dispersive waves: solitons and quantum states, for exponential methods."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..._checks import check_real
from ..._interfaces._model import AbstractSemilinear
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Grid, Spectral
from .. import _fourier as fourier


class KortewegDeVries(AbstractSemilinear):
    r"""Long waves on shallow water, periodic in one dimension.

    $$u_t = -6 u u_x - \delta\, u_{xxx}$$

    Solitary waves keep their shape and pass through one another. The state is $u$ on equally spaced
    points, shape `(points,)`. Mass $\int u$, momentum $\int u^2$ and the energy
    $\int (\delta u_x^2 / 2 - u^3)$ do not change.

    Good values: `points=256`, `length=40.0`, a soliton $u = \frac{c}{2} \operatorname{sech}^2 \frac{\sqrt c}{2}
    (x - ct - x_0)$ with `c=4`, `ETDRK` with `dt=0.002`.

    Attributes:
        points: The number of points.
        length: The length of the box.
        dispersion: $\delta$.
        dealiased: Whether the product leaves out the upper third of the modes, so that none of it is folded back.

    Source:
        D. J. Korteweg, G. de Vries, Phil. Mag. 39 (1895); N. J. Zabusky, M. D. Kruskal, Phys. Rev. Lett. 15 (1965).

    Example:
        ```python
        import sciml

        problem = sciml.verify.problem("kdv_soliton", points=64)
        sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=0.5, dt=0.01, solver=sciml.solvers.ETDRK(order=4))
        assert abs(problem.model.momentum(sol.ys[-1]) / problem.model.momentum(problem.y0) - 1) < 1e-3
        ```
    """

    points: int = eqx.field(static=True)
    length: Parameter = eqx.field(converter=parameter)
    dispersion: Parameter = eqx.field(default=1.0, converter=parameter)
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

    def linear(self, args: Args) -> Complex[Array, " modes"]:
        r"""Returns $i \delta k^3$."""
        del args
        dtype = jnp.result_type(self.length)
        p = with_dtype(self, dtype)
        (k,) = fourier.odd_wavenumbers((self.points,), p.length, True, dtype)
        return jax.lax.complex(jnp.zeros_like(k), p.dispersion * k**3)

    def rest(self, t: RealScalarLike, modes: Complex[Array, " modes"], args: Args) -> Complex[Array, " modes"]:
        r"""Returns the coefficients of $-3 (u^2)_x$."""
        del t, args
        u = self.inverse(modes)
        (k,) = fourier.odd_wavenumbers((self.points,), self.length, True, u.dtype)
        flux = fourier.times_i(-3 * k, self.transform(u * u))
        return fourier.kept(flux, fourier.two_thirds((self.points,), True)) if self.dealiased else flux

    def mass(self, y: Float[Array, " points"]) -> Float[Array, ""]:
        r"""Returns $\int u\, dx$, which does not change."""
        return jnp.mean(y) * self.length.astype(y.dtype)

    def momentum(self, y: Float[Array, " points"]) -> Float[Array, ""]:
        r"""Returns $\int u^2\, dx$, which does not change."""
        return jnp.mean(y**2) * self.length.astype(y.dtype)

    def energy(self, y: Float[Array, " points"]) -> Float[Array, ""]:
        r"""Returns $\int (\delta u_x^2 / 2 - u^3)\, dx$, which does not change."""
        p = with_dtype(self, y.dtype)
        (k,) = fourier.odd_wavenumbers((self.points,), p.length, True, y.dtype)
        slope = self.inverse(fourier.times_i(k, self.transform(y)))
        return jnp.mean(p.dispersion * slope**2 / 2 - y**3) * p.length


class NonlinearSchroedinger(AbstractSemilinear):
    r"""The envelope of a wave in a nonlinear medium, or a condensate, periodic in one to three dimensions.

    $$i \psi_t = -\tfrac12 \nabla^2 \psi - g |\psi|^2 \psi$$

    With $g > 0$ the nonlinearity focuses and, in one dimension, bright solitons exist; with $g < 0$ it
    spreads. The state is the complex $\psi$ on a grid of the given shape. $\int |\psi|^2$ does not change.

    Good values: `shape=(256,)`, `length=40.0`, $\psi = \operatorname{sech}(x)\, e^{i v x}$, `ETDRK` with `dt=0.01`.

    Attributes:
        shape: The numbers of points along the axes.
        length: The length of the box along the axes: one number, or an array of one for each.
        coupling: $g$.

    Source:
        V. E. Zakharov, A. B. Shabat, Sov. Phys. JETP 34 (1972).

    Example:
        ```python
        import sciml

        problem = sciml.verify.problem("schroedinger_soliton", points=64)
        sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=1.0, dt=0.02, solver=sciml.solvers.ETDRK(order=4))
        assert abs(sol.ys[-1] - problem.solution(1.0)).max() < 1e-2
        ```
    """

    shape: tuple[int, ...] = eqx.field(static=True)
    length: Parameter = eqx.field(converter=parameter)
    coupling: Parameter = eqx.field(default=1.0, converter=parameter)

    def transform(self, y: Complex[Array, "..."]) -> Complex[Array, "..."]:
        """Returns the Fourier coefficients."""
        return fourier.transform(y, len(self.shape))

    def inverse(self, modes: Complex[Array, "..."]) -> Complex[Array, "..."]:
        """Returns the state of given coefficients."""
        return fourier.inverse(modes, self.shape, False)

    def linear(self, args: Args) -> Complex[Array, "..."]:
        r"""Returns $-i |k|^2 / 2$."""
        del args
        dtype = jnp.result_type(self.length)
        ks = fourier.wavenumbers(self.shape, self.length, False, dtype)
        square = sum((k**2 for k in ks[1:]), ks[0] ** 2)
        return jax.lax.complex(jnp.zeros_like(square), square / -2)

    def rest(self, t: RealScalarLike, modes: Complex[Array, "..."], args: Args) -> Complex[Array, "..."]:
        r"""Returns the coefficients of $i g |\psi|^2 \psi$."""
        del t, args
        psi = self.inverse(modes)
        p = with_dtype(self, psi.real.dtype)
        strength = p.coupling * (psi.real**2 + psi.imag**2)
        return self.transform(jax.lax.complex(-strength * psi.imag, strength * psi.real))

    def mass(self, y: Complex[Array, "..."]) -> Float[Array, ""]:
        r"""Returns $\int |\psi|^2$, which does not change."""
        p = with_dtype(self, y.real.dtype)
        volume = jnp.prod(jnp.broadcast_to(p.length, (len(self.shape),)))
        return jnp.mean(y.real**2 + y.imag**2) * volume


class GrossPitaevskii(AbstractSemilinear):
    r"""A quantum particle in a potential, or a condensate of many.

    $$i \partial_t \psi = -\tfrac12 \nabla^2 \psi + V \psi + g |\psi|^2 \psi$$

    The state is the complex $\psi$ on the grid, in units where $\hbar$ and the mass are one. With $g = 0$ this is the
    Schroedinger equation; $g > 0$ repels, $g < 0$ attracts. In the trap $V = \tfrac12 \omega^2 x^2$ the stationary
    states of the linear equation rotate as $e^{-i E_n t}$ with $E_n = (n + \tfrac12) \omega$, and the centre of any
    state, with any $g$, oscillates as $\cos \omega t$. $\int |\psi|^2$ and the energy
    $\int \tfrac12 |\nabla \psi|^2 + V |\psi|^2 + \tfrac g2 |\psi|^4$ are conserved, also for the expansion in modes;
    the methods preserve both to the order of their error. Steps are explicit in $V$: $|V| \Delta t$ must stay below
    about 2.5 wherever the grid reaches. A trap that ends where $\psi$ has vanished, `jnp.minimum(V, 50.0)`, allows
    longer ones.

    `NonlinearSchroedinger` is the same without a potential, with the other sign of $g$ and a length that is a leaf.

    Good values: `Grid(128, -10, 10)`, `potential=x**2 / 2`, `coupling=1.0`, a Gaussian, `ETDRK` with `dt=0.01`.

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
