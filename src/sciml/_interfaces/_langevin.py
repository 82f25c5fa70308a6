"""Particles in a bath: the underdamped Langevin equation."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._checks import no_instance
from .._types import Args, RealScalarLike, Y
from ._stochastic import AbstractStochastic


class Langevin(AbstractStochastic):
    r"""The Langevin equation of particles in a bath of a temperature.

    $$dx = v \, dt, \qquad m \, dv = F(t, x) \, dt - \gamma m v \, dt + \sqrt{2 \gamma m k_B T} \, dW.$$

    The state is the pair $(x, v)$ of positions and velocities, two PyTrees of one structure. In the long run they are
    distributed as $\exp(-(U(x) + m v^2 / 2) / k_B T)$ where $F = -\nabla U$. `sciml.solvers.BAOAB()` is made for it;
    any method for additive noise also solves it.

    Attributes:
        force: $F$, a function `force(t, x, args)` that returns a PyTree like `x`.
        friction: $\gamma$, in 1/time.
        temperature: $k_B T$, in units of energy.
        mass: $m$, a number or an array that broadcasts to every leaf of `x`.

    Raises:
        TypeError: If the force is not a function.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        spring = sciml.Langevin(lambda t, x, args: -x, friction=1.0, temperature=0.5)
        start = (jnp.zeros(1000), jnp.zeros(1000))  # a thousand springs
        sol = sciml.solve(
            spring, start, t0=0.0, t1=20.0, dt=0.5, key=jax.random.key(0), solver=sciml.solvers.BAOAB()
        )
        assert abs(jnp.var(sol.ys[0][-1]) - 0.5) < 0.1
        ```
    """

    _force: Callable
    friction: Array
    temperature: Array
    mass: Array
    noise: ClassVar[str] = "additive"

    def __init__(self, force: Any, friction: Any, temperature: Any, mass: Any = 1.0):
        if not callable(force):
            raise TypeError(f"`force` must be a function `force(t, x, args)`, but {no_instance(force)}.")
        self._force = force
        self.friction, self.temperature, self.mass = (
            jnp.asarray(x, float) if isinstance(x, int | float) else jnp.asarray(x)
            for x in (friction, temperature, mass)
        )

    def force(self, t: RealScalarLike, x: Y, args: Args) -> Y:
        """Returns $F(t, x)$."""
        return self._force(t, x, args)

    def acceleration(self, t: RealScalarLike, x: Y, args: Args) -> Y:
        """Returns $F(t, x) / m$."""
        return jax.tree.map(lambda f: f / self.mass.astype(f.dtype), self.force(t, x, args))

    def drift(self, t: RealScalarLike, y: tuple[Y, Y], args: Args) -> tuple[Y, Y]:
        """Returns velocities and accelerations."""
        x, v = y
        return v, jax.tree.map(lambda a, v: a - self.friction.astype(v.dtype) * v, self.acceleration(t, x, args), v)

    def diffusion(self, t: RealScalarLike, y: tuple[Y, Y], args: Args) -> PyTree:
        """Returns nothing for the positions, and for the velocities the noise that keeps the temperature."""
        del t, args
        x, v = y
        strength = jnp.sqrt(2 * self.friction * self.temperature / self.mass)
        return (
            jax.tree.map(jnp.zeros_like, x),
            jax.tree.map(lambda v: jnp.broadcast_to(strength.astype(v.dtype), v.shape), v),
        )
