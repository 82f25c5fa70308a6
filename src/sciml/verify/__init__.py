"""Problems with known answers and the measures that go with them, for tests, docs and users' models.

Known answers by name
    `problem`: an initial value problem with an exact solution or a published end value, a `Problem`; `problem_names`
    `reference`: exact solutions of fields and flows, rates of growth, laws of noise, published tables
Solutions of your choice
    `manufactured`, `matching_conditions`, `gradient_of`, `laplacian_of`
Measures
    `observed_order`, `order_in_space`, `check_gradient`, `conserved`
Contracts of custom methods, adjoints, models, stores and reductions
    `check_stepper`, `check_adjoint`, `check_model`, `check_store`, `check_reduction`

Example:
    ```python
    from sciml import verify

    for name in verify.problem_names("exact"):
        problem = verify.problem(name)
        assert problem.error(problem.solution(problem.t1)) == 0.0
    ```
"""

from typing import TYPE_CHECKING

from .. import _former_names as _former_names
from . import _lookup as _lookup
from ._lookup import problem as problem, problem_names as problem_names, reference as reference
from .contracts._check_adjoint import check_adjoint as check_adjoint
from .contracts._check_model import check_model as check_model
from .contracts._check_reduction import check_reduction as check_reduction
from .contracts._check_stepper import check_stepper as check_stepper
from .contracts._check_store import check_store as check_store
from .measures._finite_difference import check_gradient as check_gradient
from .measures._invariants import conserved as conserved
from .measures._order import observed_order as observed_order, order_in_space as order_in_space
from .problems._problem import Problem as Problem
from .solutions._manufactured import (
    gradient_of as gradient_of,
    laplacian_of as laplacian_of,
    manufactured as manufactured,
    matching_conditions as matching_conditions,
)

if not TYPE_CHECKING:  # a type checker would believe that there is every name
    __getattr__ = _former_names.knows_former_names(__name__, _lookup.FORMER)
