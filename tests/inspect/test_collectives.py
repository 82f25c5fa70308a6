"""Collectives of partitioned programs, in and out of loops."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from sciml import inspect

pytestmark = pytest.mark.skipif(jax.device_count() < 2, reason="one device partitions nothing")


def growth(x):
    return jax.lax.while_loop(lambda x: x < 100, lambda x: x * 1.5, x)


@pytest.fixture
def mesh():
    return jax.make_mesh((jax.device_count(),), ("members",), axis_types=(AxisType.Auto,))


def members(mesh, dtype=jnp.float32):
    return jax.ShapeDtypeStruct((2 * mesh.size,), dtype, sharding=NamedSharding(mesh, P("members")))


def test_a_sharded_batch_of_loops_waits_in_every_iteration(mesh):
    (found,) = inspect.collectives(jax.jit(jax.vmap(growth)), members(mesh))
    assert found.kind == "all-reduce"
    assert found.in_loop and found.loop_depth == 1
    assert found.shape == "pred[]"


def test_shard_map_of_a_batch_of_loops_does_not(mesh):
    fn = jax.shard_map(jax.vmap(growth), mesh=mesh, in_specs=P("members"), out_specs=P("members"))
    assert inspect.collectives(fn, members(mesh)) == []


def test_inside_and_outside_of_a_loop(mesh):
    ring = [(i, (i + 1) % mesh.size) for i in range(mesh.size)]

    def fn(x):
        total = jax.lax.psum(jnp.sum(x), "members")
        x = jax.lax.fori_loop(0, 3, lambda _, x: 0.5 * jax.lax.ppermute(x, "members", ring), x)
        return x + total

    sharded = jax.shard_map(fn, mesh=mesh, in_specs=P("members"), out_specs=P("members"))
    found = {c.kind: c for c in inspect.collectives(sharded, members(mesh))}
    assert set(found) == {"all-reduce", "collective-permute"}
    assert not found["all-reduce"].in_loop
    assert found["collective-permute"].in_loop
    assert "ppermute" in found["collective-permute"].source
