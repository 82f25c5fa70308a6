"""Solvers of initial value problems.

- `solve`: the front door; returns a `Solution` with its `Stats`.
- `steady_state`: where a vector field vanishes.
- `Checkpointed`, `Direct`, `Forward`, `Reversible`, `Backsolve`, `Interpolating`, `Gauss`, `Implicit`: how derivatives
  are computed; `AbstractAdjoint` is their interface, and `reversal_error` says how exact a reversible solve is.
- `Rodas5P`, `Rosenbrock23`: implicit methods for stiff and differential-algebraic equations; they are
  diffrax solvers too.
"""

from ._reversal_error import reversal_error as reversal_error
from ._rodas5p import Rodas5P as Rodas5P
from ._rosenbrock23 import Rosenbrock23 as Rosenbrock23
from ._solution import Solution as Solution, Stats as Stats
from ._solve import solve as solve
from ._steady_state import steady_state as steady_state
from .adjoints import (
    AbstractAdjoint as AbstractAdjoint,
    Backsolve as Backsolve,
    Checkpointed as Checkpointed,
    Direct as Direct,
    Forward as Forward,
    Gauss as Gauss,
    Implicit as Implicit,
    Interpolating as Interpolating,
    Reversible as Reversible,
)
