"""What JAX made of a function: read it before you run it, or when it is slow.

Every function here takes a callable and the arguments it would be called with: PyTrees, whose leaves may be arrays,
`jax.ShapeDtypeStruct` (nothing that large need exist) or anything else, which is then static. The callable may be
plain, an Equinox module, or already wrapped by `jax.jit` or `eqx.filter_jit`. The function is traced, and compiled
where the answer needs it; `report` and `first_nan` alone run it.

- `report`: all of it at once, with what is wrong in words and what to do; `diff` of two reports.
- `first_nan`: where the first number that is not finite comes from, forwards or in a gradient.
- `jaxpr`: the function as JAX traced it.
- `hlo`: the program handed to the compiler, or the one the compiler made of it.
- `loops`: the loops of the compiled program and the operations one iteration runs.
- `collectives`: the operations that make devices wait for each other, and whether they are inside a loop.
- `memory`: bytes of arguments, outputs and temporaries.
- `adjoint_memory`: bytes of a solve's gradient by each adjoint, and which to take for a budget.
- `cost`: floating-point operations and bytes touched, as the compiler estimates them.
- `jacobian`: which entries the Jacobian of a model can have, and what implicit methods make of it.
- `fallbacks`: which parts of a model do not run over lanes under `jax.vmap(solve)`, why, and what to do.
- `retraces`: how often a function was traced, what changed in between, and what to do.
- `sharding`: a drawing of which devices hold which parts of arrays.
- `rates`: what this machine does in a second.

- `environment` alone takes no callable: versions, devices, settings, and small programs run to see what XLA does wrong.
"""

from .._interfaces._horizon import Horizon as Horizon
from ._adjoint_memory import AdjointMemory as AdjointMemory, AdjointRow as AdjointRow, adjoint_memory as adjoint_memory
from ._canaries import Canary as Canary
from ._collectives import Collective as Collective, collectives as collectives
from ._compiled_facts import CompiledFacts as CompiledFacts, Prediction as Prediction
from ._cost import Cost as Cost, cost as cost
from ._environment import Environment as Environment, environment as environment
from ._fallbacks import Fallbacks as Fallbacks, fallbacks as fallbacks
from ._findings import Finding as Finding
from ._first_nan import NonFinite as NonFinite, first_nan as first_nan
from ._hlo import hlo as hlo
from ._hlo_work import Kernel as Kernel
from ._horizon import horizon as horizon
from ._jacobian import Jacobian as Jacobian, jacobian as jacobian
from ._jaxpr import jaxpr as jaxpr
from ._loops import Loop as Loop, loops as loops
from ._lyapunov import LyapunovExponents as LyapunovExponents, lyapunov_exponents as lyapunov_exponents
from ._measure import CallTimes as CallTimes
from ._memory import Memory as Memory, memory as memory
from ._program_facts import Note as Note, ProgramFacts as ProgramFacts
from ._rates import Rates as Rates, rates as rates
from ._report import Report as Report, report as report
from ._report_diff import ReportDiff as ReportDiff, diff as diff
from ._retraces import Retraces as Retraces, retraces as retraces
from ._sharding import Placement as Placement, Placements as Placements, sharding as sharding
