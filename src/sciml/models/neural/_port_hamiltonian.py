"""An open system with energy, losses and ports."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import check_count, check_key
from ..._interfaces._model import AbstractModel
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from ._lagrangian import lower_triangle
from ._network import Network
from ._term import check_vector, scaled, sizes


class PortHamiltonian(AbstractModel):
    r"""A port-Hamiltonian network: what flows in through ports is stored or lost, and nothing else.

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
            raise ValueError(f"`PortHamiltonian(inputs=...)` must be 0 or more, but is {inputs!r}.")
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
        """Returns $y$, what the ports give back: with the input it is the power that flows in."""
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
