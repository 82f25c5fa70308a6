"""Kernels: faster formulations of the same arithmetic, each with a reference.

- `kernels.stencil`: a grid whose cells look at their neighbours, many steps at a time.
- `kernels.select`: whether XLA or a kernel runs an update or an ensemble, and why.
- `kernels.use`: how they run, for a block of code.
- `kernels.qualify`: tries them on the machine that is there.
"""

from . import stencil as stencil
from ._qualify import qualify as qualify
from ._select import select as select
from ._use import use as use
