"""Where the first number that is not finite comes from: back through a program, its loops and its choices.

A value that is not finite has its cause in an operand that is not, or in the operation itself. So the search goes back
from a result to an operation with finite operands. Operations run one by one. Loops run compiled and note only, for
each value that they carry, since which iteration it is not finite. The search then runs the loop once more, up to that
iteration, and goes on in its body. A solve of ten thousand steps costs a few runs.

Some programs write NaN themselves, as sciml does for what a failed solve did not reach. There the trail ends, and what
counts is why: an operation of a line of the user's that made of finite numbers one that is not, in the last iterations
before.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.extend as jex
import jax.numpy as jnp
import numpy as np

from .._jax._jaxprs import run_equation, scan_counts
from ._flat_program import Fixed, FlatProgram, Op, bad_in, badness, value_of
from ._programs import Place

_ENDLESS = 2**31 - 2
_LARGE = 2**20  # bytes: what is larger is not kept, but computed again where it is asked for
_LAST = 3  # in so many of a loop's last iterations the reason of a failure is looked for


class Origin(NamedTuple):
    """An operation that makes of finite numbers one that is not.

    Attributes:
        place: The equation, and where it is.
        operands: The values of its operands.
        results: Its results.
        transposed: Whether what it makes is read by a backward pass alone, as far as its program says.
        loops: The iteration of each loop around it, the outermost first; of a loop that runs backwards over rows, the
            row.
        step: The number of the step that it belongs to, where a loop of sciml's says so.
        written: Whether the program itself has written it there.
        order: The iterations of the loops around it as they follow each other.
    """

    place: Place
    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    transposed: bool
    loops: tuple[int, ...] = ()
    step: int | None = None
    written: bool = False
    order: tuple[int, ...] = ()


class FromInput(NamedTuple):
    """The trail leads out of a program.

    Attributes:
        numbers: Through which of its constants and inputs.
    """

    numbers: tuple[int, ...]


class _Values:
    """The values of a program, those that are large as long as they are needed.

    Attributes:
        bad: Of each value, 0 where it is finite, 1 where it is infinite somewhere, 2 where it is NaN somewhere.
        chosen: For each operation that chooses between operands, which of them what is not finite comes from.
    """

    def __init__(self, search: "Search", given: Sequence[Any], keep: Iterable[int]):
        flat, keep = search.flat, set(keep)
        self.known: list[Any] = [*given, *[None] * (flat.size - flat.inputs)]
        self.bad = [badness(x) for x in given] + [0] * (flat.size - flat.inputs)
        self.chosen: dict[int, list[bool]] = {}
        for index, op in enumerate(flat.ops):
            operands = [value_of(x, self.known) for x in op.inputs]
            out = search.run_op(index, op, operands)
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
    bad, which = ~np.isfinite(np.asarray(out)), np.broadcast_to(np.asarray(operands[0]).astype(np.int32), out.shape)
    return [False, *(bool(np.any(bad & (which == i))) for i in range(len(operands) - 1))]


class Search:
    """A search in one program; programs within it are read once.

    Args:
        flat: The program.
    """

    def __init__(self, flat: FlatProgram):
        self.flat = flat
        self._inner: dict[int, Any] = {}
        self._makers = {number: (i, op) for i, op in enumerate(flat.ops) for number in op.outputs}
        self._last: tuple[list[Any], _Values] | None = None

    def run(self, given: Sequence[Any]) -> list[Any]:
        """Returns the results, operation by operation."""
        return self._at(given, [x for x in self.flat.results])

    def run_op(self, index: int, op: Op, operands: Sequence[Any]) -> list[Any]:
        """Returns the results of an operation, of which loops run compiled."""
        if op.name in ("while", "scan", "cond"):
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
        return [value_of(x, values.known) for x in refs]

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
        return origin if origin.step is not None else origin._replace(step=self._step(given, index))

    def _made(self, given: Sequence[Any], index: int, written: bool = False) -> Origin:
        op = self.flat.ops[index]
        readers = [x for x in self.flat.ops if not set(op.outputs).isdisjoint(x.reads)]
        transposed = "transpose(" in op.place.scope or (
            bool(readers) and all("transpose(" in x.place.scope for x in readers)
        )
        operands, results = self._at(given, op.inputs), self._at(given, op.outputs)
        return Origin(op.place, tuple(operands), tuple(results), transposed, written=written)

    def _step(self, given: Sequence[Any], index: int) -> int | None:
        """Returns the number of the step that the marks before an operation give it."""
        marks = [op for op in self.flat.ops[:index] if op.marks_step]
        if not marks:
            return None
        (value,) = self._at(given, marks[-1].outputs)
        return int(np.asarray(value).reshape(-1)[0])

    def _causes(self, given: Sequence[Any], index: int, op: Op, number: int, values: _Values) -> Origin | list[int]:
        """Returns the operands that a result which is not finite comes from, or the origin."""
        if op.name in ("while", "scan", "cond"):
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

    def _inner_of(self, index: int, op: Op) -> Any:
        if index not in self._inner:
            self._inner[index] = _Branches(op) if op.name == "cond" else _Loop(op)
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
            if op.name in ("while", "scan", "cond"):
                found = self._inner_of(index, op).event(self._at(given, op.inputs))
            elif op.line is not None and not op.line.internal and not op.fresh:
                made = any(values.bad[x] for x in op.outputs)
                had = any(badness(x.value) > 0 if isinstance(x, Fixed) else values.bad[x] for x in op.inputs)
                found = self._made(given, index) if made and not had else None
            if found is not None:
                return found if found.step is not None else found._replace(step=self._step(given, index))
        return None


class _Branches:
    """A choice between programs."""

    def __init__(self, op: Op):
        self.branches = op.place.eqn.params["branches"]
        self.searches: dict[int, Search] = {}
        self.place = op.place

    def _taken(self, operands: Sequence[Any]) -> tuple[Search, list[Any], int]:
        taken = int(np.clip(int(np.asarray(operands[0])), 0, len(self.branches) - 1))
        branch = self.branches[taken]
        if taken not in self.searches:
            self.searches[taken] = Search(FlatProgram(branch.jaxpr, self.place))
        return self.searches[taken], [*branch.consts, *operands[1:]], len(branch.consts)

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Returns the results."""
        search, given, _ = self._taken(operands)
        return search.run(given)

    def origin(self, operands: Sequence[Any], result: int) -> Origin | FromInput | None:
        """As `Search.origin`, through the branch that is taken."""
        search, given, consts = self._taken(operands)
        found = search.origin(given, result)
        if not isinstance(found, FromInput):
            return found
        numbers = tuple(n - consts + 1 for n in found.numbers if n >= consts)
        return FromInput(numbers) if numbers else None

    def event(self, operands: Sequence[Any]) -> Origin | None:
        """As `Search.event`."""
        search, given, _ = self._taken(operands)
        return search.event(given)


class _Runs(NamedTuple):
    """A loop that ran up to an iteration.

    Attributes:
        carry: What it carries there.
        rows: Its rows, those of later iterations zero.
        number: How many iterations ran.
        since: Since which of them each part of what it carries is not finite; 0 from the start, -1 where it is finite.
    """

    carry: list[Any]
    rows: list[Any]
    number: int
    since: np.ndarray


class _Loop:
    """A `while` or a `scan`, which runs up to any of its iterations."""

    def __init__(self, op: Op):
        eqn = op.place.eqn
        self.params, self.is_scan = eqn.params, eqn.primitive.name == "scan"
        if self.is_scan:
            self.body, self.before = self.params["jaxpr"], 0
            self.first, self.carried = scan_counts(eqn)  # how many constants, and how much it carries
            self.reverse, self.length = self.params["reverse"], self.params["length"]
        else:
            self.body, self.before = self.params["body_jaxpr"], self.params["cond_nconsts"]
            self.first = self.params["body_nconsts"]
            self.carried = len(eqn.invars) - self.before - self.first
            self.reverse, self.length = False, 0
        self.search = Search(FlatProgram(self.body.jaxpr, op.place))
        self._compiled: Any = None
        self._whole: tuple[list[Any], _Runs] | None = None

    def _parts(self, operands: Sequence[Any]) -> tuple[list, list, list]:
        rest = list(operands[self.before :])
        end = self.first + self.carried
        return rest[: self.first], rest[self.first : end], rest[end:]

    def _inputs_of(self, operands: Sequence[Any], carry: Sequence[Any], number: Any) -> list:
        """Returns what the body of an iteration gets."""
        consts, _, xs = self._parts(operands)
        at = self.length - 1 - number if self.reverse else number
        return [*consts, *carry, *(jax.lax.dynamic_index_in_dim(x, at, 0, False) for x in xs)]

    def _ran(self, operands: Sequence[Any], stop: int = _ENDLESS) -> _Runs:
        """Runs up to an iteration."""
        whole = self._whole
        if stop == _ENDLESS and whole is not None and all(a is b for a, b in zip(whole[0], operands, strict=True)):
            return whole[1]
        if self._compiled is None:
            self._compiled = jax.jit(self._loop)
        carry, rows, number, since = self._compiled(list(operands), np.int32(stop))
        runs = _Runs(carry, rows, int(number), np.asarray(since))
        if stop == _ENDLESS:
            self._whole = (list(operands), runs)
        return runs

    def _loop(self, operands: list, stop: Any) -> tuple:
        _, carry, _ = self._parts(operands)
        body, shapes = jex.core.jaxpr_as_fun(self.body), self.body.out_avals[self.carried :]
        rows = []
        if self.is_scan and any(jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended) for x in shapes):
            first = body(*self._inputs_of(operands, carry, 0))[self.carried :]  # there are no zeros of random keys
            rows = [jnp.broadcast_to(x, (self.length, *x.shape)) for x in first]
        elif self.is_scan:
            rows = [jnp.zeros((self.length, *x.shape), x.dtype) for x in shapes]

        def flags(carry):
            return jnp.stack([bad_in(x) for x in carry]) if carry else jnp.zeros(0, bool)

        def iterate(state):
            number, carry, rows, since, bad = state
            out = body(*self._inputs_of(operands, carry, number))
            at = self.length - 1 - number if self.reverse else number
            rows = [jax.lax.dynamic_update_index_in_dim(y, x, at, 0) for y, x in zip(rows, out[self.carried :])]
            now = flags(out[: self.carried])
            return number + 1, out[: self.carried], rows, jnp.where(now & ~bad, number + 1, since), now

        def going(state):
            number, carry = state[0], state[1]
            if self.is_scan:
                return (number < stop) & (number < self.length)
            return (number < stop) & jex.core.jaxpr_as_fun(self.params["cond_jaxpr"])(*operands[: self.before], *carry)[
                0
            ]

        begin = (jnp.zeros((), jnp.int32), carry, rows, jnp.zeros(len(carry), jnp.int32), flags(carry))
        number, carry, rows, since, bad = jax.lax.while_loop(going, iterate, begin)
        return carry, rows, number, jnp.where(bad, since, -1)

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Returns the results."""
        runs = self._ran(operands)
        return [*runs.carry, *runs.rows]

    def _body(self, operands: Sequence[Any], carry: Sequence[Any], number: int) -> list[Any]:
        return [*self.body.consts, *self._inputs_of(operands, carry, number)]

    def origin(self, operands: Sequence[Any], result: int) -> Origin | FromInput | None:
        """As `Search.origin`."""
        runs, part = self._ran(operands), result
        if result >= self.carried:  # rows, the first of which in the order of the loop counts
            rows = np.asarray(runs.rows[result - self.carried])
            bad = np.flatnonzero(~np.isfinite(rows).reshape(len(rows), -1).all(axis=1))
            if not bad.size:
                return None
            number = int(self.length - 1 - bad[-1]) if self.reverse else int(bad[0])
        else:
            number = int(runs.since[part]) - 1
            if number < 0:
                return FromInput((self.before + self.first + part,)) if runs.since[part] == 0 else None
        while True:  # from part to part of what is carried, back to earlier iterations
            runs = self._ran(operands, number)
            found = self.search.origin(self._body(operands, runs.carry, number), part)
            if isinstance(found, Origin):
                return self._located(found, number)
            sources = [] if found is None else [n - len(self.body.consts) for n in found.numbers]
            sources = [n for n in sources if n >= 0]
            if not sources:
                return None
            carried = [n - self.first for n in sources]
            outside = [n for n, p in zip(sources, carried) if not 0 <= p < self.carried or runs.since[p] <= 0]
            if outside:
                return FromInput(tuple(self.before + n for n in outside))
            part = min(carried, key=lambda p: runs.since[p])
            number = int(runs.since[part]) - 1

    def _located(self, found: Origin, number: int) -> Origin:
        return found._replace(loops=(self._shown(number), *found.loops), order=(number, *found.order))

    def _shown(self, number: int) -> int:
        return int(self.length - 1 - number) if self.reverse else number

    def event(self, operands: Sequence[Any]) -> Origin | None:
        """As `Search.event`, in the last iterations."""
        last = self._ran(operands).number
        for number in range(last - 1, max(last - 1 - _LAST, -1), -1):
            carry = self._ran(operands, number).carry
            found = self.search.event(self._body(operands, carry, number))
            if found is not None:
                return self._located(found, number)
        return None
