"""Limit cycles: against exact and published ones, and their branches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import bifurcation
from sciml.bifurcation import Kind

OMEGA, SHEAR = 1.3, 0.4


def rounds(t, y, args):
    """The amplitude grows by r (p + r^2 - r^4), the angle by 1.3 + 0.4 r^2: cycles and their fold are exact."""
    p, omega = args["p"], args["omega"]
    x, z = y
    square = x**2 + z**2
    grows, turns = p + square - square**2, omega + SHEAR * square
    return jnp.stack([grows * x - turns * z, turns * x + grows * z])


def twisted(t, y, p):
    """A cycle of radius 1 with a change of its surroundings that returns with the opposite sign, -exp(2 pi p)."""
    x, z, u, v = y
    grows = 1 - x**2 - z**2
    square = u**2 + v**2
    mean, half = (p - 1) / 2 - square, (p + 1) / 2
    return jnp.stack(
        [
            grows * x - z,
            x + grows * z,
            mean * u + half * (x * u + z * v) - v / 2,
            mean * v + half * (z * u - x * v) + u / 2,
        ]
    )


def wound(t, y, p):
    """A cycle of radius 1 beside an oscillation of frequency 0.3, which begins at p = 0: a torus."""
    x, z, u, v = y
    grows, more = 1 - x**2 - z**2, p - u**2 - v**2
    return jnp.stack([grows * x - z, x + grows * z, more * u - 0.3 * v, 0.3 * u + more * v])


def forked(t, y, p):
    """A cycle of radius 1 beside a pitchfork at p = 0."""
    x, z, u = y
    grows = 1 - x**2 - z**2
    return jnp.stack([grows * x - z, x + grows * z, p * u - u**3])


def roessler(t, y, c):
    x, v, z = y
    return jnp.stack([-v - z, x + 0.2 * v, 0.2 + z * (x - c)])


def cycle_of_rounds(omega, p=0.5, **options):
    omega = jnp.asarray(omega)
    args = {"p": jnp.asarray(p, omega.dtype), "omega": omega}
    radius = jnp.sqrt((1 + jnp.sqrt(1 + 4 * p)) / 2)
    y0 = jnp.stack([radius, 0 * radius]).astype(omega.dtype)
    return bifurcation.limit_cycle(rounds, y0, period=3.2, args=args, throw=False, intervals=20, **options)


def used(branch):
    return np.isfinite(np.asarray(branch.parameter))


def test_an_exact_cycle(dtype):
    omega = jnp.asarray(OMEGA, dtype)
    cycle = cycle_of_rounds(omega)
    square = (1 + 3**0.5) / 2
    period = 2 * np.pi / (OMEGA + SHEAR * square)
    close = 1e-6 if dtype == np.float64 else 1e-5
    assert cycle.status == 0 and cycle.ys.dtype == dtype and cycle.ts.shape == (21,)
    np.testing.assert_allclose(cycle.period, period, rtol=close)
    np.testing.assert_allclose(jnp.sum(cycle.ys**2, axis=1), square, rtol=close)
    np.testing.assert_array_equal(cycle.ys[-1], cycle.ys[0])
    # the amplitude changes by 2 r^2 (1 - 2 r^2)
    np.testing.assert_allclose(cycle.multipliers[1].real, np.exp(2 * square * (1 - 2 * square) * period), atol=close)
    np.testing.assert_allclose(cycle.multipliers[0], 1, rtol=10 * close)
    assert cycle.stable

    def period_of(omega):
        return cycle_of_rounds(omega).period

    slope = -period / (OMEGA + SHEAR * square)
    np.testing.assert_allclose(jax.grad(period_of)(omega), slope, rtol=10 * close)
    np.testing.assert_allclose(jax.jvp(period_of, (omega,), (jnp.ones_like(omega),))[1], slope, rtol=10 * close)


def test_members_have_cycles_of_their_own():
    omega = jnp.asarray([1.2, 1.3, 1.4])
    square = (1 + 3**0.5) / 2
    slopes = jax.jit(jax.vmap(jax.grad(lambda omega: cycle_of_rounds(omega).period)))(omega)
    np.testing.assert_allclose(slopes, -2 * np.pi / (omega + SHEAR * square) ** 2, rtol=1e-4)


def test_no_cycle_is_found_where_there_is_none():
    found = bifurcation.limit_cycle(lambda t, y, args: -y, jnp.array([1.0, 0.5]), period=3.0, throw=False, intervals=20)
    assert found.status == sciml.Status.diverged and np.isnan(found.period) and not found.stable


@pytest.mark.x64
@pytest.mark.parametrize(
    ("mu", "guess", "period", "intervals", "close"),
    [(1.0, 6.5, 6.6632868593, 80, 1e-8), (10.0, 18.0, 19.0783695669, 160, 2e-7)],
)
def test_van_der_pol(mu, guess, period, intervals, close):
    model = sciml.models.VanDerPol(mu=mu)
    cycle = bifurcation.limit_cycle(model, jnp.array([2.0, 0.0]), period=guess, intervals=intervals)
    np.testing.assert_allclose(cycle.period, period, atol=close)
    coarse = bifurcation.limit_cycle(model, jnp.array([2.0, 0.0]), period=guess, intervals=intervals // 2, throw=False)
    assert 30 < (coarse.period - period) / (cycle.period - period) < 150  # order six
    assert (np.abs(coarse.period - period) < coarse.error * period).all()


def branch_of_rounds(omega, **options):
    omega = jnp.asarray(omega)
    args = {"p": jnp.asarray(0.0, omega.dtype), "omega": omega}
    options = {"where": lambda args: args["p"], "args": args, "throw": False} | options
    point = bifurcation.locate(rounds, jnp.zeros(2, omega.dtype), kind="hopf", **options)
    return bifurcation.continuation(rounds, point, bounds=(-1.0, 1.0), points=60, intervals=20, max_step=0.2, **options)


def test_cycles_from_a_hopf_point_and_their_fold(dtype):
    omega = jnp.asarray(OMEGA, dtype)
    branch = branch_of_rounds(omega)
    there = used(branch)
    np.testing.assert_array_equal(branch.status, 0)
    p, square = branch.parameter[there], jnp.max(jnp.sum(branch.ys.ys**2, axis=-1), axis=1)[there]
    close = 1e-6 if dtype == np.float64 else 1e-4
    assert p.dtype == dtype and p[-1] == 1 and len(p) > 5
    np.testing.assert_allclose(p, square**2 - square, atol=close)
    np.testing.assert_allclose(branch.ys.period[there], 2 * np.pi / (OMEGA + SHEAR * square), rtol=close)
    np.testing.assert_array_equal(branch.special.kind, [Kind.fold] + 7 * [Kind.none])
    np.testing.assert_allclose(branch.special.parameter[0], -0.25, atol=close)
    np.testing.assert_allclose(branch.special.y.period[0], 2 * np.pi / (OMEGA + SHEAR / 2), rtol=close)
    np.testing.assert_array_equal(branch.stable[there][1:], square[1:] > 0.5)
    assert not branch.closed and np.isnan(branch.ys.error[~there]).all() and np.nanmax(branch.ys.error) < 1e-3

    slope = jax.grad(lambda omega: branch_of_rounds(omega).special.y.period[0])(omega)
    np.testing.assert_allclose(slope, -2 * np.pi / (OMEGA + SHEAR / 2) ** 2, rtol=10 * close)


@pytest.mark.x64
def test_period_doubling():
    y0 = jnp.array([1.0, 0.0, 0.0, 0.0])
    options = {"args": -0.3, "bounds": (-0.5, 0.5), "throw": False, "max_step": 0.2, "points": 60}
    cycle = bifurcation.limit_cycle(twisted, y0, period=6.0, args=-0.3, intervals=20)
    branch = bifurcation.continuation(twisted, cycle, **options)
    np.testing.assert_array_equal(branch.special.kind[:2], [Kind.period_doubling, Kind.none])
    np.testing.assert_allclose(branch.special.parameter[0], 0, atol=1e-6)
    point = jax.tree.map(lambda x: x[0], branch.special)
    doubled = bifurcation.continuation(twisted, point, **options)
    there = used(doubled)
    p, u = doubled.parameter[there], jnp.linalg.norm(doubled.ys.ys[..., 2:], axis=-1)[there]
    assert p[-1] == 0.5 and doubled.stable[there][1:].all()
    np.testing.assert_allclose(u, jnp.broadcast_to(jnp.sqrt(jnp.maximum(p, 0))[:, None], u.shape), atol=1e-5)
    np.testing.assert_allclose(doubled.ys.period[there], 4 * np.pi, rtol=1e-6)


@pytest.mark.x64
def test_period_doublings_of_roessler():
    """The places were computed by shooting with DOP853 at 1e-13, as roots of det(M + 1)."""
    options = {"args": 2.5, "bounds": (2.3, 4.5), "throw": False}
    cycle = bifurcation.limit_cycle(roessler, jnp.array([1.2, -3.0, 0.3]), period=5.8, args=2.5, throw=False)
    first = bifurcation.continuation(roessler, cycle, **options).special
    assert first.kind[0] == Kind.period_doubling
    second = bifurcation.continuation(roessler, jax.tree.map(lambda x: x[0], first), **options).special
    assert second.kind[0] == Kind.period_doubling
    np.testing.assert_allclose([first.parameter[0], second.parameter[0]], [2.8324450279, 3.8373581684], atol=1e-6)


@pytest.mark.x64
@pytest.mark.parametrize(("model", "kind"), [(wound, Kind.torus), (forked, Kind.branch_point)])
def test_tori_and_branch_points(model, kind):
    size = 4 if kind is Kind.torus else 3
    options = {"args": -0.3, "bounds": (-0.5, 0.5), "throw": False, "max_step": 0.2, "points": 60}
    cycle = bifurcation.limit_cycle(model, jnp.zeros(size).at[0].set(1.0), period=6.0, args=-0.3, intervals=20)
    branch = bifurcation.continuation(model, cycle, **options)
    np.testing.assert_array_equal(branch.special.kind[:2], [kind, Kind.none])
    np.testing.assert_allclose(branch.special.parameter[0], 0, atol=1e-6)
    if kind is Kind.torus:
        np.testing.assert_allclose(branch.special.frequency[0], 0.3, rtol=1e-6)
    else:
        crossing = bifurcation.continuation(model, jax.tree.map(lambda x: x[0], branch.special), **options)
        there = used(crossing)
        np.testing.assert_allclose(crossing.ys.ys[there, 0, 2] ** 2, crossing.parameter[there], atol=1e-5)
        assert there.sum() > 5


def test_arguments_are_checked():
    y0 = jnp.array([1.0, 0.0])
    with pytest.raises(ValueError, match="`period` must be positive"):
        bifurcation.limit_cycle(rounds, y0, period=-1.0)
    with pytest.raises(ValueError, match="at least 8"):
        bifurcation.limit_cycle(rounds, y0, period=1.0, intervals=4)
    with pytest.raises(ValueError, match="`rtol` must be positive"):
        bifurcation.limit_cycle(rounds, y0, period=1.0, rtol=0.0)
    with pytest.raises(ValueError, match="must not depend on time. Wrap .* in `bifurcation.Forced`"):
        bifurcation.limit_cycle(lambda t, y, args: y * jnp.sin(t), y0, period=1.0)
    with pytest.raises(TypeError, match="intervals="):
        bifurcation.limit_cycle(rounds, y0, period=1.0, ntst=20)
