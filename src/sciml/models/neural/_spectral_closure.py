"""What few Fourier modes lack of a field, as fluxes that a network gives."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from ..._checks import check_count, check_real, no_instance
from ..._interfaces._model import AbstractSemilinear
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from .. import _fourier as fourier
from ._convolutional_network import ConvolutionalNetwork
from ._term import sizes


class SpectralClosure(AbstractSemilinear):
    r"""A periodic model in Fourier modes, and fluxes that a convolutional network gives: a closure that conserves.

    $$\dot{\hat u} = L \hat u + N(\hat u) - P \sum_k i \kappa_k \hat F_k, \qquad
    F = \frac{\sigma}{\tau}\, N_\theta\Bigl(\frac{u}{\sigma}\Bigr)$$

    with $\kappa_k$ the wavenumber times the spacing of points and $P$ the lower two thirds of the modes, so that the
    closure makes no aliases. It stands for what modes that are left out do to those that are kept, and changes the
    integral of the field by nothing but rounding. It is a part of the slow rest of the equation: exponential methods
    (`sciml.solvers.ETDRK4`) take the linear part exactly as before.

    Good values: `scale` as large as the field varies, `time` as long as a vortex or a wave takes to pass a few points.

    Attributes:
        model: The model with few modes, such as `sciml.models.Vorticity`.
        net: $N_\theta$, with a flux along each axis.
        features: What the network is told of a state.
        scale: $\sigma$, the size of each feature; that of the fluxes is the first.
        time: $\tau$, in which the fluxes change the field by about its size.

    Args:
        model: A model of one real periodic field, in Fourier modes.
        axes: The number of axes of the grid.
        features: What the network is told of a state, a function `features(model, y)` that returns fields of shape
            `(channels, *grid)`, such as vorticity and velocity; by default the state alone. What depends on the whole
            field, as a velocity does on vorticity, a network that sees a few points cannot know by itself.
        channels: The number of these.
        width: The number of fields in each hidden layer.
        depth: The number of hidden layers.
        radius: How many points around a point each layer sees.
        activation: A function of arrays, between the layers.
        scale: $\sigma$, a number or one for each feature.
        time: $\tau$.
        gain: By what the last layer is multiplied at the start.
        key: A random key, for the weights at the start.

    Raises:
        TypeError: If `model` is none in modes, `features` is no function, or the state is complex.
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
        assert sol.solver == "ETDRK4" and abs(sol.ys[-1].mean()) < 1e-6
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
            raise ValueError(f"`SpectralClosure(channels={channels})` needs `features`; the state itself is one.")
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
                f"`features(model, y)` must return `channels` fields, an array of the shape "
                f"{(len(self.scale), *y.shape)}, but it has {jnp.shape(told)}."
            )
        scale = jnp.asarray(self.scale, y.dtype).reshape((-1,) + (1,) * y.ndim)
        return with_dtype(self.net, y.dtype)(told / scale) * (self.scale[0] / self.time)

    def closure(self, y: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns what the fluxes add to the rates of a state."""
        return self.model.inverse(self._added(y))

    def _added(self, y: Float[Array, "..."]) -> Complex[Array, "..."]:
        """Returns the Fourier coefficients of what the fluxes add, minus their divergence."""
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
        """Returns that of the model."""
        return self.model.linear(args)

    def rest(self, t: RealScalarLike, modes: Complex[Array, "..."], args: Args) -> Complex[Array, "..."]:
        """Returns that of the model, and what the fluxes add."""
        y = self.model.inverse(modes)
        added = self._added(y)
        if added.shape != modes.shape:
            raise ValueError(
                f"`SpectralClosure` needs a model whose modes are the Fourier coefficients of a real field, which have "
                f"the shape {added.shape}, but they have {modes.shape}."
            )
        return self.model.rest(t, modes, args) + added
