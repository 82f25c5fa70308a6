"""`qualify`: tries the kernels of a machine ahead of time."""

import jax.numpy as jnp

from .._jax._platform import default_platform
from ._backends import KERNEL_OF
from ._verdicts import Verdict, qualified
from ._volumes._select import kernel_of as volumes_of
from ._volumes._trial import trial_of as trial_of_volumes
from .ensemble._trial import trial as trial_of_ensembles
from .stencil._select import kernel_of
from .stencil._trial import trial_of


def qualify(*, again: bool = False) -> tuple[Verdict, ...]:
    """Tries every kernel of this machine on a test case: whether it is correct, and faster than XLA.

    `impl="auto"` uses a kernel if a trial has shown both. The trial runs the first time that the kernel could be used,
    which takes seconds during a trace; this function runs it ahead of time. A verdict is valid for one kind of device
    and one version of JAX and of sciml. It is stored in the file of `kernels.stencil.tune`, whose path is in
    `SCIML_KERNEL_PLANS`. The logger `sciml.kernels` reports the trials and their results at the level `INFO`.

    If JAX runs in several processes, a kernel is only used if this function was called in each of them and found it
    correct and faster in all: all must run the same program.

    Args:
        again: Whether to repeat trials that already have a verdict.

    Returns:
        A `Verdict` for each kernel; none on a machine without kernels. `str` summarises it in a line.

    Example:
        ```python
        from sciml import kernels

        for verdict in kernels.qualify():  # nothing on a CPU
            print(verdict)
        ```
    """
    kernel = KERNEL_OF.get(default_platform())
    if kernel is None:
        return ()
    dtypes = [jnp.float32]
    if kernel == "mosaic_gpu" and jnp.result_type(float) == jnp.float64:
        dtypes.append(jnp.float64)
    kinds = [(ndim, dtype) for dtype in dtypes for ndim in (1, 2, 3)]
    trials = [trial_of(*kind, kernel_of) for kind in kinds]
    volumes = [trial_of_volumes(*kind, volumes_of) for kind in kinds]
    return tuple(qualified(kernel, trial, again) for trial in [*trials, trial_of_ensembles(), *volumes])
