"""Any diffrax solver as a one-step method of sciml's integration, for runs in segments."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import PyTree

from ..._types import RealScalarLike, Y
from ...solvers.control._pid import Tolerances
from ...solvers.methods._capabilities import Traits
from ...solvers.methods._stepper import AbstractStepper, BoundField, Step


class DiffraxStepper(AbstractStepper):
    """Steps of a diffrax solver for ordinary differential equations.

    Where its nonlinear solver fails, the error is infinite, so that the step is rejected, or the state NaN where steps
    are fixed.

    Attributes:
        solver: The solver.
        order: Its order.
        power_of_error: The power of the step size that its error estimate goes with.
    """

    solver: diffrax.AbstractSolver = eqx.field(static=True)
    order: int = eqx.field(static=True)
    power_of_error: int = eqx.field(static=True)
    has_error: bool = eqx.field(static=True)
    evaluations: int = eqx.field(static=True, default=1)

    @property
    def traits(self) -> Traits:
        """It interpolates as the solver does."""
        return Traits(dense=True, error_order=self.power_of_error)

    def init(self, field: BoundField, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the solver's initial state."""
        return self.solver.init(_term(field), t, t, y, None)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns the solver's dense information for a step in which nothing changes."""

        def dense(t, y):
            return self.step(lambda t, y: y, t, t, y, self.init(lambda t, y: y, t, y)).dense

        t = jnp.zeros((), max((x.real.dtype for x in jax.tree.leaves(y)), key=lambda d: jnp.finfo(d).bits))
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(dense, t, y))
        return zeros | {name: y for name in ("y0", "y1") if name in zeros}

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        y1, error, dense, memory, result = self.solver.step(_term(field), t, t + h, y, None, memory, False)
        good = result == diffrax.RESULTS.successful
        y1 = _unless_failed(good, y1, jnp.nan)
        return Step(y1, _unless_failed(good, error, jnp.inf), dense, memory)

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h` by the solver's own interpolation."""
        del h
        theta = jnp.asarray(theta)
        known = dense | {name: y for name, y in (("y0", y0), ("y1", y1)) if name in dense}
        zero, one = jnp.zeros_like(theta), jnp.ones_like(theta)
        return self.solver.interpolation_cls(t0=zero, t1=one, **known).evaluate(theta)


def from_any(solver: diffrax.AbstractSolver, tolerances: Tolerances | None) -> DiffraxStepper:
    """Returns a diffrax solver as a one-step method.

    Args:
        solver: The solver.
        tolerances: Of the steps; a nonlinear solver without its own takes these.

    Raises:
        ValueError: If steps are fixed and the solver's nonlinear solver has no tolerances.
        TypeError: If the solver is none for ordinary differential equations.
    """
    name = type(solver).__name__
    term = _term(lambda t, y: y)
    if solver.term_structure is not diffrax.AbstractTerm:
        raise TypeError(f"`solver={name}()` requires its own split terms, which `simulate` does not support.")
    if isinstance(solver, diffrax.AbstractImplicitSolver):
        solver = _with_tolerances(solver, tolerances)
    order = solver.order(term)
    error_order = getattr(solver, "error_order", lambda term: None)(term)
    adaptive = isinstance(solver, diffrax.AbstractAdaptiveSolver)
    return DiffraxStepper(solver, 1 if order is None else int(order), int(error_order or order or 1), adaptive)


def _with_tolerances(solver: Any, tolerances: Tolerances | None) -> Any:
    finder = solver.root_finder
    missing = [n for n in ("rtol", "atol", "norm") if type(getattr(finder, n)).__module__.startswith("diffrax")]
    if not missing:
        return solver
    if tolerances is None:
        raise ValueError(
            f"`solver={type(solver).__name__}()` with fixed steps requires tolerances for its nonlinear solver. Pass "
            "`rtol` and `atol` instead of `dt`, or `root_finder=diffrax.VeryChord(rtol=..., atol=..., norm=...)`."
        )
    values: dict[str, Any] = {
        n: min(float(np.min(x)) for x in jax.tree.leaves(getattr(tolerances, n))) for n in ("rtol", "atol")
    }
    values["norm"] = optx.rms_norm
    return eqx.tree_at(lambda s: [getattr(s.root_finder, n) for n in missing], solver, [values[n] for n in missing])


def _term(field: BoundField) -> diffrax.ODETerm:
    return diffrax.ODETerm(lambda t, y, args: field(t, y))


def _unless_failed(good: Any, tree: PyTree, other: float) -> PyTree:
    return jax.tree.map(lambda x: jnp.where(good, x, jnp.full_like(x, other)), tree)
