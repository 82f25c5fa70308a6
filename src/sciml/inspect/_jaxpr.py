"""A function as JAX traced it."""

from collections.abc import Callable
from typing import Any

import equinox as eqx


def jaxpr(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The jaxpr of `fn(*args, **kwargs)`: JAX's own program, before any compiler saw it.

    Args:
        fn: Any callable, jitted or not (a jitted one shows up as one `jit` equation).
        *args: Its positional arguments; array leaves may be `jax.ShapeDtypeStruct`, other leaves are static.
        **kwargs: Its keyword arguments.

    Returns:
        The `jax.extend.core.ClosedJaxpr`. Print it, or walk its `.jaxpr.eqns`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inspect

        closed = inspect.jaxpr(lambda x, power: x**power, jnp.ones(3), 2)
        assert [str(eqn.primitive) for eqn in closed.jaxpr.eqns] == ["integer_pow"]
        ```
    """
    closed, _, _ = eqx.filter_make_jaxpr(fn)(*args, **kwargs)
    return closed
