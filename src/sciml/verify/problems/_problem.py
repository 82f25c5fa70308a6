"""An initial value problem whose answer is known."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..._checks import concrete
from ..._jax._largest import largest
from ..._types import RealScalarLike, VectorField, Y
from ...solvers._solution import Solution


def floating(dtype: DTypeLike | None):
    """Returns `dtype`, or the default floating type for None."""
    return jnp.result_type(float) if dtype is None else dtype


def elapsed(problem, t: RealScalarLike, dtype: DTypeLike):
    """Returns `t - t0` as an array of `dtype`."""
    return jnp.asarray(t, dtype) - jnp.asarray(problem.t0, dtype)


class Problem(eqx.Module):
    r"""An initial value problem $\dot y = f(t, y),\; y(t_0) = y_0$ whose answer is known.

    The answer is either exact at every time, or a published value at `t1`. A problem is a PyTree:
    the parameters of its model and its initial state are leaves, and an exact solution is a
    function of them, so `jax.grad` of `problem.end()` is the exact gradient.

    Attributes:
        model: The vector field $f$.
        y0: The initial state.
        t0: The initial time.
        t1: The end time.
        exact: The exact solution as a function `(problem, t) -> y(t)`, or None.
        reference: The published value of $y(t_1)$, or None.
        accuracy: How far the answer can be trusted, as a relative error in float64.
        name: The name of the problem, for the labels of tests and plots.
        source: The source of the problem and its answer.

    Raises:
        ValueError: If there is not exactly one of `exact` and `reference`.

    Example:
        ```python
        import jax
        from sciml import verify

        problem = verify.problem("exponential_decay", rate=2.0)
        gradient = jax.grad(lambda p: p.end().sum())(problem)  # d y(t1) / d everything
        assert abs(gradient.y0[0] - problem.end()[0] / problem.y0[0]) < 1e-6
        ```
    """

    model: VectorField
    y0: Y
    t0: RealScalarLike
    t1: RealScalarLike
    exact: Callable[["Problem", RealScalarLike], Y] | None = eqx.field(default=None, static=True)
    reference: Y | None = None
    accuracy: float = eqx.field(default=1e-13, static=True)
    name: str = eqx.field(default="", static=True)
    source: str = eqx.field(default="", static=True)

    def __check_init__(self):
        """Refuses a problem with no answer or with two."""
        if (self.exact is None) == (self.reference is None):
            raise ValueError(
                "a Problem needs an answer: pass either `exact` or `reference`, but got "
                + ("neither." if self.exact is None else "both.")
            )

    def solution(self, t: RealScalarLike) -> Y:
        """Returns the exact state at time `t`.

        Raises:
            ValueError: If only a reference value at `t1` is known.
        """
        if self.exact is None:
            raise ValueError(f"the solution of {self.name!r} is only known at t1={self.t1}. Use `end()`.")
        return self.exact(self, t)

    def end(self) -> Y:
        """Returns the state at `t1`, exact or published."""
        return self.reference if self.exact is None else self.exact(self, self.t1)

    def error(self, y: Y | Solution, *, componentwise: bool = False) -> Float[Array, ""]:
        """Returns the relative error of a solution at its last saved time, or of a state at `t1`.

        Args:
            y: A solution, which may end before or after `t1` if the problem is exact; or a state at `t1`, of the
                structure of `y0`.
            componentwise: Whether to divide every component's error by that component, for answers
                of very different size; otherwise by the largest component of all.

        Returns:
            The largest error over all components; NaN if `y` has a NaN.

        Raises:
            ValueError: If a solution ends at another time than `t1` and the answer is only known there. If the times
                are traced, the error is NaN.
        """
        answer, unknown = self.end(), None
        if isinstance(y, Solution):
            time = jnp.asarray(y.ts)[-1]
            y = jax.tree.map(lambda x: x[-1], y.ys)
            if self.exact is not None:
                answer = self.exact(self, time)
            else:
                unknown = time != jnp.asarray(self.t1, time.dtype)
                if concrete(unknown) and unknown:
                    raise ValueError(
                        f"the solution of {self.name!r} is only known at t1={self.t1}, but the given solution ends at "
                        f"{time}."
                    )
        end = [jnp.ravel(x) for x in jax.tree.leaves(answer)]
        got = [jnp.ravel(x) for x in jax.tree.leaves(y)]
        difference = jnp.concatenate([jnp.abs(g - e) for g, e in zip(got, end, strict=True)])
        size = jnp.abs(jnp.concatenate(end))
        error = largest(difference / size) if componentwise else largest(difference) / largest(size)
        return error if unknown is None else jnp.where(unknown, jnp.nan, error)
