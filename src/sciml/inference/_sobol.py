"""`sobol_indices`: which parameters a result's variance comes from."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PyTree

from .._checks import check_count, check_key
from .._option_names import knows_other_names
from .._types import Key
from ._ranged import Ranged


class SobolIndices(eqx.Module):
    r"""Shares of a result's variance; what `sobol_indices` returns.

    Attributes:
        names: The parameters' names, in the order of the last axis.
        first: $S_i$, the share that parameter $i$ has by itself, shape `(*result, parameters)`.
        total: $S_{T_i}$, the share in which it takes part, shape `(*result, parameters)`.
        variance: The variance of the result, in the result's shape.
        n_members: How many times the function was evaluated.
        n_failed: How many of these were not finite and were replaced by the mean.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    first: Float[np.ndarray, "*result parameters"]
    total: Float[np.ndarray, "*result parameters"]
    variance: Float[np.ndarray, "*result"]
    n_members: int = eqx.field(static=True)
    n_failed: int = eqx.field(static=True)


@knows_other_names
def sobol_indices(
    fn: Callable[[Any], Any] | Any,
    model: PyTree,
    bounds: Sequence[tuple] | Any,
    *,
    n: int = 1024,
    key: Key,
    mesh: Any = None,
    block: int | None = None,
) -> SobolIndices:
    r"""Returns which shares of a result's variance come from which parameters, over all of their ranges.

    $$S_i = \frac{V(E(f \mid x_i))}{V(f)}, \qquad S_{T_i} = \frac{E(V(f \mid x_{-i}))}{V(f)}$$

    for independent parameters $x$. Points and estimators are those of `scipy.stats.sobol_indices`: low-discrepancy
    sequences, and Saltelli's way to share evaluations, $n (d + 2)$ of them for $d$ parameters. All of them are members
    of `sciml.parallel.ensemble`: lanes, over all devices.

    Args:
        fn: `fn(model)`, the result: one array of real numbers.
        model: The model, any PyTree.
        bounds: Tuples `(selector, lower, upper)` for uniform distributions, as `bounds` of `sciml.fit`, or
            `(selector, distribution)` with a distribution of `scipy.stats`. Each number of a leaf is a
            parameter of its own. All other leaves stay.
        n: The number of points, a power of two.
        key: A random key, which scrambles the points.
        mesh: The devices, from `sciml.parallel.mesh`; all of them by default.
        block: How many members run side by side, as in `ensemble`; some hundreds keep memory small.

    Returns:
        The `SobolIndices`.

    Raises:
        ValueError: If `n` is no power of two, ranges make no sense, or the result does not vary.
        TypeError: If an entry of `bounds` is none.

    Source:
        A. Saltelli and others, Variance based sensitivity analysis of model output, Comput. Phys. Commun. 181:259,
        2010.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inference

        model = {"x": jnp.zeros(()), "y": jnp.zeros(())}
        found = inference.sobol_indices(
            lambda m: m["x"] + 2 * m["y"],
            model,
            [(lambda m: m["x"], 0.0, 1.0), (lambda m: m["y"], 0.0, 1.0)],
            n=512,
            key=jax.random.key(0),
        )
        assert abs(found.first - jnp.array([0.2, 0.8])).max() < 0.02
        ```
    """
    import scipy.stats  # takes half a second, which `import sciml` need not pay

    n = check_count(n, "n", "sobol_indices")
    if n & (n - 1):
        raise ValueError(f"`sobol_indices(n=...)` must be a power of two, but is {n}.")
    ranged = Ranged(fn, model, bounds, mesh, block)
    failed, seen = 0, []

    def evaluate(points: np.ndarray) -> np.ndarray:
        """Returns the results, shape `(results, points)`, of points of shape `(parameters, points)`."""
        nonlocal failed
        lead = points.shape[1:]
        found = ranged.results(points.reshape(len(points), -1).T)
        bad = ~np.isfinite(found).all(axis=1)
        failed += int(bad.sum())
        if bad.all():
            raise ValueError("`fn` is finite nowhere in `bounds`.")
        found[bad] = found[~bad].mean(axis=0)
        seen.append(found.T.reshape(-1, *lead))
        return seen[-1]

    seed = int(jax.random.bits(check_key(key, "sobol_indices"), (), np.uint32))
    rng = np.random.default_rng(seed)
    found = scipy.stats.sobol_indices(func=evaluate, n=n, dists=list(ranged.distributions), rng=rng)
    first, total = np.asarray(found.first_order), np.asarray(found.total_order)
    variance = np.var(np.concatenate(seen[:2], axis=-1), axis=-1)  # of the two independent sets of points
    if not np.all(np.isfinite(first)):
        raise ValueError("the result does not vary over `bounds`, so that there are no shares of its variance.")
    d = len(ranged.names)
    return SobolIndices(
        names=ranged.names,
        first=first.reshape(*ranged.shape, d),
        total=total.reshape(*ranged.shape, d),
        variance=variance.reshape(ranged.shape),
        n_members=n * (d + 2),
        n_failed=failed,
    )
