"""Schnakenberg's reaction, the simplest that makes Turing's patterns."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class Schnakenberg(AbstractModel):
    r"""A reaction of two substances, one that activates and one that is used up, well stirred.

    $$\dot u = \gamma (a - u + u^2 v), \qquad \dot v = \gamma (b - u^2 v)$$

    The state is the concentrations $(u, v)$, shape `(2,)`. The steady state is $u = a + b$, $v = b / (a + b)^2$
    (`rest`). Where it is stable, $b - a < (a + b)^3$, and $v$ diffuses fast enough beside $u$, small waves grow into
    spots and stripes: Turing's instability, from the ratio on that
    `sciml.verify.reference("turing_onset", ...)` returns. With diffusion it is
    `ReactionDiffusion(Schnakenberg(), grid, boundary, (1.0, 40.0))`.

    Good values: the defaults; with diffusion `(1.0, 40.0)`, a box of length 60, time from 0 to 100.

    Attributes:
        a: The supply of the first substance.
        b: That of the second.
        rate: $\gamma$, one over the time of the reaction; in units of length, the size of the domain squared.

    Source:
        J. Schnakenberg, J. Theor. Biol. 81:389, 1979; J. D. Murray, Mathematical Biology II, Springer, 2003, chapter 2.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Schnakenberg

        reaction = Schnakenberg(a=0.25, b=0.75)
        assert jnp.all(reaction(0.0, reaction.rest(), None) == 0.0)
        ```
    """

    a: Parameter = eqx.field(default=0.1, converter=parameter)
    b: Parameter = eqx.field(default=0.9, converter=parameter)
    rate: Parameter = eqx.field(default=1.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 2"], args: Args) -> Float[Array, " 2"]:
        """Returns the time derivative of $(u, v)$; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        u, v = y[0], y[1]
        used = u * u * v
        return p.rate * jnp.stack([p.a - u + used, p.b - used])

    def rest(self) -> Float[Array, " 2"]:
        """Returns the steady state."""
        total = self.a + self.b
        return jnp.stack([total, self.b / (total * total)])
