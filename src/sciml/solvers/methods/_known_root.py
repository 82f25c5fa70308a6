r"""A root that an iteration has found, with the derivatives of the implicit function.

Where $r(z, p) = 0$, the root moves with the parameters by $r_z\, dz = -r_p\, dp$. So $z - r_z^{-1} r(z, p)$ has, at
the root as it was found, the value of the root and its first derivatives, and the same of that its second ones, too.

The iteration that found the root had a matrix $W$ near $r_z$, whose factors are used again: a system is solved by
$x \leftarrow x + W^{-1} (b - r_z x)$, which contracts where that iteration did. Reverse mode does so with the
transposed matrices.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._jax._largest import largest
from ..._jax._loops import scan, while_loop
from ..._jax._vma import match, run_program

MOST_ITERATIONS = 50
"""Iterations that have not converged by then are given up."""

_DERIVATIVES = 2


def known_root(
    residual: Callable[[Array], Array], z: Array, divide: Callable, divide_transposed: Callable, factors: PyTree
) -> Array:
    """Returns `z` with the first and second derivatives of the root of `residual`.

    Args:
        residual: A function that may close over what is differentiated.
        z: The root, as it was found.
        divide: `divide(factors, b)`, about the solution of the linearised system.
        divide_transposed: The same of the transposed system.
        factors: What both read.
    """
    program = jax.make_jaxpr(residual)(z)
    consts = list(program.consts)
    z, factors = match(jax.lax.stop_gradient((z, factors)), (z, factors, consts))
    moving = [jnp.issubdtype(jnp.result_type(x), jnp.inexact) for x in consts]

    def corrected(z: Array, factors: PyTree, consts: list) -> Array:
        def correct(z: Array, _: None) -> tuple[Array, None]:
            value, along = jax.linearize(lambda z: run_program(program.jaxpr, consts, z)[0], z)
            correction = jax.lax.custom_linear_solve(
                along,
                value - jax.lax.stop_gradient(value),
                lambda along, b: _refined(along, partial(divide, factors), b),
                lambda along, b: _refined(along, partial(divide_transposed, factors), b),
            )
            return z - correction, None

        return scan(correct, z, length=_DERIVATIVES, like=consts)[0]

    # where nothing is differentiated the program has the root alone
    @jax.custom_jvp
    def root(z: Array, factors: PyTree, consts: list) -> Array:
        del factors, consts
        return z

    @root.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
        z, factors, consts = primals

        def of_moving(some: list) -> Array:
            rest = iter(some)
            return corrected(z, factors, [next(rest) if m else x for x, m in zip(consts, moving)])

        given, along = ([x for x, m in zip(tree, moving) if m] for tree in (consts, tangents[2]))
        return root(z, factors, consts), jax.jvp(of_moving, (given,), (along,))[1]

    return root(z, factors, consts)


def _refined(along: Callable[[Array], Array], divide: Callable[[Array], Array], b: Array) -> Array:
    """Solves a linear system by an inverse of a matrix nearby, until corrections no longer shrink."""

    def iterate(carry: tuple) -> tuple:
        count, x, size, _ = carry
        correction = divide(b - along(x))
        now = largest(jnp.abs(correction))
        return count + 1, x + correction, now, shrinks(now, size, x)

    def shrinks(now: Array, before: Array, x: Array) -> Any:
        # NaN ends it, too
        return (now < 0.9 * before) & (now > jnp.finfo(now.dtype).eps / 4 * largest(jnp.abs(x)))

    x = divide(b)
    size = largest(jnp.abs(x))
    start = (match(jnp.zeros((), jnp.int32), x), x, size, size > 0)
    return while_loop(lambda c: c[3] & (c[0] < MOST_ITERATIONS), iterate, start, like=x)[1]
