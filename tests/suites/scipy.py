"""SciPy's tests, with `solve_ivp` and `solve_bvp` replaced: `python -m tests.suites.scipy FOLDER`.

Functions are NumPy's, see `numpy_functions`; Jacobians that tests give are left out, since JAX derives them. SciPy's
`tol` bounds the sum of squared residuals of all components, sciml's `rtol` their mean.
"""

import contextlib
import functools
import math
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate
import scipy.integrate._bvp

import sciml

from .numpy_functions import as_jax
from .outcomes import Outcome, counts
from .replay import AnyCount, Calls, Refused, replay

_METHODS: dict[str, Any] = {
    "RK23": diffrax.Bosh3(),
    "RK45": diffrax.Dopri5(),
    "DOP853": diffrax.Dopri8(),
    "Radau": sciml.solvers.Radau5(),
    "BDF": sciml.solvers.BDF(),
    "LSODA": sciml.solvers.Switching(),
}
_EVENTS = 64
"""The number of events that a solve keeps."""

calls = Calls()


class Result:
    """The attributes of SciPy's results; all counts compare as true with everything."""

    nfev = njev = nlu = niter = AnyCount(1)

    def __init__(self, **attributes: Any):
        self.__dict__.update(attributes)


class Nodes(np.ndarray):
    """The nodes of a boundary value problem, whose number decides nothing."""

    @property
    def size(self) -> AnyCount:
        """Any count."""
        return AnyCount(1)


@functools.lru_cache(maxsize=256)
def _function(
    function: Callable, size: int, dtype: Any, args: tuple, is_event: bool, vectorized: bool = False
) -> Callable:
    """A vector field, or the condition of an event; the same object for the same function, so that it compiles once.

    A vectorised field takes columns.
    """
    like = (jax.ShapeDtypeStruct((), float), jax.ShapeDtypeStruct((size,), dtype))
    shape, kind = ((), float) if is_event else ((size,), dtype)
    found = as_jax(
        function, shape, kind, *like, call=lambda f: lambda t, y: f(t, y[:, None] if vectorized else y, *args)
    )
    return lambda t, y, _: found(t, y)


def _stay(t: Any, y: Any, args: Any) -> Any:
    """The update of an event at which nothing changes."""
    del t, args
    return y


def _event(event: Callable, size: int, dtype: Any, args: tuple) -> sciml.Event:
    terminal, direction = getattr(event, "terminal", False), getattr(event, "direction", 0)
    if terminal not in (None, 0, 1):
        raise Refused("`terminal` as a number of events")
    sign = int(np.sign(direction))
    return sciml.Event(_function(event, size, dtype, args, True), None if terminal else _stay, sign)


def solve_ivp(
    fun: Callable,
    t_span: Any,
    y0: Any,
    method: Any = "RK45",
    t_eval: Any = None,
    dense_output: bool = False,
    events: Any = None,
    vectorized: bool = False,
    args: Any = None,
    **options: Any,
) -> Result:
    """`scipy.integrate.solve_ivp` by `sciml.solve`."""
    args = () if args is None else tuple(args)
    t0, t1 = map(float, t_span)
    y0 = np.asarray(y0, np.result_type(np.asarray(y0), float))
    given = None if events is None else list(events) if isinstance(events, list | tuple) else [events]
    tolerances = dict(rtol=options.pop("rtol", 1e-3), atol=options.pop("atol", 1e-6))
    tolerances = {k: np.asarray(v) if np.ndim(v) else v for k, v in tolerances.items()}
    longest, first = options.pop("max_step", np.inf), options.pop("first_step", None)
    for name in ("jac", "jac_sparsity"):
        options.pop(name, None)
    if options:
        raise Refused(f"`{next(iter(options))}=`")
    if np.isfinite(longest):
        control = dict(stepsize_controller=diffrax.PIDController(**tolerances, dtmax=longest))
    else:
        control = tolerances
    if math.isinf(t1):
        t1 = t0 + math.copysign(1e6, t1)
    where = dict(ts=jnp.asarray(t_eval, float)) if t_eval is not None else dict(t0=True, steps=True)
    sol = sciml.solve(
        _function(fun, len(y0), y0.dtype, args, False, vectorized), jnp.asarray(y0), t0=t0, t1=t1, throw=False,
        solver=_METHODS[method if isinstance(method, str) else method.__name__],
        saveat=diffrax.SaveAt(**where, dense=dense_output),
        dt0=None if first is None else math.copysign(first, t1 - t0),
        events=None if given is None else [_event(e, len(y0), y0.dtype, args) for e in given],
        max_events=None if given is None else _EVENTS, **control,
    )  # fmt: skip
    return _ivp_result(sol, y0, given, dense_output, t1 - t0)


def _ivp_result(sol: Any, y0: np.ndarray, given: list | None, dense: bool, length: float) -> Result:
    ts, ys, reached = np.asarray(sol.ts), np.asarray(sol.ys), float(sol.t_reached)
    there = np.isfinite(ts) & ((ts - reached) * np.sign(length) <= 1e-12 * max(1.0, abs(reached)))  # up to rounding
    status = {int(sciml.Status.successful): 0, int(sciml.Status.event): 1}.get(int(sol.status), -1)
    times: Any = None
    states: Any = None
    if given is not None:
        count = int(sol.events.count)
        if count > _EVENTS:
            raise Refused(f"more than {_EVENTS} events")
        which, at = np.asarray(sol.events.which)[:count], np.asarray(sol.events.times)[:count]
        before = np.asarray(sol.events.states_before)[:count]
        times = [at[which == i] for i in range(len(given))]
        states = [before[which == i] if np.any(which == i) else np.array([]) for i in range(len(given))]

    def evaluate(t: Any) -> np.ndarray:
        if np.any((np.asarray(t) - reached) * np.sign(length) > 0):
            calls.refuse("dense output beyond the end of the solve")
        return np.moveaxis(np.asarray(sol.evaluate(jnp.asarray(t, float))), -1, 0)

    messages = {0: "The solver successfully reached the end of the integration interval."}
    return Result(
        t=ts[there] if there.any() else [], y=ys[there].T if there.any() else [], sol=evaluate if dense else None,
        t_events=times, y_events=states, status=status, success=status >= 0,
        message=messages.get(status, "A termination event occurred." if status == 1 else "failed"),
    )  # fmt: skip


def solve_bvp(
    fun: Callable,
    bc: Callable,
    x: Any,
    y: Any,
    p: Any = None,
    S: Any = None,
    fun_jac: Any = None,
    bc_jac: Any = None,
    tol: float = 1e-3,
    max_nodes: int = 1000,
    verbose: int = 0,
    bc_tol: Any = None,
) -> Result:
    """`scipy.integrate.solve_bvp` by `sciml.solve_bvp`; unknown parameters are components of the state."""
    del fun_jac, bc_jac
    for name, is_given in dict(S=S is not None, verbose=verbose > 0, bc_tol=bc_tol is not None).items():
        if is_given:
            raise Refused(f"`{name}=` of `solve_bvp`")
    y, p = np.asarray(y), np.zeros(0) if p is None else np.asarray(p, float)
    n, m, dtype = len(y), len(p), np.result_type(y, float)
    rest = () if m == 0 else (p,)
    if np.shape(fun(np.asarray(x), y, *rest)) != y.shape:
        raise Refused("a vectorised function of another shape")
    point = (jax.ShapeDtypeStruct((), float), jax.ShapeDtypeStruct((n + m,), dtype))
    found = as_jax(
        fun, (n,), dtype, *point, call=lambda f: lambda t, y: f(t[None], y[:n, None], *(y[n:] for _ in rest))[:, 0]
    )
    conditions = as_jax(
        bc, np.shape(bc(y[:, 0], y[:, -1], *rest)), dtype, point[1], point[1],
        call=lambda f: lambda a, b: f(a[:n], b[:n], *(a[n:] for _ in rest)),
    )  # fmt: skip
    guess = np.concatenate([y.T, np.broadcast_to(p, (len(y.T), m))], 1).astype(dtype)

    def field(t: Any, state: Any, args: Any) -> Any:
        del args
        return jnp.concatenate([found(t, state), jnp.zeros(m, dtype)])

    sol = sciml.solve_bvp(
        field, lambda a, b, args: conditions(a, b), np.asarray(x, float), jnp.asarray(guess),
        rtol=tol / (n + m) ** 0.5,
        max_nodes=max_nodes, throw=False,
    )  # fmt: skip
    return _bvp_result(sol, n, field)


def _bvp_result(sol: Any, n: int, field: Callable) -> Result:
    def evaluate(t: Any, order: int = 0) -> np.ndarray:
        found = (sol.evaluate, sol.derivative)[order](jnp.asarray(t, float))
        return np.moveaxis(np.asarray(found), -1, 0)[:n]

    x = np.asarray(sol.ts)
    inside = [x[:-1] + (0.5 + s * (3 / 28) ** 0.5) * np.diff(x) for s in (-1, 1)]  # nodes of Lobatto's rule
    residuals = []
    for t in inside:
        wanted = np.asarray(jax.vmap(field, (0, 0, None))(jnp.asarray(t), sol.evaluate(jnp.asarray(t)), None)).T[:n]
        residuals.append(np.sqrt(np.sum(np.abs((evaluate(t, 1) - wanted) / (1 + np.abs(wanted))) ** 2, axis=0)))
    status = int(sol.status)
    code = 0 if status == 0 else 1 if status == int(sciml.Status.mesh_too_coarse) else 2
    return Result(
        x=x.view(Nodes), y=np.asarray(sol.ys).T[:n], yp=evaluate(x, 1), sol=evaluate, p=np.asarray(sol.ys)[0, n:],
        status=code, success=code == 0, rms_residuals=np.maximum(*residuals) * (49 / 90) ** 0.5, message="",
    )  # fmt: skip


@contextlib.contextmanager
def _replaced() -> Iterator[None]:
    modules = [(scipy.integrate, "solve_ivp"), (scipy.integrate, "solve_bvp"), (scipy.integrate._bvp, "solve_bvp")]
    originals = [getattr(module, name) for module, name in modules]
    for (module, name), original in zip(modules, originals):
        setattr(module, name, calls.replacing(original, dict(solve_ivp=solve_ivp, solve_bvp=solve_bvp)[name]))
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
        for (module, name), original in zip(modules, originals):
            setattr(module, name, original)


def run(folder: str | pathlib.Path, cases: Sequence[str] | None = None, most: int | None = None) -> list[Outcome]:
    """Runs SciPy's tests, from the folder that holds `scipy`; see `replay` for the rest."""
    source = pathlib.Path(folder) / "scipy" / "integrate"
    files = {"test_ivp.py": source / "_ivp/tests/test_ivp.py", "test_bvp.py": source / "tests/test_bvp.py"}
    return replay(files, _replaced(), calls, ["solve_ivp", "solve_bvp"], cases, most)


if __name__ == "__main__":
    print(counts(run(sys.argv[1], cases=sys.argv[2:] or None)))
