"""The table of the docs that says which derivatives go through which adjoint.

`python -m tests.adjoint_table` writes it. Every cell is a derivative that is computed and compared with an exact one.
"""

import concurrent.futures
import functools as ft
import itertools
import multiprocessing
import pathlib
import re
import zlib
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from jax.sharding import Mesh, PartitionSpec as P

import sciml

WRITTEN = pathlib.Path(__file__).resolve().parents[1] / "docs" / "assets" / "adjoint_table.txt"

ADJOINTS = {
    "Checkpointed": sciml.adjoints.Checkpointed(),
    "Direct": sciml.adjoints.Direct(),
    "Forward": sciml.adjoints.Forward(),
    "Reversible": sciml.adjoints.Reversible(),
    "Backsolve": sciml.adjoints.Backsolve(),
    "Interpolating": sciml.adjoints.Interpolating(),
    "Gauss": sciml.adjoints.Gauss(),
    "Implicit": sciml.adjoints.Implicit(),
}

TOLERANCES: dict[str, Any] = dict(rtol=1e-8, atol=1e-10)
LOOPS: dict[str, dict[str, Any]] = {
    "fixed": dict(dt=1 / 64),
    "fixed, saved": dict(dt=1 / 64, saved=True),
    "adaptive": TOLERANCES,
    "adaptive, saved": dict(saved=True, **TOLERANCES),
    "stiff": dict(solver=sciml.solvers.Rodas5P(), **TOLERANCES),
    "ensemble": TOLERANCES,
    "shard_map": TOLERANCES,
    "through diffrax": dict(solver=diffrax.Kvaerno5(), **TOLERANCES),
}
"""How the solve runs, one column each."""

WITH_FIXED_STEPS = ("Direct",)
"""The adjoints whose ensembles have fixed steps; those of the others have error control."""

RATES = np.array([0.7, 1.9])
MEMBERS = np.stack([RATES, RATES * 1.1, RATES * 0.9, RATES * 1.2])


def exact(k: jax.Array, t: float) -> jax.Array:
    """The sum of the states of `feed` at a time."""
    a, b = k[0], k[1]
    first = -jnp.expm1(-a * t) / a
    second = -jnp.expm1(-b * t) / b - (jnp.exp(-a * t) - jnp.exp(-b * t)) / (b - a)
    return first + second


def feed(t: Any, y: jax.Array, k: jax.Array) -> jax.Array:
    """Two tanks in a row: the first is fed, the second takes what leaves the first."""
    del t
    return jnp.stack([1 - k[0] * y[0], k[0] * y[0] - k[1] * y[1]])


def loss(adjoint: Any, end: float, k: jax.Array, *, saved: bool = False, **options: Any) -> jax.Array:
    """The sum of the states at the end, or at three times."""
    saveat = jnp.array([0.25, 0.5, 1.0]) * end if saved else None
    sol = sciml.solve(
        feed, jnp.zeros(2, k.dtype), t0=0.0, t1=end, args=k, saveat=saveat, adjoint=adjoint, throw=False, **options
    )
    return jnp.sum(sol.ys)


def exact_loss(end: float, k: jax.Array, saved: bool) -> jax.Array:
    """What `loss` should be."""
    return sum((exact(k, f * end) for f in (0.25, 0.5)), exact(k, end)) if saved else exact(k, end)


def _push(fn, k):
    return jax.jvp(fn, (k,), (jnp.ones_like(k),))[1]


MODES = {
    "Forward mode (`jax.jvp`, `jax.jacfwd`)": _push,
    "Reverse mode (`jax.grad`, `jax.vjp`)": lambda fn, k: jax.grad(fn)(k),
    "Forward over reverse (`jax.hessian`, `jax.jvp` of `jax.grad`)": lambda fn, k: _push(jax.grad(fn), k),
    "Reverse over reverse (`jax.grad` of `jax.grad`)": lambda fn, k: jax.grad(lambda k: jnp.sum(jax.grad(fn)(k)))(k),
}


def cell(adjoint: str, loop: str, mode: str) -> str:
    """What a cell says: "yes", the first sentence of the error, or by how much the derivative is wrong."""
    end = 40.0 if adjoint == "Implicit" else 1.0  # for the steady state
    several = loop in ("ensemble", "shard_map")
    options = dict(LOOPS["fixed" if several and adjoint in WITH_FIXED_STEPS else loop])
    one = ft.partial(loss, ADJOINTS[adjoint], end, **options)
    goal = ft.partial(exact_loss, end, saved=options.get("saved", False))
    k: Any = jnp.asarray(MEMBERS if several else RATES)
    fn: Any = one
    if loop == "ensemble":
        fn = lambda k: jnp.sum(jax.vmap(one)(k))  # noqa: E731
    if loop == "shard_map":
        mesh = Mesh(np.array(jax.devices()[:2]), ("members",))
        run = jax.shard_map(jax.vmap(one), mesh=mesh, in_specs=P("members"), out_specs=P("members"))
        fn = lambda k: jnp.sum(run(k))  # noqa: E731
    want = MODES[mode](lambda k: jnp.sum(jax.vmap(goal)(k)) if k.ndim == 2 else goal(k), k)
    try:
        found = jax.jit(ft.partial(MODES[mode], fn))(k)
    except Exception as error:  # what a user would see is the subject of the table
        return f"{type(error).__name__}: {first_sentence(str(error))}"
    miss = float(np.max(np.abs(np.asarray(found) - want)) / np.max(np.abs(want)))
    return "yes" if miss < 1e-5 else f"wrong by {miss:.1e}"


def sampled(said: str, *key: str) -> bool:
    """Whether the tests compute a cell: all that are refused, of those over devices a third, an eighth of the rest."""
    return "no (" in said or zlib.crc32("/".join(key).encode()) % (3 if "shard_map" in key else 8) == 0


def first_sentence(text: str) -> str:
    """The first sentence of an error, on one line."""
    text = re.sub(r"\s+", " ", text.strip())
    return re.split(r"(?<=[.:]) (?=[A-Z`])|; ", text)[0].rstrip(".:")


def table(cells: dict[tuple[str, str, str], str]) -> str:
    """The tables as Markdown, one for each mode, errors as notes below."""
    out, notes = [], []
    for mode in MODES:
        out += [f"**{mode}**", "", "| | " + " | ".join(LOOPS) + " |", "|---" * (len(LOOPS) + 1) + "|"]
        for adjoint in ADJOINTS:
            row = []
            for loop in LOOPS:
                said = cells[adjoint, loop, mode]
                if said != "yes":
                    if said not in notes:
                        notes.append(said)
                    said = f"no ({notes.index(said) + 1})"
                row.append(said)
            out.append(f"| `{adjoint}` | " + " | ".join(row) + " |")
        out.append("")
    return "\n".join(out + [f"{number}. {note}" for number, note in enumerate(notes, 1)]) + "\n"


def configure() -> None:
    """Sets JAX up as the tests do."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", 8)


if __name__ == "__main__":
    from tests import adjoint_table  # by its name, for the other processes

    with concurrent.futures.ProcessPoolExecutor(
        mp_context=multiprocessing.get_context("spawn"), initializer=adjoint_table.configure
    ) as pool:
        keys = list(itertools.product(ADJOINTS, LOOPS, MODES))
        cells = dict(zip(keys, tqdm.tqdm(pool.map(adjoint_table.cell, *zip(*keys), chunksize=4), total=len(keys))))
    WRITTEN.write_text(table(cells))
    print(WRITTEN.read_text())
