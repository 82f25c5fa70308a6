"""Warnings that point at the caller's line."""

import sys
import warnings
from types import FrameType

_BETWEEN = {"sciml", "equinox", "jax", "jaxtyping", "beartype", "contextlib", "functools"}


def frame_of_caller() -> FrameType:
    """Returns the frame of the user's code that has called the library."""
    # walked by hand: Python 3.11 has no `skip_file_prefixes`
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    return frame


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line of `frame_of_caller`."""
    frame = frame_of_caller()
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    name = frame.f_globals.get("__name__")
    code = frame.f_code
    warnings.warn_explicit(message, category, code.co_filename, frame.f_lineno, module=name, registry=registry)
