"""A drawn program: what it solves, how, and inside of which transformations; and the same by a plain loop."""

import functools as ft
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax.sharding import AxisType, PartitionSpec

import sciml
from tests import registry_adjoints, registry_solvers, registry_structured
from tests.conftest import X64

from . import fields

COMPLEX = {
    "complex": lambda one: one(2, imaginary=0.5),
    "real_and_complex": lambda one: {"x": one(1, 2), "z": (one(2, imaginary=0.3), None)},
}
STATES: dict[str, Callable[[Any], Any]] = COMPLEX | {
    "vector": lambda one: one(3),
    "scalar": lambda one: one(),
    "one": lambda one: one(1),
    "tuple": lambda one: (one(2), one()),
    "dict": lambda one: {"b": one(2), "a": [one(1, 2), None]},
    "nested": lambda one: {"x": (one(), {"y": one(2, 1)}), "none": None},
    "field": lambda one: one(2, 3),
    "wide": lambda one: one(140),
}

STRUCTURED = {case.name: case for case in registry_structured.CASES if case.order > 1}
"""What needs structure of its model solves the model of its registry, on finer steps."""

METHODS = {method.name: method for method in registry_solvers.METHODS}
ADJOINTS = {case.name: case for case in registry_adjoints.ADJOINTS}
DERIVATIVES = ("none", "grad", "vjp", "jacfwd", "jvp")
AROUND_ONE = ("remat", "cond", "scan", "jit", "while")
AROUND_ALL = ("vmap", "vmap_of_parameter", "shard_map", "scan", "cond", "jit", "jit_by_arguments", "switch")
STEP, STEPS = 0.125, 4  # multiples of the step are exact in every dtype


def solver_of(method: str) -> Any:
    """The method of this name, of either registry."""
    return (STRUCTURED if method in STRUCTURED else METHODS)[method].solver()


def coefficients(method: str) -> tuple[list[Any], Any, Any] | None:
    """The rows, times and weights of an explicit method; None of another."""
    solver = solver_of(method)
    if isinstance(solver, diffrax.Euler):
        return [], [], [1.0]
    table = getattr(solver, "tableau", None)
    if not isinstance(table, diffrax.ButcherTableau) or np.any(table.a_diagonal):
        return None
    return [np.asarray(row) for row in table.a_lower], np.asarray(table.c), np.asarray(table.b_sol)


class Program(NamedTuple):
    """All that was drawn; its `repr` is the program."""

    operations: tuple[str, ...] = ("sin",)
    state: str = "vector"
    method: str = "Tsit5"
    adjoint: str = "checkpointed"
    kind: str = "scan"
    inner: tuple[str, ...] = ()
    derivative: str = "none"
    outer: tuple[str, ...] = ()
    dtype: str = "float32"
    batch: int = 3

    @property
    def exact(self) -> bool:
        """Whether the plain loop takes the same steps and has the same derivative."""
        same = coefficients(self.method) is not None and "adaptive" not in self.kind
        return same and (not ADJOINTS[self.adjoint].error or self.derivative == "none" and self.adjoint != "reversible")

    @property
    def tolerance(self) -> float:
        if self.exact:
            return 2e-4 if self.dtype == "float32" else 1e-9
        return 2e-2 if self.derivative != "none" else 5e-3


def _has_history(method: str) -> bool:
    traits = getattr(solver_of(method), "traits", None)  # diffrax's solvers have none
    return traits is not None and traits.history


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Draws what the registries promise to work; simpler programs stand first."""
    derivative = draw(st.sampled_from(DERIVATIVES))
    mode = {"none": "runs", "grad": "reverse", "vjp": "reverse", "jacfwd": "forward", "jvp": "forward"}[derivative]
    pairs = [(case, kind) for case in ADJOINTS.values() for kind in getattr(case, mode) if kind in case.runs]
    case, kind = draw(st.sampled_from(pairs))
    adaptive = "adaptive" in kind
    fit = [m for m in METHODS.values() if (m.adaptive and m.order > 2 if adaptive else m.order > 1 or not case.error)]
    if case.error:  # adjoint equations and reversible steps read more of a method than its steps
        fit = [m for m in fit if m.dense_order is not None and not _has_history(m.name)]
        fit = [m for m in fit if m.name != "Switching"]  # which is a multistep method for wide states
    if case.name == "reversible":  # refuses all but explicit methods
        fit = [m for m in fit if coefficients(m.name) is not None]
    methods = [m.name for m in fit]
    if case.name in ("checkpointed", "forward"):
        methods += [m.name for m in STRUCTURED.values() if m.adaptive and m.order > 2 or not adaptive]
    method = draw(st.sampled_from(methods))
    dtype = draw(st.sampled_from(["float32", "float64"] if X64 else ["float32"]))
    program = Program(method=method, adjoint=case.name, kind=kind, derivative=derivative, dtype=dtype)
    operations = list(fields.SMOOTH if not program.exact else fields.ALL)
    if derivative in ("jacfwd", "jvp") or case.name == "forward":
        operations = [name for name in operations if name not in fields.REVERSE_ONLY]
    inner = [name for name in AROUND_ONE if name != "while" or mode != "reverse"]
    outer = draw(st.lists(st.sampled_from(AROUND_ALL), max_size=2, unique=True))
    if "shard_map" in outer:  # the members are split, so they come last of all
        outer = [name for name in outer if not name.startswith("vmap") and name != "shard_map"] + ["shard_map"]
        # JAX 0.12 has no derivative of it there: what it is made of wants literals that vary between devices
        operations = [name for name in operations if name != "erf"]
    states = [name for name in STATES if name != "wide" or derivative != "jacfwd"]
    if derivative == "jacfwd" or coefficients(method) is None or case.name != "checkpointed":
        states = [name for name in states if name not in COMPLEX]
    state = "own" if method in STRUCTURED else draw(st.sampled_from(states[::-1]))
    if state in COMPLEX:
        operations = list(fields.ANALYTIC)
    return program._replace(
        operations=tuple(draw(st.lists(st.sampled_from(operations), min_size=1, max_size=3, unique=True))),
        state=state,
        inner=tuple(draw(st.lists(st.sampled_from(inner), max_size=2, unique=True))),
        outer=tuple(outer),
        batch=draw(st.sampled_from([1, 2, 3, 5])),
    )


def inputs(program: Program) -> dict[str, Any]:
    """The state, a parameter and the end of one member."""
    count = 0

    def one(*shape, imaginary=0.0):
        nonlocal count
        count += 1
        numbers = np.sin(1.0 + count + np.arange(int(np.prod(shape)))).reshape(shape)
        dtype = jnp.promote_types(program.dtype, "complex64") if imaginary else program.dtype
        return jnp.asarray(0.7 * numbers * (1 + imaginary * 1j if imaginary else 1.0), dtype)

    if program.method in STRUCTURED:
        y0 = STRUCTURED[program.method].state(program.dtype)
    else:
        y0 = STATES[program.state](one)
    return {
        "y0": y0,
        "a": jnp.asarray(0.55, program.dtype),
        "t1": jnp.asarray(STEP * STEPS, program.dtype),
    }


def model_of(program: Program, p: dict[str, Any]) -> Callable[[Any, Any, Any], Any]:
    """The vector field: drawn, or that of the registry."""
    if program.method in STRUCTURED:
        return STRUCTURED[program.method].model(p["a"])
    return fields.field(program.operations)


def by_sciml(program: Program, p: dict[str, Any]) -> Any:
    """The saved states, or the last one."""
    options: dict[str, Any] = {"adjoint": ADJOINTS[program.adjoint].adjoint, "solver": solver_of(program.method)}
    if "adaptive" in program.kind:
        tolerance = 1e-5 if program.dtype == "float32" else 1e-7
        options |= {"rtol": tolerance, "atol": tolerance, "max_steps": 4096}
    else:
        options |= {"dt": STEP if program.exact else STEP / 16}
    if program.kind.endswith("saves"):
        options["saveat"] = diffrax.SaveAt(ts=jnp.asarray([STEP, 2 * STEP], program.dtype))
    t1 = STEP * STEPS if program.kind == "scan" else jax.lax.stop_gradient(p["t1"])
    solution = sciml.solve(model_of(program, p), p["y0"], t0=0.0, t1=t1, args={"a": p["a"]}, throw=False, **options)
    return solution.ys if program.kind.endswith("saves") else jax.tree.map(lambda y: y[-1], solution.ys)


def runge_kutta(method, f, t, h, y):
    """One step of an explicit method, as it stands in a book."""
    rows, times, final = coefficients(method)
    slopes = [f(t, y)]
    for row, c in zip(rows, times):
        stage = jax.tree.map(lambda y, *k: y + h * sum(float(w) * k for w, k in zip(row, k)), y, *slopes)
        slopes.append(f(t + float(c) * h, stage))
    return jax.tree.map(lambda y, *k: y + h * sum(float(w) * k for w, k in zip(final, k)), y, *slopes)


def by_a_loop(program: Program, p: dict[str, Any]) -> Any:
    """The same by `jax.lax.scan`: the same steps where that is exact, otherwise finer ones of another method."""
    method = program.method if program.exact else "Tsit5"
    finer = 1 if program.exact else 16
    h = STEP / finer
    t1 = jax.lax.stop_gradient(p["t1"])
    f = ft.partial(model_of(program, p), args={"a": p["a"]})

    def step(y, i):
        t = (h * i).astype(program.dtype)
        new = runge_kutta(method, f, t, h, y)
        new = jax.tree.map(lambda new, old: jnp.where((t < t1) | (program.kind == "scan"), new, old), new, y)
        return new, new

    last, rows = jax.lax.scan(step, p["y0"], jnp.arange(STEPS * finer))
    if program.kind.endswith("saves"):
        return jax.tree.map(lambda rows: rows[np.array([finer - 1, 2 * finer - 1])], rows)
    return last


def _around_one(name: str, fn):
    match name:
        case "remat":
            return jax.checkpoint(fn)
        case "jit":
            return jax.jit(fn)
        case "cond":
            return lambda p: jax.lax.cond(
                p["a"] > 0.57, fn, lambda p: jax.tree.map(jnp.zeros_like, jax.eval_shape(fn, p)), p
            )
        case "scan":

            def scanned(p):
                rows = jax.lax.scan(lambda c, k: (c, fn(p | {"a": p["a"] * k})), 0, jnp.asarray([1, 0.9], p["a"].dtype))
                return jax.tree.map(lambda rows: rows.sum(0), rows[1])

            return scanned
        case "while":

            def looped(p):
                start = jax.tree.map(jnp.zeros_like, fn(p))  # varies over the devices that its numbers vary over

                def again(c):
                    return c[0] + 1, jax.tree.map(jnp.add, c[1], fn(p | {"a": p["a"] + 0.1 * c[0]}))

                return jax.lax.while_loop(lambda c: c[0] < 2, again, (jnp.zeros((), p["a"].dtype), start))[1]

            return looped
    raise AssertionError(name)


def _scalar(fn):
    def scalar(p):
        reals = [part(y) for y in jax.tree.leaves(fn(p)) for part in (jnp.real, jnp.imag)]
        return sum(jnp.sum(jnp.cos(jnp.arange(y.size).astype(y.dtype)) * y.reshape(-1)) for y in reals)

    return scalar


def _derivative(name: str, fn):
    def of_rest(p, other):
        return fn(p | other)

    def split(p):
        return {k: v for k, v in p.items() if k != "t1"}, {"t1": p["t1"]}

    def shifted(p):
        moved, rest = split(p)
        tangent = jax.tree.map(lambda x: jnp.ones_like(x) * 0.3, moved)
        return jax.jvp(lambda q: fn(q | rest), (moved,), (tangent,))

    def pulled(p):
        moved, rest = split(p)
        out, pull = jax.vjp(lambda q: fn(q | rest), moved)
        return out, pull(jax.tree.map(jnp.ones_like, out))

    return {
        "none": fn,
        "grad": lambda p: jax.grad(lambda q, rest: _scalar(fn)(q | rest))(*split(p)),
        "jacfwd": lambda p: jax.jacfwd(of_rest)(*split(p)),
        "jvp": shifted,
        "vjp": pulled,
    }[name]


def _members(p, batch):
    """The members differ in their states, parameters and ends."""
    numbers = jnp.arange(batch)

    def spread(x):
        factor = 1 + 0.07 * numbers.astype(x.dtype)
        return x[None] * factor.reshape((batch, *(1,) * x.ndim))

    ends = p["t1"] - STEP * (numbers % 3).astype(p["t1"].dtype)
    return jax.tree.map(spread, {"y0": p["y0"], "a": p["a"]}) | {"t1": ends}


def _around_all(name: str, fn, batch: int):
    match name:
        case "vmap":
            return lambda p: jax.vmap(fn)(_members(p, batch))
        case "vmap_of_parameter":
            axes = ({"y0": None, "a": 0, "t1": None},)
            return lambda p: jax.vmap(fn, in_axes=axes)(p | {"a": _members(p, batch)["a"]})
        case "shard_map":
            mesh = jax.make_mesh((2,), ("members",), (AxisType.Auto,), devices=jax.devices()[:2])
            split = PartitionSpec("members")
            mapped = jax.shard_map(jax.vmap(fn), mesh=mesh, in_specs=split, out_specs=split)
            return lambda p: jax.jit(mapped)(_members(p, 2 * batch))
        case "jit_by_arguments":
            return lambda p: jax.jit(lambda y0, a, t1: fn({"y0": y0, "a": a, "t1": t1}))(p["y0"], p["a"], p["t1"])
        case "switch":
            return lambda p: jax.lax.switch(
                (p["a"] > 0.6).astype(jnp.int32), [fn, lambda p: fn(p | {"a": p["a"] + 0.1})], p
            )
    return _around_one(name, fn)


def wrapped(program: Program, solve: Callable[[Program, Any], Any]):
    """The program around one of the two ways to solve."""
    fn = ft.partial(solve, program)
    for name in program.inner:
        fn = _around_one(name, fn)
    fn = _derivative(program.derivative, fn)
    for name in program.outer:
        fn = _around_all(name, fn, program.batch)
    return jax.jit(fn)


def check(program: Program) -> None:
    """Raises where the program gives other numbers, shapes or types than the plain loop."""
    with jax.numpy_dtype_promotion("standard"):
        p = inputs(program)
        try:
            right = wrapped(program, by_a_loop)(p)
        except ValueError as error:
            if any(text in str(error) for text in ("varying manual axes", "invariant->variant collective")):
                return  # JAX refuses the plain loop, too
            raise
        found = wrapped(program, by_sciml)(p)
    assert jax.tree.structure(found) == jax.tree.structure(right), (jax.tree.structure(found), program)
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(right)):
        where = f"{jax.tree_util.keystr(path)} of {program}"
        assert (x.shape, x.dtype) == (y.shape, y.dtype), f"{x.shape} {x.dtype}, not {y.shape} {y.dtype}: {where}"
        x, y = np.asarray(x), np.asarray(y)
        scale = max(1.0, float(np.max(np.abs(y), initial=0.0)))
        np.testing.assert_allclose(x, y, rtol=0, atol=program.tolerance * scale, err_msg=where)
