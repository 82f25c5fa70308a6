"""Reactions of the test set that are no models of the library, with published end values."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..._types import Args, RealScalarLike
from ._problem import Problem, floating
from ._stiff_references import TEST_SET

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
    """The reactions, with the product of two concentrations in place of the sixth."""

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
