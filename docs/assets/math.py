"""A hook of mkdocs: converts LaTeX to MathML, which browsers draw themselves, so that pages need no script.

The font is `fonts/STIXTwoMath.woff2`: a part of STIX Two Math with the characters that are listed here. A formula with
another one, or one that `latex2mathml` could not read, is an error.
"""

import html
import itertools
import re
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

# What the arithmatex extension leaves of `$...$` and `$$...$$`.
_MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)

# Letters and digits, accents, Greek, spaces and dashes, letterlike, arrows, operators, brackets and their parts,
# letters of mathematics: italic, bold, script and with double strokes.
_RANGES = (
    *((0x20, 0x7E), (0xA8, 0xB7), (0xD7, 0xD7), (0xF7, 0xF7), (0x131, 0x131), (0x237, 0x237), (0x2C6, 0x2DD)),
    *((0x300, 0x338), (0x391, 0x3F6), (0x2010, 0x2063), (0x20D0, 0x20E1), (0x210E, 0x2135), (0x2190, 0x21D5)),
    *((0x2200, 0x22FF), (0x2308, 0x230B), (0x239B, 0x23B7), (0x23DC, 0x23E1), (0x25A1, 0x25A1), (0x27E6, 0x27EF)),
    *((0x2A7D, 0x2A7E), (0x1D400, 0x1D467), (0x1D49C, 0x1D4B5), (0x1D538, 0x1D56B), (0x1D6A4, 0x1D71B)),
    (0x1D7CE, 0x1D7D7),
)
CHARACTERS = frozenset(number for first, last in _RANGES for number in range(first, last + 1))


_ALIGNED = re.compile(r"\\begin\{aligned\}(.*?)\\end\{aligned\}", re.DOTALL)


def _with_columns(match: re.Match) -> str:
    """Equations below each other as a table, which `latex2mathml` knows."""
    rows = match[1]
    pairs = max(row.count("&") // 2 + 1 for row in rows.split(r"\\"))
    return rf"\begin{{array}}{{{'rl' * pairs}}}{rows}\end{{array}}"


_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
_ACCENTS = ("\u02d9", "\u00a8", "\u00af", "^", "~", "\u2192")
_BOLD = {ord(x): 0x1D400 + i for i, x in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")}


_UPRIGHT = re.compile(r"\\mathrm\{([^{}]*)\}")


def _for_browsers(mathml: str) -> str:
    """Dots and bars are accents, close to their letter; bold letters are letters; signs stand at their number."""
    ElementTree.register_namespace("", _NAMESPACE)
    tree = ElementTree.fromstring(mathml)
    for over in tree.iter(f"{{{_NAMESPACE}}}mover"):
        if over[1].text in _ACCENTS:
            over.set("accent", "true")
            over[1].set("stretchy", "false")
    for letter in tree.iter(f"{{{_NAMESPACE}}}mi"):
        if letter.get("mathvariant") == "bold":
            letter.text = (letter.text or "").translate(_BOLD)
            del letter.attrib["mathvariant"]
    for bar in tree.iter(f"{{{_NAMESPACE}}}mo"):
        if bar.text in ("|", "\u2016"):
            bar.attrib.update(lspace="0.1em", rspace="0.1em")
    for group in tree.iter():
        for before, sign in itertools.pairwise(group):
            follows = before.tag == sign.tag == f"{{{_NAMESPACE}}}mo" and before.text not in (")", "]", "|", "!")
            if follows and sign.text in ("\u2212", "+"):
                sign.set("form", "prefix")
    return ElementTree.tostring(tree, encoding="unicode")


def _checked(mathml: str, latex: str, page: Any) -> str:
    text = html.unescape(re.sub(r"<[^>]*>", "", mathml))
    unknown = sorted({x for x in text if ord(x) not in CHARACTERS and not x.isspace()})
    if unknown:
        raise PluginError(f"{page}: the font of formulas has no {' '.join(unknown)}, see docs/assets/fonts: {latex}")
    if re.search(r"[&\\$#]", text):
        raise PluginError(f"{page}: this formula was not understood: {latex}")
    return _for_browsers(mathml)


def on_page_content(content: str, page: Any, **kwargs: Any) -> str:
    """Is called by mkdocs with the HTML of every page."""
    del kwargs

    def to_mathml(match: re.Match) -> str:
        tag, bracket, latex = match.groups()
        latex, display = html.unescape(latex).strip(), "block" if bracket == "[" else "inline"
        simple = _UPRIGHT.sub(r"\\text{\1}", _ALIGNED.sub(_with_columns, latex))
        mathml = _checked(convert(simple, display=display), latex, page.file.src_uri)
        return f'<{tag} class="math">{mathml}</{tag}>'

    return _MATH.sub(to_mathml, content)
