"""The text of a function's program before and after the compiler."""

from collections.abc import Callable
from typing import Any

from ._lower import lower


def hlo(fn: Callable[..., Any], *args: Any, stage: str = "optimized", **kwargs: Any) -> str:
    """The program of `fn(*args, **kwargs)` as text.

    Args:
        fn: Any callable, jitted or not.
        *args: Its positional arguments; array leaves may be `jax.ShapeDtypeStruct`.
        stage: `"stablehlo"` is what JAX hands to the compiler; `"optimized"` is what the compiler made of it for
            the default device: after fusion, partitioning and scheduling.
        **kwargs: Its keyword arguments.

    Returns:
        The program's text.

    Raises:
        ValueError: If `stage` is neither of the two.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inspect

        text = inspect.hlo(lambda x: jnp.sin(x) * 2, jnp.ones(8))
        assert "fusion" in text  # sine and product became one loop over memory
        ```
    """
    if stage not in ("optimized", "stablehlo"):
        raise ValueError(f'stage must be "optimized" or "stablehlo", got {stage!r}.')
    lowered = lower(fn, args, kwargs)
    return lowered.as_text() if stage == "stablehlo" else lowered.compile().as_text() or ""
