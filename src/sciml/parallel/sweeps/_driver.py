"""A sweep at work: all members once, and those that failed again."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from ..._progress import Report
from ..._status import SolveError, raise_for_status
from ...stores._pytree_names import check_names
from .._blocks import check_block
from .._mesh import member_groups
from ._batches import BlockPlan, choose_block
from ._checkpoints import StoredBlocks, open_store, open_sweep, origin_of, stored_block
from ._collect import Collected
from ._executable import BlockResult, Executable, SweepSpec
from ._executors import run_elsewhere, run_here
from ._result import SweepResult


class Sweep:
    """The state of a sweep.

    Attributes:
        members: The members, with NumPy arrays.
        n: Their number.
        plan: Which of them run in which block.
        collected: The results so far.
    """

    def __init__(
        self,
        spec: SweepSpec,
        members: Any,
        order: np.ndarray,
        chosen: Mesh,
        *,
        block: int | None,
        memory: int | None,
        schedule: str,
        store: Any,
        resume: bool,
        stop: bool,
        attempts: Sequence[Any],
        executor: Any,
    ):
        self.members = members
        self.n = order.size
        self._executable = executable = Executable(member_groups(chosen), spec)
        self._stop = stop
        self._attempts = attempts
        self._executor = executor
        opened = None if store is None else open_store(store, rows_only=spec.reduce is None and not attempts)
        if block is None and opened is not None:
            block = stored_block(opened)
        if block is None:

            def measure(block: int) -> int:
                return executable.measure(BlockPlan(order, block).batch(members, 0))

            block = choose_block(self.n, chosen, schedule, memory, measure)
        self.plan = BlockPlan(order, check_block(block, where="sweep"))
        first = self.plan.batch(members, 0)
        self._like = executable.shapes(first)
        if spec.reduce is None and not any(hasattr(x, "shape") for x in jax.tree.leaves(self._like.values)):
            raise TypeError(
                f"`sweep`: a member has no values, since `fn` or `output` returned {self._like.values!r}. Does the "
                "function end with `return`?"
            )
        self.collected = Collected(self.n, self._like, spec.reduce)
        self._blocks = None
        self._stored, self._written, self._store = 0, 0, opened
        if opened is not None:
            check_names(self._like)
            program = executable.lower(first).as_text()
            run = open_sweep(opened, spec, members, self.plan, program, schedule=schedule, resume=resume)
            self._blocks = StoredBlocks(opened, self._like, run)

    def first_pass(self, numbers: Sequence[int], report: Report) -> None:
        """Runs the blocks `numbers`, of all members, where they are not in the store.

        Raises:
            SolveError: If a member failed and the sweep is to stop then.
        """
        missing = []
        for number in numbers:
            stored = None if self._blocks is None else self._blocks.read(number, self.plan.ids(number))
            if stored is None:
                missing.append(number)
            else:
                self._stored += self.plan.ids(number).size
                self._add(number, stored, report)
        for number, result in self._run(self._executable, self.plan, missing):
            if self._blocks is not None:
                self._blocks.write(number, self.plan.ids(number), result)
                self._written += self.plan.ids(number).size
            self._add(number, result, report)

    def retry(self, report: Report) -> None:
        """Runs the members that failed again, as often as there are attempts."""
        at = self.plan.blocks
        for change in self._attempts:
            failed = np.flatnonzero(self.collected.status)
            if not failed.size:
                return
            spec, plan = self._executable.spec.changed(change), BlockPlan(failed, self.plan.block)
            executable, first = Executable(self._executable.groups, spec), plan.batch(self.members, 0)
            _check_like(executable.shapes(first), self._like)
            missing, origin = list(range(plan.blocks)), np.zeros(16, np.uint8)
            if self._blocks is not None:
                origin = origin_of(executable.lower(first).as_text(), spec, failed)
                found = {number: self._blocks.read(at + number, plan.ids(number), origin) for number in missing}
                missing = [number for number in missing if found[number] is None]
                for number, result in found.items():
                    if result is not None:
                        self.collected.add_again(at + number, plan.ids(number), result)
            for number, result in self._run(executable, plan, missing):
                if self._blocks is not None:
                    self._blocks.write(at + number, plan.ids(number), result, origin)
                self.collected.add_again(at + number, plan.ids(number), result)
                report(self.n, failed=self.collected.failed)
            at += plan.blocks

    def result(self, seconds: float) -> SweepResult:
        """Returns the results so far."""
        found = self.collected
        return SweepResult(
            values=found.values,
            status=found.status,
            members=self.members,
            seconds=seconds,
            reduced=found.reduced,
            attempts=found.attempts,
            n_steps=found.work,
            block=self.plan.block,
            stored=self._stored,
        )

    def kept(self) -> str:
        """Says what a sweep that is interrupted has in its store; nothing where it has none."""
        if self._blocks is None:
            return ""
        there = self._stored + self._written
        return f"`sweep`: {there} of {self.n} members are in {self._store}; the same call goes on from there."

    def _run(self, executable: Executable, plan: BlockPlan, numbers: list[int]) -> Iterator[tuple[int, BlockResult]]:
        def batch(number):
            return plan.batch(self.members, number)

        if self._executor is None:
            return run_here(executable, numbers, batch)
        return run_elsewhere(self._executor, executable.spec, numbers, batch, self._like)

    def _add(self, number: int, result: BlockResult, report: Report) -> None:
        self.collected.add(number, self.plan.ids(number), result)
        if self._stop and self.collected.failed:
            self._raise()
        report(self.collected.done, failed=self.collected.failed)

    def _raise(self) -> None:
        """Raises an error about the members that failed."""
        try:
            raise_for_status(self.collected.status, where="sweep")
        except SolveError as error:
            seen = f"The sweep stopped there: {self.collected.done} of {self.n} members had run."
            raise SolveError(f"{error}\n{seen}", error.status) from None


def _check_like(found: BlockResult, expected: BlockResult) -> None:
    """Checks that what a retry returns can take the place of what failed."""
    if _shapes(found) != _shapes(expected):
        raise ValueError(
            "`sweep`: an attempt of `on_fail` returns something else than `fn`: "
            f"{_shapes(found)} in place of {_shapes(expected)}. Both must return arrays of the same shapes and dtypes."
        )


def _shapes(result: BlockResult) -> list[str]:
    leaves = jax.tree_util.tree_leaves_with_path((result.values, result.work))
    return [f"{jax.tree_util.keystr(path)} {x.dtype}{list(x.shape[1:])}" for path, x in leaves if hasattr(x, "shape")]
