"""PEtab: parameter estimation problems with models, data, noise and priors.

- `read_petab`: a problem from files, whose likelihood and posterior are functions of the estimated parameters that
  can be differentiated and batched; a `LogDensity` for samplers; a fit from many starts.
"""

from ._problem import read_petab as read_petab
