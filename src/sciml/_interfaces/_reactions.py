"""Reactions of single molecules: what each changes, and how often it happens."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import check_call, concrete, no_instance
from .._types import Args, RealScalarLike
from ._stochastic import AbstractStochastic


class AbstractReactions(eqx.Module):
    r"""Reactions among counted molecules, animals or people, whose parameters are their leaves.

    A custom model defines the changes of each reaction, and its propensity in a state; `Reactions` creates one from an
    array and a function. `sciml.solve(model, counts, key=...)` takes one reaction after another.

    Attributes:
        stoichiometry: $\nu$, an array of shape `(reactions, species)`: by how much each reaction changes each count.

    Example:
        ```python
        from typing import ClassVar

        import equinox as eqx
        import jax
        import jax.numpy as jnp
        import numpy as np
        import sciml

        class Decay(sciml.AbstractReactions):
            rate: jax.Array = eqx.field(converter=sciml.parameter)
            stoichiometry: ClassVar[np.ndarray] = np.array([[-1]])

            def propensities(self, x, args):
                return self.rate * x

        left = sciml.solve(Decay(1.0), jnp.full(1, 100.0), t0=0.0, t1=0.5, key=jax.random.key(0)).ys[-1, 0]
        assert 40 < left < 80
        ```
    """

    stoichiometry: eqx.AbstractVar[Any]

    @abc.abstractmethod
    def propensities(self, x: Array, args: Args) -> Array:
        """Returns $a(x)$, of shape `(reactions,)`; see `Reactions`."""

    def changes(self, dtype: Any) -> Float[Array, "reactions species"]:
        """Returns the stoichiometry in the dtype of a state."""
        return jnp.asarray(self.stoichiometry, dtype)

    def rates(self, x: Array, args: Args) -> Float[Array, " reactions"]:
        """Returns the propensities.

        Raises:
            ValueError: If they or the counts are not of the stoichiometry's shape.
        """
        reactions, species = self.stoichiometry.shape
        if jnp.shape(x) != (species,):
            raise ValueError(
                f"The counts must have shape ({species},), one for each column of the stoichiometry (its rows are "
                f"reactions, its columns species), but have shape {jnp.shape(x)}."
            )
        found = jnp.asarray(self.propensities(x, args))
        if found.shape != (reactions,):
            raise ValueError(
                f"`propensities` must return an array of shape ({reactions},), one for each row of `stoichiometry`, "
                f"but returned {found.shape}."
            )
        return found.astype(x.dtype)

    def rate_equations(self, t: RealScalarLike, x: Array, args: Args) -> Array:
        r"""Returns $\dot x = \sum_j \nu_j a_j(x)$, a vector field: how the counts move where they are large."""
        del t
        return jnp.sum(self.changes(x.dtype) * self.rates(x, args)[:, None], axis=0)

    def langevin(self) -> AbstractStochastic:
        r"""Returns the chemical Langevin equation, $dx = \sum_j \nu_j (a_j \, dt + \sqrt{a_j} \, dW_j)$.

        It is near the process where every reaction happens many times before propensities change. Noise may carry
        counts below zero, where propensities that are negative count as zero.
        """
        return _Langevin(self)


class Reactions(AbstractReactions):
    r"""Reactions among counted molecules, animals or people: a Markov jump process (stochastic simulation algorithm).

    In a state $x$ reaction $j$ happens at the rate $a_j(x)$, its propensity, and changes the counts by $\nu_j$. With
    `key`, `sciml.solve` simulates one reaction after another with Gillespie's direct method, which is exact, or many
    reactions per step with `solver=sciml.solvers.TauLeaping()`. `langevin` and `rate_equations` are its limits for
    large counts.

    Attributes:
        stoichiometry: $\nu$, an array of shape `(reactions, species)`: the change of each count by each reaction.
        propensities: $a$, a function `propensities(x, args)` of the counts, of shape `(species,)`, that returns a
            nonnegative array of shape `(reactions,)`. A propensity must be zero if the reaction lacks its reactants.
            Counts are floating-point numbers: in float32 they are exact up to $2^{24}$.

    Raises:
        TypeError: If the propensities are not a function.
        ValueError: If the stoichiometry does not have this shape.

    Source:
        D. T. Gillespie, Exact stochastic simulation of coupled chemical reactions, Journal of Physical Chemistry 81
        (1977) 2340.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        # born at a rate of 10, and each dies at a rate of 1
        population = sciml.Reactions([[1], [-1]], lambda x, args: jnp.stack([jnp.full_like(x[0], 10.0), x[0]]))
        solve = lambda key: sciml.solve(population, jnp.zeros(1), t0=0.0, t1=8.0, key=key)
        counts = jax.vmap(lambda key: solve(key).ys[-1, 0])(jax.random.split(jax.random.key(0), 1000))
        assert jnp.all(counts == jnp.round(counts))
        assert abs(counts.mean() - 10.0) < 0.5 and abs(counts.var() - 10.0) < 2.0
        ```
    """

    stoichiometry: Array
    _propensities: Callable[[Array, Args], Array]

    def __init__(self, stoichiometry: Any, propensities: Any):
        self.stoichiometry = jnp.asarray(stoichiometry)
        self._propensities = propensities

    def __check_init__(self):
        if self.stoichiometry.ndim != 2 or 0 in self.stoichiometry.shape:
            raise ValueError(
                "`stoichiometry` must have shape `(reactions, species)`, a row for each reaction, but has shape "
                f"{self.stoichiometry.shape}."
            )
        if concrete(self.stoichiometry) and not np.all(np.any(np.asarray(self.stoichiometry) != 0, axis=1)):
            raise ValueError("A row of `stoichiometry` is zero, so that reaction has no effect. Remove it.")
        if not callable(self._propensities):
            raise TypeError(
                f"`propensities` must be a function `propensities(x, args)`, but {no_instance(self._propensities)}."
            )
        check_call(self._propensities, "propensities(x, args)", "`propensities`")

    def propensities(self, x: Array, args: Args) -> Array:
        """Returns $a(x)$."""
        return self._propensities(x, args)


class _Langevin(AbstractStochastic):
    """The limit of reactions for large counts."""

    reactions: AbstractReactions
    noise: ClassVar[str] = "general"

    def drift(self, t: RealScalarLike, y: Array, args: Args) -> Array:
        """Returns how the counts move on average."""
        del t
        rates = jnp.maximum(self.reactions.rates(y, args), 0)
        return jnp.sum(self.reactions.changes(y.dtype) * rates[:, None], axis=0)

    def diffusion(self, t: RealScalarLike, y: Array, args: Args) -> Array:
        """Returns the contribution of each reaction to its noise."""
        del t
        rates = jnp.maximum(self.reactions.rates(y, args), 0)
        # the root has no derivative at zero
        roots = jnp.where(rates > 0, jnp.sqrt(jnp.where(rates > 0, rates, jnp.ones_like(rates))), 0 * rates)
        return self.reactions.changes(y.dtype).T * roots[None]
