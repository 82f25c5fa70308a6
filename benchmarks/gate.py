"""The ratios that every supported JAX has to keep: ensembles beside a loop in C and beside `vmap(diffrax)`, in minutes.

The same rows as in `lorenz_ensemble` and `rosenbrock`, without those that only explain them.
"""

import dataclasses

from . import lorenz_ensemble, rosenbrock
from ._harness import Group


def groups() -> list[Group]:
    lorenz = [
        _without(group, "ForwardMode", "DirectAdjoint", "lax.scan", "two levels") for group in lorenz_ensemble.groups()
    ]
    return lorenz + [group for group in rosenbrock.groups() if "members" in group.title]


def _without(group: Group, *explanations: str) -> Group:
    return dataclasses.replace(
        group, candidates=[x for x in group.candidates if not any(text in x.label for text in explanations)]
    )
