"""Runs with noise: each member has a key of its own, which is one more of its inputs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._checks import check_key
from ..solvers._plan import Plan, Times
from ..solvers.adjoints import Checkpointed
from ..solvers.events._event import GivenEvents
from ..solvers.noise._brownian import BrownianPath
from ..solvers.noise._closed_noise import ModelWithNoise
from ..solvers.noise._prepare import check_noisy, is_noisy, noisy_model
from ..solvers.noise._random_bits import words_of


def check_keys(model: Any, key: Any) -> None:
    """Checks that a model with noise has a key or one for each member; see `check_noisy`."""
    check_noisy(model, _one_of(key), Checkpointed())


def with_noise(
    model: Any,
    key: Any,
    in_axes: tuple | None,
    plan: Plan,
    times: Times,
    equal: bool,
    events: GivenEvents | None,
) -> tuple[Any, tuple | None, Plan]:
    """Returns a model with what makes its noise, which of the inputs have members then, and the plan.

    Args:
        model: The model.
        key: A random key or a path, or one for each member.
        in_axes: Which of model, initial state and args have members in their first axis.
        plan: How the run goes on.
        times: Its times.
        equal: Whether its steps have the length that was given, except where an event cuts one.
        events: The events; None without any.

    Raises:
        ValueError: If diffrax alone has the method, or members have one key.
    """
    if not is_noisy(model):
        return model, in_axes, plan
    found, plan = noisy_model(model, _one_of(key), plan, times, equal, events)
    if not _has_members(key):
        if in_axes is not None:
            raise ValueError("Members need a `key` each, as `jax.random.split(key, members)` makes them.")
        return found, None, plan
    words = key.words if isinstance(key, BrownianPath) else jax.vmap(words_of)(jnp.asarray(key))
    axes = (None, None, None) if in_axes is None else in_axes
    own = jax.tree.map(lambda x: None, found)
    own = eqx.tree_at(_inner, own, _spread(axes[0], _inner(found)), is_leaf=lambda x: x is None)
    own = eqx.tree_at(_words, own, 0, is_leaf=lambda x: x is None)
    return eqx.tree_at(_words, found, words), (own, *axes[1:]), plan


def _spread(axis: Any, model: Any) -> PyTree:
    """Returns an axis for each array of a model."""
    return jax.tree.map(
        lambda a, part: jax.tree.map(lambda _: a, part), axis, model, is_leaf=lambda x: x is None or isinstance(x, int)
    )


def _inner(model: Any) -> Any:
    return model.model if isinstance(model, ModelWithNoise) else model.reactions


def _words(model: Any) -> Any:
    return model.path.words if isinstance(model, ModelWithNoise) else model.words


def _has_members(key: Any) -> bool:
    if isinstance(key, BrownianPath):
        return key.words.ndim == 2
    key = check_key(key, "simulate")
    return key.ndim == (1 if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else 2)


def _one_of(key: Any) -> Any:
    """Returns the first key or path of several."""
    if key is None or not _has_members(key):
        return key
    return eqx.tree_at(lambda path: path.words, key, key.words[0]) if isinstance(key, BrownianPath) else key[0]
