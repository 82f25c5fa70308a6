"""Whether a kernel is right on the machine that is there, and faster than XLA: tried once, and kept.

A kernel that agrees with its reference in an interpreter may still be wrong on a device, or with the next JAX: threads
that do not wait for each other, a compiler that changed. So `impl="auto"` relies on measurements. The first time that
it could take a kernel, it runs a small case of the kernel's own by both, compares the numbers and the times, and keeps
the verdict in the file of `_cache_file`, for this kind of device, version of JAX and of this package.
"""

import json
import logging
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from .. import _installation
from .._jax._vma import jax_version
from . import _cache_file

_SECTION = "verdicts"
_REPEATS = 5

_LOG = logging.getLogger("sciml.kernels")
_LOCK = threading.RLock()
_KNOWN: dict[str, "Verdict"] = {}


class Case(NamedTuple):
    """A case that a kernel is tried with.

    Attributes:
        by_kernel: The case as a function of its arguments, by the kernel.
        by_xla: The same by XLA.
        args: The arguments.
        tolerance: The largest difference that is right, in units of the largest number.
        timed: Whether the times are also compared.
    """

    by_kernel: Callable[..., PyTree]
    by_xla: Callable[..., PyTree]
    args: tuple
    tolerance: float
    timed: bool


class Trial(NamedTuple):
    """The test case of a kernel.

    Attributes:
        what: The computation, in words, such as "stencils in 2 dimensions, float32".
        cases: Returns the cases of the kernel of a name.
    """

    what: str
    cases: Callable[[str], list[Case]]


class Verdict(NamedTuple):
    """The test result of a kernel.

    Attributes:
        kernel: Its name.
        what: The computation.
        taken: Whether `impl="auto"` takes it.
        reason: Why, in words.
        error: The largest difference from XLA, in units of the largest number; NaN if it did not run.
        speedup: XLA's time over the kernel's; NaN if it was not measured.
    """

    kernel: str
    what: str
    taken: bool
    reason: str
    error: float
    speedup: float

    def __str__(self) -> str:
        return f"{self.kernel} for {self.what}: {'used' if self.taken else 'not used'}, {self.reason}"


def verdict_of(kernel: str, trial: Trial) -> Verdict:
    """Returns the verdict on a kernel; without one, the kernel is tried first, which takes seconds."""
    key = _key(kernel, trial)
    with _LOCK:
        if key in _KNOWN:
            return _KNOWN[key]
        if jax.process_count() > 1:  # where programs must be the same, no process decides alone
            return Verdict(kernel, trial.what, False, _ASK, np.nan, np.nan)
        return _KNOWN.setdefault(key, _kept(key) or _tried_and_kept(key, kernel, trial))


_ASK = "several processes must agree on it: call `sciml.kernels.qualify()` in each of them first"


def qualified(kernel: str, trial: Trial, again: bool) -> Verdict:
    """Tries a kernel where nothing is known of it, or again; several processes take it where all of them do."""
    key = _key(kernel, trial)
    with _LOCK:
        known = None if again else _KNOWN.get(key) or _kept(key)
        found = known or _tried_and_kept(key, kernel, trial)
        if jax.process_count() > 1:
            from jax.experimental import multihost_utils

            taken = bool(np.all(multihost_utils.process_allgather(np.asarray(found.taken))))
            if found.taken and not taken:
                found = found._replace(taken=False, reason="another process does not use it")
        _KNOWN[key] = found
        return found


def _key(kernel: str, trial: Trial) -> str:
    jax_s, ours = ".".join(map(str, jax_version())), _installation.version()
    return f"{jax.devices()[0].device_kind}; JAX {jax_s}; sciml {ours}; {kernel}; {trial.what}"


def _kept(key: str) -> Verdict | None:
    entry = _cache_file.entries(_SECTION).get(key)
    if entry is None:
        return None
    kinds = {"kernel": str, "what": str, "taken": bool, "reason": str, "error": float, "speedup": float}
    good = isinstance(entry, dict) and all(type(entry.get(name)) is kind for name, kind in kinds.items())
    if good:
        return Verdict(**{name: entry[name] for name in kinds})
    _cache_file.warn_unused(_cache_file.cache_file(), f"{key!r} has {json.dumps(entry)}")
    return None


def _tried_and_kept(key: str, kernel: str, trial: Trial) -> Verdict:
    _LOG.info("trying the kernel %s for %s on this machine, once", kernel, trial.what)
    found = _in_a_thread(lambda: _tried(kernel, trial))
    _cache_file.store(_cache_file.cache_file(), _SECTION, key, found._asdict())
    _LOG.info("%s", found)
    return found


def _in_a_thread(run: Callable[[], Verdict]) -> Verdict:
    """Runs in a thread of its own, where no function is being traced, no mesh is set and no mode is on."""
    found: list[Verdict] = []
    thread = threading.Thread(target=lambda: found.append(run()), name="sciml.kernels.qualify")
    thread.start()
    thread.join()
    return found[0]


def _tried(kernel: str, trial: Trial) -> Verdict:
    machine = f"on {jax.devices()[0].device_kind} with JAX {'.'.join(map(str, jax_version()))}"
    error, speedup = 0.0, float("nan")

    def verdict(taken: bool, reason: str, error: float) -> Verdict:
        return Verdict(kernel, trial.what, taken, f"{reason} {machine}", float(error), float(speedup))

    try:
        for case in trial.cases(kernel):
            runs = [jax.jit(fn).lower(*case.args).compile() for fn in (case.by_kernel, case.by_xla)]
            found, expected = (jax.tree.leaves(jax.block_until_ready(run(*case.args))) for run in runs)
            differs = max(map(_difference, found, expected))
            error = max(error, differs)
            if not differs <= case.tolerance:
                return verdict(False, f"it differs from XLA by {differs:.1e}, more than {case.tolerance:.1e},", error)
            if case.timed:
                by_kernel, by_xla = _times(runs, case.args)
                speedup = by_xla / by_kernel
    except Exception as failure:  # whatever a compiler or a device says
        text = str(failure).strip().splitlines() or [""]
        return verdict(False, f"it does not run ({type(failure).__name__}: {text[0][:200]})", float("nan"))
    faster = speedup > 1
    return verdict(faster, f"it agrees with XLA to {error:.1e} and is {speedup:.2f} times as fast", error)


def _difference(a: Any, b: Any) -> float:
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    return float(np.max(np.abs(a - b), initial=0.0, where=np.isfinite(b)) / max(np.max(np.abs(b), initial=0.0), 1e-30))


def _times(runs: list, args: tuple) -> list[float]:
    """The median times of programs, taken in turns."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(_REPEATS):
        for run, mine in zip(runs, times):
            start = time.perf_counter()
            jax.block_until_ready(run(*args))
            mine.append(time.perf_counter() - start)
    return [statistics.median(mine) for mine in times]
