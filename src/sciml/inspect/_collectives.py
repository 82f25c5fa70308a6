"""The operations of a compiled function that make devices wait for each other."""

from collections.abc import Callable
from typing import Any, NamedTuple

from ._hlo_shapes import bytes_of_shape
from ._hlo_text import HloModule, parse
from ._lower import compile as _compile

_NAMES = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "recv",
    "reduce-scatter",
    "send",
)


class Collective(NamedTuple):
    """One collective operation.

    Attributes:
        kind: `all-reduce`, `all-gather`, `all-to-all`, `collective-permute`, `reduce-scatter` and so on.
        shape: What it returns, in HLO's notation.
        loop_depth: Number of loops around it; 0 means it runs once.
        source: JAX's name for the operation it came from, such as `jit(f)/while/cond/lt`.
        bytes: The size of what it returns on one device, each time it runs.
    """

    kind: str
    shape: str
    loop_depth: int
    source: str
    bytes: int = 0

    @property
    def in_loop(self) -> bool:
        """Whether it runs in every iteration of some loop."""
        return self.loop_depth > 0


def collectives(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Collective]:
    """The collective operations in the compiled program of `fn(*args, **kwargs)`.

    An ensemble of independent members should have none. One inside a loop makes every device wait for the slowest
    in every iteration; that is right for a decomposed domain and wrong for a sweep.

    Args:
        fn: Any callable, jitted or not.
        *args: Its positional arguments. What is sharded here decides how the program is partitioned; a leaf may be a
            `jax.ShapeDtypeStruct` with a sharding.
        **kwargs: Its keyword arguments.

    Returns:
        One `Collective` for each, in the order of the program text. The start and the end of an asynchronous one
        count once.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from jax.sharding import PartitionSpec
        from sciml import inspect

        mesh = jax.sharding.Mesh(jax.devices(), ("members",))

        def mean(x):
            return jax.lax.pmean(jnp.mean(x), "members")

        members = PartitionSpec("members")
        fn = jax.shard_map(mean, mesh=mesh, in_specs=members, out_specs=PartitionSpec())
        found = inspect.collectives(fn, jnp.arange(8.0))
        print([(c.kind, c.in_loop) for c in found])  # one all-reduce, where there is more than one device
        ```
    """
    return collectives_of(parse(_compile(fn, args, kwargs).as_text() or ""))


def collectives_of(module: HloModule) -> list[Collective]:
    """Returns the collective operations of a compiled program."""
    found = []
    for instruction, depth in module.walk():
        kind = instruction.opcode.removesuffix("-start")
        if kind in _NAMES:
            size = bytes_of_shape(instruction.shape)
            found.append(Collective(kind, instruction.shape, depth, instruction.op_name, size))
    return found
