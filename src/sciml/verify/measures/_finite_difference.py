"""Gradients by finite differences, to check automatic ones."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree


def finite_difference_gradient(fn: Callable[[PyTree], Array], x: PyTree, *, step: float | None = None) -> PyTree:
    r"""Returns the gradient of a scalar function by central differences.

    Every element is moved by $\pm h$ and the function evaluated twice, outside of any tracing; the
    error is of order $h^2$ plus rounding over $h$, about 1e-10 for a function of ordinary size.

    Args:
        fn: A function of one PyTree with one real number as its value.
        x: The PyTree; its floating-point arrays must be float64. Other leaves are kept.
        step: The step $h$ relative to the size of the element (or to 1, for elements below 1e-3);
            the cube root of the precision, 6e-6, if None.

    Returns:
        A PyTree like `x` with the derivatives as NumPy arrays, None for leaves that are not floating-point arrays.

    Raises:
        ValueError: If an array is not float64 (in float32, rounding leaves three digits), or if
            there is no floating-point array.

    Example:
        ```python
        import jax
        import numpy as np
        from sciml.verify.measures._finite_difference import finite_difference_gradient

        with jax.enable_x64(True):
            gradient = finite_difference_gradient(lambda x: (x["a"] ** 3).sum(), {"a": np.arange(3.0)})
            assert np.allclose(gradient["a"], [0.0, 3.0, 12.0], atol=1e-8)
        ```
    """
    leaves, treedef = jax.tree.flatten(x)
    relative = float(np.finfo(np.float64).eps) ** (1 / 3) if step is None else step
    for path, leaf in jax.tree_util.tree_leaves_with_path(x):
        if eqx.is_inexact_array(leaf) and leaf.dtype != np.float64:
            raise ValueError(
                f"finite differences need float64, but `x{jax.tree_util.keystr(path)}` is "
                f"{leaf.dtype}. Enable x64 and convert it."
            )
    if not any(eqx.is_inexact_array(leaf) for leaf in leaves):
        raise ValueError("`x` contains no floating-point array, so there is nothing to differentiate.")

    def evaluate(i, values):
        moved = [*leaves[:i], jnp.asarray(values), *leaves[i + 1 :]]
        return float(fn(jax.tree.unflatten(treedef, moved)))

    gradient = []
    for i, leaf in enumerate(leaves):
        if not eqx.is_inexact_array(leaf):
            gradient.append(None)
            continue
        base = np.asarray(leaf, np.float64)
        slopes = np.zeros_like(base)
        for index in np.ndindex(base.shape):
            size = abs(base[index])
            h = relative * (size if size >= 1e-3 else 1.0)
            up, down = base.copy(), base.copy()
            up[index] += h
            down[index] -= h
            # Divide by the distance after rounding, not by 2 h.
            slopes[index] = (evaluate(i, up) - evaluate(i, down)) / (up[index] - down[index])
        gradient.append(slopes)
    return jax.tree.unflatten(treedef, gradient)


def check_gradient(
    fn: Callable[[PyTree], Array],
    x: PyTree,
    *,
    gradient: Any = None,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    step: float | None = None,
) -> float:
    """Checks a gradient against finite differences, element by element.

    Args:
        fn: A function of one PyTree with one real number as its value.
        x: The PyTree; its floating-point arrays must be float64.
        gradient: The gradient to check, a PyTree like `x`; `eqx.filter_grad(fn)(x)` if None.
        rtol: The allowed error relative to the element of the gradient.
        atol: The allowed error if the derivative is nearly zero.
        step: The relative step of the differences; see `finite_difference_gradient`.

    Returns:
        The largest error over the allowed one, at most 1.

    Raises:
        AssertionError: If an element is wrong; the message names the worst.
        ValueError: If an array is not float64, or if there is no floating-point array.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import verify
        from sciml.models import Pendulum

        def height(model):
            return model(0.0, jnp.array([1.0, 0.0]), None)[1]

        with jax.enable_x64(True):
            assert verify.check_gradient(height, Pendulum()) <= 1.0
        ```
    """
    expected = finite_difference_gradient(fn, x, step=step)
    gradient = eqx.filter_grad(fn)(x) if gradient is None else gradient
    gradient = eqx.filter(gradient, eqx.is_inexact_array)
    pairs = zip(jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(gradient), strict=True)
    worst, where = 0.0, ""
    for (path, want), got in pairs:
        got = np.asarray(got, np.float64)
        if got.shape != want.shape:
            raise AssertionError(
                f"the gradient of `x{jax.tree_util.keystr(path)}` has shape {got.shape}, but should have {want.shape}."
            )
        ratio = np.abs(got - want) / (atol + rtol * np.abs(want))
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        if ratio.size and ratio.max() > worst:
            worst, at = float(ratio.max()), np.unravel_index(np.argmax(ratio), ratio.shape)
            index = f"[{', '.join(str(int(k)) for k in at)}]" if at else ""
            where = f"x{jax.tree_util.keystr(path)}{index}: got {got[at]}, expected {want[at]}"
    if worst > 1:
        raise AssertionError(f"the gradient is wrong by {worst:.3g} times the tolerance at {where}.")
    return worst
