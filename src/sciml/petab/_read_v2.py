"""Problems in PEtab of version 2 as tables of version 1.

Experiments of one simulation, with or without a pre-equilibration, that set numbers and parameters are conditions of
version 1. petab turns all others into SBML: the changes of a first period become initial assignments, and those of
later periods events, each with an indicator of its experiment. What is left of an experiment is at most a
pre-equilibration and one simulation, whose conditions set the indicators.
"""

import logging
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from ._hybrid import Hybridization, parameter_of
from ._tables import Measurement, Observable, Tables

_WITHOUT = "no experiment"
"""The condition of measurements without an experiment; no identifier has a space."""


def read_tables_v2(path: pathlib.Path, content: dict, networks: Mapping[str, Any]) -> Tables:
    """Reads a problem.

    Args:
        path: The YAML file.
        content: Its content.
        networks: Equinox modules for networks of the problem.

    Raises:
        ValueError: If it uses an unsupported feature.
    """
    import petab.v2

    languages = [model.get("language") for model in (content.get("model_files") or {}).values()]
    if languages != ["sbml"]:
        raise ValueError(
            f"only problems with one SBML model are supported, but the languages are {languages} in {path.name}."
        )
    extensions = dict(content.get("extensions") or {})
    sciml = extensions.pop("sciml", None) or extensions.pop("petab_sciml", None)
    # without the extension, for which petab requires another package
    problem: Any = petab.v2.Problem.from_yaml({**content, "extensions": extensions}, path.parent)
    hybrid = Hybridization(problem, sciml, path.parent, networks) if sciml else None
    if not _is_of_version_1(problem):
        problem = _with_events(problem, path.name)
    conditions: dict[str, dict[str, float | str]] = {}
    if not all(x.experiment_id for x in problem.measurements):
        conditions[_WITHOUT] = {}
    starts, before = {}, {}
    for experiment in problem.experiments:
        for period in experiment.sorted_periods:
            changes = {x.target_id: _value(x.target_value) for x in problem.get_changes_for_period(period)}
            if period.is_preequilibration and len(experiment.periods) > 1:
                before[experiment.id] = f"{experiment.id} before"
                conditions[before[experiment.id]] = changes
            else:
                starts[experiment.id], conditions[experiment.id] = float(period.time), changes
    rows = tuple(map(parameter_of, problem.parameters))
    if hybrid:
        rows += hybrid.rows
        hybrid.add_arrays(conditions)
    empty = {target: math.nan for changes in conditions.values() for target in changes}
    return Tables(
        path.stem,
        problem.model.to_sbml_str(),
        rows,
        {name: empty | changes for name, changes in conditions.items()},
        {x.id: _observable(x) for x in problem.observables},
        tuple(
            Measurement(
                x.observable_id,
                before.get(x.experiment_id, ""),
                x.experiment_id or _WITHOUT,
                # after a pre-equilibration without a period, the model stays at rest
                math.inf if starts.get(x.experiment_id) == -math.inf else float(x.time),
                float(x.measurement),
                tuple(map(_value, x.observable_parameters)),
                tuple(map(_value, x.noise_parameters)),
            )
            for x in problem.measurements
        ),
        {name: start for name, start in starts.items() if math.isfinite(start)},
        hybrid.networks if hybrid else (),
    )


def _is_of_version_1(problem: Any) -> bool:
    """Whether conditions of version 1 describe all experiments, so that the model needs no events for them."""
    model = problem.model.sbml_model
    parameters = {parameter.id for parameter in problem.parameters}
    derived = any(model.getSpecies(x.getSymbol()) is None for x in model.getListOfInitialAssignments())
    for experiment in problem.experiments:
        periods = experiment.sorted_periods
        changes = [problem.get_changes_for_period(period) for period in periods]
        values = [change.target_value for period in changes for change in period]
        plain = all(value.is_number or str(value) in parameters for value in values)
        if not plain or not all(period.is_preequilibration for period in periods[:-1]):
            return False
        # a second period changes no constants that follow from others, and no compartments with what is in them
        if len(periods) > 1 and (derived or any(model.getCompartment(x.target_id) for x in changes[-1])):
            return False
    return True


def _with_events(problem: Any, name: str) -> Any:
    """Returns the problem in which events and initial assignments of the model change it for its experiments."""
    from petab.v2.converters import ExperimentsToSbmlConverter

    lint = logging.getLogger("petab.v2.lint")
    level = lint.level
    lint.setLevel(logging.ERROR)  # the conversion warns of conditions of its own that are not used
    try:
        problem = ExperimentsToSbmlConverter(problem).convert()
    except NotImplementedError as error:
        raise ValueError(f"{name} uses an unsupported feature: {error}") from error
    finally:
        lint.setLevel(level)
    for event in problem.model.sbml_model.getListOfEvents():
        if event.getId().startswith("_petab") and not event.isSetPriority():
            event.createPriority().setMath(_zero())  # before the model's own events, which have none then
    return problem


def _zero() -> Any:
    import libsbml

    return libsbml.parseL3Formula("0")


def _value(x: Any) -> float | str:
    """A number or a name.

    Raises:
        ValueError: If it is an expression.
    """
    if x.is_number:
        return float(x)
    if not x.is_Symbol:
        raise ValueError(f"the measurement table has the expression `{x}`; only numbers and names are supported there.")
    return str(x)


def _observable(row: Any) -> Observable:
    """An observable, whose placeholders get the names that they have in version 1."""
    import sympy
    from petab.v2.math import petab_math_str

    def text(formula: Any, kind: str, placeholders: Any) -> str:
        names = {x: sympy.Symbol(f"{kind}Parameter{i}_{row.id}", real=True) for i, x in enumerate(placeholders, 1)}
        return petab_math_str(formula.subs(names))

    # noise may have the placeholders of the observable
    observed = text(row.formula, "observable", row.observable_placeholders)
    own = text(row.noise_formula, "noise", row.noise_placeholders)
    distribution = str(row.noise_distribution)
    scale = "log" if distribution.startswith("log-") else "lin"
    return Observable(row.id, observed, own, scale, distribution.removeprefix("log-"))
