# %% [markdown]
# # Random keys
#
# NumPy's generator has a hidden state: what you draw depends on all that was drawn before, so that numbers change
# when the order of the program does, or when it runs on more machines. In JAX a random number is a pure function of a
# *key*. The same key gives the same number, everywhere, always; and you make new keys from old ones. For a simulation
# that is a promise: member 17 has the same noise whether it runs alone, with a thousand others, on eight devices, or
# again after a crash.
#
# ## Split, and use once

# %%
import jax
import jax.numpy as jnp

import sciml

key = jax.random.key(0)
assert jax.random.normal(key) == jax.random.normal(key)  # a function

key, first, second = jax.random.split(key, 3)
print(key, jax.random.normal(first), jax.random.normal(second))

# %% [markdown]
# The rule is: use a key for *one* thing, to draw or to split. Where it is used twice, the two draws are equal or
# correlated. It is the most common mistake, and gives no error. Here positions and velocities of a gas are drawn by
# the same key:

# %%
position = jax.random.normal(first, (10_000,))
velocity = jax.random.normal(first, (10_000,))  # wrong: first, again
right = jax.random.normal(second, (10_000,))
print(
    f"correlation {jnp.corrcoef(position, velocity)[0, 1]:.2f}, it should be {jnp.corrcoef(position, right)[0, 1]:.2f}"
)

# %% [markdown]
# JAX finds such reuse where you ask for it, by `jax.config.update("jax_debug_key_reuse", True)` or for a block:

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
# ## fold_in: a key for each number
#
# `split` needs to know how many. `jax.random.fold_in(key, n)` makes the key of number `n`: of a step, of a member, of
# a device. A random walk takes the key of step `n` from `n`, and needs no key in its state:


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
# `jax.random.key(0)` is an array whose dtype is `key<fry>`: it can be indexed, stacked and mapped like any array, but
# nobody can add one to it by mistake. (The older `PRNGKey` is two integers, to which one can.) To write it to disk,
# take its bits:

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
# A lattice of coupled spins is updated in sweeps. Each sweep needs one number for each of 64 x 64 spins, and a number
# for the temperature. Write the keys for sweep `n` such that a run of 100 sweeps, stopped after 50 and started again,
# is the same as one that was not stopped.


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
# ## Where sciml uses it
#
# `sciml.parallel.sweep(..., key=key)` gives member `i` the key `fold_in(key, i)`, `sciml.runs.iterate` step `n` the
# key `fold_in(key, n)`. The noise of a stochastic equation is a function of a key and of an interval of time, of
# which nothing is stored: a gradient makes it again ([Noise](../guides/noise.md)). The same walk as a solve, which is
# the same on every machine:

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
