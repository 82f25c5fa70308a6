"""The value of each constant of a model in each condition, as places in one vector."""

import math
from typing import NamedTuple

import numpy as np

from ..models.networks._sbml_description import SBMLDescription, sbml_described
from ..models.networks._sbml_model import SBMLModel
from ._tables import Tables

_IS_SET = "(0) is set"
"""The ending of the name of a parameter that is 1 in conditions that set a start, and 0 in others."""


class Conditions(NamedTuple):
    """The changes of conditions.

    Attributes:
        model: The model, with all that conditions and parameters set as its parameters.
        constants: The names of its constants.
        pool: Numbers that stand behind the parameters of the problem in one vector.
        places: The place of each constant in that vector, of shape `(conditions, constants)`.
        kept: Of shape `(conditions, states)`: whether a condition leaves a state as it is after one before.
        numbers: The number of each condition by its name.
    """

    model: SBMLModel
    constants: tuple[str, ...]
    pool: np.ndarray
    places: np.ndarray
    kept: np.ndarray
    numbers: dict[str, int]


class Pool:
    """Numbers and the parameters of a problem in one vector.

    Attributes:
        places: The place of each parameter.
        numbers: The numbers behind them.
    """

    def __init__(self, names: list[str]):
        self.places = {name: i for i, name in enumerate(names)}
        self.numbers: list[float] = []
        self._known: dict[float, int] = {}

    def place(self, value: float | str, where: str) -> int:
        """Returns where a number or a parameter stands.

        Raises:
            ValueError: If there is no parameter of that name.
        """
        if isinstance(value, str):
            if value not in self.places:
                raise ValueError(f"{where} is `{value}`, which is not a parameter of the problem or of the model.")
            return self.places[value]
        key = math.inf if math.isnan(value) else value  # NaN is no key
        if key not in self._known:
            self._known[key] = len(self.places) + len(self.numbers)
            self.numbers.append(value)
        return self._known[key]


def conditions_of(tables: Tables, model: SBMLModel, pool: Pool) -> Conditions:
    """Returns what conditions change.

    Raises:
        ValueError: If a condition sets a name that is not part of the model, or a derived value.
    """
    targets = dict.fromkeys(t for changes in tables.conditions.values() for t in changes)
    description = sbml_described(model._static)
    set_by_table = [name for name in pool.places if name in model.parameters or name in description.initial]
    for target in [*targets, *set_by_table]:
        known = target in model.parameters or target in description.initial
        if not known and f"{target}(0)" not in model.parameters:
            raise ValueError(
                f"the conditions set `{target}`, which is neither a constant nor a state of the model `{model.name}`."
            )
    own = _own_starts(tables, description, pool)
    opened = [name for name in dict.fromkeys([*targets, *set_by_table]) if name in description.initial]
    model = model.with_initial_parameters(*(name for name in opened if name not in own))
    model = _with_starts_of_their_own(model, own)
    constants = tuple(sorted(model.parameters))
    places = np.zeros((len(tables.conditions), len(constants)), np.int64)
    kept = np.zeros((len(tables.conditions), len(model.states)), bool)
    for i, (condition, changes) in enumerate(tables.conditions.items()):
        for j, constant in enumerate(constants):
            places[i, j] = _place(constant, condition, changes, model, pool)
        for j, state in enumerate(model.states):
            kept[i, j] = _is_empty(changes.get(state, math.nan))
    numbers = {name: i for i, name in enumerate(tables.conditions)}
    return Conditions(model, constants, np.array(pool.numbers), places, kept, numbers)


def _place(
    constant: str, condition: str, changes: dict[str, float | str], model: SBMLModel, pool: Pool, within: int = 0
) -> int:
    """Returns where the value of a constant of the model stands in a condition."""
    target = constant.removesuffix(_IS_SET).removesuffix("(0)")
    cell, where = changes.get(target, math.nan), f"`{target}` in the condition `{condition}`"
    if constant.endswith(_IS_SET):
        return pool.place(float(not _is_empty(cell)), where)
    if not _is_empty(cell):
        if isinstance(cell, str) and cell not in pool.places and cell in model.parameters:  # another of the model
            if within == len(model.parameters):
                raise ValueError(f"{where} is `{cell}`, which is itself set to `{target}`.")
            return _place(cell, condition, changes, model, pool, within + 1)
        return pool.place(cell, where)
    if target in pool.places:
        return pool.places[target]
    return pool.place(float(model.parameters[constant]), where)


def _is_empty(cell: float | str) -> bool:
    """Whether a cell of the table of conditions leaves its target as the model, or the condition before, has it."""
    return isinstance(cell, float) and math.isnan(cell)


def _own_starts(tables: Tables, description: SBMLDescription, pool: Pool) -> list[str]:
    """Returns the targets that some conditions set, and whose formula at the start holds in others."""
    found: dict[str, None] = {}
    for condition, changes in tables.conditions.items():
        for name, value in changes.items():
            has_formula = name in description.initial and name not in pool.places
            goes_on = name in description.states and not _is_first(tables, condition)
            if _is_empty(value) and has_formula and not goes_on:
                found[name] = None
    return list(found)


def _with_starts_of_their_own(model: SBMLModel, names: list[str]) -> SBMLModel:
    """Returns the model in which a second parameter decides whether `S(0)` or the formula of `S` holds at the start.

    The formula stays a function of other parameters, which the same condition may set.
    """
    description = sbml_described(model._static)
    values = dict(model.parameters)
    for name in names:
        start, is_set = f"{name}(0)", f"{name}{_IS_SET}"
        values |= {start: 0.0, is_set: 0.0}
        description.initial[name] = ("where", (">", is_set, 0.5), start, description.initial[name])
    return SBMLModel(description, values)


def _is_first(tables: Tables, condition: str) -> bool:
    """Whether a model starts in a condition from its own start."""
    return any(m.before == condition or (m.condition == condition and not m.before) for m in tables.measurements)
