"""Periodically forced models."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import bifurcation
from sciml.bifurcation import Kind


def duffing(t, y, args):
    force, omega = args
    x, v = y
    return jnp.stack([v, force * jnp.cos(omega * t) - 0.2 * v - x - x**3])


@pytest.mark.x64
def test_the_fold_of_the_response_of_duffing():
    """The folds were computed by shooting with DOP853 at 1e-12, as roots of det(M - 1)."""
    driven = bifurcation.Forced(duffing, lambda args: 2 * jnp.pi / args[1])
    args = jnp.asarray(0.3), jnp.asarray(1.3)
    y0 = jnp.array([0.43, 1.2]), jnp.array([1.0, 0.0])
    cycle = bifurcation.limit_cycle(driven, y0, period=2 * np.pi / 1.3, args=args, intervals=24, rtol=1e-5)
    np.testing.assert_allclose(cycle.period, 2 * np.pi / 1.3, rtol=1e-7)
    assert cycle.stable
    options: dict[str, Any] = {"where": lambda args: args[1], "max_step": 0.2, "points": 20}
    branch = bifurcation.continuation(driven, cycle, args=args, bounds=(1.25, 1.4), special=1, **options)
    assert branch.special.kind[0] == Kind.fold
    np.testing.assert_allclose(branch.special.parameter[0], 1.3838565320, rtol=1e-5)
    point = jax.tree.map(lambda x: x[0], branch.special)
    options |= {"kind": "fold", "along": lambda args: args[0], "bounds": (0.25, 0.4)}
    omega, force = bifurcation.locus(driven, point, args=args, **options).parameters
    last = np.flatnonzero(np.isfinite(force))[-1]
    assert force[last] == 0.4
    np.testing.assert_allclose(omega[last], 1.5252961740, rtol=1e-5)


def test_arguments_are_checked():
    with pytest.raises(TypeError, match="`model` must be a function|Type-check"):
        bifurcation.Forced(1.0, 2.0)  # pyright: ignore[reportArgumentType]
