"""Events as SBML means them: those of one time, delays, priorities, persistence, and the start."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import models

from .test_sbml import ATOL, TIME, ap, ci, cn, event, math, parameter, sbml, solved

pytest.importorskip("sbmlode")


def delay(formula):
    return f"<delay>{math(formula)}</delay>"


def priority(formula):
    return f"<priority>{math(formula)}</priority>"


def rate(name, formula):
    return f'<rateRule variable="{name}">{math(formula)}</rateRule>'


def variables(**values):
    return "".join(parameter(name, value, "false") for name, value in values.items())


def after(name):
    return ap("plus", ci(name), cn(1))


def test_events_of_one_time():
    """One makes another happen, two exchange their values, and those after a trigger that was false are as before."""
    at = ap("geq", TIME, cn(1))
    text = sbml(
        parameters=variables(S=1, P=0, A=1, B=2, C=0, D=0),
        events=event(at, {"S": cn(10)}, name="E0")
        + event(ap("gt", ci("S"), cn(5)), {"P": cn(1), "C": ci("A")}, name="E1")
        + event(at, {"A": ci("B")}, name="E2")
        + event(at, {"B": ci("A")}, name="E3")
        + event(ap("gt", ci("P"), cn(5)), {"D": cn(1)}, name="never"),
    )
    model = models.read_sbml(text)
    sol = solved(model, 2.0)
    end = dict(zip(model.states, np.asarray(sol.ys[-1])))
    # E1 is triggered after E0 was executed, and takes its values there, while E2 still waits
    assert end == {"S": 10, "P": 1, "A": 2, "B": 1, "C": 1, "D": 0}
    assert sol.events.count == 1 and abs(sol.events.times[0] - 1) < 1e-6


def sawtooth(persistent="true", early="true"):
    """x grows and falls back from top; each time it passes a third, w is set to it and n counts, after a delay."""
    return models.read_sbml(
        sbml(
            parameters=variables(x=0, n=0, w=0) + parameter("lag", 1.25) + parameter("top", 0.5),
            rules=rate("x", cn(1)),
            events=event(
                ap("geq", ci("x"), cn(1 / 3)), {"n": after("n"), "w": ci("x")}, delay(ci("lag")),
                persistent=persistent, early=early, name="late",
            )
            + event(ap("geq", ci("x"), ci("top")), {"x": cn(0)}, name="fall"),
        )
    )  # fmt: skip


@pytest.mark.parametrize("adjoint", ["Checkpointed", "Forward"])
def test_delays_and_their_derivatives(adjoint):
    """Three executions are pending at a time; w is what x was when the last of them was triggered, or now."""
    late = sawtooth(early="false")
    end = lambda m: solved(m, 2.9, adjoint=getattr(sciml.adjoints, adjoint)()).ys[-1]  # noqa: E731
    value, slopes = jax.jit(lambda m: (end(m), jax.jacrev(end)(m)))(late)
    # triggers at 1/3 + k/2, executions 1.25 later: the third at 2.5833, where x has grown for .0833 since 2.5
    np.testing.assert_allclose(value[np.array([late.index("n"), late.index("w")])], [3, 1 / 12], atol=ATOL)
    w = late.index("w")
    np.testing.assert_allclose(slopes.parameters["lag"][w], 1.0, atol=1e-3)
    # of the triggers the third comes 2 tops later, and the fall before the execution is the fifth
    np.testing.assert_allclose(slopes.parameters["top"][w], 2 - 5, atol=1e-3)


def test_values_from_the_trigger_and_persistence():
    model = sawtooth()
    sol = solved(model, 2.9, saveat=jnp.array([1.5, 1.6, 2.9]))
    np.testing.assert_allclose(sol.ys[:, model.index("n")], [0, 1, 1], atol=ATOL)  # n was 0 at all three triggers
    np.testing.assert_allclose(sol.ys[-1, model.index("w")], 1 / 3, atol=ATOL)
    model = sawtooth("false")
    np.testing.assert_allclose(solved(model, 2.9).ys[-1, model.index("n")], 0)  # x has fallen in the meantime


def test_pending_executions_beyond_those_that_are_kept_are_a_status():
    model = sawtooth()
    sol = sciml.solve(model, model.y0, t0=0.0, t1=2.9, events=model.events(pending=2), throw=False)
    assert sol.status == sciml.Status.pending_events and abs(sol.t_reached - 4 / 3) < 1e-3
    with pytest.raises(ValueError, match="`pending` must be a positive integer"):
        model.events(pending=0)


def test_priorities_and_orders_that_differ_between_members():
    """Two events of one time: the larger priority first, which an execution may change; members have their own."""
    now = dict(early="false", name="E0")
    text = sbml(
        parameters=variables(x=0, u=0, v=0, w=0) + parameter("p", 1) + parameter("q", 2) + parameter("when", 1),
        rules=rate("x", cn(1)),
        events=event(ap("geq", ci("x"), ci("when")), {"u": after("w"), "w": after("w")}, priority(ci("p")), **now)
        + event(ap("geq", TIME, cn(1)), {"v": after("w"), "w": after("w")}, priority(ci("q")), **(now | {"name": "E1"}))
        + event(ap("geq", ci("w"), cn(1)), {"w": after("w")}, priority(ap("times", cn(1.5), ci("u"))), name="E2"),
    )  # fmt: skip
    model = models.read_sbml(text)

    def end(q, when):
        other = eqx.tree_at(lambda m: (m.parameters["q"], m.parameters["when"]), model, (q, when))
        return solved(other, 2.0).ys[-1]

    q, when = jnp.array([2.0, 0.5, 1.2, 0.0]), jnp.array([1.0, 1.0, 0.5, 1.5])
    found = jax.jit(jax.vmap(end))(q, when)[:, np.array([model.index(n) for n in "uvw"])]
    # E2 waits with the priority 1.5 u, 0 as long as u is 0 and 1.5 after E0, to set w to 2
    np.testing.assert_allclose(found, [[2, 1, 2], [1, 3, 3], [1, 3, 3], [3, 1, 3]], atol=ATOL)


def test_the_start_and_a_compartment_that_an_event_resizes():
    """What holds at the start happens there where `initialValue` is false; amounts stay where a compartment grows."""
    concentration = (
        '<species id="S" compartment="V" initialConcentration="3" hasOnlySubstanceUnits="false" '
        'boundaryCondition="false" constant="false"/>'
    )
    text = sbml(
        compartments='<compartment id="V" size="2" constant="false"/>',
        species=concentration,
        parameters=variables(n=0, m=0, k=0),
        rules=rate("k", cn(1)),
        events=event(ap("lt", ci("k"), cn(0.5)), {"n": after("n")}, initial="false", name="start")
        + event(ap("gt", ci("n"), cn(0)), {"m": cn(1)}, name="then")
        + event(ap("geq", ci("k"), cn(0.7)), {"V": cn(6)}, name="grows"),
    )
    model = models.read_sbml(text)
    sol = solved(model, saveat=jnp.array([0.0, 1.0]))
    n, m, s = map(model.index, "nmS")
    np.testing.assert_allclose(sol.ys[:, np.array([n, m])], [[1, 1], [1, 1]])
    np.testing.assert_allclose(sol.ys[:, s], [3, 1], rtol=1e-6)


def test_events_without_end_and_continuous_adjoints():
    text = sbml(
        parameters=variables(a=0, b=0),
        events=event(ap("geq", TIME, cn(1)), {"a": cn(1)}, name="E0")
        + event(ap("gt", ci("a"), ci("b")), {"b": ap("plus", ci("a"), cn(1))}, name="E1")
        + event(ap("gt", ci("b"), ci("a")), {"a": ap("plus", ci("b"), cn(1))}, name="E2"),
    )
    model = models.read_sbml(text)
    sol = solved(model, 2.0)
    assert sol.status == sciml.Status.crowded_events and abs(sol.t_reached - 1) < 1e-6
    with pytest.raises(ValueError, match="require `t1` after `t0`"):
        solved(model, -1.0)
    with pytest.raises(ValueError, match="continuous adjoint does not support"):
        solved(model, 2.0, adjoint=sciml.adjoints.Gauss())
