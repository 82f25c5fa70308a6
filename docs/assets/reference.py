"""A hook of mkdocs: makes the pages of the reference from `docs/api`.

A file of `docs/api` is the page of one package: prose, and a line `::: sciml.models.Lorenz63` for each object. The page
that is built shows tables of names and first sentences instead. The objects get their own pages, one for each section
of the file, and one for each object before the first section.
"""

import dataclasses
import enum
import importlib
import inspect
import logging
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

LOG = logging.getLogger("mkdocs.plugins.reference")  # a warning ends a strict build
LARGEST = 300_000
"""How many bytes a page of the reference may have."""

_OBJECT = re.compile(r"^::: (\S+)$((?:\n[ \t]+\S.*)*)", re.MULTILINE)
_OBJECTS = re.compile(rf"(?:{_OBJECT.pattern}\n*)+", re.MULTILINE)
_HEADING = re.compile(r"^##+ (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:|#)([^)]+)\)")


@dataclasses.dataclass(frozen=True)
class Page:
    """A page that is made: its address, its title and its Markdown."""

    uri: str
    title: str
    text: str


def found(name: str) -> Any:
    """The object of a dotted name."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def first_sentence(name: str) -> str:
    """The first sentence of a docstring, for a cell of a table."""
    paragraph = " ".join((inspect.getdoc(found(name)) or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=[a-z0-9)$`\]][.:]) (?=[A-Z`$])", paragraph)[0]
    return sentence.rstrip(":").replace("|", r"\|")


def is_package(name: str) -> bool:
    """Whether a line describes a package: it stays on its page."""
    return inspect.ismodule(found(name))


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Title and text of every section; the first has no title."""
    places = [*_HEADING.finditer(text)]
    ends = [place.start() for place in places] + [len(text)]
    yield "", text[: ends[0]]
    for place, end in zip(places, ends[1:], strict=True):
        yield place[1], text[place.end() : end]


def pages(path: pathlib.Path) -> list[Page]:
    """The pages that are made of one file of `docs/api`."""
    package, made = path.stem, []
    up = f"[{'sciml' if package == 'sciml' else 'sciml.' + package}](../{path.name})"
    for title, text in sections(path.read_text()):
        objects = [*_OBJECT.finditer(text)]
        if not title:
            for match in [match for match in objects if not is_package(match[1])]:
                name = match[1].rsplit(".", 1)[1]
                block = match[0] if match[2] else match[0] + "\n    options:"
                block = block.replace("options:", "options:\n      heading_level: 1", 1)
                made.append(Page(f"api/{package}/{name}.md", name, f"{block}\n\nPart of {up}.\n"))
        elif objects:
            slug = re.sub(r"[^a-z0-9]+", "_", title.lower().removeprefix("sciml.")).strip("_")
            moved = _LINK.sub(r"](../\1)", text).replace("](#", f"](../{path.name}#")
            made.append(Page(f"api/{package}/{slug}.md", title, f"# {title}\n\nPart of {up}.\n{moved}"))
    return made


def _table(match: re.Match) -> str:
    """Lines of objects that follow each other, as a table of links and first sentences."""
    names = [name for name, _ in _OBJECT.findall(match[0])]
    if is_package(names[0]):
        return match[0]
    rows = [f"| [`{name.rsplit('.', 1)[1]}`][{name}] | {first_sentence(name)} |" for name in names]
    return "\n".join(["| Name | Description |", "|---|---|", *rows]) + "\n\n"


@event_priority(50)
def on_config(config: Any) -> Any:
    """Puts the pages into the navigation, under their package."""
    api = pathlib.Path(config.docs_dir) / "api"
    made = {f"api/{path.name}": pages(path) for path in sorted(api.glob("*.md"))}
    config.extra["reference"] = [page for group in made.values() for page in group]
    for entry in config.nav:
        for number, package in enumerate(entry.get("Reference", ()) if isinstance(entry, dict) else ()):
            ((title, uri),) = package.items()
            entry["Reference"][number] = {title: [uri, *({page.title: page.uri} for page in made[uri])]}
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages."""
    for page in config.extra["reference"]:
        files.append(File.generated(config, page.uri, content=page.text))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Is called by mkdocs with the Markdown of every page."""
    del kwargs
    if re.fullmatch(r"api/\w+\.md", page.file.src_uri):
        return _OBJECTS.sub(_table, markdown)
    return markdown


def on_post_page(output: str, page: Any, **kwargs: Any) -> str:
    """Is called by mkdocs with every page as it will be written."""
    del kwargs
    if page.file.src_uri.startswith("api/"):
        if len(output.encode()) > LARGEST:
            LOG.warning("%s has %d bytes, more than %d: give it sections", page.file.src_uri, len(output), LARGEST)
        for name in without_signature(output):
            LOG.warning("%s: %s has no signature", page.file.src_uri, name)
    return output


def without_signature(output: str) -> list[str]:
    """The classes and functions of a page that are shown without what they are called with."""
    missing = []
    for part in re.split(r'<div class="doc doc-object doc-(?=class|function)', output)[1:]:
        head = part.split('<div class="doc doc-contents')[0]
        name = re.search(r'<h\d id="([\w.]+)"', head)
        signature = re.search(r"doc-signature.*?<code>(.*?)</code>", head, re.DOTALL)
        if name and is_called(name[1]) and not (signature and "(" in re.sub("<[^>]*>", "", signature[1])):
            missing.append(name[1])
    return missing


def is_called(name: str) -> bool:
    """Whether users call the object: not an abstract class, a code or an error."""
    last = name.rsplit(".", 1)[1]
    try:
        return not last.startswith("Abstract") and not issubclass(found(name), enum.Enum | Exception | dict)
    except (ImportError, TypeError):  # a method or a function
        return True
