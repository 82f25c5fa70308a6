"""Methods that a class makes by their order, under the names that they have in the literature: for tables of tests."""

from collections.abc import Callable
from typing import Any

from sciml import solvers


def _named(name: str, family: Callable[..., Any], order: int) -> Callable[..., Any]:
    def make(**options: Any) -> Any:
        return family(order=order, **options)

    make.__name__ = name
    return make


ARK324 = _named("ARK324", solvers.ARK, 3)
ARK436 = _named("ARK436", solvers.ARK, 4)
ARS222 = _named("ARS222", solvers.ARS, 2)
ARS443 = _named("ARS443", solvers.ARS, 3)
ETD1 = _named("ETD1", solvers.ETDRK, 1)
ETDRK2 = _named("ETDRK2", solvers.ETDRK, 2)
ETDRK3 = _named("ETDRK3", solvers.ETDRK, 3)
ETDRK4 = _named("ETDRK4", solvers.ETDRK, 4)
EXPRB32 = _named("EXPRB32", solvers.EXPRB, 3)
EXPRB43 = _named("EXPRB43", solvers.EXPRB, 4)
GaussLegendre4 = _named("GaussLegendre4", solvers.GaussLegendre, 4)
GaussLegendre6 = _named("GaussLegendre6", solvers.GaussLegendre, 6)
Nystrom4 = _named("Nystrom4", solvers.Nystrom, 4)
Nystrom6 = _named("Nystrom6", solvers.Nystrom, 6)
Nystrom8 = _named("Nystrom8", solvers.Nystrom, 8)
Yoshida4 = _named("Yoshida4", solvers.Yoshida, 4)
Yoshida6 = _named("Yoshida6", solvers.Yoshida, 6)
Yoshida8 = _named("Yoshida8", solvers.Yoshida, 8)
ImplicitMidpoint = _named("ImplicitMidpoint", solvers.GaussLegendre, 2)
ROCK2 = _named("ROCK2", solvers.ROCK, 2)
ROCK4 = _named("ROCK4", solvers.ROCK, 4)
Williamson3 = _named("Williamson3", solvers.LowStorage, 3)
CarpenterKennedy54 = _named("CarpenterKennedy54", solvers.LowStorage, 4)
CrankNicolson = solvers.CrankNicolson
