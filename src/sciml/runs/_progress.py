"""Progress of a run, from the host."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .segments._abstract import AbstractSegment, Carry, Info

_BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
_COMPILING = "compiling"


def check_progress(progress: Any, *, where: str) -> None:
    """Raises where `progress` is neither a bool nor callable."""
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(
            f"`{where}`: `progress` must be True, False or a function of (elapsed, total) in units of time, got "
            f"{type(progress).__name__}."
        )


@contextlib.contextmanager
def reporting(
    progress: bool | Callable[[float, float], Any], segment: AbstractSegment, carry: Carry, *, name: str
) -> Iterator[Callable[[float, Info], None]]:
    """Gives a function to call with the elapsed time of the slowest member and what the host knows of all.

    Args:
        progress: The argument of `simulate`.
        segment: What runs.
        carry: What this call goes on from; the time left is estimated from what is new.
        name: What to call the run.
    """
    total = float(segment.host_span)
    done = float(np.min(segment.info(carry).elapsed))
    if progress is False:
        yield lambda elapsed, info: None
    elif progress is True:
        from tqdm.auto import tqdm

        with tqdm(total=total, initial=done, desc=name, bar_format=_BAR) as bar:
            bar.set_postfix_str(_COMPILING)  # until the first segment is back

            def show(elapsed: float, info: Info) -> None:
                steps = int(np.sum(info.accepted)) + int(np.sum(info.rejected))
                failed = int(np.count_nonzero(info.status))
                words = f"{steps} steps" + (f", {failed} failed" if failed else "")
                bar.set_postfix_str(words, refresh=False)
                bar.update(elapsed - bar.n)

            yield show
            if bar.postfix == _COMPILING:  # there was nothing left to do
                bar.set_postfix_str("")
    else:
        yield lambda elapsed, info: progress(elapsed, total)
