"""Fitting models to data, and training them.

- `fit`: chosen leaves of a model to data by least squares, with optax or optimistix.
- `Fit`: the fitted model, its uncertainty, and samples from it.
- `train`: chosen leaves of a model by any loss, over batches, with an optax optimiser; returns a `Trained`.
- `TrainingHistory`: its losses. `TrainingRecord`: what callbacks are called with; `CSVLog`, `TensorBoardLog` are some.
- `multiple_shooting`: trajectories as windows, for `train`; returns a `ShootingProblem`, of which `Shooting` is the
  model, `ShootingLoss` the loss and `Windows` are the data.
- `rollouts`: short predictions from what was seen, with noise and pushforward; returns a `RolloutProblem`.
- `experiments`: records of unequal length side by side; `LatentLoss`: the loss of a latent ODE.
- `collocate`: a field matched to the slopes of smoothed records, without a solve; `smooth` gives these slopes.
- `sindy`: an equation of few terms that explains rates; returns a `Sparse`.
- `breakeven`: after how many solves a surrogate pays, at equal error; returns a `Breakeven`.
- `gauss_newton_product`, `fisher_product`: curvature times a vector, without the matrix.
- `AbstractTransform`: how a constrained parameter becomes a free one: `Identity`, `Positive`, `Bounded`.
"""

from ._breakeven import Breakeven as Breakeven, breakeven as breakeven
from ._collocate import (
    CollocationLoss as CollocationLoss,
    CollocationProblem as CollocationProblem,
    collocate as collocate,
)
from ._fit import fit as fit
from ._latent_loss import LatentLoss as LatentLoss
from ._products import fisher_product as fisher_product, gauss_newton_product as gauss_newton_product
from ._result import Fit as Fit
from ._sindy import Sparse as Sparse, sindy as sindy
from ._smooth import Smoothed as Smoothed, smooth as smooth
from ._transforms import (
    AbstractTransform as AbstractTransform,
    Bounded as Bounded,
    Identity as Identity,
    Positive as Positive,
)
from .loop._history import TrainingHistory as TrainingHistory
from .loop._logs import CSVLog as CSVLog, TensorBoardLog as TensorBoardLog
from .loop._record import TrainingRecord as TrainingRecord
from .loop._train import train as train
from .loop._trained import Trained as Trained
from .shooting._rollouts import (
    RolloutLoss as RolloutLoss,
    RolloutProblem as RolloutProblem,
    Rollouts as Rollouts,
    rollouts as rollouts,
)
from .shooting._shooting import (
    Shooting as Shooting,
    ShootingLoss as ShootingLoss,
    ShootingProblem as ShootingProblem,
    multiple_shooting as multiple_shooting,
)
from .shooting._windows import Windows as Windows, experiments as experiments
