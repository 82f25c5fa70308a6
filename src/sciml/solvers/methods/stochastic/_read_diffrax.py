"""Which of sciml's steps a diffrax solver asks for where an equation has noise."""

from typing import Any, ClassVar

import diffrax
import jax

from ...._model import AbstractSemilinear, AbstractSplit
from ...._types import RealScalarLike, Y
from ...noise._closed_noise import BoundNoisyField
from ...noise._increment import NoiseShape
from ._abstract import AbstractStochasticStepper, plus, scaled
from ._euler_maruyama import EulerHeun, EulerMaruyama
from ._exponential import StochasticETD1
from ._semi_implicit import SemiImplicitEuler
from ._sri import SRIW1
from ._stochastic_runge_kutta import from_explicit, from_tableau


# The Milstein method, in the Stratonovich sense: in the other one its drift differs, and its steps are the same.
#
# With $\tilde f = f - \tfrac12 \sum_j (\partial_y g_j) g_j$ for a model in the Ito sense,
#
# $$y_1 = y + h \tilde f + g \, \Delta W + \tfrac12 \sum_{jk} (\partial_y g_k) g_j \, \Delta W_j \Delta W_k$$
#
# Its strong order is 1 where the noise commutes, as diagonal, scalar and additive noise do, and else 1/2.
#
# Source:
#     P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), section 10.3.
class Milstein(AbstractStochasticStepper):
    """The Milstein method."""

    interpretation: ClassVar[str] = "stratonovich"
    evaluations: ClassVar[int] = 1

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, None]:
        """Returns the state after a step."""
        w = field.increment(t, h).w
        noise = field.times(field.diffusion(t, y), w)
        _, change = jax.jvp(lambda y: field.times(field.diffusion(t, y), w), (y,), (noise,))
        return plus(y, scaled(h, field(t, y)), noise, scaled(0.5, change)), None


def stochastic_stepper(solver: Any) -> AbstractStochasticStepper | None:
    """Returns the method of a solver; None where only diffrax has it."""
    if isinstance(solver, AbstractStochasticStepper):
        return solver
    if type(solver) is diffrax.Euler:
        return EulerMaruyama()
    if type(solver) is diffrax.EulerHeun:
        return EulerHeun()
    if type(solver) in (diffrax.ItoMilstein, diffrax.StratonovichMilstein):
        return Milstein()
    name = type(solver).__name__
    if isinstance(solver, diffrax.AbstractSRK):
        return from_tableau(solver.tableau, name)
    if isinstance(solver, diffrax.AbstractERK) and isinstance(solver, diffrax.AbstractStratonovichSolver):
        return from_explicit(solver.tableau, name)
    return None


def stiff_solver(drift: Any, y0: Y) -> Any:
    """Returns a solver for a drift that says what of it is stiff; None for any other."""
    if isinstance(drift, AbstractSemilinear) or (isinstance(drift, AbstractSplit) and drift.modal(y0) is not None):
        return StochasticETD1()
    return SemiImplicitEuler() if isinstance(drift, AbstractSplit) else None


def default_solver(noise: NoiseShape, elementwise: bool, interpretation: str, fixed_steps: bool) -> Any:
    """Returns a solver for an equation with noise, by its kind, its sense and by whether its steps are fixed."""
    if noise.additive:
        return diffrax.SRA1()
    if elementwise:
        return SRIW1()
    if not fixed_steps:
        return diffrax.SPaRK()
    # neither differentiates the diffusion, whose root may have no derivative
    return diffrax.Euler() if interpretation == "ito" else diffrax.EulerHeun()
