"""Lynx and hare: a model fitted to measured data, its uncertainty run as an ensemble, its parameters swept.

Run it with `python docs/tutorials/lynx_hare.py`: it takes less than a minute and writes two figures into the folder
`--out`.

The data are the pelts of snowshoe hare and Canadian lynx that the Hudson's Bay Company bought from 1900 to 1920, in
thousands a year. The model is the Lotka-Volterra system: hares x multiply and are eaten, lynx y live on them,

    dx/dt = alpha x - beta x y,        dy/dt = delta x y - gamma y.

Carpenter (2018) fitted it in Stan and published the posterior means, which the script prints next to its estimates.
"""

import argparse
import pathlib
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import sciml

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
RECORD = HERE / "data" / "hudson_bay_lynx_hare.csv"
NAMES = ("alpha", "beta", "gamma", "delta", "u0", "v0")
PUBLISHED = (0.545, 0.028, 0.803, 0.024, 33.96, 5.93)  # Carpenter (2018), posterior means
HARE, LYNX = "#0072B2", "#D55E00"  # blue and vermilion, which colour-blind readers tell apart
MEMBERS = 10_000


class Record(NamedTuple):
    """The data: `years` of shape (21,), `pelts` of shape (21, 2) in thousands, hares first."""

    years: np.ndarray
    pelts: np.ndarray


def read_record(path: pathlib.Path = RECORD) -> Record:
    """Reads the table; lines that start with # say where it comes from."""
    with open(path) as file:
        lines = [line for line in file if not line.startswith("#")]
    table = np.genfromtxt(lines, delimiter=",", names=True)
    return Record(table["year"], np.stack([table["hare"], table["lynx"]], axis=1))


class Parameters(NamedTuple):
    """The fitted values: the rates, in 1/year or 1/(thousand pelts x year), and the pelts in 1900, in thousands."""

    rates: sciml.models.LotkaVolterra
    y0: jax.Array


def predict(parameters: Parameters, times: jax.Array, adjoint=None) -> sciml.Solution:
    """Solves the model from 1900 to the last of `times`, which count years since then."""
    return sciml.solve(
        parameters.rates,
        parameters.y0,
        t0=0.0,
        t1=20.0,
        saveat=times,
        rtol=1e-8,
        atol=1e-8,
        adjoint=adjoint,
        throw=False,  # a member of an ensemble may fail; its output is NaN, and its status gives the reason
    )


def residuals(parameters: Parameters, record: Record) -> jax.Array:
    """Log-normal noise: the logarithms of prediction and record differ by normal numbers of equal variance.

    Six parameters stand against 42 residuals, so the Jacobian takes fewer passes in forward mode, which `Direct`
    allows. With the default adjoint the same fit runs in reverse mode.
    """
    solution = predict(parameters, record.years - 1900, adjoint=sciml.adjoints.Direct())
    return jnp.log(solution.ys) - jnp.log(record.pelts)


def first_guess(record: Record) -> Parameters:
    """A guess from the record by eye: about two cycles in twenty years, around its mean.

    Averages over a cycle are the fixed point, (gamma / delta, alpha / beta), and small cycles have the period
    2 pi / sqrt(alpha gamma). Ten years give 0.63 for both rates.
    """
    rate = 2 * np.pi / 10
    hares, lynx = record.pelts.mean(axis=0)
    rates = sciml.models.LotkaVolterra(alpha=rate, beta=rate / lynx, gamma=rate, delta=rate / hares)
    return Parameters(rates, jnp.asarray(record.pelts[0]))


def fit(record: Record) -> dict[str, sciml.training.Fit]:
    """Fits all six numbers by two optimisers that have nothing in common but the residuals.

    The published values have weak priors behind them. None is needed here: maximum likelihood comes within 5% of them.
    """
    guess = first_guess(record)
    squares = sciml.fit(guess, residuals, record, positive=True)
    adam = sciml.fit(
        guess, residuals, record, positive=True, solver=optax.adam(0.05), covariance=False
    )
    return {"least squares": squares, "Adam": adam}


def compare(fits: dict[str, sciml.training.Fit]) -> str:
    """Returns a table of the estimates and the published means."""
    header = f"{'':8}{'published':>11}" + "".join(f"{name:>16}{'':9}" for name in fits)
    lines = [header]
    for i, (name, published) in enumerate(zip(NAMES, PUBLISHED, strict=True)):
        values = [float(found.parameters[i]) for found in fits.values()]
        lines.append(
            f"{name:8}{published:>11.5g}"
            + "".join(f"{value:>16.5g} ({value / published - 1:+6.1%})" for value in values)
        )
    estimates = np.array([found.parameters for found in fits.values()])
    off = np.abs(estimates[:, :4] / PUBLISHED[:4] - 1).max()
    apart = np.abs(estimates[0] / estimates[1] - 1).max()
    lines.append(
        f"The four rates lie within {off:.1%} of the published means; the optimisers differ by {apart:.1e} at most."
    )
    return "\n".join(lines)


def run_ensemble(found: sciml.training.Fit, times: jax.Array) -> sciml.Solution:
    """Draws members from the estimated uncertainty and solves them all as one `jax.vmap`."""
    members = found.sample(jax.random.key(0), MEMBERS)
    run = jax.jit(jax.vmap(lambda parameters: predict(parameters, times)))
    for what in ("with compilation", "again"):
        begin = time.perf_counter()
        solution = jax.block_until_ready(run(members))
        print(f"  {MEMBERS:,} members, {what}: {time.perf_counter() - begin:.2f} s")
    failed = int(np.count_nonzero(solution.status))
    print(f"  {failed} failed; {int(np.sum(solution.stats.accepted)):,} steps accepted in all")
    return solution


def sweep_misfit(found: sciml.training.Fit, record: Record) -> sciml.parallel.SweepResult:
    """Sweeps beta and delta over 200 x 200 values, on all devices, with the other parameters as fitted."""
    best = found.model
    points = sciml.parallel.parameter_grid(
        beta=float(best.rates.beta) * np.linspace(0.6, 1.5, 200),
        delta=float(best.rates.delta) * np.linspace(0.6, 1.5, 200),
    )

    def misfit(point, shared):
        best, record = shared
        rates = sciml.models.LotkaVolterra(
            best.rates.alpha, point["beta"], best.rates.gamma, point["delta"]
        )
        solution = predict(Parameters(rates, best.y0), record.years - 1900)
        return 0.5 * jnp.sum((jnp.log(solution.ys) - jnp.log(record.pelts)) ** 2)

    shared = (best, Record(jnp.asarray(record.years), jnp.asarray(record.pelts)))
    return sciml.parallel.sweep(misfit, points, shared)


def draw_fit(
    found: sciml.training.Fit,
    record: Record,
    times: jax.Array,
    ensemble: sciml.Solution,
    path: pathlib.Path,
) -> None:
    """Draws the data, the fitted curve, and the 90% bands of the curve and of the observations."""
    years = 1900 + np.asarray(times)
    best = np.asarray(predict(found.model, times).ys)
    curves = np.asarray(ensemble.ys)
    noise = np.random.default_rng(0).normal(0.0, float(found.sigma), curves.shape)
    observations = curves * np.exp(noise)
    figure, panels = plt.subplots(2, 1, figsize=(8, 6.4), sharex=True, layout="constrained")
    for i, (ax, name, colour) in enumerate(
        zip(panels, ("hare", "lynx"), (HARE, LYNX), strict=True)
    ):
        for values, alpha, label in (
            (observations[..., i], 0.15, "90% of observations"),
            (curves[..., i], 0.4, "90% band of the curve"),
        ):
            low, high = np.nanquantile(values, [0.05, 0.95], axis=0)
            ax.fill_between(years, low, high, color=colour, alpha=alpha, linewidth=0, label=label)
        ax.plot(years, best[:, i], color=colour, linewidth=2, label="fitted curve")
        ax.plot(
            record.years,
            record.pelts[:, i],
            "o",
            color="black",
            markersize=5,
            label=f"{name} pelts",
        )
        ax.set_ylabel(f"{name} (thousand pelts)")
        ax.set_ylim(bottom=0)
        ax.set_axisbelow(True)
        ax.grid(True, color="0.88", linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(
            loc="upper center", bbox_to_anchor=(0.415, 1.0), frameon=False, fontsize="small"
        )  # between the peaks
    panels[0].set_title(
        f"Lotka-Volterra fitted to the record, and {MEMBERS:,} members of its uncertainty",
        fontsize="medium",
    )
    panels[1].set_xlabel("year")
    panels[1].set_xticks(range(1900, 1921, 2))
    panels[1].set_xlim(1899.7, 1920.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_misfit(
    found: sciml.training.Fit, sweep: sciml.parallel.SweepResult, path: pathlib.Path
) -> None:
    """Draws the decrease of the log-likelihood from its maximum, over beta and delta."""
    fall = (np.asarray(sweep.on_grid()) - float(found.loss)) / float(found.sigma) ** 2
    beta, delta = sweep.grid.axes["beta"], sweep.grid.axes["delta"]
    best = found.model.rates
    figure, ax = plt.subplots(figsize=(7, 5.4), layout="constrained")
    sciml.plot.surface(
        beta,
        delta,
        np.maximum(fall, 0.1),  # the colours are logarithmic, and the fall is zero at the estimate
        ax=ax,
        log=True,
        mark=(float(best.beta), float(best.delta)),
        labels=(
            "β, predation (1 / (thousand lynx × year))",
            "δ, growth by predation (1 / (thousand hares × year))",
            "fall of the log-likelihood below its maximum",
        ),
    )
    (estimate,) = ax.plot(
        [], [], "o", markersize=8, markerfacecolor="none", markeredgecolor="white", linestyle="none"
    )
    lines = ax.contour(
        beta, delta, fall.T, levels=(1, 3, 10, 30, 100), colors="white", linewidths=1
    )
    ax.clabel(lines, fmt="%g", fontsize="small")
    ax.legend(
        [estimate],
        ["estimate"],
        facecolor="0.3",
        labelcolor="white",
        edgecolor="none",
        fontsize="small",
    )
    ax.set_title(
        f"Misfit of {sweep.n:,} members, the other parameters as fitted", fontsize="medium"
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(out: pathlib.Path) -> None:
    """Fits, runs the ensemble, sweeps, and writes the figures."""
    # The fits and their solves use relative tolerances of 1e-8, which float32 cannot resolve.
    # Ensemble and sweep would also work in float32; for a state of two numbers they take seconds either way.
    jax.config.update("jax_enable_x64", True)
    begin = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    record = read_record()

    print(
        f"Fitting {record.pelts.size} observations, {record.years[0]:.0f}-{record.years[-1]:.0f}:"
    )
    fits = fit(record)
    found = fits["least squares"]
    for name, each in fits.items():
        print(f"  {name}: {each.message}")
    print(found.summary())
    print()
    print(compare(fits))

    print("\nEnsemble:")
    times = jnp.linspace(0.0, 20.0, 201)
    ensemble = run_ensemble(found, times)

    print(f"\nSweep over {len(jax.devices())} device(s):")
    sweep = sweep_misfit(found, record)
    print(f"  {sweep.summary()}")
    lowest = sweep.member_params(int(np.nanargmin(sweep.values)))
    print(f"  lowest at beta = {lowest['beta']:.5g}, delta = {lowest['delta']:.5g}")

    draw_fit(found, record, times, ensemble, out / "lynx_hare_fit.png")
    draw_misfit(found, sweep, out / "lynx_hare_misfit.png")
    print(f"\nWrote {out / 'lynx_hare_fit.png'} and {out / 'lynx_hare_misfit.png'}.")
    print(f"{time.perf_counter() - begin:.0f} s in all.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=pathlib.Path, default=HERE / "figures", help="folder for the figures"
    )
    main(parser.parse_args().out)
