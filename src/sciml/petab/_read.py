"""Readers of PEtab problems: which version, and the tables of version 1 as petab reads them."""

import math
import os
import pathlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ._read_v2 import read_tables_v2
from ._tables import DISTRIBUTIONS, SCALES, EstimatedParameter, Measurement, Observable, Tables


def read_tables(path: str | os.PathLike, networks: Mapping[str, Any] = MappingProxyType({})) -> Tables:
    """Reads a problem, with Equinox modules for its networks.

    Raises:
        ImportError: If petab is not installed.
        FileNotFoundError: If there is no such file.
        ValueError: If it is not a problem of PEtab 1 or 2, or uses an unsupported feature.
    """
    path = pathlib.Path(path)
    try:
        import petab.v1 as petab
    except ImportError as error:
        raise ImportError(
            "reading PEtab requires petab, which needs Python 3.12 or newer: `pip install 'sciml-jax[sbml]'`."
        ) from error
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}.")
    content = _yaml(path)
    version = str(content.get("format_version", "1"))
    if version.startswith("2"):
        return read_tables_v2(path, content, networks)
    if not version.startswith("1"):
        raise ValueError(f"{path.name} uses PEtab version {version}, but only versions 1 and 2 are supported.")
    problem = petab.Problem.from_yaml(path)
    if problem.model is None or problem.model.type_id != "sbml":
        raise ValueError(f"{path.name}: only SBML models are supported.")
    model: Any = problem.model
    return Tables(
        path.stem,
        model.to_sbml_str(),
        _parameters(problem.parameter_df),
        _conditions(problem.condition_df),
        _observables(problem.observable_df),
        _measurements(problem.measurement_df),
        {},
    )


def _yaml(path: pathlib.Path) -> dict:
    import yaml

    found = yaml.safe_load(path.read_text())
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is not a PEtab problem.")
    return found


def _is_missing(x: Any) -> bool:
    return x is None or (isinstance(x, float) and math.isnan(x)) or (isinstance(x, str) and not x.strip())


def _value(x: Any) -> float | str:
    """A cell as a number, or as a name."""
    try:
        return float(x)
    except (TypeError, ValueError):
        return str(x).strip()


def _values(x: Any) -> tuple[float | str, ...]:
    return () if _is_missing(x) else tuple(_value(part) for part in str(x).split(";"))


def _chosen(row: Any, column: str, default: str, known: tuple[str, ...], where: str) -> str:
    found = row.get(column)
    if _is_missing(found):
        return default
    if found not in known:
        raise ValueError(f"`{column}` of {where} is `{found}`, but must be one of {', '.join(known)}.")
    return str(found)


def _parameters(table: Any) -> tuple[EstimatedParameter, ...]:
    found = []
    for name, row in table.iterrows():
        scale = _chosen(row, "parameterScale", "lin", SCALES, f"the parameter `{name}`")
        kind, numbers = row.get("objectivePriorType"), row.get("objectivePriorParameters")
        prior = None
        if not _is_missing(kind):
            prior = (str(kind), tuple(map(float, _values(numbers))))
        bounds = [row.get(column, math.nan) for column in ("lowerBound", "upperBound", "nominalValue")]
        lower, upper, nominal = (math.nan if _is_missing(x) else float(x) for x in bounds)
        found.append(EstimatedParameter(str(name), scale, lower, upper, nominal, bool(int(row["estimate"])), prior))
    return tuple(found)


def _conditions(table: Any) -> dict[str, dict[str, float | str]]:
    targets = [column for column in table.columns if column != "conditionName"]
    return {
        str(name): {c: math.nan if _is_missing(row[c]) else _value(row[c]) for c in targets}
        for name, row in table.iterrows()
    }


def _observables(table: Any) -> dict[str, Observable]:
    found = {}
    for name, row in table.iterrows():
        where = f"the observable `{name}`"
        scale = _chosen(row, "observableTransformation", "lin", SCALES, where)
        distribution = _chosen(row, "noiseDistribution", "normal", DISTRIBUTIONS, where)
        noise = "1" if _is_missing(row.get("noiseFormula")) else str(row["noiseFormula"])
        found[str(name)] = Observable(str(name), str(row["observableFormula"]), noise, scale, distribution)
    return found


def _measurements(table: Any) -> tuple[Measurement, ...]:
    found = []
    for _, row in table.iterrows():
        before = row.get("preequilibrationConditionId")
        found.append(
            Measurement(
                str(row["observableId"]),
                "" if _is_missing(before) else str(before),
                str(row["simulationConditionId"]),
                float(row["time"]),
                float(row["measurement"]),
                _values(row.get("observableParameters")),
                _values(row.get("noiseParameters")),
            )
        )
    return tuple(found)
