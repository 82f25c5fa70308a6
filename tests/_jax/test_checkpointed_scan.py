"""`checkpointed_scan` against `jax.lax.scan`: the same values to the bit, the same derivatives, less memory."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

import sciml
from sciml import inspect, verify
from sciml._jax import _checkpoint_levels

POLICIES = ({}, {"levels": 1}, {"levels": 3}, {"segments": 5}, {"memory": 4000}, {"levels": 8})
each_policy = pytest.mark.parametrize(
    "policy", POLICIES, ids=["default", "one", "three", "segments", "memory", "eight"]
)


def step(factor, carry, x):
    """A step with a PyTree of all kinds of leaves, whose output depends on all of them."""
    noise = jax.random.normal(jax.random.fold_in(carry["key"], carry["count"]), (3,), carry["y"].dtype)
    forward = jnp.where(carry["even"], 1.0, 0.5).astype(carry["y"].dtype)
    y = jnp.sin(factor * carry["y"]) * forward + x["a"] * 0.1 + 0.01 * noise
    y = y + x["n"].astype(y.dtype) * 0.01
    new = {"y": y, "count": carry["count"] + 1, "even": ~carry["even"], "key": carry["key"]}
    return new, {"y": y[0] * y[1], "count": carry["count"]}


def inputs(length):
    x = np.random.default_rng(length).normal(size=(length, 3))
    carry = {
        "y": jnp.array([0.3, -0.8, 1.1]),
        "count": jnp.array(0, jnp.int32),
        "even": jnp.array(True),
        "key": jax.random.key(3),
    }
    return carry, {"a": jnp.asarray(x), "n": jnp.arange(length) % 3}


def by_lax(step, carry, xs=None, **options):
    return jax.lax.scan(step, carry, xs, **options)


def loss(scan, length, y, a, factor):
    carry, xs = inputs(length)
    end, ys = scan(ft.partial(step, factor), carry | {"y": y}, xs | {"a": a})
    return jnp.sum(jnp.sin(end["y"])) + jnp.sum(jnp.cos(ys["y"]))


def arguments(length):
    carry, xs = inputs(length)
    return carry["y"], xs["a"], jnp.array(1.2)


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b)):
        assert x.dtype == y.dtype
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_array_equal(x, y)


def close(a, b):
    eps = float(jnp.finfo(jnp.result_type(float)).eps)
    jax.tree.map(ft.partial(np.testing.assert_allclose, rtol=200 * eps, atol=200 * eps), a, b)


@each_policy
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 7, 97])
def test_values_are_those_of_a_scan(length, reverse, policy):
    if not length and "memory" in policy:
        policy = {"memory": 1}
    carry, xs = inputs(length)
    fn = ft.partial(step, 1.2)
    found = jax.jit(lambda c, x: sciml.checkpointed_scan(fn, c, x, reverse=reverse, **policy))(carry, xs)
    expected = jax.jit(lambda c, x: jax.lax.scan(fn, c, x, reverse=reverse))(carry, xs)
    if length == 7 or policy == {"levels": 8}:  # XLA unrolls the shortest loops, and then rounds otherwise
        found, expected = ((jax.random.key_data(c.pop("key")), c, ys) for c, ys in (found, expected))
        close(found, expected)
    else:
        same(found, expected)


@each_policy
@pytest.mark.parametrize("length", [97, 100])
def test_gradients_are_those_of_a_scan(length, policy):
    """By the carry, by the inputs, and by a value that the step closes over."""
    scan = ft.partial(sciml.checkpointed_scan, **policy)
    value, found = jax.jit(jax.value_and_grad(ft.partial(loss, scan, length), argnums=(0, 1, 2)))(*arguments(length))
    plain, expected = jax.jit(jax.value_and_grad(ft.partial(loss, by_lax, length), argnums=(0, 1, 2)))(
        *arguments(length)
    )
    close(value, plain)
    close(found, expected)
    assert float(jnp.abs(found[2])) > 1e-3


@pytest.mark.x64
def test_gradient_agrees_with_finite_differences():
    fn = jax.jit(lambda p: loss(ft.partial(sciml.checkpointed_scan, levels=3), 23, *p))
    p = arguments(23)
    verify.check_gradient(fn, p, gradient=jax.jit(jax.grad(fn))(p), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("reverse", [False, True])
def test_gradient_of_a_reversed_scan(reverse):
    pair = [ft.partial(scan, reverse=reverse) for scan in (ft.partial(sciml.checkpointed_scan, levels=3), by_lax)]
    found, expected = (
        jax.jit(jax.grad(ft.partial(loss, scan, 23), argnums=(0, 1, 2)))(*arguments(23)) for scan in pair
    )
    close(found, expected)


def _hvp_forward_over_reverse(fn, y):
    return jax.jvp(jax.grad(fn), (y,), (jnp.ones_like(y),))[1]


def _hvp_reverse_over_reverse(fn, y):
    return jax.grad(lambda y: jnp.vdot(jax.grad(fn)(y), jnp.ones_like(y)))(y)


def _hvp_reverse_over_forward(fn, y):
    return jax.grad(lambda y: jax.jvp(fn, (y,), (jnp.ones_like(y),))[1])(y)


TRANSFORMS = {
    "jvp": lambda fn, y: jax.jvp(fn, (y,), (jnp.ones_like(y),)),
    "forward_over_reverse": _hvp_forward_over_reverse,
    "reverse_over_reverse": _hvp_reverse_over_reverse,
    "reverse_over_forward": _hvp_reverse_over_forward,
    "hessian": lambda fn, y: jax.hessian(fn)(y),
    "vmap_of_grad": lambda fn, y: jax.vmap(jax.grad(fn))(jnp.stack([y, 2 * y, -y])),
    "grad_of_vmap": lambda fn, y: jax.grad(lambda y: jnp.sum(jax.vmap(fn)(y)))(jnp.stack([y, 2 * y, -y])),
    "eager": lambda fn, y: jax.grad(fn)(y),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transformations(name):
    length = 7 if name == "eager" else 12
    _, a, factor = arguments(length)
    results = []
    for scan in (ft.partial(sciml.checkpointed_scan, levels=3), by_lax):
        transformed = ft.partial(TRANSFORMS[name], lambda y: loss(scan, length, y, a, factor))  # noqa: B023
        results.append((transformed if name == "eager" else jax.jit(transformed))(arguments(length)[0]))
    close(*results)


def test_a_weakly_typed_carry():
    total, ys = sciml.checkpointed_scan(lambda c, x: (c + x, c), 0.0, jnp.arange(12.0), levels=2)
    assert float(total) == 66.0 and ys.shape == (12,)


@pytest.mark.parametrize("shared", ["nothing", "carry", "closed over"])
def test_shard_map(shared):
    """What the carry starts from may be the same on all devices, and what the step closes over need not be."""
    mesh = Mesh(np.array(jax.devices()[:4]), ("members",))
    y0, factor = jnp.linspace(0.2, 0.9, 4), jnp.linspace(1.0, 1.3, 4)

    def one(y, factor):
        end, ys = sciml.checkpointed_scan(lambda y, x: (jnp.sin(factor * y) + x, y), y, jnp.arange(19.0) / 9, levels=3)
        return end + jnp.sum(ys)

    def total(y0, factor, over):
        return jnp.sum(over(jax.vmap(one))(y0, factor))

    y0 = y0[:1] if shared == "carry" else y0
    factor = factor[:1] if shared == "closed over" else factor
    specs = tuple(P() if x.size == 1 else P("members") for x in (y0, factor))

    def on_devices(fn):
        return jax.shard_map(fn, mesh=mesh, in_specs=specs, out_specs=P("members"))

    def on_one(fn):
        return lambda y, f: fn(*(jnp.broadcast_to(x, (4,)) for x in (y, f)))

    found = jax.jit(jax.grad(ft.partial(total, over=on_devices), argnums=(0, 1)))(y0, factor)
    expected = jax.jit(jax.grad(ft.partial(total, over=on_one), argnums=(0, 1)))(y0, factor)
    close(found, expected)


def _heat(u, _):
    return u + 0.2 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)) - 0.01 * u**3 * jnp.tanh(u), None


def _size_of_program(length, policy):
    u = jnp.zeros(16)
    fn = jax.grad(lambda u: jnp.sum(sciml.checkpointed_scan(_heat, u, length=length, **policy)[0]))
    count = lambda jaxpr: sum(  # noqa: E731
        1 + sum(count(sub) for value in eqn.params.values() for sub in _jaxprs(value)) for eqn in jaxpr.eqns
    )
    lowered = jax.jit(fn).lower(u)
    hlo = lowered.compile().as_text()
    assert hlo is not None
    return count(jax.make_jaxpr(fn)(u).jaxpr), len(lowered.as_text().splitlines()), len(hlo.splitlines())


def _jaxprs(value):
    values = value if isinstance(value, list | tuple) else [value]
    return [getattr(v, "jaxpr", v) for v in values if hasattr(getattr(v, "jaxpr", v), "eqns")]


@pytest.mark.parametrize("policy", [{}, {"levels": 3}, {"segments": 20}], ids=["default", "levels", "segments"])
def test_the_program_does_not_grow_with_the_number_of_steps(policy):
    few, many = _size_of_program(1_000, policy), _size_of_program(1_000_000, policy)
    assert few[0] == many[0]
    np.testing.assert_allclose(few, many, rtol=0.1)  # numbers of equal value share a line


def test_a_prime_number_of_steps_has_a_program_of_bounded_size():
    even, prime = _size_of_program(1_000, {"levels": 3}), _size_of_program(1_000_003, {"levels": 3})
    assert all(p < 4 * e for p, e in zip(prime, even))


@pytest.mark.parametrize(
    "policy, kept",
    [
        ({}, 40 + 25),
        ({"levels": 1}, 1000),
        ({"levels": 3}, 30),
        ({"levels": 4}, 23),
        ({"segments": 200}, 200 + 5),
        ({"memory": 64 * 4096 * 4}, 63),
        ({"memory": 31 * 4096 * 4}, 30),
    ],
)
def test_memory_is_what_was_chosen(policy, kept):
    u = jax.ShapeDtypeStruct((4096,), jnp.float32)

    def fn(u):
        return jnp.sum(sciml.checkpointed_scan(_heat, u, length=1000, **policy)[0])

    states = inspect.memory(jax.grad(fn), u).temporaries / (4096 * 4)
    assert kept < states < kept + 5


HOST = jax.memory.Space.Host


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_carries_kept_on_the_host_have_the_same_gradient(levels):
    """On a CPU nothing moves."""
    args = arguments(23)
    scans = (ft.partial(sciml.checkpointed_scan, levels=levels, **s) for s in ({}, {"store": HOST}))
    device, host = (jax.jit(jax.grad(ft.partial(loss, scan, 23), argnums=(0, 1, 2)))(*args) for scan in scans)
    jax.tree.map(ft.partial(np.testing.assert_allclose, rtol=1e-6), host, device)


def test_transformations_of_a_scan_with_carries_on_the_host():
    """`vmap` of a gradient, and forward over reverse."""
    y, *others = arguments(23)
    ys = jnp.stack([y, 2 * y])

    def second(**store):
        scan = ft.partial(sciml.checkpointed_scan, levels=2, **store)
        gradient = jax.vmap(jax.grad(lambda y: loss(scan, 23, y, *others)))
        return jax.jit(lambda ys: jax.jvp(gradient, (ys,), (jnp.ones_like(ys),)))(ys)

    jax.tree.map(ft.partial(np.testing.assert_allclose, rtol=1e-5), second(store=HOST), second())


def lowered(store, platform):
    """The program of a gradient for a platform, as text."""

    def fn(y):
        return jnp.sum(sciml.checkpointed_scan(lambda y, _: (jnp.sin(y), None), y, length=64, levels=2, store=store)[0])

    return jax.jit(jax.grad(fn)).trace(jnp.ones(5)).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_carries_are_moved_to_the_host(platform):
    """There is no such device here: what the compiler for it is asked to do is read in its program."""
    text = lowered(HOST, platform)
    moved = [line for line in text.splitlines() if "annotate_device_placement" in line]
    assert sum('"pinned_host"' in line for line in moved) == 1 and sum('"device"' in line for line in moved) >= 1
    assert "annotate_device_placement" not in lowered(jax.memory.Space.Device, platform)


def test_carries_kept_on_the_host_are_not_kept_twice():
    """On a CPU their memory is that of the device, where a second copy would show."""

    def temporaries(store):
        step = lambda y, _: (jnp.sin(y), None)  # noqa: E731
        fn = lambda y: jnp.sum(sciml.checkpointed_scan(step, y, length=400, levels=2, store=store)[0])  # noqa: E731
        return inspect.memory(jax.grad(fn), jnp.ones(10_000)).temporaries

    assert temporaries(HOST) <= 1.1 * temporaries(jax.memory.Space.Device)


@pytest.mark.parametrize("store", ["host", jax.memory.Space.Any])
def test_store_is_a_memory_of_jax(store):
    with pytest.raises(Exception, match="store"):
        sciml.checkpointed_scan(lambda y, _: (y, None), jnp.ones(3), length=3, store=store)


def test_inputs_are_not_copied_for_the_gradient():
    xs = jax.ShapeDtypeStruct((1000, 4096), jnp.float32)

    def fn(xs):
        def step(c, x):
            return jnp.sin(c * x), None

        return jnp.sum(sciml.checkpointed_scan(step, jnp.ones(4096, jnp.float32), xs)[0])

    # the carries, and of the inputs and their cotangents one segment
    assert inspect.memory(jax.grad(fn), xs).temporaries / (4096 * 4) < 40 + 25 + 2 * 25 + 10


@pytest.mark.parametrize("steps", [*range(1, 70), 97, 1000, 9973, 10_000, 1_000_003])
@pytest.mark.parametrize("levels", [1, 2, 3, 5, 8])
def test_pieces_cover_every_step_within_the_states_kept(steps, levels):
    for counts in (_checkpoint_levels.split(steps, levels), _checkpoint_levels.split(steps, levels, 1)):
        pieces = _checkpoint_levels.pieces(steps, counts)
        ends = [start + int(np.prod(piece, dtype=np.int64)) for start, piece in pieces]
        assert [start for start, _ in pieces] == [0, *ends[:-1]] and ends[-1] == steps
        # what earlier pieces keep is there while a later one is differentiated
        kept = [sum(p[0] for _, p in pieces[:i]) + sum(piece) for i, (_, piece) in enumerate(pieces)]
        assert max(kept) <= sum(counts)
        least = levels * steps ** (1 / levels)
        assert sum(counts) <= 1.3 * least + levels


@pytest.mark.parametrize("steps", [1, 2, 10, 97, 1000, 1_000_003])
def test_memory_takes_the_fewest_levels_that_fit(steps):
    least = sum(_checkpoint_levels.deepest(steps))
    assert _checkpoint_levels.fit(steps, least - 1) is None
    before = None
    for most in sorted({least, 2 * least, 3 * least, round(2.2 * steps**0.5) + 1, steps}):
        counts = _checkpoint_levels.fit(steps, most)
        assert counts is not None and sum(counts) <= most
        assert before is None or len(counts) <= before
        before = len(counts)
    assert before == 1


@pytest.mark.parametrize(
    "options, error, message",
    [
        (
            {"levels": 2, "segments": 3},
            ValueError,
            r"at most one of `memory`.*levels=2, segments=3",
        ),
        ({"levels": 0}, ValueError, r"`checkpointed_scan\(levels=...\)` must be a positive integer, but is 0"),
        ({"levels": 9}, ValueError, r"must be at most 8"),
        ({"segments": -1}, ValueError, r"`checkpointed_scan\(segments=...\)` must be a positive integer, but is -1"),
        ({"length": 7}, ValueError, r"agree on the number of steps, but have \[7, 1000\]"),
        ({"xs": None}, ValueError, r"needs `length`"),
        ({"xs": None, "length": -1}, ValueError, r"must not be negative"),
        ({"xs": jnp.ones(())}, ValueError, r"`xs` must have the loop's axis first"),
    ],
)
def test_errors(options, error, message):
    options = {"xs": jnp.ones(1000)} | options
    with pytest.raises(error, match=message):
        sciml.checkpointed_scan(lambda c, x: (c, None), jnp.ones(4), **options)


@pytest.mark.parametrize("value", [2.0, True, "2"])
def test_a_policy_that_is_no_integer(value):
    with pytest.raises(TypeError, match=rf"`somewhere\(levels=...\)` must be a positive integer, but is {value!r}"):
        _checkpoint_levels.check_policy(None, value, None, "somewhere")


def test_too_little_memory_says_how_much_would_do():
    def scan(memory):
        return sciml.checkpointed_scan(lambda c, x: (c, None), jnp.ones(4, jnp.float32), length=1000, memory=memory)

    with pytest.raises(ValueError, match=r"at least 19 carries of 16 bytes for 1000 steps, 304 bytes, but is 303"):
        scan(303)
    scan(304)
