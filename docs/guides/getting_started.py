"""Draw the pictures of the first guide: `python docs/guides/getting_started.py --out docs/guides/figures`."""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml

matplotlib.use("Agg")  # pictures go to files; no screen is needed
import matplotlib.pyplot as plt

BLUE, VERMILION = "#0072B2", "#D55E00"
Y0 = jnp.array([30.0, 6.0])


def getting_started():
    """A solve, and an ensemble."""
    ts = jnp.linspace(0.0, 20.0, 201)

    def populations(alpha):
        model = sciml.models.LotkaVolterra(alpha=alpha, beta=0.03, gamma=0.8, delta=0.02)
        return sciml.solve(model, Y0, t0=0.0, t1=20.0, saveat=ts).ys

    one = populations(0.5)
    many = np.asarray(jax.jit(jax.vmap(populations))(jnp.linspace(0.4, 0.6, 100)))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4), layout="constrained", sharey=True)
    for column, (name, colour) in enumerate((("hares", BLUE), ("lynxes", VERMILION))):
        left.plot(ts, one[:, column], color=colour, label=name)
        right.plot(ts, many[:, :, column].T, color=colour, linewidth=0.3, alpha=0.5)
    left.set(title="a solve", xlabel="years", ylabel="thousands", xlim=(0, 20), ylim=(0, 110))
    right.set(title="a hundred growth rates from 0.4 to 0.6", xlabel="years", xlim=(0, 20))
    left.legend(frameon=False, loc="upper left")
    print(f"hares at the end: {one[-1, 0]:.1f} alone, {many[:, -1, 0].min():.1f} to {many[:, -1, 0].max():.1f}")
    return figure


PICTURES = (getting_started,)


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
