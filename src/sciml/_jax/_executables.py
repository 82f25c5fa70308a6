"""A compiled program for other devices than those it was compiled for.

XLA's programs carry their devices with them, so that JAX compiles once for each of them, the same code every time. A
compiled program can be written down and read back, which takes milliseconds, and here it is read back with other
devices in place of its own. JAX has a function for the first half, `jax.experimental.serialize_executable`; the second
is its reader with one difference, seen to work on JAX 0.10.2 and 0.12.0. Otherwise the caller compiles.
"""

import io
import pickle
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import serialize_executable

from ._interpreters import get_compile_options

_PLATFORMS = ("cpu", "gpu", "cuda", "rocm")


def on_other_devices(
    compiled: jax.stages.Compiled, program: str, devices: Sequence[jax.Device], others: Sequence[jax.Device]
) -> jax.stages.Compiled | None:
    """Returns a compiled program for other devices, or None where it has to be compiled for them.

    Args:
        compiled: The program, compiled for one device.
        program: Its StableHLO.
        devices: The devices for which it was compiled.
        others: The devices on which it will run.
    """
    same_kind = {d.device_kind for d in devices} == {d.device_kind for d in others}
    if len(devices) != 1 or len(others) != 1 or not same_kind or devices[0].platform not in _PLATFORMS:
        return None
    # Programs that call Python contain addresses; programs that JAX has read from its cache on disk cannot be written
    # again.
    if "callback" in program or jax.config.jax_compilation_cache_dir:
        return None
    try:
        written, in_tree, out_tree = serialize_executable.serialize(compiled)
        reader = _Reader(io.BytesIO(written))
        reader.device = others[0]
        unloaded, infos, no_keywords = reader.load()
        return jax.stages.Compiled(unloaded.load(), [], in_tree.unflatten(infos), out_tree, no_kwargs=no_keywords)
    except Exception:  # whatever a new JAX does otherwise: nothing is lost but time
        return None


class _Reader(pickle.Unpickler):
    """Reads what `serialize` wrote, with one device in the place of every other."""

    device: jax.Device

    def persistent_load(self, pid: Any) -> Any:
        from jaxlib import xla_client  # here, where a new JAX without it costs time alone

        client = self.device.client
        if pid[0] == "device":
            return self.device
        if pid[0] == "client":
            return client
        if pid[0] != "exec":
            raise pickle.UnpicklingError(f"unknown entry {pid[0]!r}")
        options = get_compile_options(1, 1, np.array([[self.device.id]]))
        return client.deserialize_executable(pid[1], xla_client.DeviceList((self.device,)), options)
