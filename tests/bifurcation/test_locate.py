"""Special points from a guess, and their derivatives by every mode."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import bifurcation
from sciml.bifurcation import Kind

from .common import FOLD, Brusselator, bratu, cusp, tolerance


def fold(a, guess=0.3, **options):
    args = {"a": a, "b": jnp.asarray(guess, a.dtype)}
    y0 = jnp.full((1,), -0.5, a.dtype)
    return bifurcation.locate(cusp, y0, kind="fold", where=lambda args: args["b"], args=args, throw=False, **options)


def test_a_fold_and_its_derivatives(dtype):
    a = jnp.asarray(1.2, dtype)
    found = fold(a)
    assert found.kind == Kind.fold and found.status == 0 and found.frequency == 0
    np.testing.assert_allclose(found.parameter, FOLD * a**1.5, rtol=1e-10 if dtype == np.float64 else 1e-5)
    np.testing.assert_allclose(found.y, [-jnp.sqrt(a / 3)], rtol=tolerance(dtype))
    place = lambda a: fold(a).parameter  # noqa: E731
    first = 1.5 * FOLD * a**0.5
    np.testing.assert_allclose(jax.jit(jax.grad(place))(a), first, rtol=tolerance(dtype))
    np.testing.assert_allclose(jax.jit(jax.jacfwd(place))(a), first, rtol=tolerance(dtype))


@pytest.mark.x64
def test_second_derivatives_by_every_pair_of_modes():
    a = jnp.asarray(1.2)
    for outer in (jax.jacfwd, jax.jacrev):
        for inner in (jax.jacfwd, jax.jacrev):
            found = jax.jit(outer(inner(lambda a: fold(a).parameter)))(a)
            np.testing.assert_allclose(found, 0.75 * FOLD * a**-0.5, rtol=1e-6)


def test_members():
    a = jnp.asarray([1.0, 1.2, 1.5])
    place = lambda a: fold(a).parameter  # noqa: E731
    np.testing.assert_allclose(jax.vmap(place)(a), FOLD * a**1.5, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(jax.grad(place))(a), 1.5 * FOLD * a**0.5, rtol=1e-4)
    whole = jax.grad(lambda a: jnp.sum(jax.vmap(place)(a)))(a)
    np.testing.assert_allclose(whole, 1.5 * FOLD * a**0.5, rtol=1e-4)


def test_a_hopf_point_by_both_its_numbers(dtype):
    def numbers(a):
        model = Brusselator(a, jnp.asarray(1.9, dtype))
        y0 = {"x": jnp.asarray(1.0, dtype), "z": jnp.asarray(1.8, dtype)}
        found = bifurcation.locate(model, y0, kind="hopf", where=lambda model: model.b, throw=False)
        return jnp.stack([found.parameter, found.frequency])

    a = jnp.asarray(1.1, dtype)
    np.testing.assert_allclose(numbers(a), jnp.stack([1 + a**2, a]), rtol=tolerance(dtype))
    np.testing.assert_allclose(jax.jacrev(numbers)(a), jnp.stack([2 * a, jnp.ones_like(a)]), rtol=tolerance(dtype))


def test_a_branch_point_moves_with_what_keeps_it():
    def model(t, y, args):
        return (args["p"] - args["shift"]) * y - y**3

    def place(shift):
        args = {"p": 0.1, "shift": shift}
        found = bifurcation.locate(
            model, jnp.full(1, 0.05), kind="branch_point", where=lambda args: args["p"], args=args, throw=False
        )
        return found.parameter

    np.testing.assert_allclose(place(0.2), 0.2, atol=1e-6)
    np.testing.assert_allclose(jax.grad(place)(0.2), 1.0, rtol=1e-5)


@pytest.mark.x64
def test_bratu():
    model, u = bratu(16)
    u = u + 1.0 * jnp.sin(np.pi * (1 - np.cos(np.pi * np.arange(1, 16) / 16)) / 2)
    found = bifurcation.locate(model, u, kind="fold", args=3.3)
    np.testing.assert_allclose(found.parameter, 3.513830719, atol=1e-8)
    np.testing.assert_allclose(jnp.max(found.y), 1.18684, atol=1e-4)


def test_what_is_not_there():
    line = ft.partial(bifurcation.locate, lambda t, y, p: p - y, jnp.zeros(1), args=0.5)
    for kind in ("fold", "hopf", "branch_point"):
        with pytest.raises(sciml.SolveError, match="`locate` failed with status `diverged`"):
            line(kind=kind)
        found = line(kind=kind, throw=False)
        assert np.isnan(found.parameter) and found.kind == Kind[kind]


def test_a_pitchfork_that_is_broken_is_no_branch_point():
    found = bifurcation.locate(
        lambda t, y, p: 0.1 + p * y - y**3, jnp.full(1, 0.3), kind="branch_point", args=0.2, throw=False
    )
    assert found.status == sciml.Status.diverged and np.isnan(found.parameter)


def test_bad_input():
    with pytest.raises(ValueError, match="`kind` must be one of 'fold', 'hopf', 'branch_point', but is 'saddle'"):
        bifurcation.locate(lambda t, y, p: p - y, jnp.zeros(1), args=0.5, kind="saddle")
    with pytest.raises(TypeError, match="`locate` has no option `p0`: it is the value of the parameter"):
        bifurcation.locate(lambda t, y, p: p - y, jnp.zeros(1), args=0.5, kind="fold", p0=1.0)
