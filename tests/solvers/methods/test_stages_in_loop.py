"""Stages of a field that takes long to compile are evaluated in a loop: as those that are written out."""

from collections.abc import Callable

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml._jax.programs import programs_within

CELLS = 1100
"""So many numbers are worth a barrier."""


def crowded():
    """A field of many operations that reads neighbours; a new one for each call, as solves are remembered."""

    def field(t, y, rate):
        x = jnp.roll(y, 1) - y
        for _ in range(160):
            x = x * 0.98 + 0.01 * y
        return rate * jax.lax.erf(x) * jnp.cos(t)

    return field


def solved(solver, **steps):
    field = crowded()

    def last(y0, rate):
        return sciml.solve(field, y0, t0=0.0, t1=0.5, args=rate, solver=solver, **steps).ys[-1]

    return last


class Waves(eqx.Module):
    """The same with a wave speed, which makes it a model of two functions."""

    field: Callable

    def __call__(self, t, y, args):
        return self.field(t, y, args)

    def crossing_rate(self, t, y, args):
        return jnp.asarray(10.0)


def start(cells=CELLS):
    return jnp.sin(jnp.linspace(0.0, 6.0, cells)), jnp.asarray(1.5)


def evaluations(jaxpr):
    """How often a program evaluates the field, by its only error function."""
    return sum((eqn.primitive.name == "erf") + sum(map(evaluations, programs_within(eqn))) for eqn in jaxpr.eqns)


def check_same(found, expected):
    for got, wanted in zip(found, expected, strict=True):
        tol = 1e-11 if got.dtype == jnp.float64 else 1e-4
        np.testing.assert_allclose(got, wanted, rtol=tol, atol=tol * float(jnp.max(jnp.abs(wanted))))


CASES = {
    "SSPRK33": (sciml.solvers.SSPRK33(), dict(dt=0.1)),
    "Tsit5, whose last stage is the next first": (diffrax.Tsit5(), dict(dt=0.1)),
    "Tsit5, adaptive": (diffrax.Tsit5(), dict(rtol=1e-4, atol=1e-6)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_loop_is_the_method(name, choose):
    solver, steps = CASES[name]

    def run(one):
        return jax.tree.leaves((one(*start()), jax.grad(lambda *a: jnp.sum(one(*a) ** 3), (0, 1))(*start())))

    in_loop = run(solved(solver, **steps))
    choose({"fields.stages_in_loop_from": 10**9})
    check_same(in_loop, run(solved(solver, **steps)))


def test_small_arrays_and_steps_that_follow_waves(choose):
    """Without barriers between the stages, and with a model that is more than its vector field."""
    given = start(40)

    def run():
        model = Waves(crowded())
        one = lambda y0, rate: sciml.solve(model, y0, t0=0.0, t1=0.5, args=rate, solver=sciml.solvers.SSPRK33()).ys  # noqa: E731
        gradient = jax.grad(lambda *a: jnp.sum(one(*a) ** 3), (0, 1))
        size = evaluations(jax.make_jaxpr(gradient)(*given).jaxpr)
        return jax.tree.leaves((one(*given), gradient(*given))), size

    in_loop, size = run()
    choose({"fields.stages_in_loop_from": 10**9})
    written_out, size_written_out = run()
    check_same(in_loop, written_out)
    assert size < size_written_out


@pytest.mark.parametrize("order", ["gradients of members", "members of gradients"])
def test_members(order, choose):
    def run(one):
        loss = lambda y0, rate: jnp.sum(one(y0, rate) ** 3)  # noqa: E731
        if order == "members of gradients":
            return jax.vmap(jax.grad(loss, (0, 1)), (0, None))(members, rate)
        return jax.grad(lambda ys, rate: jnp.sum(jax.vmap(loss, (0, None))(ys, rate)), (0, 1))(members, rate)

    y0, rate = start()
    members = jnp.stack([y0, 2 * y0])
    in_loop = run(solved(sciml.solvers.SSPRK33(), dt=0.1))
    choose({"fields.stages_in_loop_from": 10**9})
    check_same(in_loop, run(solved(sciml.solvers.SSPRK33(), dt=0.1)))


def test_programs_hold_the_field_once_for_all_stages(choose):
    def count(reverse):
        one = solved(sciml.solvers.SSPRK33(), dt=0.1)
        fn = jax.grad(lambda *a: jnp.sum(one(*a))) if reverse else one
        return evaluations(jax.make_jaxpr(fn)(*start()).jaxpr)

    in_loop = count(False), count(True)
    choose({"fields.stages_in_loop_from": 10**9})
    assert count(False) == 3 * in_loop[0]
    assert count(True) > 2 * in_loop[1]


def test_forward_mode_goes_through_the_loop():
    one = solved(sciml.solvers.SSPRK33(), dt=0.1, adjoint=sciml.adjoints.Direct())
    y0, rate = start()
    forwards = jax.jvp(lambda rate: jnp.sum(one(y0, rate)), (rate,), (jnp.ones_like(rate),))[1]
    backwards = jax.grad(lambda rate: jnp.sum(one(y0, rate)))(rate)
    np.testing.assert_allclose(forwards, backwards, rtol=1e-4 if rate.dtype == jnp.float32 else 1e-10)
