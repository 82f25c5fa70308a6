"""The origin of the first number that is not finite: back through a program, its loops and its choices.

A value that is not finite has its cause in an operand that is not, or in the operation itself. So the search goes back
from a result to an operation with finite operands. Operations run one by one. Loops run compiled and note only, for
each value that they carry, since which iteration it is not finite. The search then runs the loop once more, up to that
iteration, and continues in its body. A solve of ten thousand steps costs a few runs.

Some programs write NaN themselves, like sciml for values that a failed solve did not reach. There the trail ends, and
what counts is why: an operation of a line of the user's that made of finite numbers one that is not, in the last
iterations before.

Within a `jax.shard_map` all devices are looked at side by side. If they do not run in step, as in loops that end at
different iterations, the search continues with one of them, and all run as that one does.
"""

import abc
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from .._jax._interpreters import ClosedJaxpr, jaxpr_as_fun
from .._jax._vma import to_varying
from .._jax.programs import _names as names, programs_within, run_anew, run_equation, scan_counts
from ._flat_program import Fixed, FlatProgram, Op, Ref, bad_in, badness
from ._programs import Place

# The result of a search for the first number that is not finite.


class Origin(NamedTuple):
    """An operation that makes of finite numbers one that is not.

    Attributes:
        place: The equation, and where it is.
        operands: The values of its operands.
        results: Its results.
        transposed: Whether only a backward pass reads its results, as far as its program shows.
        loops: The iteration of each loop around it, the outermost first; of a loop that runs backwards over rows, the
            row.
        step: The number of the step that it belongs to, if a loop of sciml's provides it.
        written: Whether the program itself has written it there.
        order: The iterations of the loops around it as they follow each other.
        device: The device of a `jax.shard_map`.
        coordinates: The place of that device in its mesh; None outside.
    """

    place: Place
    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    transposed: bool
    loops: tuple[int, ...] = ()
    step: int | None = None
    written: bool = False
    order: tuple[int, ...] = ()
    device: int = 0
    coordinates: dict[str, int] | None = None


class FromInput(NamedTuple):
    """The trail leads out of a program.

    Attributes:
        numbers: Through which of its constants and inputs.
    """

    numbers: tuple[int, ...]


# The values of a program during the search: as they are, or the values of all devices side by side.
#
# Within a `jax.shard_map` a value differs from device to device, and devices take part in each other's operations. So
# the search has the values of all of them, with an axis of devices in front, and runs every operation on all devices at
# once, again within a `jax.shard_map`.


class AbstractHolding(abc.ABC):
    """How values are held, and how functions of them run."""

    @abc.abstractmethod
    def held(self, x: Any) -> Any:
        """Returns a value that all devices have."""

    @abc.abstractmethod
    def of_device(self, x: Any, device: int) -> Any:
        """Returns the value of one device."""

    @abc.abstractmethod
    def alone(self, values: Sequence[Any], device: int) -> list[Any]:
        """Returns values with the values of one device on all devices."""

    @abc.abstractmethod
    def by_device(self, x: Any) -> np.ndarray:
        """Returns a value with an axis of devices in front."""

    @abc.abstractmethod
    def compiled(self, fn: Callable) -> Callable:
        """Returns a function of one device's values as a function of held ones."""

    @abc.abstractmethod
    def varying(self, tree: Any) -> Any:
        """Returns values as what a loop carries from iteration to iteration, within a function that is compiled."""

    @abc.abstractmethod
    def function(self, closed: ClosedJaxpr) -> Callable[..., list]:
        """Returns a program as a function of one device's values."""

    @abc.abstractmethod
    def all_results(self, flat: FlatProgram) -> Callable[[Sequence[Any]], list[list[Any]]] | None:
        """Returns the results of all operations as a function of constants and inputs; None: run them one by one."""

    def value_of(self, x: Ref, known: Sequence[Any]) -> Any:
        """Returns the held value of an operand."""
        return self.held(jnp.asarray(x.value)) if isinstance(x, Fixed) else known[x]


class AsTheyAre(AbstractHolding):
    """Outside of `jax.shard_map`."""

    def held(self, x: Any) -> Any:
        """As `AbstractHolding.held`."""
        return x

    def of_device(self, x: Any, device: int) -> Any:
        """As `AbstractHolding.of_device`."""
        return x

    def alone(self, values: Sequence[Any], device: int) -> list[Any]:
        """As `AbstractHolding.alone`."""
        return list(values)

    def by_device(self, x: Any) -> np.ndarray:
        """As `AbstractHolding.by_device`."""
        return np.asarray(x)[None]

    def compiled(self, fn: Callable) -> Callable:
        """As `AbstractHolding.compiled`."""
        return jax.jit(fn)

    def varying(self, tree: Any) -> Any:
        """As `AbstractHolding.varying`."""
        return tree

    def function(self, closed: ClosedJaxpr) -> Callable[..., list]:
        """As `AbstractHolding.function`."""
        return jaxpr_as_fun(closed)

    def all_results(self, flat: FlatProgram) -> None:
        """As `AbstractHolding.all_results`: what is large need not be kept, then."""


class OverDevices(AbstractHolding):
    """Within a `jax.shard_map`: values with an axis of devices in front.

    Args:
        eqn: The equation of the `jax.shard_map`.
    """

    def __init__(self, eqn: Any):
        self.eqn, mesh = eqn, eqn.params["mesh"]
        self.mesh = mesh if isinstance(mesh, jax.sharding.Mesh) else jax.sharding.get_mesh()  # that of `jax.set_mesh`
        manual = eqn.params["manual_axes"] if "manual_axes" in eqn.params else eqn.params["newly_manual_axes"]
        self.axes = tuple(name for name in self.mesh.axis_names if name in manual)
        self.checked = eqn.params["check_vma"]
        self.count = int(np.prod([self.mesh.shape[name] for name in self.axes]))

    def coordinates(self, device: int) -> dict[str, int]:
        """Returns the place of a device in the mesh."""
        place = np.unravel_index(device, [self.mesh.shape[name] for name in self.axes])
        return {name: int(i) for name, i in zip(self.axes, place)}

    def split(self, operands: Sequence[Any]) -> list[Any]:
        """Returns operands of the `jax.shard_map` as each device gets them."""

        def alone(*xs):
            return [x[None] for x in xs]

        return jax.jit(self._mapped(alone, tuple(self.eqn.params["in_specs"]), check=False))(*operands)

    def _mapped(self, fn: Callable, in_specs: Any, check: bool) -> Callable:
        how: dict[str, Any] = dict(mesh=self.mesh, axis_names=set(self.axes), check_vma=check)
        return jax.shard_map(fn, in_specs=in_specs, out_specs=PartitionSpec(self.axes), **how)

    def held(self, x: Any) -> Any:
        """As `AbstractHolding.held`."""
        x = jnp.broadcast_to(jnp.asarray(x)[None], (self.count, *jnp.shape(x)))
        return jax.device_put(x, NamedSharding(self.mesh, PartitionSpec(self.axes)))

    def of_device(self, x: Any, device: int) -> Any:
        """As `AbstractHolding.of_device`."""
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):  # random keys
            rows = np.asarray(jax.random.key_data(x))
            return jax.random.wrap_key_data(jnp.asarray(rows[device]), impl=jax.random.key_impl(x))
        return jnp.asarray(np.asarray(x)[device])

    def alone(self, values: Sequence[Any], device: int) -> list[Any]:
        """As `AbstractHolding.alone`."""
        return [self.held(self.of_device(x, device)) for x in values]

    def by_device(self, x: Any) -> np.ndarray:
        """As `AbstractHolding.by_device`."""
        return np.asarray(x)

    def compiled(self, fn: Callable) -> Callable:
        """As `AbstractHolding.compiled`."""

        def one(*held):
            return jax.tree.map(lambda x: self.varying(x)[None], fn(*jax.tree.map(lambda x: x[0], held)))

        return jax.jit(self._mapped(one, PartitionSpec(self.axes), self.checked))

    def varying(self, tree: Any) -> Any:
        """As `AbstractHolding.varying`."""
        return to_varying(tree, self.axes) if self.checked else tree

    def function(self, closed: ClosedJaxpr) -> Callable[..., list]:
        """As `AbstractHolding.function`."""
        flat = FlatProgram(closed.jaxpr)

        def run(*args):
            known, _ = self._run(flat, (*closed.consts, *args))
            return [self._read(x, known) for x in flat.results]

        return run

    def all_results(self, flat: FlatProgram) -> Callable[[Sequence[Any]], list[list[Any]]]:
        """As `AbstractHolding.all_results`."""
        return self.compiled(lambda given: self._run(flat, given)[1])

    def _read(self, x: Ref, known: Sequence[Any]) -> Any:
        return self.varying(jnp.asarray(x.value) if isinstance(x, Fixed) else known[x])

    def _run(self, flat: FlatProgram, given: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
        """Returns the values of a program on one device, and the results of each operation."""
        known, results = [*given, *[None] * (flat.size - flat.inputs)], []
        for op in flat.ops:
            out = [self.varying(x) for x in self._operation(op, [self._read(x, known) for x in op.inputs])]
            results.append(out)
            for number, value in zip(op.outputs, out, strict=True):
                known[number] = value
        return known, results

    def _operation(self, op: Op, operands: list[Any]) -> Sequence[Any]:
        """Returns the results of an operation on one device, all of which vary over all axes."""
        eqn = op.place.eqn
        if op.name in names.PROMOTIONS:
            return operands
        if op.name == "cond" or op.name in names.LOOPS:
            return run_anew(eqn, operands, self.function)
        if any(programs_within(eqn)):
            return run_equation(eqn, operands)
        made = eqn.primitive.bind(*operands, **eqn.params)
        return made if eqn.primitive.multiple_results else [made]


# The search for what is not finite, within loops, choices and `jax.shard_map`s.
#
# Each takes the class of the search, which goes on in the programs that it runs.
_ENDLESS = 2**31 - 2
_LAST = 3  # in so many of a loop's last iterations the reason of a failure is looked for


class ShardedWithin:
    """A `jax.shard_map`."""

    def __init__(self, op: Op, holding: AbstractHolding, search: Callable[..., Any]):
        del holding
        self.eqn, self.devices = op.place.eqn, OverDevices(op.place.eqn)
        program = self.eqn.params["jaxpr"]
        self.flat = FlatProgram(getattr(program, "jaxpr", program), op.place)
        self.search = search(self.flat, self.devices)
        self._compiled = jax.jit(lambda *operands: run_equation(self.eqn, operands))

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Returns the results."""
        return self._compiled(*operands)

    def origin(self, operands: Sequence[Any], result: int) -> Origin | FromInput | None:
        """As `Search.origin`, on all devices."""
        found = self.search.origin(self.devices.split(operands), result)
        return self._placed(found) if isinstance(found, Origin) else found

    def event(self, operands: Sequence[Any]) -> Origin | None:
        """As `Search.event`."""
        found = self.search.event(self.devices.split(operands))
        return None if found is None else self._placed(found)

    def _placed(self, found: Origin) -> Origin:
        return found._replace(device=0, coordinates=self.devices.coordinates(found.device))


class BranchesWithin:
    """A choice between programs; devices may choose differently."""

    def __init__(self, op: Op, holding: AbstractHolding, search: Callable[..., Any]):
        self.branches = op.place.eqn.params["branches"]
        self.searches: dict[int, Any] = {}
        self.place, self.holding, self._search = op.place, holding, search

    def _taken(self, operands: Sequence[Any], device: int = 0) -> tuple[Any, list[Any], int]:
        taken = int(np.clip(self.holding.by_device(operands[0])[device], 0, len(self.branches) - 1))
        branch = self.branches[taken]
        if taken not in self.searches:
            self.searches[taken] = self._search(FlatProgram(branch.jaxpr, self.place), self.holding)
        consts = [self.holding.held(x) for x in branch.consts]
        return self.searches[taken], [*consts, *operands[1:]], len(branch.consts)

    def _apart(self, operands: Sequence[Any]) -> list[tuple[int, Sequence[Any]]]:
        """Returns devices, with operands for which all choose as these do; one where all choose the same."""
        chosen = self.holding.by_device(operands[0])
        if np.all(chosen == chosen[0]):
            return [(0, operands)]
        return [(i, self.holding.alone(operands, i)) for i in range(len(chosen))]

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Returns the results."""
        search, given, _ = self._taken(operands)
        return search.run(given)

    def origin(self, operands: Sequence[Any], result: int) -> Origin | FromInput | None:
        """As `Search.origin`, through the branch that is taken."""
        apart = self._apart(operands)
        for device, alone in apart:
            search, given, consts = self._taken(alone, device)
            found = search.origin(given, result)
            if isinstance(found, Origin):
                return found._replace(device=device) if len(apart) > 1 else found
            if found is not None:
                numbers = tuple(n - consts + 1 for n in found.numbers if n >= consts)
                return FromInput(numbers) if numbers else None
        return None

    def event(self, operands: Sequence[Any]) -> Origin | None:
        """As `Search.event`."""
        apart = self._apart(operands)
        for device, alone in apart:
            search, given, _ = self._taken(alone, device)
            found = search.event(given)
            if found is not None:
                return found._replace(device=device) if len(apart) > 1 else found
        return None


class _Runs(NamedTuple):
    """A loop that ran up to an iteration.

    Attributes:
        carry: Its carry there.
        rows: Its rows; the rows of later iterations are zero.
        numbers: How many iterations ran, on each device.
        since_by_device: Since which of them each part of what it carries is not finite, on each device; 0 from the
            start, -1 where it is finite.
    """

    carry: list[Any]
    rows: list[Any]
    numbers: np.ndarray
    since_by_device: np.ndarray

    @property
    def together(self) -> bool:
        """Whether all devices ran equally many iterations."""
        return bool(np.all(self.numbers == self.numbers[0]))

    @property
    def since(self) -> np.ndarray:
        """Since when each part is not finite on any device."""
        first = np.where(self.since_by_device < 0, _ENDLESS, self.since_by_device).min(axis=0)
        return np.where(first == _ENDLESS, -1, first)

    def device(self, part: int) -> int:
        """Returns where a part was the first not to be finite."""
        since = self.since_by_device[:, part]
        return int(np.argmin(np.where(since < 0, _ENDLESS, since)))


class LoopWithin:
    """A `while` or a `scan`, which runs up to any of its iterations."""

    def __init__(self, op: Op, holding: AbstractHolding, search: Callable[..., Any]):
        eqn, self.holding = op.place.eqn, holding
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
        self.search = search(FlatProgram(self.body.jaxpr, op.place), holding)
        self._compiled = holding.compiled(self._loop)
        self._inputs = holding.compiled(self._inputs_of)
        self._whole: tuple[list[Any], _Runs] | None = None

    def _parts(self, operands: Sequence[Any]) -> tuple[list, list, list]:
        rest = list(operands[self.before :])
        end = self.first + self.carried
        return rest[: self.first], rest[self.first : end], rest[end:]

    def _inputs_of(self, operands: Sequence[Any], carry: Sequence[Any], number: Any) -> list[Any]:
        """Returns what the body of an iteration gets."""
        consts, _, xs = self._parts(operands)
        at = self.length - 1 - number if self.reverse else number
        return [*consts, *carry, *(jax.lax.dynamic_index_in_dim(x, at, 0, False) for x in xs)]

    def _ran(self, operands: Sequence[Any], stop: int = _ENDLESS) -> _Runs:
        """Runs up to an iteration."""
        whole = self._whole
        if stop == _ENDLESS and whole is not None and all(a is b for a, b in zip(whole[0], operands, strict=True)):
            return whole[1]
        carry, rows, number, since = self._compiled(list(operands), self.holding.held(np.int32(stop)))
        runs = _Runs(carry, rows, self.holding.by_device(number), self.holding.by_device(since))
        if stop == _ENDLESS:
            self._whole = (list(operands), runs)
        return runs

    def _loop(self, operands: list, stop: Any) -> tuple:
        _, carry, _ = self._parts(operands)
        body, shapes = self.holding.function(self.body), self.body.out_avals[self.carried :]
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
            go_on = self.holding.function(self.params["cond_jaxpr"])(*operands[: self.before], *carry)[0]
            return (number < stop) & go_on

        begin = (jnp.zeros((), jnp.int32), carry, rows, jnp.zeros(len(carry), jnp.int32), flags(carry))
        number, carry, rows, since, bad = jax.lax.while_loop(going, iterate, self.holding.varying(begin))
        return carry, rows, number, jnp.where(bad, since, -1)

    def run(self, operands: Sequence[Any]) -> list[Any]:
        """Returns the results."""
        runs = self._ran(operands)
        return [*runs.carry, *runs.rows]

    def _body(self, operands: Sequence[Any], carry: Sequence[Any], number: int) -> list[Any]:
        consts = [self.holding.held(x) for x in self.body.consts]
        return [*consts, *self._inputs(list(operands), list(carry), self.holding.held(np.int32(number)))]

    def origin(self, operands: Sequence[Any], result: int) -> Origin | FromInput | None:
        """As `Search.origin`."""
        runs, part = self._ran(operands), result
        if not runs.together:
            device = runs.device(part)  # a `while`, which carries all of its results
            found = self.origin(self.holding.alone(operands, device), result)
            return found._replace(device=device) if isinstance(found, Origin) else found
        if result >= self.carried:  # rows, the first of which in the order of the loop counts
            rows = self.holding.by_device(runs.rows[result - self.carried])
            bad = np.flatnonzero(~np.isfinite(rows).reshape(*rows.shape[:2], -1).all(axis=(0, 2)))
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
        runs = self._ran(operands)
        if not runs.together:
            for device in range(len(runs.numbers)):
                found = self.event(self.holding.alone(operands, device))
                if found is not None:
                    return found._replace(device=device)
            return None
        last = int(runs.numbers[0])
        for number in range(last - 1, max(last - 1 - _LAST, -1), -1):
            carry = self._ran(operands, number).carry
            found = self.search.event(self._body(operands, carry, number))
            if found is not None:
                return self._located(found, number)
        return None


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
        return run_equation(op.place.eqn, operands)

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
            result: The index of the result.
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
