r"""The adjoint equation, as a vector field that the library's own methods integrate.

Time is the time $s$ elapsed since t0, in which the solution obeys $dy/ds = g(s, y, p)$, with
$g = \pm f(t_0 \pm s, y, p)$ for the two directions of time. A loss depends on the solution at times
$s_i$, with cotangents $c_i = \partial L / \partial y(s_i)$. A change of the solution carries on by
$d \delta/ds = g_y \delta + g_p \, dp$. For any $\lambda$ with

$$\frac{d\lambda}{ds} = -g_y^T \lambda, \qquad \lambda \to \lambda + c_i \text{ at } s = s_i,$$

run from later to earlier times, which vanishes after the last $s_i$,

$$\frac{d}{ds}(\lambda^T \delta) = \lambda^T g_p \, dp$$

between the jumps. Adding that up over $[0, s_n]$ leaves

$$dL = \sum_i c_i^T \delta(s_i) = \lambda(0)^T dy_0 + \Big( \int_0^{s_n} \lambda^T g_p \, ds \Big) dp .$$

t0 is one of the parameters $p$ through $t = t_0 \pm s$. A state's own time moves it along the
solution: $dL/ds_i = c_i^T g(s_i, y(s_i))$. Products of cotangents are JAX's, which transpose and do
not conjugate, so that all of this is true for complex states too.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._types import RealScalarLike, Y
from ...control._pid import Tolerances, spread
from ...terms._field import AbstractField
from ._dense_output import Table, state_at


class Costate(NamedTuple):
    r"""The variables of the backward integration.

    Attributes:
        y: The state, or None where it is read from a record.
        lam: $\lambda$, like the state.
        mu: The integral of $\lambda^T g_p$ so far, like the differentiated operands; None where it is left to
            a quadrature.
    """

    y: Y | None
    lam: Y
    mu: PyTree | None


class AdjointOperands(NamedTuple):
    """The inputs of the adjoint equation.

    Attributes:
        diff: The field's operands and t0 that are differentiated, None for the others.
        constant: The others.
        direction: 1 forwards in time, -1 backwards.
        table: The solution, or None where it is integrated too.
    """

    diff: PyTree
    constant: PyTree
    direction: Array
    table: Table | None


def forward_rhs(field: AbstractField, s: RealScalarLike, y: Y, diff: PyTree, operands: AdjointOperands) -> Y:
    """Returns g, the right-hand side of the equation forwards: the derivative of the state by the elapsed time."""
    values, t0 = eqx.combine(diff, operands.constant)
    out = field(t0 + operands.direction * s, y, values)
    return jax.tree.map(lambda k: k * operands.direction.astype(k.dtype), out)


def adjoint_rhs(field: AbstractField, s: RealScalarLike, x: Costate, operands: AdjointOperands) -> Costate:
    """Returns the right-hand side of the adjoint equation. Without `mu` no product by a parameter is made."""
    if operands.table is None:
        assert x.y is not None  # what is not recorded is integrated
        y = x.y
    else:
        y = state_at(operands.table, s)
    if x.mu is None:  # a quadrature makes it, see `_quadrature`
        _, pull = jax.vjp(lambda y: forward_rhs(field, s, y, operands.diff, operands), y)
        return Costate(None, _negative(pull(x.lam)[0]), None)
    out, pull = jax.vjp(lambda y, diff: forward_rhs(field, s, y, diff, operands), y, operands.diff)
    lam, mu = pull(x.lam)
    mu = jax.tree.map(lambda new, like: -new.astype(like.dtype), mu, x.mu)
    return Costate(None if x.y is None else out, _negative(lam), mu)


def blank_mu(diff: PyTree, dtype: Any) -> PyTree:
    """Returns zeros like the differentiated operands, with no more precision than time has."""

    def zeros(x):
        narrow = jnp.finfo(x.dtype).bits > jnp.finfo(dtype).bits
        variant = (jnp.complex64 if jnp.finfo(dtype).bits <= 32 else jnp.complex128) if jnp.iscomplexobj(x) else dtype
        return jnp.zeros(x.shape, variant if narrow else x.dtype)

    return jax.tree.map(zeros, diff)


def costate_tolerances(tolerances: Tolerances | None, x: Costate) -> Tolerances | None:
    """Returns the state's tolerances for what is integrated: `lam` has the state's, `mu` the tightest of them."""
    if tolerances is None:
        return None
    treedef = jax.tree.structure(x.lam)

    def extended(tolerance):
        leaves = jax.tree.leaves(tolerance)
        if len(leaves) == 1 and leaves[0].ndim == 0:
            return tolerance
        own = jax.tree.unflatten(treedef, spread(tolerance, treedef))
        least = jnp.min(jnp.stack([jnp.min(leaf) for leaf in leaves]))
        return Costate(None if x.y is None else own, own, jax.tree.map(lambda _: least, x.mu))

    return Tolerances(*map(extended, tolerances))


def _negative(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.negative, tree)
