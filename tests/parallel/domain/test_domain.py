"""A field split over eight devices: the same numbers as on one, and the messages that it takes."""

import collections
import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec as P

import sciml
from sciml import inspect, parallel
from sciml.spatial import Boundaries, Dirichlet, Extrapolate, Grid, Neumann, Periodic, Robin

pytestmark = pytest.mark.x64

GRID = Grid((32, 16), upper=(2.0, 1.0))


@pytest.fixture(scope="module")
def mesh():
    return parallel.mesh(member=1, x=4, y=2)


def field(shape=(32, 16), seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


def messages(fn, *args):
    return dict(collections.Counter(found.kind for found in inspect.collectives(fn, *args)))


def laplacian(p):
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * p[1:-1, 1:-1]


def heat(p, rate):
    return p[1:-1, 1:-1] + rate * laplacian(p)


def boundaries(kind):
    if kind == "none":
        return None
    conditions = {
        "periodic": Periodic(),
        "dirichlet": Dirichlet(0.3),
        "half periodic": {"x": Periodic(), "y": Neumann(1.0)},
        "all": {
            "x-": Dirichlet(jnp.linspace(0.0, 1.0, 16)),
            "x+": Neumann(lambda t, args: t * jnp.ones(())),
            "y-": Robin(1.0, 0.5, jnp.linspace(0.0, 2.0, 32)),
            "y+": Extrapolate(),
        },
    }
    return Boundaries(GRID, conditions[kind])


KINDS = ["none", "periodic", "dirichlet", "half periodic", "all"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", [("x", "y"), (None, "y")])
def test_pads_as_a_whole_field(mesh, kind, axes):
    domain = parallel.Domain(axes, boundary=boundaries(kind), mesh=mesh)
    t = jnp.asarray(0.2)

    def corners(u):  # reads ghost cells in corners, too
        p = domain.pad(u, 2, t=t)
        return p[4:, 4:] - p[:-4, 4:] + 2 * p[4:, :-4] - 3 * p[:-4, :-4] + p[2:-2, 1:-3]

    u = field()
    np.testing.assert_allclose(domain.run(corners, u), corners(u), rtol=1e-14, atol=1e-14)
    ct = field(seed=1)
    found = jax.grad(lambda u: jnp.sum(domain.run(corners, u) * ct))(u)
    np.testing.assert_allclose(found, jax.grad(lambda u: jnp.sum(corners(u) * ct))(u), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["none", "all"])
def test_a_step_is_four_messages(mesh, kind):
    domain = parallel.Domain(("x", "y"), boundary=boundaries(kind), mesh=mesh)
    step = domain.map(heat)

    def forward(u):
        return domain.run(lambda u: step(u, 0.1, t=jnp.asarray(0.2)), u)

    u = domain.split(field())
    assert messages(forward, u) == {"collective-permute": 4}
    found = messages(lambda u, ct: jax.vjp(forward, u)[1](ct), u, u)
    assert found == {"collective-permute": 4}


def test_an_undecomposed_dimension_takes_no_message(mesh):
    domain = parallel.Domain(("x", None), mesh=mesh)
    assert messages(lambda u: domain.run(domain.map(heat), u, 0.1), field()) == {"collective-permute": 2}
    assert messages(lambda u: domain.run(lambda u: domain.pad(u, 1)[1:-1, 2:], u), field()) == {"collective-permute": 2}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axes", [("x", "y"), (None, "y")])
def test_wide_halos_serve_several_steps(mesh, kind, axes):
    domain = parallel.Domain(axes, boundary=boundaries(kind), mesh=mesh)
    times = jnp.array([0.1, 0.2, 0.3, 0.4])

    def steps(k, u, rate):
        advance = domain.map(heat, steps_per_exchange=k)
        for n in range(0, 4, k):
            u = advance(u, rate, t=times[n : n + k])
        return u

    u, rate = field(), jnp.asarray(0.1)
    one = jax.jit(ft.partial(steps, 1))(u, rate)
    for k in (2, 4) if kind != "all" else (4,):
        np.testing.assert_allclose(steps(k, u, rate), one, rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(domain.run(ft.partial(steps, k), u, rate), one, rtol=1e-14, atol=1e-14)
        assert messages(lambda u, k=k: domain.run(ft.partial(steps, k), u, rate), u)["collective-permute"] == (
            2 * sum(axis is not None for axis in axes) * 4 // k
        )

    def loss(run):
        return lambda u, rate: jnp.sum(run(u, rate) ** 3)

    found = jax.grad(loss(lambda u, rate: domain.run(ft.partial(steps, 2), u, rate)), argnums=(0, 1))(u, rate)
    expected = jax.grad(loss(ft.partial(steps, 1)), argnums=(0, 1))(u, rate)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12), found, expected)


def wave(domain, steps):
    """Leapfrog on a PyTree: only what is displaced is padded."""

    def run(state, courant):
        def step(_, state):
            before, now = state
            return now, 2 * now - before + courant * laplacian(domain.pad(now, 1))

        return jax.lax.fori_loop(0, steps, step, state)

    return run


@pytest.mark.parametrize(
    "kind, dtype",
    [("none", jnp.float32), ("dirichlet", jnp.float64), ("none", jnp.float64)],
)
def test_wave_equation(mesh, kind, dtype):
    """Bitwise equal to one device; the gradient by the start and by the speed."""
    domain = parallel.Domain(("x", "y"), boundary=boundaries(kind), mesh=mesh)
    u, courant = field().astype(dtype), jnp.asarray(0.3, dtype)
    run = wave(domain, 100)
    one = jax.jit(run)((u, u), courant)
    many = domain.run(run, (u, u), courant)
    assert all(np.array_equal(a, b) for a, b in zip(one, many)) and np.abs(one[0]).max() > 0.1

    def loss(u, courant, split):
        state = domain.run(wave(domain, 20), (u, u), courant) if split else wave(domain, 20)((u, u), courant)
        return jnp.sum(state[1] ** 4)

    found, expected = (jax.jit(jax.grad(ft.partial(loss, split=s), argnums=(0, 1)))(u, courant) for s in (True, False))
    for a, b in zip(found, expected):
        assert np.abs(a - b).max() <= 1e-6 * np.abs(b).max()


STEPS = {"fixed": {"dt": 0.05}, "adaptive": {"rtol": 1e-4, "atol": 1e-4}}


def end_of_a_solve(domain, steps):
    """The end of a reaction-diffusion equation: `solve` traces the model once, and each device runs the program."""

    def end(u, rate):
        def model(t, u, rate):
            return rate * laplacian(domain.pad(u, 1, t=t)) + u - u**3

        return sciml.solve(model, u, t0=0.0, t1=0.2, args=rate, norm=domain.rms, **STEPS[steps]).ys[-1]

    return end


def test_a_solve_split_over_both_axes(mesh):
    domain = parallel.Domain(("x", "y"), boundary=boundaries("all"), mesh=mesh)
    end = end_of_a_solve(domain, "fixed")
    u, rate = field(), jnp.asarray(0.3)
    np.testing.assert_allclose(domain.run(end, u, rate), end(u, rate), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["all", "periodic"])
@pytest.mark.parametrize("steps", STEPS)
def test_the_gradient_of_a_solve_split_over_both_axes(mesh, kind, steps):
    domain = parallel.Domain(("x", "y"), boundary=boundaries(kind), mesh=mesh)
    end = end_of_a_solve(domain, steps)
    u, rate = field(), jnp.asarray(0.3)
    found = jax.jit(jax.grad(lambda u, rate: jnp.sum(domain.run(end, u, rate) ** 3), (0, 1)))(u, rate)
    expected = jax.jit(jax.grad(lambda u, rate: jnp.sum(end(u, rate) ** 3), (0, 1)))(u, rate)
    for a, b in zip(found, expected):
        assert np.abs(a - b).max() <= 1e-9 * np.abs(b).max()


def test_a_boundary_value_has_a_gradient(mesh):
    def loss(conditions, split):
        domain = parallel.Domain(("x", "y"), boundary=conditions, mesh=mesh)
        step = ft.partial(domain.map(heat, steps_per_exchange=2), t=jnp.asarray(0.2))
        out = domain.run(step, field(), jnp.asarray(0.1)) if split else step(field(), jnp.asarray(0.1))
        return jnp.sum(out**3)

    conditions = boundaries("all")
    found, expected = (eqx.filter_grad(ft.partial(loss, split=s))(conditions) for s in (True, False))
    leaves = jax.tree.leaves(expected)
    assert len(leaves) >= 3 and all(np.abs(x).max() > 0 for x in leaves)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11), found, expected)


def test_coefficients_are_extended_and_taken_locally(mesh):
    domain = parallel.Domain(("x", "y"), boundary=boundaries("dirichlet"), mesh=mesh)
    x, y = GRID.centers
    whole = 1.0 + x * y

    def flux(u):
        a = domain.extend(domain.local(whole, 0) if not domain.inside else block(), 1)
        return a[1:-1, 1:-1] * laplacian(domain.pad(u, 1)) + a[2:, 2:]

    def block():
        return domain.local(domain.local(whole, 0), 1)

    u = field()
    np.testing.assert_allclose(domain.run(flux, u), flux(u), rtol=1e-13)
    linear = domain.homogeneous()
    np.testing.assert_allclose(linear.run(lambda u: linear.pad(u, 1)[:-2, 1:-1], u)[0], -u[0])


def reduce_all(domain, u):
    return {
        "sum": domain.sum(u),
        "mean": domain.mean(u),
        "max": domain.max(u),
        "min": domain.min(u),
        "dot": domain.dot(u, u),
        "norm": domain.norm(u),
        "rms": domain.rms(u),
        "same everywhere": domain.sum((u, jnp.ones(3))),
    }


def test_reductions(mesh):
    domain = parallel.Domain(("x", "y"), mesh=mesh)
    u = field()
    run = ft.partial(reduce_all, domain)
    found, expected = domain.run(run, u), run(u)
    assert np.allclose(expected["sum"], u.sum()) and np.allclose(expected["norm"], np.linalg.norm(u))
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, err_msg=name)
    found, expected = jax.jacrev(lambda u: domain.run(run, u))(u), jax.jacrev(run)(u)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-13, err_msg=name)
    assert np.isnan(domain.run(lambda u: domain.max(u), u.at[3, 3].set(jnp.nan)))


def test_gradients_by_shared_parameters_are_sums(mesh):
    """Inside and outside: all devices compute one thing."""
    domain = parallel.Domain(("x", "y"), mesh=mesh)
    u, rate = field(), jnp.asarray(0.1)

    def loss(u, rate):
        return domain.sum(heat(domain.pad(u, 1), rate) ** 3)

    expected = jax.grad(loss, argnums=1)(u, rate)
    np.testing.assert_allclose(domain.run(jax.grad(loss, argnums=1), u, rate), expected, rtol=1e-11)
    np.testing.assert_allclose(jax.grad(lambda rate: domain.run(loss, u, rate))(rate), expected, rtol=1e-11)


FFTS = [
    (("x", None), (32, 16), 1),
    ((None, "x"), (32, 16), 1),
    (("x", "y", None), (8, 8, 4), 2),
    (("x", "y"), (32, 16), 2),
]


@pytest.mark.parametrize("axes, shape, count", FFTS)
def test_fourier_transforms(mesh, axes, shape, count):
    domain = parallel.Domain(axes, mesh=mesh)
    u = field(shape)
    place = P(*domain.spectral_axes)

    def there(u):
        return domain.run(domain.fftn, u, out_specs=place)

    def spectral(u):
        squared = sum(k**2 for k in domain.wavenumbers(shape, 0.5))
        return domain.ifftn(-squared.astype(complex) * domain.fftn(u)).real

    def split(u):
        return domain.run(spectral, u)

    np.testing.assert_allclose(there(u), np.fft.fftn(u), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(split(u), spectral(u), rtol=1e-10, atol=1e-10)
    placed = domain.split(u)
    assert messages(there, placed) == {"all-to-all": count}
    assert messages(split, placed) == {"all-to-all": 2 * count}

    def pullback(u, ct):
        return jax.vjp(there, u)[1](ct)[0]

    ct = domain.run(domain.fftn, field(shape, seed=1), out_specs=place)
    assert messages(pullback, placed, ct) == {"all-to-all": count}
    np.testing.assert_allclose(pullback(placed, ct), jax.vjp(jnp.fft.fftn, u)[1](ct)[0], rtol=1e-10, atol=1e-9)


def test_memory_of_a_device_falls_with_their_number():
    """Of a fixed global field: arguments, results and all that a step needs in between."""
    u = jax.ShapeDtypeStruct((512, 512), jnp.float64)

    def bytes_on(n):
        mesh = parallel.mesh(member=1, x=n, devices=jax.devices()[:n])
        domain = parallel.Domain(("x", None), mesh=mesh)
        placed = jax.ShapeDtypeStruct(u.shape, u.dtype, sharding=jax.sharding.NamedSharding(mesh, P("x")))
        return inspect.memory(lambda u: domain.run(domain.map(heat), u, 0.1), placed).total

    one = bytes_on(1)
    for n in (2, 4, 8):
        assert abs(n * bytes_on(n) / one - 1) < 0.15, n


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_meshes_of_the_context(kind):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(kind, kind))
    u = field()

    def loss(domain, u):
        return domain.run(lambda u: domain.sum(laplacian(domain.pad(u, 1)) ** 3), u)

    whole = parallel.Domain((None, None))
    expected = jax.grad(lambda u: whole.sum(laplacian(whole.pad(u, 1)) ** 3))(u)
    outside = parallel.Domain(("x", "y"), mesh=mesh)
    np.testing.assert_allclose(jax.grad(ft.partial(loss, outside))(u), expected, rtol=1e-11, atol=1e-11)
    domain = parallel.Domain(("x", "y"))
    with jax.set_mesh(mesh):
        for v in (u, domain.split(u)):
            np.testing.assert_allclose(
                domain.gather(jax.jit(jax.grad(ft.partial(loss, domain)))(v)), expected, rtol=1e-11, atol=1e-11
            )


def member(domain, params, shared):
    u = params["u"]
    return domain.run(lambda u, c: domain.sum(heat(domain.pad(u, 1), c[0] * c[1]) ** 3), u, (params["a"], shared))


@pytest.mark.parametrize("kinds", [(AxisType.Explicit,) * 3, (AxisType.Auto, AxisType.Explicit, AxisType.Explicit)])
def test_members_that_span_devices_of_the_context(kinds):
    mesh = jax.make_mesh((2, 2, 2), ("member", "x", "y"), axis_types=kinds)
    domain, whole = parallel.Domain(("x", "y")), parallel.Domain((None, None), mesh=parallel.mesh())

    def plain(params, shared):
        u = params["u"]
        return whole.sum(heat(whole.pad(u, 1), params["a"] * shared) ** 3)

    def total(run, params, shared):
        return jnp.sum(run(params, shared))

    shared = jnp.asarray(0.7)
    for n in (4, 3):
        params = {"u": field((n, 8, 8)), "a": jnp.linspace(0.1, 0.3, n)}
        goal = ft.partial(total, jax.vmap(plain, in_axes=(0, None)))
        expected = jax.grad(goal, argnums=(0, 1))(params, shared)
        with jax.set_mesh(mesh):
            for block in (None, 1):
                run = ft.partial(parallel.ensemble, ft.partial(member, domain), block=block)
                np.testing.assert_allclose(total(run, params, shared), goal(params, shared), rtol=1e-11)
            found = jax.jit(jax.grad(ft.partial(total, run), argnums=(0, 1)))(params, shared)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), found, expected)


def test_members_that_span_devices():
    """An ensemble on one mesh axis of fields on two others; gradients outside and inside of a member."""
    mesh = parallel.mesh(member=2, x=2, y=2)
    domain, whole = parallel.Domain(("x", "y")), parallel.Domain((None, None), mesh=parallel.mesh())
    params, shared = {"u": field((5, 8, 8)), "a": jnp.linspace(0.1, 0.3, 5)}, jnp.asarray(0.7)

    def plain(params, shared):
        u = params["u"]
        return whole.sum(heat(whole.pad(u, 1), params["a"] * shared) ** 3)

    expected = jax.vmap(plain, in_axes=(0, None))(params, shared)
    run = ft.partial(parallel.ensemble, ft.partial(member, domain), mesh=mesh)
    np.testing.assert_allclose(run(params, shared, block=1), expected, rtol=1e-11)

    found = jax.grad(lambda *x: jnp.sum(run(*x) ** 2), argnums=(0, 1))(params, shared)
    by_hand = jax.grad(lambda *x: jnp.sum(jax.vmap(plain, in_axes=(0, None))(*x) ** 2), argnums=(0, 1))(params, shared)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), found, by_hand)

    inner = parallel.ensemble(jax.grad(ft.partial(member, domain), argnums=1), params, shared, mesh=mesh)
    np.testing.assert_allclose(
        inner, jax.vmap(jax.grad(plain, argnums=1), in_axes=(0, None))(params, shared), rtol=1e-10
    )


def test_split_and_gather(mesh):
    domain = parallel.Domain(("x", "y"), mesh=mesh)
    fields = {"u": np.arange(512.0).reshape(32, 16), "v": jnp.ones((3, 32, 16))}
    split = domain.split(fields)
    assert split["u"].addressable_shards[0].data.shape == (8, 8)
    assert split["v"].sharding.spec == P(None, "x", "y")
    assert domain.run(lambda f: f, split)["v"].sharding.spec == P(None, "x", "y")
    back = domain.gather(split)
    assert isinstance(back["u"], np.ndarray) and np.array_equal(back["u"], fields["u"])


def test_results_may_hold_anything(mesh):
    domain = parallel.Domain(("x", "y"), mesh=mesh)
    out = domain.run(lambda u, s: (u, s["label"], domain.sum(u), s["f"], 3), field(), {"label": "heat", "f": jnp.tanh})
    assert out[1] == "heat" and out[3] is jnp.tanh and out[4] == 3 and out[2].shape == ()
    inside = domain.run(lambda u: domain.run(lambda u: 2 * u, u), field())  # in place
    np.testing.assert_array_equal(inside, 2 * field())


def run_bad(domain, fn=lambda u: u, u=None):
    return lambda: domain.run(fn, field() if u is None else u)


def test_errors_name_the_remedy(mesh):
    domain = parallel.Domain(("x", "y"), mesh=mesh)
    walled = parallel.Domain(("x", "y"), boundary=boundaries("dirichlet"), mesh=mesh)
    cases = [
        (run_bad(domain, u=field((30, 16))), r'30 cells along dimension 0.*"x".*4 equal.*mesh\(member=1, x=2, y=4\)'),
        (run_bad(domain, u=field((7, 11))), r"mesh\(member=1, x=7, y=1, devices=jax.devices\(\)\[:7\]\)"),
        (run_bad(domain, u=field((32,))), "must have at least the 2 dimensions"),
        (run_bad(domain, lambda u: domain.pad(u, 9)), "halo of width 9 is wider than the 8 cells.*at most 2 devices"),
        (run_bad(domain, domain.map(lambda p: heat(p, 0.1), steps_per_exchange=9)), "width 9 is wider"),
        (run_bad(domain, domain.map(lambda p: p)), "must return it without them, with shape"),
        (run_bad(domain, domain.map(lambda p: (p, p))), "the structure of its argument"),
        (run_bad(domain, jnp.sum), "differs between devices, but is not a field"),
        (run_bad(domain, domain.fftn), "use `out_specs=PartitionSpec"),
        (run_bad(walled, lambda u: walled.pad(u, 1), field((16, 16))), r"axes \(32, 16\), but got \(16, 16\)"),
        (lambda: walled.pad(field((8, 8)), 1), "should be split through `Domain.run`"),
        (run_bad(parallel.Domain(("x", "y"))), "has no mesh. Pass `mesh=parallel.mesh"),
        (lambda: parallel.Domain(("z",), mesh=mesh), 'no axis named "z"'),
        (lambda: parallel.Domain(("x", "x"), mesh=mesh), "contains a mesh axis twice"),
        (lambda: parallel.Domain(()), "but is empty"),
        (lambda: parallel.Domain(("x",), boundary=boundaries("dirichlet")), "for each of the 2 dimensions"),
        (
            run_bad(parallel.Domain(("x",), mesh=mesh), parallel.Domain(("x",)).fftn, field((16,))),
            "must be whole on each device",
        ),
        (run_bad(domain, domain.fftn, field((4, 4))), "split dimension 0 over 2 devices"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
    half = jax.shard_map(lambda u: domain.pad(u, 1), mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
    with pytest.raises(ValueError, match=r"inside a `jax.shard_map` over \['x'\], but not over \['y'\]"):
        jax.jit(half)(field())
    with jax.set_mesh(mesh), pytest.raises(ValueError, match="JAX does not allow another mesh"):
        parallel.Domain(("x",), mesh=parallel.mesh(member=1, x=8)).run(lambda u: u, field())
