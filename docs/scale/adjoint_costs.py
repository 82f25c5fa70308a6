# %% [markdown]
# # What an adjoint costs: memory and passes
#
# A gradient with respect to a million parameters costs only a few times as much as the run: this is the advantage of
# reverse mode. This chapter computes the factor and the memory. [Adjoints](../guides/adjoints.md) describes the
# methods and equations, and [loops, and why a while_loop has no reverse mode](reverse.md) counts states; this chapter
# counts passes, and draws conclusions for the choice of an adjoint.
#
# ## The reverse mode of one operation
#
# - A sum passes its cotangent to both inputs: no work, nothing stored.
# - A product $ab$ stores both factors, and needs two products for its one.
# - A sine stores a cosine, which has to be computed, and needs one product.
# - A matrix product, $Wx$, needs one product for each of the two cotangents. Together with the forward product this
#   is always three times the work:

# %%
import functools

import diffrax
import jax
import jax.numpy as jnp

import sciml
from sciml import inspect
from timing import beside, report

print(f"JAX {jax.__version__} on {inspect.rates().device}")


def layer(w, x):
    return jnp.sum((w @ x) ** 2)


w, x = jnp.ones((256, 256)), jnp.ones((256, 256))
forward = report(jax.jit(layer), w, x)
gradient = report(jax.jit(jax.value_and_grad(layer, argnums=(0, 1))), w, x)
print(f"counted {gradient.cost.flops / forward.cost.flops:.2f} times the operations")
assert abs(gradient.cost.flops / forward.cost.flops - 3) < 0.05
beside("gradient of a layer", 3 * forward.measured, gradient.measured)

# %% [markdown]
# In total, a gradient takes two to four times the operations of its function, for any number of inputs (Baur and
# Strassen, 1983).
#
# ## The reverse mode of a loop
#
# The example is a field of 1024 cells and a thousand Euler steps. There is one sine per cell and step, so the number
# of sines and cosines is the number of field evaluations:

# %%
CELLS, STEPS = 1024, 1000
STATE = 4 * CELLS


def field(t, u, weights):
    spread = jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)
    return 0.2 * spread + jnp.sum(weights) * jnp.sin(u)


def loss(u, weights, adjoint):
    options = dict(t0=0.0, t1=float(STEPS), dt=1.0, solver=diffrax.Euler(), throw=False)
    return jnp.sum(sciml.solve(field, u, args=weights, adjoint=adjoint, **options).ys[-1] ** 2)


def gradient_of(adjoint, weights, by=(0, 1)):
    fn = functools.partial(loss, adjoint=adjoint)
    return report(jax.jit(jax.grad(fn, argnums=by)), u, weights)


def evaluations(found):
    return found.cost.transcendentals / CELLS / STEPS


u, one = jnp.sin(jnp.linspace(0.0, 6.0, CELLS)), jnp.full(1, 0.1)
run = report(jax.jit(functools.partial(loss, adjoint=sciml.adjoints.Direct())), u, one)
assert evaluations(run) == 1.0

# %% [markdown]
# `Checkpointed(levels=L)` runs the steps $L$ times, and the backward pass of a step evaluates the field and its
# derivative: $L + 2$ evaluations, and $L\,n^{1/L}$ states. These are the counted evaluations and the memory planned
# by the compiler:

# %%
off = []
for levels in (1, 2, 3):
    found = gradient_of(sciml.adjoints.Checkpointed(levels=levels), one)
    states = levels * STEPS ** (1 / levels)
    planned = found.compiled.memory.temporaries / STATE
    off.append(abs(evaluations(found) / (levels + 2) - 1))
    print(
        f"levels={levels}: {levels + 2} evaluations predicted, {evaluations(found):.1f} counted; "
        f"{states:.0f} states predicted, {planned:.0f} planned"
    )
    beside(f"levels={levels}", (levels + 2) * run.measured, found.measured)
    if levels == 1:
        reverse = found

# %% [markdown]
# `Reversible` stores no states and undoes each step. Its method evaluates the field twice per step; the backward pass
# does so again, and differentiates both:

# %%
found = gradient_of(sciml.adjoints.Reversible(), one)
planned = found.compiled.memory.temporaries / STATE
print(f"Reversible: {evaluations(found):.1f} evaluations counted, {planned:.0f} states planned")
beside("Reversible", evaluations(found) * run.measured, found.measured)
assert planned < 20

# %% [markdown]
# The choice depends on what is expensive:
#
# - **Evaluations**: use one level.
# - **Memory**: use two or three levels, which cost one third and two thirds more than one level.
# - **A million steps and a large state**: use `Reversible`, if its method is suitable ([accuracy of reversible
#   gradients](../guides/adjoints.md#accuracy-of-reversible-gradients)).
#
# In a memory-bound loop, recomputing is often *faster* than storing, because stored values are written and read.
#
# ## Forward mode
#
# `Forward` carries one column per parameter. The field is evaluated once, its derivative once, and each column needs
# the products of a linear step. No states are stored, for any number of steps:

# %%
columns = {}
for count in (1, 2, 8):
    found = gradient_of(sciml.adjoints.Forward(), jnp.full(count, 0.1 / count), by=1)
    columns[count] = found.cost.flops / run.cost.flops
    planned = found.compiled.memory.temporaries / STATE
    print(
        f"{count} parameters: {columns[count]:.1f} times the operations, {planned:.0f} states planned"
    )
price = columns[2] - columns[1]
print(f"each column {price:.2f} of a run; predicted for 8: {columns[1] + 7 * price:.1f}")
assert abs((columns[1] + 7 * price) / columns[8] - 1) < 0.2

# %% [markdown]
# ## Adjoints of an ensemble
#
# Every member stores its own states, so the memory is proportional to the number of members.
# `Checkpointed(memory=...)` and its default apply to all members together. `inspect.adjoint_memory` asks the compiler
# for the memory of every adjoint and recommends one for a budget ([how much memory a gradient
# needs](../guides/adjoints.md#memory-of-a-gradient)).
#
# ## Exercise 1
#
# From how many parameters on does reverse mode with one level need fewer operations than `Forward`? Use the numbers
# above.

# %% Answer
# At p parameters the first column and p - 1 more cost as much as the reverse-mode gradient.
ratio = reverse.cost.flops / run.cost.flops
crossing = 1 + (ratio - columns[1]) / price
print(
    f"reverse {ratio:.1f} runs, forward {columns[1]:.1f} + {price:.2f} (p - 1): from p = {crossing:.1f} on"
)
assert columns[1] < ratio < columns[8]

# %% [markdown]
# ## Exercise 2
#
# For two fields on $256^2$ cells in float32 and ten thousand steps: how many bytes does the gradient store with one,
# two and three levels? Predict, then ask the compiler.


# %% Answer
# A state has 512 KiB, so 10,000 states are 5.2 GB; two levels store 200 states, three levels 65.
def spread(t, y, args):
    return 0.1 * (jnp.roll(y, 1, -1) - 2 * y + jnp.roll(y, -1, -1)) + y**3


shape = jax.ShapeDtypeStruct((2, 256, 256), jnp.float32)
for levels in (2, 3):

    def energy(y, adjoint=sciml.adjoints.Checkpointed(levels=levels)):
        options = dict(t0=0.0, t1=1e4, dt=1.0, solver=diffrax.Euler(), throw=False)
        return jnp.sum(sciml.solve(spread, y, adjoint=adjoint, **options).ys[-1])

    predicted = levels * 1e4 ** (1 / levels) * 2**19
    planned = inspect.memory(jax.grad(energy), shape).temporaries
    print(f"{levels} levels: predicted {predicted / 1e6:.0f} MB, planned {planned / 1e6:.0f} MB")
    assert abs(planned / predicted - 1) < 0.15

# %% [markdown]
# ## Exercise 3
#
# The backward pass of `Reversible` divides by its coupling, 0.999, in every step. After how many steps does float32,
# with its rounding of 6e-8, have three digits left?

# %% Answer
# Rounding grows by 0.999^-N: 6e-8 becomes 1e-3 where N = ln(1e-3 / 6e-8) / 0.001.
predicted = float(jnp.log(1e-3 / 6e-8) / 0.001)


def swing(t, y, args):
    return jnp.stack([y[1], -y[0]])


def lost(steps):
    options = dict(t0=0.0, t1=0.01 * steps, dt=0.01)
    return float(sciml.solvers.reversal_error(swing, jnp.array([1.0, 0.0]), **options))


near, far = lost(1000), lost(round(predicted))
print(f"{predicted:.0f} steps: lost {far:.1e} there, {near:.1e} after 1000")
assert 1e-4 < far < 1e-1 and near < far / 100

# %%
worst = max(off)
assert worst < 0.05
print(f"figure of merit: {worst:.3f} < 0.05 (evaluations in a gradient, counted beside predicted)")
