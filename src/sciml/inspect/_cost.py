"""The compiler's estimate of a function's work."""

from collections.abc import Callable
from typing import Any, NamedTuple

from ._lower import compile as _compile


class Cost(NamedTuple):
    """Work of one call.

    Attributes:
        flops: Floating-point additions, products and the like.
        transcendentals: Evaluations of `exp`, `sin`, `log` and the like.
        bytes_accessed: Bytes read and written by the program's operations; inside a fusion only its inputs and
            outputs count.
    """

    flops: float
    transcendentals: float
    bytes_accessed: float


def cost(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Cost:
    """The work of `fn(*args, **kwargs)` as the compiler estimates it, without running it.

    The compiler counts the body of a loop **once**, whatever its number of iterations, so the figure for a solve is
    the cost of its set-up plus one step.

    Args:
        fn: Any callable, jitted or not.
        *args: Its positional arguments; array leaves may be `jax.ShapeDtypeStruct`, other leaves are static.
        **kwargs: Its keyword arguments.

    Returns:
        A `Cost`, for one device. A figure the backend does not report is 0.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inspect

        work = inspect.cost(lambda a, b: a @ b, jnp.ones((16, 32)), jnp.ones((32, 8)))
        assert work.flops >= 2 * 16 * 32 * 8
        ```
    """
    found = _compile(fn, args, kwargs).cost_analysis() or {}
    if not isinstance(found, dict):  # one dictionary per executable on some backends
        found = found[0]
    return Cost(
        flops=float(found.get("flops", 0.0)),
        transcendentals=float(found.get("transcendentals", 0.0)),
        bytes_accessed=float(found.get("bytes accessed", 0.0)),
    )
