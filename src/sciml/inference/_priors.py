"""Priors as `log_density` is given them, read and checked."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array

from .._checks import concrete
from ..training._selection import ParameterSelection, described, indices_of, is_inexact, leaf_names, select
from .distributions._abstract import AbstractDistribution


class Prior(eqx.Module):
    """The prior of some leaves: a distribution, or a function of the model that gives one."""

    given: Any
    slots: tuple[int, ...] = eqx.field(static=True)  # positions among the sampled leaves

    def of(self, model: Any) -> AbstractDistribution:
        return self.given if isinstance(self.given, AbstractDistribution) else self.given(model)


def read_priors(model: Any, priors: Sequence) -> tuple[Any, ParameterSelection, tuple[Prior, ...]]:
    """Returns a model with its sampled leaves as arrays, the selection of them, and their priors.

    Raises:
        ValueError: If a selector or a prior makes no sense.
        TypeError: If an entry is no pair, or picks what is no floating-point array, or its prior is none.
    """
    chosen: list[tuple[list[int], Any, Any]] = []
    taken: dict[int, int] = {}
    names, values = leaf_names(model), jtu.tree_leaves(model)
    for number, entry in enumerate(priors):
        if not (isinstance(entry, Sequence) and len(entry) == 2 and callable(entry[0])):
            raise TypeError(f"each entry of `priors` must be a tuple `(selector, prior)`, but got {entry!r}.")
        selector, given = entry
        leaves = indices_of(model, selector, "priors")
        if not any(is_inexact(values[leaf]) for leaf in leaves):
            raise TypeError(
                f"`priors` picks `{names[leaves[0]]}`, which is {described(values[leaves[0]])}; only floating-point "
                "leaves can be sampled. Make it a float array, such as `jnp.array(1.0)`."
            )
        for leaf in leaves:
            if leaf in taken:
                raise ValueError(f"`{names[leaf]}` has two priors, entries {taken[leaf]} and {number} of `priors`.")
            taken[leaf] = number
        chosen.append((leaves, given, _transform_of(given, model, number)))
    transforms = [(selector, transform) for (selector, _), (_, _, transform) in zip(priors, chosen, strict=True)]
    model, selection = select(model, lambda m: [selector(m) for selector, _ in priors], None, (), transforms)
    slot = {leaf: i for i, leaf in enumerate(selection.indices)}
    for leaves, _, _ in chosen:
        if wrong := [names[leaf] for leaf in leaves if leaf not in slot]:
            raise TypeError(f"`priors` picks `{wrong[0]}`, which is no floating-point array.")
    found = tuple(Prior(given, tuple(slot[leaf] for leaf in leaves)) for leaves, given, _ in chosen)
    return model, selection, found


def _transform_of(given: Any, model: Any, number: int) -> Any:
    if isinstance(given, AbstractDistribution):
        return given.transform
    if not callable(given) or isinstance(given, type):
        hint = " Wrap one of another library: `Custom(d.log_prob, transform)`." if hasattr(given, "log_prob") else ""
        raise TypeError(f"entry {number} of `priors` must be a distribution of `sciml.inference`, got {given!r}.{hint}")
    prior = given(model)
    if not isinstance(prior, AbstractDistribution):
        raise TypeError(f"the function in entry {number} of `priors` must return a distribution, but gave {prior!r}.")
    if jtu.tree_leaves(prior.transform):
        raise ValueError(
            f"the prior in entry {number} of `priors` is a function of the model and has bounds, which would move with "
            "it. Use one of any number or of positive numbers, or bounds that are fixed."
        )
    return prior.transform


def check_prior(prior: AbstractDistribution, values: Sequence[Array], number: int, name: str) -> None:
    """Checks a prior whose parameters are known, as one with a negative scale is none.

    Args:
        prior: The prior.
        values: The numbers that it is the prior of.
        number: Its place among the priors.
        name: The name of the first of the numbers.

    Raises:
        ValueError: If its density is NaN, or its variance negative.
    """
    if not all(map(concrete, jax.tree.leaves((prior, list(values))))):
        return
    with jax.ensure_compile_time_eval():
        wrong = any(bool(jnp.any(jnp.isnan(prior.log_prob(x)) & jnp.isfinite(x))) for x in values)
        wrong = wrong or _no_variance(prior)
    if wrong:
        shown = ", ".join(f"{field.name}={getattr(prior, field.name)}" for field in dataclasses.fields(prior))
        raise ValueError(
            f"the prior in entry {number} of `priors`, of `{name}`, is no density: {type(prior).__name__}({shown}). "
            "Are its parameters in their order, and positive where they must be?"
        )


def _no_variance(prior: AbstractDistribution) -> bool:
    try:
        _, variance = prior.moments()
    except (ValueError, NotImplementedError):  # of some nothing is known
        return False
    return bool(jnp.any(variance < 0))
