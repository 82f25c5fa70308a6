"""The order of accuracy in space that an operator or a model shows."""

from collections.abc import Callable, Sequence

import numpy as np

from ._order import ObservedOrder, fitted


def order_in_space(error: Callable[[int], object], cells: Sequence[int] = (16, 32, 64)) -> ObservedOrder:
    """Measures the order of accuracy of anything that is computed on a grid.

    Manufacture the solution: choose a smooth function, apply the exact operator to it with `jax.grad`, and compare. For
    the order at walls give the conditions the values of that function there.

    Args:
        error: A function from the number of cells along an axis to the error on that grid, a number.
        cells: Numbers of cells, at least two; `dts` of the result holds their inverses.

    Returns:
        The order, the errors and the inverse numbers of cells. Where errors hardly fall, a warning says so.

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
