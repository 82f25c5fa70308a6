"""Integrals over the effects of a subject: their most probable values, and the curvature there."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._choices import choices
from .._jax._loops import while_loop
from .._jax._members_apart import members_apart
from .._jax._shards import members_alike
from .._jax._vma import on_explicit_axes
from ._derivatives import gradient_of, hessian_of, needs_forward_rule, with_forward_rule
from .distributions._abstract import AbstractDistribution


def cholesky(matrix: Float[Array, "q q"]) -> Float[Array, "q q"]:
    """Returns the lower factor; not finite where the matrix is not positive."""
    n = matrix.shape[0]
    if n > choices().linear.positive_at_most:
        return jnp.linalg.cholesky(matrix)
    rows: list[list[Array]] = [[jnp.zeros((), matrix.dtype)] * n for _ in range(n)]
    for j in range(n):
        for i in range(j, n):
            left = matrix[i, j] - sum(rows[i][k] * rows[j][k] for k in range(j))
            rows[i][j] = jnp.sqrt(left) if i == j else left / rows[j][j]
    return jnp.stack([jnp.stack(row) for row in rows])


def solve_lower(factor: Float[Array, "q q"], b: Float[Array, " q"], transposed: bool = False) -> Float[Array, " q"]:
    """Returns $L^{-1} b$, or $L^{-T} b$."""
    n = b.shape[0]
    if n > choices().linear.positive_at_most:
        return jax.scipy.linalg.solve_triangular(factor, b, lower=True, trans=1 if transposed else 0)
    lower = factor.T if transposed else factor
    order = range(n - 1, -1, -1) if transposed else range(n)
    found: dict[int, Array] = {}
    for i in order:
        found[i] = (b[i] - sum(lower[i, k] * x for k, x in found.items())) / lower[i, i]
    return jnp.stack([found[i] for i in range(n)])


def solve_factored(factor: Float[Array, "q q"], b: Float[Array, " q"]) -> Float[Array, " q"]:
    r"""Returns $(L L^T)^{-1} b$."""
    return solve_lower(factor, solve_lower(factor, b), transposed=True)


def of_subjects(one: Callable[..., PyTree], shared: Any, *each: Any) -> PyTree:
    """Returns `one(shared, *of_subject)` of every subject; separately on each device, if sharded by their type."""
    if on_explicit_axes((shared, each)):
        one, each = members_apart(one), members_alike(each)
    return jax.vmap(lambda *own: one(shared, *own))(*each)


_MOST_STEPS = 60
# Twice the increase that Newton's step still promises, g^T B^-1 g: a step in standard deviations, squared. Rounding is
# reached long before the first of these, and a point above the second is not a maximum.
_ROUNDING = {64: 1e-20, 32: 1e-10}
_NO_MAXIMUM = {64: 1e-6, 32: 1e-2}
# Damping in units in which the curvature's diagonal is one: what a step that falls starts with, and where to give up.
_FIRST_DAMPING, _MOST_DAMPING = 0.1, 1e8


class _Parabola(NamedTuple):
    """A function about a vector, with a matrix that stands for minus its Hessian."""

    value: Float[Array, ""]
    gradient: Float[Array, " q"]
    curvature: Float[Array, "q q"]


class _Climb(NamedTuple):
    z: Float[Array, " q"]
    here: _Parabola
    damping: Float[Array, ""]
    promise: Float[Array, ""]
    n_steps: Int[Array, ""]
    done: Bool[Array, ""]


def peak_of(
    function: Callable[[Array], Array],
    start: Float[Array, " q"],
    curvature: Callable[[Array], Array] | None = None,
) -> tuple[Float[Array, " q"], Bool[Array, ""]]:
    r"""Returns the maximum of a function, differentiable by the values that it closes over, and whether it is one.

    The search takes Newton's steps $B^{-1} g$ with the gradient $g$, damped where they fall, until they are as small as
    rounding. At the maximum $g(z^*, \theta) = 0$, so that $dz^* = -H^{-1}\, \partial_\theta g \, d\theta$ with the
    Hessian $H$. Nothing is raised: where there is no maximum, as where the function or a derivative is not finite on
    the way, the second result is False, and the first one the best vector that was seen.

    Args:
        function: The function.
        start: The start of the search.
        curvature: $B(z)$, a positive matrix near minus the Hessian; that itself by default.
    """
    closed = eqx.filter_closure_convert(function, start)
    own = None if curvature is None else eqx.filter_closure_convert(curvature, start)
    z, promise = _peak(closed, own, start)
    return z, promise < _NO_MAXIMUM[jnp.finfo(start.dtype).bits]


@eqx.filter_custom_jvp
def _peak(function: Any, curvature: Any, start: Array) -> tuple[Array, Array]:
    """Returns the maximum, and what one more step promises there."""
    found = members_apart(_climbed)(function, curvature, start)
    return found.z, found.promise


@_peak.def_jvp
def _peak_jvp(primals: tuple, tangents: tuple) -> tuple:
    function, curvature, start = primals
    z, promise = _peak(function, curvature, start)
    along = tangents[0]
    if not jax.tree.leaves(along):
        return (z, promise), (None, None)
    gradient = gradient_of(function, z)(z)

    def of_constants(function: Any) -> Array:
        return gradient_of(function, z)(z)

    _, change = eqx.filter_jvp(of_constants, (function,), (along,))
    matrix = -hessian_of(function, z)(z)
    # where there is no maximum nothing moves, and nothing is NaN
    sound = jnp.isfinite(promise) & jnp.all(jnp.isfinite(matrix)) & jnp.all(jnp.isfinite(gradient))
    factor = cholesky(jnp.where(sound, matrix, jnp.eye(z.size, dtype=z.dtype)))
    return (z, promise), (jnp.where(sound, solve_factored(factor, change), 0), None)


def _climbed(function: Any, curvature: Any, start: Array) -> _Climb:
    smooth = with_forward_rule(function) if needs_forward_rule(function, start) else function

    def expanded(z: Array) -> _Parabola:
        if curvature is not None:
            value, gradient = jax.value_and_grad(smooth)(z)
            return _Parabola(value, gradient, curvature(z))

        def slope(z: Array) -> tuple[Array, tuple[Array, Array]]:
            value, gradient = jax.value_and_grad(smooth)(z)
            return gradient, (value, gradient)

        hessian, (value, gradient) = jax.jacfwd(slope, has_aux=True)(z)
        return _Parabola(value, gradient, -0.5 * (hessian + hessian.T))

    eps, rounding = float(jnp.finfo(start.dtype).eps), _ROUNDING[jnp.finfo(start.dtype).bits]

    def step(s: _Climb) -> _Climb:
        taken = _step(s.here, s.damping)
        taken = jnp.where(jnp.all(jnp.isfinite(taken)), taken, 0)
        z = s.z + taken
        there = expanded(z)
        promised = s.here.gradient @ taken - 0.5 * taken @ s.here.curvature @ taken
        gained = there.value - s.here.value
        noise = 20 * eps * (1 + jnp.abs(s.here.value))
        sound = jnp.isfinite(there.value) & jnp.all(jnp.isfinite(there.gradient))
        sound = sound & jnp.all(jnp.isfinite(there.curvature))
        share = gained / jnp.where(promised > 0, promised, jnp.inf)
        better = sound & (promised > 0) & ((share > 1e-4) | ((promised < noise) & (gained > -noise)))
        less = jnp.where(s.damping < 0.1 * _FIRST_DAMPING, 0, 0.1 * s.damping)
        kept = jnp.where((share > 0.5) | (promised < noise), less, s.damping)
        damping = jnp.where(better, kept, jnp.maximum(5 * s.damping, _FIRST_DAMPING))
        z, here = jax.tree.map(lambda new, old: jnp.where(better, new, old), (z, there), (s.z, s.here))
        promise = _promise(here)
        settled = better & (promise > 0.8 * s.promise) & (promise < _NO_MAXIMUM[jnp.finfo(start.dtype).bits])
        done = (promise < rounding) | settled | (damping > _MOST_DAMPING)
        return _Climb(z, here, damping, promise, s.n_steps + 1, done)

    here = expanded(start)
    promise = _promise(here)
    done = ~jnp.isfinite(here.value) | (promise < rounding)
    first = _Climb(start, here, jnp.zeros_like(here.value), promise, jnp.zeros((), jnp.int32), done)
    return while_loop(lambda s: ~s.done & (s.n_steps < _MOST_STEPS), step, first, like=(function, curvature))


def _step(here: _Parabola, damping: Float[Array, ""]) -> Float[Array, " q"]:
    """Returns the damped step; not finite where the damped curvature is not positive."""
    diagonal = jnp.abs(jnp.diagonal(here.curvature))
    floor = jnp.finfo(diagonal.dtype).eps * jnp.max(diagonal)
    units = jax.lax.rsqrt(jnp.where(diagonal > floor, diagonal, jnp.where(floor > 0, floor, 1)))
    scaled = here.curvature * jnp.outer(units, units) + damping * jnp.eye(units.size, dtype=units.dtype)
    return units * solve_factored(cholesky(scaled), units * here.gradient)


def _promise(here: _Parabola) -> Float[Array, ""]:
    """Returns the squared length of Newton's step in standard deviations; infinite where there is none."""
    promise = here.gradient @ _step(here, jnp.zeros_like(here.value))
    return jnp.where(jnp.isfinite(promise) & jnp.isfinite(here.value), promise, jnp.inf)


# Integrals over a few free variables by Laplace's method and by Gauss-Hermite quadrature about the maximum.
def curvature_at(function: Callable[[Array], Array], z: Float[Array, " q"]) -> Float[Array, "q q"]:
    """Returns minus the Hessian."""
    return -hessian_of(function, z)(z)


def log_integral(
    function: Callable[[Array], Array],
    start: Float[Array, " q"],
    nodes: int,
    curvature: Callable[[Array], Array] | None = None,
) -> Float[Array, ""]:
    r"""Returns $\log \int e^{f(z)} dz$ by Gauss-Hermite quadrature about the maximum; one node is Laplace's method.

    With $B = L L^T$ at the maximum $z^*$ and $z = z^* + \sqrt 2\, L^{-T} x$ the integral is
    $\frac{2^{q/2}}{\det L} \sum_k w_k e^{x_k^2} e^{f(z_k)}$ over nodes $x_k$ and weights $w_k$ for $e^{-x^2}$. It is
    NaN without a maximum, with derivatives of zero if the derivatives of the function are finite.

    Args:
        function: $f$.
        start: The start of the search for the maximum.
        nodes: The number of nodes along each axis; $q$ axes take this number to the power of $q$.
        curvature: $B(z)$, a positive matrix near minus the Hessian; that itself by default.
    """
    z, good = peak_of(function, start, curvature)
    matrix = curvature_at(function, z) if curvature is None else curvature(z)
    good = good & jnp.all(jnp.isfinite(matrix))
    # what has no maximum has a curvature that may have no factor either, whose derivatives would be NaN
    factor = cholesky(jnp.where(good, matrix, jnp.eye(z.size, dtype=z.dtype)))
    size = jnp.sum(jnp.log(jnp.diagonal(factor)))
    x, log_w = _rule(nodes, z.size)

    def at_node(x: Array) -> Array:
        return function(z + float(np.sqrt(2)) * solve_lower(factor, x, transposed=True))

    values = jax.vmap(at_node)(jnp.asarray(x, z.dtype)) if nodes > 1 else function(z)[None]
    total = jax.scipy.special.logsumexp(values + jnp.asarray(log_w, z.dtype))
    return jnp.where(good, total - size + 0.5 * z.size * float(np.log(2)), jnp.nan)


def _rule(nodes: int, q: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns nodes, shape `(nodes**q, q)`, and the logarithms of their weights times $e^{x^2}$."""
    x, w = np.polynomial.hermite.hermgauss(nodes)
    points = np.array(list(itertools.product(x, repeat=q))).reshape(-1, q)
    weights = np.array(list(itertools.product(np.log(w) + x**2, repeat=q))).reshape(-1, q)
    return points, weights.sum(axis=1)


# First-order conditional estimation: the curvature about the most probable effects from first derivatives.
#
# Minus the Hessian of $\log p(d \mid b) + \log p(b)$ by the effects $b$ is replaced by its mean over data,
#
# $$B = \sum_j J_j^T F_j J_j + \Omega^{-1}$$
#
# with the derivatives $J_j$ of the parameters of each datum's distribution, and the Fisher information $F_j$ about
# them.
# For a normal datum with mean $f$ and variance $v$ this is
# $\nabla f \nabla f^T / v + \frac12 \nabla v \nabla v^T / v^2$.
METHODS = ("laplace", "focei", "foce")


def first_order_curvature(
    distributions: Callable[[Array], Sequence[AbstractDistribution]],
    log_prior: Callable[[Array], Array],
    data: Sequence[Float[Array, "..."]],
    missing: bool,
) -> Callable[[Array], Array]:
    """Returns the curvature as a function of the free variables of the effects.

    Args:
        distributions: The distributions of one subject's data.
        log_prior: The logarithm of the density of its effects.
        data: The data, one array for each distribution.
        missing: Whether some of them are NaN, which have no information.
    """

    def parameters(z: Array) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
        given = distributions(z)
        fisher = [distribution.information() for distribution in given]  # type: ignore[attr-defined]
        own = [{name: getattr(d, name) for name in of} for d, of in zip(given, fisher, strict=True)]
        return own, fisher

    def curvature(z: Array) -> Array:
        slopes, fisher = jax.jacfwd(parameters, has_aux=True)(z)
        total = -hessian_of(log_prior, z)(z)
        for x, slope, of in zip(data, slopes, fisher, strict=True):
            for name, information in of.items():
                weight = jnp.broadcast_to(information.astype(z.dtype), x.shape)
                weight = jnp.where(jnp.isnan(x), 0, weight) if missing else weight
                rows = jnp.broadcast_to(slope[name].astype(z.dtype), (*x.shape, z.size)).reshape(-1, z.size)
                total = total + (rows * weight.reshape(-1, 1)).T @ rows
        return total

    return curvature


def check_information(given: Sequence[AbstractDistribution], method: str) -> None:
    """Checks that distributions have a Fisher information, and scales if they are evaluated at typical effects.

    Raises:
        TypeError: Naming one that has not.
    """
    for distribution in given:
        name = type(distribution).__name__
        if not callable(getattr(distribution, "information", None)):
            raise TypeError(
                f'`method="{method}"` requires the Fisher information of the data\'s distribution, which `{name}` does '
                "not provide. Use `Normal`, `LogNormal` or `PoissonCounts`, a class with a method `information`, or "
                '`method="laplace"`.'
            )
        if method == "foce" and not (hasattr(distribution, "location") and hasattr(distribution, "scale")):
            raise TypeError(
                f'`method="foce"` requires noise around a prediction, a distribution with `location` and `scale`, not '
                f'`{name}`. Use `method="focei"`.'
            )
