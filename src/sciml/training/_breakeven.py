"""After how many solves a surrogate has paid for its training, at equal error."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

_REPEATS = 3


class Breakeven(NamedTuple):
    """When a surrogate pays; prints as lines.

    Attributes:
        solves: The number of solves after which the surrogate has cost less than the solver; infinite if it never does.
        error: The error of the surrogate, the mean over the problems.
        surrogate_seconds: The time of one solve with the surrogate.
        solver_seconds: The time of one solve with the solver that is as accurate as the surrogate.
        errors: The errors of the solvers, in the order in which they were given.
        seconds: The time of one solve with each of them.
    """

    solves: float
    error: float
    surrogate_seconds: float
    solver_seconds: float
    errors: tuple[float, ...]
    seconds: tuple[float, ...]

    def __str__(self) -> str:
        """The numbers, as a table."""
        rows = [f"solver {i}: error {e:.2e}, {s:.2e} s" for i, (e, s) in enumerate(zip(self.errors, self.seconds))]
        equal = f"at equal error the solver takes {self.solver_seconds:.2e} s"
        pays = f"pays after {self.solves:.3g} solves" if math.isfinite(self.solves) else "never pays"
        return "\n".join([*rows, f"surrogate: error {self.error:.2e}, {self.surrogate_seconds:.2e} s; {equal}: {pays}"])


def breakeven(
    solvers: Sequence[Callable[[Any], PyTree]],
    surrogate: Callable[[Any], PyTree],
    error: Callable[[PyTree, Any], Any],
    problems: PyTree,
    *,
    training_seconds: float,
) -> Breakeven:
    r"""Measures after how many solves a surrogate has paid for its training, against a solver of the same error.

    A network is quick, and so is a solver that may be as wrong: it takes larger steps and a coarser grid. So the
    comparison is at equal error. The solver is given several times, from coarse to fine; between these, the seconds
    that it takes for the surrogate's error are interpolated in logarithms. With the solver times $t_c$ and the
    surrogate times $t_s$,

    $$n = \frac{t_{\text{training}}}{t_c - t_s}, \qquad \text{infinite where } t_c \le t_s.$$

    A solver that is more accurate than the surrogate however coarse it is counts with the seconds of its coarsest form.
    All are compiled, run over the problems side by side by `jax.vmap`, and timed without their compilation, in turns.

    Args:
        solvers: Functions of one problem that return its solution, from coarse to fine.
        surrogate: Such a function too, with its weights.
        error: `error(solution, problem)`, one number, such as the relative error against a reference that is part of
            the problem; its mean over the problems counts.
        problems: Problems, a PyTree of arrays with one row for each.
        training_seconds: The cost of the surrogate: solves for its data, and training.

    Returns:
        A `Breakeven`.

    Raises:
        ValueError: If there is no solver, the problems are not rows of arrays, an error is not finite, or no solver is
            as accurate as the surrogate (pass a finer one).

    Source:
        Breakeven complexity of surrogates: arXiv:2605.15399, 2026.

    Example:
        ```python
        import diffrax
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml import training

        def solver(dt):
            def decay(rate):
                options = dict(t0=0.0, t1=1.0, dt=dt, solver=diffrax.Euler())
                return sciml.solve(lambda t, y, args: -rate * y, jnp.ones(1), **options).ys[-1, 0]
            return decay

        series = lambda rate: 1 - rate + rate**2 / 2 - rate**3 / 6  # what a surrogate may have learnt
        off = lambda found, rate: jnp.abs(found - jnp.exp(-rate))
        rates = jnp.linspace(0.2, 1.0, 16)
        found = training.breakeven([solver(0.2), solver(0.01)], series, off, rates, training_seconds=60.0)
        assert found.errors[1] < found.error < found.errors[0]
        print(found)
        ```
    """
    leaves = jax.tree.leaves(problems)
    if not leaves or any(jnp.ndim(x) == 0 or len(x) != len(leaves[0]) for x in leaves):
        shapes = [jnp.shape(x) for x in leaves]
        raise ValueError(f"`problems` must be arrays with a row for each problem, but have shapes {shapes}.")
    if not solvers:
        raise ValueError("`solvers` must contain at least one function, from coarse to fine.")
    if not (math.isfinite(training_seconds) and training_seconds >= 0):
        raise ValueError(f"`training_seconds` must be a nonnegative number of seconds, but is {training_seconds}.")
    count = len(leaves[0])
    compiled = [jax.jit(jax.vmap(fn)) for fn in (*solvers, surrogate)]
    judged = jax.jit(jax.vmap(error))
    errors = [float(jnp.mean(judged(run(problems), problems))) for run in compiled]
    if not np.all(np.isfinite(errors)):
        raise ValueError(f"the errors of the solvers and the surrogate must be finite, but are {errors}.")
    best = [math.inf] * len(compiled)
    for _ in range(_REPEATS):
        for i, run in enumerate(compiled):
            start = time.perf_counter()
            jax.block_until_ready(run(problems))
            best[i] = min(best[i], (time.perf_counter() - start) / count)
    *of_solvers, own = errors
    *seconds, own_seconds = best
    equal = seconds_at(own, of_solvers, seconds)
    gain = equal - own_seconds
    solves = training_seconds / gain if gain > 0 else math.inf
    return Breakeven(solves, own, own_seconds, equal, tuple(of_solvers), tuple(seconds))


def seconds_at(error: float, errors: Sequence[float], seconds: Sequence[float]) -> float:
    """Returns the seconds of the cheapest solver of an error, interpolated between those that are known.

    Raises:
        ValueError: If none is as accurate.
    """
    enough = [s for e, s in zip(errors, seconds, strict=True) if e <= error]
    if not enough:
        raise ValueError(
            f"no solver is as accurate as the surrogate, whose error is {error:.3g}; the smallest solver error is "
            f"{min(errors):.3g}. Add a finer solver."
        )
    found = min(enough)
    # between a solver that is too coarse and one that is fine enough
    for e, s in zip(errors, seconds, strict=True):
        for finer, longer in zip(errors, seconds, strict=True):
            if finer <= error < e and s < longer and finer > 0:
                part = math.log(e / error) / math.log(e / finer)
                found = min(found, s * (longer / s) ** part)
    return found
