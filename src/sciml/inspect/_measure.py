"""CallTimes of a function: to trace, lower and compile it, and to call it; and whether a second call traces again."""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from .._jax._interpreters import ClosedJaxpr
from ._lower import is_jitted, lower, of_arrays
from ._retraces import traces_seen

_CALLS, _SECONDS = 20, 0.5


class Stages(NamedTuple):
    """A function on its way to a compiled program.

    Attributes:
        closed: As JAX traced it.
        inputs: Its inputs, in their order; None if some are only shapes.
        lowered: The input of the compiler.
        compiled: The result of the compiler.
        call: Calls the compiled program with copies of the arrays that it may overwrite, and waits; returns the
            seconds.
    """

    closed: ClosedJaxpr
    inputs: list[Any] | None
    lowered: jax.stages.Lowered
    compiled: jax.stages.Compiled
    call: Callable[[], float]


class CallTimes(NamedTuple):
    """Seconds; prints as a line.

    Attributes:
        trace: Python runs the function, and JAX records its operations.
        lower: JAX writes the program for the compiler.
        compile: The compiler's own time.
        from_cache: Whether the compiled program came from the cache on disk.
        call: The shortest of some calls of the compiled program; None if arguments are only shapes.
        uncompiled: A call of a function that is not jitted, from Python as it was given; None for one that is.
    """

    trace: float
    lower: float
    compile: float
    from_cache: bool
    call: float | None
    uncompiled: float | None

    def __str__(self) -> str:
        """The times on one line."""
        cached = " (from the cache on disk)" if self.from_cache else ""
        return f"trace {duration(self.trace)}, lower {duration(self.lower)}, compile {duration(self.compile)}{cached}"


def duration(seconds: float) -> str:
    """A time in the unit in which a human reads it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def staged(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Stages, CallTimes]:
    """Traces, lowers and compiles a function; the time of calls is not measured yet."""
    run, dynamic = of_arrays(fn, args, kwargs)
    leaves = jax.tree.leaves(dynamic)
    known = not any(isinstance(x, jax.ShapeDtypeStruct) for x in leaves)
    start = time.perf_counter()
    if is_jitted(fn):
        closed = jax.make_jaxpr(run)(dynamic)
        begin = time.perf_counter()
        lowered = lower(fn, args, kwargs)
    else:
        traced = jax.jit(run).trace(dynamic)
        closed = traced.jaxpr
        if len(closed.jaxpr.invars) != len(leaves):  # what it closes over has become inputs
            closed = jax.make_jaxpr(run)(dynamic)
        begin = time.perf_counter()
        lowered = traced.lower()
    middle = time.perf_counter()
    hits: list[str] = []

    def listen(event: str, **details: Any) -> None:
        del details
        if event == "/jax/compilation_cache/cache_hits":
            hits.append(event)

    jax.monitoring.register_event_listener(listen)
    try:
        compiled = lowered.compile()
    finally:
        jax.monitoring.unregister_event_listener(listen)
    end = time.perf_counter()
    times = CallTimes(begin - start, middle - begin, end - middle, bool(hits), None, None)
    donated = any(getattr(x, "donated", False) for x in jax.tree.leaves(lowered.args_info, is_leaf=_has_donated))

    def call() -> float:
        if is_jitted(fn):
            given = _copies((args, kwargs)) if donated else (args, kwargs)
            jax.block_until_ready(jax.tree.leaves(given))
            start = time.perf_counter()
            jax.block_until_ready(jax.tree.leaves(fn(*given[0], **given[1])))
        else:
            start = time.perf_counter()
            jax.block_until_ready(jax.tree.leaves(compiled(dynamic)))
        return time.perf_counter() - start

    return Stages(closed, leaves if known else None, lowered, compiled, call), times


def _has_donated(x: Any) -> bool:
    return hasattr(x, "donated")


def _copies(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.copy() if isinstance(x, jax.Array | np.ndarray) else x, tree)


def shortest(call: Callable[[], float]) -> float:
    """Returns the shortest time of some calls after the first."""
    call()
    found, begin = math.inf, time.perf_counter()
    for number in range(_CALLS):
        found = min(found, call())
        if number > 1 and time.perf_counter() - begin > _SECONDS:
            break
    return found


def called_twice(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[float, tuple[str, ...], str]:
    """Calls a function that is not jitted twice, as it is.

    Returns:
        The seconds of the second call, the names of the functions it traced again, and its error, if any.
    """
    given = tuple(jax.tree.map(lambda x: x, (args, kwargs)))
    try:
        jax.block_until_ready(eqx.filter(fn(*given[0], **given[1]), eqx.is_array))
        start = time.perf_counter()
        with traces_seen() as seen:
            jax.block_until_ready(eqx.filter(fn(*given[0], **given[1]), eqx.is_array))
    except Exception as error:  # a solve that fails, say: the report is to tell, not to stop
        return math.nan, (), f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return time.perf_counter() - start, tuple(dict.fromkeys(seen)), ""
