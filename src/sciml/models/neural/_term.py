"""A term of an equation that a network gives."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import check_count
from ..._interfaces._model import AbstractModel
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from ._clocks import AbstractClock
from ._network import Network


class NeuralTerm(AbstractModel):
    r"""A network of the state and, if it is told, of the time: what an equation adds up, or all of it.

    $$g_\theta(t, y) = s' \, N_\theta(y / s, c(t))$$

    where $s$ is the size of the components of the state, and $s'$ that of what comes out. Networks are made for
    numbers of the size of one: with a state of 30 and a network that is not told so, training is slow or fails.

    Attributes:
        net: $N_\theta$.
        clock: $c$, or None where the term does not depend on time.
        scale: $s$, one number for each component of the state.
        unit: $s'$, one number for each output.

    Args:
        size: The number of components of the state, a vector.
        outputs: The number of outputs; by default as many.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers.
        clock: What the network is told of time: `Elapsed`, `Seasons`, or None.
        scale: $s$, a number, or one for each component.
        unit: $s'$, a number, or one for each output; by default 1.
        gain: By what the last layer is multiplied at the start.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or sizes are not one for each component.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models.neural._term import NeuralTerm

        term = NeuralTerm(3, outputs=1, key=jax.random.key(0))
        assert term(0.0, jnp.ones(3), None).shape == (1,)
        ```
    """

    net: Network
    clock: AbstractClock | None
    scale: tuple[float, ...] = eqx.field(static=True)
    unit: tuple[float, ...] = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        outputs: int | None = None,
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
        size = check_count(size, "size", "NeuralTerm")
        outputs = size if outputs is None else check_count(outputs, "outputs", "NeuralTerm")
        if not (clock is None or isinstance(clock, AbstractClock)):
            raise TypeError(f"`clock` must be a clock such as `Elapsed()`, or None, but is {clock!r}.")
        self.scale, self.unit = sizes(scale, size, "scale"), sizes(unit, outputs, "unit")
        self.clock = clock
        inputs = size if clock is None else size + clock.size
        self.net = Network(inputs, outputs, width, depth, activation=activation, gain=gain, key=key)

    def __call__(self, t: RealScalarLike, y: Float[Array, " size"], args: Args) -> Float[Array, " outputs"]:
        """Returns the outputs; `args` is not used."""
        del args
        check_vector(y, len(self.scale))
        p = with_dtype(self, y.dtype)
        x = scaled(y, self.scale)
        if p.clock is not None:
            x = jnp.concatenate([x, p.clock(t, y.dtype)])
        return p.net(x) * jnp.asarray(self.unit, y.dtype)


def scaled(y: Float[Array, " size"], scale: tuple[float, ...]) -> Float[Array, " size"]:
    """Returns a vector in units of the sizes of its components."""
    return y / jnp.asarray(scale, y.dtype)


def sizes(value: Any, count: int, name: str) -> tuple[float, ...]:
    """Returns one positive number for each of `count` components.

    Raises:
        ValueError: If they are not as many, or not positive.
    """
    array = np.asarray(value, np.float64)
    if array.shape not in ((), (count,)) or not (np.all(np.isfinite(array)) and np.all(array > 0)):
        raise ValueError(f"`{name}` must be a positive number, or {count} of them, but is {value!r}.")
    return tuple(np.broadcast_to(array, (count,)).tolist())


def check_vector(y: Array, size: int) -> None:
    """Checks that a state is a vector of a size.

    Raises:
        ValueError: If it is not.
    """
    if jnp.shape(y) != (size,):
        raise ValueError(
            f"the state must be a vector of shape ({size},), but has shape {jnp.shape(y)}. Under `jax.vmap` every "
            "member has a state of its own."
        )
