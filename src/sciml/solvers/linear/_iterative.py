r"""Systems that are solved by a Krylov iteration: the Jacobian is only multiplied with vectors.

The iteration for $W x = b$ runs on $S W P^{-1} S^{-1} u = S b$, with $x = P^{-1} S^{-1} u$, $P$ an approximation of $W$
with which one can solve (the preconditioner), and $S$ a diagonal matrix that measures a residual as the tolerances of
the step measure its error. It ends where the residual is below a small share of what a step may be wrong by, or the
iteration's own tolerances, the less of both.

A derivative of a solution solves the equation $W \dot x = \dot b - \dot W x$ or its transpose: a separate system,
solved to nearly all digits, so that derivatives belong to the exact solution. It asks more of an iteration: GMRES
stagnates where it starts again and forgets the few smallest eigenvalues of a matrix, as of very long steps of diffusion
between walls; BiCGSTAB does not, but may break down. If one does not converge, the other continues.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ..._choices import choices
from ..._jax._interpreters import Jaxpr
from ..._jax._loops import while_loop
from ..._jax._promoted import run_program
from ..._jax._vma import match
from ._structure import AbstractStructure

# Krylov iterations for $A x = b$ where $A$ is known by its products with vectors.
#
# Both run in loops that work under `jax.vmap` and `jax.shard_map`. GMRES starts again, where it has kept as many
# vectors as it may, from the residual that these give; BiCGSTAB, whose recurrence drifts away by rounding, from that by
# its definition.
#
# Source:
#     Y. Saad, M. H. Schultz, GMRES, SIAM J. Sci. Stat. Comput. 7:3 (1986); H. A. van der Vorst, Bi-CGSTAB, SIAM J. Sci.
#     Stat. Comput. 13:2 (1992).


Operator = Callable[[Float[Array, " n"]], Float[Array, " n"]]

_FALLS = 0.9
"""A round has to reduce the residual to less than this part of itself, or there is no other."""


class _Round(NamedTuple):
    """Between rounds.

    Attributes:
        x: The solution so far.
        residual: The residual of `x`.
        size: Its norm.
        said: The norm that the recurrence of the last round ended with.
        count: Products with the operator so far.
        falls: Whether the last round was worth it.
    """

    x: Array
    residual: Array
    size: Array
    said: Array
    count: Array
    falls: Array


def solved_by(
    iterate: Callable[..., tuple[Array, Array | None, Array, Array]],
    operator: Operator,
    b: Float[Array, " n"],
    target: Float[Array, ""],
    most: int,
    like: Any,
) -> tuple[Float[Array, " n"], Bool[Array, ""]]:
    """Returns the solution of a linear system, and whether it is one.

    Args:
        iterate: One round of an iteration, `(operator, residual, size, target, most, like) -> (correction, residual,
            size, products)`; None for a residual that is to be computed.
        operator: The product with the matrix.
        b: The right-hand side.
        target: The norm of the residual that ends it.
        most: The largest number of products with the operator.
        like: The values that the operator closes over.
    """
    size = _norm(b)
    zero, none = jnp.zeros_like(size), jnp.zeros((), jnp.int32)

    def running(now: _Round) -> Array:
        return (now.size > target) & (now.count < most) & now.falls

    def again(now: _Round) -> _Round:
        correction, residual, said, count = iterate(operator, now.residual, now.size, target, most - now.count, like)
        x = now.x + correction
        residual = b - operator(x) if residual is None else residual
        size = _norm(residual)
        return _Round(x, residual, size, said, now.count + count, size < _FALLS * now.size)

    start = _Round(jnp.zeros_like(b), b, size, zero, none, size > zero)
    end = while_loop(running, again, match(start, (start, like)), like=like)
    # where rounding allows no smaller residual the recurrence still converges, to the best that there is
    rounded = (end.said <= target) & (end.size <= float(jnp.finfo(b.dtype).eps) ** 0.5 * size)
    return end.x, (end.size <= target) | rounded


def gmres_round(
    operator: Operator, residual: Array, size: Array, target: Array, most: Array, like: Any, restart: int
) -> tuple[Array, Array, Array, Array]:
    """A round of GMRES with a maximum number of products.

    The rotations that make the Hessenberg matrix triangular are kept multiplied, so that there is no loop over them.
    """
    n = residual.shape[0]
    dtype = residual.dtype
    basis = jnp.zeros((restart + 1, n), dtype).at[0].set(residual / size)
    rotations, triangle = jnp.eye(restart + 1, dtype=dtype), jnp.zeros((restart, restart), dtype)
    numbers = jnp.arange(restart + 1, dtype=jnp.int32)

    def going(now: tuple) -> Array:
        return (now[0] < restart) & (now[0] < most) & (now[4] > target)

    def extend(now: tuple) -> tuple:
        k, basis, rotations, triangle, _ = now
        rest, column = operator(basis[k]), jnp.zeros((restart + 1,), dtype)
        for _ in range(2):  # once leaves what rounding adds
            more = _product(basis, rest)
            rest, column = rest - _product(more, basis), column + more
        outside = _norm(rest)
        basis = basis.at[k + 1].set(_ratio(rest, outside))
        column = _product(rotations, column + jnp.where(numbers == k + 1, outside, jnp.zeros_like(outside)))
        length = jnp.sqrt(column[k] ** 2 + column[k + 1] ** 2)
        cosine, sine = _ratio(column[k], length), _ratio(column[k + 1], length)
        here, below = rotations[k], rotations[k + 1]
        rotations = rotations.at[k].set(cosine * here + sine * below).at[k + 1].set(cosine * below - sine * here)
        column = jnp.where(numbers < k, column, jnp.where(numbers == k, length, jnp.zeros_like(length)))
        triangle = triangle.at[:, k].set(column[:-1])
        return k + 1, basis, rotations, triangle, jnp.abs(size * rotations[k + 1, 0])

    start = match((jnp.zeros((), jnp.int32), basis, rotations, triangle, size), (residual, size, target, most, like))
    count, basis, rotations, triangle, said = while_loop(going, extend, start, like=like)
    known = numbers[:-1] < count
    right = jnp.where(known, size * rotations[:-1, 0], jnp.zeros_like(size))
    triangle = triangle + jnp.diag(jnp.where(known, jnp.zeros_like(right), jnp.ones_like(right)))
    weights = jax.lax.linalg.triangular_solve(triangle, right[:, None], left_side=True, lower=False)[:, 0]
    left = size * rotations[count, 0] * _product(rotations[count], basis)
    return _product(weights, basis[:-1]), left, said, count


def bicgstab_round(
    operator: Operator, residual: Array, size: Array, target: Array, most: Array, like: Any
) -> tuple[Array, None, Array, Array]:
    """A round of BiCGSTAB, to its end."""
    shadow = residual / size

    def going(now: tuple) -> Array:
        return (now[0] < most) & (now[-1] > target)

    def step(now: tuple) -> tuple:
        count, x, rest, direction, product, rho, alpha, omega, _ = now
        new = _dot(shadow, rest)
        beta = _ratio(new, rho) * _ratio(alpha, omega)
        direction = rest + beta * (direction - omega * product)
        product = operator(direction)
        alpha = _ratio(new, _dot(shadow, product))
        half = rest - alpha * product
        image = operator(half)
        omega = _ratio(_dot(image, half), _dot(image, image))
        rest = half - omega * image
        # a breakdown leaves the residual as it is, and the next round begins with another direction
        stuck = (alpha == 0) | (omega == 0)
        x = x + alpha * direction + omega * half
        now_size = _norm(rest)
        counted = jnp.where(stuck, most, count + 2).astype(count.dtype)
        return counted, x, rest, direction, product, new, alpha, omega, now_size

    nothing, one = jnp.zeros_like(residual), jnp.ones_like(size)
    start = (jnp.zeros((), jnp.int32), nothing, residual, nothing, nothing, one, one, one, size)
    start = match(start, (residual, size, target, most, like))
    end = while_loop(going, step, start, like=like)
    return end[1], None, end[-1], end[0]


def _product(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")


def _dot(a: Array, b: Array) -> Array:
    return jnp.sum(a * b)


def _norm(x: Array) -> Array:
    return jnp.sqrt(jnp.sum(x * x))


def _ratio(a: Array, b: Array) -> Array:
    """One number over another, zero where that is zero."""
    return jnp.where(b == 0, jnp.zeros_like(a), a / jnp.where(b == 0, jnp.ones_like(b), b))


SHARE_OF_STAGE = 1e-3
"""The residual of a stage may be so large a part of what the step's error may be: the stages of a method depend on one
another by coefficients of up to some hundreds."""

_DIGITS = 0.7
"""Of derivatives the residual is reduced by this power of the rounding."""

_OF_REFINED = 1e-3
"""If solutions are refined until they no longer change, this share may remain each time. If a matrix has large entries,
rounding may not allow a much smaller one."""


@dataclasses.dataclass(frozen=True)
class Iteration:
    """The iteration and its stopping tolerances.

    Attributes:
        restart: How many vectors GMRES keeps; 0 for BiCGSTAB, which keeps eight.
        rtol: The residual that ends it, relative to the right-hand side.
        atol: The absolute tolerance added to that.
        most: The largest number of products with the matrix.
        step: The tolerances of the steps, where they are known numbers.
        by_weights: The relative residual instead, where it is measured by weights that were given.
    """

    restart: int
    rtol: float
    atol: float
    most: int
    step: tuple[float, float] | None = None
    by_weights: float | None = None

    @property
    def words(self) -> str:
        """Its name."""
        return f"GMRES({self.restart})" if self.restart else "BiCGSTAB"

    @property
    def other(self) -> "Iteration":
        """The other kind, for what it does not solve."""
        return dataclasses.replace(self, restart=0 if self.restart else choices().krylov.vectors)

    def run(self, *arguments: Any) -> tuple[Array, Bool[Array, ""]]:
        """Solves a system; see `solved_by`."""
        restart = min(self.restart, arguments[1].shape[0])
        iterate = functools.partial(gmres_round, restart=restart) if self.restart else bicgstab_round
        return solved_by(iterate, *arguments)


def iteration_of(linear_solver: Any, step: tuple[float, float] | None, relative: bool) -> Iteration:
    """Returns what one of lineax's solvers asks for.

    Args:
        linear_solver: `lineax.GMRES` or `lineax.BiCGStab`.
        step: The tolerances of the steps, or None.
        relative: Whether its absolute tolerance counts for nothing.
    """
    most = choices().krylov.products_at_most if linear_solver.max_steps is None else int(linear_solver.max_steps)
    restart = int(linear_solver.restart) if isinstance(linear_solver, lx.GMRES) else 0
    atol = 0.0 if relative else float(linear_solver.atol)
    return Iteration(restart, float(linear_solver.rtol), atol, most, step)


class ByProducts(NamedTuple):
    """A matrix $M - s J$ by its products.

    Attributes:
        along: The inputs of the product with $J$.
        scale: $s$.
        weights: The diagonal of $S$, or None for ones.
        near: The preconditioner's matrix, or None.
    """

    along: jax.tree_util.Partial
    scale: Array
    weights: Array | None
    near: PyTree


class Prepared(NamedTuple):
    """A matrix, and the factors of the one near it."""

    matrix: ByProducts
    near: PyTree


class Iterative(AbstractStructure):
    """A matrix that is only multiplied with vectors.

    Attributes:
        iteration: The iteration.
        mass: The constant part of the matrix: its diagonal, or all of it.
        near: The structure of the preconditioner, or None.
        first: An iteration that is tried first, without the preconditioner, or None. The preconditioner is then made
            only where that does not converge: most steps are not so stiff that it would be worth what it costs.
        closely: The iterations for derivatives, each for what the ones before it did not solve.
    """

    iterates: ClassVar[bool] = True

    def __init__(
        self,
        size: int,
        iteration: Iteration,
        mass: np.ndarray | None,
        near: AbstractStructure | None,
        first: Iteration | None = None,
    ):
        self.size, self.iteration, self.near, self.first = size, iteration, near, first
        ways = (iteration, iteration.other)
        self.closely = ways if first is None else ways[::-1]
        diagonal = mass is not None and not np.any(mass - np.diag(np.diagonal(mass)))
        self.mass = None if mass is None else np.diagonal(mass) if diagonal else mass

    def assemble(self, along: Callable[[Array], Array], x: Float[Array, " n"], scale: Array) -> ByProducts:
        """Returns the matrix."""
        closed = jax.make_jaxpr(along)(x)
        product = jax.tree_util.Partial(functools.partial(_run, closed.jaxpr), list(closed.consts))
        weights = None
        if self.iteration.step is not None:
            rtol, atol = self.iteration.step
            tiny = float(jnp.finfo(x.dtype).tiny)
            weights = jax.lax.stop_gradient(1 / jnp.maximum(atol + rtol * jnp.abs(x), tiny)) / self.size**0.5
        near = None
        if self.near is not None and self.first is None:
            near = self.near.assemble(along, *jax.lax.stop_gradient((x, scale)))
        return ByProducts(product, scale, weights, jax.lax.stop_gradient(near))

    def weighted(self, matrix: ByProducts, tolerated: Float[Array, " n"]) -> ByProducts:
        """Returns a matrix whose residuals are measured by what is tolerated of each unknown, if it asks for that."""
        if self.iteration.by_weights is None:
            return matrix
        tiny = float(jnp.finfo(tolerated.dtype).tiny)
        return matrix._replace(weights=1 / jnp.maximum(tolerated, tiny) / self.size**0.5)

    def factorise(self, matrix: ByProducts) -> Prepared:
        """Returns the matrix with the factors of the preconditioner."""
        return Prepared(matrix, None if matrix.near is None else self._near.factorise(matrix.near))

    def times(self, matrix: ByProducts, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns the matrix times a vector."""
        return self._times_mass(x) - matrix.scale * matrix.along(x)

    def _times_mass(self, x: Array) -> Array:
        if self.mass is None:
            return x
        mass = jnp.asarray(self.mass, x.dtype)
        return mass * x if mass.ndim == 1 else jnp.matmul(mass, x, precision="highest")

    def substitute(self, factors: Prepared, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system as closely as a step needs it; NaN where the iteration does not converge."""
        # a step of known error is taken again in gradients, and Newton's iteration then refines it to rounding
        refined = self.iteration.by_weights is not None and factors.matrix.weights is None
        return self._found(factors, b, _OF_REFINED if refined else None)

    def substitute_transposed(self, factors: Prepared, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves the transposed system for a solution that is refined; see `known_root`."""
        return self._found(factors, b, _OF_REFINED, transposed=True)

    def solve(self, matrix: ByProducts, factors: Prepared, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system, differentiably; see the module."""
        return _solution(self, matrix, factors, b)

    def derivative(self, matrix: ByProducts, factors: Prepared, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system of derivatives, to nearly all digits."""
        part = float(jnp.finfo(b.dtype).eps) ** _DIGITS
        return jax.lax.custom_linear_solve(
            lambda x: self.times(matrix, x),
            b,
            lambda _, b: self._found(factors, b, part),
            lambda _, b: self._found(factors, b, part, transposed=True),
        )

    def is_singular(self, matrix: ByProducts, factors: Prepared) -> Bool[Array, ""]:
        """Whether the preconditioner is singular; of the matrix the iteration finds out."""
        if matrix.near is None:
            return match(jnp.zeros((), bool), matrix)
        return self._near.is_singular(matrix.near, factors.near)

    @property
    def _near(self) -> AbstractStructure:
        assert self.near is not None
        return self.near

    def _found(self, factors: Prepared, b: Array, part: float | None, transposed: bool = False) -> Array:
        """Solves a system.

        Args:
            factors: The matrix, and what it is preconditioned by.
            b: The right-hand side.
            part: The residual that ends it, relative to the right-hand side; None for what a step needs.
            transposed: Whether the matrix is transposed.
        """
        matrix, closely = factors.matrix, part is not None
        weights = jnp.ones_like(b) if closely or matrix.weights is None else matrix.weights

        def product(x: Array) -> Array:
            return self.times(matrix, x)

        multiply = product
        if transposed:
            back = jax.linear_transpose(product, b)
            multiply = lambda x: back(x)[0]  # noqa: E731

        def operator(divide: Callable) -> Callable[[Array], Array]:
            return lambda u: weights * multiply(divide(u / weights))

        def divided_by(near: PyTree) -> Callable[[Array], Array]:
            structure = self._near
            return functools.partial(structure.substitute_transposed if transposed else structure.substitute, near)

        right = weights * b
        size = jnp.sqrt(jnp.sum(right * right))
        target = self._target(matrix, weights, size) if part is None else part * size
        like = (factors, b)

        def attempt(iteration: Iteration, divide: Callable, u: Array, like: Any) -> tuple[Array, Array]:
            """Goes on from what was found before; `u` is a solution in the weights."""
            left = right - operator(_itself)(u)
            nearer = jnp.sum(left * left) < size * size  # not so where an iteration broke down
            u, left = jnp.where(nearer, u, jnp.zeros_like(u)), jnp.where(nearer, left, right)
            more, found = iteration.run(operator(divide), left, target, iteration.most, like)
            return u + weights * divide(more / weights), found

        def once_more(go_on: Callable, u: Array, found: Array, like: Any) -> tuple[Array, Array]:
            # a loop of one turn or none, which of many members is run only where one of them asks for it
            start = match((u, found, ~found), like)
            end = while_loop(lambda c: c[2], lambda c: (*go_on(c[0]), jnp.zeros_like(c[2])), start, like=like)
            return end[0], end[1]

        def preconditioned(u: Array | None, near: PyTree) -> tuple[Array, Array]:
            divide, inner = _itself if near is None else divided_by(near), (like, near)
            iteration, *others = self.closely if closely else (self.iteration,)
            if u is None:
                more, found = iteration.run(operator(divide), right, target, iteration.most, inner)
                u = weights * divide(more / weights)
            else:
                u, found = attempt(iteration, divide, u, inner)
            for other in others:
                u, found = once_more(lambda u, other=other: attempt(other, divide, u, inner), u, found, inner)
            return u, found

        if self.first is None:
            u, found = preconditioned(None, factors.near)
        else:
            u, found = self.first.run(operator(_itself), right, target, self.first.most, like)

            def with_preconditioner(u: Array) -> tuple[Array, Array]:
                near = self._near.factorise(self._near.assemble(matrix.along, b, matrix.scale))
                return preconditioned(u, near)

            u, found = once_more(with_preconditioner, u, found, like)
        return jnp.where(found, u / weights, jnp.full_like(u, jnp.nan))

    def _target(self, matrix: ByProducts, weights: Array, size: Array) -> Array:
        """Returns the norm of the residual that ends the iteration for a step.

        Args:
            matrix: The matrix.
            weights: By what residuals are measured.
            size: The norm of the right-hand side.
        """
        eps, iteration = float(jnp.finfo(size.dtype).eps), self.iteration
        if matrix.weights is not None and iteration.by_weights is not None:
            return iteration.by_weights * size
        own = iteration.rtol * size + iteration.atol * jnp.sqrt(jnp.sum(weights * weights))
        return jnp.maximum(own if matrix.weights is None else jnp.minimum(own, SHARE_OF_STAGE), 4 * eps * size)

    @property
    def words(self) -> str:
        """A description for people."""
        near = "without a preconditioner" if self.near is None else f"preconditioned by {self.near.words}"
        first = "" if self.first is None else f"by {self.first.words}, and if that does not converge "
        return f"{first}by {self.iteration.words}, {near}"


def _itself(x: Array) -> Array:
    return x


def _run(jaxpr: Jaxpr, consts: list, x: Array) -> Array:
    return run_program(jaxpr, consts, x)[0]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solution(structure: Iterative, matrix: ByProducts, factors: Prepared, b: Array) -> Array:
    return structure.substitute(factors, b)


@_solution.defjvp
def _(structure: Iterative, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    matrix, factors, b = primals
    x = _solution(structure, matrix, factors, b)
    by_matrix = jax.jvp(lambda m: structure.times(m, x), (matrix,), (tangents[0],))[1]
    return x, structure.derivative(matrix, factors, tangents[2] - by_matrix)
