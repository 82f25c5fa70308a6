"""PEtab: parameter estimation problems with models, data, noise and priors.

- `read_petab`: a problem from its files, with its likelihood and posterior as functions of the estimated parameters that
  can be differentiated and batched; a `LogDensity` for samplers; a fit from many starts.
"""

from ._problem import read_petab as read_petab
