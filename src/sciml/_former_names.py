"""Names that packages had before: an `AttributeError` for one of them says how it is written now."""

from collections.abc import Callable, Mapping
from typing import Any

FORMER: Mapping[str, Mapping[str, str]] = {
    "kernels.stencil": {"select": "kernels.select"},
    "kernels.ensemble": {"select": "kernels.select"},
    "models": {
        "TwoThirds": "NavierStokes3D(..., dealiasing='two_thirds')",
        "ThreeHalves": "NavierStokes3D(..., dealiasing='three_halves')",
    },
    "parallel": {"grid": "parallel.parameter_grid"},
    "plot": {"ensemble": "plot.bands"},
    "runs": {"simulate": "sciml.simulate", "load": "runs.read_run"},
    "solvers": {
        name: f"sciml.{name}"
        for name in ("BrownianPath", "Event", "Schedule", "Solution", "solve", "solve_bvp", "steady_state")
    },
    "spatial": {
        "VCycle": "Multigrid(cycle='V', smoother=..., pre=..., post=...)",
        "WCycle": "Multigrid(cycle='W', smoother=..., pre=..., post=...)",
        "FCycle": "Multigrid(cycle='F', smoother=..., pre=..., post=...)",
        "Galerkin": "Multigrid(coarsening='galerkin')",
        "Resistors": "Multigrid(coarsening='resistors')",
        "minmod": "Muscl('minmod')",
        "van_leer": "Muscl('van_leer')",
        "monotonized_central": "Muscl('monotonized_central')",
        "arithmetic_mean": "VariableLaplacian(..., mean='arithmetic')",
        "harmonic_mean": "EllipticOperator(..., mean='harmonic')",
    },
    "training": {"fit": "sciml.fit"},
}
"""For each package, how a name that it had is written now."""


def knows_former_names(package: str, former: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package.

    Args:
        package: The package, such as `"sciml.solvers"`.
        former: How a name that it had is written now; by default what `FORMER` has of it.
    """
    former = FORMER[package.removeprefix("sciml.")] if former is None else former

    def __getattr__(name: str) -> Any:
        hint = f": it is `{former[name]}` now" if name in former else ""
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}", name=name)

    return __getattr__
