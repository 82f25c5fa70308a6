"""The table of pairs of features in the docs says what is so, and no pair is wrong."""

import jax
import pytest

from tests import features_by_hand, pairs_table
from tests.features import Setting

pytestmark = pytest.mark.x64

SOME = [
    ("`positive=`", "`project=`"),
    ("`project=`", "`jax.shard_map`"),
    ("`jax.vmap`", "NamedSharding, Explicit"),
    ("event that goes on", "saved times"),
    ("`Delayed`", "backwards in time"),
    ("`Delayed` by functions", "`Forward`"),
    ("`Reactions`", "dense output"),
]
"""Cells that compile soon; `make tables` computes all."""


@pytest.fixture(autouse=True)
def as_in_the_table():
    filtering = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
    jax.config.update("jax_traceback_filtering", filtering)


@pytest.mark.parametrize("pair", SOME, ids=" x ".join)
def test_a_cell(pair):
    found = pairs_table.cell(*pair)
    assert not pairs_table.faults({pair: found})
    notes: list[str] = []
    expected = pairs_table.written()[pair]
    assert pairs_table.short(found, notes) == pairs_table.short(expected, notes) and notes == [
        word for word in dict.fromkeys(expected) if word not in ("right", "")
    ]


def test_the_table_has_every_feature_and_no_fault():
    rows = [
        line.split(" | ")[0].strip("| ") for line in pairs_table.WRITTEN.read_text().splitlines() if line[0:1] == "|"
    ]
    for feature in pairs_table.FEATURES:
        assert rows.count(feature) == len(pairs_table.GROUPS)
    cells = pairs_table.written()
    assert set(cells) == set(pairs_table.PAIRS)
    assert not pairs_table.faults(cells)


def test_a_wrong_cell_would_be_seen(monkeypatch):
    right = features_by_hand.by_hand
    monkeypatch.setattr(features_by_hand, "by_hand", lambda *args: 1.001 * right(*args))
    assert pairs_table.faults({("", ""): pairs_table.compute(Setting(), "")})


def test_an_error_of_python_would_be_seen(monkeypatch):
    monkeypatch.setattr(pairs_table.features, "solve", lambda *args: [].pop())
    assert pairs_table.faults({("", ""): pairs_table.compute(Setting(), "")})


def test_several_features():
    setting = Setting(held=True, resumed=True, ends=True, shard_map=True)
    assert pairs_table.compute(setting, "") == ("right", "right")
