"""What a coarse grid lacks of a flow, as stresses that a network gives."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_count
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from ..flows._flow_forces import AbstractFlowForce
from ._convolutional_network import ConvolutionalNetwork
from ._term import sizes


def quadratic(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns $x + x^2$: with one hidden layer a network is a quadratic form of what it sees, as transport is."""
    return x + x * x


class StressClosure(AbstractFlowForce):
    r"""Stresses that a convolutional network gives, a force on an `IncompressibleFlow` in a periodic box.

    $$f_i = \sum_j \partial_j \tau_{ij}, \qquad \tau = \sigma^2 N_\theta(u / \sigma), \qquad \tau_{ij} = \tau_{ji}$$

    It stands for eddies that the cells are too large to show, and for the error of the scheme: what it takes of
    momentum from one cell it gives to the next. The network is told of the velocity at the faces around. Diagonal
    stresses are at centres of cells and the others at nodes, so that differences of stresses are at the faces.

    The error of central transport is a quadratic form of the velocities around a face. So is, by default, the network,
    of those up to $2 r$ cells away, since its one hidden layer is followed by $x + x^2$. In a flow that is faster than
    all it was trained on, that grows as the square of the speed, as stresses do; choose `activation=jnp.tanh` for a
    network that is bounded.

    Good values: `scale` as large as the velocity.

    Attributes:
        net: $N_\theta$.
        scale: $\sigma$.

    Args:
        axes: The number of axes of the grid, 2 or 3.
        width: The number of fields in each hidden layer.
        depth: The number of hidden layers.
        radius: $r$, how many cells around a cell each layer sees.
        activation: A function of arrays, between the layers.
        scale: $\sigma$, a velocity.
        gain: By what the last layer is multiplied at the start.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or the flow is not periodic or has another number of axes.
        TypeError: If the activation is no function, or `key` no key.

    Source:
        D. Kochkov et al., Machine learning-accelerated computational fluid dynamics, PNAS 118:e2101784118, 2021; K. Um,
        R. Brand, Y. Fei, P. Holl and N. Thuerey, Solver-in-the-Loop, NeurIPS 2020, for training through the solver.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models import IncompressibleFlow
        from sciml.models.neural import StressClosure
        from sciml.spatial import Grid, Periodic

        closure = StressClosure(width=8, key=jax.random.key(0))
        flow = IncompressibleFlow(Grid((16, 16)), Periodic(), viscosity=1e-3, forces=[closure])
        y = flow.start(lambda x, y: (jnp.sin(2 * jnp.pi * y) + 0 * x, jnp.sin(2 * jnp.pi * x) + 0 * y))
        force = closure(flow, 0.0, y, None)
        assert abs(force[0].sum()) < 1e-4 < jnp.abs(force[0]).max()
        ```
    """

    net: ConvolutionalNetwork
    scale: float = eqx.field(static=True)

    def __init__(
        self,
        axes: int = 2,
        width: int = 16,
        depth: int = 1,
        *,
        radius: int = 1,
        activation: Callable = quadratic,
        scale: RealScalarLike = 1.0,
        gain: float = 0.1,
        key: Key,
    ):
        axes = check_count(axes, "axes", "StressClosure")
        (self.scale,) = sizes(scale, 1, "scale")
        options: dict[str, Any] = dict(axes=axes, radius=radius, activation=activation, gain=gain)
        self.net = ConvolutionalNetwork(axes, axes * (axes + 1) // 2, width, depth, **options, key=key)

    def stresses(self, velocity: tuple[Float[Array, "..."], ...]) -> dict[tuple[int, int], Float[Array, "..."]]:
        """Returns the stresses by their two axes, the lower first: at centres of cells, or at nodes below them."""
        net, axes = with_dtype(self.net, velocity[0].dtype), range(len(velocity))
        found = net(jnp.stack(velocity) / self.scale) * self.scale**2
        pairs = [(i, j) for i in axes for j in axes if i <= j]
        return dict(zip(pairs, found, strict=True))

    def __call__(self, flow: Any, t: RealScalarLike, y: Any, args: Args) -> tuple[Float[Array, "..."], ...]:
        """Returns the force at the faces; `t` and `args` are not used."""
        del t, args
        ndim = flow.grid.ndim
        if ndim != self.net.axes or not all(flow.velocity.pressure.periodic):
            raise ValueError(
                f"`StressClosure(axes={self.net.axes})` needs a flow along {self.net.axes} axes, all of them periodic, "
                f"but this one has {ndim}, periodic: {tuple(flow.velocity.pressure.periodic)}."
            )
        stresses = self.stresses(y.velocity)
        slopes = [self._slopes(stresses, i, flow.grid.spacing) for i in range(ndim)]
        return tuple(sum(found[1:], found[0]) for found in slopes)

    def _slopes(self, stresses: dict[tuple[int, int], Array], i: int, spacing: tuple) -> list[Array]:
        """The derivatives of stresses that act on a component of the velocity, at its faces."""
        found = []
        for j, h in enumerate(spacing):
            stress = stresses[min(i, j), max(i, j)]
            # from centres to the faces between them, or from nodes to the faces between these
            moved = stress - jnp.roll(stress, 1, axis=j) if i == j else jnp.roll(stress, -1, axis=j) - stress
            found.append(moved / h)
        return found
