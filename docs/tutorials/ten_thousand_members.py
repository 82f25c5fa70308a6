# %% [markdown]
# # Ten thousand members: ensemble performance
#
# An ensemble is a `jax.vmap` of a model that is written for one member. This tutorial measures its cost, shows what makes
# it expensive, and how to find out.
#
# The code prints times on your machine, without compile time:
#
# ![Time per member as a function of the number of members; executed steps compared with each member's own](figures/ten_thousand_members.png)
#
# ## Cost per member
#
# The left picture solves the same Lorenz system for more and more members. A single member pays the overhead of every
# iteration; ten thousand members share it. Under `vmap` sciml stores each component of the state as a separate array with
# one entry per member ([lanes](../guides/glossary.md#ensembles)), so a model becomes arithmetic on these arrays. The
# gradient with respect to the parameter of every member runs in the same way, over the accepted steps in reverse order.
#
# ## Operations that do not run over lanes
#
# Indexing, stacking, sums, small matrix products, branches, short loops and neural networks run over lanes. All other
# operations run as under JAX's own `vmap`, and one of them in the vector field can cost more than everything else.
# `inspect.fallbacks` lists them:
#
# ```python
# import jax.numpy as jnp
# from sciml import inspect
#
# def field(t, y, rate):
#     return -rate * y + 1e-3 * jnp.sort(y)[-1]
#
# def better(t, y, rate):
#     return -rate * y + 1e-3 * jnp.max(y)
#
# assert list(inspect.fallbacks(field, 0.0, jnp.ones(3), 2.0)) == ["sort"]
# assert inspect.fallbacks(better, 0.0, jnp.ones(3), 2.0) == {}
# ```
#
# ## Waiting members: lockstep and refill
#
# The right picture solves Van der Pol's equation for values of $\mu$ over three decades. The black line is the number of
# steps that each member needs. In lockstep all lanes run as many iterations as the slowest member needs (orange line).
# `stats.executed` contains these numbers, and `stats.lane_efficiency` is the useful share.
#
# With `batching="refill"` there are fewer lanes than members, and a lane whose member is done starts the next one (blue
# points). Points far above the black line are the last members, after which their lanes had no further member to start.
# Use refill if the lane efficiency in lockstep is below one half; the solutions are the same. A gradient runs in
# lockstep.
#
# ## Next steps
#
# - Several devices, or more members than fit into memory: [ensembles](../guides/ensembles.md).
# - Failed members: [failures and status codes](../guides/failures.md).
# - Stiff members: `solver=sciml.solvers.Rodas5P()` also runs over lanes; see [solving](../guides/solve.md).

# %% [hidden]
import os
import pathlib

OUT = pathlib.Path(os.environ.get("OUT", "build/ten_thousand_members"))
OUT.mkdir(parents=True, exist_ok=True)

# %%
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import sciml

MEMBERS = 10_000
BLUE, VERMILION = "#0072B2", "#D55E00"  # which colour-blind readers tell apart

# %% [markdown]
# One member: a Lorenz system for one time unit.


# %%
def lorenz(rho: jax.Array) -> sciml.Solution:
    model = sciml.models.Lorenz63(rho=rho)
    return sciml.solve(model, jnp.array([1.0, 0.0, 0.0]), t0=0.0, t1=1.0, rtol=1e-5, atol=1e-5)


# %% [markdown]
# One member: a Van der Pol oscillator, which takes more steps for larger $\mu$.


# %%
def oscillator(mu: jax.Array, batching: str = "lockstep") -> sciml.Solution:
    model = sciml.models.VanDerPol(mu=mu)
    options = dict(rtol=1e-4, atol=1e-4, batching=batching)
    return sciml.solve(model, jnp.array([2.0, 0.0]), t0=0.0, t1=20.0, **options)


# %% [markdown]
# Measure the time to compile a function, and the shortest time to run it.


# %%
def seconds(fn: Callable[..., Any], *args: Any, repeats: int = 5) -> tuple[float, float]:
    start = time.perf_counter()
    compiled = jax.jit(fn).lower(*args).compile()
    compiling = time.perf_counter() - start
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        times.append(time.perf_counter() - start)
    return compiling, min(times)


# %% [markdown]
# Print one line of the table.


# %%
def show(label: str, compiling: float, running: float, members: int) -> None:
    each = 1e6 * running / members
    print(
        f"{label:42} compile {compiling:5.2f} s   run {1e3 * running:8.2f} ms   {each:9.3f} us a member"
    )


# %% [markdown]
# Run the same solve for one member, ten, a hundred and so on.


# %%
def count_members() -> tuple[list[int], list[float]]:
    print("Lorenz systems, adaptive steps")
    counts, each = [1, 10, 100, 1_000, MEMBERS], []
    for count in counts:
        compiling, running = seconds(jax.vmap(lorenz), jnp.linspace(0.0, 21.0, count))
        show(f"  {count} members", compiling, running, count)
        each.append(running / count)
    return counts, each


# %% [markdown]
# Compute the gradient of a loss over all members with respect to the parameters of each member.


# %%
def gradient() -> None:
    rhos = jnp.linspace(0.0, 21.0, MEMBERS)
    compiling, running = seconds(jax.grad(lambda r: jnp.sum(jax.vmap(lorenz)(r).ys)), rhos)
    show("  gradient by every rho", compiling, running, MEMBERS)


# %% [markdown]
# Find a part of the model that has no rule for lanes, and measure its cost.


# %%
def sorted_lorenz() -> None:
    def field(t, y, rho):
        largest = jnp.sort(y)[-1]  # jnp.max(y) would do, and has a rule
        return sciml.models.Lorenz63(rho=rho)(t, y, None) - 1e-3 * largest

    def solve(rho):
        return sciml.solve(
            field, jnp.array([1.0, 0.0, 0.0]), t0=0.0, t1=1.0, args=rho, rtol=1e-5, atol=1e-5
        )

    said = sciml.inspect.fallbacks(field, 0.0, jnp.ones(3), 28.0)
    print(f"\nA model that sorts; inspect.fallbacks says {said}")
    show("  with a sort", *seconds(jax.vmap(solve), jnp.linspace(0.0, 21.0, MEMBERS)), MEMBERS)


# %% [markdown]
# Run members of which a few take most of the steps, in lockstep and with refilled lanes.


# %%
def unequal_members() -> dict[str, sciml.Solution]:
    mus = jax.random.permutation(jax.random.key(0), jnp.logspace(-1, 2, 2_048))
    print("\nVan der Pol oscillators, mu from 0.1 to 100")
    found = {}
    for batching in ("lockstep", "refill"):
        solve = jax.vmap(lambda mu, batching=batching: oscillator(mu, batching))
        show(f"  {batching}", *seconds(solve, mus), mus.size)
        found[batching] = sol = jax.jit(solve)(mus)
        print(
            f"    lane efficiency {float(sol.stats.lane_efficiency):.2f}, {int(jnp.sum(sol.status != 0))} failed"
        )
    return found


# %% Figure
def draw(
    counts: list[int], each: list[float], found: dict[str, sciml.Solution], path: pathlib.Path
) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.loglog(counts, [1e6 * x for x in each], "o-", color=BLUE)
    left.set_xlabel("members")
    left.set_ylabel("microseconds a member")
    left.set_title("Lorenz systems", loc="left", fontsize="medium")

    own = np.asarray(found["lockstep"].stats.accepted + found["lockstep"].stats.rejected)
    order = np.argsort(own)
    for batching, colour in (("lockstep", VERMILION), ("refill", BLUE)):
        executed = np.asarray(found[batching].stats.executed)[order]
        right.plot(executed, ".", markersize=2, color=colour, label=f"executed, {batching}")
    right.plot(own[order], color="black", linewidth=1.5, label="the member's own")
    right.set_yscale("log")
    right.set_xlabel("members, by the steps that they take")
    right.set_ylabel("steps")
    right.set_title("Van der Pol oscillators", loc="left", fontsize="medium")
    right.legend(markerscale=5, frameon=False)
    figure.savefig(path, dpi=120)
    print(f"\nwrote {path}")


# %% [markdown]
# ## Results

# %%
counts, each = count_members()
gradient()
sorted_lorenz()
found = unequal_members()
draw(counts, each, found, OUT / "ten_thousand_members.png")
