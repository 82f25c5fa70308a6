# %% [markdown]
# # Reading a jaxpr
#
# When JAX traces a function, it records a *jaxpr* (JAX expression): a list of equations, each with one primitive
# operation. `grad`, `vmap` and `jit` transform jaxprs. Read the jaxpr first when a program does something unexpected:
# it is short and typed.
#
# ## One step of a pendulum

# %%
import equinox as eqx
import jax
import jax.numpy as jnp

import sciml


def step(angle, speed, dt):
    speed = speed - dt * jnp.sin(angle)
    return angle + dt * speed, speed


closed = jax.make_jaxpr(step)(1.0, 0.0, 0.01)
print(closed)

# %% [markdown]
# The lines mean:
#
# - `lambda ; a:f32[] b:f32[] c:f32[]` lists constants before the semicolon (none here), then the arguments with dtype
#   and shape: `a` is the angle, `b` the speed, `c` the step size.
# - `d:f32[] = sin a` is an equation: a new variable with its type, one primitive, and its inputs. Each variable is
#   assigned once and never changed, because the program is pure.
# - Then follow `mul`, `sub`, `mul`, `add`: the arithmetic in the order of the program, without Python functions or
#   classes.
# - `in (h, f)` at the end lists the results.
#
# A jaxpr is data. For example, you can count the operations of your model before you run it:

# %%
names = [eqn.primitive.name for eqn in closed.jaxpr.eqns]
print(names)
assert names == ["sin", "mul", "sub", "mul", "add"]

# %% [markdown]
# ## Loops in a jaxpr
#
# `lax.scan` is one equation with the program of its body as a parameter. A Python loop is unrolled: a hundred steps
# are five hundred equations, which take long to compile:


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
# ## What to check in a jaxpr
#
# - `convert_element_type` between float32 and float64: a constant has a different precision than the state.
# - `f32[1000,1000]` instead of a vector: an unintended broadcast.
# - `pjit` or `jit`: a separately compiled function with its program inside.
# - `custom_vjp_call`: a custom derivative rule.
# - `while`: it does not support reverse mode; `scan` does: [loops and branches](loops.md).
#
# ## The jaxpr of a derivative

# %%
print(jax.make_jaxpr(jax.grad(lambda angle: step(angle, 0.0, 0.01)[0]))(1.0))

# %% [markdown]
# The cosine is the derivative of `sin`; the following equations propagate backwards through the five equations.
#
# ## Exercise
#
# Write an interpreter: a function that evaluates the equations of a jaxpr one after another. `eqn.primitive.bind`
# evaluates one, and an input is either a variable or a literal with the attribute `.val`.


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
# An interpreter that does something else for each primitive is a transformation: this is how `vmap` works.
#
# ## Use in sciml
#
# `equinox.filter_make_jaxpr` returns the program of any function, including modules and keyword arguments. Under
# `jax.vmap(sciml.solve)` a similar interpreter runs a model written for one member over many *lanes*
# ([glossary](../guides/glossary.md#ensembles)), component by component. `sciml.inspect.fallbacks` lists the
# primitives without a rule:

# %%
pendulum = sciml.models.Pendulum()
program, *_ = eqx.filter_make_jaxpr(pendulum)(0.0, jnp.array([1.0, 0.0]), None)
print(program)
assert sciml.inspect.fallbacks(pendulum, 0.0, jnp.array([1.0, 0.0]), None) == {}

# %%
assert error < 1e-6
print(
    f"figure of merit: {error:.1e} < 1e-06 (five hundred equations, by an interpreter of ten lines and by JAX)"
)
