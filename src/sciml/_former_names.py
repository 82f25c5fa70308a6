"""Former names of packages: an `AttributeError` for one of them gives the current name."""

from collections.abc import Callable, Mapping
from typing import Any

FORMER: Mapping[str, Mapping[str, str]] = {
    "kernels.stencil": {"select": "kernels.select"},
    "kernels.ensemble": {"select": "kernels.select"},
    "inspect": {"jaxpr": "equinox.filter_make_jaxpr(fn)(...)"},
    "models": {
        "TwoThirds": "NavierStokes3D(..., dealiasing='two_thirds')",
        "ThreeHalves": "NavierStokes3D(..., dealiasing='three_halves')",
    },
    "models.neural": {
        "hermite_path": "measured_path(ts, xs)",
        "linear_path": "measured_path(ts, xs, 'linear')",
    },
    "parallel": {"grid": "parallel.parameter_grid"},
    "plot": {
        "ensemble": "plot.bands",
        "profiles": "ProfileLikelihood.plot()",
        "residuals": "ResidualDiagnostics.plot()",
    },
    "runs": {"simulate": "sciml.simulate", "load": "runs.read_run"},
    "solvers": {
        **{
            name: f"sciml.{name}"
            for name in ("BrownianPath", "Event", "Schedule", "Solution", "solve", "solve_bvp", "steady_state")
        },
        "ImplicitMidpoint": "GaussLegendre(order=2)",
        "ROCK2": "ROCK(order=2)",
        "ROCK4": "ROCK(order=4)",
        "Williamson3": "LowStorage(order=3)",
        "CarpenterKennedy54": "LowStorage(order=4)",
        "ARK324": "ARK(order=3)",
        "ARK436": "ARK(order=4)",
        "ARS222": "ARS(order=2)",
        "ARS443": "ARS(order=3)",
        "ETD1": "ETDRK(order=1)",
        "ETDRK2": "ETDRK(order=2)",
        "ETDRK3": "ETDRK(order=3)",
        "ETDRK4": "ETDRK(order=4)",
        "EXPRB32": "EXPRB(order=3)",
        "EXPRB43": "EXPRB(order=4)",
        "GaussLegendre4": "GaussLegendre(order=4)",
        "GaussLegendre6": "GaussLegendre(order=6)",
        "Nystrom4": "Nystrom(order=4)",
        "Nystrom6": "Nystrom(order=6)",
        "Nystrom8": "Nystrom(order=8)",
        "Yoshida4": "Yoshida(order=4)",
        "Yoshida6": "Yoshida(order=6)",
        "Yoshida8": "Yoshida(order=8)",
    },
    "spatial": {
        "StaggeredDivergence": "StaggeredGradient(...).divergence",
        "faces": "StaggeredGradient(...).faces(axis)",
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
    "training": {"fit": "sciml.fit", "fisher_product": "gauss_newton_product(..., precision=...)"},
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
        hint = f": it is now `{former[name]}`" if name in former else ""
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}", name=name)

    return __getattr__
