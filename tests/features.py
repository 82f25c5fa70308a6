"""Features of a solve that combine: one small problem that each of them changes in its own way.

`tests.pairs_table` combines two of them, `tests.random` as many as it draws; `tests.features_by_hand` solves the same
problem in NumPy. The problem is a tank `x` that drains at a rate `a`, and a second one `z` that collects:

$$x' = u - a x, \\qquad z' = a x - u.$$
"""

import dataclasses
import functools
import tempfile
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sciml

from .adjoint_table import ADJOINTS

INFLOW = 0.3
FLOWS = (0.0, 0.8)
"""The values of a held input, before and after its jump."""
SWITCH = 0.3
"""The jump of the input, in units of `a`."""
DOSES = ((0.2, 0.15), (0.5, 0.1))
"""Times, in units of `a`, and amounts of two doses into `x`."""
MOVED = (-0.1, 0.3)
"""By how much an event that goes on changes the state."""
DELAY = 0.26
"""By which neither a dose nor a jump of the input comes back at an end, where the derivative would be one-sided."""
LAG = (0.3, 0.2)
"""The growth of a delay that is a function, `DELAY (1 + 0.3 t + 0.2 x)`, with time and with the first tank."""
PAST = (1.0, 0.0)
"""The state before the start of an equation with a delay."""
TOTAL = 1.2
"""The sum of both tanks, where an algebraic equation holds it."""
NOISE = 0.2
MOLECULES = 5.0
LEAST, PASSED, MOST = 0.05, 0.6, 0.9
"""Amounts in `x` of `domain`: one that is always there; the least one that is not, and the most one backwards."""
SAVED = (0.15, 0.4, 0.85)
EVALUATED = (0.1, 0.45, 0.9)
"""Times of outputs, in units of the interval."""
SPLIT = 0.55
"""The end of the first of two solves."""
KEPT = 5
"""The number of events that are compared."""
REST = 40.0
"""An end at which nothing moves any more."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """All that features may change; the defaults are one solve with error control in float64."""

    ends: bool = False
    goes_on: bool = False
    doses: bool = False
    held: bool = False
    noise: str = ""
    delayed: bool = False
    tracked: bool = False
    """Whether the delay is a function of time and state; `delayed` as well."""
    reactions: bool = False
    mass: bool = False
    dae: bool = False
    """Whether the equations with a mass matrix are a `sciml.DAE`; `mass` as well."""
    positive: bool = False
    project: bool = False
    domain: bool = False
    dense: bool = False
    saved: bool = False
    resumed: bool = False
    refill: bool = False
    kernel: bool = False
    adjoint: str = ""
    vmap: bool = False
    shard_map: bool = False
    sharding: str = ""
    single: bool = False
    backwards: bool = False
    empty: bool = False
    stored: bool = False
    variant: int = 0
    """Other rates, starts and ends; the table has those of 0."""

    def with_variant(self, variant: int) -> "Setting":
        """The same with other numbers."""
        return dataclasses.replace(self, variant=variant)

    @property
    def begin(self) -> float:
        """The start time."""
        return 1.0 if self.backwards else 0.0

    @property
    def thresholds(self) -> tuple[float, float]:
        """The amounts in `x` at which an event goes on, and at which one ends the solve."""
        if self.reactions:
            return MOLECULES / 2, MOLECULES / 2
        return (0.6, 0.9) if self.backwards else (0.8, 0.5)

    def admits(self, x: Any) -> Any:
        """A domain that holds all along."""
        return x > (-1.0 if self.positive or self.reactions else LEAST)

    def admits_for_a_while(self, x: Any) -> Any:
        """A domain that the solution leaves."""
        return x < MOST if self.backwards else x > PASSED

    @property
    def several(self) -> bool:
        """Whether members are mapped by `jax.vmap`."""
        if self.stored:
            return self.vmap
        return self.vmap or self.refill or self.kernel or bool(self.sharding) and not self.shard_map or self.empty

    @property
    def happens(self) -> bool:
        """Whether there are events to be compared."""
        return self.ends or self.goes_on or self.doses or self.held

    @property
    def inflow(self) -> float:
        """The inflow, where no input is held."""
        return 0.0 if self.positive and self.adjoint != "Implicit" else INFLOW

    @property
    def leaks(self) -> bool:
        """Whether the second tank drains as well, without which it need not come to rest."""
        return self.adjoint == "Implicit" and not self.project

    @property
    def tolerance(self) -> float:
        """The error up to which numbers are right."""
        if self.single:
            return 2e-3 if self.noise != "adaptive" else 1e-2
        if self.noise and (self.ends or self.goes_on or self.saved or self.dense):
            return 6e-2  # between steps the state is on a line, and a path is not
        return {"fixed": 2e-4, "adaptive": 1e-2}.get(self.noise, 2e-6 if not self.positive else 2e-5)


def inputs(setting: Setting) -> dict[str, np.ndarray]:
    """The members: rates, states at the start, ends and numbers, each with members first."""
    count = 80 if setting.refill else 4 if setting.vmap and setting.shard_map else 2
    count = max(count, 3 if setting.empty and not (setting.sharding or setting.shard_map) else 2)
    if not (setting.several or setting.shard_map or setting.sharding):
        count = 1
    numbers = np.arange(count)
    other = np.random.default_rng(setting.variant).uniform(-1, 1, 4) * (setting.variant > 0)
    a = 1.5 + 0.4 * other[0] + 0.02 * (numbers % 7)
    start = np.array([0.95, 0.25]) + 0.05 * other[1:3]
    if setting.backwards:
        start = np.array([0.45, 0.25]) + 0.05 * other[1:3]
    if setting.mass:
        start = np.array([start[0], TOTAL - start[0]])
    start = start + 0.01 * (numbers % 3)[:, None] * [1, -1]
    length = (1.0 - 0.1 * abs(other[3])) * (1.0 - 0.03 * (numbers % 4))
    if setting.adjoint == "Implicit":
        length = 0 * length + REST
    if setting.empty:
        length[-1] = 0.0
    if setting.stored and setting.sharding:
        length[:] = 1.0
    if setting.reactions:
        start = np.array([[MOLECULES, 0.0]]) + 0 * start
    return dict(a=a, start=start, end=setting.begin + (-length if setting.backwards else length), number=numbers)


def field(setting: Setting, t: Any, y: Any, past: Any, args: Any) -> Any:
    """The vector field."""
    x, z = y
    a, valve = args
    u = valve(t) if setting.held else jnp.full_like(x, setting.inflow)
    drained = a * past[0]
    if setting.positive:
        wet = x > 0
        root = jnp.where(wet, jnp.sqrt(jnp.where(wet, x, 1.0)), 0.0)
        drained = 2 * a * root * (past[0] if setting.delayed else 1.0)
    dx = u - drained
    dz = drained - u - (z if setting.leaks else 0.0) if setting.project or setting.leaks else drained
    if setting.mass:
        return jnp.stack([2 * dx, x + z - TOTAL])
    return jnp.stack([dx, dz])


def lag(t: Any, y: Any) -> Any:
    """The delay that is a function of time and state."""
    return DELAY * (1 + LAG[0] * t + LAG[1] * y[0])


def _equations(setting: Setting, t: Any, y: Any, rate: Any, args: Any) -> Any:
    """The equations with a mass matrix, as residuals."""
    return jnp.stack([2 * rate[0], jnp.zeros_like(rate[0])]) - field(setting, t, y, y, args)


def model(setting: Setting) -> Any:
    """The model of a setting."""
    plain = lambda t, y, args: field(setting, t, y, y, args)  # noqa: E731
    if setting.dae:
        return sciml.DAE(functools.partial(_equations, setting))
    if setting.reactions:
        return sciml.Reactions([[-1, 1]], lambda x, args: 1e3 * args[0] * x[:1])
    if setting.delayed:
        rate = functools.partial(field, setting)
        before = lambda t, args: jnp.asarray(PAST, args[0].dtype) + 0 * args[0]  # noqa: E731
        delays = (lambda t, y, args: lag(t, y)) if setting.tracked else DELAY
        drift: Any = sciml.Delayed(rate, delays, before, **({"kept": 240} if setting.tracked else {}))
    else:
        drift = plain
    if setting.noise:
        amplitude = (-NOISE, NOISE) if setting.project else (0.0, NOISE)  # the sum of both has none
        kind = "scalar" if setting.project else "additive"
        return sciml.Stochastic(drift, lambda t, y, args: jnp.asarray(amplitude, y.dtype), noise=kind)
    return drift


def path_of(setting: Setting, number: Any) -> Any:
    """The key or the path of a member."""
    key = jax.random.fold_in(jax.random.key(7), number)
    return sciml.BrownianPath(key, 0.0, 1.0) if setting.noise else key


def events_of(setting: Setting, a: Any, valve: Any) -> list[Any]:
    """The events of a setting, in the order in which they are given."""
    on, end = setting.thresholds
    moved = np.array(MOVED) if not setting.reactions else np.array([0.0, 3.0])
    found: list[Any] = []
    if setting.ends:
        found.append(sciml.Event(lambda t, y, args: y[0] - end))
    if setting.goes_on:
        found.append(sciml.Event(lambda t, y, args: y[0] - on, lambda t, y, args: y + jnp.asarray(moved, y.dtype)))
    if setting.doses:
        times, amounts = (jnp.asarray(x, a.dtype) for x in zip(*DOSES))
        amounts = jnp.round(10 * amounts) if setting.reactions else amounts
        times = times[::-1] if setting.backwards else times
        amounts = amounts[::-1] if setting.backwards else amounts
        found.append(sciml.Schedule(times * a, lambda t, y, args, dose: y.at[0].add(dose), amounts))
    if setting.held:
        found.append(valve.jumps())
    return found


def options_of(setting: Setting, a: Any, number: Any) -> tuple[Any, dict[str, Any]]:
    """The arguments of the field, and the options of `sciml.solve`."""
    valve = sciml.Held(jnp.stack([0 * a - 1, SWITCH * a]), jnp.asarray(FLOWS, a.dtype)) if setting.held else None
    options: dict[str, Any] = {}
    tolerances = (1e-5, 1e-6) if setting.single else (1e-7, 1e-9)
    if setting.noise == "adaptive":
        tolerances = (1e-4, 1e-4)
    if setting.noise == "fixed":
        options |= dict(dt=(-1 if setting.backwards else 1) / 64)
        if not (setting.mass or setting.project):
            options |= dict(solver=diffrax.ShARK())
    elif not setting.reactions:
        options |= dict(rtol=tolerances[0], atol=tolerances[1])
        if not setting.noise:
            options |= dict(solver=diffrax.Bosh3())  # of few stages, which compile soon
    if setting.noise or setting.reactions:
        options |= dict(key=path_of(setting, number))
    if setting.dae:
        options |= dict(solver=sciml.solvers.Radau5())
    elif setting.mass:
        options |= dict(solver=sciml.solvers.Rodas5P(mass=np.diag([2.0, 0.0]).astype(a.dtype)))
    if setting.positive:
        options |= dict(positive=np.array([True, False]))
    if setting.project:
        options |= dict(project=lambda y: (y[0] + y[1]) ** 2)
    if setting.domain:
        options |= dict(domain=lambda y: setting.admits(y[0]))
    if setting.happens:
        options |= dict(events=events_of(setting, a, valve), max_events=8)
    if setting.refill:
        options |= dict(batching="refill")
    if setting.adjoint:
        options |= dict(adjoint=ADJOINTS[setting.adjoint])
    return (a, valve), options


def _vector(setting: Setting, parts: list[Any]) -> Any:
    return jnp.concatenate([jnp.ravel(x) for x in parts])


def by_kernel(*args: Any, **options: Any) -> sciml.Solution:
    """`sciml.solve` by a kernel, in JAX's interpreter."""
    with sciml.kernels.use("pallas", interpret=True):
        return sciml.solve(*args, **options)


def _record(found: Any) -> list[Any]:
    return [found.times[:KEPT], found.states_after[:KEPT]]


def solve(setting: Setting, a: Any, start: Any, end: Any, number: Any) -> tuple[Any, Any]:
    """One member: the numbers to compare, and the status."""
    args, options = options_of(setting, a, number)
    begin = setting.begin if isinstance(end, float) else jnp.asarray(setting.begin, a.dtype)
    at = lambda fractions: begin + jnp.asarray(fractions, a.dtype) * (end - begin)  # noqa: E731
    solve = by_kernel if setting.kernel else sciml.solve
    run = functools.partial(solve, model(setting), start, t0=begin, args=args, throw=False)
    if setting.resumed:
        middle = at(SPLIT)
        early, late = (tuple(t for t in SAVED if (t < SPLIT) == first) for first in (True, False))
        saves = [at(ts) if setting.saved else None for ts in (early, late)]
        first, second = (
            diffrax.SaveAt(ts=ts, t1=True, dense=setting.dense, solver_state=last)
            for ts, last in zip(saves, (True, False))
        )
        half = run(t1=middle, saveat=first, **options)
        sol = run(t1=end, saveat=second, resume=half.resume, **options)
        ys = jnp.concatenate([half.ys[:-1], sol.ys[:-1]]) if setting.saved else None
        last = sol.ys[-1]
    elif setting.saved or setting.dense:
        saveat = diffrax.SaveAt(ts=at(SAVED) if setting.saved else None, t1=True, dense=setting.dense)
        sol = run(t1=end, saveat=saveat, **options)
        ys, last = sol.ys[:-1], sol.ys[-1]
    else:
        sol = run(t1=end, **options)
        ys, last = None, sol.ys[-1]
    parts = [last, sol.t_reached]
    if setting.saved:
        parts.append(ys)
    if setting.dense:
        parts.append(sol.evaluate(at(EVALUATED)))
    if setting.happens:
        parts += _record(sol.events)
    status = sol.status
    if setting.domain:  # and a limit that is passed on the way
        failed = run(t1=end, **(options | dict(domain=lambda y: setting.admits_for_a_while(y[0]))))
        parts.append((failed.status == sciml.Status.outside_domain).astype(a.dtype))
    return _vector(setting, parts), status


def simulate(setting: Setting, p: dict[str, Any]) -> tuple[Any, Any]:
    """The same by `sciml.simulate` with a store."""

    def one(a: Any, start: Any, end: Any, number: Any) -> tuple[Any, Any]:
        args, options = options_of(setting, a, number)
        if setting.saved:
            options |= dict(saveat=setting.begin + jnp.asarray(SAVED, a.dtype) * (end - setting.begin))
        if setting.dense:
            options |= dict(saveat=diffrax.SaveAt(dense=True))
        with tempfile.TemporaryDirectory() as folder:
            run = functools.partial(
                sciml.simulate, model(setting), start, t0=setting.begin, t1=end, args=args, store=folder,
                progress=False, throw=False, checkpoint_every=0.0,
            )  # fmt: skip
            if setting.resumed:
                run(stop=sciml.runs.WallTime(0.0), segment_steps=4, **options)
                sol = run(stop=sciml.runs.WallTime(1e6), segment_steps=4, **options)
            else:
                sol = run(**options)
            parts = [sol.y, sol.t_reached]
            if setting.saved:
                parts.append(sol.values)
            if setting.dense:
                parts.append(sol.evaluate(setting.begin + np.array(EVALUATED) * (end - setting.begin)))
            if setting.happens:
                parts += [x[0] if x.ndim > k + 1 else x for k, x in enumerate(_record(sol.events))]
            if setting.domain:
                with tempfile.TemporaryDirectory() as other:
                    failed = run(**(options | dict(domain=lambda y: setting.admits_for_a_while(y[0]), store=other)))
                parts.append(jnp.asarray(failed.status == sciml.Status.outside_domain, a.dtype))
            return _vector(setting, parts), jnp.asarray(sol.status)

    if setting.sharding:
        with tempfile.TemporaryDirectory() as folder:
            options = options_of(Setting(), jnp.ones(()), 0)[1]
            sol = sciml.simulate(
                model(setting), p["start"], t0=setting.begin, t1=setting.begin + 1.0, args=(p["a"], None), store=folder,
                in_axes=(None, 0, 0), progress=False, throw=False, **options,
            )  # fmt: skip
            return jnp.concatenate([sol.y, sol.t_reached[:, None]], axis=1), jnp.asarray(sol.status)
    if setting.vmap:
        return jax.vmap(one)(p["a"], p["start"], p["end"], p["number"])

    def alone(p: Any) -> Any:
        return jax.tree.map(lambda x: x[None], one(*(p[name][0] for name in ("a", "start", "end", "number"))))

    if setting.shard_map:
        return jax.shard_map(alone, mesh=_mesh(""), in_specs=P("members"), out_specs=P("members"))(p)
    return alone(p)


def _mesh(kind: str) -> Any:
    axis = AxisType.Explicit if kind == "explicit" else AxisType.Auto
    return jax.make_mesh((2,), ("members",), axis_types=(axis,), devices=jax.devices()[:2])


def program(setting: Setting) -> Callable[[dict[str, Any]], tuple[Any, Any]]:
    """The function of all members' inputs to their numbers and status."""
    one = lambda p: solve(setting, p["a"], p["start"], p["end"], p["number"])  # noqa: E731
    fn: Any = (
        jax.vmap(one)
        if setting.several
        else lambda p: jax.tree.map(lambda x: x[None], one(jax.tree.map(lambda x: x[0], p)))
    )
    if setting.shard_map:
        inside = jax.vmap(one) if setting.several else fn
        fn = jax.shard_map(inside, mesh=_mesh(setting.sharding), in_specs=P("members"), out_specs=P("members"))
    return fn


def arrays(setting: Setting) -> dict[str, Any]:
    """The inputs as arrays of JAX, on devices where they are sharded."""
    dtype = np.float32 if setting.single else np.float64
    p: dict[str, Any] = {k: x.astype(dtype) if x.dtype.kind == "f" else x for k, x in inputs(setting).items()}
    if setting.sharding:
        split = NamedSharding(_mesh(setting.sharding), P("members"))
        return {k: jax.device_put(x, split) for k, x in p.items()}
    return jax.tree.map(jnp.asarray, p)
