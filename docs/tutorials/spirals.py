"""A latent ODE for spirals with few and noisy observations: interpolation and extrapolation.

Run it with `python docs/tutorials/spirals.py`: it takes about two minutes and writes a figure into the folder
`--out`.

Chen et al. (2018) generated two spirals, one clockwise and one anticlockwise, and observed 30 points of a segment, at
irregular times, with noise. The model encodes them into the initial value of a latent state, with networks for its
vector field and its decoder: a variational autoencoder whose decoder is an ODE.
"""

import argparse
import pathlib
import time

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import sciml
from sciml import training
from sciml.models.neural import LatentODE

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
POINTS, PIECE, SEEN = 500, 100, 30  # points of a spiral, of a segment, and observed ones
RECORDS, HELD_BACK, NOISE = 480, 64, 0.3
SIZE, TURN = 5.0, 6 * np.pi / POINTS  # of the spirals, and the angle from point to point, which is the time
COLOURS = "#0072B2", "#D55E00"


def spirals():
    """Returns two spirals as arrays of shape `(POINTS, 2)`, the clockwise one first."""
    turn = np.linspace(0.0, 6 * np.pi, POINTS)
    back = 6 * np.pi + 1 - turn
    near, far = 15.0 / back, 0.3 * turn
    first = np.stack([near * np.cos(back) - 5.0, near * np.sin(back)], axis=1)
    return first, np.stack([far * np.cos(turn) + 5.0, far * np.sin(turn)], axis=1)


def records(draw, count):
    """Returns segments of spirals without noise, the index of their spiral, and times and values of observations."""
    which = draw.integers(0, 2, count)
    starts = draw.integers(PIECE // 2, POINTS - 2 * PIECE, count)
    true = np.stack([spirals()[w][s : s + 2 * PIECE] for w, s in zip(which, starts)]).astype(np.float32)
    # the first point is included: the latent state starts there
    places = [np.append(0, np.sort(1 + draw.choice(PIECE - 1, SEEN - 1, replace=False))) for _ in range(count)]
    ts = [(TURN * p).astype(np.float32) for p in places]
    ys = [(y[p] + NOISE * draw.normal(size=(len(p), 2))).astype(np.float32) for y, p in zip(true, places)]
    return true, which, ts, ys


def train(ts, ys):
    """Returns a latent ODE trained on the time series, in units of the spirals' size."""
    model = LatentODE(2, latent=4, memory=25, width=20, depth=2, key=jax.random.key(0))
    data = training.experiments(ts, [y / SIZE for y in ys])
    begun = time.perf_counter()
    for weight, steps in ((0.1, 300), (1.0, 1600)):
        loss = training.LatentLoss(noise=NOISE / SIZE, weight=weight, dt=4 * TURN, solver=diffrax.Bosh3())
        optimiser = optax.chain(
            optax.clip_by_global_norm(100.0),
            optax.adamw(optax.cosine_decay_schedule(1e-2, steps, 0.02), weight_decay=1e-2),
        )
        found = training.train(model, loss, data, optimiser=optimiser, steps=steps, batch_size=64, progress=False)
        model = found.model
        last = {name: np.mean(x[-20:]) for name, x in found.history.metrics.items()}
        print(
            f"weight {weight:g}: log-likelihood {last['likelihood']:.0f}, divergence {last['divergence']:.1f}, "
            f"after {time.perf_counter() - begun:.0f} s"
        )
    return model


@eqx.filter_jit
def predicted(model, ts, ys, draws):
    """Returns predictions over twice the observed time: from the mean of the latent state, and from draws."""
    posterior = model.encode(ts, ys / SIZE, jnp.isfinite(ys))
    at = TURN * jnp.arange(2.0 * PIECE, dtype=ts.dtype)

    def path(z0):
        zs = sciml.solve(model.term, z0, t0=0.0, t1=at[-1], saveat=at, dt=4 * TURN, solver=diffrax.Bosh3()).ys
        return SIZE * jax.vmap(model.decode)(zs)

    return path(posterior.mean), jax.vmap(path)(jax.vmap(posterior.sample)(draws))


def draw_figure(path, true, which, ys, mean, drawn):
    """Draws four time series with observations, true continuations and predictions."""
    figure, panels = plt.subplots(1, 4, figsize=(12.0, 3.3), layout="constrained")
    shown = np.concatenate([np.flatnonzero(which == w)[:2] for w in (0, 1)])
    for ax, i in zip(panels, shown):
        colour = COLOURS[which[i]]
        for some in drawn[i]:
            ax.plot(*some.T, color=colour, alpha=0.15, linewidth=1)
        ax.plot(*true[i].T, color="black", linewidth=1, label="true")
        ax.plot(*mean[i, :PIECE].T, color=colour, linewidth=2, label="latent ODE")
        ax.plot(*mean[i, PIECE - 1 :].T, color=colour, linewidth=2, linestyle="--", label="after what was seen")
        ax.plot(*ys[i].T, ".", color="0.4", markersize=5, label="seen")
        ax.set(title=("clockwise", "anticlockwise")[which[i]], xlabel="x", aspect="equal", adjustable="datalim")
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("y")
    panels[0].legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main():
    """Generates time series, trains, prints the errors at unobserved points, and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "figures", help="folder for the figure")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    true, which, ts, ys = records(np.random.default_rng(0), RECORDS + HELD_BACK)
    model = train(ts[HELD_BACK:], ys[HELD_BACK:])

    held = training.experiments(ts[:HELD_BACK], ys[:HELD_BACK])
    draws = jax.random.split(jax.random.key(1), 12)
    run = jax.vmap(lambda ts, ys: predicted(model, ts, ys, draws))
    mean, drawn = map(np.asarray, run(held.ts, jnp.where(held.seen, held.ys, jnp.nan)))
    true = true[:HELD_BACK]
    square = np.mean((mean - true) ** 2, axis=(0, 2))
    seen, after = np.sqrt(square[:PIECE].mean()), np.sqrt(square[PIECE : PIECE + PIECE // 2].mean())
    print(f"records that were not trained on, off by {seen:.3f} where they were seen at {SEEN} of {PIECE} points")
    print(f"(a latent ODE of Chen et al.: 0.164, a recurrent network: 0.394), by {after:.3f} in the 50 points after")
    draw_figure(out / "spirals.png", true, which[:HELD_BACK], ys[:HELD_BACK], mean, drawn)
    print(f"wrote {out / 'spirals.png'}")


if __name__ == "__main__":
    main()
