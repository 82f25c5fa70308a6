"""The Mackey-Glass equation of blood cells."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._delayed import AbstractDelayed
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class MackeyGlass(AbstractDelayed):
    r"""White blood cells, whose making answers late to how many there are.

    $$\dot x = \beta \frac{x_\tau}{1 + x_\tau^n} - \gamma x, \qquad x_\tau = x(t - \tau)$$

    The state is $x$, their density over what halves the making, shape `()`. Before the start it is constant.

    Good values: the defaults, chaotic, with `y0 = 1.2` and time in days from 0 to 600. For delays below 4.71 it comes
    to rest at one (`sciml.verify.reference("mackey_glass_onset")`), and with a delay of 6 it oscillates.

    Attributes:
        production: $\beta$, 1/time.
        loss: $\gamma$, 1/time.
        exponent: $n$.
        delay: $\tau$, the time that a cell takes to ripen.
        initial: The state before the start.
        kept: How many of the last steps are kept; see `sciml.Delayed`.

    Source:
        M. C. Mackey and L. Glass, Oscillation and chaos in physiological control systems, Science 197:287, 1977, with
        its values.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        cells = sciml.models.MackeyGlass(delay=3.0)
        sol = sciml.solve(cells, 1.2, t0=0.0, t1=200.0, dt=0.5)
        assert abs(sol.ys[-1] - 1.0) < 1e-3
        ```
    """

    production: Parameter = eqx.field(default=0.2, converter=parameter)
    loss: Parameter = eqx.field(default=0.1, converter=parameter)
    exponent: Parameter = eqx.field(default=10.0, converter=parameter)
    delay: Parameter = eqx.field(default=17.0, converter=parameter)
    initial: Parameter = eqx.field(default=1.2, converter=parameter)
    kept: int = eqx.field(default=64, static=True)

    @property
    def delays(self) -> Parameter:
        """The delay."""
        return self.delay

    def rate(
        self, t: RealScalarLike, y: Float[Array, ""], delayed: tuple[Float[Array, ""]], args: Args
    ) -> Float[Array, ""]:
        """Returns what is made less what is lost; `t` and `args` are not used."""
        del t, args
        p, (past,) = with_dtype(self, y.dtype), delayed
        return p.production * past / (1 + past**p.exponent) - p.loss * y

    def before(self, t: RealScalarLike, args: Args) -> Float[Array, ""]:
        """Returns the state before the start; `args` is not used."""
        del args
        return with_dtype(self, jnp.result_type(t)).initial
