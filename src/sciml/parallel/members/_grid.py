"""Cartesian grids of parameters."""

import math
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree


class ParameterGrid(eqx.Module):
    """All combinations of some axes' values, as members; made by `grid`.

    Member `i` of a grid of shape `(n0, n1, ...)` is at `np.unravel_index(i, shape)`: the last axis changes fastest. The
    grid holds only its axes and creates members as they are needed.

    Attributes:
        axes: The values along each axis, by name.
    """

    axes: dict[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values along each axis."""
        return tuple(values.shape[0] for values in self.axes.values())

    @property
    def params(self) -> dict[str, Any]:
        """All members: a dictionary of arrays with a leading axis of `len(grid)`."""
        return self.take(np.arange(len(self)))

    def __len__(self) -> int:
        """The number of members."""
        return math.prod(self.shape)

    def take(self, ids: np.ndarray) -> dict[str, Any]:
        """Returns the members `ids`: a dictionary of arrays with a leading axis of `len(ids)`."""
        index = np.unravel_index(ids, self.shape)
        return {name: values[i] for (name, values), i in zip(self.axes.items(), index, strict=True)}

    def on_grid(self, values: PyTree) -> PyTree:
        """Gives every leaf of `values` the grid's axes instead of its leading axis of members.

        Raises:
            ValueError: If a leaf's leading axis is not one entry per member.
        """
        return jax.tree.map(self._unflatten, values)

    def _unflatten(self, x: Any) -> Any:
        if not hasattr(x, "shape"):  # what belongs to all members, such as a function
            return x
        if x.shape[:1] != (len(self),):
            raise ValueError(
                f"`on_grid`: expected a leading axis of {len(self)} members, one per point of the grid of shape "
                f"{self.shape}, got shape {tuple(x.shape)}."
            )
        return x.reshape(self.shape + x.shape[1:])


def parameter_grid(**axes: Any) -> ParameterGrid:
    """Creates the members of a Cartesian parameter grid, for `sweep` and `ensemble`.

    The function that is run gets a dictionary with one value of every axis.

    Args:
        axes: The values along each axis: arrays or lists with a leading axis of any length.

    Returns:
        A `ParameterGrid`; `shape` has one entry per axis in the order given.

    Raises:
        ValueError: If there is no axis, or one is a scalar or empty.

    Example:
        ```python
        import numpy as np
        from sciml import parallel

        points = parallel.parameter_grid(a=np.linspace(0.0, 1.0, 3), b=np.linspace(0.0, 2.0, 5))
        result = parallel.sweep(lambda p: p["a"] + p["b"], points, progress=False)
        surface = result.on_grid()  # surface[i, j] belongs to a[i] and b[j]
        assert surface.shape == (3, 5)
        np.testing.assert_allclose(surface[2, 4], 3.0)
        ```
    """
    if not axes:
        raise ValueError(
            "`parameter_grid` requires at least one axis, such as `parameter_grid(beta=np.linspace(0, 1, 10))`."
        )
    values = {name: x if isinstance(x, jax.Array) else np.asarray(x) for name, x in axes.items()}
    for name, x in values.items():
        if x.dtype == object:
            raise ValueError(f"`grid`: axis `{name}` must be an array of numbers, got {axes[name]!r}.")
        if x.ndim == 0:
            raise ValueError(
                f"`grid`: axis `{name}` must have a leading axis of values, got a scalar. "
                "Pass values that all members share as `shared`."
            )
        if x.shape[0] == 0:
            raise ValueError(f"`grid`: axis `{name}` is empty. Pass at least one value.")
    return ParameterGrid(values)
