"""Marks in programs for who reads them: names of scopes, which cost nothing when the program runs.

`sciml.inspect` finds by them which loops run over lanes, what does not, which entries of the table of choices have
selected a part, and the number of the step that an equation belongs to, in forward and in backward passes.
"""

import contextlib

import jax
from jaxtyping import Array, Int

STEP = "sciml_step"
LANES = "sciml_lanes"
ONE_BY_ONE = "sciml_one_by_one"
FALLBACK = "sciml_fallback"
CHOICE = "sciml_choice"


def step_number(number: Int[Array, ""]) -> Int[Array, ""]:
    """Returns the number of a step, marked as such; steps that are taken again for a gradient have the same."""
    with jax.named_scope(STEP):
        return number + 0  # an equation to carry the name, which the compiler leaves out


def over_lanes(count: int) -> contextlib.AbstractContextManager:
    """Returns a block in which a number of members run side by side."""
    return jax.named_scope(f"{LANES}:{count}")


def one_by_one(count: int) -> contextlib.AbstractContextManager:
    """Returns a block in which a number of members run one after another."""
    return jax.named_scope(f"{ONE_BY_ONE}:{count}")


def chosen(name: str) -> contextlib.AbstractContextManager:
    """Returns a block of what an entry of the table of choices has selected, `"events.gather_from"` for example."""
    return jax.named_scope(f"{CHOICE}:{name}")


def fallback(primitive: str, lanes: int | None) -> contextlib.AbstractContextManager:
    """Returns a block in which a primitive runs over lanes by JAX's own `vmap`; no effect on a single member."""
    return contextlib.nullcontext() if lanes is None else jax.named_scope(f"{FALLBACK}:{primitive}")
