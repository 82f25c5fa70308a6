"""Stiff problems with published end values.

The values are those of the Test Set for IVP Solvers (F. Mazzia and C. Magherini, University of
Bari), and were checked against RADAU5 runs at tolerances of 1e-10 and below.
"""

import jax.numpy as jnp
from jax.typing import DTypeLike

from ...models import HIRES, Oregonator, Robertson, VanDerPol, VanDerPolScaled
from ._problem import Problem, floating

TEST_SET = "Test Set for IVP Solvers, Mazzia and Magherini, problem "


def robertson(*, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns problem ROBER: Robertson's reaction from $(1, 0, 0)$, time from 0 to 1e11.

    The components of the end value differ by thirteen orders of magnitude: use
    `error(y, componentwise=True)`, and an absolute tolerance below 1e-16.

    Args:
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        problem = verify.problem("robertson")
        assert abs(problem.model.total(problem.end()) - 1.0) < 1e-6
        ```
    """
    dtype = floating(dtype)
    return Problem(
        model=Robertson(),
        y0=jnp.asarray([1.0, 0.0, 0.0], dtype),
        t0=0.0,
        t1=1e11,
        reference=jnp.asarray([0.2083340149701255e-7, 0.8333360770334713e-13, 0.9999999791665050], dtype),
        accuracy=1e-12,
        name="ROBER",
        source=TEST_SET + "ROBER",
    )


def hires(*, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns problem HIRES, eight species, time from 0 to 321.8122.

    Args:
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        problem = verify.problem("hires")
        assert abs(problem.model.bound(problem.end()) - 0.0057) < 1e-9
        ```
    """
    dtype = floating(dtype)
    return Problem(
        model=HIRES(),
        y0=jnp.asarray([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0057], dtype),
        t0=0.0,
        t1=321.8122,
        reference=jnp.asarray(
            [
                0.7371312573325668e-3,
                0.1442485726316185e-3,
                0.5888729740967575e-4,
                0.1175651343283149e-2,
                0.2386356198831331e-2,
                0.6238968252742796e-2,
                0.2849998395185769e-2,
                0.2850001604814231e-2,
            ],
            dtype,
        ),
        accuracy=1e-11,
        name="HIRES",
        source=TEST_SET + "HIRES",
    )


def oregonator(*, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns problem OREGO from $(1, 2, 3)$, time from 0 to 360.

    Args:
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.problem("oregonator").end()[0] - 1.0008148) < 1e-6
        ```
    """
    dtype = floating(dtype)
    return Problem(
        model=Oregonator(),
        y0=jnp.asarray([1.0, 2.0, 3.0], dtype),
        t0=0.0,
        t1=360.0,
        reference=jnp.asarray([0.1000814870318523e1, 0.1228178521549917e4, 0.1320554942846706e3], dtype),
        accuracy=1e-12,
        name="OREGO",
        source=TEST_SET + "OREGO",
    )


def van_der_pol(*, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns problem VDPOL, scaled: `epsilon=1e-6` from $(2, 0)$, time from 0 to 2.

    Args:
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.problem("van_der_pol").end()[1] + 0.89280970) < 1e-6
        ```
    """
    dtype = floating(dtype)
    return Problem(
        model=VanDerPolScaled(epsilon=1e-6),
        y0=jnp.asarray([2.0, 0.0], dtype),
        t0=0.0,
        t1=2.0,
        reference=jnp.asarray([1.706167732170483, -0.8928097010247975], dtype),
        accuracy=1e-12,
        name="VDPOL, scaled",
        source=TEST_SET + "VDPOL",
    )


def van_der_pol_unscaled(*, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns problem VDPOL in its own time: `mu=1000` from $(2, 0)$, time from 0 to 2000.

    It is `van_der_pol()` in other units. Its published end value was computed at a lower accuracy
    than that of the scaled form.

    Args:
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        scaled, unscaled = verify.problem("van_der_pol").end(), verify.problem("van_der_pol_unscaled").end()
        assert abs(scaled[1] - 1000 * unscaled[1]) < 1e-6
        ```
    """
    dtype = floating(dtype)
    return Problem(
        model=VanDerPol(mu=1e3),
        y0=jnp.asarray([2.0, 0.0], dtype),
        t0=0.0,
        t1=2000.0,
        reference=jnp.asarray([0.1706167732170469e1, -0.8928097010248125e-3], dtype),
        accuracy=1e-12,
        name="VDPOL, mu=1000",
        source="Test Set for IVP Solvers, release 2, problem VDPOL with mu=1000",
    )
