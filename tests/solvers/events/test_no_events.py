"""Where no event is given, the program is the one there would be if the loops knew nothing of events."""

import jax
import jax.numpy as jnp
import pytest

import sciml
from sciml.solvers.integrate import _fixed_steps, _integrator, _lane_integrator, _while_loop

Y0 = jnp.asarray([1.0, 0.5])
STEPS = {"fixed": dict(dt=0.1), "adaptive": dict(rtol=1e-4, atol=1e-4)}
EVENT = sciml.Event(lambda t, y, args: y[0] - 0.5, lambda t, y, args: -y)

KNOWING_NOTHING = {
    "saved_part": lambda y: y,
    "joined": lambda saved, like: saved,
    "stop_of": lambda y: None,
    "derivative_of_shift": lambda y, direction: None,
    "moved_by_events": lambda y0, y1, direction: None,
    "settled": lambda y0, y1, last: y1,
    "without_record": lambda state: (state, None),
    "joined_record": lambda state, record: state,
    "happenings": lambda state: (state, ()),
    "written": lambda lanes, record, events: record,
    "quiet_integrator": lambda integrator, lanes, state, operands: None,
}


def lowered(how, members, **events):
    def field(t, y, rate):  # another function each time, of which nothing is remembered
        del t
        return jnp.stack([y[1], -rate * y[0]])

    def total(rate):
        return jnp.sum(sciml.solve(field, Y0, t0=0.0, t1=1.0, args=rate, throw=False, **STEPS[how], **events).ys)

    fn = jax.value_and_grad(total)
    rates = jnp.linspace(0.5, 1.5, members) if members else jnp.asarray(1.0)
    return jax.jit(jax.vmap(fn) if members else fn).lower(rates).as_text()


@pytest.mark.parametrize("members", [0, 1100])
@pytest.mark.parametrize("how", STEPS)
def test_program_is_the_one_of_loops_that_know_nothing_of_events(how, members, monkeypatch):
    program = lowered(how, members)
    replaced = set()
    for module in (_fixed_steps, _integrator, _lane_integrator, _while_loop):
        for name in KNOWING_NOTHING.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, KNOWING_NOTHING[name])
            replaced.add(name)
    assert replaced == KNOWING_NOTHING.keys()
    assert lowered(how, members) == program


def test_none_is_no_event_whatever_was_solved_before():
    without = lowered("fixed", 3)
    assert lowered("fixed", 3, events=EVENT) != without
    assert lowered("fixed", 3, events=None) == without
