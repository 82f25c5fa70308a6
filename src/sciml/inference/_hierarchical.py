"""`hierarchical`: a population of subjects, each with its random effects."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._checks import check_call, check_count
from .._choices import choices
from .._jax._loops import while_loop
from .._jax._members_apart import members_apart
from .._jax._shards import members_alike
from .._jax._vma import on_explicit_axes
from .._same_code import filter_jit
from .._types import Key
from ..training import AbstractTransform
from ._derivatives import gradient_of, hessian_of, needs_forward_rule, with_forward_rule
from ._log_density import LogDensity, as_floats, has_missing, is_distribution, log_density, masked_log_prob
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


class _Population(eqx.Module):
    """The data of all subjects; the parameters of the population come with each call."""

    observe: Callable
    effects: Callable
    subjects: Any
    data: Any
    missing: bool = eqx.field(static=True)
    method: str = eqx.field(static=True)

    def distributions(self, model: Any) -> tuple[list[AbstractDistribution], Any]:
        return jtu.tree_flatten(self.effects(model), is_leaf=is_distribution)

    def shapes(self, model: Any) -> list[tuple[int, ...]]:
        return [jnp.broadcast_shapes(*(jnp.shape(p) for p in jtu.tree_leaves(d))) for d in self.distributions(model)[0]]

    def constrain(self, model: Any, z: Float[Array, " q"]) -> Any:
        """Returns one subject's effects of its free variables."""
        given, treedef = self.distributions(model)
        pieces, at = [], 0
        for distribution, shape in zip(given, self.shapes(model), strict=True):
            size = int(jnp.zeros(shape).size)
            pieces.append(distribution.transform.inverse(z[at : at + size].reshape(shape)))
            at += size
        return jtu.tree_unflatten(treedef, pieces)

    def start(self, model: Any) -> Float[Array, " q"]:
        size = sum(int(jnp.zeros(shape).size) for shape in self.shapes(model))
        return jnp.zeros(size, jnp.result_type(float))

    def pointwise(self, model: Any, effects: Any, subject: Any, data: Any) -> Any:
        """Returns the logarithm of the probability of each datum of one subject."""
        given = self.observe(model, effects, subject)
        if not is_distribution(given):
            return jtu.tree_map(self._log_prob, given, data, is_leaf=is_distribution)
        return self._log_prob(given, data)

    def _log_prob(self, distribution: AbstractDistribution, x: Any) -> Array:
        return masked_log_prob(distribution, x, self.missing)

    def joint(self, model: Any, subject: Any, data: Any) -> Callable[[Array], Array]:
        """Returns the density of one subject's data and effects as a function of its free variables."""

        def log_p(z):
            given, leaves = self._observed(model, z, subject), jtu.tree_leaves(data)
            told = [self._log_prob(d, x) for d, x in zip(given, leaves, strict=True)]
            return sum((jnp.sum(x) for x in told), self._log_prior(model, z))

        return log_p

    def curvature(self, model: Any, subject: Any, data: Any) -> Callable[[Array], Array] | None:
        """Returns the curvature of first-order conditional estimation, or None where the Hessian is taken."""
        if self.method == "laplace":
            return None
        return first_order_curvature(
            lambda z: self._observed(model, z, subject),
            lambda z: self._log_prior(model, z),
            jtu.tree_leaves(data),
            self.missing,
        )

    def _observed(self, model: Any, z: Array, subject: Any) -> list[Any]:
        """Returns the distributions of one subject's data; without interaction the noise of typical effects."""
        given = self._given(model, z, subject)
        if self.method != "foce":
            return given
        typical = self._given(model, jnp.zeros_like(z), subject)
        return [eqx.tree_at(lambda d: d.scale, d, t.scale) for d, t in zip(given, typical, strict=True)]

    def _given(self, model: Any, z: Array, subject: Any) -> list[Any]:
        return jtu.tree_leaves(self.observe(model, self.constrain(model, z), subject), is_leaf=is_distribution)

    def _log_prior(self, model: Any, z: Array) -> Array:
        total, at = jnp.zeros((), z.dtype), 0
        for distribution, value in zip(
            self.distributions(model)[0], jtu.tree_leaves(self.constrain(model, z)), strict=True
        ):
            free = z[at : at + value.size].reshape(value.shape)
            total = total + jnp.sum(distribution.log_prob(value)) + jnp.sum(distribution.transform.log_slope(free))
            at += value.size
        return total


class _Integrated(AbstractDistribution):
    """The distribution of all subjects' data with the effects integrated out."""

    population: _Population
    model: Any
    nodes: int = eqx.field(static=True)

    @property
    def transform(self) -> NoReturn:
        raise TypeError("this is a distribution of data.")

    def log_prob(self, x: Any) -> Float[Array, " subjects"]:
        (data,) = x
        population, nodes = self.population, self.nodes

        def one(model, subject, own):
            joint, curvature = population.joint(model, subject, own), population.curvature(model, subject, own)
            return log_integral(joint, population.start(model), nodes, curvature)

        return _of_subjects(one, self.model, population.subjects, data)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Any:
        first, second = jax.random.split(key)
        return _Observed(self.population, self.model, _new_effects(self.population, self.model, first)).draw(second)

    def moments(self) -> NoReturn:
        raise ValueError("residuals require effects. Use the residuals of `Hierarchical.joint`.")


class _Observed(AbstractDistribution):
    """The distribution of all subjects' data, given their effects."""

    population: _Population
    model: Any
    effects: Any

    @property
    def transform(self) -> NoReturn:
        raise TypeError("this is a distribution of data.")

    def log_prob(self, x: Any) -> PyTree:
        (data,) = x

        def one(model, effects, subject, own):
            return self.population.pointwise(model, effects, subject, own)

        return _of_subjects(one, self.model, self.effects, self.population.subjects, data)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Any:
        del shape
        population = self.population
        keys = jax.random.split(key, jtu.tree_leaves(population.data)[0].shape[0])

        def one(effects, subject, own, key):
            given = population.observe(self.model, effects, subject)
            leaves, treedef = jtu.tree_flatten(given, is_leaf=is_distribution)
            shapes = [x.shape for x in jtu.tree_leaves(own)]
            keys = jax.random.split(key, len(leaves))
            drawn = [d.draw(k, shape) for d, k, shape in zip(leaves, keys, shapes, strict=True)]
            return jtu.tree_unflatten(treedef, drawn)

        return (jax.vmap(one)(self.effects, population.subjects, population.data, keys),)

    def moments(self) -> NoReturn:
        raise ValueError("residuals of subjects are computed one at a time, from `observe`.")


def _of_subjects(one: Callable[..., PyTree], model: Any, *each: Any) -> PyTree:
    """Returns `one(model, *of_subject)` of every subject; separately on each device, if sharded by their type."""
    if on_explicit_axes((model, each)):
        one, each = members_apart(one), members_alike(each)
    return jax.vmap(lambda *own: one(model, *own))(*each)


def _new_effects(population: _Population, model: Any, key: Key) -> Any:
    count = jtu.tree_leaves(population.data)[0].shape[0]
    given, treedef = population.distributions(model)
    keys = jax.random.split(key, len(given))
    shapes = population.shapes(model)
    drawn = [d.draw(k, (count, *shape)) for d, k, shape in zip(given, keys, shapes, strict=True)]
    return jtu.tree_unflatten(treedef, drawn)


class Hierarchical(eqx.Module):
    """A population of subjects with random effects; returned by `hierarchical`.

    Attributes:
        marginal: A `LogDensity` of the population's parameters, with the effects of each subject integrated out: for
            `LogDensity.maximum`, `LogDensity.laplace` and `nuts`.
        joint: A `LogDensity` of the parameters and all effects, `{"population": model, "effects": ...}`, for `nuts`.
    """

    marginal: LogDensity
    joint: LogDensity
    _population: _Population

    def modes(self, model: PyTree) -> tuple[PyTree, Float[Array, "subjects q q"]]:
        """Returns the most probable effects of each subject, given the population's parameters, and their covariances.

        Args:
            model: The population's parameters, such as `marginal.maximum().model`.

        Returns:
            The effects with a leading axis of subjects, and the covariance of each subject's free variables: the
            inverse of the curvature that `method` takes. NaN of a subject whose effects have no most probable values.
        """
        return _modes(self._population, model)


@filter_jit
def _modes(population: _Population, model: Any) -> tuple[Any, Array]:
    def one(model, subject, own):
        start = population.start(model)
        function, curvature = population.joint(model, subject, own), population.curvature(model, subject, own)
        z, good = peak_of(function, start, curvature)
        matrix = curvature_at(function, z) if curvature is None else curvature(z)
        effects = jtu.tree_map(lambda x: jnp.where(good, x, jnp.nan), population.constrain(model, z))
        return effects, jnp.where(good, jnp.linalg.inv(matrix), jnp.nan)

    return _of_subjects(one, model, population.subjects, population.data)


def hierarchical(
    model: PyTree,
    observe: Callable[[Any, Any, Any], Any] | Any,
    data: PyTree,
    priors: Sequence[tuple[Callable, Any]] | Any,
    *,
    effects: Callable[[Any], Any] | Any,
    subjects: PyTree = None,
    nodes: int = 1,
    method: Literal["laplace", "focei", "foce"] | Any = "laplace",
) -> Hierarchical:
    r"""Returns the density of the parameters of a population of subjects, each with random effects.

    Subject $i$ has effects $b_i \sim p(b \mid \theta)$ and data $d_i \sim p(d \mid \theta, b_i)$. The marginal density
    of the parameters $\theta$ is

    $$p(\theta) \prod_i \int p(d_i \mid \theta, b)\, p(b \mid \theta)\, db$$

    whose integrals are approximated by Laplace's method about each subject's most probable effects $b^*$,

    $$\log \int p(d, b \mid \theta)\, db \approx \log p(d, b^* \mid \theta) + \tfrac{q}{2} \log 2 \pi
    - \tfrac12 \log \det B$$

    or with more `nodes` by adaptive Gauss-Hermite quadrature about them. The curvature $B$ is minus the Hessian for
    `method="laplace"`. First-order conditional estimation replaces it by its mean over data, the Fisher information by
    first derivatives of the predictions: `"focei"` with interaction, where the noise depends on the effects as in
    `observe`, and `"foce"` without, where the noise is evaluated at typical effects, whose free variables are zero. It
    needs one derivative less, which saves most of the time for costly solves, and its curvature is positive
    everywhere. The names follow nlmixr2; in NONMEM it is FOCE with and without INTER.

    All subjects are lanes of one program. Derivatives go through the most probable effects by implicit differentiation.
    If effects and noise are normal and the prediction is linear in the effects, all methods are exact with one node.
    Integrals by Laplace's method need two derivatives with respect to the effects, and gradients with respect to the
    parameters a third: use `adjoint=sciml.adjoints.Direct()`, which is forward mode, for a solve in `observe`.

    If a subject has no most probable effects, for example because a far step of an optimiser makes its curvature
    singular or its solve fail, the density is zero, as for any failing model: an optimiser takes a shorter step, and in
    a batch the other members continue.

    Args:
        model: The population's parameters, any PyTree, as in `log_density`.
        observe: `observe(model, effects, subject)`, the distribution of one subject's data.
        data: The observations, with a leading axis of subjects; NaN for missing observations.
        priors: Tuples `(selector, prior)` of the population's parameters, as in `log_density`; `Improper` for the
            maximum of the marginal likelihood.
        effects: `effects(model)`, the distribution of one subject's effects, or a PyTree of them, such as
            `{"clearance": inference.Normal(0.0, model["spread"])}`.
        subjects: Further values of each subject, such as doses and times: a PyTree of arrays with a leading axis of
            subjects.
        nodes: The number of nodes along each axis of the effects; with more than one, `"laplace"` and `"focei"` are two
            ways to place them, with the same limit.
        method: The curvature about the most probable effects: `"laplace"`, `"focei"` or `"foce"`. The last two support
            `Normal`, `LogNormal` and `PoissonCounts` as distributions of data (`"foce"` the first two), or custom ones
            with a method `information()`, which returns the Fisher information of one datum about each parameter by its
            name: `{"mean": 1 / self.mean}`.

    Returns:
        A `Hierarchical`.

    Raises:
        ValueError: If leading axes differ, `method` is unknown, or as `log_density`.
        TypeError: If `effects` or `observe` do not return distributions, or return ones that `method` does not support,
            or as `log_density`.

    Source:
        J. C. Pinheiro and D. M. Bates, Approximations to the log-likelihood function in the nonlinear mixed-effects
        model, J. Comput. Graph. Stat. 4:12, 1995. Y. Wang, Derivation of various NONMEM estimation methods, J.
        Pharmacokinet. Pharmacodyn. 34:575, 2007.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inference
        from sciml.training import Positive

        noise = jax.random.normal(jax.random.key(0), (8, 5))
        levels = 3.0 + 0.5 * jax.random.normal(jax.random.key(1), (8, 1)) + 0.2 * noise

        def observe(model, effect, subject):
            return inference.Normal(model["typical"] + effect, model["noise"])

        model = {"typical": jnp.array(1.0), "spread": jnp.array(1.0), "noise": jnp.array(1.0)}
        priors = [
            (lambda m: m["typical"], inference.Improper()),
            (lambda m: (m["spread"], m["noise"]), inference.Improper(Positive())),
        ]
        def effects(model):
            return inference.Normal(0.0, model["spread"])

        population = inference.hierarchical(model, observe, levels, priors, effects=effects)
        assert jnp.isfinite(population.marginal(population.marginal.unconstrain(model)))
        effect, _ = population.modes({"typical": jnp.array(3.0), "spread": jnp.array(0.5), "noise": jnp.array(0.2)})
        assert jnp.allclose(effect, 5 * 0.5**2 / (5 * 0.5**2 + 0.2**2) * (levels.mean(axis=1) - 3.0), atol=1e-3)
        ```
    """
    for name, value in (("observe", observe), ("effects", effects)):
        if not callable(value):
            raise TypeError(f"`{name}` must be a function, but is {value!r}.")
    check_call(observe, "observe(model, effects, subject)", "`observe`")
    check_call(effects, "effects(model)", "`effects`")
    nodes = check_count(nodes, "nodes", "hierarchical")
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(map(repr, METHODS))}, but is {method!r}.")
    if method == "foce" and nodes > 1:
        raise ValueError(
            '`method="foce"` ignores how noise depends on effects, which more `nodes` do not correct. Use '
            '`method="focei"` or one node.'
        )
    data = jtu.tree_map(as_floats, data)
    subjects = jtu.tree_map(jnp.asarray, subjects)
    leaves = jtu.tree_leaves((data, subjects))
    counts = {jnp.shape(x)[:1] for x in leaves}
    if len(counts) != 1 or counts == {()}:
        raise ValueError(
            "`data` and `subjects` must have one leading axis of subjects on every leaf, but their shapes are "
            f"{[jnp.shape(x) for x in leaves]}."
        )
    missing = any(has_missing(x) for x in jtu.tree_leaves(data))
    population = _Population(observe, effects, subjects, data, missing, method)
    given = jtu.tree_leaves(effects(model), is_leaf=is_distribution)
    if wrong := [x for x in given if not is_distribution(x)]:
        raise TypeError(f"`effects` must return a distribution or a PyTree of them, but returned {wrong[0]!r}.")
    _transforms(given)
    if method != "laplace":
        check_information(_of_first(population, model), method)
    marginal = log_density(model, _Integrate(population, nodes), (data,), priors)
    return Hierarchical(marginal, _joint(population, model, priors), population)


def _transforms(given: Sequence[AbstractDistribution]) -> list[AbstractTransform]:
    found = [distribution.transform for distribution in given]
    if any(jtu.tree_leaves(transform) for transform in found):
        raise ValueError(
            "the bounds of the effects would move with the model. Use a distribution of real or of positive numbers."
        )
    return found


def _of_first(population: _Population, model: Any) -> list[AbstractDistribution]:
    """Returns the distributions of the first subject's data, by their shapes."""
    subject = jtu.tree_map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), population.subjects)

    def given(model, subject):
        return population.observe(model, population.constrain(model, population.start(model)), subject)

    return jtu.tree_leaves(eqx.filter_eval_shape(given, model, subject), is_leaf=is_distribution)


class _Integrate(eqx.Module):
    population: _Population
    nodes: int = eqx.field(static=True)

    def __call__(self, model: Any) -> _Integrated:
        return _Integrated(self.population, model, self.nodes)


class _Condition(eqx.Module):
    population: _Population

    def __call__(self, both: Any) -> _Observed:
        return _Observed(self.population, both["population"], both["effects"])


def _joint(population: _Population, model: Any, priors: Sequence) -> LogDensity:
    count = jtu.tree_leaves(population.data)[0].shape[0]
    one = population.constrain(model, population.start(model))
    start = jtu.tree_map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), one)

    def of_population(selector, prior):
        given = prior if is_distribution(prior) else lambda both: prior(both["population"])
        return lambda both: selector(both["population"]), given

    def of_effect(i):
        return lambda both: jtu.tree_leaves(both["effects"])[i], lambda both: population.distributions(
            both["population"]
        )[0][i]

    number = len(jtu.tree_leaves(one))
    every = [*(of_population(*entry) for entry in priors), *(of_effect(i) for i in range(number))]
    return log_density({"population": model, "effects": start}, _Condition(population), (population.data,), every)
