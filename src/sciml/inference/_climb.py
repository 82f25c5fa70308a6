"""The maximum of a log density over a vector: optimistix's BFGS, then Newton's steps, which estimate the distance."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array, Float, Int

from .._same_code import filter_jit
from .._status import Status
from ..training._directions import in_words
from ._derivatives import expansion, values

_NEWTON_STEPS = 5
# Below this part of the largest, a curvature is zero.
_SINGULAR = {64: 1e-10, 32: 1e-5}
# How far the logarithm of a density may be below its maximum, by the parabola at the end.
_GAP = {64: 1e-6, 32: 1e-2}


class Peak(NamedTuple):
    """The maximum of a log density.

    Attributes:
        z: Where.
        value: The log density there.
        gradient: Its gradient there.
        hessian: Its Hessian there.
        status: Whether this is a maximum.
        n_steps: Steps of all kinds.
        rises: By about how much the log density would still rise along each variable.
    """

    z: np.ndarray
    value: float
    gradient: np.ndarray
    hessian: np.ndarray
    status: Status
    n_steps: int
    rises: np.ndarray


def ascend(
    function: Callable[[Array], Array], z: Float[Array, " p"], max_steps: int, rtol: float
) -> tuple[Float[Array, " p"], Int[Array, ""]]:
    """Returns where BFGS ends and the number of steps; this is for use under `jit` and `vmap`."""
    solver = optimistix.BFGS(rtol, rtol)
    found = optimistix.minimise(lambda z, _: -function(z), solver, z, max_steps=max_steps, throw=False)
    return found.value, jnp.asarray(found.stats["num_steps"])


@filter_jit
def _ascend_all(
    function: Callable[[Array], Array], zs: Float[Array, "starts p"], max_steps: int, rtol: float
) -> tuple[Array, Array]:
    def one(z):
        return ascend(function, z, max_steps, rtol)

    return jax.vmap(one)(zs) if zs.shape[0] > 1 else jax.tree.map(lambda x: x[None], one(zs[0]))


def climb(
    function: Callable[[Array], Array],
    zs: Float[Array, "starts p"],
    *,
    max_steps: int,
    rtol: float,
    what: str,
    inside: Callable[[Array], Array] = lambda z: z,
) -> Peak:
    """Returns the highest of the maxima above some starts.

    Args:
        function: The log density.
        zs: The starts.
        max_steps: The most steps of each.
        rtol: Their tolerance.
        what: The name of the public function, for messages.
        inside: Moves a vector off bounds. An end at a bound, where no gradient leads away from it, is tried again from
            there.

    Raises:
        ValueError: If the density is zero at all starts.
    """
    alone = zs.shape[0] == 1
    # a single start is evaluated by the program that the end needs as well
    first = _expanded(function, zs[0]) if alone else ()
    before = np.array([first[1]]) if first else np.asarray(values(function, zs), np.float64)
    usable = np.flatnonzero(np.isfinite(before))
    if not usable.size:
        raise ValueError(
            f"{what}: the density is zero or not finite at the start, because the model fails there or because an "
            "observation or a parameter is outside of its distribution. Start from another model."
        )
    zs, before = zs[usable], before[usable]
    ends, steps = _ascend_all(function, zs, max_steps, rtol)
    steps = np.asarray(steps)
    if alone:
        here = _expanded(function, ends[0])
        here = here if here[1] >= before[0] else first
        return _finish(function, *_off_bounds(function, here, int(steps[0]), inside, max_steps, rtol))
    tops = np.asarray(values(function, ends), np.float64)
    tops = np.where(np.isfinite(tops), tops, -np.inf)
    best = int(np.argmax(tops))
    z = ends[best] if tops[best] >= before[best] else zs[best]
    here = _expanded(function, z)
    return _finish(function, *_off_bounds(function, here, int(steps[best]), inside, max_steps, rtol))


def _off_bounds(
    function: Callable, here: tuple, steps: int, inside: Callable, max_steps: int, rtol: float
) -> tuple[tuple, int]:
    """Returns the better one of an end and of what is found from there off its bounds, and all steps."""
    off = inside(here[0])
    if bool(jnp.all(off == here[0])):
        return here, steps
    ends, more = _ascend_all(function, off[None], max_steps, rtol)
    there = _expanded(function, ends[0])
    return there if there[1] > here[1] else here, steps + int(more[0])


def _finish(function: Callable[[Array], Array], here: tuple, steps: int) -> Peak:
    """Takes Newton's steps as long as they rise, and says whether this is a maximum."""
    dtype = here[0].dtype
    tolerance = _GAP[jnp.finfo(dtype).bits]
    for _ in range(_NEWTON_STEPS):
        step, gap, _ = _newton(here)
        if step is None or gap < 1e-3 * tolerance:
            break
        there = _expanded(function, here[0] + jnp.asarray(step, dtype))
        steps += 1
        if not there[1] > here[1]:
            break
        here = there
    _, gap, rises = _newton(here)
    point, value, gradient, hessian = here
    if not (np.isfinite(gradient).all() and np.isfinite(hessian).all()):
        status = Status.nonfinite
    else:
        status = Status.successful if gap <= tolerance else Status.max_steps_reached
    return Peak(np.asarray(point, np.float64), value, gradient, hessian, status, steps, rises)


def _expanded(function: Callable, z: Array) -> tuple[Array, float, np.ndarray, np.ndarray]:
    value, gradient, hessian = expansion(function, z)
    return z, float(value), np.asarray(gradient, np.float64), np.asarray(hessian, np.float64)


def _newton(here: tuple) -> tuple[np.ndarray | None, float, np.ndarray]:
    """Returns Newton's step in directions in which the density is curved, and how much it would rise, also by variable.

    Variables with derivatives that are not finite rise infinitely.
    """
    _, _, gradient, hessian = here
    if not (np.isfinite(gradient).all() and np.isfinite(hessian).all()):
        return None, np.inf, np.where(np.isfinite(gradient) & np.isfinite(hessian).all(axis=1), 0.0, np.inf)
    curvatures, directions, units = principal(-hessian)
    curved = curvatures > 1e-10 * max(curvatures.max(initial=0), 0)
    slopes = directions.T @ (gradient * units)
    step = units * (directions[:, curved] @ (slopes[curved] / curvatures[curved]))
    gap = 0.5 * float(np.sum(slopes[curved] ** 2 / curvatures[curved])) if curved.any() else 0.0
    flat = np.abs(slopes[~curved])  # in directions that are flat or curved upwards
    rises = 0.5 * np.abs(gradient * step) + np.abs(directions[:, ~curved]) @ flat
    return step, gap + float(np.sum(flat)), rises


def principal(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns eigenvalues and eigenvectors of a symmetric matrix, in units in which its diagonal is one, and these."""
    lengths = np.sqrt(np.abs(np.diagonal(matrix)))
    units = 1 / np.where(lengths > 0, lengths, 1)
    curvatures, directions = np.linalg.eigh(matrix * np.outer(units, units))
    return curvatures, directions, units


class Inverse(NamedTuple):
    """The inverse of minus a Hessian in the directions in which it is curved.

    Attributes:
        factor: $F$ of the inverse $F F^T$.
        lost: Whether a variable has a part in a direction that is not curved, shape `(p,)`.
        undetermined: These directions, in words.
    """

    factor: np.ndarray
    lost: np.ndarray
    undetermined: tuple[str, ...]

    def covariance(self, inner: np.ndarray | None = None) -> np.ndarray:
        """Returns $F F^T$, or $F F^T S F F^T$ with an inner matrix $S$; infinite in lost rows and columns."""
        found = self.factor @ self.factor.T
        found = found if inner is None else found @ inner @ found
        found[self.lost] = found[:, self.lost] = np.inf
        return found


def inverse_curvature(hessian: np.ndarray, names: Sequence[str], dtype: jnp.dtype) -> Inverse:
    """Returns the inverse of minus the Hessian of a function of `dtype` at its maximum."""
    curvatures, directions, units = principal(-hessian)
    good = curvatures > _SINGULAR[jnp.finfo(dtype).bits] * max(curvatures.max(), 0)
    undetermined = tuple(in_words(units * directions[:, i], names) for i in np.flatnonzero(~good))
    factor = units[:, None] * directions[:, good] / np.sqrt(curvatures[good])
    return Inverse(factor, (np.abs(directions[:, ~good]) > 1e-4).any(axis=1), undetermined)
