"""Options that other libraries call otherwise: a call with one of their names says which of its own it is."""

import inspect
import re

import jax.numpy as jnp
import pytest

import sciml
from sciml import training
from sciml._option_names import OTHER_NAMES

FUNCTIONS = {
    "solve": sciml.solve,
    "simulate": sciml.simulate,
    "steady_state": sciml.steady_state,
    "continuation": sciml.bifurcation.continuation,
    "limit_cycle": sciml.bifurcation.limit_cycle,
    "steady_states": sciml.bifurcation.steady_states,
    "locate": sciml.bifurcation.locate,
    "locus": sciml.bifurcation.locus,
    "optimise": sciml.control.optimise,
    "receding_horizon": sciml.control.receding_horizon,
    "fit": sciml.fit,
    "train": training.train,
    "ensemble": sciml.parallel.ensemble,
    "sweep": sciml.parallel.sweep,
    "sobol_indices": sciml.inference.sobol_indices,
    "morris_effects": sciml.inference.morris_effects,
}


def decay(t, y, args):
    return -y


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_names_are_of_others_and_options_are_ours(name):
    """No entry hides an option, and none names an option that there is not."""
    options = inspect.signature(FUNCTIONS[name]).parameters
    assert not options.keys() & OTHER_NAMES[name].keys()
    for other, ours in OTHER_NAMES[name].items():
        first = re.match(r"([a-z0-9_]+)=", ours)
        assert first is None or first[1] in options, (other, ours)
        assert first or "`" in ours or " " in ours


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_every_name_is_answered(name):
    for other, ours in OTHER_NAMES[name].items():
        with pytest.raises(TypeError, match=f"`{name}` has no option `{other}`: it is ") as caught:
            FUNCTIONS[name](**{other: 1})
        assert ours.split(",")[0] in str(caught.value)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"t_eval": [0.5]}, r"^`solve` has no option `t_eval`: it is `saveat=`\.$"),
        ({"method": "RK45"}, r"^`solve` has no option `method`: it is `solver=`\.$"),
        ({"max_step": 0.1}, r"it is `stepsize_controller=diffrax.PIDController\(rtol=..., atol=..., dtmax=...\)`\.$"),
        ({"jac": None}, "it is computed from the program of the model, with its zeros, and need not be given"),
        ({"dense_output": True}, r"`saveat=diffrax.SaveAt\(dense=True\)`, with which `sol.evaluate\(t\)` is the state"),
        ({"solvr": None}, "^`solve` has no option `solvr`: did you mean `solver`"),
        ({"xyzzy": None}, "^`solve` has no option `xyzzy`. It has `adjoint`, `args`, .*`y0`"),
        ({"t_span": (0, 1), "tol": 1}, "^`solve` has no option `t_span`: .* `solve` has no option `tol`: "),
    ],
)
def test_what_is_said(options, message):
    with pytest.raises(TypeError, match=message):
        sciml.solve(decay, jnp.ones(2), **options)


def test_arguments_too_many():
    """As `solve_ivp(fun, t_span, y0)` has them."""
    with pytest.raises(TypeError, match=r"`solve` takes `model`, `y0` in this order .* but got 3 arguments without"):
        sciml.solve(decay, (0.0, 1.0), jnp.ones(2))


def test_a_mass_matrix_is_where_the_words_say():
    stiff = sciml.solvers.Rodas5P(mass=jnp.diag(jnp.array([2.0, 1.0])))
    end = sciml.solve(decay, jnp.ones(2), t0=0.0, t1=1.0, solver=stiff).ys[-1]
    assert jnp.allclose(end, jnp.exp(jnp.array([-0.5, -1.0])), rtol=1e-3)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_signature_stays(name):
    """Help and type checkers see the options one by one, and none is swallowed."""
    kinds = {x.kind for x in inspect.signature(FUNCTIONS[name]).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds and FUNCTIONS[name].__doc__
