"""Rates of a conservation law by a kernel: the law at one face, and the ghost cells around a block."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from jaxtyping import Array, PyTree

from ..._conservation_law import AbstractConservationLaw
from ..._parameters import with_dtype
from ..._types import Args, RealScalarLike
from ...kernels._backends import KernelRequest
from ...kernels._volumes import FluxDivergence, choose, divergence, refused
from ...kernels.stencil import NotForKernelsError
from .._grid import Grid
from ._positivity import Neighbour
from ._sides import ends


class _AtOneFace:
    """The cells around one face, each a state without axes of a grid."""

    def __init__(self, law: AbstractConservationLaw, cells: Sequence[Array], axis: int):
        self._law, self._axis, self.cells = law, axis, list(cells)

    def hold(self, *arrays: Array) -> tuple[Array, ...]:
        """Returns arrays as they are: registers are computed once."""
        return arrays

    def fluxes(self) -> list[Array]:
        """Returns the fluxes of all cells."""
        return [self._law.flux(cell, self._axis) for cell in self.cells]

    def neighbours(self, fluxes: list[Array]) -> list[Neighbour]:
        """Returns the cells on either side of the face."""
        middle, found = len(self.cells) // 2, []
        for k in (middle - 1, middle):
            slow, fast = self._law.speeds(self.cells[k], self._axis)
            speed = jnp.maximum(jnp.abs(slow), jnp.abs(fast))
            found.append(Neighbour(self._law.conserved(self.cells[k]), fluxes[k], speed))
        return found


class _NoSides(NamedTuple):
    """In place of the sides of the law at one cell, whose parameters are numbers."""

    def local(self, values: Array) -> Array:
        return values


class _Law(NamedTuple):
    """A law at one cell and one face: a divergence, and the operands that it needs.

    Attributes:
        problem: The divergence.
        operands: The leaves of the law that it reads.
    """

    problem: FluxDivergence
    operands: list[Array]


def choose_kernel(volumes: Any, law: AbstractConservationLaw, y: Any, request: KernelRequest) -> Any:
    """Returns the kernel that runs a law, or None for XLA; see `FiniteVolumes.with_kernel`."""
    if not isinstance(request.impl, str):
        return None  # somebody's own kernel of stencils
    law = with_dtype(law, y.dtype)
    shape = volumes.sides.shape
    if y.shape[y.ndim - len(shape) :] != shape or y.ndim - len(shape) > 1:
        return None  # `rates` says what is wrong, and members that are not mapped have no kernel
    try:
        found = _at_one_face(volumes, law, y.shape[: y.ndim - len(shape)], y.dtype)
    except NotForKernelsError as error:
        refused(request, error)
        return None
    chosen = choose(request, found.problem, found.operands, shape, y.dtype)
    return None if chosen.backend == "xla" else chosen


def _at_one_face(volumes: Any, law: AbstractConservationLaw, components: tuple[int, ...], dtype: Any) -> _Law:
    """Returns the law at one cell and one face.

    Raises:
        NotForKernelsError: If it has none.
    """
    if not isinstance(volumes.grid, Grid):
        raise NotForKernelsError("cells of the grid differ, and the kernel takes a `Grid`")
    alone = eqx.tree_at(lambda x: x.volumes.sides, law, _NoSides())
    leaves, static = eqx.partition(alone, eqx.is_array)
    flat, structure = jax.tree.flatten(leaves)

    def whole(arrays: Sequence[Any]) -> AbstractConservationLaw:
        return eqx.combine(jax.tree.unflatten(structure, arrays), static)

    def primitive(arrays: Sequence[Any], y: Array) -> Array:
        return whole(arrays).primitive(y)

    def flux(arrays: Sequence[Any], cells: Sequence[Array], axis: int) -> Array:
        one = whole(arrays)
        found, left, right, *seen = one.volumes.through(one, _AtOneFace(one, cells, axis), axis)
        if any(x is not None for x in (*seen, one.within(left, right, axis))):
            raise NotForKernelsError("a term balances its flux, as a bed that is not level does")
        return found

    width, spacing = volumes.reconstruction.radius, volumes.grid.spacing
    try:
        used = _used(primitive, flux, flat, components, dtype, width, len(spacing))
    except (TypeError, ValueError) as error:  # whatever its functions say of shapes
        said = str(error).splitlines()[0]
        raise NotForKernelsError(f"it does not take one cell alone, as where a parameter varies: {said}") from error

    def filled(operands: Sequence[Any]) -> list[Any]:
        """All leaves; what is not used is anything of its shape."""
        given = iter(operands)
        return [next(given) if u else np.broadcast_to(np.zeros((), x.dtype), x.shape) for u, x in zip(used, flat)]

    problem = FluxDivergence(
        lambda operands, y: primitive(filled(operands), y),
        lambda operands, cells, axis: flux(filled(operands), cells, axis),
        width,
        components,
        spacing,
    )
    return _Law(problem, [x for u, x in zip(used, flat) if u])


def _used(
    primitive: Any, flux: Any, flat: list[Array], components: tuple[int, ...], dtype: Any, width: int, ndim: int
) -> list[bool]:
    """Returns which leaves of a law the programs read."""

    def both(arrays: Sequence[Any], y: Array) -> list[Array]:
        w = primitive(arrays, y)
        return [w, *(flux(arrays, [w] * (2 * width), axis) for axis in range(ndim))]

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in flat]
    jaxpr = jax.make_jaxpr(both)(shapes, jax.ShapeDtypeStruct(components, dtype)).jaxpr
    _, used = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return list(used[: len(flat)])


def rates_by_kernel(volumes: Any, law: AbstractConservationLaw, t: RealScalarLike, y: Array, args: Args) -> Array:
    """Returns the rates of a conserved state, without sources, by the kernel that was chosen.

    Derivatives in both modes are those of the rates by XLA.
    """
    arrays, static = eqx.partition((volumes, law, t, args), eqx.is_array)

    def by_xla(arrays: PyTree, y: Array) -> Array:
        volumes, law, t, args = eqx.combine(arrays, static)
        return volumes._rates(law, t, y, args)

    @jax.custom_jvp
    def run(arrays: PyTree, y: Array) -> Array:
        volumes, law, t, args = eqx.combine(arrays, static)
        if hasattr(volumes.sides, "renewed"):  # a block that has its neighbours' cells with it
            y = volumes.sides.renewed(law, y, t, args)
        found = _at_one_face(volumes, law, y.shape[: volumes.lead(y)], y.dtype)
        ghosts = [_around(volumes, law, y, axis, t, args) for axis in range(volumes.grid.ndim)]
        return divergence(volumes.chosen, found.problem, y, ghosts, found.operands)

    @run.defjvp
    def derivative(primals: Any, tangents: Any) -> tuple[Array, Array]:
        return run(*primals), jax.jvp(by_xla, primals, tangents)[1]

    return run(arrays, y)


def _around(
    volumes: Any, law: AbstractConservationLaw, y: Array, axis: int, t: RealScalarLike, args: Args
) -> tuple[Array, Array]:
    """Returns the ghost cells beyond both ends of an axis, of the cells next to the ends alone."""
    width = volumes.reconstruction.radius
    near = jnp.concatenate(ends(y, width, volumes.lead(y) + axis), axis=volumes.lead(y) + axis)
    return volumes.sides.around(law, law.primitive(near), axis, width, t, args)
