"""Whether the gradients of a fit or a training are meaningful, by a horizon that the caller measures."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._interfaces._horizon import Horizon
from .._status import SolveError, Status
from .._warn import warn

HorizonOption = Callable[[Any], Horizon] | None


def check_horizon(horizon: Any, where: str) -> None:
    """Checks that a horizon can be measured.

    Raises:
        TypeError: If `horizon` is neither None nor a function.
    """
    if isinstance(horizon, Horizon):
        raise TypeError(
            f"`horizon` of `{where}` must be a function of the model, `lambda model: sciml.inspect.horizon(...)`, "
            "because the horizon changes with the parameters, but is a `Horizon`."
        )
    if horizon is not None and not callable(horizon):
        raise TypeError(
            f"`horizon` of `{where}` must be a function of the model that returns the result of "
            f"`sciml.inspect.horizon`, or None, but got {horizon!r}."
        )


def warned_at_start(horizon: HorizonOption, model: Any, where: str) -> None:
    """Measures the horizon of the model as given, and warns where gradients do not reach that far.

    Raises:
        TypeError: If `horizon` does not return a `Horizon`, as `sciml.inspect.horizon` returns.
        SolveError: If the solve in it fails.

    Warns:
        UserWarning: If the solution extends beyond its horizon.
    """
    if horizon is None:
        return
    beyond = in_words(_measured(horizon, model, where))
    if beyond:
        warn(f"`{where}`: at the start, {beyond} {_REMEDY}")


def reach(horizon: HorizonOption, model: Any, where: str) -> tuple[Horizon | None, str]:
    """Measures the horizon of the model that was found.

    Returns:
        It, and the warning; empty if gradients reach to the end.
    """
    if horizon is None:
        return None, ""
    try:
        found = _measured(horizon, model, where)
    except SolveError as error:  # what has been fitted is not thrown away for it
        return None, f"The horizon could not be measured: {error}"
    beyond = in_words(found)
    return found, f"{beyond[:1].upper()}{beyond[1:]} {_REMEDY}" if beyond else ""


def status_within(found: Horizon | None, status: Status) -> Status:
    """Returns the status: a successful fit beyond its horizon is not a success."""
    late = found is not None and bool(np.isfinite(np.asarray(found.time)).any())
    return Status.beyond_horizon if late and status == Status.successful else status


def in_words(found: Horizon) -> str:
    """Returns the time from which gradients are meaningless, for the affected members; empty if there are none."""
    times = np.asarray(found.time, float).reshape(-1)
    late = np.isfinite(times)
    if not late.any():
        return ""
    first = int(np.argmin(times))
    doubling = float(np.asarray(found.doubling_time, float).reshape(-1)[first])
    end = float(np.asarray(found.ts, float).reshape(times.size, -1)[first, -1])
    members = f" (the first of {late.sum()} of {times.size} members)" if times.size > 1 else ""
    grows = f"; small changes double every {doubling:.3g}" if np.isfinite(doubling) else ""
    return (
        f"gradients through the solution are meaningless from t = {times[first]:.4g}{members}, but it extends "
        f"to t = {end:.4g}{grows}."
    )


_REMEDY = "Fit a shorter record, or split it into windows with `sciml.training.multiple_shooting`."


def _measured(horizon: Callable[[Any], Horizon], model: Any, where: str) -> Horizon:
    found = horizon(model)
    if not isinstance(found, Horizon):
        raise TypeError(
            f"`horizon` of `{where}` must return the result of `sciml.inspect.horizon`, but returned a "
            f"{type(found).__name__}."
        )
    return found
