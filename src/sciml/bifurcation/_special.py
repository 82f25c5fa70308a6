r"""Folds, Hopf points and branch points, located by Newton's method on extended systems.

With the eigenvector $q = a + i b$ of the eigenvalue $i \omega$ and a fixed vector $c$, a Hopf point solves

$$F(x, p) = 0, \quad F_x a + \omega b = 0, \quad F_x b - \omega a = 0, \quad c \cdot a = 1, \quad c \cdot b = 0 .$$

These equations determine a fold, too: with $\omega = 0$ and $b = 0$, where Newton's method stays if it starts there.
A branch point solves, with the left null vector $\psi$ of $F_x$,

$$F(x, p) + \mu \psi = 0, \quad F_x^T \psi = 0, \quad \psi \cdot F_p = 0, \quad \psi \cdot \psi = 1 ,$$

where $\mu$ unfolds it and vanishes. Folds and branch points of limit cycles solve the same equations, in which $x$ is
the whole cycle. At a torus bifurcation, with the multiplier $e^{i \theta}$, changes $a + i b$ solve them, too, with
$\omega = 0$, except that they are $e^{i \theta}$ times as large after a period, whose length does not change. So does a
period doubling, where $\theta = \pi$ and $b = 0$, which Newton's method does not change.

All have the same unknowns, $x$, $p$, two vectors and a number, so that one program locates points of each kind. Their
derivatives are those of the implicit function.

Source:
    G. Moore and A. Spence, SIAM Journal on Numerical Analysis 17 (1980) 567 (folds). A. Griewank and G. Reddien, IMA
    Journal of Numerical Analysis 3 (1983) 295 (Hopf points). G. Moore, Numerical Functional Analysis and Optimization 2
    (1980) 441 (branch points).
"""

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, Int, PyTree

from .._jax._loops import while_loop
from .._jax._vma import match
from .._status import Status
from ..solvers.linear._entries import DenseMatrix
from ..solvers.roots._conserved import jacobian_of, with_jacobian
from ..solvers.roots._implicit_root import with_derivatives
from ._orbits import Orbits
from ._problem import Equilibria

_INVERSE_ITERATIONS = 3
"""Steps of the inverse iteration for the critical eigenvector, whose guess need not be exact."""

_NEWTON = 32
"""The most Newton steps."""

_LEAST = 1e-4
"""A smaller part of a Newton step is not tried: there is no root nearby."""

_SMALL = 1e-3
"""An element of the state counts as at least this part of the largest one."""

_PRECISION = 0.75
"""The length of the last Newton step but one is at most the precision to this power; the last one is its square."""


class Kind(enum.IntEnum):
    """Kinds of special points of a branch; their codes are in `SpecialPoint.kind`.

    Example:
        ```python
        from sciml import bifurcation

        assert bifurcation.Kind(2) is bifurcation.Kind.hopf
        ```
    """

    none = 0
    fold = 1
    hopf = 2
    branch_point = 3
    period_doubling = 4
    torus = 5


class SpecialPoint(eqx.Module):
    """Special points of steady states or limit cycles, one or several along a first axis; NaN if one was not found.

    Attributes:
        kind: A code of `Kind`, `none` in rows that are not used.
        parameter: The parameter.
        y: The state, or the `LimitCycle`.
        frequency: Of a Hopf point the angular frequency of the oscillations that begin there, of a torus bifurcation
            the one of the second oscillation, otherwise zero.
        direction: A pair like state and parameter: of a branch point the direction of the branch that crosses there,
            which has no derivatives; of others the critical eigenvector, of Hopf points its real part, and zero.
        status: A code of `sciml.Status`.
    """

    kind: Int[Array, "*count"]
    parameter: Float[Array, "*count"]
    y: PyTree
    frequency: Float[Array, "*count"]
    direction: tuple[PyTree, Float[Array, "*count"]]
    status: Int[Array, "*count"]


class FoundPoint(NamedTuple):
    """A special point without derivatives.

    Attributes:
        z: The unknowns of the extended system.
        c: The vector that normalises the eigenvector.
        crossing: The direction of the other branch at a branch point.
        kind: A code of `Kind`.
        good: Whether it was found.
    """

    z: Float[Array, " size"]
    c: Float[Array, " n"]
    crossing: Float[Array, " m"]
    kind: Int[Array, ""]
    good: Array


def extended(problem: Equilibria | Orbits, z: Array, constants: Any, c: Array, kind: Array) -> Array:
    """Returns the equations of a special point; see above."""
    n = c.size
    u, a, b, number = z[: n + 1], z[n + 1 : 2 * n + 1], z[2 * n + 1 : 3 * n + 1], z[-1]
    zero = jnp.zeros((1,), z.dtype)
    vectors, omega = match(jnp.stack([jnp.append(a, zero), jnp.append(b, zero)]), z), number
    if isinstance(problem, Orbits):
        turns, k = _by_multiplier(kind), problem.shape[1]
        value, opened = jax.linearize(lambda u, end: problem.open_equations(u, end, constants, *problem.near), u, u[:k])
        cos, sin = jnp.where(turns, jnp.cos(number), 1), jnp.where(turns, jnp.sin(number), 0)
        ends = jnp.stack([cos * a[:k] - sin * b[:k], sin * a[:k] + cos * b[:k]])
        of_a, of_b = jax.vmap(opened)(vectors.at[:, n - 1].set(jnp.where(turns, 0, vectors[:, n - 1])), ends)
        of_a, of_b = (v.at[-1].set(jnp.where(turns, x[-1], v[-1])) for v, x in ((of_a, a), (of_b, b)))
        omega = jnp.where(turns, 0, number)

        def along(v: Array) -> Array:
            return opened(v, v[:k])
    else:
        value, along = jax.linearize(lambda u: problem.equations(u, constants), u)
        of_a, of_b = jax.vmap(along)(vectors)
    (pulled,) = jax.linear_transpose(along, u)(match(a, value))
    ends = jnp.stack([jnp.dot(c, a) - 1, jnp.dot(c, b)])
    vibrates = jnp.concatenate([value, of_a + omega * b, of_b - omega * a, ends])
    branches = jnp.concatenate([value + number * a, pulled[:-1], b, pulled[-1:], jnp.dot(a, a)[None] - 1])
    return jnp.where(kind == int(Kind.branch_point), branches, vibrates)


def _by_multiplier(kind: Array) -> Array:
    """Whether a kind has a critical multiplier other than 1."""
    return (kind == int(Kind.period_doubling)) | (kind == int(Kind.torus))


def eigenvalues_of(matrix: Float[Array, "n n"]) -> Array:
    """Returns the eigenvalues, those with the largest real part first."""
    found = jnp.linalg.eigvals(matrix)
    return found[jnp.argsort(-jax.lax.stop_gradient(found.real))]


def _critical(
    problem: Equilibria | Orbits, u: Array, jacobian: Array, kind: Array, multipliers: Array | None
) -> tuple[Array, Array, Array]:
    """Returns a guess of the critical eigenvector, in two parts, and of the frequency or the angle."""
    matrix = jacobian[:, :-1]
    values = jnp.linalg.eigvals(matrix)
    omega = jnp.where(kind == int(Kind.hopf), _nearest(values, jnp.abs(values.real)).imag, 0).astype(u.dtype)
    size, number = jnp.max(jnp.abs(values)), omega
    matrix = jnp.where(kind == int(Kind.branch_point), matrix.T, matrix)
    matrix = jax.lax.complex(matrix, -omega * jnp.eye(len(matrix), dtype=u.dtype))
    if isinstance(problem, Orbits):
        end, turns, torus = u[: problem.shape[1]], _by_multiplier(kind), kind == int(Kind.torus)
        angle = jnp.full_like(omega, jnp.pi)
        if multipliers is not None:
            nearest = _nearest(multipliers, jnp.abs(jnp.log(jnp.abs(multipliers))))
            angle = jnp.where(torus, jnp.angle(nearest), angle)
        # the last state is the first one times the multiplier, and the length of the period is the same
        by_end = jacobian_of(lambda end: problem.open_equations(u, end, problem.constants, *problem.near), end)
        factor = jax.lax.complex(jnp.where(torus, jnp.cos(angle), -1) - 1, jnp.where(torus, jnp.sin(angle), 0))
        changed = matrix.at[:, : end.size].add(factor * by_end.astype(factor.dtype))
        changed = changed.at[-1].set(jnp.zeros_like(changed[-1]).at[-1].set(1))
        matrix, number = jnp.where(turns, changed, matrix), jnp.where(turns, angle, omega)
    a, b = _eigenvector(matrix, size)
    return a, jnp.where((kind == int(Kind.hopf)) | (kind == int(Kind.torus)), b, 0), number


def _nearest(values: Array, distance: Array) -> Array:
    """Returns the eigenvalue with a positive imaginary part and the smallest distance."""
    size = jnp.max(jnp.abs(values))
    turns = jnp.abs(values.imag) > float(jnp.finfo(values.dtype).eps) ** 0.5 * size
    nearest = values[jnp.argmin(jnp.where(turns, distance, jnp.inf))]
    return jax.lax.complex(nearest.real, jnp.abs(nearest.imag))


def _eigenvector(matrix: Complex[Array, "n n"], size: Array) -> tuple[Array, Array]:
    """Returns the real and the imaginary part of the null vector of a matrix with eigenvalues up to a size."""
    n, dtype = matrix.shape[0], size.dtype
    # a small shift, for a matrix that is singular exactly
    shift = float(jnp.finfo(dtype).eps) ** 0.5 * jnp.where(size > 0, size, 1)
    shifted = matrix + shift.astype(matrix.dtype) * jnp.eye(n, dtype=matrix.dtype)
    dense = DenseMatrix(np.eye(n))
    factors = dense.factorise(shifted)
    guess = np.random.default_rng(0).uniform(0.5, 1.5, n)
    q = match(jax.lax.complex(jnp.asarray(guess, dtype), jnp.zeros(n, dtype)), shifted)
    for _ in range(_INVERSE_ITERATIONS):
        q = dense.substitute(factors, q)
        q = q / jnp.sqrt(jnp.sum(jnp.abs(q) ** 2)).astype(q.dtype)
    # turned so that both parts are at right angles, and the real one is not shorter
    square = jnp.sum(q * q)
    size = jnp.abs(square)
    phase = jnp.where(size > 0, square / jnp.where(size > 0, size, 1).astype(q.dtype), 1)
    q = q / jnp.sqrt(phase)
    length = jnp.linalg.norm(q.real)
    return q.real / length, q.imag / length


def _units(problem: Equilibria | Orbits, z: Array, jacobian: Array) -> Array:
    """Returns the sizes of the unknowns of an extended system, in which Newton steps are measured."""
    n, small = jacobian.shape[0], float(jnp.finfo(z.dtype).eps) ** 0.5
    turn = jnp.where(z[-1] == 0, jnp.max(jnp.abs(jacobian)), z[-1])
    vectors = jnp.ones(2 * n, z.dtype)
    return jnp.concatenate([sizes_of_unknowns(problem, z[: n + 1]), vectors, jnp.maximum(turn, small)[None]])


def sizes_of_unknowns(problem: Equilibria | Orbits, u: Float[Array, " m"]) -> Float[Array, " m"]:
    """Returns the sizes of a state and a parameter, in which Newton steps are measured."""
    sizes = problem.sizes(u[:-1])
    state = jnp.maximum(sizes, _SMALL * jnp.max(sizes))
    return jnp.maximum(jnp.append(state, jnp.abs(u[-1])), float(jnp.finfo(u.dtype).eps) ** 0.5)


class _Iteration(NamedTuple):
    """An iterate, the Newton step from there with its length, the part of it to try next, and the number of steps."""

    z: Array
    step: Array
    length: Array
    part: Array
    number: Array


def dense_step(f: Any, units: Array) -> Callable[[Array], Array]:
    """Returns the Newton step as a function of the place, by a dense matrix."""
    dense = DenseMatrix(np.eye(units.size))

    def step(z: Array) -> Array:
        value, matrix = with_jacobian(f, z)
        matrix = matrix * units[None]
        largest = jnp.max(jnp.abs(matrix), axis=1)
        rows = 1 / jnp.where(largest > 0, largest, 1)
        return -units * dense.substitute(dense.factorise(matrix * rows[:, None]), rows * value)

    return step


def newton(
    step_at: Callable[[Array], Array], start: Array, units: Array, like: Any, wanted: Array | bool = True
) -> tuple[Array, Array]:
    """Returns a root near the start, and whether it is one.

    A step is accepted if the Newton step that follows is shorter; otherwise a part of it is tried. The start is
    returned if no root is wanted.
    """
    tolerance = float(jnp.finfo(start.dtype).eps) ** _PRECISION

    def iterate(c: _Iteration) -> _Iteration:
        trial = c.z + c.part * c.step
        step = step_at(trial)
        length = jnp.max(jnp.abs(step / units))
        shorter = length <= (1 - c.part / 4) * c.length  # not if it is NaN
        part = jnp.where(shorter, jnp.minimum(1, 2 * c.part), c.part / 4)
        z, step, length = (jnp.where(shorter, a, b) for a, b in ((trial, c.z), (step, c.step), (length, c.length)))
        # the first step is taken from the start itself
        return _Iteration(z, step, length, jnp.where(c.number == 0, 1, part), c.number + 1)

    def going(c: _Iteration) -> Array:
        return (c.length > tolerance) & (c.number < _NEWTON) & (c.part > _LEAST)

    one = jnp.ones((), start.dtype)
    length = jnp.where(wanted, one * jnp.inf, 0)
    first = _Iteration(start, jnp.zeros_like(start), length, one, jnp.zeros((), jnp.int32))
    found = while_loop(going, iterate, first, like=(like, start, units))
    return found.z + found.step, found.length <= tolerance


def _crossing(f: Any, u: Array, psi: Array, known: Array) -> Array:
    r"""Returns the direction of the branch that crosses another one at a branch point; NaN if there is none.

    Both directions are roots of the quadratic form $\psi \cdot F_{uu} v v$ in the kernel of $F_u$, which has two
    dimensions, and where the form is $m + r \cos(2 \theta - \alpha)$ at an angle $\theta$.

    Args:
        f: The equations.
        u: The point.
        psi: The left null vector.
        known: The direction of the branch that is known.
    """
    square = jnp.pad(jacobian_of(f, u), ((0, 1), (0, 0)))
    kernel = jnp.linalg.svd(square, full_matrices=False)[2][-2:]

    def second(v: Array, w: Array) -> Array:
        return jnp.dot(psi, jax.jvp(lambda u: jax.jvp(f, (u,), (v,))[1], (u,), (w,))[1])

    both = jax.vmap(jax.vmap(second, (None, 0)), (0, None))(kernel, kernel)
    mean, half = (both[0, 0] + both[1, 1]) / 2, (both[0, 0] - both[1, 1]) / 2
    angle, width = jnp.arctan2(both[0, 1], half), jnp.arccos(-mean / jnp.hypot(half, both[0, 1]))
    angles = jnp.stack([angle + width, angle - width]) / 2
    found = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1) @ kernel
    other = found[jnp.argmin(jnp.abs(found @ known))]
    return jnp.where(other[-1] < 0, -other, other)


def found_near(
    problem: Equilibria | Orbits,
    guess: Float[Array, " m"],
    kind: Int[Array, ""],
    known: Float[Array, " m"],
    multipliers: Complex[Array, " n"] | None = None,
) -> FoundPoint:
    """Returns the special point that Newton's method finds from a guess of the state and the parameter.

    Args:
        problem: The equations.
        guess: The state and the parameter nearby.
        kind: A code of `Kind`. For `none` nothing is sought.
        known: The direction of the branch that it is on, for branch points.
        multipliers: Multipliers nearby, for torus bifurcations.
    """
    constants, guess = jax.lax.stop_gradient((problem.constants, guess))
    still = problem._replace(constants=constants)

    def function(u: Array) -> Array:
        return problem.equations(u, constants, *problem.near)

    jacobian = jacobian_of(function, guess)
    usable = (kind != int(Kind.none)) & jnp.all(jnp.isfinite(jacobian))
    unit = jnp.eye(*jacobian.shape, dtype=guess.dtype)
    a, b, number = _critical(still, guess, jnp.where(usable, jacobian, unit), kind, multipliers)
    start = jnp.concatenate([guess, a, b, number[None]])
    start = jnp.where(jnp.isfinite(start), start, 0)

    def equations(z: Array) -> Array:
        return jnp.where(usable, extended(problem, z, constants, a, kind), z - start)

    units = _units(problem, start, jacobian)
    z, close = newton(dense_step(equations, units), start, units, (constants, kind), usable)
    size, number = jnp.max(jnp.abs(jacobian[:, :-1])), jnp.abs(z[-1])
    terms = jnp.max(jnp.matmul(jnp.abs(jacobian), jnp.abs(z[: guess.size]), precision="highest"))
    small = float(jnp.finfo(guess.dtype).eps) ** 0.5
    good = usable & close & ((kind != int(Kind.hopf)) | (number > small * size))
    good &= (kind != int(Kind.torus)) | (jnp.sin(number) > small)
    # a pitchfork that is not perfect has no branch point, and is unfolded by a number that is not zero
    good &= (kind != int(Kind.branch_point)) | (number <= small * (terms + size))
    psi = z[guess.size : guess.size + a.size]
    crossing = _crossing(function, z[: guess.size], psi, known)
    return FoundPoint(z, a, crossing, kind, good)


def as_point(problem: Equilibria | Orbits, found: FoundPoint) -> SpecialPoint:
    """Returns a special point as users see it, with derivatives by the constants of the problem."""

    def equations(z: Array) -> Array:
        # an identity in a row that is not used, by which the derivatives of others are not NaN
        full = extended(problem, z, problem.constants, found.c, found.kind)
        return jnp.where(found.good, full, z - safe)

    safe = jnp.where(found.good, found.z, jnp.append(problem.start, jnp.zeros(2 * found.c.size + 1, found.z.dtype)))
    z = jnp.where(found.good, with_derivatives(equations, safe, found.good | True), jnp.nan)
    n, kind = found.c.size, found.kind
    status = jnp.where(found.good | (kind == int(Kind.none)), int(Status.successful), int(Status.diverged))
    vector, frequency = z[n + 1 : 2 * n + 1], jnp.where(kind == int(Kind.hopf), jnp.abs(z[-1]), 0)
    if isinstance(problem, Orbits):
        frequency = jnp.where(kind == int(Kind.torus), z[-1] / z[problem.near.states.size], 0)
    direction = jnp.append(vector, jnp.where(found.good, jnp.zeros((), z.dtype), jnp.nan))
    direction = jnp.where(kind == int(Kind.branch_point), found.crossing, direction)
    frequency = jnp.where(found.good, frequency, jnp.nan)
    status = match(status.astype(jnp.int32), z)
    state, tangent = (problem.state(x, problem.near) for x in (z[: n + 1], direction))
    return SpecialPoint(kind, z[n], state, frequency, (tangent, direction[-1]), status)
