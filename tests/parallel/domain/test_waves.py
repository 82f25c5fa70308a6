"""Waves on staggered grids that are split over devices: the numbers of one device, and the messages they take."""

import collections

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import inspect, parallel
from sciml.models import Acoustic, Debye, Drude, ElasticWave, FieldSource, Lorentz, Maxwell, PointSources, Ricker
from sciml.spatial import Boundaries, Dirichlet, Grid

LINE, BOX, CUBE = Grid(32), Grid((16, 12), upper=(2.0, 1.0)), Grid((8, 4, 4))


def rough(grid, seed):
    return jnp.exp(0.3 * jnp.sin(1.0 + seed + jnp.arange(float(np.prod(grid.shape)))).reshape(grid.shape))


def there(model, name, grid):
    """A source between two blocks, in the middle."""
    place = [low + 0.5 * length for low, length in zip(grid.lower, grid.extent)]
    return FieldSource(name, model.points(name, place), Ricker(2.0, 0.1))


def light(grid, polarization, boundary, layers, order=2):
    def make(domain=None):
        eps = rough(grid, 0)
        media = [Drude(2.0 * eps, 0.5), Lorentz(eps, 3.0, 0.2), Debye(0.4 * eps, 0.7)]
        name = polarization or "Ey"
        source = there(Maxwell(grid, boundary=boundary, polarization=polarization), name, grid)
        more = dict(boundary=boundary, layers=layers, source=source, polarization=polarization, order=order)
        return Maxwell(grid, eps, rough(grid, 1), 0.3 * eps, media=media, domain=domain, **more)

    return make


def shakes(grid, boundary, layers, order=2):
    def make(domain=None):
        source = there(ElasticWave(grid, boundary=boundary), "vx", grid)
        more = dict(boundary=boundary, layers=layers, source=source, order=order, domain=domain)
        return ElasticWave(grid, rough(grid, 0), rough(grid, 1), rough(grid, 2), **more)

    return make


def sound(grid, boundary, layers, order=2):
    def make(domain=None):
        place = [low + 0.5 * length for low, length in zip(grid.lower, grid.extent)]
        more = dict(boundary=boundary, layers=layers, source=PointSources(grid, place, Ricker(2.0, 0.1)), order=order)
        return Acoustic(grid, rough(grid, 0), rough(grid, 1), domain=domain, **more)

    return make


MIRRORS = {"x": "conductor", "y-": "magnetic", "y+": "conductor"}
GROUND = {"x": "roller", "y-": "clamped", "y+": "free"}
SLAB = {"x": "roller", "y": "free", "z": "periodic"}
ROOM = {"x": "rigid", "y-": "free", "y+": "rigid"}
FOUR, EIGHT, CUBES = dict(x=4, y=2), dict(x=8), dict(x=2, y=2, z=2)

CASES = {
    "light in a line": (light(LINE, "Ez", "conductor", {"x": 3}), LINE, EIGHT),
    "light in a box": (light(BOX, "Ez", MIRRORS, {"x": 3}), BOX, FOUR),
    "light in a crystal": (light(BOX, "Hz", {"x": "periodic", "y": "conductor"}, {"y": 2}, order=4), BOX, FOUR),
    "light in a cube": (light(CUBE, None, "conductor", {"x": 2}), CUBE, CUBES),
    "shakes of ground": (shakes(BOX, GROUND, {"x": 3, "y-": 2}), BOX, FOUR),
    "shakes of a crystal": (shakes(BOX, "periodic", 0, order=4), BOX, EIGHT),
    "shakes of a cube": (shakes(CUBE, SLAB, {"x": 2}), CUBE, CUBES),
    "sound in a box": (sound(BOX, ROOM, {"x": 3}), BOX, FOUR),
    "sound in a ring": (sound(BOX, {"x": "periodic", "y": "free"}, 0, order=4), BOX, EIGHT),
    "sound in a cube": (sound(CUBE, "rigid", {"x": 2}, order=4), CUBE, CUBES),
}


def over_devices(case):
    make, grid, mesh = CASES[case]
    axes = tuple(name if name in mesh else None for name in grid.names)
    domain = parallel.Domain(axes, mesh=parallel.mesh(member=1, **mesh))
    return make(), make(domain), domain


def state(model, dtype=None):
    like = model.rest(dtype=dtype) if isinstance(model, Acoustic) else model.start(dtype=dtype)
    draw = np.random.default_rng(0)
    return jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)).astype(x.dtype), like)


def compare(found, expected, rtol):
    found, expected = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * max(float(jnp.max(jnp.abs(b))), 1e-3))


def solved(model, y, domain):
    dt = jnp.asarray(0.5, jax.tree.leaves(y)[0].dtype) / model.spectral_radius(0.0, y, None)
    sol = sciml.solve(model, y, t0=0.0, t1=3 * dt, dt=dt, norm=domain.rms)
    return jax.tree.map(lambda x: x[-1], sol.ys), model.energy(y)


@pytest.mark.parametrize("case", CASES)
def test_waves_over_devices_are_those_of_one(case):
    """After some steps of leapfrog, with layers, media and a source, and their energy."""
    whole, split, domain = over_devices(case)
    y = state(whole, jnp.float32)
    blocks = split.to_blocks(y)
    compare(split.from_blocks(blocks), y, 0.0)
    found, energy = domain.run(lambda y, model: solved(model, y, domain), blocks, split)
    expected, whole_energy = jax.jit(lambda y: solved(whole, y, domain))(y)
    compare(split.from_blocks(found), expected, 1e-5)
    compare(energy, whole_energy, 1e-5)


def looked_at(model, y, domain):
    """The rates, and after a step of both halves the state: without a loop, which takes long to compile."""
    h = jnp.asarray(0.1, jax.tree.leaves(y)[0].dtype)
    moved = model.move_second(h, y, model.second_drive(0.2, y, None), None)
    moved = model.move_first(h, moved, model.first_drive(0.2, moved, None), None)
    return (model(0.1, y, None), moved), model.energy(y)


@pytest.mark.x64
@pytest.mark.parametrize("case, of", [*((case, looked_at) for case in CASES), ("sound in a ring", solved)])
def test_their_gradients_are_those_of_one(case, of):
    """By the state, the memory of layers and media, every coefficient, and the place and signal of the source."""
    whole, split, domain = over_devices(case)
    y = state(whole)

    def loss(x):
        model, y = x
        if model.places.blocks is None:
            end, energy = of(model, y, domain)
        else:
            found, energy = domain.run(lambda y, model: of(model, y, domain), model.to_blocks(y), model)
            end = jax.tree.map(model.from_blocks, found, is_leaf=lambda x: isinstance(x, type(y)))
        ends = jax.tree.leaves(end)
        weights = [jnp.sin(k + jnp.arange(float(x.size))).reshape(x.shape) for k, x in enumerate(ends)]
        return sum(jnp.sum(a * b) for a, b in zip(ends, weights)) + energy, end

    gradient = eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))
    found, expected = gradient((split, y)), gradient((whole, y))
    assert sum(bool(jnp.any(x != 0)) for x in jax.tree.leaves(expected[0])) > 5
    compare(found, expected, 1e-11)


def test_a_step_sends_what_its_differences_read():
    """Light in two dimensions, split along one: H for E, once to each neighbour; E for H at nodes that both have."""
    domain = parallel.Domain(("x", None), mesh=parallel.mesh(member=1, x=8))
    model = Maxwell(BOX, layers={"y": 3}, polarization="Ez", domain=domain)
    blocks = model.to_blocks(model.start())
    found = inspect.collectives(lambda y: domain.run(lambda y, model: model(0.5, y, None), y, model), blocks)
    assert collections.Counter(message.kind for message in found) == {"collective-permute": 2}


def test_a_start_within_blocks_is_that_of_the_whole():
    domain = parallel.Domain(("x", "y"), mesh=parallel.mesh(member=1, x=4, y=2))
    model = ElasticWave(BOX, layers={"x": 2}, domain=domain)
    fields = {"vx": lambda x, y: jnp.sin(x) * y, "sxy": 2.0, "syy": jnp.arange(192.0).reshape(16, 12)}
    start = model.start(fields)
    blocks = model.to_blocks(start)
    found = domain.run(lambda y: jax.tree.map(lambda a, b: a + 0 * b, model.start(fields), y), blocks)
    compare(model.from_blocks(found), start, 1e-6)
    centred = domain.run(lambda y: model.at_centers(y, "sxy") + 0 * y.fields["sxx"], blocks)
    compare(centred, model.at_centers(start, "sxy"), 1e-6)


def test_what_does_not_fit_blocks_is_refused():
    mesh = parallel.mesh(member=1, x=8)
    domain = parallel.Domain(("x", None), mesh=mesh)
    with pytest.raises(TypeError, match=r"`Maxwell\(domain=...\)` must be a `sciml.parallel.Domain`"):
        Maxwell(BOX, domain=mesh)
    with pytest.raises(ValueError, match="defines its own sides"):
        Acoustic(BOX, domain=parallel.Domain(("x", None), boundary=Boundaries(BOX, Dirichlet(0.0)), mesh=mesh))
    with pytest.raises(ValueError, match="for each axis of the grid"):
        Acoustic(LINE, domain=domain)
    with pytest.raises(ValueError, match="runs on one device. Create it with `domain=`"):
        Acoustic(BOX).to_blocks(Acoustic(BOX).rest())
    thick = ElasticWave(BOX, layers={"x": 3}, domain=domain)
    with pytest.raises(ValueError, match="layers of 3 cells along x must fit into one block, but 8 devices hold 2"):
        thick.to_blocks(thick.start())
    odd = Maxwell(Grid((12, 8)), domain=domain)
    with pytest.raises(ValueError, match="the 12 cells along x of .* cannot be divided by mesh axis"):
        odd.to_blocks(odd.start())
    model = Maxwell(BOX, polarization="Ez", order=8, domain=domain)
    with pytest.raises(ValueError, match="differences of order 8 read 4 halo layers.* hold 2 layers each"):
        domain.run(lambda y: model(0.0, y, None), model.to_blocks(model.start()))
    with pytest.raises(ValueError, match="Convert it with `model.to_blocks` before `Domain.run`"):
        domain.run(
            lambda y: model(0.0, y, None),
            Maxwell(Grid((15, 12)), polarization="Hz")
            .start()
            ._replace(fields={"Ez": jnp.zeros((16, 13)), "Hx": jnp.zeros((16, 12)), "Hy": jnp.zeros((16, 13))}),
        )
    receivers = model.points("Ez", [0.5, 0.5])
    with pytest.raises(ValueError, match=r"`Points.read\(u\)`: `u` must end with the axes"):
        domain.run(lambda y: receivers.read(y.fields["Ez"]), model.to_blocks(model.start()))
