# %% [markdown]
# # A training loop with optax
#
# JAX has no built-in training: there is no `backward()` and no `.step()`. You write a training step as a function
# that maps parameters and optimiser state to new ones, and compile it as a whole: the simulation, its gradient and
# the update are one program. This lesson writes such a loop, measures it, and examines the compiled update.
#
# ## Example: a pendulum with unknown friction
#
# The data are sixteen measured swings. A neural network represents the friction as a function of speed; the rest is
# known:

# %%
import time

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

import sciml

H = 0.1


def swing(friction, start):
    """Angle and speed after each of forty steps of Heun's method, of a pendulum released at an angle."""

    def slope(y):
        return jnp.stack([y[1], -jnp.sin(y[0]) - friction(y[1])])

    def heun(y, _):
        here = slope(y)
        new = y + H / 2 * (here + slope(y + H * here))
        return new, new

    return jax.lax.scan(heun, jnp.stack([start, 0.0 * start]), None, length=40)[1]


class Network(eqx.Module):
    layers: eqx.nn.MLP

    def __call__(self, speed):
        return self.layers(speed[None])[0]


def truth(speed):
    return 0.3 * speed * jnp.abs(speed) + 0.1 * speed


swings = jax.vmap(swing, in_axes=(None, 0))
starts = jnp.linspace(0.3, 2.5, 16)
data = jax.jit(lambda starts: swings(truth, starts))(starts)
network = Network(eqx.nn.MLP(1, 1, 16, 1, activation=jnp.tanh, key=jax.random.key(0)))
params, rest = eqx.partition(network, eqx.is_inexact_array)  # arrays, and all other leaves

# %% [markdown]
# ## The training step
#
# `optax.adam` is a pair of functions: `init` creates the optimiser state, and `update` maps a gradient to a change of
# the parameters. The state is an argument and a result, like any [state](pure_functions.md):

# %%
optimiser = optax.adam(0.01)


def loss(params):
    return jnp.mean((swings(eqx.combine(params, rest), starts) - data) ** 2)


def step(params, memory):
    value, gradient = jax.value_and_grad(loss)(params)
    change, memory = optimiser.update(gradient, memory)
    return optax.apply_updates(params, change), memory, value


# `donate_argnums`: the memory of the old parameters may be reused
jitted = jax.jit(step, donate_argnums=(0, 1))
start = jax.tree.map(jnp.copy, params), optimiser.init(params)
first = loss(params)

# %% [markdown]
# ## Python loop or scan
#
# A Python loop allows printing, saving and stopping between steps; `lax.scan` is one program for all steps:


# %%
def python_loop(params, memory, turns):
    for _ in range(turns):
        params, memory, value = jitted(params, memory)
    return params, value


@jax.jit
def scan_loop(params, memory):
    def turn(carry, _):
        *carry, value = step(*carry)
        return tuple(carry), value

    (params, _), values = jax.lax.scan(turn, (params, memory), None, length=200)
    return params, values


def copies():
    return jax.tree.map(jnp.copy, start)


jax.block_until_ready(python_loop(*copies(), 1))  # compiles
scan_loop(*copies())
for name, run in (
    ("Python", lambda: python_loop(*copies(), 200)),
    ("scan", lambda: scan_loop(*copies())),
):
    began = time.perf_counter()
    fitted, values = jax.block_until_ready(run())
    print(
        f"{name:6} {200 * 16 / (time.perf_counter() - began):8.0f} swings a second, with their gradients"
    )
print(f"loss {first:.1e} before, {values[-1]:.1e} after 200 steps")

# %% [markdown]
# If the simulation takes longer than Python needs between two steps, both are equally fast. If a step takes
# microseconds, the scan is faster.
#
# ## Metrics per example
#
# The loss is one number. The error of each swing, including swings that were not measured, is a `vmap` of a function
# for one swing:


# %%
def worst(start):
    """The largest error of the angle along a swing."""
    return jnp.max(jnp.abs(swing(eqx.combine(fitted, rest), start) - swing(truth, start))[:, 0])


new = jnp.linspace(0.4, 2.4, 50)
errors = jax.jit(jax.vmap(worst))(new)
print(
    f"fifty new swings: largest error {errors.max():.3f}, at a start of {new[errors.argmax()]:.1f}"
)

# %% [markdown]
# ## The compiled update
#
# Adam needs a dozen operations per parameter array. XLA fuses them:

# %%
gradient = jax.tree.map(jnp.ones_like, params)


def update(gradient, memory, params):
    change, memory = optimiser.update(gradient, memory)
    return optax.apply_updates(params, change), memory


traced = jax.make_jaxpr(update)(gradient, start[1], params)
entry = sciml.inspect.hlo(update, gradient, start[1], params).split("ENTRY")[1]
fusions = entry.count(" fusion(")
print(
    f"{len(traced.jaxpr.eqns)} equations for {len(jax.tree.leaves(params))} arrays, {fusions} fusions"
)
assert 0 < fusions < len(traced.jaxpr.eqns) / 4

# %% [markdown]
# ## Exercise
#
# Train on minibatches: each step uses four of the sixteen swings, drawn with a key that is derived from the step
# number ([random keys](keys.md)).


# %% Answer
def loss_of(params, chosen):
    return jnp.mean((swings(eqx.combine(params, rest), starts[chosen]) - data[chosen]) ** 2)


@jax.jit
def train(params, memory):
    def turn(carry, n):
        params, memory = carry
        chosen = jax.random.choice(
            jax.random.fold_in(jax.random.key(1), n), 16, (4,), replace=False
        )
        gradient = jax.grad(loss_of)(params, chosen)
        change, memory = optimiser.update(gradient, memory)
        return (optax.apply_updates(params, change), memory), None

    return jax.lax.scan(turn, (params, memory), jnp.arange(400))[0][0]


by_batches = loss(train(*copies()))
print(f"loss {by_batches:.1e} after 400 steps with four swings each")
assert by_batches < first / 20

# %% [markdown]
# ## Use in sciml
#
# A solve replaces the hand-written steps, and the loop does not change. `sciml.training.train` provides this loop
# with batches, validation and checkpoints ([training](../guides/training.md)), and `sciml.fit` is for least squares
# ([parameter estimation](../guides/fitting.md)). Values that members share, here the network, remain one array under
# `vmap`, forwards and backwards ([ensembles](../guides/ensembles.md#shared-weights-and-tables)). [A training loop in
# PyTorch and in JAX](beside_pytorch.md) compares with PyTorch. With `sciml.solve`:


# %%
def solved(friction, start):
    def field(t, y, friction):
        return jnp.stack([y[1], -jnp.sin(y[0]) - friction(y[1])])

    y0 = jnp.stack([start, 0.0 * start])
    return sciml.solve(field, y0, t0=0.0, t1=4.0, dt=H, solver=diffrax.Heun(), args=friction).ys[-1]


trained = eqx.combine(fitted, rest)
assert jnp.allclose(solved(trained, starts[0]), swing(trained, starts[0])[-1], atol=1e-4)

# %%
error = float(errors.max())
assert error < 0.1
print(
    f"figure of merit: {error:.3f} < 0.1 (largest error of the angle in fifty new swings, in radians)"
)
