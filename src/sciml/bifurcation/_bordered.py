r"""Systems with the Jacobian of a large state and one row below it, by a factorisation of its sparse part.

The Jacobian of $n$ equations by $n$ states and a parameter, with a row $(c, d)$ below it, is

$$B = \begin{pmatrix} J & b \\ c^T & d \end{pmatrix},$$

which is regular at folds, too, where $J$ is singular. Only $J + s I$ is factorised, in the format of the sparsity
pattern of $J$, where the shift is $s = \epsilon^{3/4} |J|$: factors of a matrix that is singular to rounding can be
wrong in every digit. A first guess of the last unknown, by the transposed system $(J + s I)^T v = c$, keeps the
right-hand side in the range of $J$, so that errors do not grow as $J$ becomes singular. Corrections by the residual
of $B$ itself take the shift out again and make the result exact to rounding.

Source:
    W. Govaerts and J. D. Pryce, Mixed block elimination for linear systems with wider borders, IMA Journal of Numerical
    Analysis 13 (1993) 161.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._jax._loops import scan
from .._jax._vma import match
from ..solvers.linear._choose import structure_of_pattern
from ..solvers.linear._dependencies import pattern_of
from ..solvers.linear._entries import DenseMatrix
from ..solvers.linear._sparse import sp
from ..solvers.linear._structure import AbstractStructure, DerivativeAlong

# Each divides the error by the part of the shift in the smallest singular value of B, 1e4 or more in float64.
_CORRECTIONS = 4


def structure_of_jacobian(f: Callable[[Array], Array], x: Float[Array, " n"]) -> AbstractStructure:
    """Returns the format of a Jacobian with a shift, by its sparsity pattern."""
    pattern, nothing = pattern_of(lambda x: f(x) + x, x), sp.csr_array((x.size, x.size))
    return DenseMatrix(nothing.toarray()) if pattern is None else structure_of_pattern(pattern, nothing, False)


class Bordered:
    """The matrix $B$ at a place, factorised; without derivatives.

    Attributes:
        value: The equations there.
        structure: The format of $J$.
        factors: The factors of $J + s I$.
        shift: $s$.
    """

    def __init__(self, problem: Any, u: Float[Array, " m"], row: Float[Array, " m"]):
        u, row, constants = jax.lax.stop_gradient((u, row, problem.constants))
        x, parameter, self._row, self.structure = u[:-1], u[-1:], row, problem.structure

        def slope(x: Array) -> Array:
            return problem.equations(jnp.append(x, parameter), constants)

        def by_parameter(parameter: Array) -> Array:
            return problem.equations(jnp.append(x, parameter), constants)

        self.value, along = jax.linearize(slope, x)
        signs = np.random.default_rng(0).choice(np.array([-1, 1], x.dtype), x.size)
        self.shift = float(jnp.finfo(x.dtype).eps) ** 0.75 * jnp.max(jnp.abs(along(match(signs, x))))
        shifted = DerivativeAlong(lambda x: along(x) + self.shift * x, lambda x: slope(x) + self.shift * x)
        # constants of a program for many devices have derivatives, too, which are zero
        matrix = self.structure.assemble(shifted, x, -jnp.ones_like(u[0]))
        self._matrix = jax.lax.stop_gradient(matrix)
        self.factors = jax.lax.stop_gradient(self.structure.factorise(self._matrix))
        _, self._column = jax.jvp(by_parameter, (parameter,), (jnp.ones_like(parameter),))
        self._after = self.structure.substitute(self.factors, self._column)
        self._before = self.structure.substitute_transposed(self.factors, row[:-1])

    def __call__(self, b: Float[Array, " m"]) -> Float[Array, " m"]:
        """Returns the solution of a system."""
        return self.solve(self._times, b)

    def solve(self, along: Callable[[Array], Array], b: Float[Array, " m"]) -> Float[Array, " m"]:
        """Returns the solution of a system with the derivatives of its matrix, which is given by a product."""
        across = jax.linear_transpose(self._times, b)
        return jax.lax.custom_linear_solve(
            along,
            b,
            lambda _, b: self._corrected(self._solved, self._times, b),
            lambda _, b: self._corrected(self._solved_transposed, lambda x: across(x)[0], b),
        )

    def _times(self, x: Array) -> Array:
        of_state = self.structure.times(self._matrix, x[:-1]) - self.shift * x[:-1] + self._column * x[-1]
        return jnp.append(of_state, jnp.dot(self._row, x))

    @staticmethod
    def _corrected(solve: Callable[[Array], Array], times: Callable[[Array], Array], b: Array) -> Array:
        # a loop, so that the program has the elimination once
        return scan(lambda x, _: (x + solve(b - times(x)), None), jnp.zeros_like(b), length=_CORRECTIONS, like=b)[0]

    def _solved(self, b: Array) -> Array:
        ends = self._column, self._row[:-1], self._before, self._after
        return self._eliminated(lambda b: self.structure.substitute(self.factors, b), *ends, b)

    def _solved_transposed(self, b: Array) -> Array:
        ends = self._row[:-1], self._column, self._after, self._before
        return self._eliminated(lambda b: self.structure.substitute_transposed(self.factors, b), *ends, b)

    def _eliminated(
        self, divided: Callable[[Array], Array], column: Array, row: Array, before: Array, after: Array, b: Array
    ) -> Array:
        corner = self._row[-1]
        guess = (b[-1] - jnp.dot(before, b[:-1])) / (corner - jnp.dot(before, column))
        x = divided(b[:-1] - guess * column)
        rest = (b[-1] - corner * guess - jnp.dot(row, x)) / (corner - jnp.dot(row, after))
        return jnp.append(x - rest * after, guess + rest)
