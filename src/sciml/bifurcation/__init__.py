"""Bifurcation analysis: branches of steady states and limit cycles, and the points at which their stability changes.

- `continuation`: a branch of steady states or limit cycles as a parameter changes.
- `limit_cycle`: a limit cycle with its period and Floquet multipliers.
- `steady_states`: several steady states from one guess.
- `locate`: a fold, a Hopf point or a branch point from a guess.
- `locus`: a curve of special points of steady states or limit cycles in the plane of two parameters.
- `Forced`: a periodically forced model, whose responses are limit cycles.
- `Kind`: codes of special points.
"""

from ._continuation import continuation as continuation
from ._forced import Forced as Forced
from ._limit_cycle import limit_cycle as limit_cycle
from ._locate import locate as locate
from ._locus import locus as locus
from ._special import Kind as Kind
from ._steady_states import steady_states as steady_states
