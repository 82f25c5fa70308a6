r"""Explicit Runge-Kutta methods that keep two arrays of the size of the state, however many stages they have."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ...._checks import check_order
from ...._types import RealScalarLike, Y
from ...control._stability import Stability, of_polynomial
from .._capabilities import Limits, Traits
from .._stepper import AbstractStepper, BoundField, Step

_SHARES = {
    3: ((0.0, 1 / 3), (-5 / 9, 15 / 16), (-153 / 128, 8 / 15)),
    4: (
        (0.0, 1432997174477 / 9575080441755),
        (-567301805773 / 1357537059087, 5161836677717 / 13612068292357),
        (-2404267990393 / 2016746695238, 1720146321549 / 2090206949498),
        (-3550918686646 / 2091501179385, 3134564353537 / 4481467310338),
        (-1275806237668 / 842570457699, 2277821191437 / 14882151754819),
    ),
}


class LowStorage(AbstractStepper):
    r"""Explicit Runge-Kutta methods for large fields, which keep two arrays of the size of the state.

    | `order` | method |
    | --- | --- |
    | 3 | Williamson's, of three stages |
    | 4 | CK54 of Carpenter and Kennedy, of five stages; for waves, since per stage it is stable for longer steps than the classical method of order four |

    A stage makes $d \leftarrow A_i d + h f(t + c_i h, y)$ and $y \leftarrow y + B_i d$. For fixed steps.

    Attributes:
        order: 3 or 4.

    Raises:
        ValueError: If there is no method of this order.

    Source:
        J. H. Williamson, Low-storage Runge-Kutta schemes, J. Comput. Phys. 35 (1980); M. H. Carpenter, C. A. Kennedy,
        Fourth-order 2N-storage Runge-Kutta schemes, NASA TM 109112 (1994).

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        decay = lambda t, y, args: -y
        for order, most in ((3, 1e-4), (4, 1e-6)):
            solver = sciml.solvers.LowStorage(order)
            sol = sciml.solve(decay, jnp.ones(4), t0=0.0, t1=1.0, dt=0.1, solver=solver)
            assert abs(sol.ys[-1, 0] - jnp.exp(-1.0)) < most
        ```
    """  # noqa: E501

    order: int = eqx.field(static=True, default=4)
    has_error: ClassVar[bool] = False
    traits: ClassVar[Traits] = Traits(batched_vjp=True)

    def __check_init__(self):
        check_order(self.order, _SHARES, "LowStorage")

    @property
    def name(self) -> str:
        """With the order."""
        return f"LowStorage(order={self.order})"

    @property
    def evaluations(self) -> int:
        """Evaluations of the vector field per step."""
        return len(_SHARES[self.order])

    @property
    def limits(self) -> Limits:
        """By its stability."""
        return Limits(stability=self.stability)

    def stability(self) -> Stability:
        """The products of step and eigenvalue for which it is stable."""
        powers = [[1.0], [0.0]]  # the state and what is carried beside it, as polynomials in h times an eigenvalue
        for a, b in _SHARES[self.order]:
            y, d = powers
            d = [a * (d[k] if k < len(d) else 0.0) + (y[k - 1] if k else 0.0) for k in range(len(y) + 1)]
            y = [(y[k] if k < len(y) else 0.0) + b * d[k] for k in range(len(d))]
            powers = [y, d]
        return of_polynomial(tuple(powers[0]))

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        del memory
        change = jax.tree.map(jnp.zeros_like, y)
        done, rate = 0.0, 0.0  # the node of a stage is what the steps before it would have added to time
        for a, b in _SHARES[self.order]:
            slope = field(t + done * h, y)
            change = jax.tree.map(lambda d, f, a=a: a * d + jnp.asarray(h, f.dtype) * f, change, slope)
            y = jax.tree.map(lambda x, d, b=b: x + b * d, y, change)
            rate = a * rate + 1.0
            done = done + b * rate
        return Step(y)
