"""Equations with few terms from a library, as found by `sciml.training.sindy`.

Libraries of terms: `Polynomials`, `Trigonometric`, custom `Terms`, and sums of libraries.
"""

from ._sparse_model import Polynomials as Polynomials, Terms as Terms, Trigonometric as Trigonometric
