"""Verner's most efficient pairs of order 6(5), 7(6), 8(7) and 9(8); their coefficients are in verner.json."""

import functools
import importlib.resources
import json
from typing import Any, ClassVar

import diffrax

from ._explicit import AbstractExplicitSolver, tableau


@functools.cache
def _coefficients() -> dict[str, Any]:
    return json.loads(importlib.resources.files(__package__ or "").joinpath("verner.json").read_text())


def _tableau(name: str) -> diffrax.ButcherTableau:
    return tableau(**_coefficients()[name])


class Vern6(AbstractExplicitSolver):
    """Verner's most efficient method of order 6(5): nine stages, the last of which is the next first.

    Steps end at saved times, since it has no interpolation of its order.

    Source:
        J. H. Verner, Numerically optimal Runge-Kutta pairs with interpolants, Numer. Algorithms 53 (2010).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.LotkaVolterra()
        sol = sciml.solve(model, jnp.array([34.0, 5.9]), t0=0.0, t1=20.0, solver=sciml.solvers.Vern6())
        assert sol.stats.accepted < 100
        ```
    """

    tableau: ClassVar[diffrax.ButcherTableau] = _tableau("Vern6")
    power: ClassVar[int] = 6


class Vern7(AbstractExplicitSolver):
    """Verner's most efficient method of order 7(6): ten stages, for tolerances of 1e-8 or so.

    Steps end at saved times, since it has no interpolation of its order.

    Source:
        J. H. Verner, Numerically optimal Runge-Kutta pairs with interpolants, Numer. Algorithms 53 (2010).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.LotkaVolterra()
        sol = sciml.solve(model, jnp.array([34.0, 5.9]), t0=0.0, t1=20.0, solver=sciml.solvers.Vern7())
        assert sol.stats.accepted < 60
        ```
    """

    tableau: ClassVar[diffrax.ButcherTableau] = _tableau("Vern7")
    power: ClassVar[int] = 7


class Vern8(AbstractExplicitSolver):
    """Verner's most efficient method of order 8(7): thirteen stages, for tolerances of 1e-10 or so.

    Steps end at saved times, since it has no interpolation of its order.

    Source:
        J. H. Verner, Numerically optimal Runge-Kutta pairs with interpolants, Numer. Algorithms 53 (2010).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.LotkaVolterra()
        sol = sciml.solve(model, jnp.array([34.0, 5.9]), t0=0.0, t1=20.0, solver=sciml.solvers.Vern8())
        assert sol.stats.accepted < 60
        ```
    """

    tableau: ClassVar[diffrax.ButcherTableau] = _tableau("Vern8")
    power: ClassVar[int] = 8


class Vern9(AbstractExplicitSolver):
    """Verner's most efficient method of order 9(8): sixteen stages, for tolerances down to 1e-12.

    Steps end at saved times, since it has no interpolation of its order. In float32 lower orders are as exact.

    Source:
        J. H. Verner, Numerically optimal Runge-Kutta pairs with interpolants, Numer. Algorithms 53 (2010).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        model = sciml.models.LotkaVolterra()
        sol = sciml.solve(model, jnp.array([34.0, 5.9]), t0=0.0, t1=20.0, solver=sciml.solvers.Vern9())
        assert sol.stats.accepted < 50
        ```
    """

    tableau: ClassVar[diffrax.ButcherTableau] = _tableau("Vern9")
    power: ClassVar[int] = 9
