r"""`steady_states`: several steady states from one guess, by deflation.

Roots $x_k$ that are known are taken away: Newton's method is applied to

$$\prod_k \left(1 + \frac{1}{|x - x_k|^2}\right) F(x) ,$$

which does not vanish there. With the product $m$ its step is the Newton step $d$ of $F$ times
$1 / (1 - \nabla \log m \cdot d)$.

Source:
    P. E. Farrell, A. Birkisson and S. W. Funke, SIAM Journal on Scientific Computing 37 (2015) A2026.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._checks import check_count, check_time, time_dtype
from .._jax._loops import scan, while_loop
from .._jax._members_apart import members_apart
from .._jax._vma import promote, rows_like
from .._option_names import knows_other_names
from .._same_code import filter_jit
from .._types import Args, RealScalarLike, Y
from ..solvers.linear._entries import DenseMatrix
from ..solvers.roots._conserved import with_jacobian
from ..solvers.roots._implicit_root import with_derivatives
from ._problem import Arguments, checked, closed

_STEPS = 100
"""The most Newton steps for each steady state: deflation makes detours."""

_LONGEST = 2.0
"""The longest step, in sizes of the states that are known."""

_ATTEMPTS = 3
"""How many iterations there are for each row: after the first third they start from random places around the guess."""

_PRECISION = 0.75
"""The length of the last Newton step but one is at most the precision to this power."""


class _Iteration(NamedTuple):
    """An iterate, the length of the last Newton step, and the number of steps."""

    x: Array
    length: Array
    number: Array


@knows_other_names
def steady_states(
    model: Callable[[RealScalarLike, Y, Args], Y],
    y0: Y,
    *,
    args: Args = None,
    conserved: Any = None,
    t: RealScalarLike = 0.0,
    count: int = 8,
) -> PyTree[Array]:
    r"""Finds several steady states, $f(t, y) = 0$, from one guess, stable or not, by deflated Newton iterations.

    Each iteration starts from the guess, or from places around it if that fails, and is kept away from the states that
    are known. It may miss some of them. Derivatives follow from the implicit function theorem, in
    forward and reverse mode.

    Args:
        model: `f(t, y, args) -> dy/dt`, as for `solve`.
        y0: A guess of the state.
        args: The third argument of the model.
        conserved: As for `steady_state`.
        t: The time at which the model is evaluated.
        count: The largest number of steady states.

    Returns:
        The states, a PyTree like `y0` with `count` rows, in the order in which they were found; NaN in rows that are
        not used.

    Raises:
        TypeError: If an argument has the wrong type, or the state is complex.
        ValueError: If `count` is not positive, or a number in `y0` is known and not finite.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import bifurcation

        ys = bifurcation.steady_states(lambda t, y, args: y - y**3, jnp.array([0.3]), count=4)
        found = jnp.sort(ys[jnp.isfinite(ys)])
        assert jnp.allclose(found, jnp.array([-1.0, 0.0, 1.0]), atol=1e-5)
        ```
    """
    given = checked(model, y0, args, conserved)
    time = check_time(t, "t", time_dtype(given.y0))
    return _states(*given, conserved, time, check_count(count, "count", "steady_states"))


@filter_jit
def _states(model: Any, y0: Y, args: Args, leaves: tuple, conserved: Any, t: Any, count: int) -> PyTree[Array]:
    def run(model: Any, y0: Y, args: Args, conserved: Any, t: Any) -> PyTree[Array]:
        model, y0, args, t = promote((model, y0, args, t))
        problem = closed(Arguments(model, y0, args, leaves), t, conserved)
        roots = _roots(lambda x: problem.equations(x, jax.lax.stop_gradient(problem.constants)), problem.start, count)

        def with_its_derivatives(x: Array) -> Array:
            good = jnp.all(jnp.isfinite(x))
            safe = jnp.where(good, x, problem.start)
            root = with_derivatives(
                lambda v: jnp.where(good, problem.equations(v, problem.constants), v - safe), safe, good | True
            )
            return jnp.where(good, root, jnp.nan)

        return jax.vmap(lambda x: problem.state(with_its_derivatives(x)))(roots)

    return members_apart(run)(model, y0, args, conserved, t)


def _roots(f: Callable[[Array], Array], start: Array, count: int) -> Array:
    """Returns roots of a function, NaN in rows that are not used."""
    dense, tolerance = DenseMatrix(np.eye(start.size)), float(jnp.finfo(start.dtype).eps) ** _PRECISION

    def find(roots: Array, row: Array) -> tuple[Array, None]:
        known = jnp.isfinite(roots[:, 0])
        others = jnp.where(known[:, None], roots, 0)
        largest = jnp.maximum(jnp.max(jnp.abs(others), axis=0), jnp.abs(start))
        unit = jnp.where(largest > 0, largest, jnp.where(jnp.max(largest) > 0, jnp.max(largest), 1))

        def repulsion(x: Array) -> Array:
            distance = jnp.sum(((x[None] - others) / unit[None]) ** 2, axis=1)
            return jnp.sum(jnp.where(known, jnp.log1p(1 / jnp.where(distance > 0, distance, 1)), 0))

        def iterate(c: _Iteration) -> _Iteration:
            value, matrix = with_jacobian(f, c.x)
            matrix = matrix * unit[None]
            largest = jnp.max(jnp.abs(matrix), axis=1)
            scale = 1 / jnp.where(largest > 0, largest, 1)
            step = -unit * dense.substitute(dense.factorise(matrix * scale[:, None]), scale * value)
            share = 1 - jnp.dot(jax.grad(repulsion)(c.x), step)
            factor = 1 / jnp.where(jnp.abs(share) > tolerance, share, tolerance)
            longest = jnp.max(jnp.abs(factor * step / unit))
            factor = factor * jnp.minimum(1, _LONGEST / jnp.where(longest > 0, longest, 1))
            return _Iteration(c.x + factor * step, jnp.max(jnp.abs(step / unit)), c.number + 1)

        def going(c: _Iteration) -> Array:
            return (c.length > tolerance) & (c.number < _STEPS)

        infinite = jnp.asarray(jnp.inf, start.dtype)
        first = _Iteration(start + unit * offsets[row], infinite, jnp.zeros((), jnp.int32))
        found = while_loop(going, iterate, first, like=(start, roots))
        close = (found.length <= tolerance) & jnp.all(jnp.isfinite(found.x))
        new = close & ~jnp.any(
            known & (jnp.max(jnp.abs((found.x[None] - others) / unit[None]), axis=1) < tolerance**0.5)
        )
        place = jnp.minimum(jnp.sum(known), count - 1)
        return roots.at[place].set(jnp.where(new & ~known[-1], found.x, roots[place])), None

    offsets = np.random.default_rng(0).normal(size=(_ATTEMPTS * count, start.size))
    # not exactly from the guess, which may be a root that is known
    offsets = jnp.asarray(offsets, start.dtype).at[:count].set(tolerance**0.25).at[0].set(0)
    roots, _ = scan(find, rows_like(count, start, jnp.nan), jnp.arange(len(offsets)), like=(start,))
    return roots
