# %% [markdown]
# # Pure functions
#
# JAX runs your Python function once with placeholders (tracers) instead of numbers, and records the arithmetic. It
# compiles this record and runs it from then on. A function for JAX must therefore be *pure*: its result depends only
# on its arguments, and it changes nothing else. This suits simulations: a time step maps a state to the next state,
# so it can be compiled, differentiated, batched, and repeated after a crash.
#
# ## Python code runs once
#
# This step of a pendulum also appends to a list, which is a side effect:

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
# All thousand steps were taken, but the list has one entry, and the entry is not a number: it is the tracer with
# which JAX traced the function. A `print` would also have printed once. Use `jax.debug.print` to print in every step.
#
# ## Global variables are frozen
#
# JAX does not see a global variable as an argument. Its value at the time of tracing becomes part of the program:

# %%
gravity = 1.0


@jax.jit
def force(angle):
    return -gravity * jnp.sin(angle)


before = force(1.0)
gravity = 100.0
assert force(1.0) == before  # still with a gravity of one

# %% [markdown]
# ## Attributes on self and leaked tracers
#
# Many simulations store their state in `self`. Under `jit` this stores a tracer, which is invalid after tracing, and
# JAX raises `UnexpectedTracerError`:


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
    raise AssertionError("a tracer was used as a number")

# %% [markdown]
# ## State as argument and result
#
# Pass everything that changes as an argument, and return it. Then a loop of steps is also one compiled program.
# `jax.lax.fori_loop(0, count, step, state)` calls `state = step(n, state)` for each `n`:


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
# Count how often the pendulum passes the bottom. A counter in a global variable would count once, when JAX traces.
# Where does the counter belong, and how often does the pendulum pass within 100 time units?

# %% Answer
# In the state, together with angle and speed. A small swing has a period of 2 pi; with amplitude 1 it is longer by a
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
# ## Use in sciml
#
# A model is a function `f(t, y, args)`, and a solve is a function of the initial state, the leaves of the model and
# `args`. Pass values that change between calls this way, never through a global variable ([writing a
# model](../guides/models.md)). For rules that are not equations, `sciml.runs.iterate` takes a `step(state, key)` and
# adds frames, checkpoints and resuming with identical bits ([long
# runs](../guides/long_runs.md#custom-steps-monte-carlo-and-cellular-automata)). The hand-written loop above agrees
# with `sciml.solve`:

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
