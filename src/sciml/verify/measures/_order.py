"""The order of convergence that a solver shows."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ..._types import RealScalarLike, Y
from ..._warn import warn
from ..problems._problem import Problem


class ObservedOrder(NamedTuple):
    """The measurements of `observed_order`.

    Attributes:
        order: The slope of the logarithm of the error over the logarithm of the step size, by least
            squares.
        errors: The relative error at `t1` for every step size.
        dts: The step sizes.
    """

    order: float
    errors: np.ndarray
    dts: np.ndarray


def observed_order(
    solve_fn: Callable[[Problem, RealScalarLike], Y],
    problem: Problem,
    steps: Sequence[int] = (16, 32, 64, 128),
) -> ObservedOrder:
    """Measures a solver's order of convergence on a problem whose answer is known.

    Args:
        solve_fn: A function `(problem, dt) -> y(t1)` that solves `problem` with steps of size `dt`.
        problem: The problem; it should be smooth and not stiff.
        steps: Numbers of steps from `t0` to `t1`, at least two; `dt = (t1 - t0) / n`.

    Returns:
        The order, and the errors and step sizes it was measured from. If errors hardly decrease, a warning reports it.

    Raises:
        ValueError: If there are fewer than two numbers of steps, or if an error is not finite, or
            so small that rounding hides the order.

    Example:
        ```python
        from sciml import verify

        def euler(problem, dt):
            y = problem.y0
            for n in range(round((problem.t1 - problem.t0) / dt)):
                y = y + dt * problem.model(problem.t0 + n * dt, y, None)
            return y

        measured = verify.observed_order(euler, verify.problem("logistic"), steps=(32, 64))
        assert abs(measured.order - 1.0) < 0.1
        ```
    """
    if len(set(steps)) < 2 or min(steps) < 1:
        raise ValueError(f"`steps` must be two or more different counts of steps, got {steps}.")
    span = np.asarray(problem.t1, np.float64) - np.asarray(problem.t0, np.float64)
    dts = [float(span / n) for n in steps]
    measured = [problem.error(solve_fn(problem, dt)) for dt in dts]
    errors = np.asarray([float(error) for error in measured])
    floor = max(10 * float(np.finfo(measured[0].dtype).eps), problem.accuracy)
    if not np.all(errors > floor):  # also where an error is NaN
        raise ValueError(
            f"the errors {errors} for {tuple(steps)} steps do not determine an order: all must be finite "
            f"and above {floor:.1e}, the accuracy of rounding or of the known answer. Use fewer steps if "
            "they are too small, more if they are not finite."
        )
    if not np.all(np.isfinite(errors)):
        raise ValueError(f"the errors {errors} for {tuple(steps)} steps must be finite. Use more steps.")
    sizes = np.abs(np.asarray(dts))
    return fitted(sizes, errors)


def fitted(sizes: np.ndarray, errors: np.ndarray) -> ObservedOrder:
    """Returns the order that errors show; warns where they hardly fall."""
    if errors[np.argmin(sizes)] > 0.9 * errors[np.argmax(sizes)]:
        warn(
            f"the errors {errors} hardly decrease with the sizes {sizes}, so another error dominates: the grid error "
            "of a field with smaller time steps, or rounding in float32. Compare with a fine solution "
            "on the same grid, or use float64.",
        )
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    return ObservedOrder(order=float(slope), errors=errors, dts=sizes)


def order_in_space(error: Callable[[int], object], cells: Sequence[int] = (16, 32, 64)) -> ObservedOrder:
    """Measures the order of accuracy of anything that is computed on a grid.

    Manufacture the solution: choose a smooth function, apply the exact operator to it with `jax.grad`, and compare. For
    the order at walls give the conditions the values of that function there.

    Args:
        error: A function from the number of cells along an axis to the error on that grid, a number.
        cells: Numbers of cells, at least two; `dts` of the result holds their inverses.

    Returns:
        The order, the errors and the inverse numbers of cells. If errors hardly decrease, a warning reports it.

    Raises:
        ValueError: If there are fewer than two numbers of cells, or an error is zero or not finite.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import verify
        from sciml.spatial import Gradient, Grid, Neumann

        def f(x):
            return jnp.sin(5 * x)

        def error(n):
            grid = Grid(n)
            (x,) = grid.centers
            slope = jax.grad(f)
            gradient = Gradient(grid, {"x-": Neumann(-slope(0.0)), "x+": Neumann(slope(1.0))})
            return jnp.max(jnp.abs(gradient(f(x))[0] - jax.vmap(slope)(x)))

        assert abs(verify.order_in_space(error).order - 2.0) < 0.1
        ```
    """
    if len(set(cells)) < 2 or min(cells) < 1:
        raise ValueError(f"`cells` must be two or more different numbers of cells, got {cells}.")
    errors = np.array([float(error(n)) for n in cells])  # type: ignore[arg-type]
    if not np.all(np.isfinite(errors) & (errors > 0)):
        raise ValueError(f"the errors {errors} on {tuple(cells)} cells must be positive and finite.")
    sizes = 1 / np.array(cells, np.float64)
    return fitted(sizes, errors)
