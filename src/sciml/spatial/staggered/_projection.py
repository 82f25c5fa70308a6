"""The part of a velocity without divergence, and the pressure that keeps it so."""

import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._types import Args, RealScalarLike
from .._boundaries import Boundaries
from .._conditions import Dirichlet, Neumann, Periodic
from .._laplacian import Laplacian
from ..elliptic._poisson import Axis, divide, eigenvalues, separate
from ..geometry import _metric
from ..geometry._flux_form import alike
from ._balance import balanced
from ._gradient import StaggeredDivergence, StaggeredGradient
from ._split_solve import divide_split
from ._velocity import StaggeredVelocity, Velocity


# Second differences on stretched grids, diagonalised axis by axis by matrices.
def separate_stretched(boundary: Boundaries) -> list[Axis]:
    r"""Returns the transform of every axis of a grid whose cells differ, with values at centres.

    The second difference along an axis is symmetric where cells count by their widths, so that a matrix of
    eigenvectors diagonalises it: $n$ products for each value, where a fast transform takes a few.

    Raises:
        ValueError: If a side is neither periodic nor has a value or a slope given.
    """
    found = []
    for axis, name in enumerate(boundary.grid.names):
        kinds = tuple(type(side) for side in boundary.sides[axis])
        if any(kind not in (Periodic, Dirichlet, Neumann) for kind in kinds):
            raise ValueError(
                f"along {name} the pressure has sides {kinds[0].__name__} and {kinds[1].__name__}, but a stretched "
                "grid requires Periodic, Dirichlet or Neumann sides."
            )
        widths = _metric.widths_of(boundary.grid, axis)
        gaps = _metric.steps(boundary.grid, axis, boundary.periodic[axis])
        values, vectors = _diagonalised(tuple(widths.tolist()), tuple(gaps.tolist()), kinds)
        roots = np.sqrt(widths)
        forward, backward = vectors.T * roots, vectors / roots[:, None]
        found.append(Axis(values, ft.partial(_applied, forward), ft.partial(_applied, backward)))
    return found


@ft.lru_cache(maxsize=64)
def _diagonalised(
    widths: tuple[float, ...], gaps: tuple[float, ...], kinds: tuple[type, type]
) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues and vectors of the second difference, in values times the roots of the widths."""
    n, roots = len(widths), np.sqrt(widths)
    matrix = np.zeros((n, n))
    for face, gap in enumerate(gaps):
        before, after = face - 1, face
        if kinds[0] is Periodic:
            if face == n:  # the first face again
                continue
            before, after = before % n, after % n
        elif face in (0, n):
            inside = 0 if face == 0 else n - 1
            if kinds[0 if face == 0 else 1] is Dirichlet:  # the ghost is the negative
                matrix[inside, inside] -= 2 / gap
            continue
        for a, b in ((before, after), (after, before)):
            matrix[a, a] -= 1 / gap
            matrix[a, b] += 1 / gap
    values, vectors = np.linalg.eigh(matrix / roots[:, None] / roots[None])
    if Dirichlet not in kinds:  # the constant, exactly
        values[-1], vectors[:, -1] = 0.0, roots / np.linalg.norm(roots)
    return values, vectors


def _applied(matrix: np.ndarray, u: Array, axis: int) -> Array:
    """Returns the product with a matrix along an axis."""
    weights = jnp.asarray(matrix, jnp.finfo(u.dtype).dtype)
    product = jnp.tensordot(u, weights, axes=((axis,), (1,)), precision=jax.lax.Precision.HIGHEST)
    return jnp.moveaxis(product, -1, axis)


class Projection(eqx.Module):
    r"""Takes from a velocity the gradient that makes its divergence zero, to rounding.

    $$P u = u - \nabla \phi, \qquad \nabla^2 \phi = \nabla \cdot u$$

    The divergence of the gradient is the Laplacian of the same differences, so that one solve by fast transforms is
    exact: of Fourier's along periodic axes, of cosines between sides whose velocity is given, of sines where the
    pressure is. On an `OrthogonalGrid` matrices take their place, of $n^2$ numbers for $n$ cells along an axis.

    Without an outlet as much must enter the box as leaves it, at every time. Velocities at the sides that do not
    balance are refused where they are known, and give NaN where they are traced.

    Attributes:
        velocity: The faces, and the conditions at the sides.

    Source:
        A. J. Chorin, Math. Comp. 22:745, 1968; D. L. Brown, R. Cortez, M. L. Minion, J. Comput. Phys. 168:464, 2001.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Grid, NoSlip
        from sciml.spatial.staggered._projection import Projection
        from sciml.spatial.staggered._velocity import StaggeredVelocity

        velocity = StaggeredVelocity(Grid((8, 6)), NoSlip())
        project = Projection(velocity)
        u = velocity.sample(lambda x, y: (x * y, jnp.sin(5 * x) + y))
        assert jnp.max(jnp.abs(project.divergence(u))) > 0.1
        assert jnp.max(jnp.abs(project.divergence(project(u)))) < 1e-5
        ```
    """

    velocity: StaggeredVelocity

    def divergence(self, u: Velocity, *, t: RealScalarLike | None = None, args: Args = None) -> Float[Array, "..."]:
        """Returns the divergence at the centres of cells, with what passes the sides.

        Args:
            u: The velocity at the unknown faces.
            t: The time, for values at sides that are functions.
            args: Their second argument.
        """
        return self._divergence(self.velocity.faces(u, t=t, args=args))

    def __call__(self, u: Velocity, *, t: RealScalarLike | None = None, args: Args = None) -> Velocity:
        """Returns the velocity without divergence that is closest to another, with what passes the sides.

        Args:
            u: The velocity at the unknown faces.
            t: The time, for values at sides that are functions.
            args: Their second argument.
        """
        boundary = self.velocity.pressure.homogeneous()
        divergence = self.divergence(u, t=t, args=args)
        potential = self._invert(boundary, self._nan_unless_balanced(divergence, t, args))
        return self._less_gradient(u, potential, boundary, None, None)

    def _nan_unless_balanced(self, right: Array, t: RealScalarLike | None, args: Args) -> Array:
        """Returns the right-hand side of a solve for the pressure, NaN if more enters the box than leaves it.

        It is a product, so that derivatives are NaN as well.
        """
        holds = balanced(self.velocity, t, args)
        return right if holds is None else right * jnp.where(holds, 1.0, jnp.nan).astype(right.dtype)

    def linear(self, u: Velocity) -> Velocity:
        """Returns the same where all values at the sides are zero: the linear part."""
        boundary = self.velocity.pressure.homogeneous()
        potential = self._invert(boundary, self._divergence(self.velocity.closed_faces(u)))
        return self._less_gradient(u, potential, boundary, None, None)

    def accelerate(
        self,
        force: Velocity,
        fading: Float[Array, "..."] | None = None,
        *,
        t: RealScalarLike | None = None,
        args: Args = None,
    ) -> tuple[Velocity, Float[Array, "..."]]:
        r"""Returns the acceleration $f - \nabla p$ that keeps the divergence as it is, and the pressure $p$.

        If the velocity at a side is a function of time, its rate is part of the balance.

        Args:
            force: $f$, the sum of all other forces over the density, at the unknown faces.
            fading: At which rate the divergence falls, at centres; None if it is to stay.
            t: The time, for values at sides that are functions.
            args: Their second argument.
        """
        boundary = self.velocity.pressure
        right = self._divergence(self.velocity.face_rates(force, t=t, args=args))
        right = right if fading is None else right + fading
        given = Laplacian(boundary.grid, boundary)(jnp.zeros_like(right), t=t, args=args)
        pressure = self._invert(boundary, self._nan_unless_balanced(right - given, t, args))
        return self._less_gradient(force, pressure, boundary, t, args), pressure

    def _divergence(self, faces: Velocity) -> Array:
        return StaggeredDivergence(self.velocity.grid, self.velocity.pressure)(faces)

    def _invert(self, boundary: Any, f: Array) -> Array:
        if self.velocity.blocks is None:
            return self._invert_whole(boundary, f)
        return divide_split(boundary, f, lambda total: total)

    def _invert_whole(self, boundary: Boundaries, f: Array) -> Array:
        axes = separate(boundary, 2) if alike(boundary) else separate_stretched(boundary)
        return divide(axes, f, eigenvalues(axes, [jnp.ones((), f.dtype)] * f.ndim, True))

    def _less_gradient(self, u: Velocity, p: Array, boundary: Any, t: RealScalarLike | None, args: Args) -> Velocity:
        slopes = StaggeredGradient(self.velocity.grid, boundary)(p, t=t, args=args)
        found = []
        for component, (part, slope) in enumerate(zip(u, slopes)):
            periodic = boundary.periodic[component]
            found.append(part - (slope if periodic else self.velocity.to_unknown(slope, component)))
        return tuple(found)
