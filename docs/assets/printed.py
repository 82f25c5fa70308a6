"""A hook of mkdocs: shows under a block of Python what it prints and draws.

`make printed` runs the blocks and writes their output to `docs/assets/printed`, one file for each page. An output
belongs to the text of its block: a change of the prose around it leaves it in place, and a changed block needs a
new one. `tests/test_docs.py` compares the outputs with those of a run.
"""

import hashlib
import logging
import pathlib
import re
import textwrap
from collections.abc import Iterator
from typing import Any

LOG = logging.getLogger("mkdocs.plugins.printed")  # a warning ends a strict build
DOCS = pathlib.Path(__file__).resolve().parents[1]
FOLDER = DOCS / "assets" / "printed"
MARK = "# %% "

BLOCK = re.compile(r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```\n", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"\n* *```text\n(.*?)\n *```", re.DOTALL)  # an output that the author wrote
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_COMMENT = re.compile(r"(?:^ *#|  # ).*$", re.MULTILINE)
_MEASURES = re.compile(r"\.report\(|\.measured|environment\(|seconds|rates\(\)")
_UNIT = r"(?:ns|us|µs|ms|s|min|[KMGT]i?B(?:/s)?|GFLOP/s|%)"
_TIME = re.compile(rf"(?<![\w.])[\d.]+(?:[eE][-+]?\d+)? ?{_UNIT}(?!\w)")


def key_of(code: str) -> str:
    """The name of a block: a digest of its text without comments."""
    lines = _COMMENT.sub("", textwrap.dedent(code)).splitlines()
    return hashlib.sha256("\n".join(line.rstrip() for line in lines if line.strip()).encode()).hexdigest()[:8]


def measures(code: str) -> bool:
    """Whether a block measures the machine, so that its output is another one on every run."""
    return bool(_MEASURES.search(code))


def prints(code: str) -> bool:
    """Whether a block is meant to show something."""
    return "print(" in code


def file_of(page: str) -> pathlib.Path:
    """The file with the outputs of a page, which is named as mkdocs does: `guides/solve.md`."""
    return (FOLDER / page).with_suffix(".txt")


def picture_of(page: str, key: str) -> pathlib.Path:
    """The file with the picture that a block draws."""
    return file_of(page).with_suffix("") / f"{key}.png"


def read(page: str) -> dict[str, str]:
    """The outputs of a page, by the names of its blocks."""
    path, found = file_of(page), {}
    for part in path.read_text().split("\n" + MARK)[1:] if path.exists() else ():
        head, _, text = part.partition("\n")
        found[head.split()[0]] = text.strip("\n")
    return found


def write(page: str, outputs: dict[str, tuple[str, str]]) -> None:
    """Writes the outputs of a page: for each block its text and what it printed."""
    path = file_of(page)
    path.unlink(missing_ok=True)
    if outputs:
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = [f"{MARK}{key} {_title(code)}\n{text}\n" for key, (code, text) in outputs.items()]
        path.write_text("Outputs of the blocks of a page, written by `make printed`.\n\n" + "\n".join(parts))


def _title(code: str) -> str:
    """The line of a block that says most about its output."""
    lines = [line.strip() for line in code.splitlines() if "print(" in line] or code.strip().splitlines()
    return lines[0][:80]


def without_numbers(text: str) -> tuple[str, list[float]]:
    """The words of an output, and its numbers, but for times, sizes and places in a file."""
    text = re.sub(r"\.(?:md|py):\d+", "(line)", _TIME.sub("(measured)", text))
    words = " ".join(text.split())
    return _NUMBER.sub("#", words), [float(number) for number in _NUMBER.findall(words)]


def agree(one: str, other: str) -> bool:
    """Whether two outputs say the same: the same words, and numbers that differ by rounding."""
    (words, numbers), (others, further) = without_numbers(one), without_numbers(other)
    close = all(abs(a - b) <= 0.05 * max(abs(a), abs(b)) + 1e-4 for a, b in zip(numbers, further))
    return words == others and close


def blocks(markdown: str) -> Iterator[tuple[re.Match, str, str | None]]:
    """The blocks of a page, with the name of each, and the output that its author wrote, if there is one."""
    for match in BLOCK.finditer(markdown):
        shown = SHOWN.match(markdown, match.end())
        yield match, key_of(match["code"]), shown and shown[1]


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Is called by mkdocs with the Markdown of every page."""
    del kwargs
    uri = page.file.src_uri
    recorded, parts, end = read(uri), [], 0
    up = "../" * uri.count("/")
    for match, key, shown in blocks(markdown):
        parts.append(markdown[end : match.end()])
        end = match.end()
        if prints(match["code"]) and shown is None and key not in recorded:
            LOG.warning("%s: no output of the block `%s`: `make printed` records it", uri, _title(match["code"]))
        text = "" if shown is not None else recorded.get(key, "")
        shows = f"\n```{{ .text .printed }}\n{text}\n```\n" if text else ""
        picture = picture_of(uri, key)
        if picture.exists():
            shows += f"\n![The picture that this block draws]({up}{picture.relative_to(DOCS).as_posix()})\n"
        parts.append(textwrap.indent(shows, match["indent"]))
    return "".join([*parts, markdown[end:]])
