"""Functions with derivative rules of their own in a vector field: every adjoint uses the rule, or refuses it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import adjoints


@jax.custom_jvp
def table(x):
    """A table of thousandths, whose arithmetic has the derivative zero."""
    return jnp.floor(x * 1e3) / 1e3


table.defjvps(lambda dx, ans, x: dx)


@jax.custom_vjp
def backwards_only(x):
    return jnp.floor(x * 1e3) / 1e3


backwards_only.defvjp(lambda x: (backwards_only(x), None), lambda _, ct: (ct,))


@jax.custom_jvp
def on_host(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="broadcast_all")


on_host.defjvps(lambda dx, ans, x: jnp.cos(x) * dx)


def end(fn, rate, adjoint, **how):
    how = how or dict(rtol=1e-4, atol=1e-6)
    y0 = jnp.ones(1)
    return sciml.solve(lambda t, y, k: -fn(k * y), y0, t0=0.0, t1=1.0, args=rate, adjoint=adjoint, **how).ys[-1, 0]


@pytest.mark.parametrize("adjoint", ["Checkpointed", "Forward", "Backsolve"])
def test_a_table(adjoint):
    adjoint = getattr(adjoints, adjoint)()
    slope = lambda k: jax.grad(lambda k: end(table, k, adjoint))(k)  # noqa: E731
    np.testing.assert_allclose(slope(1.0), -np.exp(-1), rtol=3e-3)
    np.testing.assert_allclose(jax.vmap(slope)(np.array([1.0, 2.0])), -np.exp([-1.0, -2.0]), rtol=6e-3)


@pytest.mark.parametrize("how", [dict(dt=0.1), dict(rtol=1e-4, atol=1e-6, saveat=[0.5, 1.0])])
def test_forward_in_other_loops(how):
    slope = jax.jacfwd(lambda k: end(table, k, adjoints.Forward(), **how))(1.0)
    np.testing.assert_allclose(slope, -np.exp(-1), rtol=3e-3)


def test_a_callback_with_a_rule():
    found = [jax.grad(lambda k: end(on_host, k, a))(1.0) for a in (adjoints.Checkpointed(), adjoints.Forward())]
    plain = jax.grad(lambda k: end(jnp.sin, k, adjoints.Checkpointed()))(1.0)
    np.testing.assert_allclose(found, [plain, plain], rtol=1e-5)


def test_a_rule_of_reverse_mode_is_none_of_forward_mode():
    np.testing.assert_allclose(
        jax.grad(lambda k: end(backwards_only, k, adjoints.Checkpointed()))(1.0), -np.exp(-1), rtol=3e-3
    )
    with pytest.raises(TypeError, match="forward-mode autodiff"):
        jax.grad(lambda k: end(backwards_only, k, adjoints.Forward()))(1.0)
