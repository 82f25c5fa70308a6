"""Expansions of fields in sines, cosines and Fourier modes, chosen by the conditions at the sides."""

import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact

from .._checks import concrete
from . import _sines_cosines as trig
from ._abstract_grid import AbstractGrid
from ._boundaries import Boundaries, as_boundary
from ._conditions import Dirichlet, Neumann, Periodic
from .geometry._flux_form import alike


# The amplitudes of sines and cosines in a field, at centres and at nodes.
#
# The amplitudes belong to the modes themselves: `sine` returns $b_k$ with $u = \sum_k b_k \sin(k \pi x / L)$, $k = 1,
# 2, \dots$, and `cosine` returns $a_k$ with $u = \sum_k a_k \cos(k \pi x / L)$, $k = 0, 1, \dots$.
def complex_dtype(dtype: Any) -> Any:
    """Returns the complex dtype of a floating dtype's precision."""
    return jnp.complex128 if jnp.finfo(dtype).bits == 64 else jnp.complex64


def sine(u: Array, axis: int, location: str) -> Array:
    """Returns the amplitudes of sines of a field that vanishes at both walls."""
    return (trig.dst2 if location == "center" else trig.dst1)(u, axis) * _sine_weights(u, axis, location)


def inverse_sine(modes: Array, axis: int, location: str) -> Array:
    """Returns the field with given amplitudes of sines."""
    return (trig.idst2 if location == "center" else trig.idst1)(modes / _sine_weights(modes, axis, location), axis)


def cosine(u: Array, axis: int, location: str) -> Array:
    """Returns the amplitudes of cosines of a field without slope at both walls."""
    return (trig.dct2 if location == "center" else trig.dct1)(u, axis) * _cosine_weights(u, axis, location)


def inverse_cosine(modes: Array, axis: int, location: str) -> Array:
    """Returns the field with given amplitudes of cosines."""
    return (trig.idct2 if location == "center" else trig.idct1)(modes / _cosine_weights(modes, axis, location), axis)


def _sine_weights(like: Array, axis: int, location: str) -> Array:
    n = like.shape[axis]
    if location != "center":
        return trig.along(np.full(n, 1 / (n + 1)), like, axis)
    weights = np.full(n, 1 / n)
    weights[-1] /= 2
    return trig.along(weights, like, axis)


def _cosine_weights(like: Array, axis: int, location: str) -> Array:
    n = like.shape[axis]
    weights = np.full(n, 1 / n if location == "center" else 1 / (n - 1))
    weights[0] /= 2
    if location != "center":
        weights[-1] /= 2
    return trig.along(weights, like, axis)


_BASES = {
    (Periodic, Periodic): "fourier",
    (Dirichlet, Dirichlet): "sine",
    (Neumann, Neumann): "cosine",
}


class Spectral(eqx.Module):
    r"""A field as a sum of modes, each an eigenfunction of the Laplacian that satisfies the boundary conditions.

    Along a periodic axis the modes are $e^{i k x}$, between two `Dirichlet` sides $\sin k (x - l)$ and between two
    `Neumann` sides $\cos k (x - l)$; values at the sides must be zero. In every mode a derivative is a product:
    $\nabla^2$ is `laplacian`, $-\sum k^2$, and an equation $\dot u = L u$ is solved exactly by $e^{L t}$.

    The transforms act on the last axes, so that components and members may come in front and `jax.vmap` works. On
    several devices transform inside `jax.shard_map`, where members are local: outside of it XLA gathers the whole
    array on every device.

    Attributes:
        grid: The grid.
        bases: The basis along each axis: `"fourier"`, `"sine"` or `"cosine"`.
        location: The positions of the unknowns along each axis, see `Grid`.
        field: `"real"` or `"complex"`. Half of the Fourier modes of a real field suffice.

    Args:
        grid: The grid.
        boundary: `Boundaries`, or the conditions to make them of.
        field: Whether fields are real or complex.

    Raises:
        ValueError: If an axis has other conditions than these, or a value at a side that is not zero.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Dirichlet, Grid, Periodic, Spectral

        grid = Grid((32, 16), 0.0, (2 * jnp.pi, 1.0))
        x, y = grid.centers
        spectral = Spectral(grid, {"x": Periodic(), "y": Dirichlet()})
        u = jnp.cos(3 * x) * jnp.sin(jnp.pi * y)
        modes = spectral.transform(u)
        heat = spectral.inverse(spectral.times(jnp.exp(0.1 * spectral.laplacian), modes))  # exact after t = 0.1
        assert jnp.allclose(heat, jnp.exp(-0.1 * (9 + jnp.pi**2)) * u, atol=1e-5)
        assert jnp.allclose(spectral.derivative(u, "x"), -3 * jnp.sin(3 * x) * jnp.sin(jnp.pi * y), atol=1e-4)
        ```
    """

    grid: AbstractGrid
    bases: tuple[str, ...] = eqx.field(static=True)
    location: tuple[str, ...] = eqx.field(static=True)
    field: str = eqx.field(static=True)

    def __init__(self, grid: AbstractGrid, boundary: Any, field: Literal["real", "complex"] = "real"):
        boundaries = as_boundary(grid, boundary)
        if not isinstance(boundaries, Boundaries):
            raise TypeError(
                f"`Spectral(boundary=...)` must be Boundaries(grid, conditions), or conditions, but is a "
                f"{type(boundaries).__name__}. Its transforms need whole axes; for a field that is split over "
                "devices use `Domain.fftn` or finite-difference models."
            )
        if not alike(boundaries):
            raise ValueError("`Spectral` requires a uniform `Grid` without a body.")
        if field not in ("real", "complex"):
            raise ValueError(f"`Spectral(field=...)` must be 'real' or 'complex', but is {field!r}.")
        self.grid, self.location, self.field = grid, boundaries.location, field
        found = []
        for name, pair, at in zip(grid.names, boundaries.sides, boundaries.location):
            kinds = type(pair[0]), type(pair[1])
            if kinds not in _BASES:
                raise ValueError(
                    "`Spectral` supports two Periodic, two Dirichlet or two Neumann sides along an axis, but along "
                    f"{name} they are {kinds[0].__name__} and {kinds[1].__name__}."
                )
            if any(_moves(side) for side in pair):
                raise ValueError(
                    f"`Spectral` requires Dirichlet or Neumann conditions with the value 0, but along {name} the "
                    "conditions have other values. Use 0, or move the values into the equation."
                )
            if kinds == (Periodic, Periodic) and at not in ("center", "lower"):
                raise ValueError(f"`Spectral` requires unknowns of a periodic axis at 'center' or 'lower', not {at!r}.")
            found.append(_BASES[kinds])
        self.bases = tuple(found)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a field, without axes in front."""
        return self.grid.shape_at(self.location)

    @property
    def _halved(self) -> int | None:
        """The axis along which a real field needs half of the Fourier modes: the last periodic one."""
        if self.field == "complex" or "fourier" not in self.bases:
            return None
        return max(axis for axis, basis in enumerate(self.bases) if basis == "fourier")

    def _wavenumber(self, axis: int) -> np.ndarray:
        n, length = self.shape[axis], self.grid.extent[axis]
        if self.bases[axis] == "fourier":
            numbers = np.fft.rfftfreq(n) if axis == self._halved else np.fft.fftfreq(n)
            return numbers * n * 2 * math.pi / length
        return (np.arange(n) + (self.bases[axis] == "sine")) * math.pi / length

    @property
    def wavenumbers(self) -> tuple[Array, ...]:
        """The wavenumbers $k$ along each axis, arrays that broadcast against the modes."""
        found = []
        for axis in range(self.grid.ndim):
            k = self._wavenumber(axis)
            found.append(jnp.asarray(_spread(k, axis, self.grid.ndim), jnp.result_type(float)))
        return tuple(found)

    @property
    def laplacian(self) -> Array:
        r"""The factor of every mode in the Laplacian, $-\sum k^2$."""
        parts = [_spread(self._wavenumber(axis), axis, self.grid.ndim) ** 2 for axis in range(self.grid.ndim)]
        return jnp.asarray(-sum(parts[1:], parts[0]), jnp.result_type(float))

    def transform(self, u: Inexact[Array, "..."]) -> Array:
        """Returns the amplitudes of the modes; complex where an axis is periodic.

        Args:
            u: The field, with the grid's axes last.

        Raises:
            ValueError: If the field has the wrong shape.
            TypeError: If it is complex, and the expansion one of real fields.
        """
        self._check(u)
        lead = u.ndim - self.grid.ndim
        # the axis of which half of the modes is kept comes first, while the field is real
        for axis in sorted(range(self.grid.ndim), key=lambda a: (a != self._halved, -a)):
            at = lead + axis
            if self.bases[axis] == "fourier":
                u = (jnp.fft.rfft if axis == self._halved else jnp.fft.fft)(u, axis=at, norm="forward")
            else:
                u = (sine if self.bases[axis] == "sine" else cosine)(u, at, self.location[axis])
        return u

    def inverse(self, modes: Inexact[Array, "..."]) -> Array:
        """Returns the field of given amplitudes."""
        lead = modes.ndim - self.grid.ndim
        order = sorted(range(self.grid.ndim), key=lambda a: (a != self._halved, -a))
        for axis in reversed(order):
            at, n = lead + axis, self.shape[axis]
            if axis == self._halved:
                modes = jnp.fft.irfft(modes, n, axis=at, norm="forward")
            elif self.bases[axis] == "fourier":
                modes = jnp.fft.ifft(modes, axis=at, norm="forward")
            else:
                modes = (inverse_sine if self.bases[axis] == "sine" else inverse_cosine)(modes, at, self.location[axis])
        return modes

    def times(self, factor: Inexact[Array, "..."], modes: Inexact[Array, "..."]) -> Array:
        """Returns amplitudes times a factor of every mode, such as `laplacian`, in the precision of the amplitudes.

        Args:
            factor: An array that broadcasts against the modes of one field.
            modes: The amplitudes, with axes in front or without.
        """
        if jnp.iscomplexobj(factor) and not jnp.iscomplexobj(modes):
            modes = modes.astype(complex_dtype(modes.dtype))
        return modes * factor.reshape((1,) * (modes.ndim - factor.ndim) + factor.shape).astype(modes.dtype)

    def symbol(self, axis: str = "x", derivative: int = 1) -> Array:
        """Returns the factor of every mode in a derivative that keeps the basis.

        That is any along a periodic axis, and an even one between walls. The highest mode of an even number has no odd
        derivative: it is real on the grid and its derivative would not be.

        Raises:
            ValueError: If the derivative is odd and the axis is not periodic.
        """
        at = self._axis(axis)
        k = self._wavenumber(at)
        if self.bases[at] == "fourier":
            if derivative % 2:
                n = self.shape[at]
                k = np.where(2 * np.abs(np.round(k * self.grid.extent[at] / (2 * math.pi))) == n, 0.0, k)
                return jnp.asarray(_spread((1j * k) ** derivative, at, self.grid.ndim), jnp.result_type(complex))
        elif derivative % 2:
            raise ValueError(
                f"an odd derivative along {axis} turns {self.bases[at]}s into the other basis. Use `derivative`."
            )
        k = _spread((-1.0) ** (derivative // 2) * k**derivative, at, self.grid.ndim)
        return jnp.asarray(k, jnp.result_type(float))

    def derivative(self, u: Inexact[Array, "..."], axis: str = "x", derivative: int = 1) -> Array:
        """Returns a derivative of a field along one axis, at the same places.

        Args:
            u: The field, with the grid's axes last.
            axis: Along which axis, by name.
            derivative: The order of the derivative.

        Raises:
            ValueError: If the field has the wrong shape; or if an odd derivative between walls is wanted of unknowns at
                nodes, whose derivative would live on other nodes.
        """
        self._check(u)
        at = self._axis(axis)
        where = u.ndim - self.grid.ndim + at
        if self.bases[at] == "fourier":
            return self._fourier_derivative(u, at, where, derivative)
        k = _spread(self._wavenumber(at), where, u.ndim)
        forward, same, other = (sine, inverse_sine, inverse_cosine)
        if self.bases[at] == "cosine":
            forward, same, other = (cosine, inverse_cosine, inverse_sine)
        location = self.location[at]
        factor = jnp.asarray((-1.0) ** ((derivative + (self.bases[at] == "cosine")) // 2) * k**derivative, u.dtype)
        modes = factor * forward(u, where, location)
        if derivative % 2 == 0:
            return same(modes, where, location)
        if location != "center":
            raise ValueError("an odd derivative between walls requires unknowns at cell centres.")
        # sin(k x) with k from 1 becomes cos(k x) with k from 0, and back; the mode too many vanishes at centres.
        pad = [(0, 0, 0)] * u.ndim
        pad[where] = (1, -1, 0) if self.bases[at] == "sine" else (-1, 1, 0)
        return other(jax.lax.pad(modes, jnp.zeros((), modes.dtype), pad), where, location)

    def dealias(self, modes: Inexact[Array, "..."]) -> Array:
        """Returns amplitudes without the upper third of the modes along every axis.

        A product of two fields of which both are without them has no error in the others (the two-thirds rule).
        """
        keep = np.ones((1,) * self.grid.ndim)
        for axis in range(self.grid.ndim):
            k = np.abs(self._wavenumber(axis))
            n, length = self.shape[axis], self.grid.extent[axis]
            highest = n * math.pi / length
            keep = keep * _spread(k < 2 / 3 * highest * (1 - 1e-9), axis, self.grid.ndim)
        keep = keep.reshape((1,) * (modes.ndim - self.grid.ndim) + keep.shape)
        return modes * jnp.asarray(keep, jnp.finfo(modes.dtype).dtype).astype(modes.dtype)

    def _fourier_derivative(self, u: Array, axis: int, where: int, derivative: int) -> Array:
        n, length = self.shape[axis], self.grid.extent[axis]
        numbers = np.fft.fftfreq(n) * n
        if derivative % 2:  # of the highest mode of an even number, see `symbol`
            numbers = np.where(2 * np.abs(numbers) == n, 0.0, numbers)
        factor = (2j * math.pi / length * numbers) ** derivative
        factor = jnp.asarray(_spread(factor, where, u.ndim), complex_dtype(u.dtype))
        if jnp.iscomplexobj(u):
            return jnp.fft.ifft(factor * jnp.fft.fft(u, axis=where), axis=where)
        half = jax.lax.slice_in_dim(factor, 0, n // 2 + 1, axis=where)
        return jnp.fft.irfft(half * jnp.fft.rfft(u, axis=where), n, axis=where)

    def _axis(self, name: str) -> int:
        if name not in self.grid.names:
            raise ValueError(f"`axis` must be one of {', '.join(self.grid.names)}, but is {name!r}.")
        return self.grid.names.index(name)

    def _check(self, u: Array) -> None:
        if u.shape[-self.grid.ndim :] != self.shape:
            raise ValueError(f"the field must end with the axes {self.shape}, but has shape {u.shape}.")
        if jnp.iscomplexobj(u) and self.field == "real":
            raise TypeError("the field is complex. Write `Spectral(..., field='complex')`.")


def _moves(side: Any) -> bool:
    """Whether a condition has a value that is known not to be zero, or that is a function."""
    values = [x for x in jax.tree.leaves(side) if callable(x) or concrete(x)]
    return any(callable(x) or np.any(np.asarray(x) != 0) for x in values)


def _spread(values: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    shape = [1] * ndim
    shape[axis] = len(values)
    return values.reshape(shape)
