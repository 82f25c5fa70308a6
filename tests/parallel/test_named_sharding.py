"""`jax.jit(jax.vmap(solve))` on arrays with a NamedSharding over members: right, sharded as they are, and no device
waits for another, on meshes with automatic and with explicit axes.
"""

import contextlib
import functools

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import sciml
from sciml.inspect._compiled import collectives_of
from sciml.inspect._hlo_text import parse
from tests.parallel.common import collectives_in
from tests.sharding_table import SOLVERS

Y0 = jnp.asarray([1.0, 0.5])
RATES = np.linspace(0.5, 5.0, 12)
FINE = dict(rtol=1e-5, atol=1e-6)
HOW = {
    "fixed": dict(dt=0.1),
    "adaptive": FINE,
    "saved": dict(saveat=[0.3, 1.0], **FINE),
    "stiff": dict(solver=sciml.solvers.Rosenbrock23(), **FINE),
}


def field(t, y, rate):
    return jnp.stack([-rate * y[0] * y[1], rate * y[0] * y[1] - y[1]])


def one(rate, **how):
    return sciml.solve(field, Y0, t0=0.0, t1=1.0, args=rate, throw=False, **how).ys[-1]


@functools.cache
def program(how, what):
    def member(rate, **more):
        return one(rate, **HOW[how], **more)

    forward = sciml.adjoints.Forward()
    return {
        "forward": jax.vmap(member),
        "gradient": jax.grad(lambda rates: jnp.sum(jax.vmap(member)(rates))),
        "vmap(grad)": jax.vmap(jax.grad(lambda rate: jnp.sum(member(rate)))),
        "forward mode": lambda k: jax.jvp(jax.vmap(lambda r: member(r, adjoint=forward)), (k,), (jnp.ones_like(k),))[1],
    }[what]


@functools.cache
def on_one(how, what):
    """What the program finds for members that are not sharded."""
    return jax.jit(program(how, what))(RATES)


def mesh_of(kind, shape=(4,), names=("m",), devices=None):
    devices = np.array((devices or jax.devices())[: np.prod(shape)]).reshape(shape)
    return Mesh(devices, names) if kind == "auto" else jax.make_mesh(shape, names, devices=devices.flatten())


def check(fn, x, expected, *, spec=P("m"), anywhere=False):
    """The result is right and sharded by `spec`; there is no collective in a loop, nor `anywhere` unless allowed."""
    compiled = jax.jit(fn).lower(*x).compile()
    found = compiled(*x)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
        if spec is not None:
            assert tuple(a.sharding.spec)[: len(spec)] == tuple(spec)
    between = collectives_of(parse(compiled.as_text()))
    assert not [c for c in between if c.in_loop or not anywhere]


WHAT = "forward", "gradient", "vmap(grad)", "forward mode"


@pytest.mark.parametrize(
    "kind, how, what",
    # explicit axes in every way; automatic ones in every way by one loop, and by all loops in one way
    [("explicit", how, what) for how in HOW for what in WHAT]
    + [("auto", how, what) for how in HOW for what in WHAT if how == "adaptive" or what == "gradient"],
)
def test_members(kind, how, what):
    fn = program(how, what)
    x = jax.device_put(RATES, NamedSharding(mesh_of(kind), P("m")))
    check(fn, (x,), on_one(how, what))


BY_DIFFRAX = {
    "adaptive": lambda end: FINE,
    "fixed": lambda end: dict(dt=0.1),
    "saved": lambda end: dict(saveat=jnp.stack([end / 3, end]), **FINE),
    "forward mode": lambda end: dict(dt=0.1, adjoint=sciml.adjoints.Direct()),
}
"""How a method runs that has no loops but those of diffrax, by a member's end."""


def by_diffrax(how, closes_over, what):
    solver = diffrax.Kvaerno3(root_finder=diffrax.VeryChord(rtol=1e-8, atol=1e-8))

    def total(rate, end):
        model = (lambda t, y, args: field(t, y, rate)) if closes_over else field
        options = dict(t0=0.0, solver=solver, throw=False) | BY_DIFFRAX[how](end)
        return jnp.sum(sciml.solve(model, Y0, t1=end, args=rate, **options).ys)

    return {
        "forward": jax.vmap(total),
        "gradient": jax.grad(lambda rates, ends: jnp.sum(jax.vmap(total)(rates, ends)), (0, 1)),
        "vmap(grad)": jax.vmap(jax.grad(total, (0, 1))),
        "vmap(jacfwd)": jax.vmap(jax.jacfwd(total, (0, 1))),
    }[what]


@functools.cache
def by_diffrax_on_one(*which):
    return jax.jit(by_diffrax(*which))(RATES[:8], ENDS_OF_SOME)


ENDS_OF_SOME = np.array([1.0, 0.5, 0.0, 0.8] * 2)  # one in four has no length


@pytest.mark.parametrize(
    "how, closes_over, what",
    [
        ("adaptive", False, "forward"),
        ("adaptive", True, "gradient"),
        ("adaptive", False, "vmap(grad)"),
        ("fixed", False, "gradient"),
        ("saved", True, "gradient"),
        ("saved", False, "vmap(grad)"),
        ("forward mode", False, "vmap(jacfwd)"),
        ("forward mode", False, "gradient"),
    ],
)
def test_a_solve_of_diffrax(how, closes_over, what):
    """Its loops do not know axes that are part of a type: each device runs them over its own members."""
    x = tuple(jax.device_put(x, NamedSharding(mesh_of("explicit"), P("m"))) for x in (RATES[:8], ENDS_OF_SOME))
    check(by_diffrax(how, closes_over, what), x, by_diffrax_on_one(how, closes_over, what))


def test_a_solve_of_diffrax_has_reverse_mode_alone():
    x = tuple(jax.device_put(x, NamedSharding(mesh_of("explicit"), P("m"))) for x in (RATES[:8], ENDS_OF_SOME))
    fn = by_diffrax("fixed", False, "forward")
    with pytest.raises(TypeError, match=r"forward mode.*`adjoint=sciml.adjoints.Direct\(\)`"):
        jax.jit(lambda *x: jax.jvp(fn, x, x))(*x)


@pytest.mark.parametrize("what", ["forward", "gradient", "vmap(grad)"])
@pytest.mark.parametrize("within", [False, True])
def test_one_device(within, what):
    """What everybody tries first: the mesh that `jax.make_mesh` makes of the one device that there is."""
    fn = program("adaptive", what)
    expected, mesh = on_one("adaptive", what), mesh_of("explicit", (1,))
    x = jax.device_put(RATES, NamedSharding(mesh, P("m")))
    if not within:
        check(fn, (x,), expected)
        return
    with jax.set_mesh(mesh):
        check(fn, (x,), expected)


@functools.cache
def direct(how):
    """Second derivatives through fixed steps, which go both ways; first ones through loops of unknown length."""
    by_loops = sciml.adjoints.Direct()

    def member(rate):
        return jnp.sum(one(rate, adjoint=by_loops, **HOW[how]))

    fn = jax.vmap(jax.hessian(member) if how == "fixed" else jax.jacfwd(member))
    return fn, jax.jit(fn)(RATES)


@pytest.mark.parametrize("how", ["fixed", "saved", "stiff"])
def test_direct_on_explicit_axes(how):
    """The loops that JAX differentiates itself, which it batches nowhere else on such axes."""
    fn, expected = direct(how)
    check(fn, (jax.device_put(RATES, NamedSharding(mesh_of("explicit"), P("m"))),), expected)


ENDS = np.linspace(0.5, 1.0, len(RATES))


def to_an_end(rate, end):
    return jnp.sum(sciml.solve(field, Y0, t0=0.0, t1=end, args=rate, dt=1 / 8, throw=False).ys)


@functools.cache
def to_ends_on_one(by):
    return jax.jit(jax.vmap(jax.grad(to_an_end, by)))(RATES, ENDS)


@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_end_times_of_members(kind, by):
    sharding = NamedSharding(mesh_of(kind), P("m"))
    x = tuple(jax.device_put(x, sharding) for x in (RATES, ENDS))
    check(jax.vmap(jax.grad(to_an_end, by)), x, to_ends_on_one(by), spec=P("m"))


def thrown(t, y, gravity):
    """A ball, by functions with programs within, which JAX would batch by itself outside of the loops."""
    return jax.lax.cond(y[1] < -50.0, lambda v: jnp.zeros(2), lambda v: jnp.stack([v, -gravity]), y[1])


def turned(t, y, gravity):
    return jax.lax.fori_loop(0, 1, lambda _, y: jnp.stack([y[0], -0.8 * y[1]]), y)


BOUNCE = sciml.Event(lambda t, y, gravity: jnp.clip(y[0], -10.0, 10.0), turned, direction=-1)
LANDS = sciml.Event(lambda t, y, gravity: y[0] < 0)


def kicks(end, gravity):
    return sciml.Schedule(jnp.stack([0 * end, end / 3]), lambda t, y, args, v: y + v * args, jnp.stack([gravity, end]))


OF_MEMBERS = {
    "end": lambda gravity, end: dict(t1=end, events=BOUNCE),
    "start": lambda gravity, end: dict(t0=end - 1, events=BOUNCE),
    "end, ended": lambda gravity, end: dict(t1=end, events=LANDS),
    "end, stiff": lambda gravity, end: dict(t1=end, events=BOUNCE, solver=sciml.solvers.Rosenbrock23()),
    "end, saved": lambda gravity, end: dict(t1=end, events=BOUNCE, saveat=jnp.stack([end / 2, end])),
    "saved": lambda gravity, end: dict(events=BOUNCE, saveat=jnp.stack([end / 2, end])),
    "schedule": lambda gravity, end: dict(events=[kicks(end, gravity), BOUNCE]),
    "schedule, end": lambda gravity, end: dict(t1=end, events=kicks(end, gravity)),
    "schedule, end, columns": lambda gravity, end: dict(
        t1=end, events=kicks(end, gravity), adjoint=sciml.adjoints.Forward()
    ),
}
"""What events are sought in, where members have times of their own: by gravity and a time."""


def with_events(how):
    def total(gravity, end):
        options = dict(t0=0.0, t1=1.0, args=gravity, throw=False, max_events=4, **FINE)
        sol = sciml.solve(thrown, jnp.asarray([1.0, 0.0]), **options | OF_MEMBERS[how](gravity, end))
        return jnp.sum(sol.ys) + jnp.sum(jnp.nan_to_num(sol.events.times))

    return jax.vmap(jax.value_and_grad(total, (0, 1)))


@functools.cache
def with_events_on_one(how):
    return jax.jit(with_events(how))(9.81 * ENDS, ENDS)


@pytest.mark.parametrize("how", OF_MEMBERS)
@pytest.mark.parametrize("kind, within", [("explicit", False), ("explicit", True), ("auto", False)])
def test_events_of_members_with_times_of_their_own(kind, within, how):
    mesh = mesh_of(kind)
    x = tuple(jax.device_put(x, NamedSharding(mesh, P("m"))) for x in (9.81 * ENDS, ENDS))
    with jax.set_mesh(mesh) if within else contextlib.nullcontext():
        check(with_events(how), x, with_events_on_one(how))


def held_between_samples(rate, end):
    """A tank whose valve changes at times of each member's own."""
    valve = sciml.Held(jnp.stack([0 * end, 0.15 * rate]), jnp.stack([rate, 0 * rate]))
    options = dict(t0=0.0, t1=end, args=valve, events=valve.jumps(), throw=False, **FINE)
    return jnp.sum(sciml.solve(lambda t, y, valve: valve(t) - y, jnp.asarray(1.0), **options).ys)


def late(rate, end):
    """Counted from a past of ones, with a state that no member has for itself."""
    model = sciml.Delayed(lambda t, y, past, k: -k * past, 0.5, history=lambda t, k: jnp.ones_like(k))
    return jnp.sum(sciml.solve(model, jnp.ones_like(rate), t0=0.0, t1=end, args=rate, throw=False, **FINE).ys)


@functools.cache
def of_inputs(of, what):
    return {
        "forward": jax.vmap(of),
        "gradient": jax.grad(lambda rates, ends: jnp.sum(jax.vmap(of)(rates, ends)), (0, 1)),
        "vmap(grad)": jax.vmap(jax.grad(of, (0, 1))),
    }[what]


@functools.cache
def of_inputs_on_one(of, what):
    return jax.jit(of_inputs(of, what))(RATES[:4], ENDS_OF_SOME[:4])


@pytest.mark.parametrize(
    "of, what",
    # the transpose of what looks a sample up writes into a new array; a cotangent of what is constant is on no mesh
    [(held_between_samples, "forward"), (held_between_samples, "vmap(grad)"), (late, "forward"), (late, "gradient")],
)
def test_inputs_and_a_past_of_each_member(of, what):
    mesh = mesh_of("explicit", (2,))
    x = tuple(jax.device_put(x[:4], NamedSharding(mesh, P("m"))) for x in (RATES, ENDS_OF_SOME))
    check(of_inputs(of, what), x, of_inputs_on_one(of, what))


def batched_by_jax(solver):
    problem, options = SOLVERS[solver]

    def total(rates):
        times = dict(t0=0.0, t1=1.0, args=rates, throw=False)
        ys = sciml.solve(problem.model, problem.start(rates.dtype), **times, **options).ys
        return sum(jnp.sum(y) for y in jax.tree.leaves(ys))

    return jax.grad(lambda rates: jnp.sum(jax.vmap(total)(rates)))


PAIRS_OF_RATES = np.linspace(0.5, 1.5, 16).reshape(8, 2)


@functools.cache
def batched_by_jax_on_one(solver):
    return jax.jit(batched_by_jax(solver))(PAIRS_OF_RATES)


@pytest.mark.parametrize("solver", ["exponential", "implicit-explicit", "stabilised", "symplectic"])
@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_methods_whose_members_jax_batches(kind, solver):
    """Also within `jax.set_mesh`, which changes something where axes are explicit."""
    mesh = mesh_of(kind)
    x = jax.device_put(PAIRS_OF_RATES, NamedSharding(mesh, P("m")))
    check(batched_by_jax(solver), (x,), batched_by_jax_on_one(solver))
    if kind == "explicit" or solver == "exponential":
        with jax.set_mesh(mesh):
            check(batched_by_jax(solver), (x,), batched_by_jax_on_one(solver))


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_within_set_mesh(kind):
    fn = program("adaptive", "gradient")
    expected = on_one("adaptive", "gradient")
    with jax.set_mesh(mesh_of(kind)):
        check(fn, (jax.device_put(RATES, P("m")),), expected)


def test_shardings_that_jit_is_given_and_constraints():
    fn, over = program("adaptive", "forward"), NamedSharding(mesh_of("auto"), P("m"))
    expected = on_one("adaptive", "forward")
    compiled = jax.jit(fn, in_shardings=over, out_shardings=over).lower(RATES).compile()
    np.testing.assert_allclose(compiled(RATES), expected, rtol=1e-6)
    assert not collectives_in(compiled.as_text())
    constrained = jax.jit(lambda k: fn(jax.lax.with_sharding_constraint(k * 1.0, over)))
    found = constrained(jnp.asarray(RATES))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.sharding.spec[0] == "m"


@functools.cache
def network():
    """The gradient of a loss of many starts by the weights that they share, its inputs, and what it is."""
    net = eqx.nn.MLP(2, 2, 8, 1, activation=jnp.tanh, key=jax.random.key(0))
    weights, rest = eqx.partition(net, eqx.is_array)

    def loss(weights, y):
        model = lambda t, y, weights: eqx.combine(weights, rest)(y)  # noqa: E731
        end = lambda y: sciml.solve(model, y, t0=0.0, t1=1.0, args=weights, throw=False, **FINE).ys[-1]  # noqa: E731
        return jnp.mean(jax.vmap(end)(y) ** 2)

    x = weights, jax.random.normal(jax.random.key(1), (12, 2))
    return jax.grad(loss), x, jax.jit(jax.grad(loss))(*x)


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_a_network_that_members_share(kind):
    """Its gradient is added up over devices once, after the loops."""
    gradient, (weights, y), expected = network()
    x = jax.device_put(y, NamedSharding(mesh_of(kind), P("m")))
    check(gradient, (weights, x), expected, spec=None, anywhere=True)


@pytest.mark.parametrize("kind", ["auto", "explicit"])
@pytest.mark.parametrize("axes", ["m", ("m", "model")])
def test_a_mesh_of_two_axes(kind, axes):
    fn = program("adaptive", "gradient")
    x = jax.device_put(RATES, NamedSharding(mesh_of(kind, (2, 2), ("m", "model")), P(axes)))
    check(fn, (x,), on_one("adaptive", "gradient"), spec=P(axes))


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_nested_batches(kind):
    fn = jax.vmap(jax.vmap(lambda rate: one(rate, **FINE)))
    rates = RATES.reshape(4, 3)
    expected = jax.jit(fn)(rates)
    mesh = mesh_of(kind, (2,))
    check(fn, (jax.device_put(rates, NamedSharding(mesh, P("m"))),), expected)
    inner = jax.device_put(rates.T, NamedSharding(mesh, P(None, "m")))
    check(fn, (inner,), np.moveaxis(expected, 0, 1), spec=None, anywhere=True)


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_members_of_no_length_and_saved_times(kind):
    """Of two members on each device one ends where it starts; the gradient by the end is the rate there, too."""

    def total(ends):
        def member(t1):
            return jnp.sum(sciml.solve(field, Y0, t0=0.0, t1=t1, args=1.0, saveat=t1[None], throw=False, **FINE).ys)

        return jnp.sum(jax.vmap(member)(ends))

    ends = np.array([0.0, 1.0] * 4)
    fn = jax.grad(total)
    expected = jax.jit(fn)(ends)
    np.testing.assert_allclose(expected[0], float(jnp.sum(field(0.0, Y0, 1.0))), rtol=1e-5)
    check(fn, (jax.device_put(ends, NamedSharding(mesh_of(kind), P("m"))),), expected)


def test_a_number_of_members_that_devices_cannot_share():
    fn, over = program("adaptive", "forward"), NamedSharding(mesh_of("auto", (4,)), P("m"))
    rates = RATES[:10]
    found = jax.jit(lambda k: fn(jax.lax.with_sharding_constraint(k * 1.0, over)))(jnp.asarray(rates))
    np.testing.assert_allclose(found, on_one("adaptive", "forward")[:10], rtol=1e-6)


def test_a_field_that_is_sharded_over_space():
    x = np.arange(32) / 32
    u = jnp.asarray(np.sin(2 * np.pi * x)[:, None] * np.cos(2 * np.pi * x))

    def heat(t, u, args):
        return 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u)

    fn = lambda u: sciml.solve(heat, u, t0=0.0, t1=1.0, **FINE).ys[-1]  # noqa: E731
    split = jax.device_put(u, NamedSharding(mesh_of("auto"), P("m")))
    found = jax.jit(fn)(split)
    np.testing.assert_allclose(found, jax.jit(fn)(u), rtol=1e-6, atol=1e-6)
    assert found.sharding.spec[0] == "m"


@pytest.mark.parametrize("how", ["fixed", "adaptive", "saved"])
def test_a_gradient_of_one_state_that_is_split_on_explicit_axes(how):
    def loss(u):
        return jnp.sum(sciml.solve(lambda t, u, args: u - u**3, u, t0=0.0, t1=1.0, **HOW[how]).ys ** 2)

    u = np.linspace(0.1, 0.9, 32).reshape(8, 4)
    sharded = jax.device_put(u, NamedSharding(jax.make_mesh((4,), ("x",)), P("x")))
    found, expected = jax.jit(jax.grad(loss))(sharded), jax.jit(jax.grad(loss))(u)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.sharding.spec[0] == "x"


def test_pmap():
    fn = lambda rate: one(rate, **FINE)  # noqa: E731
    found = jax.pmap(jax.vmap(fn))(RATES.reshape(4, 3))
    np.testing.assert_allclose(found.reshape(12, 2), on_one("adaptive", "forward"), rtol=1e-6)


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_functions_of_sciml_that_place_members_themselves(kind):
    x = jax.device_put(RATES, NamedSharding(mesh_of(kind), P("m")))
    fn = lambda rate: one(rate, **FINE)  # noqa: E731
    expected = on_one("adaptive", "forward")
    np.testing.assert_allclose(sciml.parallel.ensemble(fn, x), expected, rtol=1e-6)
    np.testing.assert_allclose(sciml.parallel.sweep(fn, x, progress=False).values, expected, rtol=1e-6)
    run = sciml.simulate(
        lambda t, y, rates: -rates * y, x, args=x, t0=0.0, t1=0.2, dt=0.1, save_every=0.2, progress=False
    )
    assert np.isfinite(run.values).all()


def test_on_a_mesh_of_one_device_a_program_is_that_of_one(monkeypatch):
    """So that a sweep, which is known by its program, is the same run on one device and on many."""

    def run(rate):
        options = dict(t0=0.0, t1=1.0, saveat=np.linspace(0.0, 1.0, 5), rtol=1e-4, atol=1e-4, throw=False)
        return sciml.solve(lambda t, y, k: -k * y, Y0, args=rate, **options).ys

    def text():
        with jax.set_mesh(Mesh(np.asarray(jax.devices()[:1]), ("member",))):
            return jax.jit(jax.vmap(lambda rate: run(rate))).lower(RATES).as_text()

    among_many = text()
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert among_many == text()


@pytest.mark.parametrize("how, memory", [("fixed", 2**11), ("saved", 2**16)])
def test_what_is_kept_for_a_gradient_depends_on_all_members(how, memory):
    """Not on those of one device, of which there is room for more steps."""
    adjoint = sciml.adjoints.Checkpointed(memory=memory)
    fn = jax.vmap(jax.grad(lambda rate: jnp.sum(one(rate, adjoint=adjoint, **HOW[how]))))
    rates = np.linspace(0.5, 5.0, 24)
    check(fn, (jax.device_put(rates, NamedSharding(mesh_of("auto"), P("m"))),), jax.jit(fn)(rates))


@pytest.mark.x64
def test_what_one_member_keeps_does_not_depend_on_devices():
    """Of a method whose members JAX batches: the records of each are within the memory of one."""
    how = dict(solver=sciml.solvers.Radau5(), adjoint=sciml.adjoints.Checkpointed(memory=2**14), throw=False)

    def end(rate):
        sol = sciml.solve(lambda t, y, k: -k * y, jnp.ones(2), t0=0.0, t1=1.0, args=rate, **how)
        return jnp.sum(sol.ys[-1])

    fn = jax.vmap(jax.grad(end))
    rates = np.linspace(0.5, 2.0, 8)
    check(fn, (jax.device_put(rates, NamedSharding(mesh_of("auto"), P("m"))),), -2 * np.exp(-rates))


def lorenz(t, y, args):
    return jnp.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])


def interpolated(y0):
    dense = diffrax.SaveAt(dense=True)
    euler = diffrax.Euler()
    sol = sciml.solve(lorenz, y0, t0=0.0, t1=0.5, dt=0.1, solver=euler, saveat=dense, throw=False)
    return sol.evaluate(0.37)


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_dense_output_of_members_outside_of_the_mapped_function(kind):
    """What members share, as a rate of all of them, is sharded as they are, and so is a time that all save at."""
    shared, t = jnp.asarray([0.5, 1.0]), jnp.asarray([0.1, 0.37])
    saveat = diffrax.SaveAt(ts=[0.25, 0.5], dense=True)

    def run(y0):
        model = lambda t, y, rates: -rates * y * jnp.where(y > 2, 1.0, y)  # noqa: E731
        return sciml.solve(model, y0, t0=0.0, t1=0.5, args=shared, saveat=saveat, throw=False, **FINE)

    y0 = np.linspace(0.5, 1.5, 16).reshape(8, 2)
    sols = jax.jit(jax.vmap(run))(jax.device_put(y0, NamedSharding(mesh_of(kind), P("m"))))
    states = jax.vmap(lambda sol: sol.evaluate(t))
    for fn in (states, jax.jit(states)):
        found = fn(sols)
        np.testing.assert_allclose(found, jax.jit(jax.vmap(lambda y: run(y).evaluate(t)))(y0), rtol=1e-6)
        assert tuple(found.sharding.spec)[:1] == ("m",)


def exponents(y0):
    return sciml.inspect.lyapunov_exponents(lorenz, y0, t1=1.0, every=0.1, dt=0.02, throw=False).exponents


def doubling(y0):
    return sciml.inspect.horizon(lorenz, y0, t1=1.0, n=8, dt=0.02, throw=False).growth


def between_walls(y0):
    def heat(t, y, rate):
        return jnp.stack([y[1], -rate * jnp.exp(y[0])])

    def ends(a, b, _):
        return jnp.stack([a[0], b[0]])

    return sciml.solve_bvp(heat, ends, jnp.linspace(0.0, 1.0, 5), jnp.zeros((5, 2)), args=y0[0], throw=False).ys


@functools.cache
def around_on_one(of):
    return jax.jit(jax.vmap(of))(1.0 + 0.1 * jnp.arange(12.0).reshape(4, 3))


@pytest.mark.parametrize("of", [interpolated, exponents, doubling, between_walls])
@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_what_stands_around_a_solve(kind, of):
    """Dense output, exponents, horizons, boundary values: their own operations are no loops of the library."""
    y0 = 1.0 + 0.1 * jnp.arange(12.0).reshape(4, 3)
    x = jax.device_put(y0, NamedSharding(mesh_of(kind), P("m")))
    check(jax.vmap(of), (x,), around_on_one(of), spec=P("m"), anywhere=kind == "auto")


def test_boundary_values_within_set_mesh():
    """Where Equinox computes constants of optimistix on that mesh while they are traced."""
    y0 = 1.0 + 0.1 * jnp.arange(12.0).reshape(4, 3)
    fn = jax.vmap(jax.value_and_grad(lambda y: jnp.sum(between_walls(y))))
    expected, mesh = jax.jit(fn)(y0), mesh_of("explicit")
    with jax.set_mesh(mesh):
        check(fn, (jax.device_put(y0, NamedSharding(mesh, P("m"))),), expected)


@pytest.mark.parametrize("of", [interpolated, between_walls])
@pytest.mark.parametrize("of_all", [False, True])
def test_gradients_of_what_stands_around_a_solve(of, of_all):
    """Of each member, and of all together: a state between steps is a solve, which has reverse mode alone."""
    y0 = 1.0 + 0.1 * jnp.arange(12.0).reshape(4, 3)
    x = jax.device_put(y0, NamedSharding(mesh_of("explicit"), P("m")))
    each = lambda y: jnp.sum(of(y))  # noqa: E731
    fn = jax.jit(jax.grad(lambda y: jnp.sum(jax.vmap(each)(y))) if of_all else jax.vmap(jax.grad(each)))
    found = fn(x)
    np.testing.assert_allclose(found, fn(y0), rtol=1e-6)
    assert tuple(found.sharding.spec)[:1] == ("m",)
