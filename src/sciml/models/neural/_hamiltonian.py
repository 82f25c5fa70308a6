"""A system whose energy a network gives."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_count
from ..._interfaces._model import AbstractModel
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from ._network import Network
from ._term import check_vector, scaled, sizes


class HamiltonianNetwork(AbstractModel):
    r"""A Hamiltonian neural network: the energy is learnt, and conserved whatever the weights are.

    $$\dot q = \frac{\partial H_\theta}{\partial p}, \qquad \dot p = -\frac{\partial H_\theta}{\partial q}$$

    The state is $(q, p)$, coordinates and then momenta, shape `(2 * size,)`. The energy is constant along exact
    solutions; a solver keeps it to its tolerance, or, with `sciml.solve(..., project=...)`, to rounding. Where the
    energy is kinetic and potential, take `PotentialNetwork`, which symplectic methods solve.

    Attributes:
        net: $H_\theta$.
        scale: The size of each component of the state.

    Args:
        size: The number of coordinates.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A smooth function of arrays, between the layers.
        scale: The size of the state's components, a number or one for each.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or the state has another shape.

    Source:
        S. Greydanus, M. Dzamba and J. Yosinski, Hamiltonian Neural Networks, NeurIPS 2019.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models.neural import HamiltonianNetwork

        model = HamiltonianNetwork(1, width=8, key=jax.random.key(0))
        y = jnp.array([0.3, -0.7])
        rate_of_energy = jax.jvp(model.energy, (y,), (model(0.0, y, None),))[1]
        assert abs(rate_of_energy) < 1e-6
        ```
    """

    net: Network
    scale: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        width: int = 32,
        depth: int = 2,
        *,
        activation: Callable = jnp.tanh,
        scale: Any = 1.0,
        key: Key,
    ):
        count = 2 * check_count(size, "size", "HamiltonianNetwork")
        self.scale = sizes(scale, count, "scale")
        self.net = Network(count, "scalar", width, depth, activation=activation, key=key)

    def energy(self, y: Float[Array, " both"]) -> Float[Array, ""]:
        """Returns the energy of a state."""
        check_vector(y, len(self.scale))
        return with_dtype(self.net, y.dtype)(scaled(y, self.scale))

    def __call__(self, t: RealScalarLike, y: Float[Array, " both"], args: Args) -> Float[Array, " both"]:
        """Returns the rates of coordinates and momenta; `t` and `args` are not used."""
        del t, args
        by_q, by_p = jnp.split(jax.grad(self.energy)(y), 2)
        return jnp.concatenate([by_p, -by_q])
