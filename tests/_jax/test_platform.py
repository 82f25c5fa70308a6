"""`default_platform`: the device that a user names is the one that choices are made for."""

import jax

from sciml._jax._platform import default_platform


def test_the_default_device_comes_before_the_default_backend(monkeypatch):
    assert default_platform() == "cpu"
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert default_platform() == "tpu"
    for device in ("cpu", jax.devices("cpu")[0]):
        with jax.default_device(device):
            assert default_platform() == "cpu"
