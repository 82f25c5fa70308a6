"""Warnings that point at the line of who called."""

import sys
import warnings

_BETWEEN = {"sciml", "equinox", "jax", "jaxtyping", "beartype", "contextlib", "functools"}


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the innermost line that is neither of this library nor of those between it and who called it."""
    # walked by hand: Python 3.11 has no `skip_file_prefixes`
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
