"""What every model with networks must show."""

import inspect

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import verify
from sciml.models import neural
from tests.registry_neural import CASES

KEY = jax.random.key(3)
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_every_model_is_registered():
    kinds = (sciml.AbstractModel, sciml.AbstractStochastic, sciml.spatial.AbstractFlux)
    public = {name for name, value in vars(neural).items() if inspect.isclass(value) and issubclass(value, kinds)}
    assert {case.name for case in CASES} >= public


@each_case
def test_all_leaves_are_arrays_and_those_of_a_key(case):
    """So that `jax.grad` and `jax.vmap` take them as they are, and members may have weights of their own."""
    model, other = case.make(KEY), case.make(jax.random.key(4))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(model))
    again = case.make(KEY)
    same = jax.tree.map(lambda a, b: bool(jnp.all(a == b)), model, again)
    assert all(jax.tree.leaves(same))
    assert not all(jax.tree.leaves(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), model, other)))
    with pytest.raises(TypeError, match="key"):
        case.make(0)


@each_case
def test_the_contract_of_models(case):
    verify.check_model(case.field(KEY), case.y0(), args=case.args(), t=0.2)


@pytest.mark.x64
@each_case
def test_gradients_of_a_solution_for_members_with_weights_of_their_own(case):
    """`vmap` of `grad` of a solve, against differences along a direction in all weights and the state."""
    args, y0 = case.args(), case.y0()
    model = case.make(KEY)
    options = dict(dt=0.1, solver=diffrax.Heun())
    if isinstance(model, sciml.AbstractStochastic):
        options = dict(dt=0.1, key=jax.random.key(1))
    if isinstance(model, sciml.AbstractSecondOrder):
        options = dict(dt=0.1, solver=sciml.solvers.VelocityVerlet())

    def end(model, y0):
        ys = sciml.solve(model, y0, t0=0.0, t1=0.2, args=args, **options).ys
        return sum(jnp.sum(jnp.cos(jnp.arange(float(x.size)).reshape(x.shape) + x)) for x in jax.tree.leaves(ys))

    members = (
        jax.jit(jax.vmap(case.make))(jax.random.split(KEY, 2)),
        jax.tree.map(lambda x: jnp.stack([x, x + 0.1]), y0),
    )
    both = jax.jit(jax.vmap(jax.value_and_grad(end, (0, 1))))
    slopes = both(*members)[1]
    draw = np.random.default_rng(0)
    along = jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)), members)
    h = 1e-4
    moved = [both(*jax.tree.map(lambda x, v, s=s: x + s * h * v, members, along))[0] for s in (2, 1, -1, -2)]
    wanted = (8 * (moved[1] - moved[2]) - moved[0] + moved[3]) / (12 * h)
    products = jax.tree.map(lambda a, b: jnp.sum((a * b).reshape(2, -1), axis=1), slopes, along)
    np.testing.assert_allclose(sum(jax.tree.leaves(products)), wanted, rtol=1e-7, atol=1e-9)
