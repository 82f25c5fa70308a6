# %% [markdown]
# # A ball and a thermostat: fitting event times
#
# A ball bounces and a heater switches (hybrid systems): the state jumps at times that depend on the solution, and this
# tutorial differentiates through these events. It estimates the restitution and the drop height of a ball from the sound
# of its bounces, and tunes the two thresholds of a thermostat to a desired temperature and switching period.
#
# ![Measured and fitted bounces of a ball; a room before and after its thermostat was tuned](figures/ball_and_thermostat.png)

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/ball_and_thermostat"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml
from sciml import models, verify

BLUE, VERMILION = "#0072B2", "#D55E00"
HEARD, JITTER = 7, 0.002  # number of bounces, and the jitter of two milliseconds

# %% [markdown]
# The unknowns of the fit: the ball, and the height of the drop in m.


# %%
class Drop(eqx.Module):
    ball: models.BouncingBall
    height: jax.Array


# %% [markdown]
# The fall of the ball. `Direct` supports forward mode, which is fast for two parameters.


# %%
def fall(drop: Drop, **options) -> sciml.Solution:
    start = jnp.stack([drop.height, jnp.zeros_like(drop.height)])
    events = [
        drop.ball.bounce(),
        drop.ball.at_rest(1e-4),
    ]  # before bounces become too fast to separate
    options = dict(adjoint=sciml.adjoints.Direct(), rtol=1e-8, atol=1e-8) | options
    return sciml.solve(drop.ball, start, t0=0.0, t1=10.0, events=events, **options)


# %% [markdown]
# The times of the first bounces, relative to the first one, because the release makes no sound.


# %%
def listen(drop: Drop) -> jax.Array:
    times = fall(drop).events.times[:HEARD]
    return times[1:] - times[0]


# %% [markdown]
# Make a noisy record, then fit the restitution and the height.


# %%
def hear() -> tuple[Drop, jax.Array, sciml.training.Fit]:
    truth = Drop(models.BouncingBall(restitution=0.74), jnp.asarray(1.2))
    record = listen(truth) + JITTER * jax.random.normal(jax.random.key(2), (HEARD - 1,))
    guess = Drop(models.BouncingBall(restitution=0.6), jnp.asarray(0.8))
    fit = sciml.fit(
        guess,
        lambda drop, record: (listen(drop) - record) / JITTER,
        record,
        where=lambda drop: (drop.ball.restitution, drop.height),
        bounds=[(lambda drop: drop.ball.restitution, 0.0, 1.0)],
        positive=lambda drop: drop.height,
        sigma=1.0,
        progress=False,
    )
    return truth, record, fit


# %% [markdown]
# The second system is a room that loses heat, with a heater that is on or off:
#
# $$\dot T = (T_o - T) / \tau + P h, \qquad \dot h = 0$$
#
# The state is $(T, h, \int T \, dt)$, with times in hours and temperatures in degrees Celsius.


# %%
class Room(sciml.AbstractModel):
    lower: jax.Array = eqx.field(default=19.0, converter=sciml.parameter)
    upper: jax.Array = eqx.field(default=22.0, converter=sciml.parameter)
    power: jax.Array = eqx.field(default=12.0, converter=sciml.parameter)
    outside: jax.Array = eqx.field(default=4.0, converter=sciml.parameter)
    insulation: jax.Array = eqx.field(default=3.0, converter=sciml.parameter)

    def __call__(self, t, y, args):
        temperature, heats = y[0], y[1]
        slope = (self.outside - temperature) / self.insulation + self.power * heats
        return jnp.stack([slope, jnp.zeros_like(slope), temperature])

    def above_lower(self, t, y, args):
        return y[0] - self.lower

    def above_upper(self, t, y, args):
        return y[0] - self.upper

    def switches(self):
        """The two events of a thermostat."""
        on = sciml.Event(self.above_lower, lambda t, y, args: y.at[1].set(1.0), direction=-1)
        off = sciml.Event(self.above_upper, lambda t, y, args: y.at[1].set(0.0), direction=1)
        return [on, off]


# %% [markdown]
# Solve for three hours, from a cold room.


# %%
def live_in(room: Room, **options) -> sciml.Solution:
    options = dict(adjoint=sciml.adjoints.Direct(), rtol=1e-8, atol=1e-8) | options
    start = jnp.array([18.0, 1.0, 0.0])
    return sciml.solve(room, start, t0=0.0, t1=3.0, events=room.switches(), **options)


# %% [markdown]
# Compute the period, from one switch-off to the next, and the mean temperature over it.


# %%
def cycle(room: Room) -> tuple[jax.Array, jax.Array]:
    events = live_in(room).events
    period = events.times[2] - events.times[0]
    return period, (events.states_after[2, 2] - events.states_after[0, 2]) / period


# %% [markdown]
# The same period in closed form, for comparison.


# %%
def exact_cycle(room: Room) -> jax.Array:
    high = (
        room.outside + room.power * room.insulation
    )  # temperature of a room that is always heated
    falls = jnp.log((room.upper - room.outside) / (room.lower - room.outside))
    return room.insulation * (falls + jnp.log((high - room.lower) / (high - room.upper)))


# %% [markdown]
# Find both thresholds for a given period and mean temperature: two equations, two unknowns.


# %%
def tune(room: Room, period: float, mean: float) -> sciml.training.Fit:
    def misses(room, wishes):
        found = cycle(room)
        return jnp.stack([(found[0] - wishes[0]) / wishes[0], found[1] - wishes[1]])

    wishes = jnp.array([period, mean])
    return sciml.fit(
        room,
        misses,
        wishes,
        where=lambda room: (room.lower, room.upper),
        covariance=False,
        progress=False,
    )


# %% Figure
def draw(
    truth: Drop,
    record: jax.Array,
    fit: sciml.training.Fit,
    before: Room,
    after: Room,
    path: pathlib.Path,
) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    ts = jnp.linspace(0.0, 3.2, 641)
    sol = fall(fit.model, saveat=ts)
    left, right = axes
    left.plot(ts, sol.ys[:, 0], color=BLUE, linewidth=1.6, label="fitted")
    start = jnp.stack([truth.height, 0 * truth.height])
    left.plot(
        ts,
        verify.reference("bouncing_ball", truth.ball, start, ts)[:, 0],
        "k--",
        linewidth=0.9,
        label="true",
    )
    heard = float(sol.events.times[0]) + np.append(0.0, record)
    left.plot(
        heard, 0 * heard, "o", color=VERMILION, markersize=5, label="heard", zorder=3, clip_on=False
    )
    left.set(
        xlabel="time [s]",
        ylabel="height [m]",
        xlim=(0, 3.2),
        ylim=(0, 1.3),
        title="a ball that is heard",
    )
    left.legend(frameon=False)

    ts = jnp.linspace(0.0, 3.0, 601)
    for room, colour, label in ((before, "0.6", "as it came"), (after, BLUE, "tuned")):
        sol = live_in(room, saveat=ts, max_events=32)
        happened = np.isfinite(sol.events.times)
        right.plot(ts, sol.ys[:, 0], color=colour, linewidth=1.6, label=label)
        times, states = sol.events.times[happened], sol.events.states_after[happened]
        for heats, face in ((0.0, "white"), (1.0, colour)):
            chosen = states[:, 1] == heats
            right.plot(
                times[chosen],
                states[chosen, 0],
                "o",
                color=colour,
                markerfacecolor=face,
                markersize=5,
                linestyle="none",
            )
    right.plot([], [], "ko", markersize=5, label="heater on")
    right.plot([], [], "ko", markersize=5, markerfacecolor="white", label="heater off")
    right.set(
        xlabel="time [hours]",
        ylabel="temperature [°C]",
        xlim=(0, 3),
        ylim=(17.8, 23.2),
        title="a thermostat",
    )
    right.legend(frameon=False, ncols=4, fontsize=8, loc="upper center")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.title.set_fontsize("medium")
    figure.savefig(path, dpi=120)


# %% [markdown]
# ## Results

# %%
jax.config.update("jax_enable_x64", True)  # bounce times need more digits than float32 has

# %%
truth, record, fit = hear()
by_events = jax.jacfwd(lambda ball: fall(Drop(ball, truth.height)).events.times[HEARD - 1])(
    truth.ball
)
start = jnp.stack([truth.height, 0 * truth.height])
exact = jax.grad(lambda ball: verify.reference("bounce_times", ball, start, HEARD)[HEARD - 1])(
    truth.ball
)
slopes = f"{by_events.restitution:.6f} s by events, {exact.restitution:.6f} in closed form"
print(f"the seventh bounce comes later by the restitution: {slopes}")
for name, read in (("restitution", lambda d: d.ball.restitution), ("height", lambda d: d.height)):
    found, error = float(read(fit.model)), float(read(fit.standard_errors))
    print(f"{name}: {found:.4f} +- {error:.4f}, true {float(read(truth)):.4f}")

# %%
before = Room()
found, warmth = cycle(before)
print(
    f"as it came: a cycle of {60 * found:.2f} min, exactly {60 * exact_cycle(before):.2f}, at {warmth:.2f} degrees"
)
slope = jax.jacfwd(lambda room: cycle(room)[0])(before)
print(
    f"more power shortens it: {slope.power:.5f} h each, exactly {jax.grad(exact_cycle)(before).power:.5f}"
)
after = tune(before, period=0.25, mean=21.0).model
found, warmth = cycle(after)
print(
    f"tuned: {60 * found:.2f} min at {warmth:.2f} degrees, from {after.lower:.2f} to {after.upper:.2f}"
)
draw(truth, record, fit, before, after, OUT / "ball_and_thermostat.png")

# %% [markdown]
# ## Key points
#
# - **Event times are results.** `sol.events.times` are the predicted bounce times, and `sciml.fit` uses them like any
#   other prediction. The release of the ball makes no sound, so the data are times after the first bounce. With a jitter
#   of two milliseconds, the restitution is accurate to a thousandth.
# - **Events of a model.** `ball.bounce()` contains the parameters of the ball, so the fit changes its events as well.
#   `ball.at_rest(...)` ends the solve before bounces become too fast to separate.
# - **Verification.** The tutorial compares two derivatives with closed forms: the seventh bounce time with respect to the
#   restitution, and the period of the thermostat with respect to the heating power.
# - **Solving equations with `fit`.** With as many residuals as unknowns, `fit` solves equations: here for the distance
#   and the level of the two thresholds.
# - **Auxiliary state.** One component of the state is the heater switch. Another one integrates the temperature, so that
#   the mean over a cycle is the difference between two events.
