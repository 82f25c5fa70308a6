"""Solvers of initial value problems.

- `solve`: the front door; returns a `Solution` with its `Stats`.
- `Checkpointed`, `Direct`, `Backsolve`, `Interpolating`, `Gauss`: how derivatives are computed; `AbstractAdjoint` is
  their interface.
- `Rodas5P`, `Rosenbrock23`: implicit methods for stiff and differential-algebraic equations; they are
  diffrax solvers too.
"""

from ._rodas5p import Rodas5P as Rodas5P
from ._rosenbrock23 import Rosenbrock23 as Rosenbrock23
from ._solution import Solution as Solution, Stats as Stats
from ._solve import solve as solve
from .adjoints import (
    AbstractAdjoint as AbstractAdjoint,
    Backsolve as Backsolve,
    Checkpointed as Checkpointed,
    Direct as Direct,
    Gauss as Gauss,
    Interpolating as Interpolating,
)
