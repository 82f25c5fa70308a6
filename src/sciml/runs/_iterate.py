"""`iterate`: a long run whose steps are a function of the user's."""

import os
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._checks import check_count, check_key
from .._jax._loops import scan, while_loop
from .._progress import ProgressOption, check_progress
from .._status import Status
from .._types import IntScalarLike, Key
from ..stores._abstract import AbstractStore
from ._execute import execute
from ._prepare import check_concrete, sizes_of
from ._run import Run
from .segments._abstract import AbstractSegment, Carry, Info, SegmentFrames
from .segments._in_axes import Inputs, read_axes
from .segments._stops import SteadyState, Stops, read_stops


class IterateState(NamedTuple):
    """The state from which a run resumes.

    Attributes:
        state: The state.
        taken: The number of steps so far.
        status: A code of `Status`.
        cause: The number of the condition that stopped it, or 0.
    """

    state: PyTree
    taken: Array
    status: Array
    cause: Array

    @property
    def runs(self) -> Array:
        """Whether it has neither failed nor been stopped."""
        return (self.status == 0) & (self.cause == 0)


class StepSegment(AbstractSegment):
    """The inputs that do not change from one segment to the next; `elapsed` counts steps.

    Attributes:
        output: The part of a state to save, or None.
        keyed: Whether a step takes a random key.
    """

    elapsed: Array
    output: Callable | None
    stops: Stops
    saves: int = eqx.field(static=True)
    slots: int = eqx.field(static=True)
    segment_steps: int = eqx.field(static=True)
    keyed: bool = eqx.field(static=True)
    clock: ClassVar[str] = "step"
    unit: ClassVar[str] = "step"
    end: ClassVar[str] = "step"

    def start(self, state: PyTree) -> Carry:
        """Returns the start of the first segment."""
        zero = jnp.zeros((), jnp.int32)
        return Carry(IterateState(state, zero, zero, jnp.zeros((), jnp.int8)), zero)

    @eqx.filter_jit
    def advance(self, inputs: Inputs, carry: Carry) -> tuple[Carry, SegmentFrames, Info]:
        """Takes the steps of one segment."""
        step, _, key = inputs.whole(inputs.own)
        targets = jax.lax.dynamic_slice(self.elapsed, (carry.reached,), (self.slots,))

        def one(carried):
            number, now = carried
            keys = (jax.random.fold_in(key, now.taken),) if self.keyed else ()
            return number + 1, now._replace(state=step(now.state, *keys), taken=now.taken + 1)

        def reach(carried, target):
            number, now = carried
            # a time that has passed already, so that a chain that has ended takes no step
            goal = jnp.where(now.runs, target, -jnp.ones_like(target))
            number, now = while_loop(
                lambda c: (c[1].taken < goal) & (c[0] < self.segment_steps), one, (number, now), like=(key, goal)
            )
            failed = now.runs & _any_nan(now.state)
            status = jnp.where(failed, jnp.full_like(now.status, int(Status.nonfinite)), now.status)
            arrived = now.runs & (now.taken == target)
            now = now._replace(status=status)
            valid, kept = arrived & ~failed & (self.saves > 0), None
            if self.saves:
                cause = self.stops.first(lambda stop: stop(now.state))
                now = now._replace(cause=jnp.where(valid, cause, now.cause))
                kept = jax.tree.map(jnp.asarray, now.state if self.output is None else self.output(now.state))
            return (number, now), (kept, valid, arrived)

        (_, end), (kept, valid, arrived) = scan(reach, (jnp.zeros((), jnp.int32), carry.member), targets, like=key)
        valid = valid & (carry.reached + jnp.arange(self.slots, dtype=jnp.int32) < self.saves)
        after = Carry(end, carry.reached + jnp.sum(arrived, dtype=jnp.int32))
        return after, SegmentFrames(kept, valid), _info(after)

    def states(self, inputs: Inputs, carry: Carry) -> PyTree:
        """Returns the state."""
        del inputs
        return carry.member.state

    def info(self, carry: Carry) -> Info:
        """Returns the values that the host reads, as NumPy arrays."""
        return Info(*map(np.asarray, _info(carry)))

    def time_at(self, elapsed: np.ndarray) -> np.ndarray:
        """Returns the number of steps."""
        return elapsed


def _info(carry: Carry) -> Info:
    now = carry.member
    return Info(carry.reached, now.status, now.taken, now.cause, now.taken, jnp.zeros_like(now.taken))


def _any_nan(state: PyTree) -> Any:
    found = jnp.asarray(False)
    for x in jax.tree.leaves(state):
        if jnp.issubdtype(x.dtype, jnp.inexact):
            found = found | jnp.any(jnp.isnan(x))
    return found


def iterate(
    step: Callable[..., PyTree],
    state: PyTree,
    n_steps: IntScalarLike,
    *,
    key: Key | None = None,
    save_every: IntScalarLike | None = None,
    output: Callable[[PyTree], PyTree] | None = None,
    stop: Any = None,
    store: str | os.PathLike | AbstractStore | None = None,
    resume: bool = True,
    checkpoint_every: float = 60.0,
    checkpoints: AbstractStore | None = None,
    segment_steps: IntScalarLike | None = None,
    progress: ProgressOption = True,
    throw: bool = True,
) -> Run:
    r"""Takes many steps of your own, $s_{n+1} = \mathrm{step}(s_n, k_n)$, as `simulate` takes the steps of a solver.

    `iterate` is for Monte Carlo chains, cellular automata, lattice models, and other iterated functions. Frames,
    checkpoints, resuming after a crash with bitwise identical results, and the progress bar work as in `simulate`. Step
    $n$ gets the key $k_n =$ `jax.random.fold_in(key, n)`, so results depend neither on segments nor on interruptions.

    Args:
        step: `step(state, key)`, or `step(state)` without `key`: returns the next state, a PyTree like `state`.
        state: The initial state, a PyTree of arrays of any dtype.
        n_steps: The number of steps.
        key: A random key.
        save_every: The number of steps between two frames; the first is the initial state. Without it there are no
            frames, and `Run.y` is the last state.
        output: `output(state)`, the part of the state to save, computed on the device; by default the state.
        stop: Conditions that end the run early, checked at every frame: a function `stop(state) -> bool`,
            `sciml.runs.WallTime(seconds)`, or a list of these. NaN in the state always ends it.
        store: A folder for the frames, an `NpzStore`, or a `ZarrStore`. By default frames stay in memory.
        resume: Whether to continue the run in the store. If False, a store that already contains a run raises an error.
        checkpoint_every: The seconds between two checkpoints; 0 for one after every segment.
        checkpoints: A store for checkpoints, with another path than `store`; by default the folder `checkpoints` in
            `store`. A store without a path needs it to resume.
        segment_steps: The maximum number of steps in a segment, after which the host checks the run; by default a few
            thousand for small states, fewer for large ones.
        progress: Whether to show a progress bar, or a function that is called with a `Progress` after every segment.
        throw: Whether to raise an error at the end if the run failed.

    Returns:
        A `sciml.runs.Run`, whose times are numbers of steps.

    Raises:
        ValueError: If an argument is out of range, or the result of `step` does not match `state`.
        TypeError: If an argument has the wrong type.
        StoreError: If the store cannot be written to, or contains another run; the message lists the differences.
        SolveError: If the state becomes NaN and `throw` is set; everything that was reached is in the store.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def metropolis(x, key):
            proposed, chance = jax.random.split(key)
            new = x + jax.random.normal(proposed, x.shape)
            return jnp.where(jnp.log(jax.random.uniform(chance, x.shape)) < (x**2 - new**2) / 2, new, x)

        run = sciml.runs.iterate(
            metropolis, jnp.zeros(500), 200, key=jax.random.key(0), save_every=20, store="chain", progress=False
        )
        assert len(run) == 11 and run.ts[-1] == 200
        assert abs(run[-1].mean()) < 0.3 and abs(run[-1].var() - 1) < 0.3
        ```
    """
    check_progress(progress, where="iterate")
    if not callable(step):
        raise TypeError(f"`iterate`: `step` must be callable as `step(state, key)`, but is {step!r}.")
    if output is not None and not callable(output):
        raise TypeError(f"`iterate`: `output` must be callable as `output(state)`, but is {output!r}.")
    check_concrete((step, state, key), where="iterate")
    n_steps = check_count(n_steps, "n_steps", "iterate")
    every = None if save_every is None else check_count(save_every, "save_every", "iterate")
    step = jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, step)
    state = _check_state(state)
    if key is not None:
        key = check_key(key, "iterate")
    _check_step(step, state, key)
    stops = read_stops(stop, every is not None, form="stop(state)")
    if any(isinstance(one, SteadyState) for one in stops.traced):
        raise TypeError("`iterate`: `SteadyState` requires a vector field. Pass a function `stop(state) -> bool`.")
    saved = np.zeros(0, np.int64) if every is None else np.arange(0, n_steps + 1, every)
    size = sum(x.nbytes for x in jax.tree.leaves(state))
    slots, most = sizes_of(size, len(saved))
    if segment_steps is not None:
        most = check_count(segment_steps, "segment_steps", "iterate")
    elapsed = jnp.asarray(np.concatenate([saved, np.full(slots, n_steps)]), jnp.int32)
    segment = StepSegment(
        elapsed=elapsed,
        output=output,
        stops=stops,
        saves=len(saved),
        slots=slots,
        segment_steps=most,
        keyed=key is not None,
    )
    if every is not None:
        _check_output(state if output is None else jax.eval_shape(output, state))
    return execute(
        segment, read_axes(step, (), key, None), segment.start(state), saved,
        name="iterate",
        depends_on=dict(
            step=step, state=state, n_steps=n_steps, key=key, save_every=every, output=output, stop=stops.traced,
            segment_steps=segment_steps,
        ),
        store=store, resume=resume, checkpoint_every=checkpoint_every, checkpoints=checkpoints, progress=progress,
        throw=throw,
    )  # fmt: skip


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _check_state(state: PyTree) -> PyTree:
    leaves = jax.tree_util.tree_leaves_with_path(state)
    if not leaves:
        raise ValueError("`iterate`: `state` contains no array.")
    for path, x in leaves:
        if not isinstance(x, jax.Array | np.ndarray | np.generic | bool | int | float | complex):
            raise TypeError(
                f"`iterate`: `state{jax.tree_util.keystr(path)}` must be an array, but is a {type(x).__name__}. Move "
                "constants into `step`."
            )
    return jax.tree.map(jnp.asarray, state)


def _check_step(step: Callable, state: PyTree, key: Any) -> None:
    found = jax.eval_shape(step, state) if key is None else jax.eval_shape(step, state, key)
    want, got = (jax.tree.structure(tree) for tree in (state, found))
    if want != got:
        raise ValueError(f"`iterate`: `step` must return the structure of `state`, {want}, but returned {got}.")
    for (path, x), y in zip(jax.tree_util.tree_leaves_with_path(state), jax.tree.leaves(found), strict=True):
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            raise ValueError(
                "`iterate`: `step` must return the shapes and dtypes of `state`, but "
                f"`state{jax.tree_util.keystr(path)}` is {x.dtype}{list(x.shape)} and becomes {y.dtype}{list(y.shape)}."
            )


def _check_output(kept: PyTree) -> None:
    for path, x in jax.tree_util.tree_leaves_with_path(kept):
        if _is_key(x):
            raise TypeError(
                f"`iterate`: a frame would contain the random key{jax.tree_util.keystr(path)}. Use `output` to select "
                "the parts of the state to save."
            )
