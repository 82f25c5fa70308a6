"""Batches for training: the batch of a step depends only on the key and on the number of the step."""

import abc
import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ..._types import Key


class Drawn(NamedTuple):
    """A batch on its way to a step.

    Attributes:
        batch: Arrays.
        place: The state that a loader needs to continue after this batch; None if the number of the step is enough.
        epoch: Into which pass over the data it falls, from 0.
    """

    batch: PyTree
    place: np.ndarray | None
    epoch: int


class AbstractBatches(abc.ABC):
    """A source of batches."""

    constant: bool = False
    """Whether all batches are one and the same."""

    sample: Callable | None = None
    """Creates a batch within the compiled step, if batches are created there."""

    @property
    @abc.abstractmethod
    def epoch_steps(self) -> float | None:
        """The number of steps in a pass over the data; None if it is unknown."""

    @abc.abstractmethod
    def draw(self, step: int, place: np.ndarray | None) -> Iterator[Drawn]:
        """Returns the batches from a step on, without end but where a loader ends.

        Args:
            step: The number of the first one, from 0.
            place: The place that came with the last batch before it.
        """

    @abc.abstractmethod
    def example(self) -> PyTree:
        """Returns a batch, for its shapes."""


class WholeBatch(AbstractBatches):
    """All data at every step."""

    constant = True

    def __init__(self, data: PyTree):
        self._data = data

    @property
    def epoch_steps(self) -> float | None:
        """One."""
        return 1.0

    def draw(self, step: int, place: np.ndarray | None) -> Iterator[Drawn]:
        """Returns the data again and again."""
        while True:
            yield Drawn(self._data, None, step)
            step += 1

    def example(self) -> PyTree:
        """Returns the data."""
        return self._data


class RowBatches(AbstractBatches):
    r"""Rows of arrays, in an order that is shuffled for every epoch.

    The epochs follow one another without a gap: step $s$ gets places $s b$ to $(s + 1) b - 1$ of the sequence of all
    epochs, where $b$ is the size of a batch. So every row comes once in an epoch, all batches have one size, and a
    batch may end one epoch and begin the next.

    Args:
        data: Arrays with one first axis in common.
        size: The number of rows in a batch.
        key: Draws the orders.
    """

    def __init__(self, data: PyTree, size: int, key: Key):
        self._data = jax.tree.map(np.asarray, data)
        self._rows = int(jax.tree.leaves(self._data)[0].shape[0])
        self._size = size
        self._words = _words(key)
        self._orders: dict[int, np.ndarray] = {}

    @property
    def epoch_steps(self) -> float | None:
        """The number of rows divided by the batch size; it need not be an integer."""
        return self._rows / self._size

    def rows(self, step: int) -> np.ndarray:
        """Returns which rows a step gets."""
        places = step * self._size + np.arange(self._size)
        epochs, within = np.divmod(places, self._rows)
        found = np.empty(self._size, np.int64)
        for epoch in np.unique(epochs).tolist():
            chosen = epochs == epoch
            found[chosen] = self._order(epoch)[within[chosen]]
        return found

    def draw(self, step: int, place: np.ndarray | None) -> Iterator[Drawn]:
        """Returns batches of rows."""
        while True:
            rows = self.rows(step)
            yield Drawn(jax.tree.map(lambda x: x[rows], self._data), None, step * self._size // self._rows)
            step += 1

    def example(self) -> PyTree:
        """Returns the first rows."""
        return jax.tree.map(lambda x: x[: self._size], self._data)

    def _order(self, epoch: int) -> np.ndarray:
        if epoch not in self._orders:
            self._orders = {e: order for e, order in self._orders.items() if e == epoch - 1}
            self._orders[epoch] = np.random.default_rng([*self._words, epoch]).permutation(self._rows)
        return self._orders[epoch]


class SampledBatches(AbstractBatches):
    """Batches that the compiled step makes itself: `sample(key)`.

    Args:
        sample: A function of a key.
    """

    constant = True

    def __init__(self, sample: Callable):
        self.sample = sample

    @property
    def epoch_steps(self) -> float | None:
        """There are no epochs."""
        return None

    def draw(self, step: int, place: np.ndarray | None) -> Iterator[Drawn]:
        """Returns nothing, again and again."""
        while True:
            yield Drawn(None, None, 0)

    def example(self) -> PyTree:
        """Returns the shapes of a batch."""
        assert self.sample is not None
        return eqx.filter_eval_shape(self.sample, jax.random.key(0))


class LoadedBatches(AbstractBatches):
    """Batches of a loader, which determines their order.

    An iterator with `get_state` and `set_state`, like grain's, continues from its checkpoint. For any other loader the
    used batches are drawn again and discarded.

    Args:
        loader: An iterable, iterated once for each epoch, or only once if it is an iterator.
        epochs: How many passes to make at most, or None.
    """

    def __init__(self, loader: Iterable, epochs: int | None):
        self._loader, self._epochs = loader, epochs
        self._example: Any = None
        self._put_back: list = []  # the first batch of an iterator that cannot begin again

    @property
    def epoch_steps(self) -> float | None:
        """The length of the loader, if it has one."""
        try:
            return float(len(self._loader)) or None  # type: ignore[arg-type]
        except TypeError:
            return None

    def draw(self, step: int, place: np.ndarray | None) -> Iterator[Drawn]:
        """Returns the loader's batches, epoch after epoch."""
        epoch, index, state = (0, step, None) if place is None else _read_place(place)
        while self._epochs is None or epoch < self._epochs:
            iterator: Any = iter(self._loader)
            once = iterator is self._loader
            if self._put_back:
                iterator = _PutBack(self._put_back.pop(), iterator)
            if state is not None:
                iterator.set_state(state)
            elif sum(1 for _ in zip(range(index), iterator)) < index:
                return  # the loader has become shorter
            state, given = None, index
            for batch in iterator:
                index += 1
                yield Drawn(_as_arrays(batch), _write_place(epoch, index, iterator), epoch)
            if once or (given == index == 0):
                return
            epoch, index = epoch + 1, 0

    def example(self) -> PyTree:
        """Returns the first batch, which is not lost."""
        if self._example is None:
            iterator: Any = iter(self._loader)
            state = iterator.get_state() if _remembers(iterator) else None
            try:
                self._example = next(iterator)
            except StopIteration:
                raise ValueError("`train`: `data` is a loader without any batch.") from None
            if state is not None:
                iterator.set_state(state)
            elif iterator is self._loader:
                self._put_back.append(self._example)
        return _as_arrays(self._example)


class _PutBack:
    """An iterator with its first item put back."""

    def __init__(self, first: Any, rest: Iterator):
        self._waiting, self._rest = [first], rest

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        return self._waiting.pop() if self._waiting else next(self._rest)


def _as_arrays(batch: PyTree) -> PyTree:
    return jax.tree.map(lambda x: x if isinstance(x, jax.Array) else np.asarray(x), batch)


def _remembers(iterator: Any) -> bool:
    return hasattr(iterator, "get_state") and hasattr(iterator, "set_state")


def _write_place(epoch: int, index: int, iterator: Any) -> np.ndarray:
    state = iterator.get_state() if _remembers(iterator) else None
    kind = "none" if state is None else "bytes" if isinstance(state, bytes) else "json"
    text = state.hex() if isinstance(state, bytes) else state
    return np.frombuffer(json.dumps([epoch, index, kind, text]).encode(), np.uint8)


def _read_place(place: np.ndarray) -> tuple[int, int, Any]:
    epoch, index, kind, text = json.loads(np.asarray(place).tobytes().decode())
    return epoch, index, bytes.fromhex(text) if kind == "bytes" else text


def _words(key: Key) -> list[int]:
    typed = jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key)
    return [int(word) for word in np.asarray(jax.random.key_data(key) if typed else key).reshape(-1)]


def _is_array(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray | np.generic)


def is_loader(data: Any) -> bool:
    """Whether something yields batches when it is iterated over, and is not a PyTree."""
    plain = isinstance(data, dict | list | tuple | str | bytes) or _is_array(data) or callable(data)
    return hasattr(data, "__iter__") and not plain


def batches_of(data: Any, batch_size: int | None, epochs: int | None, key: Key, parts: int) -> AbstractBatches:
    """Returns the source of batches for `data`.

    Raises:
        TypeError: If it is nothing that batches can come from.
        ValueError: If arrays have no first axis in common, or the size of a batch does not suit them or the devices.
    """
    if (callable(data) or is_loader(data)) and batch_size is not None:
        raise ValueError(
            "`train`: `batch_size` only applies to arrays; a loader or a function that returns batches sets its own "
            "size. Leave `batch_size` out."
        )
    if callable(data):
        return SampledBatches(data)
    if is_loader(data):
        return LoadedBatches(data, epochs)
    leaves = jax.tree.leaves(data)
    if not all(map(_is_array, leaves)):
        kinds = sorted({type(x).__name__ for x in leaves if not _is_array(x)})
        raise TypeError(
            "`train`: `data` must be a PyTree of arrays, a function `data(key)` that returns a batch, or an iterable "
            f"of batches, but it contains {', '.join(kinds)}."
        )
    if not leaves:
        return WholeBatch(data)
    whole = batch_size is None and parts == 1
    shapes = {path: np.shape(x) for path, x in jax.tree_util.tree_leaves_with_path(data)}
    firsts = {shape[0] if shape else None for shape in shapes.values()}
    if whole:  # nothing is cut: a number is shared by all rows
        firsts.discard(None)
    if len(firsts) > 1 or None in firsts:
        shown = ", ".join(f"{jax.tree_util.keystr(path) or 'data'}: {shape}" for path, shape in shapes.items())
        raise ValueError(
            "`train`: the first axis of every array in `data` runs over examples and must have the same length, but "
            f"the shapes are {shown}. Arrays that all examples share belong in the closure of `loss`."
        )
    if whole:
        return WholeBatch(data)
    (rows,) = firsts
    assert rows is not None
    if (rows if batch_size is None else batch_size) % parts:
        what = f"`data` has {rows} rows" if batch_size is None else f"`batch_size` is {batch_size}"
        raise ValueError(
            f"`train`: {what}, which {parts} groups of devices cannot share equally. "
            f"Use a `batch_size` that is a multiple of {parts}."
        )
    if batch_size is None:
        return WholeBatch(data)
    if batch_size > rows:
        raise ValueError(f"`train`: `batch_size` is {batch_size}, but `data` has {rows} rows.")
    return RowBatches(data, batch_size, key)


def steps_in(epochs: int, source: AbstractBatches) -> int | None:
    """Returns the number of steps in some epochs; None if it is unknown before they end.

    Raises:
        ValueError: If the source has no epochs.
    """
    if source.epoch_steps is None:
        if source.sample is not None:
            raise ValueError("`train`: `epochs` does not apply to batches from a function. Pass `steps`.")
        return None
    return math.ceil(epochs * source.epoch_steps)
