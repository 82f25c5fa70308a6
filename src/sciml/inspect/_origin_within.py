"""The search for what is not finite, within loops, choices and `jax.shard_map`s.

Each takes the class of the search, which goes on in the programs that it runs.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._jax._jaxprs import run_equation, scan_counts
from ._flat_program import FlatProgram, Op, bad_in
from ._held_values import AbstractHolding, OverDevices
from ._origin_found import FromInput, Origin

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
        self._compiled = jax.jit(lambda *operands: run_equation(self.eqn, operands, self.flat.debug_info))

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
        carry: What it carries there.
        rows: Its rows, those of later iterations zero.
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
