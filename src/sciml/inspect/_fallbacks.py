"""The parts of a model that do not run over lanes, the reasons, and remedies."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._interfaces._delayed import Delayed
from .._interfaces._reactions import Reactions
from .._interfaces._stochastic import AbstractStochastic
from ..kernels._lanes import fallbacks as fallbacks_of_function
from ._findings import cure_of_fallback


class Fallbacks(dict[str, str]):
    """The primitives of JAX that do not run over lanes, with the reason and the remedy for each; prints as lines."""

    def __str__(self) -> str:
        """A line for each, or that there is nothing."""
        return "\n".join(f"{name}: {text}" for name, text in self.items()) or "everything runs over lanes"


def fallbacks(
    fn: Callable[..., Any] | AbstractStochastic | Reactions | Delayed, *args: PyTree, n: int = 2
) -> Fallbacks:
    """Lists the parts of a model that run as a plain `jax.vmap` over members, not over lanes, with remedies.

    Args:
        fn: A function of one member's arrays, such as a vector field; or a model with noise, whose drift and diffusion
            are looked at, `sciml.Reactions`, whose propensities are, or a `sciml.Delayed`.
        args: One member's arguments, PyTrees of arrays and numbers: of a vector field or a model, `t, y, args`.
        n: The number of members to try with.

    Returns:
        A dictionary from names of JAX's primitives to words. If it is empty, everything runs over lanes.

    Raises:
        TypeError: If `fn` is neither a function nor a model.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml import inspect

        assert inspect.fallbacks(lambda y: y[::-1] * 2.0, jnp.ones(3)) == {}
        noisy = sciml.Stochastic(lambda t, y, args: -y, lambda t, y, args: jnp.sort(y))
        found = inspect.fallbacks(noisy, 0.0, jnp.ones(3), None)
        assert "`jnp.minimum`" in found["sort"] and "diffusion" in found["sort"]
        ```
    """
    found = Fallbacks()
    for part, function in _parts(fn):
        for name, reason in fallbacks_of_function(function, *args, count=n).items():
            where = f" in the {part}" if part else ""
            if "too large" in reason:
                cure = "For large states an operation on whole arrays is fine."
            else:
                cure = cure_of_fallback(name)
            found[name] = f"{reason}{where}. {cure}" if name not in found else f"{found[name]} Also{where}."
    return found


def _past(model: Delayed, t: Any, y: Any, args: Any) -> tuple:
    """Returns the past of a state that has always been the same."""
    delays: Any = model.delays(t, y, args) if callable(model.delays) else model.delays
    states = (y,) * jnp.size(delays)
    return (states, jax.tree.map(jnp.zeros_like, states)) if model.neutral else states


def _parts(fn: Any) -> list[tuple[str, Callable[..., Any]]]:
    if isinstance(fn, AbstractStochastic):
        return [("drift", fn.drift), ("diffusion", fn.diffusion)]
    if isinstance(fn, Reactions):
        return [("propensities", lambda t, x, args: fn.rates(x, args))]
    if isinstance(fn, Delayed):
        return [("field", lambda t, y, args: fn.rate(t, y, _past(fn, t, y, args), args))]
    if not callable(fn):
        raise TypeError(f"`fn` must be a function or a model of sciml, but is {fn!r}.")
    return [("", fn)]
