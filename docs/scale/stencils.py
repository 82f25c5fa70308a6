# %% [markdown]
# # Stencils: memory bandwidth and temporal blocking
#
# In a stencil step on a grid, every cell reads its neighbours: heat conduction, waves, reactions, flows. Such a step
# computes little and moves much data, so its roofline is measured in *bytes per cell*. This chapter counts these
# bytes, examines the compiled step, and then reduces them.
#
# ## Counting bytes
#
# The heat equation in two dimensions:
#
# $$u_{ij} \leftarrow u_{ij} + r\,(u_{i+1,j} + u_{i-1,j} + u_{i,j+1} + u_{i,j-1} - 4 u_{ij}).$$
#
# A cell needs seven operations. Each number is read five times, but four of these reads are served by a cache: it
# comes from memory once, and the new value goes there once. That is 8 bytes per cell in float32, and less than one
# operation per byte. This is memory-bound on every machine, and a step takes as long as copying the field:

# %%
import jax
import jax.numpy as jnp
import numpy as np

from sciml import inspect
from sciml.kernels.stencil import StencilUpdate, evolve
from timing import beside, report

rates = inspect.rates()
print(
    f"JAX {jax.__version__} on {rates.device}; ridge {rates.flops / rates.bandwidth:.1f} operations a byte"
)
for side in (128, 1024, 4096):
    held = 8 * side**2
    print(f"{side} x {side}: at most {rates.copied(held) / 8e9:.1f} billion cells a second")

# %% [markdown]
# A field with more components moves more: 16 bytes for the two fields of Gray and Scott, and also 16 for a wave with
# two states and a coefficient (three read, one written). The rule is to **count the arrays that are read and
# written**.
#
# ## Three implementations
#
# The same loop in three ways: with `jnp.roll`, with a layer of ghost cells, and with `sciml.kernels.stencil`, which
# takes the rule of one cell:

# %%
SIDE, STEPS = 2048, 8


def inner(p):
    """One step for all cells but the outermost: the result has two cells less along each axis."""
    around = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]
    return p[1:-1, 1:-1] + 0.2 * (around - 4 * p[1:-1, 1:-1])


def by_roll(u, count):
    def step(_, u):
        around = sum(jnp.roll(u, shift, axis) for axis in (0, 1) for shift in (-1, 1))
        return u + 0.2 * (around - 4 * u)

    return jax.lax.fori_loop(0, count, step, u)


def by_ghosts(u, count):
    return jax.lax.fori_loop(0, count, lambda _, u: inner(jnp.pad(u, 1, mode="wrap")), u)


def rule(nb, r):
    around = nb("u", 1, 0) + nb("u", -1, 0) + nb("u", 0, 1) + nb("u", 0, -1)
    return nb("u") + r * (around - 4 * nb("u"))


def by_rule(u, count):
    return evolve(StencilUpdate(rule), u, count, 0.2)


u = jax.random.normal(jax.random.key(0), (SIDE, SIDE))
moved, ends = {}, {}
for name, fn in (("roll", by_roll), ("ghosts", by_ghosts), ("evolve", by_rule)):
    jitted = jax.jit(fn, static_argnums=1)
    found, ends[name] = report(jitted, u, STEPS), jitted(u, STEPS)
    moved[name] = found.cost.bytes_accessed / STEPS / SIDE**2
    print(
        f"{name}: {moved[name]:.0f} bytes for a cell and step, {found.cost.flops / STEPS / SIDE**2:.0f} operations"
    )
    beside(name, found.predicted.total, found.measured)
assert jnp.allclose(ends["roll"], ends["evolve"], atol=1e-5)

# %% [markdown]
# The number of operations is as counted, but not the number of bytes: `roll` and `pad` create separate arrays, which
# are written to memory and read again, because XLA does not fuse them into the loop that uses them. `evolve` writes
# ghost layers in one pass. On a GPU or TPU its [kernels](../guides/kernels.md) reach the 8 bytes.
#
# ## Temporal blocking: several steps per pass
#
# Data in a cache can be reused. Take a tile of $b \times b$ cells with a halo of $k$ cells on each side, and compute
# $k$ steps on it. Each step removes one cell on each side. Write the remaining $b \times b$ cells, which are $k$
# steps older. The traffic between memory and cache is then only
#
# $$\frac{4}{k} \left[ \left(1 + \frac{2k}{b}\right)^2 + 1 \right] \text{ bytes per cell and step.}$$
#
# In return, several tiles compute the cells near their edges redundantly, and the work grows by the mean of $(1 +
# 2j/b)^2$ over $j = 0 \dots k - 1$. The results are identical to the bit:


# %%
def blocked(u, count, k, b):
    tiles = SIDE // b

    def sweep(_, u):
        p = jnp.pad(u, k, mode="wrap")

        def one(i, out):
            y, x = i // tiles * b, i % tiles * b
            tile = jax.lax.dynamic_slice(p, (y, x), (b + 2 * k, b + 2 * k))
            for _ in range(k):
                tile = inner(tile)
            return jax.lax.dynamic_update_slice(out, tile, (y, x))

        return jax.lax.fori_loop(0, tiles**2, one, u)

    return jax.lax.fori_loop(0, count // k, sweep, u)


def redundancy(k, b):
    """The number of computed cells divided by the number of cells."""
    return np.mean([(1 + 2 * j / b) ** 2 for j in range(k)])


jitted = jax.jit(blocked, static_argnums=(1, 2, 3))
for k, b in ((1, 256), (4, 256), (8, 256)):
    found = report(jitted, u, STEPS, k, b)
    work = found.cost.flops / STEPS / SIDE**2 / 7
    print(
        f"{k} steps on {b} x {b}: {4 / k * ((1 + 2 * k / b) ** 2 + 1):4.1f} bytes to and from memory, "
        f"work {redundancy(k, b):.3f} by the formula, {work:.3f} counted"
    )
    assert abs(work / redundancy(k, b) - 1) < 0.01
    beside(f"{k} steps in a pass", found.predicted.total, found.measured)
assert jnp.array_equal(jitted(u, STEPS, 8, 256), ends["ghosts"])

# %% [markdown]
# A CPU with a large cache gains less than a GPU, whose memory is slow compared with its computing rate. The kernels
# of sciml use this with `steps_per_pass`. A field that is split over devices reduces its messages in the same way,
# with `steps_per_exchange` ([domain decomposition](../guides/domains.md#several-steps-per-halo-exchange)).
#
# In three dimensions a tile of the same size has a much larger surface. For 16,384 cells and four steps:

# %%
for dims in (1, 2, 3):
    b = 16_384 ** (1 / dims)
    halo = (1 + 2 * 4 / b) ** dims
    print(
        f"{dims} dimensions: tiles {b:.0f} cells wide, with their halo {halo:.2f} times as many cells"
    )

# %% [markdown]
# Three-dimensional kernels therefore move a two-dimensional tile along the third axis, with the steps a few planes
# apart.
#
# ## Exercise 1
#
# For a wave with a coefficient in each cell, $u'' = c^2 \Delta u$, and the leapfrog scheme $u_\text{new} = 2u -
# u_\text{old} + r c^2 \Delta u$: how many bytes per cell and step are moved?


# %% Answer
# Read u, u_old and c, write u_new: 16. (u is the next u_old without being moved, if the two arrays change places.)
def leapfrog(p, old, c):
    around = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * p[1:-1, 1:-1]
    return 2 * p[1:-1, 1:-1] - old + 0.2 * c**2 * around


cells = jax.ShapeDtypeStruct((SIDE, SIDE), jnp.float32)
padded = jax.ShapeDtypeStruct((SIDE + 2, SIDE + 2), jnp.float32)
found = report(leapfrog, padded, cells, cells).cost.bytes_accessed / SIDE**2
print(f"counted {found:.2f} bytes")
assert abs(found / 16 - 1) < 0.01

# %% [markdown]
# ## Exercise 2
#
# Moving a cell to and from memory costs $M$, and computing a step in the cache costs $C$. Which $k$ is best for tiles
# of $b$ cells? Use $M = 4C$ and $b = 128$.

# %% Answer
# A step costs M (1 + 2k/b)^2 / k + C (1 + k/b)^2 or so. For k much smaller than b the terms that change with k are
# M/k and 2 C k/b: least at k = sqrt(M b / 2C) = 16.
costs = {k: 4 / k * (1 + 2 * k / 128) ** 2 + redundancy(k, 128) for k in range(1, 65)}
best = min(costs, key=costs.get)
rough = (4 * 128 / 2) ** 0.5
print(
    f"by the rule {rough:.0f}, by the full sum {best}; cost {costs[1]:.1f} at k = 1, {costs[best]:.2f} there"
)
assert abs(best / rough - 1) < 0.3 and costs[1] > 3 * costs[best]

# %% [markdown]
# ## Exercise 3
#
# An explicit diffusion step is stable up to $\Delta t = h^2 / 4$. How much more expensive is a run to the same time
# on a grid that is twice as fine? Count it for 32 and 64 cells per side.


# %% Answer
# Four times the cells, four times the steps: 16 times. For implicit and exponential methods, without a step limit, the
# factor is slightly more than four: [PDEs](../guides/pdes.md).
def until(side):
    count = round(0.01 / (0.25 / side**2))
    shape = jax.ShapeDtypeStruct((side, side), jnp.float32)
    return report(lambda u: by_ghosts(u, count), shape).cost.flops


factor = until(64) / until(32)
print(f"{factor:.1f} times the operations")
assert abs(factor / 16 - 1) < 0.03

# %%
ratio = moved["roll"] / moved["evolve"]
assert ratio > 1.5
print(f"figure of merit: {ratio:.2f} > 1.5 (bytes of a step by roll, over those of evolve)")
