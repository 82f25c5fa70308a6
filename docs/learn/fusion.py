# %% [markdown]
# # XLA, HLO and fusion
#
# A step on a grid is a dozen array operations. Run one by one, each reads its arrays from memory and writes one back,
# and memory bandwidth limits a simulation. XLA, the compiler behind `jax.jit`, merges such operations into one loop
# that reads every number once: a *fusion*. This lesson finds one and measures the saving.
#
# ## Stages of compilation
#
# Python is traced to a [jaxpr](jaxprs.md). The jaxpr is lowered to StableHLO, a machine-independent program, which is
# compiled to *optimised HLO*: after fusion, layout, and partitioning over devices. You can read every stage:

# %%
import re

import jax
import jax.numpy as jnp

import sciml


def step(u, k):
    """Heat and a reaction, on the inner cells."""
    spread = u[2:] - 2.0 * u[1:-1] + u[:-2]
    return u[1:-1] + k * spread + 0.01 * jnp.sin(u[1:-1])


u = jnp.linspace(0.0, 1.0, 1_000_002)
traced = jax.jit(step).trace(u, 0.2)
lowered = traced.lower()
compiled = lowered.compile()
print(len(traced.jaxpr.eqns), "equations in the jaxpr")
print(lowered.as_text().count("stablehlo."), "operations in StableHLO")

# %% [markdown]
# ## Find the fusion
#
# In the compiled program the entry computation contains one line that does work: a `fusion`, which calls a
# computation with all the arithmetic. (Names differ between versions of XLA.)

# %%
text = re.sub(r", metadata=\{[^}]*\}", "", compiled.as_text())
entry = text[text.index("ENTRY") :]
fusions = re.findall(r"= (\w+\[[\d,]*\])\S* fusion\(.*calls=%([\w.-]+)", entry)
for shape, name in fusions:
    body = text[text.index(f"%{name} (") :].split("\n}")[0]
    operations = re.findall(r" = \S+ ([a-z-]+)\(", body)
    print(f"{name} makes {shape} of", sorted(set(operations) - {"parameter"}))
inside = len(operations)
assert len(fusions) == 1 and "sine" in operations

# %% [markdown]
# ## Memory traffic with and without fusion
#
# The compiler counts the bytes that a program accesses. Without `jit`, the eight operations of the step run one by
# one, and each reads its inputs and writes its output:

# %%
one = sciml.inspect.cost(step, u, jnp.float32(0.2)).bytes_accessed
alone = 0.0
inner = u[1:-1]
for operation, operands in [
    (lambda a: 2.0 * a, (inner,)),
    (jnp.subtract, (inner, inner)),
    (jnp.add, (inner, inner)),
    (lambda a: 0.2 * a, (inner,)),
    (jnp.add, (inner, inner)),
    (jnp.sin, (inner,)),
    (lambda a: 0.01 * a, (inner,)),
    (jnp.add, (inner, inner)),
]:
    alone += sciml.inspect.cost(operation, *operands).bytes_accessed
ratio = alone / one
print(f"fused {one / 1e6:.0f} MB, one by one {alone / 1e6:.0f} MB: {ratio:.1f} times as much")

# %% [markdown]
# ## What prevents fusion
#
# - A reduction, such as an error norm: its result is needed before anything else can continue.
# - A matrix product or an FFT, which calls a library.
# - A loop, and the values that it passes between iterations.
# - A value with several uses that is expensive to compute twice.
#
# ## Exercise
#
# Divide the step by the largest value of the field. How many passes over the field does the compiled program take
# now?


# %% Answer
# Two: one for the reduction, one for the rest. On a CPU they can be several computations; count the bytes.
def normalised(u, k):
    new = step(u, k)
    return new / jnp.max(jnp.abs(new))


twice = sciml.inspect.cost(normalised, u, jnp.float32(0.2)).bytes_accessed
print(f"{twice / one:.1f} times the bytes")
assert twice > 1.3 * one

# %% [markdown]
# ## Use in sciml
#
# On a CPU, the loop of an ensemble takes one pass over memory for all results of a step; a test asserts this in the
# HLO. `sciml.inspect.hlo`, `loops`, `cost` and `memory` read the program of any function. These are the loops of a
# thousand Lorenz systems:

# %%
lorenz = sciml.models.Lorenz63()


def ensemble(starts):
    return jax.vmap(lambda y0: sciml.solve(lorenz, y0, t0=0.0, t1=1.0, dt=0.01).ys[-1])(starts)


for loop in sciml.inspect.loops(ensemble, jax.ShapeDtypeStruct((1000, 3), jnp.float32)):
    print(loop.trips, "turns:", loop.operations)

# %%
assert ratio > 4 and inside > 8
print(f"figure of merit: {ratio:.1f} > 4 (times less memory traffic by fusion)")
