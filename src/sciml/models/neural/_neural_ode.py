"""The neural ordinary differential equation."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._types import Args, Key, RealScalarLike
from ._clocks import AbstractClock
from ._term import NeuralTerm


class NeuralODE(AbstractModel):
    r"""A neural ODE: all that is known of the vector field is that a network gives it.

    $$\dot y = N_\theta(y) \quad \text{or} \quad \dot y = N_\theta(y, c(t))$$

    The state is a vector, shape `(size,)`. Trajectories do not cross, nor does what follows from them: where more
    freedom is needed, take `AugmentedNeuralODE`; where part of the equation is known, `UniversalODE`.

    Good values: `scale` as large as the state varies, `unit` as large as it changes in a unit of time; a width of 16
    to 64.

    Attributes:
        term: The network, with what it is told of time.

    Args:
        size: The number of components of the state.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers; a smooth one, since solvers estimate errors by
            derivatives.
        clock: What the network is told of time: `Elapsed`, `Seasons`, or None.
        scale: The size of the state's components, a number or one for each.
        unit: The size of their rates, likewise.
        gain: By what the last layer is multiplied at the start.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or the state has another shape.

    Source:
        R. T. Q. Chen, Y. Rubanova, J. Bettencourt and D. Duvenaud, Neural Ordinary Differential Equations, NeurIPS
        2018.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models.neural import NeuralODE

        model = NeuralODE(2, width=16, key=jax.random.key(0))
        sol = sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0, saveat=jnp.linspace(0.0, 1.0, 5))
        slope = jax.grad(lambda model: sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0).ys[-1, 0])(model)
        assert sol.ys.shape == (5, 2) and slope.term.net.layers[0].weight.shape == (16, 2)
        ```
    """

    term: NeuralTerm

    def __init__(
        self,
        size: int,
        width: int = 32,
        depth: int = 2,
        *,
        activation: Callable = jnp.tanh,
        clock: AbstractClock | None = None,
        scale: Any = 1.0,
        unit: Any = 1.0,
        gain: float = 1.0,
        key: Key,
    ):
        options = dict(activation=activation, clock=clock, scale=scale, unit=unit, gain=gain)
        self.term = NeuralTerm(size, size, width, depth, **options, key=key)

    def __call__(self, t: RealScalarLike, y: Float[Array, " size"], args: Args) -> Float[Array, " size"]:
        """Returns the rates; `args` is not used."""
        return self.term(t, y, args)
