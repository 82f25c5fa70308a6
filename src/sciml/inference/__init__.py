"""Inference: parameters from data, as probabilities.

- `log_density`: a posterior as a function of free variables, for any sampler; returns a `LogDensity`.
- `Normal`, `LogNormal`, `HalfNormal`, `StudentT`, `Uniform`, `Gamma`, `Beta`: priors, and distributions of data;
  `MultivariateNormal`: of vectors with correlations; `PoissonCounts`, `NegativeBinomial`: of counts; `Improper`: no
  preference; `Custom`: any function, and distributions of other libraries; `Censored`: data below a limit.
- `hierarchical`: a population of subjects with random effects. `npde`: errors of its predictions.
- `nuts`: BlackJAX's sampler, over lanes and devices. `Draws`: its result, for ArviZ.
- `profile_likelihood`: intervals by fitting all other parameters again. `identifiability`: what data do not determine.
- `fisher_information`: the information of planned data about parameters; `optimal_design`: the best plan.
- `information_criteria`, `residual_diagnostics`: whether a model justifies its number of parameters, and whether its
  residuals are noise.
- `sobol_indices`: which parameters a result's variance comes from. `morris_effects`: on which it depends at all.
"""

from ._criteria import information_criteria as information_criteria
from ._diagnostics import residual_diagnostics as residual_diagnostics
from ._draws import Draws as Draws
from ._fisher import fisher_information as fisher_information, optimal_design as optimal_design
from ._hierarchical import hierarchical as hierarchical
from ._identifiability import identifiability as identifiability
from ._log_density import LogDensity as LogDensity, log_density as log_density
from ._nuts import nuts as nuts
from ._population_diagnostics import npde as npde
from ._profile import profile_likelihood as profile_likelihood
from ._sensitivity import morris_effects as morris_effects, sobol_indices as sobol_indices
from .distributions._censored import Censored as Censored
from .distributions._counts import NegativeBinomial as NegativeBinomial, PoissonCounts as PoissonCounts
from .distributions._custom import Custom as Custom
from .distributions._multivariate import MultivariateNormal as MultivariateNormal
from .distributions._normal import (
    HalfNormal as HalfNormal,
    LogNormal as LogNormal,
    Normal as Normal,
    StudentT as StudentT,
)
from .distributions._ranges import Beta as Beta, Gamma as Gamma, Improper as Improper, Uniform as Uniform
