"""The check of the tolerances that the continuous adjoints have of their own."""

import math
from typing import Any


def check_tolerance(value: Any, name: str) -> None:
    """Raises a `ValueError` unless a tolerance is None or a positive number known when traced."""
    if value is None:
        return
    known = isinstance(value, int | float) and not isinstance(value, bool)
    if not known or not math.isfinite(value) or value <= 0:
        raise ValueError(f"`{name}` must be a positive Python number, or None for the solve's, but is {value!r}.")
