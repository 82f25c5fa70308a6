"""Warnings that point at the caller's line."""

import sys
import warnings
from types import FrameType

_BETWEEN = {"sciml", "equinox", "jax", "jaxtyping", "beartype", "contextlib", "functools"}


def frame_of_caller() -> tuple[FrameType, int]:
    """Returns the frame of the user's code that has called the library, and its level.

    The level is relative to the function that calls this one, as for `warnings.warn`.
    """
    # walked by hand: Python 3.11 has no `skip_file_prefixes`
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    return frame, level


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line of `frame_of_caller`."""
    warnings.warn(message, category, stacklevel=frame_of_caller()[1])
