"""Networks of reactions: against models written by hand and exact solutions, and text that cannot be read."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import sciml
from sciml import models
from sciml.models import Arrhenius, ReactionNetwork
from tests.conftest import X64

RTOL = 1e-10 if X64 else 1e-5

HAND = {
    "Robertson": (
        models.Robertson(),
        "A -> B, k1; 2 B -> B + C, k2; B + C -> A + C, k3; k1 = 0.04; k2 = 3e7; k3 = 1e4",
    ),
    "Brusselator": (
        models.Brusselator(),
        "0 -> X, a; 2 X + Y -> 3 X, 1; X -> Y, b; X -> 0, 1; a = 1; b = 3",
    ),
    "LotkaVolterra": (
        models.LotkaVolterra(alpha=0.5, beta=0.03, gamma=0.8, delta=0.02),
        "0 => Prey, 0.5*Prey; Prey => 0, 0.03*Prey*Hunter; Hunter -> 0, 0.8; 0 => Hunter, 0.02*Prey*Hunter",
    ),
}


@pytest.mark.parametrize("name", HAND)
def test_rates_are_those_of_models_written_by_hand(name):
    hand, text = HAND[name]
    network = ReactionNetwork(text)
    y = jnp.arange(1.0, 1.0 + len(network.species))
    np.testing.assert_allclose(network(0.0, y, None), hand(0.0, y, None), rtol=RTOL)
    jacobians = [jax.jacfwd(lambda y, m=m: m(0.0, y, None))(y) for m in (network, hand)]
    np.testing.assert_allclose(*jacobians, rtol=RTOL)


def test_a_linear_chain_is_its_exact_solution_with_derivatives():
    """Three steps one after another, members that differ in all rates, and their gradients."""
    n = 3
    taken, made = np.eye(n + 1)[:n], np.eye(n + 1)[1:]
    rates = np.linspace(0.5, 2.0, n)
    network = ReactionNetwork.from_stoichiometry(taken, made, rates, initial=np.eye(n + 1)[0])
    np.testing.assert_array_equal(network.conservation_laws(), np.ones((1, n + 1)))

    def end(rates):
        model = eqx.tree_at(lambda m: m.parameters["rates"], network, rates)
        tolerances = dict(rtol=1e-9, atol=1e-11) if X64 else dict(rtol=1e-5, atol=1e-7)
        return sciml.solve(model, model.y0, t0=0.0, t1=1.5, throw=False, **tolerances).ys[-1]

    def exact(rates):
        matrix = jnp.zeros((n + 1, n + 1)).at[np.arange(n), np.arange(n)].set(-rates)
        return jax.scipy.linalg.expm(1.5 * matrix.at[np.arange(1, n + 1), np.arange(n)].set(rates))[:, 0]

    many = jnp.asarray(rates)[None] * jnp.array([[1.0], [0.8]])
    found, slopes = jax.jit(jax.vmap(lambda r: (end(r), jax.grad(lambda r: end(r)[2])(r))))(many)
    atol = 1e-8 if X64 else 1e-4
    np.testing.assert_allclose(found, jax.vmap(exact)(many), atol=atol)
    np.testing.assert_allclose(slopes, jax.vmap(jax.grad(lambda r: exact(r)[2]))(many), atol=10 * atol)


def test_size_of_the_program_and_pattern_of_a_large_network():
    """A thousand reactions are as few operations as ten, and the Jacobian has the entries of the network."""

    def ring(n):
        turned = np.roll(np.eye(n), 1, axis=1)
        rates = np.linspace(1.0, 2.0, 2 * n)
        return ReactionNetwork.from_stoichiometry(
            np.concatenate([np.eye(n), np.eye(n) + turned]), np.concatenate([turned, 2 * turned]), rates
        )

    def operations(n):
        return len(jax.make_jaxpr(lambda y: ring(n)(0.0, y, None))(jnp.ones(n)).eqns)

    assert operations(500) == operations(10) < 60
    found = sciml.inspect.jacobian(ring(50), jnp.ones(50))
    exact = jax.jacfwd(lambda y: ring(50)(0.0, y, None))(jnp.arange(1.0, 51.0))
    assert found.entries == np.count_nonzero(exact) == 150


def test_a_species_of_many_reactions_is_one_sum():
    """An enzyme that binds each of many: the program does not grow, and the rates are those of the stoichiometry."""

    def network(n):
        free, held, enzyme = np.eye(n, 2 * n + 1), np.eye(n, 2 * n + 1, n), np.eye(1, 2 * n + 1, 2 * n)
        rates = np.linspace(1.0, 2.0, 2 * n)
        return ReactionNetwork.from_stoichiometry(
            np.concatenate([free + enzyme, held]), np.concatenate([held, free + enzyme]), rates
        )

    def operations(n):
        return len(jax.make_jaxpr(lambda y: network(n)(0.0, y, None))(jnp.ones(2 * n + 1)).eqns)

    assert operations(200) == operations(60) < 60
    n, y = 60, jnp.linspace(0.5, 1.5, 121)
    speeds = np.linspace(1.0, 2.0, 120) * np.concatenate([y[:n] * y[-1], y[n:-1]])
    bound = speeds[n:] - speeds[:n]
    np.testing.assert_allclose(network(n)(0.0, y, None), [*bound, *-bound, bound.sum()], rtol=RTOL, atol=10 * RTOL)
    assert sciml.inspect.jacobian(network(n), y).entries == 6 * n + 2 * n + 1


def test_saturation_temperature_time_and_names():
    network = ReactionNetwork(
        """
        binding: E + S <-> C, kon, koff
        C -> E + P, arrhenius(A, 0.5, Ea)   # J/mol
        P => 0, if(t < 1, v*P/(K + P), 0)
        kon = 2; koff = 0.5; A = 1e3; Ea = 2e4; T = 300; v = 1; K = koff/kon
        total = E + C
        E(0) = e0; S(0) = 2*e0
        e0 = 0.1
        """,
        dict(v=3.0),
    )
    assert network.species == ("E", "S", "C", "P")
    assert network.reaction_names == ("binding", "binding back", "3", "4")
    assert str(network).startswith("4 species, 4 reactions, ") and str(network).count("\n") == 4
    y = jnp.array([1.0, 2.0, 3.0, 0.5])
    k = 1e3 * 300**0.5 * np.exp(-2e4 / (8.31446261815324 * 300))
    np.testing.assert_allclose(network.rates(0.0, y), [4.0, 1.5, 3 * k, 3 * 0.5 / 0.75], rtol=RTOL)
    assert network.rates(2.0, y)[3] == 0
    assert network.value("total", 0.0, y) == 4
    np.testing.assert_allclose(network.y0, [0.1, 0.2, 0.0, 0.0], rtol=RTOL)
    slope = jax.grad(lambda m: m.state(P=1.0).sum())(network)
    np.testing.assert_allclose(slope.parameters["e0"], 3.0)
    laws = network.conservation_laws()
    assert [1, 0, 1, 0] in laws.tolist()
    np.testing.assert_allclose(laws @ np.asarray(network(0.0, y, None)), 0 * laws[:, 0], atol=1e-3)
    again = ReactionNetwork("\n".join(network.reactions), dict(network.parameters, K=0.25))
    np.testing.assert_allclose(again(0.0, y, None), network(0.0, y, None), rtol=RTOL)


def test_arrhenius_of_arrays():
    law = Arrhenius([1e3, 2e3], 0.5, [1e4, 2e4], 350.0)
    network = ReactionNetwork.from_stoichiometry([[1, 0], [0, 2]], [[0, 1], [1, 0]], law, species="AB")
    y = jnp.array([0.5, 0.25])
    np.testing.assert_allclose(network.rates(0.0, y), law() * jnp.array([0.5, 0.0625]), rtol=RTOL)
    warmer = jax.grad(lambda m: m.rates(0.0, y)[1])(network).parameters["temperature"]
    np.testing.assert_allclose(warmer, jax.grad(lambda law: law()[1])(law).temperature * 0.0625, rtol=10 * RTOL)


def test_single_molecules_have_the_right_propensities():
    """Falling powers, volumes, and what lacks; for many molecules the rate equations come back."""
    network = ReactionNetwork("0 -> A, 3; 2 A -> B, k; A + B -> 0, 0.5; B => A, B/(1 + B); k = 0.25")
    molecules = network.single_molecules(volume=4.0)
    assert isinstance(molecules, sciml.AbstractReactions)
    a, b, v = 5.0, 2.0, 4.0
    expected = [3 * v, 0.25 / v * a * (a - 1), 0.5 / v * a * b, v * (b / v) / (1 + b / v)]
    np.testing.assert_allclose(molecules.propensities(jnp.array([a, b]), None), expected, rtol=RTOL)
    none = molecules.propensities(jnp.array([1.0, 0.0]), None)
    np.testing.assert_array_equal(none[1:], np.zeros(3))
    many = 1e7 * jnp.array([1.0, 2.0])
    large = network.single_molecules(volume=1e7)
    rates = large.rate_equations(0.0, many, None) / 1e7
    np.testing.assert_allclose(rates, network(0.0, many / 1e7, None), rtol=1e-5)
    slope = jax.grad(lambda m: m.propensities(jnp.array([a, b]), None)[1])(molecules)
    np.testing.assert_allclose(slope.parameters["k"], 5.0)


def test_a_birth_and_death_process_has_its_law():
    network = ReactionNetwork("0 -> X, 10; X -> 0, 1").single_molecules()

    def count(key):
        return sciml.solve(network, jnp.zeros(1), t0=0.0, t1=6.0, key=key, throw=False).ys[-1, 0]

    counts = jax.jit(jax.vmap(count))(jax.random.split(jax.random.key(0), 500))
    assert abs(float(counts.mean()) - 10) < 0.6 and abs(float(counts.var()) - 10) < 2.5


NET = """# Created by BioNetGen
begin parameters
    1 kp 2.0  # Constant
    2 km 0.5*kp  # ConstantExpression
    3 A0 4
end parameters
begin functions
    1 slow() 1/(1+Free)
end functions
begin species
    1 A(b) A0
    2 B(a) 1
    3 A(b!1).B(a!1) 0
    4 $Source() 1
end species
begin reactions
    1 1,2 3 kp #binding
    2 3 1,2 km
    3 1,1 2 0.5*kp
    4 4 1,4 slow
end reactions
begin groups
    1 Free 1,2*2
end groups
"""


def test_a_net_file(tmp_path):
    (tmp_path / "small.net").write_text(NET)
    network = ReactionNetwork.from_bionetgen(tmp_path / "small.net")
    assert sorted(network.parameters) == ["A0", "kp"]
    np.testing.assert_allclose(network.y0, [4.0, 1.0, 0.0, 1.0])
    a, b, c, s = y = jnp.array([3.0, 2.0, 1.0, 1.0])
    rates = [2 * a * b, c, a * a, s / (1 + a + 2 * b)]
    np.testing.assert_allclose(network.rates(0.0, y), rates, rtol=RTOL)
    changed = network(0.0, y, None)
    np.testing.assert_allclose(changed[0], -rates[0] + rates[1] - 2 * rates[2] + rates[3], rtol=RTOL)
    assert changed[3] == 0
    np.testing.assert_allclose(network.single_molecules().propensities(y, None)[2], a * (a - 1), rtol=RTOL)
    for old, new, words in (
        ("1,2 3 kp", "1,9 3 kp", "line 17, column 9: there is no species number `9`"),
        ("4 1,4 slow", "4 1,4 Sat kp", "line 20, column 13: rate laws of type `Sat` are not supported"),
        ("4 1,4 slow", "4 1,4 fast", "line 20, column 13: `fast` is used but has no value"),
        ("begin reactions", "begin reaction", "line 1, column 1: this is not a BioNetGen network"),
        ("1/(1+Free)", "1/(1+Free", r"line 8, column 23: expected `\)`"),
        ("1/(1+Free)", "2 + 1/0", "line 8, column 14: a part of the formula evaluates to inf"),
        ("1/(1+Free)", "1/slow()", "line 8, column 1: formulas depend on one another in a cycle: slow -> slow"),
        ("2 B(a) 1", "2 A(b) 1", "line 12, column 7: there are two species"),
        ("1,2*2", "1,x*2", "line 23, column 14: `x` is not a number of molecules"),
        ("2 3 1,2 km", "2 3 1,2", "line 18, column 12: a reaction must have a number, reactants"),
    ):
        (tmp_path / "bad.net").write_text(NET.replace(old, new))
        with pytest.raises(ValueError, match=words):
            ReactionNetwork.from_bionetgen(tmp_path / "bad.net")


@pytest.mark.parametrize(
    "text, words",
    [
        ("A -> B, k", r"column 9: unknown name `k`. Define it: `k = 1.0`"),
        ("A -> B, rate7; rate1 = 1", r"line 1, column 9: unknown name `rate7`. Did you mean `rate1`\?\n.*\n +\^"),
        ("\nA -> B", "line 2, column 7: `->` needs a rate after a comma"),
        ("A + -> B, 1", "column 5: expected a species, but found `->`"),
        ("A -> B, 2*A", "depends on the species `A`; write `=>`"),
        ("A -> B, k; k = v*A; v = 1", "depends on the species `A`"),
        ("A -> B, 2*(3", "column 13: expected `\\)`"),
        ("A => B, foo(A)", "unknown function `foo`"),
        ("A => B, log(A, 2, 3)", "takes 1 or 2 arguments, not 3"),
        ("A -> B, 1, 2", "too many rates"),
        ("A <-> B, 1", "needs two rates"),
        ("A -> B, k; k = 1; k = 2", "already has a value, in line 1"),
        ("A -> B, 1 @ 2", "`@` is not valid here"),
        ("A -> B, 1 $ 2", "unexpected `\\$`"),
        ("A → B, 1", "column 3: `→` is not valid here: write `->`"),
        ("A ⟶ B, 1", "`⟶` is not valid here: write `->`"),
        ("A ⇌ B, 1, 2", "`⇌` is not valid here: write `<->`"),
        ("A = B, 1", "column 3: a value cannot have a rate after a comma.*write `->` or `<->`"),
        ("A + B = C, 1", "expected `=`, or an arrow: `->` for mass action"),
        ("A -> B, arrhenius(1, 2, 3)", "needs a temperature"),
        ("A -> B, 1; A = 2", "is a species"),
        ("A -> B, 1; C(0) = 2", "is in no reaction"),
        ("A -> B, 1; A(0) = B", "can only depend on parameters"),
        ("0 -> 0, 1", "without reactants and products"),
        ("k = 1", "line 1, column 1: the text has no reaction"),
        ("A -> B, k; k = 1/0", "line 1, column 16: a part of the formula evaluates to inf"),
        ("A -> B, k\nk = 9**9**9**9", "line 2, column 5: a part of the formula evaluates to inf"),
        ("A -> B, (-8)**(1/3)", "line 1, column 9: a part of the formula evaluates to nan"),
        ("A => B, A*sqrt(-1)", "line 1, column 9: a part of the formula evaluates to nan"),
        ("A -> B, 1e999", "line 1, column 9: a part of the formula evaluates to inf"),
        ("A -> B, " + "exp(" * 300 + "1" + ")" * 300, r"line 1, column \d+: brackets or signs are nested more than 64"),
        ("A -> B, " + "-" * 9000 + "1", r"line 1, column \d+: brackets or signs are nested more than 64"),
        ("A -> B, " + "2^" * 9000 + "1", r"line 1, column \d+: brackets or signs are nested more than 64"),
        ("A => B, " + "A*B/" * 9000 + "A", "line 1, column 9: the formula has more than 100 nested operations"),
        ("A => B, A < B < A", "line 1, column 15: unexpected `<`"),
        ("1000000000 A -> B, 1", "line 1, column 1: a reaction can consume or produce at most 1000"),
        ("A -> B, a; a = b; b = a", "line 1, column 12: formulas depend on one another in a cycle: a -> b -> a"),
    ],
)
def test_text_that_cannot_be_read_shows_the_place(text, words):
    with pytest.raises(ValueError, match=words):
        network = ReactionNetwork(text)
        network(0.0, jnp.ones(len(network.species)), None)


def test_a_name_that_is_nearly_one_of_the_text_is_told():
    """Its number would change nothing; what is given and nowhere named like something may be another network's."""
    with pytest.warns(UserWarning, match="`rates`, which does not occur in the text.* Did you mean `rate`") as found:
        ReactionNetwork("A -> B, rate; rate = 1", dict(rates=2.0))
    assert [x.filename for x in found] == [__file__]  # not Equinox's
    ReactionNetwork("A -> B, rate; rate = 1", dict(rate=2.0, volume=3.0))


def test_complex_numbers_are_refused_by_name():
    network = ReactionNetwork("A -> B, k", dict(k=1.0 + 2.0j))
    for call in (
        lambda: sciml.solve(network, jnp.array([1.0, 0.0]), t0=0.0, t1=1.0),
        lambda: network.y0,
        lambda: network.single_molecules().propensities(jnp.ones(2), None),
        lambda: ReactionNetwork.from_stoichiometry([[1, 0]], [[0, 1]], [1j])(0.0, jnp.ones(2), None),
    ):
        with pytest.raises(TypeError, match="the parameter `(k|rates)` of a reaction network .*must be real.*complex"):
            call()
    with pytest.raises(TypeError, match="amount"):
        ReactionNetwork("A -> B, 1.0").state(A=1j)


def test_other_bad_input():
    network = ReactionNetwork("A -> B, k; k = 1")
    for call, words in (
        (lambda: network(0.0, jnp.ones(3), None), r"shape \(2,\), one for each of A, B"),
        (lambda: network.state(C=1.0), "no species `C`"),
        (lambda: network.value("kk", 0.0, jnp.ones(2)), "Did you mean `k`"),
        (lambda: ReactionNetwork("A -> B, 1", dict(A=1.0)), "`A`, which is a species"),
        (lambda: ReactionNetwork("A => B, t").single_molecules(), "depends on time"),
        (lambda: ReactionNetwork("A -> 0.5 B, 1").single_molecules(), "fractional stoichiometry"),
        (lambda: ReactionNetwork.from_stoichiometry([[1, 0]], [[0, 1], [1, 0]], [1.0]), "must have the same shape"),
        (lambda: ReactionNetwork.from_stoichiometry([[-1, 0]], [[0, 1]], [1.0]), "must not have negative entries"),
        (lambda: ReactionNetwork.from_stoichiometry([[1, 0]], [[0, 1]], [1.0, 2.0]), r"shape \(1,\)"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="`text` must be a string of reactions"):
        ReactionNetwork(3.0)
    assert scipy.linalg.norm(network.stoichiometry - [[-1, 1]]) == 0


def test_a_species_that_is_held_constant():
    network = models.ReactionNetwork("$X + A <-> B, 1.0, 2.0; X -> 0, 5.0; X(0) = 3; A(0) = 1")
    np.testing.assert_array_equal(network(0.0, network.y0, None), [0.0, -3.0, 3.0])
    np.testing.assert_array_equal(network.conservation_laws() @ network.stoichiometry.T, 0)
    assert network.reactions[0] == "$X + A -> B, 1"
    same = models.ReactionNetwork("X + A <-> B, 1.0, 2.0; X -> 0, 5.0; $X(0) = 3; A(0) = 1")
    assert same.reactions == network.reactions and same.species == network.species
    sol = sciml.steady_state(network, network.y0)
    np.testing.assert_allclose(sol.ys[0], [3.0, 0.4, 0.6], rtol=1e-5)
    with pytest.raises(ValueError, match=r"line 1, column 12: `X` is a species: `X\(0\).*`\$X\(0\) = ...` holds"):
        models.ReactionNetwork("X -> A, 1; X = 1")
    with pytest.raises(ValueError, match=r"amount of a constant species with `\$X\(0\)"):
        models.ReactionNetwork("X -> A, 1; $X = 1")


def test_other_values_of_parameters():
    network = models.ReactionNetwork("A + B <-> C, kon, koff; kon = 2; koff = 1; K = koff/kon; A(0) = 4*kon; B(0) = 1")
    weaker = network.with_parameters(koff=5.0, kon=1.0)
    assert weaker.value("K", 0.0, weaker.y0) == 5 and weaker.y0[0] == 4 and network.parameters["koff"] == 1
    slope = jax.grad(lambda k: network.with_parameters(kon=k).rates(0.0, jnp.ones(3))[0])(3.0)
    assert slope == 1.0
    starts = jax.vmap(lambda k: network.with_parameters(kon=k).y0[0])(jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(starts, [4.0, 8.0])
    with pytest.raises(ValueError, match="no parameter `kof`. Did you mean `koff`"):
        network.with_parameters(kof=5.0)
    with pytest.raises(ValueError, match="`K` is computed from other values"):
        network.with_parameters(K=5.0)
    with pytest.raises(ValueError, match=r"`A` is part of the state.*model.state\(A=...\)"):
        network.with_parameters(A=5.0)
    with pytest.raises(ValueError, match=r"must have shape \(\), but has shape \(2,\).*jax.vmap"):
        network.with_parameters(koff=jnp.ones(2))
