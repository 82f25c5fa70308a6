r"""The integral of $\lambda^T g_p$ along the backward pass, by Gauss-Legendre quadrature over each step.

A rule of $k$ nodes is exact for polynomials of degree $2k - 1$, so that a method of order $q$ keeps
its order with $k = \lfloor q/2 \rfloor + 1$. The nodes of many steps are gathered and their products by
the parameters made at once: one product of matrices where each node alone would need a sum of outer ones.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._jax._vma import match
from ...integrate._integrator import State
from ...methods._stepper import AbstractStepper
from ...terms._field import AbstractField
from ._adjoint_equation import AdjointOperands, Costate, forward_rhs
from ._dense_output import state_at

_BYTES = 2**21
_MOST = 32


class Nodes(NamedTuple):
    r"""Nodes of a quadrature, the step and the node first.

    Attributes:
        s: The elapsed times.
        y: The states there.
        lam: The values of $\lambda$ there times the weights; zero at unused nodes.
    """

    s: Array
    y: PyTree
    lam: PyTree


def rule(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns nodes and weights on [0, 1] for a method of that order."""
    x, w = np.polynomial.legendre.leggauss(order // 2 + 1)
    return (x + 1) / 2, w / 2


def capacity(y: PyTree, members: int, order: int) -> int:
    """Returns how many steps' nodes are gathered, given one member's state as arrays or shapes."""
    size = members * (order // 2 + 1) * sum(8 + 2 * x.size * x.dtype.itemsize for x in jax.tree.leaves(y))
    return max(1, min(_MOST, _BYTES // size))


def nodes_of_step(
    stepper: AbstractStepper, state: State, taken: Array, start: Array, filler: PyTree, operands: AdjointOperands
) -> Nodes:
    """Returns the nodes of the last step backwards.

    Args:
        stepper: The method, the same forwards and backwards.
        state: The integration backwards after the step, with dense output.
        taken: Whether there was a step.
        start: The elapsed time at which the integration backwards started.
        filler: A state for unused nodes.
        operands: What the adjoint equation depends on.
    """
    dense = state.dense
    assert dense is not None  # the integration keeps it
    table = operands.table
    assert table is not None  # a quadrature needs the solution on record

    def node(x, weight):
        costate: Costate = stepper.interpolate(x, -dense.h, dense.y0, state.checkpoint.y, dense.stages)
        s = jnp.maximum(start - (dense.elapsed + x * dense.h), jnp.zeros_like(start))
        y = state_at(table, s)
        length = weight * dense.h
        lam = jax.tree.map(lambda x: jnp.where(taken, x * length.astype(x.dtype), jnp.zeros_like(x)), costate.lam)
        y = jax.tree.map(lambda a, b: jnp.where(taken, a, b), y, filler)
        return Nodes(jnp.where(taken, s, jnp.zeros_like(s)), y, lam)

    points, weights = (match(jnp.asarray(x, start.dtype), (dense, operands)) for x in rule(stepper.order))
    return jax.vmap(node)(points, weights)


def quadrature(field: AbstractField, nodes: Nodes, mu: PyTree, operands: AdjointOperands) -> PyTree:
    """Returns `mu` with the products of the nodes added."""
    flat: Nodes = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), nodes)

    def slopes(diff):
        return jax.vmap(lambda s, y: forward_rhs(field, s, y, diff, operands))(flat.s, flat.y)

    _, pull = jax.vjp(slopes, operands.diff)
    (more,) = pull(flat.lam)
    return jax.tree.map(lambda a, b: a + b.astype(a.dtype), mu, more)
