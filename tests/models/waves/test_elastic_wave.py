"""Elastic waves: exact answers, Rayleigh's speed, energy, layers, and bad input."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import sciml
from sciml import verify
from sciml.models import ElasticWave, FieldSource, Ricker
from sciml.spatial import Grid

SOLVER = diffrax.Bosh3()
SIDES = (
    "roller",
    {"x": "clamped", "y-": "roller", "y+": "free"},
    {"x": "periodic", "y-": "clamped", "y+": "free"},
)


def step(model, courant=1.5):
    return courant / float(model.spectral_radius(0.0, model.start(), None))


def rough(grid, seed):
    return jnp.asarray(np.random.default_rng(seed).uniform(0.5, 2.0, grid.shape))


@pytest.mark.x64
def test_a_rayleigh_wave_keeps_its_shape_and_speed():
    """The exact wave along a free surface after a period, at second order; its speed to a thousandth."""
    lame, shear, density, k = 1.4, 0.8, 1.2, 2 * np.pi
    c = float(verify.reference("rayleigh_speed", lame, shear, density))
    assert 0.9 < c / (shear / density) ** 0.5 < 0.96
    medium = dict(wave_number=k, lame=lame, shear=shear, density=density)
    speeds = []

    def error(n):
        grid = Grid((n, 4 * n), (0.0, -4.0), (1.0, 0.0))
        model = ElasticWave(grid, lame, shear, density, boundary={"x": "periodic", "y-": "roller", "y+": "free"})

        def exact(t):
            return {
                name: verify.reference(
                    "rayleigh_wave", name, grid.coordinates(model.places.location(name)), t, **medium
                )
                for name in model.places.names
            }

        sol = sciml.solve(model, model.start(exact(0.0)), t0=0.0, t1=1 / c, dt=step(model, 1.0), solver=SOLVER)
        end, want = {name: u[-1] for name, u in sol.ys.fields.items()}, exact(1 / c)
        # the phase at the surface says how far the wave has come
        along = np.exp(-1j * k * np.asarray(grid.coordinates(model.places.location("vy"))[0][:, 0]))
        late = np.angle(np.sum(np.asarray(end["vy"])[:, -1] * along) / np.sum(np.asarray(want["vy"])[:, -1] * along))
        speeds.append(c * float(1 - late / (2 * np.pi)))
        # the mean: in the half cells at the surface rates are of first order alone
        return sum(jnp.mean((end[name] - want[name]) ** 2) for name in want) ** 0.5

    assert abs(verify.order_in_space(error, (16, 32)).order - 2) < 0.25
    assert abs(speeds[-1] / c - 1) < 5e-3
    assert abs((4 * speeds[1] - speeds[0]) / 3 / c - 1) < 1e-3  # as the cells vanish


@pytest.mark.x64
def test_pressure_and_shear_run_at_their_speeds_in_space():
    """Plane waves across a periodic box of three dimensions, both at once, with all signs of all stresses."""
    lame, shear, rho = 1.5, 0.7, 1.3
    k = 2 * np.pi * np.array([1.0, 1.0, 1.0])
    size = np.linalg.norm(k)
    n = k / size
    waves = [(n, ((lame + 2 * shear) / rho) ** 0.5), (np.array([1.0, -1.0, 0.0]) / 2**0.5, (shear / rho) ** 0.5)]

    def exact(model, t):
        found = {}
        for name in model.places.names:
            x = model.grid.coordinates(model.places.location(name))
            total = 0.0
            for a, c in waves:
                phase = sum(q * p for q, p in zip(k, x)) - c * size * t
                if name[0] == "v":
                    factor = a["xyz".index(name[1])]
                else:
                    i, j = ("xyz".index(b) for b in name[1:])
                    factor = -(lame * (i == j) * (a @ n) + shear * (a[i] * n[j] + a[j] * n[i])) / c
                total = total + factor * jnp.sin(phase)
            found[name] = total
        return found

    def error(m):
        model = ElasticWave(Grid((m, m, m)), lame, shear, rho, boundary="periodic")
        sol = sciml.solve(model, model.start(exact(model, 0.0)), t0=0.0, t1=0.2, dt=0.3 / m, solver=SOLVER)
        want = exact(model, 0.2)
        return max(jnp.max(jnp.abs(sol.ys.fields[name][-1] - want[name])) for name in want)

    assert abs(verify.order_in_space(error, (8, 16)).order - 2) < 0.25


@pytest.mark.x64
@pytest.mark.parametrize("sides", SIDES, ids=range(3))
def test_energy_is_kept_and_nothing_grows(sides):
    grid = Grid((5, 6))
    media = [rough(grid, seed) for seed in range(3)]
    media[1] = media[1].at[:, :2].set(0.0) if sides == "roller" else media[1]  # a fluid below
    model = ElasticWave(grid, *media, boundary=sides, order=4 if sides == "roller" else 2)
    flat, unravel = ravel_pytree(model.start())
    matrix = np.asarray(jax.jit(jax.jacfwd(lambda y: ravel_pytree(model(0.0, unravel(y), None))[0]))(flat))
    values = np.linalg.eigvals(matrix)
    bound = float(model.spectral_radius(0.0, model.start(), None))
    assert np.abs(values.real).max() < 1e-6 * bound and np.abs(values).max() <= bound
    # what it makes of anything is zero where walls keep it zero
    y = unravel(jnp.asarray(matrix @ np.random.default_rng(0).normal(size=flat.shape)))
    value, change = jax.jvp(model.energy, (y,), (model(0.0, y, None),))
    assert value > 1 and abs(change) < 1e-10 * value


@pytest.mark.parametrize("solver", [SOLVER, sciml.solvers.Leapfrog()], ids=lambda solver: type(solver).__name__)
def test_layers_absorb_both_waves(solver):
    """What a blow on the surface sends down and along: below -60 dB comes back."""
    ts = jnp.linspace(10.0, 60.0, 11)

    def heard(cells, deep, layers):
        edge = (cells - 24) // 2
        grid = Grid((cells, deep), (-edge, -deep), (24 + edge, 0.0))
        medium = dict(boundary={"x": "roller", "y-": "roller", "y+": "free"}, layers=layers)
        ground = ElasticWave(grid, 1.0, 1.0, 1.0, **medium)
        blow = FieldSource("vy", ground.points("vy", [12.0, 0.0]), Ricker(0.05))
        model = ElasticWave(grid, 1.0, 1.0, 1.0, **medium, source=blow)
        sol = sciml.solve(model, model.start(), t0=0.0, t1=60.0, dt=0.3, solver=solver, saveat=ts)
        return sol.ys.fields["vy"][:, edge : edge + 24, -17:]

    level = verify.reference("reflection_level", heard(44, 26, {"x": 10, "y-": 10}), heard(136, 70, 0))
    assert level < -60


@pytest.mark.parametrize(
    ("message", "fn"),
    [
        ("must be 2, 4, 6 or 8", lambda: ElasticWave(Grid((8, 8)), order=5)),
        ("Use order=2", lambda: ElasticWave(Grid((8, 8)), boundary="free", order=4)),
        (r"shear=\.\.\.\)` must be a number or", lambda: ElasticWave(Grid((8, 8)), shear=jnp.ones(5))),
        (r"boundary=\.\.\.\)` must be one of \('roller'", lambda: ElasticWave(Grid((8, 8)), boundary="rigid")),
        (r"contains \['p'\]", lambda: ElasticWave(Grid((8, 8))).start({"p": 1.0})),
        ("source for 'szz'", lambda: ElasticWave(Grid((8, 8)), source=[FieldSource("szz", 1.0, Ricker(1.0))])),
    ],
)
def test_bad_input(message, fn):
    with pytest.raises(ValueError, match=message):
        fn()
