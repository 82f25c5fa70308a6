"""Coefficients of singly diagonally implicit Runge-Kutta methods with an explicit first stage, from diffrax's."""

import dataclasses
import functools
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import numpy as np

_EXACT = 1e-9
"""Conditions hold to this: some coefficients are published with twelve digits."""

_MOST_WEIGHT = 6.0
"""A first guess of a stage takes so much of earlier ones at most, in the sum of the weights' sizes."""


class SinglyImplicit(NamedTuple):
    r"""The coefficients of a method; see `ESDIRK`.

    Stiffly accurate, with $c_2 = 2 \gamma$ and $A c = c^2 / 2$, so that $z_1$, which is very large where a stiff system
    is slightly off its slow solution, cancels from all that a step returns: error and dense output are sums of the
    increments $u_i$ of stages.

    Attributes:
        gamma: $\gamma$.
        rows: The rows $a_i$ without their diagonals, row $i$ with $i$ entries, the first empty.
        nodes: The nodes $c_i$.
        guesses: The weights of earlier stages' increments that a stage's iteration starts from, the first two empty.
        error: The weights of the error estimate, one for each $u_i$.
        dense: The rows $H_m$ of the dense output, likewise.
        order: The order of the method.
        dense_order: That of the dense output.
    """

    gamma: float
    rows: tuple[tuple[float, ...], ...]
    nodes: tuple[float, ...]
    guesses: tuple[tuple[float, ...], ...]
    error: tuple[float, ...]
    dense: tuple[tuple[float, ...], ...]
    order: int
    dense_order: int


def as_tableau(method: Any) -> SinglyImplicit:
    """Returns the coefficients of a diffrax solver.

    Raises:
        TypeError: If it is none of this kind.
    """
    if isinstance(method, SinglyImplicit):
        return method
    found = tableau_of(method) if isinstance(method, diffrax.AbstractSolver) else None
    if found is None:
        raise TypeError(
            "`method` must be a diffrax solver that is singly diagonally implicit, stiffly accurate and of an explicit "
            f"first stage, such as `diffrax.Kvaerno5()` or `diffrax.KenCarp4()`, but is {method!r}."
        )
    return found


def tableau_of(solver: diffrax.AbstractSolver) -> SinglyImplicit | None:
    """Returns the coefficients of a diffrax solver, of a pair the implicit ones; None where it is none of this kind."""
    tableau = getattr(solver, "tableau", None)
    if isinstance(solver, diffrax.KenCarp3 | diffrax.KenCarp4 | diffrax.KenCarp5):
        tableau = solver.tableau.tableaus[1]
    elif not isinstance(solver, diffrax.AbstractDIRK):
        return None
    if not isinstance(tableau, diffrax.ButcherTableau) or tableau.a_diagonal is None:
        return None
    stages = len(tableau.b_sol)
    matrix = np.diag(np.asarray(tableau.a_diagonal, np.float64))
    for i, row in enumerate(tableau.a_lower):
        matrix[i + 1, : i + 1] = row
    if stages < 3 or not np.array_equal(matrix[-1], tableau.b_sol):
        return None
    key = tuple(map(tuple, matrix.tolist())), tuple(np.asarray(tableau.b_error, np.float64).tolist())
    return _singly_implicit(*key, int(solver.order(None)))


def takes_own_iteration(solver: diffrax.AbstractSolver) -> bool:
    """Whether a diffrax solver was given another iteration for its stages than it has by default."""
    given = ("root_finder", "root_find_max_steps", "scan_kind")
    usual = {x.name: x.default for x in dataclasses.fields(type(solver)) if x.name in given}  # pyright: ignore
    return any(eqx.tree_equal(getattr(solver, name), value) is not True for name, value in usual.items())


@functools.cache
def _singly_implicit(
    rows: tuple[tuple[float, ...], ...], error: tuple[float, ...], order: int
) -> SinglyImplicit | None:
    """Returns the coefficients with what follows from them; None where the method is none of this kind."""
    matrix, weights, estimate = np.array(rows), np.array(rows[-1]), np.array(error)
    nodes, gamma = matrix.sum(1), matrix[1, 1]
    implicit = matrix[1:, 1:]
    alike = gamma > 0 and matrix[0, 0] == 0 and np.all(np.diagonal(implicit) == gamma)
    if not alike or np.abs(matrix @ nodes - nodes**2 / 2).max() > _EXACT:
        return None
    # of weights w for the z_i, w . free is what is left of a very large z_1 where a system is very stiff
    free = np.concatenate([[1.0], -np.linalg.solve(implicit, matrix[1:, 0])])
    if max(abs(weights @ free), abs(estimate @ free)) > _EXACT:
        return None
    dense_order, powers = _continuous(matrix, nodes, free)
    bends = -np.cumsum(powers[:, :0:-1], axis=1)[:, ::-1]  # with theta (1 - theta) theta^m
    of_increments = np.linalg.solve(implicit.T, np.stack([estimate, *bends.T], axis=1)[1:]).T
    return SinglyImplicit(
        gamma=float(gamma),
        rows=tuple(tuple(row[:i].tolist()) for i, row in enumerate(matrix)),
        nodes=tuple(nodes.tolist()),
        guesses=((), (), *(_guess(nodes[:i], nodes[i]) for i in range(2, len(nodes)))),
        error=tuple(of_increments[0].tolist()),
        dense=tuple(tuple(row.tolist()) for row in of_increments[1:]),
        order=order,
        dense_order=dense_order,
    )


def _continuous(matrix: np.ndarray, nodes: np.ndarray, free: np.ndarray) -> tuple[int, np.ndarray]:
    r"""Returns the order of the dense output, and its weights: those of $\theta, \theta^2, \dots$ for each stage.

    They are the smallest that satisfy the conditions of the highest order that there is, for all $\theta$, end at the
    step with the slope there, and contain nothing of a very large $z_1$.
    """
    last = np.eye(len(nodes))[-1]
    for order in range(4, 0, -1):
        conditions = [*(nodes**k for k in range(order)), free]
        if order == 4:
            conditions.append(matrix @ nodes**2 / 2 - nodes**3 / 6)
        wanted = np.zeros((len(conditions), order))
        wanted[:order] = np.diag(1 / np.arange(1.0, order + 1))
        unit, ones, slopes = np.eye(order), np.ones((1, order)), np.arange(1.0, order + 1)[None]
        rows = [np.kron(np.stack(conditions), unit)] + [np.kron(np.eye(len(nodes)), x) for x in (ones, slopes)]
        system, right = np.concatenate(rows), np.concatenate([wanted.reshape(-1), matrix[-1], last])
        if order < 3:  # then the slope at the end is one condition too many
            system, right = system[: -len(nodes)], right[: -len(nodes)]
        found = np.linalg.lstsq(system, right, rcond=1e-12)[0]
        if np.abs(system @ found - right).max() < _EXACT:
            break
    return order, found.reshape(len(nodes), order)


def _guess(before: np.ndarray, node: float) -> tuple[float, ...]:
    """Returns the weights of values at earlier nodes that extrapolate a polynomial of up to third degree to a node.

    Values extrapolate and not slopes: these are very large where a stiff system is slightly off its slow solution.
    """
    same = np.flatnonzero(np.abs(before - node) < _EXACT)
    if same.size:
        return tuple(np.eye(len(before))[same[-1]].tolist())
    for degree in range(min(len(before) - 1, 3), 0, -1):
        powers = np.arange(degree + 1.0)
        weights = np.linalg.lstsq(before[None] ** powers[:, None], node**powers, rcond=None)[0]
        if np.abs(weights).sum() <= _MOST_WEIGHT:
            break
    return tuple(weights.tolist())
