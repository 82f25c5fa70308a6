"""Lines of the user's own code: their files, and the source lines of equations of a program."""

import functools
import importlib.util
import linecache
import os
from typing import Any, NamedTuple

_NAMES = ("jax", "numpy", "equinox", "diffrax", "lineax", "optimistix", "optax")
_SCIML = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
_MODELS = os.path.join(_SCIML, "models", "")
_CHECKERS = ("jaxtyping", "beartype")


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Returns the folders in which code is not the user's; none of the libraries is imported for it."""
    found = (importlib.util.find_spec(name) for name in _NAMES)
    return tuple(os.path.join(os.path.dirname(spec.origin), "") for spec in found if spec is not None and spec.origin)


@functools.lru_cache(maxsize=4096)
def is_library(filename: str) -> bool:
    """Whether a file belongs to one of the libraries that sciml is built on."""
    path = os.path.abspath(filename)
    return (
        path.startswith(_libraries())
        or os.path.basename(os.path.dirname(path)) in _CHECKERS
        or filename.startswith("<frozen")
    )


@functools.lru_cache(maxsize=4096)
def is_internal(filename: str) -> bool:
    """Whether a file belongs to sciml and is not a model: its lines do not help the author of a model."""
    path = os.path.abspath(filename)
    return path.startswith(_SCIML) and not path.startswith(_MODELS)


def is_own(filename: str) -> bool:
    """Whether a file is of sciml, models included."""
    return os.path.abspath(filename).startswith(_SCIML)


class SourceLine(NamedTuple):
    """A line of code.

    Attributes:
        filename: The file.
        line: Its number.
        function: The function that it is in.
        internal: Whether code of sciml that it calls did this, such as the steps of a solve.
    """

    filename: str
    line: int
    function: str
    internal: bool

    @property
    def code(self) -> str:
        """The line itself, empty where the file cannot be read."""
        return linecache.getline(self.filename, self.line).strip()

    def __str__(self) -> str:
        """`file.py:12, in rhs: y = jnp.log(x)`."""
        code = f": {self.code}" if self.code else ""
        return f"{os.path.basename(self.filename)}:{self.line}, in {self.function}{code}"


def source_line(eqn: Any) -> SourceLine | None:
    """Returns the user's line of an equation; None if JAX does not know it."""
    traceback = eqn.source_info.traceback
    internal = False
    for frame in () if traceback is None else traceback.frames:  # the innermost first
        if is_library(frame.file_name):
            continue
        if is_internal(frame.file_name):
            internal = True
            continue
        return SourceLine(frame.file_name, frame.line_num, frame.function_name, internal)
    return None
