"""The compressible Navier-Stokes equations of an ideal gas."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from ..._checks import check_real
from ..._interfaces._conservation_law import AbstractConservationLaw
from ..._jax._barrier import held_back
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...kernels._backends import KernelRequest
from ...kernels._volumes import refused
from ...kernels.stencil import NotForKernelsError
from ...spatial import HLLC, AbstractFlux, AbstractReconstruction, FiniteVolumes, Grid, Muscl, PositivityLimiter
from ...spatial._abstract_grid import AbstractGrid
from ...spatial.finite_volumes._reconstruction import PHASES
from ...spatial.finite_volumes._variables import AbstractVariables, Componentwise
from ._euler import Euler


class CompressibleNavierStokes(AbstractConservationLaw):
    r"""Flow of an ideal gas that is viscous and conducts heat, in one to three dimensions.

    $$\partial_t \begin{pmatrix} \rho \\ \rho v \\ E \end{pmatrix} + \nabla \cdot
      \begin{pmatrix} \rho v \\ \rho v \otimes v + p - \tau \\ (E + p) v - \tau v - \kappa \nabla T \end{pmatrix} = s,
      \qquad \tau = \mu \left(\nabla v + (\nabla v)^\top - \tfrac23 \nabla \cdot v\right)$$

    with $E = p / (\gamma - 1) + \rho |v|^2 / 2$, the temperature $T = p / \rho$ (in units where the gas constant of a
    unit of mass is one), the conductivity $\kappa = \gamma \mu / ((\gamma - 1) \mathrm{Pr})$, and the viscosity $\mu$,
    constant or $\mu_0 (T / T_0)^\omega$. Any units that fit one another serve: $\mu$ has the unit of density times
    velocity times length.

    The state is density, momentum and energy per unit of volume, of shape `(ndim + 2, *grid)`, as for `Euler`, the same
    model without viscosity. Advection uses finite volumes as there; stress and heat use second-order differences at the
    faces, such that mass, momentum and energy are conserved to rounding. Steps are explicit: `crossing_rate` and
    `spectrum` include diffusion, so that `sciml.solve` takes stable steps. Rates are computed by XLA; there is no
    kernel for them.

    Along `NoSlipWall` the gas has the velocity of the wall, and its temperature or no flux of heat; along `Reflecting`
    it slips. The stress at a side ignores a variation of its values along the side.

    Good values: the defaults, a Mach number of about 0.1, and a Reynolds number, $\rho v L / \mu$, of at most some
    thousand: of the scales that dissipate there should be cells.

    Attributes:
        gas: The law without viscosity.
        viscosity: $\mu_0$.
        prandtl: $\mathrm{Pr}$, the ratio of the diffusivities of momentum and of heat.
        exponent: $\omega$, or None for a constant viscosity.
        reference: $T_0$, the temperature at which the viscosity is $\mu_0$.

    Args:
        grid: A `Grid`.
        boundary: The conditions beyond the sides: `Periodic()`, `Inflow(state)`, `Outflow()`, `NoSlipWall()`,
            `Reflecting()`, `MovingWall(velocity)`, or several by name; or a `sciml.parallel.Domain`.
        viscosity: $\mu_0$.
        prandtl: $\mathrm{Pr}$.
        gamma: $\gamma$, the ratio of specific heats.
        exponent: $\omega$, about 0.7 for air, or None.
        reference: $T_0$.
        reconstruction: The reconstruction of values at the faces.
        flux: The numerical flux between two states, without viscosity.
        variables: The variables that are reconstructed.
        limiter: The limiter that keeps density and pressure positive, or None.
        forces: $s$ as a function `(t, y, args)` of the conserved state, or None.

    Raises:
        TypeError: If the grid is not a `Grid`.

    Source:
        L. D. Landau, E. M. Lifshitz, Fluid Mechanics, 2nd ed., Pergamon, 1987, sections 15 and 49.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.models import CompressibleNavierStokes
        from sciml.spatial import Grid, Periodic

        grid = Grid((32, 4))
        law = CompressibleNavierStokes(grid, Periodic(), viscosity=0.02)
        wave = 0.1 * jnp.sin(2 * jnp.pi * grid.centers[0]) + jnp.zeros(grid.shape)
        y0 = law.conserved(jnp.stack([1 + 0 * wave, 0 * wave, wave, 1 + 0 * wave]))
        sol = sciml.solve(law, y0, t0=0.0, t1=0.5)
        left = jnp.max(law.primitive(sol.ys[-1])[2]) / jnp.max(wave)
        assert abs(left - jnp.exp(-0.02 * 4 * jnp.pi**2 * 0.5)) < 5e-3
        ```
    """

    gas: Euler
    viscosity: Parameter
    prandtl: Parameter
    exponent: Parameter | None
    reference: Parameter
    positive_components: ClassVar[tuple[int, ...]] = Euler.positive_components
    primitive_names: ClassVar[tuple[str, ...]] = Euler.primitive_names

    def __init__(
        self,
        grid: AbstractGrid,
        boundary: Any,
        viscosity: Any = 1e-3,
        prandtl: Any = 0.71,
        gamma: Any = 1.4,
        *,
        exponent: Any = None,
        reference: Any = 1.0,
        reconstruction: AbstractReconstruction = Muscl(),
        flux: AbstractFlux = HLLC(),
        variables: AbstractVariables = Componentwise(),
        limiter: PositivityLimiter | None = PositivityLimiter(),
        forces: Callable[[RealScalarLike, Array, Any], Array] | None = None,
    ):
        if not isinstance(grid, Grid):
            raise TypeError(
                "`CompressibleNavierStokes(grid=...)` must be a `sciml.spatial.Grid`, which is uniform, but "
                f"is {grid!r}."
            )
        if forces is not None and not callable(forces):
            raise TypeError(
                f"`CompressibleNavierStokes(forces=...)` must be a function `(t, y, args)`, but is {forces!r}."
            )
        self.gas = Euler(
            grid,
            boundary,
            gamma,
            reconstruction=reconstruction,
            flux=flux,
            variables=variables,
            limiter=limiter,
            forces=forces,
        )
        self.viscosity = parameter(viscosity)
        self.prandtl = parameter(prandtl)
        self.exponent = None if exponent is None else parameter(exponent)
        self.reference = parameter(reference)

    @property
    def volumes(self) -> FiniteVolumes:
        """The discretisation."""
        return self.gas.volumes

    def primitive(self, y: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns density, velocity and pressure of density, momentum and energy."""
        return self.gas.primitive(y)

    def conserved(self, w: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns density, momentum and energy of density, velocity and pressure."""
        return self.gas.conserved(w)

    def flux(self, w: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
        """Returns the inviscid flux along an axis, from density, velocity and pressure."""
        return self.gas.flux(w, axis)

    def speeds(self, w: Float[Array, "..."], axis: int) -> tuple[Array, Array]:
        """Returns the speeds of sound against and with the flow along an axis."""
        return self.gas.speeds(w, axis)

    def positive(self, y: Float[Array, "..."]) -> tuple[Array, ...]:
        """Returns density and pressure."""
        return self.gas.positive(y)

    def mirrored(self, w: Float[Array, "..."], axis: int, velocity: Array) -> Float[Array, "..."]:
        """Returns the state with the velocity along an axis that a moving mirror shows."""
        return self.gas.mirrored(w, axis, velocity)

    def sticking(
        self, w: Float[Array, "..."], axis: int, velocity: Array | None, temperature: Array | None
    ) -> Float[Array, "..."]:
        """Returns the state whose mean with the given one has the velocity of the wall, and its temperature."""
        density, *parts, pressure = w
        for k, v in enumerate(parts):
            parts[k] = -v if velocity is None or k == axis else 2 * velocity[k] - v
        if temperature is not None:
            density = pressure / (2 * temperature - pressure / density)
        return jnp.stack([density, *parts, pressure])

    def viscosity_at(self, temperature: Float[Array, "..."]) -> Float[Array, "..."]:
        r"""Returns the viscosity at a temperature, $p / \rho$."""
        if self.exponent is None:
            return self.viscosity
        return self.viscosity * (temperature / self.reference) ** self.exponent

    def __call__(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the time derivative; `t` and `args` go to boundary values that are functions, and to the forces."""
        check_real(y, self)
        p = with_dtype(self, y.dtype)
        return p.gas(t, y, args) + p._diffused(t, y, args)

    def _diffused(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."]:
        """Returns the divergence of the stress, and of its work and the heat that is conducted."""
        sides, w, ndim = self.volumes.sides, self.primitive(y), self.volumes.grid.ndim
        padded, pushes = [], []
        for axis in range(ndim):
            # derivatives across other axes have ghost cells as the states have, by the derivative of these
            pad = lambda w, axis=axis: sides.pad(self, w, axis, 1, t, args)  # noqa: E731
            wide, push = jax.linearize(pad, w) if ndim > 1 else (pad(w), None)
            padded.append(wide)
            pushes.append(push)
        spacing = self.volumes.grid.spacing
        slopes = [
            (_part(wide, k, 2, 0) - _part(wide, k, 0, 2)) / (2 * spacing[k]) if ndim > 1 else None
            for k, wide in enumerate(padded)
        ]
        total = jnp.zeros_like(y)
        for axis, (wide, push) in enumerate(zip(padded, pushes)):
            lower, upper = _part(wide, axis, 0, 1), _part(wide, axis, 1, 0)
            across = [
                (upper - lower) / spacing[axis] if k == axis else _mean(push(slopes[k]), axis) for k in range(ndim)
            ]
            (flux,) = held_back(self._through(lower, upper, across, axis))  # it is read twice
            total = total + (_part(flux, axis, 1, 0) - _part(flux, axis, 0, 1)) / spacing[axis]
        return total

    def _through(self, lower: Array, upper: Array, slopes: list[Array], axis: int) -> Array:
        """Returns what stress and conduction bring through faces, against the axis.

        Args:
            lower: The primitive states below the faces.
            upper: Those above.
            slopes: The derivatives at the faces along each axis.
            axis: The axis across the faces.
        """
        (density, *velocity, pressure), (density_above, *velocity_above, pressure_above) = lower, upper
        below, above = pressure / density, pressure_above / density_above
        viscosity = self.viscosity_at((below + above) / 2)
        parts = [tuple(slope)[1:-1] for slope in slopes]  # of the velocity
        spread = parts[0][0]
        for k in range(1, len(parts)):
            spread = spread + parts[k][k]
        gamma = self.gas.gamma
        conductivity = viscosity * gamma / ((gamma - 1) * self.prandtl)
        stresses, energy = [], conductivity * (above - below) / self.volumes.grid.spacing[axis]
        for k in range(len(slopes)):
            stress = parts[axis][k] + parts[k][axis]
            stress = viscosity * (stress - 2 * spread / 3 if k == axis else stress)
            energy = energy + stress * (velocity[k] + velocity_above[k]) / 2
            stresses.append(stress)
        return jnp.stack([jnp.zeros_like(energy), *stresses, energy])

    def source(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, "..."] | None:
        """Returns the contribution of the forces to the rates."""
        return self.gas.source(t, y, args)

    def diffusion_rate(self, y: Float[Array, "..."]) -> Float[Array, ""]:
        r"""Returns a bound on the rates at which differences between cells diffuse.

        $4 \max \mu / \rho \, \max(4/3, \gamma / \mathrm{Pr}) \sum_k h_k^{-2}$.
        """
        p = with_dtype(self, y.dtype)
        w = p.primitive(y)
        fastest = jnp.maximum(jnp.full_like(p.prandtl, 4 / 3), p.gas.gamma / p.prandtl)
        largest = p.volumes.sides.largest(p.viscosity_at(w[-1] / w[0]) / w[0])
        return 4 * fastest * largest * sum(h**-2 for h in p.volumes.grid.spacing)

    def crossing_rate(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Float[Array, ""]:
        r"""Returns the number of cells that the fastest wave crosses per unit of time, plus a term for diffusion.

        $\max \sum_k |\lambda_k| / h_k$ and half of `diffusion_rate`, so that steps of a Courant number up to 1
        (`solve(cfl=...)`) are stable for methods such as `sciml.solvers.SSPRK33`.
        """
        return self.gas.crossing_rate(t, y, args) + self.diffusion_rate(y) / 2

    def spectrum(self, t: RealScalarLike, y: Float[Array, "..."], args: Args) -> Complex[Array, " waves"]:
        """Returns eigenvalues of the Jacobian in smooth flow: of damped waves, and of pure diffusion."""
        waves = self.gas.spectrum(t, y, args)
        rate = self.diffusion_rate(y)
        damping = rate * jnp.asarray((1 - np.cos(PHASES)) / 2, rate.dtype)
        damping = jax.lax.complex(damping, jnp.zeros_like(damping))
        return jnp.concatenate([waves - damping, -damping])

    def with_kernel(self, y: Float[Array, "..."], request: KernelRequest) -> "CompressibleNavierStokes":
        """Returns the law as it is: XLA runs it.

        Raises:
            ValueError: If a kernel was requested.
        """
        if isinstance(request.impl, str):
            refused(request, NotForKernelsError("its stress and heat are not fluxes of two states"))
        return self


def _part(x: Array, axis: int, first: int, last: int) -> Array:
    """A state along an axis of the grid without a number of layers at either end."""
    return jax.lax.slice_in_dim(x, first, x.shape[1 + axis] - last, axis=1 + axis)


def _mean(x: Array, axis: int) -> Array:
    """The means of neighbours along an axis of the grid."""
    return (_part(x, axis, 0, 1) + _part(x, axis, 1, 0)) / 2
