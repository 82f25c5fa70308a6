# %% [markdown]
# # Random keys
#
# NumPy's random generator has a hidden state: a draw depends on all earlier draws, so numbers change if you reorder
# the program or run it on more machines. In JAX a random number is a pure function of a *key*, and new keys are
# derived from old ones. The same key gives the same number everywhere. For simulations this means reproducibility:
# member 17 has the same noise alone, with a thousand others, on eight devices, or after a crash.
#
# ## Splitting keys

# %%
import jax
import jax.numpy as jnp

import sciml

key = jax.random.key(0)
assert jax.random.normal(key) == jax.random.normal(key)  # a function

key, first, second = jax.random.split(key, 3)
print(jax.random.key_data(key), jax.random.normal(first), jax.random.normal(second))

# %% [markdown]
# Use each key for *one* purpose: to draw or to split. If you use a key twice, the two draws are equal or correlated.
# This is the most common mistake, and it raises no error. Here the positions and velocities of a gas use the same
# key:

# %%
position = jax.random.normal(first, (10_000,))
velocity = jax.random.normal(first, (10_000,))  # wrong: uses `first` again
right = jax.random.normal(second, (10_000,))
print(
    f"correlation {jnp.corrcoef(position, velocity)[0, 1]:.2f}, it should be {jnp.corrcoef(position, right)[0, 1]:.2f}"
)

# %% [markdown]
# JAX can detect key reuse with `jax.config.update("jax_debug_key_reuse", True)`, or within a block:

# %%
with jax.debug_key_reuse(True):
    third = jax.random.key(3)
    jax.random.normal(third)
    try:
        jax.random.normal(third)
    except jax.errors.KeyReuseError as error:
        print(str(error).splitlines()[0][:100])
    else:
        raise AssertionError("a key was used twice")

# %% [markdown]
# ## fold_in: a key for each step or member
#
# `split` needs the number of keys in advance. `jax.random.fold_in(key, n)` derives the key of number `n`, for example
# of a step, a member or a device. This random walk derives the key of step `n` from `n`, and needs no key in its
# state:


# %%
def walk(key, steps):
    def step(n, x):
        return x + jax.random.normal(jax.random.fold_in(key, n))

    return jax.lax.fori_loop(0, steps, step, 0.0)


def member(i):
    return walk(jax.random.fold_in(jax.random.key(7), i), 100)


walks = jax.jit(jax.vmap(member))(jnp.arange(4000))
alone = jax.jit(member)(17)
print(f"member 17 alone {alone:.6f}, among 4000 {walks[17]:.6f}")
assert jnp.allclose(alone, walks[17], atol=1e-5)
variance = float(jnp.var(walks))
print(f"variance after 100 steps {variance:.1f}")

# %% [markdown]
# ## Typed keys
#
# `jax.random.key(0)` is an array with dtype `key<fry>`. You can index, stack and map it like any array, but not add a
# number by mistake. (The older `PRNGKey` is an array of two integers, which allows that.) To write a key to disk,
# store its bits:

# %%
try:
    key + 1
except TypeError as error:
    print(str(error).splitlines()[0][:80])
else:
    raise AssertionError("a sum of a key and a number")

bits = jax.random.key_data(key)
again = jax.random.wrap_key_data(bits)
print(key.dtype, bits.dtype, bits.shape)
assert jax.random.normal(again) == jax.random.normal(key)

# %% [markdown]
# ## Exercise
#
# A lattice of spins is updated in sweeps that flip random spins. Each sweep needs one random number for each of 64 x 64
# spins, and one for the temperature. Derive the keys of sweep `n` such that a run of 100 sweeps that is stopped after
# 50 and restarted equals one without the stop. `jax.lax.scan(sweep, start, ns)[0]` calls `start, _ = sweep(start, n)`
# for each `n` of an array ([loops](loops.md)).


# %% Answer
def sweep(spins, n):
    for_spins, for_temperature = jax.random.split(jax.random.fold_in(jax.random.key(1), n))
    hot = 0.3 + 0.1 * jax.random.uniform(for_temperature)
    flips = jax.random.uniform(for_spins, spins.shape) < hot
    return jnp.where(flips, -spins, spins), None


start = jnp.ones((64, 64))
through = jax.lax.scan(sweep, start, jnp.arange(100))[0]
half = jax.lax.scan(sweep, start, jnp.arange(50))[0]
resumed = jax.lax.scan(sweep, half, jnp.arange(50, 100))[0]
assert jnp.array_equal(through, resumed)

# %% [markdown]
# ## Use in sciml
#
# `sciml.parallel.sweep(..., key=key)` passes the key `fold_in(key, i)` to member `i`, and `sciml.runs.iterate` passes
# `fold_in(key, n)` to step `n`. The noise of a stochastic equation is a function of a key and an interval of time and
# is not stored: a gradient regenerates it ([stochastic differential equations](../guides/noise.md)). The same walk as
# a solve:

# %%
free = sciml.Stochastic(
    lambda t, y, args: 0.0 * y, lambda t, y, args: jnp.ones_like(y), noise="additive"
)


def path(key):
    return sciml.solve(free, jnp.array(0.0), t0=0.0, t1=100.0, dt=1.0, key=key).ys[-1]


ends = jax.jit(jax.vmap(path))(jax.random.split(jax.random.key(3), 4000))
print(f"variance of the solves {float(jnp.var(ends)):.1f}")

# %%
error = max(abs(variance / 100 - 1), abs(float(jnp.var(ends)) / 100 - 1))
assert error < 0.1
print(
    f"figure of merit: {error:.3f} < 0.1 (variance after 100 steps of variance one, relative to 100)"
)
