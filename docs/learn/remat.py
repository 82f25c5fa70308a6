# %% [markdown]
# # Rematerialisation: the memory of a gradient
#
# Reverse mode runs the steps backwards, so it needs the intermediate values of each step. By default JAX stores all
# of them: for ten thousand steps of a field this exceeds the memory of a GPU. `jax.checkpoint` (also called
# `jax.remat`, rematerialisation) stores only the inputs of a function and recomputes the rest when the gradient needs
# it. It trades time for memory, and does not change any number.
#
# ## Example: a flame front
#
# The example is a step of Fisher's equation with several intermediate fields:

# %%
import functools

import jax
import jax.numpy as jnp

import sciml

STEPS, CELLS = 1024, 256


def step(u, _):
    wide = jnp.pad(u, 1, mode="edge")
    flux = jnp.tanh(wide[1:] - wide[:-1])
    return u + 0.2 * (flux[1:] - flux[:-1]) + 0.02 * u * (1 - u), None


def front(u, scan):
    return jnp.sum(scan(step, u, None, STEPS)[0])


def kib(scan):
    """Temporary memory of the gradient according to the compiler, without arguments and results."""
    gradient = jax.jit(jax.grad(functools.partial(front, scan=scan)))
    u = jax.ShapeDtypeStruct((CELLS,), jnp.float32)
    return gradient.lower(u).compile().memory_analysis().temp_size_in_bytes / 1024


def plain(step, u, xs, length):
    return jax.lax.scan(step, u, xs, length=length)


print(
    f"one field has {4 * CELLS / 1024:.0f} KiB, those of all steps {4 * CELLS * STEPS / 1024:.0f} KiB"
)
print(f"plain scan: {kib(plain):6.0f} KiB")

# %% [markdown]
# ## Checkpoint every step
#
# With `jax.checkpoint` around the step, only its input is stored; fluxes and products are recomputed:


# %%
def each_step(step, u, xs, length):
    return jax.lax.scan(jax.checkpoint(step), u, xs, length=length)


print(f"checkpoint of each step: {kib(each_step):6.0f} KiB")

# %% [markdown]
# ## Two levels of checkpoints
#
# Nest two loops and checkpoint the inner one: the outer level stores 32 fields, and 32 more are stored while one
# inner loop runs backwards. The memory is proportional to $\sqrt{n}$ instead of $n$, at the cost of one more run of
# the steps:


# %%
def nested(step, u, xs, length):
    def inner(u, _):
        return jax.lax.scan(jax.checkpoint(step), u, None, length=32)

    return jax.lax.scan(jax.checkpoint(inner), u, None, length=length // 32)


print(f"two levels: {kib(nested):6.0f} KiB")
u0 = jnp.exp(-jnp.linspace(0.0, 20.0, CELLS))
gradients = [
    jax.jit(jax.grad(functools.partial(front, scan=scan)))(u0)
    for scan in (plain, each_step, nested)
]
assert all(jnp.allclose(gradients[0], g, rtol=1e-4, atol=1e-5) for g in gradients)

# %% [markdown]
# ## Checkpoint policies
#
# `jax.checkpoint(fn, policy=...)` stores expensive values and recomputes cheap ones. For neural networks,
# `jax.checkpoint_policies.dots_saveable` stores matrix products; values named with `checkpoint_name` can be selected
# by name. `jax.ad_checkpoint.print_saved_residuals` lists the values that a gradient would store:

# %%
jax.ad_checkpoint.print_saved_residuals(lambda u: jnp.sum(jnp.sin(jnp.tanh(u)) ** 2), u0)

# %% [markdown]
# ## Exercise
#
# How much memory do three levels need, with 16 x 8 x 8 steps? Predict it from the number of stored fields, then
# measure.


# %% Answer
# 16 + 8 + 8 fields of one KiB, and the values of one step.
def three(step, u, xs, length):
    def level(body, count):
        return lambda u, _: jax.lax.scan(jax.checkpoint(body), u, None, length=count)

    return jax.lax.scan(jax.checkpoint(level(level(step, 8), 8)), u, None, length=length // 64)


print(f"predicted 32 KiB and a little more, measured {kib(three):.0f}")
assert 32 <= kib(three) < 60

# %% [markdown]
# ## Use in sciml
#
# `sciml.checkpointed_scan` creates these levels for any length and a given memory.
# `adjoint=sciml.adjoints.Checkpointed(memory=...)` does it for a solve, and `sciml.inspect.adjoint_memory` predicts
# the memory of each adjoint ([adjoints](../guides/adjoints.md#memory-of-a-gradient)). The tutorial [the
# memory of a gradient](../tutorials/gradient_memory.md) measures five of them.


# %%
def by_sciml(step, u, xs, length):
    fields = 64 * 4 * CELLS  # bytes of 64 fields
    return sciml.checkpointed_scan(step, u, xs, length=length, memory=fields)


print(f"checkpointed_scan: {kib(by_sciml):.0f} KiB")
ratio = kib(plain) / kib(nested)
assert ratio > 20
print(f"figure of merit: {ratio:.0f} > 20 (times less memory with two levels)")
