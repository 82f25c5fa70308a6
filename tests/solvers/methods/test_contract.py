"""All that a method promises, of those that solve systems within their steps."""

import pytest

from sciml import solvers, verify
from tests import families


@pytest.mark.x64
@pytest.mark.parametrize(
    "solver",
    [
        families.ImplicitMidpoint,
        families.GaussLegendre4,
        families.GaussLegendre6,
        solvers.Radau5,
        solvers.ESDIRK,
        solvers.BDF,
        families.EXPRB32,
        families.EXPRB43,
    ],
)
def test_the_contract_of_a_method(solver):
    dense_order = 4 if solver in (solvers.Radau5, solvers.ESDIRK) else None
    steps = (128, 192, 256) if solver is solvers.BDF else None
    verify.check_stepper(solver(), steps=steps, dense_order=dense_order, slack=0.4)
