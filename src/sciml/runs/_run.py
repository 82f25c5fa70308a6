"""The result of `simulate`."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, PyTree, Real

from .._status import raise_for_status
from ..solvers.events._occurrences import Occurrences
from ..stores._abstract import AbstractStore
from ..stores._pytree_names import name_of
from ._frames import Frames, Leaf


def to_dataset(
    leaves: dict[str, Leaf],
    ts: np.ndarray,
    members: int | None,
    space: dict[str, list[float]] | None,
    attributes: dict[str, Any],
) -> Any:
    """Returns a dataset with one lazily read variable for each leaf.

    Args:
        leaves: By name.
        ts: The times.
        members: The number of members, or None.
        space: The coordinates of a field by axis, or None.
        attributes: The attributes of the dataset.

    Raises:
        ImportError: If xarray is not installed.
    """
    try:
        import xarray
        from xarray.backends import BackendArray
        from xarray.core import indexing
    except ImportError as error:
        raise ImportError("`to_xarray` requires xarray: `pip install 'sciml-jax[io]'`.") from error

    class Lazy(BackendArray):
        def __init__(self, leaf: Leaf):
            self.leaf, self.shape, self.dtype = leaf, leaf.shape, leaf.dtype

        def __getitem__(self, key: Any) -> Any:
            support = indexing.IndexingSupport.BASIC
            return indexing.explicit_indexing_adapter(key, self.shape, support, self.leaf.__getitem__)

    space = {} if space is None else space
    if len(leaves) == 1 and set(space) & set(leaves):  # the one array of a state is called y, as an axis may be
        leaves = {"u": leaf for leaf in leaves.values()}
    space = {} if set(space) & set(leaves) else space
    extents = tuple(map(len, space.values()))
    variables: dict[str, Any] = {}
    coordinates = {"time": ts} if members is None else {"time": ts, "member": np.arange(members)}
    for name, leaf in leaves.items():
        lead = 1 if members is None else 2
        is_field = bool(space) and leaf.shape[lead:][-len(extents) :] == extents
        dims = [*coordinates][:lead]
        dims += [f"{name}_{i}" for i in range(len(leaf.shape) - lead - (len(extents) if is_field else 0))]
        dims += list(space) if is_field else []
        variables[name] = xarray.Variable(dims, indexing.LazilyIndexedArray(Lazy(leaf)))
        coordinates |= {axis: np.asarray(x) for axis, x in space.items()} if is_field else {}
    return xarray.Dataset(variables, coordinates, attributes)


class Run:
    """The result of `simulate` and `iterate`: frames that are read on demand, and the end of the run.

    `len(run)` is the number of frames, `run[i]` one of them, `run[i:j]` and `run[[i, j]]` some with times first,
    `run.values` all. A frame is the result of `output` or the state, as NumPy arrays, with members, if any, in the
    first axis.

    Attributes:
        ts: The times of the frames.
        y: The last state, of every member.
        status: A code of `sciml.Status`, per member.
        t_reached: The time up to which the solution is good, per member.
        accepted: The number of accepted steps, per member.
        rejected: The number of rejected steps, per member.
        events: The record of events, `Occurrences` with members first; None without events, and for a run that was
            loaded.
        finished: Whether there is nothing left to do; otherwise the same call resumes it.
        reason: Why the run ended, in a sentence.
        seconds: How long this call took, compilation included.
        store: The store of the frames.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        run = sciml.simulate(
            sciml.models.Lorenz63(), jnp.ones(3), t0=0.0, t1=10.0, save_every=0.5, store="lorenz", progress=False
        )
        assert len(run) == 21 and run[3].shape == (3,) and run[2:5].shape == (3, 3)
        assert sciml.runs.read_run("lorenz")[3].shape == (3,)
        ```
    """

    ts: Real[np.ndarray, " frames"]
    y: PyTree
    status: Int[np.ndarray, "*members"]
    t_reached: Real[np.ndarray, "*members"]
    accepted: Int[np.ndarray, "*members"]
    rejected: Int[np.ndarray, "*members"]
    finished: bool
    reason: str
    seconds: float
    store: AbstractStore
    events: Occurrences | None = None

    def __init__(
        self,
        frames: Frames,
        store: AbstractStore,
        members: int | None,
        *,
        space: dict[str, list[float]] | None = None,
        **found: Any,
    ):
        self._frames, self._members, self._space, self.store = frames, members, space, store
        for name, value in found.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"Run({len(self)} frames, {self.reason})"

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, at: int | slice | Sequence[int] | np.ndarray) -> PyTree:
        return self._frames[at]

    def __iter__(self) -> Iterator[PyTree]:
        return iter(self._frames)

    @property
    def values(self) -> PyTree:
        """All frames, with times first on every leaf; they must fit into memory."""
        return self._frames[:]

    @property
    def ys(self) -> PyTree:
        """The same as `values`, by the name that a `Solution` has for it, so that `sciml.plot` draws a run too."""
        return self.values

    def raise_if_failed(self) -> "Run":
        """Returns the run, or raises one error with the number, the indices and the causes of failed members.

        Raises:
            SolveError: If any member failed.
        """
        raise_for_status(self.status, where="simulate", reached=self.t_reached)
        return self

    def to_xarray(self) -> Any:
        """Returns the frames as an `xarray.Dataset`, read when they are computed with. Needs xarray.

        There is a variable for each leaf of a frame, with the dimensions `time`, `member` where there are members, and
        one for each axis of the leaf. The axes of a field on the model's `Grid` are called `x`, `y`, `z` and have its
        coordinates. Selecting by time reads only the blocks that hold these times; `.chunk()` gives dask arrays.

        Raises:
            ValueError: If there is no frame.
        """
        pass

        if len(self) == 0:
            raise ValueError("This run has no frames. Pass `save_every` or `saveat` to save some.")
        names = [name_of(path) for path, _ in jax.tree_util.tree_leaves_with_path(self[0])]
        leaves = {"y" if n == "value" else n: self._frames.leaf(i) for i, n in enumerate(names)}
        return to_dataset(leaves, np.asarray(self.ts), self._members, self._space, {"reason": self.reason})
