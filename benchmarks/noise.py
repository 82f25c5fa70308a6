"""Five thousand paths of geometric Brownian motion, compared with diffrax (both of its paths) and a hand-written scan.

And ten thousand of births and deaths, one reaction at a time, beside NumPy's loop over a hundredth of them.
"""

import functools
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import sciml

from ._harness import Candidate, Group, Measured, jitted, report

N, STEPS = 5_000, 1_000
DT = 1 / STEPS
TOL = 1e-2


def drift(t: Any, y: Any, args: Any) -> Any:
    return 0.1 * y


def diffusion(t: Any, y: Any, args: Any) -> Any:
    return 0.2 * y


def wells(t: Any, y: Any, args: Any) -> Any:
    return y - y**3


def constant(t: Any, y: Any, args: Any) -> Any:
    return jnp.full_like(y, 0.5)


def chain(t: Any, y: Any, args: Any) -> Any:
    """A prey and its predator, and food that follows the prey at once."""
    prey, predator, food = y
    return jnp.stack([prey * (food - predator), predator * (prey - 1), 1e3 * (1.5 - food - 0.5 * food * prey)])


def spread(t: Any, y: Any, args: Any) -> Any:
    return 0.2 * y * jnp.array([1.0, 1.0, 0.1], y.dtype)


def returns(t: Any, y: Any, args: Any) -> Any:
    return jnp.stack([0.05 * y[0], 2.0 * (0.09 - y[1])])


def heston(t: Any, y: Any, args: Any) -> Any:
    root = jnp.sqrt(jnp.maximum(y[1], 1e-8))
    return jnp.stack([jnp.stack([root * y[0], 0 * root]), 0.4 * root * jnp.array([-0.6, 0.8], root.dtype)])


FEW = 250
STIFF, STIFF_STEPS = sciml.Stochastic(chain, spread), 200
HESTON, HESTON_STEPS = sciml.Stochastic(returns, heston, noise="general"), 64
GROWTH = sciml.Stochastic(drift, diffusion)
WELLS = sciml.Stochastic(wells, constant, noise="additive")


def ours(key: jax.Array, y0: Any, *, model: Any, **options: Any) -> jax.Array:
    return sciml.solve(model, y0, t0=0.0, t1=1.0, key=key, throw=False, **options).ys[-1]


def theirs(
    key: jax.Array, y0: Any, *, f: Any, g: Any, solver: Any, tol: float | None = None, **options: Any
) -> jax.Array:
    if tol is None:
        path: Any = diffrax.UnsafeBrownianPath(shape=(), key=key)
    else:
        area = diffrax.SpaceTimeLevyArea if isinstance(solver, diffrax.SRA1) else diffrax.BrownianIncrement
        path = diffrax.VirtualBrownianTree(0.0, 1.0, tol, (), key, area)
    terms = diffrax.MultiTerm(diffrax.ODETerm(f), diffrax.ControlTerm(g, path))
    options = dict(t0=0.0, t1=1.0, dt0=DT, max_steps=4 * STEPS) | options
    solution = diffrax.diffeqsolve(terms, solver, y0=y0, adjoint=diffrax.DirectAdjoint(), throw=False, **options)
    assert solution.ys is not None
    return solution.ys[-1]


def by_hand(key: jax.Array, y0: jax.Array) -> jax.Array:
    def step(y: jax.Array, number: jax.Array) -> tuple[jax.Array, None]:
        w = DT**0.5 * jax.random.normal(jax.random.fold_in(key, number), y.shape, y.dtype)
        return y + DT * drift(None, y, None) + diffusion(None, y, None) * w, None

    return jax.lax.scan(step, y0, jnp.arange(STEPS))[0]


def loss(y0: jax.Array, keys: jax.Array) -> jax.Array:
    solve = functools.partial(ours, model=GROWTH, dt=DT, solver=diffrax.Euler())
    return jnp.mean(jax.vmap(solve)(keys, y0) ** 2)


def passage(key: jax.Array, *, height: float | None, update: Any = None) -> Any:
    event = None if height is None else sciml.Event(lambda t, y, args: y - height, update)
    how = dict(t0=0.0, t1=1.0, dt=DT, solver=diffrax.Euler(), throw=False)
    sol = sciml.solve(WELLS, 0.0, key=key, events=event, max_events=None if event is None else 1, **how)
    return sol.t_reached, sol.ys[-1]


def _reset(t: Any, y: Any, args: Any) -> Any:
    return jnp.zeros_like(y)


PATHS, LOOPED = 10_000, 100
END = 60.0


def counts(keys: jax.Array) -> jax.Array:
    def solve(key: jax.Array) -> jax.Array:
        return sciml.solve(sciml.models.BirthDeath(), jnp.zeros(1), t0=0.0, t1=END, key=key, throw=False).ys[-1, 0]

    return jax.vmap(solve)(keys)


def looped() -> np.ndarray:
    """Gillespie's direct method by NumPy, one path after another."""
    random, stoichiometry = np.random.default_rng(0), np.array([[1, -1]])
    ends = np.zeros(LOOPED)
    for path in range(LOOPED):
        t, x = 0.0, np.zeros(1)
        while True:
            rates = np.array([1.0, 0.1 * x[0]])
            total = rates.sum()
            t += random.exponential(1 / total)
            if t > END:
                break
            x += stoichiometry[:, np.searchsorted(rates.cumsum(), total * random.random())]
        ends[path] = x[0]
    return ends


def far_from_poisson(ends: Any) -> float:
    """By how many standard errors the mean is off, which is ten but for 2e-2."""
    ends = np.asarray(ends, np.float64)
    mean = 10 * (1 - np.exp(-0.1 * END))
    return float(abs(ends.mean() - mean) / np.sqrt(mean / ends.size))


def _by_path(measured: list[Measured]) -> None:
    ours, theirs = (row.median / n for row, n in zip(measured, (PATHS, LOOPED)))
    report(f"A path takes NumPy's loop {theirs / ours:.0f} times as long.\n")


def groups() -> list[Group]:
    keys = jax.random.split(jax.random.key(0), N)
    y0 = jnp.ones(N)

    def row(label: str, fn: Any, *, against: str | None = "sciml, Euler", **options: Any) -> Candidate:
        return Candidate(label, jitted(jax.vmap(functools.partial(fn, **options)), keys, y0), against=against)

    euler = dict(solver=diffrax.Euler())
    growth, names = dict(model=GROWTH, dt=DT), dict(f=drift, g=diffusion)
    fixed = [
        row("sciml, Euler", ours, **growth, **euler, against=None),
        Candidate("a scan by hand", jitted(by_hand, keys[0], y0), against="sciml, Euler"),
        row("diffrax, Euler, unsafe path", theirs, **names, **euler),
        row("diffrax, Euler, its tree", theirs, **names, **euler, tol=DT / 2),
        row("sciml, Milstein", ours, **growth, solver=diffrax.ItoMilstein()),
        row("sciml, SRIW1", ours, **growth, solver=sciml.solvers.SRIW1()),
        Candidate("sciml, Euler, gradient", jitted(jax.grad(loss), y0, keys), against="sciml, Euler"),
    ]
    control = diffrax.PIDController(rtol=TOL, atol=TOL**2, pcoeff=0.0, icoeff=1.0, dtmin=2.0**-16)
    first = [Candidate("sciml, no event", jitted(jax.vmap(functools.partial(passage, height=None)), keys))]
    for label, height, update in (
        ("sciml, an event that none has", 100.0, None),
        ("sciml, first passages", 1.5, None),
        ("sciml, resets", 1.5, _reset),
    ):
        fn = jax.vmap(functools.partial(passage, height=height, update=update))
        first.append(Candidate(label, jitted(fn, keys), against="sciml, no event"))
    sra1 = dict(solver=diffrax.SRA1())
    adaptive = [
        row("sciml, SRA1", ours, model=WELLS, rtol=TOL, atol=TOL**2, **sra1, against=None),
        row(
            "diffrax, SRA1", theirs, f=wells, g=constant, tol=2.0**-18, stepsize_controller=control, **sra1,
            against="sciml, SRA1",
        ),
    ]  # fmt: skip

    def of(label: str, start: list[float], against: str | None = None, **options: Any) -> Candidate:
        members = jnp.broadcast_to(jnp.array(start), (FEW, len(start)))
        run = jax.vmap(functools.partial(ours, **options))
        return Candidate(f"sciml, {label}", jitted(run, keys[:FEW], members), against=against and f"sciml, {against}")

    implicit, stable = sciml.solvers.DriftImplicitMilstein, sciml.AlphaStable(1.7)
    by = dict(model=STIFF, dt=1 / STIFF_STEPS)
    stiff = [
        of("DriftImplicitMilstein", [1.0, 1.0, 1.0], solver=implicit(), **by),
        of("linearly implicit", [1.0, 1.0, 1.0], "DriftImplicitMilstein", solver=implicit(newton=False), **by),
        of("Milstein, 5 times the steps", [1.0, 1.0, 1.0], "DriftImplicitMilstein", model=STIFF, dt=1 / STEPS,
           solver=diffrax.ItoMilstein()),
    ]  # fmt: skip
    by, start = dict(model=HESTON, dt=1 / HESTON_STEPS), [1.0, 0.09]
    areas = [
        of("SPaRK", start, solver=diffrax.SPaRK(), **by),
        of("PlatenWeak2", start, "SPaRK", solver=sciml.solvers.PlatenWeak2(), **by),
        of("SPaRK, adaptive", start, "SPaRK", model=HESTON, rtol=TOL, atol=TOL, solver=diffrax.SPaRK()),
        of("PlatenWeak2, adaptive", start, "SPaRK", model=HESTON, rtol=TOL, atol=TOL,
           solver=sciml.solvers.PlatenWeak2()),
    ]  # fmt: skip
    jumps = [
        of("Euler, Brownian motion", [1.0], model=GROWTH, dt=DT, **euler),
        *(
            of(f"Euler, {type(x).__name__}", [1.0], "Euler, Brownian motion", dt=DT, **euler,
               model=sciml.Stochastic(drift, diffusion, driver=x))
            for x in (stable, sciml.NormalInverseGaussian(5.0))
        ),
    ]  # fmt: skip
    cells = jnp.ones((128, 128))
    field = dict(model=GROWTH, dt=DT)
    fields = [
        Candidate("sciml, Euler", jitted(functools.partial(ours, **field, **euler), keys[0], cells)),
        Candidate("a scan by hand", jitted(by_hand, keys[0], cells), against="sciml, Euler"),
        Candidate(
            "sciml, SRIW1",
            jitted(functools.partial(ours, **field, solver=sciml.solvers.SRIW1()), keys[0], cells),
            against="sciml, Euler",
        ),
    ]
    molecules = [
        Candidate(
            f"sciml, {PATHS} paths",
            jitted(counts, jax.random.split(jax.random.key(1), PATHS)),
            error=far_from_poisson,
        ),
        Candidate(f"NumPy's loop, {LOOPED} paths", lambda: looped, error=far_from_poisson),
    ]
    name = jnp.dtype(y0.dtype).name
    return [
        Group(f"{N} paths of geometric Brownian motion, {STEPS} steps, {name}", fixed),
        Group(f"{N} paths in a double well with events, {STEPS} steps, {name}", first),
        Group(f"one path of a field of 128 x 128, {STEPS} steps, {name}", fields),
        Group(f"{N} paths in a double well, additive noise, rtol = {TOL:g}, {name}", adaptive),
        Group(f"{FEW} paths with a stiff drift, {STIFF_STEPS} steps, {name}", stiff),
        Group(f"{FEW} paths of Heston's model, {HESTON_STEPS} steps or rtol = {TOL:g}, {name}", areas),
        Group(f"{FEW} paths with jumps, {STEPS} steps, {name}", jumps),
        Group(f"Births and deaths to t = {END:g}; errors in standard errors of the mean", molecules, finish=_by_path),
    ]
