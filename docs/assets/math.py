"""A hook of mkdocs: converts LaTeX to MathML, which browsers draw themselves, so that pages need no script."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

# What the arithmatex extension leaves of `$...$` and `$$...$$`.
_MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def _to_mathml(match: re.Match) -> str:
    tag, bracket, latex = match.groups()
    display = "block" if bracket == "[" else "inline"
    return f'<{tag} class="math">{convert(html.unescape(latex).strip(), display=display)}</{tag}>'


def on_page_content(content: str, **kwargs: Any) -> str:
    """Is called by mkdocs with the HTML of every page."""
    del kwargs
    return _MATH.sub(_to_mathml, content)
