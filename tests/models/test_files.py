"""Models in files."""

import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import models, with_dtype
from sciml.models.neural import NeuralODE, NeuralSDE
from sciml.models.sparse import Polynomials
from sciml.models.sparse._sparse_model import SparseModel
from tests.registry_neural import CASES

SIZES = dict(size=2, width=4, depth=1, scale=[1.0, 30.0])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_model_comes_back_with_its_bits(case, tmp_path):
    model, other = case.make(jax.random.key(0)), case.make(jax.random.key(1))
    models.save(tmp_path / "model", model)
    again = models.load(tmp_path / "model", other)
    pairs = zip(jax.tree.leaves(again), jax.tree.leaves(model), strict=True)
    assert all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_files_have_the_permissions_of_any_new_file(tmp_path):
    from sciml.kernels._cache_file import store
    from sciml.stores import NpzStore

    for umask, expected in ((0o022, 0o644), (0o077, 0o600)):
        before = os.umask(umask)
        try:
            models.save(tmp_path / "model", models.LotkaVolterra())  # the second time in place of the first
            NpzStore(tmp_path / "store").put(0, {"u": np.ones(2)})
            assert store(tmp_path / "plans.json", "plans", "key", {"a": 1})
        finally:
            os.umask(before)
        written = [tmp_path / "model", tmp_path / "plans.json", *(tmp_path / "store").glob("*.npz")]
        assert [path.stat().st_mode & 0o777 for path in written] == [expected] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "plans.json", "store"]


def test_a_class_makes_the_model_of_its_hyperparameters(tmp_path):
    model = NeuralODE(**SIZES, key=jax.random.key(3))
    models.save(tmp_path / "model", model, SIZES)
    again = models.load(tmp_path / "model", NeuralODE)
    assert again.term.scale == (1.0, 30.0)
    np.testing.assert_array_equal(again.term.net.layers[1].weight, model.term.net.layers[1].weight)
    found = SparseModel(Polynomials(2), np.eye(6)[:, :2], ("x", "y"))
    models.save(tmp_path / "found", found)
    assert str(models.load(tmp_path / "found", found)) == str(found)


def test_another_structure_is_refused(tmp_path):
    path, key = tmp_path / "model", jax.random.key(0)
    models.save(path, NeuralODE(**SIZES, key=key), SIZES)

    def refused(like, match):
        with pytest.raises(ValueError, match=match):
            models.load(path, like)

    refused(NeuralODE(**SIZES | dict(width=5), key=key), r"`term.net.layers.0.weight` is float\d\d\[4, 2\] in the file and float\d\d\[5, 2\]")  # fmt: skip  # noqa: E501
    refused(NeuralODE(**SIZES | dict(depth=2), key=key), r"`term.net.layers.1.weight` is float\d\d\[2, 4\] in the file")
    refused(NeuralODE(**SIZES, activation=jax.nn.softplus, key=key), "`model.term.net.activation` is tanh in the file")
    refused(NeuralODE(**SIZES | dict(scale=2.0), key=key), r"`model.term.scale` is \(1.0, 30.0\) in the file")
    refused(with_dtype(NeuralODE(**SIZES, key=key), jnp.bfloat16), "precision in which it was written")
    refused(models.LotkaVolterra(), "only the file has a leaf `term.net.layers.0.weight`")
    models.save(path, NeuralODE(**SIZES, key=key), SIZES | dict(width=5))
    refused(NeuralODE, "and float.* in the model built from the hyperparameters in the file, {.*'width': 5.*}")
    models.save(path, NeuralODE(**SIZES, key=key), SIZES)
    refused(NeuralSDE(2, width=4, depth=1, key=key), "only the file has a leaf")


def test_a_file_that_is_none_or_damaged(tmp_path):
    path = tmp_path / "model"
    model = models.LotkaVolterra()
    with pytest.raises(FileNotFoundError):
        models.load(path, model)
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(ValueError, match="does not contain a model"):
        models.load(path, model)
    models.save(path, model)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(ValueError, match="damaged or truncated"):
        models.load(path, model)
    with pytest.raises(TypeError, match="JSON"):
        models.save(path, model, dict(net=jnp.ones(2)))
    assert path.read_bytes() == whole[:-10]  # what was there is left alone
    models.save(path, model)
    with pytest.raises(ValueError, match="contains no hyperparameters"):
        models.load(path, models.LotkaVolterra)
    assert eqx.tree_equal(models.load(path, model), model)
