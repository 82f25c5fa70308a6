"""Pharmacology: compartment models, doses, responses, and population data.

- `Compartments`: one to three compartments with absorption, transit compartments and a metabolite, in closed form;
  `MichaelisMenten`: saturable elimination; `TargetMediated`: binding to a target.
- `Emax`: an effect of a concentration; `EffectCompartment`, `IndirectResponse`: effects with a delay.
- `Doses`: a dosing table, with infusions, additional doses, steady states, lag times and bioavailability.
- `solve_doses`: the state of a model under doses.
- `read_nonmem`: subjects with doses, measurements and covariates, from a table.
"""

from ._compartments import (
    Compartments as Compartments,
    MichaelisMenten as MichaelisMenten,
    TargetMediated as TargetMediated,
)
from ._doses import Doses as Doses
from ._nonmem import read_nonmem as read_nonmem
from ._response import EffectCompartment as EffectCompartment, Emax as Emax, IndirectResponse as IndirectResponse
from ._solve_doses import solve_doses as solve_doses
