"""States at known times within steps whose number is known: every step writes as many rows as any of them has times.

The times are sorted, so the rows of a step begin after the rows of the step before. A step with fewer times than
another writes rows too many, over which the next ones write theirs. So there is one loop over the steps, and none over
saved times around it. A state is a weighted sum of the states at the ends of a step and of its stages, and all weights
are computed beforehand; the weights of rows of other steps are zero, and so is their contribution to a gradient.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from ..._choices import choices
from ...kernels._lanes import Lanes, Unbatched
from ._checkpoint_buffers import Buffers
from ._interpolation import StepPolynomial

_ROUNDINGS = 4
"""A time within this number of roundings of the end of a step counts as that end."""


class SavedRows(NamedTuple):
    """The rows of the saved states that each step writes, and their weights.

    Attributes:
        step: The number of the step that each saved time lies in; -1 at the start.
        first: The first row of each step.
        weights: For the states at the ends of a step and each of its stages the weights in all rows of all steps, the
            length of the step included. They are separate arrays, because XLA runs a loop of a few numbers on a single
            thread if none is of more than 512 bytes.
    """

    step: Int[Array, " times"]
    first: Int[Array, " steps"]
    weights: tuple[Float[Array, "steps most"], ...]

    @classmethod
    def of(
        cls, times: np.ndarray, span: float, step: float, steps: int, polynomial: StepPolynomial, dtype: Any
    ) -> "SavedRows | None":
        """Returns the rows, or None where they would be too many, or steps are too short for the dtype of time.

        Args:
            times: The saved times as elapsed times, sorted.
            span: The elapsed time of the end.
            step: The length of the steps, signed; the last one may be shorter.
            steps: Their number.
            polynomial: The interpolation of the method.
            dtype: The dtype of time.
        """
        eps, length = float(jnp.finfo(dtype).eps), abs(step)
        if _ROUNDINGS * eps * steps > 0.01:
            return None
        ratios = np.clip(times, 0, span) / length
        nearest = np.round(ratios)
        at_end = (np.abs(ratios - nearest) <= _ROUNDINGS * eps * np.maximum(ratios, 1)) | (times >= span)
        number = np.where(at_end & (times < span), nearest, np.ceil(ratios)) - 1
        number = np.clip(number, -1, steps - 1).astype(np.int32)
        first = np.searchsorted(number, np.arange(steps)).astype(np.int32)
        row = np.arange(len(times)) - first[number]
        within = number >= 0
        most = int(row[within].max(initial=0)) + 1
        terms = len(polynomial.matrix)
        if most > choices().saves.rows_of_step_at_most or steps * most * terms > choices().saves.weights_at_most:
            return None
        # the last step may be shorter than the others
        lengths = np.where(number == steps - 1, span - (steps - 1) * length, length)
        places = np.clip((np.clip(times, 0, span) - number * length) / lengths, 0, 1)
        weights = polynomial.weights(places, np.copysign(lengths, step))
        weights[at_end] = [0, 1] + [0] * (terms - 2)  # the state itself
        table = np.zeros((steps, most, terms))
        table[number[within], row[within]] = weights[within]
        return cls(
            jnp.asarray(number),
            jnp.asarray(first),
            tuple(jnp.asarray(term, dtype) for term in np.moveaxis(table, -1, 0)),
        )


class RowWriter(NamedTuple):
    """Writes rows of saved states over lanes, and reads their cotangents.

    Attributes:
        lanes: The engine.
        rows: The rows, without lanes.
    """

    lanes: Lanes | Unbatched
    rows: SavedRows

    @classmethod
    def of(cls, lanes: Lanes | Unbatched, rows: PyTree) -> "RowWriter":
        """Returns it for rows that are lane values, and the same for all members."""
        found = SavedRows(*(lanes.leave_shared(rows) if isinstance(lanes, Lanes) else rows))
        if found.step.ndim > 1:  # every member has been given its own
            found = jax.tree.map(lambda x: jnp.take(x, 0, axis=-1, mode="fill", fill_value=0), found)
        return cls(lanes, found)

    @property
    def most(self) -> int:
        """How many rows each step writes."""
        return self.rows.weights[0].shape[1]

    def weights_of(self, number: Array) -> list[list[PyTree]]:
        """Returns the weights of each row of a step, lane values."""
        terms = [self._at(term, number) for term in self.rows.weights]
        return [[self.lanes.enter(term[i], False) for term in terms] for i in range(self.most)]

    def blank(self, y: PyTree) -> Buffers:
        """Returns space for the states at all times and some more; `y` is a lane value in a loop's carry."""
        return Buffers.blank(self.lanes.leave(y), self.rows.step.shape[0] + self.most)

    def write(self, saved: Buffers, number: Array, found: list[PyTree]) -> Buffers:
        """Returns the saved states with those within a step, lane values."""
        items = [saved.pack(self.lanes.leave(y)) for y in found]
        return saved.write_rows(self._at(self.rows.first, number), items)

    def read(self, bars: Buffers, number: Array) -> list[PyTree]:
        """Returns the cotangents of a step's rows, lane values."""
        first = self._at(self.rows.first, number)
        return [bars.unpack(bars.read(first + i)) for i in range(self.most)]

    def states(self, saved: Buffers, y0: PyTree[Array], finite: Int[Array, "..."]) -> PyTree[Array]:
        """Returns the states at all saved times, members last; NaN after a step that was not finite.

        Args:
            saved: The rows written by all steps.
            y0: The initial state, members last.
            finite: After how many steps each member was still finite.
        """
        count = self.rows.step.shape[0]
        found = jax.tree.map(lambda x: x[:count], saved.columns())
        step = self.rows.step if self.lanes.count is None else self.rows.step[:, None]
        known, at_start = step < finite[None], step < 0

        def of_leaf(y: Array, start: Array) -> Array:
            def beside(x: Array) -> Array:  # whose last axis are lanes, if there are any
                lanes = x.ndim - 1
                return x.reshape(x.shape[:1] + (1,) * (y.ndim - 1 - lanes) + x.shape[1:])

            y = jnp.where(beside(known), y, jnp.full_like(y, jnp.nan))
            return jnp.where(beside(at_start), start[None], y)

        return jax.tree.map(of_leaf, found, y0)

    def cotangents(self, ys_bar: PyTree[Array]) -> tuple[Buffers, PyTree[Array]]:
        """Returns the cotangents of all rows, and of the initial state from the times at the start, members last."""
        padded = jax.tree.map(lambda c: jnp.pad(c, [(0, self.most)] + [(0, 0)] * (c.ndim - 1)), ys_bar)
        lanes, many = self.lanes, self.lanes.count is not None
        # in the form that steps take, which would else be made of every row
        columns = jax.vmap(lambda c: lanes.carry(lanes.enter(c, many)))(padded)

        def of_start(c: Array) -> Array:
            at_start = (self.rows.step < 0).reshape(-1, *[1] * (c.ndim - 1))
            return jnp.sum(jnp.where(at_start, c, jnp.zeros_like(c)), axis=0)

        return Buffers.of(columns), jax.tree.map(of_start, ys_bar)

    def _at(self, x: Array, number: Array) -> Array:
        return jax.lax.dynamic_index_in_dim(x, number, 0, keepdims=False, allow_negative_indices=False)


def weighted(weights: list[list[Array]], y0: PyTree, y1: PyTree, stages: PyTree) -> list[PyTree]:
    """Returns a member's states within a step, given the weights of each row; none without rows."""

    def of(row: list[Array]) -> PyTree:
        return jax.tree.map(lambda *x: sum(w.astype(a.dtype) * a for w, a in zip(row, x)), y0, y1, *stages)

    return list(map(of, weights))
