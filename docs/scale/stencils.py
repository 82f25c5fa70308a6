# %% [markdown]
# # Stencils
#
# A field on a grid, and a step in which every cell looks at its neighbours: heat, waves, reactions, flows. Such a step
# computes little and moves much, so its roofline is counted in *bytes for a cell*. This chapter counts them, looks at
# what the compiler makes of a step, and then moves fewer.
#
# ## By hand
#
# The heat equation in two dimensions:
#
# $$u_{ij} \leftarrow u_{ij} + r\,(u_{i+1,j} + u_{i-1,j} + u_{i,j+1} + u_{i,j-1} - 4 u_{ij}).$$
#
# Seven operations. Each number is read five times, but four of these reads find it in a cache: from memory it comes
# once, and the new one goes there once. That is 8 bytes for a cell in float32, and less than one operation a byte. On
# every machine memory decides, and a step takes as long as to copy the field:

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
# A field with more components moves more: Gray and Scott's two fields 16 bytes, a wave that is made of two states and
# a coefficient 16 as well (three read, one written). A large cell costs as much as many small ones: **count arrays,
# read and written**.
#
# ## What becomes of it
#
# Three ways to write the loop: with `jnp.roll`, with a layer of ghost cells, and by `sciml.kernels.stencil`, which is
# given the rule of one cell:

# %%
SIDE, STEPS = 2048, 8


def inner(p):
    """One step for all cells but the outermost: each side has two cells less."""
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
# The operations are those that we counted. The bytes are not: what `roll` and `pad` make is an array of its own,
# written to memory and read again, since XLA does not put it into the loop that uses it. `evolve` writes ghost layers
# in one pass. On a GPU or TPU its kernels ([Kernels](../guides/kernels.md)) come down to the 8.
#
# ## Several steps in one pass
#
# What is in a cache may stay there. Take a tile of $b \times b$ cells with $k$ more on each side, do $k$ steps on it,
# each of which leaves two cells less a side, and write what is left, $b \times b$ cells that are $k$ steps older. Of
# the field then only
#
# $$\frac{4}{k} \left[ \left(1 + \frac{2k}{b}\right)^2 + 1 \right] \text{ bytes for a cell and step}$$
#
# come from memory and go there. The price: cells near the edges of tiles are computed by several tiles, and the work
# grows by the mean of $(1 + 2j/b)^2$ over $j = 0 \dots k - 1$. The numbers are the same to the bit:


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
    """Cells that are computed, over cells that there are."""
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
# On a CPU with a large cache there is less to gain than on a GPU, whose
# memory is slow beside what it computes. The kernels of sciml do so with `steps_per_pass`, and a field that is split
# over devices saves messages in the same way, with `steps_per_exchange`
# ([Fields over devices](../guides/domains.md#fewer-messages)).
#
# In three dimensions a tile of the same size has far more surface. For 16 384 cells, four steps:

# %%
for dims in (1, 2, 3):
    b = 16_384 ** (1 / dims)
    halo = (1 + 2 * 4 / b) ** dims
    print(
        f"{dims} dimensions: tiles {b:.0f} cells wide, with their halo {halo:.2f} times as many cells"
    )

# %% [markdown]
# So there one walks: a tile of two dimensions goes along the third, and its steps follow each other a few planes
# apart.
#
# ## Exercise 1
#
# A wave with a coefficient for each cell, $u'' = c^2 \Delta u$, by the leapfrog $u_\text{new} = 2u - u_\text{old} + r
# c^2 \Delta u$: how many bytes for a cell and step?


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
# A cell costs $M$ to bring from memory and back, and $C$ a step to compute in the cache. With tiles $b$ cells wide,
# which $k$ is best? Take $M = 4C$ and $b = 128$.

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
# An explicit step of diffusion is stable up to $\Delta t = h^2 / 4$. How much more does a run to the same time cost on
# a grid twice as fine? Count it for 32 and 64 cells a side.


# %% Answer
# Four times the cells, four times the steps: 16 times. Implicit and exponential methods, whose steps are free, pay four
# times and a little: [PDEs](../guides/pdes.md).
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
