"""A model of the library that is given a state of another model says so: which argument, what came, what is right."""

import jax
import jax.numpy as jnp
import pytest

import sciml
from sciml import AbstractStochastic, models

from .. import registry_models, registry_neural, registry_pdes

F32 = jnp.float32


def ready(case):
    """A model, its state and the options of a solve."""
    if isinstance(case, registry_neural.Case):
        model = case.make(jax.random.key(0))
        noise = {"key": jax.random.key(1)} if isinstance(model, AbstractStochastic) else {}
        return model, case.y0(F32), {"args": case.args(), **noise}
    if isinstance(case, registry_models.Case):
        return case.make(), case.y0(F32), {}
    return case.make(), case.state(F32), {"dt": 1e-3}


def of_noise(name, y0):
    return registry_models.Case(name, getattr(models, name), y0, 1.0)


NOISY = (of_noise("BirthDeath", (3.0,)), of_noise("Schloegl", (250.0,)), of_noise("OrnsteinUhlenbeck", (0.1,)))
CASES = (*registry_models.CASES, *registry_pdes.CASES, *registry_neural.CASES, *NOISY)

ANY_LENGTH = {"Logistic", "Lorenz96", "OrnsteinUhlenbeck"}
ANY_SHAPE = {"Logistic", "OrnsteinUhlenbeck"}


def longer(x):
    return jnp.concatenate([x, x[..., :1]], -1) if x.ndim else jnp.stack([x, x])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_wrong_states_are_refused_by_name(case):
    with jax.numpy_dtype_promotion("standard"):
        model, y0, options = ready(case)
    if case in NOISY:
        options = {"key": jax.random.key(1)}
    wrong = {"tree": {"u": y0}, "pair": ((y0,), y0)}
    wrong |= {} if case.name in ANY_LENGTH else {"longer": jax.tree.map(longer, y0)}
    wrong |= {} if case.name in ANY_SHAPE else {"scalar": jnp.ones((), jax.tree.leaves(y0)[0].dtype)}
    for what, y in wrong.items():
        with pytest.raises((ValueError, TypeError), match="`y0`") as caught:
            sciml.solve(model, y, t0=0.0, t1=1e-3, **options)
        assert type(caught.value) in (ValueError, TypeError) and "PyTreeDef" not in str(caught.value), what


def test_what_the_model_takes_is_said():
    def refused(model, y0, message):
        with pytest.raises((ValueError, TypeError), match=message):
            sciml.solve(model, y0, t0=0.0, t1=1.0)

    refused(models.Lorenz63(), jnp.ones(2, F32), r"`y0` must have shape \(3,\), as `Lorenz63` takes it, but is float32")
    refused(models.Lorenz63(), (1.0, 1.0, 1.0), r"`y0` must be one array, as `Lorenz63` takes it, but is \(float")
    refused(models.Kepler(), jnp.ones((4, 4), F32), "For a batch of states use `jax.vmap` of the solve")
    grid = sciml.spatial.Grid((8, 8))
    flow = models.Advection(grid, sciml.spatial.Periodic(), jnp.ones((2, 8, 8)))
    refused(flow, jnp.ones((8, 9), F32), r"`y0`, float32\[8, 9\], does not suit `Advection`: the field must end with")
    burgers = models.Burgers(grid, sciml.spatial.Periodic())
    refused(burgers, jnp.ones((3, 2, 8, 8), F32), r"does not suit `Burgers`: the state must have shape \(2, \*grid\)")
    linear = models.Linear(jnp.eye(2))
    refused(linear, jnp.ones(3, F32), r"`y0`, float32\[3\], does not suit `Linear`: ")


CALLS = {
    "simulate": lambda model, y0: sciml.simulate(model, y0, t0=0.0, t1=1.0, save_every=0.5),
    "steady_state": sciml.steady_state,
}


@pytest.mark.parametrize("call", CALLS)
def test_long_runs_and_states_at_rest_say_it_too(call):
    def refused(model, y0, message):
        with pytest.raises((ValueError, TypeError), match=message):
            CALLS[call](model, y0)

    batch = {"simulate": "`in_axes`", "steady_state": "`jax.vmap` of this"}[call]
    refused(models.Lorenz63(), jnp.ones(2, F32), r"`y0` must have shape \(3,\), as `Lorenz63` takes it, but is float32")
    refused(models.Lorenz63(), jnp.ones((4, 3), F32), f"For a batch of states use {batch}")
    linear = models.Linear(jnp.eye(2))
    refused(linear, jnp.ones(3, F32), r"`y0`, float32\[3\], does not suit `Linear`: ")


def test_other_mistakes_are_not_blamed_on_the_state():
    """What a function of the user's raises within a model is the user's."""
    grid = sciml.spatial.Grid(8)

    def reaction(t, y, args):
        return jnp.stack([y[0], args["k"] * y[1]])

    model = models.ReactionDiffusion(reaction, grid, sciml.spatial.Periodic(), (0.1, 0.2))
    with pytest.raises(TypeError, match="NoneType"):
        sciml.solve(model, jnp.ones((2, 8)), t0=0.0, t1=0.1)
    with pytest.raises(TypeError, match="^`control` must have a method"):
        case = next(case for case in registry_neural.CASES if case.name == "NeuralCDE")
        sciml.solve(case.make(jax.random.key(0)), case.y0(), t0=0.0, t1=0.1)


@pytest.mark.parametrize("name, first", [("Maxwell", "permittivity"), ("ElasticWave", "lame"), ("Acoustic", "speed")])
def test_sides_in_the_place_of_a_coefficient(name, first):
    """Other models of fields take their boundary there."""
    with pytest.raises(TypeError, match=rf"`{name}\({first}=...\)` must be a number .* Periodic.* with `boundary=`"):
        getattr(models, name)(sciml.spatial.Grid((8, 8)), sciml.spatial.Periodic())
