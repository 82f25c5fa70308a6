"""diffrax's own tests, with `diffeqsolve` replaced by `sciml.solve`: `python -m tests.suites.diffrax FOLDER`.

Three conventions differ, and the adapter translates or refuses them. Rows that were not reached are infinite in diffrax
and NaN in sciml. An infinite end stands for an event that comes before. A condition that holds at the start ends a
solve of diffrax there, and does not fire in sciml.
"""

import contextlib
import inspect
import math
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

import sciml

from .outcomes import Outcome, counts
from .replay import AnyCount, Calls, Refused, replay

_ADJOINTS: dict[type, Any] = {
    diffrax.RecursiveCheckpointAdjoint: sciml.adjoints.Checkpointed(),
    diffrax.DirectAdjoint: sciml.adjoints.Checkpointed(),
    diffrax.ForwardMode: sciml.adjoints.Direct(),
    diffrax.BacksolveAdjoint: sciml.adjoints.Backsolve(),
    diffrax.ImplicitAdjoint: sciml.adjoints.Implicit(),
}

_FAR = 1e6
"""The length of a solve with error control to an infinite time, which an event ends; with fixed steps it is that of the
default limit of steps."""


class _Field(eqx.Module):
    """A vector field whose rates have the dtypes of the state, to which diffrax casts them."""

    function: Callable
    like: PyTree = eqx.field(static=True)

    def __call__(self, t: Any, y: PyTree, args: PyTree) -> PyTree:
        rates = self.function(t, y, args)
        return jax.tree.map(lambda x, dtype: jnp.asarray(x, dtype), rates, self.like)


class _Stats:
    """Statistics that any comparison of counts is true of."""

    def __getitem__(self, name: str) -> Any:
        if name not in ("num_steps", "num_accepted_steps", "num_rejected_steps", "max_steps"):
            calls.refuse(f"`stats[{name!r}]`")
        return AnyCount(1)


class Solution(eqx.Module):
    """A solution of sciml with the attributes of diffrax's."""

    solution: Any
    t0: Any
    t1: Any
    ts: Any
    ys: Any
    event_mask: Any
    result: Any
    has_dense: bool = eqx.field(static=True)

    @property
    def stats(self) -> _Stats:
        """Any count."""
        return _Stats()

    def __getattr__(self, name: str) -> Any:
        if name in ("solver_state", "controller_state", "made_jump", "interpolation"):
            calls.refuse(f"`Solution.{name}`")
        raise AttributeError(name)

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> PyTree:
        """The state, or the difference between two."""
        del left
        self._check()
        first = self.solution.evaluate(t0)
        return first if t1 is None else jax.tree.map(jnp.subtract, self.solution.evaluate(t1), first)

    def derivative(self, t: Any, left: bool = True) -> PyTree:
        """The rate."""
        del left
        self._check()
        return self.solution.derivative(t)

    def _check(self) -> None:
        if not self.has_dense:
            raise ValueError("no dense output was asked for")


calls = Calls()


def _given(terms: Any) -> Any:
    if isinstance(terms, diffrax.ODETerm):
        return terms.vector_field
    if isinstance(terms, diffrax.MultiTerm) and all(isinstance(t, diffrax.ODETerm) for t in terms.terms):
        return terms
    raise Refused(f"terms: {type(terms).__name__}" + (_kinds(terms.terms) if hasattr(terms, "terms") else ""))


def _kinds(terms: Sequence) -> str:
    return f" of {', '.join(type(t).__name__ for t in terms)}"


def diffeqsolve(
    terms: Any,
    solver: Any,
    t0: Any,
    t1: Any,
    dt0: Any,
    y0: PyTree,
    args: PyTree = None,
    *,
    saveat: Any = diffrax.SaveAt(t1=True),
    stepsize_controller: Any = diffrax.ConstantStepSize(),
    adjoint: Any = diffrax.RecursiveCheckpointAdjoint(),
    event: Any = None,
    max_steps: int | None = 4096,
    throw: bool = True,
    **others: Any,
) -> Solution:
    """`diffrax.diffeqsolve` by `sciml.solve`."""
    if given := [name for name, value in others.items() if value is not None]:
        raise Refused(f"`{given[0]}=`")
    model = _given(terms)
    if type(adjoint) not in _ADJOINTS:
        raise Refused(f"adjoint: {type(adjoint).__name__}")
    y0 = jax.tree.map(lambda x: jnp.asarray(x, float if _is_whole(x) else None), y0)
    if not isinstance(model, diffrax.AbstractTerm):
        model = _Field(model, jax.tree.map(lambda x: x.dtype, y0))
    _check_event(event, t0, y0, args)
    fixed = isinstance(stepsize_controller, diffrax.ConstantStepSize)
    if fixed and dt0 is None:
        raise ValueError("`dt0` is needed with constant steps")
    dt = {"dt" if fixed else "dt0": None if dt0 is None else jnp.asarray(dt0, float)}
    controller = {} if fixed else dict(stepsize_controller=stepsize_controller)
    t0, t1 = (x if isinstance(x, jax.Array) else float(x) for x in (t0, t1))
    if not isinstance(t1, jax.Array) and math.isinf(t1):
        t1 = t0 + (4096 * dt0 if fixed else math.copysign(_FAR, t1))
    try:
        sol = sciml.solve(
            model, y0, t0=t0, t1=t1, args=args, solver=solver, saveat=saveat, adjoint=_ADJOINTS[type(adjoint)],
            events=event, max_steps=max_steps, throw=throw, **dt, **controller,
        )  # fmt: skip
    except sciml.SolveError as error:
        raise eqx.EquinoxRuntimeError(str(error)) from error
    saves = saveat.subs is not None
    ts, ys = (jax.tree.map(_padded, x) if saves else None for x in (sol.ts, sol.ys))
    ts = jax.tree.map(lambda ts: _reached(ts, sol, t1 - t0), ts)
    start, end = jnp.asarray(t0), jnp.asarray(t1)
    return Solution(sol, start, end, ts, ys, _mask(sol, event), _result(sol), bool(saveat.dense))


def _check_event(event: Any, t0: Any, y0: PyTree, args: PyTree) -> None:
    if not isinstance(event, diffrax.Event):
        return
    for condition in jax.tree.leaves(event.cond_fn, is_leaf=callable):
        asked = inspect.signature(condition).parameters.values()
        if needed := [p.name for p in asked if p.kind == p.KEYWORD_ONLY and p.default is p.empty]:
            raise Refused(f"a condition of an event that takes `{needed[0]}`")
        given = dict.fromkeys(("terms", "solver", "t1", "dt0", "stepsize_controller"))
        with jax.ensure_compile_time_eval():
            holds = condition(jnp.asarray(t0, float), y0, args, **given)
        is_truth = (
            isinstance(holds, bool | jax.Array)
            and jnp.issubdtype(jnp.result_type(holds), bool)
            and jnp.shape(holds) == ()
        )
        if is_truth and not isinstance(holds, jax.core.Tracer) and bool(holds):
            raise Refused("a condition that holds at the start")


def _is_whole(x: Any) -> bool:
    return not jnp.issubdtype(jnp.result_type(x), jnp.inexact)


def _padded(x: jax.Array) -> jax.Array:
    """Rows that were not reached are infinite in diffrax, and NaN in sciml."""
    return jnp.where(jnp.isnan(x), jnp.inf, x) if jnp.issubdtype(x.dtype, jnp.inexact) else x


def _reached(ts: jax.Array, sol: Any, length: Any) -> jax.Array:
    """Times, infinite where an event ended the solve before: given times in sciml stay what they are."""
    rounding = 1e-12 * jnp.maximum(1, jnp.abs(sol.t_reached))
    return jnp.where((ts - sol.t_reached) * jnp.sign(length) > rounding, jnp.inf, ts)


def _mask(sol: Any, event: Any) -> PyTree:
    if event is None:
        return None
    treedef = jax.tree.structure(event.cond_fn, is_leaf=callable)
    ended = (sol.status == int(sciml.Status.event)) & (sol.events.count > 0)
    flags = [ended & (sol.events.which[0] == i) for i in range(treedef.num_leaves)]
    return jax.tree.unflatten(treedef, flags)


def _result(sol: Any) -> Any:
    results, status = diffrax.RESULTS, sciml.Status
    found = results.nonlinear_divergence
    for code, name in (
        (status.successful, results.successful),
        (status.max_steps_reached, results.max_steps_reached),
        (status.event, results.event_occurred),
    ):
        found = results.where(sol.status == int(code), name, found)
    return found


@contextlib.contextmanager
def _replaced() -> Iterator[None]:
    original = diffrax.diffeqsolve
    diffrax.diffeqsolve = calls.replacing(original, diffeqsolve)
    try:
        yield
    finally:
        diffrax.diffeqsolve = original


def run(folder: str | pathlib.Path, cases: Sequence[str] | None = None, most: int | None = None) -> list[Outcome]:
    """Runs diffrax's tests, from the folder that holds `test`; see `replay` for the rest."""
    source = pathlib.Path(folder) / "test"
    files = {f"diffrax_test/{path.name}": path for path in sorted(source.glob("*.py"))}
    files.pop("diffrax_test/__main__.py", None)
    return replay(files, _replaced(), calls, ["diffeqsolve"], cases, most)


if __name__ == "__main__":
    print(counts(run(sys.argv[1], cases=sys.argv[2:] or None)))
