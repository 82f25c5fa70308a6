"""A function that reads its argument in parts, such that reverse mode puts their cotangents together at once.

A vector field of several species reads them as parts of the state, as by `a, b = y.reshape(2, -1)`. On the way back the
cotangent of the state is put together of theirs. XLA on CPUs computes what leads up to a part where it puts them
together: number by number, with a branch for each, and no vectors. Where the parts are computed before, it copies them.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from ..._choices import choices
from ..._jax._barrier import apart_for_one
from ..._jax._interpreters import Jaxpr
from ..._jax._vma import typed_sharding
from ..._jax.programs import _names as names, evaluate, is_literal, program_called, run_equation


def read_in_parts(function: Callable[[Any, Array], Array]) -> Callable[[Any, Array], Array]:
    """Returns a function of time and a vector that puts cotangents of parts of the vector together at once.

    Args:
        function: The function, which is taken as it is where it does not read the vector in a few parts.
    """

    def run(t: Any, x: Float[Array, " n"]) -> Array:
        if typed_sharding(x) is not None:
            return function(t, x)
        closed = jax.make_jaxpr(function)(t, x)
        whole, read = _Part(np.arange(x.shape[0])), []
        _run(closed.jaxpr, (*closed.consts, None, whole), read.append, _nothing)
        lengths = _lengths(read, x.shape[0])
        if lengths is None:
            return function(t, x)
        starts = np.cumsum([0, *lengths[:-1]]).tolist()
        parts = dict(zip(starts, _each(*jax.lax.split(_whole(x), lengths)), strict=True))

        def taken(part: _Part) -> Array:
            return parts[int(part.places.flat[0])].reshape(part.places.shape)

        return _run(closed.jaxpr, (*closed.consts, t, whole), taken, run_equation)[0]

    return run


@jax.custom_jvp
def _whole(x: Array) -> Array:
    return x


@_whole.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    # its transpose is a barrier, too: nor is what is put together computed where that is added to something
    return _whole(*primals), apart_for_one(*tangents)[0]


@jax.custom_jvp
def _each(*parts: Array) -> tuple[Array, ...]:
    return parts


@_each.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    return _each(*primals), apart_for_one(*tangents)


class _Part(NamedTuple):
    """A part of the vector.

    Attributes:
        places: Where its numbers are in the vector.
    """

    places: np.ndarray


def _lengths(read: list[_Part], size: int) -> tuple[int, ...] | None:
    """Returns the lengths of the parts that are read and of what lies between; None where they are no such parts."""
    cuts, last = [0], (0, 0)
    for places in sorted((part.places.reshape(-1) for part in read), key=lambda places: places[:1].tolist()):
        if places.size < choices().linear.part_from or np.any(np.diff(places) != 1):
            return None
        part = int(places[0]), int(places[-1]) + 1
        if part != last:
            if part[0] < last[1]:
                return None
            cuts += part
            last = part
    lengths = tuple(int(length) for length in np.diff([*cuts, size]) if length)
    return lengths if 2 <= len(lengths) <= choices().linear.parts_at_most else None


def _run(jaxpr: Jaxpr, inputs: Iterable, taken: Callable, compute: Callable) -> list:
    """Runs a program some of whose values are parts of the vector.

    Args:
        jaxpr: The program.
        inputs: Its constants and its operands.
        taken: Takes a part of which something is computed, and returns its numbers.
        compute: Returns the results of an equation, `(eqn, inputs)`.
    """

    def numbers(values: list) -> list:
        return [taken(x) if isinstance(x, _Part) else x for x in values]

    def in_parts(eqn: Any, values: list) -> list:
        out = None
        if any(isinstance(x, _Part) for x in values):
            called = program_called(eqn) if eqn.primitive.name in names.PLAIN_CALLS else None
            out = _moved(eqn, values) if called is None else _run(called[0], [*called[1], *values], taken, compute)
        return compute(eqn, numbers(values)) if out is None else out

    return numbers(evaluate(jaxpr, inputs, in_parts))


def _nothing(eqn: Any, inputs: list) -> list:
    del inputs
    return [None] * len(eqn.outvars)


def _moved(eqn: Any, values: list) -> list | None:
    """Returns what an equation makes of a part by moving its numbers; None where it does more."""
    name, params = eqn.primitive.name, eqn.params
    if name not in names.PARTS:
        return _handed_on(eqn, values)
    places = values[0].places
    if name == "slice":
        strides = params["strides"] or (1,) * places.ndim
        return [_Part(places[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))])]
    if name == "unstack":
        return [_Part(x) for x in np.moveaxis(places, params["axis"], 0)]
    if name == "split":
        return [_Part(x) for x in np.split(places, np.cumsum(params["sizes"])[:-1], params["axis"])]
    return [_Part(places.reshape(eqn.outvars[0].aval.shape))]


def _handed_on(eqn: Any, values: list) -> list | None:
    """Returns the operands of a barrier for one kind of device, as a field has it; None of other equations."""
    if not eqn.params.get("branches_platforms"):
        return None
    for branch in (closed.jaxpr for closed in eqn.params["branches"]):
        if not branch.eqns and not any(map(is_literal, branch.outvars)):
            return [values[1 + branch.invars.index(v)] for v in branch.outvars]
    return None
