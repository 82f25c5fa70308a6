"""Which value each constant of a model has in each condition, as places in one vector."""

import math
from typing import NamedTuple

import numpy as np

from ..models.networks._sbml_description import sbml_described
from ..models.networks._sbml_model import SBMLModel
from ._tables import Tables


class Conditions(NamedTuple):
    """What conditions change.

    Attributes:
        model: The model, with all that conditions and parameters set as its parameters.
        constants: The names of its constants.
        pool: Numbers that stand behind the parameters of the problem in one vector.
        places: Where in that vector each constant is, of shape `(conditions, constants)`.
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
        places: Where each parameter stands.
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
                raise ValueError(f"{where} is `{value}`, which is no parameter of the problem.")
            return self.places[value]
        key = math.inf if math.isnan(value) else value  # NaN is no key
        if key not in self._known:
            self._known[key] = len(self.places) + len(self.numbers)
            self.numbers.append(value)
        return self._known[key]


def conditions_of(tables: Tables, model: SBMLModel, pool: Pool) -> Conditions:
    """Returns what conditions change.

    Raises:
        ValueError: If a condition sets what is no part of the model, or follows from others.
    """
    targets = dict.fromkeys(t for changes in tables.conditions.values() for t in changes)
    description = sbml_described(model._static)
    set_by_table = [name for name in pool.places if name in model.parameters or name in description.initial]
    for target in [*targets, *set_by_table]:
        known = target in model.parameters or target in description.initial
        if not known and f"{target}(0)" not in model.parameters:
            raise ValueError(
                f"the conditions set `{target}`, which is no constant and no state of the model `{model.name}`."
            )
    states = [name for name in targets if name in description.states]
    # a state that no condition sets in some case keeps its own start there, which is not what a parameter can say
    for name in states:
        for condition, changes in tables.conditions.items():
            value = changes.get(name, math.nan)
            if isinstance(value, float) and math.isnan(value) and _is_first(tables, condition):
                raise ValueError(f"the condition `{condition}` gives no value for `{name}`, which others do.")
    opened = [name for name in dict.fromkeys([*targets, *set_by_table]) if name in description.initial]
    model = model.with_parameters(*opened)
    constants = tuple(sorted(model.parameters))
    places = np.zeros((len(tables.conditions), len(constants)), np.int64)
    kept = np.zeros((len(tables.conditions), len(model.states)), bool)
    for i, (condition, changes) in enumerate(tables.conditions.items()):
        for j, constant in enumerate(constants):
            target = constant.removesuffix("(0)")
            where = f"`{target}` in the condition `{condition}`"
            if target in changes:
                places[i, j] = pool.place(changes[target], where)
            elif target in pool.places:
                places[i, j] = pool.places[target]
            else:
                places[i, j] = pool.place(float(model.parameters[constant]), where)
        for j, state in enumerate(model.states):
            value = changes.get(state, math.nan)
            kept[i, j] = isinstance(value, float) and math.isnan(value)
    numbers = {name: i for i, name in enumerate(tables.conditions)}
    return Conditions(model, constants, np.array(pool.numbers), places, kept, numbers)


def _is_first(tables: Tables, condition: str) -> bool:
    """Whether a model starts in a condition from its own start."""
    return any(m.before == condition or (m.condition == condition and not m.before) for m in tables.measurements)
