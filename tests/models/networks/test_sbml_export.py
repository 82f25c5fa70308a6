"""Networks written as SBML and as Antimony text, and read again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import models

libsbml = pytest.importorskip("libsbml")
pytest.importorskip("sbmlode")
ReactionNetwork = models.ReactionNetwork

ENZYME = ReactionNetwork("""
    binding: E + S <-> C, kon, koff
    C => E + P, kcat*light*C
    P => 0, v*P/(K + P) + 0*abs(min(P, S))
    $X + 0.5 P -> 2 S, 0.3
    time => S, sqrt(time)*sign(time - 1) + log(2 + time) + log2(3)*log10(4 + t)
    kon = 2; koff = 0.5; kcat = 1; v = 0.1; K = koff/kon
    light = if(t < 3 && !(E > 9), 1, 0.2)
    E(0) = 0.1; S(0) = 2*K; X(0) = 3; time(0) = 2
""")
CHAIN = ReactionNetwork.from_stoichiometry(
    [[1, 0], [0, 2]], [[0, 1], [1, 0]], models.Arrhenius([2.0, 3.0], 0.5, [1e3, 2e3], 300.0), species=["A+", "2B"]
)


@pytest.mark.parametrize("network", [ENZYME, CHAIN], ids=["text", "matrices"])
@pytest.mark.parametrize("form", ["sbml", "antimony"])
def test_read_again(network, form):
    """The rates of all species are the same, and so is the state at the start."""
    if form == "sbml":
        model = models.read_sbml(network.to_sbml())
    else:
        pytest.importorskip("antimony")
        model = models.read_antimony(network.to_antimony())
    doc = network._document()
    ids = {s.getName() or s.getId(): s.getId() for s in doc.getModel().getListOfSpecies()}
    fixed = {"X"} if network is ENZYME else set()
    assert {ids[name] for name in network.species if name not in fixed} == set(model.states)
    places = np.array([network.species.index(name) for name in network.species if name not in fixed])
    back = np.array([model.index(ids[name]) for name in network.species if name not in fixed])
    np.testing.assert_allclose(model.y0[back], network.y0[places], rtol=1e-6)
    for seed, t in enumerate((0.5, 4.0)):
        y = network.y0 + jax.random.uniform(jax.random.key(seed), network.y0.shape)
        y = y.at[network.index("X")].set(3.0) if fixed else y
        own = jnp.zeros_like(model.y0).at[back].set(y[places])
        np.testing.assert_allclose(model(t, own, None)[back], network(t, y, None)[places], rtol=2e-6)


def test_the_document_is_valid():
    """Names that SBML does not allow become identifiers, and elements keep them; nothing is against its rules."""
    for network in (ENZYME, CHAIN):
        doc = libsbml.readSBMLFromString(network.to_sbml())
        doc.checkConsistency()
        errors = [doc.getError(i) for i in range(doc.getNumErrors())]
        assert [e.getMessage() for e in errors if e.getSeverity() >= libsbml.LIBSBML_SEV_ERROR] == []
    model = doc.getModel()
    assert [(s.getId(), s.getName()) for s in model.getListOfSpecies()] == [("A_", "A+"), ("_2B", "2B")]
    assert "reaction_1: A_ => _2B;" in CHAIN.to_antimony()
    with pytest.raises(TypeError, match="must be real"):
        ReactionNetwork("A -> 0, k; A(0) = 1", dict(k=1j)).to_sbml()
