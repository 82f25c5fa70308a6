r"""Exponential Rosenbrock methods: the linear part of any equation, about each state, exactly.

The functions $\varphi_k$ of a matrix times a vector: of the whole matrix, or of its projection on a Krylov space.

With $Q^T J Q = H$ on the space of $v, J v, J^2 v, \dots$ and $v = Q b$,

$$\varphi_k(h J) v \approx Q \varphi_k(h H) b, \qquad
  \text{missing about } h\, \beta\, e_m^T \varphi_{k+1}(h H) b\; q_{m+1},$$

with $\beta$ the norm of what $J q_m$ has outside of the space, and $q_{m+1}$ its direction. All $\varphi_k(h H) b$
are in one exponential,

$$\exp \begin{pmatrix} h H & b e_1^T \\ 0 & N \end{pmatrix}
  = \begin{pmatrix} \exp(h H) & \varphi_1(h H) b & \varphi_2(h H) b & \cdots \\ 0 & & \exp N & \end{pmatrix},$$

with $N$ the shift by one.

Source:
    Y. Saad, SIAM J. Numer. Anal. 29 (1992), doi:10.1137/0729014; R. B. Sidje, Expokit, ACM Trans. Math. Softw. 24
    (1998).
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ...._checks import check_count, check_order
from ...._jax._loops import scan
from ...._jax._vma import match
from ...._types import RealScalarLike, Y
from .._capabilities import Traits
from .._ravel import flattened, unflattened
from .._stepper import AbstractStepper, BoundField, Step

_BREAKDOWN = 2 / 3
"""A direction that is shorter than this power of the rounding, relative to the vector from which it was computed,
counts as zero."""

_SQUARINGS = 33
"""An exponential is squared so often at most: a step times an eigenvalue may be some 1e9. As a loop: lanes write out
shorter ones."""

_TERMS = 15
"""Terms of the series of an exponential of a matrix of norm one half, to rounding in float64."""


class Space(NamedTuple):
    """A vector, and a matrix on a space with it.

    Attributes:
        basis: The rows $q_i$; None for the whole space.
        matrix: $H$.
        vector: $b$.
        beyond: The image of the last row under the matrix outside of the space; None if there is none.
    """

    basis: Float[Array, "m n"] | None
    matrix: Float[Array, "m m"]
    vector: Float[Array, " m"]
    beyond: Float[Array, " n"] | None

    def phi(self, h: Array, most: int) -> list[Float[Array, " n"]]:
        r"""Returns $\varphi_1(h J) v$ to the one of number `most`, and behind these what each of them misses."""
        return self._parts(h, exponential(self._whole(h, most)), most)

    def phi_of_half_and_whole(self, h: Array) -> tuple[Float[Array, " n"], list[Float[Array, " n"]]]:
        r"""Returns $\varphi_1(\frac h2 J) v$, and $\varphi_1(h J) v$ with its truncation error."""
        half = exponential(self._whole(h, 1) / 2)
        values = 2 * self._parts(h / 2, half, 1)[0]  # of half of the vector
        return values, self._parts(h, jnp.matmul(half, half, precision="highest"), 1)

    def _whole(self, h: Array, most: int) -> Float[Array, "k k"]:
        """The matrix whose exponential holds the functions."""
        m, count = self.vector.shape[0], most + (self.basis is not None)
        block = jnp.zeros((m, count), self.matrix.dtype).at[:, 0].set(self.vector)
        shift = match(jnp.eye(count, k=1, dtype=self.matrix.dtype), self.vector)
        upper = jnp.concatenate([h.astype(self.matrix.dtype) * self.matrix, match(block, self.vector)], axis=1)
        lower = jnp.concatenate([jnp.zeros_like(block.T), shift], axis=1)
        return jnp.concatenate([upper, match(lower, self.vector)])

    def _parts(self, h: Array, found: Float[Array, "k k"], most: int) -> list[Float[Array, " n"]]:
        m = self.vector.shape[0]
        columns = found[:m, m:].T
        if self.basis is None or self.beyond is None:
            return [*columns, *(jnp.zeros_like(c) for c in columns)]
        values = [jnp.matmul(c, self.basis, precision="highest") for c in columns[:most]]
        return [*values, *(h.astype(c.dtype) * c[-1] * self.beyond for c in columns[1:])]


def exponential(a: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """Returns the exponential of a matrix, by its series and squaring; NaN where its norm is beyond 2**32.

    Its program is a tenth of the size of `jax.scipy.linalg.expm`, and it can be differentiated in either mode.
    """
    norm = jax.lax.stop_gradient(jnp.max(jnp.sum(jnp.abs(a), axis=0)))
    _, exponent = jnp.frexp(norm)
    count = jnp.clip(exponent + 1, 0, _SQUARINGS)
    small = a * jnp.where(exponent < _SQUARINGS, jnp.exp2(-count.astype(a.dtype)), jnp.full_like(norm, jnp.nan))
    unit = match(jnp.eye(a.shape[0], dtype=a.dtype), a)

    def add(total: Array, number: Array) -> tuple[Array, None]:
        return unit + jnp.matmul(small, total, precision="highest") / number, None

    def square(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        x, left = carry
        x = jax.lax.cond(left > 0, lambda x: jnp.matmul(x, x, precision="highest"), lambda x: x, x)
        return (x, left - 1), None

    total, _ = scan(add, unit, jnp.arange(_TERMS, 0, -1, dtype=a.dtype), like=a)
    return scan(square, (total, count), length=_SQUARINGS, like=a)[0][0]


def krylov_space(along: Callable[[Array], Array], vector: Float[Array, " n"], size: int) -> Space:
    """Returns the space of a vector and of products with it, by Arnoldi's iteration.

    Args:
        along: The product with the matrix.
        vector: The vector.
        size: The number of dimensions, fewer than the vector has.
    """
    length, first = _normalised(vector, jnp.linalg.norm(jax.lax.stop_gradient(vector)))
    basis = jnp.zeros((size, vector.shape[0]), vector.dtype)

    def extend(carry: tuple, number: Array) -> tuple:
        basis, direction = carry
        basis = basis.at[number].set(direction)
        product = along(direction)
        rest, column = product, jnp.zeros((size,), vector.dtype)
        for _ in range(2):  # once leaves what rounding adds
            more = jnp.matmul(basis, rest, precision="highest")
            rest, column = rest - jnp.matmul(more, basis, precision="highest"), column + more
        outside, direction = _normalised(rest, jnp.linalg.norm(jax.lax.stop_gradient(product)))
        return (basis, direction), (column, outside, rest)

    start = match((basis, first), (vector, first))
    numbers = jnp.arange(size)
    (basis, _), (columns, outside, rests) = scan(extend, start, numbers, like=vector)
    below = jnp.concatenate([jnp.diag(outside[:-1]), jnp.zeros((size - 1, 1), vector.dtype)], axis=1)
    matrix = columns.T + jnp.concatenate([jnp.zeros((1, size), vector.dtype), below])
    unit = jnp.zeros((size,), vector.dtype).at[0].set(1.0)
    return Space(basis, matrix, length * unit, rests[-1])


def _normalised(x: Float[Array, " n"], of: Array) -> tuple[Float[Array, ""], Float[Array, " n"]]:
    """Returns length and direction of a vector; zero where it is rounding of something of length `of`."""
    square = jnp.sum(x * x)
    there = jnp.sqrt(jax.lax.stop_gradient(square)) > float(jnp.finfo(x.dtype).eps) ** _BREAKDOWN * of
    length = jnp.sqrt(jnp.where(there, square, jnp.ones_like(square)))
    return jnp.where(there, length, jnp.zeros_like(length)), jnp.where(there, x / length, jnp.zeros_like(x))


def whole_space(matrix: Float[Array, "n n"], vector: Float[Array, " n"]) -> Space:
    """Returns a matrix as it is."""
    return Space(None, matrix, vector, None)


def jacobian_of(along: Callable[[Array], Array], x: Float[Array, " n"]) -> Float[Array, "n n"]:
    """Returns a matrix by its products with all unit vectors."""
    return jax.vmap(along, out_axes=1)(match(jnp.asarray(np.eye(x.shape[0]), x.dtype), x))


class Linearised(NamedTuple):
    r"""An equation about the start of a step, $\dot x = F + J (x - x_0) + (t - t_0) \dot F + D(t, x)$.

    Attributes:
        rest: $D(t_0 + s, x_0 + d)$ from $s$ and $d$.
        of_slope: $F$ and $J$, with time as one more unknown, for the functions of both.
        of: $J$ with another vector, likewise.
    """

    rest: Callable[[Array, Array], Float[Array, " n"]]
    of_slope: Space
    of: Callable[[Array], Space]


class EXPRB(AbstractStepper):
    r"""Exponential Rosenbrock methods of Hochbruck, Ostermann and Schweitzer: EXPRB32 and EXPRB43.

    They take the Jacobian $J$ at the start of each step exactly. With $g(u) = f(u) - J u$, and the derivative of $f$ by
    time as well, `order=3` has the two stages

    $$U = y + h \varphi_1(h J) f(t, y), \qquad y_1 = U + 2 h \varphi_3(h J) \big( g(U) - g(y) \big),$$

    and `order=4` three, with $D_i = g(U_i) - g(y)$:

    $$U_2 = y + \tfrac h2 \varphi_1(\tfrac h2 J) f(t, y), \qquad
      U_3 = y + h \varphi_1(h J) \big( f(t, y) + D_2 \big),$$

    $$y_1 = y + h \varphi_1(h J) f(t, y) + h \varphi_3(h J) (16 D_2 - 2 D_3) + h \varphi_4(h J) (12 D_3 - 48 D_2).$$

    They have their orders for any stiffness, do not solve linear systems, and solve the linear part exactly. For stiff
    equations of some tens of unknowns, and for large ones whose Jacobian's products are cheap and that a Krylov space
    holds over a step: diffusion, waves, quantum dynamics. Very stiff large ones want `Rodas5P` and a band. Steps end at
    saved times.

    Attributes:
        order: 3 or 4.
        krylov: Up to this number of unknowns the functions $\varphi_k(h J)$ use the whole Jacobian; beyond, Krylov
            spaces of this dimension, for which $J$ is only multiplied with vectors. Their truncation is part of the
            error estimate.

    Raises:
        ValueError: If there is no method of this order, or `krylov` is less than 2.

    Source:
        M. Hochbruck, A. Ostermann, J. Schweitzer, Exponential Rosenbrock-type methods, SIAM J. Numer. Anal. 47 (2009),
        doi:10.1137/080717717.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        def heat(t, u, args):  # a source, and zero at both ends
            wide = jnp.pad(u, 1)
            return 51.0**2 * (wide[2:] - 2 * u + wide[:-2]) + 1 / (1 + u**2)

        solver = sciml.solvers.EXPRB(order=4, krylov=30)  # of fifty unknowns
        sol = sciml.solve(heat, jnp.zeros(50), t0=0.0, t1=0.5, rtol=1e-3, atol=1e-4, solver=solver)
        assert sol.stats.accepted < 100
        ```
    """

    order: int = eqx.field(static=True, default=4)
    krylov: int = eqx.field(static=True, default=40)
    has_error: ClassVar[bool] = True
    traits: ClassVar[Traits] = Traits(elementwise=False, costly="always")

    def __check_init__(self):
        check_order(self.order, (3, 4), "EXPRB")
        if check_count(self.krylov, "krylov", "EXPRB") < 2:
            raise ValueError(f"`EXPRB(krylov=...)` must be at least 2, but is {self.krylov}.")

    @property
    def name(self) -> str:
        """With the order."""
        return f"EXPRB(order={self.order})"

    @property
    def evaluations(self) -> int:
        """Evaluations of the vector field per step."""
        return self.order - 1

    def linearised(self, field: BoundField, t: Array, h: Array, y: Y) -> Linearised:
        """Returns the equation about the start of a step."""
        x, t = flattened(y), jnp.asarray(t, h.dtype)

        def slope_at(t: Array, x: Array) -> Array:
            return flattened(field(t, unflattened(x, y)))

        slope, tangent = jax.linearize(slope_at, t, x)
        still = match(jnp.zeros((), h.dtype), (t, x))
        drift = tangent(match(jnp.ones((), h.dtype), (t, x)), match(jnp.zeros_like(x), x))
        # time in units in which it is as large as what the state does
        unit = jnp.linalg.norm(slope) + jnp.abs(h).astype(x.dtype) * jnp.linalg.norm(drift)
        unit = jax.lax.stop_gradient(jnp.maximum(unit, float(jnp.finfo(x.dtype).tiny) ** 0.5))

        def along(v: Array) -> Array:
            return tangent(still, v)

        def along_with_time(v: Array) -> Array:
            return jnp.append(along(v[:-1]) + v[-1] / unit * drift, jnp.zeros_like(v[-1]))

        def rest(s: Array, d: Array) -> Array:
            return slope_at(t + s, x + d) - (slope + (along(d) + s.astype(x.dtype) * drift))

        with_time = jnp.append(slope, unit)
        if x.shape[0] > self.krylov:
            of_slope = krylov_space(along_with_time, with_time, self.krylov)
            return Linearised(rest, of_slope, lambda v: krylov_space(along, v, self.krylov))
        matrix = jacobian_of(along, x)
        wide = jnp.concatenate([matrix, (drift / unit)[:, None]], axis=1)
        wide = jnp.concatenate([wide, jnp.zeros_like(wide[:1])])
        return Linearised(rest, whole_space(wide, with_time), lambda v: whole_space(matrix, v))

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        del memory
        h = jnp.asarray(h)
        about = self.linearised(field, jnp.asarray(t), h, y)
        return _two_stages(about, h, y) if self.order == 3 else _three_stages(about, h, y)


def _two_stages(about: Linearised, h: Array, y: Y) -> Step:
    first, missing = (h.astype(v.dtype) * v[:-1] for v in about.of_slope.phi(h, 1))
    more = about.of(about.rest(h, first)).phi(h, 3)
    change = 2 * h.astype(first.dtype) * more[2]
    return _finished(y, first + change, change + missing)


def _three_stages(about: Linearised, h: Array, y: Y) -> Step:
    half, whole = about.of_slope.phi_of_half_and_whole(h)
    length = h.astype(half.dtype)
    first, missing = (length * v[:-1] for v in whole)
    second = about.of(about.rest(h / 2, length / 2 * half[:-1])).phi(h, 4)
    third = about.of(about.rest(h, first + length * second[0])).phi(h, 4)
    error = length * (12 * third[3] - 48 * second[3])
    change = length * (16 * second[2] - 2 * third[2]) + error
    return _finished(y, first + change, error + missing)


def _finished(y: Y, rise: Array, error: Array) -> Step:
    return Step(unflattened(flattened(y) + rise, y), unflattened(error, y), solvable=jnp.all(jnp.isfinite(rise)))
