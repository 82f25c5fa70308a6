"""Read optimised HLO text: computations, their instructions, and which computation calls which.

JAX has no public parser of it. Names are taken with and without the `%` before them.
"""

import dataclasses
import math
import re

# Sizes of what HLO's notation of shapes describes.


_ARRAY = re.compile(r"\b([a-z]+\d*)([a-z]\w*)?\[([\d,]*)\]")  # f32[64,64]{1,0}, pred[], f8e4m3fn[2]
_BITS = {"pred": 8, "token": 0, "opaque": 0}


def arrays_of(shape: str) -> list[tuple[str, tuple[int, ...]]]:
    """Returns dtype and dimensions of each array of a shape, of which a tuple's has several."""
    return [
        (kind + (more or ""), tuple(int(n) for n in sizes.split(",") if n))
        for kind, more, sizes in _ARRAY.findall(shape)
    ]


def bytes_of_shape(shape: str) -> int:
    """Returns the bytes that all its arrays take."""
    return sum(math.prod(dims) * _bits(dtype) // 8 for dtype, dims in arrays_of(shape))


def elements_of(shape: str) -> int:
    """Returns the number of elements of all its arrays."""
    return sum(math.prod(dims) for _, dims in arrays_of(shape))


def _bits(dtype: str) -> int:
    found = re.match(r"[a-z]+(\d+)", dtype)
    return _BITS.get(dtype, int(found[1]) if found else 0)


# ENTRY %main.7 (x.1: f32[8]) -> f32[8] {
_HEAD = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.\-]+) \(.*\) -> .*\{$")
#   ROOT %add.3 = f32[8]{0} add(%x.1, %y.2), metadata={op_name="jit(f)/add"}
_ASSIGN = re.compile(r"^\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<rest>.*)$")
_OPCODE = re.compile(r"\s*(?P<opcode>[a-z][\w\-]*)\(")
# A call names one computation, `body=%region_1.5`, or a list, `branch_computations={%a.1, %b.2}`.
_CALL = re.compile(r"\b(?:calls|to_apply|condition|body|true_computation|false_computation)=%?([\w.\-]+)")
_CALLS = re.compile(r"\b(?:branch_computations|called_computations)=\{([^}]*)\}")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
# Of a `while`, where the compiler knows it: backend_config={"known_trip_count":{"n":"100"}}
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    shape: str
    opcode: str
    calls: tuple[str, ...]
    op_name: str
    trips: int | None
    operands: tuple[str, ...] = ()
    attributes: str = ""


@dataclasses.dataclass(frozen=True)
class HloModule:
    """Computations by name, in the order of the text; `entry` is the one that runs."""

    computations: dict[str, tuple[Instruction, ...]]
    entry: str

    def walk(self) -> list[tuple[Instruction, int]]:
        """Every instruction reachable from the entry with its loop depth (the deepest, if called from several)."""
        depth: dict[str, int] = {}

        def visit(name: str, at: int) -> None:
            if depth.get(name, -1) >= at:  # seen as deep already; deeper calls visit again what lies below
                return
            depth[name] = at
            for instruction in self.computations.get(name, ()):
                for called in instruction.calls:
                    visit(called, at + (instruction.opcode == "while"))

        visit(self.entry, 0)
        return [(i, depth[name]) for name, body in self.computations.items() if name in depth for i in body]


def _split_shape(rest: str) -> tuple[str, str]:
    """Cut `f32[2]{0} add(...)` after the shape; a tuple's shape is in parentheses and may hold more of them."""
    if not rest.startswith("("):
        shape, _, tail = rest.partition(" ")
        return shape, tail
    open_ = 0  # parentheses
    for at, character in enumerate(rest):
        open_ += (character == "(") - (character == ")")
        if open_ == 0:
            return rest[: at + 1], rest[at + 1 :]
    return rest, ""


def _split_operands(text: str) -> tuple[tuple[str, ...], str]:
    """Cut `%x.1, %y.2), dimensions={0}` into names and what follows; some versions write types before the names."""
    names, depth, word = [], 0, ""
    for at, character in enumerate(text):
        if character == ")" and depth == 0:
            names.append(word)
            return tuple(name.split()[-1].lstrip("%") for name in names if name.strip()), text[at + 1 :]
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            names.append(word)
            word = ""
        else:
            word += character
    return (), text


def _instruction(line: str) -> Instruction | None:
    assigned = _ASSIGN.match(line)
    if assigned is None:
        return None
    shape, tail = _split_shape(assigned["rest"])
    opcode = _OPCODE.match(tail)
    if opcode is None:
        return None
    calls = _CALL.findall(tail)
    for group in _CALLS.findall(tail):
        calls.extend(name.strip().lstrip("%") for name in group.split(",") if name.strip())
    op_name, trips = _OP_NAME.search(tail), _TRIPS.search(tail)
    operands, attributes = _split_operands(tail[opcode.end() :])
    return Instruction(
        name=assigned["name"],
        shape=shape,
        opcode=opcode["opcode"],
        calls=tuple(calls),
        op_name=op_name[1] if op_name else "",
        trips=int(trips[1]) if trips else None,
        operands=operands,
        attributes=attributes,
    )


def parse(text: str) -> HloModule:
    """Parse the text of one optimised HLO module."""
    computations: dict[str, tuple[Instruction, ...]] = {}
    entry, name, body = "", None, []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head is not None:
            name, body = head["name"], []
            entry = name if head["entry"] else entry
        elif line.startswith("}") and name is not None:
            computations[name], name = tuple(body), None
        elif name is not None and (instruction := _instruction(line)) is not None:
            body.append(instruction)
    return HloModule(computations, entry)
