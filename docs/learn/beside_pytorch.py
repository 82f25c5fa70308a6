# %% [markdown]
# # A training loop in PyTorch and in JAX
#
# The same network, weights, batches and optimiser in idiomatic PyTorch and in idiomatic JAX. The losses agree up to
# rounding, the times differ, and the compiled program explains why. The PyTorch half needs `pip install torch
# torchdiffeq`, or the extra `lab`; without it this page runs the JAX half only.
#
# ## The problem
#
# The data are the swings of sixty-four pendulums with unknown friction. A network of the speed models the friction
# and is trained through forty steps of Heun's method. Weights and batches come from NumPy, so both halves use the
# same:

# %%
import importlib.metadata
import importlib.util
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sciml

STEPS, H, BATCH, UPDATES = 40, 0.1, 16, 100
rng = np.random.default_rng(0)
weights = {
    "w": rng.normal(size=16).astype(np.float32),
    "b": rng.normal(size=16).astype(np.float32),
    "v": (0.1 * rng.normal(size=16)).astype(np.float32),
}
starts = np.linspace(0.3, 2.5, 64, dtype=np.float32)
batches = rng.permuted(np.tile(np.arange(64), (UPDATES, 1)), axis=1)[:, :BATCH]


def swing(library, friction, start):
    """The angles after all steps, of pendulums released at these angles: the same code for NumPy and PyTorch."""
    angle, speed, angles = start, 0 * start, []
    for _ in range(STEPS):
        push = -library.sin(angle) - friction(speed)
        there, faster = angle + H * speed, speed + H * push
        after = -library.sin(there) - friction(faster)
        angle, speed = angle + H / 2 * (speed + faster), speed + H / 2 * (push + after)
        angles.append(angle)
    return library.stack(angles)


def truth(speed):
    return 0.3 * speed * abs(speed) + 0.1 * speed


data = swing(np, truth, starts)  # steps, pendulums
print(f"{data.shape[1]} pendulums, {data.shape[0]} steps, {UPDATES} batches of {BATCH}")

# %% [markdown]
# ## In JAX
#
# The model is a pure function of weights and speed. So is the step, and `jit` compiles the simulation, its gradient
# and the update into one program. The loop over steps is `lax.scan`, which is compiled once for any length:


# %%
def friction(params, speed):
    return jnp.tanh(speed[..., None] * params["w"] + params["b"]) @ params["v"]


def angles(params, start):
    def heun(y, _):
        angle, speed = y
        push = -jnp.sin(angle) - friction(params, speed)
        there, faster = angle + H * speed, speed + H * push
        after = -jnp.sin(there) - friction(params, faster)
        new = angle + H / 2 * (speed + faster), speed + H / 2 * (push + after)
        return new, new[0]

    return jax.lax.scan(heun, (start, 0 * start), None, length=STEPS)[1]


def loss(params, start, measured):
    return jnp.mean((angles(params, start) - measured) ** 2)


optimiser = optax.adam(0.01)


@jax.jit
def step(params, memory, start, measured):
    value, gradient = jax.value_and_grad(loss)(params, start, measured)
    change, memory = optimiser.update(gradient, memory)
    return optax.apply_updates(params, change), memory, value


def train_in_jax():
    params, losses = jax.tree.map(jnp.asarray, weights), []
    memory = optimiser.init(params)
    for batch in batches:
        params, memory, value = step(params, memory, starts[batch], data[:, batch])
        losses.append(value)
    return params, np.asarray(jnp.stack(losses))


def timed(train, *arguments):
    """The result of a run, and swings per second with gradients, after a run that compiles and warms up."""
    train(*arguments)
    began = time.perf_counter()
    found = train(*arguments)
    return found, BATCH * UPDATES / (time.perf_counter() - began)


(trained, losses), rate = timed(train_in_jax)
print(f"JAX {jax.__version__}: loss {losses[0]:.4f}, then {losses[-1]:.4f}")

# %% [markdown]
# ## In PyTorch
#
# The model is an object that owns its weights; `backward()` stores gradients in them, and the optimiser updates them
# in place. Every operation runs when Python reaches it (eager execution):

# %%
LAB = all(importlib.util.find_spec(name) for name in ("torch", "torchdiffeq"))
if LAB:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # operations are small here: threads would wait for each other

    class Friction(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, value in weights.items():
                setattr(self, name, torch.nn.Parameter(torch.tensor(value)))

        def forward(self, speed):
            return torch.tanh(speed[..., None] * self.w + self.b) @ self.v

    def torch_step(network, adam, start, measured):
        adam.zero_grad()
        value = torch.mean((swing(torch, network, start) - measured) ** 2)
        value.backward()
        adam.step()
        return value.detach()

    def train_in_torch():
        network = Friction()
        adam, values = torch.optim.Adam(network.parameters(), lr=0.01), []
        for batch in batches:
            start, measured = torch.tensor(starts[batch]), torch.tensor(data[:, batch])
            values.append(torch_step(network, adam, start, measured))
        return network, torch.stack(values).numpy()

    (network, theirs), torch_rate = timed(train_in_torch)
    off = np.max(np.abs(theirs / losses - 1))
    print(f"PyTorch {torch.__version__}: loss {theirs[0]:.4f}, then {theirs[-1]:.4f}")
    print(f"the {UPDATES} losses differ by {off:.1e} of themselves at most")
    assert off < 1e-3  # single precision, after a hundred updates
else:
    print("no PyTorch here: `pip install torch torchdiffeq` for this half")

# %% [markdown]
# Both compute the same. This is the number of swings per second, including gradients, that each trains on:

# %%
print(f"JAX     {jax.__version__:12} {rate:9.0f} swings a second")
if LAB:
    print(
        f"PyTorch {torch.__version__:12} {torch_rate:9.0f} swings a second, 1/{rate / torch_rate:.0f}"
    )

# %% [markdown]
# ## The reason: fusion
#
# PyTorch runs operations one after another, and each takes several microseconds even for few numbers. This counts the
# operations in a step:

# %%
if LAB:
    network = Friction()
    adam = torch.optim.Adam(network.parameters(), lr=0.01)
    first = torch.tensor(starts[batches[0]]), torch.tensor(data[:, batches[0]])
    torch_step(network, adam, *first)
    with torch.autograd.profiler.profile() as profile:
        torch_step(network, adam, *first)
    print(f"PyTorch: {sum(e.count for e in profile.key_averages())} calls of operations in a step")

# %% [markdown]
# XLA compiles the whole step, and merges elementwise operations into one kernel (a *fusion*). This is the fusion with
# Adam's square root. It computes the new weights, a dozen operations after the gradient, in one pass over memory:

# %%
params = jax.tree.map(jnp.asarray, weights)
text = sciml.inspect.hlo(
    step, params, optimiser.init(params), starts[batches[0]], data[:, batches[0]]
)


def fused(text):
    """The operations of each fused computation of a program, by its name."""
    found = {}
    for block in text.split("\n\n"):
        head, *lines = block.strip().splitlines() or [""]
        if "fused_computation" in head and lines and not head.startswith("HloModule"):
            names = [line.split(" = ", 1)[1].split("(")[0].split()[-1] for line in lines[:-1]]
            found[head.split()[0]] = [n for n in names if n not in ("parameter", "constant")]
    return found


fusions = fused(text)
roots = {name: ops for name, ops in fusions.items() if "sqrt" in ops or "rsqrt" in ops}
name, operations = max(roots.items(), key=lambda item: len(item[1]))
print(f"XLA: {len(fusions)} fusions in the step; {name} has {len(operations)} operations:")
print(", ".join(dict.fromkeys(operations)))
assert len(operations) > 4 and {"multiply", "add", "divide"} <= set(operations)

# %% [markdown]
# [XLA, HLO and fusion](fusion.md) reads such a program line by line. `torch.compile` also fuses, but unrolls the loop
# first, and therefore takes long to compile.
#
# ## Large matrix products
#
# The difference above is overhead. If a few products of large matrices dominate, both call libraries that use the
# full speed of the processor. A network with two hidden layers of 512, and batches of 1024:

# %%
wide = [rng.normal(size=(m, n)).astype(np.float32) / m**0.5 for m, n in ((64, 512), (512, 512))]
wide.append(rng.normal(size=(512, 1)).astype(np.float32) / 512**0.5)
xs = rng.normal(size=(1024, 64)).astype(np.float32)


@jax.jit
def wide_gradient(layers, x):
    def square(layers):
        hidden = jnp.tanh(jnp.tanh(x @ layers[0]) @ layers[1])
        return jnp.mean((hidden @ layers[2]) ** 2)

    return jax.value_and_grad(square)(layers)


def per_second(call):
    """Calls per second, the best of seven."""
    call()
    times = []
    for _ in range(7):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1 / min(times)


value, slopes = wide_gradient(wide, xs)
wide_rate = 1024 * per_second(lambda: jax.block_until_ready(wide_gradient(wide, xs)))
print(f"JAX     {wide_rate:9.0f} examples a second")
if LAB:
    torch.set_num_threads(threads)
    layers, x = [torch.tensor(w, requires_grad=True) for w in wide], torch.tensor(xs)

    def torch_gradient():
        hidden = torch.tanh(torch.tanh(x @ layers[0]) @ layers[1])
        value = torch.mean((hidden @ layers[2]) ** 2)
        return value, torch.autograd.grad(value, layers)

    torch_value, torch_slopes = torch_gradient()
    assert abs(float(torch_value.detach()) / float(value) - 1) < 1e-4
    assert np.allclose(torch_slopes[1].numpy(), slopes[1], rtol=1e-2, atol=1e-5)
    torch_wide = 1024 * per_second(torch_gradient)
    print(
        f"PyTorch {torch_wide:9.0f} examples a second, {torch_wide / wide_rate:.1f} times as many"
    )

# %% [markdown]
# ## Adaptive solvers: sciml and torchdiffeq
#
# The steps above were hand-written. Here `sciml.solve` and torchdiffeq's `odeint` solve a neural ODE with the
# Dormand-Prince method to a tolerance, and differentiate it. Network, tolerances and batch are the same:

# %%
import diffrax  # noqa: E402

field_weights = {
    "a": rng.normal(size=(2, 32)).astype(np.float32),
    "c": rng.normal(size=(32, 2)).astype(np.float32) / 8,
}
spread = rng.normal(size=(32, 2)).astype(np.float32)
times, tolerance = np.linspace(0, 5, 21, dtype=np.float32), 1e-4


def field(t, y, params):
    return jnp.tanh(y @ params["a"]) @ params["c"] - 0.1 * y


def end_square(params, starts):
    def one(y0):
        options = dict(saveat=times, solver=diffrax.Dopri5(), rtol=tolerance, atol=tolerance)
        return sciml.solve(field, y0, t0=0.0, t1=5.0, args=params, **options).ys

    return jnp.mean(jax.vmap(one)(starts) ** 2)


solved = jax.jit(jax.value_and_grad(end_square))
ours, our_slopes = solved(field_weights, spread)
solve_rate = len(spread) * per_second(lambda: jax.block_until_ready(solved(field_weights, spread)))
print(f"sciml {sciml.__version__:8}      {solve_rate:9.0f} solves a second, with their gradients")
if LAB:
    from torchdiffeq import odeint

    torch.set_num_threads(1)
    a, c = (torch.tensor(field_weights[k], requires_grad=True) for k in "ac")
    y0, ts = torch.tensor(spread), torch.tensor(times)

    def torch_solved():
        def slope(t, y):
            return torch.tanh(y @ a) @ c - 0.1 * y

        ys = odeint(slope, y0, ts, method="dopri5", rtol=tolerance, atol=tolerance)
        value = torch.mean(ys**2)
        return value, torch.autograd.grad(value, (a, c))

    value, torch_slopes = torch_solved()
    assert abs(float(value.detach()) / float(ours) - 1) < 1e-3
    for slope, key in zip(torch_slopes, "ac"):
        scale = np.abs(our_slopes[key]).max()
        assert np.abs(slope.numpy() - our_slopes[key]).max() < 1e-2 * scale
    torch_rate = len(spread) * per_second(torch_solved)
    version = importlib.metadata.version("torchdiffeq")
    print(
        f"torchdiffeq {version:8}{torch_rate:9.0f} solves a second, 1/{solve_rate / torch_rate:.0f}"
    )

# %% [markdown]
# ## Exercise
#
# The loss is a mean. What is the largest error of the angle for each pendulum? Write it for one and use `vmap`. (In
# PyTorch you would write it for all, with an explicit axis of pendulums.)


# %% Answer
def worst(params, start, measured):
    """The largest error of the angle along one swing."""
    return jnp.max(jnp.abs(angles(params, start) - measured))


off_by = jax.jit(jax.vmap(worst, in_axes=(None, 0, 1)))
errors = off_by(trained, starts, data)
print(f"the best pendulum is off by {errors.min():.3f}, the worst by {errors.max():.3f}")
assert errors.shape == (64,)
assert jnp.allclose(errors[0], worst(trained, starts[0], data[:, 0]), rtol=1e-3)

# %% [markdown]
# ## Use in sciml
#
# `sciml.training.train` provides this loop, compiled as one step, with batches, validation and checkpoints
# ([training](../guides/training.md)). A solve in it is a loop that XLA compiles together with the rest. For
# torchdiffeq users, [migrating from other libraries](../guides/moving.md) lists the equivalents.

# %%
middle = float(jnp.median(errors))
assert middle < 0.1
print(
    f"figure of merit: {middle:.3f} < 0.1 (error of the angle of half of the pendulums, in radians)"
)
