"""A barrier that XLA keeps on the CPU.

XLA drops `jax.lax.optimization_barrier` there before it fuses. It then computes all that leads up to a value once for
each of its uses, and takes minutes to compile that. A conditional stays: nothing is fused across it, and nothing known
when compiled says which way it goes.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool


def behind_a_branch(holds: Bool[Array, ""], *arrays: Array, otherwise: float = 0.0) -> tuple[Array, ...]:
    """Returns arrays as they are, from a conditional.

    Args:
        holds: Its predicate, of which the compiler knows nothing and the caller that it holds.
        arrays: The arrays.
        otherwise: What they would be filled with where it does not hold.
    """
    return jax.lax.cond(holds, lambda *xs: xs, lambda *xs: tuple(jnp.full_like(x, otherwise) for x in xs), *arrays)
