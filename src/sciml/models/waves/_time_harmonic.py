"""Waves of one frequency: Helmholtz' equation in a medium that varies."""

import functools
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Inexact

from ..._checks import check_max_steps, concrete
from ..._jax._vma import promote
from ..._parameters import Parameter, parameter, with_dtype
from ..._status import SolveError, Status
from ..._types import RealScalarLike
from ...spatial import Grid, RedBlack
from ...spatial.elliptic._coarsening import Resistors
from ...spatial.elliptic._conjugate_residuals import conjugate_residuals, residual_cycle
from ...spatial.elliptic._couplings import Faces
from ...spatial.elliptic._multigrid import build
from . import _mirrored as mirrored
from ._absorbing import check_layers, read_layers
from ._staggered_fields import coefficient

_SHIFT = 0.5
"""By how much more than the medium itself the one of the preconditioner absorbs, over the square of the frequency."""

_LEAK = 1e-6
"""How well the preconditioner's rigid walls conduct, relative to the medium, for which resistances are finite."""

_REFLECTED = 1e-4
"""How much of a wave that meets a layer head on comes back, but for the grid's share."""


class TimeHarmonicWave(eqx.Module):
    r"""Sound of one frequency in a medium that varies: Helmholtz' equation, in one to three dimensions.

    $$\nabla \cdot \Big(\frac{1}{\rho} \nabla p\Big) + \frac{\omega^2 (1 + i \delta)}{\rho c^2}\, p = i \omega q$$

    The pressure $p\, e^{-i \omega t}$ is what `Acoustic` comes to when its source is $q\, e^{-i \omega t}$. With
    $\rho = 1$ and $q = i f / \omega$ it is $\nabla^2 p + k^2 p = -f$ with $k = \omega / c$. Differences of second
    order; in the absorbing layers along the sides they are taken along complex coordinates.

    `solve` finds $p$ by generalised conjugate residuals, which find what GMRES does. A cycle of multigrid for the same
    equation with more absorption is their preconditioner: its waves fade before coarse grids would miss them. The
    number of steps grows with the number of wavelengths along the box, not with the number of cells. A gradient with
    respect to the speed, the density, the frequency or the source is the gradient of the equation, and takes one more
    solve.

    Good values: at least fifteen cells for a wave; layers of 10 cells, or as many as half a wave.

    Attributes:
        frequency: $\omega$, an angular frequency.
        speed: $c$, a number or an array over the grid.
        density: $\rho$, a number or an array over the grid; at faces the mean of both sides.
        loss: $\delta$, the absorption of the medium: a number or an array over the grid.
        tuned: The speed for which the layers are made, by default the largest of `speed`, held constant.
        grid: The grid, with the layers.
        sides: The conditions at both sides of each axis.
        layers: The width of the layers in cells, a pair for each axis.

    Args:
        grid: The grid, with the layers.
        frequency: $\omega$.
        speed: $c$.
        density: $\rho$.
        loss: $\delta$.
        boundary: The conditions at the sides, behind the layers: `"rigid"` walls, `"free"` surfaces, where $p = 0$, or
            `"periodic"`; one for all, or by name, `{"x": "periodic", "y-": "rigid", "y+": "free"}`.
        layers: The cells of the layers: one number for all sides, or by name, `{"x": 10, "y-": 10}`; 0 for none.
        tuned: The speed for which the layers are made.

    Raises:
        ValueError: If a coefficient or the source has the wrong shape, or layers do not fit.

    Source:
        Y. A. Erlangga, C. W. Oosterlee, C. Vuik, SIAM J. Sci. Comput. 27:1471, 2006.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.models import TimeHarmonicWave
        from sciml.spatial import Grid, Points

        grid = Grid((48, 48), 0.0, 4.8)
        model = TimeHarmonicWave(grid, frequency=4.0, layers=10)
        p = model.solve(Points(grid, [2.4, 2.4]).spread(jnp.ones(())))
        assert jnp.allclose(p[24:, 24], p[23::-1, 24], atol=1e-4)  # the same on both sides

        def loudness(speed):
            model = TimeHarmonicWave(grid, 4.0, speed, layers=10, tuned=1.0)
            return jnp.sum(jnp.abs(model.solve(jnp.ones(grid.shape))[12:16, 12:16]) ** 2)

        assert jax.grad(loudness)(jnp.ones(grid.shape)).shape == grid.shape
        ```
    """

    frequency: Parameter
    speed: Parameter
    density: Parameter
    loss: Parameter
    tuned: Parameter
    grid: Grid
    sides: mirrored.Sides = eqx.field(static=True)
    layers: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def __init__(
        self,
        grid: Grid,
        frequency: Any,
        speed: Any = 1.0,
        density: Any = 1.0,
        loss: Any = 0.0,
        *,
        boundary: str | Mapping[str, str] = "rigid",
        layers: int | Mapping[str, int] = 0,
        tuned: Any = None,
    ):
        self.grid, name = grid, "TimeHarmonicWave"
        self.frequency = parameter(frequency)
        if self.frequency.ndim:
            raise ValueError(
                f"`{name}(frequency=...)` must be a number, but has shape {self.frequency.shape}. For several "
                "frequencies use `jax.vmap`."
            )
        self.speed = coefficient(speed, grid, "speed", name)
        self.density = coefficient(density, grid, "density", name)
        self.loss = coefficient(loss, grid, "loss", name)
        self.sides = mirrored.read_sides(grid, boundary, name)
        self.layers = read_layers(grid, layers, name)
        check_layers(self.layers, self._periodic, grid, name)
        self.tuned = jax.lax.stop_gradient(jnp.max(self.speed)) if tuned is None else parameter(tuned)

    def solve(
        self,
        source: Inexact[Array, "..."],
        *,
        rtol: RealScalarLike | None = None,
        max_steps: int = 500,
        throw: bool = True,
    ) -> Complex[Array, "..."]:
        """Returns the pressure, NaN if it is not found.

        Args:
            source: $q$, the volume that is emitted, per volume and time: a real or complex array over the grid.
            rtol: The norm of the residual that ends the iteration, relative to the norm of the source; None for 1e-8 in
                double and 1e-5 in single precision.
            max_steps: The largest number of steps.
            throw: Whether to raise an error if no solution is found, outside of transformations.

        Raises:
            SolveError: If no solution is found and `throw` is set.
        """
        p, right = self._given(source)
        max_steps = check_max_steps(max_steps)
        u, status = p._solve(right, rtol, max_steps)
        if throw and concrete(u) and int(status) != Status.successful:
            raise SolveError(
                f"`TimeHarmonicWave.solve` did not converge within max_steps={max_steps}. Without layers and losses "
                "the frequency may be a resonance of the box, or the wave may be shorter than some cells. "
                "Allow more steps, or a larger `rtol`.",
                np.asarray(status),
            )
        return u

    def steps(
        self, source: Inexact[Array, "..."], *, rtol: RealScalarLike | None = None, max_steps: int = 500
    ) -> Array:
        """Returns how many steps `solve` takes for a source."""
        p, right = self._given(source)
        return p._iterate(right, rtol, check_max_steps(max_steps))[2]

    def residual(self, pressure: Complex[Array, "..."], source: Inexact[Array, "..."]) -> Complex[Array, "..."]:
        r"""Returns by how much the equation does not hold, in the layers times their stretching."""
        p, right = self._given(source)
        return right - p.faces()(pressure)

    def faces(self, absorption: float = 0.0, leak: float = 0.0) -> Faces:
        r"""Returns the operator of the equation, times $-1$, between the cells.

        Args:
            absorption: The addition to the loss.
            leak: How well rigid walls conduct, relative to the medium.
        """
        ndim, dtype = self.grid.ndim, self.frequency.dtype
        at_centers = [self._stretch(axis, "center") for axis in range(ndim)]
        couplings = []
        for axis, h in enumerate(self.grid.spacing):
            coupling = self._mobility(axis, leak).astype(self._complex) / self._stretch(axis, "node") / h**2
            for other in range(ndim):
                coupling = coupling * at_centers[other] if other != axis else coupling
            couplings.append(coupling)
        lost = self.loss + jnp.asarray(absorption, dtype)
        square = jax.lax.complex(jnp.ones_like(lost), lost)
        stored = self.frequency**2 / (self.density * self.speed**2)
        reaction = -square * stored.astype(self._complex)
        for stretch in at_centers:
            reaction = reaction * stretch
        return Faces(self.grid.shape, self._periodic, tuple(couplings), jnp.broadcast_to(reaction, self.grid.shape))

    def _solve(self, right: Array, rtol: Any, max_steps: int) -> tuple[Array, Array]:
        faces, right = promote((self.faces(), right))
        frozen = jax.lax.stop_gradient(self)

        def run(_, b: Array) -> tuple[Array, Array]:
            u, good, _ = frozen._iterate(b, rtol, max_steps)
            status = jnp.where(good, jnp.int32(Status.successful), jnp.int32(Status.diverged))
            return jnp.where(good, u, jnp.asarray(complex(math.nan, math.nan), u.dtype)), status

        # the operator is symmetric, not Hermitian: its transpose is itself
        return jax.lax.custom_linear_solve(faces, right, run, symmetric=True, has_aux=True)

    def _iterate(self, right: Array, rtol: Any, max_steps: int) -> tuple[Array, Array, Array]:
        if rtol is None:
            rtol = 1e-8 if jnp.finfo(right.dtype).bits == 64 else 1e-5
        hierarchy = build(self.faces(_SHIFT, _LEAK), self.grid.spacing, Resistors(), RedBlack(), False)
        return conjugate_residuals(
            self.faces(),
            right,
            functools.partial(residual_cycle, hierarchy),
            rtol=rtol,
            max_steps=max_steps,
            like=(self, hierarchy),
        )

    def _given(self, source: Any) -> tuple["TimeHarmonicWave", Array]:
        """The model in the precision of a source, and the right-hand side, with the sign of `faces`."""
        shape = self.grid.shape
        if not hasattr(source, "dtype") or not jnp.issubdtype(source.dtype, jnp.inexact) or source.shape != shape:
            got = f"has shape {source.shape} and dtype {source.dtype}" if hasattr(source, "dtype") else f"is {source!r}"
            raise ValueError(f"`source` must be a real or complex array over the grid, of shape {shape}, but {got}.")
        dtype = jnp.finfo(source.dtype).dtype
        p = jax.tree.map(lambda x: jnp.asarray(x, dtype), with_dtype(self, dtype))
        right = jax.lax.complex(jnp.zeros_like(p.frequency), -p.frequency) * source.astype(p._complex)
        for axis in range(self.grid.ndim):
            right = right * p._stretch(axis, "center")
        return p, right

    @property
    def _periodic(self) -> tuple[bool, ...]:
        return tuple(pair[0] == "periodic" for pair in self.sides)

    @property
    def _complex(self) -> Any:
        return np.result_type(self.frequency.dtype, np.complex64)

    def _stretch(self, axis: int, at: str) -> Array:
        r"""$1 + i \sigma / \omega$ at centres or faces, an array that broadcasts over the grid."""
        cells = self.grid.shape[axis]
        place = np.arange(cells + (at == "node")) + (0.5 if at == "center" else 0.0)
        low, high = self.layers[axis]
        profile = np.zeros(len(place))
        for width, depth in ((low, low - place), (high, place - (cells - high))):
            if width:
                size = 2 * math.log(1 / _REFLECTED) / (width * self.grid.spacing[axis])
                profile += size * np.clip(depth / width, 0, None) ** 3
        profile = profile.reshape([-1 if a == axis else 1 for a in range(self.grid.ndim)])
        sigma = self.tuned * jnp.asarray(profile, self.frequency.dtype)
        return jax.lax.complex(jnp.ones_like(sigma), sigma / self.frequency)

    def _mobility(self, axis: int, leak: float) -> Array:
        r"""$1 / \rho$ at the faces across an axis; at a rigid wall zero, at a free surface twice, for half a cell."""
        n, rho = self.grid.shape[axis], jnp.broadcast_to(self.density, self.grid.shape)
        first, last = (jax.lax.slice_in_dim(rho, i, i + 1, axis=axis) for i in (0, n - 1))
        inner = jax.lax.slice_in_dim(rho, 0, n - 1, axis=axis) + jax.lax.slice_in_dim(rho, 1, n, axis=axis)
        if self.sides[axis][0] == "periodic":
            ends = [2 / (first + last)] * 2
        else:
            ends = [(leak if kind == "rigid" else 2.0) / x for x, kind in zip((first, last), self.sides[axis])]
        return jnp.concatenate([ends[0], 2 / inner, ends[1]], axis)
