# %% [markdown]
# # Meshes and shardings
#
# An array can be distributed over many devices (sharding). You write the program for the whole array and specify
# *where* the array is stored; JAX derives a program for each device, including the communication (GSPMD, Shardy).
# This lesson uses eight devices that are parts of one CPU, which shows everything but speed.
#
# ## Mesh and PartitionSpec

# %%
import importlib.util

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sciml

jax.config.update("jax_num_cpu_devices", 8)  # before any use of a device
mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Auto))
print(mesh)

n = 64
x = (jnp.arange(n) + 0.5) / n
u0 = jnp.exp(-100 * ((x[:, None] - 0.5) ** 2 + (x[None, :] - 0.3) ** 2))
split = jax.device_put(u0, NamedSharding(mesh, P("x", "y")))
print({shard.data.shape for shard in split.addressable_shards}, "on each of", len(split.devices()))

# %% [markdown]
# The `PartitionSpec` gives a mesh axis for each dimension of the array. `None` leaves a dimension whole, and the
# array is copied along unnamed mesh axes:
#
# ![The blocks of an array on a mesh of 4 x 2 devices, for four partition specs](../figures/shardings.svg)
#
# Each frame is a block of the array. Devices within one frame have copies of the whole block. This prints the device of
# each block:


# %%
def show(array):
    """Prints the device of each block."""
    rows, columns = (n // s for n, s in zip(array.shape, array.sharding.shard_shape(array.shape)))
    owners = [[[] for _ in range(columns)] for _ in range(rows)]
    for device, (i, j) in array.sharding.devices_indices_map(array.shape).items():
        owners[(i.start or 0) * rows // array.shape[0]][
            (j.start or 0) * columns // array.shape[1]
        ].append(device.id)
    for row in owners:
        print("  ".join(",".join(map(str, block)).center(9) for block in row))


show(split)
print("copied along y:")
show(jax.device_put(u0, NamedSharding(mesh, P("x", None))))
if importlib.util.find_spec("rich"):  # `pip install rich` for a picture in colours
    jax.debug.visualize_array_sharding(split)

# %% [markdown]
# ## Automatic partitioning
#
# A step of the heat equation needs neighbour cells, some of which are on other devices. The code does not mention
# this:


# %%
def heat(u):
    def step(u, _):
        around = sum(jnp.roll(u, shift, axis) for axis in (0, 1) for shift in (-1, 1))
        return u + 0.2 * (around - 4 * u), None

    return jax.lax.scan(step, u, None, length=100)[0]


whole, parts = jax.jit(heat)(u0), jax.jit(heat)(split)
print("result lies along", parts.sharding.spec)
print("messages in the program:", sorted({c.kind for c in sciml.inspect.collectives(heat, split)}))
error = float(jnp.max(jnp.abs(whole - jax.device_get(parts))))

# %% [markdown]
# ## Three ways to specify a sharding
#
# - `in_shardings` and `out_shardings` of `jax.jit`: for arguments and results.
# - `jax.lax.with_sharding_constraint`: for intermediate values.
# - `jax.device_put`, as above: shard the data, and the program follows.
#
# A constraint helps if the compiler's choice is bad. A Fourier transform along `x` needs whole columns:

# %%
rows, columns = NamedSharding(mesh, P("x", None)), NamedSharding(mesh, P(None, ("x", "y")))


def smooth(u):
    u = jax.lax.with_sharding_constraint(u, columns)  # each device holds some whole columns
    k = jnp.fft.fftfreq(n)[:, None]
    return jnp.fft.ifft(jnp.exp(-((20 * k) ** 2)) * jnp.fft.fft(u, axis=0), axis=0).real


smoothed = jax.jit(smooth, in_shardings=rows, out_shardings=columns)(jax.device_put(u0, rows))
print(smoothed.sharding.spec, float(jnp.sum(smoothed)), float(jnp.sum(u0)))

# %% [markdown]
# ## Explicit axes: sharding in types
#
# With `AxisType.Auto` the compiler decides. With `AxisType.Explicit`, the default of `jax.make_mesh`, the sharding of
# an array is part of its type, known during tracing, and an ambiguous operation raises an error instead of a guess:

# %%
explicit = jax.make_mesh((8,), ("members",), axis_types=(AxisType.Explicit,))
with jax.set_mesh(explicit):
    angles = jax.device_put(jnp.linspace(0.1, 2.0, 16), P("members"))
    table = jax.device_put(jnp.ones((16, 16)), P(None, "members"))
    print(jax.typeof(angles), jax.typeof(jnp.sin(angles)))
    try:
        table @ table.T + 1.0
    except Exception as refused:
        print(type(refused).__name__, "-", str(refused).splitlines()[0][:90])
    else:
        raise AssertionError("which device has the sum over what is split?")

# %% [markdown]
# ## pmap
#
# The older `jax.pmap` maps the first axis of an array over devices, one element per device. `jit` of a `vmap` with a
# sharded argument does the same, for any number of members that is divisible by the number of devices:


# %%
def swing(angle):
    return sciml.solve(
        sciml.models.Pendulum(), jnp.stack([angle, 0.0 * angle]), t0=0.0, t1=2.0, dt=0.01
    ).ys[-1, 0]


by_pmap = jax.pmap(jax.vmap(swing))(jnp.linspace(0.1, 2.0, 16).reshape(8, 2)).reshape(16)
by_jit = jax.jit(jax.vmap(swing))(angles)
print(
    by_jit.sharding.spec,
    bool(jnp.allclose(jax.device_get(by_pmap), jax.device_get(by_jit), atol=1e-5)),
)

# %% [markdown]
# ## Exercise
#
# How many messages does the ensemble above need, and how many the mean over its members? Guess, then check with
# `sciml.inspect.collectives`.

# %% Answer
# None: members are independent. The mean needs one sum over the devices.
alone = sciml.inspect.collectives(jax.vmap(swing), angles)
mean = sciml.inspect.collectives(lambda a: jnp.mean(jax.vmap(swing)(a)), angles)
print([c.kind for c in alone], [c.kind for c in mean])
assert alone == [] and [c.kind for c in mean] == ["all-reduce"]

# %% [markdown]
# ## Use in sciml
#
# Sharded members stay sharded in `jax.jit(jax.vmap(solve))`, for solutions and gradients
# ([ensembles](../guides/ensembles.md#sharded-arrays-on-several-devices)). `sciml.parallel.ensemble` and `sweep`
# support any number of members. For fields that are split over space, `sciml.parallel.Domain` only exchanges the
# cells that neighbours need ([domain decomposition](../guides/domains.md)); [shard_map](shard_map.md) shows how to
# write that by hand. `sciml.inspect.sharding` draws the placement of arrays ([profiling and
# debugging](../guides/insight.md)).

# %%
assert error < 1e-6
print(f"figure of merit: {error:.1e} < 1e-06 (a field on eight devices, and on one)")
