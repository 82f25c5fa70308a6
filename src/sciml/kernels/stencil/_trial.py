"""The test cases of a stencil kernel before `impl="auto"` uses it: walls at an odd size, and a large field."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._verdicts import Case, Trial
from ._closure import closure_converted
from ._kernel import AbstractStencilKernel
from ._reference import step
from ._update import StencilUpdate

_SMALL = {1: (1501,), 2: (150, 211), 3: (21, 35, 60)}
_LARGE = {1: (1 << 20,), 2: (1024, 1024), 3: (128, 128, 128)}
_STEPS = 24
_ROUNDINGS = 400


def trial_of(ndim: int, dtype: Any, kernel_of: Any) -> Trial:
    """Returns the trial of the kernel for fields of a kind.

    Args:
        ndim: Their number of axes.
        dtype: Their dtype.
        kernel_of: Returns a kernel by name and number of axes.
    """
    dtype = jnp.dtype(dtype)
    many = "1 dimension" if ndim == 1 else f"{ndim} dimensions"
    return Trial(f"stencils in {many}, {dtype.name}", lambda name: _cases(kernel_of(name, ndim), ndim, dtype))


def _cases(kernel: AbstractStencilKernel, ndim: int, dtype: Any) -> list[Case]:
    walled, periodic = _SMALL[ndim], _LARGE[ndim]
    return [_case(kernel, walled, _Box(walled), dtype, False), _case(kernel, periodic, None, dtype, True)]


def _case(kernel: AbstractStencilKernel, shape: tuple[int, ...], boundary: Any, dtype: Any, timed: bool) -> Case:
    ndim, rate = len(shape), jnp.asarray(0.2 / len(shape), dtype)
    update = StencilUpdate(_reaction(ndim), fields=("u", "v"), coefficients=("c",), boundary=boundary)
    update = closure_converted(update, ndim, dtype, rate)
    plan = kernel.plan(update, rate, shape, dtype)

    def by_kernel(state: Any, rest: Any, rate: Array) -> Any:
        return kernel.advance(update, rate, state, rest, _STEPS, plan)

    def by_xla(state: Any, rest: Any, rate: Array) -> Any:
        return jax.lax.scan(lambda s, _: (step(update, s, rate, rest), None), state, length=_STEPS)[0]

    noise = np.random.default_rng(0)
    u, v, c = (jnp.asarray(noise.uniform(low, 1.0, shape), dtype) for low in (0.0, 0.0, 0.5))
    return Case(by_kernel, by_xla, ((u, v), (c,), rate), _ROUNDINGS * float(jnp.finfo(dtype).eps), timed)


def _reaction(ndim: int) -> Callable[[Any, Array], dict[str, Any]]:
    """Two fields that diffuse and react, with a coefficient: bounded, and not linear."""

    def laplacian(nb: Any, name: str) -> Any:
        shifts = [tuple(sign * (a == axis) for a in range(ndim)) for axis in range(ndim) for sign in (-1, 1)]
        return sum((nb(name, *shift) for shift in shifts), -2.0 * ndim * nb(name))

    def update(nb: Any, rate: Array) -> dict[str, Any]:
        u, v = nb("u"), nb("v")
        reaction = 0.1 * u * v * v
        return {
            "u": u + rate * nb("c") * laplacian(nb, "u") - reaction + 0.02 * (1 - u),
            "v": v + 0.5 * rate * laplacian(nb, "v") + reaction - 0.05 * v,
        }

    return update


class _Side(NamedTuple):
    """A wall half a cell outside of the last one, where a field is zero; or flat, where `sign` is 1."""

    sign: float

    def points(self, offset: float, accuracy: int) -> int:
        del offset, accuracy
        return 1

    def ghosts(self, layers: Array, width: int, *, axis: int, **_: Any) -> Array:
        return self.sign * jax.lax.slice_in_dim(layers, 0, width, axis=axis)


class _GridOfOnes(NamedTuple):
    spacing: tuple[float, ...]


class _Box:
    """Walls on all sides: fields are zero at the walls of the first axis, and flat at the others."""

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape
        self.sides = tuple((_Side(-1.0),) * 2 if axis == 0 else (_Side(1.0),) * 2 for axis in range(len(shape)))
        self.periodic = (False,) * len(shape)
        self.grid = _GridOfOnes((1.0,) * len(shape))

    def offsets(self, axis: int) -> tuple[float, float]:
        del axis
        return 0.5, 0.5

    def pad(self, u: Array, width: int, accuracy: int = 2) -> Array:
        del accuracy
        for axis, (side, _) in enumerate(self.sides):
            u = _mirrored(u, width, axis, side.sign)
        return u

    def extend(self, u: Array, width: int) -> Array:
        """Returns a coefficient, which no update here reads at neighbours, with cells that do not matter."""
        return jnp.pad(u, width, mode="edge")


def _mirrored(u: Array, width: int, axis: int, sign: float) -> Array:
    n = u.shape[axis]
    low = jnp.flip(jax.lax.slice_in_dim(u, 0, width, axis=axis), axis)
    high = jnp.flip(jax.lax.slice_in_dim(u, n - width, n, axis=axis), axis)
    return jnp.concatenate([sign * low, u, sign * high], axis)
