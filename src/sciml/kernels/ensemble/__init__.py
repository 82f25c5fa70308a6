"""Ensembles: the whole integration of a block of members in one kernel, their states in registers.

`solve(..., impl=...)` under `jax.vmap` runs them; see `select` for the ways.

- `select`: whether a kernel can hold a model, which way it runs, and why.
"""

from ._select import Selection as Selection, select as select
