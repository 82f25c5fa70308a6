"""Long runs: host loops around compiled segments. What they make goes to `sciml.stores`.

- `simulate`: a long run in segments; returns a `Run`. `iterate` is the same for steps of your own. `load` reads a
  stored one.
- `SteadyState`, `WallTime`: when a run ends early.
"""

from ._iterate import iterate as iterate
from ._load import load as load
from ._run import Run as Run
from ._simulate import simulate as simulate
from .segments._stops import SteadyState as SteadyState, WallTime as WallTime
