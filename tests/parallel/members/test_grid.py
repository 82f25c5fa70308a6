import numpy as np
import pytest

from sciml import parallel


def test_order_and_shape():
    grid = parallel.parameter_grid(a=[1.0, 2.0], b=np.arange(3), c=np.ones((4, 5)))
    assert grid.shape == (2, 3, 4) and len(grid) == 24
    params = grid.params
    assert params["a"].shape == (24,) and params["b"].dtype == np.arange(3).dtype and params["c"].shape == (24, 5)
    i = np.ravel_multi_index((1, 2, 3), grid.shape)
    assert params["a"][i] == 2.0 and params["b"][i] == 2
    assert grid.on_grid(params)["c"].shape == (2, 3, 4, 5)
    np.testing.assert_array_equal(grid.on_grid(params["b"])[0, :, 0], np.arange(3))
    np.testing.assert_array_equal(grid.take(np.array([i, 0]))["a"], [2.0, 1.0])


@pytest.mark.parametrize(
    "axes, message",
    [
        ({}, "at least one axis"),
        ({"a": 1.0}, "axis `a` must have a leading axis"),
        ({"a": []}, "axis `a` is empty"),
        ({"a": [None]}, "axis `a` must be an array of numbers"),
    ],
)
def test_bad_axes(axes, message):
    with pytest.raises(ValueError, match=message):
        parallel.parameter_grid(**axes)


def test_wrong_length():
    with pytest.raises(ValueError, match="leading axis of 6 members.*got shape \\(5,\\)"):
        parallel.parameter_grid(a=np.ones(2), b=np.ones(3)).on_grid(np.ones(5))
