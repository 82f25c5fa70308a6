"""Stochastic simulation of molecules: single reactions, the Langevin equation, and the rate equation.

Run it with `python docs/tutorials/schloegl.py`: it takes less than a minute and writes a figure into the folder
`--out`.
"""

import argparse
import pathlib
import time

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml
from sciml.models import Schloegl

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
START, END, MOST, MIDDLE = 250.0, 5.0, 1000, 248
TS = np.linspace(0.0, END, 251)
MODEL = Schloegl()


def one_by_one(key: jax.Array) -> jax.Array:
    """Gillespie's method (SSA), which is exact: a step for each reaction."""
    return sciml.solve(MODEL, jnp.full(1, START), t0=0.0, t1=END, key=key, saveat=TS, max_steps=60_000).ys[:, 0]


def langevin(key: jax.Array) -> jax.Array:
    """The chemical Langevin equation, the diffusion limit for large counts, with the same propensities."""
    noisy = MODEL.langevin()
    return sciml.solve(noisy, jnp.full(1, START), t0=0.0, t1=END, dt=0.005, key=key, saveat=TS).ys[:, 0]


def rate_equation(start: jax.Array) -> jax.Array:
    """The deterministic limit for large counts."""
    return sciml.solve(MODEL.rate_equations, start[None], t0=0.0, t1=END, saveat=TS).ys[:, 0]


def master_equation() -> jax.Array:
    """The distribution of the count at the end: a stiff linear equation for the probabilities of 0, 1, ..., 1000."""
    n = jnp.arange(MOST + 1.0)
    rates = jax.vmap(lambda n: MODEL.propensities(n[None], None))(n)
    up, down = rates[:, 0] + rates[:, 2], rates[:, 1] + rates[:, 3]
    up = up.at[-1].set(0.0)  # nothing leaves upwards

    def flow(t, p, args):
        across = up[:-1] * p[:-1] - down[1:] * p[1:]  # from each count to the next
        return jnp.concatenate([-across, jnp.zeros(1)]) + jnp.concatenate([jnp.zeros(1), across])

    start = jnp.zeros(MOST + 1).at[int(START)].set(1.0)
    options = dict(solver=sciml.solvers.Rodas5P(), rtol=1e-5, atol=1e-8)
    return sciml.solve(flow, start, t0=0.0, t1=END, **options).ys[-1]


def distance(counts: np.ndarray, law: np.ndarray, width: int = 50) -> float:
    """The total variation distance of two histograms: 0 for equal ones, 1 for disjoint ones."""
    edges = np.arange(0, MOST + 1, width) - 0.5
    shares = np.histogram(counts, edges)[0] / len(counts)
    exact = np.add.reduceat(law, np.arange(0, MOST + 1, width))[: len(shares)]
    return float(0.5 * np.abs(shares - exact).sum())


def draw(paths: dict[str, np.ndarray], law: np.ndarray, path: pathlib.Path) -> None:
    """Paths, the rate equation from five starts, and histograms at the end compared with the exact distribution."""
    figure, axes = plt.subplots(
        1, 4, figsize=(14, 4.0), layout="constrained", sharey=True, width_ratios=(1.2, 1.2, 1.2, 1)
    )
    for ax, (name, ys), colour in zip(axes, paths.items(), (BLUE, VERMILION, GREEN)):
        ax.plot(TS, ys[:30].T, color=colour, linewidth=0.5 if len(ys) > 30 else 1.5)
        ax.set(title=name, xlabel="time", xlim=(0, END))
    axes[0].set(ylabel="count", ylim=(0, 750))
    edges = np.arange(0, MOST + 1, 25) - 0.5
    for (name, ys), colour in zip(list(paths.items())[:2], (BLUE, VERMILION)):
        axes[3].hist(
            ys[:, -1], edges, density=True, orientation="horizontal", histtype="step", color=colour, label=name
        )
    axes[3].plot(law, np.arange(MOST + 1), color="black", linewidth=1.2, label="master equation")
    axes[3].set(title="at the end", xlabel="probability", xlim=(0, None), xticks=[0, 0.005, 0.01])
    axes[3].xaxis.set_major_formatter("{x:g}")
    axes[3].legend(frameon=False, fontsize=8)
    for ax in axes:
        ax.axhline(MIDDLE, color="0.7", linewidth=0.8, zorder=0)
        ax.spines[["top", "right"]].set_visible(False)
        ax.title.set_fontsize("medium")
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main() -> None:
    """Runs all descriptions, compares them with the exact distribution, draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/schloegl"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    law = np.asarray(jax.jit(master_equation)(), np.float64)
    low = law[:MIDDLE].sum()
    print(f"master equation: probabilities add up to {law.sum():.5f}, {100 * low:.1f}% are below {MIDDLE}")

    paths = {}
    for name, solve, members in (("one by one", one_by_one, 1000), ("Langevin equation", langevin, 2000)):
        run = jax.jit(jax.vmap(solve)).lower(jax.random.split(jax.random.key(1), members)).compile()
        begin = time.perf_counter()
        ys = paths[name] = np.asarray(run(jax.random.split(jax.random.key(0), members)))
        each = 1e6 * (time.perf_counter() - begin) / members
        share, off = np.mean(ys[:, -1] < MIDDLE), np.sqrt(low * (1 - low) / members)
        print(f"{name}: {members} paths, {each:.0f} us each")
        print(f"  {100 * share:.1f}% +- {100 * off:.1f}% are below, {distance(ys[:, -1], law):.3f} from the exact law")

    starts = jnp.array([50.0, 200.0, 247.0, 250.0, 400.0, 700.0])
    paths["rate equation"] = np.asarray(jax.jit(jax.vmap(rate_equation))(starts))
    ends = paths["rate equation"][:, -1]
    print("rate equation: from " + ", ".join(f"{a:.0f} to {b:.0f}" for a, b in zip(starts, ends)))
    draw(paths, law, out / "schloegl.png")


if __name__ == "__main__":
    main()
