"""Motion in a potential that a network gives."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_count
from ..._interfaces._model import AbstractSecondOrder
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from ._network import Network
from ._term import check_vector, scaled, sizes


class PotentialNetwork(AbstractSecondOrder):
    r"""A separable Hamiltonian network: motion in a potential that is learnt, with masses that are learnt.

    $$m_i \ddot q_i = -\frac{\partial V_\theta}{\partial q_i}, \qquad
    E = \sum_i \tfrac12 m_i \dot q_i^2 + V_\theta(q)$$

    The state is the pair $(q, v)$ of positions and velocities, each of shape `(size,)`. `sciml.solve` takes a
    symplectic method, such as `sciml.solvers.VelocityVerlet` or `Yoshida4`: the energy of what was learnt neither
    grows nor decays, for as long as one likes.

    Attributes:
        net: $V_\theta$.
        log_mass: $\ln m$. The unit of mass is that of the energy: with one coordinate, or equal masses, fix it by
            `where`.
        scale: The size of each position.

    Args:
        size: The number of coordinates.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A smooth function of arrays, between the layers.
        scale: The size of the positions, a number or one for each.
        mass: The masses at the start, a number or one for each.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or the positions have another shape.

    Source:
        S. Greydanus, M. Dzamba and J. Yosinski, Hamiltonian Neural Networks, NeurIPS 2019; Z. Chen, J. Zhang,
        M. Arjovsky and L. Bottou, Symplectic Recurrent Neural Networks, ICLR 2020.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models.neural import PotentialNetwork

        model = PotentialNetwork(2, width=8, key=jax.random.key(0))
        start = jnp.array([1.0, 0.0]), jnp.array([0.0, 0.1])
        sol = sciml.solve(model, start, t0=0.0, t1=10.0, dt=0.1, solver=sciml.solvers.Yoshida4())
        end = jax.tree.map(lambda x: x[-1], sol.ys)
        assert abs(model.energy(end) - model.energy(start)) < 1e-5
        ```
    """

    net: Network
    log_mass: Float[Array, " size"]
    scale: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        width: int = 32,
        depth: int = 2,
        *,
        activation: Callable = jnp.tanh,
        scale: Any = 1.0,
        mass: Any = 1.0,
        key: Key,
    ):
        size = check_count(size, "size", "PotentialNetwork")
        self.scale = sizes(scale, size, "scale")
        self.log_mass = jnp.log(jnp.asarray(sizes(mass, size, "mass"), jnp.result_type(float)))
        self.net = Network(size, "scalar", width, depth, activation=activation, key=key)

    def potential(self, q: Float[Array, " size"]) -> Float[Array, ""]:
        """Returns the potential energy at positions."""
        check_vector(q, len(self.scale))
        return with_dtype(self.net, q.dtype)(scaled(q, self.scale))

    def energy(self, y: tuple[Float[Array, " size"], Float[Array, " size"]]) -> Float[Array, ""]:
        """Returns the energy of a state."""
        q, v = y
        return jnp.sum(jnp.exp(self.log_mass.astype(v.dtype)) * v**2) / 2 + self.potential(q)

    def acceleration(self, t: RealScalarLike, q: Float[Array, " size"], args: Args) -> Float[Array, " size"]:
        """Returns the forces over the masses; `t` and `args` are not used."""
        del t, args
        return -jax.grad(self.potential)(q) * jnp.exp(-self.log_mass.astype(q.dtype))
