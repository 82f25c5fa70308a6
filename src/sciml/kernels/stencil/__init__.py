"""Stencils: a grid whose cells look at their neighbours, many steps at a time.

- `StencilUpdate`: one step, written for one cell.
- `evolve`: many steps, with gradients.
- `select`: which way they run, XLA or a kernel, and why.
- `tune`: finds and keeps the tiles that are fastest on a device.
- `StencilRates`: what a model says of itself so that `sciml.solve` and `sciml.simulate` run it by kernels.
- `NotForKernelsError`: why a model or an update has none.
"""

from ._evolve import evolve as evolve
from ._ghost_weights import NotForKernelsError as NotForKernelsError
from ._rates import StencilRates as StencilRates
from ._select import Selection as Selection, select as select
from ._tune import Timing as Timing, tune as tune
from ._update import StencilUpdate as StencilUpdate
