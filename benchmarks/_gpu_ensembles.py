"""Ensembles in one kernel beside XLA's loop over lanes: the second half of `python -m benchmarks.gpu`."""

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import kernels

from ._harness import duration, median_seconds
from ._problems import lorenz

ADAPTIVE = (10_000, 1_000_000)
NOISY = (5_000, 1_000_000)
FIXED = (8_388_608,)  # members of the runs with fixed steps in doi:10.1016/j.cma.2023.116591
STEPS = 1_000
CHECKED = 1e-5  # of the largest value
ALIKE = 0.95  # of the members in float32


def _robertson(t: Any, y: jax.Array, k: jax.Array) -> jax.Array:
    slow, fast, rest = k[0] * y[0], k[1] * y[1] * y[2], k[2] * y[1] ** 2
    return jnp.stack([-slow + fast, slow - fast - rest, rest])


class Ensemble(NamedTuple):
    """A problem that members differ in by one number.

    Attributes:
        title: What it is called in tables.
        model: The vector field of one member.
        args: Returns a member's `args` from its number.
        between: The first and the last member's number.
        dtype: Of everything.
        how: What `solve` is told.
        noisy: Whether each member has noise of its own, that of its number.
    """

    title: str
    model: Callable[..., jax.Array]
    args: Callable[[jax.Array], jax.Array]
    between: tuple[float, float]
    dtype: Any
    how: dict[str, Any]
    noisy: bool = False


def _with_noise(of: str) -> Any:
    size = {"additive": lambda t, y, rho: jnp.full_like(y, 0.5), "diagonal": lambda t, y, rho: 0.1 * y}[of]
    return sciml.Stochastic(lorenz, size, noise=of)


_LORENZ = (lorenz, lambda rho: rho, (0.0, 21.0))
_WITHIN = dict(rtol=1e-6, atol=1e-6)
ADAPTIVE_LORENZ = Ensemble("Lorenz, Tsit5, rtol = atol = 1e-6", *_LORENZ, jnp.float32, _WITHIN)
FIXED_LORENZ = Ensemble(f"Lorenz, Tsit5, {STEPS} fixed steps", *_LORENZ, jnp.float32, dict(dt=1 / STEPS))
EULER_MARUYAMA = Ensemble(
    f"Lorenz with noise, Euler-Maruyama, {STEPS} steps",
    _with_noise("diagonal"),
    *_LORENZ[1:],
    jnp.float32,
    dict(dt=1 / STEPS, solver=diffrax.Euler()),
    noisy=True,
)
CHECKS = (
    ADAPTIVE_LORENZ,
    ADAPTIVE_LORENZ._replace(title="the same in float64", dtype=jnp.float64),
    ADAPTIVE_LORENZ._replace(title="the same, 9 saved times", how=_WITHIN | dict(saveat=np.linspace(0.0, 1.0, 9))),
    FIXED_LORENZ,
    EULER_MARUYAMA,
    EULER_MARUYAMA._replace(title="the same noise in float64", dtype=jnp.float64),
    EULER_MARUYAMA._replace(
        title=f"additive noise, SRA1, {STEPS} steps",
        model=_with_noise("additive"),
        how=dict(dt=1 / STEPS, solver=diffrax.SRA1()),
    ),
    Ensemble(
        "Robertson, Rodas5P, float64",
        _robertson,
        lambda k: k * jnp.array([0.04, 1e4, 3e7], jnp.float64),
        (1.0, 1.5),
        jnp.float64,
        dict(solver=sciml.solvers.Rodas5P(), rtol=1e-6, atol=1e-10),
    ),
)


def solved(ensemble: Ensemble, impl: str | None) -> Callable[[jax.Array], sciml.Solution]:
    """The function of all members' numbers that solves them side by side."""

    def member(number: jax.Array) -> sciml.Solution:
        y0 = jnp.asarray([1.0, 0.0, 0.0], ensemble.dtype)
        how = ensemble.how | dict(args=ensemble.args(number), throw=False)
        if ensemble.noisy:
            bits = jax.lax.bitcast_convert_type(number.astype(jnp.float32), jnp.uint32)
            how["key"] = jax.random.fold_in(jax.random.key(0), bits)
        with contextlib.nullcontext() if impl is None else kernels.use(impl):
            return sciml.solve(ensemble.model, y0, t0=0.0, t1=1.0, **how)

    return jax.vmap(member)


def by_diffrax(ensemble: Ensemble) -> Callable[[jax.Array], diffrax.Solution]:
    """The same with error control by `jax.vmap` of diffrax."""
    controller = diffrax.PIDController(ensemble.how["rtol"], ensemble.how["atol"])

    def member(number: jax.Array) -> diffrax.Solution:
        term, y0 = diffrax.ODETerm(ensemble.model), jnp.asarray([1.0, 0.0, 0.0], ensemble.dtype)
        how = dict(args=ensemble.args(number), stepsize_controller=controller)
        return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, None, y0, **how)

    return jax.vmap(member)


def _numbers(ensemble: Ensemble, members: int) -> jax.Array:
    return jnp.linspace(*ensemble.between, members, dtype=ensemble.dtype)


def _precision(ensemble: Ensemble) -> Any:
    return jax.enable_x64(True) if ensemble.dtype == jnp.float64 else contextlib.nullcontext()


def _compare(ensemble: Ensemble, members: int) -> tuple[bool, str]:
    """Whether a kernel is right, and its row."""
    with _precision(ensemble):
        numbers = _numbers(ensemble, members)
        found, expected = (jax.jit(solved(ensemble, impl))(numbers) for impl in (None, "xla"))
        alike = np.asarray(found.stats.accepted) == np.asarray(expected.stats.accepted)
        ends = bool(np.all(np.asarray(found.t_reached) == 1) and np.all(np.asarray(found.status) == 0))
        ys, reference = (np.asarray(sol.ys, np.float64) for sol in (found, expected))
    error = float(np.max(np.abs(ys - reference)) / np.max(np.abs(reference)))
    enough = alike.all() if ensemble.dtype == jnp.float64 else alike.mean() >= ALIKE
    right = bool(enough and ends and error <= CHECKED)
    return right, f"{members - alike.sum()} of {members} | {error:.1e}{'' if right else ', wrong'}"


def check(members: int, report: Callable[[str], None]) -> set[str]:
    """Prints how ensembles compare with XLA, and returns the titles of those that are right."""
    report(
        "The members whose number of accepted steps is not XLA's, and the largest deviation over the largest value. "
        "Compilers round in different ways, and an error estimate near the limit is then on the other side of it: in "
        f"float32 {1 - ALIKE:.0%} of the members may differ, in float64 none.\n"
    )
    report("| ensemble | other steps | error |\n|---|---|---|")
    right = set()
    for ensemble in CHECKS:
        try:
            well, row = _compare(ensemble, members)
            right |= {ensemble.title} if well else set()
        except Exception as failure:
            row = f" | {type(failure).__name__}: {str(failure).splitlines()[0][:80]}"
        report(f"| {ensemble.title} | {row} |")
    return right


def _measure(ensemble: Ensemble, by: str, members: int, repeats: int) -> tuple[float, float, float]:
    """Seconds to compile, seconds to run, and steps that members attempted in all."""
    with _precision(ensemble):
        numbers = _numbers(ensemble, members)
        solve = by_diffrax(ensemble) if by == "diffrax" else solved(ensemble, "xla" if by == "XLA" else None)
        start = time.perf_counter()
        run = jax.jit(solve).lower(numbers).compile()
        compiled = time.perf_counter() - start
        stats = run(numbers).stats
        counts = (stats["num_steps"],) if by == "diffrax" else (stats.accepted, stats.rejected)
        steps = sum(float(np.sum(np.asarray(x), dtype=np.float64)) for x in counts)
        return compiled, median_seconds(run, numbers, repeats), steps


def rates(
    right: set[str],
    adaptive: tuple[int, ...],
    fixed: tuple[int, ...],
    noisy: tuple[int, ...],
    repeats: int,
    late: Callable[[], bool],
    report: Callable[[str], None],
) -> None:
    """Prints how fast ensembles run, by XLA and by the kernel.

    Args:
        right: The titles of the ensembles that a kernel runs rightly; others are not timed.
        adaptive: The numbers of members with steps that the error chooses.
        fixed: Those with fixed steps.
        noisy: Those with noise.
        repeats: The number of timed runs of each row.
        late: Whether there is no more time.
        report: Prints a line.
    """
    report("The rate is in 10^9 steps a second, rejected ones included, of all members.\n")
    report("| ensemble | members | by | time | rate | to XLA | compile |\n|---|---|---|---|---|---|---|")
    rows = [(ADAPTIVE_LORENZ, n) for n in adaptive] + [(FIXED_LORENZ, n) for n in fixed]
    rows += [(EULER_MARUYAMA, n) for n in noisy]
    for ensemble, members in rows:
        by_xla = None
        for by in ("XLA", "one kernel", "diffrax"):
            row = functools.partial("| {} | {} | {} | {} |".format, ensemble.title, f"{members:,}", by)
            if by == "one kernel" and ensemble.title not in right or by == "diffrax" and "dt" in ensemble.how:
                continue
            if late():
                report(row("out of time | | |"))
                continue
            try:
                compiled, seconds, steps = _measure(ensemble, by, members, repeats)
            except Exception as failure:
                report(row(f"{type(failure).__name__}: {str(failure).splitlines()[0][:80]} | | |"))
                continue
            by_xla = seconds if by == "XLA" else by_xla
            ratio = "" if by_xla is None else f"{by_xla / seconds:.2f}"
            report(row(f"{duration(seconds)} | {steps / seconds / 1e9:.3f} | {ratio} | {duration(compiled)}"))
