"""The transform that diagonalises second differences between the conditions at the two ends of an axis."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .. import _sines_cosines as trig, _weights
from .._boundaries import Boundaries
from .._conditions import Dirichlet, Neumann, Periodic
from ..geometry._flux_form import alike


class Axis(NamedTuple):
    """How one axis is diagonalised.

    Attributes:
        eigenvalues: Those of the second derivative, one for each coefficient.
        forward: The transform to coefficients, `(field, axis) -> coefficients`; None for Fourier's.
        backward: Its inverse.
    """

    eigenvalues: np.ndarray
    forward: Callable[[Array, int], Array] | None
    backward: Callable[[Array, int], Array] | None

    @property
    def periodic(self) -> bool:
        """Whether the transform is Fourier's."""
        return self.forward is None


# By location, lower and upper condition: the transforms, and the offset of the first of the phases.
_PAIRS = {
    ("center", Dirichlet, Dirichlet): (trig.dst2, trig.idst2, 1.0),
    ("center", Neumann, Neumann): (trig.dct2, trig.idct2, 0.0),
    ("center", Dirichlet, Neumann): (trig.dst4, trig.idst4, 0.5),
    ("center", Neumann, Dirichlet): (trig.dct4, trig.idct4, 0.5),
    ("inner", Dirichlet, Dirichlet): (trig.dst1, trig.idst1, 1.0),
    ("node", Neumann, Neumann): (trig.dct1, trig.idct1, 0.0),
    # sums over the wavenumbers of the kernels of type II, with place and wavenumber in each other's roles
    ("upper", Dirichlet, Neumann): (trig.idst2, trig.dst2, 0.5),
    ("lower", Neumann, Dirichlet): (trig.idct2, trig.dct2, 0.5),
}


def _symbol(phase: np.ndarray, order: int) -> np.ndarray:
    """The eigenvalue of the central second difference, written so that small phases lose no digits."""
    weights = _weights.central(order, 2)
    radius = len(weights) // 2
    parts = [float(weights[radius + j]) * np.sin(j * phase / 2) ** 2 for j in range(1, radius + 1)]
    return -4 * np.sum(parts, axis=0)


def separate(boundary: Boundaries, order: int) -> list[Axis]:
    """Returns the transform of every axis.

    Raises:
        ValueError: If some axis has none; the message names it.
    """
    if not alike(boundary):
        what = "on an `OrthogonalGrid`" if boundary.body is None else "with a body within the grid"
        raise ValueError(f"{what} no fast transform diagonalises the operator. Use `solve_elliptic` or `Multigrid`.")
    found = []
    for axis, (name, cells, h) in enumerate(zip(boundary.grid.names, boundary.grid.shape, boundary.grid.spacing)):
        low, high = boundary.sides[axis]
        if isinstance(low, Periodic):
            phase = 2 * np.pi * np.fft.fftfreq(cells)
            found.append(Axis(_symbol(phase, order) / h**2, None, None))
            continue
        key = (boundary.location[axis], type(low), type(high))
        if key not in _PAIRS:
            ends = f"{type(low).__name__} and {type(high).__name__} at {boundary.location[axis]!r}"
            raise ValueError(
                f"along {name} the boundary does not separate: no fast transform belongs to {ends}, only to Periodic, "
                "Dirichlet and Neumann. Use `Multigrid`."
            )
        if order != 2:
            raise ValueError(
                f"`order={order}` needs periodic axes, because the Laplacian is not symmetric at walls then, but "
                f"along {name} there are walls: use `order=2`."
            )
        forward, backward, first = _PAIRS[key]
        phase = (np.arange(boundary.shape[axis]) + first) * np.pi / cells
        found.append(Axis(_symbol(phase, order) / h**2, forward, backward))
    return found


def to_coefficients(axes: list[Axis], u: Array) -> Array:
    """Returns the coefficients of a field; of a real one along the last periodic axis only the half that is needed."""
    ndim = len(axes)
    for axis, found in enumerate(axes):
        if found.forward is not None:
            u = found.forward(u, axis - ndim)
    periodic = [axis - ndim for axis in range(ndim) if axes[axis].periodic]
    if not periodic:
        return u
    return jnp.fft.fftn(u, axes=periodic) if jnp.iscomplexobj(u) else jnp.fft.rfftn(u, axes=periodic)


def from_coefficients(axes: list[Axis], coefficients: Array, like: Array) -> Array:
    """Returns the field with given coefficients, real where `like` is."""
    ndim = len(axes)
    periodic = [axis - ndim for axis in range(ndim) if axes[axis].periodic]
    u = coefficients
    if periodic:
        shape = [like.shape[axis] for axis in periodic]
        back = jnp.fft.ifftn if jnp.iscomplexobj(like) else jnp.fft.irfftn
        u = back(u, s=shape, axes=periodic)
    for axis, found in enumerate(axes):
        if found.backward is not None:
            u = found.backward(u, axis - ndim)
    return u


def eigenvalues(axes: list[Axis], scales: list[Array], real: bool) -> Array:
    """Returns the eigenvalues of the sum over axes of the second derivative times a scale.

    Args:
        axes: The axes.
        scales: A number for each.
        real: Whether they belong to the coefficients of a real field.
    """
    ndim = len(axes)
    halved = max((axis for axis in range(ndim) if axes[axis].periodic), default=None) if real else None
    total = None
    for axis, (found, scale) in enumerate(zip(axes, scales)):
        values = found.eigenvalues
        if axis == halved:
            values = values[: len(values) // 2 + 1]
        shape = [1] * ndim
        shape[axis] = len(values)
        term = scale * jnp.asarray(values.reshape(shape), scale.dtype)
        total = term if total is None else total + term
    assert total is not None
    return total
