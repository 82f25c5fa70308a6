"""The van der Pol oscillator, in its own time and in relaxation time."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class VanDerPol(AbstractModel):
    r"""The van der Pol oscillator in its own time.

    $$\dot x = v, \qquad \dot v = \mu (1 - x^2) v - x$$

    The state is $(x, v)$, shape `(2,)`. It is stiff when $\mu$ is large; see also
    `VanDerPolScaled`, in which one cycle takes about 1.6 whatever the stiffness.

    Good values: `mu=1`, `y0 = (2, 0)`, time from 0 to 20; stiff: `mu=1000`, time from 0 to 2000.

    Attributes:
        mu: Strength of the nonlinear damping.

    Source:
        B. van der Pol, On relaxation-oscillations, Phil. Mag. 2:978, 1926.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import VanDerPol

        assert jnp.allclose(VanDerPol(mu=5.0)(0.0, jnp.array([2.0, 1.0]), None), jnp.array([1.0, -17.0]))
        ```
    """

    mu: Parameter = eqx.field(default=1.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 2"], args: Args) -> Float[Array, " 2"]:
        """Returns the time derivative of $(x, v)$; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        position, velocity = y[0], y[1]
        return jnp.stack([velocity, p.mu * (1 - position**2) * velocity - position])


class VanDerPolScaled(AbstractModel):
    r"""The van der Pol oscillator in relaxation time, the form of the stiff test set.

    $$\dot x = w, \qquad \varepsilon \dot w = (1 - x^2) w - x$$

    The state is $(x, w)$, shape `(2,)`. It is `VanDerPol` with $\mu = \varepsilon^{-1/2}$, time
    $t/\mu$ and $w = \mu v$. Beware: published end values of the two forms differ by these factors.

    Good values: `epsilon=1e-6`, `y0 = (2, 0)`, time from 0 to 2, which needs a stiff solver.

    Attributes:
        epsilon: The small parameter $1/\mu^2$.

    Source:
        E. Hairer and G. Wanner, Solving Ordinary Differential Equations II, section IV.10.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import VanDerPolScaled

        model = VanDerPolScaled(epsilon=0.1)
        assert jnp.allclose(model(0.0, jnp.array([2.0, 1.0]), None), jnp.array([1.0, -50.0]))
        ```
    """

    epsilon: Parameter = eqx.field(default=1e-6, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 2"], args: Args) -> Float[Array, " 2"]:
        """Returns the time derivative of $(x, w)$; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        position, velocity = y[0], y[1]
        return jnp.stack([velocity, ((1 - position**2) * velocity - position) / p.epsilon])
