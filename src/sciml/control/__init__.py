"""Optimal control: controls of a model that minimise a cost under constraints.

- `ControlProblem`: a model with controls, its cost and its constraints.
- `optimise`: the optimal controls over an interval of time.
- `receding_horizon`: model predictive control.
"""

from ._optimise import optimise as optimise
from ._problem import ControlProblem as ControlProblem
from ._receding_horizon import receding_horizon as receding_horizon
