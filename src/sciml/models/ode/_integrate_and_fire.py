"""The leaky integrate-and-fire neuron."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._events import Event
from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class IntegrateAndFire(AbstractModel):
    r"""A nerve cell that leaks, is charged by a current, and fires at a threshold.

    $$\tau \dot V = E - V + R I, \qquad V \to V_r \text{ where } V = \theta$$

    The state is $(V)$, the voltage over the membrane, shape `(1,)`. The vector field is the charging; a spike is an
    event, `events=neuron.spike()`.

    Good values: the defaults, in mV, ms, megaohm and nA, from `y0 = (-65,)`, time from 0 to 100. Below a current of
    1.5 nA it never fires; `sciml.verify.reference("firing_period")` is its period.

    Attributes:
        time_constant: $\tau$ of the membrane, ms.
        rest: $E$, where the voltage goes without a current, mV.
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
