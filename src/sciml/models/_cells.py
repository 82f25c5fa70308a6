"""The common part of models that are stencils: see `sciml.kernels.stencil.StencilRates`."""

from typing import Any

from jaxtyping import Array

from ..kernels.stencil import NotForKernelsError, StencilRates
from ..spatial import Laplacian
from ..spatial.geometry._flux_form import alike


def check_axes(y: Array, laplacian: Laplacian, lead: int = 0) -> None:
    """Checks that a state has the axes of the grid, and a number of axes before them, and that the grid is uniform.

    Raises:
        NotForKernelsError: If it has more, or if they are not.
    """
    if not alike(laplacian.boundary):
        raise NotForKernelsError("the grid is not uniform, or contains a body")
    if y.ndim != laplacian.grid.ndim + lead:
        raise NotForKernelsError(f"the state has {y.ndim} axes, more than the grid and its fields have")


def as_inputs(name: str, value: Array) -> tuple[Array | None, dict[str, Array]]:
    """Returns a parameter as a number, or else as a coefficient by its name, where it varies over the grid."""
    return (None, {name: value}) if value.ndim else (value, {})


def rates(fn: Any, laplacian: Laplacian, fields: tuple[str, ...], **rest: Any) -> StencilRates:
    """Returns the rates of fields with one Laplacian."""
    walls = {"radius": laplacian.radius, "boundary": laplacian.boundary, "accuracy": laplacian.accuracy}
    return StencilRates(fn, fields, **walls, **rest)
