"""The wait for a compiler: one line says which program is compiled, if that takes more than a moment.

A timer starts when JAX traces one of the library's compiled functions, and ends with the compilation that follows. The
library speaks in interactive sessions only. A call with a progress bar is silent: its bar says that it compiles.
"""

import builtins
import contextlib
import contextvars
import functools
import linecache
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax

from ._warn import frame_of_caller

_SECONDS = 2.0
"""How long a wait is before it is announced."""

_AFTER = 0.5
"""How long after a compilation the lowering of another program counts as its continuation, such as the way back."""

_LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
_COMPILED = "/jax/core/compile/backend_compile_duration"

_R = TypeVar("_R")


class _Wait(threading.local):
    """The wait of a thread.

    Attributes:
        depth: The number of traced functions that it is in.
        timer: The timer; None if nothing is being compiled.
        line: The user's line whose call is compiled.
        ended: When the last compilation ended.
        said: The line that was announced last: the other programs of its call are not announced again.
    """

    depth = 0
    timer: threading.Timer | None = None
    line = ""
    ended = 0.0
    said = ""


_WAIT = _Wait()
_SILENT = contextvars.ContextVar("sciml_silent", default=False)


@contextlib.contextmanager
def not_announced() -> Iterator[None]:
    """Announces nothing within the block, which has other means."""
    token = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(token)


def announced(fn: Callable[..., _R]) -> Callable[..., _R]:
    """Returns a function for `jax.jit` whose trace and compilation are announced if they take long."""

    @functools.wraps(fn)
    def traced(*args: Any, **kwargs: Any) -> _R:
        if _WAIT.depth == 0 and not _SILENT.get() and _interactive():
            _start(_line_of_caller())
        _WAIT.depth += 1
        try:
            return fn(*args, **kwargs)
        except BaseException:
            _stop()
            raise
        finally:
            _WAIT.depth -= 1

    return traced


def _interactive() -> bool:
    """Whether a person waits: at a prompt of Python, of IPython, or in a notebook."""
    return hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__") or bool(sys.flags.interactive)


def _line_of_caller() -> str:
    """Returns the line of code outside of libraries that the call comes from."""
    frame = frame_of_caller()
    filename, number = frame.f_code.co_filename, frame.f_lineno
    code = linecache.getline(filename, number).strip()
    return f"line {number} of {os.path.basename(filename)}" + (f", `{code}`" if code else "")


def _start(line: str) -> None:
    _listen()
    _stop()
    _WAIT.line = line
    if _WAIT.said != line:
        _WAIT.timer = threading.Timer(_SECONDS, _say, (_WAIT.__dict__, line))
        _WAIT.timer.daemon = True
        _WAIT.timer.start()


def _stop() -> None:
    if _WAIT.timer is not None:
        _WAIT.timer.cancel()
        _WAIT.timer = None


def _say(wait: dict[str, Any], line: str) -> None:
    wait["said"] = line
    print(f"sciml compiles {line}. Later calls with arrays of these shapes start at once.", file=sys.stderr, flush=True)


@functools.cache
def _listen() -> None:
    jax.monitoring.register_event_duration_secs_listener(_heard)


def _heard(event: str, duration_secs: float, **details: Any) -> None:
    """Ends a wait after its compilation, and continues it where another program of the same call is lowered."""
    del duration_secs, details
    if _WAIT.depth:  # a constant is computed while the function is traced
        return
    if event == _COMPILED and _WAIT.timer is not None:
        _stop()
        _WAIT.ended = time.monotonic()
    elif event == _LOWERED and _WAIT.timer is None and time.monotonic() - _WAIT.ended < _AFTER:
        _start(_WAIT.line)
