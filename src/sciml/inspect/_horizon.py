"""`horizon`: the time up to which a gradient through a solution is meaningful."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._checks import check_count, check_start, check_time, concrete, time_dtype
from .._interfaces._horizon import Horizon
from .._jax._loops import scan
from .._jax._members_apart import members_apart
from .._status import raise_for_status
from .._types import Args, RealScalarLike, Y
from ..solvers._read_diffrax import default_tolerances
from ..solvers.methods._ravel import flattened
from ..solvers.terms._field import arrays_of
from ._tangents import pushed


def horizon(
    model: Callable[[RealScalarLike, Y, Args], Y],
    y0: Y,
    *,
    t1: RealScalarLike,
    t0: RealScalarLike = 0.0,
    args: Args = None,
    error: float | None = None,
    directions: int = 8,
    n: int = 128,
    throw: bool = True,
    **options: Any,
) -> Horizon:
    r"""Estimates the time up to which a gradient through a solution is meaningful.

    The derivative of a state with respect to the start belongs to one solution. It is useful if neighbouring solutions
    stay near. If they separate as fast as $e^{\lambda t}$, it grows as fast, and its direction becomes random: an error
    $\varepsilon$ at the start, which each step makes, is as large as the solution itself at about
    $t = \log(1/\varepsilon) / \lambda$. So a rollout to be trained through should be shorter, or be cut into pieces
    (multiple shooting).

    Some changes of the start are carried along, in forward mode over lanes; the largest singular value of all of them
    is the growth.

    Args:
        model: `f(t, y, args) -> dy/dt`, as for `sciml.solve`.
        y0: The start, a PyTree of real arrays.
        t1: The end.
        t0: The time of the start.
        args: The third argument of the model.
        error: $\varepsilon$, the relative error of a state; by default the relative tolerance of `solve`.
        directions: How many changes to carry along.
        n: At how many times to look.
        throw: Whether to raise an error if the solve fails.
        options: Options for `sciml.solve`: `dt`, or `rtol` and `atol`, `solver`, and others.

    Raises:
        ValueError: If a number is out of range.
        TypeError: If the state is complex, or an argument has the wrong type.
        SolveError: If the solve fails and `throw` is set.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        lorenz = sciml.models.Lorenz63()
        found = sciml.inspect.horizon(lorenz, jnp.array([-3.0, -3.0, 20.0]), t1=30.0, error=1e-4, dt=0.01)
        assert 5 < found.time < 20 and 0.3 < found.doubling_time < 1.5
        ```
    """
    y0 = check_start(y0)
    size = sum(x.size for x in jax.tree.leaves(y0))
    directions = min(check_count(directions, "directions", "horizon"), size)
    n = check_count(n, "n", "horizon")
    dtype = time_dtype(y0)
    error = default_tolerances(dtype)[0] if error is None else error
    if not 0 < error < 1:
        raise ValueError(f"`error` must be a relative error between 0 and 1, but is {error}.")
    start, end = check_time(t0, "t0", dtype), check_time(t1, "t1", dtype)
    found = _run(model, y0, arrays_of(args), start, end, (float(error), directions, n), options)
    if throw and concrete(found.status):
        raise_for_status(found.status, where="horizon")
    return found


@eqx.filter_jit
def _run(model: Any, y0: Y, args: Args, t0: Array, t1: Array, numbers: tuple, options: dict) -> Horizon:
    run = members_apart(lambda model, y0, args, t0, t1: _grown(model, y0, args, t0, t1, numbers, options))
    return run(model, y0, args, t0, t1)


def _grown(model: Any, y0: Y, args: Args, t0: Array, t1: Array, numbers: tuple, options: dict) -> Horizon:
    error, directions, points = numbers
    y = flattened(y0)
    changes = jnp.linalg.qr(jax.random.normal(jax.random.key(0), (y.size, directions), y.dtype))[0]
    part = jnp.arange(1, points + 1, dtype=t0.dtype) / points
    ts = t0 + part * (t1 - t0)
    options = dict(options, args=args)
    if options.get("dt") is None:
        ys, logs, status = _by_pieces(model, y, changes, y0, jnp.concatenate([t0[None], ts]), options)
    else:
        ys, grown, status = pushed(model, y, changes, y0, t0=t0, t1=t1, saveat=ts, **options)
        logs = jnp.log(jnp.linalg.svd(grown, compute_uv=False)[:, 0])
    growth, elapsed = jnp.exp(logs), jnp.abs(ts - t0)
    away = elapsed - jnp.mean(elapsed)
    rate = jnp.sum(away * (logs - jnp.mean(logs))) / jnp.sum(away**2)
    # the size of a difference between two unrelated states of the solution
    spread = jnp.sqrt(2 * jnp.sum(jnp.mean((ys - jnp.mean(ys, 0, keepdims=True)) ** 2, axis=0)))
    scale = jnp.sqrt(jnp.mean(jnp.sum(ys**2, axis=1)))
    lost = error * scale * growth >= spread
    lost = lost & (growth > 1 / jnp.sqrt(error))  # a solution at rest has no spread
    time = jnp.where(jnp.any(lost), ts[jnp.argmax(lost)], jnp.inf)
    return Horizon(time, rate, ts, growth, status)


def _by_pieces(model: Any, y: Array, changes: Array, like: Y, ts: Array, options: dict) -> tuple[Array, Array, Array]:
    """Returns states, logarithms of the growth, and the status; changes have lengths of about one in each piece.

    So error control sees them, also where they have shrunk by many orders of magnitude.
    """

    def piece(carry: tuple, ends: Array) -> tuple:
        y, changes, grown, log, status = carry
        ys, moved, new = pushed(model, y, changes, like, t0=ends[0], t1=ends[1], **options)
        changes, triangle = jnp.linalg.qr(moved[-1])
        grown = jnp.matmul(triangle, grown, precision="highest")
        size = jnp.max(jnp.abs(grown))
        grown, log = grown / jnp.where(size > 0, size, 1), log + jnp.log(size)
        carry = ys[-1], changes, grown, log, jnp.where(status == 0, new, status)
        return carry, (ys[-1], log + jnp.log(jnp.linalg.svd(grown, compute_uv=False)[0]))

    grown = jnp.eye(changes.shape[1], dtype=y.dtype)
    start = y, changes, grown, jnp.zeros((), y.dtype), jnp.zeros((), jnp.int32)
    carry, (ys, logs) = scan(piece, start, jnp.stack([ts[:-1], ts[1:]], axis=1), like=(model, options["args"]))
    return ys, logs, carry[-1]
