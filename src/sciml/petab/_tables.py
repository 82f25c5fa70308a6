"""The tables of a PEtab problem in types of Python."""

from typing import NamedTuple

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
    """

    name: str
    sbml: str
    parameters: tuple[EstimatedParameter, ...]
    conditions: dict[str, dict[str, float | str]]
    observables: dict[str, Observable]
    measurements: tuple[Measurement, ...]
    starts: dict[str, float]
