"""Adjoints: methods of differentiating a solution, the argument `adjoint` of `solve`.

- `AbstractAdjoint`: the interface, a loop run so that it can be differentiated; `AbstractLoop` is the type of the loop.
- `Checkpointed`: reverse mode by running the accepted steps again.
- `Direct`: plain loops, open to forward mode.
- `Forward`: sensitivities alongside the solve, for few parameters.
- `Reversible`: reverse mode in constant memory, by a reversible method.
- `Backsolve`, `Interpolating`, `Gauss`: continuous adjoints, which integrate the adjoint equation backwards.
- `Implicit`: steady states, by one linear solve.
"""

from ..solvers.adjoints._abstract import AbstractAdjoint as AbstractAdjoint
from ..solvers.adjoints._checkpointed import Checkpointed as Checkpointed
from ..solvers.adjoints._direct import Direct as Direct
from ..solvers.adjoints._forward import Forward as Forward
from ..solvers.adjoints._implicit import Implicit as Implicit
from ..solvers.adjoints.continuous._adjoints import (
    Backsolve as Backsolve,
    Gauss as Gauss,
    Interpolating as Interpolating,
)
from ..solvers.adjoints.reversible._adjoint import Reversible as Reversible
from ..solvers.integrate._abstract import AbstractLoop as AbstractLoop
