"""Long runs: host loops around compiled segments, and stores for what they make.

- `NpzStore`: numbered blocks of arrays on disk, whole or absent; `AbstractStore` is the interface.
- `StoreError`: what is wrong with a store.
"""

from ._atomic import StoreError as StoreError
from ._store import AbstractStore as AbstractStore, NpzStore as NpzStore
