"""The operator of an elliptic problem, for lineax and for multigrid."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Inexact

from ..._checks import concrete
from ..._parameters import parameter
from ..._types import Args, RealScalarLike
from .._boundaries import Boundaries
from .._conditions import Dirichlet, Neumann, Periodic, Robin
from .._diffusion import as_mean, harmonic_mean, positive_beyond
from .._grid import Grid
from ..geometry import _exchange, _metric
from ..geometry._flux_form import alike, between_faces, in_fluid
from ._couplings import Faces, cut


class EllipticOperator(lx.AbstractLinearOperator):
    r"""The linear part of $c\, u - \nabla \cdot (k \nabla u)$ with its boundary conditions, of second order.

    Between two cells the coefficient is the harmonic mean of theirs, by default. It is exact for layers across the
    flux: a jump of $k$ costs no accuracy of the flux. For $k = 1$ the operator is `Laplacian` with the opposite sign.
    It is symmetric, and positive semidefinite for $k \ge 0$ and $c \ge 0$.

    On an `OrthogonalGrid` it is integrated over cells, $\int c\, u - \oint k\, \partial u / \partial n$: so it is also
    symmetric there. `integrated` makes a right-hand side of a field, as `solve_elliptic` does, and `per_volume` goes
    back. In the cells of a body (`Boundaries(..., body=)`) solutions are zero.

    Values at the walls that are not zero belong to the right-hand side: `solve_elliptic` puts them there, and `source`
    returns them. As a `lineax` operator it is only the linear part, and sums and multiples of it with
    `lineax.IdentityLinearOperator`, such as $I + \Delta t\, A$, are elliptic operators for `Multigrid` and
    `FastTransform` as well.

    Attributes:
        boundary: The boundary conditions: `Periodic`, `Dirichlet`, `Neumann` or `Robin` at each side.
        k: The coefficient inside: a number, or a field; or one for each axis as a tuple.
        c: The coefficient of $u$: a number, or a field; None for zero.
        dtype: The floating type of the fields.
        mean: The mean of two cells' coefficients at the face between them.

    Args:
        boundary: `Boundaries`, with unknowns at centres, or at nodes that are not on a wall.
        k: The coefficient inside.
        c: The coefficient of $u$. If no side sets a value, write None, not a zero: under `jax.jit` it is not known that
            a number is zero, and that the constants are the kernel.
        dtype: The floating type; None for the type of `k`, or the default if `k` is a number.
        mean: `"harmonic"`, or `"arithmetic"` for the operator of `VariableLaplacian`.

    Raises:
        ValueError: If a condition has no symmetric operator, or a coefficient has the wrong shape.

    Example:
        ```python
        import jax.numpy as jnp
        import lineax as lx
        from sciml.spatial import Boundaries, Dirichlet, EllipticOperator, Grid, Multigrid

        boundary = Boundaries(Grid((8, 8)), Dirichlet(0.0))
        operator = EllipticOperator(boundary, k=jnp.ones((8, 8)).at[2:4, 2:4].set(100.0))
        u = lx.linear_solve(operator, jnp.ones((8, 8)), Multigrid()).value
        assert jnp.allclose(operator.mv(u), 1.0, rtol=1e-2)
        ```
    """

    boundary: Boundaries
    k: Array | tuple[Array, ...]
    c: Array | None
    dtype: Any = eqx.field(static=True)
    mean: Callable[[Array, Array], Array] = eqx.field(static=True)

    def __init__(
        self,
        boundary: Boundaries,
        k: ArrayLike | tuple[ArrayLike, ...] = 1.0,
        c: ArrayLike | None = None,
        *,
        dtype: Any = None,
        mean: str | Callable[[Array, Array], Array] = "harmonic",
    ):
        _check_boundary(boundary)
        self.boundary = boundary
        self.k = tuple(map(parameter, k)) if isinstance(k, tuple) else parameter(k)
        self.c = None if c is None else parameter(c)
        _check_coefficients(boundary, self.k, self.c)
        if dtype is None:
            strong = [x.dtype for x in jax.tree.leaves((self.k, self.c)) if not x.weak_type]
            dtype = jnp.result_type(*strong) if strong else jnp.result_type(float)
        self.dtype = jnp.dtype(dtype)
        self.mean = as_mean(mean)

    @property
    def singular(self) -> bool:
        """Whether the constants are the kernel: `c` is known to be zero, and no side gives a value."""
        zero = self.c is None or (concrete(self.c) and not np.any(np.asarray(self.c)))
        if self.boundary.body is not None and not self.boundary.body.insulates:
            return False
        return zero and all(isinstance(side, Periodic | Neumann) for pair in self.boundary.sides for side in pair)

    def faces(self) -> Faces:
        """Returns the couplings of the unknowns, and the coefficient of $u$."""
        boundary, shape = self.boundary, self.boundary.shape
        if not alike(boundary):
            couplings, own = _exchange.exchange(boundary, self._at_faces, self.dtype)
            if self.c is not None:
                own = own + self.integrated(jnp.broadcast_to(jnp.asarray(self.c, self.dtype), shape))
            return Faces(shape, boundary.periodic, couplings, own)
        ghosts = boundary.homogeneous().pad(jnp.ones(shape, self.dtype), 1)
        couplings = []
        for axis, h in enumerate(boundary.grid.spacing):
            low, inner, high = self._between(axis)
            if not boundary.periodic[axis]:
                # the ghost cell is a multiple of the first one, so the flux is that to a zero with another coupling
                low = low * (1 - self._side(ghosts, axis, 0))
                high = high * (1 - self._side(ghosts, axis, 1))
                inner, low, high = _same_shape(axis, inner, low, high)
            couplings.append(jnp.concatenate([low, inner, high], axis) / h**2)
        reaction = jnp.zeros((), self.dtype) if self.c is None else jnp.asarray(self.c, self.dtype)
        reaction = reaction.reshape((1,) * len(shape)) if reaction.ndim == 0 else reaction
        return Faces(shape, boundary.periodic, tuple(couplings), reaction)

    def source(self, *, t: RealScalarLike | None = None, args: Args = None) -> Float[Array, "..."]:
        """Returns the contribution of the values at the walls to the right-hand side.

        Args:
            t: The time, for values that are functions.
            args: Their second argument.
        """
        boundary, shape = self.boundary, self.boundary.shape
        if not alike(boundary):
            return _exchange.given(boundary, self._at_faces, self.dtype, t, args)
        ghosts = boundary.pad(jnp.zeros(shape, self.dtype), 1, t=t, args=args)
        total = jnp.zeros(shape, self.dtype)
        for axis, h in enumerate(boundary.grid.spacing):
            if boundary.periodic[axis]:
                continue
            first, _, last = self._between(axis)
            n = shape[axis]
            rest = [(0, 0)] * len(shape)
            rest[axis] = (0, n - 1)
            total = total + jnp.pad(first * self._side(ghosts, axis, 0, True) / h**2, rest)
            rest[axis] = (n - 1, 0)
            total = total + jnp.pad(last * self._side(ghosts, axis, 1, True) / h**2, rest)
        return total

    def integrated(self, f: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns a field times the volumes of cells, zero within a body; the field where all cells are alike."""
        boundary = self.boundary
        return in_fluid(boundary, _metric.times(f, boundary.grid.ndim, _metric.volumes(boundary.grid)))

    def per_volume(self, f: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns a field over the volumes of cells, zero within a body; the field where all cells are alike."""
        volumes = _metric.inverse(_metric.volumes(self.boundary.grid))
        return in_fluid(self.boundary, _metric.times(f, self.boundary.grid.ndim, volumes))

    def _at_faces(self, axis: int) -> Array:
        """The coefficient at the faces across an axis, on a non-uniform grid or around a body."""
        k = jnp.asarray(self.k[axis] if isinstance(self.k, tuple) else self.k, self.dtype)
        return between_faces(self.boundary, k, axis, self.mean, self.mean is harmonic_mean)

    def _between(self, axis: int) -> tuple[Array, Array, Array]:
        """The coefficient at the faces across an axis: the first, those inside, the last."""
        k, n = self._coefficient(axis), self.boundary.shape[axis]
        if k.shape[axis] == 1:  # the coefficient does not change along the axis
            return k, jnp.broadcast_to(k, tuple(n - 1 if a == axis else m for a, m in enumerate(k.shape))), k
        if self.mean is harmonic_mean:
            first, last = cut(k, axis, 0, 1), cut(k, axis, n - 1, n)
            if self.boundary.periodic[axis]:
                first = last = _harmonic(last, first)
            return first, _harmonic(cut(k, axis, 0, n - 1), cut(k, axis, 1, n)), last
        padded = positive_beyond(self.boundary, k)
        for other in range(k.ndim):
            if other != axis:
                padded = cut(padded, other, 1, padded.shape[other] - 1)
        faces = self.mean(cut(padded, axis, 0, n + 1), cut(padded, axis, 1, n + 2))
        return cut(faces, axis, 0, 1), cut(faces, axis, 1, n), cut(faces, axis, n, n + 1)

    def _coefficient(self, axis: int) -> Array:
        k = jnp.asarray(self.k[axis] if isinstance(self.k, tuple) else self.k, self.dtype)
        return k.reshape((1,) * self.boundary.grid.ndim) if k.ndim == 0 else k

    def _side(self, padded: Array, axis: int, end: int, full: bool = False) -> Array:
        """The ghost layer at one end of an axis, without corners; of length 1 along the side where it is a number."""
        shape = self.boundary.shape
        side = self.boundary.sides[axis][end]
        weights = jax.tree.leaves((side.a, side.b)) if isinstance(side, Robin) else []
        constant = not full and all(jnp.ndim(x) == 0 for x in weights)
        start = [1] * len(shape)
        stop = [2 if constant else n + 1 for n in shape]
        start[axis] = end * (shape[axis] + 1)
        stop[axis] = start[axis] + 1
        return jax.lax.slice(padded, start, stop)

    def mv(self, vector: Inexact[Array, "..."]) -> Inexact[Array, "..."]:
        """Returns the operator applied to a field, with zero at the walls."""
        if vector.shape != self.boundary.shape:
            raise ValueError(f"`vector` must have the boundary's shape {self.boundary.shape}, but has {vector.shape}.")
        return self.faces()(vector)

    def as_matrix(self) -> Float[Array, "n n"]:
        """Returns the operator as a dense matrix."""
        return self.faces().matrix()

    def transpose(self) -> "EllipticOperator":
        """Returns itself."""
        return self

    def in_structure(self) -> jax.ShapeDtypeStruct:
        """Returns the shape and dtype of a field."""
        return jax.ShapeDtypeStruct(self.boundary.shape, self.dtype)

    def out_structure(self) -> jax.ShapeDtypeStruct:
        """Returns the shape and dtype of a field."""
        return self.in_structure()


def _same_shape(axis: int, *parts: Array) -> list[Array]:
    """Arrays that broadcast against each other but for one axis."""
    full = np.broadcast_shapes(*(tuple(1 if a == axis else n for a, n in enumerate(x.shape)) for x in parts))
    return [jnp.broadcast_to(x, full[:axis] + (x.shape[axis],) + full[axis + 1 :]) for x in parts]


def _harmonic(a: Array, b: Array) -> Array:
    total = a + b
    # the inner `where` keeps 0 / 0 out of the derivative, which would be NaN in spite of the outer one
    return jnp.where(total == 0, 0.0, 2 * a * b / jnp.where(total == 0, 1.0, total))


def _check_boundary(boundary: Boundaries) -> None:
    if not isinstance(boundary, Boundaries):
        raise TypeError(
            f"`EllipticOperator(boundary=...)` must be Boundaries(grid, conditions), but is a "
            f"{type(boundary).__name__}."
        )
    if not alike(boundary) and set(boundary.location) != {"center"}:
        raise ValueError(
            f"`EllipticOperator` requires unknowns at centres on a non-uniform grid, but they are at "
            f"{boundary.location}."
        )
    for axis, name in enumerate(boundary.grid.names):
        for side, offset in zip(boundary.sides[axis], boundary.offsets(axis)):
            if not isinstance(side, Periodic | Dirichlet | Neumann | Robin):
                raise ValueError(
                    f"along {name}, {type(side).__name__} does not give a symmetric elliptic operator. Use Periodic, "
                    "Dirichlet, Neumann or Robin."
                )
            if isinstance(side, Robin) and (callable(side.a) or callable(side.b)):
                raise ValueError(
                    f"along {name}, the weights `a` and `b` of Robin are functions, but the operator needs numbers. "
                    "Pass their values with `robin.at(t, args)`."
                )
            if offset == 0 and not isinstance(side, Periodic):
                raise ValueError(
                    f"along {name} unknowns are on a wall, where the operator is not symmetric. Place the unknowns at "
                    "centres, or use `Poisson` and `Helmholtz`."
                )


def _check_coefficients(boundary: Boundaries, k: Any, c: Array | None) -> None:
    shape = boundary.shape
    if isinstance(k, tuple) and len(k) != len(shape):
        raise ValueError(f"`k` must have one coefficient for each of {len(shape)} axes, but has {len(k)}.")
    for name, value in (*(("k", x) for x in (k if isinstance(k, tuple) else (k,))), ("c", c)):
        if value is None:
            continue
        if value.ndim and value.shape != shape:
            raise ValueError(f"`{name}` must be a number or a field of shape {shape}, but has shape {value.shape}.")
        if jnp.iscomplexobj(value):
            raise TypeError(f"`{name}` must be real, but has dtype {value.dtype}.")


@lx.is_symmetric.register(EllipticOperator)
@lx.is_positive_semidefinite.register(EllipticOperator)
def _(operator: EllipticOperator) -> bool:
    del operator
    return True


@lx.is_diagonal.register(EllipticOperator)
@lx.is_tridiagonal.register(EllipticOperator)
@lx.has_unit_diagonal.register(EllipticOperator)
@lx.is_lower_triangular.register(EllipticOperator)
@lx.is_upper_triangular.register(EllipticOperator)
@lx.is_negative_semidefinite.register(EllipticOperator)
def _(operator: EllipticOperator) -> bool:
    del operator
    return False


@lx.linearise.register(EllipticOperator)
@lx.materialise.register(EllipticOperator)
@lx.conj.register(EllipticOperator)
def _(operator: EllipticOperator) -> EllipticOperator:
    return operator


@lx.diagonal.register(EllipticOperator)
def _(operator: EllipticOperator) -> Array:
    return operator.faces().diagonal().reshape(-1)


def as_elliptic(operator: lx.AbstractLinearOperator) -> EllipticOperator:
    """Returns a sum of multiples of an elliptic operator and the identity as one elliptic operator.

    Raises:
        ValueError: If it is another operator.
    """
    shift, scale, found = _parts(operator)
    if found is None:
        raise ValueError(
            "the operator must be an `EllipticOperator`, or a sum or multiple of one with `IdentityLinearOperator`, "
            f"but is {type(operator).__name__}."
        )
    if shift is None and scale is None:
        return found
    if shift is not None and not isinstance(found.boundary.grid, Grid):
        raise ValueError(
            "on an `OrthogonalGrid` an `EllipticOperator` is integrated over cells, but the identity is not. Pass the "
            "multiple of the identity to the operator as `c`."
        )
    scale = jnp.ones((), found.dtype) if scale is None else scale
    k = jax.tree.map(lambda x: jnp.asarray(x, found.dtype) * scale, found.k)
    c = None if found.c is None else jnp.asarray(found.c, found.dtype) * scale
    c = c if shift is None else shift if c is None else c + shift
    return EllipticOperator(found.boundary, k, c, dtype=found.dtype, mean=found.mean)


def _parts(operator: Any) -> tuple[Array | None, Array | None, EllipticOperator | None]:
    """Shift, scale and elliptic operator of an operator `shift + scale * elliptic`; None for 0, 1 and none."""
    if isinstance(operator, EllipticOperator):
        return None, None, operator
    if isinstance(operator, lx.IdentityLinearOperator):
        return jnp.ones((), operator.in_structure().dtype), None, None
    if isinstance(operator, lx.TaggedLinearOperator):
        return _parts(operator.operator)
    if isinstance(operator, lx.AddLinearOperator):
        (s1, f1, e1), (s2, f2, e2) = _parts(operator.operator1), _parts(operator.operator2)
        shift = s1 if s2 is None else s2 if s1 is None else s1 + s2
        if e1 is None or e2 is None:
            return shift, f1 if e2 is None else f2, e1 if e2 is None else e2
        raise ValueError(
            "a sum of two elliptic operators is not supported. Create one operator with the summed coefficients."
        )
    if isinstance(operator, lx.NegLinearOperator):
        return _times(operator.operator, lambda x: -x)
    if isinstance(operator, lx.MulLinearOperator):
        return _times(operator.operator, lambda x: x * jnp.asarray(operator.scalar, x.dtype))
    if isinstance(operator, lx.DivLinearOperator):
        return _times(operator.operator, lambda x: x / jnp.asarray(operator.scalar, x.dtype))
    return None, None, None


def _times(operator: Any, factor: Any) -> tuple[Array | None, Array | None, EllipticOperator | None]:
    shift, scale, found = _parts(operator)
    if found is not None:
        scale = factor(jnp.ones((), found.dtype) if scale is None else scale)
    return None if shift is None else factor(shift), scale, found
