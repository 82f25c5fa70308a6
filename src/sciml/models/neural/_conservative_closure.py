"""What a coarse grid lacks of a field, as fluxes that a network gives."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_count, check_real, no_instance
from ..._interfaces._model import AbstractModel
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from ...spatial import Grid
from ._network import Network
from ._term import sizes


class ConservativeClosure(AbstractModel):
    r"""A model on a grid, and fluxes between its cells that a network gives: a closure that conserves.

    $$\dot u = f(t, u) - \sum_k \frac{F_{i + 1/2, k} - F_{i - 1/2, k}}{h_k}, \qquad
    F_{i + 1/2} = \frac{\sigma}{\tau} h \, N_\theta(u_{i - r + 1}, \ldots, u_{i + r})$$

    What the closure takes from a cell it gives to the next, so that the integral over the grid changes only as the
    model itself changes it, to rounding. One network serves all faces and axes: it makes up for what cells are too
    large to show, such as waves that break within one. Through walls it lets nothing pass.

    Attributes:
        model: $f$, such as `sciml.models.Burgers` on a coarse grid.
        net: $N_\theta$, of $2 r$ cells with all components each.
        grid: The grid.
        periodic: Which axes are periodic.
        radius: $r$, how many cells on either side of a face the network sees.
        components: How many components a state has; with more than one they are its first axis.
        scale: $\sigma$, the size of each component.
        time: $\tau$, in which the fluxes change a cell by about its size; $h$ is the spacing.

    Args:
        model: $f$, a model or a function `f(t, y, args)`.
        grid: The grid.
        periodic: Whether the axes are periodic: a truth value, or one for each axis.
        radius: $r$.
        components: How many components a state has.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers.
        scale: $\sigma$, a number or one for each component.
        time: $\tau$.
        gain: By what the last layer is multiplied at the start.
        key: A random key, for the weights at the start.

    Raises:
        TypeError: If `model` cannot be called, or the state is complex.
        ValueError: If a number is not positive, or the state has another shape.

    Source:
        Y. Bar-Sinai, S. Hoyer, J. Hickey and M. P. Brenner, Learning data-driven discretizations for partial
        differential equations, PNAS 116:15344, 2019.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models import Diffusion
        from sciml.models.neural import ConservativeClosure
        from sciml.spatial import Grid, Periodic

        grid = Grid(32)
        coarse = Diffusion(grid, Periodic(), 0.01)
        model = ConservativeClosure(coarse, grid, periodic=True, width=8, key=jax.random.key(0))
        u = jnp.sin(2 * jnp.pi * grid.centers[0])
        end = sciml.solve(model, u, t0=0.0, t1=0.1, dt=0.01).ys[-1]
        assert abs(grid.integrate(end) - grid.integrate(u)) < 1e-6
        ```
    """

    model: Callable
    net: Network
    grid: Grid
    periodic: tuple[bool, ...] = eqx.field(static=True)
    radius: int = eqx.field(static=True)
    components: int = eqx.field(static=True)
    scale: tuple[float, ...] = eqx.field(static=True)
    time: float = eqx.field(static=True)

    def __init__(
        self,
        model: Any,
        grid: Grid,
        periodic: Any,
        radius: int = 2,
        components: int = 1,
        width: int = 16,
        depth: int = 2,
        *,
        activation: Callable = jnp.tanh,
        scale: Any = 1.0,
        time: float = 1.0,
        gain: float = 0.1,
        key: Key,
    ):
        if not callable(model):
            raise TypeError(f"`model` must be a model or a function `f(t, y, args)`, but {no_instance(model)}.")
        of_axes = (periodic,) * grid.ndim if isinstance(periodic, bool) else tuple(periodic)
        if len(of_axes) != grid.ndim or not all(isinstance(x, bool) for x in of_axes):
            raise ValueError(
                f"`periodic` must be True or False, or {grid.ndim} of them, one for each axis of the grid, but is "
                f"{periodic!r}."
            )
        self.model, self.grid, self.periodic = model, grid, of_axes
        self.radius = check_count(radius, "radius", "ConservativeClosure")
        self.components = check_count(components, "components", "ConservativeClosure")
        self.scale = sizes(scale, components, "scale")
        (self.time,) = sizes(time, 1, "time")
        if short := [name for name, n in zip(grid.names, grid.shape, strict=True) if n < 2 * radius]:
            raise ValueError(
                f"`ConservativeClosure(radius={radius})` sees {2 * radius} cells around a face, but the grid has fewer "
                f"along {short[0]}: take a smaller radius."
            )
        inputs = 2 * radius * components
        self.net = Network(inputs, components, width, depth, activation=activation, gain=gain, key=key)

    def fluxes(self, u: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
        """Returns the fluxes through the upper faces of all cells along an axis, but for the factor of the spacing."""
        lead = u.ndim - self.grid.ndim
        table = u.reshape(self.components, *self.grid.shape)
        at = axis + 1
        mode = "wrap" if self.periodic[axis] else "edge"
        widths = [(0, 0)] * table.ndim
        widths[at] = (self.radius - 1, self.radius)
        padded, n = jnp.pad(table, widths, mode=mode), self.grid.shape[axis]
        scale = jnp.asarray(self.scale, u.dtype).reshape((-1,) + (1,) * self.grid.ndim)
        around = [jax.lax.slice_in_dim(padded, k, k + n, axis=at) / scale for k in range(2 * self.radius)]
        told = jnp.concatenate(around).reshape(len(around) * self.components, -1)
        net = with_dtype(self.net, u.dtype)
        found = jax.vmap(net, in_axes=1, out_axes=1)(told).reshape(table.shape) * (scale / self.time)
        if not self.periodic[axis]:  # nothing passes through the upper wall
            inner = jnp.arange(n).reshape((n,) + (1,) * (table.ndim - at - 1)) < n - 1
            found = jnp.where(jnp.broadcast_to(inner, found.shape), found, jnp.zeros((), u.dtype))
        return found if lead else found[0]

    def closure(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns what the fluxes add to the rates of a state."""
        shape = self.grid.shape if self.components == 1 else (self.components, *self.grid.shape)
        if u.shape != shape:
            raise ValueError(f"the state must have shape {shape}, but has shape {u.shape}.")
        total = jnp.zeros_like(u)
        for axis in range(self.grid.ndim):
            out = self.fluxes(u, axis)
            # through a wall nothing came in, as nothing goes out of the last cell
            total = total + jnp.roll(out, 1, axis=u.ndim - self.grid.ndim + axis) - out
        return total

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the rates; `t` and `args` go to the model."""
        check_real(y, self)
        return self.model(t, y, args) + self.closure(y)
