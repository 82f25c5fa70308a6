"""What a sweep returns."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PyTree

from .._status import Status
from ._grid import Grid
from ._members import expand, is_array, take


class SweepResult(eqx.Module):
    """The results of a `sweep`, on the host.

    Attributes:
        values: What the function returned, NumPy arrays with a leading axis of members.
        status: One `Status` code per member, int32.
        members: The members as they were given: a PyTree with a leading axis, or a `Grid`.
        seconds: How long the sweep took, compilation included.
    """

    values: PyTree
    status: Int[np.ndarray, " members"]
    members: PyTree
    seconds: float

    @property
    def n(self) -> int:
        """The number of members."""
        return self.status.shape[0]

    @property
    def failed(self) -> Int[np.ndarray, " failed"]:
        """The ids of the members that failed."""
        return np.flatnonzero(self.status)

    @property
    def params(self) -> PyTree:
        """The parameters of all members, with a leading axis of `n`."""
        return expand(self.members)

    @property
    def grid(self) -> Grid | None:
        """The grid that the members came from, if they did."""
        return self.members if isinstance(self.members, Grid) else None

    def member(self, i: int) -> PyTree:
        """Returns the result of member `i`, without the leading axis."""
        i = self._check_id(i)
        return jax.tree.map(lambda x: x[i] if is_array(x) else x, self.values)

    def member_params(self, i: int) -> PyTree:
        """Returns the parameters of member `i`, to run it alone."""
        one = take(self.members, np.asarray([self._check_id(i)]))
        return jax.tree.map(lambda x: x[0] if is_array(x) else x, one)

    def on_grid(self, values: PyTree = None) -> PyTree:
        """Gives `values` the axes of the grid that was swept in place of the axis of members.

        Args:
            values: A PyTree of arrays with a leading axis of members, such as `result.status`;
                the sweep's own `values` by default.

        Raises:
            ValueError: If the members did not come from a grid, or a leading axis does not fit.
        """
        if self.grid is None:
            raise ValueError("`on_grid`: this sweep ran over plain members; only one over `parallel.grid` has a grid.")
        return self.grid.on_grid(self.values if values is None else values)

    def plot(self, values: PyTree = None, **options: Any) -> Any:
        """Draws one number per member over a grid of two parameters; see `sciml.plot.surface`. Needs matplotlib.

        Args:
            values: An array with a leading axis of members; the sweep's own `values` by default.
            options: What `sciml.plot.surface` takes, such as `log=True`.

        Raises:
            ValueError: If the members did not come from a grid of two axes of numbers, or there is more than one
                number per member.
        """
        from ..plot import surface  # a convenience for people at a prompt, as `Solution.plot` is

        leaves = jax.tree.leaves(self.on_grid(values))
        assert self.grid is not None  # `on_grid` has refused
        axes = self.grid.axes
        if len(axes) != 2 or len(leaves) != 1 or leaves[0].ndim != 2:
            shapes = [tuple(x.shape) for x in leaves]
            raise ValueError(
                f"`plot` draws one number per member over a grid of two axes, but this grid has the axes {list(axes)} "
                f"and the values the shapes {shapes}. Choose a number, such as `result.plot(result.values[:, 0])`."
            )
        (x_name, x), (y_name, y) = axes.items()
        options = {"labels": (x_name, y_name, "value")} | options
        return surface(x, y, leaves[0], **options)

    def summary(self) -> str:
        """Says how many members failed, from which cause, and where in the parameters they lie."""
        lines = [f"{self.n} members in {self.seconds:.3g} s: {self.n - self.failed.size} successful"]
        if self.failed.size:
            lines[0] += f", {self.failed.size} failed"
        for code in np.unique(self.status[self.failed]):
            ids = np.flatnonzero(self.status == code)
            shown = ", ".join(map(str, ids[:10])) + (", ..." if ids.size > 10 else "")
            name, message = _explain(int(code))
            lines.append(f"  {name}: {ids.size} (members {shown}). {message}".rstrip())
            lines += _ranges(self.params, ids)
        return "\n".join(lines)

    def _check_id(self, i: int) -> int:
        if not -self.n <= i < self.n:
            raise IndexError(f"this sweep has members 0 to {self.n - 1}, got {i}.")
        return int(i)


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
