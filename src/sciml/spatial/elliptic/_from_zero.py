"""Iterations that also answer a right-hand side of zero."""

from typing import Any

import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array


class FromZero(lx.AbstractLinearSolver[Any]):
    """An iteration on arrays that need not do anything: nothing to solve for, or the preconditioner solves it.

    Krylov methods divide by the norm of a residual, and give NaN where it is zero. Cotangents are zero wherever a
    solution is not used, and the derivatives of a solve run the same solver; and over a short step the preconditioner
    solves a system to rounding.

    Attributes:
        solver: The iteration.
    """

    solver: lx.BiCGStab

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> Any:
        """Returns what the iteration makes of the operator."""
        return self.solver.init(operator, options)

    def compute(self, state: Any, vector: Array, options: dict[str, Any]) -> tuple[Array, lx.RESULTS, dict[str, Any]]:
        """Returns the solution, what became of the iteration, and its statistics."""
        none = jnp.all(vector == 0)
        value, result, stats = self.solver.compute(state, jnp.where(none, jnp.ones_like(vector), vector), options)
        at_once = options["preconditioner"].mv(vector) if "preconditioner" in options else vector
        left = jnp.linalg.norm(vector - state.mv(at_once))
        enough = left <= self.solver.rtol * jnp.linalg.norm(vector)
        value = jnp.where(enough, at_once, value)
        return (
            jnp.where(none, jnp.zeros_like(value), value),
            lx.RESULTS.where(enough, lx.RESULTS.successful, result),
            stats,
        )

    def transpose(self, state: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Returns the transposed problem."""
        return self.solver.transpose(state, options)

    def conj(self, state: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Returns the conjugate problem."""
        return self.solver.conj(state, options)

    def assume_full_rank(self) -> bool:
        """Returns what the iteration assumes."""
        return self.solver.assume_full_rank()
