"""The maximum of a population's likelihood by stochastic approximation, with effects from Markov chains (SAEM)."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._jax._loops import scan
from .._jax._shards import members_alike
from .._same_code import filter_jit
from .._types import Key
from ._effects_integral import of_subjects, solve_lower
from ._population_diagnostics import gaussian_of

# Moves of the chain of a subject's effects in each iteration, and the share of accepted ones that their length is for.
_WALKS, _NEW_ONES, _ACCEPTED = 4, 2, 0.3
# Chains of all subjects together in each iteration, at least.
_CHAINS = 64
# The information of data alone is at least this share of the information of data and effects in a step.
_LEAST = 0.02
# The shares of a step that are tried, so that no step into a flat region lowers the density of data and effects far.
_SHARES = (1.0, 0.25, 0.0625, 0.0)
# Steps of the second phase decrease as a power of their number; with a mean over them, any between 0.5 and 1 converges.
_POWER = 0.7


class _State(NamedTuple):
    """One iteration.

    Attributes:
        theta: The free variables of the population.
        zs: The free variables of the effects, for each chain.
        log_lengths: The logarithm of the length of a subject's moves.
        scores: The mean gradient of each subject.
        squares: The mean sum of squared gradients of chains.
        curvature: The mean of minus the Hessian of the density of data and effects, and of the prior.
        mean: The mean of `theta` in the second phase.
    """

    theta: Float[Array, " p"]
    zs: Float[Array, "subjects chains q"]
    log_lengths: Float[Array, " subjects"]
    scores: Float[Array, "subjects p"]
    squares: Float[Array, "p p"]
    curvature: Float[Array, "p p"]
    mean: Float[Array, " p"]


@filter_jit
def ascend_by_chains(
    density: Any, population: Any, theta: Float[Array, " p"], key: Key, first: int, second: int
) -> tuple[Float[Array, " p"], Float[Array, "p p"]]:
    r"""Returns the free variables that maximise the marginal likelihood times prior, and its information there.

    The gradient of the marginal likelihood is the mean of $\nabla_\theta \log p(d, z \mid \theta)$ over effects given
    the data (Fisher's identity), here over the states of a Metropolis chain for each subject, whose target moves with
    $\theta$. Steps are Newton's, with the information of the data by Louis' formula: the mean curvature of the density
    of data and effects, less the covariance of its gradients. In the second phase they decrease, and the result is the
    mean of $\theta$.
    """
    true = dataclasses.replace(population, method="laplace")
    count = jax.tree.leaves(population.data)[0].shape[0]
    chains, p = -(-_CHAINS // count), theta.size

    def model_at(theta: Array) -> Any:
        return density.constrain(density.unravel(theta))

    def prior(theta: Array) -> Array:
        return density.log_prior(model_at(theta))

    def moved(model: Any, mean: Array, factor: Array, z: Array, log_length: Array, key: Key, own: tuple) -> tuple:
        """Moves the chain of a subject, and says which share of its walks was accepted."""
        joint = true.joint(model, *own)

        def move(carry: tuple, given: tuple) -> tuple:
            (z, here), (key, walks) = carry, given
            of_step, of_choice = jax.random.split(key)
            step = factor @ jax.random.normal(of_step, z.shape, z.dtype)
            new = jnp.where(walks, z + jnp.exp(log_length) * step, mean + step)
            there = joint(new)
            # the other moves are drawn from the distribution of effects, whatever the chain's place
            densities = [-0.5 * jnp.sum(solve_lower(factor, x - mean) ** 2) for x in (new, z)]
            gain = there - here - jnp.where(walks, 0, densities[0] - densities[1])
            accepted = jnp.log(jax.random.uniform(of_choice, dtype=z.dtype)) < gain
            z, here = jnp.where(accepted, new, z), jnp.where(accepted, there, here)
            return (z, here), jnp.where(walks, accepted.astype(z.dtype), 0)

        keys, walks = jax.random.split(key, _WALKS + _NEW_ONES), jnp.arange(_WALKS + _NEW_ONES) >= _NEW_ONES
        here = joint(z)
        here = jnp.where(jnp.isnan(here), -jnp.inf, here)
        (z, _), shares = scan(move, (z, here), (keys, walks), like=(model, own))
        return z, jnp.sum(shares) / _WALKS

    def iterate(state: _State, given: tuple[Int[Array, ""], Key]) -> tuple[_State, None]:
        k, key = given
        # of means: a tenth while it searches, then of all iterations of the second phase alike
        late = jnp.maximum(k - first + 1, 1).astype(theta.dtype)
        share = jnp.where(k < first, jnp.maximum(0.1, 1 / (k + 1)).astype(theta.dtype), 1 / (late + 9))

        def of_subject(theta: Array, zs: Array, log_length: Array, key: Key, *own: Any) -> tuple:
            model = model_at(theta)
            mean, omega = gaussian_of(lambda z: true.log_prior(model, z), zs.shape[-1])
            factor = jnp.linalg.cholesky(omega)
            zs, shares = jax.vmap(lambda z, key: moved(model, mean, factor, z, log_length, key, own))(
                zs, jax.random.split(key, chains)
            )

            def log_p(theta: Array, z: Array) -> Array:
                return true.joint(model_at(theta), *own)(z)

            slopes = jax.vmap(lambda z: jax.grad(log_p)(theta, z))(zs)
            curvature = -jax.jacfwd(jax.grad(log_p))(theta, zs[0])
            return zs, log_length + 0.5 * share**0.5 * (jnp.mean(shares) - _ACCEPTED), slopes, curvature

        def densities(ladder: Array, zs: Array, *own: Any) -> Array:
            def height(theta: Array) -> Array:
                return jnp.mean(jax.vmap(true.joint(model_at(theta), *own))(zs))

            return jax.vmap(height)(ladder)

        keys, given = jax.random.split(key, count), (population.subjects, population.data)
        each = of_subjects(of_subject, state.theta, state.zs, state.log_lengths, keys, *given)
        zs, log_lengths, slopes, curvatures = each
        slopes, curvatures = (jnp.where(jnp.isfinite(x), x, 0) for x in (slopes, curvatures))
        scores = state.scores + share * (jnp.mean(slopes, axis=1) - state.scores)
        seen = jnp.sum(jax.vmap(lambda x: x.T @ x)(slopes), axis=0) / chains
        squares = state.squares + share * (seen - state.squares)
        total = jnp.sum(curvatures, axis=0) - jax.hessian(prior)(state.theta)
        curvature = state.curvature + share * (total - state.curvature)
        gradient = jnp.sum(jnp.mean(slopes, axis=1), axis=0) + jax.grad(prior)(state.theta)
        step = _step(gradient, squares, curvature - squares + _products(scores), count)
        length = jnp.where(k < first, jnp.asarray(0.5, theta.dtype), late**-_POWER)
        ladder = state.theta[None] + length * jnp.asarray(_SHARES, theta.dtype)[:, None] * step[None]
        heights = jnp.sum(of_subjects(densities, ladder, zs, *given), axis=0) + jax.vmap(prior)(ladder)
        heights = jnp.where(jnp.isnan(heights), -jnp.inf, heights)
        # one unit per subject: Newton's step for the data alone passes the peak for these effects, but not so far
        new = ladder[jnp.argmax(heights >= heights[-1] - count)]
        kept = jnp.where(k < first, new, state.mean + (new - state.mean) / late)
        return _State(new, zs, log_lengths, scores, squares, curvature, kept), None

    one = population.start(model_at(theta))
    zero = jnp.zeros((), theta.dtype)
    none = jnp.broadcast_to(zero, (p, p))
    own = [jnp.broadcast_to(x, (count, *rest)) for x, rest in ((one, (chains, one.size)), (zero, ()), (zero, (p,)))]
    _, (zs, log_lengths, scores) = members_alike((population.data, own))
    begin = _State(
        theta=theta,
        zs=zs,
        log_lengths=log_lengths,
        scores=scores,
        squares=none,
        curvature=none,
        mean=theta,
    )
    steps = first + second
    found, _ = scan(iterate, begin, (jnp.arange(steps), jax.random.split(key, steps)), like=(density, population))
    return found.mean, found.curvature - found.squares + _products(found.scores)


def _products(rows: Float[Array, "n p"]) -> Float[Array, "p p"]:
    """Returns the sum of the products of each row with itself, whose rows may be sharded by their type."""
    return jnp.sum(rows[:, :, None] * rows[:, None, :], axis=0)


def _step(
    gradient: Float[Array, " p"], squares: Float[Array, "p p"], information: Float[Array, "p p"], count: int
) -> Float[Array, " p"]:
    """Returns Newton's step, bounded where the information of data is small compared with the squared gradients."""
    p, tiny = gradient.size, float(jnp.finfo(gradient.dtype).tiny)
    units = jax.lax.rsqrt(jnp.diagonal(squares) + tiny)
    scaled = squares * jnp.outer(units, units) + 1e-6 * jnp.eye(p, dtype=units.dtype)
    factor = jnp.linalg.cholesky(scaled)

    def whitened(x: Array) -> Array:
        return jax.scipy.linalg.solve_triangular(factor, x, lower=True)

    inner = whitened(whitened(information * jnp.outer(units, units)).T)
    values, vectors = jnp.linalg.eigh(0.5 * (inner + inner.T))
    along = vectors.T @ whitened(units * gradient)
    step = jax.scipy.linalg.solve_triangular(factor.T, vectors @ (along / jnp.maximum(values, _LEAST)), lower=False)
    # in units of the information of one subject's data and effects
    longest = jnp.max(jnp.abs(step)) / count**0.5
    step = units * step / jnp.maximum(longest, 1)
    return jnp.where(jnp.isfinite(step), step, 0)
