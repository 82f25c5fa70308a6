"""Inspection of compiled programs: their structure, cost, memory and failures.

Every function here takes a callable and the arguments it would be called with: PyTrees, whose leaves may be arrays,
`jax.ShapeDtypeStruct` (nothing that large need exist) or anything else, which is then static. The callable may be
plain, an Equinox module, or already wrapped by `jax.jit` or `eqx.filter_jit`. The function is traced, and compiled if
necessary; only `report` and `first_nan` run it.

- `report`: everything at once, with faults and remedies in words; `diff` of two reports.
- `first_nan`: where the first number that is not finite comes from, forwards or in a gradient.
- `hlo`: the program handed to the compiler, or the one the compiler made of it.
- `loops`: the loops of the compiled program and the operations one iteration runs.
- `collectives`: the operations that make devices wait for each other, and whether they are inside a loop.
- `memory`: bytes of arguments, outputs and temporaries.
- `adjoint_memory`: bytes of a solve's gradient by each adjoint, and which to take for a budget.
- `compile_time`: which lines take long to compile, and what would shorten it.
- `cost`: floating-point operations and bytes touched, as the compiler estimates them.
- `jacobian`: which entries the Jacobian of a model can have, and what implicit methods make of it.
- `fallbacks`: which parts of a model do not run over lanes under `jax.vmap(solve)`, why, and what to do.
- `retraces`: how often a function was traced, what changed in between, and what to do.
- `sharding`: a drawing of which devices hold which parts of arrays.
- `rates`: what this machine does in a second.
- `choose`: a block with other thresholds between engines, loops and formats.

- `environment` is the only one without a callable: versions, devices, settings, and small programs that test XLA for
known faults.
"""

from typing import TYPE_CHECKING

from .. import _former_names as _former_names
from .._choices import choose as choose
from ._adjoint_memory import adjoint_memory as adjoint_memory
from ._compile_time import compile_time as compile_time
from ._compiled import collectives as collectives, cost as cost, loops as loops, memory as memory
from ._environment import environment as environment
from ._fallbacks import fallbacks as fallbacks
from ._first_nan import first_nan as first_nan
from ._horizon import horizon as horizon
from ._jacobian import jacobian as jacobian
from ._lower import hlo as hlo
from ._lyapunov import lyapunov_exponents as lyapunov_exponents
from ._make_report import report as report
from ._rates import rates as rates
from ._report import diff as diff
from ._retraces import retraces as retraces
from ._sharding import sharding as sharding

if not TYPE_CHECKING:  # a type checker would believe that there is every name
    __getattr__ = _former_names.knows_former_names(__name__)
