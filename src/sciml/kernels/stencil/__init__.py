"""Stencils: a grid whose cells look at their neighbours, many steps at a time.

- `StencilUpdate`: one step, written for one cell.
- `evolve`: many steps, with gradients.
- `select`: which way they run, XLA or a kernel, and why.
"""

from ._evolve import evolve as evolve
from ._select import Selection as Selection, select as select
from ._update import StencilUpdate as StencilUpdate
