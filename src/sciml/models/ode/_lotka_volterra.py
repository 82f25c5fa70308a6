"""The Lotka-Volterra equations of predator and prey."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class LotkaVolterra(AbstractModel):
    r"""Predator and prey.

    $$\dot x = \alpha x - \beta x y, \qquad \dot y = \delta x y - \gamma y$$

    The state is $(x, y)$, prey and predator, shape `(2,)`. The orbits are closed around the fixed
    point $(\gamma/\delta, \alpha/\beta)$.

    Good values: the defaults are the posterior means for lynx and hare in the record of the
    Hudson's Bay Company, 1900-1920, in thousands of pelts and years, with
    `y0 = (33.96, 5.93)` and time from 0 to 20.

    Attributes:
        alpha: Birth rate of the prey, 1/time.
        beta: Rate of predation, 1/(predators x time).
        gamma: Death rate of the predators, 1/time.
        delta: Growth of the predators by predation, 1/(prey x time).

    Source:
        A. J. Lotka, Elements of Physical Biology, 1925; V. Volterra, Nature 118:558, 1926. Values:
        B. Carpenter, Predator-Prey Population Dynamics, Stan case study, 2018.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import LotkaVolterra

        model = LotkaVolterra(alpha=1.0, beta=0.5, gamma=1.0, delta=0.25)
        assert jnp.allclose(model(0.0, jnp.array([4.0, 2.0]), None), 0.0)  # the fixed point
        ```
    """

    alpha: Parameter = eqx.field(default=0.545, converter=parameter)
    beta: Parameter = eqx.field(default=0.028, converter=parameter)
    gamma: Parameter = eqx.field(default=0.803, converter=parameter)
    delta: Parameter = eqx.field(default=0.024, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 2"], args: Args) -> Float[Array, " 2"]:
        """Returns the rates of change of prey and predator; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        prey, predator = y[0], y[1]
        return jnp.stack(
            [
                prey * (p.alpha - p.beta * predator),
                predator * (p.delta * prey - p.gamma),
            ]
        )

    def invariant(self, y: Float[Array, " 2"]) -> Float[Array, ""]:
        r"""Returns $\delta x - \gamma \ln x + \beta y - \alpha \ln y$, constant along an orbit."""
        p = with_dtype(self, y.dtype)
        prey, predator = y[0], y[1]
        return (p.delta * prey - p.gamma * jnp.log(prey)) + (p.beta * predator - p.alpha * jnp.log(predator))
