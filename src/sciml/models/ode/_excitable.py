"""Relaxation oscillators and excitable cells."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._events import Event
from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class VanDerPol(AbstractModel):
    r"""The van der Pol oscillator in its own time.

    $$\dot x = v, \qquad \dot v = \mu (1 - x^2) v - x$$

    The state is $(x, v)$, shape `(2,)`. It is stiff when $\mu$ is large; see also
    `VanDerPolScaled`, in which one cycle takes about 1.6 for any stiffness.

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


class FitzHughNagumo(AbstractModel):
    r"""An excitable nerve cell with a fast voltage and a slow recovery.

    $$\dot v = v - \frac{v^3}{3} - w + I, \qquad \dot w = \varepsilon (v + a - b w)$$

    The state is $(v, w)$, voltage and recovery, shape `(2,)`. Everything is dimensionless.

    Good values: the defaults spike repeatedly from `y0 = (-1, 1)`, time from 0 to 100; with
    `current=0` the cell comes to rest.

    Attributes:
        a: Offset of the recovery.
        b: Damping of the recovery.
        epsilon: Speed of the recovery over the speed of the voltage.
        current: The stimulus $I$.

    Source:
        R. FitzHugh, Biophysical Journal 1:445, 1961; J. Nagumo, S. Arimoto and S. Yoshizawa,
        Proc. IRE 50:2061, 1962.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import FitzHughNagumo

        rates = FitzHughNagumo()(0.0, jnp.array([0.0, 0.0]), None)
        assert jnp.allclose(rates, jnp.array([0.5, 0.056]))
        ```
    """

    a: Parameter = eqx.field(default=0.7, converter=parameter)
    b: Parameter = eqx.field(default=0.8, converter=parameter)
    epsilon: Parameter = eqx.field(default=0.08, converter=parameter)
    current: Parameter = eqx.field(default=0.5, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 2"], args: Args) -> Float[Array, " 2"]:
        """Returns the time derivative of $(v, w)$; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        v, w = y[0], y[1]
        return jnp.stack([v - v**3 / 3 - w + p.current, p.epsilon * (v + p.a - p.b * w)])


class IntegrateAndFire(AbstractModel):
    r"""A nerve cell that leaks, is charged by a current, and fires at a threshold.

    $$\tau \dot V = E - V + R I, \qquad V \to V_r \text{ where } V = \theta$$

    The state is $(V)$, the voltage over the membrane, shape `(1,)`. The vector field is the charging; a spike is an
    event, `events=neuron.spike()`.

    Good values: the defaults, in mV, ms, megaohm and nA, from `y0 = (-65,)`, time from 0 to 100. Below a current of
    1.5 nA it never fires; `sciml.verify.reference("firing_period")` is its period.

    Attributes:
        time_constant: $\tau$ of the membrane, ms.
        rest: $E$, the voltage at rest without a current, mV.
        resistance: $R$ of the membrane, megaohm.
        current: $I$ that is injected, nA.
        threshold: $\theta$, at which it fires, mV.
        reset: $V_r$, the voltage after a spike, mV.

    Source:
        L. Lapicque, J. Physiol. Pathol. Gen. 9:620, 1907. Values: P. Dayan and L. F. Abbott, Theoretical Neuroscience,
        2001, figure 5.5.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        neuron = sciml.models.IntegrateAndFire(current=2.0)
        sol = sciml.solve(neuron, jnp.array([-65.0]), t0=0.0, t1=50.0, events=neuron.spike())
        assert sol.events.count == 3  # a spike every 13.9 ms
        ```
    """

    time_constant: Parameter = eqx.field(default=10.0, converter=parameter)
    rest: Parameter = eqx.field(default=-65.0, converter=parameter)
    resistance: Parameter = eqx.field(default=10.0, converter=parameter)
    current: Parameter = eqx.field(default=2.0, converter=parameter)
    threshold: Parameter = eqx.field(default=-50.0, converter=parameter)
    reset: Parameter = eqx.field(default=-65.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 1"], args: Args) -> Float[Array, " 1"]:
        """Returns the rate of the voltage; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        return (p.rest - y + p.resistance * p.current) / p.time_constant

    def spike(self) -> Event:
        """Returns the event in which the voltage reaches the threshold and is reset."""
        return Event(self.above_threshold, self.after_spike, direction=1)

    def above_threshold(self, t: RealScalarLike, y: Float[Array, " 1"], args: Args) -> Float[Array, ""]:
        """Returns by how much the voltage is above the threshold."""
        del t, args
        return y[0] - with_dtype(self, y.dtype).threshold

    def after_spike(self, t: RealScalarLike, y: Float[Array, " 1"], args: Args) -> Float[Array, " 1"]:
        """Returns the state after a spike."""
        del t, args
        return jnp.reshape(with_dtype(self, y.dtype).reset, (1,))
