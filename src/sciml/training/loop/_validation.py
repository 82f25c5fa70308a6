"""How good a model is on data that it is not trained on, and which one was the best."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from ..._types import Key
from ._batches import batches_of, is_loader
from ._step import Recipe, Weights, evaluated


class Validator:
    """Evaluates a model.

    Args:
        recipe: Knows the loss.
        given: Data like the training data, or the user's function `validation(model)` that returns a number.
        size: The number of rows to evaluate at once, or None for all.
        key: The key passed to the loss, the same every time.
    """

    def __init__(self, recipe: Recipe, given: Any, size: int | None, key: Key):
        self._recipe, self._key = recipe, key
        self._measure: Callable | None = given if callable(given) else None
        self._pieces: Iterable = ()
        if given is not None and self._measure is None:
            self._pieces = _Pieces(given, size)

    @property
    def validates(self) -> bool:
        """Whether there is anything to validate on."""
        return self._measure is not None or self._pieces != ()

    def __call__(self, weights: Weights) -> float:
        """Returns the validation loss of the weights; NaN where there is nothing to validate on."""
        if self._measure is not None:
            return self._measured(weights)
        total, rows = 0.0, 0
        for batch in self._pieces:
            count = max((np.shape(x)[0] for x in jax.tree.leaves(batch) if np.ndim(x)), default=1)
            placed = self._recipe.placement.batch(batch)
            total += count * float(evaluated(self._recipe, placed, self._key, weights))
            rows += count
        return total / rows if rows else float("nan")

    def _measured(self, weights: Weights) -> float:
        assert self._measure is not None
        found = self._measure(self._recipe.model(weights))
        if np.ndim(found) or not np.issubdtype(np.asarray(found).dtype, np.floating):
            raise TypeError(f"`train`: `validation(model)` must return one real number, but returned {found!r}.")
        return float(found)


class _Pieces:
    """Data in pieces of a size: arrays by rows, the last piece shorter; a loader as it is."""

    def __init__(self, data: Any, size: int | None):
        self._arrays = not is_loader(data)
        self._data, self._size = data, size
        if not self._arrays and iter(data) is data:
            raise ValueError(
                "`validation` is an iterator, which the first validation exhausts. Pass something that can be iterated "
                "over again, such as its batches stacked to arrays, or a loader."
            )
        if self._arrays and (odd := {type(x).__name__ for x in jax.tree.leaves(data) if not hasattr(x, "shape")}):
            raise TypeError(
                "`train`: `validation` must be data like the training data, or a function `validation(model)` that "
                f"returns a number, but it contains {', '.join(sorted(odd))}."
            )
        if self._arrays:
            batches_of(data, None if size is None else 1, None, jax.random.key(0), 1)  # for its checks of first axes

    def __iter__(self) -> Any:
        if not self._arrays:
            yield from (jax.tree.map(np.asarray, batch) for batch in self._data)
            return
        size = self._size
        if size is None:
            yield self._data
            return
        rows = jax.tree.leaves(self._data)[0].shape[0]
        for start in range(0, rows, size):
            yield jax.tree.map(lambda x, start=start: x[start : start + size], self._data)


class Best(NamedTuple):
    """The weights with the lowest validation loss so far.

    Attributes:
        weights: They; None before any.
        value: Their loss.
        step: After how many steps.
        stale: How many validations since then.
    """

    weights: Weights | None = None
    value: float = float("inf")
    step: int = 0
    stale: int = 0

    def updated(self, value: float, step: int, weights: Weights | None) -> "Best":
        """Returns the best after one more validation; NaN is never the best."""
        return Best(weights, value, step, 0) if value < self.value else self._replace(stale=self.stale + 1)
