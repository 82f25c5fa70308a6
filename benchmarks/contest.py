"""Stiff and other problems of the literature beside native code: CVODE, diffsol, SciPy's LSODA and Radau, and diffrax.

Every code takes the same equations. CVODE and SciPy call machine code that Numba makes of them, diffsol compiles them
itself. References are in `contest_references.json`, made by `python -m benchmarks._contest_references`, which asks two
codes at tight tolerances and says how far they agree.
"""

import contextlib
import dataclasses
import functools
import importlib.metadata
import io
import json
import math
import pathlib
import time
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import lineax
import numpy as np
from scipy.integrate import solve_ivp

import sciml

from ._contest_problems import PROBLEMS, Contested
from ._harness import Candidate, Group, Measured, duration, in_float64
from ._problems import diffrax_end

TOLERANCES = (1e-3, 1e-4, 1e-6, 1e-8, 1e-10)
MEMBERS = 100
LIMIT = 2.0
"""Seconds that a run may take; a code that took longer is not asked for tighter tolerances."""

MOST = 100_000  # steps
REFERENCES = pathlib.Path(__file__).with_name("contest_references.json")
FIGURES = pathlib.Path(__file__).resolve().parents[1] / "docs" / "figures"
STYLES = {  # colour and marker; sciml's lines are solid
    "sciml Rodas5P": ("#0072B2", "o"),
    "sciml Rodas5P, GMRES": ("#56B4E9", "P"),
    "sciml BDF": ("#009E73", "s"),
    "sciml Radau5": ("#CC79A7", "D"),
    "sciml Kvaerno5": ("#E69F00", "^"),
    "sciml Vern7": ("#882255", "v"),
    "diffrax Kvaerno5": ("#D55E00", "^"),
    "diffrax Tsit5": ("#D55E00", "v"),
    "CVODE": ("#000000", "s"),
    "diffsol": ("#7F5539", "*"),
    "SciPy LSODA": ("0.6", "X"),
    "SciPy Radau": ("0.4", "D"),
}

Run = Callable[[float, float], np.ndarray]
"""An end state from a relative and an absolute tolerance."""


def _compiled(end: Callable, y0: np.ndarray) -> Callable[[], Run]:
    """A function of traced tolerances, which is compiled once for all of them."""

    def build() -> Run:
        one = jnp.asarray(1.0)
        found = jax.jit(end).lower(jnp.asarray(y0), one, one).compile()
        return lambda rtol, atol: found(jnp.asarray(y0), jnp.asarray(rtol), jnp.asarray(atol)).block_until_ready()

    return build


def _sciml(problem: Contested, solver: Any) -> Callable:
    def end(y0: jax.Array, rtol: Any, atol: Any) -> jax.Array:
        options: dict[str, Any] = dict(t0=0.0, t1=problem.t1, rtol=rtol, atol=atol, max_steps=MOST, throw=False)
        return sciml.solve(problem.model, y0, solver=solver, **options).ys[-1]

    return end


def _diffrax(problem: Contested, solver: Any) -> Callable:
    def end(y0: jax.Array, rtol: Any, atol: Any) -> jax.Array:
        # on stiff problems its own choice of a first step may be rejected without end
        first = 1e-6 if problem.stiff else None
        options: dict[str, Any] = dict(solver=solver, rtol=rtol, atol=atol, dt0=first, max_steps=MOST)
        return diffrax_end(problem.model, y0, 0.0, problem.t1, **options)

    return end


def _cvode(problem: Contested, y0: np.ndarray) -> Callable[[], Run]:
    def build() -> Run:
        from sksundae.cvode import CVODE  # pyright: ignore[reportMissingImports]

        rate, method = problem.machine, "BDF" if problem.stiff else "Adams"
        rate(0.0, y0, np.empty_like(y0))

        def run(rtol: float, atol: float) -> np.ndarray:
            options = dict(problem.linear) | dict(rtol=rtol, atol=atol, method=method, max_num_steps=MOST)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # it prints why
                found = CVODE(rate, **options).solve(np.array([0.0, problem.t1]), y0)
            if not found.success:
                raise RuntimeError(str(found.message))
            return found.y[-1]

        return run

    return build


def _scipy(problem: Contested, y0: np.ndarray, method: str) -> Callable[[], Run]:
    def build() -> Run:
        rate = problem.machine
        rate(0.0, y0, np.empty_like(y0))

        def field(t: float, y: np.ndarray) -> np.ndarray:
            out = np.empty_like(y)
            rate(t, y, out)
            return out

        finished: set[float] = set()

        def run(rtol: float, atol: float) -> np.ndarray:
            began = time.perf_counter()

            def limited(t: float, y: np.ndarray) -> np.ndarray:
                if time.perf_counter() - began > 5 * LIMIT and rtol not in finished:
                    raise TimeoutError(f"over {5 * LIMIT:g} s")
                return field(t, y)

            found = solve_ivp(limited, (0.0, problem.t1), y0, method=method, rtol=rtol, atol=atol)
            if not found.success:
                raise RuntimeError(str(found.message))
            finished.add(rtol)
            return found.y[:, -1]

        return run

    return build


def _diffsol(problem: Contested, y0: np.ndarray) -> Callable[[], Run]:
    def build() -> Run:
        import pydiffsol  # pyright: ignore[reportMissingImports]

        kind = pydiffsol.nalgebra_dense if y0.size <= 30 else pydiffsol.faer_sparse
        method = pydiffsol.bdf if problem.stiff else pydiffsol.tsit45
        ode = pydiffsol.Ode(problem.diffsol, matrix_type=kind, ode_solver=method)

        def run(rtol: float, atol: float) -> np.ndarray:
            ode.rtol, ode.atol = rtol, atol
            return np.asarray(ode.solve(np.array([1.0]), problem.t1).ys)[:, -1]

        return run

    return build


def _one_by_one(build: Callable[[np.ndarray], Callable[[], Run]], starts: np.ndarray) -> Callable[[], Run]:
    """Members one after another; a tenth of them is run, ten times."""

    def built() -> Run:
        some = [build(y0)() for y0 in starts[:10]]
        return lambda rtol, atol: np.stack([run(rtol, atol) for _ in range(MEMBERS // 10) for run in some])

    return built


def _codes(problem: Contested) -> dict[str, Callable[[], Run]]:
    y0 = problem.y0
    if not problem.stiff:
        return {
            "sciml Vern7": _compiled(_sciml(problem, sciml.solvers.Vern7()), y0),
            "diffrax Tsit5": _compiled(_diffrax(problem, diffrax.Tsit5()), y0),
            "CVODE": _cvode(problem, y0),
            "diffsol": _diffsol(problem, y0),
            "SciPy LSODA": _scipy(problem, y0, "LSODA"),
        }
    codes = {"sciml Rodas5P": _compiled(_sciml(problem, sciml.solvers.Rodas5P()), y0)}
    if problem.iterates:
        linear = dict(linear_solver=lineax.GMRES(rtol=1e-8, atol=0.0), preconditioner=sciml.solvers.ILU0())
        codes["sciml Rodas5P, GMRES"] = _compiled(_sciml(problem, sciml.solvers.Rodas5P(**linear)), y0)
    codes["sciml BDF"] = _compiled(_sciml(problem, sciml.solvers.BDF()), y0)
    if y0.size <= 100:
        codes["sciml Kvaerno5"] = _compiled(_sciml(problem, sciml.solvers.ESDIRK(diffrax.Kvaerno5())), y0)
    if y0.size <= 8:
        codes["sciml Radau5"] = _compiled(_sciml(problem, sciml.solvers.Radau5()), y0)
    if y0.size <= 100:
        codes["diffrax Kvaerno5"] = _compiled(_diffrax(problem, diffrax.Kvaerno5()), y0)
    codes["CVODE"] = _cvode(problem, y0)
    if problem.diffsol is not None:
        codes["diffsol"] = _diffsol(problem, y0)
    codes |= {"SciPy LSODA": _scipy(problem, y0, "LSODA"), "SciPy Radau": _scipy(problem, y0, "Radau")}
    return codes


def _codes_of_members(problem: Contested) -> dict[str, Callable[[], Run]]:
    factors = 1 + 1e-3 * np.random.default_rng(0).uniform(-1, 1, (MEMBERS, problem.y0.size))
    factors[0] = 1
    starts = problem.y0 * factors
    ours, theirs = ("sciml Vern7", "diffrax Tsit5") if not problem.stiff else ("sciml Rodas5P", "diffrax Kvaerno5")
    method = sciml.solvers.Rodas5P() if problem.stiff else sciml.solvers.Vern7()
    other = diffrax.Kvaerno5() if problem.stiff else diffrax.Tsit5()
    more = {"sciml BDF": sciml.solvers.BDF(), "sciml Kvaerno5": sciml.solvers.ESDIRK(diffrax.Kvaerno5())}
    return {
        ours: _compiled(jax.vmap(_sciml(problem, method), (0, None, None)), starts),
        **{
            name: _compiled(jax.vmap(_sciml(problem, solver), (0, None, None)), starts)
            for name, solver in more.items()
            if problem.stiff
        },
        theirs: _compiled(jax.vmap(_diffrax(problem, other), (0, None, None)), starts),
        "CVODE": _one_by_one(functools.partial(_cvode, problem), starts),
        "diffsol": _one_by_one(lambda y0: _diffsol(dataclasses.replace(problem), y0), starts),
    }


class _Code:
    """One code on one problem: it is built once, and is asked no more after a run over the limit."""

    def __init__(self, build: Callable[[], Run]):
        self._build = functools.cache(build)
        self._stopped: str | None = None

    def at(self, rtol: float, atol: float) -> Callable[[], Callable[[], Any]]:
        """A `build` for one tolerance."""

        def built() -> Callable[[], Any]:
            if self._stopped is not None:
                raise RuntimeError(self._stopped)
            try:
                run = self._build()
            except Exception as failure:
                self._stopped = f"not built: {failure}"
                raise
            return lambda: self._timed(run, rtol, atol)

        return built

    def _timed(self, run: Run, rtol: float, atol: float) -> Any:
        began = time.perf_counter()
        try:
            return run(rtol, atol)
        finally:
            late = (
                time.perf_counter() - began > LIMIT
            )  # the last run says it: a busy machine may have delayed the first
            self._stopped = f"over {LIMIT:g} s at {rtol:g}" if late else None


def _error(problem: Contested) -> Callable[[Any], float]:
    reference = np.array(json.loads(REFERENCES.read_text())[problem.name]["end"])

    def error(out: Any) -> float:
        first = np.asarray(out).reshape(-1, reference.size)[0]
        if not np.all(np.isfinite(first)):
            raise RuntimeError("did not reach the end")
        return float(np.max(np.abs(first - reference) / (np.abs(reference) + problem.floor)))

    return error


def _group(problem: Contested, many: bool, tolerances: tuple[float, ...], finish: Callable[..., str | None]) -> Group:
    error, rows = _error(problem), []
    codes = _codes_of_members(problem) if many else _codes(problem)
    for name, build in codes.items():
        code = _Code(in_float64_run(build))
        for rtol in tolerances:
            rows.append(Candidate(f"{name}, {rtol:g}", in_float64(code.at(rtol, rtol * problem.ratio)), None, error))
    title = f"{problem.name}, {MEMBERS} members" if many else problem.name
    title += f": {problem.y0.size} unknowns, t to {problem.t1:g}, atol {problem.ratio:g} rtol"
    return Group(title, rows, repeats=3, finish=functools.partial(finish, problem.name, many), table=short_table)


def in_float64_run(build: Callable[[], Run]) -> Callable[[], Run]:
    """A code that is built and runs with x64 on."""

    def built() -> Run:
        with jax.enable_x64(True):
            return build()

    return built


def short_table(group: Group, measured: list[Measured]) -> str:
    """A row for each code, a column for each tolerance: the time, and the error that it reached."""
    rows: dict[str, dict[str, Measured]] = {}
    for row in measured:
        name, tolerance = row.label.rsplit(", ", 1)
        rows.setdefault(name, {})[tolerance] = row
    tolerances = list(next(iter(rows.values())))
    cells = [["", "compile", *tolerances]]
    for name, mine in rows.items():
        compiled = [row.compile for row in mine.values() if not math.isnan(row.compile)]
        cells.append([name, duration(compiled[0]) if compiled else "", *map(_cell, mine.values())])
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths)) + " |" for line in cells]
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    return "\n".join([f"### {group.title}", "", lines[0], rule, *lines[1:], ""])


def _cell(row: Measured) -> str:
    if row.failure:
        return row.failure.split(": ", 1)[-1][:40].strip() or "failed"
    return f"{duration(row.median)} ({row.error:.0e})"


class _Pictures:
    """Collects the rows of all problems and draws them once all are there."""

    def __init__(self, expected: int):
        self._expected, self._began = expected, time.perf_counter()
        self._found: dict[bool, dict[str, list[Measured]]] = {False: {}, True: {}}

    def add(self, name: str, many: bool, measured: list[Measured]) -> str | None:
        """Keeps the rows of a problem; returns where the pictures are once they are drawn."""
        self._found[many][name] = measured
        if sum(map(len, self._found.values())) < self._expected:
            return None
        took = (time.perf_counter() - self._began) / 60
        print(f"The contest took {took:.0f} minutes.\n", flush=True)
        files = [_draw(found, many) for many, found in self._found.items() if found]
        return ", ".join(files)


def _draw(found: dict[str, list[Measured]], many: bool) -> str:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams |= {"svg.hashsalt": "contest", "svg.fonttype": "none"}
    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    size = (3.6 * columns, 2.9 * rows + 0.5)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    handles: dict[str, Any] = {}
    for ax, (title, measured) in zip(axes.flat, found.items()):
        for label, (colour, marker) in STYLES.items():
            here = [r for r in measured if r.label.rsplit(", ", 1)[0] == label and r.times and 0 < r.error < 10]
            if here:
                x, y = [r.error for r in here], [1e3 * r.median for r in here]
                line = dict(color=colour, marker=marker, linestyle="-" if label.startswith("sciml") else "--")
                (handles[label],) = ax.loglog(x, y, label=label, markersize=4.5, linewidth=1.2, **line)
        ax.invert_xaxis()
        ax.set_title(title, loc="left", fontsize=9)
        ax.tick_params(labelsize=7)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes.flat[len(found) :]:
        ax.set_axis_off()
    figure.supxlabel("relative error at the end", fontsize=9)
    figure.supylabel(f"milliseconds for {MEMBERS} members" if many else "milliseconds", fontsize=9)
    figure.legend(handles.values(), handles.keys(), frameon=False, fontsize=8, ncols=4, loc="outside upper center")
    path = FIGURES / ("contest_members.svg" if many else "contest.svg")
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return str(path)


def versions() -> str:
    """The versions of the codes, in a line."""
    found = []
    for name in ("scikit-sundae", "pydiffsol", "scipy", "diffrax", "numba"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} is not installed")
    return ", ".join(found)


def groups(quick: bool = False) -> list[Group]:
    """All problems, one member and a hundred; `quick`: two problems at one tolerance, without pictures."""
    if quick:
        some = [p for p in PROBLEMS if p.name in ("ROBER", "Henon-Heiles")]
        return [_group(p, False, (1e-4,), lambda *_: None) for p in some]
    many = [p for p in PROBLEMS if p.members]
    pictures = _Pictures(len(PROBLEMS) + len(many))
    made = [_group(p, False, TOLERANCES, pictures.add) for p in PROBLEMS]
    return made + [_group(p, True, TOLERANCES, pictures.add) for p in many]
