"""Stiff problems of the test set: what accuracy costs, for a hundred members side by side and for one after another.

The first member starts where the test set does, and its error against the published end value is the row's; the
others start within a thousandth of that.
"""

import functools
import math
import pathlib
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import sciml
from sciml import verify

from ._harness import Candidate, Group, Measured, in_float64, jitted
from ._problems import diffrax_end

N = 100
TOLERANCES = (1e-4, 1e-6, 1e-8)
PROBLEMS = {  # with the absolute over the relative tolerance
    "robertson": 1e-12,
    "hires": 1e-3,
    "oregonator": 1e-3,
    "van_der_pol": 1e-3,
}
FIGURE = pathlib.Path("build/benchmarks/work_precision.png")
COLOURS = {
    "sciml Rodas5P": "#0072B2",
    "sciml Rosenbrock23": "#56B4E9",
    "diffrax Kvaerno5": "#D55E00",
    "SciPy LSODA": "#000000",
}


def ours(problem: verify.Problem, solver: Any, rtol: float, atol: float, y0: jax.Array) -> jax.Array:
    options: dict[str, Any] = dict(rtol=rtol, atol=atol, solver=solver, max_steps=100_000)
    return sciml.solve(problem.model, y0, t0=problem.t0, t1=problem.t1, **options).ys[-1]


def theirs(problem: verify.Problem, rtol: float, atol: float, y0: jax.Array) -> jax.Array:
    # its own choice of a first step is rejected without end on VDPOL
    options: dict[str, Any] = dict(solver=diffrax.Kvaerno5(), rtol=rtol, atol=atol, dt0=1e-6)
    return diffrax_end(problem.model, y0, problem.t0, problem.t1, **options)


def scipys(problem: verify.Problem, rtol: float, atol: float) -> Callable[[], Callable[[], np.ndarray]]:
    """LSODA on the compiled vector field and its Jacobian, both called from Python, one member."""

    def build() -> Callable[[], np.ndarray]:
        slope = jax.jit(lambda t, y: problem.model(t, y, None)).lower(0.0, problem.y0).compile()
        jacobian = jax.jit(jax.jacfwd(lambda t, y: problem.model(t, y, None), argnums=1)).lower(0.0, problem.y0)
        compiled = jacobian.compile()

        def run() -> np.ndarray:
            solution = solve_ivp(
                lambda t, y: np.asarray(slope(t, y)),
                (problem.t0, problem.t1),
                np.asarray(problem.y0),
                method="LSODA",
                rtol=rtol,
                atol=atol,
                jac=lambda t, y: np.asarray(compiled(t, y)),
            )
            return solution.y[:, -1]

        return run

    return build


def _group(name: str, ratio: float, draw: Callable[..., str | None]) -> Group:
    with jax.enable_x64(True):
        problem = verify.problem(name)
        factors = 1 + 1e-3 * np.random.default_rng(0).uniform(-1, 1, (N, *problem.y0.shape))
        factors[0] = 1
        starts = problem.y0 * jnp.asarray(factors)

    def error(out: Any) -> float:
        with jax.enable_x64(True):
            first = np.asarray(out).reshape(-1, problem.y0.size)[0]
            return float(problem.error(jnp.asarray(first), componentwise=True))

    rows = []
    for rtol in TOLERANCES:
        atol = rtol * ratio
        members = {
            "sciml Rodas5P": functools.partial(ours, problem, sciml.solvers.Rodas5P(), rtol, atol),
            "sciml Rosenbrock23": functools.partial(ours, problem, sciml.solvers.Rosenbrock23(), rtol, atol),
            "diffrax Kvaerno5": functools.partial(theirs, problem, rtol, atol),
        }
        first = f"sciml Rodas5P, {rtol:g}"
        for name, member in members.items():
            if name == "sciml Rosenbrock23" and rtol < 1e-6:
                continue  # a method of order two is not for such tolerances
            against = None if name == "sciml Rodas5P" else first
            rows.append(Candidate(f"{name}, {rtol:g}", in_float64(jitted(jax.vmap(member), starts)), against, error))
        rows.append(
            Candidate(f"SciPy LSODA, one member, {rtol:g}", in_float64(scipys(problem, rtol, atol)), None, error)
        )
    setting = f"t in [0, {problem.t1:g}], float64, rtol in the row, atol {ratio:g} rtol, end state"
    return Group(
        f"{problem.name}, {N} members, {setting}", rows, repeats=3, finish=functools.partial(draw, problem.name)
    )


def _draw(found: dict[str, list[Measured]], name: str, measured: list[Measured]) -> str | None:
    """Keeps a problem's rows and, once all problems are there, draws them; returns where to."""
    found[name] = measured
    if len(found) < len(PROBLEMS):
        return None
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
    for ax, (title, rows) in zip(axes.flat, found.items(), strict=True):
        for label, colour in COLOURS.items():
            here = [row for row in rows if row.label.startswith(label) and row.times and not math.isnan(row.error)]
            members = 1 if "SciPy" in label else N
            x, y = [row.error for row in here], [1e3 * row.median / members for row in here]
            ax.loglog(x, y, "o-", color=colour, label=label)
        ax.invert_xaxis()
        ax.set_title(title, loc="left", fontsize="medium")
    for ax in axes[1]:
        ax.set_xlabel("relative error of the worst component")
    for ax in axes[:, 0]:
        ax.set_ylabel("milliseconds a member")
    axes[0, 0].legend(frameon=False, fontsize="small")
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE, dpi=120)
    plt.close(figure)
    return str(FIGURE)


def groups() -> list[Group]:
    draw = functools.partial(_draw, {})
    return [_group(name, ratio, draw) for name, ratio in PROBLEMS.items()]
