"""The facts in a program as JAX traced it: its equations, dtypes, callbacks, and the marks of sciml's loops."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .._choices import value_of
from .._jax._interpreters import ClosedJaxpr
from .._jax._marks import CHOICE, FALLBACK, LANES, ONE_BY_ONE
from .._jax._vma import typed_sharding
from .._jax.programs import _names as names, is_literal
from ._programs import Place, places, program_of

_REPEATS, _LEAST = 12, 48  # a block of equations that follows itself so often, of so many equations in all, is a loop


class Note(NamedTuple):
    """Something that the program does, and the line of the user's that it comes from.

    Attributes:
        what: The primitive, a dtype or a number, in words.
        where: The line, empty if JAX does not know it.
        loops: How many loops are around it.
    """

    what: str
    where: str
    loops: int = 0


class ProgramFacts(NamedTuple):
    """The contents of a program; see `Report`, which holds it.

    Attributes:
        equations: The number of equations, with loop bodies counted once.
        primitives: How often each primitive occurs, the most frequent first.
        dtypes: How many results of equations there are of each dtype.
        callbacks: Calls of Python from within.
        widened: The first equations that make 64-bit numbers of 32-bit ones, where the inputs have none.
        narrowed: The first that make 32-bit numbers of 64-bit ones.
        unrolled: Lines that were traced again and again, one block of equations after the other.
        gathered: The places where an array that is split over an explicit mesh is gathered on all devices.
        ways: How members run, and which kernels do, in words.
        choices: The entries of the table of choices that have selected a part of the program, with their values;
            `inspect.choose` changes them.
        fallbacks: Primitives that run over lanes by JAX's own `vmap`.
        constants: Bytes of arrays that are part of the program.
    """

    equations: int
    primitives: dict[str, int]
    dtypes: dict[str, int]
    callbacks: tuple[Note, ...]
    widened: tuple[Note, ...]
    narrowed: tuple[Note, ...]
    unrolled: tuple[Note, ...]
    gathered: tuple[Note, ...]
    ways: tuple[str, ...]
    choices: dict[str, float]
    fallbacks: tuple[Note, ...]
    constants: int


def facts_of(closed: ClosedJaxpr) -> ProgramFacts:
    """Returns the contents of a program."""
    found = list(places(closed.jaxpr))
    primitives = Counter(place.eqn.primitive.name for place in found)
    dtypes = Counter(v.aval.dtype.name for place in found for v in place.eqn.outvars if hasattr(v.aval, "dtype"))
    widths = {_width(v.aval) for v in closed.jaxpr.invars} - {0}
    return ProgramFacts(
        len(found),
        dict(primitives.most_common()),
        dict(dtypes.most_common()),
        tuple(Note(p.eqn.primitive.name, _line(p), p.loops) for p in found if p.eqn.primitive.name in names.CALLBACKS),
        tuple(_changed(found, 32, 64)) if widths == {32} else (),
        tuple(_changed(found, 64, 32)) if widths == {64} else (),
        tuple(_unrolled(found)),
        tuple(_gathered(found)),
        tuple(_ways(found)),
        {name: value_of(name) for p in found for name in re.findall(rf"{CHOICE}:([\w.]+)", p.scope)},
        tuple(_fallbacks(found)),
        _constants(closed, found),
    )


def _constants(closed: ClosedJaxpr, found: list[Place]) -> int:
    """Returns the bytes of arrays that are part of the program, or of one that it calls."""
    held = list(closed.consts)
    for place in found:
        called = program_of(place.eqn)
        held += called[1] if called is not None else []
    return sum({id(x): getattr(x, "nbytes", 0) for x in held}.values())


def _line(place: Place) -> str:
    return "" if place.line is None else str(place.line)


def _width(aval: Any) -> int:
    dtype = getattr(aval, "dtype", None)
    return jnp.finfo(dtype).bits if dtype is not None and jnp.issubdtype(dtype, jnp.inexact) else 0


def _changed(found: list[Place], old: int, new: int) -> Iterator[Note]:
    """Returns where floating-point numbers of one width first become such of another, by lines of the user's."""
    seen = set()
    for place in found:
        results = {_width(v.aval) for v in place.eqn.outvars}
        given = {_width(v.aval) for v in place.eqn.invars if np.ndim(getattr(v, "val", 0)) == 0 or not is_literal(v)}
        if new not in results or (given == {new} and new == 64) or (new == 32 and old not in given):
            continue
        line = place.line
        if line is None or line.internal or str(line) in seen:  # what sciml does itself, it does on purpose
            continue
        seen.add(str(line))
        yield Note(f"float{new}", str(line), place.loops)


def _unrolled(found: list[Place]) -> Iterator[Note]:
    """Returns blocks of equations that follow themselves many times: a loop of Python's, written out."""
    programs: dict[int, list[Place]] = {}
    for place in found:
        if LANES not in place.scope:  # there sciml takes small arrays apart itself
            programs.setdefault(place.program, []).append(place)
    for own in programs.values():
        if len(own) < _LEAST:
            continue
        words = [_word(place) for place in own]
        numbers = np.unique(np.array([hash(word) for word in words]), return_inverse=True)[1].reshape(-1)
        best = (0, 0, 0)
        for period in range(1, min(len(own) // _REPEATS, 400) + 1):
            same = np.concatenate([[False], numbers[period:] == numbers[:-period], [False]])
            edges = np.flatnonzero(np.diff(same.astype(np.int8)))
            runs = edges[1::2] - edges[::2]
            if runs.size and (longest := int(runs.max())) + period > best[0] + _LEAST // 4:
                best = (longest + period, period, int(edges[::2][int(runs.argmax())]))
        length, period, start = best
        if period and length >= _LEAST and length // period >= _REPEATS:
            line = next((text for p in own[start : start + period] if (text := _line(p))), "")
            yield Note(f"{length // period}", line, own[0].loops)


def _word(place: Place) -> tuple:
    eqn, line = place.eqn, place.line
    shapes = tuple(str(v.aval) for v in (*eqn.invars, *eqn.outvars))
    return eqn.primitive.name, str(eqn.params.get("name", "")), shapes, line[:2] if line else None


def _gathered(found: list[Place]) -> Iterator[Note]:
    for place in found:
        if place.eqn.primitive.name not in ("reshard", "all_gather"):
            continue
        for a, b in zip(place.eqn.invars, place.eqn.outvars):
            before, after = typed_sharding(a.aval), typed_sharding(b.aval)
            if before is None or after is None:
                continue
            lost = [axis for axis, (x, y) in enumerate(zip(_spec(before, a), _spec(after, b))) if x and not y]
            if lost:
                yield Note(f"axis {lost[0]} of {b.aval.str_short()}", _line(place), place.loops)


def _spec(sharding: Any, v: Any) -> tuple:
    return (*sharding.spec, *(None,) * (len(v.aval.shape) - len(sharding.spec)))


def _ways(found: list[Place]) -> Iterator[str]:
    seen = {}
    for place in found:
        for word in re.findall(rf"(?:{LANES}|{ONE_BY_ONE}):\d+", place.scope):
            kind, count = word.split(":")
            text = f"{count} members {'over lanes' if kind == LANES else 'one after another'}"
            seen.setdefault(text, None)
        if place.eqn.primitive.name in names.KERNELS:
            seen.setdefault(f"kernel {place.eqn.params.get('name') or place.eqn.primitive.name}", None)
    return iter(seen)


def _fallbacks(found: list[Place]) -> Iterator[Note]:
    seen: dict[tuple[str, str], Note] = {}
    for place in found:
        for word in re.findall(rf"{FALLBACK}:([\w-]+)", place.scope):
            line = "" if place.line is None or place.line.internal else str(place.line)
            seen.setdefault((word, line), Note(word, line, place.loops))
    located = {note.what for note in seen.values() if note.where}
    return iter(note for note in seen.values() if note.where or note.what not in located)
