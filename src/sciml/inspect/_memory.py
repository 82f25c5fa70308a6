"""The memory a compiled function needs."""

from collections.abc import Callable
from typing import Any, NamedTuple

from ._lower import compile as _compile


class Memory(NamedTuple):
    """Bytes on one device.

    Attributes:
        arguments: Bytes of the arguments.
        outputs: Bytes of the results.
        aliased: Bytes of results that reuse the memory of donated arguments; counted in both of the above.
        temporaries: Bytes the program needs while it runs: carries, saved states for a gradient, scratch space.
    """

    arguments: int
    outputs: int
    aliased: int
    temporaries: int

    @property
    def total(self) -> int:
        """Bytes in use at the peak, as the compiler planned it."""
        return self.arguments + self.outputs - self.aliased + self.temporaries

    def __str__(self) -> str:
        """Every figure on one line, in units a human reads."""
        rows = [f"{name} {human(value)}" for name, value in self._asdict().items()]
        return ", ".join([*rows, f"total {human(self.total)}"])


def human(count: int | float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            break
        count /= 1024
    else:
        unit = "TiB"
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def memory(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Memory:
    """The memory that `fn(*args, **kwargs)` needs, without running it.

    Compiles the function and reads the compiler's own plan. With `jax.ShapeDtypeStruct` arguments it answers for
    sizes that do not fit this machine.

    Args:
        fn: Any callable, jitted or not.
        *args: Its positional arguments; array leaves may be `jax.ShapeDtypeStruct`, other leaves are static.
        **kwargs: Its keyword arguments.

    Returns:
        A `Memory`, bytes on one device (a sharded program needs this much on each).

    Raises:
        NotImplementedError: If the backend does not report memory.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inspect

        big = jax.ShapeDtypeStruct((1_000_000,), jnp.float32)
        report = inspect.memory(lambda x: jnp.stack([x, x + 1]), big)
        assert report.arguments == 4_000_000
        assert report.outputs == 8_000_000
        print(report)
        ```
    """
    return memory_of(_compile(fn, args, kwargs))


def memory_of(compiled: Any) -> Memory:
    """Returns the memory that a compiled program needs."""
    stats = compiled.memory_analysis()
    if stats is None:
        raise NotImplementedError("This backend reports no memory statistics; inspect on CPU, GPU or TPU instead.")
    return Memory(
        arguments=stats.argument_size_in_bytes,
        outputs=stats.output_size_in_bytes,
        aliased=stats.alias_size_in_bytes,
        temporaries=stats.temp_size_in_bytes,
    )
