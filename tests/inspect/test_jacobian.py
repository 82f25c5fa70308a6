"""What a model's Jacobian looks like, and what implicit methods make of it."""

import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import inspect


def diffusion(t, y, args):
    return jnp.pad(y, 1)[2:] - 2 * y + jnp.pad(y, 1)[:-2]


def test_a_line():
    found = inspect.jacobian(diffusion, jnp.ones(100))
    assert (found.entries, found.colours) == (298, 3)
    assert np.array_equal(found.pattern.toarray(), np.abs(np.subtract.outer(range(100), range(100))) <= 1)
    assert found.structure.startswith("banded, 1 on each side")
    head, *picture = str(found).splitlines()
    assert head.startswith("100 unknowns, 298 entries (3.0%), 3 directions; banded")
    assert len(picture) == 48 and all(len(line) == 48 for line in picture)
    assert picture[0].startswith("●") and picture[0].endswith("·")


def test_parameters_count_with_all_their_elements():
    """As they do in a solve, where they have no value."""
    matrix = np.eye(20)
    assert inspect.jacobian(lambda t, y, args: matrix @ y, jnp.ones(20)).entries == 20
    assert inspect.jacobian(lambda t, y, args: args @ y, jnp.ones(20), args=jnp.eye(20)).entries == 400


def test_a_small_model_of_the_library():
    found = inspect.jacobian(sciml.models.HIRES(), jnp.ones(8))
    assert found.entries == 25 and "entry by entry" in found.structure


def test_a_complex_state_has_two_unknowns_for_each_element():
    found = inspect.jacobian(lambda t, y, args: jnp.asarray(1j, y.dtype) * y, jnp.ones(3, complex))
    assert np.array_equal(found.pattern.toarray(), np.kron(np.eye(3), np.ones((2, 2))))


def test_a_state_of_integers():
    with pytest.raises(TypeError, match="must be floating-point or complex"):
        inspect.jacobian(lambda t, y, args: y, jnp.ones(3, int))


def test_everything_by_everything():
    found = inspect.jacobian(lambda t, y, args: y * y.sum(), jnp.ones(6000))
    assert found.entries == 36_000_000 and "dense" in found.structure


def test_one_unknown_that_meets_many():
    """Entries are then computed one by one, which the words say."""
    places = np.arange(1, 80)
    found = inspect.jacobian(lambda t, y, args: jnp.append(y[0] * y[places], jnp.sum(y[places] ** 2)), jnp.ones(80))
    assert found.colours == 80 and "one by one" in found.structure
    assert "one by one" not in inspect.jacobian(lambda t, y, args: jnp.mean(y) * y, jnp.ones(80)).structure
