"""Every method goes on where it ended with the bits of one solve, and with its derivatives."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from tests.registry_solvers import METHODS
from tests.registry_structured import CASES as STRUCTURED
from tests.solvers.noise.common import ADAPTIVE, METHODS as NOISY
from tests.solvers.noise.test_stiff_noise import METHODS as STIFF_NOISE

KEY = jax.random.key(0)


class Case(NamedTuple):
    """How a model is solved: the model of a parameter, its initial state, and the options of the solve.

    Attributes:
        model: The model, of a number by which it can be differentiated.
        y0: The initial state.
        options: Those of `solve`.
        ends_at_saves: Whether steps end where states are saved.
        derivatives: Whether it has any.
    """

    model: Callable[[Any], Any]
    y0: Any
    options: dict
    ends_at_saves: bool = False
    derivatives: bool = True


def rotor(rate):
    return lambda t, y, args: jnp.stack([y[1] - 0.1 * y[0], -rate * jnp.sin(y[0]) + 0.1 * jnp.cos(t)])


def noisy(kind):
    def model(rate):
        def diffusion(t, y, args):
            if kind == "general":
                return jnp.stack([0.3 * y, 0.2 * rate * y], axis=-1)
            return 0.3 * rate * (jnp.ones_like(y) if kind == "additive" else y)

        return sciml.Stochastic(lambda t, y, args: -rate * y + jnp.sin(3 * t), diffusion, noise=kind)

    return model


def stiff(drift):
    return lambda rate: sciml.Stochastic(drift, lambda t, y, args: 0.3 * rate * jnp.ones_like(y), noise="additive")


def reactions(rate):
    return sciml.Reactions([[1], [-1]], lambda x, args: jnp.stack([200 * rate + 0 * x[0], x[0]]))


def bath(rate):
    return sciml.Langevin(lambda t, x, args: -rate * x, friction=1.0, temperature=0.5)


def delayed(rate):
    return sciml.Delayed(lambda t, y, past, args: -rate * past, 0.7, history=1.0)


FIXED, CHOSEN = dict(dt=1 / 16), dict(rtol=1e-6, atol=1e-8)


def _cases():
    pair = jnp.array([1.0, 0.5])
    for method in METHODS:
        name, solver, ends = method.name, method.solver(), method.dense_order is None
        if method.name not in ("BDF",):
            yield f"{name}-fixed", Case(rotor, pair, dict(solver=solver, **FIXED), ends)
        if method.adaptive:
            yield f"{name}-adaptive", Case(rotor, pair, dict(solver=solver, **CHOSEN), ends)
    for case in STRUCTURED:
        solver, y0 = case.solver(), case.state(jnp.result_type(float))
        yield f"{case.name}-fixed", Case(case.model, y0, dict(solver=solver, **FIXED), True)
        if case.adaptive:
            yield f"{case.name}-adaptive", Case(case.model, y0, dict(solver=solver, **CHOSEN), True)
    path = sciml.BrownianPath(KEY, 0.0, 4.0, depth=12)
    for name, known in NOISY.items():
        kind = next(iter(known.strong))
        yield f"{name}-noise", Case(noisy(kind), pair, dict(solver=known.solver, key=KEY, **FIXED))
        if name in ADAPTIVE:
            how = dict(solver=known.solver, key=path, rtol=1e-2, atol=1e-3, dt0=0.01)
            yield f"{name}-rough", Case(noisy(kind), pair, how)
    for name, (drift, solver) in STIFF_NOISE.items():
        yield f"{name}-stiff-noise", Case(stiff(drift), pair, dict(solver=solver, key=KEY, **FIXED))
    yield "BAOAB-noise", Case(bath, (pair, -pair), dict(solver=sciml.solvers.BAOAB(), key=KEY, **FIXED))
    yield "Gillespie", Case(reactions, jnp.zeros(1), dict(key=KEY), derivatives=False)
    yield (
        "TauLeaping",
        Case(reactions, jnp.zeros(1), dict(key=KEY, solver=sciml.solvers.TauLeaping()), derivatives=False),
    )
    yield "delays-fixed", Case(delayed, jnp.ones(()), FIXED)
    yield "delays-adaptive", Case(delayed, jnp.ones(()), CHOSEN)


CASES = dict(_cases())


def solve(case, t1, ts, rate=1.2, hands_out=False, resume=None, **more):
    ts = np.asarray(ts)
    saveat = diffrax.SaveAt(ts=ts, solver_state=True) if hands_out else ts
    return sciml.solve(
        case.model(jnp.asarray(rate, jnp.result_type(float))),
        case.y0,
        t0=0.0,
        t1=t1,
        saveat=saveat,
        resume=resume,
        **case.options,
        **more,
    )


def parts(case, rate, **more):
    first = solve(case, 1.5, [0.25, 1.5], rate, hands_out=True, **more)
    return first, solve(case, 4.0, [2.0, 3.25, 4.0], rate, resume=first.resume, **more)


def whole(case, rate, **more):
    return solve(case, 4.0, [0.25, 2.0, 3.25, 4.0], rate, **more)


@pytest.mark.optimised
@pytest.mark.parametrize("name", CASES)
def test_two_halves_are_the_whole(name):
    case = CASES[name]
    (first, second), one = parts(case, 1.2), whole(case, 1.2)
    rows = lambda ys, keep: jax.tree.map(lambda y: y[keep], ys)  # noqa: E731
    for a, b in ((rows(first.ys, np.s_[:1]), rows(one.ys, np.s_[:1])), (second.ys, rows(one.ys, np.s_[-3:]))):
        jax.tree.map(np.testing.assert_array_equal, a, b)
    assert second.stats.accepted < one.stats.accepted


@pytest.mark.x64
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.derivatives])
def test_the_gradient_of_halves_is_that_of_the_whole(name):
    case = CASES[name]

    def total(of):
        def by(rate):
            found = of(case, rate)
            ys = found[1].ys if isinstance(found, tuple) else jax.tree.map(lambda y: y[-3:], found.ys)
            return sum(jnp.sum(jnp.sin(y)) for y in jax.tree.leaves(ys))

        return jax.jit(jax.grad(by))(1.2)

    found, expected = total(parts), total(whole)
    assert expected != 0
    np.testing.assert_allclose(found, expected, rtol=1e-9)
