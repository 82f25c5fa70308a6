"""Ensembles, sweeps and fields on many devices.

- `mesh`: the devices, as named axes.
- `ensemble`: one function over all members, inside a computation: differentiable, under `jax.jit`.
- `sweep`: one function over any number of members, driven from Python: fixed blocks, progress, a status per member,
  results that outlive the process, workers elsewhere.
- `parameter_grid`, `sobol`, `latin_hypercube`, `generate`: members on a grid, spread over a box, or made from their
  number.
- `Mean`, `Variance`, `Quantiles`, `Histogram`, `TopK`: numbers for all members instead of one for each;
  `AbstractReduction` for custom reductions.
- `multilevel`: means of functions of noisy paths to a given error, from many coarse paths and few fine ones.
- `Retry`: what to do with members that failed.
- `splitting`: the probability of a rare event, by copies of the paths that have come nearest to it.
- `Domain`: a field split over devices: ghost layers from neighbours, sums, Fourier transforms.
- `initialize`: joins this process to the others of a job.
- `SweepResult`: the result of `sweep`.

A member is one setting of the parameters. Members never talk to each other, so `ensemble` and `sweep`
do not communicate between devices while members run, and one that fails leaves the others as they are.
A member that is too large for one device is a `Domain`, whose devices talk to their neighbours.
"""

from typing import TYPE_CHECKING

from .. import _former_names as _former_names
from ._ensemble import ensemble as ensemble
from ._initialize import initialize as initialize
from ._mesh import mesh as mesh
from ._multilevel import multilevel as multilevel
from ._splitting import splitting as splitting
from .domain._domain import Domain as Domain
from .members._generated import generate as generate
from .members._grid import parameter_grid as parameter_grid
from .members._qmc import latin_hypercube as latin_hypercube, sobol as sobol
from .reductions._abstract import AbstractReduction as AbstractReduction
from .reductions._distribution import Histogram as Histogram, Quantiles as Quantiles
from .reductions._moments import Mean as Mean, Variance as Variance
from .reductions._top_k import TopK as TopK
from .sweeps._result import SweepResult as SweepResult
from .sweeps._retry import Retry as Retry
from .sweeps._sweep import sweep as sweep

if not TYPE_CHECKING:  # a type checker would believe that there is every name
    __getattr__ = _former_names.knows_former_names(__name__)
