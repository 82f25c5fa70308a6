"""Work on small arrays stays out of programs that touch large ones, such as the record, and how large that may be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml._jaxprs import programs_within
from sciml._levels import Room
from sciml.kernels.lanes import Lanes
from sciml.solvers import _in_sequence
from sciml.solvers._in_sequence import MANY, SMALL, in_sequence
from sciml.solvers._loop import Loop
from sciml.solvers._march import March


def long(x):
    for _ in range(MANY):
        x = x + 1
    return x


def branches(fn, count):
    closed = jax.make_jaxpr(lambda holds, x: in_sequence(holds, fn, jnp.cos, x))(True, jnp.ones(count, jnp.float32))
    return "cond" in {eqn.primitive.name for eqn in closed.jaxpr.eqns}


def test_only_much_work_on_small_arrays_branches_and_only_on_cpus(monkeypatch):
    assert branches(long, SMALL // 4)
    assert not branches(long, SMALL // 4 + 1) and not branches(jnp.sin, 1)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not branches(long, 1)


@pytest.mark.parametrize("fn", [long, jnp.sin])
def test_what_is_returned(fn):
    x = jnp.arange(3.0)
    np.testing.assert_allclose(jax.jit(in_sequence, static_argnums=(1, 2))(True, fn, jnp.cos, x), fn(x), rtol=1e-6)


def test_records_of_dear_steps_may_be_large():
    """A thousand members: as many slots as there may be for eight unknowns, and 16 MiB of them for fewer."""

    def slots(solver, n, memory=2**28):
        march = March(lambda t, y, operands: y, solver.stepper(jnp.zeros(n)), None, False)
        return Loop(march, Lanes(None), 2**14, False).over(Lanes(1000), 8 * n, Room(memory)).slots

    assert slots(sciml.solvers.Rodas5P(), 8) == 1024
    assert slots(sciml.solvers.Rodas5P(), 7) == slots(sciml.solvers.Rodas5P(), 7, 2**24) < 256
    assert slots(sciml.solvers.Rodas5P(), 8, 2**24) < 256


def sizes_of_loops(jaxpr):
    """How many operations the bodies of all loops have themselves."""
    for eqn in jaxpr.eqns:
        for inner in programs_within(eqn):
            if eqn.primitive.name == "while":
                yield len(inner.eqns)
            yield from sizes_of_loops(inner)


@pytest.mark.parametrize("count", [None, 16, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_long_step_is_not_in_the_loop_that_records_it(count, monkeypatch):
    """Sixteen members are small as well, and a thousand are not."""
    monkeypatch.setattr(_in_sequence, "MANY", 100)  # so that even Tsit5's is long

    def end(rho):
        field = lambda t, y, rho: sciml.models.Lorenz63(rho=rho)(t, y, None)  # noqa: E731, nobody has traced this one
        return jnp.sum(sciml.solve(field, jnp.ones(3), t0=0.0, t1=1.0, rtol=1e-4, atol=1e-4, args=rho).ys[-1])

    if count is None:
        closed = jax.make_jaxpr(jax.grad(end))(20.0)
    else:
        closed = jax.make_jaxpr(jax.grad(lambda rho: jnp.sum(jax.vmap(end)(rho))))(jnp.linspace(0, 28, count))
    largest = max(sizes_of_loops(closed.jaxpr))
    assert largest < 100 if count != 1000 else largest > 400
