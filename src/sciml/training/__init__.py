"""Parameter estimation, and training of models.

- `Fit`: the result of `sciml.fit`: the fitted model, its uncertainty, and samples from it.
- `train`: chosen leaves of a model by any loss, over batches, with an optax optimiser.
- `CSVLog`, `TensorBoardLog`: callbacks of `train`.
- `multiple_shooting`: trajectories as windows, for `train`.
- `rollouts`: short predictions from observations, with noise and pushforward, for `train`.
- `experiments`: records of unequal length side by side; `LatentLoss`: the loss of a latent ODE.
- `collocate`: a field matched to the slopes of smoothed records, without a solve; `smooth` gives these slopes.
- `sindy`: an equation of few terms that explains rates.
- `breakeven`: after how many solves a surrogate pays, at equal error.
- `gauss_newton_product`: curvature times a vector, without the matrix.
- `AbstractTransform`: how a constrained parameter becomes a free one: `Positive`, `Bounded`.
"""

from typing import TYPE_CHECKING

from .. import _former_names as _former_names
from ._breakeven import breakeven as breakeven
from ._collocate import collocate as collocate
from ._latent_loss import LatentLoss as LatentLoss
from ._products import gauss_newton_product as gauss_newton_product
from ._result import Fit as Fit
from ._sindy import sindy as sindy
from ._smooth import smooth as smooth
from ._transforms import AbstractTransform as AbstractTransform, Bounded as Bounded, Positive as Positive
from .loop._logs import CSVLog as CSVLog, TensorBoardLog as TensorBoardLog
from .loop._train import train as train
from .shooting._rollouts import rollouts as rollouts
from .shooting._shooting import multiple_shooting as multiple_shooting
from .shooting._windows import experiments as experiments

if not TYPE_CHECKING:  # a type checker would believe that there is every name
    __getattr__ = _former_names.knows_former_names(__name__)
