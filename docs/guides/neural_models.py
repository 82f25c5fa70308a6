"""Draw the picture of the guide to neural models: `python docs/guides/neural_models.py --out docs/guides/figures`."""

import argparse
import functools as ft
import pathlib
import time

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import sciml
from sciml import models, training
from sciml.models.neural import ConservativeClosure
from sciml.spatial import Grid, Periodic

matplotlib.use("Agg")  # pictures go to files; no screen is needed
import matplotlib.pyplot as plt

plt.rcParams["font.size"] = 12  # pages show figures at about two thirds of their width

CELLS, FINE, FIELDS, HELD_BACK = 32, 512, 40, 8
TS = np.linspace(0.0, 0.6, 13, dtype=np.float32)
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "0.6"


def starts(key, cells):
    """Waves of three lengths, with random heights and phases, as means over cells."""
    heights, phases = jax.random.uniform(key, (2, FIELDS, 3, 1))
    k = 2 * jnp.pi * jnp.arange(1.0, 4.0)[:, None]
    edges = jnp.linspace(0.0, 1.0, cells + 1)
    integral = -jnp.cos(k * edges + 2 * jnp.pi * phases) / k
    return jnp.sum((heights - 0.5) * jnp.diff(integral, axis=-1) * cells, axis=1) + 0.3


def averaged(u, cells=CELLS):
    """The means over larger cells."""
    return u.reshape(*u.shape[:-1], cells, -1).mean(axis=-1)


def solved(model, u, dt):
    """The field at all times."""
    return sciml.solve(model, u, t0=0.0, t1=0.6, saveat=TS, dt=dt, solver=sciml.solvers.SSPRK33()).ys


def neural_closure(steps):
    """A corrector for a coarse grid, trained in the loop of its solver; and when it pays."""
    key, laws = jax.random.key(0), {n: models.InviscidBurgers(Grid(n), Periodic()) for n in (CELLS, 64, 128, FINE)}
    dts = {n: 0.32 / n for n in laws}
    begun = time.perf_counter()
    truth = jax.jit(jax.vmap(lambda u: solved(laws[FINE], u, dts[FINE])))(starts(key, FINE))
    truth = np.asarray(averaged(truth))
    known, unseen = truth[HELD_BACK:], truth[:HELD_BACK]

    coarse = laws[CELLS]
    model = ConservativeClosure(coarse, coarse.volumes.grid, True, width=16, scale=0.5, time=0.1, key=key)
    for length, rate in ((2, 1e-2), (6, 3e-3)):
        problem = training.rollouts(
            model,
            [TS] * len(known),
            list(known),
            length=length,
            dt=dts[CELLS],
            scale=0.1,
            solver=sciml.solvers.SSPRK33(),
        )
        optimiser = optax.adam(optax.cosine_decay_schedule(rate, steps, 0.05))
        found = training.train(
            *problem, optimiser=optimiser, steps=steps, batch_size=24, where=lambda m: m.net, progress=False
        )
        model = found.model
        print(f"predictions over {length} intervals: loss {found.history.loss[0]:.3f} to {found.history.loss[-1]:.3f}")
    spent = time.perf_counter() - begun

    both = [
        np.asarray(jax.jit(jax.vmap(lambda u, m=m: solved(m, u, dts[CELLS])))(unseen[:, 0])) for m in (coarse, model)
    ]
    sizes = [np.sqrt(np.mean((ys - unseen) ** 2, axis=(0, 2))) for ys in both]
    before, after = sizes[0][-1], sizes[1][-1]
    print(f"error at the end {before:.4f}, with the closure {after:.4f}: {before / after:.1f} times less")
    print(f"what the cells hold changed by {np.abs(np.ptp(both[1].mean(axis=-1), axis=1)).max():.0e}")

    problems = dict(u=starts(key, FINE)[:HELD_BACK], end=unseen[:, -1])
    at = {n: ft.partial(last, laws[n], n, dts[n]) for n in (CELLS, 64, 128)}
    off = lambda u, problem: jnp.sqrt(jnp.mean((u - problem["end"]) ** 2))  # noqa: E731
    surrogate = ft.partial(last, model, CELLS, dts[CELLS])
    print(training.breakeven(list(at.values()), surrogate, off, problems, training_seconds=spent))

    figure, (left, right) = plt.subplots(1, 2, figsize=(10.0, 3.6), layout="constrained", width_ratios=(3, 2))
    worst = int(np.argmax(np.mean((both[0][:, -1] - unseen[:, -1]) ** 2, axis=1)))
    (x,) = coarse.volumes.grid.centers
    for ys, colour, label in (
        (unseen, "black", f"of {FINE} cells"),
        (both[0], GREY, "coarse"),
        (both[1], BLUE, "with the closure"),
    ):
        left.plot(x, ys[worst, -1], color=colour, marker=".", linewidth=1.2, label=label)
    for size, colour, label in zip(sizes, (GREY, BLUE), ("coarse", "with the closure")):
        right.plot(TS, size, color=colour, label=label)
    left.set(xlabel="x", ylabel="u", xlim=(0, 1))
    right.set(xlabel="time", ylabel="error", xlim=(0, 0.6), ylim=(0, None))
    left.legend(frameon=False)
    right.legend(frameon=False)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def last(model, cells, dt, problem):
    """The field at the end, from a fine field at the start, as means over the coarse cells."""
    options = dict(t0=0.0, t1=0.6, dt=dt, solver=sciml.solvers.SSPRK33())
    return averaged(sciml.solve(model, averaged(problem["u"], cells), **options).ys[-1])


PICTURES = (neural_closure,)


def main():
    """Draws all of them, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "figures")
    parser.add_argument("--steps", type=int, default=400, help="of the training, for each length of predictions")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for draw in PICTURES:
        if not given.names or draw.__name__ in given.names:
            path = given.out / f"{draw.__name__}.png"
            draw(given.steps).savefig(path, dpi=100)
            print(f"wrote {path}", flush=True)


if __name__ == "__main__":
    main()
