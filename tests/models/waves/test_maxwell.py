"""Light: exact answers, order, energy, layers, media that disperse, and bad input."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import sciml
from sciml import verify
from sciml.models import Debye, Drude, FieldSource, Lorentz, Maxwell, Ricker
from sciml.spatial import Grid
from tests.conftest import X64
from tests.gradients import check_gradient

SOLVER = diffrax.Bosh3()


def step(model, courant=1.5):
    return courant / float(model.spectral_radius(0.0, model.start(), None))


def rough(grid, seed):
    return jnp.asarray(np.random.default_rng(seed).uniform(1.0, 3.0, grid.shape))


# --- exact answers

CAVITIES = {
    1: dict(lengths=(1.5,), mode=(2,), amplitude=(0.0, 1.0, -0.5)),
    2: dict(lengths=(1.5, 1.0), mode=(1, 2), amplitude=(0.3, -0.4, 1.0)),
    3: dict(lengths=(1.5, 1.0, 0.8), mode=(1, 1, 1), amplitude=(0.3, 1.0, -0.7)),
}
MEDIUM = dict(permittivity=2.0, permeability=0.5)


@pytest.mark.x64
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_what_swings_in_a_cavity(ndim):
    """All components after more than half a period, at second order in space and at the right frequency."""
    cavity = CAVITIES[ndim]
    t1 = 0.6 * 2 * np.pi / float(verify.reference("cavity_frequency", cavity["lengths"], cavity["mode"], **MEDIUM))

    def error(n):
        cells = tuple(round(n * length) for length in cavity["lengths"])
        grid = Grid(cells, 0.0, cavity["lengths"])
        model = Maxwell(grid, 2.0, 0.5)

        def exact(t):
            return {
                name: verify.reference(
                    "cavity_mode", name, grid.coordinates(model.places.location(name)), t, **cavity, **MEDIUM
                )
                for name in model.places.names
            }

        y0 = model.start(exact(0.0))
        sol = sciml.solve(model, y0, t0=0.0, t1=t1, dt=step(model, 1.0), solver=SOLVER)
        want = exact(t1)
        assert max(float(jnp.max(jnp.abs(x))) for x in want.values()) > 0.3
        return max(jnp.max(jnp.abs(sol.ys.fields[name][-1] - want[name])) for name in want)

    assert abs(verify.order_in_space(error, (10, 20)).order - 2) < 0.15


@pytest.mark.x64
@pytest.mark.parametrize("order", [2, 4])
def test_a_plane_wave_at_the_order_of_the_differences(order):
    """Oblique, in a periodic box, by the rates alone, and after a way."""
    k, wave = 2 * np.pi * np.array([1.0, 2.0]), dict(amplitude=(0.5, 0.2, 1.0), permittivity=2.0)

    def error(n):
        grid = Grid((n, 2 * n))
        model = Maxwell(grid, 2.0, boundary="periodic", order=order)

        def exact(t):
            return {
                name: verify.reference(
                    "electromagnetic_plane_wave",
                    name,
                    grid.coordinates(model.places.location(name)),
                    t,
                    wave_vector=k,
                    **wave,
                )
                for name in model.places.names
            }

        sol = sciml.solve(model, model.start(exact(0.0)), t0=0.0, t1=0.3, dt=0.1 / n, solver=SOLVER)
        return max(jnp.max(jnp.abs(sol.ys.fields[name][-1] - want)) for name, want in exact(0.3).items())

    assert abs(verify.order_in_space(error, (12, 24)).order - order) < 0.2


@pytest.mark.x64
def test_a_slab_lets_through_what_fresnel_says():
    """A pulse in and out of a slab of glass that also disperses: the spectrum of what passes, by frequency."""
    grid = Grid(240, 0.0, 6.0)
    (x,) = grid.centers
    inside = jnp.where((x > 3.0) & (x < 3.5), 1.0, 0.0)
    water = Lorentz(0.8 * inside, 9.0, 1.0)
    ts = jnp.linspace(0.0, 16.0, 801)

    def heard(permittivity, media):
        empty = Maxwell(grid, permittivity, layers=20, polarization="Ez", tuned=1.0)
        sheet = FieldSource("Ez", empty.points("Ez", [1.5]), Ricker(0.5))
        model = Maxwell(grid, permittivity, layers=20, polarization="Ez", tuned=1.0, media=media, source=sheet)
        options = dict(t0=0.0, t1=16.0, dt=0.02, saveat=ts, solver=SOLVER)
        sol = sciml.solve(model, model.start(), **options)
        return model.points("Ez", [4.5]).read(sol.ys.fields["Ez"])

    alone, behind = heard(1.0 + 0.0 * x, []), heard(1.0 + inside, [water])
    for omega in (2.0, 3.0, 4.5):
        kernel = np.exp(1j * omega * np.asarray(ts))
        through = np.sum(np.asarray(behind) * kernel) / np.sum(np.asarray(alone) * kernel) * np.exp(1j * omega * 0.5)
        inner = 2.0 + complex(Lorentz(0.8, 9.0, 1.0).susceptibility(omega))
        exact = verify.reference("layered_medium", omega, [1.0, inner, 1.0], [0.5])
        assert abs(exact.transmitted) < 0.95
        assert abs(through - complex(exact.transmitted)) < 5e-3


@pytest.mark.x64
@pytest.mark.parametrize(
    "medium", [Drude(1.5, 0.3), Lorentz(0.7, 2.0, 0.4), Debye(0.6, 0.5)], ids=lambda m: type(m).__name__
)
def test_media_have_the_susceptibility_that_they_say(medium):
    """A wave of the grid decays and turns as the permittivity at its complex frequency says."""
    n, mode = 16, 3
    grid = Grid(n, 0.0, 1.5)
    model = Maxwell(grid, 1.3, boundary="periodic", polarization="Ey", media=[medium])
    flat, unravel = ravel_pytree(model.start())
    matrix = jax.jit(jax.jacfwd(lambda y: ravel_pytree(model(0.0, unravel(y), None))[0]))(flat)
    values = 1j * np.linalg.eigvals(np.asarray(matrix))  # of exp(-i omega t)
    k = 2 * np.sin(np.pi * mode / n) / grid.spacing[0]
    with_frequency = [w for w in values if w.real > 1.0]

    def mismatch(w):
        # the formulas of the docstrings, at complex frequencies
        if isinstance(medium, Drude):
            chi = -(1.5**2) / (w**2 + 0.3j * w)
        elif isinstance(medium, Lorentz):
            chi = 0.7 * 4.0 / (4.0 - w**2 - 0.4j * w)
        else:
            chi = 0.6 / (1 - 0.5j * w)
        return abs((1.3 + chi) * w**2 / k**2 - 1)

    assert sorted(mismatch(w) for w in with_frequency)[1] < 1e-8
    at_real = {Drude: -2.25 / (2.89 + 0.51j), Lorentz: 2.8 / (1.11 - 0.68j), Debye: 0.6 / (1 - 0.85j)}
    assert abs(complex(medium.susceptibility(1.7)) - at_real[type(medium)]) < 1e-12


# --- energy and layers


@pytest.mark.x64
@pytest.mark.parametrize("order", [2, 6])
def test_energy_is_kept_in_any_medium_and_lost_where_it_conducts(order):
    grid = Grid((7, 8))
    sides = {"x-": "conductor", "x+": "magnetic", "y": "periodic"}
    media = [Drude(rough(grid, 2)), Lorentz(rough(grid, 3), 2.0)]
    for sigma, lost in ((0.0, False), (0.4, True)):
        model = Maxwell(grid, rough(grid, 0), rough(grid, 1), sigma, media=media, boundary=sides, order=order)
        draw = np.random.default_rng(4)
        y = jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)), model.start())  # noqa: B023
        y = model(0.0, y, None)  # zero at conductors
        value, change = jax.jvp(model.energy, (y,), (model(0.0, y, None),))
        assert value > 1 and (change < -1e-3 * value if lost else abs(change) < 1e-10 * value)


@pytest.mark.x64
@pytest.mark.parametrize("shape", [(7,), (6, 5), (3, 4, 3)], ids=len)
def test_nothing_grows_and_the_spectral_radius_is_a_bound(shape):
    """With layers along one axis, across the corners of two, and media."""
    grid = Grid(shape)
    layers = {1: {"x": 2}, 2: {"x": 2, "y-": 2}, 3: {"x-": 1, "z": 1}}[grid.ndim]
    media = [] if grid.ndim == 3 else [Lorentz(1.0, 20.0, 1.0), Debye(0.5, 0.1), Drude(9.0, 2.0)]
    model = Maxwell(grid, 1.7, layers=layers, media=media)
    flat, unravel = ravel_pytree(model.start())
    matrix = jax.jit(jax.jacfwd(lambda y: ravel_pytree(model(0.0, unravel(y), None))[0]))(flat)
    values = np.linalg.eigvals(np.asarray(matrix))
    bound = float(model.spectral_radius(0.0, model.start(), None))
    assert values.real.max() < 1e-6 * bound
    assert 0.3 * bound < np.abs(values).max() <= bound


@pytest.mark.parametrize("solver", [SOLVER, sciml.solvers.Leapfrog()], ids=lambda solver: type(solver).__name__)
def test_layers_reflect_less_than_a_thousandth(solver):
    """Of a pulse in the plane, heard at any angle up to 60 degrees: below -60 dB, in both precisions."""
    ts = jnp.linspace(8.0, 64.0, 15)

    def heard(cells, layers):
        edge = (cells - 20) // 2
        grid = Grid((cells, cells), -edge, 20 + edge)
        empty = Maxwell(grid, layers=layers, polarization="Ez")
        pulse = FieldSource("Ez", empty.points("Ez", [14.0, 9.0]), Ricker(0.06))
        model = Maxwell(grid, layers=layers, polarization="Ez", source=pulse)
        sol = sciml.solve(model, model.start(), t0=0.0, t1=64.0, dt=0.5, solver=solver, saveat=ts)
        inside = slice(edge, edge + 21)
        return sol.ys.fields["Ez"][:, inside, inside]

    level = verify.reference("reflection_level", heard(40, 10), heard(112, 0))
    assert level < -60
    if X64:
        assert level < (-75 if isinstance(solver, sciml.solvers.Leapfrog) else -80)


@pytest.mark.x64
def test_both_divergences_stay():
    """Of the magnetic field, from a field that has one."""
    grid = Grid((5, 4, 3))
    model = Maxwell(grid, rough(grid, 0), rough(grid, 1), boundary="periodic")
    draw = np.random.default_rng(0)
    y = jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)), model.start())
    rate = model(0.0, y, None).fields
    total = 0.0
    for axis, (name, h) in enumerate(zip(("Hx", "Hy", "Hz"), grid.spacing)):
        flux = rate[name] * model.places.averaged(name, 1 / model.permeability) ** -1
        total = total + (jnp.roll(flux, -1, axis) - flux) / h
    assert jnp.max(jnp.abs(total)) < 1e-10 and jnp.max(jnp.abs(rate["Hx"])) > 1


# --- gradients and members


@pytest.mark.x64
def test_gradients_and_members():
    """Of what a receiver hears, by the medium and the place of the source; `vmap` and `vmap(grad)` as one by one."""
    grid = Grid((8, 7))

    def loss(permittivity, place):
        empty = Maxwell(grid, permittivity, layers={"x": 2}, polarization="Ez", tuned=1.0)
        source = FieldSource("Ez", empty.points("Ez", place), Ricker(2.0, 0.2))
        model = Maxwell(grid, permittivity, layers={"x": 2}, polarization="Ez", tuned=1.0, source=source)
        sol = sciml.solve(model, model.start(), t0=0.0, t1=0.6, dt=0.0125, solver=SOLVER)
        return 1e3 * jnp.sum(model.points("Ez", [0.7, 0.5]).read(sol.ys.fields["Ez"]) ** 2)

    inputs = rough(grid, 0), jnp.array([0.31, 0.47])
    alone = check_gradient(lambda x: loss(*x), inputs, rtol=1e-5, atol=1e-9)
    members = jax.tree.map(lambda x: jnp.stack([1.1 * x, x]), inputs)
    both = jax.jit(jax.vmap(jax.grad(lambda x: loss(*x))))(members)
    for many, one in zip(jax.tree.leaves(both), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(many[1], one, rtol=1e-9, atol=1e-12)


# --- bad input


@pytest.mark.parametrize(
    ("message", "fn"),
    [
        ("must be 2, 4, 6 or 8", lambda: Maxwell(Grid(8), order=3)),
        ("requires at least 6 cells", lambda: Maxwell(Grid(4), order=6)),
        (r"permittivity=\.\.\.\)` must be a number or", lambda: Maxwell(Grid(8), jnp.ones(5))),
        (r"polarization=\.\.\.\)` must be a component", lambda: Maxwell(Grid(8), polarization="Ex")),
        (r"boundary=\.\.\.\)` must be one of \('conductor'", lambda: Maxwell(Grid(8), boundary="rigid")),
        ("the sides are periodic", lambda: Maxwell(Grid(8), boundary="periodic", layers=2)),
        ("leaves nothing", lambda: Maxwell(Grid(8), layers=4)),
        (r"contains \['Ey'\]", lambda: Maxwell(Grid(8), polarization="Ez").start({"Ey": 1.0})),
        ("must have the shape", lambda: Maxwell(Grid(8), polarization="Ez").start({"Ez": jnp.ones(8)})),
        ("source for 'Hx'", lambda: Maxwell(Grid(8), source=FieldSource("Hx", 1.0, Ricker(1.0)))),
        ("Drude.plasma` must be a number", lambda: Maxwell(Grid(8), media=[Drude(jnp.ones(3))])),
        ("there is no field", lambda: Maxwell(Grid(8)).points("Ex", [0.5])),
    ],
)  # fmt: skip
def test_bad_input(message, fn):
    with pytest.raises(ValueError, match=message):
        fn()


def test_what_has_the_wrong_type_is_refused():
    with pytest.raises(TypeError, match="must be a list of `Drude`"):
        Maxwell(Grid(8), media=[1.0])
    with pytest.raises(TypeError, match="must be a function of time"):
        FieldSource("Ez", 1.0, 2.0)
