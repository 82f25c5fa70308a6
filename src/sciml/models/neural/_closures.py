"""Closures: networks that add to a coarse model the fluxes and stresses of unresolved scales."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..._checks import check_count, check_real, no_instance
from ..._interfaces._conservation_law import AbstractConservationLaw
from ..._interfaces._model import AbstractModel, AbstractSemilinear
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from ...spatial import AbstractFlux, Grid
from .. import _fourier as fourier
from ..flows._flow_forces import AbstractFlowForce
from ._networks import ConvolutionalNetwork, Network
from ._universal import sizes


class ConservativeClosure(AbstractModel):
    r"""A model on a grid, and fluxes between its cells that a network gives: a closure that conserves.

    $$\dot u = f(t, u) - \sum_k \frac{F_{i + 1/2, k} - F_{i - 1/2, k}}{h_k}, \qquad
    F_{i + 1/2} = \frac{\sigma}{\tau} h \, N_\theta(u_{i - r + 1}, \ldots, u_{i + r})$$

    The closure adds to a cell the amount that it removes from a neighbour, so that the integral over the grid changes
    only as in the model itself, to rounding. One network serves all faces and axes: it represents processes smaller
    than a cell, such as waves that break within one. Through walls it lets nothing pass.

    Attributes:
        model: $f$, such as `sciml.models.Burgers` on a coarse grid.
        net: $N_\theta$, of $2 r$ cells with all components each.
        grid: The grid.
        periodic: The periodic axes.
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
        gain: The initial factor of the last layer.
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
                f"`ConservativeClosure(radius={radius})` reads {2 * radius} cells around a face, but the grid has "
                f"fewer along {short[0]}. Use a smaller radius."
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
        """Returns the contribution of the fluxes to the rates of a state."""
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


class SpectralClosure(AbstractSemilinear):
    r"""A periodic model in Fourier modes, and fluxes that a convolutional network gives: a closure that conserves.

    $$\dot{\hat u} = L \hat u + N(\hat u) - P \sum_k i \kappa_k \hat F_k, \qquad
    F = \frac{\sigma}{\tau}\, N_\theta\Bigl(\frac{u}{\sigma}\Bigr)$$

    with $\kappa_k$ the wavenumber times the spacing of points and $P$ the lower two thirds of the modes, so that the
    closure makes no aliases. It models the effect of the neglected modes on the resolved ones, and changes the integral
    of the field only by rounding. It is a part of the slow rest of the equation: exponential methods
    (`sciml.solvers.ETDRK`) take the linear part exactly as before.

    Good values: `scale` as large as the field varies, `time` as long as a vortex or a wave takes to pass a few points.

    Attributes:
        model: The model with few modes, such as `sciml.models.Vorticity`.
        net: $N_\theta$, with a flux along each axis.
        features: The features of a state for the network.
        scale: $\sigma$, the size of each feature; the first is also the size of the fluxes.
        time: $\tau$, in which the fluxes change the field by about its size.

    Args:
        model: A model of one real periodic field, in Fourier modes.
        axes: The number of axes of the grid.
        features: The input of the network, a function `features(model, y)` that returns fields of shape
            `(channels, *grid)`, such as vorticity and velocity; by default only the state. A network that sees a few
            points cannot know values that depend on the whole field, like the velocity for a given vorticity.
        channels: The number of these.
        width: The number of fields in each hidden layer.
        depth: The number of hidden layers.
        radius: How many points around a point each layer sees.
        activation: A function of arrays, between the layers.
        scale: $\sigma$, a number or one for each feature.
        time: $\tau$.
        gain: The initial factor of the last layer.
        key: A random key, for the weights at the start.

    Raises:
        TypeError: If `model` has no modes, `features` is not a function, or the state is complex.
        ValueError: If a number is not positive, or the modes or features have another shape.

    Source:
        K. Um, R. Brand, Y. Fei, P. Holl and N. Thuerey, Solver-in-the-Loop, NeurIPS 2020; D. Kochkov et al., Machine
        learning-accelerated computational fluid dynamics, PNAS 118:e2101784118, 2021.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models import KuramotoSivashinsky
        from sciml.models.neural import SpectralClosure

        coarse = KuramotoSivashinsky(points=32, length=22.0)
        model = SpectralClosure(coarse, axes=1, width=8, key=jax.random.key(0))
        u = jnp.sin(2 * jnp.pi * coarse.x() / 22.0)
        sol = sciml.solve(model, u, t0=0.0, t1=2.0, dt=0.25)
        assert sol.solver == "ETDRK(order=4)" and abs(sol.ys[-1].mean()) < 1e-6
        ```
    """

    model: AbstractSemilinear
    net: ConvolutionalNetwork
    features: Callable | None = eqx.field(static=True)
    scale: tuple[float, ...] = eqx.field(static=True)
    time: float = eqx.field(static=True)

    def __init__(
        self,
        model: Any,
        axes: int,
        features: Callable | None = None,
        channels: int = 1,
        width: int = 16,
        depth: int = 2,
        *,
        radius: int = 1,
        activation: Callable = jnp.tanh,
        scale: Any = 1.0,
        time: float = 1.0,
        gain: float = 0.1,
        key: Key,
    ):
        if not isinstance(model, AbstractSemilinear):
            raise TypeError(f"`model` must be an `AbstractSemilinear` such as `Vorticity`, but {no_instance(model)}.")
        if features is not None and not callable(features):
            raise TypeError(f"`features` must be a function `features(model, y)` or None, but is {features!r}.")
        channels = check_count(channels, "channels", "SpectralClosure")
        if features is None and channels != 1:
            raise ValueError(
                f"`SpectralClosure(channels={channels})` requires `features`; without them there is one channel."
            )
        self.model, self.features = model, features
        self.scale = sizes(scale, channels, "scale")
        (self.time,) = sizes(time, 1, "time")
        options: dict[str, Any] = dict(axes=axes, radius=radius, activation=activation, gain=gain)
        self.net = ConvolutionalNetwork(channels, axes, width, depth, **options, key=key)

    def fluxes(self, y: Float[Array, "..."]) -> Float[Array, "axes ..."]:
        """Returns the fluxes along all axes, in units of the spacing of points."""
        check_real(y, self)
        told = y[None] if self.features is None else self.features(self.model, y)
        if jnp.shape(told) != (len(self.scale), *y.shape):
            raise ValueError(
                f"`features(model, y)` must return `channels` fields, an array of shape "
                f"{(len(self.scale), *y.shape)}, but it has shape {jnp.shape(told)}."
            )
        scale = jnp.asarray(self.scale, y.dtype).reshape((-1,) + (1,) * y.ndim)
        return with_dtype(self.net, y.dtype)(told / scale) * (self.scale[0] / self.time)

    def closure(self, y: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the contribution of the fluxes to the rates of a state."""
        return self.model.inverse(self._added(y))

    def _added(self, y: Float[Array, "..."]) -> Complex[Array, "..."]:
        """Returns the Fourier coefficients of the contribution of the fluxes, minus their divergence."""
        flux = jax.vmap(lambda f: fourier.transform(f, f.ndim))(self.fluxes(y))
        kappas = fourier.odd_wavenumbers(y.shape, jnp.asarray(y.shape), True, y.dtype)
        slopes = [fourier.times_i(-kappa, flux[axis]) for axis, kappa in enumerate(kappas)]
        return fourier.kept(sum(slopes[1:], slopes[0]), fourier.two_thirds(y.shape, True))

    def transform(self, y: Float[Array, "..."]) -> Complex[Array, "..."]:
        """Returns the Fourier coefficients, half of them, as the model does."""
        return self.model.transform(y)

    def inverse(self, modes: Complex[Array, "..."]) -> Float[Array, "..."]:
        """Returns the state of given coefficients."""
        return self.model.inverse(modes)

    def linear(self, args: Args) -> Any:
        """Returns the result of the model."""
        return self.model.linear(args)

    def rest(self, t: RealScalarLike, modes: Complex[Array, "..."], args: Args) -> Complex[Array, "..."]:
        """Returns the result of the model, and the contribution of the fluxes."""
        y = self.model.inverse(modes)
        added = self._added(y)
        if added.shape != modes.shape:
            raise ValueError(
                "`SpectralClosure` requires a model whose modes are the Fourier coefficients of a real field, of "
                f"shape {added.shape}, but they have shape {modes.shape}."
            )
        return self.model.rest(t, modes, args) + added


def quadratic(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Returns $x + x^2$: with one hidden layer a network is a quadratic form of its input, like transport."""
    return x + x * x


class StressClosure(AbstractFlowForce):
    r"""Stresses that a convolutional network gives, a force on an `IncompressibleFlow` in a periodic box.

    $$f_i = \sum_j \partial_j \tau_{ij}, \qquad \tau = \sigma^2 N_\theta(u / \sigma), \qquad \tau_{ij} = \tau_{ji}$$

    It models eddies that the cells do not resolve, and the error of the scheme: the momentum that it removes from one
    cell is added to the next. The input of the network is the velocity at the faces around. Diagonal stresses are at
    centres of cells and the others at nodes, so that differences of stresses are at the faces.

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
        gain: The initial factor of the last layer.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or the flow is not periodic or has another number of axes.
        TypeError: If the activation is not a function, or `key` is not a key.

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
                f"`StressClosure(axes={self.net.axes})` requires a flow with {self.net.axes} axes, all of them "
                f"periodic, but this one has {ndim}, periodic: {tuple(flow.velocity.pressure.periodic)}."
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


class LearnedFlux(AbstractFlux):
    r"""A numerical flux with a learnt correction that keeps conservation to rounding.

    $$F = F_0(w_L, w_R) - D_\theta(w_L, w_R) \, (u_R - u_L)$$

    Whatever the network returns, the outflow of a cell is the inflow of its neighbour; and if both states are equal the
    flux is the flux of the law, so that constant states stay constant. $D$ is a matrix over the components of the
    state. It may be negative: the network can sharpen what $F_0$ smears, and so can make it unstable.

    Attributes:
        base: $F_0$.
        net: The network of $D_\theta$.
        scale: The size of each primitive variable.

    Args:
        base: A flux, such as `sciml.spatial.Rusanov()`.
        components: The number of components of the state, 1 for a law of one quantity.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers.
        scale: The size of the primitive variables, a number or one for each.
        gain: The initial factor of the last layer.
        key: A random key, for the weights at the start.

    Raises:
        TypeError: If `base` is not a flux.
        ValueError: If a number is not positive, or the state has another number of components.

    Source:
        The idea of a learned flux in a conservative scheme: D. Kochkov et al., Machine learning-accelerated
        computational fluid dynamics, PNAS 118:e2101784118, 2021.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models import InviscidBurgers
        from sciml.models.neural import LearnedFlux
        from sciml.spatial import Grid, Periodic, Rusanov

        grid = Grid(32)
        law = InviscidBurgers(grid, Periodic(), flux=LearnedFlux(Rusanov(), key=jax.random.key(0)))
        rates = law(0.0, jnp.sin(2 * jnp.pi * grid.centers[0]), None)
        assert abs(rates.sum()) < 1e-4
        ```
    """

    base: AbstractFlux
    net: Network
    scale: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self,
        base: Any,
        components: int = 1,
        width: int = 16,
        depth: int = 2,
        *,
        activation: Callable = jnp.tanh,
        scale: Any = 1.0,
        gain: float = 0.1,
        key: Key,
    ):
        if not isinstance(base, AbstractFlux):
            raise TypeError(f"`base` must be a flux such as `sciml.spatial.Rusanov()`, but {no_instance(base)}.")
        self.base, self.scale = base, sizes(scale, components, "scale")
        self.net = Network(2 * components, components**2, width, depth, activation=activation, gain=gain, key=key)

    def __call__(
        self, law: AbstractConservationLaw, left: Float[Array, "..."], right: Float[Array, "..."], axis: int
    ) -> Float[Array, "..."]:
        """Returns the flux along an axis."""
        count = len(self.scale)
        jump = law.conserved(right) - law.conserved(left)
        rows = (
            [x.reshape(count, -1) for x in (left, right, jump)]
            if count > 1
            else [x.reshape(1, -1) for x in (left, right, jump)]
        )
        scale = jnp.asarray(self.scale, jump.dtype)[:, None]
        net = with_dtype(self.net, jump.dtype)
        told = jnp.concatenate([rows[0] / scale, rows[1] / scale])
        matrices = jax.vmap(net, in_axes=1, out_axes=1)(told).reshape(count, count, -1)
        return self.base(law, left, right, axis) - jnp.sum(matrices * rows[2][None], axis=1).reshape(jump.shape)
