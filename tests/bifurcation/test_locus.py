"""Curves of special points in the plane of two parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import bifurcation
from sciml.bifurcation._orbits import LimitCycle
from sciml.bifurcation._special import SpecialPoint

from .common import Brusselator, cusp, rest, tolerance
from .test_limit_cycle import twisted, wound


def folds(scale=1.0, dtype=None, **options):
    """Of b + a y - scale y^3 = 0: 27 scale b^2 = 4 a^3."""
    dtype = dtype or jnp.result_type(float)
    args = {"a": jnp.asarray(1.0, dtype), "b": jnp.asarray(0.3, dtype), "scale": jnp.asarray(scale, dtype)}
    model = lambda t, y, args: args["b"] + args["a"] * y - args["scale"] * y**3  # noqa: E731
    same = {"args": args, "where": lambda args: args["b"], "kind": "fold", "throw": False}
    point = bifurcation.locate(model, jnp.asarray([-0.5], dtype), **same)
    return bifurcation.locus(model, point, along=lambda args: args["a"], bounds=(-1.0, 2.0), **same, **options)


def test_folds_pass_the_cusp(dtype):
    found = folds(dtype=dtype)
    b, a = found.parameters
    there = np.isfinite(a)
    np.testing.assert_allclose(27 * b[there] ** 2, 4 * a[there] ** 3, atol=100 * tolerance(dtype))
    np.testing.assert_allclose(b[there], -2 * found.ys[there, 0] ** 3, atol=10 * tolerance(dtype))
    assert a[there][0] == 2 and a[there][-1] == 2 and a[there].min() < 0.05
    assert (found.frequency[there] == 0).all() and (found.status == 0).all()


@pytest.mark.x64
def test_the_curve_moves_at_right_angles():
    scale = jnp.asarray(1.0)
    b, a = folds(scale).parameters
    db, da = jax.jacfwd(lambda scale: folds(scale).parameters)(scale)
    there = np.isfinite(a)
    left = 27 * b**2 + 54 * scale * b * db - 12 * a**2 * da
    np.testing.assert_allclose(left[there], 0, atol=1e-7)


def test_hopf_points_of_members(dtype):
    def curve(slope):
        model = Brusselator(jnp.asarray(1.0, dtype), jnp.asarray(2.0, dtype))
        same = {"where": lambda model: model.b, "kind": "hopf", "throw": False}
        field = lambda t, y, args: jax.tree.map(lambda x: slope * x, args(t, y, None))  # noqa: E731
        options = {"args": model, "points": 40}
        y0 = rest(1.0, dtype) | {"z": jnp.asarray(2.0, dtype)}
        point = bifurcation.locate(field, y0, args=model, **same)
        return bifurcation.locus(field, point, along=lambda model: model.a, bounds=(0.6, 1.6), **same, **options)

    slopes = jnp.asarray([1.0, 2.0], dtype)
    found = jax.vmap(curve)(slopes)
    for i in range(2):
        b, a = (x[i] for x in found.parameters)
        there = np.isfinite(a)
        assert there.sum() > 10 and a[there].min() == dtype.type(0.6) and a[there].max() == dtype.type(1.6)
        np.testing.assert_allclose(b[there], 1 + a[there] ** 2, rtol=tolerance(dtype))
        np.testing.assert_allclose(found.frequency[i][there], slopes[i] * a[there], rtol=10 * tolerance(dtype))


@pytest.mark.x64
def test_hopf_points_end_where_the_frequency_vanishes():
    """The unfolding of Bogdanov and Takens: Hopf points at p = -q^2 for q > 0, with the frequency sqrt(2 q)."""

    def model(t, y, args):
        p, q = args
        return jnp.stack([y[1], p + q * y[1] + y[0] ** 2 + y[0] * y[1]])

    args = (jnp.asarray(-1.0), jnp.asarray(1.0))
    same = {"args": args, "where": lambda args: args[0], "kind": "hopf"}
    point = bifurcation.locate(model, jnp.asarray([-1.1, 0.0]), **same)
    found = bifurcation.locus(model, point, along=lambda args: args[1], bounds=(-1.0, 2.0), **same)
    p, q = found.parameters
    there = np.isfinite(q)
    np.testing.assert_allclose(p[there], -(q[there] ** 2), atol=1e-8)
    np.testing.assert_allclose(found.frequency[there], np.sqrt(2 * q[there]), rtol=1e-6)
    assert q[there].max() == 2 and 0 < q[there].min() < 0.1


def test_bad_input():
    args = {"a": 1.0, "b": 0.3}
    b = lambda args: args["b"]  # noqa: E731
    point = bifurcation.locate(cusp, jnp.asarray([-0.5]), args=args, where=b, kind="fold")
    options = {"args": args, "where": b, "along": lambda args: args["a"], "bounds": (0.0, 2.0), "kind": "fold"}
    for wrong, error, message in (
        (
            {"kind": "branch_point"},
            ValueError,
            "one of 'fold', 'hopf' for steady states, but is 'branch_point'",
        ),
        ({"along": b}, ValueError, "`along` must select another parameter than `where`"),
        ({"along": lambda args: args["c"]}, ValueError, "`along` could not be applied"),
        ({"bounds": (2.0, 3.0)}, ValueError, "`bounds` must contain the value of the parameter in the model, 1,"),
    ):
        with pytest.raises(error, match=message):
            bifurcation.locus(cusp, point, **(options | wrong))
    with pytest.raises(sciml.SolveError, match="`locus` failed with status `diverged`"):
        bifurcation.locus(lambda t, y, args: args["b"] - y * args["a"], point, **options)


def round_fold(t, y, args):
    """The amplitude grows by r (p + q r^2 - r^4): cycles have a fold at p = -q^2 / 4."""
    p, q = args
    x, z = y
    square = x**2 + z**2
    grows = p + q * square - square**2
    return jnp.stack([grows * x - z, x + grows * z])


CYCLES = {
    "fold": (round_fold, 2, lambda q: -(q**2) / 4, 0.0),
    "period_doubling": (lambda t, y, args: twisted(t, y, args[0] - args[1] ** 2), 4, lambda q: q**2, 0.0),
    "torus": (lambda t, y, args: wound(t, y, args[0] - args[1] ** 2), 4, lambda q: q**2, 0.3),
}
"""A model, the size of its state, the curve of special points, and their frequency."""


@pytest.mark.x64
@pytest.mark.parametrize("kind", CYCLES)
def test_special_points_of_limit_cycles(kind):
    model, size, curve, frequency = CYCLES[kind]
    start, ts = jnp.asarray(1.0), jnp.linspace(0, 2 * jnp.pi, 13)
    radius = jnp.sqrt(0.5) if kind == "fold" else 1.0
    circle = radius * jnp.stack([jnp.cos(ts), jnp.sin(ts)], axis=1)
    cycle = LimitCycle(ts[-1], ts, jnp.pad(circle, ((0, 0), (0, size - 2))))
    code = jnp.asarray(int(bifurcation.Kind[kind]))
    point = SpecialPoint(code, curve(start), cycle, jnp.asarray(frequency), (cycle, 0 * start), 0 * code)
    options: dict[str, Any] = {"where": lambda args: args[0], "along": lambda args: args[1], "bounds": (0.7, 1.5)}
    given = (curve(start), start)
    found = bifurcation.locus(model, point, kind=kind, args=given, points=8, max_step=0.5, **options)
    p, q = found.parameters
    there = np.isfinite(q)
    assert there.sum() > 3 and q[there].min() == 0.7 and q[there].max() == 1.5 and (found.status == 0).all()
    np.testing.assert_allclose(p[there], curve(q[there]), rtol=1e-5)
    np.testing.assert_allclose(found.ys.period[there], 2 * np.pi, rtol=1e-6)
    np.testing.assert_allclose(found.frequency[there], frequency, rtol=1e-5)
