"""`hierarchical`: a population of subjects, each with its random effects."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._checks import check_call, check_count, check_key
from .._same_code import filter_jit
from .._status import Status
from .._types import Key
from ..training import AbstractTransform
from ._effects_integral import (
    METHODS,
    check_information,
    curvature_at,
    first_order_curvature,
    log_integral,
    of_subjects,
    peak_of,
)
from ._importance import importance
from ._log_density import LogDensity, as_floats, has_missing, is_distribution, log_density, masked_log_prob
from ._maximum import Maximum
from ._population_diagnostics import PopulationDiagnostics, residuals_of_subject, shrinkages
from ._saem import ascend_by_chains
from .distributions._abstract import AbstractDistribution


class Subjects(eqx.Module):
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
        return [distribution.values_shape for distribution in self.distributions(model)[0]]

    def split(self, model: Any, z: Float[Array, " q"]) -> Any:
        """Returns a vector of one number for each effect in the structure of the effects."""
        given, treedef = self.distributions(model)
        pieces, at = [], 0
        for distribution in given:
            shape = distribution.values_shape
            size = int(np.prod(shape))
            pieces.append(z[at : at + size].reshape(shape))
            at += size
        return jtu.tree_unflatten(treedef, pieces)

    def constrain(self, model: Any, z: Float[Array, " q"]) -> Any:
        """Returns one subject's effects of its free variables."""
        given, treedef = self.distributions(model)
        pieces = zip(given, jtu.tree_leaves(self.split(model, z)), strict=True)
        return jtu.tree_unflatten(treedef, [d.transform.inverse(x) for d, x in pieces])

    def start(self, model: Any) -> Float[Array, " q"]:
        size = sum(int(np.prod(shape)) for shape in self.shapes(model))
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
            given, leaves = self.observed(model, z, subject), jtu.tree_leaves(data)
            told = [self._log_prob(d, x) for d, x in zip(given, leaves, strict=True)]
            return sum((jnp.sum(x) for x in told), self.log_prior(model, z))

        return log_p

    def curvature(self, model: Any, subject: Any, data: Any) -> Callable[[Array], Array] | None:
        """Returns the curvature of first-order conditional estimation, or None where the Hessian is taken."""
        if self.method == "laplace":
            return None
        return first_order_curvature(
            lambda z: self.observed(model, z, subject),
            lambda z: self.log_prior(model, z),
            jtu.tree_leaves(data),
            self.missing,
        )

    def mode(self, model: Any, subject: Any, own: Any) -> tuple[Float[Array, " q"], Float[Array, "q q"]]:
        """Returns the free variables of a subject's most probable effects, and their curvature; NaN without any."""
        function, curvature = self.joint(model, subject, own), self.curvature(model, subject, own)
        z, good = peak_of(function, self.start(model), curvature)
        matrix = curvature_at(function, z) if curvature is None else curvature(z)
        return jnp.where(good, z, jnp.nan), jnp.where(good, matrix, jnp.nan)

    def observed(self, model: Any, z: Array, subject: Any) -> list[Any]:
        """Returns the distributions of one subject's data; without interaction the noise of typical effects."""
        given = self._given(model, z, subject)
        if self.method != "foce":
            return given
        typical = self._given(model, jnp.zeros_like(z), subject)
        return [eqx.tree_at(lambda d: d.scale, d, t.scale) for d, t in zip(given, typical, strict=True)]

    def _given(self, model: Any, z: Array, subject: Any) -> list[Any]:
        return jtu.tree_leaves(self.observe(model, self.constrain(model, z), subject), is_leaf=is_distribution)

    def log_prior(self, model: Any, z: Array) -> Array:
        """Returns the logarithm of the density of one subject's effects by their free variables."""
        free = jtu.tree_leaves(self.split(model, z))
        total = jnp.zeros((), z.dtype)
        for distribution, x in zip(self.distributions(model)[0], free, strict=True):
            transform = distribution.transform
            total = total + jnp.sum(distribution.log_prob(transform.inverse(x))) + jnp.sum(transform.log_slope(x))
        return total


class _Integrated(AbstractDistribution):
    """The distribution of all subjects' data with the effects integrated out."""

    population: Subjects
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

        return of_subjects(one, self.model, population.subjects, data)

    def draw(self, key: Key, shape: tuple[int, ...] = ()) -> Any:
        first, second = jax.random.split(key)
        return _Observed(self.population, self.model, _new_effects(self.population, self.model, first)).draw(second)

    def moments(self) -> NoReturn:
        raise ValueError("residuals require effects. Use the residuals of `Hierarchical.joint`.")


class _Observed(AbstractDistribution):
    """The distribution of all subjects' data, given their effects."""

    population: Subjects
    model: Any
    effects: Any

    @property
    def transform(self) -> NoReturn:
        raise TypeError("this is a distribution of data.")

    def log_prob(self, x: Any) -> PyTree:
        (data,) = x

        def one(model, effects, subject, own):
            return self.population.pointwise(model, effects, subject, own)

        return of_subjects(one, self.model, self.effects, self.population.subjects, data)

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


def _new_effects(population: Subjects, model: Any, key: Key) -> Any:
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
    _population: Subjects

    def modes(self, model: PyTree) -> tuple[PyTree, Float[Array, "subjects q q"]]:
        """Returns the most probable effects of each subject, given the population's parameters, and their covariances.

        Args:
            model: The population's parameters, such as `marginal.maximum().model`.

        Returns:
            The effects with a leading axis of subjects, and the covariance of each subject's free variables: the
            inverse of the curvature that `method` takes. NaN of a subject whose effects have no most probable values.
        """
        return _modes(self._population, model)

    def diagnostics(self, model: PyTree) -> PopulationDiagnostics:
        """Returns predictions, residuals (IWRES, CWRES) and shrinkage.

        Args:
            model: The population's parameters, such as `marginal.maximum().model`.

        Returns:
            A `PopulationDiagnostics`.

        Raises:
            ValueError: If the mean and variance of data are not known, as of `Custom`.
        """
        return _diagnostics(self._population, model)

    def saem(self, key: Key, start: PyTree = None, *, steps: tuple[int, int] = (300, 500)) -> Maximum:
        r"""Returns the maximum of likelihood times prior by stochastic approximation (SAEM).

        Effects are drawn from a Markov chain for each subject in place of an approximation of their integral, and the
        parameters move along the gradient for these effects. Instead of the closed formulas of other programs, which
        need parameters that are sums of typical values and effects (mu-referencing), each step is Newton's, with the
        information of the data by Louis' formula.

        Args:
            key: A random key.
            start: A model to start from; the one that was given by default.
            steps: The numbers of iterations of both phases: to search, and to take the mean.

        Returns:
            A `Maximum`. Its `hessian` is Louis' formula, averaged over the second phase, and its `log_joint` is
            computed by `log_likelihood`.

        Source:
            E. Kuhn and M. Lavielle, Maximum likelihood estimation in nonlinear mixed effects models, Comput. Stat. Data
            Anal. 49:1020, 2005. C. Baey, M. Delattre, E. Kuhn, J.-B. Leger and S. Lemler, Efficient preconditioned
            stochastic gradient descent for estimation in latent variable models, ICML, 2023.
        """
        first, second = (check_count(x, "steps", "saem") for x in steps)
        key, last = jax.random.split(check_key(key, "saem"))
        density = self.marginal
        theta = density.ravel(density.unconstrain(density.model if start is None else start))
        theta, information = ascend_by_chains(density, self._population, theta, key, first, second)
        position = density.unravel(theta)
        model = density.constrain(position)
        value = self.log_likelihood(model, last)[0] + density.log_prior(model)
        good = bool(jnp.isfinite(value))
        return Maximum(
            density=density,
            model=model,
            position=position,
            log_joint=value,
            hessian=-information,
            names=density.names,
            status=Status.successful if good else Status.nonfinite,
            n_steps=first + second,
            message=f"{first} iterations of search, and a mean over {second} iterations.",
        )

    def log_likelihood(self, model: PyTree, key: Key, n: int = 1000) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Returns the logarithm of the marginal likelihood by importance sampling, and its standard error (IMP).

        Its only error is the error of the draws, so that it compares models that `method` approximates differently. The
        proposals are Student's distributions about the most probable effects of each subject.

        Args:
            model: The population's parameters, such as `marginal.maximum().model`.
            key: A random key.
            n: The number of draws for each subject.
        """
        key, n = check_key(key, "log_likelihood"), check_count(n, "n", "log_likelihood")
        each, variances = importance(self._population, model, key, n)
        return jnp.sum(each), jnp.sqrt(jnp.sum(variances))


@filter_jit
def _modes(population: Subjects, model: Any) -> tuple[Any, Array]:
    def one(model, subject, own):
        z, matrix = population.mode(model, subject, own)
        return population.constrain(model, z), jnp.linalg.inv(matrix)

    return of_subjects(one, model, population.subjects, population.data)


@filter_jit
def _diagnostics(population: Subjects, model: Any) -> PopulationDiagnostics:
    def one(model, subject, own):
        z, _ = population.mode(model, subject, own)
        return z, population.constrain(model, z), residuals_of_subject(population, model, subject, own, z)

    zs, effects, residuals = of_subjects(one, model, population.subjects, population.data)
    return PopulationDiagnostics(*residuals, effects, *shrinkages(population, model, zs, residuals[2]))


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
    for name, value in (("model", model), ("observe", observe), ("data", data)):
        if callable(getattr(value, "log_density", None)):  # a problem, as of PEtab
            raise TypeError(
                f"`hierarchical({name}=...)` is a {type(value).__name__}, which has no subjects: it does not say which "
                "measurements are of which subject, or which parameters vary between them. `model` must be a PyTree of "
                "the population's parameters, `observe(model, effects, subject)` the distribution of a subject's data, "
                "and `data` an array with a row for each subject. `log_density()` is the posterior without subjects."
            )
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
    population = Subjects(observe, effects, subjects, data, missing, method)
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


def _of_first(population: Subjects, model: Any) -> list[AbstractDistribution]:
    """Returns the distributions of the first subject's data, by their shapes."""
    subject = jtu.tree_map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), population.subjects)

    def given(model, subject):
        return population.observe(model, population.constrain(model, population.start(model)), subject)

    return jtu.tree_leaves(eqx.filter_eval_shape(given, model, subject), is_leaf=is_distribution)


class _Integrate(eqx.Module):
    population: Subjects
    nodes: int = eqx.field(static=True)

    def __call__(self, model: Any) -> _Integrated:
        return _Integrated(self.population, model, self.nodes)


class _Condition(eqx.Module):
    population: Subjects

    def __call__(self, both: Any) -> _Observed:
        return _Observed(self.population, both["population"], both["effects"])


def _joint(population: Subjects, model: Any, priors: Sequence) -> LogDensity:
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
