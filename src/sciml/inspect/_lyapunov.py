"""`lyapunov_exponents`: how fast neighbouring solutions part."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import check_count, check_start, check_time, concrete, time_dtype
from .._jax._loops import scan
from .._jax._members_apart import members_apart
from .._status import raise_for_status
from .._types import Args, RealScalarLike, Y
from ..solvers.methods._ravel import flattened
from ..solvers.terms._field import arrays_of
from ._tangents import pushed


class LyapunovExponents(eqx.Module):
    r"""How fast small changes of a state grow in the long run.

    Attributes:
        exponents: $\lambda_1 \ge \lambda_2 \ge \ldots$, 1/time.
        errors: Their standard errors, by how much they differ from one tenth of the time to the next.
        status: A code of `sciml.Status`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inspect

        decay = lambda t, y, args: -jnp.array([1.0, 2.0]) * y
        found = inspect.lyapunov_exponents(decay, jnp.ones(2), t1=20.0)
        assert jnp.allclose(found.exponents, jnp.array([-1.0, -2.0]), atol=0.05) and found.dimension == 0.0
        ```
    """

    exponents: Float[Array, "*members count"]
    errors: Float[Array, "*members count"]
    status: Array

    @property
    def dimension(self) -> Float[Array, "*members"]:
        r"""The dimension of the attractor by Kaplan and Yorke, $j + \sum_{i \le j} \lambda_i / |\lambda_{j+1}|$.

        Here $j$ is the largest number of exponents whose sum is not negative; all of them have to be known.
        """
        sums = jnp.cumsum(self.exponents, axis=-1)
        whole = jnp.sum(sums >= 0, axis=-1)
        last = self.exponents.shape[-1]
        before = jnp.take_along_axis(sums, jnp.clip(whole - 1, 0)[..., None], axis=-1)[..., 0]
        following = jnp.take_along_axis(self.exponents, jnp.clip(whole, None, last - 1)[..., None], axis=-1)[..., 0]
        part = jnp.where(whole > 0, before / jnp.abs(following), jnp.zeros_like(before))
        return whole.astype(before.dtype) + jnp.where(whole == last, jnp.zeros_like(part), part)


def lyapunov_exponents(
    model: Callable[[RealScalarLike, Y, Args], Y],
    y0: Y,
    *,
    t1: RealScalarLike,
    t0: RealScalarLike = 0.0,
    args: Args = None,
    n: int | None = None,
    every: float = 1.0,
    transient: float = 0.0,
    throw: bool = True,
    **options: Any,
) -> LyapunovExponents:
    r"""Computes the exponents of Lyapunov, $\lambda = \lim_{t \to \infty} \frac{1}{t} \log \|\delta y(t)\|$.

    Small changes of the state, derivatives in forward mode, are carried along a solution, and made orthogonal again and
    again: by how much they shrink in that is by how much they grew. A positive exponent means chaos: information about
    the start is lost in a time of $1 / \lambda_1$ for each factor of $e$, and a gradient over a longer time is
    meaningless; see `horizon`. Under `jax.vmap` starts or parameters run side by side.

    Args:
        model: `f(t, y, args) -> dy/dt`, as for `sciml.solve`.
        y0: The initial state, a PyTree of real arrays.
        t1: The end; the error falls as one over the square root of the time.
        t0: The start.
        args: The third argument of the model.
        n: The number of exponents; by default all, as many as the state has elements.
        every: The time between two orthogonalisations: so short that no change grows or shrinks beyond the dtype's
            precision against another.
        transient: The initial time to discard, until the state is on its attractor and the perturbations point in the
            growing directions.
        throw: Whether to raise an error if the solve fails.
        options: Options for `sciml.solve`: `dt`, or `rtol` and `atol`, `solver`, and others.

    Raises:
        ValueError: If a time or `n` is out of range.
        TypeError: If the state is complex, or an argument has the wrong type.
        SolveError: If the solve fails and `throw` is set.

    Source:
        G. Benettin, L. Galgani, A. Giorgilli and J.-M. Strelcyn, Lyapunov characteristic exponents for smooth dynamical
        systems, Meccanica 15 (1980) 9 and 21.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        lorenz = sciml.models.Lorenz63()
        found = sciml.inspect.lyapunov_exponents(lorenz, jnp.ones(3), t1=60.0, transient=10.0, every=0.5, dt=0.01)
        assert 0.6 < found.exponents[0] < 1.2  # published: 0.9056
        assert abs(found.exponents.sum() + 10 + 1 + 8 / 3) < 1e-2  # how fast volumes shrink
        ```
    """
    y0 = check_start(y0)
    size = sum(x.size for x in jax.tree.leaves(y0))
    count = size if n is None else check_count(n, "n", "lyapunov_exponents")
    if count > size:
        raise ValueError(f"`n`={count} is more than the {size} elements of the state.")
    for name, value, least in (("every", every, 0.0), ("transient", transient, -math.inf)):
        if not least < value < math.inf or value < 0:
            raise ValueError(f"`{name}` must be a finite nonnegative time, but is {value}.")
    before = math.ceil(transient / every - 1e-9)
    segments = math.floor((float(t1) - float(t0)) / every + 1e-9) - before
    if segments < 10:
        raise ValueError(
            f"`t0`={t0} to `t1`={t1}, without the `transient` of {transient}, contains {max(segments, 0)} intervals "
            f"of `every`={every}, but at least ten are required."
        )
    start = check_time(t0, "t0", time_dtype(y0))
    found = _run(model, y0, arrays_of(args), start, (every, before, segments, count), options)
    if throw and concrete(found.status):
        raise_for_status(found.status, where="lyapunov_exponents")
    return found


@eqx.filter_jit
def _run(model: Any, y0: Y, args: Args, t0: Array, numbers: tuple, options: dict) -> LyapunovExponents:
    run = members_apart(lambda model, y0, args, t0: _exponents(model, y0, args, t0, numbers, options))
    return run(model, y0, args, t0)


def _exponents(model: Any, y0: Y, args: Args, t0: Array, numbers: tuple, options: dict) -> LyapunovExponents:
    every, before, segments, count = numbers
    y, status = flattened(y0), jnp.zeros((), jnp.int32)
    first = jnp.linalg.qr(jnp.eye(y.size, count, dtype=y.dtype) + 0.1)[0]

    def advance(y: Array, changes: Array, t: Array, length: float) -> tuple:
        ys, grown, status = pushed(model, y, changes, y0, t0=t, t1=t + length, args=args, **options)
        return ys[-1], grown[-1], status

    def segment(carry: tuple, number: Array) -> tuple:
        y, changes, status = carry
        t = t0 + every * number.astype(t0.dtype)
        y, grown, new = advance(y, changes, t, every)
        changes, triangle = jnp.linalg.qr(grown)
        growth = jnp.log(jnp.abs(jnp.diagonal(triangle)))
        return (y, changes, jnp.where(status == 0, new, status)), growth

    (_, _, status), growth = scan(segment, (y, first, status), jnp.arange(before + segments), like=(model, args))
    rates = growth[before:] / every
    parts = jnp.stack([jnp.mean(x, 0) for x in jnp.array_split(rates, 10)])
    errors = jnp.std(parts, 0, ddof=1) / math.sqrt(10)
    found = jnp.where(status == 0, jnp.mean(rates, 0), jnp.nan)
    return LyapunovExponents(found, jnp.where(status == 0, errors, jnp.nan), status)
