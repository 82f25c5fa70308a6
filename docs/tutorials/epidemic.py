# %% [markdown]
# # Bayesian inference for an epidemic from case counts
#
# In January 1978 an influenza epidemic spread in an English boarding school of 763 boys. The data are fourteen numbers:
# the boys in bed on each day. This tutorial infers the posterior of the rates of an SIR model (infection, recovery,
# reproduction number), and compares it with the results that Stan's authors published for the same model.
#
# ![Counts with bands, both rates, and the reproduction number](figures/epidemic.png)

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/epidemic"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml
from sciml import inference, training

BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
# Boys in bed in an English boarding school of 763, from 22 January 1978 on (Brit. Med. J. 1:587, 1978).
IN_BED = np.array([3, 8, 26, 76, 225, 298, 258, 233, 189, 128, 68, 29, 14, 4])
DAYS = np.arange(1.0, 15.0)
START = jnp.array([762.0, 1.0, 0.0])
# Means and standard deviations that Stan finds for the same model (Grinsztajn and others, Stat. Med. 40:6209, 2021).
PUBLISHED = {
    "beta": (1.74, 0.05),
    "gamma": (0.54, 0.05),
    "R0": (3.22, 0.28),
    "days ill": (1.86, 0.16),
}

# %% [markdown]
# The model predicts the number of ill people on some days.


# %%
def ill(sir: sciml.models.SIR, days: jax.Array) -> jax.Array:
    options = dict(
        rtol=1e-6, atol=1e-6, throw=False, adjoint=sciml.adjoints.Direct(), max_steps=300
    )
    sol = sciml.solve(sir, START, t0=0.0, t1=15.0, saveat=days, **options)
    return jnp.maximum(sol.ys[:, 1], 1e-6)


# %% [markdown]
# The counts vary more than Poisson's distribution; `excess` is the additional variance.


# %%
def observe(model: dict) -> inference.NegativeBinomial:
    return inference.NegativeBinomial(ill(model["sir"], DAYS), 1 / model["excess"])


# %% [markdown]
# The priors are normal distributions of positive parameters.


# %%
def half(location: float, scale: float) -> inference.Custom:
    return inference.Custom(inference.Normal(location, scale).log_prob, training.Positive())


# %% [markdown]
# The posterior density of both rates and of the excess, with the priors of the publication.


# %%
def posterior() -> inference.LogDensity:
    model = {"sir": sciml.models.SIR(beta=2.0, gamma=0.5), "excess": jnp.array(0.1)}
    priors = [
        (lambda m: m["sir"].beta, half(2.0, 1.0)),
        (lambda m: m["sir"].gamma, half(0.4, 0.5)),
        (lambda m: m["excess"], inference.Gamma(1.0, 5.0)),
    ]
    return inference.log_density(model, observe, IN_BED, priors)


# %% [markdown]
# The published quantities, for many models at once.


# %%
def told(models: dict) -> dict[str, np.ndarray]:
    beta, gamma = np.asarray(models["sir"].beta), np.asarray(models["sir"].gamma)
    return {"beta": beta, "gamma": gamma, "R0": beta / gamma, "days ill": 1 / gamma}


# %% [markdown]
# Print means and standard deviations next to the published ones.


# %%
def print_table(name: str, models: dict) -> None:
    for quantity, values in told(models).items():
        mean, deviation = PUBLISHED[quantity]
        here = f"{values.mean():.3f} +- {values.std():.3f}"
        print(f"  {name}: {quantity:<8} {here}, published {mean:.2f} +- {deviation:.2f}")


# %% [markdown]
# Run four MCMC chains if the sampler is installed.


# %%
def chains(near) -> inference.Draws | None:
    start = near.sample(jax.random.key(1), 4)
    try:
        return inference.nuts(near.density, jax.random.key(2), draws=500, warmup=300, start=start)
    except ImportError as error:
        print(error)
        return None


# %% Figure
def draw(density: inference.LogDensity, near, positions: dict, path: pathlib.Path):
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(13, 3.8), layout="constrained", width_ratios=(1.5, 1, 1)
    )
    fine = jnp.linspace(0.0, 15.0, 121)
    models = jax.vmap(density.constrain)(positions)
    curves = np.asarray(jax.jit(jax.vmap(lambda m: ill(m["sir"], fine)))(models))
    keys = jax.random.split(jax.random.key(5), len(curves))
    counts = np.asarray(jax.jit(jax.vmap(density.predict))(positions, keys))
    for values, at, colour, alpha, label in (
        (counts, DAYS, BLUE, 0.18, "90% of counts"),
        (curves, fine, BLUE, 0.45, "90% of the mean"),
    ):
        low, high = np.quantile(values, [0.05, 0.95], axis=0)
        left.fill_between(at, low, high, color=colour, alpha=alpha, linewidth=0, label=label)
    left.plot(fine, np.median(curves, axis=0), color=BLUE, linewidth=1)
    left.plot(DAYS, IN_BED, "o", color="black", markersize=4, label="boys in bed")
    left.set(xlabel="days from 21 January 1978", ylabel="boys in bed", xlim=(0, 15), ylim=(0, None))
    left.legend(frameon=False)

    found = told(models)
    middle.plot(
        found["beta"], found["gamma"], ".", color=BLUE, markersize=2.5, alpha=0.5, label="posterior"
    )
    circle = np.stack(
        [np.cos(np.linspace(0, 2 * np.pi, 100)), np.sin(np.linspace(0, 2 * np.pi, 100))]
    )
    index = [near.names.index(name) for name in ("sir.beta", "sir.gamma")]
    factor = np.linalg.cholesky(np.asarray(near.covariance)[np.ix_(index, index)])
    centre = np.asarray(density.ravel(near.mode))[index]
    for size, style in (
        (1.52, "-"),
        (2.45, "--"),
    ):  # quantiles for 68% and 95% of a normal distribution
        ellipse = np.exp(centre[:, None] + size * factor @ circle)
        middle.plot(
            *ellipse,
            style,
            color=VERMILION,
            linewidth=1.2,
            label="Laplace" if style == "-" else None,
        )
    middle.set(xlabel="beta [1/day]", ylabel="gamma [1/day]")
    middle.legend(frameon=False)

    right.hist(found["R0"], bins=40, density=True, color=BLUE, alpha=0.6, label="posterior")
    mean, deviation = PUBLISHED["R0"]
    grid = np.linspace(mean - 4 * deviation, mean + 4 * deviation, 200)
    normal = np.exp(-0.5 * ((grid - mean) / deviation) ** 2) / (deviation * np.sqrt(2 * np.pi))
    right.plot(grid, normal, color=GREEN, label="normal of Stan's\nmean and deviation")
    right.set(
        xlabel="reproduction number beta / gamma", yticks=[], xlim=(grid[0], grid[-1]), ylim=(0, 2)
    )
    right.legend(frameon=False)
    for ax in (left, middle, right):
        ax.spines[["top", "right"]].set_visible(False)
    right.spines["left"].set_visible(False)
    figure.savefig(path, dpi=120)


# %% [markdown]
# ## Results

# %%
jax.config.update("jax_enable_x64", True)

# %%
density = posterior()
near = density.laplace()
drawn = near.weighted(jax.random.key(0), 4000)
positions = drawn.resample(jax.random.key(1), 2000)
print(f"4000 draws of Laplace's approximation are worth {float(drawn.effective):.0f}")
print(
    f"log evidence: {float(near.log_evidence):.2f} by Laplace, {float(drawn.log_evidence):.2f} by weights"
)
print_table("weights", jax.vmap(density.constrain)(positions))

# %%
draws = chains(near)
if draws is not None:
    positions = jax.tree.map(lambda x: x.reshape(-1), draws.positions)
    print_table("chains", draws.merged())

# %%
profile = inference.profile_likelihood(density, density.maximum(), where=lambda m: m["sir"])
print(profile.summary())
left_over = density.residuals(near.model)
print(inference.residual_diagnostics(left_over, DAYS).summary())
draw(density, near, positions, OUT / "epidemic.png")

# %% [markdown]
# ## Key points
#
# - **Likelihood.** `observe(model)` returns a distribution: negative binomial counts with the mean of `sciml.models.SIR`.
#   The overdispersion relative to Poisson is also a parameter.
# - **Priors.** Each prior has a range. Both rates and the overdispersion are positive and sampled as logarithms; the
#   density includes the Jacobian. A normal prior of a positive parameter is a `Custom` of one line.
# - **Without a sampler.** `density.laplace()` is the normal approximation around the maximum. Importance weights turn
#   these draws into posterior draws; the effective sample size tells you whether to trust them. Here it is slightly below
#   half, because the tails of the overdispersion are wider than normal.
# - **MCMC.** If BlackJAX is installed, `inference.nuts` draws four chains in one program, starting from the Laplace
#   approximation.
# - **Profiles.** Intervals of the profile of likelihood times prior are close to the posterior intervals.
# - **Residuals.** There are three runs of one sign instead of eight expected ones: the model is below the counts for
#   several days after the peak. The boys stayed in bed longer than they were infectious, which this model does not
#   describe.
