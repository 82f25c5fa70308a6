"""Fast transforms as a linear solver: for coefficients that are numbers."""

from typing import Any

import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array

from ._operator import EllipticOperator, as_elliptic
from ._separable import eigenvalues, from_coefficients, separate, to_coefficients


class FastTransform(lx.AbstractLinearSolver[EllipticOperator]):
    """Solves with an `EllipticOperator` whose coefficients are numbers, by cosine, sine and Fourier transforms.

    The sides may be any mix of `Periodic`, `Dirichlet` and `Neumann`. The transforms diagonalise the very operator, so
    the residual is of the size of rounding. Where the operator has a kernel the solution is that of least squares.

    Example:
        ```python
        import jax.numpy as jnp
        import lineax as lx
        from sciml.spatial import Boundaries, Dirichlet, EllipticOperator, FastTransform, Grid

        operator = EllipticOperator(Boundaries(Grid((32, 32)), Dirichlet(0.0)))
        implicit = lx.IdentityLinearOperator(operator.in_structure()) + operator * 0.1  # of a step of diffusion
        u = lx.linear_solve(implicit, jnp.ones((32, 32)), FastTransform()).value
        assert jnp.allclose(implicit.mv(u), 1.0, atol=1e-4)
        ```
    """

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> EllipticOperator:
        """Returns the operator.

        Raises:
            ValueError: If it is not elliptic, a coefficient is a field, or a boundary does not separate.
        """
        del options
        elliptic = as_elliptic(operator)
        for name, values in (("k", elliptic.k), ("c", elliptic.c)):
            for value in values if isinstance(values, tuple) else (values,):
                if value is not None and value.ndim:
                    raise ValueError(
                        f"`FastTransform` needs coefficients that are numbers, but `{name}` is a field of shape "
                        f"{value.shape}. Use `Multigrid`."
                    )
        separate(elliptic.boundary, 2)
        return elliptic

    def compute(
        self, state: EllipticOperator, vector: Array, options: dict[str, Any]
    ) -> tuple[Array, lx.RESULTS, dict[str, Any]]:
        """Returns the solution; it is always found."""
        del options
        axes = separate(state.boundary, 2)
        kind = jnp.finfo(vector.dtype).dtype
        k = state.k if isinstance(state.k, tuple) else (state.k,) * len(axes)
        values = jnp.asarray(0.0 if state.c is None else state.c, kind) - eigenvalues(
            axes, [jnp.asarray(x, kind) for x in k], not jnp.iscomplexobj(vector)
        )
        return divide(axes, vector, values), lx.RESULTS.successful, {}

    def transpose(self, state: EllipticOperator, options: dict[str, Any]) -> tuple[EllipticOperator, dict[str, Any]]:
        """Returns the same operator: it is symmetric."""
        del options
        return state, {}

    def conj(self, state: EllipticOperator, options: dict[str, Any]) -> tuple[EllipticOperator, dict[str, Any]]:
        """Returns the same operator: it is real."""
        del options
        return state, {}

    def assume_full_rank(self) -> bool:
        """Returns True: a kernel of constants, the same for all coefficients, adds nothing to the derivative."""
        return True


def divide(axes: list, f: Array, values: Array) -> Array:
    """Returns the field whose coefficients are those of `f` over eigenvalues, and zero where these are zero."""
    coefficients = to_coefficients(axes, f)
    # the inner `where` keeps 1 / 0 out of the derivative by the coefficients
    inverse = jnp.where(values == 0, 0.0, 1 / jnp.where(values == 0, 1.0, values)).astype(coefficients.dtype)
    inverse = inverse.reshape((1,) * (f.ndim - len(axes)) + inverse.shape)
    return from_coefficients(axes, coefficients * inverse, f)
