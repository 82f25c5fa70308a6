"""How a run ended, in numbers and in a sentence."""

from typing import Any

import numpy as np

from .._status import Status
from ._drive import DriveResult
from ._run import Run
from .segments._abstract import AbstractSegment, Info
from .segments._in_axes import Inputs


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
