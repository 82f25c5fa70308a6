"""Differentiable simulation in JAX.

The most used functions and classes, and the packages that contain the rest.

- `solve` an initial value problem; get a `Solution` with a `Status`.
- `Event` and `Schedule`: what happens on the way; `Held`: an input that is sampled and held.
- `Stochastic`: a model with noise, and `BrownianPath`, a path of it; `AbstractFieldNoise`: noise of a field.
- `AlphaStable` and `NormalInverseGaussian`: noise with jumps; `AbstractLevy` to write your own.
- `Langevin`: particles in a bath.
- `Reactions`: single molecules that react by chance; `AbstractReactions` to write your own.
- `DAE`: a differential-algebraic equation; `AbstractDAE` to write your own.
- `Delayed`: a model that depends on its own past; `AbstractDelayed` to write your own.
- `Controlled`: a model that a given path drives.
- `simulate` a long run, in segments that go to disk.
- `steady_state`: where a model is at rest; `solve_bvp`: where something is known at both ends.
- `fit` a model to data.
- `checkpointed_scan`: any loop, with the memory of its gradient chosen.
- `models`: vector fields; `AbstractModel` and `parameter` to write your own.
- `spatial`: grids, boundary conditions and operators on fields.
- `solvers`: methods.
- `adjoints`: how derivatives are computed: `Checkpointed`, `Direct`, `Gauss` and others.
- `runs`: long runs.
- `stores`: storage for the results of runs and sweeps.
- `parallel`: ensembles and sweeps over devices.
- `training`: fitting, and training of networks.
- `inference`: posteriors for samplers, identifiability and uncertainty.
- `petab`: problems of parameter estimation that others wrote.
- `pharmacology`: compartment models, doses and population data.
- `verify`: exact solutions and reference problems.
- `inspect`: what JAX made of a function.
- `bifurcation`: branches of steady states as a parameter changes.
- `control`: optimal control.
- `plot`: pictures.
- `kernels`: fast formulations, such as a model evaluated over lanes of members.

A package is imported when it is first used, so that `import sciml` costs little more than JAX.
"""

import importlib
from typing import TYPE_CHECKING

from . import _installation as _installation
from ._interfaces._conservation_law import AbstractConservationLaw as AbstractConservationLaw
from ._interfaces._controlled import Controlled as Controlled
from ._interfaces._dae import DAE as DAE, AbstractDAE as AbstractDAE
from ._interfaces._delayed import AbstractDelayed as AbstractDelayed, Delayed as Delayed
from ._interfaces._events import Event as Event, Schedule as Schedule
from ._interfaces._field_noise import AbstractFieldNoise as AbstractFieldNoise
from ._interfaces._held import Held as Held
from ._interfaces._langevin import Langevin as Langevin
from ._interfaces._levy_process import (
    AbstractLevy as AbstractLevy,
    AlphaStable as AlphaStable,
    NormalInverseGaussian as NormalInverseGaussian,
)
from ._interfaces._model import (
    AbstractModel as AbstractModel,
    AbstractPartitioned as AbstractPartitioned,
    AbstractSecondOrder as AbstractSecondOrder,
    AbstractSemilinear as AbstractSemilinear,
    AbstractSplit as AbstractSplit,
)
from ._interfaces._reactions import AbstractReactions as AbstractReactions, Reactions as Reactions
from ._interfaces._stochastic import AbstractStochastic as AbstractStochastic, Stochastic as Stochastic
from ._jax._checkpointed_scan import checkpointed_scan as checkpointed_scan
from ._parameters import parameter as parameter, with_dtype as with_dtype
from ._status import SolveError as SolveError, Status as Status

if TYPE_CHECKING:
    from . import (
        adjoints as adjoints,
        bifurcation as bifurcation,
        control as control,
        inference as inference,
        inspect as inspect,
        kernels as kernels,
        models as models,
        parallel as parallel,
        petab as petab,
        pharmacology as pharmacology,
        plot as plot,
        runs as runs,
        solvers as solvers,
        spatial as spatial,
        stores as stores,
        training as training,
        verify as verify,
    )
    from .runs._simulate import simulate as simulate
    from .solvers._solution import Solution as Solution
    from .solvers._solve import solve as solve
    from .solvers.noise._brownian import BrownianPath as BrownianPath
    from .solvers.roots._boundary_values import solve_bvp as solve_bvp
    from .solvers.roots._steady_state import steady_state as steady_state
    from .training._fit import fit as fit

_installation.warn_of_namesake()
_installation.warn_of_versions()

_PACKAGES = (
    "adjoints",
    "bifurcation",
    "control",
    "inference",
    "inspect",
    "kernels",
    "models",
    "parallel",
    "petab",
    "pharmacology",
    "plot",
    "runs",
    "solvers",
    "spatial",
    "stores",
    "training",
    "verify",
)
_FROM = {
    "BrownianPath": "solvers.noise._brownian",
    "Solution": "solvers._solution",
    "fit": "training._fit",
    "simulate": "runs._simulate",
    "solve": "solvers._solve",
    "solve_bvp": "solvers.roots._boundary_values",
    "steady_state": "solvers.roots._steady_state",
}

__version__: str  # by `__getattr__`: to look it up takes time


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return importlib.import_module(f".{name}", __name__)
    if name in _FROM:
        value = getattr(importlib.import_module(f".{_FROM[name]}", __name__), name)
        globals()[name] = value
        return value
    if name == "__version__":
        return _installation.version()
    import diffrax

    hint = f": it belongs to diffrax, use `diffrax.{name}`" if hasattr(diffrax, name) else ""
    if not name.startswith("_") and hasattr(importlib.import_module(".adjoints", __name__), name):
        hint = f": take `sciml.adjoints.{name}`"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    public = {name for name in globals() if not name.startswith("_")} - {"TYPE_CHECKING", "importlib"}
    return sorted({*public, *_PACKAGES, *_FROM, "__version__"})
