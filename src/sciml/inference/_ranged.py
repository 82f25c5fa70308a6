"""A function of a model, some of whose parameters lie in ranges: what analyses of sensitivity evaluate."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Float

from ..parallel import ensemble
from ..training._selection import indices_of, leaf_names


class Ranged:
    """A function of a model as one of the numbers in its ranges, evaluated for many of these as members.

    Attributes:
        names: The parameters' names.
        distributions: A distribution of `scipy.stats` for each of them.
        shape: The shape of a result.

    Args:
        fn: `fn(model)`, one array of real numbers.
        model: The model.
        bounds: As those of `sobol_indices`.
        mesh: The devices, or None for all of them.
        block: How many members run side by side, or None.

    Raises:
        ValueError: If ranges make no sense.
        TypeError: If the function is none, or an entry of `bounds` is none.
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
        raise ValueError(f"`bounds` must be a list of tuples, at least one, but is {bounds!r}.")
    for entry in bounds:
        if not (isinstance(entry, Sequence) and len(entry) in (2, 3) and callable(entry[0])):
            raise TypeError(
                "each entry of `bounds` must be a tuple `(selector, lower, upper)` or `(selector, distribution)`, but "
                f"got {entry!r}."
            )
        if len(entry) == 3:
            lower, upper = (float(np.asarray(x)) for x in entry[1:])
            if not (np.isfinite([lower, upper]).all() and lower < upper):
                raise ValueError(f"a range must have a lower end below its upper end, but got {lower} and {upper}.")
            distribution = scipy.stats.uniform(lower, upper - lower)
        else:
            distribution = entry[1]
            if not callable(getattr(distribution, "ppf", None)):
                raise TypeError(f"a distribution in `bounds` must be one of `scipy.stats`, but got {distribution!r}.")
        for i in indices_of(model, entry[0], "bounds"):
            if not eqx.is_inexact_array(leaves[i]):
                raise TypeError(f"`bounds` picks `{paths[i]}`, which is no floating-point array.")
            if i in slots:
                raise ValueError(f"`bounds` picks `{paths[i]}` twice.")
            slots.append(i)
            shape = leaves[i].shape
            own = [paths[i] + (f"[{','.join(map(str, at))}]" if shape else "") for at in np.ndindex(*shape)]
            names += own
            distributions += [distribution] * len(own)
    return slots, distributions, tuple(names)
