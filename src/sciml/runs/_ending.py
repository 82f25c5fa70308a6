"""How a run ended, in numbers and in a sentence."""

from typing import Any

import numpy as np

from .._status import Status
from ._axes import Inputs
from ._crowd import info_of
from ._drive import Outcome
from ._run import Run
from ._segment import Segment


def ending(segment: Segment, inputs: Inputs, outcome: Outcome) -> dict[str, Any]:
    """Returns the attributes of `Run` that tell how the run ended."""
    info = info_of(outcome.carry)
    times = segment.times
    direction = 1 if segment.plan.forwards else -1
    t0, t1 = np.asarray(times.t0), np.asarray(times.t1)
    reached = np.where(info.elapsed >= segment.host_span, t1, t0 + direction * info.elapsed)
    return {
        "y": segment.states(inputs, outcome.carry),
        "status": info.status,
        "t_reached": reached,
        "accepted": info.accepted,
        "rejected": info.rejected,
        "finished": outcome.finished,
        "seconds": outcome.seconds,
        "reason": _reason(segment, outcome.finished, info.status, info.cause, reached),
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


def _reason(segment: Segment, finished: bool, status: np.ndarray, cause: np.ndarray, reached: np.ndarray) -> str:
    direction = 1 if segment.plan.forwards else -1
    slowest = float(np.min(direction * reached)) * direction
    if not finished:
        return f"the wall time of {segment.stops.seconds:g} s was used up at t = {slowest:.6g}; call again to go on"
    if status.ndim == 0:
        if status:
            return f"failed at t = {slowest:.6g}: {Status(int(status)).name}"
        if cause:
            return f"stopped at t = {slowest:.6g} by {segment.stops.name(int(cause))}"
        return f"reached t1 = {slowest:.6g}"
    counts = [
        (f"failed ({Status(int(code)).name})", int(np.sum(status == code))) for code in np.unique(status[status != 0])
    ]
    stopped = (status == 0) & (cause != 0)
    counts += [
        (f"stopped by {segment.stops.name(int(n))}", int(np.sum(stopped & (cause == n))))
        for n in np.unique(cause[stopped])
    ]
    counts += [("reached t1", int(np.sum((status == 0) & (cause == 0))))]
    return f"of {status.size} members " + ", ".join(f"{n} {what}" for what, n in counts if n)
