"""Fitting models to data.

- `fit`: chosen leaves of a model to data by least squares, with optax or optimistix.
- `Fit`: the fitted model, its uncertainty, and samples from it.
- `gauss_newton_product`, `fisher_product`: curvature times a vector, without the matrix.
- `AbstractTransform`: how a constrained parameter becomes a free one: `Identity`, `Positive`, `Bounded`.
"""

from ._fit import fit as fit
from ._products import fisher_product as fisher_product, gauss_newton_product as gauss_newton_product
from ._result import Fit as Fit
from ._transforms import (
    AbstractTransform as AbstractTransform,
    Bounded as Bounded,
    Identity as Identity,
    Positive as Positive,
)
