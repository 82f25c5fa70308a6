"""The first number that is not finite is found, with step, member, leaf and line, forwards and in gradients alone."""

import time

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import adjoints, inspect


def falls(t, y, args):
    return -jnp.sqrt(y)  # NaN of what is below zero


def steps_of_falling(y0, dt):
    """At the start of which step of Euler's method the state is below zero: that step makes NaN."""
    y, number = np.float32(y0), 0
    while y >= 0:
        y, number = y - np.float32(dt) * np.sqrt(y), number + 1
    return number


def euler(model, y0, adjoint=None, *, dt=0.125, t1=1.0, args=None):
    how = dict(t0=0.0, t1=t1, dt=dt, args=args, solver=diffrax.Euler(), throw=False, adjoint=adjoint)
    return sciml.solve(model, y0, **how).ys[-1]


def corner(t, y, args):
    """Minus one but for rounding; the derivative of the square root is infinite at a half, times zero."""
    return args["slope"] + 1e-30 * jnp.sqrt((y - 0.5) ** 2)


SLOPE = {"slope": jnp.float32(-1.0)}


def test_forward_in_a_leaf():
    def fn(x):
        return {"u": jnp.exp(x), "v": jnp.log(x - 1)}

    found = inspect.first_nan(fn, jnp.array([2.0, 3.0, 0.5]))
    assert (found.value, found.backward, found.operation) == ("nan", False, "log")
    assert (found.leaf, found.entry, found.step, found.member) == ("the result['v']", (2,), None, None)
    assert "jnp.log(x - 1)" in found.where and "test_first_nan.py" in found.where and found.operands == "-0.5"


def test_forward_in_a_scan():
    def fn(x):
        return jax.lax.scan(lambda c, _: (c * c, c), x, length=100)[0]

    found = inspect.first_nan(fn, jnp.float32(1.1))
    squares = [1.1 ** (2**n) for n in range(12)]
    assert found.value == "inf" and found.operation == "mul"
    assert found.step == next(n for n, x in enumerate(squares) if x * x > 3.4e38) and found.loops == (found.step,)


def test_forward_in_a_solve():
    found = inspect.first_nan(lambda y0: euler(falls, y0, t1=4.0, dt=0.1), jnp.array([9.0, 1.0], jnp.float32))
    assert found.step == steps_of_falling(1.0, 0.1)
    assert (found.operation, found.backward, found.leaf) == ("sqrt", False, "the result")
    assert "return -jnp.sqrt(y)" in found.where


def test_forward_in_a_solve_that_fails():
    """With error control the last state is finite, and sciml writes NaN for what was not reached."""

    def end(y0):
        return sciml.solve(falls, y0, t0=0.0, t1=3.0, throw=False).ys[-1]

    found = inspect.first_nan(end, jnp.array([1.0]))
    assert found.operation == "sqrt" and "return -jnp.sqrt(y)" in found.where
    sol = sciml.solve(falls, jnp.array([1.0]), t0=0.0, t1=3.0, throw=False)
    assert found.step == int(sol.stats.accepted + sol.stats.rejected) - 1  # the last attempt


def test_forward_of_a_member():
    y0 = jnp.array([[9.0], [8.0], [1.0], [1.5]], jnp.float32)
    found = inspect.first_nan(jax.vmap(lambda y0: euler(falls, y0, t1=4.0, dt=0.1)), y0)
    assert (found.member, found.step, found.entry) == (2, steps_of_falling(1.0, 0.1), (2, 0))


def test_backward_of_a_norm():
    found = inspect.first_nan(lambda p: jnp.sqrt(jnp.sum(p["x"] ** 2)), {"x": jnp.zeros(2), "z": jnp.ones(1)})
    assert found.backward and found.leaf == "the gradient with respect to argument 0['x']"
    assert "jnp.sqrt(jnp.sum" in found.where and found.operands == "0.5 and 0"


def test_backward_behind_where():
    def loss(x):
        return jnp.sum(jnp.where(x > 0, jnp.log(x), 0.0))

    found = inspect.first_nan(jax.grad(loss), jnp.array([1.0, 0.0]))
    assert (found.backward, found.operation, found.entry) == (True, "div", (1,))
    assert "jnp.where(x > 0, jnp.log(x), 0.0)" in found.where


ADJOINTS = {
    "checkpointed": adjoints.Checkpointed(),
    "two levels": adjoints.Checkpointed(levels=2),
    "three levels": adjoints.Checkpointed(levels=3),
    "forward": adjoints.Forward(),
}


@pytest.mark.parametrize("name", ADJOINTS)
def test_backward_in_a_solve(name):
    """From 1 with slope -1 the state is a half at the start of step 4, exactly."""
    found = inspect.first_nan(
        lambda y0: jnp.sum(euler(corner, y0, ADJOINTS[name], args=SLOPE)), jnp.ones(1, jnp.float32)
    )
    assert found.step == 4 and found.backward and found.leaf == "the gradient with respect to argument 0"
    assert "1e-30 * jnp.sqrt((y - 0.5) ** 2)" in found.where


@pytest.mark.parametrize("adjoint", [adjoints.Reversible(), adjoints.Gauss(), adjoints.Backsolve()], ids=repr)
def test_backward_of_other_adjoints(adjoint):
    """What of the state is exact depends on the adjoint; the line does not."""

    def still(t, y, args):
        return args * jnp.sqrt((y - 0.5) ** 2)

    def loss(args):
        return jnp.sum(
            sciml.solve(still, jnp.array([0.5], jnp.float32), t0=0.0, t1=1.0, dt=0.25, args=args, adjoint=adjoint).ys
        )

    found = inspect.first_nan(loss, jnp.float32(1))
    assert found is not None and (found.backward and "jnp.sqrt((y - 0.5) ** 2)" in found.where)


def test_backward_of_a_member_by_what_all_share():
    y0 = jnp.array([[0.9], [0.8], [1.0], [0.7]], jnp.float32)

    def loss(args, y0):
        return jnp.sum(jax.vmap(lambda y0: euler(corner, y0, args=args))(y0))

    found = inspect.first_nan(loss, SLOPE, y0)
    assert (found.member, found.step, found.backward) == (2, 4, True)
    assert found.leaf == "the gradient with respect to argument 0['slope']"


def test_backward_of_a_member_under_error_control():
    y0 = jnp.array([[0.9], [0.5], [0.5]], jnp.float32)

    def loss(y0):
        def member(y0):
            return sciml.solve(corner, y0, t0=0.0, t1=1.0, args={"slope": jnp.float32(0)}, throw=False).ys

        return jnp.sum(jax.vmap(member)(y0))

    found = inspect.first_nan(loss, y0)
    assert found.member == 1 and found.backward and found.entry == (1, 0)
    assert "1e-30 * jnp.sqrt((y - 0.5) ** 2)" in found.where and "member 1" in str(found)


def test_finite_is_nothing():
    assert inspect.first_nan(lambda y0: jnp.sum(euler(falls, y0)), jnp.array([9.0])) is None
    assert inspect.first_nan(lambda x: jnp.where(x > 0, jnp.log(x), 0.0), jnp.array([1.0, 0.0])) is None


def test_what_is_given_is_named():
    found = inspect.first_nan(lambda p: p["a"] * 2, {"a": jnp.array([1.0, jnp.inf])})
    assert found.value == "inf" and "argument 0['a']" in found.operation
    hidden = jnp.full(300, jnp.nan)
    assert "closes over" in inspect.first_nan(lambda x: x * hidden, jnp.ones(300)).operation


def test_many_steps_take_seconds():
    def loss(y0):
        return jnp.sum(euler(falls, y0, t1=1000.0, dt=0.1))

    start = time.process_time()
    found = inspect.first_nan(loss, jnp.array([9.0, 2.4e5], jnp.float32))
    assert found.step == steps_of_falling(9.0, 0.1)
    found = inspect.first_nan(lambda y0: jnp.sum(euler(falls, y0, t1=1000.0, dt=0.1)), jnp.array([2.4e5], jnp.float32))
    assert abs(found.step - steps_of_falling(2.4e5, 0.1)) <= 2 and found.step > 9000
    assert time.process_time() - start < 30


def test_shapes_have_no_numbers():
    with pytest.raises(ValueError, match="must be arrays"):
        inspect.first_nan(jnp.sin, jax.ShapeDtypeStruct((2,), jnp.float32))


def test_with_noise():
    """Keys are inputs like others, and rows of a scan may be keys."""
    noisy = sciml.Stochastic(lambda t, y, args: -jnp.sqrt(y), lambda t, y, args: 0.01 * y)

    def end(key, y0):
        return sciml.solve(noisy, y0, t0=0.0, t1=4.0, dt=0.1, key=key, throw=False).ys[-1]

    keys = jax.random.split(jax.random.key(0), 3)
    found = inspect.first_nan(jax.vmap(end), keys, jnp.array([[9.0], [1.0], [9.0]]))
    assert (found.member, found.operation, found.backward) == (1, "sqrt", False)

    def with_keys(key):
        split, rows = jax.lax.scan(lambda key, _: tuple(jax.random.split(key)), key, length=3)
        return jnp.log(jax.vmap(jax.random.uniform)(rows) - 1.0)

    assert inspect.first_nan(with_keys, jax.random.key(0)).operation == "log"
