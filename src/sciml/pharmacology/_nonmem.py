"""`read_nonmem`: dosing and measurements of subjects from a table in the conventions of NONMEM."""

import csv
import os
import pathlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._checks import concrete
from .._interfaces._held import Held
from ._doses import Doses

_COLUMNS = "ID TIME AMT RATE EVID CMT ADDL II SS MDV DV CENS BLQ LLOQ LIMIT".split()
_MISSING = {"", ".", "NA", "NAN", "N/A"}
_OBSERVATION, _DOSE, _OTHER, _RESET, _RESET_AND_DOSE = range(5)


class Population(eqx.Module):
    """Subjects with doses, measurements and covariates; returned by `read_nonmem`.

    Every array has a leading axis of subjects, so that it is the `subjects` of `inference.hierarchical`, and
    `jax.vmap` maps over it. Shorter tables are filled: with the last time and a missing value.

    Attributes:
        ids: The values of ID, in the order of the table.
        doses: The doses.
        times: The time of each measurement.
        dv: The measurement, NaN if it is missing; the limit if it is censored.
        before: Whether a measurement precedes a dose at its time, `before` of `solve_doses`.
        cmt: CMT of each measurement, 1 by default.
        censored: Whether a measurement is below the limit of quantification.
        lloq: The limit of quantification; NaN if there is none.
        covariates: The first value of each covariate, shape `(subjects,)`; `held` has those that change.
        changes: The times at which covariates change, and their values from then on.
    """

    ids: tuple[Any, ...] = eqx.field(static=True)
    doses: Doses
    times: Float[Array, "..."]
    dv: Float[Array, "..."]
    before: Bool[Array, "..."]
    cmt: Int[Array, "..."]
    censored: Bool[Array, "..."]
    lloq: Float[Array, "..."]
    covariates: dict[str, Float[Array, "..."]]
    changes: tuple[Float[Array, "..."], dict[str, Float[Array, "..."]]]

    def __getitem__(self, i: Any) -> "Population":
        """Returns one subject, without the leading axis."""
        return jax.tree.map(lambda x: x[i], self)

    def __repr__(self) -> str:
        if not all(isinstance(x, jax.Array) and concrete(x) for x in jax.tree.leaves(self)):
            return super().__repr__()
        who = f"{len(self.times)} subjects" if self.times.ndim == 2 else "one subject"
        n_doses, n_seen, n_below = (
            int(jnp.sum(x)) for x in (jnp.isfinite(self.doses.times), ~jnp.isnan(self.dv), self.censored)
        )
        below = f" ({n_below} below the limit)" if n_below else ""
        of = f", covariates {', '.join(self.covariates)}" if self.covariates else ""
        return f"Population({who}, {n_doses} doses, {n_seen} measurements{below}{of})"

    def held(self) -> Held:
        """Returns the covariates of one subject as step functions of time, for `solve_doses(covariates=)`."""
        times, values = self.changes
        if concrete(times):  # without the rows that are left over
            count = int(np.sum(np.isfinite(times)))
            times, values = times[:count], {name: x[:count] for name, x in values.items()}
        return Held(times, values)


class _Record(NamedTuple):
    """A row of the table: its number, time and values; and the values of covariates, NaN if they are missing."""

    row: int
    time: float
    values: dict[str, float]
    covariates: np.ndarray


def read_nonmem(
    source: str | os.PathLike | Mapping[str, Any] | Any,
    *,
    covariates: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
    steps: Literal["nocb", "locf"] | Any = "nocb",
) -> Population:
    r"""Returns the subjects of a table in the conventions of NONMEM.

    A table has a row for each dose and each measurement:

    | Column | Meaning |
    | --- | --- |
    | ID | the subject, whose rows follow each other |
    | TIME | the time, which does not decrease; after a reset it may start again, and then continues here |
    | DV | the measurement |
    | AMT | the amount of a dose, zero in other rows |
    | EVID | 0 measurement, 1 dose, 2 other, 3 reset, 4 reset and dose; by default 1 if AMT is not zero |
    | MDV | 1 if DV is missing |
    | CMT | the number of the compartment, 1 by default |
    | RATE | the rate of an infusion; -1 and -2 for a rate or duration that `Doses.modified` sets |
    | ADDL, II | additional doses and the dosing interval |
    | SS | 1 for a steady state; 2 for one that is added to the amounts of earlier doses |
    | CENS or BLQ | 1 if the measurement is below the limit of quantification |
    | LLOQ | this limit; by default DV of the row, which must be positive then |

    ID and TIME are required. Names are not case-sensitive. Empty cells, `.` and `NA` are missing: zero in columns of
    doses, and a missing measurement in DV. Lines that start with `#` are comments. LIMIT of a measurement that is below
    the limit of quantification is not supported.

    Args:
        source: The path of a text file with a header, whose columns are separated by commas, semicolons, tabs or
            spaces; or a mapping from names to columns, such as a pandas `DataFrame`.
        covariates: The names of the columns with covariates. Missing values are those of the row before, or of the
            first row that has one.
        names: Names in the table for other columns: `{"CONC": "DV"}` reads DV from CONC.
        steps: How covariates change: `"nocb"`, the next value from the previous row on, as in NONMEM; or `"locf"`, each
            value until the next row, as in Monolix and nlmixr2.

    Returns:
        A `Population`. A covariate that changes within a subject gives one warning: `covariates` has its first value.

    Raises:
        ValueError: With the row and column of a value that is wrong.
        TypeError: If `source` is not a path or a mapping.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import pharmacology

        table = {
            "ID": [1, 1, 1, 2, 2],
            "TIME": [0, 1, 4, 0, 2],
            "AMT": [100, 0, 0, 150, 0],
            "DV": [".", 8.2, 4.1, ".", 9.0],
            "WT": [70, 70, 70, 90, 90],
        }
        population = pharmacology.read_nonmem(table, covariates=["WT"])
        assert population.ids == (1, 2) and population.times.shape == (2, 2)

        def predicted(subject):
            drug = pharmacology.Compartments(cl=2.0, v1=0.15 * subject.covariates["WT"])
            return drug.concentration(pharmacology.solve_doses(drug, subject.doses, subject.times))

        levels = jax.vmap(predicted)(population)
        assert levels.shape == (2, 2) and jnp.isnan(population.dv[1, 1])
        ```
    """
    if steps not in ("nocb", "locf"):
        raise ValueError(f'`steps` must be "nocb" or "locf", but is {steps!r}.')
    header, rows = _table(source)
    renamed = {old.upper(): new.upper() for old, new in (names or {}).items()}
    for old in renamed:
        if old not in [x.upper() for x in header]:
            raise ValueError(f"`names` mentions the column `{old}`, which is not in the table: {', '.join(header)}.")
    found = [renamed.get(x.strip().upper(), x.strip().upper()) for x in header]
    if twice := {x for x in found if found.count(x) > 1 and x in _COLUMNS}:
        raise ValueError(f"the table has several columns `{min(twice)}`; remove or rename all but one.")
    place = {name: i for i, name in enumerate(found)}
    for name in ("ID", "TIME", *(x.upper() for x in covariates)):
        if name not in place:
            raise ValueError(f"the table has no column `{name}`, but {', '.join(header)}. Use `names` to rename one.")
    subjects: dict[Any, list[_Record]] = {}
    last = None
    for row, cells in rows:
        if len(cells) != len(header):
            raise ValueError(f"row {row} has {len(cells)} values, but the table has {len(header)} columns.")
        own = _identity(cells[place["ID"]])
        if own is None:
            _wrong(row, "ID", "the subject is missing")
        if own != last and own in subjects:
            _wrong(row, "ID", f"the rows of subject {own} do not follow each other")
        values = {x: _number(cells[place[x]], row, x) for x in _COLUMNS[1:] if x in place}
        if np.isnan(values["TIME"]):
            _wrong(row, "TIME", "the time is missing")
        known = np.array([_number(cells[place[x.upper()]], row, x) for x in covariates])
        records, last = subjects.setdefault(own, []), own
        records.append(_Record(row, values["TIME"], values, known))
    if not subjects:
        raise ValueError("the table has no rows.")
    each = [_subject(records, len(covariates), steps) for records in subjects.values()]
    _warn_of_changes(each, covariates)
    return _stacked(tuple(subjects), each, tuple(covariates))


def _warn_of_changes(each: list["_Subject"], covariates: Sequence[str]) -> None:
    changed = [
        name
        for k, name in enumerate(covariates)
        if any(np.any(abs(x.changes[1][:, k] - x.covariates[k]) > 0) for x in each)
    ]
    if changed:
        warnings.warn(
            f"`{'`, `'.join(changed)}` of `covariates` changes within a subject, and `subject.covariates` has its "
            "first value. For all values pass `covariates=subject.held()` to `solve_doses`.",
            stacklevel=3,
        )


def _wrong(row: int, column: str, what: str) -> NoReturn:
    raise ValueError(f"row {row}, column `{column}`: {what}.")


def _table(source: Any) -> tuple[list[str], Iterator[tuple[int, list[Any]]]]:
    """Returns the header, and the rows with their numbers: lines of a file, or rows of a mapping from 1."""
    if isinstance(source, str | os.PathLike):
        lines = pathlib.Path(source).read_text(encoding="utf-8-sig").splitlines()
        kept = [(i, line) for i, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")]
        if not kept:
            raise ValueError(f"{source} has no header.")
        mark = next((x for x in ",;\t" if x in kept[0][1]), None)
        split = [
            (i, line.split() if mark is None else [x.strip() for x in next(csv.reader([line], delimiter=mark))])
            for i, line in kept
        ]
        return split[0][1], iter(split[1:])
    if not hasattr(source, "keys") or not hasattr(source, "__getitem__"):
        raise TypeError(f"`source` must be a path or a mapping from names to columns, but is {type(source).__name__}.")
    header = [str(x) for x in source.keys()]
    columns = [list(source[x]) for x in source.keys()]
    if len({len(x) for x in columns}) > 1:
        raise ValueError(f"columns must have equal lengths, but have {dict(zip(header, map(len, columns)))}.")
    return header, ((i, list(cells)) for i, cells in enumerate(zip(*columns, strict=True), 1))


def _is_missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and cell.strip().upper() in _MISSING)


def _number(cell: Any, row: int, column: str) -> float:
    if _is_missing(cell):
        return float("nan")
    try:
        return float(cell)
    except (TypeError, ValueError):
        _wrong(row, column, f"{cell!r} is not a number")


def _identity(cell: Any) -> Any:
    """Returns an integer if the ID is one, or else its text."""
    if _is_missing(cell):
        return None
    try:
        return int(float(cell)) if float(cell) == int(float(cell)) else float(cell)
    except (TypeError, ValueError, OverflowError):
        return str(cell).strip()


class _Subject(NamedTuple):
    doses: Doses | None
    times: list[float]
    dv: list[float]
    before: list[bool]
    cmt: list[int]
    censored: list[bool]
    lloq: list[float]
    covariates: np.ndarray
    changes: tuple[list[float], np.ndarray]


def _whole(record: _Record, column: str, default: int, least: int, most: int | None = None) -> int:
    value = record.values.get(column, np.nan)
    if np.isnan(value):
        return default
    if value != int(value) or value < least or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"from {least} to {most}"
        _wrong(record.row, column, f"{value:g} is not an integer {limits}")
    return int(value)


def _amount(record: _Record, column: str) -> float:
    value = record.values.get(column, np.nan)
    return 0.0 if np.isnan(value) else value


def _subject(records: list[_Record], n_covariates: int, steps: str) -> _Subject:
    records = _continued(records)
    doses: list[dict[str, float]] = []
    seen = _Subject(None, [], [], [], [], [], [], np.zeros(0), ([], np.zeros(0)))
    kinds = [_kind(record) for record in records]
    for i, (record, kind) in enumerate(zip(records, kinds, strict=True)):
        if kind in (_DOSE, _RESET, _RESET_AND_DOSE):
            doses.append(_dose(record, kind))
        elif kind == _OBSERVATION and not _whole(record, "MDV", 0, 0, 1):
            gives = [
                j for j, k in enumerate(kinds) if k not in (_OBSERVATION, _OTHER) and records[j].time == record.time
            ]
            if gives and min(gives) < i < max(gives):
                _wrong(record.row, "TIME", "a measurement between two doses at one time; move it before or after both")
            limit = _limit(record)
            seen.times.append(record.time)
            seen.dv.append(record.values.get("DV", np.nan) if limit is None else limit)
            seen.before.append(bool(gives) and i < min(gives))
            seen.cmt.append(_whole(record, "CMT", 1, 0))
            seen.censored.append(limit is not None)
            seen.lloq.append(record.values.get("LLOQ", np.nan) if limit is None else limit)
    table = None
    if doses:
        columns = {name: np.array([x[name] for x in doses]) for name in doses[0]}
        whole = {name: columns.pop(name).astype(int) for name in ("cmt", "addl", "ss", "reset")}
        table = Doses(columns.pop("times"), columns.pop("amounts"), **columns, **whole)
    values = _filled(np.array([x.covariates for x in records]).reshape(len(records), n_covariates))
    return seen._replace(doses=table, covariates=values[0], changes=_changes(records, values, steps))


def _continued(records: list[_Record]) -> list[_Record]:
    """Returns records whose times do not decrease: a reset may begin again at an earlier time."""
    found: list[_Record] = []
    shift = 0.0
    for record in records:
        time = record.time + shift
        if found and time < found[-1].time:
            if _whole(record, "EVID", 0, 0, 4) not in (_RESET, _RESET_AND_DOSE):
                _wrong(record.row, "TIME", f"{record.time:g} is before the time of the previous row of this subject")
            shift += found[-1].time - time
            time = found[-1].time
        found.append(record._replace(time=time))
    return found


def _kind(record: _Record) -> int:
    implied = _DOSE if _amount(record, "AMT") != 0 else _OBSERVATION
    kind = _whole(record, "EVID", implied, 0, 4)
    if implied == _DOSE and kind not in (_DOSE, _RESET_AND_DOSE):
        amount = f"the amount is {record.values['AMT']:g}, but EVID={kind} is not a dose"
        _wrong(record.row, "AMT", f"{amount}; write EVID=1 for a dose, or AMT=0")
    return kind


def _dose(record: _Record, kind: int) -> dict[str, float]:
    amount, rate, ii = (_amount(record, name) for name in ("AMT", "RATE", "II"))
    addl, ss = _whole(record, "ADDL", 0, 0), _whole(record, "SS", 0, 0, 3)
    if kind == _RESET:
        amount, rate, addl, ss = 0.0, 0.0, 0, 0
    elif amount == 0 and rate > 0 and ss:
        _wrong(
            record.row,
            "AMT",
            "a constant infusion to steady state, AMT=0, is not supported; write infusions without gaps, with a "
            "positive II and AMT = RATE * II",
        )
    elif not amount > 0:
        _wrong(record.row, "AMT", f"a dose must be positive, but is {amount:g}")
    if ss > 2 or (ss == 2 and kind == _RESET_AND_DOSE):
        with_reset = " with EVID=4" if ss == 2 else ""
        _wrong(
            record.row, "SS", f"{ss}{with_reset} is not supported; use 1, a steady state that replaces earlier doses"
        )
    if (addl or ss) and not ii > 0:
        _wrong(record.row, "II", f"ADDL and SS require a positive dosing interval, but it is {ii:g}")
    if rate < 0 and rate not in (-1, -2):
        _wrong(record.row, "RATE", f"{rate:g} is not a rate; use -1 or -2 for a rate or duration of the model")
    duration = np.nan if rate < 0 else (amount / rate if rate else 0.0)
    return {
        "times": record.time,
        "amounts": amount,
        "cmt": _whole(record, "CMT", 1, 1),
        "duration": duration,
        "addl": addl,
        "ii": ii if ii > 0 else 1.0,
        "ss": ss,
        "reset": kind in (_RESET, _RESET_AND_DOSE),
    }


def _limit(record: _Record) -> float | None:
    """Returns the limit of a measurement that is below it; None for other measurements."""
    column = "CENS" if "CENS" in record.values else "BLQ"
    flag = _whole(record, column, 0, -1, 1)
    if flag == -1:
        _wrong(record.row, column, "-1, a measurement above a limit, is not supported")
    if not flag:
        return None
    if not np.isnan(lowest := record.values.get("LIMIT", np.nan)):
        what = f"{lowest:g}, the lower end of an interval, is not supported; remove the column"
        _wrong(record.row, "LIMIT", f"{what}, and for LIMIT=0 write `inference.Censored(..., positive=True)`")
    limit = record.values.get("LLOQ", np.nan)
    if np.isnan(limit):
        limit = record.values.get("DV", np.nan)
        if limit <= 0:  # LLOQ of logarithms may be negative, but DV = 0 is usually a mark
            _wrong(record.row, "DV", f"the limit of quantification must be positive, but is {limit:g}; give it in LLOQ")
    if np.isnan(limit):
        _wrong(record.row, column, "the limit of quantification is missing; give it in LLOQ or DV")
    return limit


def _filled(values: np.ndarray) -> np.ndarray:
    """Returns values in which the row before fills missing ones, and the first known value those before it."""
    for column in values.T:
        known = np.flatnonzero(~np.isnan(column))
        if known.size:
            place = np.maximum(np.searchsorted(known, np.arange(len(column)), side="right") - 1, 0)
            column[:] = column[known[place]]
    return values


def _changes(records: list[_Record], values: np.ndarray, steps: str) -> tuple[list[float], np.ndarray]:
    times = np.array([x.time for x in records])
    last = np.append(times[1:] != times[:-1], True)
    times, values = times[last], values[last]
    if steps == "nocb" and len(times) > 1:
        times, values = times[:-1], values[1:]
    differs = np.append(True, np.any(values[1:] != values[:-1], axis=1))
    return list(times[differs]), values[differs]


def _stacked(ids: tuple, each: list[_Subject], covariates: tuple[str, ...]) -> Population:
    dtype = jnp.result_type(float)
    given = [x.doses if x.doses is not None else Doses(np.array([np.inf]), np.zeros(1)) for x in each]
    most = max(1, max(len(x.times) for x in each))

    def column(name: str, fill: Any, kind: Any) -> Array:
        out = np.full((len(each), most), fill, kind)
        for i, subject in enumerate(each):
            values = getattr(subject, name)
            out[i, : len(values)] = values
            if name == "times":  # times that are left over are those of the last measurement or record
                out[i, len(values) :] = values[-1] if values else subject.changes[0][0]
        return jnp.asarray(out)

    rows = max(len(x.changes[0]) for x in each)
    times = np.full((len(each), rows), np.inf, dtype)
    values = np.zeros((len(each), rows, len(covariates)), dtype)
    for i, subject in enumerate(each):
        own, changed = subject.changes
        times[i, : len(own)] = own
        values[i, : len(own)], values[i, len(own) :] = changed, changed[-1]
    return Population(
        ids,
        Doses.stack(given),
        column("times", 0.0, dtype),
        column("dv", np.nan, dtype),
        column("before", False, bool),
        column("cmt", 1, np.int32),
        column("censored", False, bool),
        column("lloq", np.nan, dtype),
        {name: jnp.asarray([x.covariates[k] for x in each], dtype) for k, name in enumerate(covariates)},
        (jnp.asarray(times), {name: jnp.asarray(values[..., k]) for k, name in enumerate(covariates)}),
    )
