"""The neural controlled differential equation."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_count, check_function, check_key
from ..._interfaces._controlled import Controlled
from ..._interfaces._model import AbstractModel
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from ._network import Network
from ._term import check_vector


class NeuralCDE(AbstractModel):
    r"""A neural controlled differential equation (CDE): a hidden state that a path of measurements drives.

    $$z(t_0) = I_\theta(X(t_0)), \qquad \mathrm{d}z = f_\theta(z) \, \mathrm{d}X, \qquad \text{read out: }
    \ell_\theta(z)$$

    It is to a recurrent network what a neural ODE is to a residual one: measurements may be irregular and partly
    missing, and there may be as many as one likes. The path is the argument `args` of `sciml.solve`, an interpolation
    of diffrax, such as those of `hermite_path` and `linear_path`, which have time as their first channel: `channels`
    counts it.

    Attributes:
        first: $I_\theta$.
        net: The network of $f_\theta$.
        last: $\ell_\theta$, a linear map.
        bound: What is applied to the elements of $f_\theta$.

    Args:
        channels: The number of channels of the path, time among them.
        hidden: The number of components of $z$.
        outputs: How many numbers are read out.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers.
        bound: What is applied to the elements of $f_\theta$: without a bound, long paths make $z$ large.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or the state has another shape.
        TypeError: If `args` is no path.

    Source:
        P. Kidger, J. Morrill, J. Foster and T. Lyons, Neural Controlled Differential Equations for Irregular Time
        Series, NeurIPS 2020.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models.neural import NeuralCDE, hermite_path

        ts = jnp.linspace(0.0, 1.0, 11)
        path = hermite_path(ts, jnp.stack([jnp.cos(ts), jnp.sin(ts)], axis=1))
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
        """Returns what is read out of hidden states, those of a solution too."""
        (layer,) = with_dtype(self.last, z.dtype).layers
        found = z @ layer.weight.T
        return found + jnp.broadcast_to(layer.bias, found.shape)

    def __call__(self, t: RealScalarLike, y: Float[Array, " hidden"], args: Args) -> Float[Array, " hidden"]:
        """Returns the rates of the hidden state, driven by the path `args`."""
        return Controlled(self.field, args)(t, y, None)
