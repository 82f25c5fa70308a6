# %% [markdown]
# # Optimal sampling times
#
# Blood samples are few, and their times decide how well a study determines clearance and volume. This tutorial computes
# the Fisher information of a design, finds D-optimal times, compares them with exact ones, and refits a thousand
# simulated subjects to check the predicted standard errors.
#
# ![A concentration with sampling times, the D-criterion of two times, and estimates of a thousand simulated subjects](figures/sampling_times.png)

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/sampling_times"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optimistix

from sciml import inference, pharmacology

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## The model
#
# A bolus of 100 mg, one compartment, and measurements with a standard deviation of 0.1 mg/l. `planned` has the expected
# parameters in l/h and l.

# %%
planned = {"cl": jnp.array(3.0), "v1": jnp.array(30.0)}
DOSE, NOISE = 100.0, 0.1


def level(model, times):
    drug = pharmacology.Compartments(**model)
    return drug.concentration(pharmacology.solve_doses(drug, pharmacology.Doses(0.0, DOSE), times))


def observe(model, effects, times):
    return inference.Normal(level(model, times), NOISE)


def information(times):
    return inference.fisher_information(planned, observe, subject=times)


def log_det(times):
    return information(times).log_det


# %% [markdown]
# ## D-optimal times
#
# The determinant of two times is proportional to $(t_2 - t_1)^2 e^{-2 k (t_1 + t_2)}$ with $k = CL / V_1$. The best first
# time is therefore as early as possible, and the second one $1 / k$ later.

# %%
EARLIEST, LATEST = 0.25, 24.0
best = inference.optimal_design(
    log_det, jnp.array([1.0, 20.0]), lower=EARLIEST, upper=LATEST, starts=3, key=jax.random.key(0)
)
found = jnp.sort(best.design)
exact = jnp.array([EARLIEST, EARLIEST + planned["v1"] / planned["cl"]])
print(f"times {found.round(4)} h, exact {exact} h, differ by {jnp.max(jnp.abs(found - exact)):.1e}")

# %% [markdown]
# ## Efficiency of a usual design
#
# Six samples in a geometric sequence are usual. The D-efficiency of a design is the share of its samples that the optimal
# design needs for the same determinant.

# %%
usual = jnp.geomspace(EARLIEST, LATEST, 6)
optimal = jnp.tile(found, 3)  # three samples at each time
efficiency = jnp.exp((log_det(usual) - log_det(optimal)) / len(planned))
print(f"usual times {usual.round(2)} h, D-efficiency {float(efficiency):.0%}")

# %% [markdown]
# Staff may only sample at full hours. `candidates=` chooses six of them by exchanges.

# %%
hourly = inference.optimal_design(log_det, usual, candidates=jnp.arange(1.0, 25.0))
efficiency = jnp.exp((hourly.value - log_det(optimal)) / len(planned))
print(f"full hours {jnp.sort(hourly.design)} h, D-efficiency {float(efficiency):.0%}")

# %% [markdown]
# ## Predicted and simulated standard errors
#
# A thousand subjects are simulated for both designs and fitted by least squares, all in one batch.


# %%
@jax.jit
def refit(times, key):
    def one(key):
        data = observe(planned, None, times).draw(key, times.shape)

        def residuals(logs, args):
            model = {name: jnp.exp(x) for name, x in logs.items()}
            return level(model, times) - data

        start = jax.tree.map(jnp.log, planned)
        solver = optimistix.LevenbergMarquardt(rtol=1e-8, atol=1e-8)
        solution = optimistix.least_squares(residuals, solver, start, throw=False)
        return jax.tree.map(jnp.exp, solution.value)

    return jax.vmap(one)(jax.random.split(key, 1000))


estimates = {}
for name, times in (("usual", usual), ("optimal", optimal)):
    estimates[name] = refit(times, jax.random.key(1))
    for parameter, predicted in information(times).standard_errors.items():
        simulated = jnp.std(estimates[name][parameter])
        ratio = float(simulated / predicted)
        print(
            f"{name:7} {parameter}: predicted {float(predicted):.4f}, simulated {float(simulated):.4f}, ratio {ratio:.3f}"
        )


# %% Figure
def draw(path: pathlib.Path) -> None:
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 3.9), layout="constrained")
    colours = {"usual": "#0072B2", "optimal": "#D55E00"}
    at = jnp.linspace(0.0, LATEST, 200)
    left.plot(at, level(planned, at), color="0.6")
    for (name, colour), times in zip(colours.items(), (usual, found)):
        left.plot(times, level(planned, times), "o", color=colour, label=name)
    left.set(xlabel="time [h]", ylabel="concentration [mg/l]", ylim=(0, None))
    left.legend(frameon=False)
    axis = jnp.linspace(EARLIEST, LATEST, 60)
    pairs = jnp.stack(jnp.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    values = np.array(jax.jit(jax.vmap(log_det))(pairs)).reshape(60, 60)
    heights = float(best.value) + np.array([-4.0, -3.0, -2.0, -1.0, -0.5, -0.2])
    middle.contour(axis, axis, np.maximum(values, -99), heights, colors="0.4", linestyles="-")
    middle.plot(*found, "o", color=colours["optimal"])
    middle.plot(*found[::-1], "o", color=colours["optimal"])
    middle.set(xlabel="first time [h]", ylabel="second time [h]", title="log det of two samples")
    middle.set(xlim=(0, LATEST), ylim=(0, LATEST))
    angle = jnp.linspace(0, 2 * jnp.pi, 200)
    circle = jnp.sqrt(-2 * jnp.log(0.05)) * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    for name, times in (("usual", usual), ("optimal", optimal)):
        cl, v1 = estimates[name]["cl"], estimates[name]["v1"]
        right.plot(cl, v1, ".", color=colours[name], markersize=2, alpha=0.4)
        ellipse = jnp.linalg.cholesky(information(times).covariance) @ circle
        right.plot(
            planned["cl"] + ellipse[0], planned["v1"] + ellipse[1], color=colours[name], label=name
        )
    right.set(xlabel="clearance [l/h]", ylabel="volume [l]", title="estimates, predicted 95%")
    right.legend(frameon=False)
    for ax in (left, middle, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)


draw(OUT / "sampling_times.png")

# %% [markdown]
# ## Key points
#
# - **The design is an array.** `fisher_information(subject=times)` is differentiable with respect to times and doses, so
#   `optimal_design` climbs along the gradient. It finds the exact times.
# - **Optimal designs repeat times.** There are as many different times as parameters. Usual designs are less efficient, but
#   they can also reveal that the model is wrong.
# - **Predictions before the study.** Standard errors from the information agree with a thousand refits.
# - **Populations.** With `effects=` the information is about typical values and variances of a population, see
#   [pharmacology](../guides/pharmacology.md#optimal-sampling-times).
