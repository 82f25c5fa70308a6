"""The neural ODE with further dimensions."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_count
from ..._interfaces._model import AbstractModel
from ..._types import Args, Key, RealScalarLike
from ._clocks import AbstractClock
from ._term import NeuralTerm, check_vector


class AugmentedNeuralODE(AbstractModel):
    r"""An augmented neural ODE: further components, which nobody sees, start at zero.

    $$\dot z = N_\theta(z), \qquad z(0) = (y_0, 0), \qquad y = (z_1, \ldots, z_n)$$

    What is seen may cross its own path, and maps that no flow of $n$ dimensions makes, such as $y \to -y$ on a line,
    are flows of more. Second-order equations need it too, where positions alone are seen.

    Attributes:
        term: The network.
        size: $n$, how many components are seen.
        extra: How many are not.

    Args:
        size: $n$.
        extra: How many more there are.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers.
        clock: What the network is told of time: `Elapsed`, `Seasons`, or None.
        scale: The size of the components, a number or one for each of all.
        unit: The size of their rates, likewise.
        gain: By what the last layer is multiplied at the start.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or the state has another shape.

    Source:
        E. Dupont, A. Doucet and Y. W. Teh, Augmented Neural ODEs, NeurIPS 2019.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models.neural import AugmentedNeuralODE

        model = AugmentedNeuralODE(1, extra=1, key=jax.random.key(0))
        sol = sciml.solve(model, model.start(jnp.ones(1)), t0=0.0, t1=1.0)
        assert model.observe(sol.ys).shape == (1, 1)
        ```
    """

    term: NeuralTerm
    size: int = eqx.field(static=True)
    extra: int = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        extra: int,
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
        self.size = check_count(size, "size", "AugmentedNeuralODE")
        self.extra = check_count(extra, "extra", "AugmentedNeuralODE")
        options = dict(activation=activation, clock=clock, scale=scale, unit=unit, gain=gain)
        self.term = NeuralTerm(size + extra, None, width, depth, **options, key=key)

    def start(self, y0: Float[Array, " size"]) -> Float[Array, " all"]:
        """Returns the initial state: what is seen, and zeros."""
        check_vector(y0, self.size)
        return jnp.concatenate([y0, jnp.zeros(self.extra, y0.dtype)])

    def observe(self, z: Float[Array, "*times all"]) -> Float[Array, "*times size"]:
        """Returns what is seen of states, those of a solution too."""
        return z[..., : self.size]

    def __call__(self, t: RealScalarLike, y: Float[Array, " all"], args: Args) -> Float[Array, " all"]:
        """Returns the rates of all components; `args` is not used."""
        return self.term(t, y, args)
