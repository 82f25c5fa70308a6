# %% [markdown]
# # Purity, PyTrees and modules
#
# A model is a tree of arrays, and a step is a function from one tree to the next: see [pure
# functions](../learn/pure_functions.md) and [PyTrees](../learn/pytrees.md). This chapter computes the costs: of each
# leaf in each call, of each state in memory, and of each number that is part of the program instead of an argument.
#
# ## The overhead of a call
#
# Python passes arguments to a compiled program, and receives its results, leaf by leaf. A call therefore has an
# overhead that does not depend on the work:
#
# $$t_\text{call} = a + b \cdot \text{leaves}.$$
#
# Two measurements determine $a$ and $b$, which predict a third:

# %%
import equinox as eqx
import jax
import jax.numpy as jnp

from sciml import inspect
from timing import beside, duration, report, seconds

rates = inspect.rates()
print(f"JAX {jax.__version__} on {rates.device}")


def tree(leaves):
    return {f"leaf {i}": jnp.ones(8) for i in range(leaves)}


@jax.jit
def halve(tree):
    return jax.tree.map(lambda x: 0.5 * x, tree)


few, some = seconds(halve, tree(10)), seconds(halve, tree(50))
each = (some - few) / 40
print(f"{duration(few - 10 * each)} a call and {duration(each)} a leaf")
beside("a call with 200 leaves", few + 190 * each, seconds(halve, tree(200)))

# %% [markdown]
# A network with a hundred leaves that Python calls once per step pays for two hundred leaves each time, in and out.
# Within a compiled loop there is no such overhead. A step that takes less time than a call must therefore be inside a
# compiled loop:

# %%
COUNT = 1000
state = tree(4)


@jax.jit
def many(state):
    return jax.lax.fori_loop(0, COUNT, lambda _, state: halve(state), state)


def from_python(state):
    for _ in range(COUNT):
        state = halve(state)
    return state


beside("1000 steps from Python", COUNT * (few - 6 * each), seconds(from_python, state))
print(f"in one program: {duration(seconds(many, state))}")

# %% [markdown]
# Without `jax.jit` each *operation* is a call: a step of thirty operations costs thirty calls.
#
# ## The memory of a state
#
# A pure step cannot overwrite its argument, so the old and the new state exist at the same time. The compiler reports
# the memory:

# %%
SHAPE = jax.ShapeDtypeStruct((3, 512, 512), jnp.float32)
one = 3 * 512 * 512 * 4


def step(u):
    return u + 0.01 * u * (1 - u)


plain = inspect.memory(step, SHAPE)
donated = inspect.memory(jax.jit(step, donate_argnums=0), SHAPE)
print(f"one state: {one}\nplain:     {plain.total} bytes\ndonated:   {donated.total} bytes")
assert plain.total == 2 * one and donated.total == one

# %% [markdown]
# A donated argument gives its memory to a result of the same shape and dtype, and is then invalid: a pure function
# with the cost of an assignment. Inside a loop the compiler does this automatically for the carry. Donation also
# saves time if new memory would have to be allocated:

# %%
large = jnp.full(2**24, 0.5)
fresh = large.nbytes / rates.given(large.nbytes)
move = 2 * large.nbytes / rates.copied(2 * large.nbytes)
beside("a step of 64 MiB", move + fresh, seconds(jax.jit(step), large))

overwrite = jax.jit(step, donate_argnums=0)
cell = [large + 0.0]


def in_place():
    cell[0] = overwrite(cell[0])
    return cell[0]


beside("the same, donated", move, seconds(in_place))

# %% [markdown]
# ## Leaves, static fields and closures
#
# A module has leaves, which are arguments, and static fields, which are part of the compiled program, as are
# closed-over values. Changing a leaf costs nothing; changing the others costs a recompilation.


# %%
class Reaction(eqx.Module):
    rate: jax.Array
    order: int = eqx.field(static=True)

    def __call__(self, u):
        return -self.rate * u**self.order


rate_of = inspect.retraces(lambda model, u: model(u))
u = jnp.ones(8)
for rate, order in ((0.1, 1), (0.2, 1), (0.3, 1), (0.3, 2)):
    rate_of(Reaction(jnp.float32(rate), order), u)
print(rate_of)
assert rate_of.traces == 2

# %% [markdown]
# It also determines where data are stored. A table that is a leaf is in memory once, for any number of programs. A
# table that is closed over is part of every program:

# %%
table = jax.random.normal(jax.random.key(0), (512, 512))
closed = report(jax.jit(lambda x: table @ x), jnp.ones(512))
given = report(jax.jit(lambda table, x: table @ x), table, jnp.ones(512))
print(
    f"constants: {closed.program.constants} bytes closed over, {given.program.constants} as an argument"
)
assert closed.program.constants == table.nbytes and given.program.constants == 0

# %% [markdown]
# ## Lists of models and stacked models
#
# A hundred models in a list need a hundred calls. Stacked, they need one, and the remaining time is work:

# %%
models = [Reaction(jnp.float32(rate), 2) for rate in range(100)]
stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *models)
one_model = jax.jit(lambda model, u: model(u))
all_models = jax.jit(jax.vmap(lambda model, u: model(u), in_axes=(0, None)))
single = seconds(one_model, models[0], u)
beside(
    "a list of 100 models", 100 * single, seconds(lambda: [one_model(model, u) for model in models])
)
beside("a stack of 100 models", single, seconds(all_models, stacked, u))

# %% [markdown]
# ## Exercise 1
#
# Gray and Scott's model has two fields. How much memory does a run on $1024^2$ cells in float32 need, from state to
# state in one compiled loop, with and without donating the argument?


# %% Answer
# A state has 8 MiB. Without donation: the argument and the result, which is the carry of the loop. Donated: one of
# them. A step needs its new state in addition to the old one: one more.
def run(u):
    def step(_, u):
        a, b = u
        reaction = a * b**2
        return jnp.stack([a - 0.01 * reaction, b + 0.01 * reaction])

    return jax.lax.fori_loop(0, 100, step, u)


fields = jax.ShapeDtypeStruct((2, 1024, 1024), jnp.float32)
mib = 2 * 1024**2 * 4 / 2**20
with_copy, without = (
    inspect.memory(jax.jit(run, **how), fields).total / 2**20 for how in ({}, {"donate_argnums": 0})
)
print(f"a state {mib:.0f} MiB, kept {with_copy:.1f} MiB, donated {without:.1f} MiB")
assert abs(with_copy - without - mib) < 0.1 and 2 * mib <= without + 0.1 <= 3.2 * mib

# %% [markdown]
# ## Exercise 2
#
# The work of a step takes 2 us. How many steps must one call contain, so that calls take less than one percent of the
# time?

# %% Answer
# A hundred times the overhead of a call divided by the work of a step.
call = few - 6 * each  # with four leaves
steps = int(100 * call / 2e-6) + 1
print(f"a call of {duration(call)}: {steps} steps")
assert call / (call + steps * 2e-6) < 0.01 <= call / (call + steps * 2e-6 / 1.1)

# %% [markdown]
# ## Exercise 3
#
# In `Reaction(0.1, 1)` the rate is a Python number and not an array. Under `eqx.filter_jit`, which treats everything
# but arrays as static, how many programs do ten rates need?

# %% Answer
# Ten: such a number is part of the program. Use `jnp.asarray` when you create the model, as sciml's models do.
ten = inspect.retraces(lambda model, u: model(u))
for number in range(10):
    ten(Reaction(0.1 * number, 1), u)
arrays = inspect.retraces(lambda model, u: model(u))
for number in range(10):
    arrays(Reaction(jnp.float32(0.1 * number), 1), u)
print(f"{ten.traces} programs for Python numbers, {arrays.traces} for arrays")
assert (ten.traces, arrays.traces) == (10, 1)

# %%
ratio = donated.total / plain.total
assert ratio < 0.51
print(
    f"figure of merit: {ratio:.2f} < 0.51 (memory of a step that may overwrite, over one that may not)"
)
