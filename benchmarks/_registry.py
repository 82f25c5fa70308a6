"""Every benchmark by name: a function that returns its groups of rows."""

from collections.abc import Callable

from . import (
    adjoint_accuracy,
    adjoint_memory,
    beside_gradsolve,
    compile_time,
    continuous_adjoints,
    devices,
    domain,
    field_ensemble,
    gate,
    gradient,
    heavy_tailed,
    kuramoto_sivashinsky,
    lorenz_ensemble,
    multigrid,
    neural_ode,
    py_pde,
    rosenbrock,
    scan,
    stabilised,
    stencil,
    sweep,
    work_precision,
)
from ._harness import Group

BENCHMARKS: dict[str, Callable[[], list[Group]]] = {
    "gate": gate.groups,
    "lorenz_ensemble": lorenz_ensemble.groups,
    "heavy_tailed": heavy_tailed.groups,
    "sweep": sweep.groups,
    "devices": devices.groups,
    "neural_ode": neural_ode.groups,
    "field_ensemble": field_ensemble.groups,
    "scan": scan.groups,
    "stencil": stencil.groups,
    "gradient": gradient.groups,
    "continuous_adjoints": continuous_adjoints.groups,
    "adjoint_memory": adjoint_memory.groups,
    "adjoint_accuracy": adjoint_accuracy.groups,
    "rosenbrock": rosenbrock.groups,
    "stabilised": stabilised.groups,
    "kuramoto_sivashinsky": kuramoto_sivashinsky.groups,
    "py_pde": py_pde.groups,
    "work_precision": work_precision.groups,
    "domain": domain.groups,
    "multigrid": multigrid.groups,
    "compile_time": compile_time.groups,
    "beside_gradsolve": beside_gradsolve.groups,
}
