"""The result of a sweep."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PyTree

from ..._status import Status, raise_for_status
from ..members._grid import ParameterGrid
from ..members._pytree import expand, is_array, take

Axes = Mapping[str, Any]
"""The axes of some values after the axis of members: for each value a mapping of names to coordinates, in order."""


def to_dataset(result: Any, axes: Axes) -> Any:
    """Returns the values of a `SweepResult`, its status and attempts as an `xarray.Dataset`.

    Raises:
        ImportError: If xarray is not installed.
        ValueError: If the sweep kept no values of its members, or `axes` do not fit them.
    """
    try:
        import xarray
    except ImportError as error:
        raise ImportError(
            "`to_xarray` requires xarray: `pip install 'sciml-jax[io]'` or `pip install xarray`."
        ) from error
    if result.values is None:
        raise ValueError("`to_xarray`: this sweep did not store the values of its members. See `reduced`.")
    values = _named(result.values, "value")
    variables = {"attempts": result.attempts, **values, "status": result.status}
    members = result.members
    if isinstance(members, ParameterGrid) and all(np.ndim(x) == 1 for x in members.axes.values()):
        dims = list(members.axes)
        coords = {name: np.asarray(x) for name, x in members.axes.items()}
        variables = {name: members.on_grid(x) for name, x in variables.items()}
    else:
        dims, coords = ["member"], {"member": np.arange(result.n)}
        for name, x in _named(expand(members), "parameter").items():
            if x.ndim == 1 and name != "member":
                coords[name] = ("member", x)
    coords |= _coordinates(axes, {name: variables[name].shape[len(dims) :] for name in values}, [*coords, *variables])
    found = {}
    for name, x in variables.items():
        own = list(axes.get(name, ()))
        name = f"{name}_value" if name in coords else name
        found[name] = (dims + own + [f"{name}_{i}" for i in range(len(own), x.ndim - len(dims))], x)
    dataset = xarray.Dataset(found, coords=coords)
    # the names of the codes, as the CF conventions have them
    dataset["status_value" if "status" in coords else "status"].attrs |= {
        "flag_values": np.array([int(code) for code in Status], np.int32),
        "flag_meanings": " ".join(code.name for code in Status),
    }
    return dataset


def _named(tree: Any, alone: str) -> dict[str, np.ndarray]:
    """Returns the arrays of a PyTree by their paths, with points between."""
    found = {}
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        if is_array(x) and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            found[jax.tree_util.keystr(path, simple=True, separator=".") or alone] = np.asarray(x)
    return found


def _coordinates(axes: Axes, shapes: dict[str, tuple[int, ...]], taken: Sequence[str]) -> dict[str, np.ndarray]:
    """Returns the coordinates along the axes that were named, which must fit the values.

    Args:
        axes: Names and coordinates of the first axes of some values.
        shapes: The shape of each value behind the members.
        taken: Names that mean something else.
    """
    found: dict[str, np.ndarray] = {}
    for value, own in axes.items():
        if value not in shapes or not isinstance(own, Mapping):
            example = f"`axes={{{next(iter(shapes), 'y')!r}: {{'time': ts}}}}`"
            raise ValueError(
                f"`to_xarray(axes=...)` must map names of values to their axes, as in {example}; the values are "
                f"{list(shapes)}, got {value!r}: {own!r}."
            )
        lengths = tuple(np.size(x) for x in own.values())
        if lengths != shapes[value][: len(own)]:
            raise ValueError(
                f"`to_xarray(axes=...)`: the value {value!r} of a member has shape {shapes[value]}, but its axes "
                f"{list(own)} have {list(lengths)} coordinates."
            )
        for name, x in own.items():
            if name in taken or not np.array_equal(found.setdefault(name, np.asarray(x)), x):
                raise ValueError(
                    f"`to_xarray(axes=...)`: the axis {name!r} of {value!r} has the name of a parameter, a value or an "
                    "axis with other coordinates. Choose another name."
                )
    return found


# A sweep in a few lines: how many members failed, where in the parameters, and why.
def summarise(result: Any) -> str:
    """Returns the summary of a `SweepResult`."""
    lines = [f"{result.n} members in {result.seconds:.3g} s: {result.n - result.failed.size} successful"]
    if result.failed.size:
        lines[0] += f", {result.failed.size} failed"
    if result.stored:
        lines[0] += f"; {result.stored} were in the store"
    if result.efficiency is not None:
        lines.append(f"  lane efficiency {result.efficiency:.2f} in blocks of {result.block}")
    again = result.attempts > 1
    if again.any():
        good = result.status == 0
        each = [np.count_nonzero(good & (result.attempts == i)) for i in range(2, result.attempts.max() + 1)]
        by = ", ".join(f"{count} by retry {i}" for i, count in enumerate(each, 1) if count)
        lines.append(f"  {np.count_nonzero(again)} retried, {sum(each)} recovered" + (f": {by}" if by else ""))
    params = expand(result.members) if result.failed.size else None
    for code in np.unique(result.status[result.failed]):
        ids = np.flatnonzero(result.status == code)
        shown = ", ".join(map(str, ids[:10])) + (", ..." if ids.size > 10 else "")
        name, message = _explain(int(code))
        lines.append(f"  {name}: {ids.size} (members {shown}). {message}".rstrip())
        lines += _ranges(params, ids)
    return "\n".join(lines)


def _explain(code: int) -> tuple[str, str]:
    try:
        return Status(code).name, Status(code).message
    except ValueError:  # from a result type of the user's own
        return f"status {code}", ""


def _ranges(params: PyTree, ids: np.ndarray) -> list[str]:
    lines = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not is_array(leaf) or leaf.size == 0:
            continue
        if not (jnp.issubdtype(leaf.dtype, jnp.integer) or jnp.issubdtype(leaf.dtype, jnp.floating)):
            continue  # random keys, booleans and complex numbers have no range
        there = leaf[ids]
        lines.append(f"    params{jax.tree_util.keystr(path)}: {_range(there)} (all members: {_range(leaf)})")
    return lines


def _range(values: np.ndarray) -> str:
    known = values[~np.isnan(values)]
    missing = f"{values.size - known.size} NaN" if known.size < values.size else ""
    if known.size == 0:
        return missing
    span = f"{known.min():.6g} to {known.max():.6g}"
    return f"{span}, {missing}" if missing else span


class SweepResult(eqx.Module):
    """The results of a `sweep`, on the host.

    Attributes:
        values: The results of the function, NumPy arrays with a leading axis of members; None if they were reduced.
        status: One `Status` code per member, int32.
        members: The members as they were given: a PyTree with a leading axis, a `ParameterGrid` or made by `generate`.
        seconds: The duration of this call, including compilation.
        reduced: The results of the reductions, if there were any.
        attempts: The number of runs of each member, int32; more than one if it was retried.
        n_steps: Each member's own steps and the steps executed on its lane, of shape `(members, 2)`; None if the
            function returned no solution with them.
        block: The number of members that ran side by side.
        stored: The number of members that this call found in its store, and did not run.
    """

    values: PyTree
    status: Int[np.ndarray, " members"]
    members: PyTree
    seconds: float
    reduced: PyTree
    attempts: Int[np.ndarray, " members"]
    n_steps: Int[np.ndarray, "members 2"] | None
    block: int
    stored: int = 0

    def __str__(self) -> str:
        return self.summary()

    @property
    def n(self) -> int:
        """The number of members."""
        return self.status.shape[0]

    @property
    def failed(self) -> Int[np.ndarray, " failed"]:
        """The ids of the members that failed."""
        return np.flatnonzero(self.status)

    @property
    def efficiency(self) -> float | None:
        """The members' own steps over those executed on all lanes: 1 where no member waited for another."""
        return None if self.n_steps is None else float(self.n_steps[:, 0].sum() / max(self.n_steps[:, 1].sum(), 1))

    @property
    def params(self) -> PyTree:
        """The parameters of all members, with a leading axis of `n`."""
        return expand(self.members)

    @property
    def grid(self) -> ParameterGrid | None:
        """The grid that the members came from, if they did."""
        return self.members if isinstance(self.members, ParameterGrid) else None

    def raise_if_failed(self) -> "SweepResult":
        """Returns the result, or raises one error with the number, the indices and the causes of failed members.

        Raises:
            SolveError: If any member failed.
        """
        raise_for_status(self.status, where="sweep")
        return self

    def member(self, i: int) -> PyTree:
        """Returns the result of member `i`, without the leading axis."""
        i = self._check_id(i)
        return jax.tree.map(lambda x: x[i] if is_array(x) else x, self.values)

    def member_params(self, i: int) -> PyTree:
        """Returns the parameters of member `i`, to run it separately."""
        one = take(self.members, np.asarray([self._check_id(i)]))
        return jax.tree.map(lambda x: x[0] if is_array(x) else x, one)

    def on_grid(self, values: PyTree = None) -> PyTree:
        """Gives `values` the axes of the swept grid instead of the axis of members.

        Args:
            values: A PyTree of arrays with a leading axis of members, such as `result.status`;
                the sweep's own `values` by default.

        Raises:
            ValueError: If the members did not come from a grid, or a leading axis does not fit.
        """
        if self.grid is None:
            raise ValueError("`on_grid`: this sweep has no grid. Only a sweep over `parallel.parameter_grid` has one.")
        return self.grid.on_grid(self.values if values is None else values)

    def plot(self, values: PyTree = None, **options: Any) -> Any:
        """Draws one number per member over a grid of two parameters; see `sciml.plot.surface`. Needs matplotlib.

        Args:
            values: An array with a leading axis of members, or the name of one in the sweep's `values`; by default
                those, where they are one array.
            options: Options of `sciml.plot.surface`, such as `log=True`.

        Raises:
            ValueError: If the members did not come from a grid of two axes of numbers, or there is more than one
                number per member.
        """
        from ...plot import surface  # a convenience for people at a prompt, as `Solution.plot` is

        if isinstance(values, str):
            values = self._named(values)
        leaves = jax.tree.leaves(self.on_grid(values))
        assert self.grid is not None  # `on_grid` has refused
        axes = self.grid.axes
        if len(axes) != 2 or len(leaves) != 1 or leaves[0].ndim != 2:
            shapes = [tuple(x.shape) for x in leaves]
            several = isinstance(self.values, Mapping) and values is None
            choice = f"plot({next(iter(self.values))!r})" if several else "plot(result.values[:, 0])"
            raise ValueError(
                f"`plot` draws one number per member over a grid of two axes, but this grid has axes {list(axes)} "
                f"and the values have shapes {shapes}. Choose one number, such as `result.{choice}`."
            )
        (x_name, x), (y_name, y) = axes.items()
        options = {"labels": (x_name, y_name, "value")} | options
        return surface(x, y, leaves[0], **options)

    def to_xarray(self, *, axes: Mapping[str, Any] | None = None) -> Any:
        """Returns an `xarray.Dataset` of values, status and attempts, labelled by the parameters. Needs xarray.

        The members of a grid have a dimension for each axis; others have one dimension, "member", along which every
        parameter that is a number is a coordinate. Further axes of a value named `y` are called `y_0`, `y_1` and so on.

        Args:
            axes: Names and coordinates of further axes in order, by the name of the value, which is "value" where there
                is one array: `{"y": {"time": ts, "component": ["position", "speed"]}}`.

        Raises:
            ImportError: If xarray is not installed.
            ValueError: If the sweep kept no values, or `axes` do not fit them.
        """
        return to_dataset(self, {} if axes is None else axes)

    def summary(self) -> str:
        """Reports the number of failed members, the causes, their parameters, and the results of retries."""
        return summarise(self)

    def _named(self, name: str) -> Any:
        if not isinstance(self.values, Mapping) or name not in self.values:
            known = f"are {list(self.values)}" if isinstance(self.values, Mapping) else "have no names"
            raise ValueError(f"`plot`: there are no values {name!r}; the values of this sweep {known}.")
        return self.values[name]

    def _check_id(self, i: int) -> int:
        if not -self.n <= i < self.n:
            raise IndexError(f"this sweep has members 0 to {self.n - 1}, got {i}.")
        return int(i)
