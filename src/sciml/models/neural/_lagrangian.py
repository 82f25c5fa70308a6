"""A mechanical system whose Lagrangian networks give."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_count, check_key
from ..._choices import choices
from ..._interfaces._model import AbstractModel
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from ._network import Network
from ._term import check_vector, scaled, sizes


class LagrangianNetwork(AbstractModel):
    r"""A Lagrangian neural network: inertia and potential are learnt, the equations of motion follow.

    $$L = \tfrac12 \dot q^T M_\theta(q) \dot q - V_\theta(q), \qquad
    \frac{\mathrm{d}}{\mathrm{d}t} \frac{\partial L}{\partial \dot q} = \frac{\partial L}{\partial q}
    \;\Rightarrow\;
    \ddot q = M_\theta^{-1} \Bigl( \frac{\partial L}{\partial q} -
    \frac{\partial^2 L}{\partial \dot q \, \partial q} \dot q \Bigr)$$

    The state is $(q, \dot q)$, coordinates and then velocities, shape `(2 * size,)`: coordinates may be angles, or
    whatever was measured, and momenta need not be known. $M = A A^T + \varepsilon$ with a triangular $A(q)$ is
    positive definite whatever the weights are, so that the solve never fails, as it may for a network of $L$ as a
    whole. The energy is conserved.

    Attributes:
        root: The network of $A - 1$.
        potential_net: $V_\theta$.
        scale: The size of each coordinate.
        least_mass: $\varepsilon$.

    Args:
        size: The number of coordinates.
        width: The number of neurons in each hidden layer of both networks.
        depth: The number of hidden layers.
        activation: A smooth function of arrays, between the layers.
        scale: The size of the coordinates, a number or one for each.
        least_mass: $\varepsilon$.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or the state has another shape.

    Source:
        M. Lutter, C. Ritter and J. Peters, Deep Lagrangian Networks, ICLR 2019; M. Cranmer et al., Lagrangian Neural
        Networks, arXiv:2003.04630, 2020.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models.neural import LagrangianNetwork

        model = LagrangianNetwork(2, width=8, key=jax.random.key(0))  # such as a double pendulum
        y = jnp.array([0.3, -0.7, 0.2, 0.1])
        rate_of_energy = jax.jvp(model.energy, (y,), (model(0.0, y, None),))[1]
        assert abs(rate_of_energy) < 1e-6
        ```
    """

    root: Network
    potential_net: Network
    scale: tuple[float, ...] = eqx.field(static=True)
    least_mass: float = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        width: int = 32,
        depth: int = 2,
        *,
        activation: Callable = jnp.tanh,
        scale: Any = 1.0,
        least_mass: float = 1e-3,
        key: Key,
    ):
        size = check_count(size, "size", "LagrangianNetwork")
        (self.least_mass,) = sizes(least_mass, 1, "least_mass")
        self.scale = sizes(scale, size, "scale")
        keys = jax.random.split(check_key(key, "LagrangianNetwork"))
        options: dict[str, Any] = dict(width=width, depth=depth, activation=activation)
        self.root = Network(size, size * (size + 1) // 2, **options, key=keys[0])
        self.potential_net = Network(size, "scalar", **options, key=keys[1])

    def mass(self, q: Float[Array, " size"]) -> Float[Array, "size size"]:
        """Returns the matrix of inertia at coordinates."""
        n = len(self.scale)
        check_vector(q, n)
        root = lower_triangle(with_dtype(self.root, q.dtype)(scaled(q, self.scale)), n) + jnp.eye(n, dtype=q.dtype)
        return root @ root.T + self.least_mass * jnp.eye(n, dtype=q.dtype)

    def potential(self, q: Float[Array, " size"]) -> Float[Array, ""]:
        """Returns the potential energy at coordinates."""
        return with_dtype(self.potential_net, q.dtype)(scaled(q, self.scale))

    def lagrangian(self, q: Float[Array, " size"], v: Float[Array, " size"]) -> Float[Array, ""]:
        """Returns $L$, kinetic minus potential energy."""
        return v @ self.mass(q) @ v / 2 - self.potential(q)

    def energy(self, y: Float[Array, " both"]) -> Float[Array, ""]:
        """Returns the energy of a state, kinetic and potential."""
        q, v = jnp.split(y, 2)
        return v @ self.mass(q) @ v / 2 + self.potential(q)

    def __call__(self, t: RealScalarLike, y: Float[Array, " both"], args: Args) -> Float[Array, " both"]:
        """Returns velocities and accelerations; `t` and `args` are not used."""
        del t, args
        check_vector(y, 2 * len(self.scale))
        q, v = jnp.split(y, 2)
        # the rate of the momentum M(q) v along the path, with the velocity held
        _, drift = jax.jvp(lambda q: self.mass(q) @ v, (q,), (v,))
        force = jax.grad(self.lagrangian)(q, v) - drift
        return jnp.concatenate([v, solve_positive(self.mass(q), force)])


def lower_triangle(entries: Float[Array, " entries"], n: int) -> Float[Array, "n n"]:
    """Returns a lower triangular matrix of its entries, row by row."""
    ends = [i * (i + 1) // 2 for i in range(n + 1)]
    rows = [jnp.pad(entries[a:b], (0, n - 1 - i)) for i, (a, b) in enumerate(zip(ends, ends[1:]))]
    return jnp.stack(rows)


def solve_positive(matrix: Float[Array, "n n"], right: Float[Array, " n"]) -> Float[Array, " n"]:
    """Returns the solution of a positive definite system: small ones by elimination, which needs no pivots there."""
    n = len(right)
    if n > choices().linear.positive_at_most:
        return jnp.linalg.solve(matrix, right)
    rows, values = [matrix[i] for i in range(n)], [right[i] for i in range(n)]
    for k in range(n):
        for i in range(k + 1, n):
            factor = rows[i][k] / rows[k][k]
            rows[i], values[i] = rows[i] - factor * rows[k], values[i] - factor * values[k]
    for k in reversed(range(n)):
        for j in range(k + 1, n):
            values[k] = values[k] - rows[k][j] * values[j]
        values[k] = values[k] / rows[k][k]
    return jnp.stack(values)
