"""Methods for equations with noise and what is known of them, problems with solutions, and diffrax on our paths."""

from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp

import sciml
from sciml.solvers import SRIW1, DriftImplicitMilstein, PlatenWeak2, TamedEuler

from ..common import close


def near(a: Any, b: Any) -> None:
    """Asserts that two PyTrees agree but for rounding, of times too."""
    close(a, b, **(dict(rtol=1e-9, atol=1e-12) if jax.config.jax_enable_x64 else dict(rtol=1e-3, atol=1e-5)))


class Known(NamedTuple):
    """What is known of a method.

    Attributes:
        solver: The method.
        strong: Its strong order for noise of each kind that it is for.
        weak: Its weak order for these and, where it is for any, for "mixed" noise, which does not commute.
    """

    solver: Any
    strong: dict[str, float]
    weak: dict[str, float]


SIMPLE = ("diagonal", "scalar", "additive")
COMMUTING = (*SIMPLE, "general")
ANY = (*COMMUTING, "mixed")


def order(kinds: tuple[str, ...], usual: float, **others: float) -> dict[str, float]:
    """The order for noise of some kinds, of some of which it is another than usual."""
    return dict.fromkeys(kinds, usual) | others


METHODS = {
    "Euler": Known(diffrax.Euler(), order(COMMUTING, 0.5, additive=1.0), order(ANY, 1)),
    "EulerHeun": Known(diffrax.EulerHeun(), order(COMMUTING, 1.0), order(ANY, 1)),
    "ItoMilstein": Known(diffrax.ItoMilstein(), order(COMMUTING, 1.0), order(ANY, 1)),
    "Heun": Known(diffrax.Heun(), order(COMMUTING, 1.0), order(ANY, 1, additive=2)),
    "SPaRK": Known(diffrax.SPaRK(), order(COMMUTING, 1.0, additive=1.5), order(ANY, 1, additive=2)),
    "GeneralShARK": Known(diffrax.GeneralShARK(), order(COMMUTING, 1.0, additive=1.5), order(ANY, 1, additive=2)),
    "SlowRK": Known(diffrax.SlowRK(), order(COMMUTING, 1.5), order(ANY, 2, mixed=1)),
    "SRA1": Known(diffrax.SRA1(), {"additive": 1.5}, {"additive": 2}),
    "ShARK": Known(diffrax.ShARK(), {"additive": 1.5}, {"additive": 2}),
    "SEA": Known(diffrax.SEA(), {"additive": 1.0}, {"additive": 1}),
    "SRIW1": Known(SRIW1(), order(SIMPLE, 1.5), order(SIMPLE, 1.5, additive=2)),
    "TamedEuler": Known(TamedEuler(), order(COMMUTING, 0.5, additive=1.0), order(ANY, 1)),
    "PlatenWeak2": Known(PlatenWeak2(), order(COMMUTING, 1.0), order(ANY, 2)),
    "DriftImplicitMilstein": Known(DriftImplicitMilstein(), order(COMMUTING, 1.0), order(ANY, 1)),
}
"""Strong orders are those with commuting noise, as that of the problems here; each method is entered here once."""

ADAPTIVE = [
    name
    for name in ("SPaRK", "SRA1", "ShARK", "SRIW1", "Heun", "PlatenWeak2", "DriftImplicitMilstein")
    if name in METHODS
]


def growth(kind: str, interpretation: str = "ito") -> sciml.Stochastic:
    """Geometric Brownian motion, with one Brownian motion, one for each element, or two for all elements."""

    def diffusion(t, y, args):
        return jnp.stack([0.4 * y, 0.2 * y], axis=-1) if kind == "general" else 0.5 * y

    return sciml.Stochastic(lambda t, y, args: 0.7 * y, diffusion, noise=kind, interpretation=interpretation)


def exact_growth(kind: str, path: sciml.BrownianPath, t: Any, y0: Any, interpretation: str = "ito") -> Any:
    """The solution of `growth` at a time."""
    if kind == "general":
        w, square = path.increment(0.0, t, (2,)) @ jnp.array([0.4, 0.2], y0.dtype), 0.4**2 + 0.2**2
    else:
        w, square = 0.5 * path.increment(0.0, t, y0.shape if kind == "diagonal" else ()), 0.5**2
    drift = 0.7 - square / 2 if interpretation == "ito" else 0.7
    return y0 * jnp.exp(drift * t + w)


def pendulum() -> sciml.Stochastic:
    """A pendulum in a bath, whose noise is additive and depends on time."""

    def drift(t, y, args):
        return jnp.stack([y[1], -jnp.sin(y[0]) - 0.5 * y[1]])

    def diffusion(t, y, args):
        return jnp.stack([jnp.zeros_like(t), 0.5 + 0.3 * jnp.cos(t)]).astype(y.dtype)

    return sciml.Stochastic(drift, diffusion, noise="additive")


def swept() -> sciml.Stochastic:
    """Particles that a wave sweeps along in a bath: additive noise in the variables in which the drift is curved.

    On the pendulum, whose drift is linear in what the noise moves, methods of strong order 1.5 have order 2.
    """
    return sciml.Stochastic(
        lambda t, y, args: jnp.sin(2 * y - t), lambda t, y, args: jnp.ones_like(y), noise="additive"
    )


class OnOurPath(diffrax.AbstractBrownianPath):
    """One of our paths for diffrax's solvers, which then have to take the same steps."""

    path: sciml.BrownianPath
    count: int
    levy_area: Any = diffrax.SpaceTimeLevyArea

    @property
    def t0(self):
        return self.path.t0

    @property
    def t1(self):
        return self.path.t1

    def evaluate(self, t0, t1=None, left=True, use_levy=False):
        w, area = self.path.over(t0, t1 - t0, self.count, self.path.t0.dtype, True)
        return diffrax.SpaceTimeLevyArea(dt=t1 - t0, W=w, H=area) if use_levy else w


def by_diffrax(solver: Any, drift: Any, diffusion: Any, path: sciml.BrownianPath, y0: Any, dt: float) -> Any:
    """The end state of a solve by diffrax itself on one of our paths, with two Brownian motions."""
    terms = diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, OnOurPath(path, 2)))
    found = diffrax.diffeqsolve(terms, solver, 0.0, 1.0, dt, y0, adjoint=diffrax.DirectAdjoint(), max_steps=4096)
    return found.ys[-1]


def paths(count: int, depth: int = 14, seed: int = 0) -> sciml.BrownianPath:
    """So many paths over [0, 1]."""
    keys = jax.random.split(jax.random.key(seed), count)
    return jax.vmap(lambda key: sciml.BrownianPath(key, 0.0, 1.0, depth=depth))(keys)
