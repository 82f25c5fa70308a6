"""Work on small arrays stays out of programs that touch large ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml._jaxprs import programs_within
from sciml.solvers._in_sequence import MANY, SMALL, in_sequence


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


def sizes_of_loops(jaxpr):
    """How many operations the bodies of all loops have themselves."""
    for eqn in jaxpr.eqns:
        for inner in programs_within(eqn):
            if eqn.primitive.name == "while":
                yield len(inner.eqns)
            yield from sizes_of_loops(inner)


@pytest.mark.parametrize("count", [None, *(pytest.param(n, marks=pytest.mark.slow) for n in (16, 1000))])
@pytest.mark.x64
def test_a_step_is_not_in_the_loop_that_records_it(count):
    """A step of Rodas5P is thousands of operations; sixteen members are small as well, and a thousand are not."""
    y0 = jnp.zeros(8).at[0].set(1.0).at[7].set(0.0057)

    def end(k):
        options = dict(t0=0.0, t1=1.0, rtol=1e-4, atol=1e-6, solver=sciml.solvers.Rodas5P())
        return jnp.sum(sciml.solve(lambda t, y, k: k * sciml.models.HIRES()(t, y, None), y0, args=k, **options).ys[-1])

    if count is None:
        closed = jax.make_jaxpr(jax.grad(end))(1.0)
    else:
        closed = jax.make_jaxpr(jax.grad(lambda k: jnp.sum(jax.vmap(end)(k))))(jnp.ones(count))
    largest = max(sizes_of_loops(closed.jaxpr))
    assert largest < 100 if count != 1000 else largest > 1000
