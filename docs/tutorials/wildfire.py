"""A custom PDE in twenty lines: a forest fire, drawn and differentiated.

Run it with `python docs/tutorials/wildfire.py`: it takes less than a minute on two cores and writes a figure into the
folder `--out`.
"""

import argparse
import pathlib

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml
from sciml import spatial
from sciml.spatial import Extrapolate, Grid, Laplacian, Neumann, Upwind

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402


class Wildfire(sciml.AbstractModel):
    r"""Heat that wind and diffusion carry, and fuel that burns where it is hot enough.

    $$\partial_t T = D \nabla^2 T - w \cdot \nabla T + q f\, r(T) - c T, \qquad \partial_t f = -b f\, r(T),$$

    with $r(T) = 1 / (1 + e^{(1 - T) / s})$.
    """

    laplacian: Laplacian
    upwind: Upwind
    wind: jax.Array = eqx.field(converter=sciml.parameter)
    diffusivity: jax.Array = eqx.field(default=0.001, converter=sciml.parameter)
    heat: jax.Array = eqx.field(default=12.0, converter=sciml.parameter)
    cooling: jax.Array = eqx.field(default=1.0, converter=sciml.parameter)
    burning: jax.Array = eqx.field(default=2.0, converter=sciml.parameter)
    width: jax.Array = eqx.field(default=0.1, converter=sciml.parameter)

    def __call__(self, t, y, args):
        temperature, fuel = y
        fire = fuel * jax.nn.sigmoid((temperature - 1.0) / self.width)
        carried = self.diffusivity * self.laplacian(temperature) - self.upwind(temperature, self.wind)
        return carried + self.heat * fire - self.cooling * temperature, -self.burning * fire

    def spectrum(self, t, y, args):  # optional: with it, `solve` selects stable steps
        return self.upwind.spectrum(self.wind) - self.diffusivity * self.laplacian.spectral_radius - self.cooling


GRID = Grid((64, 64))
END = 7.0


def forest() -> jax.Array:
    """Fuel of varied density, and a road with a gap."""
    rough = spatial.gaussian_random_field(GRID, lambda k: (1.0 + (k / 20.0) ** 2) ** -3.0, key=jax.random.key(3))
    x, y = GRID.centers
    road = (jnp.abs(x - 0.55) < 0.06) & (jnp.abs(y - 0.4) > 0.1)
    return jnp.where(road, 0.0, jnp.clip(1.0 + 0.25 * rough / jnp.std(rough), 0.3, 1.7))


def spark() -> jax.Array:
    """The ignition."""
    return 4.0 * spatial.pulse(GRID, (0.15, 0.55), width=0.04)


def burn(model: Wildfire, fuel: jax.Array, times: jax.Array) -> sciml.Solution:
    """The fire, with an automatic stable step."""
    options = dict(solver=diffrax.Bosh3(), stepsize_controller=diffrax.ConstantStepSize())
    return sciml.solve(model, (spark(), fuel), t0=0.0, t1=END, saveat=times, **options)


def burnt(model: Wildfire, fuel: jax.Array) -> jax.Array:
    """The burnt fraction of the fuel at the end."""
    left = burn(model, fuel, jnp.array([END])).ys[1][-1]
    return 1.0 - jnp.sum(left) / jnp.sum(fuel)


def draw(sol: sciml.Solution, gradient: np.ndarray, path: pathlib.Path) -> None:
    """The fire at three times, and the sensitivity to the fuel."""
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.4), layout="constrained", sharey=True)
    shown = dict(origin="lower", extent=(0, 1, 0, 1))
    temperatures, fuels = (np.asarray(x) for x in sol.ys)
    for ax, t, temperature, fuel in zip(axes, np.asarray(sol.ts), temperatures, fuels):
        image = ax.imshow(fuel.T, cmap="YlGn", vmin=0.0, vmax=1.7, **shown)
        hot = np.ma.masked_less(temperature.T, 0.5)
        fire = ax.imshow(hot, cmap="autumn_r", vmin=0.5, vmax=4.0, **shown)
        ax.set_title(f"t = {t:.1f}", loc="left", fontsize="medium")
    figure.colorbar(image, ax=list(axes[:3]), label="fuel", shrink=0.85, pad=0.01)
    figure.colorbar(fire, ax=list(axes[:3]), label="temperature", shrink=0.85, pad=0.01)
    largest = float(np.abs(gradient).max())
    scale = matplotlib.colors.SymLogNorm(largest / 100, vmin=-largest, vmax=largest)
    image = axes[3].imshow(gradient.T, cmap="RdBu_r", norm=scale, **shown)
    figure.colorbar(image, ax=axes[3], label="burnt part per fuel added here", shrink=0.85)
    axes[3].set_title("gradient of the burnt part", loc="left", fontsize="medium")
    for ax in axes:
        ax.set_xlabel("x")
    axes[0].set_ylabel("y")
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main() -> None:
    """Solves, differentiates, draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/wildfire"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    model = Wildfire(Laplacian(GRID, Neumann(0.0)), Upwind(GRID, Extrapolate()), wind=[0.08, 0.0])
    fuel = forest()
    sol = burn(model, fuel, jnp.array([1.0, 3.0, END]))
    print(f"{int(sol.stats.accepted)} steps of {END / int(sol.stats.accepted):.3g}, by {sol.solver}")

    value, (by_model, by_fuel) = jax.jit(jax.value_and_grad(burnt, argnums=(0, 1)))(model, fuel)
    print(f"{100 * float(value):.1f}% has burnt")
    wind, cooling = 0.01 * by_model.wind[0], 0.01 * by_model.cooling * model.cooling
    print(f"of all fuel, wind that is faster by 0.01 burns {100 * float(wind):+.2f}% more,")
    print(f"and cooling that is stronger by 1% {100 * float(cooling):+.2f}%")

    # the gradient predicts the effect of a small change
    i, j = (int(n) for n in np.unravel_index(int(jnp.argmax(by_fuel)), GRID.shape))
    x, y = (float(np.asarray(c).ravel()[n]) for c, n in zip(GRID.centers, (i, j)))
    foretold = -0.01 * float(by_fuel[i, j])
    change = float(jax.jit(burnt)(model, fuel.at[i, j].add(-0.01)) - value)
    print(f"where it matters most, at ({x:.2f}, {y:.2f}), 0.01 less fuel: foretold {foretold:.2e}, found {change:.2e}")
    draw(sol, np.asarray(by_fuel), out / "wildfire.png")


if __name__ == "__main__":
    main()
