"""Count how often a function is traced, and say what changed in between."""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax

from ._lower import is_jitted, name_of

_EVENT = "/jax/core/compile/jaxpr_trace_duration"


@contextmanager
def traces_seen() -> Iterator[list[str]]:
    """The names of the functions JAX traces in this thread while the block runs."""
    seen: list[str] = []
    thread = threading.get_ident()

    def listen(event: str, duration_secs: float, **details: Any) -> None:
        del duration_secs
        if event == _EVENT and threading.get_ident() == thread:
            seen.append(str(details.get("fun_name", "")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def _describe(leaf: Any) -> str:
    if not eqx.is_array(leaf):
        return repr(leaf)
    kind = jax.typeof(leaf)
    shape = ",".join(str(size) for size in kind.shape)
    weak = ", weakly typed" if getattr(kind, "weak_type", False) else ""
    return f"{kind.dtype}[{shape}]{weak}"


class Retraces:
    """A function that counts its traces; made by `retraces`.

    Attributes:
        calls: How often it was called.
        traces: How often a call traced it.
        changes: For each trace after the first, what differed from the trace before: one line per leaf.
    """

    calls: int
    traces: int
    changes: list[list[str]]

    def __init__(self, fn: Callable[..., Any]):
        """Wrap `fn`, and jit it with `eqx.filter_jit` unless it is jitted already."""
        if not callable(fn):
            raise TypeError(f"fn must be callable, got {type(fn).__name__}: {fn!r}.")
        self.calls, self.traces, self.changes = 0, 0, []
        self._fn = fn if is_jitted(fn) else eqx.filter_jit(fn)
        self._last: tuple[dict[str, str], str] | None = None
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, and note whether JAX traced it."""
        signature = self._signature(args, kwargs)  # before the call: it may donate its arguments
        with traces_seen() as seen:
            out = self._fn(*args, **kwargs)
        self.calls += 1
        if seen:  # a call that runs compiled code traces nothing
            self.traces += 1
            if self._last is not None:
                self.changes.append(self._compare(self._last, signature))
            self._last = signature
        return out

    def __str__(self) -> str:
        """A report: the counts, then each retrace with its causes."""
        lines = [f"{name_of(self._fn)}: {self.traces} traces in {self.calls} calls"]
        for number, change in enumerate(self.changes, start=2):
            lines += [f"  trace {number}:", *(f"    {line}" for line in change)]
        return "\n".join(lines)

    @staticmethod
    def _signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, str], str]:
        tree: dict[str, Any] = {f"argument {i}": value for i, value in enumerate(args)} | kwargs
        leaves = {}
        for (key, *rest), leaf in jax.tree_util.tree_leaves_with_path(tree):
            leaves[key.key + jax.tree_util.keystr(tuple(rest))] = _describe(leaf)
        return leaves, str(jax.tree.structure(tree))

    @staticmethod
    def _compare(old: tuple[dict[str, str], str], new: tuple[dict[str, str], str]) -> list[str]:
        (old_leaves, old_tree), (new_leaves, new_tree) = old, new
        found = []
        for path in old_leaves | new_leaves:
            was, now = old_leaves.get(path, "absent"), new_leaves.get(path, "absent")
            if was != now:
                found.append(f"{path}: {was} -> {now}")
        if not found and old_tree != new_tree:
            found.append(f"structure or static field: {old_tree} -> {new_tree}")
        if not found:
            found.append("no argument: a setting of JAX, a cleared cache, or a static value that equals only itself")
        return found


def retraces(fn: Callable[..., Any]) -> Retraces:
    """Wrap a function so that it counts how often JAX traces it, and says what changed.

    Tracing and compiling take far longer than a call. A Python number that changes from call to call, a shape that
    grows, or a dtype that alternates makes every call pay for it; pass numbers that change as arrays.

    Args:
        fn: A function, or one already jitted by `jax.jit` or `eqx.filter_jit`. A plain one is jitted by
            `eqx.filter_jit`: its array arguments are traced and everything else is static.

    Returns:
        A `Retraces`: call it in place of `fn`, then read `.traces`, `.changes`, or print it.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inspect

        step = inspect.retraces(lambda y, dt: y + dt * y)
        for dt in (0.1, 0.2):
            step(jnp.ones(3), dt)  # a Python number is static: each new value is a new trace
        assert step.traces == 2
        assert step.changes == [["argument 1: 0.1 -> 0.2"]]
        print(step)
        ```
    """
    return Retraces(fn)
