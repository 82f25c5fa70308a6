"""Draw the pictures of the guide to noise: `python docs/guides/noise.py --out docs/guides/figures`."""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml

matplotlib.use("Agg")  # pictures go to files; no screen is needed
import matplotlib.pyplot as plt

plt.rcParams |= {"font.size": 12, "axes.titlesize": "medium"}  # pages show figures at about two thirds of their width

KEY = jax.random.key(0)
BLUE, VERMILION = "#0072B2", "#D55E00"


def panels(count, size, **options):
    """Axes side by side."""
    figure, axes = plt.subplots(1, count, figsize=size, layout="constrained", squeeze=False, **options)
    return figure, axes[0]


def bands(ax, ts, ys, colour=BLUE):
    """What holds 50% and 90% of the members, and their median."""
    levels = np.quantile(np.asarray(ys), [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    ax.fill_between(ts, levels[0], levels[4], color=colour, alpha=0.15, linewidth=0)
    ax.fill_between(ts, levels[1], levels[3], color=colour, alpha=0.3, linewidth=0)
    ax.plot(ts, levels[2], color=colour, linewidth=2)


def noise_paths():
    """Geometric Brownian motion."""
    ts = jnp.linspace(0.0, 1.0, 201)
    growth = sciml.Stochastic(lambda t, y, args: 0.1 * y, lambda t, y, args: 0.2 * y)

    def solve(key):
        return sciml.solve(growth, 1.0, t0=0.0, t1=1.0, dt=0.005, key=key, saveat=ts).ys

    ys = jax.jit(jax.vmap(solve))(jax.random.split(KEY, 5000))
    exact = np.exp(0.1 * ts)
    print(f"mean at the end {ys[:, -1].mean():.4f}, exact {exact[-1]:.4f}")
    figure, (ax,) = panels(1, (7.0, 3.6))
    ax.plot(ts, ys[:60].T, color="0.6", linewidth=0.5)
    bands(ax, ts, ys)
    ax.plot(ts, exact, color=VERMILION, linestyle="--", label="exact mean")
    ax.set(xlabel="time", ylabel="$y$", xlim=(0, 1))
    ax.legend(frameon=False, loc="upper left")
    return figure


def noise_neuron():
    """A neuron that is at rest without noise, and fires by chance with it."""
    ts = jnp.linspace(0.0, 200.0, 1601)

    def drift(t, y, args):
        v, w = y
        return jnp.stack([v - v**3 / 3 - w + 0.3, 0.08 * (v + 0.7 - 0.8 * w)])

    def diffusion(t, y, strength):
        return strength * jnp.stack([jnp.ones(()), jnp.zeros(())])

    neuron = sciml.Stochastic(drift, diffusion, noise="additive")
    rest = sciml.steady_state(lambda t, y, args: drift(t, y, args), jnp.array([-1.0, -0.5])).ys[-1]

    def solve(key, strength):
        options = dict(t0=0.0, t1=200.0, dt=0.05, saveat=ts, max_steps=5000)
        return sciml.solve(neuron, rest, args=strength, key=key, **options).ys[:, 0]

    strengths = jnp.array([0.03, 0.08, 0.2])
    keys = jax.random.split(KEY, 200)
    ys = jax.jit(jax.vmap(jax.vmap(solve, (0, None)), (None, 0)))(keys, strengths)
    spikes = ((ys[..., 1:] > 1) & (ys[..., :-1] <= 1)).sum(axis=-1).mean(axis=-1)
    figure, axes = panels(3, (9.6, 3.0), sharey=True)
    for ax, strength, each, count in zip(axes, strengths, ys, spikes):
        ax.plot(ts, each[1], color="0.4", linewidth=0.8)
        bands(ax, ts, each)
        ax.set(title=f"noise {float(strength):g}: {float(count):.1f} spikes each", xlabel="time", xlim=(0, 200))
    axes[0].set_ylabel("voltage")
    print("spikes grow with the noise:", bool(np.all(np.diff(spikes) > 0)))
    return figure


def noise_reactions():
    """Births and deaths, one by one and by the Langevin equation."""
    ts = jnp.linspace(0.0, 8.0, 201)
    population = sciml.Reactions([[1], [-1]], lambda x, args: jnp.stack([jnp.full_like(x[0], 10.0), x[0]]))

    def one_by_one(key):
        return sciml.solve(population, jnp.zeros(1), t0=0.0, t1=8.0, key=key, saveat=ts).ys[:, 0]

    def langevin(key):
        return sciml.solve(population.langevin(), jnp.zeros(1), t0=0.0, t1=8.0, dt=0.02, key=key, saveat=ts).ys[:, 0]

    keys = jax.random.split(KEY, 2000)
    figure, axes = panels(3, (9.6, 3.2))
    ends = {}
    for ax, solve, title in zip(axes, (one_by_one, langevin), ("one by one", "Langevin equation")):
        ys = ends[title] = np.asarray(jax.jit(jax.vmap(solve))(keys))
        bands(ax, ts, ys)
        ax.plot(ts, ys[0], color="0.2", linewidth=0.8)
        ax.set(title=title, xlabel="time", xlim=(0, 8), ylim=(-3, 24))
    axes[0].set_ylabel("count")
    bins = np.arange(-2, 26) - 0.5
    for (title, ys), colour in zip(ends.items(), (BLUE, VERMILION)):
        axes[2].hist(ys[:, -1], bins, density=True, histtype="step", color=colour, linewidth=1.5, label=title)
    axes[2].set(title="at the end", xlabel="count", ylabel="share", ylim=(0, 0.2))
    axes[2].legend(frameon=False)
    print("means", *(f"{ys[:, -1].mean():.2f}" for ys in ends.values()))
    return figure


def noise_fields():
    """Two phases under noise with a short and with a long correlation, and a covariance beside the exact one."""
    grid = sciml.spatial.Grid((128, 128))
    phases = sciml.models.AllenCahn(grid, sciml.spatial.Periodic(), width=0.03)
    figure, axes = panels(3, (10.5, 3.4))
    for ax, length in zip(axes, (0.02, 0.15)):
        noise = sciml.spatial.ColouredNoise(grid, sciml.spatial.MaternSpectrum(length))
        model = sciml.Stochastic(phases, lambda t, u, args: 0.6 * (1 - jnp.tanh(u) ** 2), noise=noise)
        end = sciml.solve(model, jnp.zeros(grid.shape), t0=0.0, t1=6.0, dt=0.05, key=KEY).ys[-1]
        ax.imshow(end.T, origin="lower", extent=(0, 1, 0, 1), cmap="RdBu", vmin=-1.2, vmax=1.2)
        ax.set(title=f"noise correlated over {length}", xlabel="x", xticks=(0, 1), yticks=(0, 1))

    line, rate, spectrum = sciml.spatial.Grid(64), 0.02, sciml.spatial.GaussianSpectrum(0.05)
    heat = sciml.models.Diffusion(line, sciml.spatial.Periodic(), rate)
    noise = sciml.spatial.ColouredNoise(line, spectrum)
    model = sciml.Stochastic(heat, lambda t, u, args: 1.0, noise=noise)

    def solve(key):
        return sciml.solve(model, jnp.zeros(64), t0=0.0, t1=1.0, dt=0.25, key=key).ys[-1]

    ys = np.asarray(jax.jit(jax.vmap(solve))(jax.random.split(KEY, 4000)), np.float64)
    measured = np.array([np.mean(ys * np.roll(ys, -n, axis=1)) for n in range(33)])
    number = np.arange(-32, 32)
    rates = rate * (2 * 64 * np.sin(np.pi * number / 64)) ** 2
    lasting = np.where(number == 0, 1.0, -np.expm1(-2 * rates) / np.where(number == 0, 1.0, 2 * rates))
    strength = np.asarray(spectrum.density(jnp.asarray(2 * np.pi * abs(number), float), 1), np.float64)
    apart = np.arange(33) / 64
    exact = np.cos(2 * np.pi * number[None] * apart[:, None]) @ (strength * lasting)
    print(f"covariance of the field, off by {abs(measured - exact).max() / exact[0]:.3f} of its variance")
    axes[2].plot(apart, exact, color=VERMILION, label="exact")
    axes[2].plot(apart, measured, color=BLUE, linestyle="none", marker=".", label="4000 members")
    axes[2].set(title="covariance of a heated rod", xlabel="distance", xlim=(0, 0.5))
    axes[2].legend(frameon=False)
    return figure


PICTURES = (noise_paths, noise_neuron, noise_reactions, noise_fields)


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
