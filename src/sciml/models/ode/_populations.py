"""Populations: of animals, of the infected, of blood cells."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._delayed import AbstractDelayed
from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class Logistic(AbstractModel):
    r"""Growth that saturates at a capacity.

    $$\dot y = r y \left(1 - \frac{y}{K}\right)$$

    The state may have any shape; every element grows for itself.

    Good values: the defaults, `y0 = 0.1`, time from 0 to 10.

    Attributes:
        rate: Growth rate of a small population $r$, 1/time.
        capacity: The population that can live $K$.

    Source:
        P.-F. Verhulst, Correspondance mathematique et physique 10:113, 1838. The solution is
        $K / (1 + (K/y_0 - 1) e^{-r t})$.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Logistic

        rates = Logistic(rate=2.0, capacity=4.0)(0.0, jnp.array([0.0, 2.0, 4.0]), None)
        assert jnp.all(rates == jnp.array([0.0, 2.0, 0.0]))
        ```
    """

    rate: Parameter = eqx.field(default=1.0, converter=parameter)
    capacity: Parameter = eqx.field(default=1.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, "*shape"], args: Args) -> Float[Array, "*shape"]:
        """Returns the growth of every element; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        return p.rate * y * (1 - y / p.capacity)


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


class SIR(AbstractModel):
    r"""An epidemic among susceptible, infected and recovered people.

    $$\dot S = -\beta \frac{S I}{N}, \qquad \dot I = \beta \frac{S I}{N} - \gamma I, \qquad
    \dot R = \gamma I, \qquad N = S + I + R$$

    The state is $(S, I, R)$, shape `(3,)`, in people or in fractions of the population. The
    basic reproduction number is $\beta / \gamma$.

    Good values: the defaults describe influenza in an English boarding school in 1978, with
    `y0 = (762, 1, 0)` and time from 0 to 14 days.

    Attributes:
        beta: Rate of infectious contacts, 1/day.
        gamma: Rate of recovery, 1/day.

    Source:
        W. O. Kermack and A. G. McKendrick, Proc. R. Soc. A 115:700, 1927. Values: J. D. Murray,
        Mathematical Biology, chapter on epidemic models (r = 2.18e-3 per person and day,
        relative removal rate 202, 763 boys).

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import SIR

        rates = SIR(beta=0.5, gamma=0.25)(0.0, jnp.array([0.5, 0.5, 0.0]), None)
        assert jnp.allclose(rates, jnp.array([-0.125, 0.0, 0.125]))
        ```
    """

    beta: Parameter = eqx.field(default=1.66, converter=parameter)
    gamma: Parameter = eqx.field(default=0.44, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 3"], args: Args) -> Float[Array, " 3"]:
        """Returns the rates of change of the three groups; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        susceptible, infected = y[0], y[1]
        infection = p.beta * susceptible * infected / self.total(y)
        recovery = p.gamma * infected
        return jnp.stack([-infection, infection - recovery, recovery])

    def total(self, y: Float[Array, " 3"]) -> Float[Array, ""]:
        """Returns the population $N$, constant in time."""
        return y[0] + y[1] + y[2]

    def invariant(self, y: Float[Array, " 3"]) -> Float[Array, ""]:
        r"""Returns $S + I - N \frac{\gamma}{\beta} \ln S$, constant along an orbit."""
        p = with_dtype(self, y.dtype)
        susceptible, infected = y[0], y[1]
        return susceptible + infected - self.total(y) * p.gamma / p.beta * jnp.log(susceptible)


class MackeyGlass(AbstractDelayed):
    r"""White blood cells, whose making answers late to how many there are.

    $$\dot x = \beta \frac{x_\tau}{1 + x_\tau^n} - \gamma x, \qquad x_\tau = x(t - \tau)$$

    The state is $x$, their density over what halves the making, shape `()`. Before the start it is constant.

    Good values: the defaults, chaotic, with `y0 = 1.2` and time in days from 0 to 600. For delays below 4.71 it comes
    to rest at one (`sciml.verify.reference("mackey_glass_onset")`), and with a delay of 6 it oscillates.

    Attributes:
        production: $\beta$, 1/time.
        loss: $\gamma$, 1/time.
        exponent: $n$.
        delay: $\tau$, the time that a cell takes to ripen.
        initial: The state before the start.
        kept: How many of the last steps are kept; see `sciml.Delayed`.

    Source:
        M. C. Mackey and L. Glass, Oscillation and chaos in physiological control systems, Science 197:287, 1977, with
        its values.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        cells = sciml.models.MackeyGlass(delay=3.0)
        sol = sciml.solve(cells, 1.2, t0=0.0, t1=200.0, dt=0.5)
        assert abs(sol.ys[-1] - 1.0) < 1e-3
        ```
    """

    production: Parameter = eqx.field(default=0.2, converter=parameter)
    loss: Parameter = eqx.field(default=0.1, converter=parameter)
    exponent: Parameter = eqx.field(default=10.0, converter=parameter)
    delay: Parameter = eqx.field(default=17.0, converter=parameter)
    initial: Parameter = eqx.field(default=1.2, converter=parameter)
    kept: int = eqx.field(default=64, static=True)

    @property
    def delays(self) -> Parameter:
        """The delay."""
        return self.delay

    def rate(
        self, t: RealScalarLike, y: Float[Array, ""], delayed: tuple[Float[Array, ""]], args: Args
    ) -> Float[Array, ""]:
        """Returns production minus loss; `t` and `args` are not used."""
        del t, args
        p, (past,) = with_dtype(self, y.dtype), delayed
        return p.production * past / (1 + past**p.exponent) - p.loss * y

    def before(self, t: RealScalarLike, args: Args) -> Float[Array, ""]:
        """Returns the state before the start; `args` is not used."""
        del args
        return with_dtype(self, jnp.result_type(t)).initial
