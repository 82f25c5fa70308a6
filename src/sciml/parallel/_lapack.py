"""Programs that must not run side by side on CPU devices of one process.

All CPU devices of a process share one pool of threads. In jaxlib before 0.12, a batched call of LAPACK that is large
enough cuts its batch into tasks for this pool and waits for them, on a thread of the pool itself. If the number of
waiting calls equals the number of threads in the pool, no thread is left for the tasks, and all wait forever. One
program at a time leaves little idle, since these calls use all threads.
"""

import math
import re
from collections.abc import Callable

from .._jax._vma import jax_version

_SHARED_OUT_FROM = 200_000
"""The operations from which on LAPACK's wrapper cuts a batch into tasks."""

_MOST_PER_CUBE = 30
"""An upper bound of the operations of a decomposition of an n by n matrix, over n cubed."""

_CALL = re.compile(r"custom_call @lapack_.*")
_TENSOR = re.compile(r"tensor<((?:\d+x)+)[a-z]")


def must_run_alone(program: Callable[[], str], platform: str) -> bool:
    """Whether two runs of a program on different devices of one process may wait for each other for ever.

    Args:
        program: Returns its StableHLO.
        platform: The platform, such as "cpu".
    """
    if platform != "cpu" or jax_version() >= (0, 12):
        return False
    return any(
        _operations([int(n) for n in shape[:-1].split("x")]) >= _SHARED_OUT_FROM
        for call in _CALL.findall(program())
        for shape in _TENSOR.findall(call)
    )


def _operations(shape: list[int]) -> float:
    if len(shape) < 3 or math.prod(shape[:-2]) == 1:  # one matrix is one task
        return 0
    return math.prod(shape[:-2]) * _MOST_PER_CUBE * max(shape[-2:]) ** 3
