"""A known equation, and a network for what it lacks."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import no_instance
from ..._interfaces._model import AbstractModel
from ..._types import Args, Key, RealScalarLike
from ._clocks import AbstractClock
from ._term import NeuralTerm, check_vector, sizes


class UniversalODE(AbstractModel):
    r"""A universal differential equation (UDE): a model that is known, and a network for a term that is not.

    $$\dot y = f(t, y) + E \, g_\theta(t, y)$$

    where $E$ puts the outputs of the term into their components. The state is a vector. Any `f(t, y, args)` of a vector
    that returns one number for each component is a term, too: after training, `sciml.training.sindy` makes an
    equation of the network, and `with_term` puts it in its place.

    Good values: `scale` as large as the state varies, `unit` as large as the term is; a small `gain`, so that the
    model that is known is where training starts.

    Attributes:
        known: $f$, whose parameters are trained too, unless `where` says otherwise.
        term: $g_\theta$.
        components: Which components of the rates the term adds to.

    Args:
        known: $f$, a model or a function `f(t, y, args)`.
        size: The number of components of the state.
        components: To which the term is added; by default to all.
        width: The number of neurons in each hidden layer.
        depth: The number of hidden layers.
        activation: A function of arrays, between the layers.
        clock: What the network is told of time: `Elapsed`, `Seasons`, or None.
        scale: The size of the state's components, a number or one for each.
        unit: The size of what the term adds, a number or one for each of `components`.
        gain: By what the last layer is multiplied at the start.
        key: A random key, for the weights at the start.

    Raises:
        ValueError: If a component is none of the state's, or the term returns another number of them.
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
        """Returns the equation with another term, such as a `sciml.models.sparse.SparseModel`.

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
