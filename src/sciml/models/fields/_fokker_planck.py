"""The equation of Fokker and Planck: the density of what drifts down a potential and diffuses."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_real, concrete
from ..._interfaces._model import AbstractSplit
from ..._jax._loops import scan, while_loop
from ..._jax._vma import promote
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Boundaries, Dirichlet, Extrapolate, Neumann, Periodic, Robin
from ...spatial._abstract_grid import AbstractGrid
from ...spatial._boundaries import as_boundary
from ...spatial.elliptic._couplings import Faces
from ...spatial.elliptic._solve import solve_couplings
from ...spatial.geometry import _metric
from ...spatial.geometry._exchange import beyond, conductances
from ...spatial.geometry._flux_form import alike, ends, gathered, in_fluid, over, strip, surface_of
from ...spatial.geometry._immersed import beside

# Fluxes of what drifts and diffuses, exact between two cells where the force is the same all the way.
#
# Down a potential $V$, with the diffusivity $D$, the flux from one centre to the next at the distance $h$ is
#
# $$J = \frac{D}{h} \big( B(p) u_0 - B(-p) u_1 \big), \qquad p = \frac{V_1 - V_0}{D}, \qquad B(p) = \frac{p}{e^p - 1}.$$
#
# It vanishes if $u_1 / u_0 = e^{-p}$, whatever the distance; both weights are positive, so that positive values stay
# positive; and for small $p$ it is the central difference, of second order. These are the fluxes of D. L. Scharfetter
# and H. K. Gummel, IEEE Trans. Electron Devices 16:64, 1969, and of J. S. Chang and G. Cooper, J. Comput. Phys. 6:1,
# 1970.


_SMALL = 1e-2
"""Below this the weight is the polynomial of its first terms, right to rounding."""


def weights(p: Array) -> tuple[Array, Array]:
    """Returns $B(p)$ and $B(-p)$."""
    size = jnp.abs(p)
    small = size < _SMALL
    safe = jnp.where(small, 1.0, size)
    larger = safe / -jnp.expm1(-safe)
    lower, upper = larger * jnp.exp(-safe), larger  # of B(|p|) and B(-|p|)
    square = jnp.square(jnp.where(small, p, 0.0))
    even = 1 + square / 12 - square**2 / 720
    odd = jnp.where(small, p, 0.0) / 2
    down = jnp.where(small, even - odd, jnp.where(p > 0, lower, upper))
    up = jnp.where(small, even + odd, jnp.where(p > 0, upper, lower))
    return down, up


def geometric_mean(p: Array) -> Array:
    r"""Returns $\sqrt{B(p) B(-p)} = (p / 2) / \sinh(p / 2)$."""
    size = jnp.abs(p)
    small = size < _SMALL
    safe = jnp.where(small, 1.0, size)
    square = jnp.square(jnp.where(small, p, 0.0))
    return jnp.where(small, 1 - square / 24 + 7 / 5760 * square**2, safe * jnp.exp(-safe / 2) / -jnp.expm1(-safe))


def drifted(boundary: Any, grid: AbstractGrid, u: Array, potential: Array, diffusivity: Array) -> Array:
    r"""Returns $\nabla \cdot (D \nabla u + u \nabla V)$ of a field and a potential that have one ghost layer.

    Nothing flows through the surface of a body.

    Args:
        boundary: The boundary.
        grid: The grid.
        u: The field.
        potential: $V$, with the axes of the grid or the axes of the field.
        diffusivity: $D$, a number.
    """
    total = None
    for axis in range(grid.ndim):
        before, after = ends(strip(u, axis, grid.ndim), axis, grid.ndim)
        low, high = ends(strip(potential, axis, grid.ndim), axis, grid.ndim)
        down, up = (over(x, before) for x in weights((high - low) / diffusivity))
        flux = jax.lax.optimization_barrier(diffusivity * (up * after - down * before))  # it is read twice
        at = flux.ndim - grid.ndim + axis
        if alike(boundary):
            n = flux.shape[at] - 1
            change = jax.lax.slice_in_dim(flux, 1, n + 1, axis=at) - jax.lax.slice_in_dim(flux, 0, n, axis=at)
            term = change * (1 / grid.spacing[axis] ** 2)
        else:
            spans = _metric.inverse(_metric.distances(grid, axis, boundary.periodic[axis]))
            flux = _metric.times(flux, grid.ndim, spans)
            faces = surface_of(boundary, axis, flux.dtype)
            if faces is not None:
                flux = jnp.where(over(faces.open, flux), flux, 0)
            term = gathered(boundary, flux, axis)
        total = term if total is None else total + term
    assert total is not None
    return in_fluid(boundary, total)


_CONVERGED, _MOST = 64.0, 500
"""How many roundings two iterates may differ by, and the most iterations."""

_ROUNDING = 1e4
"""Below this many roundings a number is nothing but rounding."""


class FokkerPlanck(AbstractSplit):
    r"""The density of particles in a potential, each pushed around by noise.

    $$\partial_t u = \nabla \cdot (u \nabla V + D \nabla u)$$

    It is the density of $dx = -\nabla V\, dt + \sqrt{2 D}\, dW$. The fluxes are the Scharfetter-Gummel fluxes, which
    Chang and Cooper found for this equation. The integral of the density is conserved to rounding if there is no flux
    through the sides, and the law $e^{-V / D}$ is stationary to rounding on every grid (`stationary`). A positive
    density stays positive in explicit Euler and strong-stability-preserving steps of at most `2 / spectral_radius`, and
    in backward Euler steps of any length. Solutions are of second order.

    In several dimensions the implicit part needs $e^{-V / D}$ as numbers: $V$ may vary by some 80 times $D$ in float32,
    700 times in float64. The model is linear. Implicit-explicit methods, which `solve` takes, have all
    of it as the implicit part.

    At a side `Neumann(0.0)` reflects and `Dirichlet(0.0)` absorbs; `Neumann(s)` lets $D s$ in per area,
    `Robin(a, 1.0)` lets $D a u$ out. The grid may be an `sciml.spatial.OrthogonalGrid`, and a body in it reflects.

    With a `sciml.parallel.Domain` for its boundary, rates take one exchange with the neighbours. Implicit systems are
    gathered: every device solves all of one, and keeps its block, so that only explicit methods save time and memory.

    Good values: a potential `x**4 / 4 - x**2 / 2`, `diffusivity=0.1`, a box from -2 to 2 with `Neumann(0.0)`, time from
    0 to 20.

    Attributes:
        boundary: The conditions at the sides.
        potential: $V$, an array over the grid.
        diffusivity: $D$, positive, in the unit of $V$ where the mobility is one.

    Args:
        grid: The grid.
        boundary: The conditions at the sides: `Periodic`, `Neumann`, `Dirichlet` or `Robin`, or a
            `sciml.parallel.Domain` that has them.
        potential: $V$: an array over the grid, or a function of the coordinates.
        diffusivity: $D$, a number.

    Raises:
        ValueError: If the potential does not have the grid's shape or is not finite, or $D$ is not a positive number.
        TypeError: If a condition is another, or a body does not reflect.

    Source:
        H. Risken, The Fokker-Planck Equation, Springer, 1989; J. S. Chang and G. Cooper, J. Comput. Phys. 6:1, 1970.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import FokkerPlanck
        from sciml.spatial import Grid, Neumann

        grid = Grid(64, -2.0, 2.0)
        model = FokkerPlanck(grid, Neumann(0.0), lambda x: x**4 / 4 - x**2 / 2, diffusivity=0.1)
        left = jnp.where(grid.centers[0] < 0, 0.5, 0.0)  # all in one of two wells
        sol = sciml.solve(model, left, t0=0.0, t1=5.0, dt=0.1)
        assert abs(grid.integrate(sol.ys[-1]) - 1.0) < 1e-5
        assert jnp.max(jnp.abs(model(0.0, model.stationary(), None))) < 1e-4
        ```
    """

    boundary: Any
    potential: Parameter
    diffusivity: Parameter

    def __init__(
        self, grid: AbstractGrid, boundary: Any, potential: Array | Callable[..., Array], diffusivity: Any = 1.0
    ):
        self.boundary = as_boundary(grid, boundary)
        conditions = self._conditions
        if not isinstance(conditions, Boundaries):
            raise TypeError(
                "`FokkerPlanck(boundary=...)` must be conditions, or a `Domain` with `boundary=Boundaries(grid, ...)`, "
                f"but got {type(conditions).__name__}."
            )
        for pair in conditions.sides:
            for side in pair:
                if not isinstance(side, Periodic | Neumann | Dirichlet | Robin):
                    raise TypeError(
                        f"a condition of `FokkerPlanck` must be Periodic(), Neumann(slope), Dirichlet(value) or "
                        f"Robin(a, b, c), but is {side!r}."
                    )
        check_insulating(conditions, "FokkerPlanck")
        if conditions.grid != grid:
            raise ValueError(f"`boundary` belongs to another grid, {conditions.grid}, instead of {grid}.")
        if conditions.shape != grid.shape:
            raise ValueError(
                "`FokkerPlanck` has its unknowns at cell centres. Pass the conditions, or `Boundaries` at centres."
            )
        values = jnp.broadcast_to(potential(*grid.centers), grid.shape) if callable(potential) else potential
        self.potential, self.diffusivity = parameter(values), parameter(diffusivity)
        if self.potential.shape != grid.shape:
            raise ValueError(f"`potential` must have the grid's shape {grid.shape}, but has {self.potential.shape}.")
        if self.diffusivity.ndim:
            raise ValueError(f"`diffusivity` must be a number, but has shape {self.diffusivity.shape}.")
        if concrete(self.diffusivity) and not 0 < self.diffusivity < jnp.inf:
            raise ValueError(f"`diffusivity` must be positive and finite, but is {self.diffusivity}.")
        if concrete(self.potential) and not jnp.all(jnp.isfinite(self.potential)):
            raise ValueError("`potential` must be finite, but has values that are infinite or NaN.")

    @property
    def _split(self) -> bool:
        """Whether its boundary is a `Domain`."""
        return not isinstance(self.boundary, Boundaries)

    @property
    def _conditions(self) -> Any:
        """The conditions of the whole grid."""
        return self.boundary.boundary if self._split else self.boundary

    @property
    def _whole(self) -> "FokkerPlanck":
        """The model on one device."""
        return eqx.tree_at(lambda m: m.boundary, self, self._conditions)

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions."""
        check_real(y, self)
        p = with_dtype(self, y.dtype)
        return p._rate(p.boundary.pad(y, 1, t=t, args=args))

    def _rate(self, padded: Array) -> Array:
        around = self._around()
        if self._split:
            for axis in range(self.boundary.grid.ndim):  # of what all devices hold: no message
                first = jnp.moveaxis(around, axis, 0)
                around = jnp.moveaxis(self.boundary.along(first, axis), 0, axis)
        return drifted(self.boundary, self.boundary.grid, padded, around, self.diffusivity)

    def _around(self) -> Array:
        """The potential with ghost cells: level beyond walls that reflect, so that there is no force towards them."""

        def side(x: Any) -> Any:
            return x if isinstance(x, Periodic) else Extrapolate() if isinstance(x, Dirichlet) else Neumann(0.0)

        sides = tuple((side(a), side(b)) for a, b in self._conditions.sides)
        return eqx.tree_at(lambda b: b.sides, self._conditions, sides).pad(self.potential, 1)

    def stationary(self) -> Float[Array, "..."]:
        r"""Returns the density $e^{-V / D}$ with the integral one, which is at rest where no side absorbs."""
        if self._split:
            return self.boundary.part(self._whole.stationary())
        lowest = jnp.min(self.potential)
        shares = jnp.exp((lowest - self.potential) / self.diffusivity)
        if self.boundary.body is not None:
            shares = jnp.where(self.boundary.body.fluid, shares, 0)
        return shares / self.boundary.grid.integrate(shares)

    def quasi_stationary(self) -> tuple[Float[Array, "..."], Float[Array, ""]]:
        r"""Returns the law of particles that have not been absorbed for a long time, and the rate of absorption.

        $$\nabla \cdot (u \nabla V + D \nabla u) = -\lambda u, \qquad \int u = 1$$

        From this density the time until absorption has the exponential law with the mean $1 / \lambda$, also where
        absorption is too rare to be simulated. Inverse iteration needs some ten implicit solves. Both results are
        differentiable with respect to the model; a derivative solves one dense system of the size of the grid. Rates
        may be very small: in one dimension $10^{-27}$ times the fastest rate of the grid, in several $10^{-12}$; in
        float32 only $10^{-10}$ and $10^{-3}$.

        Returns:
            The density $u$ and the rate $\lambda$; NaN if the iteration did not converge, as it does not if two parts
            of the grid are absorbed at nearly the same rate and exchange nothing, if the rate is lost in rounding, or
            if particles arrive and the values at the sides are traced.

        Raises:
            ValueError: If no side absorbs, or particles arrive through one.

        Source:
            P. Collet, S. Martinez and J. San Martin, Quasi-Stationary Distributions, Springer, 2013.

        Example:
            ```python
            import jax.numpy as jnp
            from sciml.models import FokkerPlanck
            from sciml.spatial import Dirichlet, Grid

            # particles diffuse between two walls that absorb
            model = FokkerPlanck(Grid(64, 0.0, 1.0), Dirichlet(0.0), lambda x: 0.0 * x, diffusivity=0.5)
            density, rate = model.quasi_stationary()
            assert abs(rate - 0.5 * jnp.pi**2) < 2e-3
            ```
        """
        if self._split:
            density, rate = self._whole.quasi_stationary()
            return self.boundary.part(density), rate
        if all(isinstance(side, Periodic | Neumann) for pair in self.boundary.sides for side in pair):
            raise ValueError(
                "`quasi_stationary` needs a side that absorbs, `Dirichlet(0.0)` or `Robin(a, 1.0)`, but nothing leaves "
                "through the sides of `boundary`. The law without absorption is `stationary()`."
            )
        zero = jnp.zeros_like(self.potential)
        arrives = jnp.any(self.rest(0.0, zero, None) != 0)
        if concrete(arrives) and arrives:
            raise ValueError(
                "`quasi_stationary` needs sides through which nothing arrives, such as `Dirichlet(0.0)`, "
                "`Neumann(0.0)` and `Robin(a, 1.0)`, but `boundary` has values that are not zero."
            )
        system = _absorption(self)
        w, converged = _leading(jax.lax.stop_gradient(system))
        converged &= ~arrives

        def equations(pair: tuple[Array, Array]) -> tuple[Array, Array]:
            w, rate = pair
            lost = system.couplings.diagonal() * w - system.couplings.neighbours(w)
            return lost - rate * system.volumes * w, jnp.sum(system.volumes * (w - 1))

        found = (w, system.rate(w))
        w, _ = jax.lax.custom_root(equations, found, lambda _, guess: guess, _solved)
        # the quotient has the derivatives of the rate, without the cancellation of the equations
        rate = system.rate(w)
        u = w * system.weights
        u = u / self.boundary.grid.integrate(u)
        return jnp.where(converged, u, jnp.nan), jnp.where(converged, rate, jnp.nan)

    def free_energy(self, y: Float[Array, "*grid"]) -> Float[Array, ""]:
        r"""Returns $\int u V + D\, u \ln u$, which never grows where nothing flows through the sides.

        Args:
            y: A density.
        """
        p = with_dtype(self, y.dtype)
        entropy = jnp.where(y > 0, y * jnp.log(jnp.where(y > 0, y, 1.0)), 0.0)
        if not p._split:
            return p.boundary.grid.integrate(y * p.potential + p.diffusivity * entropy)
        volumes = jnp.broadcast_to(p.boundary.grid.volumes().astype(y.dtype), p.potential.shape)
        volumes, potential = p.boundary.part(volumes), p.boundary.part(p.potential)
        return p.boundary.sum((y * potential + p.diffusivity * entropy) * volumes)

    def stiff(self, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns drift and diffusion, with zero at the walls."""
        del args
        p = with_dtype(self, y.dtype)
        return p._rate(p.boundary.homogeneous().pad(y, 1))

    def rest(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the contribution of values at the walls."""
        return self(t, jnp.zeros_like(y), args)

    def solve_shifted(self, shift: RealScalarLike, right: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        r"""Returns the solution of $(1 - \tau A) u = r$: in one dimension by elimination, or else by multigrid.

        The system is symmetric for $g$ with $u = e^{-V / 2 D} g$, and for $w$ with $u = e^{-V / D} w$. Elimination
        takes the first, of which no number is far from the others; multigrid the second, whose residual is one of $u$.
        """
        p, ndim = with_dtype(self, right.dtype), self.boundary.grid.ndim
        if p._split:
            right = p.boundary.whole(right)
            return p.boundary.part(promote((p._whole, right))[0].solve_shifted(shift, right, args))
        del args
        half = (p.potential - jnp.min(p.potential)) / (2 * p.diffusivity)
        matrix = p._symmetric(jnp.asarray(shift, right.dtype))
        inner, outer = (half, -half) if ndim == 1 else (jnp.zeros_like(half), -2 * half)
        if ndim > 1:
            matrix = _scaled(matrix, half)
        volumes = _metric.volumes(p.boundary.grid)
        conserves = all(isinstance(side, Periodic | Neumann) for pair in p.boundary.sides for side in pair)

        def solve(r: Array) -> Array:
            u = solve_couplings(matrix, _metric.times(jnp.exp(inner) * r, ndim, volumes)) * jnp.exp(outer)
            body = p.boundary.body
            u = u if body is None else jnp.where(body.fluid, u, r)
            # what the solve misses of the integral, so that it is kept to rounding
            return u + p.stationary() * p.boundary.grid.integrate(r - u) if conserves else u

        for _ in range(right.ndim - ndim):
            solve = jax.vmap(solve)
        return solve(right)

    def _symmetric(self, shift: Array) -> Faces:
        """The matrix of `solve_shifted`, integrated over cells."""
        boundary, grid, kind = self.boundary, self.boundary.grid, shift.dtype
        ghosts = boundary.homogeneous().pad(jnp.ones(grid.shape, kind), 1)
        around = self._around()
        couplings = []
        reaction = _metric.times(jnp.ones(grid.shape, kind), grid.ndim, _metric.volumes(grid))
        for axis in range(grid.ndim):
            n = grid.shape[axis]
            low, high = ends(strip(around, axis, grid.ndim), axis, grid.ndim)
            rate = (high - low) / self.diffusivity
            k = conductances(boundary, axis, kind) * (shift * self.diffusivity)
            down, up = (k * x for x in weights(rate))
            between = k * geometric_mean(rate)
            faces = surface_of(boundary, axis, kind)
            if faces is not None:
                down, up, between = (jnp.where(faces.open, x, 0) for x in (down, up, between))
            if not boundary.periodic[axis]:
                # a ghost cell is a multiple of the first one, and a part of what leaves comes back from it
                first, last = (beyond(ghosts, axis, end) for end in (0, 1))
                down = _at_end(down, axis, n, up, last)
                up = _at_end(up, axis, 0, down, first)
                between = _at_end(_at_end(between, axis, 0, between, 1.0), axis, n, between, 1.0)
            leaving = jax.lax.slice_in_dim(down, 1, n + 1, axis=axis) + jax.lax.slice_in_dim(up, 0, n, axis=axis)
            held = jax.lax.slice_in_dim(between, 1, n + 1, axis=axis) + jax.lax.slice_in_dim(between, 0, n, axis=axis)
            reaction = reaction + leaving - held
            couplings.append(between)
        return Faces(grid.shape, boundary.periodic, tuple(couplings), reaction)

    def spectral_radius(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns a bound on the modulus of the Jacobian's eigenvalues, twice the rate at which a cell can empty."""
        del t, args
        p = with_dtype(self, y.dtype)._whole
        grid = p.boundary.grid
        rates = p._symmetric(jnp.ones((), y.dtype)).diagonal()
        rates = _metric.times(rates, grid.ndim, _metric.inverse(_metric.volumes(grid))) - 1
        return 2 * jnp.max(rates)

    def spectrum(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Array:
        """Returns the lower end of the eigenvalues, which are real, from which `sciml.solve` derives stable steps."""
        return -self.spectral_radius(t, y, args)


class _Absorption(NamedTuple):
    r"""The equations $L w = \lambda v w$ of the slowest decay $u = e^{-V / D} w$, with symmetric couplings.

    Attributes:
        couplings: $L$, whose reaction is what leaves through the sides.
        volumes: $v$, the volumes of the cells times $e^{-V / D}$.
        weights: $e^{-V / D}$, at most 1.
    """

    couplings: Faces
    volumes: Array
    weights: Array

    def rate(self, w: Array) -> Array:
        """Returns $w L w / w v w$, sums without cancellation."""
        lost = jnp.sum(self.couplings.reaction * w**2)
        for axis in range(w.ndim):
            lost = lost + jnp.sum(self.couplings.upper(axis) * (jnp.roll(w, -1, axis) - w) ** 2)
        return lost / jnp.sum(self.volumes * w**2)


def _absorption(model: FokkerPlanck) -> _Absorption:
    """Returns the equations of the slowest decay of a model."""
    grid, one = model.boundary.grid, jnp.ones_like(model.potential)
    half = (model.potential - jnp.min(model.potential)) / (2 * model.diffusivity)
    matrix = _scaled(model._symmetric(one.ravel()[0]), half)
    weights = jnp.exp(-2 * half)
    volumes = weights * _metric.times(one, grid.ndim, _metric.volumes(grid))
    leaves = matrix.reaction - volumes
    # away from the sides it is rounding, which may be more than all that leaves
    leaves = jnp.where(leaves > _ROUNDING * float(jnp.finfo(one.dtype).eps) * matrix.diagonal(), leaves, 0)
    body = model.boundary.body
    if body is not None:  # nothing is in it: there w = 0
        volumes, leaves = jnp.where(body.fluid, volumes, 0), jnp.where(body.fluid, leaves, 1)
    return _Absorption(Faces(matrix.shape, matrix.periodic, matrix.couplings, leaves), volumes, weights)


def _leading(system: _Absorption) -> tuple[Array, Array]:
    """Returns the leading eigenfunction with the mean 1, by inverse iteration, and whether it was found."""
    couplings, volumes = system.couplings, system.volumes
    eps = float(jnp.finfo(volumes.dtype).eps)
    solve = _solve_line if volumes.ndim == 1 else solve_couplings

    def again(carry: tuple) -> tuple:
        w, rate, _, number = carry
        moved = solve(couplings, volumes * w)
        moved = moved * (jnp.sum(volumes) / jnp.sum(volumes * moved))
        found = system.rate(moved)
        change = jnp.maximum(jnp.max(jnp.abs(moved - w)) / jnp.max(moved), jnp.abs(found - rate) / found)
        return moved, found, change, number + 1

    def going(carry: tuple) -> Array:
        return (carry[2] > _CONVERGED * eps) & (carry[3] < _MOST)

    w = jnp.ones_like(volumes)
    nothing = jnp.zeros_like(w.ravel()[0])
    start = (w, nothing, nothing + jnp.inf, jnp.zeros((), jnp.int32))
    w, rate, change, _ = while_loop(going, again, start, like=system)
    good = change <= _CONVERGED * eps
    # a smaller one is lost in rounding, in one dimension of squares
    smallest = _ROUNDING * eps ** (2 if volumes.ndim == 1 else 1)
    filled = volumes > 0
    fastest = jnp.max(jnp.where(filled, couplings.diagonal() / jnp.where(filled, volumes, 1), 0))
    return w, good & (rate > smallest * fastest)


def _solve_line(couplings: Faces, right: Array) -> Array:
    """Solves a system in one dimension by elimination in which all terms are positive, so that none cancels."""
    between = couplings.upper(0)

    def forwards(carry: tuple, row: tuple) -> tuple:
        (leaves, given), (reaction, k, r) = carry, row
        leaves, given = leaves + reaction, given + r
        share = k / (k + leaves)
        return (share * leaves, share * given), (leaves, given)

    def backwards(after: Array, row: tuple) -> tuple:
        leaves, given, k = row
        w = (given + k * after) / (k + leaves)
        return w, w

    zero = jnp.zeros_like(right[0])
    _, (leaves, given) = scan(forwards, (zero, zero), (couplings.reaction, between, right))
    _, w = scan(backwards, zero, (leaves, given, between), reverse=True)
    return w


def _solved(along: Callable, b: tuple[Array, Array]) -> tuple[Array, Array]:
    """Solves a linear system of density and rate that is given by its product with them."""
    x, unflatten = jax.flatten_util.ravel_pytree(b)
    unit = jnp.eye(x.size, dtype=x.dtype)
    matrix = jax.vmap(lambda v: jax.flatten_util.ravel_pytree(along(unflatten(v)))[0], out_axes=1)(unit)
    return unflatten(jnp.linalg.solve(matrix, x))


def check_insulating(boundary: Any, name: str) -> None:
    """Checks that nothing flows through the surface of a body.

    Raises:
        TypeError: If it is not `Neumann`.
    """
    body = getattr(boundary, "body", None)
    if body is not None and not body.insulates:
        raise TypeError(f"in `{name}` there is no flux through a body, so its condition must be Neumann(0.0).")


def _scaled(matrix: Faces, half: Array) -> Faces:
    r"""The matrix with its rows and columns times $e^{-V / 2 D}$."""
    diagonal, couplings = matrix.diagonal() * jnp.exp(-2 * half), []
    for axis, w in enumerate(matrix.couplings):
        before, after = beside(half, axis, matrix.periodic[axis], half.ndim)
        couplings.append(w * jnp.exp(-before - after))
    scaled = Faces(matrix.shape, matrix.periodic, tuple(couplings), jnp.zeros_like(diagonal))
    return Faces(matrix.shape, matrix.periodic, tuple(couplings), diagonal - scaled.diagonal())


def _at_end(x: Array, axis: int, place: int, back: Array, share: Any) -> Array:
    """The outflow through the face at an end, minus the inflow."""
    take = lambda values: jax.lax.slice_in_dim(values, place, place + 1, axis=axis)  # noqa: E731
    return jax.lax.dynamic_update_slice_in_dim(x, take(x) - share * take(back), place, axis)
