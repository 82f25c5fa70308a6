"""`AbstractLauncher`: what runs a kernel's body on one kind of device."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array

from ._body import Body, KernelOperands


class AbstractLauncher(eqx.Module):
    """Runs bodies, a block of members at a time.

    Attributes:
        lanes: The shape of a block, a lane for each member.
    """

    lanes: eqx.AbstractClassVar[tuple[int, ...]]

    @abc.abstractmethod
    def launch(
        self, body: Body, operands: KernelOperands, count: int, interpret: Any = False
    ) -> tuple[list[Array], list[Array]]:
        """Runs the kernel.

        Args:
            body: The kernel.
            operands: Its inputs.
            count: The number of members.
            interpret: False; True to run the body on any machine; or JAX's parameters of its interpreter of GPUs.

        Returns:
            The results for each dtype, and what was saved for each dtype; see `Body.collect`.
        """
