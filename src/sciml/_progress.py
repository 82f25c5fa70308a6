"""Progress of long work, from the host: one bar, one record, of `sweep`, `simulate`, `iterate`, `fit` and `train`."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ._announced import not_announced

_COMPILING = "compiling, once for these shapes"
_OF_TIME = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
"""The bar for a total that is a time, whose digits carry little information."""


class Progress(NamedTuple):
    """The progress of long work: the argument of a function given as `progress=`.

    Attributes:
        done: The work done so far: members of a sweep, time of a run since `t0`, steps of `iterate`, of a fit or of a
            training.
        total: The total amount; None for a fit that runs until it converges, or for a loader of unknown length.
        unit: The unit that is counted: "member", "time" or "step".
        seconds: The time since the call began, compilation included.
        rate: The work done per second in this call.
        failed: The number of members that have failed, or of steps of a training that changed nothing for NaN.
        steps: The number of solver steps of all members; None if there are no steps to count.
        loss: The lowest loss so far, of a fit; the mean of the last steps, of a training; else None.

    Example:
        ```python
        import numpy as np
        import sciml

        def report(progress):
            print(f"{progress.done} of {progress.total} after {progress.seconds:.0f} s, {progress.failed} failed")

        sciml.parallel.sweep(lambda x: x**2, np.arange(4.0), block=2, progress=report)
        ```
    """

    done: float
    total: float | None
    unit: str
    seconds: float
    rate: float
    failed: int = 0
    steps: int | None = None
    loss: float | None = None

    @property
    def details(self) -> str:
        """Additional text of the bar, after the counts."""
        words = []
        if self.steps is not None:
            words.append(f"{self.steps} steps")
        if self.loss is not None:
            words.append(f"loss {self.loss:.4g}")
        if self.failed:
            words.append(f"failed={self.failed}")
        return ", ".join(words)


ProgressOption = bool | Callable[[Progress], Any]
"""The type of `progress=`: whether to show a bar, or a function to call with a `Progress`."""

Report = Callable[..., None]
"""`report(done, *, failed=0, steps=None, loss=None)`, called after each piece of work."""


def check_progress(progress: Any, *, where: str) -> None:
    """Raises where `progress` is neither a bool nor callable."""
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(
            f"`{where}`: `progress` must be True, False or a function of one argument, the progress, got "
            f"{type(progress).__name__}."
        )


@contextlib.contextmanager
def reporting(
    progress: ProgressOption, total: float | None, *, unit: str, name: str, done: float = 0
) -> Iterator[Report]:
    """Gives the function to call after each piece of work.

    A bar shows "compiling" until it is first called, because the first piece takes as long as the compiler.

    Args:
        progress: The argument of the public function.
        total: The total amount of work; None if it is unknown.
        unit: The unit that is counted: "member", "time" or "step".
        name: The name of the work.
        done: The work done before this call; the remaining time is estimated from new work only.
    """
    began = time.perf_counter()

    def record(now: float, failed: int = 0, steps: int | None = None, loss: float | None = None) -> Progress:
        seconds = time.perf_counter() - began
        return Progress(now, total, unit, seconds, (now - done) / max(seconds, 1e-9), failed, steps, loss)

    if progress is False:
        yield lambda now, **details: None
        return
    if progress is not True:
        yield lambda now, **details: progress(record(now, **details))
        return
    from tqdm.auto import tqdm  # takes a tenth of a second, which `import sciml` need not pay

    form: dict[str, Any] = {"bar_format": _OF_TIME} if unit == "time" else {"unit": unit}
    with not_announced(), tqdm(total=total, initial=done, desc=name, **form) as bar:
        bar.set_postfix_str(_COMPILING)

        def show(now: float, **details: Any) -> None:
            bar.set_postfix_str(record(now, **details).details, refresh=False)
            bar.update(now - bar.n)

        yield show
        if bar.postfix == _COMPILING:  # there was nothing left to do
            bar.set_postfix_str("")
