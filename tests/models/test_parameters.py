"""Parameters are leaves, and follow the precision of the state through every transform."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import AbstractModel, parameter, with_dtype
from sciml.models import Lorenz63

from .. import registry_models


class Plain(AbstractModel):
    """A user's model, which knows `parameter` but not `with_dtype`."""

    rate: jax.Array = eqx.field(default=2, converter=parameter)
    shift: jax.Array = eqx.field(default=0.5, converter=parameter)

    def __call__(self, t, y, args):
        return -self.rate * y + self.shift


MODELS = [Plain, Lorenz63]
each_model = pytest.mark.parametrize("make", MODELS)


@pytest.fixture
def y(dtype):
    return jnp.asarray([1.0, 2.0, 3.0], dtype)


@each_model
def test_python_numbers_are_leaves(make):
    leaves = jax.tree.leaves(make())
    assert leaves and all(isinstance(leaf, jax.Array) and leaf.shape == () for leaf in leaves)
    assert all(jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.weak_type for leaf in leaves)


@each_model
def test_state_keeps_its_dtype(make, y):
    model = make()
    assert model(0.0, y, None).dtype == y.dtype
    assert eqx.filter_jit(model)(0.0, y, None).dtype == y.dtype
    assert jax.jit(lambda m: m(0.0, y, None))(model).dtype == y.dtype


@each_model
def test_state_keeps_its_dtype_in_loops(make, y):
    def step(carry, _):
        model, y = carry
        return (model, y + model(0.0, y, None) * 0.125), None

    (model, end), _ = jax.lax.scan(step, (make(), y), None, length=2)
    assert end.dtype == y.dtype and model(0.0, y, None).dtype == y.dtype
    _, end = jax.lax.while_loop(lambda c: c[1].sum() < -1e9, lambda c: step(c, None)[0], (make(), y))
    assert end.dtype == y.dtype


@each_model
def test_gradient_has_the_dtype_of_the_leaf(make, y):
    model = make()
    gradient = jax.grad(lambda m: m(0.0, y, None).sum())(model)
    assert jax.tree.structure(gradient) == jax.tree.structure(model)
    assert all(g.dtype == m.dtype for g, m in zip(jax.tree.leaves(gradient), jax.tree.leaves(model), strict=True))
    moved = eqx.apply_updates(model, gradient)
    assert moved(0.0, y, None).dtype == y.dtype


@each_model
def test_vmap_over_models(make, y):
    values = jnp.asarray([1.0, 2.0, 3.0, 4.0], y.dtype)

    def with_first(value):
        return eqx.tree_at(lambda m: jax.tree.leaves(m)[0], make(), value)

    field = jax.vmap(lambda v: with_first(v)(0.0, y, None))(values)
    assert field.dtype == y.dtype
    models = jax.vmap(with_first)(values)
    again = jax.vmap(lambda m: m(0.0, y, None))(models)
    one_by_one = jnp.stack([with_first(v)(0.0, y, None) for v in values])
    np.testing.assert_array_equal(again, one_by_one)
    np.testing.assert_array_equal(field, one_by_one)


@pytest.mark.parametrize("value", [3.0, 3, np.float32(3), np.float64(3), "strong"])
def test_tree_at_takes_any_number(value, y):
    value = jnp.asarray([3.0])[0] if isinstance(value, str) else value
    model = eqx.tree_at(lambda m: m.rho, Lorenz63(), value)
    assert model(0.0, y, None).dtype == y.dtype
    assert model(0.0, y, None)[1] == 1.0 * (3.0 - 3.0) - 2.0


def test_strong_parameters_follow_the_state(y):
    """As after an optimiser, a file or a random draw."""
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), Lorenz63())
    assert not model.rho.weak_type
    assert model(0.0, y, None).dtype == y.dtype
    gradient = jax.grad(lambda m: m(0.0, y, None).sum())(model)
    assert gradient.rho.dtype == model.rho.dtype


def test_saved_and_loaded(tmp_path, y):
    eqx.tree_serialise_leaves(tmp_path / "model.eqx", Lorenz63(rho=20.0))
    model = eqx.tree_deserialise_leaves(tmp_path / "model.eqx", Lorenz63())
    assert model.rho == 20.0 and model(0.0, y, None).dtype == y.dtype


def test_partition_finds_every_parameter():
    differentiable, rest = eqx.partition(Lorenz63(), eqx.is_inexact_array)
    assert len(jax.tree.leaves(differentiable)) == 3 and not jax.tree.leaves(rest)


def test_integers_become_floating():
    assert parameter(2).dtype == parameter(np.arange(3)).dtype == jnp.result_type(float)
    assert parameter(np.arange(3)).shape == (3,)
    assert parameter(jnp.float32(2)).dtype == jnp.float32
    assert parameter(1 + 2j).dtype == jnp.result_type(complex)


def test_parameter_of_a_tracer():
    assert jax.jit(lambda rho: Lorenz63(rho=rho).rho)(2) == 2.0
    assert jax.grad(lambda rho: Lorenz63(rho=rho).rho ** 2)(3.0) == 6.0


@pytest.mark.parametrize("value", [None, "ten", True, jnp.asarray(True), object()])
def test_parameter_refuses_what_is_no_number(value):
    with pytest.raises(TypeError, match="a parameter must be a number"):
        parameter(value)


MADE = [case.make() for case in registry_models.EVERY]


@pytest.mark.parametrize("model", [getattr(x, "model", x) for x in MADE], ids=lambda model: type(model).__name__)
def test_a_model_says_which_of_its_parameters_is_no_number(model):
    kind, fields = type(model), [f for f in dataclasses.fields(model) if f.init]
    given = {f.name: getattr(model, f.name) for f in fields}
    wrong = [f.name for f in fields if f.metadata.get("converter") is parameter]
    for name in wrong:
        message = f"`{name}` of `{kind.__name__}` must be a number or an array of numbers, but got 'ten', str"
        with pytest.raises(TypeError, match=message):
            kind(**given | {name: "ten"})
        with pytest.raises(TypeError, match=f"`{name}` of `{kind.__name__}` .* an array of dtype bool"):
            kind(**given | {name: jnp.array(True)})
    assert wrong or kind.__name__ in ("HIRES",)


def test_with_dtype_keeps_the_rest():
    tree = {"a": jnp.ones(2), "n": jnp.arange(2), "f": 1.5, "name": "x", "c": jnp.asarray(1j)}
    out = with_dtype(tree, jnp.float32)
    assert out["a"].dtype == jnp.float32 and out["n"].dtype == jnp.arange(2).dtype
    assert out["f"] == 1.5 and out["name"] == "x" and jnp.iscomplexobj(out["c"])


def test_integer_state_is_refused():
    with pytest.raises(TypeError, match="make the state floating"):
        with_dtype(Lorenz63(), jnp.int32)
