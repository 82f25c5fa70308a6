"""The page of print-outs in the documentation, a section for each benchmark that was run with `--page`."""

import importlib
import io
import pathlib
import re
import sys

from ._registry import BENCHMARKS

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

What `make bench-page BENCH="scan insight"` printed, each with its machine, the load that this was under, and
versions. Ratios of one table were measured side by side; sections may be of different days. `benchmarks/README.md`
says what is compared and how, and `python -m benchmarks NAME` prints what is not here.
"""
_SECTION = re.compile(r"^## `(\w+)`\n", re.MULTILINE)


class Tee(io.StringIO):
    """Keeps what is printed, and prints it."""

    def __init__(self) -> None:
        super().__init__()
        self._out = sys.stdout

    def write(self, text: str) -> int:
        self._out.write(text)
        return super().write(text)

    def flush(self) -> None:
        self._out.flush()


def question(name: str) -> str:
    """The first line of the benchmark's file."""
    return (importlib.import_module(f"benchmarks.{name}").__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")


def with_section(page: str, name: str, text: str) -> str:
    """The page with what a benchmark printed, in place of what it printed before; sections are in the registry's order.

    Args:
        page: The page as it is; empty where there is none.
        name: The benchmark's.
        text: What it printed.
    """
    parts = _SECTION.split(page)
    sections = dict(zip(parts[1::2], parts[2::2]))
    sections[name] = f"{question(name)}\n\n{text}"
    return HEAD + "".join(f"\n## `{known}`\n\n{sections[known].strip()}\n" for known in BENCHMARKS if known in sections)


def add(name: str, text: str) -> None:
    """Writes what a benchmark printed into the page."""
    PAGE.write_text(with_section(PAGE.read_text() if PAGE.exists() else "", name, text))
