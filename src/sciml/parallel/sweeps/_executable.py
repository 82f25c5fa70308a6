"""The program of one block of members: traced and compiled once, and loaded on each device that runs it."""

import concurrent.futures
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from ..._jax._executables import on_other_devices
from ..._same_code import first_of_same_code
from .._blocks import split_static
from .._lapack import must_run_alone
from .._member_status import status_of, work_of
from .._per_device import put
from ..members._pytree import is_array, say_what_member_is


class SweepSpec(eqx.Module):
    """The computation of each member, and of the members of a block.

    Attributes:
        fn: The function.
        output: The stored part of its result; None for all.
        reduce: A PyTree of reductions; None to keep the members' values.
        shared: Values that all members share.
        key: The random key, if there is one.
        by_name: Whether `fn` takes its key by name.
    """

    fn: Any
    output: Any
    reduce: Any
    shared: Any
    key: Any
    by_name: bool = eqx.field(static=True)

    def changed(self, change: Callable | Mapping[str, Any]) -> "SweepSpec":
        """Returns the spec with another function, or with the same one and further keyword arguments."""
        fn = change if callable(change) else eqx.Partial(self.fn, **change)
        by_name = self.key is not None and takes(change, "key") if callable(change) else self.by_name
        return SweepSpec(fn, self.output, self.reduce, self.shared, self.key, by_name)


class MemberBatch(NamedTuple):
    """The members of a block.

    Attributes:
        params: Their parameters, with a leading axis.
        ids: Their numbers.
        real: The members that are not copies to fill up the last block.
    """

    params: PyTree
    ids: Any
    real: Any


class BlockResult(NamedTuple):
    """The result of a block's program.

    Attributes:
        values: The stored values of each member, with a leading axis; None if they are reduced.
        status: A code for each member.
        work: Each member's own steps and the steps executed on its lane, of shape `(block, 2)`; None if the function
            returns no solution with them.
        summaries: The result of each reduction for the block.
    """

    values: PyTree
    status: Any
    work: Any
    summaries: PyTree


def _run_block(batch: MemberBatch, spec: SweepSpec) -> BlockResult:
    """Runs one block.

    A program for one device, or for the devices that one member spans: XLA compiles a program for
    many devices through other passes than a program for one, and the last bits of the two can differ.
    """
    params, params_static = eqx.partition(batch.params, is_array)
    static = None

    def member(params, i):
        nonlocal static
        returned = _call(spec, eqx.combine(params, params_static), i)
        kept, static = split_static(returned if spec.output is None else spec.output(returned))
        return jax.tree.map(_plain, kept), status_of(returned, kept), work_of(returned)

    kept, status, work = jax.vmap(member)(params, batch.ids)
    if spec.reduce is None:
        return BlockResult(eqx.combine(kept, static), status, work, None)
    good = (status == 0) & batch.real
    summaries = jax.tree.map(lambda r: r.of_block(kept, good, batch.ids), spec.reduce, is_leaf=is_reduction)
    return BlockResult(None, status, work, summaries)


run_block: Any = eqx.filter_jit(_run_block)


class Flow(NamedTuple):
    """How many blocks a process has in flight.

    Attributes:
        groups: How many groups of devices run one each.
        ahead: How many more are dispatched before the first is fetched, so that no device is idle.
    """

    groups: int
    ahead: int


class Executable:
    """The program of a block, for the devices of this process, each group of which runs a block at a time."""

    def __init__(self, groups: list[Mesh], spec: SweepSpec):
        self.groups = groups
        self.spec = first_of_same_code(spec)  # for which JAX finds its programs again
        self._ready: dict[int, tuple[SweepSpec, Any]] = {}

    def lower(self, batch: MemberBatch) -> Any:
        """Returns the program of a block of that size, not yet compiled."""
        with jax.set_mesh(self.groups[0]):
            return run_block.lower(put(batch, self.groups[0]), put(self.spec, self.groups[0]))

    def shapes(self, batch: MemberBatch) -> BlockResult:
        """Returns the result of a block of that size, with shapes for arrays; nothing is compiled."""
        with jax.set_mesh(self.groups[0]):
            return eqx.filter_eval_shape(run_block, put(batch, self.groups[0]), put(self.spec, self.groups[0]))

    def measure(self, batch: MemberBatch) -> int:
        """Returns the bytes that one block of that size needs on a device; nothing runs."""
        with jax.set_mesh(self.groups[0]):
            found = self.lower(batch).compile().compiled.memory_analysis()
        if found is None:  # not every backend says
            return 0
        return found.temp_size_in_bytes + found.argument_size_in_bytes + found.output_size_in_bytes

    def compile(self, batch: MemberBatch, blocks: int) -> Flow:
        """Prepares the program on the devices that the blocks use, and returns how they may run."""
        used = min(blocks, len(self.groups))
        if used == 1:
            self._compiled(0, put(batch, self.groups[0]))
            return Flow(groups=1, ahead=1)
        text = self.lower(batch).as_text()
        if must_run_alone(lambda: text, self.groups[0].devices.flat[0].platform):
            return Flow(groups=1, ahead=0)
        _, compiled = self._compiled(0, put(batch, self.groups[0]))
        devices = [list(group.devices.flat) for group in self.groups]
        for at in range(1, used):
            moved = on_other_devices(compiled.compiled, text, devices[0], devices[at])
            if moved is not None:
                own = eqx.tree_at(lambda c: c.compiled, compiled, moved)
                self._ready[at] = put(self.spec, self.groups[at]), own
        with concurrent.futures.ThreadPoolExecutor(used) as threads:
            list(threads.map(lambda at: self._compiled(at, put(batch, self.groups[at])), range(used)))
        return Flow(groups=used, ahead=1)

    def run(self, at: int, batch: MemberBatch) -> BlockResult:
        """Dispatches a block to group `at`; the arrays that it returns may not be there yet."""
        batch = put(batch, self.groups[at])
        spec, compiled = self._compiled(at, batch)
        with jax.set_mesh(self.groups[at]):
            return compiled(batch, spec)

    def _compiled(self, at: int, batch: MemberBatch) -> tuple[SweepSpec, Any]:
        if at not in self._ready:
            with jax.set_mesh(self.groups[at]):
                spec = put(self.spec, self.groups[at])
                self._ready[at] = spec, run_block.lower(batch, spec).compile()
        return self._ready[at]


def is_reduction(x: Any) -> bool:
    """Whether `x` is a reduction, by what it can do."""
    return callable(getattr(x, "of_block", None)) and callable(getattr(x, "merge", None))


def takes(fn: Any, name: str) -> bool:
    """Whether a function has a parameter of that name, to be given by name."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return False
    found = parameters.get(name)
    if found is None:
        return False
    return found.kind not in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


def needs(fn: Any, name: str) -> bool:
    """Whether a function has a keyword-only parameter of that name, without a default."""
    found = inspect.signature(fn).parameters[name] if takes(fn, name) else None
    return found is not None and found.kind is found.KEYWORD_ONLY and found.default is found.empty


def takes_any(fn: Any) -> bool:
    """Whether a function takes keyword arguments of any name."""
    try:
        return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return True


def to_numpy(result: BlockResult) -> BlockResult:
    """Returns the result with NumPy arrays; waits for them."""
    return jax.tree.map(lambda x: np.asarray(x) if is_array(x) else x, result)


def _call(spec: SweepSpec, params: PyTree, i: Any) -> PyTree:
    args = (params,) if spec.shared is None else (params, spec.shared)
    try:
        if spec.key is None:
            return spec.fn(*args)
        key = jax.random.fold_in(spec.key, i)
        return spec.fn(*args, key=key) if spec.by_name else spec.fn(*args, key)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        say_what_member_is(error, "sweep", params)
        raise


def _plain(x: Any) -> Any:
    # NumPy cannot hold typed random keys; their data can be wrapped again.
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
