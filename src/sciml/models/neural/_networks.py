"""Networks all of whose leaves are arrays: a multilayer perceptron, and convolutions over periodic fields."""

import itertools
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

    As `equinox.nn.MLP`, but its activation is not a leaf: `jax.grad` and `jax.vmap` take models that hold it, without
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
        gain: The initial factor of the weights of the last layer. A correction of something that is known starts near
            zero with a small one.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or `depth` is negative.
        TypeError: If the activation is not a function, or `key` is not a key.

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
            raise ValueError(f"`Network(depth=...)` must be a nonnegative number of hidden layers, but is {depth!r}.")
        last: Any = outputs if outputs == "scalar" else check_count(outputs, "outputs", "Network")
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


class ConvolutionalNetwork(eqx.Module):
    r"""A convolutional network (CNN) over a periodic grid: the output at a point depends on the points around it.

    $$x_{l + 1}(i) = \sigma\Bigl(\sum_{|j| \le r} W_{l, j}\, x_l(i + j) + b_l\Bigr)$$

    without $\sigma$ in the last layer. All points have the same weights, so that a field that is moved gives a result
    that is moved. A point sees others up to $r$ (`depth` + 1) points away along each axis.

    Attributes:
        layers: The linear maps, each from the $(2 r + 1)^d$ points around one to that one.
        activation: $\sigma$.
        axes: $d$, the number of axes of the grid.
        radius: $r$.

    Args:
        inputs: The number of fields that come in.
        outputs: The number of fields that come out.
        width: The number of fields in each hidden layer.
        depth: The number of hidden layers; with 0 the network is one convolution.
        axes: $d$.
        radius: $r$.
        activation: $\sigma$, a function of arrays.
        gain: The initial factor of the weights of the last layer. A correction of something that is known starts near
            zero with a small one.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, `depth` is negative, or fields have another shape or too few points.
        TypeError: If the activation is not a function, or `key` is not a key.

    Source:
        Weights at the start are uniform within $\pm 1 / \sqrt{n}$ for $n$ inputs of a layer, as in Equinox and PyTorch.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models.neural import ConvolutionalNetwork

        net = ConvolutionalNetwork(1, 2, width=4, axes=2, key=jax.random.key(0))
        x = jnp.zeros((1, 8, 8)).at[0, 3, 3].set(1.0)
        moved = net(jnp.roll(x, 5, axis=1))
        assert moved.shape == (2, 8, 8) and jnp.allclose(moved, jnp.roll(net(x), 5, axis=1))
        ```
    """

    layers: tuple[eqx.nn.Linear, ...]
    activation: Callable = eqx.field(static=True)
    axes: int = eqx.field(static=True)
    radius: int = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        width: int = 16,
        depth: int = 2,
        *,
        axes: int = 2,
        radius: int = 1,
        activation: Callable = jnp.tanh,
        gain: float = 1.0,
        key: Key,
    ):
        name = "ConvolutionalNetwork"
        check_key(key, name)
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 0:
            raise ValueError(f"`{name}(depth=...)` must be a nonnegative number of hidden layers, but is {depth!r}.")
        self.axes, self.radius = check_count(axes, "axes", name), check_count(radius, "radius", name)
        points = (2 * radius + 1) ** axes
        hidden = (check_count(width, "width", name),) * depth
        before = (check_count(inputs, "inputs", name), *hidden)
        after = (*hidden, check_count(outputs, "outputs", name))
        keys = jax.random.split(key, depth + 1)
        layers = [eqx.nn.Linear(points * m, n, key=k) for m, n, k in zip(before, after, keys, strict=True)]
        layers[-1] = jax.tree.map(lambda x: gain * x, layers[-1])
        self.layers = tuple(layers)
        self.activation = check_function(activation, "activation", "arrays")

    def __call__(self, x: Float[Array, "inputs ..."]) -> Float[Array, "outputs ..."]:
        """Returns the fields that come out, of shape `(outputs, *grid)`."""
        if x.ndim != self.axes + 1 or min(x.shape[1:]) < 2 * self.radius + 1:
            raise ValueError(
                f"`ConvolutionalNetwork(axes={self.axes}, radius={self.radius})` requires fields of shape `(inputs, "
                f"*grid)` with {self.axes} axes of {2 * self.radius + 1} points or more, but got {x.shape}."
            )
        for layer in self.layers[:-1]:
            x = self.activation(self._convolved(layer, x))
        return self._convolved(self.layers[-1], x)

    def _convolved(self, layer: eqx.nn.Linear, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """One matrix product over all points: on a CPU as fast as XLA's convolution, and supported by lanes."""
        over = tuple(range(1, x.ndim))
        moves = itertools.product(range(-self.radius, self.radius + 1), repeat=self.axes)
        around = [jnp.roll(x, tuple(-j for j in move), axis=over) for move in moves]
        table = jnp.concatenate(around).reshape(layer.in_features, -1)
        assert layer.bias is not None  # as `Network` makes it
        return (layer.weight @ table + layer.bias[:, None]).reshape(-1, *x.shape[1:])
