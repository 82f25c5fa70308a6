"""Ten thousand members: the cost of an ensemble, its reasons, and how to find them.

Run it with `python docs/tutorials/ten_thousand_members.py`: it takes less than a minute and writes a figure into the
folder `--out`. Times depend on the machine.
"""

import argparse
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import sciml

matplotlib.use("Agg")  # figures go to files; no screen is needed
import matplotlib.pyplot as plt  # noqa: E402

MEMBERS = 10_000
BLUE, VERMILION = "#0072B2", "#D55E00"  # which colour-blind readers tell apart


def lorenz(rho: jax.Array) -> sciml.Solution:
    """One member: a Lorenz system for one unit of time."""
    model = sciml.models.Lorenz63(rho=rho)
    return sciml.solve(model, jnp.array([1.0, 0.0, 0.0]), t0=0.0, t1=1.0, rtol=1e-5, atol=1e-5)


def oscillator(mu: jax.Array, batching: str = "lockstep") -> sciml.Solution:
    """One member: a Van der Pol oscillator, which needs more steps for larger mu."""
    model = sciml.models.VanDerPol(mu=mu)
    options = dict(rtol=1e-4, atol=1e-4, batching=batching)
    return sciml.solve(model, jnp.array([2.0, 0.0]), t0=0.0, t1=20.0, **options)


def seconds(fn: Callable[..., Any], *args: Any, repeats: int = 5) -> tuple[float, float]:
    """The time to compile a function, and the shortest time to run it."""
    start = time.perf_counter()
    compiled = jax.jit(fn).lower(*args).compile()
    compiling = time.perf_counter() - start
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        times.append(time.perf_counter() - start)
    return compiling, min(times)


def show(label: str, compiling: float, running: float, members: int) -> None:
    """Prints one line."""
    each = 1e6 * running / members
    print(f"{label:42} compile {compiling:5.2f} s   run {1e3 * running:8.2f} ms   {each:9.3f} us a member")


def count_members() -> tuple[list[int], list[float]]:
    """The same solve for one member, ten, a hundred ..."""
    print("Lorenz systems, adaptive steps")
    counts, each = [1, 10, 100, 1_000, MEMBERS], []
    for count in counts:
        compiling, running = seconds(jax.vmap(lorenz), jnp.linspace(0.0, 21.0, count))
        show(f"  {count} members", compiling, running, count)
        each.append(running / count)
    return counts, each


def gradient() -> None:
    """The gradient of a loss over all members, with respect to the parameter of each."""
    rhos = jnp.linspace(0.0, 21.0, MEMBERS)
    compiling, running = seconds(jax.grad(lambda r: jnp.sum(jax.vmap(lorenz)(r).ys)), rhos)
    show("  gradient by every rho", compiling, running, MEMBERS)


def sorted_lorenz() -> None:
    """A part of the model without a rule over lanes, and its cost."""

    def field(t, y, rho):
        largest = jnp.sort(y)[-1]  # jnp.max(y) would do, and has a rule
        return sciml.models.Lorenz63(rho=rho)(t, y, None) - 1e-3 * largest

    def solve(rho):
        return sciml.solve(field, jnp.array([1.0, 0.0, 0.0]), t0=0.0, t1=1.0, args=rho, rtol=1e-5, atol=1e-5)

    said = sciml.inspect.fallbacks(field, 0.0, jnp.ones(3), 28.0)
    print(f"\nA model that sorts; inspect.fallbacks says {said}")
    show("  with a sort", *seconds(jax.vmap(solve), jnp.linspace(0.0, 21.0, MEMBERS)), MEMBERS)


def unequal_members() -> dict[str, sciml.Solution]:
    """Members of which a few need most of the steps, in lockstep and with refill."""
    mus = jax.random.permutation(jax.random.key(0), jnp.logspace(-1, 2, 2_048))
    print("\nVan der Pol oscillators, mu from 0.1 to 100")
    found = {}
    for batching in ("lockstep", "refill"):
        solve = jax.vmap(lambda mu, batching=batching: oscillator(mu, batching))
        show(f"  {batching}", *seconds(solve, mus), mus.size)
        found[batching] = sol = jax.jit(solve)(mus)
        print(f"    lane efficiency {float(sol.stats.lane_efficiency):.2f}, {int(jnp.sum(sol.status != 0))} failed")
    return found


def draw(counts: list[int], each: list[float], found: dict[str, sciml.Solution], path: pathlib.Path) -> None:
    """Time per member over the number of members, and the executed steps compared with each member's own."""
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


def main() -> None:
    """Runs all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/ten_thousand_members"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    counts, each = count_members()
    gradient()
    sorted_lorenz()
    found = unequal_members()
    draw(counts, each, found, out / "ten_thousand_members.png")


if __name__ == "__main__":
    main()
