"""Equations that are sums of few terms out of a library, as `sciml.training.sindy` finds them.

Libraries of terms: `Polynomials`, `Trigonometric`, custom `Terms`, and sums of libraries.
"""

from ._sparse_model import Polynomials as Polynomials, Terms as Terms, Trigonometric as Trigonometric
