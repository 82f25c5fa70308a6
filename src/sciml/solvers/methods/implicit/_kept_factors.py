r"""Newton's iteration with the factors of an earlier step, as long as it converges with them.

The matrix $M - s J$ changes with the scale $s$, a step times a coefficient, and with the Jacobian. Factors of another
scale $s'$ are near enough where $s / s'$ is near one; what they make of a right-hand side is then too large or too
small by about $(1 + s / s') / 2$, by which it is divided. If the iteration does not converge with old factors, it
starts again with new ones. Of many members side by side each branch is computed for all, so that new factors cost what
they cost in every step.

Source:
    P. N. Brown, G. D. Byrne, A. C. Hindmarsh, VODE: A Variable-Coefficient ODE Solver, SIAM J. Sci. Stat. Comput. 10:5
    (1989).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree, Real

from ...._jax._branches import cond
from ...._jax._loops import while_loop
from ...._jax._vma import match
from ...linear._structure import AbstractStructure, DerivativeAlong
from ._newton import Ending, Found, Frozen, newton

_NEAR = 0.3
"""The allowed difference between the scale of a matrix and the scale of reused factors."""


class KeptFactors(NamedTuple):
    """The factors of a matrix.

    Attributes:
        parts: The result of its structure.
        scale: The scale of the matrix; zero where there are no factors yet.
        regular: Whether it is regular.
    """

    parts: PyTree
    scale: Real[Array, ""]
    regular: Bool[Array, ""]


class Nearby(NamedTuple):
    """Factors of a matrix that is near another.

    Attributes:
        parts: The result of the structure for the matrix.
        damping: The factor of solutions.
    """

    parts: PyTree
    damping: Real[Array, ""]


class Systems(NamedTuple):
    """The linear systems of an iteration.

    Attributes:
        structure: Their structure.
        slope: The vector field at the end of the step.
        guess: A state there.
        scale: The factor of the Jacobian.
        tolerated: The tolerated error of each unknown, or None if unknown.
    """

    structure: AbstractStructure
    slope: Frozen
    guess: Float[Array, " n"]
    scale: Real[Array, ""]
    tolerated: Float[Array, " n"] | None = None

    def divide(self, factors: Nearby, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns about the solution of a system."""
        return factors.damping * self.structure.substitute(factors.parts, b)

    def divide_transposed(self, factors: Nearby, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns about the solution of the transposed system."""
        return factors.damping * self.structure.substitute_transposed(factors.parts, b)

    def factorised(self) -> KeptFactors:
        """Returns the factors of the matrix itself."""
        _, along = jax.linearize(self.slope, self.guess)
        along = DerivativeAlong(along, self.slope)
        matrix = jax.lax.stop_gradient(self.structure.assemble(along, self.guess, self.scale))
        if self.tolerated is not None:
            matrix = self.structure.weighted(matrix, self.tolerated)
        parts = self.structure.factorise(matrix)
        matrix, parts = jax.lax.stop_gradient(self.structure.computed_once(matrix, parts))
        return KeptFactors(parts, self.scale, ~self.structure.is_singular(matrix, parts))

    @property
    def nothing(self) -> KeptFactors | None:
        """The factors that there are before the first step; None where it is not worth while to keep any."""
        if self.structure.entry_by_entry or self.structure.iterates:
            return None
        shapes = jax.eval_shape(self.factorised)
        return match(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes), (self.guess, self.scale))

    def solved(self, residual: Frozen, ending: Ending, kept: KeptFactors | None) -> tuple[Found, KeptFactors]:
        """Returns the root of a function near zero, and the factors that it was found with.

        Args:
            residual: The function.
            ending: The stopping rule of the iteration.
            kept: Factors of an earlier step, or None.
        """
        zero = jnp.zeros_like(self.guess)
        if kept is None:
            factors = self.factorised()
            return newton(residual, zero, self.divide, self.near(factors), ending), factors

        def try_with(carry: tuple) -> tuple:
            new, factors, _, _ = carry
            like = (self.guess, self.scale, self.slope.consts, kept)
            factors = cond(new, self.factorised, lambda: factors, like=like)
            found = newton(residual, zero, self.divide, self.near(factors), ending)
            return ~new, factors, found, ~found.converged & ~new

        new = ~(jnp.abs(self.scale - kept.scale) <= _NEAR * jnp.abs(kept.scale)) | (kept.scale == 0)
        nothing = Found(zero, jnp.zeros((), bool), jnp.zeros((), jnp.int32), jnp.ones((), zero.dtype))
        start = (new, kept, nothing, jnp.ones((), bool))
        like = (residual.consts, self.slope.consts, ending.like, self.guess, self.scale)
        _, factors, found, _ = while_loop(lambda c: c[3], try_with, match(start, like), like=like)
        return found, factors

    def near(self, factors: KeptFactors) -> Nearby:
        """Returns factors for the matrix itself."""
        none = factors.scale == 0
        ratio = self.scale / jnp.where(none, jnp.ones_like(self.scale), factors.scale)
        return Nearby(factors.parts, 2 / (1 + ratio))
