"""Long runs: host loops around compiled segments, and stores for what they make.

- `simulate`: a long run in segments; returns a `Run`. `iterate` is the same for steps of your own. `load` reads a
  stored one.
- `SteadyState`, `WallTime`: when a run ends early.
- `NpzStore`: numbered blocks of arrays on disk, whole or absent; `ZarrStore` for one data set of them, `OrbaxStore` for
  arrays that span hosts; `AbstractStore` is the interface.
- `StoreError`: what is wrong with a store.
"""

from ._atomic import StoreError as StoreError
from ._iterate import iterate as iterate
from ._load import load as load
from ._orbax_store import OrbaxStore as OrbaxStore
from ._run import Run as Run
from ._simulate import simulate as simulate
from ._stops import SteadyState as SteadyState, WallTime as WallTime
from ._store import AbstractStore as AbstractStore, NpzStore as NpzStore
from ._zarr_store import ZarrStore as ZarrStore
