"""A hook of mkdocs: names in the text are links to the reference of this library, of JAX and of related libraries.

`inventories.txt` has the names of the other libraries, so that a build needs no network.
"""

import pathlib
import re
from typing import Any

from mkdocs.plugins import event_priority

LONG = {"jnp": "jax.numpy", "eqx": "equinox", "np": "numpy"}
AMBIGUOUS = {"Euler"}  # equations of a gas here, a method of diffrax there

# Links, headings and blocks of code stay as they are.
_LEAVE = re.compile(r"(<a\b.*?</a>|<pre\b.*?</pre>|<h\d\b.*?</h\d>|<autoref\b.*?</autoref>)", re.DOTALL)
_OBJECT = re.compile(r"^::: (\S+)$", re.MULTILINE)
_NAME = re.compile(r"<code>([A-Za-z_]\w*(?:\.\w+)*)(\([^<]*\))?</code>")


def inventories(path: pathlib.Path) -> dict[str, str]:
    """Where other libraries describe their names."""
    found, address = {}, ""
    for line in path.read_text().splitlines():
        if line.startswith("http"):
            address = line
        elif line.startswith(" "):
            found |= {name: address.replace("{}", name) for name in line.split()}
    return found


@event_priority(-50)  # after mkdocstrings
def on_config(config: Any) -> Any:
    """Collects the names that a page may mention, with the whole name of each."""
    folder = pathlib.Path(config.docs_dir)
    others = inventories(folder / "assets" / "inventories.txt")
    for name, address in others.items():
        config.plugins["autorefs"].register_url(name, address)
    own = [name for page in (folder / "api").glob("*.md") for name in _OBJECT.findall(page.read_text())]
    whole = {name: name for name in [*others, *own]}
    for name in [*(name for name in others if not name.startswith(("jax", "numpy", "optax"))), *own]:
        short = name.rsplit(".", 1)[1]
        if re.match("[A-Z]+[a-z0-9]", short) and short not in AMBIGUOUS:
            whole[short] = name
        if "._" not in name:
            whole[name.removeprefix("sciml.")] = name
    config.extra["names"] = whole
    return config


def on_page_content(html: str, config: Any, **kwargs: Any) -> str:
    """Is called by mkdocs with the HTML of every page."""
    del kwargs

    def to_link(match: re.Match) -> str:
        name, call = match.groups()
        first, dot, rest = name.partition(".")
        whole = config.extra["names"].get(LONG.get(first, first) + dot + rest)
        if whole is None and dot and first[0].isupper():
            whole = config.extra["names"].get(first)  # a member: its class
        if whole is None or (not dot and not call and first[0].islower()):
            return match[0]
        return f'<autoref optional identifier="{whole}"><code>{name}{call or ""}</code></autoref>'

    parts = _LEAVE.split(html)
    return "".join(part if number % 2 else _NAME.sub(to_link, part) for number, part in enumerate(parts))
