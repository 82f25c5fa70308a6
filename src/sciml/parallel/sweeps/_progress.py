"""Progress of a host loop over members."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


def check_progress(progress: Any, *, where: str) -> None:
    """Raises where `progress` is neither a bool nor callable."""
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(
            f"`{where}`: `progress` must be True, False or a function of (done, total), got {type(progress).__name__}."
        )


@contextlib.contextmanager
def reporting(progress: bool | Callable[[int, int], Any], total: int) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to call with the number of members done and the number failed so far."""
    if progress is False:
        yield lambda done, failed: None
    elif progress is True:
        from tqdm.auto import tqdm

        with tqdm(total=total, unit="member") as bar:
            bar.set_postfix_str("compiling")  # until the first block is back

            def show(done: int, failed: int) -> None:
                bar.set_postfix_str(f"failed={failed}" if failed else "", refresh=False)
                bar.update(done - bar.n)

            yield show
    else:
        yield lambda done, failed: progress(done, total)
