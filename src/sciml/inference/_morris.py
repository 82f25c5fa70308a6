"""`morris_effects`: which parameters a result depends on at all, from few evaluations."""

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


class MorrisEffects(eqx.Module):
    r"""Elementary effects of parameters on a result; what `morris_effects` returns.

    All are in the result's units, for a parameter that goes from one end of its range to the other.

    Attributes:
        names: The parameters' names, in the order of the last axis.
        mean: $\mu_i$, the mean effect, which cancels where a result rises here and falls there; shape `(*result,
            parameters)`.
        mean_absolute: $\mu^*_i$, the mean of its modulus: near zero for parameters that may be left as they are.
        deviation: $\sigma_i$, how much effects differ from place to place: zero where the result is linear in the
            parameter and it acts alone.
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
    parameters. $n (d + 1)$ evaluations say which parameters matter; `sobol_indices` says how much, for more. All
    of them are members of `sciml.parallel.ensemble`: lanes, over all devices.

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
        TypeError: If an entry of `bounds` is none.

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
        raise ValueError("`morris_effects(n=1)` cannot say how effects differ: take two walks or more.")
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
            f"the effect of `{ranged.names[int(count.argmin())]}` is finite in {count.min()} of {n} walks: take more "
            "of them, or ranges in which `fn` is finite."
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
