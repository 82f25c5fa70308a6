# %% [markdown]
# # Swing up a pendulum on a cart: trajectory optimisation and MPC
#
# A pendulum hangs from a cart on a short track. A motor pushes the cart, so that the pendulum swings up and stays
# upright. You will learn to
#
# - plan the motion with the least effort ([optimal control](../guides/control.md));
# - differentiate the least effort with respect to the design;
# - control a plant that differs from the model, by model predictive control (MPC);
# - solve a thousand such problems at once.
#
# ![The planned motion of cart and pendulum; angle and force under model predictive control](figures/swing_up.png)
#
# Lengths are in m, masses in kg, forces in N, and the angle is $\pi$ if the pendulum is upright.

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/swing_up"))
OUT.mkdir(parents=True, exist_ok=True)
MEMBERS = int(os.environ.get("MEMBERS", "1000"))

# %%
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from sciml import control

jax.config.update("jax_enable_x64", True)

BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
GRAVITY, TRACK, STRONGEST = 9.81, 1.0, 20.0

# %% [markdown]
# The state is the position, the angle and both velocities; `args` has the masses of cart and pendulum and the length.


# %%
def cart_and_pendulum(t, y, force, args):
    _, angle, speed, turn = y
    cart, bob, length = args["cart"], args["bob"], args["length"]
    s, c = jnp.sin(angle), jnp.cos(angle)
    inertia = cart + bob * s**2
    push = force + bob * s * (length * turn**2 + GRAVITY * c)
    return jnp.stack(
        [speed, turn, push / inertia, -(push * c + inertia * GRAVITY * s) / (length * inertia)]
    )


args = {"cart": jnp.array(1.0), "bob": jnp.array(0.3), "length": jnp.array(0.5)}
hanging, upright = jnp.zeros(4), jnp.array([0.0, jnp.pi, 0.0, 0.0])
bounds = dict(
    u_bounds=(-STRONGEST, STRONGEST),
    y_bounds=(
        jnp.array([-TRACK, -jnp.inf, -jnp.inf, -jnp.inf]),
        jnp.array([TRACK, jnp.inf, jnp.inf, jnp.inf]),
    ),
)

# %% [markdown]
# ## Plan the motion
#
# The effort is the integral of the squared force. The end conditions require the cart to stop below the upright pendulum
# after two seconds. A straight line is a sufficient guess.

# %%
swing = control.ControlProblem(
    cart_and_pendulum,
    running=lambda t, y, force, args: 1e-2 * force**2,
    end=lambda t1, y1, args: y1 - upright,
    **bounds,
)


def straight(t):
    return upright * t / 2, jnp.zeros(())


def planned(args, **options):
    return control.optimise(
        swing, hanging, 0.0, t1=2.0, args=args, guess=straight, segments=25, **options
    )


plan = planned(args)
print(
    f"effort {plan.cost:.4f} after {plan.n_steps} iterations; largest force {jnp.abs(plan.us).max():.1f} N"
)
print(f"the cart moves from {plan.ys[:, 0].min():.2f} m to {plan.ys[:, 0].max():.2f} m")

# %% [markdown]
# The least effort has derivatives with respect to the design:

# %%
slopes = jax.jit(jax.grad(lambda args: planned(args, throw=False).cost))(args)
print("relative change of the effort for 1 % more of each:")
for name, slope in slopes.items():
    print(f"  {name}: {100 * 0.01 * args[name] * slope / plan.cost:+.2f} %")

# %% [markdown]
# ## Model predictive control
#
# A plan fails if the plant differs from the model. A controller plans again every 75 ms, from the measured state, and
# applies the first force of the plan. Here the real pendulum is 30 % heavier than the model.
#
# The horizon of 1.5 s has 20 segments. The cost pulls towards the upright state, and there are no end conditions.


# %%
def distance(y):
    return y[0] ** 2 + 5 * (1 + jnp.cos(y[1])) + 0.1 * (y[2] ** 2 + y[3] ** 2)


track = control.ControlProblem(
    cart_and_pendulum,
    running=lambda t, y, force, args: distance(y) + 1e-2 * force**2,
    terminal=lambda t1, y1, args: 10 * distance(y1),
    **bounds,
)
plant = {"cart": args["cart"], "bob": 1.3 * args["bob"], "length": args["length"]}
start = jnp.array([0.0, -0.01, 0.0, 0.0])  # hanging at rest exactly, both directions are the same
loop = control.receding_horizon(
    track, start, 0.0, args=args, plant_args=plant, steps=60, horizon=1.5, throw=False
)
print(f"angle after {loop.ts[-1]:.1f} s: {loop.ys[-1, 1]:.4f} (upright: {jnp.pi:.4f})")
print(f"iterations: {loop.n_steps[0]} for the first plan, then {loop.n_steps[1:].max()} at most")

# %% [markdown]
# ## A thousand problems
#
# Under `jax.vmap` the first force of the controller is computed for a thousand states at once.


# %%
def first_force(y):
    plan = control.optimise(track, y, 0.0, t1=1.5, args=args, control_degree=0, throw=False)
    return plan.us[0], plan.status


states = upright + jax.random.uniform(jax.random.key(0), (MEMBERS, 4), minval=-0.3, maxval=0.3)
controller = jax.jit(jax.vmap(first_force)).lower(states).compile()
began = time.perf_counter()
forces, status = jax.block_until_ready(controller(states))
seconds = time.perf_counter() - began
print(
    f"{MEMBERS} problems: {np.sum(status == 0)} solved, {seconds / MEMBERS * 1e3:.1f} ms for each"
)

# %% Figure
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
times = jnp.linspace(0.0, 2.0, 25)
ys, _ = plan.evaluate(times)
for number, (x, angle, *_) in enumerate(np.asarray(ys)):
    colour = plt.colormaps["viridis"](number / (len(times) - 1))
    tip = (x + 0.5 * np.sin(angle), -0.5 * np.cos(angle))
    left.plot([x, tip[0]], [0.0, tip[1]], color=colour, linewidth=1)
    left.plot(*tip, "o", color=colour, markersize=5)
    left.plot(x, 0.0, "s", color=colour, markersize=7)
left.axhline(0.0, color="grey", linewidth=0.5)
left.set(title="The plan with the least effort", xlabel="position in m", aspect="equal")
middle.plot(loop.ts, loop.ys[:, 1], color=BLUE, label="angle")
middle.plot(loop.ts, loop.ys[:, 0], color=VERMILION, label="position in m")
middle.axhline(np.pi, color="grey", linestyle=":")
middle.set(title="MPC of a heavier pendulum", xlabel="time in s")
middle.legend(frameon=False)
right.step(loop.ts, np.append(loop.us, loop.us[-1]), where="post", color=GREEN)
right.set(title="Its control", xlabel="time in s", ylabel="force in N")
figure.savefig(OUT / "swing_up.png", dpi=150)
