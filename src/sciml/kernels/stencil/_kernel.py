"""`AbstractStencilKernel`: the interface of stencil kernels, the library's or custom ones."""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import PyTree

from .._backends import AbstractKernel
from ._update import Fields, StencilUpdate


class Tiling(NamedTuple):
    """The public part of a kernel's division of fields into tiles.

    Attributes:
        steps: The stages that it runs for each pass over memory: its steps times the stages of each.
        rows: The size of a tile, one of the kernel's `sizes`.

    Example:
        ```python
        from sciml.kernels.stencil import Tiling

        assert Tiling(steps=4, rows=32).steps == 4
        ```
    """

    steps: int
    rows: int


class AbstractStencilKernel(AbstractKernel):
    """A kernel that runs the steps of a `StencilUpdate`, several for each pass over memory.

    A custom kernel derives from it, without fields that are arrays. `evolve`, `select` and `tune` take it as `impl`,
    and within a block of `kernels.use(kernel)` the solves of models that are stencils run by it. For unsupported
    updates, `plan` raises `NotForKernelsError` with the reason. Gradients are the gradients of the reference, as for
    the library's kernels.

    Attributes:
        name: Its name, in the results of `select` and in the file of `tune`.
        sizes: The sizes of tiles that `tune` may try.
        takes_stages: Whether it runs updates of several stages; stage `k` is `update.stage(k)`, and ghost cells belong
            to the result of the stage before.

    Example:
        ```python
        from typing import ClassVar

        import jax.numpy as jnp
        from sciml import kernels
        from sciml.kernels import stencil

        class Rolled(stencil.AbstractStencilKernel):
            name: ClassVar[str] = "rolled"
            sizes: ClassVar[tuple[int, ...]] = (1,)

            def plan(self, update, params, shape, dtype, steps=None, rows=None):
                if any(boundary is not None for boundary in update.boundaries):
                    raise stencil.NotForKernelsError("it takes periodic fields alone")
                return stencil.Tiling(steps or 1, rows or 1)

            def advance(self, update, params, state, coefficients, n_stages, plan, interpret=False):
                names = update.fields + update.coefficients
                for _ in range(n_stages):
                    arrays = dict(zip(names, state + coefficients))

                    def nb(name, *shift):
                        back = [-s for s in shift]
                        return jnp.roll(arrays[name], back, range(len(shift)))

                    state = update.new_values(nb, params, state[0])
                return state

        update = stencil.StencilUpdate(lambda nb, rate: nb("u") + rate * (nb("u", 1) - 2 * nb("u") + nb("u", -1)))
        u = jnp.zeros(64).at[32].set(1.0)
        end = stencil.evolve(update, u, 10, 0.2, impl=Rolled())
        assert jnp.allclose(end, stencil.evolve(update, u, 10, 0.2), atol=1e-6)
        assert kernels.select(update, u, 0.2, impl=Rolled()).backend == "rolled"
        ```
    """

    sizes: eqx.AbstractClassVar[tuple[int, ...]]
    takes_stages: ClassVar[bool] = False

    @abc.abstractmethod
    def plan(
        self,
        update: StencilUpdate,
        params: PyTree,
        shape: tuple[int, ...],
        dtype: Any,
        steps: int | None = None,
        rows: int | None = None,
    ) -> Any:
        """Returns how the kernel would run an update: a `Tiling`, or anything with `steps` and `rows` as that has.

        Args:
            update: The update.
            params: The parameters.
            shape: The shape of the fields.
            dtype: Their dtype.
            steps: The stages for each pass; None for a suitable number.
            rows: The size of a tile, one of `sizes`; None for a suitable size.

        Raises:
            NotForKernelsError: If it does not support the update.
        """

    @abc.abstractmethod
    def advance(
        self,
        update: StencilUpdate,
        params: PyTree,
        state: Fields,
        coefficients: Fields,
        n_stages: int,
        plan: Any,
        interpret: Any = False,
    ) -> Fields:
        """Returns the state some stages on.

        Args:
            update: The update.
            params: The parameters.
            state: The fields.
            coefficients: The coefficients.
            n_stages: How many stages to run, one after the other; steps, where an update has one stage.
            plan: The result of `plan`.
            interpret: False; True to run the kernel's body on any machine; or JAX's parameters of its interpreter.
        """
