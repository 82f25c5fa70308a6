"""The orthogonal Runge-Kutta-Chebyshev methods, of order two and four."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._checks import check_count, check_order
from ...._jax._loops import scan
from ...._jax._vma import match
from ...._types import RealScalarLike, Y
from .._capabilities import Traits
from .._stepper import Step
from .._structured_solver import AbstractStructuredSolver
from ._stabilised_rk import AbstractStabilised, check_radius, radius_at

_TABLES = pathlib.Path(__file__).parent / "rock.npz"


class RockTable(NamedTuple):
    r"""The coefficients of a family of methods, one for each degree $m$ of its recurrence; see `Rock`.

    Attributes:
        degrees: $m$, ascending.
        reach: The step size times spectral radius for which the method of a degree is stable.
        recurrence: $\mu_1, \mu_2, \kappa_2, \dots, \mu_m, \kappa_m$ of all degrees, one after another.
        starts: The starts of the coefficients of each degree.
        rows: Of each degree the coefficients $a_{ij}$ of the stages that finish the step, with zeros behind them, and
            the weights $b_i$ in the last row.
        errors: The weights $e_i$ of the error estimate, the last of the slope at the end of the step.
    """

    degrees: np.ndarray
    reach: np.ndarray
    recurrence: np.ndarray
    starts: np.ndarray
    rows: np.ndarray
    errors: np.ndarray


@functools.cache
def rock_table(order: int) -> RockTable:
    """Returns the published coefficients of order two or four."""
    with np.load(_TABLES) as file:
        names = "degrees", "reach", "recurrence", "errors"
        found = {name: file[f"{name}{order}"] for name in names}
        below, weights = file[f"rows{order}"], file[f"weights{order}"]
    lengths = 2 * found["degrees"] - 1
    stages = weights.shape[1]
    rows = np.zeros((len(weights), stages + 1, stages + 1))
    rows[:, *np.tril_indices(stages, -1)] = below
    rows[:, -1, :-1] = weights
    return RockTable(starts=np.cumsum(lengths) - lengths, rows=rows, **found)


class Rock(AbstractStabilised):
    r"""A recurrence of orthogonal polynomials, and a Runge-Kutta method that finishes the step.

    With $D_j$ what stage $j$ adds to the state and $F_0 = f(t, y)$,

    $$D_0 = 0, \qquad D_1 = h \mu_1 F_0, \qquad
      D_j = h \mu_j f(t + c_{j-1} h, y + D_{j-1}) + (1 + \kappa_j) D_{j-1} - \kappa_j D_{j-2},$$

    $$K_i = f\Big(t + (c_m + \sum_j a_{ij}) h,\; y + D_m + h \sum_{j<i} a_{ij} K_j\Big), \qquad
      y_1 = y + D_m + h \sum_i b_i K_i,$$

    and the error estimate is $h \sum_i e_i K_i$, where the last $K_i$ is the slope at the end.

    Attributes:
        radius: The spectral radius: a number, `radius(t, y, args)`, or None for the model's value, or an estimate.
        most: The largest number of stages.
        order: The order of the method, two or four.
    """

    traits: ClassVar[Traits] = AbstractStabilised.traits._replace(elementwise=False)
    radius: float | Callable | None = eqx.field(static=True)
    most: int = eqx.field(static=True)
    order: int = eqx.field(static=True)
    has_error: bool = eqx.field(static=True, default=True)
    evaluations: int = eqx.field(static=True, default=-1)

    @property
    def _table(self) -> RockTable:
        """The coefficients of the degrees that have no more stages than there may be."""
        table = rock_table(self.order)
        count = int(np.sum(table.degrees + self.order <= self.most))
        kept = table._replace(**{n: x[:count] for n, x in table._asdict().items() if n != "recurrence"})
        return kept._replace(recurrence=table.recurrence[: kept.starts[-1] + 2 * kept.degrees[-1] - 1])

    @property
    def reach(self) -> float:
        """The step size times spectral radius for which the largest number of stages is stable."""
        return 0.99 * float(self._table.reach[-1])

    @property
    def longest_recurrence(self) -> int:
        """The largest degree."""
        return int(self._table.degrees[-1])

    def advanced(
        self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree, run: Callable[..., Any]
    ) -> Step:
        """Returns a step of as many stages as it needs."""
        t, h, table = jnp.asarray(t), jnp.asarray(h), self._table
        slope, radius = memory
        stiffness = jax.lax.stop_gradient(jnp.abs(h) * radius)
        place = jnp.sum(stiffness > jnp.asarray(0.99 * table.reach, h.dtype), dtype=jnp.int32)
        stable = place < len(table.degrees)
        place = jnp.minimum(place, len(table.degrees) - 1)
        stages, first = jnp.asarray(table.degrees, jnp.int32)[place], jnp.asarray(table.starts, jnp.int32)[place]
        recurrence = match(jnp.asarray(table.recurrence, h.dtype), (t, h, y, slope))

        def iterate(number: Any, carry: tuple) -> tuple:
            last, before, node, node_before = carry
            mu, kappa = recurrence[first + 2 * number - 3], recurrence[first + 2 * number - 2]
            here = field(t + node * h, jax.tree.map(jnp.add, y, last))

            def advance(last, before, here):
                a, b = (x.astype(last.dtype) for x in (kappa, h * mu))
                return last + a * (last - before) + b * here

            then = mu + node + kappa * (node - node_before)
            return jax.tree.map(advance, last, before, here), last, then, node

        node = recurrence[first]
        last = jax.tree.map(lambda k: jnp.asarray(h * node, k.dtype) * k, slope)
        carry = (last, jax.tree.map(jnp.zeros_like, last), node, jnp.zeros_like(node))
        rise, _, node, _ = run(iterate, carry, stages, (t, h, y, slope))

        # the last stages in a loop, whose body is compiled once; its last point is the end of the step
        def finish(carry, x):
            slopes, _ = carry
            number, row, share = x
            at = jax.tree.map(lambda y, d, k: y + d + _times(h * row, k), y, rise, slopes)
            found = field(t + share * h, at)
            put = lambda k, new: jax.lax.dynamic_update_index_in_dim(k, new, number, 0)  # noqa: E731
            return (jax.tree.map(put, slopes, found), at), None

        # a step that the largest number of stages does not stabilise is rejected
        rise = jax.tree.map(lambda d: jnp.where(stable, d, jnp.full_like(d, jnp.nan)), rise)
        rows, errors = (jnp.asarray(x, h.dtype)[place] for x in (table.rows, table.errors))
        shares = jnp.concatenate([node + jnp.sum(rows[:-1], axis=1), jnp.ones_like(rows[0, :1])])
        none = jax.tree.map(lambda k: jnp.stack([jnp.zeros_like(k)] * len(rows)), slope)
        xs = match((jnp.arange(len(rows)), rows, shares), (t, h, y, slope))
        (slopes, y1), _ = scan(finish, (none, y), xs, like=(t, h, y, slope))
        end = jax.tree.map(lambda k: k[-1], slopes)
        error = jax.tree.map(lambda k: _times(h * errors, k), slopes)
        return Step(y1, error, (slope, end), (end, radius_at(field, t + h, y1)))


def _times(weights: Array, slopes: Array) -> Array:
    """Returns a sum of slopes, whose number is their first axis, times weights."""
    weights = weights.astype(jnp.finfo(slopes.dtype).dtype)
    return sum((weights[i] * slopes[i] for i in range(1, len(slopes))), weights[0] * slopes[0])


_LIMITS = {2: (3, 200), 4: (5, 142)}
"""Of each order the fewest and the most stages."""


class ROCK(AbstractStructuredSolver):
    r"""Orthogonal Runge-Kutta-Chebyshev methods, explicit and stable for diffusion, known as ROCK2 and ROCK4.

    A step of $s$ evaluations is stable up to $h \rho \approx 0.81 s^2$ with `order=2`, a quarter farther than for
    `RKC2`, and damps all rough modes by a twentieth at least. With `order=4` it is stable up to
    $h \rho \approx 0.35 s^2$: for smooth diffusion at tolerances below about 1e-4, where the order justifies more
    evaluations. Everything in the documentation of `RKC2` applies.

    Args:
        order: 2 or 4.
        spectral_radius: A number, a function `(t, y, args)`, or None.
        max_stages: The largest number of stages: by default and at most 200 for order two, 142 for order four.

    Raises:
        ValueError: If there is no method of this order, or an option is out of range.

    Source:
        A. Abdulle, A. A. Medovikov, Second order Chebyshev methods based on orthogonal polynomials, Numer. Math. 90
        (2001), doi:10.1007/s002110100292, with the coefficients of E. Hairer's and A. Abdulle's program `rock2`;
        A. Abdulle, Fourth order Chebyshev methods with recurrence relation, SIAM J. Sci. Comput. 23:6 (2002),
        doi:10.1137/S1064827500379549, with the coefficients of its program `rock4`, but for two of its fifty degrees,
        which are not quite stable.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        decay = lambda t, y, args: -jnp.array([1.0, 30.0, 1000.0]) * y
        for order, most in ((2, 1e-3), (4, 1e-4)):
            solver = sciml.solvers.ROCK(order, spectral_radius=1e3)
            sol = sciml.solve(decay, jnp.ones(3), t0=0.0, t1=1.0, dt=0.05, solver=solver)
            assert abs(float(sol.ys[-1, 0]) - 0.3679) < most and abs(sol.ys[-1, 2]) < 1
        ```
    """

    _order: int = eqx.field(static=True)
    spectral_radius: float | Callable | None = eqx.field(static=True)
    max_stages: int = eqx.field(static=True)

    def __init__(
        self, order: int = 4, *, spectral_radius: float | Callable | None = None, max_stages: int | None = None
    ):
        self._order = check_order(order, _LIMITS, "ROCK")
        least, most = _LIMITS[order]
        check_radius(spectral_radius, "ROCK")
        self.spectral_radius = float(spectral_radius) if isinstance(spectral_radius, int) else spectral_radius
        self.max_stages = most if max_stages is None else check_count(max_stages, "max_stages", "ROCK")
        if self.max_stages < least:
            raise ValueError(f"`ROCK(order={order}, max_stages=...)` must be at least {least}, but is {max_stages}.")

    @property
    def name(self) -> str:
        """With the order."""
        return f"ROCK(order={self._order})"

    def stepper(self, y0: Y) -> Rock:
        """Returns the one-step method."""
        del y0
        return Rock(self.spectral_radius, self.max_stages, self._order)
