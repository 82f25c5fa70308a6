"""Shared by the chapters: measured and predicted times, and reports without their table."""

import contextlib
import io
import math
import time

import jax

from sciml import inspect


def seconds(fn, *args):
    """The shortest of several calls, because other processes only make calls longer."""
    jax.block_until_ready(fn(*args))  # compiles
    shortest, begin = math.inf, time.perf_counter()
    while time.perf_counter() < begin + 0.2 or shortest == math.inf:
        start = time.perf_counter()
        jax.block_until_ready(fn(*args))
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def beside(what, predicted, measured):
    """Prints the predicted and the measured time, and the factor between them."""
    factor = max(predicted / measured, measured / predicted)
    print(
        f"{what}: predicted {duration(predicted)}, measured {duration(measured)}, factor {factor:.1f}"
    )


def duration(t):
    """A time in a readable unit."""
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
    size, unit = next((row for row in units if t >= row[0]), units[-1])
    return f"{t / size:.3g} {unit}"


def report(fn, *args):
    """`inspect.report` without its table."""
    with contextlib.redirect_stdout(io.StringIO()):
        return inspect.report(fn, *args)
