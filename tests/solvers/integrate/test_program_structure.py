"""What XLA makes of an ensemble's loop: every evaluation of the model stands in it once, where LLVM makes vectors.

Asserted on the optimised program, since times say nothing on a busy machine. Seen on JAX 0.10.2 and 0.12.0.1.
"""

import re

import diffrax
import jax
import jax.numpy as jnp
import pytest

import sciml
from sciml.inspect._hlo_text import parse

MEMBERS = 24
Y0 = jnp.asarray([1.0, 0.5, -0.5])

EVALUATIONS = {
    # in the program of the ends, with the two of the first step's size, and in that of their gradient; fixed steps are
    # taken two at a time
    "fixed": (dict(dt=0.1), diffrax.Tsit5(), (12, 20)),
    "adaptive": (dict(rtol=1e-4, atol=1e-4), diffrax.Tsit5(), (8, 17)),
    "stiff": (dict(rtol=1e-4, atol=1e-4), sciml.solvers.Rodas5P(), (10, 25)),
}


def model(t, y, rate):
    """One sine, which nothing else in the program computes."""
    return jnp.stack([y[1], y[2] - rate * y[0], jnp.sin(y[0] * y[1])])


def ends(steps, solver):
    def one(rate):
        return sciml.solve(model, Y0, t0=0.0, t1=1.0, args=rate, solver=solver, throw=False, **steps).ys[-1]

    return jax.vmap(one)


def total(steps, solver):
    return jax.grad(lambda rates: jnp.sum(ends(steps, solver)(rates)))


def opcodes(module, name):
    """What a computation and all that it calls are made of."""
    for instruction in module.computations.get(name, ()):
        yield instruction.opcode
        for called in instruction.calls:
            yield from opcodes(module, called)


@pytest.mark.optimised
@pytest.mark.parametrize("what", [ends, total])
@pytest.mark.parametrize("how", EVALUATIONS)
def test_every_evaluation_stands_once_in_a_loop_of_its_own(how, what):
    steps, solver, evaluations = EVALUATIONS[how]
    text = jax.jit(what(steps, solver)).lower(jnp.linspace(0.5, 1.5, MEMBERS)).compile().as_text()
    module = parse(text)
    sines = sum(instruction.opcode == "sine" for instruction, _ in module.walk())
    assert 0 < sines <= evaluations[what is total]
    if what is ends and "dt" not in steps:  # beside the two of the first step's size
        inside = [sum(x.opcode == "sine" for x in body) for body in module.computations.values()]
        assert max(inside) <= evaluations[0] - 2
    functions = re.findall(r" call\(.*to_apply=%?([\w.\-]+).*xla_cpu_small_call", text)
    assert not any("sine" in opcodes(module, name) for name in functions)


@pytest.mark.optimised
@pytest.mark.parametrize("steps", [dict(dt=1e-3), dict(rtol=1e-4, atol=1e-4)])
def test_loop_of_many_members_copies_none_of_their_numbers(steps):
    members = 2048
    rates = jnp.linspace(0.5, 1.5, members)
    module = parse(jax.jit(ends(steps, diffrax.Tsit5())).lower(rates).compile().as_text())
    loops = [
        body
        for body in module.computations.values()
        if any("sine" in set(opcodes(module, called)) for x in body if x.opcode == "fusion" for called in x.calls)
        and any(x.opcode == "custom-call" for x in body)
    ]
    innermost = min(loops, key=lambda body: sum(x.opcode == "copy" for x in body))
    called = [x for x in innermost if x.opcode in ("fusion", "custom-call", "while", "call", "reduce", "copy")]
    # the first slope is a component of the state: one array in two places
    assert sum(x.opcode == "copy" and f"[{members}]" in x.shape for x in innermost) <= 1
    assert len(called) <= 8  # from so few calls on, XLA runs them in their order on one thread


def height(t, y, args):
    return y[0] - 0.5


@pytest.mark.optimised
def test_loop_of_many_members_with_events_takes_two_steps_before_it_gathers():
    members = 2048
    solve = ends(dict(rtol=1e-4, atol=1e-4, events=sciml.Event(height)), diffrax.Tsit5())
    module = parse(jax.jit(solve).lower(jnp.linspace(0.5, 1.5, members)).compile().as_text())

    def steps(body):
        return [x for x in body if x.opcode == "fusion" and any("sine" in opcodes(module, y) for y in x.calls)]

    loops = {n: x for n, x in module.computations.items() if any(y.opcode == "while" for y in x)}
    loops = {name: x for name, x in loops.items() if len(steps(x)) == 2}
    # what is gathered may take two steps, too
    within = {name for x in loops.values() for y in x if y.opcode == "while" for name in y.calls}
    (loop,) = (x for name, x in loops.items() if name not in within)
    copied = [x for x in loop if x.opcode == "copy" and f"[{members}]" in x.shape]
    assert not copied
