r"""The work and data movement of the operations of a compiled program, with loops counted as often as they run.

XLA's own analysis counts the body of a loop once, so it cannot determine the cost of a solve. Here every operation is
counted from the text of the program, by shapes: a sum of $n$ numbers is $n$ operations, a product of matrices
$2 m n k$, a Fourier transform $5 n \log_2 n$. A fusion moves its outside inputs and its results; of a slice, and of an
update in place, only the part counts.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ._hlo_text import HloModule, Instruction, arrays_of, bytes_of_shape, elements_of

FREE = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id"})
"""They only name values and move no data."""

_TRANSCENDENTAL = {"exponential", "log", "tanh", "logistic", "exponential-minus-one", "log-plus-one", "cbrt", "erf"}
_PERIODIC = {
    "sine",
    "cosine",
    "tan",
    "atan2",
    "power",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "sinh",
    "cosh",
}
_MOVES = {
    "copy", "copy-start", "copy-done", "broadcast", "reshape", "transpose", "slice", "dynamic-slice", "concatenate",
    "dynamic-update-slice", "gather", "pad", "reverse", "iota", "select", "convert", "bitcast-convert", "all-gather",
    "all-to-all", "collective-permute", "optimization-barrier", "domain", "rng-bit-generator",
}  # fmt: skip
_SHUFFLES = {"concatenate", "pad", "gather", "scatter"}
_PARTS = {"slice", "dynamic-slice", "gather"}
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_WINDOW = re.compile(r"window=\{size=([\dx]+)")
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_SOLVERS = re.compile(r"lapack|blas|cusolver|cholesky|triangular|qr|eigh|svd|lu_", re.IGNORECASE)
_PRODUCTS = re.compile(r"gemm|matmul|dot|conv", re.IGNORECASE)


class Kernel(NamedTuple):
    """One operation that the program runs: an instruction that is not within a fusion.

    Attributes:
        name: Its name in the program.
        opcode: The kind of operation, such as `fusion` or `dot`.
        products: Operations in matrix products and similar contractions.
        flops: Other additions, products and so on.
        transcendentals: Evaluations of functions such as `exp`, `log` and `tanh`.
        periodic: Evaluations of functions such as `sin`, `cos` and `pow`, which take longer.
        transforms: Operations within Fourier transforms.
        shuffles: Elements that are put elsewhere one by one, as where arrays are joined or read by an index.
        operations: How many operations on arrays there are in it.
        bytes: The bytes read and written.
        times: How often it runs in a call; None if a loop around it has an unknown number of iterations.
        loops: The loops around it, by name, the outermost first.
        inlined: Whether it is part of a function that the compiler made of a loop, where nothing is launched.
        source: JAX's name for it.
    """

    name: str
    opcode: str
    products: float
    flops: float
    transcendentals: float
    periodic: float
    transforms: float
    shuffles: float
    operations: int
    bytes: float
    times: float | None
    loops: tuple[str, ...]
    inlined: bool
    source: str

    @property
    def work(self) -> float:
        """All operations and evaluations together."""
        return self.products + self.flops + self.transcendentals + self.periodic + self.transforms


def kernels_of(module: HloModule, trips: Mapping[str, float]) -> list[Kernel]:
    """Returns all operations of a program.

    Args:
        module: The program.
        trips: The number of runs of loops whose number of iterations is not in the program, by name.
    """
    return list(_kernels(module, module.entry, trips, 1.0, (), False))


def whiles_of(module: HloModule) -> list[tuple[Instruction, tuple[str, ...]]]:
    """Returns the loops of a program and the loops around each, in the order in which they start."""

    def visit(name: str, around: tuple[str, ...]) -> Iterator[tuple[Instruction, tuple[str, ...]]]:
        for i in module.computations.get(name, ()):
            if i.opcode == "while":
                yield i, around
            if i.opcode in ("while", "call", "conditional"):
                for called in i.calls:
                    yield from visit(called, (*around, i.name) if i.opcode == "while" else around)

    return list(visit(module.entry, ()))


def _kernels(
    module: HloModule, name: str, trips: Mapping[str, float], times: float | None, loops: tuple[str, ...], inlined: bool
) -> Iterator[Kernel]:
    body = module.computations.get(name, ())
    shapes = {i.name: i for i in body}
    for i in body:
        if i.opcode == "while":
            count = i.trips if i.trips is not None else trips.get(i.name)
            inner = None if times is None or count is None else times * count
            for called in i.calls:
                yield from _kernels(module, called, trips, inner, (*loops, i.name), inlined)
        elif i.opcode == "call":
            for called in i.calls:
                of_loop = any(x.opcode == "while" for x in module.computations.get(called, ()))
                yield from _kernels(module, called, trips, times, loops, inlined or of_loop)
        elif i.opcode == "conditional":  # one branch runs: the one that takes most
            branches = [list(_kernels(module, called, trips, times, loops, inlined)) for called in i.calls]
            yield from max(branches, key=lambda b: sum(k.bytes + k.work for k in b), default=[])
        elif i.opcode not in FREE and not i.opcode.endswith("-done"):
            work = [_work(module, x, own) for x, own in _inside(module, i, shapes)]
            sums = [sum(column) for column in zip(*work)] or [0.0] * 6
            moved = _bytes(module, i, shapes)
            yield Kernel(i.name, i.opcode, *sums, len(work), moved, times, loops, inlined, i.op_name)


def _inside(
    module: HloModule, i: Instruction, shapes: Mapping[str, Instruction]
) -> Iterator[tuple[Instruction, Mapping[str, Instruction]]]:
    """Returns the computation of an instruction: itself, or the contents of a fusion."""
    if i.opcode != "fusion":
        yield i, shapes
        return
    for called in i.calls:
        body = module.computations.get(called, ())
        own = {x.name: x for x in body}
        for x in body:
            if x.opcode not in FREE and (x.opcode not in _MOVES or x.opcode in _SHUFFLES):
                yield from _inside(module, x, own)


class _Work(NamedTuple):
    products: float = 0.0
    flops: float = 0.0
    transcendentals: float = 0.0
    periodic: float = 0.0
    transforms: float = 0.0
    shuffles: float = 0.0


def _work(module: HloModule, i: Instruction, shapes: Mapping[str, Instruction]) -> _Work:
    """Returns what an instruction computes."""
    n = float(elements_of(i.shape))
    given = [shapes[name].shape for name in i.operands if name in shapes]
    if i.opcode in FREE or i.opcode in _MOVES:
        return _Work(shuffles=n if i.opcode in _SHUFFLES else 0.0)
    if i.opcode in _TRANSCENDENTAL:
        return _Work(transcendentals=n)
    if i.opcode in _PERIODIC:
        return _Work(periodic=n)
    if i.opcode == "dot" and given:
        dims = arrays_of(given[0])[0][1]
        found = _CONTRACTED.search(i.attributes)
        contracted = [int(d) for d in found[1].split(",") if d] if found else []
        return _Work(products=2 * n * math.prod(dims[d] for d in contracted))
    if i.opcode == "convolution":
        window = _WINDOW.search(i.attributes)
        size = math.prod(int(x) for x in window[1].split("x")) if window else 1
        return _Work(products=2 * n * size)
    if i.opcode == "fft":
        longest = max((arrays_of(g)[0][1][-1] for g in (i.shape, *given) if arrays_of(g)[0][1]), default=1)
        real = 0.5 if "RFFT" in i.attributes else 1.0  # of real numbers, forwards or back
        return _Work(transforms=5 * real * max(n, elements_of(given[0]) if given else n) * math.log2(max(longest, 2)))
    if i.opcode in ("reduce", "reduce-window", "all-reduce", "reduce-scatter", "scatter", "select-and-scatter"):
        window = _WINDOW.search(i.attributes)
        size = math.prod(int(x) for x in window[1].split("x")) if window else 1
        inputs = sum(elements_of(g) for g in given[: max(1, len(given) // 2)])
        steps = sum(x.opcode not in FREE for called in i.calls for x in module.computations.get(called, ()))
        return _Work(flops=max(n * size, inputs) * max(steps, 1))
    if i.opcode == "sort":
        return _Work(transcendentals=n * math.log2(max(n, 2)))
    if i.opcode == "custom-call":
        return _of_custom_call(i, n, given)
    return _Work(flops=n)


def _of_custom_call(i: Instruction, n: float, given: list[str]) -> _Work:
    """Returns the approximate work of a library: for matrices of size $n$ about $n^3$."""
    found = _TARGET.search(i.attributes)
    target = found[1] if found else ""
    if _PRODUCTS.search(target) and len(given) >= 2:
        sizes = [elements_of(x) for x in (*given[:2], i.shape)]
        return _Work(products=2 * math.sqrt(math.prod(sizes)))
    if _SOLVERS.search(target) and given:
        dims = arrays_of(given[0])[0][1]
        return _Work(flops=float(math.prod(dims)) * (dims[-1] if dims else 1))
    return _Work(flops=n)


def _bytes(module: HloModule, i: Instruction, shapes: Mapping[str, Instruction]) -> float:
    """Returns the bytes that an instruction reads and writes."""
    whole = bytes_of_shape(i.shape)
    given = [bytes_of_shape(shapes[name].shape) if name in shapes else 0 for name in i.operands]
    if i.opcode in _PARTS:
        return 2.0 * whole
    if i.opcode == "dynamic-update-slice" and len(given) > 1:
        return 2.0 * given[1]
    if i.opcode == "scatter" and len(given) > 2:
        return 2.0 * sum(given[2:]) + given[1]
    if i.opcode in ("iota", "broadcast"):
        return float(whole)
    if i.opcode != "fusion":
        return float(whole + sum(given))
    return _bytes_of_fusion(module, i, whole, given)


def _bytes_of_fusion(module: HloModule, i: Instruction, whole: int, given: list[int]) -> float:
    body = [x for called in i.calls for x in module.computations.get(called, ())]
    users: dict[str, list[Instruction]] = {}
    for x in body:
        for name in x.operands:
            users.setdefault(name, []).append(x)
    parameters = [x for x in body if x.opcode == "parameter"]
    order = sorted(parameters, key=lambda x: int(x.operands[0]) if x.operands and x.operands[0].isdigit() else 0)
    total, own = 0.0, {x.name: x for x in body}
    for parameter, size in zip(order, given):
        uses = _uses(parameter.name, users)
        if uses and all(x.opcode in _PARTS for x in uses):
            total += min(size, sum(bytes_of_shape(x.shape) for x in uses))
        elif uses and all(x.opcode == "dynamic-update-slice" and _first(x, parameter.name, own) for x in uses):
            pass  # written in place
        else:
            total += size
    updates = [x for x in body if x.opcode == "dynamic-update-slice"]
    if updates:
        replaced = sum(bytes_of_shape(x.shape) for x in updates)
        parts = sum(bytes_of_shape(own[x.operands[1]].shape) for x in updates if x.operands[1] in own)
        whole = max(0, whole - replaced) + parts
    return total + whole


def _uses(name: str, users: Mapping[str, list[Instruction]]) -> list[Instruction]:
    """Returns what uses a value, by whatever name that is cheap."""
    found = []
    for x in users.get(name, []):
        found += _uses(x.name, users) if x.opcode in ("bitcast", "reshape") else [x]
    return found


def _first(x: Instruction, name: str, own: Mapping[str, Instruction]) -> bool:
    target = x.operands[0] if x.operands else ""
    while target in own and own[target].opcode in ("bitcast", "reshape", "copy") and own[target].operands:
        target = own[target].operands[0]
    return target == name
