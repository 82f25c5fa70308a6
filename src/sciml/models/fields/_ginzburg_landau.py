"""The complex Ginzburg-Landau equation."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex

from ..._interfaces._model import AbstractSemilinear
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from .. import _fourier as fourier


class GinzburgLandau(AbstractSemilinear):
    r"""The amplitude of waves near the onset of an instability, periodic in one to three dimensions.

    $$A_t = A + (1 + i \alpha) \nabla^2 A - (1 + i \beta) |A|^2 A$$

    Plane waves, spirals, and where $1 + \alpha \beta < 0$ turbulence of phase and defects. The state is the complex $A$
    on a grid of the given shape.

    Good values: `shape=(128, 128)`, `length=100.0`, `alpha=0.0`, `beta=1.5` with small random $A$ for spirals,
    `alpha=2.0`, `beta=-1.2` for turbulence; `ETDRK4` with `dt=0.1`.

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
        sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=1.0, dt=0.05, solver=sciml.solvers.ETDRK4())
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
