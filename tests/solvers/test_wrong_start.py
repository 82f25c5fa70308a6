"""Numbers that a solve cannot begin with are named, with their place and value."""

import functools as ft

import jax.numpy as jnp
import numpy as np
import pytest

import sciml

run = ft.partial(sciml.solve, t0=0.0, t1=0.1, rtol=1e-3, atol=1e-3)


def decay(t, y, args):
    return -y if args is None else -args["rate"] * y


def refused(kind, match, *arguments, **options):
    with pytest.raises(kind, match=match) as caught:
        run(*arguments, **options)
    return caught.value


def test_values_that_are_no_numbers():
    refused(sciml.SolveError, r"`y0\[1\]` is nan", decay, jnp.array([1.0, np.nan]))
    refused(sciml.SolveError, r"`y0\[1, 0\]` is inf", decay, np.array([[1.0], [np.inf]]))
    refused(sciml.SolveError, r"`args\['rate'\]` is nan", decay, jnp.ones(2), args={"rate": np.nan})
    model = sciml.models.Logistic(rate=jnp.nan)
    refused(sciml.SolveError, r"`model\.rate` is nan", model, jnp.array(0.5))
    blown = refused(sciml.SolveError, "nonfinite|step_too_small", lambda t, y, args: 1e3 * y**2, jnp.ones(1))
    assert "`y0" not in str(blown)


def test_starts_that_are_not_admissible():
    y0 = jnp.array([0.5, -0.5])
    refused(sciml.SolveError, r"`y0\[1\]` is -0.5, but `positive` requires", decay, y0, positive=True)
    refused(sciml.SolveError, r"`domain\(y0\)` is False", decay, y0, domain=lambda y: y[1] > 0)
    assert run(decay, y0, positive=np.array([True, False])).status == 0
    for given in ("yes", 1):
        refused(TypeError, f"a PyTree like `y0` of booleans, but is {given!r}", decay, y0, positive=given)
    refused(ValueError, r"write `np.array\(\[True, False\]\)`", decay, y0, positive=[True, False])


def test_texts():
    refused(TypeError, "`y0` must be an array of numbers, but is an array of dtype <U1", decay, np.array(["a"]))
    error = refused(TypeError, "str", decay, jnp.ones(2), args={"rate": "fast"})
    assert any("`args['rate']` is the string 'fast'" in note for note in error.__notes__)
    assert run(decay, jnp.ones(2), args={"rate": 1.0, "name": "fast"}).status == 0


def test_several_values_of_a_parameter():
    model = sciml.models.Lorenz63(rho=[1.0, 2.0])
    refused(ValueError, r"`rho` of `Lorenz63`, of shape \(2,\), does not suit `y0`, .*`jax.vmap`", model, jnp.ones(3))
