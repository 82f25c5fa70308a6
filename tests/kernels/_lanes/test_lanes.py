"""A function over lanes equals `jax.vmap` of it, and so do its derivatives."""

import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sciml.kernels import _lanes as lanes

COUNT = 4
INDEX = np.array([2, 0, 0, 1])


class Case:
    """A function of one member's vector `x` of three, matrix `a` of three by two and number `s`."""

    def __init__(self, name, fn, *, fallback=None, reverse=True):
        self.name, self.fn, self.reverse = name, fn, reverse
        self.fallback = set() if fallback is None else set(fallback)


def scan(x, a, s):
    def body(carry, row):
        return jnp.sin(carry + row[0]) * s, carry[1] * row

    return jax.lax.scan(body, x, a)


def long_scan(x, a, s):
    return jax.lax.scan(lambda c, w: (c + 0.1 * jnp.sin(w * c), c[0]), x, jnp.linspace(0.0, 1.0, 50).astype(x.dtype))


def wide_scan(x, a, s):
    def body(c, w):
        for _ in range(50):
            c = jnp.sin(w * c)
        return c, None

    return jax.lax.scan(body, x, jnp.linspace(0.0, 1.0, 20).astype(x.dtype))[0]


def while_loop(x, a, s):
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * s), (0, x))[1]


def varying_while(x, a, s):
    return jax.lax.while_loop(lambda c: jnp.sum(c**2) < 50, lambda c: 1.5 * c + 0.1, jnp.abs(x))


def custom_vjp():
    @jax.custom_vjp
    def double(x):
        return 2 * x

    double.defvjp(lambda x: (double(x), None), lambda _, ct: (2 * ct,))
    return lambda x, a, s: double(jnp.sin(x)) * s


def stacked(x, a, s):
    return jnp.stack([x[1] - x[0], s * x[2], jnp.sin(a[2, 1])]), jnp.concatenate([x, a[:, 0]])


CASES = (
    Case("arithmetic", lambda x, a, s: (x + 2.0 * x**3 - x / (1 + x * x), s * a - 1.0, -x % 2.0)),
    Case(
        "transcendental",
        lambda x, a, s: (jnp.exp(-x), jnp.tanh(a), jnp.log1p(s * s), jnp.arctan2(x, s), jnp.abs(x) ** 1.5),
    ),
    Case(
        "polynomial",  # a primitive of its own from JAX 0.12 on, as are the two after it
        lambda x, a, s: (
            jnp.polyval(jnp.asarray([1.0, -2.0, 0.5], x.dtype), x),
            jnp.polyval(a[:, 0], s),
            jnp.polyval(jnp.stack([x, x**2]), x),
            jnp.polyval(x[:1], a),
            jnp.log2(1 + x * x),
            jnp.arccos(jnp.tanh(a)),
        ),
    ),
    Case(
        "special",
        lambda x, a, s: jax.scipy.special.betainc(1 + x * x, 2.0 + s * s, jax.nn.sigmoid(a[:, 0])),
        reverse=False,
    ),
    Case("bits", lambda x, a, s: jax.lax.clz((x * 10).astype(jnp.int32)), reverse=False),
    Case("comparison", lambda x, a, s: (x > 0.2, jnp.isfinite(a), (s < 0) | (x[0] > x[1]), ~(x >= s)), reverse=False),
    Case("index", lambda x, a, s: (x[0] * x[2], a[1], a[:, 1], x[-1])),
    Case("slice", lambda x, a, s: (x[::2], x[::-1], a[1:, ::-1], x[1:] - x[:-1])),
    Case("fancy index", lambda x, a, s: (x[INDEX], a[INDEX[:2]], a[jnp.array([0, 2]), jnp.array([1, 0])])),
    Case("negative index", lambda x, a, s: x[np.array([-1, -3])]),
    Case("traced index", lambda x, a, s: x[(jnp.abs(s) * 10).astype(jnp.int32) % 3], fallback={"dynamic_slice"}),
    Case(
        "index outside",
        lambda x, a, s: (
            x.at[INDEX + 1].get(mode="fill", fill_value=0.0),
            jnp.take(x, jnp.array([0, 9, 2]), mode="fill", fill_value=2.0),
            jnp.isnan(jnp.take(a, jnp.array([1, 3]), axis=0)).astype(x.dtype) * s,
            x.at[jnp.array([-4, 0])].get(mode="fill", fill_value=1.0),
            jnp.take(jnp.array([5, 6]), INDEX, mode="fill", fill_value=1).astype(x.dtype) * s,
            x.at[np.array([3, 1, 2])].set(x, mode="drop"),
            x.at[INDEX + 1].get(mode="clip"),
        ),
    ),
    Case("boolean mask", lambda x, a, s: a[np.array([True, False, True])]),
    Case("set", lambda x, a, s: (x.at[1].set(s), a.at[:, 0].set(x), x.at[INDEX[:2]].set(0.0))),
    Case(
        "add at",
        lambda x, a, s: (x.at[1].add(s), x.at[INDEX[:2]].multiply(2.0)),
        fallback={"scatter-mul"},
    ),
    Case("add at repeated", lambda x, a, s: x.at[INDEX].add(s)),
    Case("roll", lambda x, a, s: (jnp.roll(x, 1), jnp.roll(a, -1, axis=0), jnp.roll(x, 2) - 2 * x)),
    Case("stack", stacked),
    Case(
        "pad",
        lambda x, a, s: (
            jnp.pad(x, (1, 2)),
            jnp.pad(a, ((0, 1), (1, 0)), constant_values=3.0),
            jnp.pad(x, 1, mode="wrap"),
        ),
    ),
    Case(
        "reshape",
        lambda x, a, s: (
            a.T,
            a.reshape(-1),
            a[None],
            jnp.broadcast_to(x[:, None], (3, 2)),
            jnp.repeat(x, 2),
            jnp.tile(x, 2),
        ),
        fallback={"maybe"},
    ),
    Case("split", lambda x, a, s: jnp.split(jnp.concatenate([x, x]), 3)),
    Case("sum", lambda x, a, s: (jnp.sum(x), a.sum(0), a.mean(1), jnp.var(a), jnp.linalg.norm(x))),
    Case("prod", lambda x, a, s: (jnp.prod(x), jnp.prod(a, axis=1))),
    Case(
        "nothing",
        lambda x, a, s: (
            x + x[:0].sum() + jnp.prod(x[3:]) + jnp.max(a[:0], initial=2.0),
            x[:0],
            jnp.where(jnp.all(x[:0] > 0), s, -s),
            jax.lax.scan(lambda c, _: (c + 1, c), x, None, length=0),
        ),
        fallback={"maybe"},
    ),
    Case("max", lambda x, a, s: (jnp.max(x), a.min(axis=0), jnp.max(jnp.abs(a)))),
    Case("any", lambda x, a, s: (jnp.any(x > 0), jnp.all(a > -1, axis=0)), reverse=False),
    Case(
        "argmax", lambda x, a, s: (jnp.argmax(x), jnp.argmin(a, axis=1)), fallback={"argmax", "argmin"}, reverse=False
    ),
    Case("cumsum", lambda x, a, s: jnp.cumsum(x), fallback={"cumsum"}),
    Case("sort", lambda x, a, s: (jnp.sort(x), x[jnp.argsort(x)]), fallback={"sort", "gather"}),
    Case("dot", lambda x, a, s: (x @ a, a.T @ x, jnp.dot(x, x), a @ a.T, jnp.outer(x, x))),
    Case("batched dot", lambda x, a, s: jnp.einsum("ij,ik->ijk", a, a)),
    Case("einsum", lambda x, a, s: (jnp.einsum("ij,kj->ik", a, a), jnp.einsum("i,ij,j->", x, a, a[0]))),
    Case("constant matrix", lambda x, a, s: jnp.asarray(np.array([[0, 1, 0], [1, 0, 2.0], [0, 0, 0]]), x.dtype) @ x),
    Case(
        "where",
        lambda x, a, s: (jnp.where(x > s, x, -x), jnp.where(s > 0, a, 0.0), jnp.clip(x, -0.5, s), jnp.sign(x) * x),
    ),
    Case("constant cond", lambda x, a, s: jax.lax.cond(np.bool_(True), jnp.sin, jnp.cos, x)),
    Case("varying cond", lambda x, a, s: jax.lax.cond(s > 0, lambda x: (x, s), lambda x: (x[::-1] * s, x[0]), x)),
    Case(
        "switch",
        lambda x, a, s: jax.lax.switch((jnp.abs(s) * 10).astype(jnp.int32) % 4, [jnp.sin, jnp.cos, jnp.negative], x),
    ),
    Case("nested jit", lambda x, a, s: jax.jit(lambda x: jax.jit(jnp.sin)(x) * s)(x)),
    Case("inner vmap", lambda x, a, s: jax.vmap(lambda row, w: row * w + s)(a, x)),
    Case("relu", lambda x, a, s: (jax.nn.relu(x), jax.nn.softplus(a), jax.nn.gelu(s), jax.nn.silu(x))),
    Case("logsumexp", lambda x, a, s: (jax.nn.logsumexp(x), jax.nn.softmax(a, axis=0))),
    Case("custom_vjp", custom_vjp()),
    Case("stop_gradient", lambda x, a, s: jax.lax.stop_gradient(x) * x),
    Case("checkpoint", lambda x, a, s: jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)) * s)(x)),
    Case("short scan", scan, fallback={"maybe"}),
    Case("long scan", long_scan, fallback={"scan"}),
    Case("wide scan", wide_scan, fallback={"scan"}),
    Case("while", while_loop, fallback={"while"}, reverse=False),
    Case("varying while", varying_while, fallback={"while"}, reverse=False),
    Case("fori", lambda x, a, s: jax.lax.fori_loop(0, 3, lambda i, x: jnp.sin(x) + s, x), fallback={"maybe"}),
    Case(
        "solve",
        lambda x, a, s: jnp.linalg.solve(jnp.outer(x, x) + 3 * jnp.eye(3, dtype=x.dtype), x),
        fallback={"maybe"},
    ),
    Case("inner grad", lambda x, a, s: jax.grad(lambda x: jnp.sum(jnp.sin(x) * x) * s)(x)),
    Case("inner jacobian", lambda x, a, s: jax.jacfwd(lambda x: jnp.stack([x[0] * x[1], x[2] ** 2]))(x)),
    Case("complex", lambda x, a, s: jnp.real(jnp.exp(jax.lax.complex(x, -x)) * jax.lax.complex(s, x[0]))),
    Case("integers", lambda x, a, s: ((x * 10).astype(jnp.int32) // 3, (x * 10).astype(jnp.int32) % 3), reverse=False),
    Case("iota", lambda x, a, s: x * jnp.arange(3).astype(x.dtype) + jnp.linspace(0, 1, 3).astype(x.dtype)),
    Case("no inputs used", lambda x, a, s: jnp.zeros(2, x.dtype) + 1.0),
    Case("input returned", lambda x, a, s: (x, x, s)),
    Case("large", lambda x, a, s: jnp.sum(jnp.sin(jnp.arange(300).astype(x.dtype) * s)) * x, fallback={"maybe"}),
)
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def arguments(seed=0, dtype=None):
    """Arguments with members first; no two elements tie, so that every derivative exists."""
    rng = np.random.default_rng(seed)
    dtype = jnp.result_type(float) if dtype is None else dtype
    return tuple(jnp.asarray(rng.normal(size=(COUNT, *shape)), dtype) for shape in ((3,), (3, 2), ()))


def over_lanes(fn, *args, batched=True):
    """Calls a member's function by the engine, members first outside."""
    flags = [batched] * len(args) if isinstance(batched, bool) else batched
    engine = lanes.Lanes(COUNT)
    values = [engine.enter(jnp.moveaxis(x, 0, -1) if b else x, b) for x, b in zip(args, flags)]
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), engine.leave(engine.call(fn, *values)))


def agree(found, expected, rtol=None):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(
            a, b, rtol=rtol or (1e-12 if a.dtype.itemsize >= 8 else 2e-5), atol=1e-6 if a.dtype.itemsize < 8 else 1e-12
        )


@each_case
def test_equals_vmap(case):
    args = arguments()
    agree(jax.jit(ft.partial(over_lanes, case.fn))(*args), jax.jit(jax.vmap(case.fn))(*args))


@each_case
@pytest.mark.parametrize("batched", [(True, False, False), (False, False, True)], ids=str)
def test_shared_arguments(case, batched):
    args = arguments()
    args = [x if b else x[0] for x, b in zip(args, batched)]
    expected = jax.jit(jax.vmap(case.fn, in_axes=[0 if b else None for b in batched]))(*args)
    agree(jax.jit(ft.partial(over_lanes, case.fn, batched=batched))(*args), expected)


def total(tree):
    return sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(tree))


@pytest.mark.parametrize("case", [case for case in CASES if case.reverse], ids=lambda case: case.name)
def test_derivatives_equal_those_of_vmap(case):
    """A gradient within the member's function, as the backward loops take it, and one around the engine."""
    args = arguments(1)
    within = jax.grad(lambda *args: total(case.fn(*args)), argnums=(0, 1, 2))
    expected = jax.jit(jax.vmap(within))(*args)
    agree(jax.jit(ft.partial(over_lanes, within))(*args), expected)
    around = jax.jit(jax.grad(lambda *args: total(over_lanes(case.fn, *args)), argnums=(0, 1, 2)))
    agree(around(*args), expected)


@each_case
def test_fallbacks_are_reported(case):
    found = lanes.fallbacks(case.fn, *(x[0] for x in arguments()))
    assert all(isinstance(reason, str) and reason for reason in found.values())
    if case.fallback != {"maybe"}:  # some programs differ between versions of JAX
        assert set(found) >= case.fallback and (case.fallback or not found), found


def test_one_member_without_a_lane_axis():
    x, a, s = (value[0] for value in arguments())
    engine = lanes.Lanes(None)

    @jax.jit
    def both(x, a, s):
        values = engine.enter((x, a, s), False)
        return [engine.leave(engine.call(case.fn, *values)) for case in CASES], [case.fn(x, a, s) for case in CASES]

    agree(*both(x, a, s))


def test_member_calls_functions_as_they_are():
    x, a, s = (value[0] for value in arguments())
    engine = lanes.Unbatched()
    agree(engine.leave(engine.call(stacked, *engine.enter((x, a, s), False))), stacked(x, a, s))


def test_float32_stays_float32():
    args = arguments(dtype=jnp.float32)
    fns = [case.fn for case in CASES[:8]]
    agree(*jax.jit(lambda *args: ([over_lanes(f, *args) for f in fns], [jax.vmap(f)(*args) for f in fns]))(*args))


def test_networks():
    net = eqx.nn.MLP(3, 2, 16, 2, key=jax.random.key(0))
    x = arguments()[0]
    agree(over_lanes(net, x), jax.vmap(net)(x), rtol=1e-5)
    arrays, static = eqx.partition(net, eqx.is_array)
    nets = jax.tree.map(lambda w: jnp.stack([w * (1 + 0.1 * i) for i in range(COUNT)]), arrays)
    leaves, structure = jax.tree.flatten(nets)

    def fn(x, *leaves):
        return eqx.combine(jax.tree.unflatten(structure, leaves), static)(x)

    agree(over_lanes(fn, x, *leaves), jax.vmap(fn)(x, *leaves), rtol=1e-5)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, a, w, s: w @ x + w[0],
        lambda x, a, w, s: x @ w - w[0],
        lambda x, a, w, s: jnp.where(x > 0, jnp.sin(x), w[0]) * s,
        lambda x, a, w, s: jnp.clip(x, -s * s, 2.0) / w[1],
        lambda x, a, w, s: x.reshape(8, 5) * w[:1, :5] + a.T * w[:8, :1],
        lambda x, a, w, s: jnp.where(s > 0, x, w[2]),
        lambda x, a, w, s: (x[:, None] * w[:1] + w[1][:, None] * x[None]).astype(jnp.float32),
        lambda x, a, w, s: jnp.tensordot(w, x, ((0,), (0,))) + 2 * x,
    ],
    ids=lambda fn: str(fn.__code__.co_firstlineno),
)
def test_members_stay_last(fn):
    """What is too large to unstack is computed with members last throughout: nothing is moved, nor multiplied so."""
    rng = np.random.default_rng(0)
    x, a, w, s = (jnp.asarray(rng.normal(size=shape)) for shape in ((COUNT, 40), (COUNT, 5, 8), (40, 40), (COUNT,)))
    run = ft.partial(over_lanes, fn, batched=(True, True, False, True))
    expected = jax.vmap(fn, in_axes=(0, 0, None, 0))
    out = expected(x, a, w, s)
    agree(run(x, a, w, s), out)
    narrow = out.dtype == jnp.float32
    argnums = (0, 1, 2, 3)
    agree(
        *(jax.grad(lambda *v, f=f: total(f(*v)), argnums)(x, a, w, s) for f in (run, expected)),
        rtol=1e-4 if narrow else None,
    )
    inner = jax.make_jaxpr(lambda *v: lanes.Lanes(COUNT).call(fn, *v))
    values = [lanes.Lanes(COUNT).enter(jnp.moveaxis(v, 0, -1) if v is not w else v, v is not w) for v in (x, a, w, s)]
    moved = [e for e in inner(*values).eqns if e.primitive.name == "transpose" and COUNT in e.outvars[0].aval.shape]
    assert all(e.params["permutation"][-1] == len(e.params["permutation"]) - 1 for e in moved)


@pytest.mark.parametrize("predicate", [np.bool_(False), jnp.array(True)], ids=["constant", "uniform"])
def test_only_the_branch_that_all_members_take_is_run(predicate):
    """NaN from the other branch would show in the gradient."""

    def fn(x, p):
        return jax.lax.cond(p, lambda x: x * 2.0, lambda x: x * 3.0, x)

    x = arguments()[0]
    found = over_lanes(fn, x, jnp.asarray(predicate), batched=(True, False))
    np.testing.assert_allclose(found, x * (2.0 if predicate else 3.0))


def test_keys_and_integers_pass_through():
    keys = jax.random.split(jax.random.key(0), COUNT)
    x = arguments()[0]

    def fn(x, key, n):
        return x + jax.random.normal(key, (3,), x.dtype), n + 1

    agree(over_lanes(fn, x, keys, jnp.arange(COUNT)), jax.vmap(fn)(x, keys, jnp.arange(COUNT)))


def test_traced_values_that_members_share():
    """The engine's caller may be under jit; what is shared then is not known, but still one value for all."""
    x, _, s = arguments()
    found = jax.jit(lambda x, s: over_lanes(lambda x, s: x * s, x, s, batched=(True, False)))(x, s[0])
    agree(found, x * s[0])


shapes = st.lists(st.integers(1, 4), min_size=0, max_size=3).map(tuple)


@settings(max_examples=12, deadline=None)
@given(shape=shapes, data=st.data())
def test_movements_over_random_shapes(shape, data):
    axis = data.draw(st.integers(0, max(0, len(shape) - 1)))
    permutation = data.draw(st.permutations(range(len(shape))))
    padding = data.draw(
        st.lists(
            st.tuples(st.integers(-1, 2), st.integers(0, 2), st.integers(0, 2)),
            min_size=len(shape),
            max_size=len(shape),
        )
    )
    index = data.draw(st.lists(st.integers(-3, 3), min_size=1, max_size=4))

    def fn(x):
        out = [x.transpose(permutation), x.reshape(-1)[::-1], jnp.sum(x), x[None] * 2]
        if shape:
            rows = jnp.asarray([i % shape[axis] for i in index])
            out += [jnp.flip(x, axis), jnp.take(x, rows, axis=axis), x.sum(axis), x.max(axis), jnp.roll(x, 1, axis)]
            out += [
                jax.lax.pad(x, jnp.zeros((), x.dtype), padding),
                jnp.concatenate([x, x], axis),
                jnp.diff(x, axis=axis),
            ]
            out += [
                jnp.moveaxis(x, axis, 0).at[rows].set(0.5),
                jnp.moveaxis(x, axis, -1) @ jnp.ones((shape[axis], 2), x.dtype),
            ]
        return out

    size = int(np.prod(shape))
    x = jnp.asarray(np.random.default_rng(size).normal(size=(COUNT, *shape)), jnp.float32)
    agree(*jax.jit(lambda x: (over_lanes(fn, x), jax.vmap(fn)(x)))(x))


@pytest.mark.parametrize(
    "move",
    [
        pytest.param(lambda x: jax.lax.rev(x, ()), id="rev"),
        pytest.param(lambda x: jnp.roll(x, 1), id="roll"),
        pytest.param(lambda x: jax.lax.slice(x, (), ()), id="slice"),
        pytest.param(lambda x: jax.lax.dynamic_slice(x, (), ()), id="dynamic_slice"),
        pytest.param(lambda x: jax.lax.dynamic_update_slice(x, 2 * x, ()), id="dynamic_update_slice"),
        pytest.param(lambda x: jnp.flip(x), id="flip"),
    ],
)
def test_movements_of_a_number(move):
    """What has no axes has nothing to move."""
    x = jnp.asarray([0.3, 0.7, -1.1, 2.0])
    agree(
        jax.jit(ft.partial(over_lanes, lambda x: 3 * move(jnp.sin(x))))(x),
        jax.jit(jax.vmap(lambda x: 3 * move(jnp.sin(x))))(x),
    )
