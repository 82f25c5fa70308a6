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

EVALUATIONS = {  # in the program of the ends, and in that of their gradient; fixed steps are taken two at a time
    "fixed": (dict(dt=0.1), diffrax.Tsit5(), (12, 20)),
    "adaptive": (dict(rtol=1e-4, atol=1e-4), diffrax.Tsit5(), (7, 17)),
    "stiff": (dict(rtol=1e-4, atol=1e-4), sciml.solvers.Rodas5P(), (9, 25)),
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
    functions = re.findall(r" call\(.*to_apply=%?([\w.\-]+).*xla_cpu_small_call", text)
    assert not any("sine" in opcodes(module, name) for name in functions)
