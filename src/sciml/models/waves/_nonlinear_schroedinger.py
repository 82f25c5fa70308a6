"""The nonlinear Schroedinger equation."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..._interfaces._model import AbstractSemilinear
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from .. import _fourier as fourier


class NonlinearSchroedinger(AbstractSemilinear):
    r"""The envelope of a wave in a nonlinear medium, or a condensate, periodic in one to three dimensions.

    $$i \psi_t = -\tfrac12 \nabla^2 \psi - g |\psi|^2 \psi$$

    With $g > 0$ the nonlinearity focuses and, in one dimension, bright solitons exist; with $g < 0$ it
    spreads. The state is the complex $\psi$ on a grid of the given shape. $\int |\psi|^2$ does not change.

    Good values: `shape=(256,)`, `length=40.0`, $\psi = \operatorname{sech}(x)\, e^{i v x}$, `ETDRK4` with `dt=0.01`.

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
        sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=1.0, dt=0.02, solver=sciml.solvers.ETDRK4())
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
