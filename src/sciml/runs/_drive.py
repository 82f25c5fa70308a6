"""The host loop of a run: segment after segment, the next one dispatched before the results of the last are read."""

import time
from typing import Any, NamedTuple

import numpy as np

from .._progress import Report
from .._status import has_failed
from ..stores._atomic import StoreError
from ..stores._hosts import Hosts
from ._active_members import ActiveMembers
from ._resume import payload
from ._sharding import laid_out_like
from ._writer import FrameWriter
from .segments._abstract import AbstractSegment, Carry, Info


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
