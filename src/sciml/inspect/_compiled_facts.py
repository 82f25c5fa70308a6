"""The compiler's result for a program, and its expected time from the rates of the machine."""

from collections import Counter
from typing import NamedTuple

from ._compiled import Collective, Cost, Loop, Memory, collectives_of, loops_of
from ._hlo_text import HloModule, bytes_of_shape
from ._hlo_work import Kernel, kernels_of
from ._rates import Rates


class CompiledFacts(NamedTuple):
    """The contents of a compiled program; see `Report`, which holds it.

    Attributes:
        kernels: Its operations: fusions, matrix products, library calls.
        loops: Its loops.
        trips: Iterations of loops that were counted by running them, by their names in the program.
        collectives: The data exchanges between devices.
        memory: Bytes; None if the backend does not report it.
        gathers_for_transforms: Bytes that devices gather for Fourier transforms along an axis that is split.
        uncounted: How many operations are in loops of unknown length; they count as if these ran once.
    """

    kernels: tuple[Kernel, ...]
    loops: tuple[Loop, ...]
    trips: dict[str, float]
    collectives: tuple[Collective, ...]
    memory: Memory | None
    gathers_for_transforms: int
    uncounted: int

    @property
    def cost(self) -> Cost:
        """The work of a call, loops counted as often as they run."""
        runs = [(k, 1.0 if k.times is None else k.times) for k in self.kernels]
        return Cost(
            flops=sum(n * (k.products + k.flops + k.transforms) for k, n in runs),
            transcendentals=sum(n * (k.transcendentals + k.periodic) for k, n in runs),
            bytes_accessed=sum(n * k.bytes for k, n in runs),
        )

    @property
    def fusions(self) -> int:
        """How many fusions there are."""
        return sum(k.opcode == "fusion" for k in self.kernels)


class Prediction(NamedTuple):
    """The expected time of a call, in seconds.

    Attributes:
        total: All of it.
        compute: The time of operations that are limited by computing.
        move: The time of operations that are limited by moving data.
        start: The time for starting operations and iterations.
        memory: The time for getting new memory for results.
    """

    total: float
    compute: float
    move: float
    start: float
    memory: float


def compiled_facts(module: HloModule, trips: dict[str, float], memory: Memory | None) -> CompiledFacts:
    """Returns the contents of a compiled program."""
    kernels = tuple(kernels_of(module, trips))
    found = tuple(collectives_of(module))
    return CompiledFacts(
        kernels,
        tuple(loops_of(module)),
        trips,
        found,
        memory,
        sum(c.bytes for c in found if c.kind == "all-gather" and "fft" in c.source)
        or _gathered_before_transforms(module),
        sum(k.times is None for k in kernels),
    )


def _gathered_before_transforms(module: HloModule) -> int:
    """Returns the bytes of gathers whose results are transformed, whatever JAX called them."""
    total = 0
    for body in module.computations.values():
        own = {i.name: i for i in body}
        for i in body:
            if i.opcode != "fft":
                continue
            for name in i.operands:
                while name in own and own[name].opcode in ("copy", "bitcast", "reshape", "transpose", "fusion"):
                    name = own[name].operands[0] if own[name].operands else ""
                if name in own and own[name].opcode.startswith("all-gather"):
                    total += bytes_of_shape(own[name].shape)
    return total


def working_sets(facts: CompiledFacts) -> dict[tuple[str, ...], float]:
    """Returns over how many bytes an iteration of each loop goes, by the loops around it and its own name."""
    held = float("inf") if facts.memory is None else float(facts.memory.total)
    over: dict[tuple[str, ...], float] = {}
    for k in facts.kernels:
        for depth in range(len(k.loops) + 1):
            over[k.loops[:depth]] = over.get(k.loops[:depth], 0.0) + k.bytes
    return {loops: min(held, size) for loops, size in over.items()}


def predicted(facts: CompiledFacts, rates: Rates) -> Prediction | None:
    """Returns the expected time of a call on this machine; None if it depends on loops of unknown length."""
    if facts.uncounted:
        return None
    over = working_sets(facts)
    together = Counter(k.loops for k in facts.kernels)
    compute = move = start = 0.0
    for k in facts.kernels:
        once, begin = rates.seconds(k, over[k.loops], together[k.loops]), rates.start(k, together[k.loops])
        moved = k.bytes / rates.copied(over[k.loops])
        times = k.times or 0.0
        start += times * begin
        if once - begin > moved * 1.001:
            compute += times * (once - begin)
        else:
            move += times * (once - begin)
    new = 0.0
    if facts.memory is not None and rates.new:
        size = facts.memory.outputs - facts.memory.aliased + facts.memory.temporaries
        new = size / rates.given(size) if size > 0 else 0.0
    start += rates.call
    return Prediction(compute + move + start + new, compute, move, start, new)
