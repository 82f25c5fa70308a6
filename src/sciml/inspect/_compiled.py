"""The compiler's facts about a function: its work, its memory, its loops, and the operations that make devices wait."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ._hlo_text import HloModule, Instruction, bytes_of_shape, parse
from ._hlo_work import FREE
from ._lower import compile as _compile


class Cost(NamedTuple):
    """Work of one call.

    Attributes:
        flops: Floating-point operations such as additions and products.
        transcendentals: Evaluations of functions such as `exp`, `sin` and `log`.
        bytes_accessed: Bytes read and written by the program's operations; inside a fusion only its inputs and
            outputs count.
    """

    flops: float
    transcendentals: float
    bytes_accessed: float


def cost(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Cost:
    """The work of `fn(*args, **kwargs)` as the compiler estimates it, without running it.

    The compiler counts the body of a loop **once**, for any number of iterations, so the figure for a solve is the cost
    of its set-up plus one step.

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
        raise NotImplementedError("This backend does not report memory statistics. Inspect on CPU, GPU or TPU instead.")
    return Memory(
        arguments=stats.argument_size_in_bytes,
        outputs=stats.output_size_in_bytes,
        aliased=stats.alias_size_in_bytes,
        temporaries=stats.temp_size_in_bytes,
    )


class Loop(NamedTuple):
    """One `while` of the compiled program; `lax.scan`, `fori_loop` and `while_loop` all become one.

    Attributes:
        trips: Number of iterations if the compiler knows it, otherwise None.
        loop_depth: Number of loops around it.
        carry: Its carry, in HLO's notation.
        operations: For one iteration, condition included: opcode and how often it occurs. A `fusion` is one pass over
            its data; a `copy`, a small `fusion` or a `while` next to the one large fusion makes a step slow.
        source: JAX's name for it, such as `jit(solve)/while`.
        name: Its name in the compiled program.
    """

    trips: int | None
    loop_depth: int
    carry: str
    operations: dict[str, int]
    source: str
    name: str = ""


def _opcodes(module: HloModule, caller: Instruction) -> Iterator[str]:
    for name in caller.calls:
        for instruction in module.computations.get(name, ()):
            if instruction.opcode == "call":  # the CPU compiler puts small loops behind one
                yield from _opcodes(module, instruction)
            elif instruction.opcode not in FREE:
                yield instruction.opcode


def loops(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Loop]:
    """The loops in the compiled program of `fn(*args, **kwargs)`.

    Args:
        fn: Any callable, jitted or not.
        *args: Its positional arguments; array leaves may be `jax.ShapeDtypeStruct`, other leaves are static.
        **kwargs: Its keyword arguments.

    Returns:
        One `Loop` for each, in the order of the program text. The compiler removes a loop of one iteration and may
        unroll a short one.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inspect

        def decay(y):
            return jax.lax.scan(lambda y, _: (y * 0.9, None), y, length=100)[0]

        (loop,) = inspect.loops(decay, jnp.ones(1000))
        assert loop.trips == 100
        print(loop.operations)
        ```
    """
    return loops_of(parse(_compile(fn, args, kwargs).as_text() or ""))


def loops_of(module: HloModule) -> list[Loop]:
    """Returns the loops of a compiled program."""
    found = []
    for instruction, depth in module.walk():
        if instruction.opcode == "while":
            operations = Counter(_opcodes(module, instruction))
            found.append(
                Loop(
                    instruction.trips,
                    depth,
                    instruction.shape,
                    dict(operations.most_common()),
                    instruction.op_name,
                    instruction.name,
                )
            )
    return found


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
        shape: Its result, in HLO's notation.
        loop_depth: Number of loops around it; 0 means it runs once.
        source: JAX's name for the operation it came from, such as `jit(f)/while/cond/lt`.
        bytes: The size of its result on one device, each time it runs.
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
        *args: Its positional arguments. The shardings here determine how the program is partitioned; a leaf may be a
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
