"""Kernels on a GPU beside XLA: `python -m benchmarks.gpu`, on any machine with one, in minutes.

Correctness comes first: every row is compared with the reference, and a row that is wrong is not timed. Then come the
bandwidth of a copy, which is what the rates are measured against, and for every update and size the rate of XLA and of
the kernel with 1, 2, 4 and 8 steps for each pass over memory. Nothing of it has been claimed anywhere until it was run.
"""

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sciml.kernels.stencil import StencilUpdate, evolve, select

from ._harness import environment

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


def _seconds(run: Callable[[Any], Any], argument: Any, repeats: int) -> float:
    """The median time of a call that is compiled already."""
    jax.block_until_ready(run(argument))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run(argument))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def copy_bandwidth(repeats: int, n: int = 8192) -> float:
    """Bytes a second of reading and writing an array that fits in no cache."""
    x = jnp.ones((n, n), jnp.float32)
    return 2 * x.nbytes / _seconds(jax.jit(lambda x: x + 1), x, repeats)


@functools.partial(jax.jit, static_argnums=(0, 3, 4, 5))
def _run(name: str, state: Any, params: Any, n_steps: int, impl: str, k: int | None) -> Any:
    return evolve(CASES[name][0], state, n_steps, params, impl=impl, steps_per_pass=k)


def _error(name: str, impl: str, k: int) -> float:
    """The largest deviation from XLA over the largest value, on a field that no tile divides, after some steps."""
    update, params, ndim = CASES[name]
    state = _start(update, (301, 203) if ndim == 2 else (45, 61, 203))
    found, expected = (_run(name, state, params, 2 * k + 1, way, k) for way in (impl, "xla"))
    return max(
        float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
        for a, b in zip(map(np.asarray, found), map(np.asarray, expected))
    )


def main() -> int:
    """Prints the tables; returns 1 if a kernel was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--impl", default="pallas", help="which kernel to run beside XLA (pallas)")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="cells along an axis of a plane")
    parser.add_argument("--boxes", type=int, nargs="*", default=BOXES, help="cells along an axis in three dimensions")
    parser.add_argument("--steps", type=int, default=0, help="steps of a timed run (about 2e9 cells a run)")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each row")
    options = parser.parse_args()
    device = jax.devices()[0]
    print(f"## Kernels on {device.device_kind}\n\n{environment()}\n", flush=True)
    if options.impl == "pallas" and jax.default_backend() not in ("gpu", "tpu"):
        print(f"JAX runs on {jax.default_backend()!r} here; this needs a GPU or a TPU.")
        return 1

    print("### Correct\n\n| update | steps a pass | error |\n|---|---|---|", flush=True)
    right = set()
    for name in CASES:
        for k in _steps_of(name):
            try:
                error = _error(name, options.impl, k)
                right |= {(name, k)} if error <= CHECKED else set()
                print(f"| {name} | {k} | {error:.1e}{'' if error <= CHECKED else ', wrong'} |", flush=True)
            except Exception as failure:
                print(f"| {name} | {k} | {type(failure).__name__}: {str(failure).splitlines()[0][:80]} |", flush=True)

    bandwidth = copy_bandwidth(options.repeats)
    print(f"\nA copy moves {bandwidth / 1e9:.0f} GB/s, read and written.\n", flush=True)
    print(
        "The rate is in 10^9 cells a second for one step; the share is that of the rate at which every field is read "
        "and written once for each step at the speed of a copy, which more steps for each pass may exceed.\n"
    )
    print("| update | cells | way | rate | share | to XLA |\n|---|---|---|---|---|---|", flush=True)
    for name, (update, params, ndim) in CASES.items():
        for n in options.sizes if ndim == 2 else options.boxes:
            state = _start(update, (n,) * ndim)
            steps = options.steps or max(16, min(2000, int(2e9 / n**ndim) // 8 * 8))
            limit = bandwidth / (2 * 4 * len(update.fields))
            by_xla = None
            for way, k in (("xla", None), *((options.impl, k) for k in _steps_of(name) if (name, k) in right)):
                run = functools.partial(lambda s, way, k: _run(name, s, params, steps, way, k), way=way, k=k)  # noqa: B023
                seconds = _seconds(run, state, options.repeats)
                rate = n**ndim * steps / seconds
                by_xla = by_xla or seconds
                label = "XLA" if k is None else f"{k} step{'s' if k > 1 else ''} a pass"
                numbers = f"{rate / 1e9:.1f} | {rate / limit:.2f} | {by_xla / seconds:.2f}"
                print(f"| {name} | {n}^{ndim} | {label} | {numbers} |", flush=True)
    print(f"\n`auto` would run: {select(CASES['heat'][0], _start(CASES['heat'][0], (512, 512)), 0.1).reason}.")
    return 0 if len(right) == sum(len(_steps_of(name)) for name in CASES) else 1


if __name__ == "__main__":
    sys.exit(main())
