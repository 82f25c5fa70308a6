"""Other values of parameters by name, in a model that stays the same otherwise."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp

from ..._parameters import parameter
from ._formulas import suggestion

_Model = TypeVar("_Model", bound=eqx.Module)


def with_parameters(model: _Model, values: Mapping[str, Any], computed: Iterable[str], states: Iterable[str]) -> _Model:
    """Returns a model with other values of some of its `parameters`.

    Args:
        model: The model.
        values: The values by name.
        computed: Names of values that follow from others.
        states: Names of parts of the state.

    Raises:
        ValueError: If a name is not a parameter, or a value has another shape.
        TypeError: If a value is complex.
    """
    given: Any = model
    known, computed, states = dict(given.parameters), set(computed), set(states)
    for name, value in values.items():
        if name in states:
            raise ValueError(f"`{name}` is part of the state, not a parameter: write `model.state({name}=...)`.")
        if name in computed and name not in known:
            raise ValueError(f"`{name}` is computed from other values by a formula. Change those values instead.")
        if name not in known:
            raise ValueError(f"there is no parameter `{name}`.{suggestion(name, known)}")
        if jnp.iscomplexobj(value):
            raise TypeError(f"the parameter `{name}` must be real, but is {value!r:.60}.")
        value = parameter(value)
        if jnp.shape(value) != jnp.shape(known[name]):
            raise ValueError(
                f"the parameter `{name}` must have shape {jnp.shape(known[name])}, but has shape {jnp.shape(value)}. "
                f"For several values use `jax.vmap`, with a call of `with_parameters` inside."
            )
        known[name] = value
    return eqx.tree_at(lambda m: m.parameters, model, known)
