"""Exact solutions of fields: each solves its equation, and has the values that are published."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from sciml import verify
from sciml.spatial import Boundaries, Dirichlet, Extrapolate, Grid, Neumann, Periodic, Robin

pytestmark = pytest.mark.x64


def residual(solution, equation, *point):
    """The time derivative less the right-hand side at a time and place."""
    t, *x = (jnp.asarray(p) for p in point)
    return jax.jacfwd(solution)(t, *x) - equation(solution)(t, *x)


def heat(u):
    return lambda t, *x: 0.3 * verify.laplacian_of(u)(t, *x)


def drift(u):
    velocity = jnp.array([0.5, -1.0])

    def rate(t, *x):
        spread = sum(d * jax.jacfwd(jax.jacfwd(u, 1 + i), 1 + i)(t, *x) for i, d in enumerate((0.3, 0.7)))
        return spread - velocity @ verify.gradient_of(u)(t, *x)

    return rate


def burgers(u):
    return lambda t, x: 0.1 * verify.laplacian_of(u)(t, x) - u(t, x) * jax.jacfwd(u, 1)(t, x)


def waves(u):
    def rate(t, *x):
        return jnp.stack([u(t, *x)[1], 4.0 * verify.laplacian_of(u)(t, *x)[0]])

    return rate


def bump(x):
    return jnp.exp(-(x**2)) * (1 + 0.5 * jnp.sin(3 * x))


def even_bump(r):
    return jnp.exp(-(r**2)) * (1 + r**2)


SOLUTIONS = [
    ("heat kernel", lambda t, x, y: verify.reference("heat_kernel", (x, y), t, 0.3), heat),
    ("drifting kernel", lambda t, x, y: verify.reference("heat_kernel", (x, y), t, (0.3, 0.7), (0.5, -1.0)), drift),
    ("burgers, series", lambda t, x: verify.reference("burgers_series", x, t, 0.1), burgers),
    ("burgers, integral", lambda t, x: verify.reference("burgers_cole_hopf", x, t, 0.1), burgers),
    ("line", lambda t, x: verify.reference("dalembert", x, t, bump, 2.0, impulse=even_bump), waves),
    (
        "space",
        lambda t, x, y, z: verify.reference("spherical_wave", jnp.sqrt(x**2 + y**2 + z**2), t, even_bump, 2.0),
        waves,
    ),
    (
        "invading front",
        lambda t, x: verify.reference("allen_cahn_front", x, t, 0.3),
        lambda u: lambda t, x: 0.09 * verify.laplacian_of(u)(t, x) + u(t, x) - u(t, x) ** 3,
    ),
    (
        "growing front",
        lambda t, x: verify.reference("fisher_kpp_front", x, t, 2.0, 0.7),
        lambda u: lambda t, x: 2.0 * verify.laplacian_of(u)(t, x) + 0.7 * u(t, x) * (1 - u(t, x)),
    ),
]


@pytest.mark.parametrize("solution, equation", [s[1:] for s in SOLUTIONS], ids=[s[0] for s in SOLUTIONS])
def test_solves_its_equation(solution, equation):
    ndim = solution.__code__.co_argcount - 1
    check = jax.jit(lambda *p: residual(solution, equation, *p))
    for seed in range(4):
        t, *x = np.random.default_rng(seed).uniform(0.2, 0.8, 1 + ndim)
        assert np.max(np.abs(check(t, *x))) < 1e-9


BURGERS = {
    (1.0, 0.05): (0.4130702, 0.6090695, 0.4501760),
    (1.0, 0.1): (0.2536376, 0.3715775, 0.2725817),
    (1.0, 0.25): (0.0592178, 0.0845376, 0.0603471),
    (0.1, 0.25): (0.3911215, 0.7000062, 0.7253718),
    (0.1, 0.5): (0.2707901, 0.5027894, 0.5541107),
    (0.1, 1.0): (0.1625649, 0.2919160, 0.2874744),
}


def test_burgers_between_walls_has_the_published_values():
    x = jnp.array([0.25, 0.5, 0.75])
    for (nu, t), values in BURGERS.items():
        series = verify.reference("burgers_series", x, t, nu)
        np.testing.assert_allclose(series, values, rtol=0, atol=5.1e-8)
        np.testing.assert_allclose(series, verify.reference("burgers_cole_hopf", x - 1, t, nu), rtol=1e-9)
    np.testing.assert_allclose(verify.reference("burgers_series", x, 0.0, 0.1), jnp.sin(jnp.pi * x), atol=1e-10)


STEEP = {  # u(0.1), u(0.25), u(0.5), and the slope at 0
    0.25: (-0.7949744, -0.9920816, -0.8031984, -12.7599),
    0.5: (-0.9581596, -0.8473545, -0.5927695, -151.8296),
    0.75: (-0.8003960, -0.6794668, -0.4614133, -119.1671),
    1.0: (-0.6654816, -0.5591963, -0.3761814, -83.9647),
}


def test_steep_burgers_has_the_published_values_and_slopes():
    """The table to its digits, and the steepest slope of all times: 152.00516 at 1.6037 / pi."""
    nu = 0.01 / jnp.pi
    x = jnp.array([0.1, 0.25, 0.5])

    def slope(t):
        return jax.grad(lambda x: verify.reference("burgers_cole_hopf", x, t, nu, points=200))(jnp.zeros(()))

    slopes = jax.jit(jax.vmap(slope))(jnp.array(list(STEEP)))
    for (t, row), at_zero in zip(STEEP.items(), slopes):
        values = verify.reference("burgers_cole_hopf", x, t, nu, points=200)
        np.testing.assert_allclose(values, row[:3], rtol=0, atol=5.1e-8)
        np.testing.assert_allclose(at_zero, row[3], rtol=0, atol=5.1e-5)
    times = jnp.pi**-1 * jnp.linspace(1.59, 1.62, 301)
    over_time = jax.jit(jax.vmap(slope))(times)
    steepest = int(jnp.argmin(over_time))
    np.testing.assert_allclose(over_time[steepest], -152.00516, rtol=0, atol=1e-5)
    np.testing.assert_allclose(times[steepest] * jnp.pi, 1.6037, rtol=0, atol=1e-4)


def test_kernels_hold_one_unit_and_fold():
    grid = Grid((40, 60), (-5.0, -7.0), (5.0, 7.0))
    u = verify.reference("heat_kernel", grid.centers, 0.4, (0.5, 0.8), (1.0, -1.0))
    np.testing.assert_allclose(grid.integrate(u), 1.0, rtol=1e-9)
    np.testing.assert_allclose(grid.integrate(u * grid.centers[0]), 0.4, rtol=1e-9)
    c, t = 2.0, 1.5
    for ndim, shell in ((1, lambda r: 2.0), (2, lambda r: 2 * np.pi * r)):
        # The substitution r = c t sin(a) takes away the singularity of the plane's kernel.
        def total(a, ndim=ndim, shell=shell):
            r = c * t * np.sin(a)
            return (
                float(verify.reference("wave_kernel", jnp.asarray(r), t, c, ndim=ndim)) * shell(r) * c * t * np.cos(a)
            )

        np.testing.assert_allclose(quad(total, 0, np.pi / 2, epsabs=1e-10)[0], t, rtol=1e-7)
    line = verify.reference(
        "dalembert", jnp.array(0.3), 0.7, jnp.zeros_like, c, impulse=lambda s: jnp.tanh(s / 1e-3) / 2
    )
    np.testing.assert_allclose(line[0], verify.reference("wave_kernel", jnp.array(0.3), 0.7, c, ndim=1), rtol=1e-9)
    assert verify.reference("wave_kernel", jnp.array(3.1), t, c) == 0
    with pytest.raises(ValueError, match="`ndim` must be 1 or 2, but is 3"):
        verify.reference("wave_kernel", jnp.ones(2), 1.0, ndim=3)
    with pytest.raises(ValueError, match="`velocity` must be a number or one for each of 2 axes"):
        verify.reference("heat_kernel", grid.centers, 1.0, velocity=(1.0, 2.0, 3.0))


def test_a_spherical_wave_is_smooth_at_its_centre():
    r = jnp.array([0.0, 0.99e-4, 1.01e-4, 1e-2])
    state = verify.reference("spherical_wave", r, 0.7, even_bump)
    assert np.ptp(np.asarray(state[:, :3]), axis=1).max() < 1e-7
    np.testing.assert_allclose(
        verify.reference("spherical_wave", jnp.array([0.0, 0.5]), 0.0, even_bump)[0], [1.0, even_bump(0.5)]
    )


def test_shifts_speeds_and_radii():
    np.testing.assert_allclose(
        verify.reference("kdv_phase_shifts", 9.0, 2.25), [np.log(9) / 3, -np.log(9) / 1.5], rtol=1e-14
    )
    np.testing.assert_allclose(verify.reference("fisher_kpp_speed", jnp.inf, 3.0, 2.0), 2 * 6**0.5, rtol=1e-14)
    scaled = verify.reference("fisher_kpp_speed", 20.0, 3.0, 2.0) / 6**0.5
    np.testing.assert_allclose(scaled, verify.reference("fisher_kpp_speed", 40.0), rtol=1e-12)
    assert verify.reference("allen_cahn_radius", 0.5, 1e6) == 0
    np.testing.assert_allclose(verify.reference("allen_cahn_radius", 0.5, 5.0, 0.1, ndim=3), 0.05**0.5)
    x = jnp.linspace(0.0, 1.0, 11)
    np.testing.assert_allclose(verify.reference("front_position", x, 2 * x, 0.5), 0.25, rtol=1e-12)
    assert jnp.isnan(verify.reference("front_position", x, 2 * x, 3.0))


def test_gray_scott_states_meet_at_the_fold():
    kill = 0.06
    feed = (1 - 8 * kill - (1 - 16 * kill) ** 0.5) / 8  # F = 4 (F + k)^2
    states = verify.reference("gray_scott_steady_states", feed, kill)
    np.testing.assert_allclose(states[1], states[2], atol=1e-6)
    np.testing.assert_allclose(states[1, 0], 0.5, atol=1e-6)


# --- chosen solutions


def chosen(t, x, y):
    return jnp.stack([jnp.sin(t + 2 * x) * y, jnp.cos(x * y) * t])


def test_gradient_and_laplacian_of_functions():
    t, x, y = 0.3, 0.4, 0.7
    expected = [[2 * np.cos(t + 2 * x) * y, -np.sin(x * y) * y * t], [np.sin(t + 2 * x), -np.sin(x * y) * x * t]]
    np.testing.assert_allclose(verify.gradient_of(chosen)(t, x, y), expected, rtol=1e-12)
    expected = [-4 * np.sin(t + 2 * x) * y, -np.cos(x * y) * (x**2 + y**2) * t]
    np.testing.assert_allclose(verify.laplacian_of(chosen)(t, x, y), expected, rtol=1e-12)


@pytest.mark.parametrize("at", ["center", "node"])
def test_conditions_match_a_chosen_field(at):
    """Ghost cells made of them are those of a polynomial, in time and of every component."""

    def field(t, x, y):
        return jnp.stack([t + x**3 - y**2 * x, x * y**3])

    grid = Grid((6, 7), (0.1, -0.2), (0.9, 0.7))
    kinds = {"x-": Dirichlet(), "x+": Robin(2.0, jnp.array([[0.5], [0.3]])), "y-": Neumann(), "y+": Dirichlet()}
    boundary = Boundaries(grid, verify.matching_conditions(grid, field, kinds, at), at)
    inside = jax.vmap(jax.vmap(lambda x, y: field(1.3, x, y), (None, 0), -1), (0, None), -2)
    x, y = (np.ravel(c) for c in boundary.coordinates)
    padded = boundary.pad(inside(jnp.asarray(x), jnp.asarray(y)), 1, accuracy=4, t=1.3)
    wide = [np.concatenate([[c[0] - h], c, [c[-1] + h]]) for c, h in zip((x, y), grid.spacing)]
    np.testing.assert_allclose(padded, inside(*map(jnp.asarray, wide)), atol=1e-12)


def test_conditions_without_values_stay():
    grid = Grid((4, 4))
    found = verify.matching_conditions(grid, lambda t, x, y: x, {"x": Periodic(), "y": Extrapolate()})
    assert isinstance(found["x-"], Periodic) and isinstance(found["y+"], Extrapolate)
    with pytest.raises(ValueError, match=r"weights of `Robin` at x\+ must be numbers"):
        kinds = {"x-": Dirichlet(), "x+": Robin(lambda t, args: t, 1.0), "y": Neumann()}
        verify.matching_conditions(grid, lambda t, x, y: x, kinds)


def test_a_manufactured_problem_of_a_pair(dtype):
    """The state may be a PyTree; the derivative of the solution is the model and its source."""

    def model(t, y, args):
        return {"a": -y["b"], "b": y["a"]}

    def solution(t, x):
        return {"a": jnp.sin(x + t), "b": jnp.exp(-t) * x}

    def equation(u):
        return lambda t, x: {"a": -u(t, x)["b"], "b": u(t, x)["a"]}

    x = Grid(5).centers
    problem = verify.manufactured(model, x, solution, equation, dtype=dtype)
    change = jax.jacfwd(lambda t: problem.solution(t))(jnp.asarray(0.4, dtype))
    rate = problem.model(0.4, problem.solution(0.4), None)
    for a, b in zip(jax.tree.leaves(change), jax.tree.leaves(rate)):
        assert b.dtype == dtype and a.shape == (5,)
        np.testing.assert_allclose(a, b, atol=20 * float(jnp.finfo(dtype).eps))
    assert problem.error(problem.end()) == 0
