"""Problems with published or computed end values: stiff and non-stiff ones."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..._types import Args, RealScalarLike
from ...models import (
    HIRES,
    Brusselator,
    Lorenz63,
    LotkaVolterra,
    Oregonator,
    RestrictedThreeBody,
    Robertson,
    VanDerPol,
    VanDerPolScaled,
)
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


_POLLUTION = """
0.35 1 > 2 3 | 26.6 2 4 > 1 | 1.23e4 5 2 > 6 1 | 8.6e-4 7 > 5 5 8 | 8.2e-4 7 > 8 | 1.5e4 7 6 > 8 5 | 1.3e-4 9 > 10 8 5
2.4e4 9 6 > 11 | 1.65e4 11 2 > 10 1 12 | 9e3 11 1 > 13 | 0.022 13 > 11 1 | 1.2e4 10 2 > 14 1 | 1.88 14 > 7 5
1.63e4 1 6 > 15 | 4.8e6 3 > 4 | 3.5e-4 4 > 16 | 0.0175 4 > 3 | 1e8 16 > 6 6 | 4.44e11 16 > 3 | 1240.0 17 6 > 18 5
2.1 19 > 2 | 5.78 19 > 1 3 | 0.0474 1 4 > 19 | 1780.0 19 1 > 20 | 3.12 20 > 1 19
"""
"""Reactions: a rate constant, the numbers of the species that react, and of those that are made."""


class _Pollution(eqx.Module):
    """Reactions of mass action, from the table above."""

    constants: tuple[float, ...] = eqx.field(static=True)
    reacting: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    made: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __call__(self, t: RealScalarLike, y: Float[Array, "20"], args: Args) -> Float[Array, "20"]:
        del t, args
        rates: list[Array] = [jnp.zeros_like(y[0])] * y.shape[0]
        for constant, reacting, made in zip(self.constants, self.reacting, self.made):
            speed = constant * y[reacting[0]]
            for i in reacting[1:]:
                speed = speed * y[i]
            for i in sorted({*reacting, *made}):
                change = made.count(i) - reacting.count(i)
                rates[i] = rates[i] + change * speed if change else rates[i]
        return jnp.stack(rates)


def _read(table: str) -> _Pollution:
    constants, reacting, made = [], [], []
    for reaction in table.strip().replace("\n", "|").split("|"):
        (constant, *left), right = (side.split() for side in reaction.split(">"))
        constants.append(float(constant))
        reacting.append(tuple(int(i) - 1 for i in left))
        made.append(tuple(int(i) - 1 for i in right))
    return _Pollution(tuple(constants), tuple(reacting), tuple(made))


def pollution(*, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns problem POLLU: 25 reactions of 20 pollutants of the air, time from 0 to 60 minutes.

    The rate constants differ by fifteen orders of magnitude, the concentrations, in parts per million, by as many.

    Args:
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.problem("pollution").end()[1] - 0.13424841) < 1e-6
        ```
    """
    dtype = floating(dtype)
    y0 = np.zeros(20)
    y0[[1, 3, 6, 7, 8, 16]] = 0.2, 0.04, 0.1, 0.3, 0.01, 0.007
    return Problem(
        model=_read(_POLLUTION),
        y0=jnp.asarray(y0, dtype),
        t0=0.0,
        t1=60.0,
        reference=jnp.asarray(
            [
                0.5646255480022769e-1,
                0.1342484130422339,
                0.4139734331099427e-8,
                0.5523140207484359e-2,
                0.2018977262302196e-6,
                0.1464541863493966e-6,
                0.7784249118997964e-1,
                0.3245075353396018,
                0.7494013383880406e-2,
                0.1622293157301561e-7,
                0.1135863833257075e-7,
                0.2230505975721359e-2,
                0.2087162882798630e-3,
                0.1396921016840158e-4,
                0.8964884856898295e-2,
                0.4352846369330103e-17,
                0.6899219696263405e-2,
                0.1007803037365946e-3,
                0.1772146513969984e-5,
                0.5682943292316392e-4,
            ],
            dtype,
        ),
        accuracy=1e-12,
        name="POLLU",
        source=TEST_SET + "POLLU",
    )


class _ChemicalAkzoNobel(eqx.Module):
    """The reactions, with the product of two concentrations instead of the sixth."""

    def __call__(self, t: RealScalarLike, y: Float[Array, "5"], args: Args) -> Float[Array, "5"]:
        del t, args
        y1, y2, y3, y4, y5 = (y[i] for i in range(5))
        root = jnp.sqrt(y2)
        r1, r2, r3 = 18.7 * y1**4 * root, 0.58 * y3 * y4, 0.58 / 34.4 * y1 * y5
        r4, r5 = 0.09 * y1 * y4**2, 0.42 * (115.83 * y1 * y4) ** 2 * root
        inflow = 3.3 * (0.9 / 737.0 - y2)
        return jnp.stack(
            [
                -2 * r1 + r2 - r3 - r4,
                -0.5 * r1 - r4 - 0.5 * r5 + inflow,
                r1 - r2 + r3,
                -r2 + r3 - 2 * r4,
                r2 - r3 + r5,
            ]
        )


def chemical_akzo_nobel(*, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns problem CHEMAKZO: two species are mixed under an inflow of carbon dioxide, time from 0 to 180.

    The sixth variable of the test set is algebraic, $y_6 = 115.83\, y_1 y_4$, and is put in, so that methods without a
    mass matrix take it.

    Args:
        dtype: The dtype of the state; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        assert abs(verify.problem("chemical_akzo_nobel").end()[0] - 0.11507949) < 1e-6
        ```
    """
    dtype = floating(dtype)
    return Problem(
        model=_ChemicalAkzoNobel(),
        y0=jnp.asarray([0.444, 0.00123, 0.0, 0.007, 0.0], dtype),
        t0=0.0,
        t1=180.0,
        reference=jnp.asarray(
            [
                0.1150794920661702,
                0.1203831471567715e-2,
                0.1611562887407974,
                0.3656156421249283e-3,
                0.1708010885264404e-1,
            ],
            dtype,
        ),
        accuracy=1e-11,
        name="CHEMAKZO",
        source=TEST_SET + "CHEMAKZO",
    )


# Stiff problems with published end values.
#
# The values come from the Test Set for IVP Solvers (F. Mazzia and C. Magherini, University of Bari), and were checked
# against RADAU5 runs at tolerances of 1e-10 and below.


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

    It is `van_der_pol()` in other units. Its published end value was computed at a lower accuracy than the scaled
    form's.

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
