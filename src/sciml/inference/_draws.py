"""Draws from a posterior: as positions, as models, as an xarray tree."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, PyTree

from .._same_code import filter_jit
from ..training._selection import leaf_names


class Draws(eqx.Module):
    """Draws from a posterior by chains of a sampler; returned by `nuts`.

    Draws of another sampler are also supported: `Draws(density, positions)`.

    Attributes:
        density: The `LogDensity` that was sampled.
        positions: Positions, with leading axes `(chains, draws)` on every leaf.
        statistics: The sampler's statistics of each draw by name, such as whether it diverged: arrays with the same
            axes.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inference

        model = {"rate": jnp.array(2.0)}
        priors = [(lambda m: m["rate"], inference.Gamma(2.0, 1.0))]
        counts = jnp.array([3.0, 1.0])
        density = inference.log_density(model, lambda m: inference.PoissonCounts(m["rate"]), counts, priors)
        z = jnp.log(jax.random.gamma(jax.random.key(0), 6.0, (4, 500)) / 3)  # of the posterior, which is known here
        draws = inference.Draws(density, {"rate": z})
        assert abs(draws.models["rate"].mean() - 2.0) < 0.1
        ```
    """

    density: Any
    positions: PyTree
    statistics: dict[str, Any] = eqx.field(default_factory=dict)

    def __check_init__(self) -> None:
        """Checks that there are chains and draws.

        Raises:
            ValueError: If the leading axes are missing or differ.
        """
        leaves = [x for x in jtu.tree_leaves((self.positions, self.statistics)) if eqx.is_array(x)]
        shapes = {x.shape[:2] for x in leaves}
        if len(shapes) != 1 or len(next(iter(shapes))) != 2:
            raise ValueError(
                "`Draws` requires `positions` and `statistics` with leading axes (chains, draws), but their shapes "
                f"begin with {sorted(shapes)}. For one chain add an axis: `jax.tree.map(lambda z: z[None], z)`."
            )

    def __str__(self) -> str:
        chains, draws = self.shape
        first = f"{draws} draws of each of {chains} chains"
        if not hasattr(self.density, "names"):
            return first
        names = self.density.names
        width = max(9, *(len(name) for name in names[:30]))
        lines = [first, f"{'parameter':<{width}}  {'mean':>12}  {'std.':>12}  {'5%':>12}  {'95%':>12}"]
        leaves = jtu.tree_leaves(self.density.sampled(self.models))
        columns = np.concatenate([np.asarray(x, np.float64).reshape(chains * draws, -1) for x in leaves], axis=1).T
        for name, column in list(zip(names, columns, strict=True))[:30]:
            told = column.mean(), column.std(), *np.quantile(column, [0.05, 0.95])
            lines.append(f"{name:<{width}}" + "".join(f"  {value:>12.6g}" for value in told))
        lines += [f"... and {len(names) - 30} more"] if len(names) > 30 else []
        if np.any(self.statistics.get("diverging", False)):
            lines.append(f"{int(np.sum(self.statistics['diverging']))} trajectories diverged")
        return "\n".join(lines)

    @property
    def shape(self) -> tuple[int, int]:
        """How many chains, and how many draws in each."""
        return jtu.tree_leaves(self.positions)[0].shape[:2]

    @property
    def models(self) -> PyTree:
        """The model of each draw: its array leaves have the axes `(chains, draws)` before their own.

        For a function that is not a `LogDensity` these are the positions.
        """
        if not hasattr(self.density, "constrain"):
            return self.positions
        return self._each(self.density.constrain, self.positions)

    def merged(self) -> PyTree:
        """Returns the models of all chains, with one leading axis on array leaves: an ensemble for `jax.vmap`."""

        def flatten(x):
            return x.reshape(-1, *x.shape[2:]) if eqx.is_array(x) else x

        return jtu.tree_map(flatten, self.models)

    def predict(self, key: Array) -> PyTree:
        """Returns data as they might have been observed, one set for each draw: draws from the posterior predictive."""
        keys = jax.random.split(key, self.shape)
        return _pairs(self.density.predict, self.positions, keys)

    def log_likelihood(self) -> PyTree:
        """Returns the logarithm of each datum's probability for each draw, as leave-one-out validation needs it."""
        return self._each(lambda z: self.density.pointwise(self.density.constrain(z)), self.positions)

    def _each(self, function: Any, positions: PyTree) -> PyTree:
        return eqx.filter_jit(eqx.filter_vmap(eqx.filter_vmap(function)))(positions)

    def to_xarray(self, *, log_likelihood: bool = False) -> Any:
        """Returns an `xarray.DataTree` as ArviZ expects it, with groups `posterior`, `sample_stats`, `observed_data`.

        Variables are named by their paths in the model, such as `sir.beta`, in their own units, and have the dimensions
        `chain` and `draw` before their own.

        Args:
            log_likelihood: Whether to add the group `log_likelihood`, for leave-one-out validation, which evaluates
                the model for every draw.

        Raises:
            ImportError: If xarray is not installed, or older than 2024.10.
        """
        try:
            from xarray import DataTree
        except ImportError as error:
            raise ImportError("`to_xarray` requires xarray 2024.10: `pip install 'sciml-jax[inference]'`.") from error
        density = self.density
        groups = {"posterior": _dataset(dict(_named(density.sampled(self.models))), 2)}
        if self.statistics:
            groups["sample_stats"] = _dataset(self.statistics, 2)
        groups["observed_data"] = _dataset(dict(_named(density.data, "data")), 0)
        if log_likelihood:
            groups["log_likelihood"] = _dataset(dict(_named(self.log_likelihood(), "data")), 2)
        return DataTree.from_dict(groups)


@filter_jit
def _pairs(function: Any, positions: PyTree, keys: Array) -> PyTree:
    return jax.vmap(jax.vmap(function))(positions, keys)


def _named(tree: PyTree, alone: str = "model") -> list[tuple[str, Array]]:
    names = [alone if name == "model" else name for name in leaf_names(tree)]
    return list(zip(names, jtu.tree_leaves(tree), strict=True))


def _dataset(variables: dict[str, Any], lead: int) -> Any:
    import xarray

    found = {}
    for name, values in variables.items():
        values = np.asarray(values)
        own = [f"{name}_dim_{i}" for i in range(values.ndim - lead)]
        found[name] = xarray.Variable([*("chain", "draw")[:lead], *own], values)
    sizes = {"chain": 0, "draw": 1} if lead else {}
    first = np.asarray(next(iter(variables.values())))
    return xarray.Dataset(found, {name: np.arange(first.shape[axis]) for name, axis in sizes.items()})


def check_positions(density: Any, positions: PyTree, chains: int, what: str) -> PyTree:
    """Returns starts of chains, checked.

    Raises:
        ValueError: If they have not one for each chain.
    """
    known = hasattr(density, "unconstrain")  # a function of positions alone takes any
    wanted = jtu.tree_structure(density.unconstrain(density.model)) if known else jtu.tree_structure(positions)
    if jtu.tree_structure(positions) != wanted or any(
        jnp.ndim(x) == 0 or jnp.shape(x)[0] != chains for x in jtu.tree_leaves(positions)
    ):
        raise ValueError(
            f"`{what}(start=...)` must be positions with a leading axis of length {chains}, one for each chain, such "
            "as `density.laplace().sample(key, chains)`."
        )
    return positions
