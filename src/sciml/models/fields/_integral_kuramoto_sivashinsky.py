"""The Kuramoto-Sivashinsky equation of a height, in one to three dimensions."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..._checks import check_real
from ..._interfaces._model import AbstractSemilinear
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from .. import _fourier as fourier


class IntegralKuramotoSivashinsky(AbstractSemilinear):
    r"""The height of an unstable front, periodic in one to three dimensions.

    $$h_t = -\tfrac12 |\nabla h|^2 - \nabla^2 h - \nu \nabla^4 h$$

    In one dimension $u = h_x$ obeys `KuramotoSivashinsky`. The mean height falls all along and reacts on
    nothing. The state is $h$ on a grid of the given shape.

    Good values: `shape=(128, 128)`, `length=60.0`, small smooth random heights, `ETDRK4` or `ETDRK2` with `dt=0.1`.

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
        sol = sciml.solve(model, jnp.cos(x + y), t0=0.0, t1=2.0, dt=0.1, solver=sciml.solvers.ETDRK2())
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
