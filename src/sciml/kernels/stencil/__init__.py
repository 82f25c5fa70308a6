"""Stencils: steps in which each cell of a grid reads its neighbours, many steps per pass.

- `StencilUpdate`: one step, written for one cell.
- `evolve`: many steps, with gradients.
- `tune`: finds and keeps the tiles that are fastest on a device.
- `StencilRates`: the form of a model that `sciml.solve` and `sciml.simulate` run by kernels.
- `NotForKernelsError`: why a model or an update has none.
- `AbstractStencilKernel`: a custom kernel; its plans are a `Tiling`.
"""

from typing import TYPE_CHECKING

from ... import _former_names as _former_names
from ._ghost_weights import NotForKernelsError as NotForKernelsError
from ._kernel import AbstractStencilKernel as AbstractStencilKernel, Tiling as Tiling
from ._rates import StencilRates as StencilRates
from ._run import evolve as evolve
from ._tune import tune as tune
from ._update import StencilUpdate as StencilUpdate

if not TYPE_CHECKING:  # a type checker would believe that there is every name
    __getattr__ = _former_names.knows_former_names(__name__)
