"""The events of an SBML model as functions of its state."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._parameters import Parameter
from ..._types import Args, RealScalarLike
from ._formulas import Formula
from ._program import FormulaProgram, StaticContent, needed, ordered, scalars, taken_from
from ._sbml_description import SBMLDescription, sbml_described
from ._sbml_equations import sbml_equations
from ._sbml_math import TIME


class EventRoot(eqx.Module):
    """A function that is positive where the trigger of an event holds."""

    parameters: dict[str, Parameter]
    _static: StaticContent = eqx.field(static=True)
    _number: int = eqx.field(static=True)

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, ""]:
        """Returns its value."""
        del args
        program, slots = _root_of(self._static, self._number)
        return evaluated(program, t, y, self.parameters)[slots[0]]


class EventChange(eqx.Module):
    """The state after an event."""

    parameters: dict[str, Parameter]
    _static: StaticContent = eqx.field(static=True)
    _number: int = eqx.field(static=True)

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, " n"]:
        """Returns it."""
        del args
        program, slots = _change_of(self._static, self._number)
        return taken_from(evaluated(program, t, y, self.parameters), slots)


def evaluated(program: FormulaProgram, t: Any, y: Array, parameters: dict[str, Parameter], *more: Array) -> Array:
    """Returns what a program makes of time, state, constants and what else it takes."""
    return program(jnp.concatenate([y, scalars([t, *parameters.values(), *more], y.dtype)]))


@functools.lru_cache(maxsize=64)
def _root_of(static: StaticContent, number: int) -> tuple[FormulaProgram, np.ndarray]:
    operation, left, right = sbml_described(static).events[number].trigger  # type: ignore[misc]
    return _program(static, {"the root": ("-", left, right) if operation in (">", ">=") else ("-", right, left)})


@functools.lru_cache(maxsize=64)
def _change_of(static: StaticContent, number: int) -> tuple[FormulaProgram, np.ndarray]:
    model = sbml_described(static)
    changes = {change.variable: ("*", change.value, change.scale) for change in model.events[number].changes}
    program, slots = _program(static, {f"change of {name}": formula for name, formula in changes.items()})
    after = program.slots(model.states)  # those that are not assigned stay
    after[[model.states.index(name) for name in changes]] = slots
    return program, after


def _program(static: StaticContent, extra: dict[str, Formula]) -> tuple[FormulaProgram, np.ndarray]:
    return program_of_events(sbml_described(static), sbml_equations(static).formulas, extra)


def program_of_events(
    model: SBMLDescription, formulas: Mapping[str, Formula], extra: Mapping[str, Formula], inputs: Sequence[str] = ()
) -> tuple[FormulaProgram, np.ndarray]:
    """Returns a program of some formulas with all that they need, and where their results stand.

    Args:
        model: The model.
        formulas: The formulas that these may need.
        extra: The formulas.
        inputs: What they need beside states, time and constants.
    """
    own = {name: ("*", f, 1.0) if isinstance(f, str) else f for name, f in extra.items()}
    formulas = ordered(needed(own.values(), formulas) | own)
    program = FormulaProgram([*model.states, TIME, *model.constants, *inputs], formulas)
    return program, program.slots(list(own))
