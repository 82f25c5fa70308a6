"""The references of the contest: `python -m benchmarks._contest_references` asks two codes, and keeps what one says."""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

import sciml

from ._contest_problems import PROBLEMS, Contested
from .contest import REFERENCES

TIGHT = 1e-12


def ours(problem: Contested) -> np.ndarray:
    """By sciml."""
    solver = sciml.solvers.Rodas5P() if problem.stiff else sciml.solvers.Vern9()
    rtol = 10 * TIGHT if problem.stiff else TIGHT
    options = dict(rtol=rtol, atol=rtol * min(problem.ratio, 1e-3), max_steps=1_000_000, solver=solver)
    sol = sciml.solve(problem.model, jnp.asarray(problem.y0), t0=0.0, t1=problem.t1, **options)
    return np.asarray(sol.ys[-1])


def theirs(problem: Contested) -> np.ndarray:
    """By SciPy's Radau or DOP853, or by CVODE where a dense matrix would be too large."""
    y0, rate = problem.y0, problem.machine

    def field(t: float, y: np.ndarray) -> np.ndarray:
        out = np.empty_like(y)
        rate(t, y, out)
        return out

    atol = TIGHT * min(problem.ratio, 1e-3)
    if y0.size > 100:
        from sksundae.cvode import CVODE  # pyright: ignore[reportMissingImports]

        linear = dict(problem.linear) or dict(linsolver="dense")
        if linear.get("linsolver") == "gmres":
            width = 2 * round((y0.size // 2) ** 0.5)
            linear = dict(linsolver="band", lband=width, uband=width)
        options = dict(rtol=TIGHT, atol=max(atol, 1e-16), max_num_steps=1_000_000)
        return CVODE(rate, **options, **linear).solve(np.array([0.0, problem.t1]), y0).y[-1]
    options: dict = dict(method="DOP853")
    if problem.stiff:
        jacobian = jax.jit(jax.jacfwd(lambda t, y: problem.model(t, y, None), argnums=1))
        options = dict(method="Radau", jac=lambda t, y: np.asarray(jacobian(t, y)))
    return solve_ivp(field, (0.0, problem.t1), y0, rtol=max(TIGHT, 2.3e-14), atol=atol, **options).y[:, -1]


def main(names: list[str]) -> None:
    """Computes references, of all problems or of some, and writes them."""
    jax.config.update("jax_enable_x64", True)
    found = json.loads(REFERENCES.read_text()) if REFERENCES.exists() else {}
    for problem in PROBLEMS:
        if names and problem.name not in names:
            continue
        one, other = ours(problem), theirs(problem)
        apart = float(np.max(np.abs(one - other) / (np.abs(other) + problem.floor)))
        print(f"{problem.name}: two codes agree to {apart:.1e}", flush=True)
        found[problem.name] = dict(end=one.tolist(), agree=float(f"{apart:.1e}"))
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found.items()]
        REFERENCES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
