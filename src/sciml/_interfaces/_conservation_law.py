"""Conservation laws: the type that finite volumes and `solve` read."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._checks import check_real
from .._jax._largest import largest
from .._parameters import with_dtype
from .._types import Args, RealScalarLike
from ._model import AbstractModel


class Waves(NamedTuple):
    r"""The waves between two states, from a matrix $A$ with $f(u_R) - f(u_L) = A (u_R - u_L)$.

    Attributes:
        speeds: The eigenvalues of $A$, one for each component of the state.
        project: From a conserved state to its amounts of the eigenvectors.
        combine: From amounts of the eigenvectors to a conserved state.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import InviscidBurgers
        from sciml.spatial import Grid, Periodic

        law = InviscidBurgers(Grid(4), Periodic())
        waves = law.waves(jnp.array([1.0]), jnp.array([0.0]), 0)
        assert waves.speeds[0] == 0.5  # of the shock
        ```
    """

    speeds: Float[Array, "..."]
    project: Callable[[Array], Array]
    combine: Callable[[Array], Array]


class AbstractConservationLaw(AbstractModel):
    r"""A conservation law, $\partial_t u + \sum_k \partial_k f_k(u) = s$, by finite volumes.

    The state $u$ has the grid's axes last, and a first axis of components if there are several. A law provides its
    flux and the speeds of its waves; `volumes`, a `sciml.spatial.FiniteVolumes`, turns them into a vector field. All
    methods are elementwise over the grid, so that the same code serves cells and faces, any number of dimensions and
    members.

    `flux`, `speeds` and all methods for faces take *primitive* variables, such as density, velocity and pressure, which
    `primitive` and `conserved` convert; by default they are the conserved ones.

    By default `sciml.solve` uses a strong-stability-preserving method for it, `sciml.solvers.SSPRK33`, whose steps
    follow the fastest wave (`cfl=`).

    Attributes:
        volumes: How it is discretised in space.
        positive_components: The primitive variables that must be positive.
        primitive_names: Names of the primitive variables in messages; a vector has one.

    Source:
        R. J. LeVeque, Finite Volume Methods for Hyperbolic Problems, Cambridge, 2002; E. F. Toro, Riemann Solvers and
        Numerical Methods for Fluid Dynamics, Springer, 2009.

    Example:
        ```python
        from typing import Any

        import jax.numpy as jnp
        import sciml
        from sciml.spatial import FiniteVolumes, Grid, Muscl, Periodic, Rusanov

        class BuckleyLeverett(sciml.AbstractConservationLaw):
            volumes: Any
            mobility: Any = 0.25

            def flux(self, w, axis):
                return w**2 / (w**2 + self.mobility * (1 - w) ** 2)

            def speeds(self, w, axis):
                below = w**2 + self.mobility * (1 - w) ** 2
                speed = 2 * self.mobility * w * (1 - w) / below**2
                return speed, speed

        grid = Grid(100)
        law = BuckleyLeverett(FiniteVolumes(grid, Periodic(), Muscl(), Rusanov()))
        y0 = jnp.where(grid.centers[0] < 0.5, 1.0, 0.0)
        sol = sciml.solve(law, y0, t0=0.0, t1=0.2)
        assert abs(grid.integrate(sol.ys[-1]) - 0.5) < 1e-5 and sol.solver == "SSPRK33"
        ```
    """

    volumes: eqx.AbstractVar[Any]
    positive_components: ClassVar[tuple[int, ...]] = ()
    primitive_names: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def flux(self, w: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
        """Returns the flux along an axis, of conserved components, of a primitive state."""

    @abc.abstractmethod
    def speeds(self, w: Float[Array, "..."], axis: int) -> tuple[Array, Array]:
        """Returns the speeds of the slowest and of the fastest wave along an axis, of the shape of one component."""

    def primitive(self, y: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the primitive variables of a conserved state."""
        return y

    def conserved(self, w: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the conserved state of primitive variables."""
        return w

    def source(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."] | None:
        """Returns an addition to the rates of the conserved state; None, the default, for nothing."""
        del t, y, args

    def positive(self, y: Float[Array, "..."]) -> tuple[Array, ...]:
        """Returns the quantities that must be positive, such as density and pressure; by default none.

        Each must be a concave function of the state where those before it are positive.
        """
        del y
        return ()

    def bounds(self, left: Float[Array, "..."], right: Float[Array, "..."], axis: int) -> tuple[Array, Array]:
        """Returns bounds of the speeds of all waves that leave a jump; by default from the speeds of both states."""
        low, high = zip(self.speeds(left, axis), self.speeds(right, axis))
        return jnp.minimum(*low), jnp.maximum(*high)

    def waves(self, left: Float[Array, "..."], right: Float[Array, "..."], axis: int) -> Waves:
        """Returns the waves between two states, for `sciml.spatial.Roe` and `sciml.spatial.Characteristic`.

        Raises:
            TypeError: If the law does not define them, which is the default.
        """
        raise TypeError(self._lacks("waves", "`Roe` and `Characteristic` need; take `HLL` or `Rusanov`"))

    def contact(
        self, left: Float[Array, "..."], right: Float[Array, "..."], low: Array, high: Array, axis: int
    ) -> Float[Array, "..."]:
        """Returns the speed of the wave between the outer two, for `sciml.spatial.HLLC`.

        Raises:
            TypeError: If the law does not define it, which is the default.
        """
        raise TypeError(self._lacks("contact", "`HLLC` needs; take `HLL` or `Rusanov`"))

    def behind(self, w: Float[Array, "..."], speed: Array, contact: Array, axis: int) -> Float[Array, "..."]:
        """Returns the conserved state between an outer wave of a speed and the contact, for `sciml.spatial.HLLC`.

        Raises:
            TypeError: If the law does not define it, which is the default.
        """
        raise TypeError(self._lacks("behind", "`HLLC` needs; take `HLL` or `Rusanov`"))

    def mirrored(self, w: Float[Array, "..."], axis: int, velocity: Array) -> Float[Array, "..."]:
        """Returns the mirror image of a state at a mirror across an axis, which moves with a velocity.

        Raises:
            TypeError: If the law does not define it, which is the default.
        """
        raise TypeError(self._lacks("mirrored", "`Reflecting` and `MovingWall` need"))

    def sticking(
        self, w: Float[Array, "..."], axis: int, velocity: Array | None, temperature: Array | None
    ) -> Float[Array, "..."]:
        """Returns the ghost state of a no-slip wall across an axis.

        By default a mirror at rest: without viscosity the flow slips.

        Args:
            w: The primitive states next to the wall.
            axis: The axis.
            velocity: The velocity of the wall, one value for each axis of the grid, or None for a wall at rest.
            temperature: The temperature of the wall, or None for an insulating wall.
        """
        del velocity, temperature
        return self.mirrored(w, axis, jnp.zeros((), w.dtype))

    def pressing(self, w: Float[Array, "..."]) -> Float[Array, "..."] | None:
        """Returns the part of the flux along the first axis that presses in all directions alike, as a pressure does.

        Finite volumes use it for the force along a radius, in coordinates that have one. By default None: the law has
        no such form.
        """
        del w

    def outside(self, given: Float[Array, "..."], inside: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns a primitive state that was given at a side, as a ghost cell beyond the cells `inside`."""
        return jnp.broadcast_to(given, inside.shape)

    def balanced(
        self, left: Float[Array, "..."], right: Float[Array, "..."], axis: int
    ) -> tuple[Array, Array, Array | None, Array | None]:
        """Returns the states that meet at a face, and the additional flux that either side sees there.

        For laws with a term that balances the flux at rest, as the slope of a bed does. By default the states
        unchanged, and None.
        """
        del axis
        return left, right, None, None

    def within(self, lower: Float[Array, "..."], upper: Float[Array, "..."], axis: int) -> Float[Array, "..."] | None:
        """Returns the integral over a cell, along an axis, of the term that balances the flux.

        By default None, for nothing.
        """
        del lower, upper, axis

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions, and to the source."""
        check_real(y, self)
        p = with_dtype(self, y.dtype)
        rates = p.volumes.rates(p, t, y, args)
        source = p.source(t, y, args)
        return rates if source is None else rates + source

    def crossing_rate(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, ""]:
        r"""Returns how many cells the fastest wave crosses in a unit of time, $\max \sum_k |\lambda_k| / h_k$.

        A step of length $h$ has the Courant number $h$ times this, which `solve(cfl=...)` keeps.
        """
        del t, args
        p = with_dtype(self, y.dtype)
        return p.volumes.crossing_rate(p, y)

    def spectrum(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns eigenvalues of the Jacobian in smooth flow, from which `sciml.solve` derives stable steps."""
        return self.volumes.reconstruction.spectrum(self.crossing_rate(t, y, args))

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns a bound on the modulus of the eigenvalues of the Jacobian in smooth flow."""
        return largest(jnp.abs(self.spectrum(t, y, args)))

    def with_kernel(self, y: Float[Array, "..."], request: Any) -> "AbstractConservationLaw":
        """Returns the law with rates by a kernel, if one is used for it; `sciml.solve` passes its backend.

        Args:
            y: A state, or its shape and dtype.
            request: The requested arguments.

        Raises:
            ValueError: If a kernel was requested that cannot run the law.
        """
        return eqx.tree_at(lambda law: law.volumes, self, self.volumes.with_kernel(self, y, request))

    def admissible(self, y: Float[Array, "..."]) -> Bool[Array, ""]:
        """Returns whether everything that has to be positive is so everywhere."""
        found = with_dtype(self, y.dtype).positive(y)
        if not found:
            return jnp.ones((), bool)
        return self.volumes.sides.everywhere(jnp.stack([jnp.all(x > 0) for x in found]))

    def _lacks(self, name: str, why: str) -> str:
        return f"`{type(self).__name__}` has no method `{name}`, which {why}."


def over_components(x: Array, state: Array) -> Array:
    """Also returns a number for each cell as one for each component of a state."""
    return x if x.ndim == state.ndim else x[None]
