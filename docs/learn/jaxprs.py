# %% [markdown]
# # Reading a jaxpr
#
# What JAX writes down when it traces a function is a *jaxpr*: a list of equations, each with one primitive. It is
# what `grad`, `vmap` and `jit` work on, and the first thing to look at when a program does what you did not mean. It
# is short, typed, and easier to read than it looks.
#
# ## One step of a pendulum

# %%
import jax
import jax.numpy as jnp

import sciml


def step(angle, speed, dt):
    speed = speed - dt * jnp.sin(angle)
    return angle + dt * speed, speed


closed = jax.make_jaxpr(step)(1.0, 0.0, 0.01)
print(closed)

# %% [markdown]
# Line by line:
#
# - `lambda ; a:f32[] b:f32[] c:f32[]` has constants before the semicolon (none here), then the arguments, with dtype
#   and shape: `a` is the angle, `b` the speed, `c` the step.
# - `d:f32[] = sin a` is an equation: a new name and its type, one primitive, and what it reads. Names are given once
#   and never changed: that is what purity buys.
# - Then `mul`, `sub`, `mul`, `add`: the arithmetic in the order of the program. No Python is left: no function, no
#   class.
# - `in (h, f)` at the end are the results.
#
# It is data. You can count what your model costs before you run it:

# %%
names = [eqn.primitive.name for eqn in closed.jaxpr.eqns]
print(names)
assert names == ["sin", "mul", "sub", "mul", "add"]

# %% [markdown]
# ## A loop is one equation
#
# `lax.scan` has the program of its body as a parameter. A Python loop has no equation at all: it is unrolled, and a
# hundred steps are five hundred lines, which take long to compile:


# %%
def scanned(angle, speed):
    def body(carry, _):
        return step(*carry, 0.01), None

    return jax.lax.scan(body, (angle, speed), None, length=100)[0]


def unrolled(angle, speed):
    for _ in range(100):
        angle, speed = step(angle, speed, 0.01)
    return angle, speed


short, long = jax.make_jaxpr(scanned)(1.0, 0.0), jax.make_jaxpr(unrolled)(1.0, 0.0)
print(
    f"scan: {len(short.jaxpr.eqns)} equation, {short.jaxpr.eqns[0].primitive.name}; unrolled: {len(long.jaxpr.eqns)}"
)
assert len(short.jaxpr.eqns) == 1 and len(long.jaxpr.eqns) == 500

# %% [markdown]
# ## What to look for
#
# - `convert_element_type` between float32 and float64: a constant has another precision than the state.
# - `f32[1000,1000]` where you meant a vector: a broadcast that should not be.
# - `pjit` or `jit` is a function that was compiled by itself; its program is inside.
# - `custom_vjp_call` has a derivative of its own.
# - `while` has no reverse mode, `scan` has: [Loops and branches](loops.md).
#
# ## The derivative is a jaxpr, too

# %%
print(jax.make_jaxpr(jax.grad(lambda angle: step(angle, 0.0, 0.01)[0]))(1.0))

# %% [markdown]
# The cosine is the derivative of `sin`, and what follows runs backwards through the five equations.
#
# ## Exercise
#
# Write an interpreter: a function that runs the equations of a jaxpr one after another. `eqn.primitive.bind` computes
# one, and an input is either a name or a number that has a `.val`.


# %% Answer
def interpret(closed, *args):
    values = dict(zip(closed.jaxpr.invars, args))
    values.update(zip(closed.jaxpr.constvars, closed.consts))

    def read(atom):
        return atom.val if hasattr(atom, "val") else values[atom]

    for eqn in closed.jaxpr.eqns:
        results = eqn.primitive.bind(*map(read, eqn.invars), **eqn.params)
        values.update(zip(eqn.outvars, results if eqn.primitive.multiple_results else [results]))
    return [read(atom) for atom in closed.jaxpr.outvars]


by_hand = interpret(long, jnp.float32(1.0), jnp.float32(0.0))
by_jax = unrolled(1.0, 0.0)
error = max(abs(float(a - b)) for a, b in zip(by_hand, by_jax))
print("angle and speed:", *(f"{float(x):.6f}" for x in by_hand))

# %% [markdown]
# An interpreter that does something else for each primitive is a transformation: that is how `vmap` is made.
#
# ## Where sciml uses it
#
# `sciml.inspect.jaxpr` prints the program of anything, with modules and keyword arguments. Under
# `jax.vmap(sciml.solve)` an interpreter such as yours runs a model written for one member over many *lanes*,
# component by component, and `sciml.inspect.fallbacks` says which primitives had no rule:

# %%
pendulum = sciml.models.Pendulum()
print(sciml.inspect.jaxpr(pendulum, 0.0, jnp.array([1.0, 0.0]), None))
assert sciml.inspect.fallbacks(pendulum, 0.0, jnp.array([1.0, 0.0]), None) == {}

# %%
assert error < 1e-6
print(
    f"figure of merit: {error:.1e} < 1e-06 (five hundred equations, by an interpreter of ten lines and by JAX)"
)
