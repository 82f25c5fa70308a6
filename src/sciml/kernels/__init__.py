"""Kernels: formulations of the same arithmetic that a machine runs faster, each beside its reference.

- `kernels.ensemble`: an ensemble's whole integration in one kernel.
- `kernels.stencil`: a grid whose cells look at their neighbours, many steps at a time.
- `kernels.use`: how they run, for a block of code.
- `kernels.qualify`: tries them on the machine that is there.
"""

from . import ensemble as ensemble, stencil as stencil
from ._qualify import qualify as qualify
from ._use import use as use
