"""What someone reads whose model cannot be traced: the line of their own, and a cure."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers.terms._explain import check_callable

Y0 = jnp.ones(2)


def decides(t, y, args):
    if y[0] > 0.5:  # the line that is named
        return -y
    return y


def converts(t, y, args):
    return -float(y[0]) * y


def numpys(t, y, args):
    return np.sin(y)


def indexes(t, y, args):
    return -y["position"]


def uses_args(t, y, args):
    return -args * y


def decays(t, y, args):
    return -0.1 * y


@pytest.mark.parametrize(
    ("model", "line", "cure"),
    [
        (decides, "if y[0] > 0.5:", "`jnp.where(condition, a, b)`"),
        (converts, "return -float(y[0]) * y", "Remove `float()`"),
        (numpys, "return np.sin(y)", "Use the same function of `jax.numpy` or `jax.scipy`"),
        (indexes, 'return -y["position"]', "structure of `y0`"),
        (uses_args, "return -args * y", "`args` is None because it was not given"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"dt": 0.1}, {"solver": diffrax.Kvaerno3(), "rtol": 1e-3, "atol": 1e-3}])
def test_the_users_line_and_a_cure(model, line, cure, options):
    for call in (lambda y: sciml.solve(model, y, t0=0.0, t1=1.0, **options), jax.jit(lambda y: run(model, y, options))):
        with pytest.raises((TypeError, jax.errors.JAXTypeError)) as caught:
            call(Y0)
        notes = [note for note in caught.value.__notes__ if note.startswith("sciml: ")]
        assert len(notes) == 1 and __file__ in notes[0] and line in notes[0] and cure in notes[0]


@pytest.mark.parametrize(("drift", "diffusion"), [(numpys, decays), (decays, decides)])
def test_models_with_noise_have_notes_too(drift, diffusion):
    with pytest.raises(jax.errors.JAXTypeError) as caught:
        sciml.solve(sciml.Stochastic(drift, diffusion), Y0, t0=0.0, t1=1.0, dt=0.5, key=jax.random.key(0))
    assert any(__file__ in note and "Use " in note for note in caught.value.__notes__)


def test_the_order_of_arguments():
    with pytest.raises(IndexError) as caught:
        sciml.solve(lambda y, t, args: jnp.stack([y[1], -y[0]]), Y0, t0=0.0, t1=1.0)
    assert any("The first argument is the time" in note for note in caught.value.__notes__)
    with pytest.raises(ValueError, match="The first argument is the time"):
        sciml.solve(lambda y, t, args: -y, Y0, t0=0.0, t1=1.0)


def test_arrays_of_numpy_and_lists():
    def fills(t, y, args):
        rate = np.zeros(2)
        rate[0] = y[1]
        return rate

    with pytest.raises(ValueError, match="sequence") as caught:
        sciml.solve(fills, Y0, t0=0.0, t1=1.0)
    assert any("jnp.stack" in note for note in caught.value.__notes__)
    with pytest.raises(ValueError, match="Return a tuple"):
        sciml.solve(lambda t, y, args: [y[1], -y[0]], (Y0, Y0), t0=0.0, t1=1.0)


def test_errors_of_sciml_need_no_cure():
    event = sciml.Event(lambda t, y, args: y)
    with pytest.raises(ValueError, match="must return one number") as caught:
        sciml.solve(lambda t, y, args: -y, Y0, t0=0.0, t1=1.0, events=event)
    notes = [note for note in caught.value.__notes__ if note.startswith("sciml: ")]
    assert notes and not any("jax.numpy" in note for note in notes)


def test_a_tuple_where_the_model_takes_an_array():
    def model(t, y, args):
        return -y.reshape(-1)

    for options in ({}, {"solver": diffrax.Euler(), "dt": 0.1}):
        with pytest.raises(AttributeError) as caught:
            run(model, (jnp.ones(2), jnp.ones(2)), options)
        assert any("Combine the parts of the state with `jnp.stack([...])`" in note for note in caught.value.__notes__)


def test_a_model_that_closes_over_what_has_ended():
    dense = diffrax.SaveAt(dense=True)

    def solve(rate):
        return sciml.solve(lambda t, y, args: -rate * y, Y0, t0=0.0, t1=1.0, dt=0.5, saveat=dense, max_steps=2)

    sols = jax.vmap(solve)(jnp.ones(2))
    with pytest.raises(jax.errors.UnexpectedTracerError) as caught:
        jax.vmap(lambda sol: sol.evaluate(0.5))(sols)
    assert any("as `args` or as leaves of a module" in note for note in caught.value.__notes__)


def run(model, y, options):
    return sciml.solve(model, y, t0=0.0, t1=1.0, **options).ys


def noise():
    return diffrax.VirtualBrownianTree(0.0, 1.0, 1e-3, (), jax.random.key(0))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (diffrax.ODETerm(decides), "Pass its `vector_field`"),
        (diffrax.ControlTerm(decides, noise()), "only `sciml.solve` with a diffrax solver"),
        (
            diffrax.MultiTerm(diffrax.ODETerm(decides), diffrax.ControlTerm(decides, noise())),
            "`MultiTerm`.*with a diffrax solver",
        ),
        (sciml.models.Lorenz63, "is a class: make an instance"),
        (lambda y, t: y, r"its signature is \(y, t\)"),
        (3.0, "but is 3.0"),
    ],
)
def test_what_is_no_model(model, message):
    with pytest.raises(TypeError, match=message):
        check_callable(model)
    calls = (sciml.steady_state, sciml.simulate)
    for call in calls if isinstance(model, diffrax.AbstractTerm) else (sciml.solve, *calls):
        times = {
            sciml.steady_state: {},
            sciml.solve: dict(t0=0.0, t1=1.0),
            sciml.simulate: dict(t0=0.0, t1=1.0, save_every=0.5),
        }
        # Where the tests check annotations, that comes first.
        with pytest.raises(TypeError, match=f"{message}|Type-check error"):
            call(model, Y0, **times[call])
