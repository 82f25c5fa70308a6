# %% [markdown]
# # Batching with vmap
#
# A model is written for one pendulum with one angle and one speed. `jax.vmap` (vectorising map) turns it into a
# program for many pendulums: every array has an additional axis, and there is no loop. Besides shorter code this is
# faster: the loop over members becomes the innermost one, which a processor vectorises (SIMD) and a GPU runs in
# thousands of threads.
#
# ## From one member to many

# %%
import time

import jax
import jax.numpy as jnp
import numpy as np

import sciml


def swing(amplitude, length):
    """The angle after three seconds, of a pendulum released at rest."""

    def step(_, state):
        angle, speed = state
        speed = speed - 0.01 * 9.81 / length * jnp.sin(angle)
        return angle + 0.01 * speed, speed

    return jax.lax.fori_loop(0, 300, step, (amplitude, 0.0 * amplitude))[0]


print("one:", jax.jit(swing)(0.5, 1.0))
amplitudes = jnp.linspace(0.1, 3.0, 10_000)
many = jax.jit(jax.vmap(swing, in_axes=(0, None)))
print("many:", many(amplitudes, 1.0).shape)

# %% [markdown]
# ## in_axes and out_axes
#
# `in_axes` specifies the mapped axis of each argument: `0` maps over the first axis, `None` passes the same value to
# all members, and for a PyTree argument it can be a PyTree. `out_axes` specifies the axis of members in the result.
# Two nested `vmap`s compute all combinations:

# %%
lengths = jnp.linspace(0.5, 2.0, 5)
table = jax.vmap(jax.vmap(swing, (None, 0)), (0, None))(amplitudes[:3], lengths)
assert table.shape == (3, 5)


def energy(state, planet):
    return state["speed"] ** 2 / 2 - planet["g"] * jnp.cos(state["angle"])


states = {"angle": jnp.linspace(0.0, 1.0, 4), "speed": jnp.array(0.3)}  # four angles, one speed
energies = jax.vmap(energy, in_axes=({"angle": 0, "speed": None}, None))(states, {"g": 9.81})
moments = jax.vmap(lambda a: jnp.stack([a, a**2]), out_axes=1)(amplitudes)
print(energies.shape, moments.shape)

# %% [markdown]
# If the mapped axes have different lengths, JAX raises an error during tracing:

# %%
try:
    jax.vmap(swing)(amplitudes, lengths)
except ValueError as error:
    print(str(error).splitlines()[0][:100])
else:
    raise AssertionError("10000 amplitudes with 5 lengths")

# %% [markdown]
# ## Performance
#
# This compares one batched call with separate calls from Python:

# %%
one = jax.jit(swing)


def seconds(run):
    jax.block_until_ready(run())  # the first call compiles
    started = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - started


at_once = seconds(lambda: many(amplitudes, 1.0)) / 10_000
in_turn = seconds(lambda: [one(a, 1.0) for a in np.asarray(amplitudes[:100])]) / 100
print(f"{1e6 * at_once:.2f} us a member at once, {1e6 * in_turn:.0f} us one by one")

# %% [markdown]
# ## Limits of vmap
#
# All members run the same program. Both sides of a branch run for all members, and a `while_loop` runs until the last
# member is done: see [loops and branches](loops.md).
#
# ## Exercise
#
# Write `swing` for an array of amplitudes without `vmap`. Which lines change? Then write it for an array of lengths
# as well, in all combinations.

# %% Answer
# None for the amplitudes: the arithmetic is elementwise. For all combinations the shapes must be aligned by
# hand, which fails as soon as the model has its own axes (a matrix, a grid).
by_hand = swing(amplitudes[:3, None] + 0 * lengths, lengths)
assert jnp.allclose(by_hand, table, atol=1e-4)

# %% [markdown]
# ## Use in sciml
#
# `jax.vmap(sciml.solve)` is the engine for ensembles. Members are stored along the last axis, with one array per
# component and a separate step size per member. A failed member does not affect the others, and with
# `batching="refill"` short members do not wait ([ensembles](../guides/ensembles.md)). This computes the period of a
# pendulum as a function of its amplitude for ten thousand pendulums:


# %%
def pendulum(t, y, args):
    return jnp.stack([y[1], -jnp.sin(y[0])])


def quarter(amplitude):
    """The time to the lowest point."""
    bottom = sciml.Event(lambda t, y, args: y[0], direction=-1)
    start = jnp.stack([amplitude, 0.0 * amplitude])
    return sciml.solve(
        pendulum, start, t0=0.0, t1=20.0, rtol=1e-5, atol=1e-6, events=bottom
    ).t_reached


periods = 4 * jax.jit(jax.vmap(quarter))(amplitudes)


def exact(amplitude):
    """By the arithmetic-geometric mean."""
    a, b = np.ones_like(amplitude), np.cos(amplitude / 2)
    for _ in range(8):
        a, b = (a + b) / 2, np.sqrt(a * b)
    return 2 * np.pi / a


error = float(np.max(np.abs(periods / exact(np.asarray(amplitudes, np.float64)) - 1)))
assert error < 1e-3
print(f"figure of merit: {error:.1e} < 1e-03 (periods of ten thousand pendulums, relative error)")
