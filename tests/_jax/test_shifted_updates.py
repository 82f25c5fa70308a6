"""A fault of XLA on CPUs stays out of the library: an update in place that reads what it has overwritten.

`b.at[1:].set(b[:-1]).reshape(...)` is wrong under `jit` (openxla/xla#49176; `inspect.environment` shows it). What is
written has to overlap what is read at another place, in several rows at once; a single row is right, all rows are, too.
"""

import functools

import diffrax
import jax
import jax.extend as jex
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from tests.registry_adjoints import each_adjoint
from tests.solvers.common import cheap, loss, members

MOVES = ("slice", "dynamic_slice", "reshape", "squeeze", "broadcast_in_dim", "copy", "convert_element_type", "rev")
UPDATES = {"dynamic_update_slice": 1, "scatter": 2}
"""Where the update stands among the operands."""


def origin(var, makers):
    """The value that this one is moved from, and whether it is a part of it."""
    part = False
    while not isinstance(var, jex.core.Literal) and var in makers and makers[var].primitive.name in MOVES:
        part |= makers[var].primitive.name in ("slice", "dynamic_slice")
        var = makers[var].invars[0]
    return var, part


def inner_jaxprs(params):
    """The jaxprs among an equation's parameters."""
    leaves = jax.tree.leaves(list(params.values()), is_leaf=lambda x: hasattr(x, "eqns"))
    return [getattr(leaf, "jaxpr", leaf) for leaf in leaves if hasattr(leaf, "eqns")]


def shifted_updates(jaxpr) -> list[str]:
    """The updates by several rows, not all, which are a part of the array that is updated."""
    makers = {out: equation for equation in jaxpr.eqns for out in equation.outvars}
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name in UPDATES:
            target, update = equation.invars[0], equation.invars[UPDATES[equation.primitive.name]]
            (source, part), (whole, _) = origin(update, makers), origin(target, makers)
            several = any(1 < k < n for k, n in zip(update.aval.shape, target.aval.shape))
            if part and several and source is whole:
                found.append(str(equation))
        for inner in inner_jaxprs(equation.params):
            found += shifted_updates(inner)
    return found


def of(fn, *args) -> list[str]:
    return shifted_updates(jax.make_jaxpr(fn)(*args).jaxpr)


def test_the_search_sees_the_form_that_is_wrong():
    b = jnp.zeros((8, 16))
    assert of(lambda b: (b + 1).at[1:].set(b[:-1]), b) == []  # of another array
    assert len(of(jax.jit(lambda b: b.at[1:].set(b[:-1]).reshape(1, 8, 16)), b)) == 1
    assert of(lambda b: b.at[1].set(b[0]), b) == []


@each_adjoint
def test_no_loop_and_no_gradient_has_it(case):
    kind = case.reverse[-1]
    options = cheap(kind)

    def member(p):
        return jax.grad(lambda p: loss(kind, case.adjoint, p, **options))(p)

    assert of(jax.vmap(member), members()) == []


@pytest.mark.optimised
@pytest.mark.parametrize("method", ["Tsit5", "Rosenbrock23"])
def test_a_model_that_has_it_is_right(method):
    """Within a step other operations stand between the update and what is reshaped."""
    solver = sciml.solvers.Rosenbrock23() if method == "Rosenbrock23" else diffrax.Tsit5()

    def solved(shift):
        def field(t, y, args):
            return jnp.sin(shift(-y)).reshape(1, 4, 3)[0]

        y0 = jnp.cos(jnp.arange(12.0)).reshape(4, 3)
        return sciml.solve(field, y0, t0=0.0, t1=0.5, dt=0.125, solver=solver).ys

    wrong_alone = solved(lambda b: b.at[1:].set(b[:-1]))
    np.testing.assert_allclose(wrong_alone, solved(lambda b: jnp.concatenate([b[:1], b[:-1]])), rtol=1e-5, atol=1e-6)


def shifting(t, y, rate):
    return 0.4 * rate * jnp.sin(y.at[1:].set(y[:-1])) - 0.3 * y


def in_other_words(t, y, rate):
    return 0.4 * rate * jnp.sin(jnp.concatenate([y[:1], y[:-1]])) - 0.3 * y


@pytest.mark.parametrize("kind", ["one", "members", "nested"])
def test_a_field_may_have_it(kind):
    """As the search for wrong numbers found: the gradient of a state of 140 numbers was wrong."""
    options = dict(t0=0.0, t1=0.5, dt=0.125, solver=diffrax.Euler(), throw=False)

    def total(model, y0, rate):
        ys = jax.vmap(lambda y: sciml.solve(model, y, args=rate, **options).ys[-1])(y0) if kind == "members" else None
        return jnp.sum(jnp.cos(sciml.solve(model, y0, args=rate, **options).ys[-1] if ys is None else ys))

    model = (lambda t, y, rate: jax.jit(shifting)(t, y, rate)) if kind == "nested" else shifting
    y0 = jnp.cos(jnp.arange(140.0) if kind != "members" else jnp.arange(420.0).reshape(3, 140))
    found, expected = (jax.jit(jax.grad(functools.partial(total, f), (0, 1)))(y0, 0.7) for f in (model, in_other_words))
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
