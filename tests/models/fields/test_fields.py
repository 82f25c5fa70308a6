"""Models of fields: registered, well behaved under JAX's transforms, and right where an answer is known."""

import inspect

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import models, verify
from sciml.spatial import Dirichlet, Extrapolate, Grid, Neumann, Periodic
from tests.registry_fields import CASES, FLOWS, WAVES, spectral_radius
from tests.registry_models import EVERY as OF_ONE_PLACE

GRID = Grid((8, 6), 0.0, 1.0)
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_every_model_is_registered():
    every = {name: value for name, value in vars(models).items() if inspect.isclass(value)}
    elsewhere = {name for name, value in every.items() if issubclass(value, sciml.AbstractSemilinear)}
    elsewhere |= {name for name, value in every.items() if issubclass(value, sciml.AbstractConservationLaw)}  # own file
    elsewhere |= FLOWS | WAVES
    fields = {case.name for case in (*CASES, *OF_ONE_PLACE)} | {"Darcy", "FokkerPlanck", "KleinGordon"}  # own files
    fields |= {"Acoustic", "Sound", "PointSources", "Ricker", "Sampled"}  # test_acoustic.py
    fields |= {"ReactionNetwork", "Arrhenius"}  # networks/
    assert set(every) - elsewhere == fields
    assert all(type(case.make(Grid((12, 12)), Periodic())).__name__ == case.name for case in CASES)


@each_case
@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.x64)])
def test_dtype_and_members(case, dtype):
    """The state's dtype, whatever the parameters'; members by `vmap` as one by one."""
    model, y = case.make(GRID, Periodic()), case.y0(GRID, dtype)
    field = jax.jit(lambda y: model(0.0, y, None))
    members = jnp.stack([y, 0.9 * y])
    batched = jax.jit(jax.vmap(lambda y: model(0.0, y, None)))(members)
    assert batched.dtype == dtype and batched.shape == members.shape
    scale = 1e-5 if dtype == jnp.float32 else 1e-12
    assert jnp.allclose(batched[1], field(members[1]), atol=scale * float(1 + jnp.abs(batched).max()))
    bound = model.spectral_radius(0.0, y, None)
    assert jnp.shape(bound) == ()


@pytest.mark.x64
@each_case
def test_gradients_by_parameters_boundary_values_and_state(case):
    grid = Grid((5, 7), 0.0, 1.0)
    sides = {"x-": Dirichlet(jnp.linspace(0.2, 0.4, 7)), "x+": Neumann(0.3), "y": Extrapolate()}
    model, y = case.make(grid, sides), case.y0(grid)
    weights = jax.random.normal(jax.random.key(0), y.shape)
    loss = jax.jit(lambda x: jnp.sum(weights * x[0](0.0, x[1], None)) / 100)
    verify.check_gradient(loss, (model, y), rtol=1e-5, atol=1e-6)


@pytest.mark.x64
@each_case
def test_spectral_radius_is_a_bound(case):
    for sides in (Periodic(), Neumann(0.0)):
        model, y = case.make(GRID, sides), case.y0(GRID)
        assert spectral_radius(model, y) <= float(model.spectral_radius(0.0, y, None)) * (1 + 1e-9)


# --- answers that are known


@pytest.mark.x64
@pytest.mark.parametrize("order", [2, 4])
def test_modes_decay_with_the_symbol_of_the_operator(order):
    """Diffusion, advection-diffusion, wave: a mode of the grid is multiplied, to rounding."""
    grid = Grid((12, 10), 0.0, (1.0, 2.0))
    x, y = grid.centers
    k = 2 * np.pi * 2, np.pi * 3
    wave = jnp.cos(k[0] * x + k[1] * y)
    turned = jnp.sin(k[0] * x + k[1] * y)
    model = models.Diffusion(grid, Periodic(), 0.3, order)
    symbol = model.laplacian.symbol(*map(jnp.asarray, k))
    assert jnp.allclose(model(0.0, wave, None), 0.3 * symbol * wave, atol=1e-10)
    carried = models.AdvectionDiffusion(grid, Periodic(), (0.5, -1.0), 0.3, order - 1)
    factor = 0.3 * symbol - carried.upwind.symbol(*map(jnp.asarray, k), velocity=carried.velocity)
    assert jnp.allclose(carried(0.0, wave, None), factor.real * wave - factor.imag * turned, atol=1e-10)
    rate = models.Wave(grid, Periodic(), 2.0, order)(0.0, jnp.stack([wave, 3 * wave]), None)
    assert jnp.allclose(rate, jnp.stack([3 * wave, 4.0 * symbol * wave]), atol=1e-10)


@pytest.mark.x64
def test_burgers_against_cole_and_hopf():
    """Also to the digits of a published table; the viscosity is one the grid resolves."""
    x = jnp.array([0.1, 0.25, 0.5])
    table = {0.25: (-0.7949744, -0.9920816, -0.8031984), 1.0: (-0.6654816, -0.5591963, -0.3761814)}
    for t, values in table.items():
        assert jnp.allclose(
            verify.reference("burgers_cole_hopf", x, t, 0.01 / jnp.pi, points=200), jnp.array(values), atol=1e-7
        )
    grid = Grid(128, -1.0, 1.0)
    (x,) = grid.centers
    model = models.Burgers(grid, Dirichlet(0.0), 0.05, order=5)
    sol = sciml.solve(model, -jnp.sin(jnp.pi * x), t0=0.0, t1=0.5, dt=1e-3, solver=diffrax.Tsit5())
    assert jnp.max(jnp.abs(sol.ys[-1] - verify.reference("burgers_cole_hopf", x, 0.5, 0.05))) < 2e-5


@pytest.mark.x64
def test_the_slope_of_basdevant():
    """152.00516 at t = 1.6037 / pi."""
    slope = jax.grad(lambda x: verify.reference("burgers_cole_hopf", x, 1.6037 / jnp.pi, 0.01 / jnp.pi, points=200))
    assert abs(slope(jnp.zeros(())) + 152.00516) < 1e-5


@pytest.mark.x64
def test_a_front_of_fisher_travels():
    def error(n):
        grid = Grid(n, -30.0, 30.0)
        (x,) = grid.centers
        model = models.FisherKPP(grid, {"x-": Dirichlet(1.0), "x+": Dirichlet(0.0)})
        dt = 1.0 / float(model.spectral_radius(0.0, jnp.ones(n), None))
        sol = sciml.solve(model, verify.reference("fisher_kpp_front", x, 0.0), t0=0.0, t1=2.0, dt=dt)
        return jnp.max(jnp.abs(sol.ys[-1] - verify.reference("fisher_kpp_front", x, 2.0)))

    assert abs(verify.order_in_space(error, (60, 120)).order - 2.0) < 0.1


@pytest.mark.x64
def test_gray_scott_rests_at_its_steady_states():
    grid = Grid((8, 8), 0.0, 0.1)
    model = models.GrayScott(grid, Periodic(), feed=0.04, kill=0.05)
    for state in verify.reference("gray_scott_steady_states", 0.04, 0.05):
        y = jnp.broadcast_to(state[:, None, None], (2, 8, 8))
        assert jnp.max(jnp.abs(model(0.0, y, None))) < 1e-12
    assert jnp.all(jnp.isnan(verify.reference("gray_scott_steady_states", 0.01, 0.1)[1:]))


@pytest.mark.x64
def test_the_energy_of_allen_and_cahn_falls_and_a_wall_rests():
    grid = Grid(64, -1.0, 1.0)
    (x,) = grid.centers
    model = models.AllenCahn(grid, Neumann(0.0), width=0.1)
    y = jax.random.uniform(jax.random.key(0), (64,), minval=-1.0, maxval=1.0)
    sol = sciml.solve(model, y, t0=0.0, t1=3.0, dt=0.02, saveat=jnp.linspace(0.0, 3.0, 20))

    def energy(u):
        slope = jnp.diff(u) / grid.spacing[0]
        return (jnp.sum(0.5 * 0.01 * slope**2) + jnp.sum(0.25 * (1 - u**2) ** 2)) * grid.spacing[0]

    assert bool(jnp.all(jnp.diff(jax.vmap(energy)(sol.ys)) < 1e-12))


@pytest.mark.x64
def test_the_wave_equation_keeps_its_energy_and_total():
    grid = Grid((12, 10))
    model = models.Wave(grid, Neumann(0.0))
    y = jnp.stack([jax.random.normal(jax.random.key(0), grid.shape), jnp.zeros(grid.shape)])
    rate = model(0.0, y, None)
    # d/dt of the energy is w . lap u + w_t . w = 0 with the operator's own quadratic form.
    change = -jnp.vdot(y[0], model.laplacian(rate[0])) + jnp.vdot(y[1], rate[1])
    assert abs(change) < 1e-9
    assert abs(grid.integrate(rate[1])) < 1e-10


@pytest.mark.x64
def test_reactions_at_every_place():
    grid = Grid((4, 5))
    model = models.ReactionDiffusion(models.FitzHughNagumo(), grid, Periodic(), (1.0, 0.0))
    y = jax.random.normal(jax.random.key(0), (2, 4, 5))
    rate = model(0.0, y, None)
    alone = models.FitzHughNagumo()(0.0, y[:, 2, 3], None)
    assert jnp.allclose(rate[1, 2, 3], alone[1])
    assert jnp.allclose(rate[0, 2, 3], alone[0] + model.laplacian(y[0])[2, 3])


def test_a_sweep_over_parameters_and_boundary_values():
    grid = Grid(8)
    model = models.Diffusion(grid, Dirichlet(1.0))

    def at(diffusivity, value):
        where = lambda m: (m.diffusivity, m.laplacian.boundary.sides[0][0].value)  # noqa: E731
        return eqx.tree_at(where, model, (diffusivity, value))(0.0, jnp.zeros(8), None)

    rates = jax.vmap(at)(jnp.array([1.0, 2.0]), jnp.array([1.0, 3.0]))
    assert jnp.allclose(rates[1, 0], 6 * rates[0, 0]) and jnp.allclose(rates[1, -1], 2 * rates[0, -1])


@pytest.mark.parametrize(
    "message, fn",
    [
        ("`velocity` must have shape", lambda: models.Advection(GRID, Periodic(), 1.0)),
        ("`speed` must be", lambda: models.Wave(GRID, Periodic(), jnp.ones(3))),
        ("must be a number or an array", lambda: models.Diffusion(GRID, Periodic(), jnp.ones(3))),
        ("one number for each substance", lambda: models.ReactionDiffusion(models.SIR(), GRID, Periodic(), 1.0)),
        ("the pair \\(u, v\\)", lambda: models.GrayScott(GRID, Periodic())(0.0, jnp.ones((8, 6)), None)),
        ("must end with the axes", lambda: models.FisherKPP(GRID, Periodic())(0.0, jnp.ones((6, 8)), None)),
    ],
)
def test_bad_input(message, fn):
    with pytest.raises(ValueError, match=message):
        fn()
