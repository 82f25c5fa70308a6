"""The function `delay` of SBML: delay equations, formulas of the past, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import models
from tests.conftest import X64

from .test_sbml import DELAY, TIGHT, TIME, ap, ci, cn, event, math, parameter, sbml

pytest.importorskip("sbmlode")


def delay(what, lag):
    return f"<apply>{DELAY}{what}{lag}</apply>"


def assigned(name, formula):
    return f'<assignmentRule variable="{name}">{math(formula)}</assignmentRule>'


def rate(name, formula):
    return f'<rateRule variable="{name}">{math(formula)}</rateRule>'


def test_a_delay_equation():
    """x' = -x(t - lag) with x = 1 before, and what depends on two pasts; derivatives by the lag."""
    text = sbml(
        parameters=parameter("x", 1, "false") + parameter("y", 0, "false") + parameter("half", 0.5)
        + parameter("lag", 1) + parameter("twice", 0, "false"),
        rules=rate("x", ap("minus", delay(ci("twice"), ci("lag")))) + assigned("twice", ap("times", cn(1), ci("x")))
        + assigned("y", ap("plus", delay(delay(ci("x"), ci("half")), ci("half")), delay(TIME, cn(2)))),
    )  # fmt: skip
    model = models.read_sbml(text)
    assert isinstance(model, sciml.AbstractDelayed) and model.states == ("x",)
    assert set(model.parameters) == {"half", "lag"} and model.delays.tolist() == [1.0, 1.0]
    ts = jnp.array([0.5, 1.5, 3.0])

    @jax.jit
    def both(model):
        options = dict(rtol=1e-8, atol=1e-10) if X64 else TIGHT
        sol = sciml.solve(model, model.y0, t0=0.0, t1=3.0, saveat=model.times_for(ts), **options)
        return model.values_at(ts, sol)

    values = both(model)
    atol = 1e-6 if X64 else 1e-4
    np.testing.assert_allclose(values[:, model.place("x")], [0.5, -0.5 + 0.125, -1 / 6], atol=atol)
    np.testing.assert_allclose(values[:, model.place("y")], [1 - 1.5, 0.5 - 0.5, -0.5 + 1.0], atol=atol)
    slope = jax.grad(lambda model: both(model)[1, model.place("x")])(model).model.parameters["lag"]
    np.testing.assert_allclose(slope, -0.5, atol=10 * atol)  # x = 1 - t + (t - lag)^2 / 2


def test_delays_of_known_functions_are_formulas():
    """A function of the time, and a constant whose initial assignment holds before the start."""
    start = f'<initialAssignment symbol="c">{math(ap("plus", cn(7), TIME))}</initialAssignment>'
    text = sbml(
        parameters="".join(parameter(n, 1, "false") for n in "abcx"),
        initial=start,
        rules=assigned("a", ap("times", TIME, TIME)) + rate("x", cn(1))
        + assigned("b", ap("plus", delay(ci("a"), ap("divide", TIME, cn(2))), delay(ci("c"), cn(1)))),
    )  # fmt: skip
    model = models.read_sbml(text)
    assert isinstance(model, models.networks._sbml_model.SBMLModel)
    found = [float(model.value("b", t, model.y0)) for t in (0.5, 4.0)]
    assert found == pytest.approx([0.25**2 + 7 - 0.5, 4 + 7])


@pytest.mark.parametrize(
    "lists, words",
    [
        (dict(rules=rate("x", delay(ci("x"), ci("x")))), "delay .`x`."),
        (
            dict(rules=rate("x", cn(1)), events=event(ap("gt", delay(ci("x"), cn(1)), cn(2)), {"x": cn(0)})),
            "delay .`hap",
        ),
        (
            dict(
                rules=rate("x", cn(1)) + assigned("y", delay(ci("x"), cn(1))),
                events=event(ap("gt", ci("y"), cn(2)), {"x": cn(0)}),
            ),
            "delay .`happens`.",
        ),
    ],
)
def test_delays_that_are_refused(lists, words):
    with pytest.raises(ValueError, match=f"unsupported feature: {words}"):
        models.read_sbml(sbml(parameters=parameter("x", 1, "false") + parameter("y", 1, "false"), **lists))
