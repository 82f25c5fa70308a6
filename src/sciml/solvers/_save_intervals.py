"""Fixed steps by a kernel with states saved between them: runs of equal steps, one after the other.

A kernel keeps no state between its steps, so a saved state must be one that a kernel ends with. Each interval between
two saved times is a separate solve, with its derivatives; equal intervals share one program.
"""

import dataclasses
import itertools
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._checks import concrete
from .._choices import choices
from .._jax._loops import scan
from ._plan import Plan
from ._request import Request
from .integrate._fixed_steps import FixedLoop
from .integrate._integrator import Operands
from .integrate._result import Result


def intervals_of(request: Request, plan: Plan, dtype: Any) -> tuple[int, ...] | None:
    """Returns the numbers of steps after which states are saved; None where saved times are not at the ends of steps.

    Args:
        request: The arguments of `solve`.
        plan: How the solve runs.
        dtype: The dtype of time.
    """
    saveat = request.saveat
    if saveat is None or plan.count is None or plan.control is not None or isinstance(saveat, diffrax.SaveAt):
        return None
    t0, t1, dt = request.t0, request.t1, request.dt
    assert dt is not None  # fixed steps have their size
    if not all(map(concrete, jax.tree.leaves(saveat))):
        return None
    ts, start = np.asarray(saveat, np.float64), float(t0)
    length = abs(float(dt)) if plan.tail else abs(float(t1) - start) / plan.count
    ratios = np.abs(ts - start) / length
    steps = np.round(ratios).astype(int)
    slack = 4 * float(jnp.finfo(dtype).eps) * (np.maximum(np.abs(ts), abs(start)) / length + 1)
    if np.any(np.abs(ratios - steps) > slack) or np.any(steps > plan.count):
        return None
    found = tuple(steps.tolist())
    return found if len(list(itertools.groupby(np.diff([0, *found])))) <= choices().saves.lengths_at_most else None


def run(loop: FixedLoop, adjoint: Any, y0: PyTree, operands: Operands, intervals: tuple[int, ...]) -> Result:
    """Runs all steps of a loop and returns the states after some of them.

    Args:
        loop: The loop over all steps.
        adjoint: How it is differentiated.
        y0: The initial state.
        operands: Its inputs.
        intervals: The numbers of steps after which states are saved, in order.
    """
    assert operands.dt is not None  # equal steps have their size
    dt, none = operands.dt, jnp.zeros((), jnp.int32)
    before = Result(None, none, jnp.zeros_like(operands.span), none, none, none)

    def segment(carry: tuple, count: int, tail: bool) -> tuple:
        y, before = carry
        rest = operands.span - intervals[-1] * dt if tail else count * dt
        here = dataclasses.replace(loop, count=count, tail=tail)
        result = adjoint.run(here, y, operands._replace(saves=None, span=rest), False)
        return result.ys, _after(before, result)

    carry, saved = (y0, before), []
    for gap, group in itertools.groupby(np.diff([0, *intervals]).tolist()):
        repeats = len(list(group))
        if gap == 0:
            saved += [jax.tree.map(lambda x: x[None], carry[0])] * repeats
            continue

        def save(carry: tuple, _: None, gap: int = gap) -> tuple:
            carry = segment(carry, gap, False)
            return carry, carry[0]

        carry, ys = scan(save, carry, length=repeats, like=operands)
        saved.append(ys)
    if loop.count > intervals[-1] or loop.tail:
        carry = segment(carry, loop.count - intervals[-1], loop.tail)
    result = carry[1]
    elapsed = jnp.where(result.status == 0, operands.span, result.elapsed)
    return result._replace(ys=jax.tree.map(lambda *xs: jnp.concatenate(xs), *saved), elapsed=elapsed)


def _after(before: Result, result: Result) -> Result:
    """The counts of both segments, and the status of the first that failed."""
    good = before.status == 0
    return Result(
        None,
        jnp.where(good, result.status, before.status),
        before.elapsed + jnp.where(good, result.elapsed, jnp.zeros_like(result.elapsed)),
        before.accepted + result.accepted,
        before.rejected + result.rejected,
        before.executed + result.executed,
    )
