"""Mechanical systems whose energies networks give."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import check_count, check_key
from ..._choices import choices
from ..._interfaces._model import AbstractModel, AbstractSecondOrder
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from ._networks import Network
from ._universal import check_vector, scaled, sizes


class PotentialNetwork(AbstractSecondOrder):
    r"""A separable Hamiltonian network: motion in a potential that is learnt, with masses that are learnt.

    $$m_i \ddot q_i = -\frac{\partial V_\theta}{\partial q_i}, \qquad
    E = \sum_i \tfrac12 m_i \dot q_i^2 + V_\theta(q)$$

    The state is the pair $(q, v)$ of positions and velocities, each of shape `(size,)`. `sciml.solve` uses a symplectic
    method, such as `sciml.solvers.VelocityVerlet` or `Yoshida`: the energy of the learnt model neither grows nor decays
    over any length of time.

    Attributes:
        net: $V_\theta$.
        log_mass: $\ln m$. The unit of mass is the unit of the energy: with one coordinate, or equal masses, fix it by
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
        sol = sciml.solve(model, start, t0=0.0, t1=10.0, dt=0.1, solver=sciml.solvers.Yoshida(order=4))
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


class HamiltonianNetwork(AbstractModel):
    r"""A Hamiltonian neural network: the energy is learnt, and conserved for any weights.

    $$\dot q = \frac{\partial H_\theta}{\partial p}, \qquad \dot p = -\frac{\partial H_\theta}{\partial q}$$

    The state is $(q, p)$, coordinates and then momenta, shape `(2 * size,)`. The energy is constant along exact
    solutions; a solver keeps it to its tolerance, or, with `sciml.solve(..., project=...)`, to rounding. If the energy
    is kinetic plus potential, use `PotentialNetwork`, which symplectic methods support.

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


class LagrangianNetwork(AbstractModel):
    r"""A Lagrangian neural network: inertia and potential are learnt, the equations of motion follow.

    $$L = \tfrac12 \dot q^T M_\theta(q) \dot q - V_\theta(q), \qquad
    \frac{\mathrm{d}}{\mathrm{d}t} \frac{\partial L}{\partial \dot q} = \frac{\partial L}{\partial q}
    \;\Rightarrow\;
    \ddot q = M_\theta^{-1} \Bigl( \frac{\partial L}{\partial q} -
    \frac{\partial^2 L}{\partial \dot q \, \partial q} \dot q \Bigr)$$

    The state is $(q, \dot q)$, coordinates and then velocities, shape `(2 * size,)`: coordinates may be angles or other
    measured quantities, and momenta need not be known. $M = A A^T + \varepsilon$ with a triangular $A(q)$ is
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


class PortHamiltonian(AbstractModel):
    r"""A port-Hamiltonian network: energy that enters through ports is stored or dissipated.

    $$\dot x = \bigl(J_\theta(x) - R_\theta(x)\bigr) \nabla H_\theta(x) + G_\theta(x) \, u(t), \qquad
    y = G_\theta(x)^T \nabla H_\theta(x)$$

    $J$ is antisymmetric and $R = B B^T$ positive semidefinite whatever the weights are, so that power is balanced,

    $$\dot H = -\lvert B^T \nabla H \rvert^2 + y^T u \le y^T u,$$

    and the system is passive. $H = \tfrac12 k \lvert x \rvert^2 + \tfrac12 \lvert N(x) \rvert^2$ is bounded below,
    and solutions without input stay bounded for ever. The state is a vector of shape `(size,)`.

    Attributes:
        root: $N$, the network of the energy.
        structure: The network of the entries of $J$, $B$ and $G$.
        log_stiffness: $\ln k$.
        scale: The size of each component of the state.
        inputs: The number of ports.

    Args:
        size: The number of components of the state.
        inputs: The number of ports, 0 for a system that is closed but for its losses.
        width: The number of neurons in each hidden layer of both networks.
        depth: The number of hidden layers.
        activation: A smooth function of arrays, between the layers.
        scale: The size of the state's components, a number or one for each.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or state or input have another shape.

    Source:
        A. van der Schaft and D. Jeltsema, Port-Hamiltonian Systems Theory, 2014; S. A. Desai et al., Port-Hamiltonian
        neural networks for learning explicit time-dependent dynamical systems, Phys. Rev. E 104:034312, 2021.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models.neural import PortHamiltonian

        model = PortHamiltonian(2, inputs=1, width=8, key=jax.random.key(0))
        push = lambda t: jnp.sin(t)[None]
        sol = sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0, args=push)  # or a `sciml.Held`, or an array
        structure, losses, ports = model.matrices(sol.ys[-1])
        assert (structure == -structure.T).all() and ports.shape == (2, 1)
        ```
    """

    root: Network
    structure: Network
    log_stiffness: Float[Array, ""]
    scale: tuple[float, ...] = eqx.field(static=True)
    inputs: int = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        inputs: int = 0,
        width: int = 32,
        depth: int = 2,
        *,
        activation: Callable = jnp.tanh,
        scale: Any = 1.0,
        key: Key,
    ):
        size = check_count(size, "size", "PortHamiltonian")
        if isinstance(inputs, bool) or not isinstance(inputs, int) or inputs < 0:
            raise ValueError(f"`PortHamiltonian(inputs=...)` must be at least 0, but is {inputs!r}.")
        self.scale, self.inputs = sizes(scale, size, "scale"), inputs
        keys = jax.random.split(check_key(key, "PortHamiltonian"))
        options: dict[str, Any] = dict(width=width, depth=depth, activation=activation)
        self.root = Network(size, size, **options, key=keys[0])
        self.structure = Network(size, size * size + size * inputs, **options, key=keys[1])
        self.log_stiffness = jnp.zeros((), jnp.result_type(float))

    def energy(self, x: Float[Array, " size"]) -> Float[Array, ""]:
        """Returns $H$."""
        check_vector(x, len(self.scale))
        p = with_dtype(self, x.dtype)
        x = scaled(x, self.scale)
        return jnp.exp(p.log_stiffness) * jnp.sum(x**2) / 2 + jnp.sum(p.root(x) ** 2) / 2

    def matrices(
        self, x: Float[Array, " size"]
    ) -> tuple[Float[Array, "size size"], Float[Array, "size size"], Float[Array, "size inputs"]]:
        """Returns $J$, $R$ and $G$ at a state."""
        skew, root, ports = self._parts(x)
        return skew, root @ root.T, ports

    def _parts(self, x: Float[Array, " size"]) -> tuple[Array, Array, Array]:
        """Returns $J$, $B$ and $G$."""
        n = len(self.scale)
        entries = with_dtype(self.structure, x.dtype)(scaled(x, self.scale))
        of_skew, of_root = n * (n - 1) // 2, n * (n + 1) // 2
        below = jnp.pad(lower_triangle(entries[:of_skew], n - 1), ((1, 0), (0, 1))) if n > 1 else jnp.zeros((1, 1))
        below = below.astype(x.dtype)
        root = lower_triangle(entries[of_skew : of_skew + of_root], n)
        return below - below.T, root, entries[of_skew + of_root :].reshape(n, self.inputs)

    def output(self, x: Float[Array, " size"]) -> Float[Array, " inputs"]:
        """Returns $y$, the output of the ports: its product with the input is the power that flows in."""
        return self._parts(x)[2].T @ jax.grad(self.energy)(x)

    def dissipation(self, x: Float[Array, " size"]) -> Float[Array, ""]:
        r"""Returns the power that is lost, $\lvert B^T \nabla H \rvert^2 \ge 0$."""
        return jnp.sum((self._parts(x)[1].T @ jax.grad(self.energy)(x)) ** 2)

    def __call__(self, t: RealScalarLike, y: Float[Array, " size"], args: Args) -> Float[Array, " size"]:
        """Returns the rates.

        Args:
            t: Time.
            y: The state.
            args: The input $u$: an array of shape `(inputs,)`, a function of time that returns one, or None for no
                input.
        """
        skew, root, ports = self._parts(y)
        gradient = jax.grad(self.energy)(y)
        rates = skew @ gradient - root @ (root.T @ gradient)
        if args is None or self.inputs == 0:
            return rates
        given = jnp.asarray(args(t) if callable(args) else args)
        if np.shape(given) != (self.inputs,):
            raise ValueError(
                f"the input must have shape ({self.inputs},), a number for each port, but has shape {np.shape(given)}."
            )
        return rates + ports @ given.astype(y.dtype)
