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
from sciml._jax._shifted_updates import read_before_written
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


def shift(y):
    return y.at[1:].set(y[:-1])


def in_other_words(y):
    return jnp.concatenate([y[:1], y[:-1]])


def by_jvp(moved):
    @jax.custom_jvp
    def run(y, count):
        return jnp.sin(moved(y)), count

    @run.defjvp
    def _(primals, tangents):
        y, count = primals
        return run(y, count), (jnp.cos(moved(y)) * moved(tangents[0]), tangents[1])

    return lambda y: run(y, jnp.asarray(2))[0]


def by_vjp(moved):
    @jax.custom_vjp
    def run(y, count):
        return jnp.sin(moved(y)), count

    def backward(y, cotangents):
        return jax.vjp(moved, y)[1](jnp.cos(moved(y)) * cotangents[0])[0], None

    run.defvjp(lambda y, count: (run(y, count), y), backward)
    return lambda y: run(y, jnp.asarray(2))[0]


def scanned(moved, length):
    return lambda y: jax.lax.scan(lambda z, _: (jnp.sin(moved(z)), None), y, None, length=length)[0]


PLACES = {
    "plain": lambda moved: lambda y: jnp.sin(moved(y)),
    "jit": lambda moved: jax.jit(lambda y: jnp.sin(moved(y))),
    "checkpoint": lambda moved: jax.checkpoint(lambda y: jnp.sin(moved(y))),
    "custom_jvp": by_jvp,
    "custom_vjp": by_vjp,
    "scan": lambda moved: scanned(moved, 2),
    "turn": lambda moved: scanned(moved, 1),
    "cond": lambda moved: lambda y: jax.lax.cond(y[0] > 0.3, lambda z: jnp.sin(moved(z)), lambda z: moved(-z), y),
    "while": lambda moved: (
        lambda y: jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, jnp.sin(moved(c[1]))), (0, y))[1]
    ),
    "nested": lambda moved: jax.checkpoint(lambda y: jax.lax.cond(y[0] > 0.3, scanned(moved, 1), lambda z: -z, y)),
}
"""Where a field may have a shift, with a sine of it."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("several", [False, True], ids=["one", "members"])
def test_a_field_may_have_it(place, several):
    """As the search for wrong numbers found: the gradient of a state of 140 numbers was wrong."""
    y0 = jnp.cos(jnp.arange(420.0).reshape(3, 140) if several else jnp.arange(140.0))

    def total(moved, y0, rate):
        def field(t, y, rate):
            return 0.4 * rate * PLACES[place](moved)(y) - 0.3 * y

        def end(y):
            options = dict(t0=0.0, t1=0.5, dt=0.125, solver=diffrax.Euler(), throw=False)
            return sciml.solve(field, y, args=rate, **options).ys[-1]

        return jnp.sum(jnp.cos(jax.vmap(end)(y0) if several else end(y0)))

    wanted = total if place == "while" else jax.grad(total, (1, 2))  # JAX has no reverse mode for it
    found, expected = (jax.jit(functools.partial(wanted, moved))(y0, 0.7) for moved in (shift, in_other_words))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("place", [x for x in PLACES if x not in ("while", "turn", "nested")])
def test_derivatives_are_those_of_the_same_program(place):
    """Values, first and second derivatives, over members, too."""
    y = jnp.cos(jnp.arange(8.0))
    fn = PLACES[place](shift)
    closed = read_before_written(jax.make_jaxpr(fn)(y))
    assert "optimization_barrier" in str(closed) or place.startswith("custom")

    def changed(y):
        return jex.core.jaxpr_as_fun(closed)(y)[0]

    def slope(fn):
        return jax.grad(lambda y: jnp.vdot(jnp.arange(8.0), fn(y)))

    both = jnp.stack([y, 2 * y])
    for of, at in ((lambda f: f, y), (slope, y), (lambda f: jax.vmap(slope(f)), both)):
        np.testing.assert_allclose(of(changed)(at), of(fn)(at), rtol=1e-5, atol=1e-6)
    if place != "custom_vjp":
        pushed, expected = (jax.jvp(slope(f), (y,), (jnp.sin(y),)) for f in (changed, fn))
        np.testing.assert_allclose(pushed[1], expected[1], rtol=1e-5, atol=1e-6)


def test_a_rule_may_have_it():
    """The function's own program has no update, its rule has; it is behind a barrier where it is differentiated."""

    @jax.custom_jvp
    def run(y):
        return jnp.sin(in_other_words(y))

    run.defjvp(lambda primals, tangents: (run(*primals), jnp.cos(shift(*primals)) * shift(*tangents)))
    y = jnp.cos(jnp.arange(8.0))
    closed = read_before_written(jax.make_jaxpr(run)(y))
    pushed = jax.make_jaxpr(lambda y: jax.jvp(jex.core.jaxpr_as_fun(closed), (y,), (y,)))(y)
    assert str(pushed).count("optimization_barrier") == 2
