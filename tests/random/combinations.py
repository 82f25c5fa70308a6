"""Several features of a solve at once, with other numbers each time, against a plain loop in NumPy.

The features, the problem and the loop are those of the table of pairs (`tests.pairs_table`).
"""

import jax
from hypothesis import strategies as st

from tests import features_by_hand, pairs_table
from tests.features import Setting
from tests.pairs_table import FEATURES

MOST = 5
VARIANTS = 10**6


@st.composite
def combinations(draw: st.DrawFn) -> tuple[tuple[str, ...], int]:
    """Draws features that one solve can have, and which numbers it has."""
    names = draw(st.lists(st.sampled_from(list(FEATURES)), min_size=1, max_size=MOST, unique=True))
    chosen: tuple[str, ...] = ()
    for name in names:  # one that excludes an earlier one is left out
        if pairs_table.combined(*chosen, name) is not None:
            chosen += (name,)
    return chosen, draw(st.integers(0, VARIANTS))


def check(names: tuple[str, ...], variant: int = 0) -> None:
    """Raises where a combination gives other numbers or derivatives than the loop, or an error that was not meant."""
    setting = pairs_table.combined(*names)
    assert isinstance(setting, Setting)
    words = "|".join(FEATURES[name].words for name in names)
    strict = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")  # the last line of a traceback says where an error was raised
    try:
        said = pairs_table.compute(setting.with_variant(variant), words)
    except features_by_hand.Undecided:
        return
    finally:
        jax.config.update("jax_traceback_filtering", strict)
    assert not any(word.startswith(("WRONG", "ERROR")) for word in said), (names, variant, said)
