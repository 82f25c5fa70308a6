"""The table of the docs that says which features of a solve work together.

`python -m tests.pairs_table` writes it. Every cell is computed: the numbers of a solve that has both features, and
their derivatives, against a plain loop in NumPy (`tests.features_by_hand`), or the error that it raises.
"""

import argparse
import concurrent.futures
import contextlib
import functools
import itertools
import multiprocessing
import pathlib
import re
import time
import traceback
import zlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import sciml

from . import features, features_by_hand
from .adjoint_table import ADJOINTS, configure as _configure, first_sentence
from .features import Setting

WRITTEN = pathlib.Path(__file__).resolve().parents[1] / "docs" / "assets" / "pairs_table.txt"
SOURCE = str(pathlib.Path(sciml.__file__).resolve().parent)
GRADIENT = 100
"""How many times larger than of numbers an error of derivatives may be."""
DRY = 1e-2
"""The error of derivatives of what runs dry by its root, whose rate is wrong by the root of an error of the state."""


class Feature(NamedTuple):
    """A feature.

    Attributes:
        changes: The fields of a `Setting` that it sets.
        words: A pattern for the words by which a message names it.
        group: The table whose columns have it.
    """

    changes: dict[str, Any]
    words: str
    group: str


HAPPENS, MODELS, OUTPUTS, DERIVATIVES, BATCHES = (
    "Events and inputs",
    "Models",
    "Outputs and calls",
    "Adjoints",
    "Batches, devices and precision",
)

FEATURES = {
    "event that ends the solve": Feature(dict(ends=True), "event", HAPPENS),
    "event that goes on": Feature(dict(goes_on=True), "event", HAPPENS),
    "`Schedule`": Feature(dict(doses=True), "[Ss]chedule|event", HAPPENS),
    "`Held`": Feature(dict(held=True), "Held|event|[Ss]chedule", HAPPENS),
    "noise, fixed steps": Feature(dict(noise="fixed"), "noise|noisy|Stochastic|path", MODELS),
    "noise, adaptive steps": Feature(dict(noise="adaptive"), "noise|noisy|Stochastic|path", MODELS),
    "`Delayed`": Feature(dict(delayed=True), "delay|Delay|past", MODELS),
    "`Delayed` by functions": Feature(dict(delayed=True, tracked=True), "delay|Delay|past", MODELS),
    "`Reactions`": Feature(dict(reactions=True), "reaction|Reaction|jump process", MODELS),
    "mass matrix": Feature(dict(mass=True), "mass|Rodas5P", MODELS),
    "`DAE`": Feature(dict(mass=True, dae=True), "DAE", MODELS),
    "`positive=`": Feature(dict(positive=True), "positive", MODELS),
    "`project=`": Feature(dict(project=True), "project", MODELS),
    "`domain=`": Feature(dict(domain=True), "domain", MODELS),
    "dense output": Feature(dict(dense=True), "dense|saveat", OUTPUTS),
    "saved times": Feature(dict(saved=True), "saveat|save", OUTPUTS),
    "`resume=`": Feature(dict(resumed=True), "resume|solver_state", OUTPUTS),
    "`simulate(store=)`": Feature(dict(stored=True), "simulate", OUTPUTS),
    **{f"`{name}`": Feature(dict(adjoint=name), rf"{name}|adjoint", DERIVATIVES) for name in ADJOINTS},
    "`jax.vmap`": Feature(dict(vmap=True), "vmap|member", BATCHES),
    '`batching="refill"`': Feature(dict(refill=True), "refill|batching", BATCHES),
    "ensemble kernel": Feature(dict(kernel=True), "kernel|pallas|impl", BATCHES),
    "`jax.shard_map`": Feature(dict(shard_map=True), "shard_map", BATCHES),
    "NamedSharding, Auto": Feature(dict(sharding="auto"), "[Ss]hard|mesh|device", BATCHES),
    "NamedSharding, Explicit": Feature(dict(sharding="explicit"), "[Ss]hard|mesh|device", BATCHES),
    "member of zero length": Feature(dict(empty=True), "t1|length|interval", BATCHES),
    "backwards in time": Feature(dict(backwards=True), "backward|forward|`t1`|direction", BATCHES),
    "float32": Feature(dict(single=True), "float32|precision", BATCHES),
}
"""One row and one column each."""

GROUPS = [HAPPENS, MODELS, OUTPUTS, DERIVATIVES, BATCHES]
APART = "-"
"""Said of features that exclude each other."""


def combined(*names: str) -> Setting | None:
    """The setting that has features; None where they exclude each other."""
    changes: dict[str, Any] = {}
    for name in names:
        for field, value in FEATURES[name].changes.items():
            if field in changes:
                return None
            changes[field] = value
    setting = Setting(**changes)
    models = bool(setting.noise) + setting.reactions + setting.delayed + setting.dae
    if models > 1:
        return None  # one model cannot be both
    if setting.noise and setting.project and (setting.positive or setting.ends or setting.goes_on):
        return None  # the loop by hand looks for events, and for what runs dry, in the tank without noise
    if setting.reactions and (setting.held or setting.mass or setting.positive or setting.project):
        return None  # these change a vector field, and reactions have none
    if setting.adjoint == "Implicit" and (setting.empty or setting.backwards):
        return None  # the tank comes to rest neither in no time nor backwards
    if setting.stored and (setting.adjoint or setting.refill or setting.project):
        return None  # `simulate` has no such argument
    outputs = setting.saved or setting.dense or setting.resumed or setting.domain
    if setting.stored and setting.sharding and (setting.happens or outputs or models or setting.mass):
        return None  # members of one store, `in_axes=`, are compared by their ends only
    return setting


def weights_of(setting: Setting, right: np.ndarray) -> np.ndarray:
    """By how much each number counts in what is differentiated: not what has no derivative."""
    weights = np.cos(1.0 + np.arange(right.size)).reshape(right.shape)
    weights[~np.isfinite(right)] = 0.0
    if setting.domain:
        weights[:, -1] = 0.0
    if setting.noise:  # a path has no derivative by time
        weights[:, 1] = 0.0
        if setting.happens:
            weights[:, 3:] = 0.0
        weights[:, 3:][:, 1::2] = 0.0
    if setting.refill:
        weights[3:] = 0.0
    if setting.reactions and setting.empty:
        weights[-1] = 0.0  # reactions are so fast that any length has them all: a jump by the end
    return weights


@functools.partial(jax.jit, static_argnums=(2, 3))
def _path(number: Any, t: Any, motions: int, dtype: Any) -> Any:
    """The last motion of a path, whose numbers in float32 are others than in float64."""
    return features.path_of(Setting(noise="fixed"), number).over(jnp.zeros_like(t), t, motions, dtype, False)[0][-1]


def _noise(setting: Setting) -> Any:
    """The path of each member at a time, which is read and not solved for."""
    motions = 1 if setting.project else 2
    dtype = jnp.float32 if setting.single else jnp.float64
    value = functools.cache(lambda number, t: float(_path(number, jnp.asarray(t), motions, dtype)))
    return (lambda number, t: value(int(number), float(t))) if setting.noise else (lambda number, t: 0.0)


def reference(setting: Setting) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """The right numbers of all members, the weights of what is differentiated, and the derivatives."""
    p = features.inputs(setting)
    noise = _noise(setting)
    members = [
        features_by_hand.by_hand(setting, a, y, end, lambda t, n=n: noise(n, t))
        for a, y, end, n in zip(p["a"], p["start"], p["end"], p["number"])
    ]
    right = np.stack(members)
    weights = weights_of(setting, right)
    slopes, finer = (features_by_hand.gradient(setting, weights, p, noise, small) for small in (1e-4, 5e-5))
    if any(miss(slopes[k], finer[k], GRADIENT * setting.tolerance) for k in slopes):
        raise features_by_hand.Undecided(setting)
    return right, weights, slopes


def _refusal(error: Exception, words: str) -> str:
    """The first sentence of an error that was meant; of any other "ERROR" and its words."""
    said = f"{type(error).__name__}: {first_sentence(str(error))}"
    origin = traceback.extract_tb(error.__traceback__)[-1].filename
    designed = isinstance(error, ValueError | TypeError | NotImplementedError | sciml.SolveError)
    if not designed or not str(pathlib.Path(origin).resolve()).startswith(SOURCE):
        return f"ERROR {said}"
    return said if re.search(words, str(error)) else f"ERROR (names neither feature) {said}"


def miss(found: Any, right: np.ndarray, tolerance: float) -> str:
    """How numbers are wrong; empty where they are right. Infinite ones may be anything but NaN."""
    found = np.asarray(found, float)
    if found.shape != right.shape:
        return f"shape {found.shape}"
    any_time = np.isinf(right)
    if np.isnan(found[any_time]).any() or (np.isnan(found) != np.isnan(right))[~any_time].any():
        return f"NaN at {np.argwhere((np.isnan(found) != np.isnan(right)) | any_time & np.isnan(found)).tolist()[:4]}"
    off = np.where(np.isnan(right) | any_time, 0.0, np.abs(found - np.where(any_time, 0.0, right)))
    worst = float(np.max(off / (1 + np.abs(np.where(np.isfinite(right), right, 0.0))), initial=0.0))
    return "" if worst < tolerance else f"off by {worst:.1e} at {np.argwhere(off == off.max()).tolist()[0]}"


def _judged(setting: Setting, found: Any, status: Any, right: np.ndarray, words: str) -> str:
    status = np.unique(np.asarray(status))
    good = {int(sciml.Status.successful), int(sciml.Status.event)}
    failed = [sciml.Status(int(s)) for s in status if int(s) not in good]
    if failed:
        return _refused_by_status(setting, failed[0], words)
    wrong = miss(found, right, setting.tolerance)
    return f"WRONG {wrong}" if wrong else "right"


def _refused_by_status(setting: Setting, status: sciml.Status, words: str) -> str:
    """What is said of a failed status: it is a refusal where the same call with known numbers raises an error."""
    p = {name: x[0] for name, x in features.inputs(setting).items()}
    try:
        features.solve(setting, *(jnp.asarray(p[name]) for name in ("a", "start")), float(p["end"]), int(p["number"]))
    except Exception as error:
        said = _refusal(error, words)
        return said if said.startswith("ERROR") else f"status `{status.name}` where traced, {said}"
    return f"WRONG status `{status.name}`"


def compute(setting: Setting, words: str) -> tuple[str, str]:
    """What is said of the numbers of a setting, and of their derivatives; the second is empty where there are none."""
    right, weights, slopes = reference(setting)
    p = features.arrays(setting)
    context = jax.set_mesh(features._mesh("explicit")) if setting.sharding == "explicit" else contextlib.nullcontext()
    if setting.stored:
        with context:
            try:
                found, status = features.simulate(setting, p)
            except Exception as error:
                return _refusal(error, words), ""
        return _judged(setting, found, status, right, words), ""
    fn = features.program(setting)
    moved = {k: x for k, x in p.items() if k != "number" and not (k == "end" and setting.noise)}

    def total(moved: Any) -> tuple[Any, Any]:
        found, status = fn({**p, **moved})
        given = jnp.asarray(weights, found.dtype)
        return jnp.sum(jnp.where(given != 0, given * found, 0.0)), (found, status)

    by_columns = setting.adjoint == "Direct"
    tangents = {k: np.cos(3.0 + np.arange(np.size(x))).reshape(np.shape(x)).astype(x.dtype) for k, x in moved.items()}

    def both(moved: Any) -> Any:
        if by_columns:
            ways = {k: jnp.asarray(tangents[k]) for k in moved}
            _, slope, rest = jax.jvp(total, (moved,), (ways,), has_aux=True)
            return slope, rest
        return jax.grad(total, has_aux=True)(moved)

    with context:
        try:
            slope, (found, status) = jax.jit(both)(moved)
        except Exception as error:
            refused = error
        else:
            said = _judged(setting, found, status, right, words)
            if said != "right":
                return said, ""
            wants: Any = slopes
            if by_columns:
                wants = sum(np.sum(tangents[k] * slopes[k]) for k in tangents)
            pairs = [(k, slope[k], wants[k]) for k in moved] if not by_columns else [("jvp", slope, wants)]
            for name, x, want in pairs:
                wrong = miss(x, np.asarray(want), DRY if setting.positive else GRADIENT * setting.tolerance)
                if wrong:
                    return said, f"WRONG d/d{name} {wrong}"
            return said, "right"
        why = _refusal(refused, words)
        try:
            found, status = jax.jit(fn)(p)
        except Exception as error:
            said = _refusal(error, words)
            return (said, "") if said == why or not why.startswith("ERROR") else (said, why)
        return _judged(setting, found, status, right, words), why


def cell(*names: str) -> tuple[str, str]:
    """What a cell says of numbers and of derivatives."""
    setting = combined(*names)
    assert setting is not None
    return compute(setting, "|".join(FEATURES[name].words for name in names))


PAIRS = [pair for pair in itertools.combinations(FEATURES, 2) if combined(*pair) is not None]
"""The cells: pairs of features that do not exclude each other."""


def short(said: tuple[str, str], notes: list[str]) -> str:
    """A cell as it stands in the table."""
    numbers, slopes = said
    if numbers == "right" and slopes in ("right", ""):
        return "right"
    words = []
    for word in (numbers, slopes):
        if word in ("right", ""):
            words += [word] if word else []
            continue
        if word not in notes:
            notes.append(word)
        words.append(f"no ({notes.index(word) + 1})")
    return ", ".join(words)


def table(cells: dict[tuple[str, str], tuple[str, str]]) -> str:
    """The tables as Markdown, one for each group of columns, errors as notes below."""
    out: list[str] = []
    notes: list[str] = []
    for group in GROUPS:
        columns = [name for name, feature in FEATURES.items() if feature.group == group]
        out += [f"**{group}**", "", "| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for row in FEATURES:
            said = [cells.get((row, name)) or cells.get((name, row)) or ("", "") for name in columns]
            apart = [row == name or combined(row, name) is None for name in columns]
            out.append(f"| {row} | " + " | ".join(APART if a else short(x, notes) for x, a in zip(said, apart)) + " |")
        out.append("")
    return "\n".join(out + [f"{number}. {note}" for number, note in enumerate(notes, 1)]) + "\n"


def written() -> dict[tuple[str, str], tuple[str, str]]:
    """The cells of the table in the docs."""
    text, columns, cells = WRITTEN.read_text(), [], {}
    notes = dict(re.findall(r"^(\d+)\. (.*)$", text, re.MULTILINE))
    for line in text.splitlines():
        first, *rest = [x.strip() for x in line.strip("|").split("|")]
        if line.startswith("| |"):
            columns = rest
        elif first in FEATURES and line.startswith("|"):
            for name, said in zip(columns, rest, strict=True):
                words = [notes[word[4:-1]] if word.startswith("no (") else word for word in said.split(", ")]
                if said == APART:
                    continue
                cells[first, name] = (words[0], (words[1:] or [words[0] if words[0] == "right" else ""])[0])
    return {pair: cells[pair] for pair in PAIRS if cells.get(pair, ("", ""))[0]}


def faults(cells: dict[tuple[str, str], tuple[str, str]]) -> list[str]:
    """The cells that are wrong, or an error that was not meant."""
    return [
        f"{' x '.join(pair)}: {word}"
        for pair, said in cells.items()
        for word in said
        if word.startswith(("WRONG", "ERROR"))
    ]


def configure() -> None:
    """Sets JAX up as the tests do, with whole tracebacks, whose last line says where an error was raised."""
    _configure()
    jax.config.update("jax_traceback_filtering", "off")


def timed(pair: tuple[str, str]) -> tuple[tuple[str, str], tuple[str, str], float]:
    """A cell, and the seconds that it took."""
    began = time.monotonic()
    try:
        said = cell(*pair)
    except Exception as error:
        said = (f"ERROR in the table: {type(error).__name__}: {error}", "")
        traceback.print_exc()
    if zlib.crc32("".join(pair).encode()) % 8 == 0:
        jax.clear_caches()
    return pair, said, time.monotonic() - began


def main() -> int:
    """Computes all cells, or those of features whose names have a word, and writes the table of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="words that the features of a cell must have")
    parser.add_argument("--missing", action="store_true", help="only cells that the written table lacks")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    pairs = [pair for pair in PAIRS if all(any(word in name for name in pair) for word in given.only)]
    from tests import pairs_table  # by its name, for the other processes

    some = given.only or given.missing
    cells = written() if some and WRITTEN.exists() else {}
    if given.missing:
        pairs = [pair for pair in pairs if pair not in cells]
    with concurrent.futures.ProcessPoolExecutor(
        given.workers, mp_context=multiprocessing.get_context("spawn"), initializer=pairs_table.configure
    ) as pool:
        for pair, said, seconds in pool.map(pairs_table.timed, pairs):
            cells[pair] = said
            print(f"{seconds:5.1f} s  {' x '.join(pair)}: {', '.join(x for x in said if x)}", flush=True)
            WRITTEN.write_text(table(cells))
    wrong = faults(cells)
    print("\n".join(["", f"{len(wrong)} of {len(cells)} cells are faulty", *wrong]))
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
