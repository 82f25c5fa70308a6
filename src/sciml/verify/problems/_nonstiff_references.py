"""Non-stiff problems whose end value was computed once to many digits."""

import jax.numpy as jnp
from jax.typing import DTypeLike

from ...models import Brusselator, Lorenz63, LotkaVolterra, RestrictedThreeBody
from ._problem import Problem, floating

_LORENZ63_AT_1: dict[float, tuple[float, float, float]] = {
    0: (4.5399929762484851536e-5, 0.0, 0.0),
    7: (6.2298952589934229069, 5.8239114056956694432, 8.3485937002134863929),
    14: (0.23998420441040925558, -0.15358336478069888499, 9.6798503872445627931),
    21: (-6.4505791473189070092, -8.8952114786677926266, 14.649145866604444939),
    28: (-9.4084505670560362054, -9.0961990711864789683, 28.581627624392339108),
}


def lorenz63(rho: float | int = 28, *, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns the Lorenz equations from $(1, 0, 0)$, time from 0 to 1, with `beta = 8/3`.

    The end values are Taylor series of order 30 in 50 digits, which agree to 27 digits with
    order 34. Beware of published programs with `beta = 2.666`: their end values differ in the
    fourth digit.

    Args:
        rho: 0, 7, 14, 21 or 28.
        dtype: The dtype of the state; the default floating type if None.

    Raises:
        ValueError: If the end value for `rho` is not known.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.problem("lorenz63", rho=28).end()[2] - 28.5816276) < 1e-5
        ```
    """
    if rho not in _LORENZ63_AT_1:
        raise ValueError(f"`rho` must be one of {tuple(_LORENZ63_AT_1)}, but got {rho}.")
    dtype = floating(dtype)
    return Problem(
        model=Lorenz63(rho=float(rho)),
        y0=jnp.asarray([1.0, 0.0, 0.0], dtype),
        t0=0.0,
        t1=1.0,
        reference=jnp.asarray(_LORENZ63_AT_1[rho], dtype),
        accuracy=1e-15,
        name=f"Lorenz 1963, rho {rho:g}",
        source="Taylor series of order 30 and 34 in 50 digits; exact for rho=0",
    )


def arenstorf(*, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns Arenstorf's periodic orbit around earth and moon; its end is its beginning.

    The satellite passes so close to the moon that one step size does not fit the orbit.

    Args:
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        problem = verify.problem("arenstorf")
        assert problem.error(problem.y0) == 0.0
        ```
    """
    y0 = jnp.asarray([0.994, 0.0, 0.0, -2.00158510637908252240537862224], floating(dtype))
    return Problem(
        model=RestrictedThreeBody(mu=0.012277471),
        y0=y0,
        t0=0.0,
        t1=17.0652165601579625588917206249,
        reference=y0,
        accuracy=1e-9,  # rounding of the initial state, amplified by two close encounters
        name="Arenstorf orbit",
        source="Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, p. 129",
    )


def brusselator(*, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns the Brusselator from $(1.5, 3)$, time from 0 to 20.

    Args:
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.problem("brusselator").end()[0] - 0.49863707) < 1e-6
        ```
    """
    dtype = floating(dtype)
    return Problem(
        model=Brusselator(a=1.0, b=3.0),
        y0=jnp.asarray([1.5, 3.0], dtype),
        t0=0.0,
        t1=20.0,
        reference=jnp.asarray([0.4986370712683478486498555, 4.596780349452011183201744], dtype),
        accuracy=1e-15,
        name="Brusselator",
        source="Hairer, Norsett and Wanner I, section II.4; end value by Taylor series of order 34 and 40 in 50 digits",
    )


def lotka_volterra(*, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns lynx and hare for twenty years from $(33.96, 5.93)$ with the default rates.

    Args:
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.problem("lotka_volterra").end()[0] - 29.994948) < 1e-4
        ```
    """
    dtype = floating(dtype)
    return Problem(
        model=LotkaVolterra(alpha=0.545, beta=0.028, gamma=0.803, delta=0.024),
        y0=jnp.asarray([33.96, 5.93], dtype),
        t0=0.0,
        t1=20.0,
        reference=jnp.asarray([29.99494782200247522428527, 6.00157615395412739392906], dtype),
        accuracy=1e-14,
        name="Lotka-Volterra",
        source="end value by Taylor series of order 34 and 40 in 50 digits",
    )
