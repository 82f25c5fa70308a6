"""Where the first number that is not finite comes from: back through a program, its loops and its choices.

A value that is not finite has its cause in an operand that is not, or in the operation itself. So the search goes back
from a result to an operation with finite operands. Operations run one by one. Loops run compiled and note only, for
each value that they carry, since which iteration it is not finite. The search then runs the loop once more, up to that
iteration, and goes on in its body. A solve of ten thousand steps costs a few runs.

Some programs write NaN themselves, as sciml does for what a failed solve did not reach. There the trail ends, and what
counts is why: an operation of a line of the user's that made of finite numbers one that is not, in the last iterations
before.

Within a `jax.shard_map` all devices are looked at side by side. Where they do not run in step, as in loops that end at
different iterations, the search goes on with one of them, and all run as that one does.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._jax._jaxprs import run_equation
from ._flat_program import Fixed, FlatProgram, Op, badness
from ._held_values import AbstractHolding, AsTheyAre, OverDevices
from ._origin_found import FromInput, Origin
from ._origin_within import BranchesWithin, LoopWithin, ShardedWithin

_LARGE = 2**20  # bytes: what is larger is not kept, but computed again where it is asked for
_WITHIN = ("while", "scan", "cond", "shard_map")  # operations that the search goes into


class _Values:
    """The values of a program, those that are large as long as they are needed.

    Attributes:
        bad: Of each value, 0 where it is finite, 1 where it is infinite somewhere, 2 where it is NaN somewhere.
        chosen: For each operation that chooses between operands, which of them what is not finite comes from.
    """

    def __init__(self, search: "Search", given: Sequence[Any], keep: Iterable[int]):
        flat, holding, keep = search.flat, search.holding, set(keep)
        self.known: list[Any] = [*given, *[None] * (flat.size - flat.inputs)]
        self.bad = [badness(x) for x in given] + [0] * (flat.size - flat.inputs)
        self.chosen: dict[int, list[bool]] = {}
        results = None if search.all_results is None else search.all_results(given)
        for index, op in enumerate(flat.ops):
            operands = [holding.value_of(x, self.known) for x in op.inputs]
            out = search.run_op(index, op, operands) if results is None else results[index]
            for number, value in zip(op.outputs, out, strict=True):
                self.known[number] = value
                self.bad[number] = badness(value)
            if op.name == "select_n" and self.bad[op.outputs[0]]:
                self.chosen[index] = _chosen(operands, out[0])
            for x in op.reads:
                large = x >= flat.inputs and getattr(self.known[x], "nbytes", 0) > _LARGE
                if large and flat.last_use[x] == index and x not in keep:
                    self.known[x] = None


def _chosen(operands: Sequence[Any], out: Any) -> list[bool]:
    bad, which = ~np.isfinite(np.asarray(out)), np.asarray(operands[0]).astype(np.int32)
    which = np.broadcast_to(which.reshape((*which.shape, *[1] * (out.ndim - which.ndim))), out.shape)
    return [False, *(bool(np.any(bad & (which == i))) for i in range(len(operands) - 1))]


class Search:
    """A search in one program; programs within it are read once.

    Args:
        flat: The program.
        holding: How its values are held.
    """

    def __init__(self, flat: FlatProgram, holding: AbstractHolding | None = None):
        self.flat = flat
        self.holding = AsTheyAre() if holding is None else holding
        self.all_results = self.holding.all_results(flat)
        self._inner: dict[int, Any] = {}
        self._makers = {number: (i, op) for i, op in enumerate(flat.ops) for number in op.outputs}
        self._last: tuple[list[Any], _Values] | None = None

    def run(self, given: Sequence[Any]) -> list[Any]:
        """Returns the results, operation by operation."""
        return self._at(given, [x for x in self.flat.results])

    def run_op(self, index: int, op: Op, operands: Sequence[Any]) -> list[Any]:
        """Returns the results of an operation, of which loops run compiled."""
        if op.name in _WITHIN:
            return self._inner_of(index, op).run(operands)
        return run_equation(op.place.eqn, operands, self.flat.debug_info)

    def _values(self, given: Sequence[Any], keep: Iterable[int] = ()) -> _Values:
        last = self._last
        if last is not None and len(last[0]) == len(given) and all(a is b for a, b in zip(last[0], given)):
            if all(last[1].known[i] is not None for i in keep):
                return last[1]
        values = _Values(self, given, keep)
        self._last = (list(given), values)
        return values

    def _at(self, given: Sequence[Any], refs: Sequence[Any]) -> list[Any]:
        """Returns the values of operands."""
        values = self._values(given, [x for x in refs if not isinstance(x, Fixed)])
        return [self.holding.value_of(x, values.known) for x in refs]

    def origin(self, given: Sequence[Any], result: int) -> Origin | FromInput | None:
        """Returns where a result's entries that are not finite come from; None where all are finite.

        Args:
            given: Constants and inputs.
            result: Which of the results.
        """
        start = self.flat.results[result]
        if isinstance(start, Fixed):
            return None
        values = self._values(given)
        if not values.bad[start] and self.flat.is_float(start):
            return None
        seen: set[int] = set()
        inputs: list[int] = []
        found: list[tuple[int, Origin]] = []
        todo = [start]
        while todo:
            number = todo.pop()
            if number in seen:
                continue
            seen.add(number)
            if number < self.flat.inputs:
                inputs.append(number)
                continue
            index, op = self._makers[number]
            causes = self._causes(given, index, op, number, values)
            if isinstance(causes, Origin):
                found.append((index, causes))
            else:
                todo += causes
        if inputs:
            return FromInput(tuple(sorted(inputs)))
        if not found:
            return None
        index, origin = min(found, key=lambda x: (x[1].written, x[0], x[1].order))
        if origin.written and (why := self.event(given, index)) is not None:
            origin = why
        return origin if origin.step is not None else origin._replace(step=self._step(given, index, origin.device))

    def _made(self, given: Sequence[Any], index: int, written: bool = False) -> Origin:
        op = self.flat.ops[index]
        readers = [x for x in self.flat.ops if not set(op.outputs).isdisjoint(x.reads)]
        transposed = "transpose(" in op.place.scope or (
            bool(readers) and all("transpose(" in x.place.scope for x in readers)
        )
        operands, results = self._at(given, op.inputs), self._at(given, op.outputs)
        device = next((int(i) for x in results for i in np.flatnonzero(_bad_devices(self.holding, x))), 0)
        operands, results = ([self.holding.of_device(x, device) for x in values] for values in (operands, results))
        return Origin(op.place, tuple(operands), tuple(results), transposed, written=written, device=device)

    def _step(self, given: Sequence[Any], index: int, device: int) -> int | None:
        """Returns the number of the step that the marks before an operation give it."""
        marks = [op for op in self.flat.ops[:index] if op.marks_step]
        if not marks:
            return None
        (value,) = self._at(given, marks[-1].outputs)
        return int(np.asarray(self.holding.of_device(value, device)).reshape(-1)[0])

    def _causes(self, given: Sequence[Any], index: int, op: Op, number: int, values: _Values) -> Origin | list[int]:
        """Returns the operands that a result which is not finite comes from, or the origin."""
        if op.name in _WITHIN and not self._opaque(op):
            return self._within(given, index, op, op.outputs.index(number))
        if op.fresh:
            return self._made(given, index, written=True)
        candidates = [x for x in op.inputs if not isinstance(x, Fixed)]
        if op.name == "select_n":
            cases = [x for x, c in zip(op.inputs, values.chosen.get(index, ())) if c]
            if all(isinstance(x, Fixed) or self._fresh(x) for x in cases):
                # NaN was written in place of something: because that is not finite, if it is not
                cases = [x for x in op.inputs[1:] if not isinstance(x, Fixed) and values.bad[x] and not self._fresh(x)]
                return cases or self._made(given, index, written=True)
            candidates = [x for x in cases if not isinstance(x, Fixed)]
        elif op.name == "reduce" and len(op.outputs) * 2 == len(op.inputs):
            kept = op.inputs[op.outputs.index(number)]  # it keeps one of two equal rows, see `kernels._lanes`
            candidates = [] if isinstance(kept, Fixed) else [kept]
        bits = op.name in ("reduce", "bitcast_convert_type")  # as integers, numbers are never not finite
        causes = [x for x in candidates if values.bad[x] or (bits and not self.flat.is_float(x))]
        nans = [x for x in causes if values.bad[x] == 2 or not self.flat.is_float(x)]
        return (nans if values.bad[number] == 2 else causes) or causes or self._made(given, index)

    def _fresh(self, number: int) -> bool:
        return number in self._makers and self._makers[number][1].fresh

    def _within(self, given: Sequence[Any], index: int, op: Op, result: int) -> Origin | list[int]:
        found = self._inner_of(index, op).origin(self._at(given, op.inputs), result)
        if isinstance(found, Origin):
            return found
        sources = [] if found is None else [op.inputs[number] for number in found.numbers]
        return [x for x in sources if not isinstance(x, Fixed)] or self._made(given, index, written=True)

    def _opaque(self, op: Op) -> bool:
        return op.name == "shard_map" and isinstance(self.holding, OverDevices)  # one within another

    def _inner_of(self, index: int, op: Op) -> Any:
        if index not in self._inner:
            kind = {"cond": BranchesWithin, "shard_map": ShardedWithin}.get(op.name, LoopWithin)
            self._inner[index] = kind(op, self.holding, Search)
        return self._inner[index]

    def event(self, given: Sequence[Any], before: int | None = None) -> Origin | None:
        """Returns the first operation of a user's line that makes of finite numbers one that is not.

        Args:
            given: Constants and inputs.
            before: Of the operations before this one, by default of all.
        """
        values = self._values(given)
        for index, op in enumerate(self.flat.ops[:before]):
            found = None
            if op.name in _WITHIN and not self._opaque(op):
                found = self._inner_of(index, op).event(self._at(given, op.inputs))
            elif op.line is not None and not op.line.internal and not op.fresh:
                made = any(values.bad[x] for x in op.outputs)
                had = any(badness(x.value) > 0 if isinstance(x, Fixed) else values.bad[x] for x in op.inputs)
                found = self._made(given, index) if made and not had else None
            if found is not None:
                return found if found.step is not None else found._replace(step=self._step(given, index, found.device))
        return None


def _bad_devices(holding: AbstractHolding, x: Any) -> np.ndarray:
    """Returns which devices have a value that is not finite."""
    if not hasattr(x, "dtype") or not jnp.issubdtype(x.dtype, jnp.inexact):
        return np.zeros(0, bool)
    rows = holding.by_device(x)
    return ~np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
