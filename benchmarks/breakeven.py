"""After how many solves a surrogate has paid for its training, at equal error: Burgers and Kuramoto-Sivashinsky."""

import functools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

import sciml
from sciml import training
from sciml.spatial import Grid, Periodic

from ._harness import Candidate, Group, Measured, jitted, report

PROBLEMS = 256  # that nobody was trained on
PAIRS = 8192
STEPS, BATCH, WIDTH, DEPTH = 2000, 256, 128, 2
COMPARED = 32  # points at which solutions are compared


class Task(NamedTuple):
    """An equation from a start to an end.

    Attributes:
        title: What is solved.
        solvers: Names, and functions of a fine start that return the end, from coarse to fine.
        teacher: The one of these that makes the data.
        reference: A function of a fine start that returns the end by which errors are measured.
        starts: `starts(key, count)`, fine starts.
        coarse: A fine field, or an end, at `COMPARED` points.
    """

    title: str
    solvers: dict[str, Callable[[Array], Array]]
    teacher: str
    reference: Callable[[Array], Array]
    starts: Callable[[Array, int], Array]
    coarse: Callable[[Array], Array]


class Surrogate(eqx.Module):
    """The end by a network of the start, both at `COMPARED` points."""

    net: eqx.nn.MLP

    def __init__(self, key: Array):
        self.net = eqx.nn.MLP(COMPARED, COMPARED, WIDTH, DEPTH, activation=jax.nn.gelu, key=key)

    def __call__(self, start: Array) -> Array:
        """Returns the end."""
        return start + self.net(start)


def averaged(u: Array, cells: int) -> Array:
    """Means over as many cells."""
    return u.reshape(cells, -1).mean(axis=1)


def compared_means(u: Array) -> Array:
    """Means over `COMPARED` cells; fewer are halved, each with the slope between its neighbours."""
    while u.size < COMPARED:
        half = (jnp.roll(u, -1) - jnp.roll(u, 1)) / 8
        u = jnp.stack([u - half, u + half], axis=1).ravel()
    return averaged(u, COMPARED)


def compared_points(u: Array) -> Array:
    """Values at `COMPARED` points; where there are fewer, by the waves through them."""
    if u.size < COMPARED:
        return COMPARED / u.size * jnp.fft.irfft(jnp.fft.rfft(u), COMPARED)
    return u[:: u.size // COMPARED]


def burgers(fine: int = 512, viscosity: float = 0.01, end: float = 0.5) -> Task:
    """Smooth random velocities that steepen into shocks."""

    def solver(cells: int) -> Callable[[Array], Array]:
        model = sciml.models.Burgers(Grid(cells, 0.0, 1.0), Periodic(), viscosity=viscosity)
        longest = min(0.4 / cells, 0.25 / (viscosity * cells**2))  # by the flow, and by viscosity
        dt = end / math.ceil(end / longest)

        def run(u: Array) -> Array:
            options = dict(t0=0.0, t1=end, dt=dt, solver=sciml.solvers.SSPRK33())
            return sciml.solve(model, averaged(u, cells), **options).ys[-1]

        return run

    def starts(key: Array, count: int) -> Array:
        x = (jnp.arange(fine) + 0.5) / fine
        k = 2 * jnp.pi * jnp.arange(1.0, 4.0)[:, None]
        waves = jnp.concatenate([jnp.cos(k * x), jnp.sin(k * x)])
        u = jax.random.normal(key, (count, 6)) @ waves
        return u / jnp.max(jnp.abs(u), axis=1, keepdims=True)

    return Task(
        f"Burgers, viscosity {viscosity:g}, three random waves no higher than 1, time {end:g}",
        {f"SSPRK33, {n} cells": solver(n) for n in (8, 16, 32, 64, 128, 256)},
        "SSPRK33, 128 cells",
        solver(fine),
        starts,
        compared_means,
    )


def kuramoto_sivashinsky(fine: int = 64, length: float = 22.0, end: float = 5.0) -> Task:
    """States on the attractor."""

    def solver(points: int, dt: float, end: float = end) -> Callable[[Array], Array]:
        model = sciml.models.KuramotoSivashinsky(points=points, length=length)

        def run(u: Array) -> Array:
            options = dict(t0=0.0, t1=end, dt=dt, solver=sciml.solvers.ETDRK(order=4))
            return sciml.solve(model, u[:: fine // points], **options).ys[-1]

        return run

    def starts(key: Array, count: int) -> Array:
        x = jnp.arange(fine) / fine
        k = 2 * jnp.pi * jnp.arange(1.0, 5.0)[:, None]
        waves = jnp.concatenate([jnp.cos(k * x), jnp.sin(k * x)])
        return jax.vmap(solver(fine, 0.25, 100.0))(jax.random.normal(key, (count, 8)) @ waves / 2)

    sizes = ((8, 2.5), (16, 2.5), (16, 1.25), (32, 1.25), (32, 0.5), (32, 0.25), (64, 0.1))
    ways = {f"ETDRK4, {n} points, dt {dt:g}": solver(n, dt) for n, dt in sizes}
    return Task(
        f"Kuramoto-Sivashinsky, length {length:g}, from its attractor, time {end:g}",
        ways,
        "ETDRK4, 32 points, dt 0.25",
        solver(fine, 0.02),
        starts,
        compared_points,
    )


TASKS = {"burgers": burgers, "kuramoto_sivashinsky": kuramoto_sivashinsky}


def trained(task: Task, pairs: int = PAIRS, steps: int = STEPS) -> tuple[Surrogate, float]:
    """A surrogate, and the seconds that its data and its training took, compilation included."""
    begin = time.perf_counter()
    fine = jax.jit(task.starts, static_argnums=1)(jax.random.key(1), pairs)
    ends = jax.jit(jax.vmap(lambda u: task.coarse(task.solvers[task.teacher](u))))(fine)
    data = (np.asarray(jax.vmap(task.coarse)(fine)), np.asarray(ends))

    def loss(model: Surrogate, batch: tuple[Array, Array], key: Array) -> Array:
        found = jax.vmap(model)(batch[0])
        return jnp.mean((found - batch[1]) ** 2)

    optimiser = optax.adam(optax.cosine_decay_schedule(2e-3, steps))
    options: dict[str, Any] = dict(optimiser=optimiser, steps=steps, batch_size=min(BATCH, pairs), progress=False)
    found = training.train(Surrogate(jax.random.key(2)), loss, data, **options)
    return found.model, time.perf_counter() - begin


def relative(task: Task, found: Array, problem: dict[str, Array]) -> Array:
    """The error of an end relative to the size of the right one."""
    off = task.coarse(found) - problem["end"]
    return jnp.linalg.norm(off) / jnp.linalg.norm(problem["end"])


def problems(task: Task, count: int = PROBLEMS) -> dict[str, Array]:
    """Starts, with their ends by the reference."""
    fine = jax.jit(task.starts, static_argnums=1)(jax.random.key(0), count)
    ends = jax.jit(jax.vmap(lambda u: task.coarse(task.reference(u))))(fine)
    return jax.block_until_ready({"start": fine, "end": ends})  # or the first row to be timed would wait for them


def group(task: Task) -> Group:
    """The table of an equation, and after how many solves its surrogate pays."""
    unseen = functools.cache(lambda: problems(task))
    learnt = functools.cache(lambda: trained(task))

    def by_surrogate() -> Callable[[Array], Array]:
        model = learnt()[0]
        return lambda start: model(task.coarse(start))

    def row(label: str, make: Callable[[], Callable], against: str | None) -> Candidate:
        def build() -> Callable[[], Any]:
            return jitted(jax.vmap(make()), unseen()["start"])()

        def error(out: Any) -> float:
            return float(jnp.mean(jax.vmap(lambda u, p: relative(task, u, p))(out, unseen())))

        return Candidate(label, build, against, error=error)

    def finish(rows: list[Measured]) -> None:
        model, seconds = learnt()
        ways = [lambda p, run=run: run(p["start"]) for run in task.solvers.values()]
        found = training.breakeven(
            ways,
            lambda p: model(task.coarse(p["start"])),
            lambda u, p: relative(task, u, p),
            unseen(),
            training_seconds=seconds,
        )
        after = f"pays after {found.solves:.3g} solves" if math.isfinite(found.solves) else "never pays"
        bracketed = found.error <= max(found.errors)
        coarser = "a solver of the same error" if bracketed else "the coarsest, less wrong solver"
        report(
            f"- the surrogate took {seconds:.1f} s ({PAIRS} solves for its data, and training); a solve takes it "
            f"{found.surrogate_seconds:.2e} s, and {coarser} {found.solver_seconds:.2e} s: it {after}"
        )

    rows = [row(label, lambda run=run: run, "surrogate") for label, run in task.solvers.items()]
    title = f"{task.title}: {PROBLEMS} solves side by side, float32, relative error"
    return Group(title, [row("surrogate", by_surrogate, None), *rows], compiled=False, finish=finish)


def groups() -> list[Group]:
    """Both equations."""
    return [group(make()) for make in TASKS.values()]
