"""Models of fields against what is known of their solutions, and each model's rate against its equation."""

from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

import sciml
from sciml import models, verify
from sciml.models import KortewegDeVries, KuramotoSivashinsky
from sciml.solvers import RKC2, VelocityVerlet
from sciml.spatial import Dirichlet, Grid, Laplacian, Neumann, Periodic, Robin
from sciml.verify import gradient_of, laplacian_of
from tests.registry_fields import velocity as _velocity
from tests.registry_operators import tensor as tensor_at

pytestmark = pytest.mark.x64


# --- the rate of a model at a chosen field is that of its equation, with the order of its differences


class Equation(NamedTuple):
    """A model on a grid, and its equation with exact derivatives; adding a model is adding a line."""

    name: str
    make: Any
    exact: Any
    components: int | None = None
    order: int = 4


def scalar(t, x, y):
    return 0.5 + 0.2 * jnp.sin(2 * x + t) * jnp.cos(3 * y) + 0.1 * jnp.exp(x * y)


def pair(t, x, y):
    return jnp.stack([scalar(t, x, y), 0.6 + 0.3 * jnp.cos(3 * x - y) * jnp.exp(-t)])


def flow(x, y):
    return jnp.stack([jnp.sin(2 * jnp.pi * y) + 0.3, jnp.cos(2 * jnp.pi * x) - 0.2])


def carried(u, v, at):
    return jnp.sum(v * gradient_of(u)(*at))


def spread(u, tensor, at):
    """The divergence of a tensor times the gradient."""

    def flux(t, x, y):
        return tensor(x, y) @ gradient_of(u)(t, x, y)

    return gradient_of(flux)(*at).trace()


def gray_scott(u, at):
    a, b = u(*at)
    diffusion = jnp.array([2e-5, 1e-5]) * laplacian_of(u)(*at)
    return diffusion + jnp.stack([-a * b * b + 0.03 * (1 - a), a * b * b - 0.092 * b])


def brusselator(u, at):
    a, b = u(*at)
    reaction = jnp.stack([1 - 4 * a + a * a * b, 3 * a - a * a * b])
    return jnp.array([0.1, 0.2]) * laplacian_of(u)(*at) + reaction


def uneven(x, y):
    return 1.0 + 0.5 * x * y


EQUATIONS = (
    Equation(
        "Advection",
        lambda grid, sides: models.Advection(grid, sides, _velocity(grid), 3),
        lambda u, at: -carried(u, flow(*at[1:]), at),
        order=3,
    ),
    Equation(
        "AdvectionDiffusion",
        lambda grid, sides: models.AdvectionDiffusion(grid, sides, jnp.array([1.0, -0.5]), 0.1, 3),
        lambda u, at: 0.1 * laplacian_of(u)(*at) - carried(u, jnp.array([1.0, -0.5]), at),
        order=3,
    ),
    Equation(
        "AllenCahn",
        lambda grid, sides: models.AllenCahn(grid, sides, 0.5, 4),
        lambda u, at: 0.25 * laplacian_of(u)(*at) + u(*at) - u(*at) ** 3,
    ),
    Equation(
        "Burgers",
        lambda grid, sides: models.Burgers(grid, sides, 0.1, 3),
        lambda u, at: 0.1 * laplacian_of(u)(*at) - jnp.tensordot(u(*at), gradient_of(u)(*at), 1),
        2,
        3,
    ),
    Equation(
        "Diffusion", lambda grid, sides: models.Diffusion(grid, sides, 0.3, 4), lambda u, at: 0.3 * laplacian_of(u)(*at)
    ),
    Equation(
        "Diffusion, uneven",
        lambda grid, sides: models.Diffusion(grid, sides, uneven(*grid.centers), 4),
        lambda u, at: spread(u, lambda x, y: uneven(x, y) * jnp.eye(2), at),
    ),
    Equation(
        "FisherKPP",
        lambda grid, sides: models.FisherKPP(grid, sides, 0.5, 2.0, 4),
        lambda u, at: 0.5 * laplacian_of(u)(*at) + 2.0 * u(*at) * (1 - u(*at)),
    ),
    Equation(
        "GrayScott",
        lambda grid, sides: models.GrayScott(grid, sides, 0.03, 0.062, order=4),
        lambda u, at: gray_scott(u, at),
        2,
    ),
    Equation(
        "ReactionDiffusion",
        lambda grid, sides: models.ReactionDiffusion(models.Brusselator(), grid, sides, (0.1, 0.2), 4),
        lambda u, at: brusselator(u, at),
        2,
    ),
    Equation(
        "Wave",
        lambda grid, sides: models.Wave(grid, sides, 2.0, 4),
        lambda u, at: jnp.stack([u(*at)[1], 4.0 * laplacian_of(u)(*at)[0]]),
        2,
    ),
)
KINDS = {"x-": Dirichlet(), "x+": Neumann(), "y-": Robin(2.0, 0.5), "y+": Dirichlet()}


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda case: case.name)
def test_the_rate_is_that_of_the_equation(case):
    field = pair if case.components else scalar
    # Of waves the conditions are those of the displacement.
    at_walls = (lambda t, x, y: field(t, x, y)[0]) if case.name == "Wave" else field

    def error(n):
        grid = Grid((n, n + 4))
        model = case.make(grid, verify.matching_conditions(grid, at_walls, KINDS))
        problem = verify.manufactured(model, grid.centers, field, lambda u: lambda *at: case.exact(u, at))

        @jax.jit
        def defect():
            t = jnp.asarray(0.4)
            change = jax.jvp(problem.solution, (t,), (jnp.ones_like(t),))[1]
            return jnp.max(jnp.abs(problem.model(t, problem.solution(t), None) - change))

        return defect()

    found = verify.order_in_space(error, (64, 96)).order
    assert found > case.order - 0.3, found  # one-sided differences at walls show their order late


@pytest.mark.parametrize("order", [2, 4])
def test_a_manufactured_solution_is_found_with_the_order_in_space(order):
    """Through `solve`, with walls whose values follow the solution in time."""

    def chosen(t, x):
        return jnp.cos(3 * t) * jnp.sin(3 * x + 0.4) + x

    def error(n):
        grid = Grid(n)
        walls = verify.matching_conditions(grid, chosen, {"x-": Robin(1.0, 0.3), "x+": Neumann()})
        model = models.AllenCahn(grid, walls, 0.5, order)
        problem = verify.manufactured(
            model,
            grid.centers,
            chosen,
            lambda u: lambda t, x: 0.25 * laplacian_of(u)(t, x) + u(t, x) - u(t, x) ** 3,
            t1=0.2,
        )
        dt = 1.0 / float(model.spectral_radius(0.0, problem.y0, None))
        sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=0.2, dt=dt, solver=diffrax.Tsit5())
        return problem.error(sol.ys[-1])

    assert abs(verify.order_in_space(error, (32, 64)).order - order) < 0.1


def test_a_manufactured_solution_of_the_anisotropic_diffusion():
    def chosen(t, x, y):
        return jnp.sin(2 * x + 0.3) * jnp.cos(2 * y) * jnp.exp(-t)

    def error(n):
        grid = Grid((n, n))
        tensor = jax.vmap(jax.vmap(tensor_at, (None, 0), -1), (0, None), -2)(*map(jnp.ravel, grid.centers))
        model = models.Diffusion(
            grid, verify.matching_conditions(grid, chosen, {"x": Dirichlet(), "y": Neumann()}), tensor
        )
        problem = verify.manufactured(
            model, grid.centers, chosen, lambda u: lambda *at: spread(u, tensor_at, at), t1=0.2
        )
        sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=0.2, dt=0.01, solver=RKC2(spectral_radius=40.0 * n**2))
        return problem.error(sol.ys[-1])

    assert verify.order_in_space(error, (12, 24)).order > 1.9


# --- published and exact solutions


def test_burgers_between_walls():
    grid = Grid(64)
    (x,) = grid.centers
    sol = sciml.solve(
        models.Burgers(grid, Dirichlet(0.0), 0.1, order=5),
        jnp.sin(jnp.pi * x),
        t0=0.0,
        t1=0.5,
        dt=5e-4,
        saveat=jnp.array([0.25, 0.5]),
    )
    for t, u in zip((0.25, 0.5), sol.ys):
        assert jnp.max(jnp.abs(u - verify.reference("burgers_series", x, t, 0.1))) < 1e-6


def test_the_slope_of_basdevant_on_a_grid():
    """The steepest slope, 152.00516, of a solve with a viscosity of 0.01 / pi."""
    t1, n = 1.6037 / jnp.pi, 2048
    grid = Grid(n, -1.0, 1.0)
    (x,) = grid.centers
    model = models.Burgers(grid, Dirichlet(0.0), 0.01 / jnp.pi, order=7)
    u = sciml.solve(model, -jnp.sin(jnp.pi * x), t0=0.0, t1=t1, dt=t1 / 6000).ys[-1]
    around = u[n // 2 - 4 : n // 2 + 4]  # an odd function about 0: its slope there by eight points
    weights = np.linalg.solve(np.vander(np.arange(8) - 3.5, increasing=True).T, np.eye(8)[1])
    assert abs(float(weights @ around) / grid.spacing[0] + 152.00516) < 0.02


@pytest.mark.parametrize("name", ["diffusion", "advection-diffusion"])
def test_a_pulse_spreads_as_the_heat_kernel(name):
    """From the kernel at one time to the kernel at another; anisotropic, or carried by a flow."""

    def error(n):
        grid = Grid((n, n), -4.0, 4.0)
        if name == "diffusion":
            rates, v = jnp.array([0.3, 0.6]), jnp.zeros(2)
            model = models.Diffusion(grid, Periodic(), jnp.diag(rates))
        else:
            rates, v = jnp.array([0.4, 0.4]), jnp.array([1.0, -0.7])
            model = models.AdvectionDiffusion(grid, Periodic(), v, 0.4, 3)
        start, end = (verify.reference("heat_kernel", grid.centers, t, rates, v) for t in (0.2, 0.4))
        sol = sciml.solve(model, start, t0=0.2, t1=0.4, dt=0.004)
        assert abs(grid.integrate(sol.ys[-1]) - grid.integrate(start)) < 1e-12
        return jnp.max(jnp.abs(sol.ys[-1] - end))

    nominal = 2.0 if name == "diffusion" else 3.0
    found = verify.order_in_space(error, (64, 96)).order
    assert found > nominal - 0.2, found  # of the flow; diffusion has one more


def test_waves_on_a_line_after_dalembert():
    """Between a fixed and a free end, where the wave goes on as an odd and an even function."""

    def displacement(s):
        s = (s + 1.0) % 4.0 - 1.0  # odd about 0, even about 1
        return jnp.sin(jnp.pi / 2 * s) ** 3

    grid = Grid(64)
    (x,) = grid.centers
    model = models.Wave(grid, {"x-": Dirichlet(0.0), "x+": Neumann(0.0)}, speed=2.0, order=6)
    start = verify.reference("dalembert", x, 0.0, displacement, 2.0)
    end = verify.reference("dalembert", x, 1.3, displacement, 2.0)
    sol = sciml.solve(model, start, t0=0.0, t1=1.3, dt=2e-3)
    assert jnp.max(jnp.abs(sol.ys[-1] - end)) < 1e-5 * jnp.max(jnp.abs(end))


def test_waves_in_a_plane_leave_a_wake():
    """At the place of a struck spot, after the front has gone: the kernel's integral over the spot."""
    grid = Grid((48, 48), -3.0, 3.0)
    x, y = grid.centers
    size, speed, t1 = 0.3, 1.5, 1.0
    spot = lambda r: np.exp(-((r / size) ** 2))  # noqa: E731
    start = jnp.stack([0 * x * y, jnp.exp(-(x**2 + y**2) / size**2)])
    model = models.Wave(grid, Periodic(), speed, order=6)
    u = sciml.solve(model, start, t0=0.0, t1=t1, dt=0.01).ys[-1, 0]
    near = [float(u[i, i]) for i in (22, 23, 24, 25)]  # the middle lies between cells: cubic interpolation
    middle = (-near[0] + 9 * near[1] + 9 * near[2] - near[3]) / 16
    kernel = lambda r: float(verify.reference("wave_kernel", jnp.asarray(r), t1, speed)) * 2 * np.pi * r  # noqa: E731
    reach = speed * t1
    expected = quad(lambda a: spot(reach * np.sin(a)) * kernel(reach * np.sin(a)) * reach * np.cos(a), 0, np.pi / 2)[0]
    assert abs(middle - expected) < 2e-4 * abs(expected) + 1e-6


def test_waves_in_space_are_spherical():
    grid = Grid((36, 36, 36), -3.0, 3.0)
    r = jnp.sqrt(sum(c**2 for c in grid.centers))
    profile = lambda s: jnp.exp(-(s**2) / 0.5)  # noqa: E731
    start, end = (verify.reference("spherical_wave", r, t, profile) for t in (0.0, 1.0))
    sol = sciml.solve(models.Wave(grid, Periodic(), order=6), start, t0=0.0, t1=1.0, dt=0.02)
    assert jnp.max(jnp.abs(sol.ys[-1] - end)) < 2e-3


class Membrane(sciml.AbstractSecondOrder):
    laplacian: Laplacian
    speed: float

    def acceleration(self, t, q, args):
        return self.speed**2 * self.laplacian(q)


@pytest.mark.parametrize("order", [2, 6])
def test_leapfrog_has_its_dispersion_relation_to_rounding(order):
    grid, speed, dt = Grid((12, 10), 0.0, (1.0, 2.0)), 1.5, 0.03
    laplacian = Laplacian(grid, Periodic(), order)
    k = 2 * np.pi * 2 / 1.0, 2 * np.pi * 3 / 2.0
    x, y = grid.centers
    wave = jnp.cos(k[0] * x + k[1] * y)
    omega = verify.reference("leapfrog_frequency", speed**2 * laplacian.symbol(*map(jnp.asarray, k)), dt)
    if order == 2:
        right = sum((speed * dt / h) ** 2 * np.sin(q * h / 2) ** 2 for q, h in zip(k, grid.spacing))
        np.testing.assert_allclose(np.sin(omega * dt / 2) ** 2, right, rtol=1e-13)
    times = dt * np.arange(0, 201, 20)
    sol = sciml.solve(
        Membrane(laplacian, speed), (wave, 0 * wave), t0=0.0, t1=200 * dt, dt=dt, solver=VelocityVerlet(), saveat=times
    )
    expected = jnp.cos(omega * jnp.asarray(times))[:, None, None] * wave[None]
    assert jnp.max(jnp.abs(sol.ys[0] - expected)) < 1e-11
    assert jnp.isnan(verify.reference("leapfrog_frequency", jnp.array(-4.1 / dt**2), dt))


def test_the_invading_front_of_allen_and_cahn():
    def error(n):
        grid = Grid(n, -2.0, 3.0)
        (x,) = grid.centers
        model = models.AllenCahn(grid, {"x-": Dirichlet(1.0), "x+": Dirichlet(0.0)}, 0.1)
        start, end = (verify.reference("allen_cahn_front", x, t, 0.1) for t in (0.0, 5.0))
        dt = 1.0 / float(model.spectral_radius(0.0, start, None))
        return jnp.max(jnp.abs(sciml.solve(model, start, t0=0.0, t1=5.0, dt=dt).ys[-1] - end))

    assert abs(verify.order_in_space(error, (200, 400)).order - 2) < 0.1


def test_a_disc_shrinks_by_its_curvature():
    grid, width = Grid((96, 96), -1.0, 1.0), 0.04
    r = jnp.sqrt(sum(c**2 for c in grid.centers))
    start = jnp.tanh((0.7 - r) / (2**0.5 * width))
    times = jnp.array([0.0, 20.0, 40.0, 60.0])
    sol = sciml.solve(models.AllenCahn(grid, Neumann(0.0), width), start, t0=0.0, t1=60.0, dt=0.1, saveat=times)
    area = jax.vmap(lambda u: grid.integrate((u + 1) / 2))(sol.ys)
    radius = jnp.sqrt(area / jnp.pi)
    expected = jnp.stack([verify.reference("allen_cahn_radius", radius[0], t, width) for t in times])
    np.testing.assert_allclose(radius, expected, rtol=5e-3)


def test_the_speeds_of_fronts_of_fisher():
    """The exact front's 5 / sqrt(6) to three digits; a step's front approaches 2 from below."""
    grid = Grid(480, 0.0, 120.0)
    (x,) = grid.centers
    model = models.FisherKPP(grid, {"x-": Dirichlet(1.0), "x+": Dirichlet(0.0)}, order=4)
    dt = 1.0 / float(model.spectral_radius(0.0, 0 * x, None))

    def speeds(start, times):
        ys = sciml.solve(model, start, t0=0.0, t1=times[-1], dt=dt, saveat=times, solver=diffrax.Tsit5()).ys
        return np.diff(jax.vmap(lambda u: verify.reference("front_position", x, u))(ys)) / np.diff(times)

    exact = speeds(verify.reference("fisher_kpp_front", x - 10, 0.0), np.linspace(10.0, 30.0, 3))
    np.testing.assert_allclose(exact, 5 / 6**0.5, rtol=5e-4)
    pulled = speeds(jnp.where(x < 10, 1.0, 0.0), np.array([30.0, 40.0]))
    expected = float(verify.reference("fisher_kpp_speed", 35.0))
    # the next terms are of the order of 1 / t**2
    assert abs(pulled[0] - expected) < 20 / 35**2 and pulled[0] < 1.98, (pulled, expected)


def test_gray_scott_returns_to_its_stable_state():
    """Of the three steady states (1, 0) is always stable; of the others only the one with the smaller u may be."""
    grid = Grid((6, 6), 0.0, 0.05)
    model = models.GrayScott(grid, Periodic(), feed=0.05, kill=0.05)
    states = verify.reference("gray_scott_steady_states", 0.05, 0.05)
    noise = 1e-3 * jax.random.normal(jax.random.key(0), (2, 6, 6))
    growth = []
    for state in states:
        y = jnp.broadcast_to(state[:, None, None], (2, 6, 6))
        jacobian = jax.jacfwd(lambda y: model(0.0, y, None))(y).reshape(72, 72)
        growth.append(float(np.max(np.linalg.eigvals(np.asarray(jacobian)).real)))
    assert growth[0] < 0 and growth[2] > 0
    start = states[0][:, None, None] + noise
    end = sciml.solve(model, start, t0=0.0, t1=400.0, dt=1.0).ys[-1]
    np.testing.assert_allclose(end, jnp.broadcast_to(states[0][:, None, None], end.shape), atol=1e-6)
    away = sciml.solve(model, states[2][:, None, None] + noise, t0=0.0, t1=400.0, dt=1.0).ys[-1]
    assert jnp.max(jnp.abs(away - states[2][:, None, None])) > 0.1


def test_two_solitons_of_a_solve_are_shifted():
    """Their places long after, between the points of the grid, beside those that each would have reached alone."""
    problem = verify.problem("kdv_two_solitons", t1=2.2)
    model = problem.model
    assert isinstance(model, KortewegDeVries)
    u = sciml.solve(model, problem.y0, t0=0.0, t1=2.2, dt=2.2 / 2400).ys[-1]
    modes, k = np.fft.rfft(u) / 256, 2 * np.pi * np.fft.rfftfreq(256, 40 / 256)

    def crest(near):
        """Newton's method for the place where the trigonometric interpolant is level."""
        for _ in range(20):
            wave = 2 * modes * np.exp(1j * k * (near + 20))
            near -= np.sum((1j * k * wave).real) / np.sum((-(k**2) * wave).real)
        return near

    shifts = verify.reference("kdv_phase_shifts", 9.0, 2.25)
    free = (
        np.array([-7.0, -2.0 - shifts[1]]) + np.array([9.0, 2.25]) * 2.2
    )  # the slower one starts in its shifted place
    found = [crest(place + float(shift)) for place, shift in zip(free, shifts)]
    np.testing.assert_allclose(found - free, shifts, atol=2e-3)


def test_the_product_of_kuramoto_and_sivashinsky_makes_no_energy():
    """The rate of the energy is that of growth and damping alone, to rounding."""
    model = KuramotoSivashinsky(points=96, length=22.0, viscosity=0.9)
    rough = jax.random.normal(jax.random.key(0), (96,))
    modes = jnp.where(jnp.arange(49) < 32, jnp.fft.rfft(rough), 0)  # those that the product keeps
    u = jnp.fft.irfft(modes, n=96)
    change = jnp.mean(u * model(0.0, u, None))
    produced = verify.reference("kuramoto_sivashinsky_production", u, 22.0, 0.9)
    assert abs(change - produced) < 1e-12 * abs(produced)
    assert abs(jnp.mean(u * (model(0.0, u, None) + model(0.0, -u, None)) / 2)) < 1e-12 * abs(produced)
    k = np.linspace(0.0, 1.5, 1501)
    assert abs(k[np.argmax(k**2 - k**4)] - 0.5**0.5) < 1e-3  # the fastest wave grows by 1/4
    length = 2 * np.pi * 2**0.5
    wave = jnp.sqrt(2.0) * jnp.sin(2 * jnp.pi * jnp.arange(32.0) / 32)
    np.testing.assert_allclose(verify.reference("kuramoto_sivashinsky_production", wave, length), 0.25, rtol=1e-12)
