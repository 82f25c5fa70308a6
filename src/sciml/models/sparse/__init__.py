"""Equations that are sums of few terms out of a library, as `sciml.training.sindy` finds them.

`SparseModel` is such an equation, a model that prints. Libraries of terms: `Polynomials`, `Trigonometric`, `Terms` of
one's own, and sums of libraries.
"""

from ._libraries import Polynomials as Polynomials, Terms as Terms, Trigonometric as Trigonometric
from ._sparse_model import SparseModel as SparseModel
