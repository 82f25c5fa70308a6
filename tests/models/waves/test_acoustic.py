"""Sound: exact answers, what layers reflect, energy, dispersion, and gradients by the speed of sound."""

import diffrax
import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import verify
from sciml.models import Acoustic, PointSources, Ricker, Sampled, Sound
from sciml.spatial import Grid, Points
from tests.conftest import X64
from tests.gradients import check_gradient

SIDES = ("rigid", "free", {"x": "periodic", "y-": "free", "y+": "rigid"})
SOLVER = diffrax.Bosh3()


def medium(grid, **options):
    """One whose speed and density are different in every cell."""
    speed = 1.0 + jax.random.uniform(jax.random.key(0), grid.shape)
    density = 1.0 + jax.random.uniform(jax.random.key(1), grid.shape)
    return Acoustic(grid, speed, density, **options)


def step(model):
    return 1.5 / float(model.spectral_radius(0.0, model.rest(), None))


# --- exact answers


def test_dalembert(dtype):
    """A pulse goes both ways; behind a rigid wall it returns as it was, behind a free one with its sign turned."""
    grid = Grid(120, 0.0, 12.0)
    (x,) = grid.centers

    def start(x):
        return jnp.exp(-((x - 5.0) ** 2) / 0.5)

    model = Acoustic(grid, 2.0, 1.5, boundary={"x-": "rigid", "x+": "free"})
    y0 = model.rest(start(x), dtype)
    sol = sciml.solve(model, y0, t0=0.0, t1=4.0, dt=step(model), solver=SOLVER, saveat=[1.5, 4.0])
    early, late = model.pressure(sol.ys)
    assert early.dtype == dtype and sol.ys.velocity[0].dtype == dtype

    def both(t):
        return sum(
            sign * verify.reference("dalembert", s * x + shift, t, start, 2.0)[0]
            for sign, s, shift in ((1, 1, 0.0), (1, -1, 0.0), (-1, -1, 24.0), (-1, 1, 24.0), (-1, 1, -24.0))
        )

    np.testing.assert_allclose(early, both(1.5), atol=2e-3)
    np.testing.assert_allclose(late, both(4.0), atol=4e-3)


@pytest.mark.x64
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_point_source_against_its_exact_sound(ndim):
    """With layers all around, so that after the wave has gone there is silence, too."""
    cells, layer, h = {1: (120, 10), 2: (44, 8), 3: (28, 6)}[ndim] + (0.05,)
    grid = Grid((cells + 2 * layer,) * ndim, -layer * h, (cells + layer) * h)
    middle = (cells // 2 + 0.5) * h
    source = PointSources(grid, [middle] * ndim, Ricker(1.5 if ndim < 3 else 1.0))
    model = Acoustic(grid, 1.2, 0.7, layers=layer, source=source)
    apart = jnp.array([5 * h, 8 * h])
    places = np.full((2, ndim), middle)
    places[:, 0] += apart
    t1 = 1.4 if ndim < 3 else 1.8
    ts = jnp.linspace(0.2, t1, 9)
    y0 = model.rest()
    sol = sciml.solve(model, y0, t0=0.0, t1=t1, dt=step(model), solver=SOLVER, saveat=ts)
    heard = model.record(sol.ys, Points(grid, places))
    exact = jnp.stack(
        [verify.reference("sound_of_a_point", source.signal, apart, t, ndim=ndim, speed=1.2, density=0.7) for t in ts]
    )
    loudest = jnp.max(jnp.abs(exact))
    assert loudest > 0.05
    np.testing.assert_allclose(heard, exact, atol=0.02 * float(loudest))


@pytest.mark.x64
@pytest.mark.parametrize("order", [2, 4])
def test_the_order_in_space(order):
    """A standing wave between a rigid wall and a free surface, by the field's own error."""

    def error(n):
        grid = Grid(n)
        model = Acoustic(grid, 2.0, 3.0, boundary={"x-": "rigid", "x+": "free"}, order=order)
        k = 2.5 * jnp.pi
        rate = model(0.0, model.rest(jnp.cos(k * grid.centers[0])), None)
        (faces,) = grid.coordinates("node")
        return jnp.max(jnp.abs(rate.velocity[0] - k / 3.0 * jnp.sin(k * faces)))

    assert abs(verify.order_in_space(error).order - order) < 0.1


@pytest.mark.x64
@pytest.mark.parametrize("order", [2, 8])
def test_discrete_dispersion_relation(order):
    """A wave along the grid oscillates with the frequency of the differences and the polynomial of the method."""
    grid = Grid((12, 10), 0.0, (1.0, 2.0))
    model = Acoustic(grid, 1.3, 0.8, boundary="periodic", order=order)
    k = np.array([2 * np.pi * 2, np.pi * 3])
    h = np.array(grid.spacing)
    weights = sciml.spatial._weights.midway(order, 1)[order // 2 :]
    symbol = sum(2 * w * np.sin((j + 0.5) * k * h) for j, w in enumerate(weights)) / h
    omega = 1.3 * float(np.sqrt(np.sum(symbol**2)))
    x, y = (np.asarray(c) for c in grid.centers)
    wave = np.exp(1j * (k[0] * x + k[1] * y))
    parts = [symbol[a] ** 2 / np.sum(symbol**2) * wave for a in range(2)]
    velocity = tuple(-symbol[a] / (0.8 * omega) * np.exp(-0.5j * k[a] * h[a]) * wave for a in range(2))

    def state(part):
        return Sound(jnp.stack([jnp.asarray(part(p)) for p in parts]), tuple(jnp.asarray(part(v)) for v in velocity))

    dt = 0.3 / omega
    turned = [sciml.solve(model, state(f), t0=0.0, t1=dt, dt=dt, solver=SOLVER).ys for f in (np.real, np.imag)]
    got = np.asarray(model.pressure(turned[0])[0]) + 1j * np.asarray(model.pressure(turned[1])[0])
    z = 1j * omega * dt
    np.testing.assert_allclose(got, (1 + z + z**2 / 2 + z**3 / 6) * wave, atol=1e-13)


# --- layers


@pytest.mark.x64
@pytest.mark.parametrize("solver", [SOLVER, sciml.solvers.Leapfrog()], ids=lambda solver: type(solver).__name__)
def test_what_layers_reflect(solver):
    """Of a pulse that meets a layer of ten cells head on less than 5e-5 comes back, in two dimensions below -60 dB."""
    grid = Grid(120, -10.0, 110.0)
    (x,) = grid.centers
    model = Acoustic(grid, layers=10)
    y0 = model.rest(jnp.exp(-(((x - 50) / 5) ** 2)))
    sol = sciml.solve(model, y0, t0=0.0, t1=90.0, dt=step(model), solver=solver)
    # by leapfrog with what the pulse, whose short waves are slower, leaves behind it
    most = 5e-4 if isinstance(solver, sciml.solvers.Leapfrog) else 5e-5
    assert jnp.max(jnp.abs(model.pressure(sol.ys))) < 0.5 * most

    small, large = Grid((40, 40), -10.0, 30.0), Grid((100, 100), -40.0, 60.0)
    inside, heard = slice(10, 30), []
    for grid, layers in ((small, 10), (large, 0)):
        x, y = grid.centers
        model = Acoustic(grid, layers=layers)
        y0 = model.rest(jnp.exp(-(((x - 14.0) / 2) ** 2) - ((y - 9.0) / 2) ** 2))
        ts = jnp.linspace(10.0, 50.0, 9)
        # by leapfrog, times are multiples of the step: what one that is cut short does in layers is heard, -44 dB
        dt = 0.5 if isinstance(solver, sciml.solvers.Leapfrog) else 0.4
        sol = sciml.solve(model, y0, t0=0.0, t1=50.0, dt=dt, solver=solver, saveat=ts)
        start = 0 if layers else 30
        heard.append(model.pressure(sol.ys)[:, start:, start:][:, inside, inside])
    first = jnp.max(jnp.abs(heard[1]))
    assert first > 0.05
    assert verify.reference("reflection_level", heard[0], heard[1]) < -60


@pytest.mark.x64
@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize("sides", SIDES, ids=lambda sides: "mixed" if isinstance(sides, dict) else sides)
def test_nothing_grows_and_the_spectral_radius_is_a_bound(sides, layers):
    grid = Grid((7, 6))
    layers = layers if isinstance(sides, str) else {"y": layers}
    for order in (2, 6):
        model = medium(grid, boundary=sides, order=order, layers=layers)
        flat, unravel = jax.flatten_util.ravel_pytree(model.rest())
        apply = jax.jit(jax.jacfwd(lambda y: jax.flatten_util.ravel_pytree(model(0.0, unravel(y), None))[0]))  # noqa: B023
        values = np.linalg.eigvals(np.asarray(apply(flat)))
        bound = float(model.spectral_radius(0.0, model.rest(), None))
        assert values.real.max() < 1e-6 * bound  # zero many times over, to what rounding makes of that
        assert np.abs(values).max() <= bound


@pytest.mark.x64
@pytest.mark.parametrize("order", [2, 4, 8])
def test_energy_is_kept_at_every_order_in_any_medium(order):
    grid = Grid((9, 8), 0.0, (1.0, 2.0))
    for sides in SIDES:
        model = medium(grid, boundary=sides, order=order)
        y = model.rest(jax.random.normal(jax.random.key(2), grid.shape))
        y = Sound(y.parts, model(0.0, y, None).velocity)  # that of a wave: zero at walls
        value, change = jax.jvp(model.energy, (y,), (model(0.0, y, None),))
        assert value > 1 and abs(change) < 1e-10 * value


# --- sources and receivers


@pytest.mark.x64
def test_reading_and_spreading_are_adjoint():
    grid = Grid((6, 5), 0.0, (2.0, 1.0))
    points = Points(grid, jax.random.uniform(jax.random.key(0), (7, 2)) * jnp.array([[2.0, 1.0]]))
    u, s = jax.random.normal(jax.random.key(1), (3, 6, 5)), jax.random.normal(jax.random.key(2), (7,))
    read = points.read(u)
    assert read.shape == (3, 7)
    for component in range(3):
        left, right = jnp.vdot(read[component], s), grid.integrate(u[component] * points.spread(s))
        assert abs(left - right) < 1e-12
    at = Points(grid, [grid.centers[0][2, 0], grid.centers[1][0, 4]])
    assert jnp.isclose(at.read(u)[1], u[1, 2, 4])


@pytest.mark.x64
def test_samples_of_a_signal_are_interpolated():
    ts = jnp.linspace(0.0, 2.0, 81)
    wavelet = Ricker(1.5)
    signal = Sampled(jnp.stack([wavelet(ts), jnp.cos(ts)], 1), dt=0.025)
    got = jax.vmap(signal)(jnp.linspace(0.1, 1.9, 37))
    exact = jnp.linspace(0.1, 1.9, 37)
    np.testing.assert_allclose(got, jnp.stack([wavelet(exact), jnp.cos(exact)], 1), atol=2e-3)
    assert signal(ts[3])[1] == jnp.cos(ts[3]) and not jnp.any(signal(-0.01)) and not jnp.any(signal(2.01))
    total = jnp.sum(Ricker(1.5)(jnp.linspace(0.0, 4.0, 4001))) * 0.001
    assert abs(total) < 1e-8


# --- gradients


def loss(model, speed, points, adjoint, dt=0.01):
    model = eqx.tree_at(lambda m: m.speed, model, speed)
    sol = sciml.solve(model, model.rest(), t0=0.0, t1=0.6, dt=dt, solver=SOLVER, adjoint=adjoint)
    return jnp.sum(model.record(sol.ys, points)[-1] ** 2)


def small(layers):
    grid = Grid((8, 7))
    source = PointSources(grid, [0.3, 0.6], Ricker(4.0, 0.2))
    return medium(grid, layers=layers, order=2, source=source), Points(grid, [[0.5, 0.5], [0.8, 0.3]])


@pytest.mark.x64
def test_gradients_by_speed_density_and_position():
    model, points = small(2)

    def of(leaves):
        speed, density, place = leaves
        return loss(
            eqx.tree_at(lambda m: (m.density, m.source.points.positions), model, (density, place)),
            speed,
            points,
            sciml.adjoints.Checkpointed(),
        )

    leaves = model.speed, model.density, model.source.points.positions + 0.01
    check_gradient(of, leaves, rtol=1e-5, atol=1e-9)


@pytest.mark.x64
def test_adjoints_agree_and_so_do_members():
    model, points = small(0)
    gradients = {}
    for adjoint in (sciml.adjoints.Checkpointed(), sciml.adjoints.Reversible(), sciml.adjoints.Direct()):
        gradients[type(adjoint).__name__] = jax.jit(jax.grad(lambda c: loss(model, c, points, adjoint, 0.005)))(
            model.speed
        )  # noqa: B023
    for found in gradients.values():
        # that of the reversible form of the method, which has an error of its own
        np.testing.assert_allclose(found, gradients["Direct"], rtol=0.02, atol=0.02 * np.abs(found).max())
    np.testing.assert_allclose(gradients["Checkpointed"], gradients["Direct"], rtol=1e-8, atol=1e-12)

    model, points = small(2)
    places = jnp.array([[0.3, 0.6], [0.6, 0.45]])

    def of(speed, place):
        moved = eqx.tree_at(lambda m: m.source.points.positions, model, place)
        return loss(moved, speed, points, sciml.adjoints.Checkpointed())

    alone = jax.jit(jax.grad(of))
    apart = jax.jit(jax.vmap(alone, in_axes=(None, 0)))(model.speed, places)
    summed = jax.jit(jax.grad(lambda c: jnp.sum(jax.vmap(lambda p: of(c, p))(places))))(model.speed)
    one = [alone(model.speed, place) for place in places]
    np.testing.assert_allclose(apart, jnp.stack(one), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(summed, one[0] + one[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "message, fn",
    [
        ("`Acoustic\\(speed=...\\)` must be a number or an array", lambda: Acoustic(Grid((8, 8)), jnp.ones(3))),
        ("must be 2, 4, 6 or 8", lambda: Acoustic(Grid(8), order=3)),
        ("at least 8 cells", lambda: Acoustic(Grid(6), order=8)),
        ("leaves nothing of the 8 cells", lambda: Acoustic(Grid(8), layers=4)),
        ("must map the names", lambda: Acoustic(Grid(8), layers={"z": 2})),
        ("either both or neither periodic", lambda: Acoustic(Grid(8), boundary={"x-": "periodic", "x+": "free"})),
        ("names sides \\['y'\\]", lambda: Acoustic(Grid(8), boundary={"x": "free", "y": "free"})),
        (
            r"a `Sound` with `parts` of shape \(1, 8\).*\(9,\).*`parts` have shape \(1, 9\) and `velocity` \(10,\)",
            lambda: Acoustic(Grid(8))(0.0, Acoustic(Grid(9)).rest(), None),
        ),
        (
            "requires an array over the grid, of shape \\(8,\\), but it has shape \\(9,\\)",
            lambda: Acoustic(Grid(8)).rest(jnp.ones(9)),
        ),
        ("must have shape \\(points, 2\\)", lambda: Points(Grid((8, 8)), [0.1, 0.2, 0.3])),
        ("must be within", lambda: Points(Grid(8), [1.5])),
        ("\\(times,\\) or \\(times, points\\)", lambda: Sampled(jnp.ones((2, 2, 2)), 0.1)),
        ("`ndim` must be 1, 2 or 3", lambda: verify.reference("sound_of_a_point", jnp.sin, jnp.ones(1), 1.0, ndim=4)),
    ],
)
def test_bad_input(message, fn):
    with pytest.raises(ValueError, match=message):
        fn()


@pytest.mark.skipif(X64, reason="there the annotations refuse it, which users do not check")
def test_an_array_is_no_state():
    right = r"`parts` of shape \(2, 8, 6\) and a tuple `velocity` of arrays of shapes \(9, 6\), \(8, 7\)"
    with pytest.raises(TypeError, match=right + r".*model.rest\(pressure\).*shape \(8, 6\), but is an array of shape"):
        sciml.solve(Acoustic(Grid((8, 6))), jnp.ones((8, 6)), t0=0.0, t1=0.1)
