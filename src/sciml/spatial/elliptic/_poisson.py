"""Elliptic problems by fast transforms: for each pair of conditions, as a linear solver, and for Poisson's equation."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, ArrayLike, Inexact

from ..._parameters import Parameter, parameter
from ..._types import Args, RealScalarLike
from .. import _sines_cosines as trig, _weights
from .._boundaries import Boundaries
from .._conditions import Dirichlet, Neumann, Periodic
from .._laplacian import Laplacian
from ..geometry._flux_form import alike
from ._compatible import without_mean
from ._operator import EllipticOperator, as_elliptic


class Axis(NamedTuple):
    """How one axis is diagonalised.

    Attributes:
        eigenvalues: The eigenvalues of the second derivative, one for each coefficient.
        forward: The transform to coefficients, `(field, axis) -> coefficients`; None for Fourier's.
        backward: Its inverse.
    """

    eigenvalues: np.ndarray
    forward: Callable[[Array, int], Array] | None
    backward: Callable[[Array, int], Array] | None

    @property
    def periodic(self) -> bool:
        """Whether the transform is Fourier's."""
        return self.forward is None


# By location, lower and upper condition: the transforms, and the offset of the first of the phases.
_PAIRS = {
    ("center", Dirichlet, Dirichlet): (trig.dst2, trig.idst2, 1.0),
    ("center", Neumann, Neumann): (trig.dct2, trig.idct2, 0.0),
    ("center", Dirichlet, Neumann): (trig.dst4, trig.idst4, 0.5),
    ("center", Neumann, Dirichlet): (trig.dct4, trig.idct4, 0.5),
    ("inner", Dirichlet, Dirichlet): (trig.dst1, trig.idst1, 1.0),
    ("node", Neumann, Neumann): (trig.dct1, trig.idct1, 0.0),
    # sums over the wavenumbers of the kernels of type II, with place and wavenumber in each other's roles
    ("upper", Dirichlet, Neumann): (trig.idst2, trig.dst2, 0.5),
    ("lower", Neumann, Dirichlet): (trig.idct2, trig.dct2, 0.5),
}


def _symbol(phase: np.ndarray, order: int) -> np.ndarray:
    """The eigenvalue of the central second difference, written so that small phases lose no digits."""
    weights = _weights.central(order, 2)
    radius = len(weights) // 2
    parts = [float(weights[radius + j]) * np.sin(j * phase / 2) ** 2 for j in range(1, radius + 1)]
    return -4 * np.sum(parts, axis=0)


def separate(boundary: Boundaries, order: int) -> list[Axis]:
    """Returns the transform of every axis.

    Raises:
        ValueError: If some axis has none; the message names it.
    """
    if not alike(boundary):
        what = "on an `OrthogonalGrid`" if boundary.body is None else "with a body within the grid"
        raise ValueError(f"fast transforms do not support an operator {what}. Use `solve_elliptic` or `Multigrid`.")
    found = []
    for axis, (name, cells, h) in enumerate(zip(boundary.grid.names, boundary.grid.shape, boundary.grid.spacing)):
        low, high = boundary.sides[axis]
        if isinstance(low, Periodic):
            phase = 2 * np.pi * np.fft.fftfreq(cells)
            found.append(Axis(_symbol(phase, order) / h**2, None, None))
            continue
        key = (boundary.location[axis], type(low), type(high))
        if key not in _PAIRS:
            ends = f"{type(low).__name__} and {type(high).__name__} at {boundary.location[axis]!r}"
            raise ValueError(
                f"along {name} fast transforms do not support {ends}, only Periodic, Dirichlet and Neumann. Use "
                "`Multigrid`."
            )
        if order != 2:
            raise ValueError(
                f"`order={order}` requires periodic axes, because this Laplacian is not symmetric at walls, but "
                f"along {name} there are walls. Use `order=2`."
            )
        forward, backward, first = _PAIRS[key]
        phase = (np.arange(boundary.shape[axis]) + first) * np.pi / cells
        found.append(Axis(_symbol(phase, order) / h**2, forward, backward))
    return found


def to_coefficients(axes: list[Axis], u: Array) -> Array:
    """Returns the coefficients of a field; of a real one along the last periodic axis only the half that is needed."""
    ndim = len(axes)
    for axis, found in enumerate(axes):
        if found.forward is not None:
            u = found.forward(u, axis - ndim)
    periodic = [axis - ndim for axis in range(ndim) if axes[axis].periodic]
    if not periodic:
        return u
    return jnp.fft.fftn(u, axes=periodic) if jnp.iscomplexobj(u) else jnp.fft.rfftn(u, axes=periodic)


def from_coefficients(axes: list[Axis], coefficients: Array, like: Array) -> Array:
    """Returns the field with given coefficients, real where `like` is."""
    ndim = len(axes)
    periodic = [axis - ndim for axis in range(ndim) if axes[axis].periodic]
    u = coefficients
    if periodic:
        shape = [like.shape[axis] for axis in periodic]
        back = jnp.fft.ifftn if jnp.iscomplexobj(like) else jnp.fft.irfftn
        u = back(u, s=shape, axes=periodic)
    for axis, found in enumerate(axes):
        if found.backward is not None:
            u = found.backward(u, axis - ndim)
    return u


def eigenvalues(axes: list[Axis], scales: list[Array], real: bool) -> Array:
    """Returns the eigenvalues of the sum over axes of the second derivative times a scale.

    Args:
        axes: The axes.
        scales: A number for each.
        real: Whether they belong to the coefficients of a real field.
    """
    ndim = len(axes)
    halved = max((axis for axis in range(ndim) if axes[axis].periodic), default=None) if real else None
    total = None
    for axis, (found, scale) in enumerate(zip(axes, scales)):
        values = found.eigenvalues
        if axis == halved:
            values = values[: len(values) // 2 + 1]
        shape = [1] * ndim
        shape[axis] = len(values)
        term = scale * jnp.asarray(values.reshape(shape), scale.dtype)
        total = term if total is None else total + term
    assert total is not None
    return total


class FastTransform(lx.AbstractLinearSolver[EllipticOperator]):
    """Solves with an `EllipticOperator` whose coefficients are numbers, by cosine, sine and Fourier transforms.

    The sides may be any mix of `Periodic`, `Dirichlet` and `Neumann`. The transforms diagonalise the very operator, so
    the residual is of the size of rounding. If the operator has a kernel, the solution is the least-squares solution.

    Example:
        ```python
        import jax.numpy as jnp
        import lineax as lx
        from sciml.spatial import Boundaries, Dirichlet, EllipticOperator, FastTransform, Grid

        operator = EllipticOperator(Boundaries(Grid((32, 32)), Dirichlet(0.0)))
        implicit = lx.IdentityLinearOperator(operator.in_structure()) + operator * 0.1  # of a step of diffusion
        u = lx.linear_solve(implicit, jnp.ones((32, 32)), FastTransform()).value
        assert jnp.allclose(implicit.mv(u), 1.0, atol=1e-4)
        ```
    """

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> EllipticOperator:
        """Returns the operator.

        Raises:
            ValueError: If it is not elliptic, a coefficient is a field, or a boundary does not separate.
        """
        del options
        elliptic = as_elliptic(operator)
        for name, values in (("k", elliptic.k), ("c", elliptic.c)):
            for value in values if isinstance(values, tuple) else (values,):
                if value is not None and value.ndim:
                    raise ValueError(
                        f"`FastTransform` requires coefficients that are numbers, but `{name}` is a field of shape "
                        f"{value.shape}. Use `Multigrid`."
                    )
        separate(elliptic.boundary, 2)
        return elliptic

    def compute(
        self, state: EllipticOperator, vector: Array, options: dict[str, Any]
    ) -> tuple[Array, lx.RESULTS, dict[str, Any]]:
        """Returns the solution; it is always found."""
        del options
        axes = separate(state.boundary, 2)
        kind = jnp.finfo(vector.dtype).dtype
        k = state.k if isinstance(state.k, tuple) else (state.k,) * len(axes)
        values = jnp.asarray(0.0 if state.c is None else state.c, kind) - eigenvalues(
            axes, [jnp.asarray(x, kind) for x in k], not jnp.iscomplexobj(vector)
        )
        return divide(axes, vector, values), lx.RESULTS.successful, {}

    def transpose(self, state: EllipticOperator, options: dict[str, Any]) -> tuple[EllipticOperator, dict[str, Any]]:
        """Returns the same operator: it is symmetric."""
        del options
        return state, {}

    def conj(self, state: EllipticOperator, options: dict[str, Any]) -> tuple[EllipticOperator, dict[str, Any]]:
        """Returns the same operator: it is real."""
        del options
        return state, {}

    def assume_full_rank(self) -> bool:
        """Returns True: a kernel of constants, the same for all coefficients, adds nothing to the derivative."""
        return True


def divide(axes: list, f: Array, values: Array) -> Array:
    """Returns the field with the coefficients of `f` divided by eigenvalues, and zero for zero eigenvalues."""
    coefficients = to_coefficients(axes, f)
    # the inner `where` keeps 1 / 0 out of the derivative by the coefficients
    inverse = jnp.where(values == 0, 0.0, 1 / jnp.where(values == 0, 1.0, values)).astype(coefficients.dtype)
    inverse = inverse.reshape((1,) * (f.ndim - len(axes)) + inverse.shape)
    return from_coefficients(axes, coefficients * inverse, f)


def _solve(
    laplacian: Laplacian, constant: Array | None, f: Array, t: RealScalarLike | None, args: Args
) -> Inexact[Array, "..."]:
    boundary = laplacian.boundary
    if not hasattr(f, "dtype") or not jnp.issubdtype(f.dtype, jnp.inexact):
        raise TypeError(f"`f` must be an array of floating-point numbers over the grid, but is {f!r}.")
    if f.shape[f.ndim - boundary.grid.ndim :] != boundary.shape:
        raise ValueError(
            f"`f` must end with the axes {boundary.shape} of {boundary.grid} at {boundary.location}, but has shape "
            f"{f.shape}."
        )
    axes = separate(boundary, laplacian.order)
    right = f - jnp.broadcast_to(laplacian(jnp.zeros(boundary.shape, f.dtype), t=t, args=args), f.shape)
    sides = [side for pair in boundary.sides for side in pair]
    if constant is None and all(isinstance(side, Periodic | Neumann) for side in sides):
        right = without_mean(boundary, right, [f, *jax.tree.leaves(boundary)])
    kind = jnp.finfo(f.dtype).dtype
    values = eigenvalues(axes, [jnp.ones((), kind)] * len(axes), not jnp.iscomplexobj(f))
    if constant is not None:
        values = values + jnp.asarray(constant, kind)
    return divide(axes, right, values)


def _laplacian(boundary: Boundaries, order: int) -> Laplacian:
    if not isinstance(boundary, Boundaries):
        raise TypeError(f"`boundary` must be Boundaries(grid, conditions), but is {type(boundary).__name__}.")
    separate(boundary, order)
    return Laplacian(boundary.grid, boundary, order)


class Poisson(eqx.Module):
    r"""Solves Poisson's equation $\nabla^2 u = f$ by cosine, sine and Fourier transforms.

    The sides may be any mix of `Periodic`, `Dirichlet` and `Neumann`, with unknowns at centres or nodes. The
    transforms diagonalise the very differences of `Laplacian`, so that $\nabla^2 u$ gives $f$ back to rounding, values
    at the walls included.

    If no side sets a value, $u$ is determined except for a constant: its mean is zero. The data must balance then,
    $\int f = \oint \partial u / \partial n$. Known data is checked; traced data, under `jax.jit`, is projected to
    balanced data.

    Attributes:
        laplacian: The Laplacian that is inverted.

    Args:
        boundary: The boundary conditions.
        order: The order of the differences, 2, or 4, 6 or 8 if all axes are periodic.

    Raises:
        ValueError: If the boundary does not separate; when called, if the field has the wrong shape or known data is
            incompatible.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Boundaries, Dirichlet, Grid, Laplacian, Neumann, Poisson

        grid = Grid((32, 24))
        boundary = Boundaries(grid, {"x": Dirichlet(1.0), "y-": Neumann(0.0), "y+": Dirichlet(0.0)})
        u = Poisson(boundary)(jnp.ones(grid.shape))
        assert jnp.allclose(Laplacian(grid, boundary)(u), 1.0, atol=2e-2)
        ```
    """

    laplacian: Laplacian

    def __init__(self, boundary: Boundaries, order: int = 2):
        self.laplacian = _laplacian(boundary, order)

    def __call__(
        self, f: Inexact[Array, "..."], *, t: RealScalarLike | None = None, args: Args = None
    ) -> Inexact[Array, "..."]:
        """Returns the solution.

        Args:
            f: The right-hand side, real or complex, with the grid's axes last.
            t: The time, for values at the walls that are functions.
            args: Their second argument.
        """
        return _solve(self.laplacian, None, f, t, args)


class Helmholtz(eqx.Module):
    r"""Solves Helmholtz' equation $\nabla^2 u + \lambda u = f$ by cosine, sine and Fourier transforms.

    With $\lambda < 0$ it is the screened Poisson equation, as in an implicit step of diffusion. With $\lambda > 0$ it
    is a wave equation; if $-\lambda$ is an eigenvalue of the Laplacian there is no solution, and the result is large.
    The sides are the same as for `Poisson`.

    Attributes:
        laplacian: The Laplacian.
        constant: $\lambda$, a number.

    Args:
        boundary: The boundary conditions.
        constant: $\lambda$.
        order: The order of the differences, 2, or 4, 6 or 8 if all axes are periodic.

    Raises:
        ValueError: If the boundary does not separate; when called, if the field has the wrong shape.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.spatial import Boundaries, Grid, Helmholtz, Periodic

        boundary = Boundaries(Grid(64, 0.0, 2 * jnp.pi), Periodic())
        (x,) = boundary.coordinates
        u = Helmholtz(boundary, constant=-3.0)(jnp.sin(x))
        assert jnp.allclose(u, -jnp.sin(x) / 4, atol=1e-3)
        ```
    """

    laplacian: Laplacian
    constant: Parameter

    def __init__(self, boundary: Boundaries, constant: ArrayLike, order: int = 2):
        self.laplacian = _laplacian(boundary, order)
        self.constant = parameter(constant)
        if self.constant.ndim:
            raise ValueError(
                f"`Helmholtz(constant=...)` must be a number, but has shape {self.constant.shape}. For a field use "
                "`EllipticOperator` and `Multigrid`."
            )

    def __call__(
        self, f: Inexact[Array, "..."], *, t: RealScalarLike | None = None, args: Args = None
    ) -> Inexact[Array, "..."]:
        """Returns the solution.

        Args:
            f: The right-hand side, real or complex, with the grid's axes last.
            t: The time, for values at the walls that are functions.
            args: Their second argument.
        """
        return _solve(self.laplacian, self.constant, f, t, args)
