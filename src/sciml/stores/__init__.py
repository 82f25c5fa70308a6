"""Stores: numbered blocks of arrays on disk, each complete or absent.

- `AbstractStore`: the interface.
- `NpzStore`: a file for each block.
- `ZarrStore`: one data set of all blocks.
- `OrbaxStore`: arrays that span hosts.
- `StoreError`: a faulty store; `DamagedBlockError`: a block that was changed after it was written.
- `to_named`, `from_named`: PyTrees as arrays by name, for custom stores.
"""

from ._abstract import AbstractStore as AbstractStore
from ._atomic import DamagedBlockError as DamagedBlockError, StoreError as StoreError
from ._npz_store import NpzStore as NpzStore
from ._orbax_store import OrbaxStore as OrbaxStore
from ._pytree_names import from_named as from_named, to_named as to_named
from ._zarr_store import ZarrStore as ZarrStore
