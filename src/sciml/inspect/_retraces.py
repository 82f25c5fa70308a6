"""Counts how often a function is traced, and reports the changes in between."""

import dataclasses
import functools
import inspect
import re
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
        name = getattr(leaf, "__qualname__", None)
        return repr(leaf) if name is None or not callable(leaf) else f"function `{name}`, number {id(leaf)}"
    kind = jax.typeof(leaf)
    shape = ",".join(str(size) for size in kind.shape)
    weak = ", weakly typed" if getattr(kind, "weak_type", False) else ""
    return f"{kind.dtype}[{shape}]{weak}"


def _words_for(fn: Callable[..., Any], count: int) -> Iterator[str]:
    """Returns the names of a function's first parameters, as its signature has them."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        parameters = ()
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in plain][:count]
    return iter([*names, *(f"argument {i}" for i in range(len(names), count))])


def _static_fields(value: Any) -> Iterator[tuple[str, str]]:
    """Returns the static fields of modules in a tree, by their paths."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name, None)
            if field.metadata.get("static", False):
                yield f".{field.name}", _describe(inner)
            else:
                yield from ((f".{field.name}{path}", text) for path, text in _static_fields(inner))
    elif isinstance(value, dict | list | tuple):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from ((f"[{key!r}]{path}", text) for path, text in _static_fields(inner))


def _change(was: str, now: str) -> str:
    """Returns the change; a function that is created again has another number each time, which is not informative."""
    old, new = (text.partition(", number ")[0] if text.startswith("function `") else text for text in (was, now))
    return f"{old} -> a new object with the same name" if old == new else f"{old} -> {new}"


def _cure(change: str) -> str:
    """Returns what to do about a change."""
    if "a new object" in change:
        return "create the function once, outside of the call, and pass the values it closes over as arguments"
    if "weakly typed" in change:
        return "pass `jnp.asarray(x, dtype)` with an explicit dtype each time"
    if change.startswith("not an argument"):
        return "set such settings once, at the start"
    if change.startswith("structure"):
        return "always pass the same tree structure, with arrays instead of None"
    before, _, after = change.partition(": ")[2].partition(" -> ")
    if re.match(r"-?[\d.]+(e-?\d+)?$", before) and re.match(r"-?[\d.]+(e-?\d+)?$", after):
        return "a Python number is part of the program: pass a changing number as an array, `jnp.asarray(x)`"
    if "[" in before and "[" in after and before.partition("[")[0] == after.partition("[")[0]:
        return "use arrays of equal shape, for example padded to a few sizes, or `jax.vmap` over the items"
    if "[" in before and "[" in after:
        return "use one dtype, with `astype` before the call"
    return "pass changing values as arrays; other values are part of the program"


class Retraces:
    """A function that counts its traces; made by `retraces`.

    Attributes:
        calls: How often it was called.
        traces: How often a call traced it.
        changes: For each trace after the first, the differences from the trace before: one line per leaf or static
            field, by the names of the function's parameters.
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
        """A report: the counts, then each retrace with its causes, and what to do about them."""
        lines = [f"{name_of(self._fn)}: {self.traces} traces in {self.calls} calls"]
        for number, change in enumerate(self.changes, start=2):
            lines += [f"  trace {number}:", *(f"    {line}" for line in change)]
        cures = dict.fromkeys(_cure(line) for change in self.changes for line in change)
        return "\n".join([*lines, *(f"  cure: {cure}" for cure in cures)])

    def _signature(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, str], str]:
        tree: dict[str, Any] = dict(zip(_words_for(self._fn, len(args)), args)) | kwargs
        leaves = {name + path: text for name, value in tree.items() for path, text in _static_fields(value)}
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
                found.append(f"{path}: {_change(was, now)}")
        if not found and old_tree != new_tree:
            found.append(f"structure or static field: {old_tree} -> {new_tree}")
        if not found:
            found.append(
                "not an argument: a setting of JAX, a cleared cache, or a static value that equals only itself"
            )
        return found


def retraces(fn: Callable[..., Any]) -> Retraces:
    """Wrap a function so that it counts how often JAX traces it, and reports the changes.

    Tracing and compiling take far longer than a call. A Python number that changes from call to call, a shape that
    grows, or a dtype that alternates makes every call pay for it; pass numbers that change as arrays.

    Args:
        fn: A function, or one already jitted by `jax.jit` or `eqx.filter_jit`. A plain one is jitted by
            `eqx.filter_jit`: its array arguments are traced and everything else is static.

    Returns:
        A `Retraces`: call it instead of `fn`, then read `.traces`, `.changes`, or print it.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inspect

        step = inspect.retraces(lambda y, dt: y + dt * y)
        for dt in (0.1, 0.2):
            step(jnp.ones(3), dt)  # a Python number is static: each new value is a new trace
        assert step.traces == 2
        assert step.changes == [["dt: 0.1 -> 0.2"]]
        print(step)
        ```
    """
    return Retraces(fn)
