"""Neural differential equations: ordinary, augmented, controlled and stochastic ones."""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import check_count, check_function, check_key, concrete
from ..._interfaces._controlled import Controlled
from ..._interfaces._model import AbstractModel
from ..._interfaces._stochastic import AbstractStochastic, check_noise
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from ._clocks import AbstractClock
from ._networks import Network
from ._universal import NeuralTerm, check_vector, sizes


class NeuralODE(AbstractModel):
    r"""A neural ODE: a network is the whole vector field.

    $$\dot y = N_\theta(y) \quad \text{or} \quad \dot y = N_\theta(y, c(t))$$

    The state is a vector, shape `(size,)`. Trajectories cannot cross: if the data require it, use `AugmentedNeuralODE`;
    if part of the equation is known, `UniversalODE`.

    Good values: for `scale` the range of the state, for `unit` its typical rate of change; a width of 16 to 64.

    Attributes:
        term: The network, with its time features.

    Args:
        size: The number of components of the state.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers; a smooth one, because error estimates rely on derivatives.
        clock: The time features of the network: `Elapsed`, `Seasons`, or None.
        scale: The size of the state's components, a number or one for each.
        unit: The size of their rates, likewise.
        gain: The initial factor of the last layer.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or the state has another shape.

    Source:
        R. T. Q. Chen, Y. Rubanova, J. Bettencourt and D. Duvenaud, Neural Ordinary Differential Equations, NeurIPS
        2018.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models.neural import NeuralODE

        model = NeuralODE(2, width=16, key=jax.random.key(0))
        sol = sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0, saveat=jnp.linspace(0.0, 1.0, 5))
        slope = jax.grad(lambda model: sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0).ys[-1, 0])(model)
        assert sol.ys.shape == (5, 2) and slope.term.net.layers[0].weight.shape == (16, 2)
        ```
    """

    term: NeuralTerm

    def __init__(
        self,
        size: int,
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
        options = dict(activation=activation, clock=clock, scale=scale, unit=unit, gain=gain)
        self.term = NeuralTerm(size, size, width, depth, **options, key=key)

    def __call__(self, t: RealScalarLike, y: Float[Array, " size"], args: Args) -> Float[Array, " size"]:
        """Returns the rates; `args` is not used."""
        return self.term(t, y, args)


class AugmentedNeuralODE(AbstractModel):
    r"""An augmented neural ODE: further components, which nobody sees, start at zero.

    $$\dot z = N_\theta(z), \qquad z(0) = (y_0, 0), \qquad y = (z_1, \ldots, z_n)$$

    The observed path may cross itself, and maps that no flow of $n$ dimensions can represent, such as $y \to -y$ on a
    line, are flows in more dimensions. Second-order equations also need it if only positions are observed.

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
        clock: The time features of the network: `Elapsed`, `Seasons`, or None.
        scale: The size of the components, a number or one for each of all.
        unit: The size of their rates, likewise.
        gain: The initial factor of the last layer.
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
        """Returns the initial state: the observed components, and zeros."""
        check_vector(y0, self.size)
        return jnp.concatenate([y0, jnp.zeros(self.extra, y0.dtype)])

    def observe(self, z: Float[Array, "*times all"]) -> Float[Array, "*times size"]:
        """Returns the observations of states, also of the states of a solution."""
        return z[..., : self.size]

    def __call__(self, t: RealScalarLike, y: Float[Array, " all"], args: Args) -> Float[Array, " all"]:
        """Returns the rates of all components; `args` is not used."""
        return self.term(t, y, args)


def measured_path(
    ts: Float[Array, " times"], xs: Float[Array, "times channels"], kind: str = "hermite"
) -> diffrax.AbstractPath:
    """A path through measurements, with time as its first channel.

    | `kind` | path |
    | --- | --- |
    | `"hermite"` | smooth: cubics with backward differences. It depends on measurements up to the next one only, so an equation that it drives can run while measurements come in |
    | `"linear"` | straight lines. Its derivative jumps at the times: `sciml.solve(..., events=sciml.Schedule(ts))` makes steps end there |

    A missing value is NaN, and is passed over; before its first measurement a channel is constant. To give records of
    several lengths the same length, append increasing times with NaN values.

    Args:
        ts: The times, which ascend.
        xs: The measurements, a row for each time.
        kind: `"hermite"` or `"linear"`.

    Returns:
        A path of one channel more, for `NeuralCDE`, `sciml.Controlled` and diffrax.

    Raises:
        ValueError: If there is no such kind, there is not a row for each of two or more ascending times, or a channel
            has no measurement. If the measurements are traced, the path of such a channel is NaN.

    Source:
        J. Morrill, P. Kidger, L. Yang and T. Lyons, On the Choice of Interpolation Scheme for Neural CDEs, TMLR 2022;
        P. Kidger, J. Morrill, J. Foster and T. Lyons, Neural Controlled Differential Equations, NeurIPS 2020.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models.neural import measured_path

        ts = jnp.linspace(0.0, 1.0, 5)
        path = measured_path(ts, jnp.sin(ts)[:, None])
        assert jnp.allclose(path.evaluate(0.25), jnp.array([0.25, jnp.sin(0.25)]), atol=1e-6)

        lines = measured_path(jnp.array([0.0, 1.0, 3.0]), jnp.array([[0.0], [jnp.nan], [6.0]]), "linear")
        assert lines.derivative(0.5)[1] == 2.0  # straight through the gap
        ```
    """  # noqa: E501
    if kind not in ("hermite", "linear"):
        raise ValueError(f"`measured_path(kind=...)` must be 'hermite' or 'linear', but is {kind!r}.")
    ts, values = _checked(ts, xs, "measured_path")
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        if kind == "hermite":
            return diffrax.CubicInterpolation(ts, diffrax.backward_hermite_coefficients(ts, values))
        return diffrax.LinearInterpolation(ts, diffrax.linear_interpolation(ts, values))


def _checked(ts: Any, xs: Any, where: str) -> tuple[Array, Array]:
    """Returns times and measurements."""
    xs = jnp.asarray(xs)
    ts = jnp.asarray(ts, xs.dtype)
    if ts.ndim != 1 or xs.ndim != 2 or len(ts) != len(xs) or len(ts) < 2:
        raise ValueError(
            f"`{where}` requires `ts` of shape (times,) with two or more times, and `xs` of shape (times, channels), "
            f"but they have shapes {ts.shape} and {xs.shape}."
        )
    if concrete(ts) and not np.all(np.diff(np.asarray(ts)) > 0):
        raise ValueError(f"`{where}`: `ts` must be ascending, but are {np.asarray(ts)}.")
    known = ~jnp.isnan(xs)
    if concrete(xs) and (empty := np.flatnonzero(~np.asarray(known).any(0))).size:
        raise ValueError(
            f"`{where}`: channel {empty[0]} of `xs` is NaN at all times. Leave it out, or fill in one value, such as "
            "its mean over other records."
        )
    first = jnp.take_along_axis(xs, jnp.argmax(known, axis=0)[None], axis=0)
    begun = jax.lax.cummax(known.astype(jnp.int32), axis=0) > 0
    xs = jnp.where(begun, xs, jnp.broadcast_to(first, xs.shape))
    return ts, jnp.concatenate([ts[:, None], xs], axis=1)


class NeuralCDE(AbstractModel):
    r"""A neural controlled differential equation (CDE): a hidden state that a path of measurements drives.

    $$z(t_0) = I_\theta(X(t_0)), \qquad \mathrm{d}z = f_\theta(z) \, \mathrm{d}X, \qquad \text{read out: }
    \ell_\theta(z)$$

    It is the continuous form of a recurrent network, as a neural ODE is of a residual one: measurements may be
    irregular and partly missing, in any number. The path is the argument `args` of `sciml.solve`, a diffrax
    interpolation with time as its first channel, such as `measured_path`: `channels` counts it.

    Attributes:
        first: $I_\theta$.
        net: The network of $f_\theta$.
        last: $\ell_\theta$, a linear map.
        bound: The function applied to the elements of $f_\theta$.

    Args:
        channels: The number of channels of the path, time among them.
        hidden: The number of components of $z$.
        outputs: How many numbers are read out.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers.
        bound: The function applied to the elements of $f_\theta$: without a bound, long paths make $z$ large.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or the state has another shape.
        TypeError: If `args` is not a path.

    Source:
        P. Kidger, J. Morrill, J. Foster and T. Lyons, Neural Controlled Differential Equations for Irregular Time
        Series, NeurIPS 2020.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models.neural import NeuralCDE, measured_path

        ts = jnp.linspace(0.0, 1.0, 11)
        path = measured_path(ts, jnp.stack([jnp.cos(ts), jnp.sin(ts)], axis=1))
        model = NeuralCDE(3, hidden=4, outputs=1, width=8, key=jax.random.key(0))
        sol = sciml.solve(model, model.start(path), t0=0.0, t1=1.0, args=path)
        assert model.read_out(sol.ys[-1]).shape == (1,)
        ```
    """

    first: Network
    net: Network
    last: Network
    bound: Callable = eqx.field(static=True)
    channels: int = eqx.field(static=True)
    hidden: int = eqx.field(static=True)

    def __init__(
        self,
        channels: int,
        hidden: int,
        outputs: int = 1,
        width: int = 32,
        depth: int = 1,
        *,
        activation: Callable = jax.nn.softplus,
        bound: Callable = jnp.tanh,
        key: Key,
    ):
        self.channels = check_count(channels, "channels", "NeuralCDE")
        self.hidden = check_count(hidden, "hidden", "NeuralCDE")
        self.bound = check_function(bound, "bound", "arrays")
        keys = jax.random.split(check_key(key, "NeuralCDE"), 3)
        options: dict[str, Any] = dict(width=width, depth=depth, activation=activation)
        self.first = Network(channels, hidden, **options, key=keys[0])
        self.net = Network(hidden, hidden * channels, **options, key=keys[1])
        self.last = Network(hidden, outputs, depth=0, key=keys[2])

    def start(self, path: Any) -> Float[Array, " hidden"]:
        """Returns the hidden state at the start of a path."""
        x = jnp.asarray(path.evaluate(path.t0))
        return with_dtype(self.first, x.dtype)(x)

    def field(self, t: RealScalarLike, z: Float[Array, " hidden"], args: Args) -> Float[Array, "hidden channels"]:
        r"""Returns $f_\theta$, the rates of the hidden state by each channel; `t` and `args` are not used."""
        del t, args
        check_vector(z, self.hidden)
        return self.bound(with_dtype(self.net, z.dtype)(z)).reshape(self.hidden, self.channels)

    def read_out(self, z: Float[Array, "*times hidden"]) -> Float[Array, "*times outputs"]:
        """Returns the readout of hidden states, also of the states of a solution."""
        (layer,) = with_dtype(self.last, z.dtype).layers
        assert layer.bias is not None  # as `Network` makes it
        found = z @ layer.weight.T
        return found + jnp.broadcast_to(layer.bias, found.shape)

    def __call__(self, t: RealScalarLike, y: Float[Array, " hidden"], args: Args) -> Float[Array, " hidden"]:
        """Returns the rates of the hidden state, driven by the path `args`."""
        return Controlled(self.field, args)(t, y, None)


class NeuralSDE(AbstractStochastic):
    r"""A neural SDE: networks give the drift and the strength of the noise.

    $$\mathrm{d}y = f_\theta(t, y) \, \mathrm{d}t + g_\theta(t, y) \, \mathrm{d}W$$

    The state is a vector, shape `(size,)`. `noise` sets the kind of $W$, as for `sciml.Stochastic`. With "diagonal" and
    "additive" noise every component has a separate Brownian motion, the sign of $g$ is irrelevant, and its elements are
    positive, $\ln(1 + e^N)$ of the network's outputs $N$, times their unit; with "additive" noise $g$ is a constant,
    and methods are more accurate.

    Attributes:
        drift_term: The network of the drift.
        diffusion_term: The network of the noise.
        noise: "diagonal", "scalar", "additive" or "general".

    Args:
        size: The number of components of the state.
        noise: One of these.
        brownian: The number of Brownian motions of "general" noise.
        width: The number of neurons in each hidden layer of both networks.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers.
        clock: The time features of the networks: `Elapsed`, `Seasons`, or None.
        scale: The size of the state's components, a number or one for each.
        unit: The size of their rates, likewise.
        noise_unit: The size of the noise, in units of the state per sqrt(time), likewise.
        interpretation: "ito" or "stratonovich".
        key: A random key, for the weights at the start. The key of the noise is an argument of `sciml.solve`.

    Raises:
        ValueError: If a number is not positive, an option is not a known value, or the state has another shape.

    Source:
        X. Li, T.-K. L. Wong, R. T. Q. Chen and D. Duvenaud, Scalable Gradients for Stochastic Differential Equations,
        AISTATS 2020; P. Kidger, J. Foster, X. Li and T. Lyons, Neural SDEs as Infinite-Dimensional GANs, ICML 2021.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models.neural import NeuralSDE

        model = NeuralSDE(2, width=8, noise_unit=0.2, key=jax.random.key(0))
        keys = jax.random.split(jax.random.key(1), 10)
        ends = jax.vmap(lambda key: sciml.solve(model, jnp.ones(2), t0=0.0, t1=1.0, dt=0.05, key=key).ys[-1])(keys)
        assert ends.shape == (10, 2)
        ```
    """

    drift_term: NeuralTerm
    diffusion_term: NeuralTerm | Float[Array, " size"]
    noise: str = eqx.field(static=True)
    size: int = eqx.field(static=True)
    noise_unit: tuple[float, ...] = eqx.field(static=True)
    _interpretation: str = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        noise: str = "diagonal",
        *,
        brownian: int | None = None,
        width: int = 32,
        depth: int = 2,
        activation: Callable = jnp.tanh,
        clock: AbstractClock | None = None,
        scale: Any = 1.0,
        unit: Any = 1.0,
        noise_unit: Any = 1.0,
        interpretation: str = "ito",
        key: Key,
    ):
        self.size = size = check_count(size, "size", "NeuralSDE")
        self.noise, self._interpretation = noise, interpretation
        check_noise(self)
        if (brownian is None) != (noise != "general"):
            raise ValueError(
                "`brownian`, the number of Brownian motions, is required with `noise='general'` and not allowed "
                f"otherwise, but got brownian={brownian!r} and noise={noise!r}."
            )
        columns = 1 if brownian is None else check_count(brownian, "brownian", "NeuralSDE")
        self.noise_unit = sizes(noise_unit, size, "noise_unit")
        keys = jax.random.split(check_key(key, "NeuralSDE"))
        options = dict(width=width, depth=depth, activation=activation, clock=clock, scale=scale)
        self.drift_term = NeuralTerm(size, size, unit=unit, **options, key=keys[0])
        if noise == "additive":
            self.diffusion_term = jnp.zeros(size, jnp.result_type(float))
        else:
            self.diffusion_term = NeuralTerm(size, size * columns, **options, key=keys[1])

    @property
    def interpretation(self) -> str:
        """In what sense the integral over the noise is meant."""
        return self._interpretation

    def drift(self, t: RealScalarLike, y: Float[Array, " size"], args: Args) -> Float[Array, " size"]:
        """Returns the drift; `args` is not used."""
        return self.drift_term(t, y, args)

    def diffusion(self, t: RealScalarLike, y: Float[Array, " size"], args: Args) -> Float[Array, "..."]:
        """Returns the noise, of shape `(size,)`, or `(size, brownian)`; `args` is not used."""
        unit = jnp.asarray(self.noise_unit, y.dtype)
        if isinstance(self.diffusion_term, Array):
            return unit * jax.nn.softplus(self.diffusion_term.astype(y.dtype))
        found = self.diffusion_term(t, y, args)
        if self.noise == "general":
            return unit[:, None] * found.reshape(self.size, -1)
        return unit * (jax.nn.softplus(found) if self.noise == "diagonal" else found)
