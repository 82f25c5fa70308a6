"""The platform that a program being traced will run on."""

import jax


def default_platform() -> str:
    """Returns `"cpu"`, `"gpu"` or `"tpu"`: the platform of `jax.default_device`, or else of the default backend.

    Choices between loops and kernels are made while JAX traces, when the devices of traced arrays are not known yet.
    The results of a program never depend on it, only the choice between several equal programs.
    """
    device = jax.config.jax_default_device
    if device is None:
        return jax.default_backend()
    name = device if isinstance(device, str) else device.platform
    return "gpu" if name in ("cuda", "rocm") else name
