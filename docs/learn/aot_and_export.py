# %% [markdown]
# # Ahead-of-time compilation and export
#
# `jax.jit` compiles at the first call. If you know the shapes in advance, you can compile ahead of time (AOT): on the
# login node of a cluster, at the start of a service, or to read the cost of a program without the memory to run it.
# `jax.export` writes a compiled function to a file, which another program can run without your code.
#
# ## Trace, lower, compile

# %%
import time

import jax
import jax.numpy as jnp

import sciml


def orbit(y0):
    """A thousand leapfrog steps of a planet."""

    def step(y, _):
        x, v = y[:2], y[2:]
        x = x + 0.005 * v
        v = v - 0.01 * x / jnp.sum(x**2) ** 1.5
        return jnp.concatenate([x + 0.005 * v, v]), None

    return jax.lax.scan(step, y0, None, length=1000)[0]


shape = jax.ShapeDtypeStruct((512, 4), jnp.float32)  # no numbers yet
traced = jax.jit(jax.vmap(orbit)).trace(shape)
lowered = traced.lower()
started = time.perf_counter()
compiled = lowered.compile()
print(f"compiled in {time.perf_counter() - started:.2f} s for {compiled.in_avals[0][0]}")

# %% [markdown]
# A compiled function accepts only these shapes. It never recompiles silently, which a service needs:

# %%
starts = jnp.tile(jnp.array([1.0, 0.0, 0.0, 1.0]), (512, 1))
ends = compiled(starts)
try:
    compiled(starts[:10])
except TypeError as error:
    print(str(error).splitlines()[0][:90])
else:
    raise AssertionError("ten members in a program for 512")

# %% [markdown]
# ## Cost and memory analysis

# %%
cost, memory = (
    sciml.inspect.cost(jax.vmap(orbit), shape),
    sciml.inspect.memory(jax.vmap(orbit), shape),
)
print(f"{cost.flops:.0f} operations (of the body of a loop: once), {memory.total / 1024:.0f} KiB")
big = jax.ShapeDtypeStruct((100_000_000, 4), jnp.float32)
print(
    f"a hundred million planets would need {sciml.inspect.memory(jax.vmap(orbit), big).total / 2**30:.1f} GiB"
)

# %% [markdown]
# These are `compiled.cost_analysis()` and `compiled.memory_analysis()` with named fields. The compiler counts the
# body of a loop once, for any number of iterations.
#
# ## Persistent compilation cache
#
# JAX's cache on disk lets the next process start immediately: `jax.config.update("jax_compilation_cache_dir",
# folder)`. It works for the same JAX version on the same type of machine, and needs no other change.
#
# ## Export a program to a file
#
# `jax.export` writes StableHLO, which is compiled where it is loaded: by a later version of JAX, on another machine,
# and for the platforms that you name. A size can stay symbolic:

# %%
(n,) = jax.export.symbolic_shape("n")
any_number = jax.ShapeDtypeStruct((n, 4), jnp.float32)
exported = jax.export.export(jax.jit(jax.vmap(orbit)), platforms=["cpu", "cuda", "tpu"])(any_number)
file = exported.serialize()
print(f"{len(file) / 1024:.1f} KiB, for {exported.platforms}, arguments {exported.in_avals}")

loaded = jax.export.deserialize(bytearray(file))
assert jnp.allclose(loaded.call(starts[:7]), ends[:7], atol=1e-4)

# %% [markdown]
# Gradients can be stored as well: `serialize(vjp_order=1)`.
#
# ## Exercise
#
# Export the gradient of the planet's distance after the thousand steps, and call the loaded function. Is the result
# the same?


# %% Answer
def distance(y0):
    return jnp.sqrt(jnp.sum(orbit(y0)[:2] ** 2))


one = jax.ShapeDtypeStruct((4,), jnp.float32)
stored = jax.export.export(jax.jit(distance))(one).serialize(vjp_order=1)
reloaded = jax.export.deserialize(bytearray(stored))
by_file = jax.grad(reloaded.call)(starts[0])
assert jnp.allclose(by_file, jax.grad(distance)(starts[0]), rtol=1e-4, atol=1e-4)

# %% [markdown]
# ## Use in sciml
#
# The program that `sciml.solve` compiles contains no host callbacks, so you can also export an ensemble with error
# control:


# %%
def ensemble(starts):
    kepler = sciml.models.Kepler()

    def end(y0):
        return sciml.solve(kepler, y0, t0=0.0, t1=10.0, rtol=1e-5, atol=1e-6, throw=False).ys[-1]

    return jax.vmap(end)(starts)


jitted = jax.jit(ensemble)
solved = jax.export.deserialize(jax.export.export(jitted)(shape).serialize())
speeds = jnp.linspace(0.8, 1.2, 512)
starts = starts.at[:, 3].set(speeds)
error = float(jnp.max(jnp.abs(solved.call(starts) - jitted(starts))))
assert error < 1e-5
print(
    f"figure of merit: {error:.1e} < 1e-05 (an ensemble from a file, and the one that was written)"
)
