"""Linear and chaotic systems of first order."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class Linear(AbstractModel):
    r"""A linear system with constant coefficients, $\dot y = A y$.

    The state has shape `(n,)`.

    Good values: `matrix = [[-1, 4], [-4, -1]]`, `y0 = (1, 0)`, time from 0 to 2.

    Attributes:
        matrix: The matrix $A$, shape `(n, n)`, 1/time.

    Source:
        Any textbook; the solution is $e^{A t} y_0$.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Linear

        rotation = Linear([[0.0, 1.0], [-1.0, 0.0]])
        assert jnp.all(rotation(0.0, jnp.array([1.0, 0.0]), None) == jnp.array([0.0, -1.0]))
        ```
    """

    matrix: Float[Array, "... n n"] = eqx.field(converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, " n"]:
        """Returns $A y$; `t` and `args` are not used."""
        del t, args
        return jnp.matmul(with_dtype(self, y.dtype).matrix, y)


class Lorenz63(AbstractModel):
    r"""Convection cut down to three modes; chaotic for the default values.

    $$\dot x = \sigma (y - x), \qquad \dot y = x (\rho - z) - y, \qquad \dot z = x y - \beta z$$

    The state is $(x, y, z)$, shape `(3,)`. Everything is dimensionless.

    Good values: the defaults, with `y0 = (1, 0, 0)`; time from 0 to 1 can be compared digit by
    digit, from 0 to 20 shows the attractor. For `rho < 1` the origin attracts everything, for
    `1 < rho < 24.74` so do the two fixed points.

    Attributes:
        sigma: Prandtl number.
        rho: Rayleigh number over its critical value.
        beta: Aspect ratio of the convection cells.

    Source:
        E. N. Lorenz, Deterministic Nonperiodic Flow, J. Atmos. Sci. 20:130, 1963.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models import Lorenz63

        y = jnp.array([1.0, 2.0, 3.0])
        field = jax.vmap(lambda rho: Lorenz63(rho=rho)(0.0, y, None))
        assert field(jnp.array([0.0, 14.0, 28.0])).shape == (3, 3)
        ```
    """

    sigma: Parameter = eqx.field(default=10.0, converter=parameter)
    rho: Parameter = eqx.field(default=28.0, converter=parameter)
    beta: Parameter = eqx.field(default=8.0 / 3.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 3"], args: Args) -> Float[Array, " 3"]:
        """Returns the time derivative of $(x, y, z)$; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        x1, x2, x3 = y[0], y[1], y[2]
        return jnp.stack(
            [
                p.sigma * (x2 - x1),
                x1 * (p.rho - x3) - x2,
                x1 * x2 - p.beta * x3,
            ]
        )


class Lorenz96(AbstractModel):
    r"""A quantity advected, damped and forced on a ring of $n$ sites, like weather on a latitude.

    $$\dot x_i = (x_{i+1} - x_{i-2}) x_{i-1} - x_i + F, \qquad i \bmod n$$

    The state has shape `(n,)` with $n \ge 4$. One unit of time is about five days of weather.

    Good values: `forcing=8` and `n=40` are chaotic; start from `y0 = 8` everywhere and `8.01` at
    one site, time from 0 to 5. Below `forcing = 8/9` the rest state attracts.

    Attributes:
        forcing: The constant forcing $F$.

    Source:
        E. N. Lorenz, Predictability: a problem partly solved, ECMWF seminar, 1996.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Lorenz96

        y = jnp.full(40, 8.0)
        assert jnp.all(Lorenz96()(0.0, y, None) == 0.0)  # rest is an unstable steady state
        ```
    """

    forcing: Parameter = eqx.field(default=8.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, " n"]:
        """Returns the time derivative at every site; `t` and `args` are not used.

        Raises:
            ValueError: If there are fewer than four sites.
        """
        del t, args
        if y.shape[0] < 4:
            raise ValueError(f"Lorenz96 needs at least four sites, but `y` has shape {y.shape}.")
        p = with_dtype(self, y.dtype)
        return (jnp.roll(y, -1) - jnp.roll(y, 2)) * jnp.roll(y, 1) - y + p.forcing
