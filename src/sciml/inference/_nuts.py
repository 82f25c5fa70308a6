"""`nuts`: BlackJAX's sampler over chains as lanes, and over devices."""

import importlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._checks import check_count, check_key
from .._jax._loops import scan
from .._types import Key, RealScalarLike
from .._warn import warn
from ..parallel import ensemble
from ._draws import Draws, check_positions
from ._laplace import LaplaceApproximation

# Up to this number of parameters masses are a matrix, with their correlations.
_DENSE = 50


def _blackjax() -> Any:
    try:
        return importlib.import_module("blackjax")
    except ImportError as error:
        raise ImportError("`nuts` requires BlackJAX: `pip install 'sciml-jax[inference]'`.") from error


class _Chain(eqx.Module):
    """One chain: adapts its steps and masses in the warm-up, then draws."""

    density: Any
    warmup: int = eqx.field(static=True)
    draws: int = eqx.field(static=True)
    target: float = eqx.field(static=True)
    max_doublings: int = eqx.field(static=True)

    def __call__(self, member: tuple[Array, PyTree]) -> tuple[PyTree, dict[str, Array]]:
        blackjax = _blackjax()
        key, start = member
        warming, drawing = jax.random.split(key)
        density, size = self.density, sum(x.size for x in jax.tree.leaves(start))
        warm = blackjax.window_adaptation(
            blackjax.nuts,
            density,
            is_mass_matrix_diagonal=size > _DENSE,
            target_acceptance_rate=self.target,
            max_num_doublings=self.max_doublings,
        )
        (state, tuned), _ = warm.run(warming, start, num_steps=self.warmup)
        step = blackjax.nuts(density, **tuned).step

        def draw(state, key):
            state, info = step(key, state)
            told = {
                "diverging": info.is_divergent,
                "acceptance_rate": info.acceptance_rate,
                "n_steps": info.num_integration_steps,
                "lp": state.logdensity,
            }
            return state, (state.position, told)

        return scan(draw, state, jax.random.split(drawing, self.draws))[1]


class _Whitened(eqx.Module):
    r"""A density of $w$, where a position is $z = m + L w$, with the mode and a factor of a covariance.

    If a normal distribution approximates it, the density of $w$ nearly has variance one and no correlations: steps of
    the usual first size fit. The density of $z$ is the same up to a factor, so nothing has to be corrected.
    """

    density: Any
    mode: Array
    factor: Array

    def __call__(self, w: Array) -> Array:
        return self.density(self.position(w))

    def position(self, w: Array) -> PyTree:
        """Returns the position."""
        return self.density.unravel(self.mode + self.factor @ w)


def nuts(
    density: Any,
    key: Key,
    *,
    chains: int = 4,
    draws: int = 1000,
    warmup: int = 1000,
    start: PyTree = None,
    target: RealScalarLike = 0.8,
    max_doublings: int = 10,
    mesh: Any = None,
) -> Draws:
    """Draws from a posterior with the no-U-turn sampler of BlackJAX and its adaptation during warm-up.

    The adaptation estimates a full mass matrix for up to 50 parameters, and a diagonal one for more.
    Chains are lanes of one program; several devices run their own chains without communication. Chain `i` uses
    `fold_in(key, i)`.

    Args:
        density: A `LogDensity`, or any function of a position if `start` is given.
        key: A random key.
        chains: The number of chains.
        draws: The number of draws of each chain to keep.
        warmup: The number of steps before these, which adapt the step size and the masses and are dropped.
        start: Positions to start from, with a leading axis of length `chains`; draws from the prior by default. Or the
            result of `density.laplace()`: chains start at its draws, and the warm-up, which has scales and correlations
            from the beginning, takes a fraction of the time.
        target: The target acceptance rate of the step size's adaptation; a higher rate means smaller steps.
        max_doublings: The maximum number of doublings of a trajectory.
        mesh: The devices, from `sciml.parallel.mesh`; all of them by default.

    Returns:
        The `Draws`.

    Raises:
        ImportError: If BlackJAX is not installed.
        TypeError: If `density` is not a function, or is a plain function and `start` does not hold positions.
        ValueError: If an argument makes no sense, a prior has no draws and no `start` is given, or an approximation
            does not determine some direction.

    Warns:
        UserWarning: If trajectories diverged, so that some region may be missing.

    Source:
        M. D. Hoffman and A. Gelman, The No-U-Turn Sampler, J. Mach. Learn. Res. 15:1593, 2014.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import inference

        model = {"rate": jnp.array(2.0)}
        priors = [(lambda m: m["rate"], inference.Gamma(2.0, 1.0))]
        counts = jnp.array([3.0, 1.0])
        density = inference.log_density(model, lambda m: inference.PoissonCounts(m["rate"]), counts, priors)
        try:
            draws = inference.nuts(density, jax.random.key(0), chains=2, draws=200, warmup=200)
        except ImportError as error:  # the extra `inference` installs BlackJAX
            print(error)
        else:
            assert abs(draws.models["rate"].mean() - 2.0) < 0.5
        ```
    """
    _blackjax()
    chains, draws = check_count(chains, "chains", "nuts"), check_count(draws, "draws", "nuts")
    warmup = check_count(warmup, "warmup", "nuts")
    key = check_key(key, "nuts")
    if not callable(density) or (start is None and not hasattr(density, "initial")):
        raise TypeError(
            "`nuts` requires a density from `inference.log_density`, or a function of a position together with `start` "
            f"(positions with a leading axis of chains), but `density` is {density!r}."
        )
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(chains))
    keys = jax.vmap(jax.random.split)(keys)
    options = (warmup, draws, float(target), check_count(max_doublings, "max_doublings", "nuts"))
    if isinstance(start, LaplaceApproximation):
        if not hasattr(density, "ravel"):
            raise TypeError(
                "`nuts(start=...)` only accepts an approximation for a `LogDensity`, whose positions are vectors."
            )
        posterior: Any = density
        white = _Whitened(density, posterior.ravel(start.mode), start.factor)
        noise = jax.vmap(lambda k: jax.random.normal(k, white.mode.shape, white.mode.dtype))(keys[:, 0])
        chain, start = _Chain(white, *options), noise
    else:
        white = None
        posterior: Any = density
        start = jax.vmap(posterior.initial)(keys[:, 0]) if start is None else start
        chain, start = _Chain(density, *options), check_positions(density, start, chains, "nuts")
    # BlackJAX counts in integers and mixes ranks, which strict settings forbid
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        positions, statistics = ensemble(chain, (keys[:, 1], start), mesh=mesh)
        if white is not None:
            positions = jax.vmap(jax.vmap(white.position))(positions)
    diverged = int(jnp.sum(statistics["diverging"]))
    if diverged:
        warn(
            f"`nuts`: {diverged} of {chains * draws} trajectories diverged, because the posterior is too sharply "
            "curved for the step size; draws may be biased. Raise `target`, or reparametrise group effects as "
            "`typical + spread * z` with a normal `z`.",
        )
    return Draws(density, positions, statistics)
