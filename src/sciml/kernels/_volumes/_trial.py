r"""The test cases of a finite-volume kernel before `impl="auto"` uses it.

A gas whose pressure is half the square of its density, as of shallow water, with one velocity that is the same along
all axes, and a limited slope in each cell: a small field of an odd size, and a large one.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._verdicts import Case, Trial
from ._divergence import FluxDivergence

_SMALL = {1: (1501,), 2: (150, 211), 3: (21, 35, 60)}
_LARGE = {1: (1 << 20,), 2: (1024, 1024), 3: (128, 128, 128)}
_STEPS = 8
_ROUNDINGS = 400


def trial_of(ndim: int, dtype: Any, kernel_of: Any) -> Trial:
    """Returns the trial of the kernel for fields of a kind.

    Args:
        ndim: Their number of axes.
        dtype: Their dtype.
        kernel_of: Returns a kind of kernel by its name.
    """
    dtype = jnp.dtype(dtype)
    many = "1 dimension" if ndim == 1 else f"{ndim} dimensions"

    def cases(name: str) -> list[Case]:
        kind = kernel_of(name)
        return [_case(kind, _SMALL[ndim], dtype, False), _case(kind, _LARGE[ndim], dtype, True)]

    return Trial(f"finite volumes in {many}, {dtype.name}", cases)


def _primitive(operands: Array, y: Array) -> Array:
    return jnp.stack([y[0], y[1] / y[0], operands * y[0] * y[0]])


def _limited(behind: Array, ahead: Array) -> Array:
    product = behind * ahead
    return jnp.where(product > 0, 2 * product / jnp.where(product > 0, behind + ahead, 1.0), 0.0)


def _flux(operands: Array, cells: Sequence[Array], axis: int) -> Array:
    del operands, axis
    a, b, c, d = cells
    left, right = b + _limited(b - a, c - b) / 2, c - _limited(c - b, d - c) / 2
    speed = jnp.maximum(jnp.abs(left[1]) + jnp.sqrt(2 * left[2]), jnp.abs(right[1]) + jnp.sqrt(2 * right[2]))

    def moved(w: Array) -> tuple[Array, Array]:
        momentum = w[0] * w[1]
        return jnp.stack([w[0], momentum]), jnp.stack([momentum, momentum * w[1] + w[2]])

    (low, below), (high, above) = moved(left), moved(right)
    return (below + above - jnp.stack([speed * part for part in high - low])) / 2


def _by_xla(problem: FluxDivergence, operands: Array, y: Array) -> Array:
    w, total = problem.primitive(operands, y), jnp.zeros_like(y)
    for axis in range(problem.ndim):
        cells = [jnp.roll(w, problem.width - k, axis + 1) for k in range(2 * problem.width)]
        faces = problem.flux(operands, cells, axis)
        total = total + (faces - jnp.roll(faces, -1, axis + 1)) / problem.spacing[axis]
    return total


def _ghosts(y: Array, operands: Array) -> list[tuple[Array, Array]]:
    """The arrays of a periodic field."""
    found = []
    for axis in range(1, y.ndim):
        n = y.shape[axis]
        last, first = (jax.lax.slice_in_dim(y, a, b, axis=axis) for a, b in ((n - 2, n), (0, 2)))
        found.append((_primitive(operands, last), _primitive(operands, first)))
    return found


def _problem(ndim: int) -> FluxDivergence:
    return FluxDivergence(_primitive, _flux, 2, (2,), tuple(1.0 + 0.1 * axis for axis in range(ndim)))


def _start(shape: tuple[int, ...], dtype: Any) -> Array:
    noise = np.random.default_rng(0)
    return jnp.asarray(np.stack([noise.uniform(1.0, 1.5, shape), noise.uniform(-0.3, 0.3, shape)]), dtype)


def _case(kind: Any, shape: tuple[int, ...], dtype: Any, timed: bool) -> Case:
    problem, pressed = _problem(len(shape)), jnp.asarray(0.5, dtype)
    kernel = kind(problem, pressed, shape, dtype)

    def steps(rates: Any, y: Array) -> Array:
        return jax.lax.scan(lambda y, _: (y + 0.1 * rates(y), None), y, length=_STEPS)[0]

    def by_kernel(y: Array, operands: Array) -> Array:
        return steps(lambda y: kernel(y, _ghosts(y, operands), operands), y)

    def by_xla(y: Array, operands: Array) -> Array:
        return steps(lambda y: _by_xla(problem, operands, y), y)

    tolerance = _ROUNDINGS * float(jnp.finfo(dtype).eps)
    return Case(by_kernel, by_xla, (_start(shape, dtype), pressed), tolerance, timed)
