"""What programs put around members that are sharded by a NamedSharding, and the meshes that these may lie on."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec as P

import sciml
from sciml.inspect._compiled import collectives_of
from sciml.inspect._hlo_text import parse
from tests.conftest import X64
from tests.parallel.test_named_sharding import FINE, HOW, field, mesh_of

Y0 = np.asarray([1.0, 0.5])
RATES = np.linspace(0.5, 5.0, 8)
HOWS = HOW | {"bdf": dict(solver=sciml.solvers.BDF(), **FINE)}
WITHIN = 1e-12 if X64 else 1e-4  # rounding moves the steps of error control in float32, within its tolerance


def end(how, rate, **more):
    return sciml.solve(field, Y0.astype(rate.dtype), t0=0.0, t1=1.0, args=rate, throw=False, **HOWS[how], **more).ys[-1]


def check(fn, inputs, sharded, spec, *, anywhere=False, **options):
    """The results are those of inputs on one device, and sharded by `spec`; without collectives, or any in a loop."""
    expected = jax.jit(fn)(*inputs)
    compiled = jax.jit(fn, **options).lower(*sharded).compile()
    found = compiled(*sharded)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=WITHIN, atol=WITHIN * np.max(np.abs(b)))
        if spec is not None:
            assert tuple(a.sharding.spec)[: len(spec)] == tuple(spec)
    assert not [c for c in collectives_of(parse(compiled.as_text())) if c.in_loop or not anywhere]


def total(fn):
    return lambda *x: jnp.sum(fn(*x))


def by_settings(member):
    """Members for two settings, one after the other."""
    return lambda k: jax.lax.map(lambda s: jnp.sum(jax.vmap(lambda r: member(r * s))(k), 1), jnp.asarray([0.9, 1.1]))


def again(members):
    """Members twice, each from what it came to."""
    return lambda k: jax.lax.scan(lambda c, _: (1 + 0.1 * jnp.sum(members(c), 1), None), k, length=2)[0]


def again_alone(member):
    """The same of one member."""
    return lambda r: jax.lax.scan(lambda c, _: (1 + 0.1 * jnp.sum(member(c)), None), r, length=2)[0]


def chosen(members):
    return lambda k: jax.lax.cond(jnp.asarray(True), lambda k: jnp.sum(members(k), 1), lambda k: 1.0 * k, k)


def along(members):
    def run(k):
        ys, pull = jax.vjp(members, k)
        return ys, pull(ys)[0]

    return run


AROUND = {
    "jit": lambda member: jax.grad(total(jax.jit(lambda k: jax.jit(jax.vmap(jax.jit(member)))(k + 0.5)))),
    "checkpoint": lambda member: jax.grad(total(jax.checkpoint(jax.vmap(member)))),
    "checkpoint of each": lambda member: jax.vmap(jax.grad(total(jax.checkpoint(member)))),
    "checkpoint of all": lambda member: jax.grad(total(jax.vmap(jax.checkpoint(member)))),
    "scan": lambda member: again(jax.vmap(member)),
    "scan, gradient": lambda member: jax.grad(total(again(jax.vmap(member)))),
    "scan of each": lambda member: jax.vmap(jax.grad(again_alone(member))),
    "map": lambda member: jax.grad(total(by_settings(member))),
    "cond": lambda member: chosen(jax.vmap(member)),
    "cond, gradient": lambda member: jax.grad(total(chosen(jax.vmap(member)))),
    "jacrev": lambda member: jax.vmap(jax.jacrev(member)),
    "aux": lambda member: jax.vmap(jax.value_and_grad(lambda r: (jnp.sum(member(r)), member(r)), has_aux=True)),
    "vjp": lambda member: along(jax.vmap(member)),
    "filter_vmap": lambda member: lambda k: eqx.filter_vmap(lambda rate: member(rate))(k),
}
"""Programs of rates, by the function of one."""


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("kind, how", [("auto", "adaptive"), *(("explicit", how) for how in HOWS), ("auto", "bdf")])
def test_programs_around_members(kind, how, around):
    fn = AROUND[around](functools.partial(end, how))
    x = jax.device_put(RATES, NamedSharding(mesh_of(kind), P("m")))
    check(fn, (RATES,), (x,), None if around == "map" else P("m"))


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_what_jit_is_told(kind):
    members = jax.vmap(functools.partial(end, "adaptive"))
    over = NamedSharding(mesh_of(kind), P("m"))
    x = jax.device_put(RATES, over)
    check(members, (RATES,), (x,), P("m"), in_shardings=over, out_shardings=over)
    check(jax.grad(total(members)), (RATES,), (x,), P("m"), donate_argnums=0)
    assert x.is_deleted()
    run = jax.jit(lambda k, how: jax.vmap(functools.partial(end, how))(k), static_argnames="how")
    found = run(jax.device_put(RATES, over), how="fixed")
    np.testing.assert_allclose(found, run(RATES, how="fixed"), rtol=WITHIN)
    assert found.sharding.spec[0] == "m"
    np.testing.assert_allclose(eqx.filter_jit(members)(jax.device_put(RATES, over)), members(RATES), rtol=WITHIN)


class Place(NamedTuple):
    """A mesh, and over which of its axes members are sharded."""

    shape: tuple[int, ...]
    names: tuple[str, ...]
    axes: Any
    reverse: bool = False


PLACES = {
    "one each": Place((8,), ("m",), "m"),
    "others": Place((4,), ("m",), "m", reverse=True),
    "two axes": Place((2, 4), ("a", "b"), ("a", "b")),
    "two axes, the second first": Place((2, 4), ("a", "b"), ("b", "a")),
    "one of two": Place((4, 2), ("m", "model"), "m"),
    "an axis of one": Place((4, 1), ("m", "one"), ("m", "one")),
    "all in one place": Place((1, 4), ("m", "other"), "m"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind, how", [("auto", "adaptive"), ("explicit", "adaptive"), ("explicit", "bdf")])
def test_places_of_members(kind, how, place):
    shape, names, axes, reverse = PLACES[place]
    mesh = mesh_of(kind, shape, names, jax.devices()[::-1] if reverse else None)
    x = jax.device_put(RATES, NamedSharding(mesh, P(axes)))
    # JAX leaves axes of one out of what it says
    spec = P(axes) if min(shape) > 1 else None
    check(jax.grad(total(jax.vmap(functools.partial(end, how)))), (RATES,), (x,), spec)


GRID = np.linspace(0.5, 5.0, 32).reshape(4, 8)


@functools.cache
def nested(what, how):
    def member(rate):
        return end(how, rate)

    columns = sciml.adjoints.Forward()
    return {
        "forward": jax.vmap(jax.vmap(member)),
        "gradient": jax.grad(total(jax.vmap(jax.vmap(member)))),
        "vmap(grad)": jax.vmap(jax.grad(total(jax.vmap(member)))),
        "of each": jax.vmap(jax.vmap(jax.grad(total(member)))),
        "forward mode": jax.vmap(jax.vmap(jax.jacfwd(lambda rate: end(how, rate, adjoint=columns)))),
    }[what]


@pytest.mark.parametrize("what", ["forward", "gradient", "vmap(grad)", "of each", "forward mode"])
@pytest.mark.parametrize("how", ["fixed", "adaptive", "bdf"])
@pytest.mark.parametrize("axes", [("a", "b"), (None, "b"), ("b", "a"), (None, ("a", "b"))])
def test_nested_batches_on_explicit_axes(axes, what, how):
    """Nothing moves between devices, whichever batch axes are sharded over them."""
    mesh = mesh_of("explicit", (2, 4) if axes != ("b", "a") else (4, 2), ("a", "b"))
    check(nested(what, how), (GRID,), (jax.device_put(GRID, NamedSharding(mesh, P(*axes))),), P(*axes))


@pytest.mark.parametrize("what", ["forward", "of each"])
def test_three_nested_batches_on_explicit_axes(what):
    fn = {
        "forward": jax.vmap(nested("forward", "fixed")),
        "of each": jax.vmap(jax.grad(total(nested("forward", "fixed")))),
    }[what]
    rates, axes = GRID.reshape(2, 4, 4), P("a", "b", "c")
    mesh = mesh_of("explicit", (2, 2, 2), ("a", "b", "c"))
    check(fn, (rates,), (jax.device_put(rates, NamedSharding(mesh, axes)),), axes)


@pytest.mark.parametrize("how", ["adaptive", "stiff"])
def test_every_pair_of_two_sharded_lists_on_explicit_axes(how):
    mesh = mesh_of("explicit", (2, 4), ("a", "b"))
    x = np.linspace(0.5, 1.0, 4), RATES
    fn = lambda a, b: jax.vmap(lambda x: jax.vmap(lambda y: end(how, x * y))(b))(a)  # noqa: E731
    sharded = tuple(jax.device_put(v, NamedSharding(mesh, P(axis))) for v, axis in zip(x, "ab"))
    check(fn, x, sharded, P("a", "b"))
    check(jax.grad(total(fn), (0, 1)), x, sharded, None, anywhere=True)  # sums over members of the other list


WEIGHTS = dict(w=np.asarray([[0.1, -0.3], [0.2, 0.1]]), b=np.asarray([0.1, 0.2]))


def of_weights(how, rates, weights):
    def layer(t, y, args):
        rate, weights = args
        return rate * jnp.tanh(weights["w"] @ y + weights["b"])

    def member(rate):
        return sciml.solve(layer, Y0, t0=0.0, t1=1.0, args=(rate, weights), throw=False, **HOWS[how]).ys[-1]

    return jax.vmap(member)(rates)


@pytest.mark.parametrize("how", ["fixed", "adaptive", "stiff", "bdf"])
@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_weights_that_every_device_has(kind, how):
    mesh, run = mesh_of(kind), functools.partial(of_weights, how)
    weights = jax.tree.map(jnp.asarray, WEIGHTS)
    sharded = jax.device_put(RATES, NamedSharding(mesh, P("m"))), jax.device_put(weights, NamedSharding(mesh, P()))
    check(run, (RATES, weights), sharded, P("m"))
    check(jax.grad(total(run), (0, 1)), (RATES, weights), sharded, None, anywhere=True)


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_members_that_are_placed_within_the_program(kind):
    """By a constraint, or by their types: a field is given what is placed."""
    mesh = mesh_of(kind)
    put = jax.lax.with_sharding_constraint if kind == "auto" else jax.sharding.reshard

    def run(rates, weights):
        weights = put(weights, NamedSharding(mesh, P()))
        return of_weights("adaptive", put(rates * 1.0, NamedSharding(mesh, P("m"))), weights)

    x = jnp.asarray(RATES), jax.tree.map(jnp.asarray, WEIGHTS)
    found = jax.jit(run)(*jax.device_put(x, NamedSharding(mesh, P())))
    expected = jax.jit(functools.partial(of_weights, "adaptive"))(*x)
    np.testing.assert_allclose(found, expected, rtol=WITHIN)
    assert found.sharding.spec[0] == "m"


@pytest.mark.parametrize("how", ["fixed", "adaptive", "stiff", "bdf"])
@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_a_field_that_places_its_state(kind, how):
    """By types nothing is left to say. A constraint is over all devices, so there is no program of one device's own."""
    mesh = mesh_of(kind)
    put = jax.lax.with_sharding_constraint if kind == "auto" else jax.sharding.reshard

    def placing(t, y, k):
        return field(t, put(y, NamedSharding(mesh, P())), k)

    def last(model, k):
        return sciml.solve(model, Y0.astype(k.dtype), t0=0.0, t1=1.0, args=k, throw=False, **HOWS[how]).ys[-1]

    run, plain = (jax.vmap(functools.partial(last, model)) for model in (placing, field))
    k = jax.device_put(RATES, NamedSharding(mesh, P("m")))
    for place, one in ((run, plain), (jax.grad(total(run)), jax.grad(total(plain)))):
        found, expected = jax.jit(place)(k), jax.jit(one)(jnp.asarray(RATES))
        np.testing.assert_allclose(found, expected, rtol=WITHIN, atol=WITHIN * np.max(np.abs(expected)))
        assert found.sharding.spec[0] == "m"
    if kind == "explicit":
        assert not collectives_of(parse(jax.jit(run).lower(k).compile().as_text()))


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_derivatives_by_what_members_share(kind):
    """In forward mode nothing is summed; in reverse mode the sum over members is one collective, after the loops."""
    mesh, shared = mesh_of(kind), np.asarray([1.0, 0.1])
    x = jax.device_put(RATES, NamedSharding(mesh, P("m"))), jax.device_put(shared, NamedSharding(mesh, P()))

    def run(adjoint, k, s):
        return jax.vmap(lambda r: end("adaptive", r * s[0] + s[1], adjoint=adjoint))(k)

    columns = functools.partial(run, sciml.adjoints.Forward())
    check(jax.jacfwd(columns, 1), (RATES, shared), x, P("m"))
    mean = lambda k, s: jnp.mean(run(sciml.adjoints.Checkpointed(), k, s), 0)  # noqa: E731
    check(jax.jacrev(mean, 1), (RATES, shared), x, None, anywhere=True)


@pytest.mark.parametrize("kind", ["auto", "explicit"])
def test_a_hessian_by_what_members_share(kind):
    mesh, shared = mesh_of(kind), np.asarray([1.0, 0.1])
    x = jax.device_put(shared, NamedSharding(mesh, P())), jax.device_put(RATES, NamedSharding(mesh, P("m")))
    direct = sciml.adjoints.Direct()
    loss = lambda s, k: jnp.sum(jax.vmap(lambda r: end("fixed", r * s[0] + s[1], adjoint=direct))(k))  # noqa: E731
    check(jax.hessian(loss), (shared, RATES), x, None, anywhere=True)


def test_gradients_by_pmap():
    gradient = jax.grad(total(jax.vmap(functools.partial(end, "stiff"))))
    rates = RATES.reshape(4, 2)
    np.testing.assert_allclose(jax.pmap(gradient)(rates), jax.jit(jax.vmap(gradient))(rates), rtol=WITHIN)
