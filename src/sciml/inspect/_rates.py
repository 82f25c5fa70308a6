"""How fast this machine computes and moves numbers, measured once in a process for each kind of device."""

import functools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._hlo_work import Kernel

_TERMS = 16


class Rates(NamedTuple):
    """The speed of a device, measured with small XLA programs; prints as a line.

    Attributes:
        device: The kind of device.
        products: Operations within products of matrices.
        flops: Other additions and products, on many numbers at once.
        transcendentals: Evaluations of `exp`.
        periodic: Evaluations of `sin`.
        transforms: Operations within Fourier transforms.
        shuffles: Elements that are put elsewhere one by one.
        copies: Pairs of a number of bytes, and the bytes that a loop over them reads and writes per second: data that
            fit in a cache are faster.
        new: The same for arrays that a program returns: on a CPU the system has to give the memory first.
        operation: Seconds that an operation on a few numbers takes, where three do not wait for each other.
        launch: Seconds that starting a part of a program takes.
        iteration: Seconds that an iteration takes of a loop of which the compiler made one function.
        call: Seconds that a call takes that does nothing.
    """

    device: str
    products: float
    flops: float
    transcendentals: float
    periodic: float
    transforms: float
    shuffles: float
    copies: tuple[tuple[float, float], ...]
    new: tuple[tuple[float, float], ...]
    operation: float
    launch: float
    iteration: float
    call: float

    @property
    def bandwidth(self) -> float:
        """Bytes that are read and written in a second where they fit no cache."""
        return self.copies[-1][1]

    @property
    def ridge(self) -> float:
        """The operations for each byte from which on computing takes longer than moving."""
        return self.products / self.bandwidth

    def copied(self, size: float) -> float:
        """Returns the bytes read and written per second by a loop over a number of bytes."""
        return _between(self.copies, size)

    def given(self, size: float) -> float:
        """Returns the bytes of new memory per second that a program gets when it requests a number of bytes."""
        return _between(self.new, size)

    def start(self, kernel: Kernel, together: int) -> float:
        """Returns the time that starting an operation takes, one of some in an iteration of a loop."""
        return self.iteration / together if kernel.inlined else self.launch

    def seconds(self, kernel: Kernel, size: float, together: int = 1) -> float:
        """Returns the time that an operation takes each time it runs.

        Args:
            kernel: The operation.
            size: How many bytes the loop around it goes over, or the program where there is none.
            together: How many operations an iteration of that loop has.
        """
        compute = kernel.products / self.products + kernel.transcendentals / self.transcendentals
        compute += kernel.periodic / self.periodic + kernel.transforms / self.transforms
        compute += kernel.shuffles / self.shuffles + max(kernel.flops / self.flops, kernel.operations * self.operation)
        return max(compute, kernel.bytes / self.copied(size)) + self.start(kernel, together)

    def __str__(self) -> str:
        """The rates on one line."""
        return (
            f"{self.device}: {self.products / 1e9:.3g} GFLOP/s in matrix products, {self.flops / 1e9:.3g} in "
            f"other operations, {self.copies[0][1] / 1e9:.3g} GB/s in a cache, {self.bandwidth / 1e9:.3g} GB/s in "
            "memory"
        )


def rates() -> Rates:
    """Returns the rates of the default device, measured in less than a second at the first call in a process.

    Returns:
        The `Rates`, in float32.

    Example:
        ```python
        from sciml import inspect

        found = inspect.rates()
        assert found.products > 0 and found.bandwidth > 0
        print(found)
        ```
    """
    device = jax.config.jax_default_device or jax.local_devices()[0]
    device = device if hasattr(device, "device_kind") else jax.local_devices(backend=device)[0]
    return _measured(device.platform, device.device_kind)


@functools.cache
def _measured(platform: str, kind: str) -> Rates:
    with jax.default_matmul_precision("default"):
        return _measure(platform, kind)


def _measure(platform: str, kind: str) -> Rates:
    accelerator = platform != "cpu"
    small, large = np.ones(16, np.float32), np.ones(2**24 if accelerator else 2**12, np.float32)
    call = _seconds(lambda x: x + x, small)
    few, many = 64, 4096

    def looped(body: Callable, x: Any, count: int) -> float:
        """Seconds of one iteration."""

        def run(x, count):
            return jax.lax.while_loop(lambda c: c[1] < count, lambda c: (body(c[0]), c[1] + 1), (x, jnp.int32(0)))[0]

        compiled = jax.jit(run, donate_argnums=0).lower(x, np.int32(0)).compile()
        state = [jax.tree.map(jnp.array, x)]

        def times(n: int) -> Any:  # in the same memory, which the system need not give anew
            state[0] = compiled(state[0], np.int32(n))
            return state[0]

        short, long = (_fastest(lambda n=n: times(n)) for n in (1, count + 1))
        return (long - short) / count if long > 1.2 * short else long / (count + 1)  # else the difference is noise

    def chain(x):
        for _ in range(_TERMS):
            x = x * np.float32(0.999) + np.float32(0.001)
        return x

    def shrink(x):
        return x * np.float32(0.999) + np.float32(0.001)

    iteration = looped(shrink, np.ones((), np.float32), many)
    three = (np.ones((), np.float32),) * 3
    operation = looped(lambda x: tuple(map(chain, x)), three, many) / (6 * _TERMS)
    launch = looped(lambda x: jnp.sort(shrink(x)), small, few) / (1 if accelerator else 2)
    flops = 2 * _TERMS * large.size / looped(chain, large, 8 if accelerator else 512)
    side = 2048 if accelerator else 384
    square = np.full((side, side), 1 / side, np.float32)
    products = 2 * side**3 / max(_seconds(lambda x: x @ x, square) - call, 1e-9)
    numbers = np.ones(2**20 if accelerator else 2**17, np.float32)
    exps = numbers.size / looped(lambda x: jnp.exp(-x), numbers, 16)
    sines = numbers.size / looped(jnp.sin, numbers, 4)
    waves = np.ones((64, 1024), np.complex64)
    fourier = 5 * waves.size * 10 / max(_seconds(lambda x: jnp.fft.fft(x, axis=1), waves) - call, 1e-9)
    sizes = (2**20, 2**24, 2**28) if accelerator else (2**16, 2**20, 2**23, 2**26)
    copies = []
    for size in sizes:
        count = max(6, 2**24 // size)
        copies.append((float(size), size / looped(shrink, np.ones(size // 8, np.float32), count)))
    for i in reversed(range(len(copies) - 1)):  # what fits a smaller cache is not slower, but for noise
        copies[i] = (copies[i][0], max(copies[i][1], copies[i + 1][1]))
    new = []
    for size in (2**22, 2**26):
        spent = _seconds(lambda x: jnp.full(size // 4, x), np.float32(1)) - call
        new.append((float(size), size / max(spent, 1e-9)))
    return Rates(
        device=kind,
        products=products,
        flops=flops,
        transcendentals=exps,
        periodic=sines,
        transforms=fourier,
        shuffles=flops if accelerator else 1 / operation,
        copies=tuple(copies),
        new=tuple(new),
        operation=operation,
        launch=launch,
        iteration=iteration,
        call=call,
    )


def _seconds(fn: Callable, *args: Any) -> float:
    compiled = jax.jit(fn).lower(*args).compile()
    return _fastest(lambda: compiled(*args))


def _fastest(call: Callable[[], Any]) -> float:
    """Returns the shortest time of some calls after the first."""
    jax.block_until_ready(call())
    found, begin = math.inf, time.perf_counter()
    for number in range(7):
        start = time.perf_counter()
        jax.block_until_ready(call())
        found = min(found, time.perf_counter() - start)
        if number > 1 and time.perf_counter() - begin > 0.02:
            break
    return found


def _between(points: tuple[tuple[float, float], ...], size: float) -> float:
    """Returns the rate at a size, between those that were measured, on logarithmic scales."""
    sizes, found = zip(*points)
    return float(np.exp(np.interp(math.log(max(size, 1.0)), np.log(sizes), np.log(found))))
