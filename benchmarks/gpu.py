"""Kernels on a GPU beside XLA: `python -m benchmarks.gpu`, on any machine with one, in minutes.

Correctness comes first: every row is compared with the reference, and a row that is wrong is not timed. Then come
ensembles and finite volumes, the bandwidth of a copy, which is what the rates of stencils are measured against, and for
every update and size the rate of XLA and of the kernel with 1, 2, 4 and 8 steps for each pass over memory. Rows for
which no time is left say so. Nothing of it has been claimed anywhere until it was run.
"""

import argparse
import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sciml import kernels
from sciml.kernels import select
from sciml.kernels.stencil import StencilUpdate, evolve

from . import _gpu_ensembles as ensembles, _gpu_volumes as volumes
from ._harness import environment, median_seconds, report

PARTS = ("stencils", "ensembles", "volumes")
SIZES = (512, 1024, 2048, 4096, 8192)
CHECKED = 1e-5  # of the largest value, after the steps of a check


BOXES = (128, 256, 512)
CHECKED_STEPS = (1, 2, 4, 8)


def _laplacian(nb: Callable[..., jax.Array], name: str) -> jax.Array:
    return nb(name, 1, 0) + nb(name, -1, 0) + nb(name, 0, 1) + nb(name, 0, -1) - 4 * nb(name)


def _laplacian_3d(nb: Callable[..., jax.Array], name: str, weights: tuple[float, ...]) -> jax.Array:
    total = 3 * weights[0] * nb(name)
    for axis in range(3):
        for j, weight in enumerate(weights[1:], 1):
            ahead, behind = (tuple(sign * j * (a == axis) for a in range(3)) for sign in (1, -1))
            total = total + weight * (nb(name, *ahead) + nb(name, *behind))
    return total


def _heat_3d(nb: Callable[..., jax.Array], rate: Any) -> jax.Array:
    return nb("u") + rate * _laplacian_3d(nb, "u", (-2.0, 1.0))


def _wave_3d(nb: Callable[..., jax.Array], p: Any) -> tuple[jax.Array, jax.Array]:
    weights = (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560)
    return 2 * nb("u") - nb("before") + p * _laplacian_3d(nb, "u", weights), nb("u")


def _heat(nb: Callable[..., jax.Array], rate: Any) -> jax.Array:
    return nb("u") + rate * _laplacian(nb, "u")


def _gray_scott(nb: Callable[..., jax.Array], p: Any) -> tuple[jax.Array, jax.Array]:
    rate_u, rate_v, feed, kill = p
    u, v = nb("u"), nb("v")
    reaction = u * v * v
    return (
        u + rate_u * _laplacian(nb, "u") - reaction + feed * (1 - u),
        v + rate_v * _laplacian(nb, "v") + reaction - (feed + kill) * v,
    )


def _wave(nb: Callable[..., jax.Array], p: Any) -> tuple[jax.Array, jax.Array]:
    return 2 * nb("u") - nb("before") + p * _laplacian(nb, "u"), nb("u")


CASES: dict[str, tuple[StencilUpdate, Any, int]] = {
    "heat": (StencilUpdate(_heat), 0.1, 2),
    "wave": (StencilUpdate(_wave, fields=("u", "before")), 0.1, 2),
    "Gray-Scott": (StencilUpdate(_gray_scott, fields=("u", "v")), (0.16, 0.08, 0.035, 0.065), 2),
    "heat in 3-D": (StencilUpdate(_heat_3d), 0.1, 3),
    "wave in 3-D, radius 4": (StencilUpdate(_wave_3d, fields=("u", "before"), radius=4), 0.05, 3),
}


def _start(update: StencilUpdate, shape: tuple[int, ...]) -> tuple[jax.Array, ...]:
    keys = jax.random.split(jax.random.key(0), len(update.fields))
    return tuple(jax.random.uniform(key, shape, jnp.float32) for key in keys)


def _steps_of(name: str) -> tuple[int, ...]:
    """The steps for each pass that are tried: in three dimensions those that reach 4 cells at most."""
    update, _, ndim = CASES[name]
    return tuple(k for k in CHECKED_STEPS if ndim == 2 or k * update.radius <= 4)


def copy_bandwidth(repeats: int, n: int = 8192, passes: int = 20) -> float:
    """Bytes a second of reading and writing an array that fits in no cache, several times in one program."""
    x = jnp.ones((n, n), jnp.float32)
    run = jax.jit(lambda x: jax.lax.fori_loop(0, passes, lambda _, x: x + 1, x))
    return passes * 2 * x.nbytes / median_seconds(run, x, repeats)


@functools.partial(jax.jit, static_argnums=(0, 3, 4, 5))
def _run(name: str, state: Any, params: Any, n_steps: int, impl: str | None, k: int | None) -> Any:
    return evolve(CASES[name][0], state, n_steps, params, impl=impl, steps_per_pass=k)


def _error(name: str, k: int) -> float:
    """The largest deviation from XLA over the largest value, on a field that no tile divides, after some steps."""
    update, params, ndim = CASES[name]
    state = _start(update, (301, 203) if ndim == 2 else (45, 61, 203))
    found, expected = (_run(name, state, params, 2 * k + 1, impl, k) for impl in (None, "xla"))
    return max(
        float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
        for a, b in zip(map(np.asarray, found), map(np.asarray, expected))
    )


def _check() -> set[tuple[str, int]]:
    """Prints how stencils compare with XLA, and returns those that are right."""
    report("| update | steps a pass | error |\n|---|---|---|")
    right = set()
    for name in CASES:
        for k in _steps_of(name):
            try:
                error = _error(name, k)
                right |= {(name, k)} if error <= CHECKED else set()
                row = f"{error:.1e}{'' if error <= CHECKED else ', wrong'}"
            except Exception as failure:
                row = f"{type(failure).__name__}: {str(failure).splitlines()[0][:80]}"
            report(f"| {name} | {k} | {row} |")
    return right


def _rates(options: argparse.Namespace, right: set[tuple[str, int]], late: Callable[[], bool]) -> None:
    """Prints how fast stencils run, by XLA and by the kernel."""
    bandwidth = copy_bandwidth(options.repeats)
    report(f"A copy moves {bandwidth / 1e9:.0f} GB/s, read and written.\n")
    report(
        "The rate is in 10^9 cells a second for one step; the share is relative to the rate at which every field is "
        "read and written once for each step at the speed of a copy, which more steps for each pass may exceed.\n"
    )
    report("| update | cells | backend | rate | share | to XLA |\n|---|---|---|---|---|---|")
    for name, (update, params, ndim) in CASES.items():
        for n in options.sizes if ndim == 2 else options.boxes:
            state = _start(update, (n,) * ndim)
            steps = options.steps or max(16, min(2000, int(2e9 / n**ndim) // 8 * 8))
            limit = bandwidth / (2 * 4 * len(update.fields))
            by_xla = None
            for impl, k in (("xla", None), *((None, k) for k in _steps_of(name) if (name, k) in right)):
                label = "XLA" if k is None else f"{k} step{'s' if k > 1 else ''} a pass"
                if late():
                    report(f"| {name} | {n}^{ndim} | {label} | out of time | | |")
                    continue
                run = functools.partial(lambda s, impl, k: _run(name, s, params, steps, impl, k), impl=impl, k=k)  # noqa: B023
                seconds = median_seconds(run, state, options.repeats)
                rate = n**ndim * steps / seconds
                by_xla = seconds if impl == "xla" else by_xla
                ratio = "" if by_xla is None else f"{by_xla / seconds:.2f}"
                report(f"| {name} | {n}^{ndim} | {label} | {rate / 1e9:.1f} | {rate / limit:.2f} | {ratio} |")


def main() -> int:
    """Prints the tables; returns 1 if a kernel was wrong."""
    start = time.perf_counter()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--interpret", action="store_true", help="run the kernels in JAX's interpreter")
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS, help="what to run (all)")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="cells along an axis of a plane")
    parser.add_argument("--boxes", type=int, nargs="*", default=BOXES, help="cells along an axis in three dimensions")
    parser.add_argument("--planes", type=int, nargs="*", default=volumes.SIZES, help="cells along an axis of a gas")
    parser.add_argument("--steps", type=int, default=0, help="steps of a timed run (about 2e9 cells a run)")
    parser.add_argument("--members", type=int, nargs="*", default=ensembles.ADAPTIVE, help="with adaptive steps")
    parser.add_argument("--fixed", type=int, nargs="*", default=ensembles.FIXED, help="members with fixed steps")
    parser.add_argument("--noisy", type=int, nargs="*", default=ensembles.NOISY, help="members with noise")
    parser.add_argument("--checked", type=int, default=1000, help="members of an ensemble that is checked")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each row")
    parser.add_argument("--minutes", type=float, default=9.0, help="after which no further row is timed (9)")
    options = parser.parse_args()
    device = jax.devices()[0]
    report(f"## Kernels on {device.device_kind}\n\n{environment()}\n")
    if not options.interpret and jax.default_backend() not in ("gpu", "tpu"):
        report(f"JAX runs on {jax.default_backend()!r} here; this needs a GPU or a TPU.")
        return 1

    def late() -> bool:
        return time.perf_counter() - start > 60 * options.minutes

    with kernels.use("pallas", interpret=options.interpret):
        well = _tables(options, late)
    report(f"\nAll of it took {(time.perf_counter() - start) / 60:.1f} minutes.")
    return 0 if well else 1


def _tables(options: argparse.Namespace, late: Callable[[], bool]) -> bool:
    """Prints the tables, by the kernels of the block that it is called in; returns whether they were right."""
    report("### Correct\n")
    well, right, right_ensembles, right_volumes = True, set(), set(), set()
    if "stencils" in options.parts:
        right = _check()
        well = len(right) == sum(len(_steps_of(name)) for name in CASES)
        report("")
    if "ensembles" in options.parts:
        right_ensembles = ensembles.check(options.checked, report)
        well = well and len(right_ensembles) == len(ensembles.CHECKS)
    if "volumes" in options.parts:
        report("")
        right_volumes = volumes.check(options.interpret, report)
        well = well and len(right_volumes) == len(volumes.CASES)
    if "ensembles" in options.parts:
        report("\n### Ensembles\n")
        ensembles.rates(right_ensembles, options.members, options.fixed, options.noisy, options.repeats, late, report)
    if "volumes" in options.parts:
        report("\n### Finite volumes\n")
        volumes.rates(right_volumes, options.planes, options.repeats, options.interpret, late, report)
    if "stencils" in options.parts:
        report("\n### Stencils\n")
        _rates(options, right, late)
        heat, rate, _ = CASES["heat"]
        report(f"\n`auto` would run: {select(heat, _start(heat, (512, 512)), rate, impl='auto').reason}.")
    return well


if __name__ == "__main__":
    sys.exit(main())
