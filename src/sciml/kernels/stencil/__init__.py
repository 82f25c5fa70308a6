"""Stencils: a grid whose cells look at their neighbours, many steps at a time.

- `StencilUpdate`: one step, written for one cell.
- `evolve`: many steps, with gradients.
- `select`: what runs them, XLA or a kernel, and why.
- `tune`: finds and keeps the tiles that are fastest on a device.
- `StencilRates`: what a model says of itself so that `sciml.solve` and `sciml.simulate` run it by kernels.
- `NotForKernelsError`: why a model or an update has none.
- `AbstractStencilKernel`: a kernel of one's own; its plans are a `Tiling`.
"""

from ._evolve import evolve as evolve
from ._ghost_weights import NotForKernelsError as NotForKernelsError
from ._kernel import AbstractStencilKernel as AbstractStencilKernel, Tiling as Tiling
from ._rates import StencilRates as StencilRates
from ._select import select as select
from ._tune import tune as tune
from ._update import StencilUpdate as StencilUpdate
