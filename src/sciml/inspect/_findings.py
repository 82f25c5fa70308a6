"""Faults that a report finds in a function, each in words and with its cure.

Every rule is a function of the report that returns its findings; `RULES` lists them. A new one is a function more.
"""

from collections.abc import Callable, Iterator

from ._compiled import human
from ._measure import duration
from ._report import Finding, Report

_LARGE = 2**20  # bytes: what is smaller is not worth a word


def _unrolled(report: Report) -> Iterator[Finding]:
    for note in report.program.unrolled:
        yield Finding(
            "unrolled loop",
            f"a block of equations repeats {note.what} times: a Python loop was unrolled, and the time to trace and to "
            f"compile grows with its length ({duration(report.times.trace + report.times.compile)} here).",
            "Write the loop as `jax.lax.fori_loop` or `jax.lax.scan`, whose body is traced once.",
            note.where,
        )


def _retraced(report: Report) -> Iterator[Finding]:
    if report.retraced:
        names = ", ".join(f"`{name}`" for name in report.retraced[:3])
        yield Finding(
            "traced at every call",
            f"a second call with the same arguments traces {names} again, and compiles it again unless it is cached.",
            "Create the function and its `jax.jit` once, outside of the call, and pass changing values as arguments; "
            "`sciml.inspect.retraces` shows the changes between calls.",
        )


def _uncompiled(report: Report) -> Iterator[Finding]:
    slow, fast = report.times.uncompiled, report.times.call
    if slow is not None and fast is not None and slow > 10 * fast and slow > 2e-3:
        yield Finding(
            "not compiled",
            f"a call from Python takes {duration(slow)}, compared with {duration(fast)} as one compiled program.",
            "Wrap the whole function in `jax.jit` or `eqx.filter_jit`.",
        )


def _raised(report: Report) -> Iterator[Finding]:
    if report.raised:
        yield Finding(
            "an error",
            f"called from Python it raised {report.raised}",
            "If it is a `SolveError`, its message names the cause; `sciml.inspect.first_nan` finds the first number "
            "that is not finite.",
        )


def _wide(report: Report) -> Iterator[Finding]:
    for note in report.program.widened[:3]:
        yield Finding(
            "float64 leak",
            "64-bit numbers enter a program with 32-bit inputs, so everything computed from them takes twice the "
            "memory and time, on a GPU much more.",
            "Convert the constant to the dtype of the state with `jnp.asarray(c, y.dtype)`, or use a Python number "
            "instead of a float64 NumPy array or scalar.",
            note.where,
        )


def _narrow(report: Report) -> Iterator[Finding]:
    for note in report.program.narrowed[:3]:
        yield Finding(
            "float32 leak",
            "64-bit numbers are converted to 32 bits, which reduces about 16 digits to 7.",
            "Remove the conversion, or convert the array on this line to the dtype of the state.",
            note.where,
        )


def _weak(report: Report) -> Iterator[Finding]:
    if report.weak:
        yield Finding(
            "weak type",
            f"{', '.join(report.weak[:3])}: a Python number, or an array made from one, has a weak type. The result of "
            "a function does not, so a second call with that result traces and compiles again.",
            "Pass `jnp.asarray(x, dtype)` with an explicit dtype.",
        )


def _transforms(report: Report) -> Iterator[Finding]:
    if size := report.compiled.gathers_for_transforms:
        yield Finding(
            "all-gather in an FFT",
            f"a Fourier transform along an axis that is split over devices gathers {human(size)} on each of them: "
            "every device holds and transforms the whole array.",
            "Transform with `sciml.parallel.Domain`, which uses all-to-all communication, or split the array along an "
            "axis that is not transformed.",
        )


def _gathered(report: Report) -> Iterator[Finding]:
    for note in report.program.gathered[:3]:
        yield Finding(
            "gathered on all devices",
            f"{note.what} is split over an explicit mesh and gathered here: each device then computes everything, and "
            "more devices do not help.",
            "Keep the members split: pass the sharded array to `jax.vmap(solve)` unchanged, or use "
            "`sciml.parallel.ensemble` or `sweep`, which run each device's members separately.",
            note.where,
        )
    if report.program.gathered or report.compiled.gathers_for_transforms:
        return
    found = [c for c in report.compiled.collectives if c.kind == "all-gather" and c.bytes >= 1024]
    if found:
        yield Finding(
            "gathered on all devices",
            f"{len(found)} all-gather operations of {human(sum(c.bytes for c in found))} in total: split arrays are "
            f"gathered on every device ({found[0].source}).",
            "For independent members, use `sciml.parallel.ensemble` or `jax.shard_map` over the axis of "
            "members; for a field, `sciml.parallel.Domain`.",
        )


def _waits(report: Report) -> Iterator[Finding]:
    found = [c for c in report.compiled.collectives if c.in_loop and c.kind == "all-reduce" and c.bytes <= 16]
    if found:
        yield Finding(
            "devices wait in a loop",
            f"an all-reduce of {human(found[0].bytes)} in every iteration ({found[0].source}): all devices continue "
            "until the slowest is done, and communicate every time.",
            "For independent members, run each device's members with `sciml.parallel.ensemble` or `jax.shard_map`; "
            "if devices share a field, this is unavoidable.",
        )


def _callbacks(report: Report) -> Iterator[Finding]:
    for note in report.program.callbacks[:3]:
        if note.loops:
            yield Finding(
                "callback in a loop",
                f"`{note.what}` calls Python in every iteration of a loop: the device waits 10 to 100 us each time, "
                "and such a program is not cached.",
                "Save the values with `saveat`, or return them, and inspect them afterwards; for progress use "
                "`simulate(progress=...)`.",
                note.where,
            )


def _lanes(report: Report) -> Iterator[Finding]:
    for note in report.program.fallbacks[:3]:
        yield Finding(
            "fallback from lanes",
            f"`{note.what}` has no rule over lanes: it runs with JAX's own `vmap`, with members moved to the front and "
            "back at every evaluation of the model.",
            cure_of_fallback(note.what),
            note.where,
        )


def _donation(report: Report) -> Iterator[Finding]:
    if report.donatable:
        what, size = report.donatable[0]
        yield Finding(
            "missing donation",
            f"{what} ({human(size)}) has the shape and dtype of a result but is not donated, so both are in memory.",
            "If you do not use it after the call, donate it: `jax.jit(f, donate_argnums=...)` or "
            "`eqx.filter_jit(donate='all')`.",
        )


def _constants(report: Report) -> Iterator[Finding]:
    if report.program.constants >= _LARGE:
        yield Finding(
            "large constant",
            f"arrays of {human(report.program.constants)} that the function closes over are part of the program, which "
            "takes longer to compile and is compiled again for other values.",
            "Pass them as arguments, or as fields of the model.",
        )


def _memory_bound(report: Report) -> Iterator[Finding]:
    p, rates = report.predicted, report.rates
    if p is None or p.total < 5e-5 or p.move + p.memory < 0.5 * p.total or p.move + p.memory < 2 * p.compute:
        return
    intensity = report.intensity
    yield Finding(
        "memory bound",
        f"{duration(p.move + p.memory)} of {duration(p.total)} are spent on moving data: {intensity:.2g} operations "
        f"per byte, while this machine does {rates.ridge:.2g} operations in the time it moves a byte.",
        "Reuse data in the cache: smaller arrays or blocks of members, float32, fewer saved states, "
        "operations that fuse into one pass (no `concatenate`, `gather` or copy between them); on a GPU "
        "`sciml.kernels.stencil` computes several steps in one pass over memory.",
    )


def _start_bound(report: Report) -> Iterator[Finding]:
    p = report.predicted
    if p is None or p.total < 5e-5 or p.start < 0.6 * p.total:
        return
    yield Finding(
        "launch overhead",
        f"{duration(p.start)} of {duration(p.total)} are spent on starting operations that do little work each.",
        "Increase the work per operation: `jax.vmap` over more members, larger blocks of a sweep, several steps for "
        "each saved step.",
    )


def _alone(report: Report) -> Iterator[Finding]:
    short = report.times.call
    if short is not None and report.times.compile > 1000 * max(short, 1e-3) and not report.program.unrolled:
        yield Finding(
            "long to compile",
            f"{duration(report.times.compile)} to compile, {duration(short)} to run.",
            'Cache compiled programs on disk: `jax.config.update("jax_compilation_cache_dir", folder)`.',
        )


RULES: tuple[Callable[[Report], Iterator[Finding]], ...] = (
    _raised,
    _retraced,
    _uncompiled,
    _unrolled,
    _wide,
    _narrow,
    _weak,
    _callbacks,
    _transforms,
    _gathered,
    _waits,
    _lanes,
    _constants,
    _donation,
    _memory_bound,
    _start_bound,
    _alone,
)
"""The checks for faults."""


def findings_of(report: Report) -> tuple[Finding, ...]:
    """Returns the findings of the rules."""
    return tuple(finding for rule in RULES for finding in rule(report))


_CURES = {
    "sort": "If it sorts two or three numbers, write `jnp.minimum` and `jnp.maximum`.",
    "argsort": "If it orders two or three numbers, compare them with `jnp.where`.",
    "gather": "Index with Python numbers where you can; for a table, interpolate with sums of `jnp.where` or a "
    "polynomial.",
    "scatter": "Build the result with `jnp.stack([...])` or `jnp.concatenate` instead of `y.at[...]` with traced "
    "indices.",
    "scatter-add": "Build the sum with `jnp.stack([...])` instead of `y.at[...].add` with traced indices.",
    "while": "Use a fixed number of iterations with `jax.lax.fori_loop`; Newton's method seldom needs more than ten.",
    "cumsum": "Write a cumulative sum of a few numbers as sums.",
    "fft": "Members that transform fields are fast enough as they are, or one after another.",
    "lu": "Solve systems of two or three unknowns by their formula.",
    "cholesky": "Solve systems of two or three unknowns by their formula.",
    "triangular_solve": "Solve systems of two or three unknowns by their formula.",
    "conv_general_dilated": "Write a short convolution as shifted sums.",
}


def cure_of_fallback(primitive: str) -> str:
    """Returns what to do about a primitive that does not run over lanes."""
    cure = _CURES.get(primitive, "Write it with arithmetic, `jnp.where`, indexing by Python numbers and `jnp.stack`.")
    return f"{cure} `sciml.inspect.fallbacks` is empty when nothing is left."
