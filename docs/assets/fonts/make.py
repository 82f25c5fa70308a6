"""Makes `STIXTwoMath.woff2`, the font of formulas, of the whole font: the characters that `../math.py` lists.

Run as `python docs/assets/fonts/make.py FONT`, where FONT is a `STIXTwoMath-Regular.ttf` or `.otf` of version 2.11, as
the package `ziamath` on PyPI has it. Needs `fonttools` and `brotli`. Its licence, in `OFL.txt`, allows to do so.
"""

import importlib.util
import sys
from pathlib import Path

from fontTools import subset

HERE = Path(__file__).parent


def characters() -> list[int]:
    """Returns what formulas may be made of."""
    spec = importlib.util.spec_from_file_location("docs_math", HERE.parent / "math.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return sorted(module.CHARACTERS)


def make(font: str) -> None:
    """Writes the font, with what browsers need to stretch brackets and to set small letters."""
    options = subset.Options(
        flavor="woff2", hinting=False, notdef_outline=True, layout_features=["ssty", "dtls", "flac"]
    )
    options.name_IDs = [0, 1, 2, 3, 4, 5, 6, 7, 13, 14]  # with the licence
    whole = subset.load_font(font, options)
    part = subset.Subsetter(options)
    part.populate(unicodes=characters())
    part.subset(whole)
    subset.save_font(whole, str(HERE / "STIXTwoMath.woff2"), options)


if __name__ == "__main__":
    make(sys.argv[1])
