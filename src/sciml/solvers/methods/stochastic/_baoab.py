r"""The splitting BAOAB of the Langevin equation: kick, drift, bath, drift, kick.

$$v \mathrel{+}= \tfrac{h}{2} a(x), \quad x \mathrel{+}= \tfrac{h}{2} v, \quad
v \leftarrow e^{-\gamma h} v + \sqrt{(1 - e^{-2 \gamma h}) k_B T / m} \; \xi, \quad
x \mathrel{+}= \tfrac{h}{2} v, \quad v \mathrel{+}= \tfrac{h}{2} a(x), \qquad \xi = \Delta W / \sqrt h.$$

Source:
    B. Leimkuhler, C. Matthews, Rational construction of stochastic numerical methods for molecular sampling, Applied
    Mathematics Research eXpress 2013 (2013) 34.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...._interfaces._langevin import Langevin
from ...._types import Args, RealScalarLike
from ...noise._closed_noise import BoundNoisyField, ModelWithNoise, close_noise
from ._abstract import AbstractStochasticStepper


class BAOAB(AbstractStochasticStepper):
    r"""The splitting BAOAB, for a `sciml.Langevin`: positions keep their law with steps near the limit of stability.

    Averages over positions have an error of order $h^2$, and none for a harmonic force. Each step evaluates the force
    twice.

    Source:
        B. Leimkuhler, C. Matthews, Applied Mathematics Research eXpress 2013 (2013) 34.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        wells = sciml.Langevin(lambda t, x, args: x - x**3, friction=0.5, temperature=0.2)
        sol = sciml.solve(
            wells, (jnp.ones(()), jnp.zeros(())), t0=0.0, t1=10.0, dt=0.1, key=jax.random.key(0),
            solver=sciml.solvers.BAOAB(),
        )
        assert sol.ys[0].shape == (1,)
        ```
    """

    evaluations: ClassVar[int] = 2

    def close(self, model: Callable, t: Array, y: Any, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns acceleration, bath and increments as closed functions, with their operands.

        Raises:
            TypeError: If the model is not a `sciml.Langevin`.
        """
        del h
        if not isinstance(model, ModelWithNoise) or not isinstance(model.model, Langevin):
            raise TypeError("`solver=BAOAB()` requires a Langevin equation, a `sciml.Langevin`.")

        def bath(model, args, h):
            del args
            model = model.model
            kept = jnp.exp(-model.friction.astype(h.dtype) * h)
            return kept, jnp.sqrt(-jnp.expm1(-2 * model.friction.astype(h.dtype) * h)), model.temperature / model.mass

        more = {
            "acceleration": (lambda model, args, t, x: model.model.acceleration(t, x, args), (t, y[0])),
            "bath": (bath, (t,)),
        }
        return close_noise(model, t, y, args, self.interpretation, self.with_area, more)

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Any) -> tuple[Any, None]:
        """Returns the state after a step."""
        (x, v), (_, w) = y, field.increment(t, h).w
        kept, spread, energy = field["bath"](jnp.asarray(h))
        some = h > 0
        root = jnp.sqrt(jnp.where(some, h, jnp.ones_like(h)))

        def kicked(t: RealScalarLike, x: Any, v: Any) -> Any:
            return jax.tree.map(lambda v, a: v + jnp.asarray(h / 2, v.dtype) * a, v, field["acceleration"](t, x))

        def moved(x: Any, v: Any) -> Any:
            return jax.tree.map(lambda x, v: x + jnp.asarray(h / 2, x.dtype) * v, x, v)

        def in_bath(v: Array, w: Array) -> Array:
            heat = spread.astype(v.dtype) * jnp.sqrt(energy.astype(v.dtype))
            return kept.astype(v.dtype) * v + heat * (w / jnp.asarray(root, w.dtype)).astype(v.dtype)

        v = kicked(t, x, v)
        x = moved(x, v)
        v = jax.tree.map(in_bath, v, w)
        x = moved(x, v)
        return (x, kicked(t + h, x, v)), None
