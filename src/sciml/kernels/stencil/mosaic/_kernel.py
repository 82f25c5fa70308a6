"""`AbstractMosaicKernel`: the common part of the Pallas kernels, a launch for each pass over memory."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._loops import scan
from .._ghost_weights import NotForKernelsError, Sides, check_coefficients, ghost_weights_of
from .._kernel import AbstractStencilKernel
from .._update import Fields, StencilUpdate
from ._packed_operands import PackedOperands, check_operands
from ._primitives import missing


class StencilCase(NamedTuple):
    """An update and the fields that it is run on.

    Attributes:
        update: The update.
        params: The parameters.
        shape: The shape of the fields.
        dtype: Their dtype.
        sides: The weights of their ghost cells.
    """

    update: StencilUpdate
    params: PyTree
    shape: tuple[int, ...]
    dtype: Any
    sides: tuple[Sides, ...]


class AbstractMosaicKernel(AbstractStencilKernel):
    """A kernel that a launch runs for every tile; see `AbstractStencilKernel`.

    Attributes:
        ndims: The numbers of axes that it takes.
        dtypes: The dtypes that it takes.
        reach: How many cells away a pass may read.
        operand_lanes: How many copies there are of each number that all cells share.
    """

    ndims: eqx.AbstractClassVar[tuple[int, ...]]
    dtypes: eqx.AbstractClassVar[tuple[str, ...]]
    reach: eqx.AbstractClassVar[int]
    operand_lanes: eqx.AbstractClassVar[int]

    def plan(
        self,
        update: StencilUpdate,
        params: PyTree,
        shape: tuple[int, ...],
        dtype: Any,
        steps: int | None = None,
        rows: int | None = None,
    ) -> Any:
        case = self._supported(update, params, shape, dtype)
        sizes = self.sizes if rows is None else (rows,)
        if steps is None:
            return self._usual_tiles(case, sizes)
        if steps * update.radius > self.reach:
            raise NotForKernelsError(
                f"{steps} steps of radius {update.radius} for each pass reach further than {self.reach} cells"
            )
        return self.tiles(case, steps, sizes)

    def _supported(self, update: StencilUpdate, params: PyTree, shape: tuple[int, ...], dtype: Any) -> StencilCase:
        """The case, if the kernel supports it: the requirements of every kernel on an update, before any tiling."""
        ndim, ndims, dtypes = len(shape), self.ndims, self.dtypes
        if ndim not in ndims:
            raise NotForKernelsError(f"fields have {ndim} axes, but the kernel supports {' or '.join(map(str, ndims))}")
        if jnp.dtype(dtype).name not in dtypes:
            raise NotForKernelsError(
                f"fields have dtype {jnp.dtype(dtype)}, but the kernel supports {' and '.join(dtypes)}"
            )
        check_operands(update, params, dtype)
        check_coefficients(update, ndim, dtype, params)
        if found := missing(update, ndim, dtype, params, self.name):
            raise NotForKernelsError(f"`fn` uses {', '.join(found)}, which the kernel does not support")
        sides = ghost_weights_of(update, ndim, dtype)
        for axis, walls in enumerate(zip(*sides)):
            # Beyond a side, a pass has copies of the other side's cells or ghosts of a wall: not both at once.
            if len({wall is None for wall in walls}) > 1:
                raise NotForKernelsError(f"along axis {axis} some fields are periodic and some have walls")
        return StencilCase(update, params, shape, dtype, sides)

    def _usual_tiles(self, case: StencilCase, sizes: tuple[int, ...]) -> Any:
        """The plan with the usual number of steps, or with fewer where many fields leave no space for them."""
        steps = self.usual_steps(case.update.radius, len(case.shape))
        while steps > 1:
            try:
                return self.tiles(case, steps, sizes)
            except NotForKernelsError:
                steps //= 2
        return self.tiles(case, 1, sizes)

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
        passes, rest = divmod(n_stages, plan.steps)
        shape, dtype = state[0].shape, state[0].dtype
        state, coefficients = (tuple(self.enter(x, plan) for x in xs) for xs in (state, coefficients))
        case = StencilCase(update, params, shape, dtype, ghost_weights_of(update, len(shape), dtype))
        operands = PackedOperands(((update.fn, params), case.sides), dtype, self.operand_lanes)
        one_pass = self.make_pass(case, coefficients, plan, operands, interpret)
        if passes:
            # a pass makes the state vary over the mesh axes of parameters and coefficients, so it must from the start
            like = (operands.rows, coefficients)
            state, _ = scan(lambda s, _: (one_pass(s, plan.steps), None), state, length=passes, like=like)
        if rest:  # a pass of fewer steps, on the same tiles
            state = one_pass(state, rest)
        return tuple(self.leave(x, plan) for x in state)

    @abc.abstractmethod
    def usual_steps(self, radius: int, ndim: int) -> int:
        """Returns how many stages for each pass should suit an update of a radius."""

    @abc.abstractmethod
    def tiles(self, case: StencilCase, steps: int, sizes: tuple[int, ...]) -> Any:
        """Returns the plan with one of some sizes of tiles.

        Raises:
            NotForKernelsError: If no tile fits.
        """

    @abc.abstractmethod
    def enter(self, x: Array, plan: Any) -> Array:
        """Returns a field as it goes from pass to pass."""

    @abc.abstractmethod
    def leave(self, x: Array, plan: Any) -> Array:
        """Returns the field of what `enter` returned."""

    @abc.abstractmethod
    def make_pass(
        self, case: StencilCase, coefficients: Fields, plan: Any, operands: PackedOperands, interpret: Any
    ) -> Callable[[Fields, int], Fields]:
        """Returns the function `(state, stages) -> state` of one pass, of fields as `enter` returns them."""
