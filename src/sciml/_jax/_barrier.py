"""A barrier that XLA keeps on the CPU.

XLA drops `jax.lax.optimization_barrier` there before it fuses. It then computes all that leads up to a value once for
each of its uses, and takes minutes to compile that. A conditional stays: nothing is fused across it, and nothing known
at compile time decides which branch runs.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool


def behind_a_branch(holds: Bool[Array, ""], *arrays: Array, otherwise: float = 0.0) -> tuple[Array, ...]:
    """Returns arrays as they are, from a conditional.

    Args:
        holds: Its predicate, of which the compiler knows nothing and the caller that it holds.
        arrays: The arrays.
        otherwise: The fill values if it does not hold.
    """
    return jax.lax.cond(holds, lambda *xs: xs, lambda *xs: tuple(jnp.full_like(x, otherwise) for x in xs), *arrays)


def computed_once(*arrays: Array) -> tuple[Array, ...]:
    """Returns arrays as they are, from a conditional; not where none of them holds a real number."""
    first = next((x for x in arrays if jnp.issubdtype(x.dtype, jnp.floating) and x.size), None)
    if first is None:
        return arrays
    if len(arrays) > 1 and all(x.ndim == 0 for x in arrays):  # a branch copies each of its results
        kinds = dict.fromkeys(x.dtype for x in arrays)
        rows = computed_once(*(jnp.stack([x for x in arrays if x.dtype == kind]) for kind in kinds))
        entries = {kind: iter(list(row)) for kind, row in zip(kinds, rows)}
        return tuple(next(entries[x.dtype]) for x in arrays)
    # No number is below minus infinity, and NaN is not either; the compiler does not know the number.
    return behind_a_branch(~(first.reshape(-1)[0] < -jnp.inf), *arrays)


@jax.custom_batching.custom_vmap
def opaque(*arrays: Array) -> Array:
    """Returns 1 or more, by a call of LAPACK that XLA can neither see through nor leave out.

    The call depends on the first number of every array, all of one dtype. Under `vmap` there is one for all.
    """
    total = sum(x.reshape(-1)[0] for x in arrays)
    positive = jnp.where(total < 0, jnp.full_like(total, 2), jnp.ones_like(total))
    return jax.lax.linalg.cholesky(positive.reshape(1, 1), symmetrize_input=False)[0, 0]


@opaque.def_vmap
def _(axis_size, in_batched, *arrays):
    del axis_size
    return opaque(*(x[0] if batched else x for x, batched in zip(arrays, in_batched))), False


@jax.jit
def held_back(*arrays: Array) -> tuple[Array, ...]:
    """Returns arrays as they are, such that XLA fuses nothing across them; programs show it by its name."""
    return jax.lax.platform_dependent(
        *arrays, cpu=computed_once, default=lambda *xs: tuple(jax.lax.optimization_barrier(xs))
    )
