"""Reactions of concentrations: oscillators, stiff test problems and patterns."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike


class Brusselator(AbstractModel):
    r"""A chemical oscillator, well stirred.

    $$\dot u = a + u^2 v - (b + 1) u, \qquad \dot v = b u - u^2 v$$

    The state is the concentrations $(u, v)$, shape `(2,)`. The steady state $(a, b/a)$ is
    unstable, and a limit cycle surrounds it, when $b > 1 + a^2$.

    Good values: the defaults, `y0 = (1.5, 3)`, time from 0 to 20.

    Attributes:
        a: Rate of the supply.
        b: Rate of the conversion of $u$ to $v$.

    Source:
        I. Prigogine and R. Lefever, J. Chem. Phys. 48:1695, 1968; values from E. Hairer,
        S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, section II.4.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Brusselator

        assert jnp.all(Brusselator(a=2.0, b=3.0)(0.0, jnp.array([2.0, 1.5]), None) == 0.0)
        ```
    """

    a: Parameter = eqx.field(default=1.0, converter=parameter)
    b: Parameter = eqx.field(default=3.0, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 2"], args: Args) -> Float[Array, " 2"]:
        """Returns the time derivative of $(u, v)$; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        u, v = y[0], y[1]
        autocatalysis = u**2 * v
        conversion = p.b * u
        return jnp.stack([p.a + autocatalysis - conversion - u, conversion - autocatalysis])


class HIRES(AbstractModel):
    r"""High irradiance responses: how a plant grows and differentiates under light.

    $$\begin{aligned}
    \dot y_1 &= -k_1 y_1 + k_2 y_2 + k_6 y_3 + o \\
    \dot y_2 &= k_1 y_1 - (k_2 + k_3) y_2 \\
    \dot y_3 &= -(k_1 + k_6) y_3 + k_2 y_4 + k_5 y_5 \\
    \dot y_4 &= k_3 y_2 + k_1 y_3 - (k_2 + k_4) y_4 \\
    \dot y_5 &= -(k_1 + k_5) y_5 + k_2 (y_6 + y_7) \\
    \dot y_6 &= -k_+ y_6 y_8 + k_4 y_4 + k_1 y_5 - k_2 y_6 + k_- y_7 \\
    \dot y_7 &= k_+ y_6 y_8 - (k_2 + k_- + k_*) y_7 \\
    \dot y_8 &= -\dot y_7
    \end{aligned}$$

    The state is eight concentrations, shape `(8,)`; $y_7 + y_8$ is constant.

    Good values: the defaults, `y0 = (1, 0, 0, 0, 0, 0, 0, 0.0057)`, time from 0 to 321.8122. It is
    moderately stiff.

    Attributes:
        k1: Rate of the conversion by red light, as all other rates in 1/time.
        k2: Rate of the conversion by far-red light.
        k3: Rate of the first transport.
        k4: Rate of the binding.
        k5: Rate of the release of the third species.
        k6: Rate of the return to the first species.
        k_plus: Rate of the second-order reaction, 1/(concentration x time).
        k_minus: Rate of its reverse.
        k_star: Rate of the loss from the seventh species.
        source: Supply of the first species $o$, concentration/time.

    Source:
        E. Schaefer, J. Math. Biol. 2:41, 1975; problem HIRES of the Test Set for IVP Solvers.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import HIRES

        y = jnp.zeros(8).at[0].set(1.0)
        assert jnp.allclose(HIRES()(0.0, y, None)[:2], jnp.array([-1.7093, 1.71]))
        ```
    """

    stiff: ClassVar[bool] = True
    k1: Parameter = eqx.field(default=1.71, converter=parameter)
    k2: Parameter = eqx.field(default=0.43, converter=parameter)
    k3: Parameter = eqx.field(default=8.32, converter=parameter)
    k4: Parameter = eqx.field(default=0.69, converter=parameter)
    k5: Parameter = eqx.field(default=0.035, converter=parameter)
    k6: Parameter = eqx.field(default=8.32, converter=parameter)
    k_plus: Parameter = eqx.field(default=280.0, converter=parameter)
    k_minus: Parameter = eqx.field(default=0.69, converter=parameter)
    k_star: Parameter = eqx.field(default=0.69, converter=parameter)
    source: Parameter = eqx.field(default=0.0007, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 8"], args: Args) -> Float[Array, " 8"]:
        """Returns the time derivative of the concentrations; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        y1, y2, y3, y4, y5, y6, y7, y8 = (y[i] for i in range(8))
        binding = p.k_plus * y6 * y8
        release = (p.k2 + p.k_minus + p.k_star) * y7
        return jnp.stack(
            [
                -p.k1 * y1 + p.k2 * y2 + p.k6 * y3 + p.source,
                p.k1 * y1 - (p.k2 + p.k3) * y2,
                -(p.k1 + p.k6) * y3 + p.k2 * y4 + p.k5 * y5,
                p.k3 * y2 + p.k1 * y3 - (p.k2 + p.k4) * y4,
                -(p.k1 + p.k5) * y5 + p.k2 * (y6 + y7),
                -binding + p.k4 * y4 + p.k1 * y5 - p.k2 * y6 + p.k_minus * y7,
                binding - release,
                release - binding,
            ]
        )

    def bound(self, y: Float[Array, " 8"]) -> Float[Array, ""]:
        """Returns $y_7 + y_8$, constant in time."""
        return y[6] + y[7]


class Oregonator(AbstractModel):
    r"""The Belousov-Zhabotinskii reaction in three species.

    $$\dot y_1 = s (y_2 + y_1 (1 - q y_1 - y_2)), \qquad
    \dot y_2 = \frac{y_3 - (1 + y_1) y_2}{s}, \qquad
    \dot y_3 = w (y_1 - y_3)$$

    The state is scaled concentrations, shape `(3,)`. They swing over five orders of magnitude.

    Good values: the defaults, `y0 = (1, 2, 3)`, time from 0 to 360 (one period is about 303). It
    needs a stiff solver.

    Attributes:
        s: Ratio of the fast rates.
        q: Strength of the saturation.
        w: Rate of the third species.

    Source:
        R. J. Field and R. M. Noyes, J. Chem. Phys. 60:1877, 1974; problem OREGO of the Test Set for
        IVP Solvers.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Oregonator

        rates = Oregonator(s=2.0, q=0.5, w=0.1)(0.0, jnp.array([1.0, 2.0, 3.0]), None)
        assert jnp.allclose(rates, jnp.array([1.0, -0.5, -0.2]))
        ```
    """

    stiff: ClassVar[bool] = True
    s: Parameter = eqx.field(default=77.27, converter=parameter)
    q: Parameter = eqx.field(default=8.375e-6, converter=parameter)
    w: Parameter = eqx.field(default=0.161, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 3"], args: Args) -> Float[Array, " 3"]:
        """Returns the time derivative of the concentrations; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        y1, y2, y3 = y[0], y[1], y[2]
        return jnp.stack(
            [
                p.s * (y2 + y1 * (1 - p.q * y1 - y2)),
                (y3 - (1 + y1) * y2) / p.s,
                p.w * (y1 - y3),
            ]
        )


class Robertson(AbstractModel):
    r"""Three species whose reactions differ in speed by nine orders of magnitude.

    $$A \xrightarrow{k_1} B, \qquad B + B \xrightarrow{k_2} C + B, \qquad
    B + C \xrightarrow{k_3} A + C$$

    $$\dot a = -k_1 a + k_3 b c, \qquad \dot b = k_1 a - k_3 b c - k_2 b^2, \qquad
    \dot c = k_2 b^2$$

    The state is the concentrations $(a, b, c)$, shape `(3,)`; their sum is constant.

    Good values: the defaults, `y0 = (1, 0, 0)`, time from 0 to 40 or, to test a solver, to 1e11.
    It is stiff, and takes an absolute tolerance below the size of $b$, about 1e-5 and falling.

    Attributes:
        k1: Rate of the slow reaction, 1/time.
        k2: Rate of the fast reaction, 1/(concentration x time).
        k3: Rate of the reaction back, 1/(concentration x time).

    Source:
        H. H. Robertson, The solution of a set of reaction rate equations, 1966; problem ROBER of
        the Test Set for IVP Solvers.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Robertson

        rates = Robertson()(0.0, jnp.array([1.0, 0.0, 0.0]), None)
        assert jnp.allclose(rates, jnp.array([-0.04, 0.04, 0.0]))
        ```
    """

    stiff: ClassVar[bool] = True
    k1: Parameter = eqx.field(default=0.04, converter=parameter)
    k2: Parameter = eqx.field(default=3e7, converter=parameter)
    k3: Parameter = eqx.field(default=1e4, converter=parameter)

    def __call__(self, t: RealScalarLike, y: Float[Array, " 3"], args: Args) -> Float[Array, " 3"]:
        """Returns the time derivative of $(a, b, c)$; `t` and `args` are not used."""
        del t, args
        p = with_dtype(self, y.dtype)
        a, b, c = y[0], y[1], y[2]
        slow = p.k1 * a
        fast = p.k2 * b**2
        back = p.k3 * b * c
        return jnp.stack([back - slow, slow - back - fast, fast])

    def total(self, y: Float[Array, " 3"]) -> Float[Array, ""]:
        """Returns the sum of the concentrations, constant in time."""
        return y[0] + y[1] + y[2]


class Schnakenberg(AbstractModel):
    r"""A reaction of two substances, one that activates and one that is used up, well stirred.

    $$\dot u = \gamma (a - u + u^2 v), \qquad \dot v = \gamma (b - u^2 v)$$

    The state is the concentrations $(u, v)$, shape `(2,)`. The steady state is $u = a + b$, $v = b / (a + b)^2$
    (`rest`). If it is stable, $b - a < (a + b)^3$, and $v$ diffuses fast enough compared with $u$, small waves grow
    into spots and stripes: Turing's instability, from the ratio on that `sciml.verify.reference("turing_onset", ...)`
    returns. With diffusion it is `ReactionDiffusion(Schnakenberg(), grid, boundary, (1.0, 40.0))`.

    Good values: the defaults; with diffusion `(1.0, 40.0)`, a box of length 60, time from 0 to 100.

    Attributes:
        a: The supply of the first substance.
        b: The supply of the second.
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
