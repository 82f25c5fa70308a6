r"""The Milstein method, in the Stratonovich sense: in the other one its drift differs, and its steps are the same.

With $\tilde f = f - \tfrac12 \sum_j (\partial_y g_j) g_j$ for a model in the Ito sense,

$$y_1 = y + h \tilde f + g \, \Delta W + \tfrac12 \sum_{jk} (\partial_y g_k) g_j \, \Delta W_j \Delta W_k$$

Its strong order is 1 where the noise commutes, as diagonal, scalar and additive noise do, and else 1/2.

Source:
    P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), section 10.3.
"""

from typing import ClassVar

import jax

from ...._types import RealScalarLike, Y
from ...noise._closed_noise import BoundNoisyField
from ._abstract import AbstractStochasticStepper, plus, scaled


class Milstein(AbstractStochasticStepper):
    """The Milstein method."""

    interpretation: ClassVar[str] = "stratonovich"
    evaluations: ClassVar[int] = 1

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, None]:
        """Returns the state after a step."""
        w = field.increment(t, h).w
        noise = field.times(field.diffusion(t, y), w)
        _, change = jax.jvp(lambda y: field.times(field.diffusion(t, y), w), (y,), (noise,))
        return plus(y, scaled(h, field(t, y)), noise, scaled(0.5, change)), None
