"""Warfarin by SAEM: the public data set of 32 subjects, with Monolix's estimates of the same model."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import inference, pharmacology
from sciml.training import Positive

pytestmark = pytest.mark.x64

TABLE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "data" / "warfarin" / "warfarin.csv"
NODES, WEIGHTS = (jnp.asarray(x) for x in np.polynomial.legendre.leggauss(24))
NODES, WEIGHTS = 0.5 * (NODES + 1), 0.5 * WEIGHTS

# Estimates of Monolix 2021R1 (SAEM) and their standard errors, from the tests of babelmixr2. The data do not determine
# how the largest effect varies, nor by how much it is below one, so it keeps these values.
TYPICAL = {
    "ktr": (1.24, 0.222), "ka": (1.01, 0.117), "cl": (0.135, 0.00696), "v": (7.73, 0.338), "emax": (0.989, 0.00594),
    "ec50": (1.08, 0.0962), "kout": (0.053, 0.00138), "e0": (96.7, 1.1),
}  # fmt: skip
OMEGA = {
    "ktr": (0.731, 0.138), "ka": (0.461, 0.0909), "cl": (0.279, 0.0379), "v": (0.223, 0.0335), "emax": (0.38, 0.671),
    "ec50": (0.454, 0.0643), "kout": (0.0786, 0.0293), "e0": (0.0508, 0.0101),
}  # fmt: skip
ERRORS = {"add": (0.533, 0.0625), "prop": (0.0986, 0.0115), "pca": (3.79, 0.251)}
FREE = [name for name in TYPICAL if name != "emax"]


def concentration(p, dose, t):
    """Absorption through two compartments with different rates."""
    k, a, b = p["cl"] / p["v"], p["ktr"], p["ka"]
    slow = jnp.exp(-k * t) / ((a - k) * (b - k))
    absorbed = jnp.exp(-a * t) / ((k - a) * (b - a)) + jnp.exp(-b * t) / ((k - b) * (a - b))
    return dose * a * b / p["v"] * (slow + absorbed)


def activity(p, dose, t):
    """An indirect response, whose production is inhibited."""
    level = concentration(p, dose, t * NODES**2)
    inhibited = p["emax"] * level / (p["ec50"] + level)
    past = jnp.exp(-p["kout"] * t * (1 - NODES**2))
    return p["e0"] * (1 - p["kout"] * t * jnp.sum(2 * NODES * WEIGHTS * inhibited * past))


def individual(typical, effects):
    """The parameters of a subject: the effect of the largest inhibition is on its logit, all others on logarithms."""
    p = {name: typical[name] * jnp.exp(effect) for name, effect in zip(TYPICAL, effects, strict=True)}
    odds = typical["emax"] / (1 - typical["emax"]) * jnp.exp(effects[list(TYPICAL).index("emax")])
    return p | {"emax": odds / (1 + odds)}


def observe(model, effects, subject):
    p, dose = individual(model["typical"], effects), subject.doses.amounts[0]
    level = concentration(p, dose, subject.times)
    response = jax.vmap(lambda t: activity(p, dose, t))(subject.times)
    kinetic = subject.cmt == 2
    scale = jnp.hypot(model["errors"]["add"], model["errors"]["prop"] * level)
    scale = jnp.where(kinetic, scale, model["errors"]["pca"])
    return inference.Normal(jnp.where(kinetic, level, response), scale)


def test_saem_of_warfarin_has_the_published_estimates():
    """Within half of the published standard errors.

    The rates of absorption may be exchanged without a change of the predictions, so each is less certain than that.
    """
    published = {"typical": TYPICAL, "omega": OMEGA, "errors": ERRORS}
    start = jax.tree.map(lambda pair: jnp.asarray(pair[0]), published, is_leaf=lambda x: isinstance(x, tuple))
    subjects = pharmacology.read_nonmem(TABLE)

    def free(model):
        return [[model[part][name] for name in FREE] for part in ("typical", "omega")], model["errors"]

    study = inference.hierarchical(
        start,
        observe,
        subjects.dv,
        [(free, inference.Improper(Positive()))],
        effects=lambda m: inference.Normal(jnp.zeros(len(TYPICAL)), jnp.stack([m["omega"][name] for name in TYPICAL])),
        subjects=subjects,
        method="focei",
    )
    found = study.saem(jax.random.key(0)).model
    away = {
        f"{part} of {name}": float((found[part][name] - value) / error)
        for part, rows in published.items()
        for name, (value, error) in rows.items()
    }
    far = {name: x for name, x in away.items() if abs(x) > (1.5 if name.endswith(("ktr", "ka")) else 0.5)}
    assert not far, far
