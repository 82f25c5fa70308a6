"""Text of networks that is long or wrong: it is read, or refused at its place, within seconds."""

import random
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.models import ReactionNetwork
from tests.models.networks.test_reaction_network import NET, RTOL

LONG = {
    "a product": "A => B, " + "*".join(["A"] * 20000),
    "a difference": "A => B, " + "-".join(["A"] * 5000),
    "one line": "A -> B, 1;" + "".join(f"k{i}=1;" for i in range(1000)),
    "formulas that each need the last one twice": "A => B, k200; k0 = A\n"
    + "\n".join(f"k{i} = k{i - 1}*k{i - 1}" for i in range(1, 201)),
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_text_is_read_in_time(text):
    began = time.process_time()
    ReactionNetwork(text)
    assert time.process_time() - began < 15  # a tenth of that without checks of annotations, as users have it


def test_long_sums_have_the_value_of_short_ones():
    network = ReactionNetwork("A => B, A - 2*A + 3 - A/4/2*8 - 1; C => A, A < C || A > 2 && !(C >= 1)")
    rates = network.rates(0.0, jnp.array([3.0, 0.0, 1.5]))
    np.testing.assert_allclose(rates, [3 - 6 + 3 - 3 - 1, 0.0], rtol=RTOL)


SOUND = """
    bind: A + B <-> 2 C, kon*2^-1, koff  # both ways
    C => D, vmax*C^2/(K^2 + C^2) - if(t < 3 && C > 0.5, 0.1, -sqrt(2))
    D -> 0, log(K, 3) + 1
    kon = 1.5e-3; koff = max(0.1, 0.2); vmax = 2*pi; K = kon + 3
    A(0) = 4*K
"""
PIECES = [
    *("(", ")", "**", "^", "/0", "-", "!", ",", ";", "\n", "->", "<=>", "=", "1e999", "e", "9", ".", "#", "pi", "t"),
    *("∅", "A", "kon", "\x00", "é", "$", "begin", "exp(" * 99, "*A" * 999),
]


def test_text_with_faults_is_refused_at_its_place(tmp_path):
    """Drawn changes of good text: what is not read is a ValueError with line and column, and soon."""
    rng = random.Random(0)
    ReactionNetwork(SOUND)
    began, refused = time.process_time(), 0
    for case in range(400):
        text = SOUND if case % 2 else NET
        for _ in range(rng.choice([1, 1, 2, 5])):
            at, length = rng.randrange(len(text)), rng.choice([0, 0, 1, 2, 7])
            text = text[:at] + rng.choice([*PIECES, text[at : at + 9] * rng.choice([2, 50])]) + text[at + length :]
        (tmp_path / "drawn.net").write_text(text, newline="")
        try:
            network = ReactionNetwork(text) if case % 2 else ReactionNetwork.from_bionetgen(tmp_path / "drawn.net")
            assert network.species
        except ValueError as error:
            refused += 1
            assert re.search(r"line \d+, column \d+: ", str(error)), (text, error)
    assert 200 < refused < 400 and time.process_time() - began < 60
    (tmp_path / "drawn.net").write_bytes(NET.encode() + b"\n \xff")
    with pytest.raises(ValueError, match=r"line \d+, column 2: the file is not UTF-8 text"):
        ReactionNetwork.from_bionetgen(tmp_path / "drawn.net")


def test_a_power_has_a_jacobian_below_zero():
    """Amounts are below zero by rounding; the exponent, which is a parameter, has no derivative there."""
    network = ReactionNetwork("A => 0, v / (1 + (A / K)^n); v = 2; K = .5; n = 4; A(0) = 1")

    def rate(network, a):
        return network(0.0, a[None], None)[0]

    def exact(n, a):
        return -2 / (1 + (a / 0.5) ** n)

    for a in (1.0, 0.0, -1e-9, -0.1):
        slope = jax.grad(rate, argnums=(0, 1))(network, jnp.asarray(a))
        assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(slope))
        np.testing.assert_allclose(slope[1], jax.grad(exact, argnums=1)(4, a), rtol=1e-5)
    found = jax.grad(lambda n: rate(network.with_parameters(n=n), jnp.asarray(0.7)))(4.0)
    np.testing.assert_allclose(found, jax.grad(exact)(4.0, 0.7), rtol=1e-5)
