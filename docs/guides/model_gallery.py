"""Draw the pictures of the gallery of models: `python docs/guides/model_gallery.py --out docs/guides/figures`."""

import argparse
import functools as ft
import pathlib

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml
from sciml import models, verify

matplotlib.use("Agg")  # pictures go to files; no screen is needed
import matplotlib.pyplot as plt

plt.rcParams["font.size"] = 12  # pages show figures at about two thirds of their width

KEY = jax.random.key(0)
BLUE, VERMILION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "0.6"


def panels(count, size, **options):
    """Axes side by side."""
    figure, axes = plt.subplots(1, count, figsize=size, layout="constrained", squeeze=False, **options)
    for ax in axes[0]:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes[0]


def bouncing_ball():
    """Flights and bounces, and the way through the space of states."""
    ts, start, events = jnp.linspace(0.0, 3.0, 301), jnp.array([1.0, 0.0]), 12
    ball = models.BouncingBall()
    sol = sciml.solve(ball, start, t0=0.0, t1=3.0, events=ball.bounce(), saveat=ts, max_events=events)
    error = np.abs(sol.events.times[:8] - verify.reference("bounce_times", ball, start, 8)).max()
    print(f"eight bounces are {float(error):.0e} off at most")
    figure, (left, right) = panels(2, (9.0, 3.4), width_ratios=(2, 1))
    sciml.plot.trajectory(sol, ax=left, labels=["height [m]", "velocity [m/s]"])
    some = ts[::6]
    left.plot(
        some, verify.reference("bouncing_ball", ball, start, some)[:, 0], "k.", markersize=3, label="in closed form"
    )
    left.set(xlabel="time [s]", xlim=(0, 3))
    left.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.13))
    sciml.plot.phase(sol, ax=right, labels=["height [m]", "velocity [m/s]"])
    return figure


def integrate_and_fire():
    """Spikes, and how often they come."""
    figure, (left, right) = panels(2, (9.0, 3.4), width_ratios=(2, 1))
    ts = jnp.linspace(0.0, 80.0, 401)
    for current, colour in ((1.4, GREY), (1.8, BLUE), (3.0, VERMILION)):
        neuron = models.IntegrateAndFire(current=current)
        sol = sciml.solve(neuron, jnp.array([-65.0]), t0=0.0, t1=80.0, events=neuron.spike(), saveat=ts)
        ax = sciml.plot.trajectory(sol, ax=left, labels=f"{current:g} nA")
        for line in ax.lines[-2:] if sol.events.count else ax.lines[-1:]:
            line.set_color(colour)
    left.axhline(-50.0, color="black", linewidth=0.8, linestyle=":")
    left.text(79.5, -49.8, "threshold", ha="right", va="bottom", fontsize="small")
    left.set(xlabel="time [ms]", ylabel="voltage [mV]", xlim=(0, 80), ylim=(-66, -47))
    handles = [line for line in left.lines if line.get_label().endswith("nA")]
    left.legend(handles=handles, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.13))

    def count(current):
        neuron = models.IntegrateAndFire(current=current)
        return sciml.solve(neuron, jnp.array([-65.0]), t0=0.0, t1=1000.0, events=neuron.spike()).events.count

    currents, fine = jnp.linspace(1.0, 4.0, 25), jnp.linspace(1.0, 4.0, 400)
    rates = np.asarray(jax.jit(jax.vmap(count))(currents))
    exact = 1e3 / np.asarray(
        jax.vmap(lambda i: verify.reference("firing_period", models.IntegrateAndFire(current=i)))(fine)
    )
    right.plot(fine, exact, color="black", linewidth=1, label="in closed form")
    right.plot(currents, rates, "o", color=BLUE, markersize=4, label="spikes in a second")
    right.set(xlabel="current [nA]", ylabel="rate [1/s]", xlim=(1, 4), ylim=(0, 300))
    right.legend(frameon=False, loc="upper left")
    print(f"spikes in a second at 4 nA: {rates[-1]}, exact {exact[-1]:.1f}")
    return figure


def two_compartment():
    """A month of tablets, and one dose in three ways."""
    drug, days, taken = models.TwoCompartment(), jnp.arange(28.0), jnp.full(28, 150.0)
    figure, (left, right) = panels(2, (9.0, 3.4))
    ts = jnp.linspace(0.0, 60.0, 961)
    missed = jnp.where((days >= 10) & (days < 15), 0.0, taken)
    for amounts, colour, label in (
        (missed, VERMILION, "and five days missed"),
        (taken, BLUE, "150 mg a day for 28 days"),
    ):
        sol = sciml.solve(drug, jnp.zeros(4), t0=0.0, t1=60.0, events=drug.oral(days, amounts), saveat=ts)
        left.plot(ts, drug.concentration(sol.ys), color=colour, linewidth=1.2, label=label)
    left.set(xlabel="time [days]", ylabel="in the blood [mg/l]", xlim=(0, 60), ylim=(0, 54))
    left.legend(*map(reversed, left.get_legend_handles_labels()), frameon=False, loc="upper right")
    quick = models.TwoCompartment(clearance=5.0, volume=20.0, exchange=8.0, peripheral_volume=40.0, absorption=1.2)
    hours, dose = jnp.linspace(0.0, 12.0, 481), jnp.array([100.0])
    ways = {
        "swallowed": quick.oral(jnp.zeros(1), dose),
        "injected": quick.boluses(jnp.zeros(1), dose),
        "in a drip of two hours": quick.infusions(jnp.zeros(1), dose, 2.0),
    }
    for (label, events), colour in zip(ways.items(), (GREEN, BLUE, VERMILION)):
        ys = sciml.solve(quick, jnp.zeros(4), t0=0.0, t1=12.0, events=events, saveat=hours).ys
        right.plot(hours, quick.concentration(ys), color=colour, linewidth=1.5, label=label)
    exact = jax.vmap(verify.problem("two_compartment", 0.0, 100.0, 0.0, model=quick).solution)(hours)
    right.plot(hours, quick.concentration(exact), "--", color="black", linewidth=0.8, label="in closed form")
    right.set(xlabel="time [h]", ylabel="in the blood [mg/l]", xlim=(0, 12), ylim=(0, 5.2))
    right.legend(frameon=False)
    print(f"after a month of tablets {float(drug.concentration(sol.ys).max()):.1f} mg/l")
    return figure


def diffusions():
    """A share and a rate of interest, with what is known of them."""
    cases = (
        (
            models.GeometricBrownian(),
            100.0,
            1.0,
            ft.partial(verify.reference, "geometric_brownian_moments"),
            "price of a share",
            "years",
        ),
        (
            models.OrnsteinUhlenbeck(),
            0.03,
            25.0,
            ft.partial(verify.reference, "ornstein_uhlenbeck_moments"),
            "rate of interest",
            "years",
        ),
    )
    figure, axes = panels(2, (9.0, 3.4))
    for ax, (model, y0, t1, moments, name, unit) in zip(axes, cases):
        ts = jnp.linspace(0.0, t1, 201)
        solve = lambda key: sciml.solve(model, y0, t0=0.0, t1=t1, dt=t1 / 200, key=key, saveat=ts).ys  # noqa: B023, E731
        ys = np.asarray(jax.jit(jax.vmap(solve))(jax.random.split(KEY, 2000)))
        mean, variance = (np.asarray(x) for x in moments(model, y0, ts))
        ax.plot(ts, ys[:40].T, color=GREY, linewidth=0.5)
        ax.plot(ts, ys.mean(axis=0), color=BLUE, linewidth=2, label="mean of 2000")
        ax.fill_between(
            ts, *np.quantile(ys, [0.05, 0.95], axis=0), color=BLUE, alpha=0.2, linewidth=0, label="90% of them"
        )
        ax.plot(ts, mean, color=VERMILION, linestyle="--", label="exact mean")
        ax.plot(ts, mean + np.sqrt(variance), color=VERMILION, linestyle=":", label="exact deviation")
        ax.plot(ts, mean - np.sqrt(variance), color=VERMILION, linestyle=":")
        ax.set(xlabel=f"time [{unit}]", ylabel=name, xlim=(0, t1))
        print(f"{name}: deviation {ys[:, -1].std():.4g}, exact {np.sqrt(variance[-1]):.4g}")
    axes[0].legend(frameon=False, loc="upper left")
    return figure


def counts():
    """Births and deaths, and Schloegl's two states: paths, and the law."""
    figure, axes = plt.subplots(
        2, 2, figsize=(9.0, 5.6), layout="constrained", width_ratios=(2, 1), sharey="row", squeeze=False
    )

    def paths(ax, model, start, t1, members):
        ts = jnp.linspace(0.0, t1, 401)
        options = dict(t0=0.0, t1=t1, saveat=ts, max_steps=150_000)
        solve = lambda key: sciml.solve(model, jnp.full(1, start), key=key, **options).ys[:, 0]  # noqa: E731
        ys = np.asarray(jax.jit(jax.vmap(solve))(jax.random.split(KEY, members)))
        for path, colour in zip(ys, (GREEN, VERMILION, GREY, BLUE)):
            ax.plot(ts, path, color=colour, linewidth=0.8, drawstyle="steps-post")
        ax.set(xlabel="time", ylabel="count", xlim=(0, t1))
        return ys[:, -1]

    model, n = models.BirthDeath(), jnp.arange(31.0)
    ends = paths(axes[0, 0], model, 0.0, 60.0, 1000)
    law = verify.reference("birth_death_law", model, n, 60.0)
    axes[0, 1].hist(ends, np.arange(32) - 0.5, density=True, orientation="horizontal", color="0.8", label="1000 paths")
    axes[0, 1].plot(law, n, "k.-", linewidth=1, label="Poisson")
    axes[0, 1].set(xlabel="probability", ylim=(-0.5, 25), xlim=(0, None), xticks=[0, 0.05, 0.1])
    axes[0, 1].legend(frameon=False)
    axes[0, 0].set_title("made one by one, and decaying", fontsize="medium")
    axes[0, 1].set_title("at the end", fontsize="medium")
    print(f"births and deaths: mean {ends.mean():.1f}, exact {float(n @ law):.1f}")

    model = models.Schloegl()
    ends = paths(axes[1, 0], model, 250.0, 12.0, 8)
    law = verify.reference("one_step_law", model, 900)
    axes[1, 1].plot(law, np.arange(901), color="black", linewidth=1)
    axes[1, 1].set(xlabel="probability", ylim=(0, 700), xlim=(0, None), xticks=[0, 0.003, 0.006])
    axes[1, 0].set_title("Schloegl's reactions", fontsize="medium")
    axes[1, 1].set_title("in the long run", fontsize="medium")
    print(f"of {ends.size} paths {int((ends > 248).sum())} went up")
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def mackey_glass():
    """A cycle and chaos."""
    figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.1), layout="constrained", width_ratios=(2, 1, 1))
    ts = jnp.linspace(300.0, 700.0, 1601)
    for delay, colour, ax in ((6.0, BLUE, axes[1]), (17.0, VERMILION, axes[2])):
        model = models.MackeyGlass(delay=delay)
        late = jnp.concatenate([ts - delay, ts])
        order = jnp.argsort(late)
        found = sciml.solve(model, 1.2, t0=0.0, t1=700.0, dt=0.25, saveat=late[order], max_steps=5000).ys
        ys = jnp.zeros_like(found).at[order].set(found)
        past, now = ys[: ts.size], ys[ts.size :]
        axes[0].plot(ts, now, color=colour, linewidth=1.2, label=rf"$\tau = {delay:g}$")
        ax.plot(past, now, color=colour, linewidth=0.6)
        ax.set(xlabel=r"$x(t - \tau)$", ylabel="$x(t)$", title=rf"$\tau = {delay:g}$", aspect="equal")
        ax.set(xlim=(0.15, 1.45), ylim=(0.15, 1.45))
    axes[0].set(xlabel="time [days]", ylabel="cells $x$", xlim=(300, 700), ylim=(0.15, 1.6))
    axes[0].legend(frameon=False, ncols=2, loc="upper right")
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.title.set_fontsize("medium")
    print(f"oscillations begin at a delay of {float(verify.reference('mackey_glass_onset', model)):.3f}")
    return figure


PICTURES = (bouncing_ball, integrate_and_fire, two_compartment, diffusions, counts, mackey_glass)


def main():
    """Draws all of them, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "figures")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for draw in PICTURES:
        if not given.names or draw.__name__ in given.names:
            path = given.out / f"{draw.__name__}.png"
            draw().savefig(path, dpi=100)
            print(f"wrote {path}", flush=True)


if __name__ == "__main__":
    main()
