"""The structure of a method's linear systems, from the program of the vector field."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._choices import choices
from ._bands import BlockTridiagonal, WideBand
from ._blocks import Blocks
from ._colouring import colour
from ._dependencies import pattern_of
from ._entries import DenseMatrix
from ._incomplete_lu import IncompleteLU, groups_of
from ._iterative import Iteration, Iterative, iteration_of
from ._preconditioners import AbstractPreconditioner, Unknowns
from ._sparse import SparseArray, csgraph, sp
from ._structure import AbstractStructure
from ._written_out import WrittenOut, few_products

_RTOL = 1e-6
"""If the tolerances of steps are not known, such an iteration ends at this relative residual."""

_OF_CORRECTIONS = 1e-2
"""If they are known, and the systems are for corrections, it ends at this relative residual, measured by them."""


@dataclass(frozen=True)
class LinearChoice:
    """How linear systems are to be solved.

    Attributes:
        solver: One of lineax's iterations, or None for what the structure asks for.
        preconditioner: The preconditioner, or None.
        step: The tolerances of the steps, where they are known numbers.
        relative: Whether the iteration's absolute tolerance counts for nothing, where right-hand sides become small.
        large: Whether the state is so large that an iteration may be chosen where none was asked for.
        by_tolerances: Whether residuals are measured by what is tolerated, though the tolerances may be traced.
        by_library: Whether small matrices also go to LAPACK: their programs are short, which matters if many tangents
            are compiled.
    """

    solver: Any = None
    preconditioner: AbstractPreconditioner | None = None
    step: tuple[float, float] | None = None
    relative: bool = False
    large: bool = False
    by_tolerances: bool = False
    by_library: bool = False


def structure_of(
    slope: Callable[[Float[Array, " n"]], Float[Array, " n"]],
    x: Float[Array, " n"],
    mass: np.ndarray | None,
    choice: LinearChoice = LinearChoice(),
    unknowns: Unknowns | None = None,
) -> AbstractStructure:
    """Returns the structure of $M - s J$, with $J$ the Jacobian of `slope`.

    Small matrices are written out, and of sparse ones somewhat larger. Others are taken apart into blocks where parts
    do not know of one another, else they are banded where an order of the unknowns makes them so, else dense. Sparse
    systems that are too large for a wide band or a dense matrix are solved by an iteration.

    Args:
        slope: The vector field at a time.
        x: A state, for its shape and dtype.
        mass: $M$, or None for the identity.
        choice: How its systems are to be solved.
        unknowns: The meaning of its unknowns in the state; a preconditioner needs it.

    Raises:
        ValueError: If there is no preconditioner as it was asked for.
    """
    n = x.shape[0]
    if choice.solver is not None:
        return _iterative(slope, x, mass, choice, unknowns)
    pivot, table = mass is not None, choices().linear
    half = jnp.finfo(x.dtype).bits < 32  # in which no library factorises matrices
    if choice.by_library and n <= table.sparse_at_most and not half:
        return DenseMatrix(np.eye(n) if mass is None else mass)
    if n <= (table.sparse_at_most if half else table.small_at_most):
        return WrittenOut(np.eye(n) if mass is None else mass, pivot)
    pattern = pattern_of(slope, x)
    if n <= table.sparse_at_most and not pivot and pattern is not None and few_products(pattern.toarray()):
        return WrittenOut(np.eye(n), pivot, pattern.toarray())
    if pattern is None:
        return DenseMatrix(np.eye(n) if mass is None else mass)
    constant = sp.eye_array(n, format="csr") if mass is None else sp.csr_array(mass)
    found = structure_of_pattern(pattern, constant, pivot) if not choice.large or pivot else None
    return _of_large_pattern(pattern, constant, choice) if found is None else found


def _of_large_pattern(pattern: SparseArray, mass: SparseArray, choice: LinearChoice) -> AbstractStructure:
    """Returns the structure of large matrices, an iteration where a factorisation would cost far more."""
    n, table, krylov = pattern.shape[0], choices().linear, choices().krylov
    order = csgraph.reverse_cuthill_mckee(sp.csr_matrix(sp.csr_array(pattern + pattern.T)), True)
    width = min(_width(pattern, np.arange(n)), _width(pattern, order))
    count, labels = csgraph.connected_components(sp.csr_array(pattern + pattern.T), directed=False)
    in_blocks = count > 1 and np.bincount(labels).max() <= table.small_at_most
    if in_blocks or width <= table.band_at_most or pattern.nnz > table.row_entries_at_most * n:
        return structure_of_pattern(pattern, mass, False)
    # of a field, neighbours are linked both ways, and bands are far longer than wide
    of_field = width * table.wide_band_lengths <= n and not (pattern != pattern.T).nnz
    loosely = choice.step is not None or choice.by_tolerances
    if not (of_field and loosely) and min(width, n / 6) ** 2 * n < table.factorisation_at_most:
        return structure_of_pattern(pattern, mass, False)
    groups = groups_of(pattern, mass)
    if groups.max() >= table.colours_at_most:
        return structure_of_pattern(pattern, mass, False)
    near = IncompleteLU(colour(pattern, np.arange(n)), mass, groups)
    rtol = _RTOL if choice.step is None else 1.0
    by_weights = _OF_CORRECTIONS if choice.by_tolerances else None
    iteration = Iteration(krylov.vectors, rtol, 0.0, krylov.products_at_most, choice.step, by_weights)
    return Iterative(n, iteration, None, near, Iteration(0, rtol, 0.0, krylov.products_without))


def _iterative(
    slope: Callable, x: Float[Array, " n"], mass: np.ndarray | None, choice: LinearChoice, unknowns: Unknowns | None
) -> AbstractStructure:
    """Returns the structure for an iteration.

    Raises:
        ValueError: If the preconditioner needs a pattern, and there is none.
    """
    n, near = x.shape[0], None
    if choice.preconditioner is not None:
        assert unknowns is not None
        pattern = pattern_of(slope, x) if choice.preconditioner.reads_pattern else None
        if pattern is None and choice.preconditioner.reads_pattern:
            raise ValueError(
                f"`preconditioner={type(choice.preconditioner).__name__}()` requires a sparse Jacobian, but here it is "
                "nearly dense (see `sciml.inspect.jacobian`). Leave it out, or use `ShiftedInverse`."
            )
        constant = sp.eye_array(n, format="csr") if mass is None else sp.csr_array(mass)
        near = choice.preconditioner.near(pattern, constant, unknowns)
    return Iterative(n, iteration_of(choice.solver, choice.step, choice.relative), mass, near)


def structure_of_pattern(pattern: SparseArray, mass: SparseArray, pivot: bool) -> AbstractStructure:
    """Returns the structure of matrices whose Jacobian has entries where `pattern` is true."""
    n, table = pattern.shape[0], choices().linear
    present = sp.csr_array(mass.astype(bool) + pattern)
    linked = sp.csr_array(present + present.T)
    count, labels = csgraph.connected_components(linked, directed=False)
    if count > 1 and np.bincount(labels).max() <= table.small_at_most:
        return Blocks(labels, colour(pattern, np.arange(n)), mass, pivot)
    order = min(
        (np.arange(n), csgraph.reverse_cuthill_mckee(sp.csr_matrix(linked), True)), key=lambda o: _width(linked, o)
    )
    width = _width(linked, order)
    colouring = colour(pattern, order)
    if not pivot and width <= table.band_at_most and n >= table.band_blocks_at_least * width:
        return BlockTridiagonal(order, max(width, 1), colouring, mass)
    if not pivot and width * table.wide_band_lengths <= n and n >= table.wide_band_from:
        return WideBand(order, width, colouring, mass)
    return DenseMatrix(mass.toarray(), colouring if len(colouring.directions) < n // 2 else None)


def _width(linked: SparseArray, order: np.ndarray) -> int:
    """The distance of the farthest entry from the diagonal where the unknowns stand in an order."""
    places = np.empty_like(order)
    places[order] = np.arange(order.size)
    entries = linked.tocoo()
    return int(np.abs(places[entries.row] - places[entries.col]).max(initial=0))
