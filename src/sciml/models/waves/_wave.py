"""The wave equation and the Klein-Gordon equation."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_real
from ..._interfaces._model import AbstractModel, AbstractSecondOrder
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...kernels.stencil import StencilRates
from ...spatial import Laplacian
from ...spatial._abstract_grid import AbstractGrid
from .._cells import as_inputs, check_axes, rates


class Wave(AbstractModel):
    r"""Waves of a constant or varying speed.

    $$\partial_t u = w, \qquad \partial_t w = c^2 \nabla^2 u$$

    The state is the pair $(u, w)$ of displacement and its rate, shape `(2, *grid)`. A mode oscillates with
    $\omega = c |k|$; if nothing passes the walls and $c$ is constant, the energy
    $\tfrac12 \int w^2 + c^2 |\nabla u|^2$ is conserved.

    Good values: `speed=1`, a box of length 1, time from 0 to 2.

    Attributes:
        laplacian: The operator, with the boundary conditions of $u$.
        speed: $c$, a number or an array over the grid.

    Args:
        grid: The grid.
        boundary: The conditions at the sides.
        speed: $c$.
        order: The order of accuracy in space, 2, 4, 6 or 8.

    Raises:
        ValueError: If the state or the speed has the wrong shape.

    Source:
        J. d'Alembert, Hist. Acad. Sci. Berlin 3:214, 1747.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import Wave
        from sciml.spatial import Dirichlet, Grid

        grid = Grid(64)
        (x,) = grid.centers
        u0 = jnp.sin(jnp.pi * x)
        model = Wave(grid, Dirichlet(0.0), speed=1.0)
        sol = sciml.solve(model, jnp.stack([u0, 0 * u0]), t0=0.0, t1=1.0, dt=0.005)
        assert jnp.allclose(sol.ys[-1, 0], -u0, atol=1e-3)  # after half a period
        ```
    """

    laplacian: Laplacian
    speed: Parameter

    def __init__(self, grid: AbstractGrid, boundary: Any, speed: Any = 1.0, order: int = 2):
        self.laplacian = Laplacian(grid, boundary, order)
        self.speed = parameter(speed)
        if self.speed.ndim and self.speed.shape != grid.shape:
            raise ValueError(
                f"`speed` must be a number or an array over the grid {grid.shape}, but has shape {self.speed.shape}."
            )

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions."""
        check_real(y, self)
        if y.ndim != self.laplacian.grid.ndim + 1 or y.shape[0] != 2:
            raise ValueError(f"the state must be the pair (u, w) of shape (2, *grid), but has shape {y.shape}.")
        p = with_dtype(self, y.dtype)
        return jnp.stack([y[1], jnp.square(p.speed) * p.laplacian(y[0], t=t, args=args)])

    def stencil(self, y: Float[Array, "..."]) -> StencilRates:
        """Returns the same for one cell, for kernels."""
        check_axes(y, self.laplacian, 1)
        number, varying = as_inputs("c", with_dtype(self.speed, y.dtype))

        def rate(nb, number):
            c = nb("c") if number is None else number
            return nb("w"), c * c * self.laplacian.cell(nb, "u")

        return rates(rate, self.laplacian, ("u", "w"), params=number, coefficients=varying)

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns the largest frequency, a bound on the modulus of the Jacobian's eigenvalues."""
        del t, args
        p = with_dtype(self, y.dtype)
        return jnp.max(jnp.abs(p.speed)) * p.laplacian.spectral_radius**0.5

    def spectrum(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns the largest frequency on the imaginary axis, from which `sciml.solve` derives stable steps."""
        frequency = self.spectral_radius(t, y, args)
        return jax.lax.complex(jnp.zeros_like(frequency), frequency)


def _quadratic(u: Array) -> Array:
    return u * u / 2


class KleinGordon(AbstractSecondOrder):
    r"""Waves of a field with a mass, or of pendulums in a row.

    $$\partial_{tt} u = c^2 \nabla^2 u - m^2\, U'(u)$$

    The state is the pair $(u, \partial_t u)$ of two fields. The potential $U$ is any function of the field's values:

    | | $U$ | `potential` |
    |---|---|---|
    | Klein-Gordon | $u^2 / 2$ | the default |
    | sine-Gordon | $1 - \cos u$ | `lambda u: 1 - jnp.cos(u)` |
    | $\phi^4$ | $\tfrac14 (1 - u^2)^2$ | `lambda u: (1 - u**2) ** 2 / 4` |
    | wave equation | 0 | the default, with `mass=0.0` |

    A small wave of the linear equation has the frequency $\omega^2 = c^2 |k|^2 + m^2$. The energy
    $\int \tfrac12 (\partial_t u)^2 + \tfrac12 c^2 |\nabla u|^2 + m^2 U(u)$ is conserved if nothing passes the sides. It
    is of second order in time, so `sciml.solve` with fixed steps takes `VelocityVerlet`, which is stable for
    steps below 2 over `spectral_radius` and keeps the energy near its value over any time.

    Good values: the defaults, a box of length 20 with 200 cells, steps of 0.05.

    Attributes:
        laplacian: The operator, with the boundary conditions of $u$.
        speed: $c$, a number or an array over the grid.
        mass: $m$, a frequency.
        potential: $U$. Arrays among the leaves of a module, or the arguments of a `jax.tree_util.Partial`, are
            parameters.

    Args:
        grid: The grid.
        boundary: The conditions at the sides.
        speed: $c$.
        mass: $m$.
        potential: $U$, a callable of an array that acts on each of its values.
        order: The order of accuracy in space, 2, 4, 6 or 8.

    Raises:
        ValueError: If the speed or, when called, a field has the wrong shape.
        TypeError: If the potential cannot be called.

    Source:
        O. Klein, Z. Phys. 37:895, 1926; W. Gordon, Z. Phys. 40:117, 1926.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models import KleinGordon
        from sciml.spatial import Dirichlet, Grid
        from sciml.verify import reference

        grid = Grid(200, -15.0, 15.0)
        (x,) = grid.centers
        model = KleinGordon(grid, Dirichlet(0.0), potential=lambda u: 1 - jnp.cos(u))
        start = jax.jvp(lambda t: reference("sine_gordon_breather", x, t), (0.0,), (1.0,))  # the field and its rate
        sol = sciml.solve(model, start, t0=0.0, t1=10.0, dt=0.05)
        assert sol.solver == "VelocityVerlet"
        assert jnp.max(jnp.abs(sol.ys[0][-1] - reference("sine_gordon_breather", x, 10.0))) < 0.02
        ```
    """

    laplacian: Laplacian
    speed: Parameter
    mass: Parameter
    potential: Callable

    def __init__(
        self,
        grid: AbstractGrid,
        boundary: Any,
        speed: Any = 1.0,
        mass: Any = 1.0,
        potential: Callable = _quadratic,
        order: int = 2,
    ):
        self.laplacian = Laplacian(grid, boundary, order)
        self.speed, self.mass = parameter(speed), parameter(mass)
        if self.speed.ndim and self.speed.shape != grid.shape:
            raise ValueError(
                f"`speed` must be a number or an array over the grid {grid.shape}, but has shape {self.speed.shape}."
            )
        if not callable(potential):
            raise TypeError(f"`potential` must be a function of the field, but is {type(potential).__name__}.")
        self.potential = _as_tree(potential)

    def acceleration(self, t: RealScalarLike, q: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the second derivative in time; `t` and `args` go to boundary values that are functions."""
        check_real(q, self)
        p = with_dtype(self, q.dtype)
        padded = p.laplacian.pad(q, t=t, args=args)
        u = p.laplacian.inside(padded)
        return jnp.square(p.speed) * p.laplacian.on(padded) - jnp.square(p.mass) * _slope(p.potential, u)

    def stencil(self, y: tuple[Float[Array, "..."], Float[Array, "..."]]) -> StencilRates:
        """Returns the same for one cell, for kernels."""
        check_axes(y[0], self.laplacian)
        p = with_dtype(self, y[0].dtype)
        number, varying = as_inputs("c", p.speed)

        def rate(nb, params):
            number, mass, potential = params
            c = nb("c") if number is None else number
            return nb("w"), c * c * self.laplacian.cell(nb, "u") - mass * mass * _slope(potential, nb("u"))

        params = (number, p.mass, p.potential)
        return rates(rate, self.laplacian, ("u", "w"), params=params, coefficients=varying)

    def energy(self, y: tuple[Float[Array, "..."], Float[Array, "..."]], t: RealScalarLike = 0.0) -> Float[Array, ""]:
        r"""Returns $\int \tfrac12 (\partial_t u)^2 - \tfrac12 c^2 u \nabla^2 u + m^2 U(u)$.

        Without flux through the sides and for a constant $c$ this is the energy.

        Args:
            y: The state.
            t: The time, for boundary values that are functions.
        """
        u, rate = y
        p = with_dtype(self, u.dtype)
        bending = jnp.square(p.speed) * u * p.laplacian(u, t=t)
        density = (rate * rate - bending) / 2 + jnp.square(p.mass) * p.potential(u)
        return p.laplacian.grid.integrate(density, getattr(p.laplacian.boundary, "location", "center"))

    def spectral_radius(self, t: RealScalarLike, y: tuple[Array, Array], args: Args) -> Array:
        """Returns a bound on the largest frequency at a state."""
        del t, args
        u = y[0]
        p = with_dtype(self, u.dtype)
        bend = jnp.max(jnp.abs(_slope(lambda v: _slope(p.potential, v), u)))
        fastest = jnp.square(jnp.max(jnp.abs(p.speed))) * p.laplacian.spectral_radius
        return jnp.sqrt(fastest + jnp.square(p.mass) * bend)


def _as_tree(f: Any) -> Any:
    """A function that is not a leaf, so that `jax.grad` and `jax.jit` accept the model unchanged."""
    return f if isinstance(f, eqx.Module) else jax.tree_util.Partial(f)


def _slope(f: Callable, u: Array) -> Array:
    """The derivative of a function of every value."""
    return jax.jvp(f, (u,), (jnp.ones_like(u),))[1]
