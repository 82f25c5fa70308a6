"""A problem whose state is a PyTree."""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ._problem import Problem, elapsed, floating


class Parts(AbstractModel):
    """Decay of a table of values, beside an oscillator of two scalars."""

    rates: Float[Array, " columns"] = eqx.field(converter=parameter)
    omega: Parameter = eqx.field(default=2.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: dict, args: Args) -> dict:
        """Returns the derivative, a dictionary like `y`."""
        del t, args
        table, (x, v) = y["table"], y["pair"]
        p = with_dtype(self, table.dtype)
        return {"table": -p.rates[None, :] * table, "pair": (v, -(p.omega**2) * x)}


def pytree_state(*, dtype: DTypeLike | None = None) -> Problem:
    r"""Returns a problem whose state is `{"table": (2, 3) array, "pair": (scalar, scalar)}`.

    The columns of the table decay, the pair is a harmonic oscillator; time runs from 0 to 2.

    Args:
        dtype: The dtype of all leaves; the default floating type if None.

    Example:
        ```python
        from sciml import verify

        end = verify.problem("pytree_state").end()
        assert end["table"].shape == (2, 3) and end["pair"][0].shape == ()
        ```
    """
    dtype = floating(dtype)
    return Problem(
        model=Parts(rates=jnp.asarray([0.5, 1.0, 2.0], dtype)),
        y0={
            "table": jnp.asarray([[1.0, 2.0, 3.0], [-1.0, 0.5, 4.0]], dtype),
            "pair": (jnp.asarray(1.0, dtype), jnp.asarray(-0.5, dtype)),
        },
        t0=0.0,
        t1=2.0,
        exact=_parts,
        name="PyTree state",
        source="exact: exponentials, and a harmonic oscillator",
    )


def _parts(problem, t):
    table, (x, v) = problem.y0["table"], problem.y0["pair"]
    p = with_dtype(problem.model, table.dtype)
    time = elapsed(problem, t, table.dtype)
    cos, sin = jnp.cos(p.omega * time), jnp.sin(p.omega * time)
    return {
        "table": table * jnp.exp(-p.rates * time)[None, :],
        "pair": (x * cos + v / p.omega * sin, v * cos - x * p.omega * sin),
    }
