"""Light, sound and what shakes solids by leapfrog: Yee's scheme and Virieux's, their losses, layers and media."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.models import Acoustic, Debye, Drude, ElasticWave, FieldSource, Lorentz, Maxwell, Ricker
from sciml.solvers import Leapfrog
from sciml.spatial import Grid
from tests import registry_pdes
from tests.gradients import check_gradient

CASES = {case.name: case for case in (registry_pdes.sound(), registry_pdes.light(), registry_pdes.shakes())}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def apart(a, b):
    """The largest difference of two states, over their size."""
    pairs = list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    return max(float(jnp.max(jnp.abs(x - y))) for x, y in pairs) / max(float(jnp.max(jnp.abs(x))) for x, _ in pairs)


def last(tree):
    return jax.tree.map(lambda x: x[-1], tree)


@pytest.mark.x64
@each_case
def test_moves_begin_at_the_rates_and_can_be_undone(case):
    """With layers, losses, media and sources: the vector field is the start of both moves, which are symmetric."""
    model, y = case.make(), case.state(float)
    assert apart(model(0.1, y, None), sciml.AbstractPartitioned.__call__(model, 0.1, y, None)) < 1e-14
    for drive, move in ((model.first_drive, model.move_first), (model.second_drive, model.move_second)):
        moved = move(0.02, y, drive(0.1, y, None), None)
        assert apart(drive(0.1, y, None), drive(0.1, moved, None)) < 1e-14  # which the other half makes alone
        assert apart(y, moved) > 1e-3
        assert apart(y, move(-0.02, moved, drive(0.1, y, None), None)) < 1e-13


@pytest.mark.x64
@each_case
def test_second_order_in_time_with_layers_losses_media_and_sources(case):
    model, y = case.make(), case.state(float)
    t1 = 4 / float(model.spectral_radius(0.0, y, None))
    exact = sciml.solve(model, y, t0=0.0, t1=t1, rtol=1e-10, atol=1e-10, solver=diffrax.Dopri8()).ys
    errors = []
    for steps in (40, 80):
        sol = sciml.solve(model, y, t0=0.0, t1=t1, dt=t1 / steps)
        assert sol.solver == "Leapfrog" and int(sol.stats.evaluations) <= steps + 1
        errors.append(apart(exact, sol.ys))
    assert abs(np.log2(errors[0] / errors[1]) - 2) < 0.05 and errors[1] < 1e-3


@pytest.mark.x64
def test_waves_of_the_grid_have_the_frequency_of_yee():
    r"""$\sin(\omega h / 2) = C \sin(k \Delta / 2)$, to rounding, close to the limit."""
    n, mode = 24, 5
    grid = Grid(n)
    model = Maxwell(grid, boundary="periodic", polarization="Ez")
    k = 2 * np.pi * mode
    y0 = model.start({"Ez": lambda x: jnp.cos(k * x)})
    for courant in (0.3, 0.99):
        dt = courant / n
        omega = 2 / dt * np.arcsin(courant * np.sin(k / n / 2))
        sol = sciml.solve(model, y0, t0=0.0, t1=50 * dt, dt=dt, saveat=dt * np.arange(51))
        exact = np.cos(omega * dt * np.arange(51))[:, None] * np.asarray(y0.fields["Ez"])
        np.testing.assert_allclose(sol.ys.fields["Ez"], exact, atol=1e-11)


def energies(model, y0, steps):
    dt = 1.8 / float(model.spectral_radius(0.0, y0, None))
    every = max(1, steps // 100)
    sol = sciml.solve(model, y0, t0=0.0, t1=steps * dt, dt=dt, saveat=dt * every * np.arange(steps // every + 1))
    return np.asarray(jax.vmap(model.energy)(sol.ys))


@pytest.mark.x64
@pytest.mark.parametrize("kind", ["light", "sound", "solid"])
def test_energy_swings_and_does_not_drift(kind):
    """Rough fields in a rough medium, of which the grid has all frequencies, over thousands of long steps."""
    grid, draw = Grid((7, 6)), np.random.default_rng(0)
    rough = [jnp.asarray(draw.uniform(1.0, 2.0, grid.shape)) for _ in range(3)]
    if kind == "light":
        model = Maxwell(grid, *rough[:2], media=[Drude(3 * rough[2]), Lorentz(rough[2], 20.0)])
    elif kind == "sound":
        model = Acoustic(grid, rough[0], rough[1], order=4)
    else:
        model = ElasticWave(grid, *rough, boundary={"x": "clamped", "y-": "roller", "y+": "free"})
    start = model.rest if kind == "sound" else model.start
    y0 = jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)), start())
    found = energies(model, model(0.0, y0, None), 4000)  # at rest where walls want it
    size = found.mean()
    assert found.max() < 10 * size and found.min() > size / 10
    assert abs(found[:33].mean() / found[-33:].mean() - 1) < 0.15


@pytest.mark.x64
@pytest.mark.parametrize(
    "medium", [Drude(1.5, 0.3), Lorentz(0.7, 2.0, 0.4), Debye(0.6, 0.5)], ids=lambda m: type(m).__name__
)
def test_what_media_remember_at_the_middle_of_a_step(medium):
    draw = np.random.default_rng(0)
    electric = jnp.asarray(draw.normal(size=5))
    right = jax.tree.map(lambda x: jnp.asarray(draw.normal(size=5)), medium.rest(electric))
    found = medium.settled(jnp.asarray(0.7), electric, right)
    left = jax.tree.map(lambda m, f: m - 0.7 * f, found, medium.rates(electric, found))
    assert apart(right, left) < 1e-14


def test_neither_losses_nor_layers_limit_the_step():
    """Metal of any conductivity: the fields die, and the step is that of the waves alone."""
    grid = Grid((12, 12))
    for sigma in (0.0, 1e4):
        model = Maxwell(grid, 1.0, 1.0, sigma, layers=2, polarization="Ez")
        y0 = model.start({"Ez": lambda x, y: jnp.sin(3 * x + y) * x * (1 - x) * y * (1 - y)})
        sol = sciml.solve(model, y0, t0=0.0, t1=20.0, solver=Leapfrog())
        assert 0.05 < 20.0 / int(sol.stats.accepted) < 0.06  # of 1 / 12 over the root of two
        assert jnp.max(jnp.abs(sol.ys.fields["Ez"])) < 0.05 * jnp.max(jnp.abs(y0.fields["Ez"]))
    with pytest.raises(ValueError, match=r"`dt`=0.07 is too long for `solver=Leapfrog\(\)` to be stable"):
        sciml.solve(model, y0, t0=0.0, t1=1.4, dt=0.07)


# --- gradients


def heard(layers, media, adjoint, place=0.31, steps=24, t1=0.6):
    """A functional of the medium: what a receiver hears of a pulse."""
    grid = Grid((8, 7))

    def loss(permittivity):
        empty = Maxwell(grid, permittivity, layers=layers, media=media, polarization="Ez", tuned=1.0)
        source = FieldSource(
            "Ez", empty.points("Ez", jnp.stack([jnp.asarray(place), jnp.asarray(0.47)])), Ricker(2.0, 0.2)
        )
        model = Maxwell(grid, permittivity, layers=layers, media=media, polarization="Ez", tuned=1.0, source=source)
        dt = t1 / steps
        ts = dt * np.array([steps // 2, steps])
        sol = sciml.solve(model, model.start(), t0=0.0, t1=t1, dt=dt, saveat=ts, adjoint=adjoint)
        return 1e3 * jnp.sum(model.points("Ez", [0.7, 0.5]).read(sol.ys.fields["Ez"]) ** 2)

    return loss


def medium_of(seed):
    return jnp.asarray(np.random.default_rng(seed).uniform(1.0, 3.0, (8, 7)))


@pytest.mark.x64
def test_gradients_and_members_with_layers_and_media():
    """By the medium, in reverse mode against finite differences; members as one by one."""
    loss = heard({"x": 2}, [Debye(0.6, 0.5), Lorentz(0.7, 9.0, 0.4)], sciml.adjoints.Checkpointed(segments=3))
    eps = medium_of(0)
    alone = check_gradient(loss, eps, rtol=1e-5, atol=1e-9)
    both = jax.jit(jax.vmap(jax.grad(loss)))(jnp.stack([1.1 * eps, eps]))
    np.testing.assert_allclose(both[1], alone, rtol=1e-9, atol=1e-12)
    around = jax.jit(jax.grad(lambda e: jnp.sum(jax.vmap(loss)(e))))(jnp.stack([1.1 * eps, eps]))
    np.testing.assert_allclose(around, both, rtol=1e-9, atol=1e-12)


@pytest.mark.x64
def test_steps_are_undone_where_nothing_is_lost_and_not_in_silence_where_it_is():
    eps = medium_of(1)
    wanted = jax.jit(jax.grad(heard(0, [Lorentz(0.7, 9.0)], sciml.adjoints.Checkpointed())))(eps)
    found = jax.jit(jax.grad(heard(0, [Lorentz(0.7, 9.0)], sciml.adjoints.Reversible())))(eps)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11 * float(jnp.max(jnp.abs(wanted))))
    lost = jax.jit(jax.grad(heard({"x": 2}, [], sciml.adjoints.Reversible(), steps=1200, t1=30.0)))(eps)
    assert bool(jnp.all(jnp.isnan(lost)))
