"""Sizes of what HLO's notation of shapes describes."""

import math
import re

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
