"""Hooks of mkdocs: names in the text are links to the reference, and to that of JAX where it can be reached."""

import logging
import re
import urllib.request
from typing import Any

from mkdocs.plugins import event_priority

INVENTORIES = (
    "https://docs.jax.dev/en/latest/objects.inv",
    "https://docs.kidger.site/equinox/objects.inv",
    "https://docs.kidger.site/diffrax/objects.inv",
    "https://docs.kidger.site/lineax/objects.inv",
    "https://docs.kidger.site/optimistix/objects.inv",
    "https://optax.readthedocs.io/en/latest/objects.inv",
    "https://numpy.org/doc/stable/objects.inv",
)
LONG = {"jnp": "jax.numpy", "eqx": "equinox", "np": "numpy"}

# What is a link, a heading or a block of code already, and names in code.
_LEAVE = re.compile(r"(<a\b.*?</a>|<pre\b.*?</pre>|<h\d\b.*?</h\d>|<autoref\b.*?</autoref>)", re.DOTALL)
_NAME = re.compile(
    r"<code>((?:sciml|jax|jnp|eqx|equinox|diffrax|lineax|optimistix|optax|np)(?:\.\w+)+)(\([^<]*\))?</code>"
)


@event_priority(100)  # before mkdocstrings reads its configuration
def on_config(config: Any) -> Any:
    """Takes the inventories that can be reached; without a network there are none, and no error."""
    reached = []
    for url in INVENTORIES:
        try:
            with urllib.request.urlopen(url, timeout=3):
                reached.append(url)
        except OSError:
            if not reached:
                logging.getLogger("mkdocs").info("no inventory can be reached: names of JAX and others are not linked")
                break
    handlers = config.plugins["mkdocstrings"].config.handlers
    handlers.setdefault("python", {})["inventories"] = reached
    return config


def _to_link(match: re.Match) -> str:
    name, call = match.groups()
    first, rest = name.split(".", 1)
    whole = f"{LONG.get(first, first)}.{rest}"
    return f'<autoref optional identifier="{whole}"><code>{name}{call or ""}</code></autoref>'


def on_page_content(html: str, **kwargs: Any) -> str:
    """Is called by mkdocs with the HTML of every page; what no reference knows stays as it is."""
    del kwargs
    parts = _LEAVE.split(html)
    return "".join(part if number % 2 else _NAME.sub(_to_link, part) for number, part in enumerate(parts))
