"""`build` and `run`: the loop of one member, run for many in one kernel."""

from typing import Any

from jaxtyping import Array, PyTree

from .._backends import check_interpreter
from ._body import Body
from ._launcher import AbstractLauncher
from ._member import Members


def build(loop: Any, members: Members, kernel: str) -> Body:
    """Returns a loop as a kernel.

    Raises:
        NotSupportedError: If the kernel does not support it.
    """
    return Body(loop, members, launcher_of(kernel).lanes, kernel)


def run(body: Body, members: Members, interpret: Any = False) -> tuple[PyTree, PyTree, Array]:
    """Runs a kernel on its members.

    Args:
        body: The result of `build` for members like these.
        members: The members.
        interpret: False; True to run the body on any machine; or JAX's parameters of its interpreter.

    Returns:
        The results, what was saved, and the number of iterations that each member's lane executed, members last.
    """
    operands = body.operands(members)
    if interpret:
        check_interpreter(operands)
    launched = launcher_of(body.kernel).launch(body, operands, members.size, interpret)
    return body.collect(*launched)


def launcher_of(kernel: str) -> AbstractLauncher:
    """Returns the launcher of a kernel; JAX's Pallas is imported when it is needed."""
    if kernel == "mosaic_gpu":
        from ._mosaic_gpu import GpuLauncher

        return GpuLauncher()
    from ._mosaic_tpu import TpuLauncher

    return TpuLauncher()
