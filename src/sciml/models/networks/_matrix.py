"""Networks from matrices."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._description import Description, Reaction
from ._formulas import Formula


def description_of(
    reactants: Any, products: Any, constants: Sequence[Formula], species: Sequence[str] | None, initial: Any
) -> Description:
    """Returns the network of two matrices of shape `(reactions, species)`.

    Raises:
        ValueError: If they do not fit one another, or names do not fit them.
    """
    taken, made = _dense(reactants, "reactants"), _dense(products, "products")
    if taken.shape != made.shape:
        raise ValueError(f"`reactants` and `products` must have one shape, but have {taken.shape} and {made.shape}.")
    names = [f"X{i}" for i in range(taken.shape[1])] if species is None else list(species)
    if len(names) != taken.shape[1] or len(set(names)) != len(names):
        raise ValueError(
            f"`species` must be {taken.shape[1]} different names, one for each column of `reactants`, not {names}."
        )
    start = np.zeros(len(names)) if initial is None else np.asarray(initial, float)
    if start.shape != (len(names),):
        raise ValueError(f"`initial` must have shape ({len(names)},), one for each species, not {start.shape}.")
    sides = [[[(names[j], float(row[j])) for j in np.flatnonzero(row)] for row in side] for side in (taken, made)]
    reactions = [
        Reaction(str(i + 1), tuple(left), tuple(right), constants[i], True)
        for i, (left, right) in enumerate(zip(*sides, strict=True))
    ]
    amounts: dict[str, Formula] = {name: float(x) for name, x in zip(names, start) if x != 0}
    return Description(names, reactions, [], {}, amounts)


def _dense(matrix: Any, name: str) -> np.ndarray:
    found = np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, float)
    if found.ndim != 2 or 0 in found.shape:
        raise ValueError(f"`{name}` must have shape `(reactions, species)`, but has {found.shape}.")
    if np.any(~(found >= 0)):
        raise ValueError(
            f"`{name}` must have no negative entry: what a reaction takes is `reactants`, what it makes `products`."
        )
    return found
