"""Long runs: host loops around compiled segments. What they make goes to `sciml.stores`.

- `Run`: what `sciml.simulate` returns, a long run in segments. `iterate` is the same for steps of your own.
- `load`: reads a stored run.
- `SteadyState`, `WallTime`: when a run ends early.
"""

from ._iterate import iterate as iterate
from ._load import load as load
from ._run import Run as Run
from .segments._stops import SteadyState as SteadyState, WallTime as WallTime
