# %% [markdown]
# # shard_map: per-device programs and collectives
#
# With [shardings](meshes.md) you write the program for the whole array and JAX derives the communication.
# `jax.shard_map` is the opposite: you write the program of *one* device for its block, including the communication
# (SPMD). This suits stencil codes, whose author knows that a block only needs one layer of cells from either
# neighbour (halo exchange). There are four collectives:
#
# | | Each device passes | and receives |
# |---|---|---|
# | `jax.lax.psum` (`pmax`, `pmean`) | a value | the sum over all devices |
# | `jax.lax.ppermute` | a value | the value of another device, given by a table |
# | `jax.lax.all_gather` | a block | all blocks |
# | `jax.lax.all_to_all` | a block cut into pieces | one piece from each device |
#
# ## Example: heat conduction on a ring

# %%
import functools

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec as P

import sciml

jax.config.update("jax_num_cpu_devices", 8)
D, N = 8, 512
mesh = jax.make_mesh((D,), ("ring",), axis_types=(AxisType.Auto,))
shard_map = functools.partial(jax.shard_map, mesh=mesh)
u0 = jnp.exp(-(((jnp.arange(N) - 200.0) / 10) ** 2))

# %% [markdown]
# ## ppermute: halo exchange
#
# Each device has 64 cells. It sends its last cell to the next device, and its first cell to the previous one:

# %%
forwards = [(i, (i + 1) % D) for i in range(D)]
back = [(i, (i - 1) % D) for i in range(D)]


def step(u):
    from_left = jax.lax.ppermute(u[-1:], "ring", forwards)
    from_right = jax.lax.ppermute(u[:1], "ring", back)
    wide = jnp.concatenate([from_left, u, from_right])
    return u + 0.25 * (wide[2:] - 2 * u + wide[:-2])


def diffuse(u, count=400):
    return jax.lax.fori_loop(0, count, lambda _, u: step(u), u)


on_ring = jax.jit(shard_map(diffuse, in_specs=P("ring"), out_specs=P("ring")))


def alone(u, count=400):
    return jax.lax.fori_loop(
        0, count, lambda _, u: u + 0.25 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)), u
    )


error = float(jnp.max(jnp.abs(jax.device_get(on_ring(u0)) - alone(u0))))
print(
    "messages of a step:",
    [
        c.kind
        for c in sciml.inspect.collectives(
            shard_map(step, in_specs=P("ring"), out_specs=P("ring")), u0
        )
    ],
)
print(f"ring and one device differ by {error:.1e}")

# %% [markdown]
# In two dimensions a block gets ghost cells from the neighbours on all sides
# ([domain decomposition](../guides/domains.md) does this for you):
#
# ![A field on 4 x 2 devices; a block with the ghost cells that come from its neighbours](../figures/halo.svg)
#
# ## psum: global sums
#
# This computes the total heat of the ring. The result is the same on all devices, so its `out_specs` is empty, and
# JAX *checks* this: without the `psum` each device would return a different number, and an error is raised:


# %%
def heat(u):
    return jax.lax.psum(jnp.sum(u), "ring")


before, after = (shard_map(heat, in_specs=P("ring"), out_specs=P())(u) for u in (u0, on_ring(u0)))
print(f"heat before {before:.4f}, after {after:.4f}")
try:
    shard_map(lambda u: jnp.sum(u), in_specs=P("ring"), out_specs=P())(u0)
except ValueError as refused:
    print(str(refused).splitlines()[0][:110])
else:
    raise AssertionError("eight numbers where one is promised")

# %% [markdown]
# Gradients work: the transpose of a `ppermute` sends in the opposite direction, and the transpose of a `psum`
# broadcasts its cotangent.

# %%
gradient = jax.grad(lambda u: jnp.sum(on_ring(u)[:64] ** 2))(u0)
assert jnp.allclose(
    jax.device_get(gradient), jax.grad(lambda u: jnp.sum(alone(u)[:64] ** 2))(u0), atol=1e-5
)

# %% [markdown]
# ## all_gather and all_to_all
#
# `all_gather` gives every device the whole array, which suits small arrays. `all_to_all` transposes: before it, each
# device has some rows; after it, some columns. A two-dimensional Fourier transform is a transform of rows, an
# `all_to_all`, and a transform of the columns, which are then whole:


# %%
def fft2(u):
    u = jnp.fft.fft(u, axis=1)
    u = jax.lax.all_to_all(u, "ring", split_axis=1, concat_axis=0, tiled=True)
    return jnp.fft.fft(u, axis=0)


field = jax.random.normal(jax.random.key(0), (32, 64))
spectrum = shard_map(fft2, in_specs=P("ring", None), out_specs=P(None, "ring"))(field)
assert jnp.allclose(jax.device_get(spectrum), jnp.fft.fft2(field), atol=1e-2)


def hottest(u):
    """The position of the largest value, on all devices."""
    all_u = jax.lax.all_gather(u, "ring", tiled=True)
    return jax.lax.pmax(jnp.argmax(all_u), "ring")


print("hottest cell:", shard_map(hottest, in_specs=P("ring"), out_specs=P())(u0))

# %% [markdown]
# ## Exercise
#
# Find the hottest cell without gathering the field: each device sends two numbers. (`jax.lax.axis_index("ring")` is
# the index of the device.)


# %% Answer
def hottest_of_maxima(u):
    at = jnp.argmax(u)
    top = jax.lax.pmax(u[at], "ring")
    here = jnp.where(u[at] == top, jax.lax.axis_index("ring") * u.size + at, -1)
    return jax.lax.pmax(here, "ring")


found = shard_map(hottest_of_maxima, in_specs=P("ring"), out_specs=P())(u0)
print("hottest cell:", found)
assert found == jnp.argmax(u0) == 200

# %% [markdown]
# ## Use in sciml
#
# `sciml.parallel.Domain` implements this: `domain.pad` exchanges halos, `domain.sum` and `norm` use `psum`,
# `domain.fftn` uses `all_to_all`, and boundary conditions apply at the ends ([domain
# decomposition](../guides/domains.md)). The same function runs on one device and on many, with the same bits:

# %%
domain = sciml.parallel.Domain(("ring",), mesh=sciml.parallel.mesh(member=1, ring=D))


def by_domain(u):
    def step(_, u):
        wide = domain.pad(u, 1)
        return u + 0.25 * (wide[2:] - 2 * u + wide[:-2])

    return jax.lax.fori_loop(0, 400, step, u)


assert jnp.allclose(domain.gather(domain.run(by_domain, u0)), alone(u0), atol=1e-6)

# %%
assert error < 1e-6
print(f"figure of merit: {error:.1e} < 1e-06 (400 steps on a ring of eight devices, and on one)")
