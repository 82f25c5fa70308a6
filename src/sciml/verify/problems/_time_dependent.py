"""Problems whose vector field depends on time, with an exact solution."""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ._problem import Problem, floating


class CosineGrowth(AbstractModel):
    r"""$\dot y = k y \cos t$."""

    rate: Parameter = eqx.field(default=1.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, "*shape"], args: Args) -> Float[Array, "*shape"]:
        """Returns the growth of every element."""
        del args
        return with_dtype(self, y.dtype).rate * y * jnp.cos(jnp.asarray(t, y.dtype))


class Polynomial(AbstractModel):
    r"""$\dot y = \sum_k c_k t^k$, the same for every element."""

    coefficients: Float[Array, " terms"] = eqx.field(converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, "*shape"], args: Args) -> Float[Array, "*shape"]:
        """Returns the polynomial at `t` in the shape of `y`."""
        del args
        p = with_dtype(self, y.dtype)
        return jnp.broadcast_to(_polynomial(p.coefficients, jnp.asarray(t, y.dtype)), y.shape)


class ProtheroRobinson(AbstractModel):
    r"""$\dot y = -\lambda (y - \sin t) + \cos t$."""

    rate: Parameter = eqx.field(default=1e3, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, "*shape"], args: Args) -> Float[Array, "*shape"]:
        """Returns the pull towards the sine, plus its slope."""
        del args
        t = jnp.asarray(t, y.dtype)
        return -with_dtype(self, y.dtype).rate * (y - jnp.sin(t)) + jnp.cos(t)


def cosine_growth(rate: RealScalarLike = 1.0, *, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns $\dot y = k y \cos t$, $y(0) = 1$, with $y = e^{k \sin t}$, time from 0 to 2.

    A solver that evaluates its stages at wrong times fails it.

    Args:
        rate: The factor $k$.
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.problem("cosine_growth").solution(3.14159265)[0] - 1.0) < 1e-5
        ```
    """
    return Problem(
        model=CosineGrowth(rate=rate),
        y0=jnp.ones(1, floating(dtype)),
        t0=0.0,
        t1=2.0,
        exact=_cosine_growth,
        name="cosine growth",
        source="exact: y0 exp(k (sin t - sin t0))",
    )


def _cosine_growth(problem, t):
    dtype = problem.y0.dtype
    sines = jnp.sin(jnp.asarray(t, dtype)) - jnp.sin(jnp.asarray(problem.t0, dtype))
    return problem.y0 * jnp.exp(with_dtype(problem.model, dtype).rate * sines)


def polynomial(degree: int = 3, *, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns $\dot y = \sum_{k=0}^{d} (k + 1) t^k$, $y(0) = 1$, time from 0 to 1.

    The solution is a polynomial of degree $d + 1$: a method of that order makes no error at all.

    Args:
        degree: The degree $d$ of the vector field, at least 0.
        dtype: The dtype of the state; the default floating type if None.

    Raises:
        ValueError: If `degree` is negative.

    Example:
        ```python
        from sciml import verify

        assert verify.problem("polynomial", degree=3).end()[0] == 5.0  # 1 + t + t^2 + t^3 + t^4
        ```
    """
    if degree < 0:
        raise ValueError(f"`degree` must be at least 0, but got {degree}.")
    dtype = floating(dtype)
    return Problem(
        model=Polynomial(jnp.arange(1, degree + 2).astype(dtype)),
        y0=jnp.ones(1, dtype),
        t0=0.0,
        t1=1.0,
        exact=_integrated,
        name=f"polynomial of degree {degree}",
        source="exact: the integral of the polynomial",
    )


def _integrated(problem, t):
    dtype = problem.y0.dtype
    c = with_dtype(problem.model, dtype).coefficients
    c = jnp.concatenate([jnp.zeros(1, dtype), c / jnp.arange(1, c.shape[0] + 1).astype(dtype)])
    start = _polynomial(c, jnp.asarray(problem.t0, dtype))
    return problem.y0 + (_polynomial(c, jnp.asarray(t, dtype)) - start)


def prothero_robinson(rate: RealScalarLike = 1e3, *, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns $\dot y = -\lambda (y - \sin t) + \cos t$, $y(0) = 0$, with $y = \sin t$.

    Time runs from 0 to 1. For large $\lambda$ it is stiff, and shows the reduced order of implicit
    methods.

    Args:
        rate: The stiffness $\lambda$, 1/time.
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.problem("prothero_robinson").end()[0] - 0.84147098) < 1e-6
        ```
    """
    return Problem(
        model=ProtheroRobinson(rate=rate),
        y0=jnp.zeros(1, floating(dtype)),
        t0=0.0,
        t1=1.0,
        exact=_sine,
        name="Prothero-Robinson",
        source="A. Prothero and A. Robinson, Math. Comp. 28:145, 1974; exact: sin t",
    )


def _sine(problem, t):
    dtype = problem.y0.dtype
    t, t0 = jnp.asarray(t, dtype), jnp.asarray(problem.t0, dtype)
    rate = with_dtype(problem.model, dtype).rate
    return jnp.sin(t) + (problem.y0 - jnp.sin(t0)) * jnp.exp(-rate * (t - t0))


def _polynomial(coefficients, t):
    total = jnp.zeros_like(t)
    for i in reversed(range(coefficients.shape[0])):
        total = total * t + coefficients[i]
    return total
