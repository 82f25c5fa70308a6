"""A multilayer perceptron, all of whose leaves are arrays."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_count, check_function, check_key
from ..._types import Key


class Network(eqx.Module):
    r"""A multilayer perceptron, $W_n \sigma(\ldots \sigma(W_1 x + b_1) \ldots) + b_n$.

    As `equinox.nn.MLP`, but its activation is no leaf: `jax.grad` and `jax.vmap` take models that hold it, without
    filters, as they take all other models of this library.

    Attributes:
        layers: The linear maps.
        activation: $\sigma$.

    Args:
        inputs: The number of inputs.
        outputs: The number of outputs, or "scalar" for one without an axis.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers; with 0 the network is a linear map.
        activation: $\sigma$, a function of arrays. A model whose networks are differentiated, as an energy, needs a
            smooth one: `jnp.tanh`, `jax.nn.softplus`, not `jax.nn.relu`.
        gain: By what the weights of the last layer are multiplied at the start. A correction of something that is known
            starts near zero with a small one.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or `depth` is negative.
        TypeError: If the activation is no function, or `key` no key.

    Source:
        Weights at the start are uniform within $\pm 1 / \sqrt{n}$ for $n$ inputs of a layer, as in Equinox and PyTorch.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models.neural import Network

        net = Network(2, "scalar", width=8, key=jax.random.key(0))
        gradient = jax.grad(lambda net: net(jnp.ones(2)))(net)
        assert gradient.layers[0].weight.shape == (8, 2)
        ```
    """

    layers: tuple[eqx.nn.Linear, ...]
    activation: Callable = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: Any,
        width: int = 32,
        depth: int = 2,
        *,
        activation: Callable = jnp.tanh,
        gain: float = 1.0,
        key: Key,
    ):
        check_key(key, "Network")
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 0:
            raise ValueError(f"`Network(depth=...)` must be a number of hidden layers, 0 or more, but is {depth!r}.")
        last = outputs if outputs == "scalar" else check_count(outputs, "outputs", "Network")
        hidden = (check_count(width, "width", "Network"),) * depth
        before, after = (check_count(inputs, "inputs", "Network"), *hidden), (*hidden, last)
        keys = jax.random.split(key, depth + 1)
        layers = [eqx.nn.Linear(m, n, key=k) for m, n, k in zip(before, after, keys, strict=True)]
        layers[-1] = jax.tree.map(lambda x: gain * x, layers[-1])
        self.layers = tuple(layers)
        self.activation = check_function(activation, "activation", "arrays")

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, "..."]:
        """Returns the outputs, of shape `(outputs,)`, or a number."""
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)
