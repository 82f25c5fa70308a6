"""The body of the kernel: a whole integration of a block of members, one element in each register.

It knows no hardware. The launchers define the memory layout of a block's numbers, and how its lanes agree to continue.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._choices import choices
from ..._jax._loops import while_loop
from ..._jax._vma import vma_of
from ._flat import Flat, NotSupportedError, elements_of, flatten, kernel_dtype
from ._member import Counted, Members, UntilDone


class KernelOperands(NamedTuple):
    """The arrays that a kernel reads.

    Attributes:
        own: Those that every member has of its own, of shape `(elements, members)`.
        shared: For each dtype what all members share, of shape `(elements,)`.
        targets: The times to save, `(saves, members)`, or `(saves,)` if members share them; None if nothing is saved.
    """

    own: list[Array]
    shared: list[Array]
    targets: Array | None


class Body:
    """A kernel of one loop.

    Attributes:
        results: The dtypes of the results' elements, in order; the last is the number of iterations.
        saved: The dtypes of the elements that are saved at each target.
        saves: The number of targets.

    Raises:
        NotSupportedError: If the kernel does not support the loop.
    """

    def __init__(self, loop: UntilDone | Counted, members: Members, lanes: tuple[int, ...], kernel: str):
        self.loop, self.lanes, self.kernel = loop, lanes, kernel
        table, most = choices().kernels, choices().lanes.stay_unstacked_at_most
        inputs, target = members.of_one()
        self._batched = members.batched
        self._inputs = jax.tree.leaves(inputs)
        if (size := len(elements_of(inputs))) > table.inputs_at_most:
            raise NotSupportedError(
                f"a member has {size} numbers as state and parameters, but a kernel supports {table.inputs_at_most}"
            )
        if (largest := max((math.prod(x.shape) for x in self._inputs), default=0)) > most:
            raise NotSupportedError(
                f"a member has an array of {largest} numbers, but a kernel supports arrays of up to {most}"
            )
        self._places, axes = self._place(), vma_of(members.inputs)

        def flat(function: Any, *args: Any) -> Flat:
            return flatten(function, *args, lanes=lanes, kernel=kernel, axes=axes)

        self.start = flat(loop.start, inputs)
        state = self.start.out
        self._state = [self._kind(dtype) for dtype in elements_of(state)]
        if len(self._state) > table.state_at_most:
            raise NotSupportedError(
                f"the loop carries {len(self._state)} numbers, but a kernel at most {table.state_at_most}"
            )
        self.saves, self.saved_out, self._targets_batched = 0, None, members.targets_batched
        if isinstance(loop, UntilDone):
            self.end = flat(loop.end, inputs)
            target = self.end.out
            self.pending = flat(loop.pending, state, target)
            self.advance = flat(loop.advance, state, inputs, target)
            if members.targets is not None:
                self.saves = members.targets.shape[0]
                self.save = flat(loop.saved, state, inputs, target)
                self.saved_out = self.save.out
        else:
            number = jax.ShapeDtypeStruct((), np.dtype(np.int32))
            self.step = flat(loop.step, state, inputs, number)
            self.look = flat(loop.look, state, number)
        self.result = flat(loop.result, state, inputs)
        self.results = [*map(self._kind, elements_of(self.result.out)), np.dtype(np.int32)]
        self.saved = list(map(self._kind, elements_of(self.saved_out)))

    def _kind(self, dtype: Any) -> np.dtype:
        kind = kernel_dtype(self.kernel, dtype)
        assert kind is not None  # the programs were refused otherwise
        return np.dtype(np.int32) if kind == np.bool_ else kind

    def _place(self) -> list[tuple[int, int]]:
        """Returns for each leaf of the inputs the number of its array and of its first row there."""
        own, starts, places, kinds = 0, {}, [], []
        for leaf, batched in zip(self._inputs, self._batched):
            if batched:
                places.append((own, 0))
                own += 1
            else:
                kind = kernel_dtype(self.kernel, leaf.dtype)
                # what all members share stands in one array for each dtype, end to end
                kinds += [] if kind in kinds else [kind]
                places.append((kinds.index(kind), starts.get(kind, 0)))
                starts[kind] = starts.get(kind, 0) + math.prod(leaf.shape)
        self._kinds = kinds
        return places

    def operands(self, members: Members) -> KernelOperands:
        """Returns the arrays that the kernel reads."""
        own: list[Array] = []
        parts: list[list[Array]] = [[] for _ in self._kinds]
        for leaf, batched, (number, _) in zip(jax.tree.leaves(members.inputs), self._batched, self._places):
            kind = kernel_dtype(self.kernel, leaf.dtype)
            if batched:
                own.append(leaf.astype(kind).reshape(math.prod(leaf.shape[:-1]), leaf.shape[-1]))
            else:
                parts[number].append(leaf.astype(kind).reshape(-1))
        return KernelOperands(own, [jnp.concatenate(part) for part in parts], members.targets)

    def outputs(self) -> list[tuple[int, Any]]:
        """Returns rows and dtype of each array that the kernel writes: the results, then what is saved."""
        found = []
        for dtypes, times in ((self.results, 1), (self.saved, self.saves + 1)):
            found += [(dtypes.count(kind) * times, kind) for kind in kinds_of(dtypes)]
        return found

    def run(self, device: Any, own: Any, shared: Any, targets: Any, outs: Any, saved: Any) -> None:
        """Runs a block of members.

        Args:
            device: The position of the block's lanes: `own(ref, row)`, `shared(ref, row)`, `write(ref, row, values)`;
                how they agree, `any(condition)`; and `call(program, *elements)`.
            own: References to what each member has of its own.
            shared: References to what members share, for each dtype.
            targets: A reference to the targets, or None.
            outs: References to the results, one for each dtype.
            saved: References to what is saved, one for each dtype.
        """
        mine = {
            k: [device.own(own[number], row) for row in range(math.prod(leaf.shape))]
            for k, (leaf, (number, _)) in enumerate(zip(self._inputs, self._places))
            if self._batched[k]
        }

        def inputs() -> list[Array]:
            """Values that members share are read again at every iteration, so that they take no registers."""
            found = []
            for k, (leaf, (number, first)) in enumerate(zip(self._inputs, self._places)):
                rows = range(first, first + math.prod(leaf.shape))
                found += mine[k] if self._batched[k] else [device.shared(shared[number], row) for row in rows]
            return found

        state = self._pack(device.call(self.start, *inputs()))
        iterations = jnp.zeros((), jnp.int32)
        if isinstance(self.loop, UntilDone):
            iterations, state = self._until_done(device, inputs, iterations, state, targets, saved)
        else:
            iterations, state = self._counted(device, inputs, state)
        values = self._pack(device.call(self.result, *self._unpack(state), *inputs()))
        values.append(jnp.broadcast_to(iterations, self.lanes))
        self._write(device, outs, 0, self.results, values)

    def _until_done(self, device, inputs, iterations, state, targets, saved) -> tuple[Array, list[Array]]:
        def until(iterations, state, target):
            # a block goes on until its slowest member is there; `advance` leaves the others as they are
            def going(carry):
                return device.any(device.call(self.pending, *self._unpack(carry[1]), target)[0])

            def iterate(carry):
                iterations, state = carry
                return iterations + 1, self._pack(device.call(self.advance, *self._unpack(state), *inputs(), target))

            return while_loop(going, iterate, (iterations, state))

        end = device.call(self.end, *inputs())[0]
        if not self.saves:
            return until(iterations, state, end)

        def save(number, carry):
            iterations, state = carry
            read = device.own if self._targets_batched else device.shared
            target = read(targets, jnp.minimum(number, np.int32(self.saves - 1)))
            target = jnp.where(jnp.broadcast_to(number == self.saves, self.lanes), end, target)
            iterations, state = until(iterations, state, target)
            values = self._pack(device.call(self.save, *self._unpack(state), *inputs(), target))
            self._write(device, saved, number, self.saved, values)
            return iterations, state

        # the end is one more target, so that the program has one loop, and what is saved there goes to waste
        return _repeat(self.saves + 1, save, (iterations, state))

    def _counted(self, device, inputs, state) -> tuple[Array, list[Array]]:
        assert isinstance(self.loop, Counted)
        total = 0
        for first, segments, length in self.loop.segments:

            def segment(k, state, first=first, length=length):
                begin = first + k * length

                def step(j, state):
                    number = jnp.broadcast_to(begin + j, self.lanes)
                    return self._pack(device.call(self.step, *self._unpack(state), *inputs(), number))

                state = _repeat(length, step, state)
                done = jnp.broadcast_to(begin + length, self.lanes)
                return self._pack(device.call(self.look, *self._unpack(state), done))

            state = _repeat(segments, segment, state)
            total += segments * length
        return jnp.full((), total, jnp.int32), state

    def _pack(self, elements: list[Array]) -> list[Array]:
        """Returns elements as a loop carries them and memory keeps them: truth values as integers."""
        return [jnp.where(x, np.int32(1), np.int32(0)) if x.dtype == np.bool_ else x for x in elements]

    def _unpack(self, state: list[Array]) -> list[Array]:
        dtypes = elements_of(self.start.out)
        return [x != 0 if np.dtype(dtype) == np.bool_ else x for x, dtype in zip(state, dtypes)]

    def _write(self, device, refs, number, dtypes, values) -> None:
        """Writes elements to the arrays of their dtypes, `number` times as far down as there are of each."""
        kinds = kinds_of(dtypes)
        rows = dict.fromkeys(kinds, 0)
        for dtype, value in zip(dtypes, values):
            device.write(refs[kinds.index(dtype)], number * dtypes.count(dtype) + rows[dtype], value)
            rows[dtype] += 1

    def collect(self, outs: list[Array], saved: list[Array]) -> tuple[PyTree, PyTree, Array]:
        """Returns the results, what was saved, targets first, and the number of iterations, members last.

        Args:
            outs: The results for each dtype, of shape `(elements, members)`.
            saved: The saved values for each dtype, `(saves * elements, members)`.
        """
        of_members = [x.reshape(1, *x.shape) for x in outs]
        (*values, iterations) = self._rows(of_members, self.results)
        result = self._shaped(self.result.out, [x[0] for x in values], 0)
        found = None
        if self.saves:
            # without the end, which was one more target
            split = [x.reshape(self.saves + 1, -1, x.shape[-1])[: self.saves] for x in saved]
            found = self._shaped(self.saved_out, self._rows(split, self.saved), 1)
        return result, found, iterations[0]

    def _rows(self, arrays: list[Array], dtypes: list) -> list[Array]:
        kinds = kinds_of(dtypes)
        rows = dict.fromkeys(kinds, 0)
        found = []
        for dtype in dtypes:
            found.append(arrays[kinds.index(dtype)][:, rows[dtype]])
            rows[dtype] += 1
        return found

    def _shaped(self, like: PyTree, rows: list[Array], axis: int) -> PyTree:
        rest = iter(rows)

        def leaf(s):
            parts = jnp.stack([next(rest) for _ in range(math.prod(s.shape))], axis=axis)
            return parts.reshape(*parts.shape[:axis], *s.shape, parts.shape[-1]).astype(s.dtype)

        return jax.tree.map(leaf, like)


def _repeat(times: int, body: Callable[[Array, Any], Any], carry: Any) -> Any:
    """Returns the carry after some iterations; `fori_loop` counts them in 64 bits, where these are enabled."""

    def iterate(counted):
        number, carry = counted
        return number + 1, body(number, carry)

    return while_loop(lambda counted: counted[0] < times, iterate, (jnp.zeros((), jnp.int32), carry))[1]


def kinds_of(dtypes: list) -> list:
    """Returns the dtypes that there are, each once, in the order of their first."""
    return list(dict.fromkeys(dtypes))
