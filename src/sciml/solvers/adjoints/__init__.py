"""How a solution is differentiated: an adjoint is an argument of `solve`.

- `AbstractAdjoint`: the interface, a loop run so that it can be differentiated.
- `Checkpointed`: reverse mode by running the accepted steps again; the rule stands in `_replay`.
- `Direct`: plain loops, open to forward mode.
- `Forward`: sensitivities alongside the solve, for few parameters.
- `Reversible`: reverse mode in constant memory, by a reversible method.
- `Backsolve`, `Interpolating`, `Gauss`: continuous adjoints, which integrate the adjoint equation (`_costate`)
  backwards (`_continuous`); their rule stands in `_continuous_rule`.
- `Implicit`: steady states, by one linear solve.
"""

from ._abstract import AbstractAdjoint as AbstractAdjoint
from ._backsolve import Backsolve as Backsolve
from ._checkpointed import Checkpointed as Checkpointed
from ._direct import Direct as Direct
from ._forward import Forward as Forward
from ._gauss import Gauss as Gauss
from ._implicit import Implicit as Implicit
from ._interpolating import Interpolating as Interpolating
from ._reversible import Reversible as Reversible
