"""How a solution is differentiated: an adjoint is an argument of `solve`.

- `AbstractAdjoint`: the interface, a loop run so that it can be differentiated; `AbstractLoop` is what it is given.
- `Checkpointed`: reverse mode by running the accepted steps again; the rule is in `_discrete_rule`.
- `Direct`: plain loops, open to forward mode.
- `Forward`: sensitivities alongside the solve, for few parameters.
- `Reversible`: reverse mode in constant memory, by a reversible method.
- `Backsolve`, `Interpolating`, `Gauss`: continuous adjoints, which integrate the adjoint equation backwards; their rule
  is in `continuous._rule`.
- `Implicit`: steady states, by one linear solve.
"""

from ..integrate._abstract import AbstractLoop as AbstractLoop
from ._abstract import AbstractAdjoint as AbstractAdjoint
from ._checkpointed import Checkpointed as Checkpointed
from ._direct import Direct as Direct
from ._forward import Forward as Forward
from ._implicit import Implicit as Implicit
from .continuous._backsolve import Backsolve as Backsolve
from .continuous._gauss import Gauss as Gauss
from .continuous._interpolating import Interpolating as Interpolating
from .reversible._adjoint import Reversible as Reversible
