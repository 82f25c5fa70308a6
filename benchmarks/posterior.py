"""Draws of a posterior: four chains of NUTS for an epidemic of forty counts, effective draws a second."""

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import sciml
from sciml import inference
from sciml.inference._nuts import _Chain

from ._harness import Candidate, Group, Measured, in_float64, jitted, report

DAYS = 40
POPULATION = 2000.0
TOL = 1e-6
CHAINS, DRAWS, WARMUP = 4, 500, 300
STEPS = 256  # the most; diffrax keeps memory for so many


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


def gradient(way: str) -> Callable[[], Callable[[], Any]]:
    """Values and gradients at a position for each chain."""

    def build() -> Callable[[], Any]:
        found = density(WAYS[way]())
        scatter = 0.05 * jax.random.normal(jax.random.key(0), (CHAINS, 2))
        zs = found.ravel(found.unconstrain(found.model))[None] + scatter
        return jitted(jax.vmap(jax.value_and_grad(lambda z: found(found.unravel(z)))), zs)()

    return in_float64(build)


def chains(way: str, effective: dict[str, float]) -> Callable[[], Callable[[], Any]]:
    """The draws; how many they are worth is noted."""

    def build() -> Callable[[], Any]:
        import blackjax

        found = density(WAYS[way]())
        first = jax.vmap(found.initial)(jax.random.split(jax.random.key(1), CHAINS))

        if way.startswith("diffrax"):  # which fails within `jax.shard_map`, that `nuts` is in
            keys = jax.random.split(jax.random.key(2), CHAINS)
            chain = jax.jit(jax.vmap(_Chain(found, WARMUP, DRAWS, 0.8, 10)))

            def positions() -> Any:
                return chain((keys, first))[0]

        else:

            def positions() -> Any:
                options = dict(chains=CHAINS, draws=DRAWS, warmup=WARMUP, start=first)
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


def groups() -> list[Group]:
    """Gradients, and chains."""
    effective: dict[str, float] = {}

    def told(rows: list[Measured]) -> None:
        for row in rows:
            if row.times and row.label in effective:
                report(f"- {row.label}: {effective[row.label] / row.median:.0f} effective draws a second")

    def away(out: Any) -> float:
        """Between chains and the mean of all: the largest difference of halves, in standard deviations."""
        draws = np.asarray(out).reshape(2, -1, 2)
        return float(np.max(np.abs(draws[0].mean(axis=0) - draws[1].mean(axis=0)) / draws.std(axis=(0, 1))))

    def row(way: str, build: Callable, **more: Any) -> Candidate:
        return Candidate(way, build, None if way == "sciml" else "sciml", **more)

    of = f"SIR model, {DAYS} counts, float64, rtol {TOL:g}"
    return [
        Group(f"{of}: density and gradient, {CHAINS} lanes", [row(way, gradient(way)) for way in WAYS]),
        Group(
            f"{of}: {CHAINS} chains of NUTS, {WARMUP} steps of warm-up and {DRAWS} draws each",
            [row(way, chains(way, effective), error=away) for way in WAYS],
            repeats=3,
            finish=told,
        ),
    ]
