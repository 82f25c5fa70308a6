"""Ensembles: the whole integration of a block of members in one kernel, their states in registers.

`solve(..., impl=...)` under `jax.vmap` runs them; see `select` for what they take.

- `select`: whether a kernel supports a model, what runs it, and why.
"""

from ._select import select as select
