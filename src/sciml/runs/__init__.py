"""Long runs: host loops around compiled segments. Their results go to `sciml.stores`.

- `Run`: the result of `sciml.simulate`, a long run in segments. `iterate` is the same for custom steps.
- `read_run`: reads a stored run.
- `SteadyState`, `WallTime`: when a run ends early.
"""

from typing import TYPE_CHECKING

from .. import _former_names as _former_names
from ._iterate import iterate as iterate
from ._read_run import read_run as read_run
from ._run import Run as Run
from .segments._stops import SteadyState as SteadyState, WallTime as WallTime

if not TYPE_CHECKING:  # a type checker would believe that there is every name
    __getattr__ = _former_names.knows_former_names(__name__)
