"""A known equation, and a network for its unknown terms."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import check_count, no_instance
from ..._interfaces._model import AbstractModel
from ..._parameters import with_dtype
from ..._types import Args, Key, RealScalarLike
from ._clocks import AbstractClock
from ._networks import Network


class NeuralTerm(AbstractModel):
    r"""A network of the state and optionally of time: a term of an equation, or the whole right-hand side.

    $$g_\theta(t, y) = s' \, N_\theta(y / s, c(t))$$

    where $s$ is the size of the components of the state, and $s'$ the size of the output. Networks are made for numbers
    of the size of one: with a state of 30 and a network without this scale, training is slow or fails.

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
        clock: The time features of the network: `Elapsed`, `Seasons`, or None.
        scale: $s$, a number, or one for each component.
        unit: $s'$, a number, or one for each output; by default 1.
        gain: The initial factor of the last layer.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a number is not positive, or sizes are not one for each component.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models.neural._universal import NeuralTerm

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
            f"the state must be a vector of shape ({size},), but has shape {jnp.shape(y)}. For several members use "
            "`jax.vmap`, with one state for each."
        )


class UniversalODE(AbstractModel):
    r"""A universal differential equation (UDE): a model that is known, and a network for a term that is not.

    $$\dot y = f(t, y) + E \, g_\theta(t, y)$$

    where $E$ puts the outputs of the term into their components. The state is a vector. Any `f(t, y, args)` of a vector
    that returns one number for each component is also a term: after training, `sciml.training.sindy` finds an equation
    for the network, and `with_term` replaces the network with it.

    Good values: `scale` as large as the state varies, `unit` as large as the term is; a small `gain`, so that the
    model that is known is where training starts.

    Attributes:
        known: $f$, whose parameters are also trained, unless `where` excludes them.
        term: $g_\theta$.
        components: The components of the rates to which the term is added.

    Args:
        known: $f$, a model or a function `f(t, y, args)`.
        size: The number of components of the state.
        components: To which the term is added; by default to all.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers.
        clock: The time features of the network: `Elapsed`, `Seasons`, or None.
        scale: The size of the state's components, a number or one for each.
        unit: The size of the term's contribution, a number or one for each of `components`.
        gain: The initial factor of the last layer.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a component is not a component of the state, or the term returns another number of them.
        TypeError: If `known` or `term` cannot be called.

    Source:
        C. Rackauckas et al., Universal Differential Equations for Scientific Machine Learning, arXiv:2001.04385, 2020.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models import Pendulum
        from sciml.models.neural import UniversalODE

        frictionless = Pendulum()
        model = UniversalODE(frictionless, 2, components=(1,), width=8, gain=0.1, key=jax.random.key(0))
        y = jnp.array([1.0, 0.5])
        assert model(0.0, y, None)[0] == frictionless(0.0, y, None)[0]
        found = model.with_term(lambda t, y, args: -0.3 * y[1:])  # friction
        assert jnp.allclose(found(0.0, y, None), Pendulum(damping=0.3)(0.0, y, None))
        ```
    """

    known: Callable
    term: Callable
    components: tuple[int, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __init__(
        self,
        known: Any,
        size: int,
        *,
        components: Sequence[int] | None = None,
        width: int = 32,
        depth: int = 2,
        activation: Callable = jnp.tanh,
        clock: AbstractClock | None = None,
        scale: Any = 1.0,
        unit: Any = 1.0,
        gain: float = 1.0,
        key: Key,
    ):
        if not callable(known):
            raise TypeError(f"`known` must be a model or a function `f(t, y, args)`, but {no_instance(known)}.")
        chosen = tuple(range(size)) if components is None else tuple(components)
        if not chosen or len(set(chosen)) != len(chosen) or not all(i in range(size) for i in chosen):
            raise ValueError(
                f"`components` must be different numbers from 0 to {size - 1}, the components of a state of `size` "
                f"{size}, but is {components!r}."
            )
        self.known, self.components, self.size = known, chosen, size
        options = dict(activation=activation, clock=clock, scale=scale, gain=gain)
        unit = sizes(unit, len(chosen), "unit")
        self.term = NeuralTerm(size, len(chosen), width, depth, unit=unit, **options, key=key)

    def with_term(self, term: Callable) -> "UniversalODE":
        """Returns the equation with another term, such as the model that `sciml.training.sindy` finds.

        Raises:
            TypeError: If it cannot be called.
        """
        if not callable(term):
            raise TypeError(f"`term` must be a model or a function `f(t, y, args)`, but {no_instance(term)}.")
        return eqx.tree_at(lambda model: model.term, self, term, is_leaf=lambda x: x is self.term)

    def __call__(self, t: RealScalarLike, y: Float[Array, " size"], args: Args) -> Float[Array, " size"]:
        """Returns the rates; `args` goes to both parts."""
        check_vector(y, self.size)
        rates, extra = self.known(t, y, args), self.term(t, y, args)
        count = len(self.components)
        if jnp.shape(extra) != (count,):
            raise ValueError(
                f"the term must return an array of shape ({count},), one number for each of the components "
                f"{self.components}, but it has shape {jnp.shape(extra)}."
            )
        if self.components == tuple(range(self.size)):
            return rates + extra
        # row i of the table is the place of component i among what the term returns
        places = np.full(self.size, -1)
        places[list(self.components)] = np.arange(count)
        added = [extra[place] if place >= 0 else jnp.zeros((), y.dtype) for place in places.tolist()]
        return rates + jnp.stack(jax.tree.map(lambda x: x.astype(y.dtype), added))
