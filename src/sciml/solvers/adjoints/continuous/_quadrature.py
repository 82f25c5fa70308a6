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
from ._adjoint_equation import AdjointOperands, Costate, slope
from ._dense_output import state_at

_BYTES = 2**21
_MOST = 32


class Nodes(NamedTuple):
    """Nodes of a quadrature, the step and the node first.

    Attributes:
        s: The elapsed times.
        y: The states there.
        bar: The costates there times the weights; zero at what counts for nothing.
    """

    s: Array
    y: PyTree
    bar: PyTree


def rule(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns nodes and weights on [0, 1] for a method of that order."""
    x, w = np.polynomial.legendre.leggauss(order // 2 + 1)
    return (x + 1) / 2, w / 2


def capacity(y: PyTree, members: int, order: int) -> int:
    """Returns of how many steps the nodes are gathered, given one member's state as arrays or shapes."""
    size = members * (order // 2 + 1) * sum(8 + 2 * x.size * x.dtype.itemsize for x in jax.tree.leaves(y))
    return max(1, min(_MOST, _BYTES // size))


def nodes_of_step(
    stepper: AbstractStepper, state: State, counts: Array, start: Array, spare: PyTree, ground: AdjointOperands
) -> Nodes:
    """Returns the nodes of the last step backwards.

    Args:
        stepper: The method of both ways.
        state: The integration backwards after the step, with dense output.
        counts: Whether there was a step.
        start: The elapsed time at which the integration backwards started.
        spare: A state for nodes that count for nothing.
        ground: What the adjoint equation depends on.
    """
    dense = state.dense
    assert dense is not None  # the integration keeps it
    table = ground.table
    assert table is not None  # a quadrature needs the solution on record

    def node(x, weight):
        costate: Costate = stepper.interpolate(x, -dense.h, dense.y0, state.checkpoint.y, dense.stages)
        s = jnp.maximum(start - (dense.elapsed + x * dense.h), jnp.zeros_like(start))
        y = state_at(table, s)
        length = weight * dense.h
        bar = jax.tree.map(lambda x: jnp.where(counts, x * length.astype(x.dtype), jnp.zeros_like(x)), costate.bar)
        y = jax.tree.map(lambda a, b: jnp.where(counts, a, b), y, spare)
        return Nodes(jnp.where(counts, s, jnp.zeros_like(s)), y, bar)

    points, weights = (match(jnp.asarray(x, start.dtype), (dense, ground)) for x in rule(stepper.order))
    return jax.vmap(node)(points, weights)


def quadrature(field: AbstractField, nodes: Nodes, mu: PyTree, ground: AdjointOperands) -> PyTree:
    """Returns `mu` with the products of the nodes added."""
    flat: Nodes = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), nodes)

    def slopes(moved):
        return jax.vmap(lambda s, y: slope(field, s, y, moved, ground))(flat.s, flat.y)

    _, pull = jax.vjp(slopes, ground.moved)
    (more,) = pull(flat.bar)
    return jax.tree.map(lambda a, b: a + b.astype(a.dtype), mu, more)
