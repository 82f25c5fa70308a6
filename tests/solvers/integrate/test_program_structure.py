"""What XLA makes of an ensemble's loop: every evaluation of the model stands in it once, where LLVM makes vectors.

Asserted on the optimised program, since times say nothing on a busy machine. Seen on JAX 0.10.2 and 0.12.0.1.
"""

import re

import diffrax
import jax
import jax.numpy as jnp
import pytest

import sciml

MEMBERS = 24
Y0 = jnp.asarray([1.0, 0.5, -0.5])

EVALUATIONS = {  # of the model, in the loop and before it; an iteration of fixed steps takes two
    "fixed": (dict(dt=0.1), diffrax.Tsit5(), 2 * 6),
    "adaptive": (dict(rtol=1e-4, atol=1e-4), diffrax.Tsit5(), 6 + 2),
    "stiff": (dict(rtol=1e-4, atol=1e-4), sciml.solvers.Rodas5P(), 8 + 2),
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


def computations(text):
    """The computations of a program by name, each with the names of those that it calls."""
    found = {}
    for part in re.split(r"\n(?=(?:ENTRY )?%\S+ \()", text):
        name = re.match(r"(?:ENTRY )?%(\S+) \(", part)
        if name:
            found[name[1]] = part
    return found


def within(parts, name):
    """The text of a computation and of all that it calls."""
    called = [x for x in re.findall(r"%([\w.\-]+)", parts[name]) if x in parts and x != name]
    return parts[name] + "".join(within(parts, x) for x in dict.fromkeys(called))


@pytest.mark.optimised
@pytest.mark.parametrize("what", [ends, total])
@pytest.mark.parametrize("how", EVALUATIONS)
def test_every_evaluation_stands_once_in_a_loop_of_its_own(how, what):
    steps, solver, evaluations = EVALUATIONS[how]
    text = jax.jit(what(steps, solver)).lower(jnp.linspace(0.5, 1.5, MEMBERS)).compile().as_text()
    sines = len(re.findall(r" sine\(", text))
    assert sines <= evaluations * (1 if what is ends else 3)
    parts = computations(text)
    functions = re.findall(r" call\(.*to_apply=%([\w.\-]+).*xla_cpu_small_call", text)
    assert not any(" sine(" in within(parts, name) for name in functions)
