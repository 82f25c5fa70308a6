"""Global sensitivity: which parameters in given ranges count for a result, by Morris' screening and Sobol's indices."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float, PyTree

from .._checks import check_count, check_key
from .._option_names import knows_other_names
from .._parameters import indices_of
from .._types import Key
from ..parallel import ensemble
from ..training._selection import leaf_names


class Ranged:
    """A function of a model as one of the numbers in its ranges, evaluated for many of these as members.

    Attributes:
        names: The parameters' names.
        distributions: A distribution of `scipy.stats` for each of them.
        shape: The shape of a result.

    Args:
        fn: `fn(model)`, one array of real numbers.
        model: The model.
        bounds: As for `sobol_indices`.
        mesh: The devices, or None for all of them.
        block: How many members run side by side, or None.

    Raises:
        ValueError: If ranges make no sense.
        TypeError: If the function is not a function, or an entry of `bounds` is invalid.
    """

    def __init__(self, fn: Any, model: Any, bounds: Any, mesh: Any, block: int | None):
        if not callable(fn):
            raise TypeError(f"`fn` must be a function `fn(model)`, but is {fn!r}.")
        model = jtu.tree_map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray | np.generic | float) else x, model)
        leaves, treedef = jtu.tree_flatten(model)
        slots, self.distributions, self.names = _read(model, leaves, bounds)
        columns = np.cumsum([0] + [int(np.size(leaves[i])) for i in slots])

        def one(row):
            own = list(leaves)
            for k, i in enumerate(slots):
                own[i] = row[columns[k] : columns[k + 1]].reshape(leaves[i].shape).astype(leaves[i].dtype)
            return jnp.ravel(jnp.asarray(fn(jtu.tree_unflatten(treedef, own))))

        self._one, self._options = one, dict(mesh=mesh, block=block)
        self.shape = jax.eval_shape(lambda m: jnp.asarray(fn(m)), model).shape

    def results(self, points: Float[np.ndarray, "members parameters"]) -> Float[np.ndarray, "members results"]:
        """Returns the results of points, which are members of `sciml.parallel.ensemble`."""
        rows = jnp.asarray(points, jnp.result_type(float))
        return np.array(ensemble(self._one, rows, **self._options), np.float64)


def _read(model: Any, leaves: list, bounds: Any) -> tuple[list[int], list[Any], tuple[str, ...]]:
    import scipy.stats

    slots, distributions, names, paths = [], [], [], leaf_names(model)
    if isinstance(bounds, str) or not isinstance(bounds, Sequence) or not bounds:
        raise ValueError(f"`bounds` must be a list of at least one tuple, but is {bounds!r}.")
    for entry in bounds:
        if not (isinstance(entry, Sequence) and len(entry) in (2, 3) and callable(entry[0])):
            raise TypeError(
                "each entry of `bounds` must be a tuple `(selector, lower, upper)` or `(selector, distribution)`, but "
                f"got {entry!r}."
            )
        if len(entry) == 3:
            lower, upper = (float(np.asarray(x)) for x in entry[1:])
            if not (np.isfinite([lower, upper]).all() and lower < upper):
                raise ValueError(f"the lower end of a range must be below its upper end, but got {lower} and {upper}.")
            distribution = scipy.stats.uniform(lower, upper - lower)
        else:
            distribution = entry[1]
            if not callable(getattr(distribution, "ppf", None)):
                raise TypeError(f"a distribution in `bounds` must be one of `scipy.stats`, but got {distribution!r}.")
        for i in indices_of(model, entry[0], "bounds"):
            if not eqx.is_inexact_array(leaves[i]):
                raise TypeError(f"`bounds` selects `{paths[i]}`, which is not a floating-point array.")
            if i in slots:
                raise ValueError(f"`bounds` picks `{paths[i]}` twice.")
            slots.append(i)
            shape = leaves[i].shape
            own = [paths[i] + (f"[{','.join(map(str, at))}]" if shape else "") for at in np.ndindex(*shape)]
            names += own
            distributions += [distribution] * len(own)
    return slots, distributions, tuple(names)


class MorrisEffects(eqx.Module):
    r"""Elementary effects of parameters on a result; returned by `morris_effects`.

    All are in the result's units, for a parameter that goes from one end of its range to the other.

    Attributes:
        names: The parameters' names, in the order of the last axis.
        mean: $\mu_i$, the mean effect, which cancels where a result rises here and falls there; shape `(*result,
            parameters)`.
        mean_absolute: $\mu^*_i$, the mean of its modulus: near zero for parameters without influence.
        deviation: $\sigma_i$, the spread of effects between places: zero if the result is linear in the parameter
            without interactions.
        error: The standard error of $\mu^*_i$.
        n_members: How many times the function was evaluated.
        n_failed: How many of these were not finite; effects that need them are left out.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    mean: Float[np.ndarray, "*result parameters"]
    mean_absolute: Float[np.ndarray, "*result parameters"]
    deviation: Float[np.ndarray, "*result parameters"]
    error: Float[np.ndarray, "*result parameters"]
    n_members: int = eqx.field(static=True)
    n_failed: int = eqx.field(static=True)


@knows_other_names
def morris_effects(
    fn: Callable[[Any], Any] | Any,
    model: PyTree,
    bounds: Sequence[tuple] | Any,
    *,
    n: int = 32,
    levels: int = 8,
    key: Key,
    mesh: Any = None,
    block: int | None = None,
) -> MorrisEffects:
    r"""Returns how much a result changes with each parameter, by Morris's walks: a screening of many parameters.

    $$E_i = \frac{f(x + \Delta e_i) - f(x)}{\Delta}, \qquad \mu_i = \langle E_i \rangle, \quad
    \mu^*_i = \langle |E_i| \rangle, \quad \sigma_i^2 = \langle (E_i - \mu_i)^2 \rangle$$

    A walk starts at random and changes one parameter after another, in random order, by half of its range (by half of
    its probability, where a distribution is given), so that $d + 1$ evaluations give one effect of each of $d$
    parameters. $n (d + 1)$ evaluations show which parameters matter; `sobol_indices` shows by how much, for more
    evaluations. All of them are members of `sciml.parallel.ensemble`: lanes, over all devices.

    Args:
        fn: `fn(model)`, the result: one array of real numbers.
        model: The model, any PyTree.
        bounds: Tuples `(selector, lower, upper)` or `(selector, distribution)`, as for `sobol_indices`.
        n: The number of walks, two or more.
        levels: How many values each parameter takes, an even number: the middles of as many equal parts of its range.
        key: A random key, for the walks.
        mesh: The devices, from `sciml.parallel.mesh`; all of them by default.
        block: How many members run side by side, as in `ensemble`.

    Returns:
        The `MorrisEffects`.

    Raises:
        ValueError: If `n` or `levels` or ranges make no sense, or some effect is finite in less than two walks.
        TypeError: If an entry of `bounds` is invalid.

    Source:
        M. D. Morris, Factorial sampling plans for preliminary computational experiments, Technometrics 33:161, 1991;
        F. Campolongo, J. Cariboni and A. Saltelli, Environ. Model. Softw. 22:1509, 2007, for $\mu^*$.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inference

        model = {"x": jnp.zeros(3)}
        found = inference.morris_effects(
            lambda m: m["x"][0] - 3 * m["x"][1], model, [(lambda m: m["x"], 0.0, 2.0)], n=8, key=jax.random.key(0)
        )
        assert found.names == ("x[0]", "x[1]", "x[2]") and found.n_members == 32
        assert abs(found.mean - jnp.array([2.0, -6.0, 0.0])).max() < 1e-5
        ```
    """
    n, levels = check_count(n, "n", "morris_effects"), check_count(levels, "levels", "morris_effects")
    if n < 2:
        raise ValueError("`morris_effects(n=...)` must be at least 2 to estimate the spread of effects, but is 1.")
    if levels % 2:
        raise ValueError(f"`morris_effects(levels=...)` must be even, but is {levels}.")
    ranged = Ranged(fn, model, bounds, mesh, block)
    seed = int(jax.random.bits(check_key(key, "morris_effects"), (), np.uint32))
    places, order = _walks(n, len(ranged.names), levels, np.random.default_rng(seed))
    columns = [x.ppf((places[..., i] + 0.5) / levels) for i, x in enumerate(ranged.distributions)]
    d = len(columns)
    results = ranged.results(np.stack(columns, axis=-1).reshape(n * (d + 1), d))
    failed = ~np.isfinite(results).all(axis=1)
    results[failed] = np.nan
    # by how many levels each step of a walk changed its parameter
    ways = np.take_along_axis(np.diff(places, axis=1), order[..., None], axis=2)
    steps = np.diff(results.reshape(n, d + 1, -1), axis=1) * (levels / ways)
    effects = np.empty_like(steps)
    np.put_along_axis(effects, order[..., None], steps, axis=1)  # of parameter i in place of step i
    count = np.isfinite(effects[..., 0]).sum(axis=0)
    if count.min() < 2:
        raise ValueError(
            f"the effect of `{ranged.names[int(count.argmin())]}` is finite in only {count.min()} of {n} walks. Use "
            "more walks, or ranges in which `fn` is finite."
        )

    def arranged(x: np.ndarray) -> np.ndarray:
        return np.moveaxis(x, 0, -1).reshape(*ranged.shape, d)

    return MorrisEffects(
        names=ranged.names,
        mean=arranged(np.nanmean(effects, axis=0)),
        mean_absolute=arranged(np.nanmean(np.abs(effects), axis=0)),
        deviation=arranged(np.nanstd(effects, axis=0, ddof=1)),
        error=arranged(np.nanstd(np.abs(effects), axis=0, ddof=1) / np.sqrt(count)[:, None]),
        n_members=n * (d + 1),
        n_failed=int(failed.sum()),
    )


def _walks(n: int, d: int, levels: int, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns the levels along walks, shape `(n, d + 1, d)`, and which parameter each step changes, `(n, d)`.

    A parameter changes by half of the levels, up from the lower half and down from the upper: of each level there is
    one other to go to, so that all pairs are as likely.
    """
    start = draw.integers(0, levels, (n, d))
    order = draw.permuted(np.tile(np.arange(d), (n, 1)), axis=1)
    when = np.argsort(order, axis=1)  # at which step each parameter changes
    changed = np.arange(d + 1)[None, :, None] > when[:, None, :]
    half = levels // 2
    other = np.where(start < half, start + half, start - half)
    return np.where(changed, other[:, None, :], start[:, None, :]), order


class SobolIndices(eqx.Module):
    r"""Shares of a result's variance; returned by `sobol_indices`.

    Attributes:
        names: The parameters' names, in the order of the last axis.
        first: $S_i$, the first-order share of parameter $i$, shape `(*result, parameters)`.
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

    for independent parameters $x$. Points and estimators follow `scipy.stats.sobol_indices`: low-discrepancy sequences,
    and Saltelli's scheme to share evaluations, $n (d + 2)$ of them for $d$ parameters. All of them are members of
    `sciml.parallel.ensemble`: lanes, over all devices.

    Args:
        fn: `fn(model)`, the result: one array of real numbers.
        model: The model, any PyTree.
        bounds: Tuples `(selector, lower, upper)` for uniform distributions, as `bounds` of `sciml.fit`, or
            `(selector, distribution)` with a distribution of `scipy.stats`. Each number of a leaf is a separate
            parameter. All other leaves stay.
        n: The number of points, a power of two.
        key: A random key, which scrambles the points.
        mesh: The devices, from `sciml.parallel.mesh`; all of them by default.
        block: How many members run side by side, as in `ensemble`; some hundreds keep memory small.

    Returns:
        The `SobolIndices`.

    Raises:
        ValueError: If `n` is not a power of two, ranges are invalid, or the result does not vary.
        TypeError: If an entry of `bounds` is invalid.

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
            raise ValueError("`fn` is not finite anywhere in `bounds`.")
        found[bad] = found[~bad].mean(axis=0)
        seen.append(found.T.reshape(-1, *lead))
        return seen[-1]

    seed = int(jax.random.bits(check_key(key, "sobol_indices"), (), np.uint32))
    rng = np.random.default_rng(seed)
    found = scipy.stats.sobol_indices(func=evaluate, n=n, dists=list(ranged.distributions), rng=rng)
    first, total = np.asarray(found.first_order), np.asarray(found.total_order)
    variance = np.var(np.concatenate(seen[:2], axis=-1), axis=-1)  # of the two independent sets of points
    if not np.all(np.isfinite(first)):
        raise ValueError("the result of `fn` is constant over `bounds`, so its variance cannot be attributed.")
    d = len(ranged.names)
    return SobolIndices(
        names=ranged.names,
        first=first.reshape(*ranged.shape, d),
        total=total.reshape(*ranged.shape, d),
        variance=variance.reshape(ranged.shape),
        n_members=n * (d + 2),
        n_failed=failed,
    )
