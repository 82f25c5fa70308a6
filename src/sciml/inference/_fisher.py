"""`fisher_information`: the information of planned data about parameters; `optimal_design`: the best plan."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from .._checks import check_call, check_count, check_key
from .._same_code import filter_jit
from .._types import Key
from ..training._selection import ParameterSelection, select
from ._hierarchical import Subjects
from ._log_density import as_array, is_distribution
from ._population_diagnostics import gaussian_of
from .distributions._abstract import AbstractDistribution


class FisherInformation(eqx.Module):
    """The Fisher information about parameters in their own units, returned by `fisher_information`.

    The information of independent subjects adds up: `20 * one + 10 * other` describes a study of two groups.

    Attributes:
        matrix: The information matrix, shape `(p, p)`.
        names: The parameters' names, in the order of the matrix.
    """

    matrix: Float[Array, "p p"]
    names: tuple[str, ...] = eqx.field(static=True)

    def __add__(self, other: "FisherInformation") -> "FisherInformation":
        return FisherInformation(self.matrix + other.matrix, self.names)

    def __rmul__(self, count: Any) -> "FisherInformation":
        return FisherInformation(count * self.matrix, self.names)

    @property
    def log_det(self) -> Float[Array, ""]:
        """The logarithm of the determinant, which a D-optimal design maximises; minus infinity if it is singular."""
        units, factor, regular = self._scaled()
        found = 2 * (jnp.sum(jnp.log(jnp.diagonal(factor))) - jnp.sum(jnp.log(units)))
        return jnp.where(regular, found, -jnp.inf)

    @property
    def covariance(self) -> Float[Array, "p p"]:
        """The predicted covariance of estimates (Cramér-Rao bound), infinite if the information is singular.

        An A-optimal design minimises its trace.
        """
        units, factor, regular = self._scaled()
        inverse = jax.scipy.linalg.solve_triangular(factor, jnp.diag(units), lower=True)
        return jnp.where(regular, inverse.T @ inverse, jnp.inf)

    def _scaled(self) -> tuple[Float[Array, " p"], Float[Array, "p p"], Bool[Array, ""]]:
        """Returns units in which the diagonal is one, the Cholesky factor in them, and whether there is one."""
        units = jax.lax.rsqrt(jnp.diagonal(self.matrix))
        factor = jnp.linalg.cholesky(self.matrix * jnp.outer(units, units))
        # of a singular matrix rounding leaves a pivot of this size
        least = 10 * units.size * float(jnp.finfo(units.dtype).eps)
        return units, factor, jnp.all(jnp.diagonal(factor) ** 2 > least)

    def about(self, *names: str) -> "FisherInformation":
        """Returns the information about some parameters while all others are also estimated.

        A Ds-optimal design maximises its `log_det`.

        Args:
            names: The names of these parameters.

        Raises:
            ValueError: If a name is not one of `names`.
        """
        for name in names:
            if name not in self.names:
                raise ValueError(f"{name!r} is not a parameter of this information. It has {', '.join(self.names)}.")
        kept = [self.names.index(name) for name in names]
        order = np.array([i for i in range(len(self.names)) if i not in kept] + kept)
        units, factor, regular = FisherInformation(self.matrix[order][:, order], self.names)._scaled()
        own = factor[-len(kept) :, -len(kept) :] / units[-len(kept) :, None]  # of the Schur complement
        return FisherInformation(jnp.where(regular, own @ own.T, 0), names)

    @property
    def standard_errors(self) -> dict[str, Float[Array, ""]]:
        """The predicted standard error of each parameter, by its name."""
        return dict(zip(self.names, jnp.sqrt(jnp.diagonal(self.covariance)), strict=True))


def fisher_information(
    model: PyTree,
    observe: Callable[[Any, Any, Any], Any] | Any,
    where: Callable[[Any], Any] | None = None,
    *,
    effects: Callable[[Any], Any] | Any = None,
    subject: PyTree = None,
) -> FisherInformation:
    r"""Returns the Fisher information of the data of one subject about the parameters, before they are measured.

    `subject` is the design: sampling times, doses, inputs. The result is differentiable with respect to it, and to the
    model. Without `effects` it is $\sum_j J_j^T F_j J_j$ with the derivatives $J_j$ of the parameters of each datum's
    distribution and the Fisher information $F_j$ about them. With `effects` the predictions $f$ are linearised about
    typical effects, so that data are normal with the covariance $V = G \Omega G^T + \Sigma$, where
    $G = \partial f / \partial b$, and

    $$M_{jk} = \frac{\partial f}{\partial \theta_j}^T V^{-1} \frac{\partial f}{\partial \theta_k} + \tfrac12
    \text{tr}\Big(V^{-1} \frac{\partial V}{\partial \theta_j} V^{-1} \frac{\partial V}{\partial \theta_k}\Big)$$

    This is the first-order approximation (FO, full matrix) of PFIM and PopED, exact if effects enter linearly.

    Args:
        model: The parameters at which to plan, any PyTree.
        observe: `observe(model, effects, subject)`, the distribution of one subject's data, as in `hierarchical`;
            `effects` is None in a model without.
        where: Picks the parameters to estimate, as in `sciml.fit`; all floating-point arrays by default.
        effects: `effects(model)`, the distribution of the effects, as in `hierarchical`; None if there are none.
        subject: The design: a PyTree of arrays.

    Returns:
        A `FisherInformation`.

    Raises:
        TypeError: If the Fisher information of the data's distribution is not known, as of `Censored`.

    Source:
        S. Retout and F. Mentré, Further developments of the Fisher information matrix in nonlinear mixed effects
        models with evaluation in population pharmacokinetics, J. Biopharm. Stat. 13:209, 2003.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inference

        def observe(model, effects, times):
            return inference.Normal(jnp.exp(-model["rate"] * times), 0.1)

        def log_det(times):
            return inference.fisher_information({"rate": jnp.array(0.5)}, observe, subject=times).log_det

        assert abs(jax.grad(log_det)(jnp.array([2.0]))[0]) < 1e-4  # the best time is 1 / rate
        ```
    """
    check_call(observe, "observe(model, effects, subject)", "`observe`")
    model, selection = select(jtu.tree_map(as_array, model), where, None, (), ())
    return FisherInformation(_information(model, selection, observe, effects, subject), selection.names)


@filter_jit
def _information(
    model: Any, selection: ParameterSelection, observe: Callable, effects: Callable | None, subject: Any
) -> Float[Array, "p p"]:
    theta = selection.flatten(model)
    none = effects is None
    population = Subjects(observe, (lambda model: ()) if none else effects, None, None, False, "focei")

    def given(theta: Array, z: Array | None) -> list[AbstractDistribution]:
        at = selection.replace(model, theta)
        found = observe(at, None, subject) if z is None else population.observed(at, z, subject)
        distributions = jtu.tree_leaves(found, is_leaf=is_distribution)
        for distribution in distributions:
            if not callable(getattr(distribution, "information", None)):
                raise TypeError(
                    "`fisher_information` requires the Fisher information of the data's distribution, which "
                    f"`{type(distribution).__name__}` does not provide. Use `Normal`, `LogNormal` or `PoissonCounts`, "
                    "or a class with a method `information`."
                )
        return distributions

    if none:
        return _of_independent(lambda theta: given(theta, None), theta)

    def moments(theta: Array) -> tuple[Array, Array]:
        at = selection.replace(model, theta)
        typical, omega = gaussian_of(lambda z: population.log_prior(at, z), population.start(at).size)

        def mean(z: Array) -> tuple[Array, tuple[Array, Array]]:
            parts = [_moments(distribution) for distribution in given(theta, z)]
            mean, variance = (jnp.concatenate([x.reshape(-1) for x in part]) for part in zip(*parts, strict=True))
            return mean, (mean, variance)

        slopes, (found, variance) = jax.jacfwd(mean, has_aux=True)(typical)
        return found, slopes @ omega @ slopes.T + jnp.diag(variance)

    _, covariance = moments(theta)
    of_mean, of_covariance = jax.jacfwd(moments)(theta)
    factor = jnp.linalg.cholesky(covariance)

    def whitened(x: Array) -> Array:
        return jax.scipy.linalg.solve_triangular(factor, x, lower=True)

    columns = whitened(of_mean)
    squares = jax.vmap(lambda x: whitened(whitened(x).T).reshape(-1), in_axes=2)(of_covariance)
    return columns.T @ columns + 0.5 * squares @ squares.T


def _moments(distribution: AbstractDistribution) -> tuple[Array, Array]:
    """Returns mean and variance; of logarithms if these are normal."""
    names = ("location", "scale")
    if all(hasattr(distribution, name) for name in names):
        mean, scale = jnp.broadcast_arrays(*(getattr(distribution, name) for name in names))
        return mean, scale**2
    mean, variance = jnp.broadcast_arrays(*distribution.moments())
    return mean, variance


def _of_independent(given: Callable[[Array], list[AbstractDistribution]], theta: Array) -> Float[Array, "p p"]:
    def parameters(theta: Array) -> tuple[list, list]:
        rows = [(d, name, x) for d in given(theta) for name, x in d.information().items()]  # type: ignore[attr-defined]
        shapes = [d.values_shape for d, _, _ in rows]
        own = [jnp.broadcast_to(getattr(d, name), s) for (d, name, _), s in zip(rows, shapes, strict=True)]
        return own, [jnp.broadcast_to(x, s) for (_, _, x), s in zip(rows, shapes, strict=True)]

    slopes, information = jax.jacfwd(parameters, has_aux=True)(theta)
    total = jnp.zeros((theta.size, theta.size), theta.dtype)
    for slope, weight in zip(slopes, information, strict=True):
        rows = slope.reshape(-1, theta.size)
        total = total + (rows * weight.reshape(-1, 1)).T @ rows
    return total


class OptimalDesign(eqx.Module):
    """The best design that was found, returned by `optimal_design`.

    Attributes:
        design: The design.
        value: The criterion there.
        message: How the search ended, in words.
    """

    design: PyTree
    value: Float[Array, ""]
    message: str = eqx.field(static=True)


def optimal_design(
    criterion: Callable[[Any], Any] | Any,
    design: PyTree,
    *,
    lower: PyTree = None,
    upper: PyTree = None,
    candidates: Any = None,
    starts: int = 1,
    key: Key | None = None,
) -> OptimalDesign:
    """Returns the design that maximises a criterion, such as the log determinant (D-optimal).

    Between bounds the search is SciPy's L-BFGS-B with the gradient of the criterion. With `candidates` it is Fedorov's
    exchange: each pass evaluates all designs in which one value of the design is replaced by a candidate, as one batch,
    and takes the best of them, until none is better. Both find a local maximum, so use several `starts` for several
    sampling times.

    Args:
        criterion: `criterion(design)`, a number, such as `fisher_information(...).log_det`; minus the trace of
            `covariance` for an A-optimal design, or the mean over draws of parameters for a Bayesian one.
        design: The start: a PyTree of floating-point arrays, such as sampling times.
        lower: The smallest values: a number, or a PyTree of the same structure.
        upper: The largest values, likewise.
        candidates: In place of bounds, the values that each number of the design may have, such as the full hours;
            shape `(m,)`.
        starts: The number of starts; all but the first are drawn uniformly between the bounds, or from candidates.
        key: A random key, if `starts` is more than 1.

    Returns:
        An `OptimalDesign`.

    Raises:
        ValueError: If bounds or candidates are wrong, or the criterion is not finite at any start.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inference

        def observe(model, effects, times):
            return inference.Normal(100 / model["volume"] * jnp.exp(-model["rate"] * times), 0.1)

        def log_det(times):
            model = {"volume": jnp.array(20.0), "rate": jnp.array(0.5)}
            return inference.fisher_information(model, observe, subject=times).log_det

        best = inference.optimal_design(log_det, jnp.array([1.0, 5.0]), lower=0.0, upper=12.0)
        assert jnp.allclose(best.design, jnp.array([0.0, 2.0]), atol=1e-2)  # the difference is 1 / rate
        ```
    """
    starts = check_count(starts, "starts", "optimal_design")
    flat, unravel = ravel_pytree(jtu.tree_map(jnp.asarray, design))
    if starts > 1:
        if key is None:
            raise ValueError(f"`optimal_design(starts={starts})` draws random starts and requires `key`.")
        key = check_key(key, "optimal_design")
    if candidates is not None:
        if not (lower is None and upper is None):
            raise ValueError(
                "`optimal_design` requires either `candidates` or the bounds `lower` and `upper`, not both."
            )
        return _exchange(criterion, flat, unravel, candidates, starts, key)
    if lower is None or upper is None:
        raise ValueError("`optimal_design` requires the bounds `lower` and `upper`, or `candidates`.")
    return _climb(criterion, design, flat, unravel, lower, upper, starts, key)


_SINGULAR = (
    "the criterion or its gradient is not finite at the start, because these data do not determine all "
    "parameters or the model fails. Start from another design."
)


def _climb(
    criterion: Callable,
    design: PyTree,
    flat: Float[Array, " n"],
    unravel: Callable,
    lower: PyTree,
    upper: PyTree,
    starts: int,
    key: Key | None,
) -> OptimalDesign:
    import scipy.optimize  # late: its import changes the filters of warnings

    ends = []
    for bound in (lower, upper):
        given = (
            bound if jtu.tree_structure(bound) == jtu.tree_structure(design) else jtu.tree_map(lambda _: bound, design)
        )
        whole = jtu.tree_map(lambda b, x: jnp.broadcast_to(jnp.asarray(b, flat.dtype), jnp.shape(x)), given, design)
        ends.append(np.asarray(ravel_pytree(whole)[0], np.float64))
    low, high = ends
    if not np.all(low < high):
        raise ValueError(f"`lower` must be below `upper`, but they are {low} and {high}.")
    points = [np.clip(np.asarray(flat, np.float64), low, high)]
    if key is not None and starts > 1:
        if not np.all(np.isfinite(high - low)):
            raise ValueError("`optimal_design(starts=...)` draws random starts and requires finite bounds.")
        share = jax.random.uniform(key, (starts - 1, flat.size))
        points += list(low + (high - low) * np.asarray(share, np.float64))

    def cost(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = _value_and_slope(criterion, unravel, jnp.asarray(x, flat.dtype))
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            return np.inf, np.zeros_like(x)
        return -float(value), -np.asarray(slope, np.float64)

    usable = [x for x in points if np.isfinite(cost(x)[0])]
    if not usable:
        raise ValueError(_SINGULAR)
    options = {"ftol": 1e-14, "gtol": 1e-9, "maxiter": 1000}
    bounds = list(zip(low, high, strict=True))
    found = [
        scipy.optimize.minimize(cost, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options) for x in usable
    ]
    best = min(found, key=lambda end: end.fun)
    return OptimalDesign(
        unravel(jnp.asarray(best.x, flat.dtype)), jnp.asarray(-best.fun, flat.dtype), str(best.message)
    )


def _exchange(
    criterion: Callable, flat: Float[Array, " n"], unravel: Callable, candidates: Any, starts: int, key: Key | None
) -> OptimalDesign:
    """Returns the best design of candidates, by exchanges of one value at a time (Fedorov)."""
    among = jnp.asarray(candidates, flat.dtype)
    if among.ndim != 1 or not among.size or not bool(jnp.all(jnp.isfinite(among))):
        raise ValueError(
            f"`candidates` must be finite numbers of shape `(m,)`, but have shape {among.shape}: {candidates!r}."
        )
    points = [among[jnp.argmin(jnp.abs(flat[:, None] - among[None]), axis=1)]]  # the nearest candidates
    if key is not None and starts > 1:
        points += list(jax.random.choice(key, among, (starts - 1, flat.size)))
    best, highest, total = points[0], jnp.asarray(-jnp.inf, flat.dtype), 0
    for x in points:
        value = _values(criterion, unravel, x[None])[0]
        value = jnp.where(jnp.isnan(value), -jnp.inf, value)
        while True:
            exchanged = jnp.where(jnp.eye(flat.size, dtype=bool)[:, None], among[None, :, None], x[None, None])
            values = _values(criterion, unravel, exchanged.reshape(-1, flat.size))
            values = jnp.where(jnp.isnan(values), -jnp.inf, values)
            place = jnp.argmax(values)
            rounding = 1e3 * jnp.finfo(flat.dtype).eps * jnp.maximum(jnp.abs(value), 1)
            if not values[place] > value + jnp.where(jnp.isfinite(value), rounding, 0):
                break
            x, value, total = exchanged.reshape(-1, flat.size)[place], values[place], total + 1
        if value > highest:
            best, highest = x, value
    if not jnp.isfinite(highest):
        raise ValueError(_SINGULAR)
    return OptimalDesign(unravel(best), highest, f"No exchange is better, after {total} exchanges.")


@filter_jit
def _values(criterion: Callable, unravel: Callable, x: Float[Array, "m n"]) -> Float[Array, " m"]:
    return jax.vmap(lambda x: criterion(unravel(x)))(x)


@filter_jit
def _value_and_slope(criterion: Callable, unravel: Callable, x: Float[Array, " n"]) -> tuple[Array, Array]:
    return jax.value_and_grad(lambda x: criterion(unravel(x)))(x)
