"""How large a record of steps may be."""

import jax.numpy as jnp

import sciml
from sciml._jax._checkpoint_levels import Budget
from sciml.kernels._lanes import Lanes
from sciml.solvers.integrate._integrator import Integrator
from sciml.solvers.integrate._while_loop import AdaptiveLoop
from sciml.solvers.terms._field import ClosedField


def test_records_of_expensive_steps_may_be_large():
    """A thousand members: 256 slots of eight unknowns, for which 16 MiB do not suffice; more only within these."""

    field = ClosedField(lambda t, y, operands: y)

    def slots(solver, n, memory=2**28):
        integrator = Integrator(field, solver.stepper(jnp.zeros(n)), None, False)
        return AdaptiveLoop(integrator, Lanes(None), 2**14, False).over(Lanes(1000), 8 * n, Budget(memory)).slots

    assert slots(sciml.solvers.Rodas5P(), 8) == 256
    assert slots(sciml.solvers.Rodas5P(), 1) == slots(sciml.solvers.Rodas5P(), 1, 2**24) == 1024
    assert slots(sciml.solvers.Rodas5P(), 7) == slots(sciml.solvers.Rodas5P(), 7, 2**24) < 256
    assert slots(sciml.solvers.Rodas5P(), 8, 2**24) < 256
