# %% [markdown]
# # Pure functions
#
# JAX runs your Python once, with stand-ins in place of numbers, and writes down the arithmetic that it sees. It
# compiles that, and from then on runs what it wrote down. So a function that you give to JAX has to be *pure*: what
# it returns follows from its arguments, and it changes nothing else. A simulator is well served by that: a time step
# takes a state and returns the next one, and can then be compiled, differentiated, run for many members, and repeated
# after a crash.
#
# ## Python runs once
#
# Here is a step of a pendulum that also appends to a list. That is a side effect:

# %%
import jax
import jax.numpy as jnp

import sciml

seen = []


@jax.jit
def step(state, dt):
    """Semi-implicit Euler: first the speed, then the angle."""
    seen.append(state)
    angle, speed = state
    speed = speed - dt * jnp.sin(angle)
    return angle + dt * speed, speed


state = jnp.array(1.0), jnp.array(0.0)
for _ in range(1000):
    state = step(state, 0.01)
print(f"1000 steps, and Python saw {len(seen)}: {seen[0][0]}")

# %% [markdown]
# All thousand steps were taken, but the list has one entry, and what is in it is no number: it is the stand-in with
# which JAX traced the function. A `print` would have printed once. `jax.debug.print` is the print that runs in every
# step.
#
# ## What is read from outside is frozen
#
# A global that the function reads is an argument that JAX cannot see. Its value at the time of tracing is part of the
# program:

# %%
gravity = 1.0


@jax.jit
def force(angle):
    return -gravity * jnp.sin(angle)


before = force(1.0)
gravity = 100.0
assert force(1.0) == before  # still with a gravity of one

# %% [markdown]
# ## What is written outside is lost
#
# A class that keeps its state in `self` is a common way to write a simulation. Under `jit` it stores a stand-in,
# which is of no use once tracing has ended, and JAX says so:


# %%
class Simulation:
    def __init__(self):
        self.angle, self.speed = jnp.array(1.0), jnp.array(0.0)

    def step(self, dt):
        self.speed = self.speed - dt * jnp.sin(self.angle)
        self.angle = self.angle + dt * self.speed


simulation = Simulation()
jax.jit(simulation.step)(0.01)
try:
    print(simulation.angle + 1.0)
except jax.errors.UnexpectedTracerError as error:
    print(type(error).__name__, "-", str(error).splitlines()[0][:100])
else:
    raise AssertionError("a stand-in was used as a number")

# %% [markdown]
# ## The cure: state goes in, state comes out
#
# Everything that changes is an argument and a result. Then a loop of steps is one compiled program, too:


# %%
def after(state, gravity, dt, count):
    def step(_, state):
        angle, speed = state
        speed = speed - dt * gravity * jnp.sin(angle)
        return angle + dt * speed, speed

    return jax.lax.fori_loop(0, count, step, state)


after = sciml.inspect.retraces(jax.jit(after))  # counts how often JAX traces it
start = jnp.array(1.0), jnp.array(0.0)
angle, _ = after(start, 1.0, 0.001, 10_000)
longer, _ = after(start, 4.0, 0.001, 10_000)  # the same program with another gravity
print(f"{after.traces} program, angles {angle:.4f} and {longer:.4f}")

# %% [markdown]
# ## Exercise
#
# The pendulum should count how often it passes the bottom. A counter in a global variable would count once, when JAX
# traces. Where does it belong, and how often does it pass within 100 time units?

# %% Answer
# Into the state, beside angle and speed. A small swing has a period of 2 pi; one of amplitude 1 is slower by a
# fifteenth.


@jax.jit
def passes(state, dt, count):
    def step(_, carry):
        (angle, speed), counted = carry
        speed = speed - dt * jnp.sin(angle)
        moved = angle + dt * speed
        return (moved, speed), counted + (angle * moved < 0)

    return jax.lax.fori_loop(0, count, step, (state, 0))[1]


counted = int(passes(start, 0.001, 100_000))
period = 6.69998  # of a swing of amplitude one, 4 K(sin 1/2)
print(f"{counted} passes, expected {100 / period * 2:.1f}")
assert counted == int(100 / period * 2 + 0.5)

# %% [markdown]
# ## Where sciml uses it
#
# A model is a function `f(t, y, args)`, and a solve a function of the initial state, the model's leaves and `args`:
# what changes from call to call goes there, and never into a global ([Your own model](../guides/models.md)). For
# rules that are no equation, `sciml.runs.iterate` takes a `step(state, key)` and does the rest: frames, checkpoints,
# and the same bits after a crash ([Long runs](../guides/long_runs.md#custom-steps-monte-carlo-and-cellular-automata)). The hand-made loop above
# agrees with `sciml.solve`:

# %%
exact = sciml.solve(
    lambda t, y, g: jnp.stack([y[1], -g * jnp.sin(y[0])]),
    jnp.stack(start),
    t0=0.0,
    t1=10.0,
    args=1.0,
)
error = abs(float(angle - exact.ys[-1, 0]))
assert error < 5e-3
print(
    f"figure of merit: {error:.1e} < 5e-03 (angle after 10 time units, of the loop and of `sciml.solve`)"
)
