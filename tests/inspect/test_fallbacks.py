"""What does not run over lanes is named with a cure, in models with noise too."""

import jax.numpy as jnp
import pytest

import sciml
from sciml import inspect
from sciml.kernels._lanes import fallbacks as of_function

Y0 = jnp.ones(3)


def sorts(t, y, args):
    return -jnp.sort(y)


def decays(t, y, args):
    return -y


def test_a_function():
    found = inspect.fallbacks(sorts, 0.0, Y0, None)
    assert found.keys() == of_function(sorts, 0.0, Y0, None).keys() == {"sort"}
    assert found["sort"].startswith("no rule") and "`jnp.minimum` and `jnp.maximum`" in found["sort"]
    assert str(found).startswith("sort: no rule")
    assert inspect.fallbacks(decays, 0.0, Y0, None) == {}
    assert str(inspect.fallbacks(decays, 0.0, Y0, None)) == "everything runs over lanes"


@pytest.mark.parametrize(
    "drift, diffusion, where",
    [(sorts, decays, "in the drift."), (decays, sorts, "in the diffusion."), (sorts, sorts, "Also in the diffusion.")],
)
def test_a_model_with_noise(drift, diffusion, where):
    found = inspect.fallbacks(sciml.Stochastic(drift, diffusion), 0.0, Y0, None)
    assert list(found) == ["sort"] and where in found["sort"]


def test_other_models():
    reactions = sciml.Reactions(jnp.array([[1.0, 0.0, 0.0]]), lambda x, args: jnp.sort(x)[:1])
    assert "in the propensities" in inspect.fallbacks(reactions, 0.0, Y0, None)["sort"]
    delayed = sciml.Delayed(lambda t, y, past, args: jnp.sort(past), 1.0, history=1.0)
    assert "in the field" in inspect.fallbacks(delayed, 0.0, Y0, None)["sort"]


def test_what_is_large_is_as_it_should_be():
    found = inspect.fallbacks(lambda y: jnp.sin(y), jnp.ones(4096))
    assert all("is fine" in text for text in found.values())


def test_no_function():
    with pytest.raises(Exception, match="function or a model|fn"):
        inspect.fallbacks(3)
