"""Joining this process to others."""

from typing import Any

import jax


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    **options: Any,
) -> None:
    """Joins this process to the others of the same job, so that `jax.devices()` returns the devices of all of them.

    For members that are too large for one process: a `Domain` may then span all devices. Members that
    do not talk to each other need none of this; give every process its own part of them, because a
    process that dies takes those joined to it along.

    Call it before anything that touches a device. It does nothing if the process has already joined, if `num_processes`
    is 1, or if nothing is given and JAX finds no job: so the same script runs as a single process and under SLURM or
    Open MPI, whose variables JAX reads.

    Args:
        coordinator_address: The address of process 0, such as `"node0:1234"`.
        num_processes: The number of processes.
        process_id: The number of this one, from 0.
        options: Further arguments of `jax.distributed.initialize`, such as `local_device_ids` and
            `initialization_timeout` (in seconds).

    Raises:
        RuntimeError: If JAX has used a device already.
        ValueError: If only some of the three are given, and JAX cannot find the rest.

    Example:
        ```python
        from sciml import parallel

        parallel.initialize(num_processes=1)  # nothing to join
        ```
    """
    if jax.distributed.is_initialized() or num_processes == 1:
        return
    given = coordinator_address, num_processes, process_id
    try:
        jax.distributed.initialize(coordinator_address, num_processes, process_id, **options)
    except RuntimeError as error:
        if "before any JAX" not in str(error):
            raise
        raise RuntimeError(
            "`initialize` must be called before JAX uses a device. Move it to the top of the script, before any array "
            "is created and before `jax.devices()`."
        ) from error
    except ValueError as error:
        if all(x is None for x in given):
            return  # JAX found no job to join
        raise ValueError(
            f"`initialize`: got coordinator_address={coordinator_address!r}, num_processes={num_processes!r} and "
            f"process_id={process_id!r}, and JAX raised: {error} Pass all three, or none under SLURM or Open MPI."
        ) from error
