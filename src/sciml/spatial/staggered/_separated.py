"""Second differences on stretched grids, diagonalised axis by axis by matrices."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._boundaries import Boundaries
from .._conditions import Dirichlet, Neumann, Periodic
from ..elliptic._separable import Axis
from ..geometry import _metric


def separate_stretched(boundary: Boundaries) -> list[Axis]:
    r"""Returns the transform of every axis of a grid whose cells differ, with values at centres.

    The second difference along an axis is symmetric where cells count by their widths, so that a matrix of
    eigenvectors diagonalises it: $n$ products for each value, where a fast transform takes a few.

    Raises:
        ValueError: If a side is neither periodic nor has a value or a slope given.
    """
    found = []
    for axis, name in enumerate(boundary.grid.names):
        kinds = tuple(type(side) for side in boundary.sides[axis])
        if any(kind not in (Periodic, Dirichlet, Neumann) for kind in kinds):
            raise ValueError(
                f"along {name} the pressure has sides {kinds[0].__name__} and {kinds[1].__name__}, but on a stretched "
                "grid it needs Periodic, Dirichlet or Neumann ones."
            )
        widths = _metric.widths_of(boundary.grid, axis)
        gaps = _metric.steps(boundary.grid, axis, boundary.periodic[axis])
        values, vectors = _diagonalised(tuple(widths.tolist()), tuple(gaps.tolist()), kinds)
        roots = np.sqrt(widths)
        forward, backward = vectors.T * roots, vectors / roots[:, None]
        found.append(Axis(values, ft.partial(_applied, forward), ft.partial(_applied, backward)))
    return found


@ft.lru_cache(maxsize=64)
def _diagonalised(
    widths: tuple[float, ...], gaps: tuple[float, ...], kinds: tuple[type, type]
) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues and vectors of the second difference, in values times the roots of the widths."""
    n, roots = len(widths), np.sqrt(widths)
    matrix = np.zeros((n, n))
    for face, gap in enumerate(gaps):
        before, after = face - 1, face
        if kinds[0] is Periodic:
            if face == n:  # the first face again
                continue
            before, after = before % n, after % n
        elif face in (0, n):
            inside = 0 if face == 0 else n - 1
            if kinds[0 if face == 0 else 1] is Dirichlet:  # the ghost is the negative
                matrix[inside, inside] -= 2 / gap
            continue
        for a, b in ((before, after), (after, before)):
            matrix[a, a] -= 1 / gap
            matrix[a, b] += 1 / gap
    values, vectors = np.linalg.eigh(matrix / roots[:, None] / roots[None])
    if Dirichlet not in kinds:  # the constant, exactly
        values[-1], vectors[:, -1] = 0.0, roots / np.linalg.norm(roots)
    return values, vectors


def _applied(matrix: np.ndarray, u: Array, axis: int) -> Array:
    """Returns the product with a matrix along an axis."""
    weights = jnp.asarray(matrix, jnp.finfo(u.dtype).dtype)
    product = jnp.tensordot(u, weights, axes=((axis,), (1,)), precision=jax.lax.Precision.HIGHEST)
    return jnp.moveaxis(product, -1, axis)
