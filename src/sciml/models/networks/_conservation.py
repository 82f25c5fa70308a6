"""What reactions conserve: the left null space of a matrix, in whole numbers."""

import math
from fractions import Fraction

import numpy as np


def conserved_sums(changes: np.ndarray) -> np.ndarray:
    """Returns a basis of the vectors $w$ with $N w = 0$, whole numbers without a common factor.

    Rows are eliminated exactly, as fractions, and the basis is reduced: each vector has an entry that no other has.

    Args:
        changes: $N$, of shape `(reactions, species)`; its numbers are those of a reaction, as 1, 2 or 0.5.
    """
    species = changes.shape[1]
    rows: list[dict[int, Fraction]] = []
    pivots: list[int] = []
    for change in changes:
        row = {int(j): Fraction(float(change[j])).limit_denominator(10**6) for j in np.flatnonzero(change)}
        for pivot, other in zip(pivots, rows):
            if pivot in row:
                _subtract(row, other, row[pivot])
        if not row:
            continue
        pivot = min(row)
        scale = row[pivot]
        row = {j: x / scale for j, x in row.items()}
        for other in rows:
            if pivot in other:
                _subtract(other, row, other[pivot])
        rows.append(row)
        pivots.append(pivot)
    free = [j for j in range(species) if j not in set(pivots)]
    found = np.zeros((len(free), species))
    for i, j in enumerate(free):
        law = {j: Fraction(1)} | {p: -row[j] for p, row in zip(pivots, rows) if j in row}
        denominator = math.lcm(*(x.denominator for x in law.values()))
        numbers = {k: int(x * denominator) for k, x in law.items()}
        divisor = math.gcd(*numbers.values())
        sign = -1 if sum(numbers.values()) < 0 else 1
        for k, x in numbers.items():
            found[i, k] = sign * x // divisor
    return found


def _subtract(row: dict[int, Fraction], other: dict[int, Fraction], factor: Fraction) -> None:
    for j, x in other.items():
        value = row.get(j, Fraction(0)) - factor * x
        if value:
            row[j] = value
        else:
            row.pop(j, None)
