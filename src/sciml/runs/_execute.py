"""Runs segments under a store, or in memory, and returns the results."""

import contextlib
import os
import pathlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from .._choices import choices
from .._progress import ProgressOption, Report, reporting
from .._status import Status, has_failed
from .._warn import warn
from ..stores._abstract import AbstractStore
from ..stores._atomic import StoreError
from ..stores._fingerprint import fingerprint, program
from ..stores._hosts import Hosts, hosts_of
from ..stores._manifest import digest_of_run, open_run
from ..stores._npz_store import MemoryStore, NpzStore
from ..stores._pytree_names import check_names
from ._frames import Frames, check_frames
from ._prepare import frame_of, frames_per_block
from ._run import Run
from ._sharding import laid_out_like, read_like, settle
from .segments._abstract import AbstractSegment, Carry, Info
from .segments._in_axes import Inputs

# The members of a run: which of them are in the lanes, and what became of those that are done.


class ActiveMembers:
    """The members in the lanes, in the order of their numbers, and the last state of all.

    When at most half of the lanes hold a member that still runs, these members move into fewer lanes. Whether they do
    depends only on the segment's own input, so that an interrupted run does the same.

    Args:
        inputs: Of all members.
        carry: Of all members, on the device.
        ids: The members in the lanes, or None for all.
    """

    def __init__(self, inputs: Inputs, carry: Carry, ids: np.ndarray | None = None):
        self._all = inputs
        self._archive = jax.tree.map(np.array, carry.member) if inputs.members is not None else carry.member
        self.ids = None if inputs.members is None else np.arange(inputs.members)
        self.inputs, self.carry = inputs, carry
        if ids is not None and self.ids is not None and len(ids) < len(self.ids):
            self._choose(ids, carry.reached)

    def compact(self, done: np.ndarray) -> None:
        """Moves the members that still run into fewer lanes, if it is worth it.

        Args:
            done: For each lane, whether its member was done before the last segment.
        """
        if self.ids is None or len(self.ids) < choices().compaction.segment_lanes_from:
            return
        lanes = 2 ** int(np.ceil(np.log2(max(1, np.count_nonzero(~done)))))
        if 2 * lanes > len(self.ids):
            return
        self._store(self.carry.member, self.ids)
        # a stable sort puts those that run first; where they do not fill the lanes, some that are done fill them up
        kept = np.sort(np.argsort(done, kind="stable")[:lanes])
        self._choose(self.ids[kept], self.carry.reached)

    def all(self, carry: Carry, ids: np.ndarray | None) -> Carry:
        """Returns the state from which all members continue, as far as `carry` contains it for the members `ids`."""
        if ids is None or self.ids is None or len(ids) == self._all.members:
            return carry
        self._store(carry.member, ids)
        return Carry(jax.tree.map(np.copy, self._archive), carry.reached)

    def _store(self, member: Any, ids: np.ndarray) -> None:
        def put(whole: np.ndarray, x: Any) -> None:
            whole[ids] = np.asarray(x)

        jax.tree.map(put, self._archive, member)

    def _choose(self, ids: np.ndarray, index: Any) -> None:
        self.ids = np.asarray(ids)
        self.inputs = self._all.take(self.ids)
        self.carry = Carry(jax.tree.map(lambda x: jax.numpy.asarray(x[self.ids]), self._archive), index)


# The point from which a run resumes: its start, or the last complete checkpoint.


class ResumePoint(NamedTuple):
    """The state from which a run resumes.

    Attributes:
        number: Of the checkpoint; 0 for the start.
        carry: Of all members.
        ids: The members in the lanes, or None.
        frames: The number of frames so far.
        pending: The frames that are not in a full block, or None.
    """

    number: int
    carry: Carry
    ids: np.ndarray | None
    frames: int
    pending: PyTree


def payload(carry: Carry, ids: np.ndarray | None) -> PyTree:
    """Returns the contents of a checkpoint in addition to frames."""
    return {"carry": carry} if ids is None else {"carry": carry, "ids": np.asarray(ids, np.int64)}


def last_resume_point(
    checkpoints: AbstractStore | None, like: Carry, frame: PyTree | None, members: int | None, origin: np.ndarray
) -> ResumePoint | None:
    """Returns the last point from which a run can continue; None where it must start.

    Args:
        checkpoints: The store of checkpoints.
        like: The start of all members, for shapes, dtypes and the devices that it is on.
        frame: Shapes and dtypes of a frame.
        members: The number of members, or None.
        origin: The digest of the run.

    Raises:
        StoreError: If there are checkpoints but none can be read.
    """
    if checkpoints is None:
        return None
    first_error = None
    for number in reversed(checkpoints.numbers()):
        try:
            return _read(checkpoints, number, like, frame, members, origin)
        except StoreError as error:  # the one before may be whole
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return None


def _read(
    checkpoints: AbstractStore, number: int, like: Carry, frame: PyTree | None, members: int | None, origin: np.ndarray
) -> ResumePoint:
    any_array = object()
    counts = checkpoints.get(number, {"frames": any_array, "leaves": any_array, "origin": any_array})
    if not np.array_equal(counts["origin"], origin):
        raise StoreError(f"Checkpoint {number} in {checkpoints} belongs to another run. Use another path.")
    leaves = [str(i) for i in range(int(counts["leaves"]))]
    wanted = {"carried": payload(like, None), "pending": dict.fromkeys(leaves, any_array)}
    if members is not None:
        wanted["carried"]["ids"] = any_array
    found = checkpoints.get(number, wanted)
    pending = [np.asarray(found["pending"][i]) for i in leaves]
    return ResumePoint(
        number,
        read_like(found["carried"]["carry"], like),
        None if members is None else np.asarray(found["carried"]["ids"]),
        int(counts["frames"]),
        jax.tree.unflatten(jax.tree.structure(frame), pending) if pending else None,
    )


# A thread that brings frames from the device to a store, in blocks, while the next segment runs.


class FrameWriter:
    """Collects frames into blocks of a fixed number and writes these, and checkpoints, in the order they come.

    The frames of a block that is not full yet are part of every checkpoint, so that a run resumed from one writes the
    same blocks as one that was never interrupted. The store gets it with each checkpoint as well, for who reads a run
    that is under way.

    Args:
        store: The store for blocks.
        checkpoints: The store for checkpoints, or None for none.
        block: The number of frames in a block.
        ts: The saved times.
        members: The number of members, or None.
        done: The number of frames that were written before.
        pending: The frames that are not in a full block, or None.
        hosts: The processes that the run spans. All of them collect frames, and the one that leads writes.
        origin: The digest of the run, which every block and checkpoint holds; None where they stay in memory.
    """

    def __init__(
        self,
        store: AbstractStore,
        checkpoints: AbstractStore | None,
        *,
        block: int,
        ts: np.ndarray,
        members: int | None,
        done: int = 0,
        pending: PyTree = None,
        hosts: Hosts = Hosts(),
        origin: np.ndarray | None = None,
    ):
        self._store, self._checkpoints, self._hosts = store, checkpoints, hosts
        self._block, self._ts, self._members = block, ts, members
        self._origin = origin
        self.frames = done
        self._pieces = [pending] if pending is not None else []
        self._queue: queue.Queue = queue.Queue(maxsize=2)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="sciml frames", daemon=True)
        self._thread.start()

    def put(self, values: PyTree, valid: Any, ids: np.ndarray | None) -> None:
        """Takes the frames of a segment, arrays that may still be computed.

        Raises:
            StoreError: If something earlier could not be written.
        """
        self._send(lambda: self._take(values, valid, ids))

    def checkpoint(self, number: int, carried: PyTree) -> None:
        """Writes a checkpoint of the resumable state and all frames so far, and removes all but the last two."""
        if self._checkpoints is None:
            return
        if not self._hosts.several:
            self._send(lambda: self._save(number, carried))
            return
        self._queue.join()  # collective operations are launched from the thread that launches programs, in one order
        self._check()
        if self._checkpoints.spans_hosts:
            self._save(number, carried)
        else:
            carried = self._hosts.whole(carried)
            self._hosts.lead(lambda: self._save(number, carried))

    @property
    def failed(self) -> bool:
        """Whether something could not be written."""
        return self._error is not None

    def close(self, flush: bool = True) -> None:
        """Waits until everything is written, and ends the thread.

        Raises:
            StoreError: If something could not be written.
        """
        if flush and self._error is None:
            self._queue.put(self._flush)
        self._queue.put(None)
        self._thread.join()
        self._check()

    def _send(self, job: Callable) -> None:
        self._check()
        self._queue.put(job)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                if self._error is None:
                    job()
            except BaseException as error:  # noqa: BLE001, it is raised where the run is driven
                self._error = error
            finally:
                self._queue.task_done()

    def _take(self, values: PyTree, valid: Any, ids: np.ndarray | None) -> None:
        valid = np.asarray(valid)
        count = int((valid if ids is None else valid.any(0)).sum())
        if count == 0:
            return
        if ids is None:
            piece = jax.tree.map(lambda x: np.asarray(x)[:count], values)
        else:
            piece = jax.tree.map(lambda x: self._spread(np.asarray(x), count, ids), values)
        self._pieces.append(piece)
        self.frames += count
        waiting = sum(map(_length, self._pieces))
        if waiting >= self._block:
            whole = _joined(self._pieces)
            first = self.frames - waiting
            for start in range(0, waiting - waiting % self._block, self._block):
                self._write(first + start, jax.tree.map(lambda x: x[start : start + self._block], whole))
            rest = waiting % self._block
            # a copy, or the few frames that are left would keep the whole array in memory
            self._pieces = [jax.tree.map(lambda x: x[waiting - rest :].copy(), whole)] if rest else []

    def _spread(self, x: np.ndarray, count: int, ids: np.ndarray) -> np.ndarray:
        """Returns frames with times first and all members second; those that run no more are NaN."""
        x = np.moveaxis(x, 0, 1)[:count]
        assert self._members is not None
        blank = np.nan if np.issubdtype(x.dtype, np.inexact) else 0
        whole = np.full((count, self._members, *x.shape[2:]), blank, x.dtype)
        whole[:, ids] = x
        return whole

    def _write(self, first: int, values: PyTree) -> None:
        ts = self._ts[first : first + _length(values)]
        if self._hosts.leads or isinstance(self._store, MemoryStore):
            # a row for each frame, as in every array of a store that lays the blocks end to end
            run = {} if self._origin is None else {"origin": np.tile(self._origin, (len(ts), 1))}
            self._store.put(first // self._block, {"time": ts, "values": values, **run})

    def _flush(self) -> None:
        if self._pieces:
            whole = _joined(self._pieces)
            self._write(self.frames - _length(whole), whole)

    def _save(self, number: int, carried: PyTree) -> None:
        assert self._checkpoints is not None
        self._flush()
        pending = {str(i): x for i, x in enumerate(jax.tree.leaves(_joined(self._pieces)))} if self._pieces else {}
        counts = {"frames": np.int64(self.frames), "leaves": np.int64(len(pending))}
        run = {} if self._origin is None else {"origin": self._origin}
        self._checkpoints.put(number, run | {"carried": carried, "pending": pending, **counts})
        if self._hosts.leads:
            for old in self._checkpoints.numbers()[:-2]:
                self._checkpoints.remove(old)


def _length(tree: PyTree) -> int:
    return jax.tree.leaves(tree)[0].shape[0]


def _joined(pieces: list) -> PyTree:
    return pieces[0] if len(pieces) == 1 else jax.tree.map(lambda *xs: np.concatenate(xs), *pieces)


class DriveResult(NamedTuple):
    """How a call of a run ended.

    Attributes:
        carry: The state from which all members continue.
        finished: Whether there is nothing left to do.
        seconds: How long it took.
    """

    carry: Carry
    finished: bool
    seconds: float


class _InFlight(NamedTuple):
    """A launched segment: its results, and the members in its lanes."""

    frames: Any
    info: Any
    ids: np.ndarray | None


def drive(
    segment: AbstractSegment,
    active_members: ActiveMembers,
    writer: FrameWriter,
    hosts: Hosts,
    *,
    number: int,
    checkpoint_every: float,
    report: Report,
) -> DriveResult:
    """Runs until every member is done, or the wall time is used up.

    Args:
        segment: The segment to run.
        active_members: The members, and the state from which they continue.
        writer: Takes frames and checkpoints.
        hosts: The processes that the run spans.
        number: Of the checkpoint that the run resumes from.
        checkpoint_every: Seconds between two checkpoints.
        report: Called after each segment with what has passed for the slowest member since the start.
    """
    began = saved = time.perf_counter()
    in_flight, safe = None, True
    here, ids = active_members.carry, active_members.ids
    info = segment.info(here)
    done = _done(segment, info)
    try:
        while in_flight is not None or not np.all(done):
            now = time.perf_counter()
            time_is_up = in_flight is not None and now - began >= segment.stops.seconds
            time_is_up, due, broken = hosts.agree(time_is_up, now - saved >= checkpoint_every, writer.failed)
            if broken and not hosts.leads:
                raise StoreError("Process 0 failed to write the frames. See the error of that process.")
            # the device works on the next segment while the host reads the last, so that it does not wait for the
            # host; if the last one was the end, what is launched here is dropped
            launched = None if time_is_up else _launch(segment, active_members, hosts)
            if in_flight is not None:
                info = Info(*map(np.asarray, in_flight.info))  # waits for the device: most interrupts come here
                done = _done(segment, info)
                safe = False  # frames are handed over, but the carry that follows them is not in place yet
                writer.put(in_flight.frames.values, in_flight.frames.valid, in_flight.ids)
                number, here, ids, safe = number + 1, active_members.carry, active_members.ids, True
                _report(report, info, done)
                # lanes may have been compacted between the segment that is read and the one that is launched
                if in_flight.ids is not None and active_members.ids is not None:
                    done = done[np.searchsorted(in_flight.ids, active_members.ids)]
                if time_is_up or np.all(done) or due:
                    saved = time.perf_counter()
                    writer.checkpoint(number, payload(active_members.all(here, ids), ids))
                if time_is_up or np.all(done):
                    break
            assert launched is not None  # the loop ends otherwise
            active_members.carry, in_flight = launched
            active_members.compact(done)
    except KeyboardInterrupt:
        if safe and not hosts.several:  # the processes may be at different places
            writer.checkpoint(number, payload(active_members.all(here, ids), ids))
        raise
    finally:
        writer.close()
    return DriveResult(active_members.all(here, ids), bool(np.all(done)), time.perf_counter() - began)


def is_done(segment: AbstractSegment, carry: Carry) -> bool:
    """Whether no member has anything left to do."""
    return bool(np.all(_done(segment, segment.info(carry))))


def _launch(segment: AbstractSegment, active_members: ActiveMembers, hosts: Hosts) -> tuple[Carry, _InFlight]:
    carry, frames, info = segment.advance(active_members.inputs, active_members.carry)
    carry = laid_out_like(carry, active_members.carry)
    frames, info = hosts.whole((frames, info))
    return carry, _InFlight(frames, info, active_members.ids)


def _done(segment: AbstractSegment, info: Info) -> np.ndarray:
    """Returns which members have nothing left to do: stopped, failed or at the end, with all saved times written."""
    index, elapsed = int(info.reached), np.asarray(info.elapsed)
    over = (elapsed >= segment.host_span) | (np.asarray(info.status) != 0)
    if index < segment.saves:  # the last step may hold more saved times than a segment has slots
        over = over & (elapsed < segment.host_elapsed[index])
    return np.asarray(over | (np.asarray(info.cause) != 0))


def _report(report: Report, info: Info, done: np.ndarray) -> None:
    steps = int(np.sum(info.accepted)) + int(np.sum(info.rejected))
    report(_slowest(info, done), failed=int(np.count_nonzero(has_failed(np.asarray(info.status)))), steps=steps)


def _slowest(info: Info, done: np.ndarray) -> float:
    elapsed = np.asarray(info.elapsed)
    return float(np.min(elapsed if np.all(done) else elapsed[~done] if elapsed.ndim else elapsed))


def attributes_of(segment: AbstractSegment, inputs: Inputs, result: DriveResult) -> dict[str, Any]:
    """Returns the attributes of `Run` about how the run ended."""
    info = segment.info(result.carry)
    reached = segment.time_at(info.elapsed)
    return {
        "y": segment.states(inputs, result.carry),
        "status": info.status,
        "t_reached": reached,
        "accepted": info.accepted,
        "rejected": info.rejected,
        "finished": result.finished,
        "seconds": result.seconds,
        "events": segment.events(result.carry),
        "reason": _reason(segment, result.finished, info),
    }


def summary(run: Run) -> dict[str, Any]:
    """Returns the part of it that a manifest stores."""
    return {
        "frames": len(run),
        "finished": run.finished,
        "reason": run.reason,
        "status": np.asarray(run.status).tolist(),
        "t_reached": np.asarray(run.t_reached, np.float64).tolist(),
        "accepted": np.asarray(run.accepted).tolist(),
        "rejected": np.asarray(run.rejected).tolist(),
        "seconds": run.seconds,
    }


def _reason(segment: AbstractSegment, finished: bool, info: Info) -> str:
    status, cause = info.status, info.cause
    place = f"{segment.clock} = {float(segment.time_at(np.asarray(np.min(info.elapsed)))):.6g}"
    if not finished:
        return f"the wall time of {segment.stops.seconds:g} s was used up at {place}; call again to continue"
    if status.ndim == 0:
        if status == Status.event:
            return f"ended by an event at {place}"
        if status:
            return f"failed at {place}: {Status(int(status)).name}"
        if cause:
            return f"stopped at {place} by {segment.stops.name(int(cause))}"
        return f"reached {segment.end} = {float(segment.time_at(info.elapsed)):.6g}"
    counts = [
        (
            "ended by an event" if code == Status.event else f"failed ({Status(int(code)).name})",
            int(np.sum(status == code)),
        )
        for code in np.unique(status[status != 0])
    ]
    stopped = (status == 0) & (cause != 0)
    counts += [
        (f"stopped by {segment.stops.name(int(n))}", int(np.sum(stopped & (cause == n))))
        for n in np.unique(cause[stopped])
    ]
    counts += [(f"reached {segment.end}", int(np.sum((status == 0) & (cause == 0))))]
    return f"{status.size} members: " + ", ".join(f"{n} {what}" for what, n in counts if n)


def execute(
    segment: AbstractSegment,
    inputs: Inputs,
    start: Carry,
    ts: np.ndarray,
    *,
    name: str,
    space: dict[str, list[float]] | None = None,
    depends_on: dict[str, Any],
    store: str | os.PathLike | AbstractStore | None,
    resume: bool,
    checkpoint_every: float,
    checkpoints: AbstractStore | None,
    progress: ProgressOption,
    throw: bool,
) -> Run:
    """Runs segments from the start, or from the last checkpoint, to the end.

    Args:
        segment: The segment that runs.
        inputs: Its inputs.
        start: Its start.
        ts: The saved times.
        name: The public function that runs it.
        space: The coordinates of the unknowns, for the labels of frames.
        depends_on: The inputs that a stored run must share with this one, by name.
        store: As for `simulate`, like all that follows.
        resume: Whether to go on.
        checkpoint_every: Seconds.
        checkpoints: The store for checkpoints.
        progress: Whether, or to what, to report.
        throw: Whether to raise an error at the end.
    """
    if not checkpoint_every >= 0:
        raise ValueError(f"`checkpoint_every` must be a nonnegative number of seconds, but is {checkpoint_every}.")
    hosts = hosts_of(start)
    if hosts.several and inputs.members is not None:
        raise ValueError(
            f"`{name}` with `in_axes` runs in one process, but the arrays of these members span several processes. "
            "Members are independent: let every process run its own members on `jax.local_devices()`."
        )
    start = settle(start)
    frame = frame_of(segment, inputs, start)
    block = frames_per_block(frame)
    store, checkpoints = _stores(store, checkpoints)
    if hosts.several and store.spans_hosts:
        raise ValueError(
            f"`store` must be a folder, because one process writes all frames. Use {store} for `checkpoints`."
        )
    on_disk = not isinstance(store, MemoryStore)
    check_names({"values": frame, "carried": start if on_disk else None})
    point, origin, over = None, None, False
    with contextlib.ExitStack() as locks:
        if on_disk:
            found = fingerprint(
                **depends_on, sizes={"steps": segment.segment_steps, "frames": segment.slots, "block": block}
            )
            # sizes follow from the state and the version: where these differ too, they are what the error names
            found.parts["sizes"] = found.parts["sizes"]._replace(follows=True)
            found.parts["program"] = program(
                segment.program(inputs, start), [x for x in jax.tree.leaves(segment) if eqx.is_array(x)]
            )
            info = {"block": block, "members": inputs.members, "frames": len(ts), "space": space}
            over = not hosts.several and _has_ended(store)  # then it is read only, as any number of processes may
            if not over:
                hosts.lead(lambda: _lock(locks, store, checkpoints))
            hosts.lead(lambda: open_run(store, found, info, kind=name, resume=resume))
            _check_apart(store, checkpoints)  # by the manifest, which the store has now
            origin = digest_of_run(store.read_manifest() or {}, store)
            point = last_resume_point(checkpoints, start, frame, inputs.members, origin)
            if over and (point is None or not is_done(segment, point.carry)):
                over = False
                _lock(locks, store, checkpoints)
            if point is not None:
                check_frames(store, point.frames)
            if checkpoints is None:
                warn(
                    f"`{name}`: {store} is not a folder, so it contains no checkpoints, and every call starts the run "
                    "again. Pass `checkpoints=sciml.stores.NpzStore(path)` to resume after a crash."
                )
        if point is None:
            point = ResumePoint(0, start, None, 0, None)
        count, result = point.frames, DriveResult(point.carry, True, 0.0)
        if not over:
            active_members = ActiveMembers(inputs, point.carry, point.ids)
            writer = FrameWriter(
                store, checkpoints, block=block, ts=ts, members=inputs.members, done=point.frames,
                pending=point.pending, hosts=hosts, origin=origin,
            )  # fmt: skip
            shown = progress if hosts.leads or callable(progress) else False
            span, reached = segment.host_span.item(), float(np.min(segment.info(active_members.carry).elapsed))
            with reporting(shown, span, unit=segment.unit, name=name, done=reached) as report:
                try:
                    result = drive(
                        segment,
                        active_members,
                        writer,
                        hosts,
                        number=point.number,
                        checkpoint_every=float(checkpoint_every),
                        report=report,
                    )
                except KeyboardInterrupt as stop:
                    if on_disk and checkpoints is not None and checkpoints.numbers():
                        stop.add_note(f"`{name}`: the run so far is in {store}; the same call resumes from there.")
                    raise
            count = writer.frames
        frames = Frames(store, count, block, frame, origin)
        run = Run(frames, store, inputs.members, space=space, ts=ts[:count], **attributes_of(segment, inputs, result))
        if on_disk and not over:
            hosts.lead(lambda: store.write_manifest({**(store.read_manifest() or {}), "summary": summary(run)}))
    return run.raise_if_failed() if throw else run


def _has_ended(store: AbstractStore) -> bool:
    """Whether a store records that its run has ended, so that nothing more is written to it."""
    found = (store.read_manifest() or {}).get("summary")
    return isinstance(found, dict) and found.get("finished") is True


def _lock(locks: contextlib.ExitStack, store: AbstractStore, checkpoints: AbstractStore | None) -> None:
    """Locks the store of a run, and the store of its checkpoints.

    Raises:
        StoreError: If another run writes to one of them.
    """
    locks.enter_context(store.lock())
    if checkpoints is not None:
        locks.enter_context(checkpoints.lock())


def _stores(store: Any, checkpoints: Any) -> tuple[AbstractStore, AbstractStore | None]:
    if checkpoints is not None and not isinstance(checkpoints, AbstractStore):
        raise TypeError(f"`checkpoints` must be a store such as `sciml.stores.NpzStore(path)`, but is {checkpoints!r}.")
    if store is None:
        if checkpoints is not None:
            raise ValueError("`checkpoints` requires `store`: frames in memory end with the process. Pass a folder.")
        return MemoryStore(), None
    if isinstance(store, str | os.PathLike):
        store = NpzStore(store)
    if not isinstance(store, AbstractStore):
        raise TypeError(f"`store` must be a path or a store such as `sciml.stores.NpzStore(path)`, but is {store!r}.")
    if checkpoints is None:
        with contextlib.suppress(StoreError):  # it is not a folder
            checkpoints = NpzStore(pathlib.Path(store.path) / "checkpoints", prefix="checkpoint")
    _check_apart(store, checkpoints)
    return store, checkpoints


def _check_apart(store: AbstractStore, checkpoints: AbstractStore | None) -> None:
    """Checks that checkpoints are not written to the place of the frames, whose blocks they would replace.

    Two stores without a folder, such as two views of one dictionary, are the same place if they have one manifest.

    Raises:
        ValueError: If they are.
    """
    if checkpoints is None:
        return
    same = checkpoints is store
    with contextlib.suppress(StoreError):  # one of them is not a folder
        same = same or os.path.realpath(store.path) == os.path.realpath(checkpoints.path)
    with contextlib.suppress(StoreError):  # a store of checkpoints needs no manifest
        found = checkpoints.read_manifest()
        same = same or (found is not None and found == store.read_manifest())
    if same:
        raise ValueError(
            f"`store` and `checkpoints` are the same place, {store}: checkpoints would replace the frames. Pass "
            "a store with another path as `checkpoints`, or omit it if `store` is a folder."
        )
