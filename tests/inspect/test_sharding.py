"""Drawings of where arrays are."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

from sciml import inspect

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")


@pytest.fixture
def mesh():
    return jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


def test_parts_are_drawn_with_their_devices(mesh, capsys):
    both = jax.device_put(jnp.ones((8, 6)), NamedSharding(mesh, P("x", "y")))
    rows = jax.device_put(jnp.ones(8), NamedSharding(mesh, P("x")))
    whole = jax.device_put(jnp.ones(8), NamedSharding(mesh, P()))
    found = inspect.sharding({"a": both, "b": rows, "c": whole, "d": jnp.ones(2), "e": 3})
    a, b, c, d = found.arrays
    assert a.devices.tolist() == [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"]]
    assert a.words == "axis 0 in 4 by 'x', axis 1 in 2 by 'y'"
    assert b.devices.tolist() == ["0 1", "2 3", "4 5", "6 7"] and b.words.endswith("each part 2 times")
    assert c.words == "whole on each of 8 devices" and d.words == "whole, on cpu 0"
    assert "| 0 1 | 2 3 | 4 5 | 6 7 |" in capsys.readouterr().out


def test_within_jit_types_say_it(mesh, capsys):
    x = jax.device_put(jnp.ones((8, 3)), NamedSharding(mesh, P("x")))
    jax.jit(lambda x: inspect.sharding(x) and x)(x)
    assert "axis 0 in 4 by 'x'" in capsys.readouterr().out


def test_three_axes_and_many_parts():
    mesh = jax.make_mesh((2, 2, 2), ("x", "y", "z"))
    text = str(inspect.sharding(jax.device_put(jnp.ones((2, 2, 2)), NamedSharding(mesh, P("x", "y", "z")))))
    assert "2 x 2 x 2 parts" in text and "| 0 | 1 |" in text
