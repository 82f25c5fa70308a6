"""Lower any callable with any PyTree of arguments: the one step every inspection shares."""

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

    A jitted function is lowered as it stands, so that its donated, static and sharded arguments count. Any other
    callable is traced with its array leaves (its own and those of its arguments) as inputs and everything else
    static.
    """
    if not callable(fn):
        raise TypeError(f"fn must be callable, got {type(fn).__name__}: {fn!r}.")
    if is_jitted(fn):
        lowered = fn.lower(*args, **kwargs)  # pyright: ignore[reportFunctionMemberAccess]
        return getattr(lowered, "lowered", lowered)  # eqx.filter_jit wraps JAX's own object
    run, dynamic = of_arrays(fn, args, kwargs)
    return jax.jit(run).lower(dynamic)


def of_arrays(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Callable, Any]:
    """Returns `fn(*args, **kwargs)` as a function of one PyTree of arrays alone, and that PyTree."""
    dynamic, static = eqx.partition((fn, args, kwargs), _is_dynamic)

    def run(dynamic: Any) -> Any:
        function, positional, keyword = eqx.combine(dynamic, static)
        return eqx.filter(function(*positional, **keyword), eqx.is_array)

    run.__name__ = run.__qualname__ = name_of(fn)
    return run, dynamic


def compile(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> jax.stages.Compiled:
    """Trace, lower and compile `fn(*args, **kwargs)`."""
    return lower(fn, args, kwargs).compile()
