"""Work on small arrays stays out of programs that touch large ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml._jaxprs import programs_within
from sciml.solvers._in_sequence import SMALL, in_sequence


def branches(count, dtype=jnp.float32):
    x = jnp.ones(count, dtype)
    return "cond" in str(jax.make_jaxpr(lambda holds, x: in_sequence(holds, jnp.sin, jnp.cos, x))(True, x))


def test_only_small_arrays_branch_and_only_on_cpus(monkeypatch):
    assert branches(SMALL // 4) and not branches(SMALL // 4 + 1)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not branches(1)


def test_what_is_returned():
    x = jnp.arange(3.0)
    for holds, fn in ((True, jnp.sin), (False, jnp.cos)):
        np.testing.assert_array_equal(jax.jit(in_sequence, static_argnums=(1, 2))(holds, jnp.sin, jnp.cos, x), fn(x))


def sizes_of_loops(jaxpr):
    """How many operations the bodies of all loops have themselves."""
    for eqn in jaxpr.eqns:
        for inner in programs_within(eqn):
            if eqn.primitive.name == "while":
                yield len(inner.eqns)
            yield from sizes_of_loops(inner)


@pytest.mark.parametrize("count", [None, 16, 1000])
def test_a_step_is_not_in_the_loop_that_records_it(count):
    """A step of the method is hundreds of operations; sixteen members are small as well, and a thousand are not."""

    def end(rho):
        model = sciml.models.Lorenz63(rho=rho)
        return jnp.sum(sciml.solve(model, jnp.ones(3, jnp.float32), t0=0.0, t1=1.0, rtol=1e-4, atol=1e-4).ys)

    if count is None:
        closed = jax.make_jaxpr(jax.grad(end))(jnp.float32(20.0))
    else:
        closed = jax.make_jaxpr(jax.grad(lambda r: jnp.sum(jax.vmap(end)(r))))(jnp.linspace(0, 28, count, dtype="f4"))
    largest = max(sizes_of_loops(closed.jaxpr))
    assert largest < 100 if count != 1000 else largest > 400
