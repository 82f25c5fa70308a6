r"""The divergence of finite volumes, $-\sum_k (F_{i+1/2,k} - F_{i-1/2,k}) / h_k$, and its arrays in kernels.

A state has components, each a field. Fluxes are functions of primitive variables, of which there may be more. They are
written for one face, and taken apart element by element when a kernel is made: registers hold a number of each.

A kernel reads one array of all components with ghost cells on all sides. Cells of the field hold the conserved state,
ghost cells primitive variables, as conditions at sides make them. Only cells beyond a side are ghosts: corners have no
meaning, because each face reads cells only along its own axis.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._choices import choices
from ..ensemble._flat import Flat, NotSupportedError, elements_of, flatten
from ..stencil._ghost_weights import NotForKernelsError

GhostLayers = Sequence[tuple[Array, Array]]
"""For each axis the ghost cells beyond its lower and its upper end, primitive variables, in the order of the axis."""


class FluxDivergence(NamedTuple):
    """The flow into each cell, over the size of the cell.

    Attributes:
        primitive: `(operands, y) -> w`, the primitive variables of a conserved state, at one cell.
        flux: `(operands, cells, axis) -> flux`, what flows through one face, of the primitive variables in the
            `2 * width` cells around it.
        width: How many cells at either side of a face that is.
        components: The shape of the conserved state at one cell, `()` or `(components,)`.
        spacing: The size of a cell along each axis.
    """

    primitive: Callable[[PyTree, Array], Array]
    flux: Callable[[PyTree, Sequence[Array], int], Array]
    width: int
    components: tuple[int, ...]
    spacing: tuple[float, ...]

    @property
    def ndim(self) -> int:
        """The number of axes of the grid."""
        return len(self.spacing)


class Programs:
    """A divergence as programs on lanes; the numbers that all cells share are the first inputs of each.

    Args:
        problem: The divergence.
        operands: The numbers that all cells share, or their shapes and dtypes.
        dtype: The dtype of the state.
        kernel: The kernel's name.

    Attributes:
        conserved: The number of conserved components.
        states: The number of primitive variables.
        shared: The number of operands.

    Raises:
        NotForKernelsError: If the kernel does not support it.
    """

    def __init__(self, problem: FluxDivergence, operands: PyTree, dtype: Any, kernel: str):
        self._problem, self._kernel = problem, kernel
        self._operands = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), operands)
        most = choices().kernels.operands_at_most
        for leaf in jax.tree.leaves(self._operands):
            if leaf.dtype != dtype or leaf.size > most:
                raise NotForKernelsError(
                    f"a parameter has dtype {leaf.dtype} and shape {leaf.shape}, but the kernel supports up to "
                    f"{most} numbers of dtype {jnp.dtype(dtype).name}, the same for all cells"
                )
        self._state = jax.ShapeDtypeStruct(problem.components, dtype)
        self.shared = len(elements_of(self._operands))
        self.conserved = len(elements_of(self._state))
        self._primitives = jax.eval_shape(problem.primitive, self._operands, self._state)
        self.states = len(elements_of(self._primitives))

    @property
    def slots(self) -> int:
        """How many fields the array has that a kernel reads."""
        return max(self.conserved, self.states)

    def primitive(self, lanes: tuple[int, ...]) -> Flat:
        """Returns the program of the primitive variables of cells, of their conserved components."""
        return self._flat(self._problem.primitive, (self._state,), lanes)

    def flux(self, axis: int, lanes: tuple[int, ...]) -> Flat:
        """Returns the program of the flux through faces, of the primitive variables of cells, one after the other."""

        def flux(operands: PyTree, *cells: Array) -> Array:
            return self._problem.flux(operands, cells, axis)

        cells = (self._primitives,) * (2 * self._problem.width)
        found = self._flat(flux, cells, lanes)
        if (found.out.shape, found.out.dtype) != (self._state.shape, self._state.dtype):
            raise NotForKernelsError(
                f"a flux has dtype {found.out.dtype} and shape {found.out.shape}, but the state {self._state.dtype} "
                f"and {self._state.shape}"
            )
        return found

    def _flat(self, fn: Callable, args: tuple, lanes: tuple[int, ...]) -> Flat:
        try:
            return flatten(fn, self._operands, *args, lanes=lanes, kernel=self._kernel)
        except NotSupportedError as error:
            raise NotForKernelsError(str(error)) from error


def surrounded(
    y: Array, ghosts: GhostLayers, width: int, slots: int, first: tuple[int, ...], physical: tuple[int, ...]
) -> Array:
    """Returns the array that a kernel reads: a field with its ghost cells in a larger one.

    Args:
        y: The conserved state, `(components, *shape)`; axes that the grid does not have may stand in front, of size 1.
        ghosts: The ghost cells, `(states, ...)` with as many axes each, `width` layers at either end of each axis.
        width: How many layers.
        slots: The number of fields in the array.
        first: The position of the first cell of the field.
        physical: The shape of each field of the array.
    """
    count, *shape = y.shape
    room = [(at, size - at - n, 0) for at, size, n in zip(first, physical, shape)]
    x = jax.lax.pad(y, jnp.zeros((), y.dtype), [(0, slots - count, 0), *room])
    for axis, (low, high) in enumerate(ghosts, len(shape) - len(ghosts)):
        for layers, start in ((low, first[axis] - width), (high, first[axis] + shape[axis])):
            corner = [0, *first]
            corner[axis + 1] = start
            x = jax.lax.dynamic_update_slice(x, layers, corner)
    return x
