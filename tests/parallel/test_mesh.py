import jax
import numpy as np
import pytest
from jax.sharding import AxisType

from sciml import parallel
from sciml.parallel._mesh import _size


def test_all_devices_by_default():
    mesh = parallel.mesh()
    assert mesh.axis_names == ("member",)
    assert mesh.axis_types == (AxisType.Auto,)
    assert list(mesh.devices.flat) == jax.devices()


def test_further_axes():
    mesh = parallel.mesh(member=2, x=2, y=-1)
    assert dict(mesh.shape) == {"member": 2, "x": 2, "y": 2}
    assert mesh.axis_types == (AxisType.Auto,) * 3
    assert dict(parallel.mesh(x=4).shape) == {"member": 2, "x": 4}


def test_chosen_devices():
    assert list(parallel.mesh(devices=jax.devices()[2:5]).devices.flat) == jax.devices()[2:5]
    assert parallel.mesh(devices=np.array(jax.devices()).reshape(4, 2)).shape["member"] == 8


@pytest.mark.parametrize(
    "sizes, message",
    [
        ({"member": 3}, "requires 3 devices, but got 8"),
        ({"member": -1, "x": 3}, "8 devices cannot be divided into groups of 3"),
        ({"member": -1, "x": -1}, "at most one axis may be -1"),
        ({"member": 0}, "axis `member` must be positive, or -1"),
        ({"x": -2}, "axis `x` must be positive, or -1"),
    ],
)
def test_bad_sizes(sizes, message):
    with pytest.raises(ValueError, match=message):
        parallel.mesh(**sizes)


def test_bad_devices():
    with pytest.raises(ValueError, match="got no devices"):
        parallel.mesh(devices=[])
    with pytest.raises(TypeError, match=r"`mesh\(devices=...\)` must be devices, .* is \[0, 1\]"):
        parallel.mesh(devices=[0, 1])
    with pytest.raises(ValueError, match="same device twice"):
        parallel.mesh(devices=[jax.devices()[0]] * 2)


@pytest.mark.parametrize("size", [2.0, True, "2"])
def test_sizes_are_integers(size):
    with pytest.raises(TypeError):
        _size("member", size)
