"""Runs segments under a store, or in memory, and returns the results."""

import contextlib
import os
import pathlib
import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from .._progress import ProgressOption, Report, reporting
from .._status import Status, has_failed
from .._warn import warn
from ..stores._abstract import AbstractStore
from ..stores._atomic import StoreError
from ..stores._fingerprint import fingerprint, program
from ..stores._hosts import Hosts, hosts_of
from ..stores._manifest import digest_of_run, open_run
from ..stores._memory_store import MemoryStore
from ..stores._npz_store import NpzStore
from ..stores._pytree_names import check_names
from ._active_members import ActiveMembers
from ._frames import Frames
from ._prepare import frame_of, frames_per_block
from ._resume import ResumePoint, last_resume_point, payload
from ._run import Run
from ._sharding import laid_out_like, settle
from ._writer import FrameWriter
from .segments._abstract import AbstractSegment, Carry, Info
from .segments._in_axes import Inputs


class DriveResult(NamedTuple):
    """How a call of a run ended.

    Attributes:
        carry: What all members go on from.
        finished: Whether there is nothing left to do.
        seconds: How long it took.
    """

    carry: Carry
    finished: bool
    seconds: float


class _InFlight(NamedTuple):
    """A segment that has been launched: what it returns, and the members in its lanes."""

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
        segment: What to run.
        active_members: The members, and what they go on from.
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
                raise StoreError("Process 0, which writes the frames, could not; its error says why.")
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
    """Returns the attributes of `Run` that tell how the run ended."""
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
    """Returns what a manifest holds of it."""
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
        return f"the wall time of {segment.stops.seconds:g} s was used up at {place}; call again to go on"
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
    return f"of {status.size} members " + ", ".join(f"{n} {what}" for what, n in counts if n)


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
        segment: What runs.
        inputs: What it runs on.
        start: What it starts from.
        ts: The saved times.
        name: The public function that runs it.
        space: The coordinates of the unknowns, for the labels of frames.
        depends_on: What a stored run must have in common with this one, by name.
        store: As for `simulate`, like all that follows.
        resume: Whether to go on.
        checkpoint_every: Seconds.
        checkpoints: Where they go.
        progress: Whether, or to what, to report.
        throw: Whether to raise an error at the end.
    """
    if not checkpoint_every >= 0:
        raise ValueError(f"`checkpoint_every` must be a number of seconds, not negative, but is {checkpoint_every}.")
    hosts = hosts_of(start)
    if hosts.several and inputs.members is not None:
        raise ValueError(
            f"`{name}` with `in_axes` runs within one process, but the arrays of these members span several. Members "
            "are independent: let every process run its own, on `jax.local_devices()`."
        )
    start = settle(start)
    frame = frame_of(segment, inputs, start)
    block = frames_per_block(frame)
    store, checkpoints = _stores(store, checkpoints)
    if hosts.several and store.spans_hosts:
        raise ValueError(f"`store`: one process writes frames: give a folder. {store} is for `checkpoints`.")
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
            origin = digest_of_run(store.read_manifest() or {}, store)
            point = last_resume_point(checkpoints, start, frame, inputs.members, origin)
            if over and (point is None or not is_done(segment, point.carry)):
                over = False
                _lock(locks, store, checkpoints)
            if point is None and checkpoints is None and store.numbers():
                warn(
                    f"`{name}`: {store} holds frames of this run, but it is no folder and there are no `checkpoints=`, "
                    "so that the run starts again. Give `checkpoints=sciml.stores.NpzStore(path)` to go on after a "
                    "crash.",
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
                        stop.add_note(f"`{name}`: the run so far is in {store}; the same call goes on from there.")
                    raise
            count = writer.frames
        frames = Frames(store, count, block, frame, origin)
        run = Run(frames, store, inputs.members, space=space, ts=ts[:count], **attributes_of(segment, inputs, result))
        if on_disk and not over:
            hosts.lead(lambda: store.write_manifest({**(store.read_manifest() or {}), "summary": summary(run)}))
    return run.raise_if_failed() if throw else run


def _has_ended(store: AbstractStore) -> bool:
    """Whether a store says that its run has ended, so that nothing more is written to it."""
    found = (store.read_manifest() or {}).get("summary")
    return isinstance(found, dict) and found.get("finished") is True


def _lock(locks: contextlib.ExitStack, store: AbstractStore, checkpoints: AbstractStore | None) -> None:
    """Locks the store of a run, and that of its checkpoints where it is another one.

    Raises:
        StoreError: If another run writes to one of them.
    """
    locks.enter_context(store.lock())
    folder = _folder_of(store)
    if checkpoints is not None and checkpoints is not store and (folder is None or _folder_of(checkpoints) != folder):
        locks.enter_context(checkpoints.lock())


def _stores(store: Any, checkpoints: Any) -> tuple[AbstractStore, AbstractStore | None]:
    if checkpoints is not None and not isinstance(checkpoints, AbstractStore):
        raise TypeError(f"`checkpoints` must be a store such as `sciml.stores.NpzStore(path)`, but is {checkpoints!r}.")
    if store is None:
        return MemoryStore(), None
    if isinstance(store, str | os.PathLike):
        store = NpzStore(store)
    if not isinstance(store, AbstractStore):
        raise TypeError(f"`store` must be a path or a store such as `sciml.stores.NpzStore(path)`, but is {store!r}.")
    if checkpoints is None and (folder := _folder_of(store)) is not None:
        checkpoints = NpzStore(folder / "checkpoints", prefix="checkpoint")
    return store, checkpoints


def _folder_of(store: AbstractStore) -> pathlib.Path | None:
    """Returns the folder of a store, or None where it has none."""
    try:
        return pathlib.Path(store.path)
    except StoreError:
        return None
