r"""One step of an explicit method on a stencil, as an update of several stages.

A stage of a Runge-Kutta method reads the neighbours of one point in time only, the stage before. So every stage is a
separate function: it computes the slope at each cell from the neighbours of the stage's state $Y_i$, then the state
$Y_{i+1}$ of the next stage, and keeps the values that later stages need of the cell itself. That is either $y$ and the
slopes so far, or what they add up to in each of the later states, $y + h \sum_{j \le i} a_{mj} k_j$ for $m > i + 1$,
whichever is less: three arrays for the classical method of order four, four for Tsit5 where there are six slopes. Ghost
cells are computed for each $Y_i$ by its boundary conditions.

Velocity Verlet is, but for half a kick before the first step and after the last, a kick and a drift: one function.
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array

from ...kernels.stencil import NotForKernelsError, StencilRates, StencilUpdate
from ...kernels.stencil._rates import update_by
from ..methods._stepper import AbstractStepper
from ..methods.explicit._runge_kutta import RungeKutta
from ..methods.mechanical._verlet import Verlet

OTHER_METHOD = "its method is not an explicit Runge-Kutta or Verlet method"
"""Why other methods are not for kernels."""

_Row = tuple[float, ...]


def update_of(stepper: AbstractStepper, rates: StencilRates) -> StencilUpdate:
    """Returns the update of one step; its parameters are the step's length and the parameters of the rates.

    Raises:
        NotForKernelsError: If the method is not one whose steps are such updates.
    """
    stages: tuple[Callable, ...]
    if isinstance(stepper, RungeKutta):
        count = stepper.evaluations
        rows, weights = stepper.rows[:count], stepper.weights[:count]
        stages, slots = _runge_kutta(rows, weights, rates)
    elif isinstance(stepper, Verlet):
        stages, slots = tuple(_kick_and_drift(*pair, rates) for pair in _composed(stepper.fractions)), 1
    else:
        raise NotForKernelsError(OTHER_METHOD)
    inner = tuple(_slot(name, n) for n in range(1, slots) for name in rates.fields)
    return update_by(rates, stages[0] if len(stages) == 1 else stages, inner)


def _slot(name: str, number: int) -> str:
    return f"{name} {number}" if number else name


def _runge_kutta(rows: tuple[_Row, ...], weights: _Row, rates: StencilRates) -> tuple[tuple[Callable, ...], int]:
    """The functions of the stages, and how many arrays each field takes."""
    stages, goals = len(rows), (*rows, weights)
    slopes = update_by(rates, rates.fn)  # which checks what it reads and returns

    def weight(goal: int, stage: int) -> float:
        return goals[goal][stage] if stage < len(goals[goal]) else 0.0

    def wanted(done: int) -> list[int]:
        """The computed slopes that later states need, in addition to the next one."""
        return [j for j in range(done) if any(weight(m, j) for m in range(done + 1, stages + 1))]

    def as_sums(done: int) -> bool:
        """Whether sums are kept instead of slopes after a number of stages, and from then on."""
        return any(0 < n and stages - n <= 1 + len(wanted(n)) for n in range(done + 1))

    def count(done: int) -> int:
        """The number of arrays kept after a number of stages, with the state of the next one."""
        kept = stages - done if as_sums(done) else 1 + len(wanted(done))
        return 1 if done in (0, stages) else 1 + kept

    slots = max(count(done) for done in range(stages + 1))

    def function(stage: int) -> Callable:
        def fn(nb: Callable[..., Array], params: Any) -> list:
            h, rest = params
            like = nb(rates.fields[0])
            rate = slopes.new_values(nb, rest, like)
            arrays = [advanced(name, nb, h, k) for name, k in zip(rates.fields, rate)]
            return [arrays[f][n] if n < len(arrays[f]) else like * 0 for n in range(slots) for f in range(len(arrays))]

        def advanced(name: str, nb: Callable[..., Array], h: Array, k: Array) -> list[Array]:
            """A field's arrays after the stage: the state of the next one, and the other kept values."""

            def sums(goal: int) -> Array:
                """The state of a later stage, as far as it is known."""
                if stage and as_sums(stage):
                    so_far = nb(_slot(name, goal - stage))
                    return so_far + h * (weight(goal, stage) * k) if weight(goal, stage) else so_far
                kept = dict(zip(wanted(stage), (nb(_slot(name, 2 + n)) for n in range(len(wanted(stage))))))
                terms = [weight(goal, j) * s for j, s in (*kept.items(), (stage, k)) if weight(goal, j)]
                start = nb(_slot(name, 1) if stage else name)
                return start + h * sum(terms[1:], terms[0]) if terms else start

            done = stage + 1
            if as_sums(done) or done == stages:
                return [sums(goal) for goal in range(done, stages + 1)]
            here = dict(zip(wanted(stage), (nb(_slot(name, 2 + n)) for n in range(len(wanted(stage)))))) | {stage: k}
            start = nb(_slot(name, 1) if stage else name)
            return [sums(done), start, *(here[j] for j in wanted(done))]

        return fn

    return tuple(map(function, range(stages))), slots


def _composed(fractions: _Row) -> list[tuple[float, float]]:
    """Kicks and drifts as fractions of the step; half of the last part's kick belongs to the step before."""
    return [((before + part) / 2, part) for before, part in zip((fractions[-1], *fractions[:-1]), fractions)]


def _kick_and_drift(kick: float, drift: float, rates: StencilRates) -> Callable:
    slopes, half = update_by(rates, rates.fn), len(rates.fields) // 2

    def fn(nb: Callable[..., Array], params: Any) -> list:
        h, rest = params
        positions, speeds = rates.fields[:half], rates.fields[half:]
        forces = slopes.new_values(nb, rest, nb(rates.fields[0]))[half:]
        v = [nb(name) + kick * h * a for name, a in zip(speeds, forces)]
        return [nb(name) + drift * h * w for name, w in zip(positions, v)] + v

    return fn
