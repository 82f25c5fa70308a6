"""The tables of a PEtab problem in types of Python."""

from typing import Any, NamedTuple

import numpy as np

SCALES = ("lin", "log", "log10")
DISTRIBUTIONS = ("normal", "laplace")


class EstimatedParameter(NamedTuple):
    """A row of the table of parameters.

    Attributes:
        name: Its name.
        scale: The scale on which it is estimated.
        lower: The least value, not on that scale, as all that follow.
        upper: The largest value.
        nominal: The value that somebody found or gave.
        estimated: Whether it is estimated.
        prior: Kind and numbers of its prior; None for none within the bounds.
    """

    name: str
    scale: str
    lower: float
    upper: float
    nominal: float
    estimated: bool
    prior: tuple[str, tuple[float, ...]] | None


class Observable(NamedTuple):
    """A row of the table of observables.

    Attributes:
        name: Its name.
        formula: The observed expression.
        noise: The scale of the noise.
        scale: The scale on which there is noise.
        distribution: The noise distribution.
    """

    name: str
    formula: str
    noise: str
    scale: str
    distribution: str


class Measurement(NamedTuple):
    """A row of the table of measurements.

    Attributes:
        observable: The observable.
        before: The condition in which the model reached a steady state before, or an empty text.
        condition: The condition.
        time: When; infinite at a steady state.
        value: The result.
        parameters: The values of the observable's parameters, numbers or names.
        noise: The values of the noise's parameters.
    """

    observable: str
    before: str
    condition: str
    time: float
    value: float
    parameters: tuple[float | str, ...]
    noise: tuple[float | str, ...]


class NetworkInput(NamedTuple):
    """An argument of a neural network.

    Attributes:
        shape: Its shape.
        names: The names of its elements.
        arrays: Its values by condition if these are arrays, else empty.
    """

    shape: tuple[int, ...]
    names: tuple[str, ...]
    arrays: dict[str, np.ndarray]


class HybridNetwork(NamedTuple):
    """A neural network in a problem.

    Attributes:
        name: Its name.
        module: The network, an Equinox module.
        before: Whether it is evaluated before simulations, and not as a part of the model.
        weights: The names of the numbers of its arrays, in their order.
        inputs: Its arguments.
        outputs: The indices of named results in all results.
        formulas: The expressions for inputs that do not depend on the condition.
        targets: The variables of the model that are named results.
    """

    name: str
    module: Any
    before: bool
    weights: tuple[str, ...]
    inputs: tuple[NetworkInput, ...]
    outputs: dict[str, int]
    formulas: dict[str, str]
    targets: dict[str, str]


class Tables(NamedTuple):
    """All of a problem.

    Attributes:
        name: Its name.
        sbml: The model.
        parameters: The table of parameters.
        conditions: The values that each condition sets, numbers or names of parameters; NaN for an empty cell.
        observables: The table of observables.
        measurements: The table of measurements.
        starts: When conditions start, zero for those that are not in it.
        networks: The neural networks.
    """

    name: str
    sbml: str
    parameters: tuple[EstimatedParameter, ...]
    conditions: dict[str, dict[str, float | str]]
    observables: dict[str, Observable]
    measurements: tuple[Measurement, ...]
    starts: dict[str, float]
    networks: tuple[HybridNetwork, ...] = ()
