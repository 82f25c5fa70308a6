"""A warning where a stiff solve without a named method ran away below zero.

Reaction rates require amounts that are not below zero. An error within `atol` leads there, and a rate that is quadratic
in a small amount may then drive the state away from zero ever faster: Robertson's reaction in float32 ends at minus ten
millions of the whole. Each step on the way is as exact as was asked, so that the status is a success.
"""

from typing import Any

import jax
import numpy as np

from .._checks import concrete
from .._types import Y
from .._warn import warn
from ._request import Request
from ._solution import Solution

_FAR = 100.0
"""The ratio by which the largest initial element exceeds zero compared with the negative one."""


def warn_of_negative(sol: Solution, y0: Y, request: Request) -> None:
    """Warns where a state that began without a negative element ended far below zero.

    Args:
        sol: A solve that succeeded, by a method for stiff equations that `solve` chose.
        y0: The initial state.
        request: The arguments of `solve`.
    """
    if sol.solver not in ("Rodas5P", "BDF") or request.positive is not None or request.domain is not None:
        return
    starts, ends = jax.tree.leaves(y0), jax.tree.leaves(sol.ys)
    if jax.tree.structure(y0) != jax.tree.structure(sol.ys) or not all(map(_known_here, starts + ends)):
        return
    if any(np.iscomplexobj(x) for x in ends) or any(np.shape(x)[1:] != np.shape(y) for x, y in zip(ends, starts)):
        return
    least = min((float(np.min(x)) for x in starts if np.size(x)), default=-1.0)
    if least < 0:
        return
    most = max(float(np.max(x)) for x in starts if np.size(x))
    lowest = min((float(np.min(np.asarray(x)[-1])) for x in ends if np.size(x)), default=0.0)
    if lowest < -_FAR * most:
        warn(
            f"The initial state has elements from 0 to {most:.3g}, but the final state has the negative element "
            f"{lowest:.3g}. If the state holds amounts or concentrations, an error within `atol` made one negative, "
            "and the rates amplified it. Set `positive=True`, set `atol` far below the smallest amount that matters, "
            "or compute in float64.",
            RuntimeWarning,
        )


def _known_here(x: Any) -> bool:
    """Whether a value is known now, and all of it to this process."""
    return concrete(x) and getattr(x, "is_fully_addressable", True)
