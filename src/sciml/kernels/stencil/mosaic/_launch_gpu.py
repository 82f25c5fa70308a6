"""The runner of the body of a kernel for GPUs: a GPU, or XLA one tile after the other on any machine.

A body gets references to memory and a device. The device provides the index of its tile, the rows of a warpgroup, the
points where threads wait for each other, and copies of pieces of memory.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from ...._jax._vma import struct, to_varying, vma_of
from .._update import Fields

SHARED_BYTES = 227 * 1024
"""Shared memory that one block may ask for (Hopper)."""

_AXES = ("plane", "row", "column")
_THREADS = "warpgroup"  # Pallas' word for a thread is what CUDA calls a warpgroup, 128 threads


class GpuDevice:
    """A GPU.

    Args:
        ndim: The number of axes of the grid of tiles.
        warpgroups: How many warpgroups run a tile together.
        meeting: The barrier that they wait at for each other; None for a single one.
        compiled: Whether it is one, and no interpreter of it.
    """

    def __init__(self, ndim: int, warpgroups: int = 1, meeting: Any = None, compiled: bool = True):
        self._names, self._warpgroups, self._meeting = _AXES[-ndim:], warpgroups, meeting
        self._compiled = compiled

    def place(self) -> tuple[Any, ...]:
        """The index of the tile, along each axis."""
        return tuple(map(jax.lax.axis_index, self._names))

    def share(self, low: Any, high: Any) -> tuple[Any, Any]:
        """The part of the rows from `low` to `high` that is this warpgroup's."""
        if self._warpgroups == 1:
            return low, high
        size = -(-(high - low) // self._warpgroups)
        first = low + jax.lax.axis_index(_THREADS) * size
        return jnp.minimum(first, high), jnp.minimum(first + size, high)

    def number(self) -> Any:
        """The index of the warpgroup."""
        return 0 if self._warpgroups == 1 else jax.lax.axis_index(_THREADS)

    def pin(self, x: Array) -> Array:
        """Says that a thread holds one lane of a constant row.

        JAX would find that out, in a time that is quadratic in the size of the program.
        """
        return plgpu.layout_cast(x, plgpu.Layout.WG_STRIDED(x.shape, vec_size=1)) if self._compiled else x

    def leads(self) -> Any:
        """Whether this warpgroup does what is done once for a tile."""
        return self._warpgroups == 1 or jax.lax.axis_index(_THREADS) == 0

    def sync(self) -> None:
        """Waits until all threads have written to shared memory what they write."""
        plgpu.commit_smem()
        if self._warpgroups > 1:
            plgpu.barrier_arrive(self._meeting)
            plgpu.barrier_wait(self._meeting)

    def publish(self) -> None:
        """Waits until the threads of this warpgroup have written, for each other and for copies."""
        plgpu.commit_smem()

    def load(self, source: Any, part: Any, target: Any, where: Any, barrier: Any) -> None:
        """Starts to copy from global to shared memory."""
        plgpu.copy_gmem_to_smem(source.at[part], target.at[where], barrier)

    def wait(self, barrier: Any) -> None:
        """Waits for the copies that were started."""
        plgpu.barrier_wait(barrier)
        plgpu.commit_smem()

    def store(self, source: Any, part: Any, target: Any, where: Any) -> None:
        """Starts to copy from shared to global memory."""
        plgpu.copy_smem_to_gmem(source.at[part], target.at[where])

    def free(self) -> None:
        """Waits until what is copied to global memory has been read."""
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)

    def finish(self) -> None:
        """Waits until it has been written."""
        plgpu.wait_smem_to_gmem(0)


class InterpretedDevice:
    """One tile after the other, each statement at once for all lanes."""

    def __init__(self, ndim: int):
        self._ndim = ndim

    def place(self) -> tuple[Any, ...]:
        """The index of the tile, along each axis."""
        return tuple(jnp.asarray(pl.program_id(axis), jnp.int32) for axis in range(self._ndim))

    def share(self, low: Any, high: Any) -> tuple[Any, Any]:
        """All rows."""
        return low, high

    def number(self) -> int:
        """The only one."""
        return 0

    def pin(self, x: Array) -> Array:
        """As it is."""
        return x

    def publish(self) -> None:
        """Nothing: there is one thread."""

    def leads(self) -> bool:
        """It does."""
        return True

    def sync(self) -> None:
        """Nothing: there is one thread."""

    def load(self, source: Any, part: Any, target: Any, where: Any, barrier: Any) -> None:
        """Copies at once."""
        target[where] = source[part]

    def wait(self, barrier: Any) -> None:
        """Nothing: copies are done."""

    def store(self, source: Any, part: Any, target: Any, where: Any) -> None:
        """Copies at once."""
        target[where] = source[part]

    def free(self) -> None:
        """Nothing: copies are done."""

    def finish(self) -> None:
        """Nothing: copies are done."""


def launch(
    run: Callable[[Any, tuple], None],
    inputs: tuple,
    shape: tuple[int, ...],
    count: int,
    grid: tuple[int, ...],
    scratch: list[int],
    interpret: Any,
    copies: int | None = None,
    warpgroups: int = 1,
) -> Fields:
    """Runs a body for every tile.

    Args:
        run: `run(device, refs)`, given references to the inputs, the outputs and the buffers in shared memory, and,
            where there are `copies`, to a barrier or None.
        inputs: Arrays in global memory.
        shape: The shape of every output.
        count: The number of outputs.
        grid: The number of tiles along each axis.
        scratch: The sizes of the buffers.
        interpret: False; True to run the body without a GPU; or JAX's parameters of its interpreter of GPUs.
        copies: How many copies a wait at the barrier is for.
        warpgroups: How many warpgroups run a tile together.
    """
    dtype, ndim = inputs[0].dtype, len(grid)
    axes = vma_of(inputs)
    out = (struct(shape, dtype, axes),) * count
    buffers = [plgpu.SMEM((n,), dtype) for n in scratch]
    if interpret is True:  # `pallas_call` on any machine, which knows nothing of shared memory or barriers
        anywhere = pl.BlockSpec(memory_space=pl.ANY)
        barrier = () if copies is None else (None,)
        return pl.pallas_call(
            lambda *refs: run(InterpretedDevice(ndim), (*refs, *barrier)),
            out_shape=out,
            grid=grid,
            in_specs=[anywhere] * len(inputs),
            out_specs=(anywhere,) * len(out),
            scratch_shapes=buffers,
            interpret=True,
        )(*inputs)
    barriers = [] if copies is None else [plgpu.Barrier(num_arrivals=copies)]
    together = {} if warpgroups == 1 else {"num_threads": warpgroups, "thread_name": _THREADS}
    meeting = [plgpu.Barrier(num_arrivals=warpgroups)] if together else []

    def body(*refs: Any) -> None:
        if together:
            run(GpuDevice(ndim, warpgroups, refs[-1], not interpret), refs[:-1])
        else:
            run(GpuDevice(ndim, compiled=not interpret), refs)

    found = plgpu.kernel(
        body,
        out_type=out,
        grid=grid,
        grid_names=_AXES[-ndim:],
        scratch_types=[*buffers, *barriers, *meeting],
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
        interpret=interpret or None,
        **together,
    )(*inputs)
    return to_varying(found, axes)  # JAX forgets it
