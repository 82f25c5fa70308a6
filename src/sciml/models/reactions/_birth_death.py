"""Births and deaths, one by one."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._interfaces._reactions import AbstractReactions
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args


class BirthDeath(AbstractReactions):
    r"""Molecules that are made at a constant rate, each of which decays by chance.

    $$\varnothing \xrightarrow{\;b\;} X, \qquad X \xrightarrow{\;d\;} \varnothing$$

    The state is $(n)$, the count, shape `(1,)`. From none at the start it is Poisson at every time, with the mean
    $(b / d)(1 - e^{-d t})$; see `sciml.verify.reference("birth_death_law")`.

    Good values: the defaults, in 1/s, with `y0 = (0,)` and time from 0 to 100.

    Attributes:
        birth: $b$, how many are made in a unit of time.
        death: $d$, at which each decays, 1/time.

    Source:
        R. Erban, S. J. Chapman and P. K. Maini, A practical guide to stochastic simulations of reaction-diffusion
        processes, 2007, arXiv:0704.1908, section 2.2, with its values.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        model = sciml.models.BirthDeath()
        solve = lambda key: sciml.solve(model, jnp.zeros(1), t0=0.0, t1=60.0, key=key).ys[-1, 0]
        counts = jax.vmap(solve)(jax.random.split(jax.random.key(0), 1000))
        assert abs(counts.mean() - 10.0) < 0.5 and abs(counts.var() - 10.0) < 2.0
        ```
    """

    birth: Parameter = eqx.field(default=1.0, converter=parameter)
    death: Parameter = eqx.field(default=0.1, converter=parameter)
    stoichiometry: ClassVar[np.ndarray] = np.array([[1], [-1]])

    def propensities(self, x: Float[Array, " 1"], args: Args) -> Float[Array, " 2"]:
        """Returns how often there is a birth and a death; `args` is not used."""
        del args
        p = with_dtype(self, x.dtype)
        return jnp.stack([p.birth, p.death * x[0]])
