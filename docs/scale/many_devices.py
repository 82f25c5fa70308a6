# %% [markdown]
# # Many devices: communication costs
#
# More devices provide more computing rate, bandwidth and memory, at the price of communication. This chapter counts
# messages and their bytes. [Meshes and shardings](../learn/meshes.md) shows how to place arrays, and
# [shard_map](../learn/shard_map.md) how to write the program of one device.
#
# The eight devices in this chapter are parts of one CPU. Their programs and messages are the same as on eight GPUs,
# but their speed is not.
#
# ## One sweep in three ways
#
# The example is an ensemble of damped oscillators, each integrated until it is at rest, with a loop of unknown length
# for each member:

# %%
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sciml
from sciml import inspect
from timing import beside, duration, seconds

jax.config.update("jax_num_cpu_devices", 8)  # before any use of a device
D, MEMBERS = 8, 64
print(f"JAX {jax.__version__}, {D} devices of kind {jax.devices()[0].device_kind}")
mesh = jax.make_mesh((D,), ("members",), axis_types=(AxisType.Auto,))


def at_rest(damping):
    """The number of steps until it is at rest."""

    def step(c):
        x, v, count = c
        v = v - 0.01 * (x + damping * v)
        return x + 0.01 * v, v, count + 1

    def moves(c):
        return c[0] ** 2 + c[1] ** 2 > 1e-2

    zero = 0 * damping  # JAX must assume that it differs between devices
    return jax.lax.while_loop(moves, step, (1 + zero, zero, zero))[2].astype(int)


dampings = jnp.geomspace(2.0, 0.2, MEMBERS)
along = NamedSharding(mesh, P("members"))
by_pmap = jax.pmap(jax.vmap(at_rest))
by_jit = jax.jit(jax.vmap(at_rest), in_shardings=along, out_shardings=along)
by_shard_map = jax.jit(
    jax.shard_map(jax.vmap(at_rest), mesh=mesh, in_specs=P("members"), out_specs=P("members"))
)
ways = {
    "pmap": (by_pmap, dampings.reshape(D, -1)),
    "jit + NamedSharding": (by_jit, jax.device_put(dampings, along)),
    "shard_map": (by_shard_map, jax.device_put(dampings, along)),
}
counts = {name: np.asarray(fn(given)).ravel() for name, (fn, given) in ways.items()}
assert all((n == counts["pmap"]).all() for n in counts.values())
found = {name: inspect.collectives(fn, given) for name, (fn, given) in ways.items()}
for name, messages in found.items():
    print(f"{name}: {[(c.kind, c.bytes, 'in a loop' if c.in_loop else 'once') for c in messages]}")
assert [c.in_loop for c in found["jit + NamedSharding"]] == [True]
assert found["shard_map"] == found["pmap"] == []

# %% [markdown]
# The results are equal. `jit` sees *one* loop over all members, which continues while any of them moves: all devices
# synchronise in every iteration, and run until the slowest member is at rest. With `shard_map` and `pmap` each device
# has a separate loop. The saving follows from the numbers of steps:

# %%
steps = counts["shard_map"]
own = steps.reshape(D, -1).max(axis=1)
print(f"turns with one loop: {steps.max()} on each device; of their own: {own.tolist()}")
print(
    f"devices would be busy for {own.mean() / steps.max():.2f} of the time: deal the long members out evenly"
)

# %% [markdown]
# | Method | Use it for |
# |---|---|
# | `jit` + `NamedSharding` | no loops of unknown length: fixed steps, networks; automatic communication |
# | `shard_map` | loops of unknown length, Fourier transforms, halos: you specify the communication |
# | `pmap` | never in new code: like `shard_map`, for the first axis and one mesh only |
#
# `jax.vmap(sciml.solve)` is an exception to the first row: also with error control, each device runs its own members
# without communication, and keeps the sharding of the array:


# %%
def end(damping):
    def field(t, y, args):
        return jnp.stack([y[1], -y[0] - damping * y[1]])

    return sciml.solve(field, jnp.array([1.0, 0.0]), t0=0.0, t1=10.0, throw=False).ys[-1]


assert inspect.collectives(jax.vmap(end), jax.device_put(dampings, along)) == []

# %% [markdown]
# `sciml.parallel.ensemble` and `sweep` do this for any number of members ([ensembles](../guides/ensembles.md)).
#
# ## Collectives and their bytes
#
# Each of $D$ devices holds a block of $b$ bytes. The table lists the bytes that a device receives, and the minimum
# that it sends in a ring:
#
# | Collective | Receives | Sends |
# |---|---|---|
# | `psum` (all-reduce) | $b$ | $2 b (D - 1)/D$ |
# | `all_gather` | $D b$ | $b (D - 1)$ |
# | `psum_scatter` (reduce-scatter) | $b / D$ | $b (D - 1)/D$ |
# | `all_to_all` | $b$ | $b (D - 1)/D$ |
# | `ppermute` (collective-permute) | $b$ | $b$ |
#
# An all-reduce is a reduce-scatter followed by an all-gather. `inspect.collectives` gives the bytes that a device
# receives:

# %%
axis = "members"
ring = [(i, (i + 1) % D) for i in range(D)]
block = 4 * 1024
collectives = {  # the call, its output sharding, and the bytes that a device receives
    "all-reduce": (lambda x: jax.lax.psum(x, axis), P(), block),
    "all-gather": (lambda x: jax.lax.all_gather(x, axis, tiled=True), P(axis), D * block),
    "reduce-scatter": (lambda x: jax.lax.psum_scatter(x, axis, tiled=True), P(axis), block // D),
    "all-to-all": (lambda x: jax.lax.all_to_all(x, axis, 0, 0, tiled=True), P(axis), block),
    "collective-permute": (lambda x: jax.lax.ppermute(x, axis, ring), P(axis), block),
}
x = jnp.ones(D * block // 4)
for kind, (call, out, gets) in collectives.items():
    (message,) = inspect.collectives(
        jax.shard_map(call, mesh=mesh, in_specs=P(axis), out_specs=out), x
    )
    print(f"{message.kind}: gets {message.bytes} bytes, predicted {gets}")
    assert (message.kind, message.bytes) == (kind, gets)

# %% [markdown]
# A message takes $\alpha + \beta\,b$: a latency, and a time per byte. Two sizes determine both, and predict a third.
# (Here the devices share memory; between machines $\alpha$ is microseconds and $\beta$ depends on the network.)


# %%
@functools.partial(jax.jit, static_argnums=0)
def meet(count, x):
    def turns(x):
        return jax.lax.fori_loop(0, count, lambda _, x: jax.lax.ppermute(x, axis, ring) * 0.5, x)

    return jax.shard_map(turns, mesh=mesh, in_specs=P(axis), out_specs=P(axis))(x)


def message(size):
    x = jax.device_put(jnp.ones(D * size // 4), along)
    return seconds(meet, 40, x) / 40


small, large = message(2**17), message(2**19)
beta = (large - small) / (2**19 - 2**17)
alpha = small - beta * 2**17
print(f"alpha {duration(abs(alpha))}, beta {1e9 * beta:.2f} ns a byte")
beside("a message of 256 KiB", alpha + beta * 2**18, message(2**18))

# %% [markdown]
# The smallest message is one bit: whether any member still moves. It costs one latency, and the sweep with `jit`
# sends one in every iteration. The product predicts its time:


# %%
@functools.partial(jax.jit, static_argnums=0)
def ask(count, x):
    def turns(x):
        def turn(_, x):
            moves = jax.lax.psum((x[0] > 0).astype(int), axis) > 0
            return jnp.where(moves, x + 1, x)

        return jax.lax.fori_loop(0, count, turn, x)

    return jax.shard_map(turns, mesh=mesh, in_specs=P(axis), out_specs=P(axis))(x)


meeting = seconds(ask, 100, jax.device_put(jnp.ones(MEMBERS), along)) / 100
beside("the sweep by jit", int(steps.max()) * meeting, seconds(*ways["jit + NamedSharding"]))
print(f"by shard_map: {duration(seconds(*ways['shard_map']))}")

# %% [markdown]
# ## Fields: surface and volume
#
# A field of $n^2$ cells on $D$ devices: each computes $n^2 / D$ cells and receives the edges of its neighbours.
# Strips have two edges of $n$ cells; blocks of a mesh $p \times q$ have two of $n/p$ and two of $n/q$ cells.
#
# ![A field on 4 x 2 devices; a block with the ghost cells that come from its neighbours](../figures/halo.svg)

# %%
N = 512


def edges(p, q):
    """Bytes that a device receives per step, predicted and in the compiled program."""
    mesh = sciml.parallel.mesh(member=1, x=p, y=q)
    domain = sciml.parallel.Domain(("x", "y" if q > 1 else None), mesh=mesh)

    def step(u):
        w = domain.pad(u, 1)
        return w[1:-1, 1:-1] + 0.2 * (w[2:, 1:-1] + w[:-2, 1:-1] + w[1:-1, 2:] + w[1:-1, :-2])

    field = jax.ShapeDtypeStruct((N, N), jnp.float32)
    got = inspect.collectives(lambda u: domain.run(step, u), field)
    assert {c.kind for c in got} == {"collective-permute"}
    predicted = 4 * 2 * (N // q) + (
        4 * 2 * (N // p + 2) if q > 1 else 0
    )  # the second with the corners
    return predicted, sum(c.bytes for c in got), len(got)


for p, q in ((8, 1), (4, 2)):
    predicted, bytes_got, count = edges(p, q)
    share = bytes_got / (8 * N**2 / D)
    print(
        f"{p} x {q}: predicted {predicted} bytes, counted {bytes_got} in {count}; {share:.1%} of what a step moves"
    )
    assert predicted == bytes_got

# %% [markdown]
# The volume decreases with $D$, the surface of strips does not: with enough devices communication dominates. Blocks
# help ($\sim n / \sqrt D$), and so do several steps per exchange, which save latency but not bytes ([domain
# decomposition](../guides/domains.md#several-steps-per-halo-exchange)).
#
# ## Networks: splitting for one sum
#
# The example has two layers, $W_2 \tanh(W_1 x)$, and a batch of size $B$. If it is split by hidden neurons, as in
# [tensor parallelism](../learn/tensor_parallel.md), the devices sum the *output*. If it is split the other way, they
# sum the hidden layer before the $\tanh$:

# %%
BATCH, WIDTH, SIZE = 32, 512, 8  # 8 numbers come in and go out
shapes = (WIDTH, SIZE), (SIZE, WIDTH), (SIZE, BATCH)


def layers(up, down, x):
    return down @ jnp.tanh(up @ x)


def sum_over(*specs):
    placed = (
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))
        for shape, spec in zip(shapes, specs)
    )
    return [(c.kind, c.bytes) for c in inspect.collectives(layers, *placed)]


by_neurons = sum_over(P(axis, None), P(None, axis), P())
by_inputs = sum_over(P(None, axis), P(), P(axis, None))
print(f"by neurons: {by_neurons}, predicted {4 * BATCH * SIZE} bytes")
print(f"by inputs:  {by_inputs}, predicted {4 * BATCH * WIDTH} bytes")
assert by_neurons == [("all-reduce", 4 * BATCH * SIZE)]
assert ("all-reduce", 4 * BATCH * WIDTH) in by_inputs

# %% [markdown]
# ## Exercise 1
#
# A two-dimensional Fourier transform of $n^2$ cells is split along the first axis. How many bytes does a device
# receive if it is written with one `all_to_all`, and how many if `jit` receives the sharded array?

# %% Answer
# All-to-all: its block, n^2 / D complex numbers of 8 bytes. With `jit` every device gathers the whole field.
domain = sciml.parallel.Domain(("x", None), mesh=sciml.parallel.mesh(member=1, x=D))
field = jax.ShapeDtypeStruct((N, N), jnp.complex64)
spectral = P(*domain.spectral_axes)
slab = inspect.collectives(lambda u: domain.run(domain.fftn, u, out_specs=spectral), field)
split = NamedSharding(mesh, P(axis, None))
whole = inspect.collectives(
    jax.jit(jnp.fft.fft2, out_shardings=split),
    jax.ShapeDtypeStruct((N, N), jnp.complex64, sharding=split),
)
print([(c.kind, c.bytes) for c in slab], [(c.kind, c.bytes) for c in whole])
assert [(c.kind, c.bytes) for c in slab] == [("all-to-all", 8 * N**2 // D)]
assert sum(c.bytes for c in whole) >= 8 * N**2

# %% [markdown]
# ## Exercise 2
#
# 4096 members, 512 on each device, have a field of 100 cells each. You want their mean and variance for each cell.
# How many bytes are sent if you gather the members, and how many if you do not?


# %% Answer
# Gathered: 4096 x 400 bytes. Otherwise each device sums its own members: two sums of 400 bytes.
def statistics(u):
    mean = jax.lax.pmean(jnp.mean(u, axis=0), axis)
    return mean, jax.lax.pmean(jnp.mean((u - mean) ** 2, axis=0), axis)


u = jax.ShapeDtypeStruct((4096, 100), jnp.float32)
sums = inspect.collectives(
    jax.shard_map(statistics, mesh=mesh, in_specs=P(axis, None), out_specs=P()), u
)
print(f"{sum(c.bytes for c in sums)} bytes in {len(sums)} messages; gathered {4096 * 400} bytes")
assert {c.kind for c in sums} == {"all-reduce"} and sum(c.bytes for c in sums) == 2 * 400

# %% [markdown]
# ## Exercise 3
#
# For a field of 512 x 512 cells on 8 devices: are strips or blocks better, and which blocks? On 64 devices?


# %% Answer
# The bytes of edges, for a mesh p x q: 8 n (1/p + 1/q), without the first term for strips along one axis.
def surface(p, q):
    return 8 * N * ((1 / q if p > 1 else 0) + (1 / p if q > 1 else 0))


best = {}
for devices in (8, 64):
    shapes = [
        (p, devices // p) for p in (1, 2, 4, 8, 16, 32, 64) if devices % p == 0 and p <= devices
    ]
    best[devices] = min(shapes, key=lambda shape: surface(*shape))
    print(
        f"{devices} devices: {best[devices]}, {surface(*best[devices]):.0f} bytes; strips {surface(devices, 1):.0f}"
    )
assert set(best[8]) == {2, 4} and best[64] == (8, 8)

# %%
waste = steps.max() / own.mean()
assert waste > 2
print(
    f"figure of merit: {waste:.1f} > 2 (turns of one loop for all devices, over those of a loop for each)"
)
