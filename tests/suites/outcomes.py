"""The outcome of one case of another project's test suite."""

import collections
import dataclasses
from collections.abc import Iterable
from typing import Literal

KINDS = ("passed", "refused", "wrong")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of one case.

    Attributes:
        case: The name of the case in its suite.
        outcome: `passed` if all values agree within the suite's tolerances, `refused` if the library says by name that
            it does not support the case, `wrong` for everything else: other values, and every unexpected exception.
        why: The reason, one line; empty for a case that passed.
    """

    case: str
    outcome: Literal["passed", "refused", "wrong"]
    why: str = ""

    def __post_init__(self):
        if self.outcome not in KINDS:
            raise ValueError(f"`outcome` must be one of {KINDS}, but is {self.outcome!r}.")


def counts(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Returns the number of cases of each outcome, zero included."""
    found = collections.Counter(x.outcome for x in outcomes)
    return {kind: found[kind] for kind in KINDS}
