"""Draws of a posterior by NUTS for an epidemic of forty counts, effective draws a second: of four chains and of many.

Four chains adapt step size and masses in a warm-up, which is timed with the draws: from draws of the prior, and from a
normal approximation of the posterior, whose scales and correlations they then know (the approximation itself, a search
for a maximum in two variables, is not timed). Many chains share a step size and masses, those that one chain has
adapted, and start at draws of that approximation: only draws are timed. All ways take the same sampler.
"""

import functools
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import inference
from sciml.inference._nuts import _Chain, _Whitened

from ._harness import Candidate, Group, Measured, in_float64, jitted, report

DAYS = 40
POPULATION = 2000.0
TOL = 1e-6
CHAINS, DRAWS, WARMUP, WARMUP_NEAR = 4, 500, 300, 100
STEPS = 256  # the most; diffrax keeps memory for so many
MANY, DRAWN, DROPPED = (64, 1024), 8192, 2  # how many chains, draws of all together, and dropped of each


def times() -> jax.Array:
    """The ends of the days."""
    return jnp.arange(1.0, DAYS + 1.0)


def start() -> jax.Array:
    """Two are ill."""
    return jnp.array([POPULATION - 2.0, 2.0, 0.0])


def ours(adjoint: Any) -> Callable[[Any], jax.Array]:
    """States by `sciml.solve`."""

    def states(model: Any) -> jax.Array:
        options = dict(rtol=TOL, atol=TOL, adjoint=adjoint, throw=False, max_steps=STEPS)
        return sciml.solve(model, start(), t0=0.0, t1=float(DAYS), saveat=times(), **options).ys

    return states


def theirs(adjoint: Any) -> Callable[[Any], jax.Array]:
    """States by `diffrax.diffeqsolve`."""

    def states(model: Any) -> jax.Array:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(model), diffrax.Tsit5(), 0.0, float(DAYS), None, start(),
            saveat=diffrax.SaveAt(ts=times()), stepsize_controller=diffrax.PIDController(rtol=TOL, atol=TOL),
            adjoint=adjoint, max_steps=STEPS, throw=False,
        ).ys  # fmt: skip

    return states


def density(states: Callable[[Any], jax.Array]) -> inference.LogDensity:
    """The posterior of both rates of an SIR model, of new cases a day."""

    def expected(model: Any) -> jax.Array:
        healthy = jnp.concatenate([start()[:1], states(model)[:, 0]])
        return jnp.maximum(healthy[:-1] - healthy[1:], 1e-9)

    truth = sciml.models.SIR(beta=0.6, gamma=0.25)
    counts = jax.random.poisson(jax.random.key(5), expected(truth))
    priors = [
        (lambda m: m.beta, inference.LogNormal(-0.5, 0.5)),
        (lambda m: m.gamma, inference.LogNormal(-1.0, 0.5)),
    ]
    return inference.log_density(truth, lambda m: inference.PoissonCounts(expected(m)), counts, priors)


WAYS: dict[str, Callable[[], Callable[[Any], jax.Array]]] = {
    "sciml": lambda: ours(sciml.adjoints.Checkpointed()),
    "sciml, Direct": lambda: ours(sciml.adjoints.Direct()),
    "sciml, Forward": lambda: ours(sciml.adjoints.Forward()),
    "diffrax": lambda: theirs(diffrax.RecursiveCheckpointAdjoint()),
    "diffrax, forward mode": lambda: theirs(diffrax.ForwardMode()),
}


@functools.cache
def approximation() -> Any:
    """The posterior as a normal distribution."""
    return density(WAYS["sciml"]()).laplace()


@functools.cache
def exact() -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of both rates, by the density on a fine grid."""
    with jax.enable_x64(True):
        peak = approximation()
        found = peak.density
        spread = jnp.sqrt(jnp.diag(peak.covariance))
        places = jnp.stack(jnp.meshgrid(*2 * [jnp.linspace(-6.0, 6.0, 41)], indexing="ij"), axis=-1).reshape(-1, 2)
        zs = found.ravel(peak.mode)[None] + places * spread[None]
        values = jax.jit(jax.vmap(lambda z: found(found.unravel(z))))(zs)
        models = jax.vmap(lambda z: found.constrain(found.unravel(z)))(zs)
        rates, weights = np.stack([models.beta, models.gamma], axis=-1), np.exp(values - jnp.max(values))
    weights = (weights / weights.sum())[:, None]
    mean = (weights * rates).sum(axis=0)
    return mean, np.sqrt((weights * (rates - mean) ** 2).sum(axis=0))


def away(out: Any) -> float:
    """How far the draws' means are from the exact ones, the larger of both, in standard deviations."""
    mean, deviation = exact()
    return float(np.max(np.abs(np.asarray(out).reshape(-1, 2).mean(axis=0) - mean) / deviation))


def gradient(way: str, lanes: int) -> Callable[[], Callable[[], Any]]:
    """Values and gradients at so many positions."""

    def build() -> Callable[[], Any]:
        found = density(WAYS[way]())
        scatter = 0.05 * jax.random.normal(jax.random.key(0), (lanes, 2))
        zs = found.ravel(found.unconstrain(found.model))[None] + scatter
        return jitted(jax.vmap(jax.value_and_grad(lambda z: found(found.unravel(z)))), zs)()

    return in_float64(build)


def chains(way: str, effective: dict[str, float], near: bool = False) -> Callable[[], Callable[[], Any]]:
    """The draws, by chains that start at draws of the prior, or of a normal approximation; their worth is noted."""

    def build() -> Callable[[], Any]:
        import blackjax

        found = density(WAYS[way]())
        first = jax.vmap(found.initial)(jax.random.split(jax.random.key(1), CHAINS))
        warmup = WARMUP_NEAR if near else WARMUP

        if way.startswith("diffrax"):  # which fails within `jax.shard_map`, that `nuts` is in
            keys = jax.random.split(jax.random.key(2), CHAINS)
            peak = approximation()
            white = _Whitened(found, found.ravel(peak.mode), peak.factor)
            own, first = (white, jax.random.normal(jax.random.key(1), (CHAINS, 2))) if near else (found, first)
            chain = jax.jit(jax.vmap(_Chain(own, warmup, DRAWS, 0.8, 10)))

            def positions() -> Any:
                drawn = chain((keys, first))[0]
                return jax.vmap(jax.vmap(white.position))(drawn) if near else drawn

        else:

            def positions() -> Any:
                options = dict(chains=CHAINS, draws=DRAWS, warmup=warmup, start=approximation() if near else first)
                return inference.nuts(found, jax.random.key(2), **options).positions

        def run() -> Any:
            with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
                drawn = jax.vmap(jax.vmap(found.constrain))(positions())
            return jax.block_until_ready(jnp.stack([drawn.beta, drawn.gamma], axis=-1))

        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            sizes = blackjax.diagnostics.effective_sample_size(run())
        effective[way] = float(np.min(sizes))
        return run

    return in_float64(build)


@functools.cache
def tuned() -> dict[str, Any]:
    """The step size and the masses that one chain has adapted."""
    import blackjax

    found, start = approximation().density, approximation().mode
    warm = blackjax.window_adaptation(blackjax.nuts, found, is_mass_matrix_diagonal=False, max_num_doublings=10)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        (_, parameters), _ = jax.jit(lambda key: warm.run(key, start, num_steps=WARMUP))(jax.random.key(3))
    return parameters


def many(way: str, count: int, effective: dict[str, float]) -> Callable[[], Callable[[], Any]]:
    """The draws of many chains with what one has adapted."""

    def build() -> Callable[[], Any]:
        import blackjax

        found = density(WAYS[way]())
        starts = approximation().sample(jax.random.key(1), count)
        keys, adapted = jax.random.split(jax.random.key(2), count), tuned()

        def chain(key: jax.Array, start: Any) -> Any:
            step = blackjax.nuts(found, **adapted).step

            def draw(state: Any, key: jax.Array) -> tuple[Any, Any]:
                state, _ = step(key, state)
                model = found.constrain(state.position)
                return state, jnp.stack([model.beta, model.gamma])

            first = blackjax.nuts.init(start, found)
            return jax.lax.scan(draw, first, jax.random.split(key, DROPPED + DRAWN // count))[1][DROPPED:]

        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            run = jitted(jax.vmap(chain), keys, starts)()
            effective[way] = float(np.min(blackjax.diagnostics.effective_sample_size(run())))
        return run

    return in_float64(build)


def told(effective: dict[str, float]) -> Callable[[list[Measured]], None]:
    """What is printed after the rows: how many effective draws a second each has, and how many times another's."""

    def tell(rows: list[Measured]) -> None:
        rates = {row.label: effective[row.label] / row.median for row in rows if row.times and row.label in effective}
        for label, rate in rates.items():
            beside = f", {rates['sciml'] / rate:.1f} times fewer than sciml" if label.startswith("diffrax") else ""
            report(f"- {label}: {rate:.0f} effective draws a second{beside}")
        report("")

    return tell


def groups() -> list[Group]:
    """Gradients, and chains."""

    def row(way: str, build: Callable, **more: Any) -> Candidate:
        return Candidate(way, build, None if way == "sciml" else "sciml", **more)

    of = f"SIR model, {DAYS} counts, float64, rtol {TOL:g}"
    most = ("sciml", "sciml, Forward", "diffrax", "diffrax, forward mode")
    found = [
        Group(f"{of}: density and gradient, {lanes} lanes", [row(way, gradient(way, lanes)) for way in ways])
        for lanes, ways in ((CHAINS, WAYS), *((count, most) for count in MANY))
    ]
    effective: dict[str, float] = {}
    title = f"{of}: {CHAINS} chains of NUTS, {WARMUP} steps of warm-up and {DRAWS} draws each"
    rows = [row(way, chains(way, effective), error=away) for way in WAYS]
    found.append(Group(title, rows, repeats=3, finish=told(effective)))
    effective = {}
    title = f"{of}: the same from `laplace()`, {WARMUP_NEAR} steps of warm-up and {DRAWS} draws each"
    rows = [row(way, chains(way, effective, near=True), error=away) for way in WAYS]
    found.append(Group(title, rows, repeats=3, finish=told(effective)))
    for count in MANY:
        effective = {}
        title = f"{of}: {count} chains of NUTS, {DRAWN // count} draws each"
        rows = [row(way, many(way, count, effective), error=away) for way in most]
        found.append(Group(title, rows, repeats=3, finish=told(effective)))
    return found
