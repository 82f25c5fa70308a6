"""`log_density`: a posterior as a function of free variables, which samplers and optimisers move in."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from .._checks import check_call, check_key, concrete
from .._jax._members_apart import members_apart
from .._jax._vma import on_explicit_axes
from .._parameters import indices_of
from .._structure_words import first_difference, structure_words
from .._types import Key
from ..training._selection import ParameterSelection, described, is_inexact, leaf_names, select
from ._derivatives import needs_forward_rule, with_forward_rule
from ._laplace import LaplaceApproximation, laplace
from ._maximum import Maximum, maximum
from .distributions._abstract import AbstractDistribution


class Prior(eqx.Module):
    """The prior of some leaves: a distribution, or a function of the model that gives one."""

    given: Any
    slots: tuple[int, ...] = eqx.field(static=True)  # positions among the sampled leaves

    def of(self, model: Any) -> AbstractDistribution:
        return self.given if isinstance(self.given, AbstractDistribution) else self.given(model)


def read_priors(model: Any, priors: Sequence) -> tuple[Any, ParameterSelection, tuple[Prior, ...]]:
    """Returns a model with its sampled leaves as arrays, the selection of them, and their priors.

    Raises:
        ValueError: If a selector or a prior makes no sense.
        TypeError: If an entry is not a pair, or selects something that is not a floating-point array, or its prior is
            not a distribution.
    """
    chosen: list[tuple[list[int], Any, Any]] = []
    taken: dict[int, int] = {}
    names, values = leaf_names(model), jtu.tree_leaves(model)
    for number, entry in enumerate(priors):
        if not (isinstance(entry, Sequence) and len(entry) == 2 and callable(entry[0])):
            raise TypeError(f"each entry of `priors` must be a tuple `(selector, prior)`, but got {entry!r}.")
        selector, given = entry
        leaves = indices_of(model, selector, "priors")
        if not any(is_inexact(values[leaf]) for leaf in leaves):
            raise TypeError(
                f"`priors` selects `{names[leaves[0]]}`, which is {described(values[leaves[0]])}; only floating-point "
                "leaves can be sampled. Make it a float array, such as `jnp.array(1.0)`."
            )
        for leaf in leaves:
            if leaf in taken:
                raise ValueError(f"`{names[leaf]}` has two priors, entries {taken[leaf]} and {number} of `priors`.")
            taken[leaf] = number
        chosen.append((leaves, given, _transform_of(given, model, number)))
    transforms = [(selector, transform) for (selector, _), (_, _, transform) in zip(priors, chosen, strict=True)]
    model, selection = select(model, lambda m: [selector(m) for selector, _ in priors], None, (), transforms)
    slot = {leaf: i for i, leaf in enumerate(selection.indices)}
    for leaves, _, _ in chosen:
        if wrong := [names[leaf] for leaf in leaves if leaf not in slot]:
            raise TypeError(f"`priors` selects `{wrong[0]}`, which is not a floating-point array.")
    found = tuple(Prior(given, tuple(slot[leaf] for leaf in leaves)) for leaves, given, _ in chosen)
    return model, selection, found


def _transform_of(given: Any, model: Any, number: int) -> Any:
    if isinstance(given, AbstractDistribution):
        return given.transform
    if not callable(given) or isinstance(given, type):
        hint = " For one of another library use `Custom(d.log_prob, transform)`." if hasattr(given, "log_prob") else ""
        raise TypeError(f"entry {number} of `priors` must be a distribution of `sciml.inference`, got {given!r}.{hint}")
    prior = given(model)
    if not isinstance(prior, AbstractDistribution):
        raise TypeError(
            f"the function in entry {number} of `priors` must return a distribution, but returned {prior!r}."
        )
    if jtu.tree_leaves(prior.transform):
        raise ValueError(
            f"the prior in entry {number} of `priors` is a function of the model and has bounds, which would move with "
            "the model. Use a distribution of real or of positive numbers, or fixed bounds."
        )
    return prior.transform


def check_prior(prior: AbstractDistribution, values: Sequence[Array], number: int, name: str) -> None:
    """Checks a prior with known parameters, since for example a negative scale is invalid.

    Args:
        prior: The prior.
        values: The numbers that it is the prior of.
        number: Its place among the priors.
        name: The name of the first of the numbers.

    Raises:
        ValueError: If its density is NaN, or its variance negative.
    """
    if not all(map(concrete, jax.tree.leaves((prior, list(values))))):
        return
    with jax.ensure_compile_time_eval():
        wrong = any(bool(jnp.any(jnp.isnan(prior.log_prob(x)) & jnp.isfinite(x))) for x in values)
        wrong = wrong or _no_variance(prior)
    if wrong:
        shown = ", ".join(f"{field.name}={getattr(prior, field.name)}" for field in dataclasses.fields(prior))
        raise ValueError(
            f"the prior in entry {number} of `priors`, of `{name}`, is not a density: {type(prior).__name__}({shown}). "
            "Check the order of its parameters, and that scales are positive."
        )


def _no_variance(prior: AbstractDistribution) -> bool:
    try:
        _, variance = prior.moments()
    except (ValueError, NotImplementedError):  # of some nothing is known
        return False
    return bool(jnp.any(variance < 0))


class LogDensity(eqx.Module):
    r"""The logarithm of a posterior's density, as a function of free variables; returned by `log_density`.

    Called with a position $z$, a PyTree like the model with None at leaves that are not sampled, it returns

    $$\log p(d \mid x(z)) + \log p(x(z)) + \log \left| \frac{dx}{dz} \right|$$

    up to a constant that does not depend on $z$; minus infinity if the model fails.

    Attributes:
        model: The model as it was given; only its sampled leaves change.
        data: The observations.
        observe: `observe(model)`, the distribution of the data.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inference

        model = {"rate": jnp.array(2.0)}
        counts = jnp.array([3.0, 1.0, 4.0])
        priors = [(lambda m: m["rate"], inference.Gamma(2.0, 1.0))]
        density = inference.log_density(model, lambda m: inference.PoissonCounts(m["rate"]), counts, priors)
        position = density.unconstrain(model)  # {"rate": log 2}
        slope = jax.grad(density)(position)
        assert jnp.allclose(slope["rate"], 2 + 8 - (1 + 3) * 2.0)  # that of a Gamma(10, 4) of a logarithm
        ```
    """

    model: PyTree
    data: PyTree
    observe: Any
    _priors: tuple[Prior, ...]
    _selection: ParameterSelection
    _missing: tuple[bool, ...] = eqx.field(static=True)
    _forward: bool = eqx.field(static=True, default=False)

    def __call__(self, position: PyTree) -> Float[Array, ""]:
        """Returns the logarithm of the density of the free variables."""
        return self._value(self.ravel(position), 1.0)

    # by identity: `jax.jit(density)` looks a function up by its hash, and dicts and arrays have none
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __str__(self) -> str:
        shown = ", ".join(f"`{name}`" for name in self.names[:30]) + (", ..." if self.size > 30 else "")
        count = sum(x.size for x in jtu.tree_leaves(self.data))
        return f"the density of {self.size} parameters, {shown}, given {count} data"

    def _value(self, z: Float[Array, " p"], jacobian: Any) -> Float[Array, ""]:
        """Returns likelihood times prior times the Jacobian to a power: 1 for free variables, 0 for own units."""
        if on_explicit_axes(z):  # what the density holds is on no mesh, and JAX would not mix the two
            return members_apart(_value_of)(self, z, jnp.asarray(jacobian, z.dtype))
        return _value_of(self, z, jacobian)

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """Returns minus the logarithm of the density: NumPyro's `potential_fn`."""
        return -self(position)

    @property
    def names(self) -> tuple[str, ...]:
        """One name for each sampled number, such as `beta` or `y0[1]`."""
        return self._selection.names

    @property
    def size(self) -> int:
        """How many numbers are sampled."""
        return self._selection.size

    @property
    def n_observations(self) -> int:
        """How many numbers were observed; those that are NaN were not."""
        leaves = [x for x in jtu.tree_leaves(self.data) if eqx.is_inexact_array(x)]
        return sum(int(np.sum(~np.isnan(np.asarray(x)))) for x in leaves)

    def constrain(self, position: PyTree) -> PyTree:
        """Returns the model at a position, with its parameters in their own units.

        Raises:
            ValueError: If it is not a position of this density.
        """
        self._check_position(position, several=True)
        return self._selection.joined(self._selection.rest(self.model), position)

    def unconstrain(self, model: PyTree) -> PyTree:
        """Returns the position of a model: the free variables of its sampled leaves, None elsewhere."""
        free = self._selection.free(model)
        return jtu.tree_map(_strong, free)

    @property
    def dtype(self) -> Any:
        """The dtype of `ravel`: the default one, whatever the dtypes of leaves."""
        return self._selection.dtype

    def ravel(self, position: PyTree) -> Float[Array, " p"]:
        """Returns a position as one vector, in the order of `names`; a vector is returned unchanged.

        Raises:
            ValueError: If it is not a position of this density.
        """
        leaves = jtu.tree_leaves(position)
        if [jnp.shape(z) for z in leaves] != [(self.size,)]:
            self._check_position(position)
        return jnp.concatenate([jnp.reshape(z, -1).astype(self.dtype) for z in leaves])

    def _check_position(self, position: PyTree, several: bool = False) -> None:
        """Checks that a position has the leaves of the sampled ones, or `several` positions, with leading axes."""
        selection, found = self._selection, [jnp.shape(z) for z in jtu.tree_leaves(position)]
        lead = found[0][: len(found[0]) - len(selection.shapes[0])] if found and several else ()
        if found != [lead + shape for shape in selection.shapes]:
            wanted = ", ".join(f"`{p}` {s}" for p, s in zip(selection.paths, selection.shapes, strict=True))
            raise ValueError(
                f"a position must contain the free variables of the sampled parameters, with shapes {wanted}, but this "
                f"one contains arrays of shapes {found}. `density.unconstrain(model)`, `density.initial(key)` and "
                "`density.unravel(vector)` return positions."
            )

    def unravel(self, z: Float[Array, " p"]) -> PyTree:
        """Returns the position of such a vector.

        Raises:
            ValueError: If it has not as many numbers as there are `names`.
        """
        if jnp.shape(z) != (self.size,):
            raise ValueError(
                f"`unravel` requires a vector of shape ({self.size},), a number for each of `names`, but got shape "
                f"{jnp.shape(z)}. For several vectors use `jax.vmap`."
            )
        found, treedef = jtu.tree_flatten(self._selection.tree(self.model, z))
        return jtu.tree_unflatten(treedef, [x.astype(d) for x, d in zip(found, self._selection.dtypes, strict=True)])

    def slope(self, z: Float[Array, " p"]) -> Float[Array, " p"]:
        """Returns $dx / dz$ at such a vector: the effect of a small change of each free variable on its parameter."""
        return self._selection.slope(z)

    def log_jacobian(self, position: PyTree) -> Float[Array, ""]:
        r"""Returns $\log |dx / dz|$ of the change to free variables, summed over all of them."""
        transforms = self._selection.transforms
        slopes = [t.log_slope(z) for t, z in zip(transforms, jtu.tree_leaves(position), strict=True)]
        return self._sum(slopes)

    def log_prior(self, model: PyTree) -> Float[Array, ""]:
        """Returns the logarithm of the prior's density of a model's parameters, in their own units."""
        leaves = self._sampled(model)
        return self._sum([p.of(model).log_prob(leaves[i]) for p in self._priors for i in p.slots])

    def log_likelihood(self, model: PyTree) -> Float[Array, ""]:
        """Returns the logarithm of the probability of all data, given a model."""
        return self._sum(jtu.tree_leaves(self.pointwise(model)))

    def pointwise(self, model: PyTree) -> PyTree:
        """Returns the logarithm of the probability of each datum, in the structure of the data; missing ones give 0."""
        return self._with_data(self.observe(model), masked_log_prob)

    def residuals(self, model: PyTree) -> PyTree:
        r"""Returns Pearson's residuals $(d - \mu) / \sigma$ with the moments of each datum's distribution."""
        return self._with_data(self.observe(model), _standardised)

    def initial(self, key: Key) -> PyTree:
        """Returns a position that is drawn from the prior; `jax.vmap` over keys gives one for each chain.

        Raises:
            ValueError: If a prior has no draws.
            TypeError: If `key` is not a random key.
        """
        key, model = check_key(key, "initial"), self.model
        for number, prior in enumerate(self._priors):
            keys = jax.random.split(jax.random.fold_in(key, number), len(prior.slots))
            distribution = prior.of(model)  # which may depend on what was drawn before
            leaves, treedef = jtu.tree_flatten(model)
            for slot, own in zip(prior.slots, keys, strict=True):
                shape, dtype = self._selection.shapes[slot], self._selection.dtypes[slot]
                leaves[self._selection.indices[slot]] = distribution.draw(own, shape).astype(dtype)
            model = jtu.tree_unflatten(treedef, leaves)
        return self.unconstrain(model)

    def predict(self, position: PyTree, key: Key) -> PyTree:
        """Returns data as they might have been observed, drawn from the distribution at a position.

        Raises:
            TypeError: If `key` is not a random key.
            ValueError: If `position` is not a position of this density.
        """
        key = check_key(key, "predict")
        distributions = self.observe(self.constrain(position))
        if is_distribution(distributions) and not jtu.all_leaves([self.data]):
            return distributions.draw(key)
        leaves, treedef = jtu.tree_flatten(distributions, is_leaf=is_distribution)
        shapes = [x.shape for x in jtu.tree_leaves(self.data)]
        if len(shapes) != len(leaves):
            raise ValueError(f"`predict` requires a distribution for each of the {len(shapes)} arrays of data.")
        keys = jax.random.split(key, len(leaves))
        drawn = [d.draw(k, shape) for d, k, shape in zip(leaves, keys, shapes, strict=True)]
        return jtu.tree_unflatten(treedef, drawn)

    def log_joint(self, model: PyTree) -> Float[Array, ""]:
        """Returns the logarithm of likelihood times prior, in the parameters' own units; minus infinity for NaN."""
        return self._value(self._selection.flatten(model), 0.0)

    def sampled(self, model: PyTree) -> PyTree:
        """Returns the model with None at leaves that are not sampled."""
        return self._selection.picked(model)

    def _sampled(self, model: PyTree) -> list[Array]:
        leaves = jtu.tree_leaves(model)
        return [leaves[i].astype(self._selection.dtype) for i in self._selection.indices]

    def _sum(self, parts: Sequence[Array]) -> Float[Array, ""]:
        dtype = self._selection.dtype
        return sum((jnp.sum(part.astype(dtype)) for part in parts), jnp.zeros((), dtype))

    def _with_data(self, distributions: Any, function: Callable) -> PyTree:
        if is_distribution(distributions) and not jtu.all_leaves([self.data]):  # one of all data together
            return function(distributions, self.data, False)
        flags = jtu.tree_unflatten(jtu.tree_structure(self.data), self._missing)
        return jtu.tree_map(function, distributions, self.data, flags, is_leaf=is_distribution)

    # Methods whose work is done elsewhere.

    def maximum(
        self,
        start: PyTree = None,
        *,
        starts: int = 1,
        key: Key | None = None,
        max_steps: int = 500,
        rtol: float | None = None,
        throw: bool = True,
    ) -> Maximum:
        """Returns the model at which likelihood times prior is largest, in the parameters' own units.

        With `Improper` priors it is the maximum likelihood estimate, otherwise the maximum a posteriori estimate. The
        optimiser is optimistix's BFGS, in free variables.

        Args:
            start: A model to start from; the one that was given by default.
            starts: How many starts; all but the first are drawn from the prior, and run as lanes.
            key: A random key, if `starts` is more than 1.
            max_steps: The most steps of a start.
            rtol: Tolerance, by default 1e-8 in float64 and 1e-4 in float32.
            throw: Whether to raise an error if no maximum is found.

        Returns:
            A `Maximum`.

        Raises:
            ValueError: If the density is zero at the start, or an argument makes no sense.
            SolveError: If `throw` and the optimiser does not converge.

        Example:
            ```python
            import jax.numpy as jnp
            from sciml import inference, training

            observed = jnp.array([1.0, 2.0, 6.0])
            priors = [(lambda m: m, inference.Improper(training.Positive()))]
            model = jnp.array(1.0)
            density = inference.log_density(model, lambda m: inference.PoissonCounts(m), observed, priors)
            assert abs(float(density.maximum().model) - 3.0) < 1e-3
            ```
        """
        return maximum(self, start, starts=starts, key=key, max_steps=max_steps, rtol=rtol, throw=throw)

    def laplace(
        self,
        start: PyTree = None,
        *,
        starts: int = 1,
        key: Key | None = None,
        max_steps: int = 500,
        rtol: float | None = None,
    ) -> LaplaceApproximation:
        """Returns the normal distribution of the free variables about the maximum of their density.

        Its covariance is the inverse of the Hessian there. Arguments are the same as for `maximum`, which finds the
        maximum of the density in the parameters' own units: if the posterior is wide the two differ.

        Raises:
            ValueError: If the density is zero at the start, or an argument makes no sense.
            SolveError: If no maximum is found.

        Warns:
            UserWarning: If data and priors do not determine some direction, which it names.

        Example:
            ```python
            import jax
            import jax.numpy as jnp
            from sciml import inference

            observed = jnp.array([1.0, 2.0, 6.0])
            model = jnp.array(1.0)
            priors = [(lambda m: m, inference.Normal(0.0, 10.0))]
            density = inference.log_density(model, lambda m: inference.Normal(m, 1.0), observed, priors)
            found = density.laplace()
            assert abs(found.covariance[0, 0] - 1 / (3 + 1 / 100)) < 1e-3
            ```
        """
        return laplace(self, start, starts=starts, key=key, max_steps=max_steps, rtol=rtol)


def _value_of(density: LogDensity, z: Float[Array, " p"], jacobian: Any) -> Float[Array, ""]:
    def value(z):
        position = density.unravel(z)
        model = density.constrain(position)
        found = density.log_likelihood(model) + density.log_prior(model)
        found = found + jacobian * density.log_jacobian(position)
        return jnp.where(jnp.isnan(found), -jnp.inf, found)

    return with_forward_rule(value)(z) if density._forward else value(z)


def log_density(
    model: PyTree,
    observe: Callable[[Any], Any] | Any,
    data: PyTree,
    priors: Sequence[tuple[Callable, Any]] | Any,
) -> LogDensity:
    r"""Returns the logarithm of a posterior's density as a function of free variables.

    Free variables are unconstrained, as samplers and optimisers need: positive parameters are sampled as logarithms,
    bounded ones as logits, by the transforms of `sciml.fit`, and the logarithm of the Jacobian is part of the density.
    The result is a PyTree and a pure function: `jax.jit`, `jax.grad`, `jax.hessian` and `jax.vmap` work. If a solve in
    `observe` only supports forward mode, as with `adjoint=sciml.adjoints.Direct()`, which suits few parameters, its
    gradient is computed in forward mode, and `jax.grad` works as well.

    Args:
        model: The model, any PyTree: an `eqx.Module`, or a dictionary of one and of initial states and noise.
        observe: `observe(model)` returns the distribution of the data, such as
            `inference.Normal(trajectory, model["sigma"])` or `inference.PoissonCounts(expected)`, or a PyTree of
            distributions with the structure of `data`. Pass `throw=False` to a solve that may fail: the density is zero
            there.
        data: The observations: an array, or a PyTree of arrays. NaN marks missing observations.
        priors: Tuples `(selector, prior)`. The selector picks leaves of the model, as in `eqx.tree_at`; these are
            sampled, and all others stay. The prior is a distribution, or a function of the model that returns one:
            `lambda model: inference.Normal(model["typical"], model["spread"])`; `LogDensity.initial` draws in the
            order of the list.

    Returns:
        A `LogDensity`.

    Raises:
        ValueError: If nothing is sampled, a leaf has two priors or a value outside of its prior's range, or
            distributions and data do not fit.
        TypeError: If a prior is not a distribution, or is one of counts, or `observe` does not return distributions.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml import inference

        ts = jnp.linspace(1.0, 14.0, 14)
        cases = jnp.array([3, 8, 26, 76, 225, 298, 258, 233, 189, 128, 68, 29, 14, 4])

        def in_bed(model):
            sol = sciml.solve(model, jnp.array([762.0, 1.0, 0.0]), t0=0.0, t1=14.0, saveat=ts, throw=False)
            return inference.PoissonCounts(sol.ys[:, 1])

        priors = [
            (lambda m: m.beta, inference.LogNormal(0.0, 1.0)),
            (lambda m: m.gamma, inference.LogNormal(-1.0, 1.0)),
        ]
        density = inference.log_density(sciml.models.SIR(), in_bed, cases, priors)
        value, slope = jax.value_and_grad(density)(density.unconstrain(sciml.models.SIR()))
        assert jnp.isfinite(value) and jnp.isfinite(slope.beta)
        ```
    """
    if not callable(observe):
        raise TypeError(f"`observe` must be a function `observe(model)`, but is {observe!r}.")
    check_call(observe, "observe(model)", "`observe`")
    if isinstance(priors, str) or not isinstance(priors, Sequence) or not priors:
        raise ValueError(f"`priors` must be a list of tuples `(selector, prior)`, at least one, but is {priors!r}.")
    model = jtu.tree_map(as_array, model)
    data = jtu.tree_map(as_floats, data)
    if not jtu.tree_leaves(data):
        raise ValueError(f"`data` must hold at least one array, but is {data!r}.")
    model, selection, found = read_priors(model, priors)
    missing = tuple(has_missing(x) for x in jtu.tree_leaves(data))
    density = LogDensity(model, data, observe, found, selection, missing)
    _check(density)
    z = density.ravel(density.unconstrain(density.model))
    only_forward = needs_forward_rule(lambda z: density._value(z, 1.0), z)
    return LogDensity(model, data, observe, found, selection, missing, only_forward)


def _check(density: LogDensity) -> None:
    """Checks what `observe` returns, by its shapes, and priors."""
    given = eqx.filter_eval_shape(density.observe, density.model)
    leaves = jtu.tree_leaves(given, is_leaf=is_distribution)
    if wrong := [x for x in leaves if not is_distribution(x)]:
        raise TypeError(
            "`observe` must return a distribution, such as `inference.Normal(prediction, 0.1)`, or a PyTree of them, "
            f"but returned {wrong[0]!r}."
        )
    numbers = isinstance(density.data, list | tuple) and all(map(jnp.isscalar, density.data))
    if is_distribution(given) and numbers and len(density.data) > 1:
        raise TypeError(
            "`data` is a list of numbers, but `observe` returned one distribution. Write the data as one array, "
            "`jnp.array([...])`."
        )
    if not is_distribution(given) and jtu.tree_structure(
        jtu.tree_map(lambda x: 0, given, is_leaf=is_distribution)
    ) != jtu.tree_structure(density.data):
        raise ValueError(
            f"`observe` must return a distribution for each array of `data`, {structure_words(density.data)}, but "
            f"returned {structure_words(given, is_distribution)}."
            f"{first_difference(density.data, given, is_distribution)}"
        )
    eqx.filter_eval_shape(lambda d: d.log_joint(d.model), density)
    values = density._sampled(density.model)
    for number, prior in enumerate(density._priors):
        if isinstance(prior.given, AbstractDistribution):
            check_prior(prior.given, [values[i] for i in prior.slots], number, density._selection.paths[prior.slots[0]])


def _strong(x: Any) -> Array:
    x = jnp.asarray(x)
    return jax.lax.convert_element_type(x, x.dtype)  # strongly typed, as draws are


def is_distribution(x: Any) -> bool:
    """Whether something is a distribution."""
    return isinstance(x, AbstractDistribution)


def masked_log_prob(distribution: AbstractDistribution, x: Any, missing: bool) -> Any:
    """Returns the logarithm of each datum's probability, and 0 where it is missing."""
    if not missing:
        return distribution.log_prob(x)
    absent = jnp.isnan(x)
    found = distribution.log_prob(jnp.where(absent, 0.5, x))  # a number that every distribution has a density for
    if found.shape != absent.shape:
        raise ValueError(
            f"`{type(distribution).__name__}` has one density for several data, of which none can be missing (NaN)."
        )
    return jnp.where(absent, jnp.zeros_like(found), found)


def _standardised(distribution: AbstractDistribution, x: Any, missing: bool) -> Array:
    del missing  # what is NaN stays so
    mean, variance = (jnp.broadcast_to(m.astype(x.dtype), x.shape) for m in distribution.moments())
    return (x - mean) / jnp.sqrt(variance)


def as_array(leaf: Any) -> Any:
    """Returns a number or array of NumPy as an array of JAX, and everything else as it is."""
    numeric = isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "biufc"
    return jnp.asarray(leaf) if numeric else leaf


def as_floats(leaf: Any) -> Any:
    """Returns data in the default floating dtype."""
    if isinstance(leaf, bool | int | float | np.ndarray | np.generic | jax.Array):
        return jnp.asarray(leaf).astype(jnp.result_type(float))
    raise TypeError(f"`data` must be arrays, but one of its leaves is {leaf!r}.")


def has_missing(x: Array) -> bool:
    """Whether a number is missing, or may be, where data are traced."""
    found: Bool[Array, ""] = jnp.any(jnp.isnan(x))
    return not concrete(found) or bool(found)
