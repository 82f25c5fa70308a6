"""Reactions of single molecules."""

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


class Schloegl(AbstractReactions):
    r"""A reaction that makes more of its own product, and so has two stable states.

    $$A + 2 X \underset{c_2}{\overset{c_1}{\rightleftharpoons}} 3 X, \qquad
    B \underset{c_4}{\overset{c_3}{\rightleftharpoons}} X$$

    The state is $(n)$, the count of $X$, shape `(1,)`; there is always as much of $A$ and $B$. The propensities are
    $c_1 A\, n (n - 1) / 2$, $c_2\, n (n - 1)(n - 2) / 6$, $c_3 B$ and $c_4 n$.

    Good values: the defaults, with `y0 = (250,)` and time from 0 to 20. The rate equation is at rest near 85, 248 and
    570, and leaves the second; chance moves single paths to the first or to the third. The law in the
    long run is `sciml.verify.reference("one_step_law", ...)`.

    Attributes:
        forward: $c_1$, by which two $X$ and an $A$ make three $X$.
        backward: $c_2$, by which three $X$ make two.
        inflow: $c_3$, by which a $B$ becomes an $X$.
        outflow: $c_4$, by which an $X$ becomes a $B$.
        a: How many $A$ there are.
        b: How many $B$ there are.

    Source:
        F. Schloegl, Z. Phys. 253:147, 1972. Values: Y. Cao and L. Petzold, J. Comput. Phys. 212:6, 2006.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        model = sciml.models.Schloegl()
        options = dict(t0=0.0, t1=10.0, max_steps=100_000)
        solve = lambda key: sciml.solve(model, jnp.full(1, 250.0), key=key, **options).ys[-1, 0]
        ends = jax.vmap(solve)(jax.random.split(jax.random.key(0), 50))
        assert 0.1 < jnp.mean(ends > 247) < 0.9
        ```
    """

    forward: Parameter = eqx.field(default=3e-7, converter=parameter)
    backward: Parameter = eqx.field(default=1e-4, converter=parameter)
    inflow: Parameter = eqx.field(default=1e-3, converter=parameter)
    outflow: Parameter = eqx.field(default=3.5, converter=parameter)
    a: Parameter = eqx.field(default=1e5, converter=parameter)
    b: Parameter = eqx.field(default=2e5, converter=parameter)
    stoichiometry: ClassVar[np.ndarray] = np.array([[1], [-1], [1], [-1]])

    def propensities(self, x: Float[Array, " 1"], args: Args) -> Float[Array, " 4"]:
        """Returns how often each reaction happens; `args` is not used."""
        del args
        p = with_dtype(self, x.dtype)
        n = x[0]
        pairs = n * (n - 1) / 2
        return jnp.stack(
            [p.forward * p.a * pairs, p.backward * pairs * (n - 2) / 3, p.inflow * p.b, p.outflow * n],
        )
