"""The table of the docs that says how what a solve can do beside its steps runs on several devices.

`python -m tests.capability_table` writes it. Every cell is an ensemble whose members have rates and an end of their
own, solved on devices and on one, and its gradient by both.
"""

import concurrent.futures
import contextlib
import functools
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
from sciml.inspect._compiled import collectives_of
from sciml.inspect._hlo_text import parse
from tests.adjoint_table import configure, exact, feed, first_sentence

WRITTEN = pathlib.Path(__file__).resolve().parents[1] / "docs" / "assets" / "capability_table.txt"

RATES = np.array([[0.7, 1.9], [0.8, 2.1], [1.1, 1.7], [0.9, 2.3]])
ENDS = np.array([1.0, 0.8, 0.0, 0.9])  # one member has no length
FINE: dict[str, Any] = dict(rtol=1e-6, atol=1e-8)


class Stiff(sciml.AbstractModel):
    """`feed`, which says that it is stiff: what is taken for it where no method is named is one for stiff equations."""

    stiff = True

    def __call__(self, t: Any, y: Any, args: Any) -> Any:
        return feed(t, y, args)


def key_of(k: jax.Array) -> jax.Array:
    """A key of a member's own."""
    return jax.random.fold_in(jax.random.key(0), (1000 * jax.lax.stop_gradient(k[0])).astype(int))


def _zeros(k: jax.Array) -> jax.Array:
    return jnp.zeros(2, k.dtype)


def _tanks(model: Any, k: jax.Array, end: jax.Array, **options: Any) -> jax.Array:
    return sciml.solve(model, _zeros(k), t0=0.0, t1=end, args=k, throw=False, **options).ys[-1]


def _fills(k: jax.Array, end: jax.Array) -> jax.Array:
    """A tank that is filled at the first rate, and one that forgets at the second and is given one at half a fill."""
    field = lambda t, y, k: jnp.stack([k[0], -k[1] * y[1]])  # noqa: E731
    half = sciml.Event(lambda t, y, k: y[0] - 0.5, lambda t, y, k: jnp.stack([y[0], y[1] + 1]), direction=1)
    return _tanks(field, k, end, events=half, **FINE)


def _filled(k: jax.Array, end: jax.Array) -> jax.Array:
    then = 0.5 / k[0]
    return k[0] * end + jnp.where(end > then, jnp.exp(-k[1] * (end - then)), 0.0)


def _dosed(k: jax.Array, end: jax.Array) -> jax.Array:
    times = jnp.stack([end / 4, end / 4 + 0.25])
    doses = sciml.Schedule(times, lambda t, y, k, dose: y + dose, jnp.stack([k, k[::-1]]))
    return _tanks(lambda t, y, k: -k * y, k, end, events=doses, **FINE)


def _after_doses(k: jax.Array, end: jax.Array) -> jax.Array:
    first, second = 0.75 * end, 0.75 * end - 0.25
    return jnp.sum(k * jnp.exp(-k * first) + jnp.where(second > 0, k[::-1] * jnp.exp(-k * second), 0.0))


def _held(k: jax.Array, end: jax.Array) -> jax.Array:
    valve = sciml.Held(jnp.stack([0 * end, 0.25 * k[0]]), jnp.stack([k, k[::-1]]))
    model = lambda t, y, valve: valve(t) - y  # noqa: E731
    return sciml.solve(model, _zeros(k), t0=0.0, t1=end, args=valve, events=valve.jumps(), throw=False, **FINE).ys[-1]


def _driven(k: jax.Array, end: jax.Array) -> jax.Array:
    line = diffrax.LinearInterpolation(jnp.stack([0 * end, 1 + k[0]]), jnp.stack([0 * k, k]))
    model = sciml.Controlled(lambda t, y, k: jnp.eye(2, dtype=y.dtype), line)
    return _tanks(model, k, end, **FINE)


def _noisy(k: jax.Array, end: jax.Array) -> jax.Array:
    """A tank without noise beside one that is filled evenly with it."""
    drift = lambda t, y, k: jnp.stack([1 - k[0] * y[0], k[1]])  # noqa: E731
    spread = lambda t, y, k: jnp.stack([0 * k[0], 0.3 * k[0]])  # noqa: E731
    model = sciml.Stochastic(drift, spread, noise="additive")
    return _tanks(model, k, end, key=key_of(k), dt=1 / 64, solver=diffrax.ShARK())


def _between(k: jax.Array, end: jax.Array) -> jax.Array:
    """The state at a time that is not saved."""
    dense = diffrax.SaveAt(dense=True)
    sol = sciml.solve(feed, _zeros(k), t0=0.0, t1=1.0, args=k, dt=1 / 64, saveat=dense, throw=False)
    return sol.evaluate(0.7 * end)


def _late(k: jax.Array, end: jax.Array) -> jax.Array:
    """Counted from the past of ones, which lasts for a delay of half a unit."""
    model = sciml.Delayed(lambda t, y, past, k: -k * past, 0.5, history=lambda t, k: jnp.ones_like(k))
    return sciml.solve(model, jnp.ones_like(k), t0=0.0, t1=end, args=k, throw=False, **FINE).ys[-1]


def _lately(k: jax.Array, end: jax.Array) -> jax.Array:
    more = jnp.maximum(end - 0.5, 0.0)
    return jnp.sum(1 - k * end + k**2 * more**2 / 2)


def _decay(k: jax.Array, end: jax.Array) -> jax.Array:
    """Molecules of two kinds that are all gone at the end, but for those of a member of no length."""
    model = sciml.Reactions([[-1, 0], [0, -1]], lambda x, k: 1e3 * k * x)
    sol = sciml.solve(model, jnp.full_like(k, 5.0), t0=0.0, t1=end, args=k, key=key_of(k), throw=False)
    return sol.ys[-1]


def _leaps(k: jax.Array, end: jax.Array) -> jax.Array:
    """Many molecules that go by and by: what is left is random."""
    model = sciml.Reactions([[-1, 0], [0, -1]], lambda x, k: k * x)
    options = dict(key=key_of(k), solver=sciml.solvers.TauLeaping(), throw=False)
    return sciml.solve(model, jnp.full_like(k, 1e5), t0=0.0, t1=end, args=k, **options).ys[-1]


def _algebraic(k: jax.Array, end: jax.Array) -> jax.Array:
    """A tank, and a number that is held to be the first rate times the square of it; its start is a guess."""
    field = lambda t, y, k: jnp.stack([k[0] - k[1] * y[0], y[1] - k[0] * y[0] ** 2])  # noqa: E731
    return _tanks(field, k, end, solver=sciml.solvers.Rodas5P(mass=np.diag([1.0, 0.0])), **FINE)


def _implicit(k: jax.Array, end: jax.Array) -> jax.Array:
    """The same, by residuals."""
    model = sciml.DAE(lambda t, y, rate, k: jnp.stack([rate[0] - k[0] + k[1] * y[0], y[1] - k[0] * y[0] ** 2]))
    return _tanks(model, k, end, **FINE)


def _determined(k: jax.Array, end: jax.Array) -> jax.Array:
    full = k[0] / k[1] * (1 - jnp.exp(-k[1] * end))
    return full + k[0] * full**2


class Capability(NamedTuple):
    """What a solve can do.

    Attributes:
        solve: What one member comes to, by rates and an end.
        exact: The sum of that; None where there is no formula.
    """

    solve: Callable[[jax.Array, jax.Array], jax.Array]
    exact: Callable[[jax.Array, jax.Array], jax.Array] | None


CAPABILITIES = {
    "`events`: a condition that is sought": Capability(_fills, _filled),
    "`Schedule`: times and amounts of each member": Capability(_dosed, _after_doses),
    "`Held`: an input with times of each member": Capability(_held, None),
    "`Controlled`: a path of each member": Capability(_driven, lambda k, end: jnp.sum(k) * end / (1 + k[0])),
    "`Stochastic`: a key of each member": Capability(_noisy, None),
    "`Delayed`": Capability(_late, _lately),
    "dense output, at a time of each member": Capability(_between, lambda k, end: exact(k, 0.7 * end)),
    "`Reactions`, one by one: a key of each member": Capability(_decay, lambda k, end: jnp.where(end > 0, 0.0, 10.0)),
    "`Reactions`, `TauLeaping`": Capability(_leaps, None),
    "no method named, a stiff model": Capability(lambda k, end: _tanks(Stiff(), k, end, **FINE), exact),
    "`Rodas5P(mass=...)`: an algebraic equation": Capability(_algebraic, _determined),
    "`DAE`: an algebraic equation": Capability(_implicit, _determined),
    "`BDF`": Capability(lambda k, end: _tanks(feed, k, end, solver=sciml.solvers.BDF(), **FINE), exact),
}
"""One row each."""

WAYS = {
    "NamedSharding, automatic axes": (AxisType.Auto, False),
    "explicit axes": (AxisType.Explicit, False),
    "explicit axes, `jax.set_mesh`": (AxisType.Explicit, True),
}
"""How `jax.jit(jax.vmap(solve))` is given its members: on which axes, and whether within `jax.set_mesh`."""


def one(capability: str, k: jax.Array, end: jax.Array) -> jax.Array:
    """The sum of the states at the end of one member."""
    return jnp.sum(CAPABILITIES[capability].solve(k, end))


def gradient(capability: str) -> Callable:
    """The function of rates and ends that returns what members come to, and the derivatives of the sum by both."""
    run = jax.vmap(functools.partial(one, capability))

    def total(k: jax.Array, ends: jax.Array) -> tuple[jax.Array, jax.Array]:
        values = run(k, ends)
        return jnp.sum(values), values

    def both(k: jax.Array, ends: jax.Array) -> tuple[jax.Array, Any]:
        slopes, values = jax.grad(total, argnums=(0, 1), has_aux=True)(k, ends)
        return values, slopes

    return both


@functools.cache
def on_one_device(capability: str) -> tuple[Any, Any, str]:
    """What members come to and its derivatives, where nothing is sharded, and why there are none."""
    k, ends = jnp.asarray(RATES), jnp.asarray(ENDS)
    try:
        values, slopes = jax.jit(gradient(capability))(k, ends)
    except TypeError as error:
        run = jax.jit(jax.vmap(functools.partial(one, capability)))
        values, slopes, why = run(k, ends), None, f"{type(error).__name__}: {first_sentence(str(error))}"
    else:
        why = ""
    formula = CAPABILITIES[capability].exact
    if formula is not None:
        np.testing.assert_allclose(values, jax.vmap(formula)(k, ends), rtol=1e-4, atol=1e-4)
        total = lambda k, ends: jnp.sum(jax.vmap(formula)(k, ends))  # noqa: E731
        if slopes is not None:
            some = ENDS > 0  # at an end that is the start formulas have kinks
            for found, want in zip(slopes, jax.grad(total, argnums=(0, 1))(k, ends)):
                np.testing.assert_allclose(found[some], want[some], rtol=1e-3, atol=1e-3)
    return values, slopes, why


def cell(capability: str, way: str) -> tuple[str, str]:
    """What a cell says of the solution and of its gradient: "yes", the error, or what is wrong."""
    values, slopes, why = on_one_device(capability)
    axis_type, within = WAYS[way]
    mesh = jax.make_mesh((2,), ("members",), axis_types=(axis_type,), devices=jax.devices()[:2])
    x = [jax.device_put(x, NamedSharding(mesh, P("members"))) for x in (RATES, ENDS)]
    run = jax.vmap(functools.partial(one, capability))
    fn = run if slopes is None else gradient(capability)
    with jax.set_mesh(mesh) if within else contextlib.nullcontext():
        try:
            compiled = jax.jit(fn).lower(*x).compile()
            found, loops = compiled(*x), _in_loops(compiled)
            of_solution = _in_loops(jax.jit(run).lower(*x).compile()) if loops else loops
        except Exception as error:  # what a user would see is the subject of the table
            said = f"{type(error).__name__}: {first_sentence(str(error))}"
            return said, said
    if slopes is None:
        return _judge(found, values, loops), why
    return _judge(found[0], values, of_solution), _judge(found[1], slopes, loops)


def _in_loops(compiled: Any) -> list:
    return [c for c in collectives_of(parse(compiled.as_text())) if c.in_loop]


def _judge(found: Any, want: Any, collectives: list) -> str:
    if collectives:
        return f"{len(collectives)} collectives in loops"
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        a_, b_ = np.asarray(a), np.asarray(b)
        miss = float(np.max(np.abs(a_ - b_) / (1 + np.abs(b_))))
        if not miss < 1e-6:
            return f"wrong by {miss:.1e}"
        if tuple(a.sharding.spec)[:1] != ("members",):
            return f"sharded by {a.sharding.spec}"
    return "yes"


def table(cells: dict[tuple[str, str], tuple[str, str]]) -> str:
    """The table as Markdown, errors as notes below."""
    out, notes = ["| | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"], []
    for capability in CAPABILITIES:
        row = []
        for way in WAYS:
            said = []
            for word in cells[capability, way]:
                if word != "yes" and word not in notes:
                    notes.append(word)
                said.append(word if word == "yes" else f"no ({notes.index(word) + 1})")
            row.append(", ".join(said))
        out.append(f"| {capability} | " + " | ".join(row) + " |")
    return "\n".join([*out, "", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]) + "\n"


def _row(capability: str) -> list[tuple[str, str]]:
    return [cell(capability, way) for way in WAYS]


if __name__ == "__main__":
    from tests import capability_table  # by its name, for the other processes

    with concurrent.futures.ProcessPoolExecutor(
        mp_context=multiprocessing.get_context("spawn"), initializer=configure
    ) as pool:
        rows = tqdm.tqdm(pool.map(capability_table._row, CAPABILITIES), total=len(CAPABILITIES))
        found = itertools.chain.from_iterable(rows)
        cells = dict(zip(itertools.product(CAPABILITIES, WAYS), found))
    WRITTEN.write_text(table(cells))
    print(WRITTEN.read_text())
