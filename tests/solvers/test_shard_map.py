"""Inside `jax.shard_map` with its default checks, on eight devices: the same numbers, and no communication."""

import functools as ft

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

import sciml
from sciml import inspect
from tests.registry_adjoints import KINDS

from .common import cheap, close, inputs, loss, members

pytestmark = pytest.mark.x64


@pytest.fixture(scope="module")
def mesh():
    assert len(jax.devices()) == 8
    return Mesh(np.array(jax.devices()), ("members",))


def over_devices(fn, mesh, shared=0):
    specs = (P("members"),) + (P(),) * shared
    return jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=specs, out_specs=P("members")))


each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
def test_solutions(kind, mesh):
    fn = jax.vmap(ft.partial(loss, kind, sciml.adjoints.Checkpointed(), **cheap(kind)))
    batch = members(8)
    sharded = over_devices(fn, mesh)
    assert inspect.collectives(sharded, batch) == []
    np.testing.assert_allclose(sharded(batch), jax.jit(fn)(batch), rtol=1e-8)


@each_kind
def test_gradients_of_members(kind, mesh):
    fn = jax.vmap(jax.grad(ft.partial(loss, kind, sciml.adjoints.Checkpointed(), **cheap(kind))))
    batch = members(8)
    sharded = over_devices(fn, mesh)
    assert inspect.collectives(sharded, batch) == []
    close(sharded(batch), jax.jit(fn)(batch), rtol=1e-7, atol=1e-8)


@each_kind
def test_gradients_of_shared_inputs(kind, mesh):
    """A loss over all devices: the gradient of what they share is one sum over devices, and no more."""
    batch, model = members(8), inputs().model

    def one(p, model):
        return loss(kind, sciml.adjoints.Checkpointed(), eqx.tree_at(lambda p: p.model, p, model), **cheap(kind))

    def total(model, run):
        return jnp.sum(run(jax.vmap(one, in_axes=(0, None)))(batch, model))

    plain = jax.jit(jax.grad(lambda model: total(model, lambda fn: fn)))(model)
    sharded = jax.jit(jax.grad(lambda model: total(model, lambda fn: over_devices(fn, mesh, shared=1))))
    close(sharded(model), plain, rtol=1e-7, atol=1e-8)
    assert not any(c.in_loop for c in inspect.collectives(sharded, model))


@pytest.mark.parametrize("kind", ["scan", "adaptive"])
def test_no_empty_array_is_left_for_the_backward_pass(kind, mesh):
    """XLA of JAX 0.11.2 ends the process where one leaves a `shard_map`."""
    batch = members(8)

    def total(batch):
        fn = jax.vmap(ft.partial(loss, kind, sciml.adjoints.Checkpointed(), **cheap(kind)))
        return jnp.sum(jax.shard_map(fn, mesh=mesh, in_specs=P("members"), out_specs=P("members"))(batch))

    maps = [eqn for eqn in jax.make_jaxpr(jax.grad(total))(batch).eqns if eqn.primitive.name == "shard_map"]
    assert len(maps) == 2 and all(v.aval.size for eqn in maps for v in eqn.outvars)


@pytest.mark.parametrize("kind", ["scan", "adaptive"])
def test_one_member_on_each_device_without_vmap(kind, mesh):
    batch = members(8)

    def fn(p):
        p = jax.tree.map(lambda x: x[0], p)
        return loss(kind, sciml.adjoints.Checkpointed(), p, **cheap(kind))[None]

    expected = jax.jit(jax.vmap(ft.partial(loss, kind, sciml.adjoints.Checkpointed(), **cheap(kind))))(batch)
    np.testing.assert_allclose(over_devices(fn, mesh)(batch), expected, rtol=1e-8)


@pytest.mark.parametrize("kind", ["scan", "adaptive"])
def test_direct_adjoint(kind, mesh):
    fn = jax.vmap(ft.partial(loss, kind, sciml.adjoints.Direct(), **cheap(kind)))
    batch = members(8)
    np.testing.assert_allclose(over_devices(fn, mesh)(batch), jax.jit(fn)(batch), rtol=1e-8)


ITERATIVE = lx.GMRES(rtol=1e-9, atol=1e-9)
IMPLICIT = {
    "midpoint": (sciml.solvers.GaussLegendre(order=2), sciml.adjoints.Direct()),
    "radau": (sciml.solvers.Radau5(), sciml.adjoints.Direct()),
    "bdf": (sciml.solvers.BDF(), sciml.adjoints.Direct()),
    "bdf-gmres-direct": (sciml.solvers.BDF(linear_solver=ITERATIVE), sciml.adjoints.Direct()),
    "bdf-gmres-forward": (sciml.solvers.BDF(linear_solver=ITERATIVE), sciml.adjoints.Forward()),
    "bdf-gmres-checkpointed": (sciml.solvers.BDF(linear_solver=ITERATIVE), sciml.adjoints.Checkpointed()),
}


@pytest.mark.parametrize("name", IMPLICIT)
def test_implicit_methods(name, mesh):
    """Their rules and branches close over numbers that are the same on every device."""
    solver, adjoint = IMPLICIT[name]

    def end(a):
        y0 = jnp.array([1.0, 0.5])
        sol = sciml.solve(lambda t, y, a: -a * y, y0, t0=0.0, t1=0.5, dt=0.125, args=a, solver=solver, adjoint=adjoint)
        return sol.ys[-1, 0]

    derivative = jax.grad if name.endswith("checkpointed") else jax.jacfwd
    fn = jax.vmap(derivative(end))
    batch = jnp.linspace(0.5, 2.0, 8)
    np.testing.assert_allclose(over_devices(fn, mesh)(batch), jax.jit(fn)(batch), rtol=1e-9)
    np.testing.assert_allclose(fn(batch), -0.5 * jnp.exp(-0.5 * batch), rtol=2e-2)


@pytest.mark.parametrize("name", ["event", "two events", "schedule", "Forward-Kvaerno5", "Gauss"])
def test_events(name):
    """Values and gradients with error control on two devices."""

    def end(a):
        refill = sciml.Event(lambda t, y, a: y - 0.5 * a, lambda t, y, a: y + 1.0, -1)
        full = sciml.Event(lambda t, y, a: y - 0.9 * a - 1.0, lambda t, y, a: 0.5 * y)
        doses = sciml.Schedule(jnp.array([0.5]), lambda t, y, a: y + a)
        how = {
            "event": dict(events=refill),
            "two events": dict(events=[refill, full]),
            "schedule": dict(events=doses),
            "Forward-Kvaerno5": dict(events=refill, adjoint=sciml.adjoints.Forward(), solver=diffrax.Kvaerno5()),
            "Gauss": dict(events=[refill, doses], adjoint=sciml.adjoints.Gauss()),
        }
        return sciml.solve(lambda t, y, a: -a * y, jnp.array(1.0), t0=0.0, t1=1.0, args=a, **how[name]).ys[-1]

    batch, mesh = jnp.array([0.8, 1.5, 2.0, 2.5]), Mesh(np.array(jax.devices()[:2]), ("members",))

    def both(a):
        return jax.jvp(end, (a,), (jnp.ones_like(a),)) if name.startswith("Forward") else jax.value_and_grad(end)(a)

    fn = jax.vmap(both)
    close(over_devices(fn, mesh)(batch), jax.jit(fn)(batch), rtol=1e-9)


@pytest.mark.parametrize("name", ["delayed", "dense"])
def test_gradients_within_and_around(name):
    """Of arrays without elements, and of dense output, whose step has reverse mode alone."""
    delayed = sciml.Delayed(lambda t, y, past, a: -a * past, 0.25, lambda t, a: jnp.ones_like(a))
    model = delayed if name == "delayed" else lambda t, y, a: -a * y

    def one(a):
        how = dict(saveat=diffrax.SaveAt(dense=True)) if name == "dense" else {}
        sol = sciml.solve(model, jnp.array(1.0), t0=0.0, t1=1.0 / a, args=a, solver=diffrax.Bosh3(), throw=False, **how)
        return jnp.sum(sol.evaluate(jnp.array([0.2, 0.4]))) if name == "dense" else sol.ys[-1]

    batch, mesh = jnp.array([1.0, 2.0]), Mesh(np.array(jax.devices()[:2]), ("members",))
    expected = jax.jit(jax.vmap(jax.grad(one)))(batch)
    np.testing.assert_allclose(over_devices(jax.vmap(jax.grad(one)), mesh)(batch), expected, rtol=1e-8)
    # around the map the gradient is through one member on each device
    alone = over_devices(lambda a: one(a[0])[None], mesh)
    np.testing.assert_allclose(jax.grad(lambda a: jnp.sum(alone(a)))(batch), expected, rtol=1e-8)


def test_a_mesh_of_two_axes():
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
    batch, states = members(2).model, members(4).y0

    def fn(model, y0):
        def one(model, y0):
            p = eqx.tree_at(lambda p: (p.model, p.y0), inputs(), (model, y0))
            return loss("adaptive_saves", sciml.adjoints.Checkpointed(), p, **cheap("adaptive"))

        return jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(model, y0)

    sharded = jax.jit(jax.shard_map(fn, mesh=mesh, in_specs=(P("a"), P("b")), out_specs=P("a", "b")))
    np.testing.assert_allclose(sharded(batch, states), jax.jit(fn)(batch, states), rtol=1e-8)


@pytest.mark.parametrize("kind", ["scan", "adaptive"])
def test_a_mesh_of_explicit_axes(kind):
    """Shardings in the types: `vmap` over a sharded axis names it in `spmd_axis_name`."""
    mesh = jax.make_mesh((8,), ("members",), axis_types=(AxisType.Explicit,))
    batch = members(8)
    fn = ft.partial(loss, kind, sciml.adjoints.Checkpointed(), **cheap(kind))
    expected = jax.jit(jax.vmap(fn))(batch)
    with jax.set_mesh(mesh):
        placed = jax.device_put(batch, NamedSharding(mesh, P("members")))
        sharded = jax.jit(jax.shard_map(jax.vmap(fn), in_specs=P("members"), out_specs=P("members")))
        np.testing.assert_allclose(sharded(placed), expected, rtol=1e-8)


def test_what_diffrax_runs_is_refused(mesh):
    def fn(rate):
        options = {"t0": 0.0, "t1": 1.0, "solver": diffrax.ImplicitEuler(), "throw": False}
        return sciml.solve(lambda t, y, args: -args * y, jnp.ones(2), args=rate, **options).ys

    with pytest.raises(ValueError, match="diffrax runs this solve.*`jax.shard_map`"):
        over_devices(jax.vmap(fn), mesh)(jnp.ones(8))


@pytest.mark.parametrize("saved", ["times", "dense"])
def test_a_field_with_numbers_of_its_own(saved, mesh):
    """Numbers written into a field are the same on every device, and meet what is not."""

    def one(y0):
        saveat = [0.3, 1.0] if saved == "times" else diffrax.SaveAt(dense=True)
        solver, field = diffrax.Euler(), lambda t, y, args: 0.1 * jnp.cos(y) - 0.5 * y
        sol = sciml.solve(field, y0, t0=0.0, t1=1.0, dt=0.25, solver=solver, saveat=saveat, throw=False)
        return sol.ys if saved == "times" else sol.evaluate(jnp.array([0.3, 1.0]))

    starts = jnp.linspace(0.0, 1.0, 16)
    fn = jax.vmap(jax.value_and_grad(lambda y0: jnp.sum(one(y0))))
    close(over_devices(fn, mesh)(starts), jax.jit(fn)(starts), rtol=1e-12, atol=1e-14)


def test_a_wide_field_with_whole_numbers_of_its_own(mesh):
    """A mean divides by a whole number; the entries of the Jacobian are read from such a program."""

    def one(rate):
        def field(t, y, rate):
            return -rate * y + 0.1 * jnp.tanh(2 * jnp.mean(y))

        options = {"t0": 0.0, "t1": 0.5, "saveat": [0.2, 0.5], "rtol": 1e-6, "atol": 1e-8}
        y0 = jnp.linspace(0.0, 1.0, 140)
        return sciml.solve(field, y0, args=rate, solver=diffrax.Kvaerno5(), throw=False, **options).ys

    rates = jnp.linspace(0.5, 2.0, 8)
    close(over_devices(jax.vmap(one), mesh)(rates), jax.jit(jax.vmap(one))(rates), rtol=1e-6, atol=1e-9)
