"""Methods for initial value problems, the argument `solver` of `sciml.solve`.

- `AbstractStepper`: a custom one-step method, with its `Traits`, whose steps return a `Step`.
- `Rodas5P`, `Rosenbrock23`: implicit methods for stiff and differential-algebraic equations; they are
  diffrax solvers too.
- `BDF`: backward differentiation formulas of variable order, for stiff and differential-algebraic equations.
- `Radau5`: an implicit Runge-Kutta method for stiff equations.
- `ESDIRK`: the methods of Kvaerno and of Kennedy and Carpenter, diffrax's, with a mass matrix.
- `BlockJacobi`, `ILU0`, `ShiftedInverse`: what helps an iteration for the linear systems of implicit methods.
- `Switching`: explicit while the equation is not stiff, implicit while it is.
- `ETDRK`, `Krogstad4`: exponential methods for a stiff diagonal linear part.
- `EXPRB`: exponential methods for any equation, with the Jacobian at the start of each step.
- `CrankNicolson`, `ARS`, `ARK`: implicit in a stiff linear part, explicit in the rest.
- `RKC2`, `RKL2`, `ROCK`: explicit methods for diffusion, with as many stages as that takes.
- `Vern6`, `Vern7`, `Vern8`, `Vern9`: explicit methods of high order, for tight tolerances.
- `SSPRK33`, `SSPRK43`, `SSPRK104`: explicit methods that preserve strong stability, for advection with limiters.
- `LowStorage`: explicit methods that keep two arrays of the size of the state.
- `VelocityVerlet`, `Yoshida`: symplectic methods for equations of second order.
- `Leapfrog`: a symplectic method for two halves that drive each other, as fields of waves do.
- `Nystrom`: explicit methods for equations of second order, with error control.
- `GaussLegendre`: symplectic methods for every Hamiltonian.
- `SRIW1`, `PlatenWeak2`, `TamedEuler`, `BAOAB`: methods for equations with noise, in addition to diffrax's.
- `DriftImplicitEuler`, `DriftImplicitMilstein`, `SemiImplicitEuler`, `StochasticETD1`: methods for stiff equations with
  noise.
- `Gillespie`, `TauLeaping`: methods for reactions of single molecules.
- `reversal_error`: how exact a reversible solve is.
- `stability`: for which steps a method is stable.
- `tune_stencil`: in which tiles a kernel runs the steps of a model fastest.
"""

from typing import TYPE_CHECKING

from .. import _former_names as _former_names
from ._reversal_error import reversal_error as reversal_error
from ._stable_step import stability as stability
from ._tune_stencil import tune_stencil as tune_stencil
from .linear._preconditioners import ILU0 as ILU0, BlockJacobi as BlockJacobi, ShiftedInverse as ShiftedInverse
from .methods._capabilities import Traits as Traits
from .methods._stepper import AbstractStepper as AbstractStepper, Step as Step
from .methods.around._switching import Switching as Switching
from .methods.explicit._low_storage import LowStorage as LowStorage
from .methods.explicit._rkc import RKC2 as RKC2, RKL2 as RKL2
from .methods.explicit._rock import ROCK as ROCK
from .methods.explicit._ssp import SSPRK33 as SSPRK33, SSPRK43 as SSPRK43, SSPRK104 as SSPRK104
from .methods.explicit._verner import Vern6 as Vern6, Vern7 as Vern7, Vern8 as Vern8, Vern9 as Vern9
from .methods.implicit._bdf import BDF as BDF
from .methods.implicit._esdirk import ESDIRK as ESDIRK
from .methods.implicit._gauss import GaussLegendre as GaussLegendre
from .methods.implicit._radau import Radau5 as Radau5
from .methods.implicit._rodas5p import Rodas5P as Rodas5P
from .methods.implicit._rosenbrock23 import Rosenbrock23 as Rosenbrock23
from .methods.jumps._methods import Gillespie as Gillespie, TauLeaping as TauLeaping
from .methods.mechanical._leapfrog import Leapfrog as Leapfrog
from .methods.mechanical._nystrom import Nystrom as Nystrom
from .methods.mechanical._verlet import VelocityVerlet as VelocityVerlet, Yoshida as Yoshida
from .methods.split._etdrk import ETDRK as ETDRK, Krogstad4 as Krogstad4
from .methods.split._exponential_rosenbrock import EXPRB as EXPRB
from .methods.split._imex import ARK as ARK, ARS as ARS, CrankNicolson as CrankNicolson
from .methods.stochastic._baoab import BAOAB as BAOAB
from .methods.stochastic._runge_kutta import SRIW1 as SRIW1, PlatenWeak2 as PlatenWeak2, TamedEuler as TamedEuler
from .methods.stochastic._stiff import (
    DriftImplicitEuler as DriftImplicitEuler,
    DriftImplicitMilstein as DriftImplicitMilstein,
    SemiImplicitEuler as SemiImplicitEuler,
    StochasticETD1 as StochasticETD1,
)

if not TYPE_CHECKING:  # a type checker would believe that there is every name
    __getattr__ = _former_names.knows_former_names(__name__)
