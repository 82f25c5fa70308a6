r"""Slow flow: $(1 - \tau P \nu \nabla^2)\, u = r$, with zero at the sides."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._jax._loops import while_loop
from ..._jax._promoted import as_varying
from ..._jax._vma import match, promote
from .._abstract_grid import LOCATIONS
from .._implicit import ImplicitDiffusion
from .._laplacian import Laplacian
from ._projection import Projection
from ._split_boundaries import SplitBoundaries
from ._split_solve import divide_split
from ._velocity import StaggeredVelocity, Velocity

_MOST_ITERATIONS_OF_CG = 500


def viscous(velocity: StaggeredVelocity, viscosity: Array, u: Velocity) -> Velocity:
    r"""Returns $\nu \nabla^2 u$ at the unknown faces, with zero at the sides."""
    return velocity.unknown(tuple(viscosity * operator(part) for operator, part in zip(_closed(velocity), u)))


def projection(velocity: StaggeredVelocity) -> Callable[[Velocity], Velocity]:
    """Returns the projection with zero at the sides, and at places of a block that are not unknowns."""
    linear = Projection(velocity).linear
    return lambda u: velocity.unknown(linear(u))


def solve_stokes(velocity: StaggeredVelocity, viscosity: Array, shift: Array, right: Velocity) -> Velocity:
    r"""Returns the solution of $(1 - \tau P L)\, u = r$, $L = \nu \nabla^2$; NaN where it is not found.

    The operator does not change the part of $r$ with divergence, $q = r - P r$. The rest solves
    $(1 - \tau P L P)\, z = P (r + \tau L q)$, which is symmetric in the sum over faces with their volumes: faces on a
    side have one half. Its derivatives take one more solve each.
    """
    project = projection(velocity)
    roots = _roots_of_volumes(velocity, right[0].dtype)

    def symmetric(act: Callable[[Velocity], Velocity]) -> Callable[[Velocity], Velocity]:
        """A function of velocities in variables that are multiplied by the roots of the volumes."""
        return lambda v: tuple(a * x for a, x in zip(roots, act(tuple(x / a for a, x in zip(roots, v)))))

    def shifted(u: Velocity) -> Velocity:
        moved = project(viscous(velocity, viscosity, project(u)))
        return tuple(a - shift * b for a, b in zip(u, moved))

    def solve(u: Velocity) -> Velocity:
        kept = project(u)
        found = _conjugate_gradients(velocity, viscosity, shift, kept)
        return tuple(a + b - c for a, b, c in zip(found, u, kept))

    kept = project(right)
    rough = tuple(a - b for a, b in zip(right, kept))
    moved = project(viscous(velocity, viscosity, rough))
    b = tuple(root * (x + shift * y) for root, x, y in zip(roots, kept, moved))
    b = promote(b)
    operator, solver = as_varying(symmetric(shifted), b), as_varying(symmetric(solve), b)
    z = jax.lax.custom_linear_solve(operator, b, lambda _, b: solver(b), symmetric=True)
    return tuple(x / root + y for x, root, y in zip(z, roots, rough))


def solve_diffusion(operator: Laplacian, coefficient: Array, shift: Array, right: Array) -> Array:
    r"""Returns the solution of $(1 - \tau D \nabla^2)\, y = r$ for a number $D$, with zero at the sides."""
    if isinstance(operator.boundary, SplitBoundaries):
        return divide_split(operator.boundary.homogeneous(), right, lambda total: 1 - shift * coefficient * total)
    return ImplicitDiffusion(operator, coefficient).solve(shift, right)


def _conjugate_gradients(velocity: StaggeredVelocity, viscosity: Array, shift: Array, b: Velocity) -> Velocity:
    """Solves the same for a right-hand side without divergence; NaN where it is not found.

    All vectors stay without divergence, so that one projection for the operator is enough, and one for the
    preconditioner, the inverse of the operator without the pressure.
    """
    project, dtype = projection(velocity), b[0].dtype
    volumes = [root**2 for root in _roots_of_volumes(velocity, dtype)]
    closed = _closed(velocity)

    def inner(a: Velocity, b: Velocity) -> Array:
        product: Any = sum(jnp.sum(w * x * y) for w, x, y in zip(volumes, a, b))
        return velocity.sum(product)

    # the residual that rounding leaves is the precision times the norm of the operator
    eps, curvature = float(jnp.finfo(dtype).eps), sum(h**-2 for h in velocity.grid.spacing)
    rounding = 4 * eps * (1 + 4 * curvature * jnp.abs(shift * viscosity))
    target = jnp.maximum(1e-12 if jnp.finfo(dtype).bits == 64 else 1e-6, rounding) ** 2 * inner(b, b)

    def going(carry: Any) -> Array:
        count, _, r, _, _ = carry
        return (count < _MOST_ITERATIONS_OF_CG) & (inner(r, r) > target)

    def step(carry: Any) -> Any:
        count, x, r, p, before = carry
        z = project(tuple(solve_diffusion(one, viscosity, shift, part) for one, part in zip(closed, r)))
        rho = inner(r, z)
        p = tuple(a + rho / before * c for a, c in zip(z, p))
        moved = tuple(a - shift * c for a, c in zip(p, project(viscous(velocity, viscosity, p))))
        length = rho / inner(p, moved)
        x = tuple(a + length * c for a, c in zip(x, p))
        r = tuple(a - length * c for a, c in zip(r, moved))
        return match((count + 1, x, r, p, rho), carry)  # sums over blocks are the same on all devices

    zero = tuple(jnp.zeros_like(x) for x in b)
    start = (jnp.int32(0), zero, b, zero, jnp.ones((), dtype))
    names = () if velocity.blocks is None else velocity.blocks.names
    _, x, r, _, _ = while_loop(going, step, start, like=(velocity, viscosity, shift), collective=names)
    good = inner(r, r) <= target
    return tuple(jnp.where(good, part, jnp.nan) for part in project(x))  # rounding has made some divergence


def _closed(velocity: StaggeredVelocity) -> list[Laplacian]:
    """The Laplacians of the components, with zero at the sides."""
    return [Laplacian(velocity.grid, velocity.component(i).homogeneous()) for i in range(velocity.grid.ndim)]


def _roots_of_volumes(velocity: StaggeredVelocity, dtype: Any) -> list[Array]:
    """The roots of the volumes of the unknown faces, relative to a cell."""
    grid: Any = velocity.grid if velocity.blocks is None else velocity.blocks.grid
    pressure, found = velocity.pressure, []
    periodic = pressure.periodic if velocity.blocks is None else pressure.whole.periodic
    for i in range(grid.ndim):
        share = grid.volumes(tuple("node" if axis == i else "center" for axis in range(grid.ndim))) / grid.volume
        share = jnp.ones_like(share) if periodic[i] else share
        boundary = velocity.component(i)
        whole = boundary if velocity.blocks is None else boundary.whole
        first, extra = LOCATIONS[whole.location[i]]
        kept = jax.lax.slice_in_dim(share, int(first), int(first) + grid.shape[i] + extra, axis=i)
        kept = kept if velocity.blocks is None else boundary.part(kept)
        found.append(jnp.sqrt(kept).astype(dtype))
    return found
