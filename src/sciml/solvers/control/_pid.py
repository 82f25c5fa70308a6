"""Choosing the step size from the estimated error."""

import functools as ft
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Real

from ..._jax._largest import largest
from ..._types import RealScalarLike, Y
from ..terms._field import BoundField

Norm: TypeAlias = Callable[[Y], Array]
"""How large a PyTree of arrays like the state is, a scalar; NaN where any of it is."""


class Tolerances(NamedTuple):
    """Relative and absolute tolerance, each a scalar, an array that broadcasts to every leaf, or a PyTree like y."""

    rtol: PyTree
    atol: PyTree


class Control(eqx.Module):
    r"""A PID controller (Soderlind 2003) for a method of order $q$.

    With the scaled error $e_n$ of step $n$, which is accepted where $e_n \le 1$,

    $$h_{n+1} = h_n \, \min\big(F, \max(f, s\, e_n^{-\beta_1/q} e_{n-1}^{-\beta_2/q} e_{n-2}^{-\beta_3/q})\big)$$

    with $\beta_1 = p + i + d$, $\beta_2 = -(p + 2d)$, $\beta_3 = d$.

    Attributes:
        pcoeff: $p$, the proportional part.
        icoeff: $i$, the integral part.
        dcoeff: $d$, the derivative part.
        safety: $s$.
        factormin: $f$, the most that a step shrinks by.
        factormax: $F$, the most that a step grows by.
        dtmin: The smallest step that is tried, or None.
        dtmax: The largest step that is taken, or None.
        error_order: $q$, or None for the method's order.
    """

    pcoeff: float = eqx.field(static=True, default=0.0)
    icoeff: float = eqx.field(static=True, default=1.0)
    dcoeff: float = eqx.field(static=True, default=0.0)
    safety: float = eqx.field(static=True, default=0.9)
    factormin: float = eqx.field(static=True, default=0.2)
    factormax: float = eqx.field(static=True, default=10.0)
    dtmin: float | None = eqx.field(static=True, default=None)
    dtmax: float | None = eqx.field(static=True, default=None)
    error_order: float | None = eqx.field(static=True, default=None)

    @property
    def memory_size(self) -> int:
        """How many errors of earlier steps the controller uses."""
        return 2 if self.dcoeff else 1 if self.pcoeff else 0

    def factor(self, error: Real[Array, ""], history: tuple, accepted: Array, order: float | Real[Array, ""]) -> Array:
        """Returns what to multiply the step size with.

        Args:
            error: The scaled error of this step; NaN or infinite shrinks the step as far as allowed.
            history: The scaled errors of the last accepted steps, the latest first.
            accepted: Whether this step was accepted.
            order: The order of the method.
        """
        q = order if self.error_order is None else self.error_order
        exponents = (self.pcoeff + self.icoeff + self.dcoeff, -(self.pcoeff + 2 * self.dcoeff), self.dcoeff)
        tiny = 1e-12 if error.dtype == jnp.float64 else 1e-6  # growth is bounded by factormax long before
        logs = sum(
            (-exponent / q) * jnp.log(jnp.maximum(e, tiny))
            for exponent, e in zip(exponents, (error, *history))
            if exponent != 0
        )
        factor = jnp.clip(self.safety * jnp.exp(logs), self.factormin, self.factormax)
        factor = jnp.where(accepted, factor, jnp.minimum(factor, self.safety))
        return jnp.where(jnp.isfinite(error), factor, self.factormin)

    def remember(self, error: Array, history: tuple, accepted: Array) -> tuple:
        """Returns the history after this step."""
        shifted = ((error, *history))[: self.memory_size]
        return tuple(jnp.where(accepted, new, old) for new, old in zip(shifted, history))


def scaled_error(error: Y, y0: Y, y1: Y, tolerances: Tolerances, norm: Norm | None = None) -> Real[Array, ""]:
    r"""Returns the norm of $e / (\mathrm{atol} + \mathrm{rtol} \max(|y_0|, |y_1|))$.

    By default the root mean square over all elements.
    """
    magnitudes = jax.tree.map(lambda a, b: jnp.maximum(jnp.abs(a), jnp.abs(b)), y0, y1)
    return _size(error, magnitudes, tolerances, norm).astype(_widest(magnitudes))


def _size(values: Y, magnitudes: Y, tolerances: Tolerances, norm: Norm | None) -> Real[Array, ""]:
    if norm is None:
        return jnp.sqrt(_mean_square(values, magnitudes, tolerances))
    leaves, treedef = jax.tree.flatten(values)
    sizes = jax.tree.leaves(magnitudes)
    rtols, atols = (spread(tol, treedef) for tol in tolerances)
    ratios = [
        jnp.abs(value) / (jnp.asarray(atol, size.dtype) + jnp.asarray(rtol, size.dtype) * size)
        for value, size, rtol, atol in zip(leaves, sizes, rtols, atols)
    ]
    return norm(jax.tree.unflatten(treedef, ratios))


def _largest(values: Y, magnitudes: Y, tolerances: Tolerances) -> Real[Array, ""]:
    """Returns the largest of all elements over their tolerances, zero where there are none."""
    leaves, treedef = jax.tree.flatten(values)
    rtols, atols = (spread(tol, treedef) for tol in tolerances)
    each = [
        largest(jnp.abs(x) / (jnp.asarray(atol, m.dtype) + jnp.asarray(rtol, m.dtype) * m), initial=0.0)
        for x, m, rtol, atol in zip(leaves, jax.tree.leaves(magnitudes), rtols, atols)
    ]
    dtype = _widest(magnitudes)
    return ft.reduce(jnp.maximum, (x.astype(dtype) for x in each))


def _mean_square(values: Y, magnitudes: Y, tolerances: Tolerances) -> Real[Array, ""]:
    leaves, treedef = jax.tree.flatten(values)
    sizes = jax.tree.leaves(magnitudes)
    rtols, atols = (spread(tol, treedef) for tol in tolerances)
    count = sum(leaf.size for leaf in leaves)
    dtype = _widest(magnitudes)
    if jnp.finfo(dtype).bits < 32:  # the square of what is a thousand times too large overflows in float16
        dtype = jnp.float32
    total = 0.0
    for value, size, rtol, atol in zip(leaves, sizes, rtols, atols):
        scale = jnp.asarray(atol, size.dtype) + jnp.asarray(rtol, size.dtype) * size
        ratio = jnp.abs(value) / scale
        ratio = ratio.astype(dtype) if jnp.finfo(ratio.dtype).bits < 32 else ratio
        total = total + jnp.sum(ratio * ratio).astype(dtype)
    return cast(Array, total / count)


def _widest(tree: PyTree) -> Any:
    return max((leaf.dtype for leaf in jax.tree.leaves(tree)), key=lambda dtype: jnp.finfo(dtype).bits)


def spread(tolerance: PyTree, treedef: Any) -> list:
    """Returns a tolerance for each leaf of the state."""
    leaves = jax.tree.leaves(tolerance)
    return leaves * treedef.num_leaves if len(leaves) == 1 else leaves


class FirstStep(NamedTuple):
    """The start of an integration, by which a first step size is chosen.

    Attributes:
        t: The time.
        y: The state.
        direction: 1 or -1.
        span: The length of the interval.
        tolerances: The tolerances of the error.
        norm: The norm of the error; None for the root mean square.
    """

    t: Array
    y: Y
    direction: RealScalarLike
    span: Array
    tolerances: Tolerances
    norm: Norm | None = None


def initial_step(field: BoundField, start: FirstStep, order: int) -> Real[Array, ""]:
    """Returns a first step size, from the size of the solution and of its first two derivatives.

    Source: Hairer, Norsett, Wanner, Solving Ordinary Differential Equations I, section II.4.
    """
    t, y, direction, span, tolerances, norm = start
    f0 = field(t, y)
    sizes = jax.tree.map(jnp.abs, y)

    def size(values: Y) -> Array:
        """The norm, by way of the largest number: the square of a rate over a tolerance overflows in float32."""
        if norm is not None:  # perhaps one over several devices, whose largest numbers differ
            return _size(values, sizes, tolerances, norm)
        most = _largest(values, sizes, tolerances)
        unit = jnp.where((most > 1) & jnp.isfinite(most), most, jnp.ones_like(most))
        found = _size(jax.tree.map(lambda x: x / unit.astype(x.dtype), values), sizes, tolerances, norm)
        return unit.astype(found.dtype) * found

    d0, d1 = size(y), size(f0)
    dtype, span = span.dtype, span.astype(d0.dtype)  # sizes may have more bits than time
    small = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = jnp.where(small, 1e-6 * span, 0.01 * (d0 / jnp.where(small, jnp.ones_like(d1), d1)))
    h0 = jnp.minimum(h0, span)
    signed = direction * h0.astype(dtype)
    y1 = jax.tree.map(lambda a, b: a + signed.astype(a.dtype) * b, y, f0)
    f1 = field(t + signed, y1)
    # a member that ends where it starts has no length to divide by; logarithms, since the second may overflow
    change = size(jax.tree.map(jnp.subtract, f1, f0))
    largest = jnp.maximum(jnp.log(d1), jnp.log(change) - jnp.log(jnp.where(h0 > 0, h0, jnp.ones_like(h0))))
    flat = largest <= math.log(1e-15)
    h1 = jnp.where(flat, jnp.maximum(1e-6 * span, h0 * 1e-3), jnp.exp((math.log(0.01) - largest) / order))
    return jnp.minimum(jnp.minimum(100 * h0, h1), span).astype(dtype)
