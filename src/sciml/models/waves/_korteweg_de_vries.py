"""The Korteweg-de Vries equation."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..._checks import check_real
from ..._interfaces._model import AbstractSemilinear
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from .. import _fourier as fourier


class KortewegDeVries(AbstractSemilinear):
    r"""Long waves on shallow water, periodic in one dimension.

    $$u_t = -6 u u_x - \delta\, u_{xxx}$$

    Solitary waves keep their shape and pass through one another. The state is $u$ on equally spaced
    points, shape `(points,)`. Mass $\int u$, momentum $\int u^2$ and the energy
    $\int (\delta u_x^2 / 2 - u^3)$ do not change.

    Good values: `points=256`, `length=40.0`, a soliton $u = \frac{c}{2} \operatorname{sech}^2 \frac{\sqrt c}{2}
    (x - ct - x_0)$ with `c=4`, `ETDRK4` with `dt=0.002`.

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
        sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=0.5, dt=0.01, solver=sciml.solvers.ETDRK4())
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
