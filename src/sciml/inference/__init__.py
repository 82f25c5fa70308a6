"""Inference: what data say about parameters, as probabilities.

- `log_density`: a posterior as a function of free variables, for any sampler; returns a `LogDensity`.
- `Normal`, `LogNormal`, `HalfNormal`, `StudentT`, `Uniform`, `Gamma`, `Beta`: priors, and distributions of data;
  `PoissonCounts`, `NegativeBinomial`: of counts; `Improper`: no preference; `Custom`: any function, and those of
  other libraries; `AbstractDistribution` to write your own.
- `hierarchical`: a population of subjects with random effects; returns a `Hierarchical`.
- `nuts`: BlackJAX's sampler, over lanes and devices. `Draws`: what it returns, for ArviZ.
- `profile_likelihood`: intervals by fitting all other parameters again. `identifiability`: what data do not determine.
- `information_criteria`, `residual_diagnostics`: is a model worth its parameters, and is what it leaves over noise.
- `sobol_indices`: which parameters a result's variance comes from. `morris_effects`: on which it depends at all.
- `ProfileLikelihood`, `Identifiability`, `InformationCriteria`, `ResidualDiagnostics`, `SobolIndices`, `MorrisEffects`:
  what these give.
- `Maximum`, `LaplaceApproximation`, `WeightedDraws`: what its methods return.
"""

from ._criteria import InformationCriteria as InformationCriteria, information_criteria as information_criteria
from ._diagnostics import ResidualDiagnostics as ResidualDiagnostics, residual_diagnostics as residual_diagnostics
from ._draws import Draws as Draws
from ._hierarchical import Hierarchical as Hierarchical, hierarchical as hierarchical
from ._identifiability import Identifiability as Identifiability, identifiability as identifiability
from ._laplace import LaplaceApproximation as LaplaceApproximation, WeightedDraws as WeightedDraws
from ._log_density import LogDensity as LogDensity, log_density as log_density
from ._maximum import Maximum as Maximum
from ._morris import MorrisEffects as MorrisEffects, morris_effects as morris_effects
from ._nuts import nuts as nuts
from ._profile import ProfileLikelihood as ProfileLikelihood, profile_likelihood as profile_likelihood
from ._sobol import SobolIndices as SobolIndices, sobol_indices as sobol_indices
from .distributions._abstract import AbstractDistribution as AbstractDistribution
from .distributions._counts import NegativeBinomial as NegativeBinomial, PoissonCounts as PoissonCounts
from .distributions._custom import Custom as Custom
from .distributions._normal import (
    HalfNormal as HalfNormal,
    LogNormal as LogNormal,
    Normal as Normal,
    StudentT as StudentT,
)
from .distributions._ranges import Beta as Beta, Gamma as Gamma, Improper as Improper, Uniform as Uniform
