"""Equations of few terms: their libraries, their text, and that they are models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import models, verify
from sciml.models.sparse import Polynomials, Terms, Trigonometric
from sciml.models.sparse._sparse_model import SparseModel

LORENZ = {("dx/dt", "x"): -10.0, ("dx/dt", "y"): 10.0, ("dy/dt", "x"): 28.0, ("dy/dt", "y"): -1.0}
LORENZ |= {("dy/dt", "x z"): -1.0, ("dz/dt", "x y"): 1.0, ("dz/dt", "z"): -8 / 3}


def lorenz():
    library, inputs = Polynomials(2), ("x", "y", "z")
    names = library.names(inputs)
    table = np.zeros((len(names), 3))
    for (output, term), value in LORENZ.items():
        table[names.index(term), "xyz".index(output[1])] = value
    return SparseModel(library, table, inputs)


def test_every_term_has_the_value_of_its_name():
    library = Polynomials(3) + Trigonometric((1.0, 2.5)) + Terms({"x exp(y)": lambda v: v[0] * jnp.exp(v[1])})
    x, y = 0.7, -1.3
    names = library.names(("x", "y"))
    functions = dict(x=x, y=y, sin=np.sin, cos=np.cos, exp=np.exp)
    texts = [name.replace("^", "**").replace(" ", "*") for name in names]
    wanted = [eval(text, {"__builtins__": {}}, functions) for text in texts]
    assert len(names) == len(set(names)) == 10 + 8 + 1
    np.testing.assert_allclose(library(jnp.array([x, y])), wanted, rtol=1e-5)
    assert Polynomials(1, constant=False).names(("a",)) == ("a",)


def test_an_equation_prints_and_is_a_model():
    model = lorenz()
    assert str(model) == "dx/dt = -10 x + 10 y\ndy/dt = 28 x - y - x z\ndz/dt = -2.667 z + x y"
    assert model.equations(2)[2] == "dz/dt = -2.7 z + x y" and len(jax.tree.leaves(model)) == 1
    y = jnp.array([1.0, -2.0, 20.0])
    np.testing.assert_allclose(model(0.0, y, None), models.Lorenz63()(0.0, y, None), rtol=1e-6)
    table = np.zeros((10, 3))
    again = SparseModel(model.library, model.table, model.inputs)
    np.testing.assert_array_equal(again.coefficients, model.coefficients)
    nothing = SparseModel(model.library, table, model.inputs)
    assert nothing.equations()[0] == "dx/dt = 0" and not jnp.any(nothing(0.0, y, None))
    verify.check_model(model, y)


def test_states_of_names_and_members_with_coefficients_of_their_own():
    table = np.array([[0.0, 1.0], [-4.0, 0.0]])
    model = SparseModel(Polynomials(1, constant=False), table, ("v", "x"), like={"v": np.zeros(()), "x": np.zeros(())})
    start = {"v": jnp.array(0.0), "x": jnp.array(1.0)}
    assert str(model) == "dv/dt = -4 x\ndx/dt = v"

    def end(model):
        return sciml.solve(model, start, t0=0.0, t1=1.0, dt=0.05).ys["x"][-1]

    members = jax.vmap(lambda k: jax.tree.map(lambda c: c * k, model))(jnp.array([0.5, 1.0]))
    np.testing.assert_allclose(jax.jit(jax.vmap(end))(members), np.cos([1.0, 2.0]), atol=1e-4)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="a row for each of the 3 terms"):
        SparseModel(Polynomials(1), np.zeros((2, 2)), ("x", "y"))
    with pytest.raises(ValueError, match=r"`like` must contain 2 numbers"):
        SparseModel(Polynomials(1), np.zeros((3, 2)), ("x", "y"), like=np.zeros(3))
    with pytest.raises(ValueError, match="must contain 3 numbers"):
        lorenz()(0.0, jnp.ones(2), None)
    with pytest.raises(ValueError, match="must be a number, but has shape"):
        Terms({"x": lambda v: v})(jnp.ones(2))
    with pytest.raises(ValueError, match="degree"):
        Polynomials(0)
