"""Lower any callable with any PyTree of arguments: the first step of every inspection; and its programs as text."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax


def is_jitted(fn: Callable[..., Any]) -> bool:
    """Whether `fn` came out of `jax.jit` or `eqx.filter_jit`."""
    return callable(getattr(fn, "lower", None)) and callable(getattr(fn, "__wrapped__", None))


def name_of(fn: Callable[..., Any]) -> str:
    """A readable name for `fn`, also when it is a module or a partial."""
    return getattr(fn, "__name__", type(fn).__name__)


def _is_dynamic(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def lower(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> jax.stages.Lowered:
    """Trace and lower `fn(*args, **kwargs)`.

    A jitted function is lowered unchanged, so that its donated, static and sharded arguments count. Any other callable
    is traced with the array leaves of itself and its arguments as inputs and everything else static.
    """
    if not callable(fn):
        raise TypeError(f"fn must be callable, got {type(fn).__name__}: {fn!r}.")
    if is_jitted(fn):
        lowered = fn.lower(*args, **kwargs)  # pyright: ignore[reportFunctionMemberAccess]
        return getattr(lowered, "lowered", lowered)  # eqx.filter_jit wraps JAX's own object
    run, dynamic = of_arrays(fn, args, kwargs)
    return jax.jit(run).lower(dynamic)


def of_arrays(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Callable, Any]:
    """Returns `fn(*args, **kwargs)` as a function of one PyTree of arrays, and that PyTree."""
    dynamic, static = eqx.partition((fn, args, kwargs), _is_dynamic)

    def run(dynamic: Any) -> Any:
        function, positional, keyword = eqx.combine(dynamic, static)
        return eqx.filter(function(*positional, **keyword), eqx.is_array)

    run.__name__ = run.__qualname__ = name_of(fn)
    return run, dynamic


def compile(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> jax.stages.Compiled:
    """Trace, lower and compile `fn(*args, **kwargs)`."""
    return lower(fn, args, kwargs).compile()


def hlo(fn: Callable[..., Any], *args: Any, stage: str = "optimized", **kwargs: Any) -> str:
    """The program of `fn(*args, **kwargs)` as text.

    Args:
        fn: Any callable, jitted or not.
        *args: Its positional arguments; array leaves may be `jax.ShapeDtypeStruct`.
        stage: `"stablehlo"` is the input of the compiler; `"optimized"` is its result for the default device: after
            fusion, partitioning and scheduling.
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
