"""The table of the docs that says which solvers and adjoints run on several devices, and how.

`python -m tests.sharding_table` writes it. Every cell is an ensemble that is solved, and its gradient, both compared
with an exact solution.
"""

import concurrent.futures
import contextlib
import functools as ft
import itertools
import multiprocessing
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sciml
from tests.adjoint_table import ADJOINTS, MEMBERS, configure, exact, feed, first_sentence

WRITTEN = pathlib.Path(__file__).resolve().parents[1] / "docs" / "assets" / "sharding_table.txt"


class Modes(sciml.AbstractSemilinear):
    """`feed`, whose diagonal is linear."""

    def transform(self, y):
        return y

    def inverse(self, modes):
        return modes

    def linear(self, args):
        return -args

    def rest(self, t, modes, args):
        return jnp.stack([jnp.ones_like(modes[0]), args[0] * modes[0]])


class Halves(sciml.AbstractSplit):
    """`feed`, whose diagonal is solved with."""

    def stiff(self, y, args):
        return -args * y

    def rest(self, t, y, args):
        return jnp.stack([jnp.ones_like(y[0]), args[0] * y[0]])

    def solve_shifted(self, shift, right, args):
        return right / (1 + shift * args)


class Bounded(sciml.AbstractModel):
    """`feed`, which says its spectral radius."""

    def __call__(self, t, y, args):
        return feed(t, y, args)

    def spectral_radius(self, t, y, args):
        return jnp.max(args)


class Springs(sciml.AbstractSecondOrder):
    """Two springs that swing at the rates."""

    def acceleration(self, t, q, args):
        return -(args**2) * q


def tanks(dtype: Any) -> Any:
    """Two empty tanks, where `feed` starts."""
    return jnp.zeros(2, dtype)


def struck(dtype: Any) -> Any:
    """Two springs at rest that are struck."""
    return jnp.zeros(2, dtype), jnp.ones(2, dtype)


def swung(k: jax.Array, t: float) -> jax.Array:
    """The sum of the places and velocities of `Springs` at a time."""
    return jnp.sum(jnp.sin(k * t) / k + jnp.cos(k * t))


class Problem(NamedTuple):
    """What a family of methods is tried on.

    Attributes:
        model: The vector field; its args are the rates.
        start: The initial state, by dtype.
        exact: The sum of the states, by rates and time.
        settles: Whether there is a steady state, which `Implicit` needs.
    """

    model: Any = feed
    start: Callable = tanks
    exact: Callable = exact
    settles: bool = True


TOLERANCES: dict[str, Any] = dict(rtol=1e-6, atol=1e-6)
SOLVERS: dict[str, tuple[Problem, dict[str, Any]]] = {
    "Runge-Kutta, fixed steps": (Problem(), dict(solver=diffrax.Heun(), dt=1 / 64)),
    "Runge-Kutta, error control": (Problem(), dict(solver=diffrax.Bosh3(), **TOLERANCES)),
    "Rosenbrock": (Problem(), dict(solver=sciml.solvers.Rosenbrock23(), **TOLERANCES)),
    "exponential": (Problem(Modes()), dict(solver=sciml.solvers.ETDRK(order=3), **TOLERANCES)),
    "implicit-explicit": (Problem(Halves()), dict(solver=sciml.solvers.ARK(order=3), **TOLERANCES)),
    "stabilised": (Problem(Bounded()), dict(solver=sciml.solvers.RKC2(max_stages=20), **TOLERANCES)),
    "symplectic": (Problem(Springs(), struck, swung, False), dict(solver=sciml.solvers.VelocityVerlet(), dt=1 / 64)),
    "implicit": (Problem(), dict(solver=diffrax.Kvaerno3(), **TOLERANCES)),
    "implicit, through diffrax": (
        Problem(),
        dict(solver=diffrax.Kvaerno3(root_finder=diffrax.VeryChord(rtol=1e-8, atol=1e-8)), **TOLERANCES),
    ),
}
"""The families of methods, one column each."""

ENGINES = {
    "`jax.jit(jax.vmap(solve))`": (None, False),
    "`jax.jit(jax.vmap(solve))` of an array with a NamedSharding": (AxisType.Auto, False),
    "the same on a mesh with explicit axes": (AxisType.Explicit, False),
    "`jax.shard_map` with its default `check_vma=True`": (AxisType.Auto, True),
    "`jax.shard_map` on a mesh with explicit axes": (AxisType.Explicit, True),
}
"""How the members run: on what mesh, and whether inside of `shard_map`."""


NEVER_SETTLES = "What swings without friction has no steady state, by which this adjoint differentiates"


def one(adjoint: Any, end: float, solver: str, k: jax.Array, shared: jax.Array) -> jax.Array:
    """The sum of the states at the end, by rates of a member's own and a factor that all members share."""
    problem, options = SOLVERS[solver]
    times = dict(t0=0.0, t1=end, args=k * shared, adjoint=adjoint, throw=False)
    ys = sciml.solve(problem.model, problem.start(k.dtype), **times, **options).ys
    return sum(jnp.sum(y) for y in jax.tree.leaves(ys))


def cell(solver: str, adjoint: str, engine: str) -> tuple[str, str]:
    """What a cell says of the solution and of its gradient: "yes", the error, or by how much it is wrong."""
    problem, _ = SOLVERS[solver]
    if adjoint == "Implicit" and not problem.settles:
        return (NEVER_SETTLES, NEVER_SETTLES)
    end = 40.0 if adjoint == "Implicit" else 1.0  # for the steady state
    member = ft.partial(one, ADJOINTS[adjoint], end, solver)
    run: Any = jax.vmap(member, in_axes=(0, None))
    axis_type, inside = ENGINES[engine]
    k, shared = jnp.asarray(MEMBERS), jnp.asarray(1.1)
    goal = lambda k, shared: jnp.sum(jax.vmap(lambda k: problem.exact(k * shared, end))(k))  # noqa: E731
    wants = goal(k, shared), jax.grad(goal, argnums=(0, 1))(k, shared)
    with contextlib.ExitStack() as stack:
        if axis_type is not None:
            mesh = jax.make_mesh((2,), ("members",), axis_types=(axis_type,), devices=jax.devices()[:2])
            stack.enter_context(jax.set_mesh(mesh))
            k = jax.device_put(k, NamedSharding(mesh, P("members")))
            shared = jax.device_put(shared, NamedSharding(mesh, P()))
            if inside:
                run = jax.shard_map(run, mesh=mesh, in_specs=(P("members"), P()), out_specs=P("members"))
        total = lambda k, shared: jnp.sum(run(k, shared))  # noqa: E731
        gradient = jax.value_and_grad(total, argnums=(0, 1))
        try:
            values = jax.jit(gradient)(k, shared)
            return _judge(values[0], wants[0]), _judge(values[1], wants[1])
        except Exception as error:  # what a user would see is the subject of the table
            refusal = _said(error)
        try:
            return _judge(jax.jit(total)(k, shared), wants[0]), refusal
        except Exception as error:
            return _said(error), refusal


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {first_sentence(str(error))}"


def _judge(found: Any, want: Any) -> str:
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(want))
    # in NumPy: JAX may give an array the mesh of an earlier program, and refuses that one under the mesh set here
    pairs = ((np.asarray(a), np.asarray(b)) for a, b in pairs)
    miss = max(float(np.max(np.abs(a - b)) / np.max(np.abs(b))) for a, b in pairs)
    return "yes" if miss < 1e-3 else f"wrong by {miss:.1e}"


def table(cells: dict[tuple[str, str, str], tuple[str, str]]) -> str:
    """The tables as Markdown, one for each way to run, errors as notes below."""
    out, notes = [], []
    for engine in ENGINES:
        out += [f"**{engine}**", "", "| | " + " | ".join(SOLVERS) + " |", "|---" * (len(SOLVERS) + 1) + "|"]
        for adjoint in ADJOINTS:
            row = []
            for solver in SOLVERS:
                said = []
                for word in cells[solver, adjoint, engine]:
                    if word != "yes" and word not in notes:
                        notes.append(word)
                    said.append(word if word == "yes" else f"no ({notes.index(word) + 1})")
                row.append(", ".join(said))
            out.append(f"| `{adjoint}` | " + " | ".join(row) + " |")
        out.append("")
    return "\n".join(out + [f"{number}. {note}" for number, note in enumerate(notes, 1)]) + "\n"


if __name__ == "__main__":
    from tests import sharding_table  # by its name, for the other processes

    with concurrent.futures.ProcessPoolExecutor(
        mp_context=multiprocessing.get_context("spawn"), initializer=configure
    ) as pool:
        keys = list(itertools.product(SOLVERS, ADJOINTS, ENGINES))
        cells = dict(zip(keys, tqdm.tqdm(pool.map(sharding_table.cell, *zip(*keys), chunksize=4), total=len(keys))))
    WRITTEN.write_text(table(cells))
    print(WRITTEN.read_text())
