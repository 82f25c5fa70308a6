"""The Kuramoto-Sivashinsky equation in one dimension."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..._checks import check_real
from ..._interfaces._model import AbstractSemilinear
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from .. import _fourier as fourier


class KuramotoSivashinsky(AbstractSemilinear):
    r"""Unstable waves on a flame front or a falling film, periodic in one dimension.

    $$u_t = -u u_x - u_{xx} - \nu\, u_{xxxx}$$

    Long waves grow, short ones are damped, and the first term carries energy from the long to the short:
    in boxes longer than about 22 the solution is chaotic. The state is $u$ on equally spaced points, shape
    `(points,)`; its mean does not change.

    Good values: `points=128`, `length=32 * pi`, $u = \cos(x/16)(1 + \sin(x/16))$, `ETDRK4` with `dt=0.25`, time to 150.

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
        sol = sciml.solve(model, y0, t0=0.0, t1=10.0, dt=0.25, solver=sciml.solvers.ETDRK4())
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
