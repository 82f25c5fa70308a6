"""Stencils: a grid whose cells look at their neighbours, many steps at a time.

- `StencilUpdate`: one step, written for one cell.
- `evolve`: many steps, with gradients.
"""

from ._evolve import evolve as evolve
from ._update import StencilUpdate as StencilUpdate
