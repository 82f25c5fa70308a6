"""The lines of code that a program says it comes from, kept where programs are traced from programs."""

from contextlib import AbstractContextManager
from typing import Any

from .._source_lines import is_library
from ._interpreters import source_info_util


def at_source_of(eqn: Any, called: bool = False) -> AbstractContextManager:
    """Returns a block in which what is traced comes from the line of code, and has the names, of an equation.

    Args:
        eqn: The equation.
        called: Whether it is within a program that another equation calls, in whose block this is. JAX records only the
            lines within that program; if these are a library's, as for `jnp.sort`, the caller's line counts.
    """
    names = source_info_util.current_name_stack() + eqn.source_info.name_stack
    traceback = eqn.source_info.traceback
    if called and (traceback is None or all(is_library(frame.file_name) for frame in traceback.frames)):
        traceback = source_info_util.current().traceback
    return source_info_util.user_context(traceback, name_stack=names)


def at_own_source() -> AbstractContextManager:
    """Returns a block in which what is traced comes from the lines of code that run, also within `at_source_of`."""
    return source_info_util.user_context(None, name_stack=source_info_util.current_name_stack())
