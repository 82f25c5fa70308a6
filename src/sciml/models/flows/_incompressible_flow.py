"""Flow that cannot be compressed, between walls and around bodies."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_real
from ..._interfaces._model import AbstractModel, AbstractSplit
from ..._parameters import Parameter, parameter, with_dtype
from ..._types import Args, RealScalarLike
from ...spatial import Central, Grid, Laplacian
from ...spatial._abstract_grid import AbstractGrid
from ...spatial._blocks import AbstractBlocks
from ...spatial._boundaries import as_boundary
from ...spatial.elliptic._poisson import separate
from ...spatial.staggered._friction import friction, laplacian
from ...spatial.staggered._projection import Projection
from ...spatial.staggered._spacing import broadest, finest, over_widths
from ...spatial.staggered._split_boundaries import SplitBoundaries, to_blocks, to_whole
from ...spatial.staggered._stokes import projection, solve_diffusion, solve_stokes, viscous
from ...spatial.staggered._transport import AbstractTransport, carry_momentum, carry_scalar
from ...spatial.staggered._velocity import StaggeredVelocity, Velocity, mean
from ..waves._wave_blocks import read_domain
from ._flow_forces import AbstractEddyViscosity, AbstractFlowForce, Carried


class FlowState(NamedTuple):
    """The state of `IncompressibleFlow`, or its rates.

    Attributes:
        velocity: The velocity through the unknown faces across each axis, an array each.
        carried: The carried fields, by name, at cell centres.

    Example:
        ```python
        from sciml.models import IncompressibleFlow
        from sciml.spatial import Grid, NoSlip

        y0 = IncompressibleFlow(Grid((8, 6)), NoSlip()).start()
        assert y0.velocity[0].shape == (7, 6) and y0.carried == {}
        ```
    """

    velocity: tuple[Float[Array, "..."], ...]
    carried: dict[str, Float[Array, "..."]]


class IncompressibleFlow(AbstractModel):
    r"""The Navier-Stokes equations of a fluid that cannot be compressed, in two or three dimensions.

    $$\partial_t u = -\nabla \cdot (u \otimes u) - \nabla p + \nabla \cdot \big(\nu (\nabla u + \nabla u^T)\big) + f,
      \qquad \nabla \cdot u = 0$$

    with $p$ the pressure over the density and $f$ the sum of `forces`. Velocities are at the faces of cells, all else
    at their centres. The vector field acts only on $u$, $\dot u = P(\dots)$, where the projection $P$ removes any
    change of the divergence: an ordinary differential equation, which every method, adjoint and ensemble of
    `sciml.solve` supports. The result of `start` has no divergence; $P$ is linear, so the divergence stays zero to
    rounding after any number of steps. If the velocity across a side is a function of time, the divergence has the
    error of the time step, and `project` removes it.

    Second order in space. `Central` transport conserves the energy if no viscosity, force or side changes it.
    Diffusion limits explicit steps on fine grids: `ImplicitFriction` treats it implicitly. `solve(cfl=0.8,
    solver=sciml.solvers.SSPRK33())` takes steps that follow the flow.

    Good values: a lid-driven cavity, `Grid((64, 64))`, `{"x": NoSlip(), "y-": NoSlip(), "y+": NoSlip((1.0, 0.0))}`,
    `viscosity=0.01`, time from 0 to 30.

    Attributes:
        velocity: The faces, and the conditions at the sides.
        viscosity: $\nu$, kinematic: a number, or an array over the grid.
        carried: The carried fields, by name.
        forces: The forces on it.
        transport: The interpolation of carried values to faces.
        eddies: The viscosity of eddies that the grid does not resolve, or None.
        blocks: How it is split over devices, or None.

    Args:
        grid: The grid, of two or three axes: a `Grid`, or an `OrthogonalGrid` in `Cartesian` coordinates, whose
            cells are fine where much happens.
        boundary: One side for all, or by name: `Periodic()`, `NoSlip(velocity)`, `FreeSlip()`,
            `VelocityInlet(velocity)`, `PressureOutlet(pressure)`.
        viscosity: $\nu$.
        carried: The carried fields: names with a `Carried` each.
        forces: `BodyForce`, `Buoyancy`, `Obstacle`, or others of the kind `AbstractFlowForce`.
        transport: `Central()`, or `LimitedUpwind()`.
        eddies: `Smagorinsky()`, or None.
        domain: A `sciml.parallel.Domain` without `boundary` whose devices share the grid, or None. It takes what
            `to_blocks` makes of a state, and `from_blocks` makes whole ones of its results. Cells belong to a device's
            block and its neighbours. Devices share the transforms for the pressure, with two all-to-alls for each axis
            that is split; split every axis, and it is gathered and every device solves for all of it.

    Raises:
        ValueError: If the grid has one axis or turns, a side is missing, or the viscosity or state has the wrong shape;
            if a domain splits an axis with outlets at both ends, or the cells of an `OrthogonalGrid`.
        TypeError: If an argument has the wrong type.

    Source:
        F. H. Harlow, J. E. Welch, Phys. Fluids 8:2182, 1965, for the grid; B. Sanderse, B. Koren, J. Comput. Phys.
        231:3041, 2012, for Runge-Kutta methods with the projection of every stage.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models import IncompressibleFlow
        from sciml.spatial import Grid, NoSlip

        grid = Grid((16, 16))
        sides = {"x": NoSlip(), "y-": NoSlip(), "y+": NoSlip((1.0, 0.0))}
        cavity = IncompressibleFlow(grid, sides, viscosity=0.05)
        sol = sciml.solve(cavity, cavity.start(), t0=0.0, t1=1.0, cfl=0.8, solver=sciml.solvers.SSPRK33())
        end = jax.tree.map(lambda x: x[-1], sol.ys)
        assert jnp.max(jnp.abs(cavity.divergence(end))) < 1e-4
        assert jnp.min(cavity.at_centers(end)[0]) < -0.1  # the fluid returns below
        ```
    """

    velocity: StaggeredVelocity
    viscosity: Parameter
    carried: dict[str, Carried]
    forces: tuple[AbstractFlowForce, ...]
    transport: AbstractTransport
    eddies: AbstractEddyViscosity | None
    blocks: AbstractBlocks | None

    def __init__(
        self,
        grid: AbstractGrid,
        boundary: Any,
        viscosity: Any = 1e-2,
        *,
        carried: Mapping[str, Carried] | None = None,
        forces: Sequence[AbstractFlowForce] = (),
        transport: AbstractTransport = Central(),
        eddies: AbstractEddyViscosity | None = None,
        domain: Any = None,
    ):
        if hasattr(boundary, "sides_of"):  # a `parallel.Domain`
            raise TypeError("`IncompressibleFlow(boundary=...)` must be sides. Pass the `Domain` as `domain=`.")
        self.velocity = boundary if isinstance(boundary, StaggeredVelocity) else StaggeredVelocity(grid, boundary)
        self.viscosity = parameter(viscosity)
        if self.viscosity.shape not in ((), grid.shape):
            raise ValueError(
                f"`IncompressibleFlow(viscosity=...)` must be a number or have the shape {grid.shape} of the grid, but "
                f"has shape {self.viscosity.shape}."
            )
        self.carried = {
            name: Carried(as_boundary(grid, one.boundary), one.diffusivity, one.source)
            for name, one in sorted((carried or {}).items())
        }
        self.forces, self.transport, self.eddies = tuple(forces), transport, eddies
        self.blocks = self._blocks_of(domain)
        for force in self.forces:
            if not isinstance(force, AbstractFlowForce):
                raise TypeError(
                    "`IncompressibleFlow(forces=...)` must be a list of `BodyForce`, `Buoyancy`, `Obstacle` or another "
                    f"`AbstractFlowForce`, but has {force!r}."
                )

    def _blocks_of(self, domain: Any) -> AbstractBlocks | None:
        if domain is not None and not isinstance(self.grid, Grid):
            raise ValueError("`IncompressibleFlow(domain=...)` requires a uniform `Grid`, but has an `OrthogonalGrid`.")
        for name, one in self.carried.items():
            if domain is not None and getattr(one.boundary, "body", None) is not None:
                raise ValueError(
                    f"`IncompressibleFlow(domain=...)`: the boundary of `carried[{name!r}]` must belong to a grid "
                    "without a body."
                )
        blocks = read_domain(domain, self.grid, "IncompressibleFlow")
        for axis, name in enumerate(self.grid.names):
            if blocks is None or self.velocity.component(axis).location[axis] != "node":
                continue
            if domain is not None and domain.axes[axis] is not None:
                raise ValueError(
                    f"`IncompressibleFlow(domain=...)` cannot split {name}: with outlets at both ends it has one more "
                    "unknown face than cells. Split another axis."
                )
        return blocks

    def to_blocks(self, y: FlowState) -> FlowState:
        """Returns a state as adjacent blocks, as `Domain.run` expects it.

        If the velocity across both ends of a split axis is given, it has one more face, which is zero and not an
        unknown.

        Args:
            y: A state.

        Raises:
            ValueError: If the model has no domain, or its devices do not divide the cells.
        """
        return self._each(to_blocks, y)

    def from_blocks(self, y: FlowState) -> FlowState:
        """Returns the state that `to_blocks` was given."""
        return self._each(to_whole, y)

    def _each(self, change: Callable[..., Array], y: FlowState) -> FlowState:
        if self.blocks is None:
            raise ValueError("the model runs on one device. Create it with `domain=`, a `sciml.parallel.Domain`.")
        parts = [change(u, self.velocity.component(i), self.blocks) for i, u in enumerate(y.velocity)]
        return y._replace(velocity=tuple(parts))

    @property
    def grid(self) -> AbstractGrid:
        """The grid."""
        return self.velocity.grid

    def start(
        self,
        velocity: Callable | Sequence[Any] | None = None,
        carried: Mapping[str, Any] | None = None,
        *,
        t: RealScalarLike = 0.0,
        args: Args = None,
        dtype: Any = None,
    ) -> FlowState:
        """Returns a state, whose velocity is the one without divergence that is closest to the given one.

        Args:
            velocity: A function of the coordinates that returns the components, or a number or an array at the unknown
                faces for each; None for rest.
            carried: The carried fields, by name: a number, an array over the grid, or a function of the coordinates.
            t: The time, for values at sides that are functions.
            args: Their second argument.
            dtype: The dtype of the state; by default the default floating type.

        Raises:
            ValueError: If something has the wrong shape, or `carried` has other names than the model.
        """
        dtype = jnp.result_type(float) if dtype is None else dtype
        p, given = with_dtype(self, dtype)._here, dict(carried or {})
        if set(given) != set(self.carried):
            raise ValueError(
                f"`start(carried=...)` must have the names {sorted(self.carried)}, but has {sorted(given)}."
            )
        u = p.velocity.zeros(dtype) if velocity is None else p.velocity.sample(velocity, dtype)
        fields = {}
        for name in self.carried:
            value = given[name](*p.velocity.pressure.coordinates) if callable(given[name]) else given[name]
            value = jnp.asarray(value, dtype)
            if not callable(given[name]):
                value = p.velocity.at_centers(value)
            fields[name] = jnp.broadcast_to(value, p.grid.shape)
        return FlowState(p.velocity.unknown(Projection(p.velocity)(u, t=t, args=args)), fields)

    def project(self, y: FlowState, *, t: RealScalarLike = 0.0, args: Args = None) -> FlowState:
        """Returns a state with the velocity without divergence that is closest to its own."""
        self.check_state(y)
        p = self.in_dtype_of(y)
        return y._replace(velocity=p.velocity.unknown(p._projection(y.velocity, t=t, args=args)))

    def divergence(self, y: FlowState, *, t: RealScalarLike = 0.0, args: Args = None) -> Float[Array, "..."]:
        """Returns the divergence of the velocity at the centres of cells."""
        return self.in_dtype_of(y)._projection.divergence(y.velocity, t=t, args=args)

    def at_centers(self, y: FlowState, *, t: RealScalarLike = 0.0, args: Args = None) -> Float[Array, "..."]:
        """Returns the velocity at the centres of cells, of shape `(ndim, *grid)`."""
        return self.in_dtype_of(y).velocity.centers(y.velocity, t=t, args=args)

    def vorticity(self, y: FlowState, *, t: RealScalarLike = 0.0, args: Args = None) -> Float[Array, "..."]:
        r"""Returns $\partial_x v - \partial_y u$ at the nodes of a plane, of shape `(nx + 1, ny + 1)`.

        Raises:
            ValueError: If the grid has three axes; use `StaggeredVelocity.vorticity`.
        """
        if self.grid.ndim != 2:
            raise ValueError("`vorticity` is a scalar only in two dimensions; in three use `velocity.vorticity`.")
        return self.in_dtype_of(y).velocity.vorticity(y.velocity, t=t, args=args)[0, 1]

    def pressure(self, y: FlowState, *, t: RealScalarLike = 0.0, args: Args = None) -> Float[Array, "..."]:
        """Returns the pressure over the density at the centres of cells; without an outlet its mean is zero."""
        self.check_state(y)
        p = self.in_dtype_of(y)
        return p._projection.accelerate(p.momentum(t, y, args), t=t, args=args)[1]

    def energy(self, y: FlowState, *, t: RealScalarLike = 0.0, args: Args = None) -> Float[Array, ""]:
        r"""Returns the kinetic energy over the density, $\tfrac12 \int |u|^2$."""
        p = self.in_dtype_of(y)
        total = jnp.zeros((), y.velocity[0].dtype)
        for i, u in enumerate(p.velocity.faces(y.velocity, t=t, args=args)):
            periodic = p.velocity.pressure.periodic[i]
            at = tuple(("lower" if periodic else "node") if a == i else "center" for a in range(p.grid.ndim))
            total = total + p.grid.integrate(u**2, at)  # of a face of two blocks each counts half
        return p.velocity.sum(total) / 2

    def __call__(self, t: RealScalarLike, y: FlowState, args: Args) -> FlowState:
        """Returns the time derivative; `t` and `args` go to sides, forces and sources that are functions."""
        self.check_state(y)
        p = self.in_dtype_of(y)
        levelling = jnp.mean(p.viscosity) * sum(h**-2 for h in broadest(self.grid))
        velocity, _ = p.accelerate(p.momentum(t, y, args), levelling, t, y, args)
        return FlowState(p.velocity.unknown(velocity), {name: p.carry(name, t, y, args) for name in self.carried})

    def crossing_rate(self, t: RealScalarLike, y: FlowState, args: Args) -> Float[Array, ""]:
        r"""Returns the number of cells that the flow crosses per unit of time, plus terms for diffusion and decay.

        $\max \sum_k |u_k| / h_k + 2 \nu \sum_k h_k^{-2} + \tfrac12 \max \chi / \eta$, so that steps of a Courant number
        up to 1 (`solve(cfl=...)`) are stable for methods such as `sciml.solvers.SSPRK33`.
        """
        p = self.in_dtype_of(y)
        return p.flow_rate(t, y, args) + (p._diffusion_rate(t, y, args) + p.decay_rate(y)) / 2

    def flow_rate(self, t: RealScalarLike, y: FlowState, args: Args) -> Float[Array, ""]:
        r"""Returns the part of `crossing_rate` that is the flow's and its walls', $\max \sum_k |u_k| / h_k$."""
        p, spacing = self.in_dtype_of(y), finest(self.grid)
        u = jnp.abs(p.velocity.centers(y.velocity, t=t, args=args))
        crossed = [over_widths(p.grid, part, axis) for axis, part in enumerate(u)]
        found = [p.velocity.max(sum(crossed[1:], crossed[0]))]
        for i, part in enumerate(y.velocity):
            wide = p.velocity.padded(i, part, t=t, args=args)
            for axis in range(self.grid.ndim):
                if axis != i:  # the means of the cells at a wall and their ghosts are its velocity
                    found.append(p.velocity.max(jnp.abs(mean(wide, axis))) / spacing[i])
        return jnp.max(jnp.stack(found))

    def decay_rate(self, y: FlowState) -> Float[Array, ""]:
        """Returns the largest rate at which a force brings anything to rest."""
        rates = [jnp.asarray(force.decay(), y.velocity[0].dtype) for force in self.forces]
        return jnp.max(jnp.stack([jnp.zeros((), y.velocity[0].dtype), *rates]))

    def spectrum(self, t: RealScalarLike, y: FlowState, args: Args) -> Array:
        """Returns bounds on the eigenvalues of the Jacobian, from which `sciml.solve` derives stable steps."""
        self.check_state(y)
        p = self.in_dtype_of(y)
        moves = p.flow_rate(t, y, args)
        decays = p._diffusion_rate(t, y, args) + p.decay_rate(y)
        return jax.lax.complex(jnp.stack([jnp.zeros_like(decays), -decays]), jnp.stack([moves, moves]))

    def spectral_radius(self, t: RealScalarLike, y: FlowState, args: Args) -> Array:
        """Returns a bound on the modulus of the eigenvalues of the Jacobian."""
        return jnp.max(jnp.abs(self.spectrum(t, y, args)))

    @property
    def _projection(self) -> Projection:
        return Projection(self.velocity)

    def in_dtype_of(self, y: FlowState) -> "IncompressibleFlow":
        """Returns the model in the dtype of a state, and within a block the model of the block."""
        return with_dtype(self, y.velocity[0].dtype)._here

    @property
    def _here(self) -> "IncompressibleFlow":
        """The model of a block, where the code that is traced runs within one."""
        if self.blocks is None or self.velocity.blocks is not None or not self.blocks.inside:
            return self
        blocks = self.blocks
        carried = {
            name: eqx.tree_at(lambda c: c.boundary, one, SplitBoundaries(one.boundary, blocks))
            for name, one in self.carried.items()
        }
        return eqx.tree_at(lambda m: (m.velocity, m.carried), self, (self.velocity.in_blocks(blocks), carried))

    def accelerate(
        self, force: Velocity, rate: Array, t: RealScalarLike, y: FlowState, args: Args
    ) -> tuple[Velocity, Float[Array, "..."]]:
        """Returns the projected acceleration, and the pressure.

        Divergence from rounding and steps decays in the time in which the flow crosses a cell, or at the given rate: an
        explicit step that is stable for the flow is also stable for this decay. Without it rounding would add up where
        the flow is steady, as it then has the same sign at every step.
        """
        for i, (u, h) in enumerate(zip(y.velocity, broadest(self.grid))):
            # not the largest: its derivative asks which value equals it, and finds none where XLA computes one twice
            square = self.velocity.mean(u**2, i)
            moves = square > 0
            speed = jnp.where(moves, jnp.sqrt(jnp.where(moves, square, jnp.ones_like(square))), jnp.zeros_like(square))
            rate = rate + speed / h
        excess = rate * self._projection.divergence(y.velocity, t=t, args=args)
        return self._projection.accelerate(force, excess, t=t, args=args)

    def momentum(self, t: RealScalarLike, y: FlowState, args: Args) -> Velocity:
        """Returns all rates of the velocity except the pressure's, at the unknown faces."""
        total = carry_momentum(self.velocity, self.transport, y.velocity, t, args)
        terms = [self._friction(t, y, args), *(force(self, t, y, args) for force in self.forces)]
        for term in terms:
            total = tuple(a + b for a, b in zip(total, term, strict=True))
        return total

    def _friction(self, t: RealScalarLike, y: FlowState, args: Args) -> Velocity:
        if self.viscosity.ndim == 0 and self.eddies is None:
            if not isinstance(self.grid, Grid):
                return tuple(self.viscosity * part for part in laplacian(self.velocity, y.velocity, t, args))
            operators = [Laplacian(self.grid, self.velocity.component(i)) for i in range(self.grid.ndim)]
            return tuple(self.viscosity * a(u, t=t, args=args) for a, u in zip(operators, y.velocity))
        strain = self.velocity.strain(y.velocity, t=t, args=args)
        return friction(self.velocity, strain, self._viscosities(strain))

    def _viscosities(self, strain: dict[tuple[int, int], Array]) -> Array:
        whole = jnp.broadcast_to(self.velocity.at_centers(self.viscosity), self.grid.shape)
        return whole if self.eddies is None else whole + self.eddies(self.velocity, strain)

    def carry(self, name: str, t: RealScalarLike, y: FlowState, args: Args) -> Array:
        """Returns the rate of one of the things that are carried."""
        one, c = self.carried[name], y.carried[name]
        rate = carry_scalar(self.velocity, self.transport, y.velocity, c, one.boundary, t, args)
        rate = rate + one.diffusivity * Laplacian(self.grid, one.boundary)(c, t=t, args=args)
        return rate if one.source is None else rate + one.source(t, c, args)

    def _diffusion_rate(self, t: RealScalarLike, y: FlowState, args: Args) -> Array:
        """The largest rate at which viscosity and diffusivity level something out."""
        dtype = y.velocity[0].dtype
        viscosity, factor = jnp.max(self.viscosity), 4.0
        if self.viscosity.ndim or self.eddies is not None:
            strain = self.velocity.strain(y.velocity, t=t, args=args)
            viscosity, factor = self.velocity.max(self._viscosities(strain)), 8.0  # both halves of the stress
        found = [factor * viscosity, *(4.0 * one.diffusivity for one in self.carried.values())]
        return sum(h**-2 for h in finest(self.grid)) * jnp.max(jnp.stack([x.astype(dtype) for x in found]))

    def check_state(self, y: Any) -> None:
        """Raises an error if it is not a state on the grid.

        Raises:
            TypeError: If it is not a real `FlowState`.
            ValueError: If arrays have the wrong shapes.
        """
        here = self._here
        shapes, cells = here.velocity.shapes, here.grid.shape
        right = (
            f"a `FlowState` with a tuple `velocity` of arrays of shapes {', '.join(map(str, shapes))} and a dictionary "
            f"`carried` of arrays of shape {cells} for {sorted(self.carried)}, as returned by `model.start()`"
        )
        if not isinstance(y, FlowState):
            got = f"an array of shape {y.shape}" if hasattr(y, "shape") else f"a {type(y).__name__}"
            raise TypeError(f"the state of `IncompressibleFlow` must be {right}, but is {got}.")
        for x in (*y.velocity, *y.carried.values()):
            check_real(x, self)
        found = tuple(u.shape for u in y.velocity)
        fields = {name: c.shape for name, c in y.carried.items()}
        if found != shapes or fields != dict.fromkeys(self.carried, cells):
            raise ValueError(
                f"the state of `IncompressibleFlow` must be {right}, but `velocity` has shapes "
                f"{', '.join(map(str, found))} and `carried` {fields}."
            )


class ImplicitFriction(AbstractSplit):
    r"""An `IncompressibleFlow` for implicit-explicit methods: $\dot u = P \nu \nabla^2 u + N(t, u)$.

    Viscosity, and the diffusion of carried fields, are the stiff part, so that they do not limit the steps; transport
    and forces are the rest. $(1 - \tau P \nu \nabla^2 P)\, u = r$, a problem of Stokes, is solved among velocities
    without divergence by conjugate gradients, with the projected solves of $1 - \tau \nu \nabla^2$ by transforms as
    preconditioner. Between periodic sides that is exact after one step, with walls a few are needed, fewer the smaller
    $\tau \nu / h^2$ is.

    With `solve(cfl=...)` the steps only follow the flow. For a fluid at rest that a force sets in motion, the flow does
    not determine the first step: pass `dt`, or also tolerances. `sciml.solvers.CrankNicolson` and `ARS` are of second
    order, `ARK` of third, with error control.

    Under a `Domain` devices share the transforms of each iteration.

    Attributes:
        flow: The flow, whose viscosity is a number.

    Raises:
        ValueError: If its viscosity is an array, the grid an `OrthogonalGrid`, or under a `Domain` a side of something
            carried has no fast transform.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models import ImplicitFriction, IncompressibleFlow
        from sciml.spatial import Grid, NoSlip

        sides = {"x": NoSlip(), "y-": NoSlip(), "y+": NoSlip((1.0, 0.0))}
        cavity = IncompressibleFlow(Grid((8, 8)), sides, viscosity=1.0)
        model = ImplicitFriction(cavity)
        sol = sciml.solve(model, cavity.start(), t0=0.0, t1=0.5, dt=0.05, solver=sciml.solvers.ARS(order=2))
        end = jax.tree.map(lambda x: x[-1], sol.ys)
        assert jnp.max(jnp.abs(model(0.0, end, None).velocity[0])) < 1e-2  # an explicit step is 0.002 at most
        ```
    """

    flow: IncompressibleFlow

    def __check_init__(self):
        """Refuses a viscosity that varies, and cells that differ."""
        if not isinstance(self.flow.grid, Grid):
            raise ValueError(
                "`ImplicitFriction` requires a uniform `Grid` for its transforms. On an `OrthogonalGrid` solve the "
                "flow explicitly, for example with `sciml.solvers.RKC2()` if viscosity limits the steps."
            )
        if self.flow.blocks is not None:
            self._check_transforms()
        if self.flow.viscosity.ndim:
            raise ValueError(
                "`ImplicitFriction` requires a flow whose viscosity is a number, but it has shape "
                f"{self.flow.viscosity.shape}. Solve the flow explicitly, or pass the varying part as `eddies`."
            )

    def _check_transforms(self) -> None:
        """Refuses sides between which a field that is split has no fast transform."""
        fields = {f"velocity[{i}]": self.flow.velocity.component(i) for i in range(self.flow.grid.ndim)}
        fields |= {f"carried[{name!r}]": one.boundary for name, one in self.flow.carried.items()}
        for name, boundary in fields.items():
            try:
                separate(boundary, 2)
            except ValueError as error:
                raise ValueError(
                    "`ImplicitFriction` of a flow that a `Domain` splits requires fast transforms of all diffusing "
                    f"fields, but `{name}` has none: {error}"
                ) from error

    def __call__(self, t: RealScalarLike, y: FlowState, args: Args) -> FlowState:
        """Returns the time derivative."""
        for x in jax.tree.leaves(y):
            check_real(x, self)
        return self.flow(t, y, args)

    def stiff(self, y: FlowState, args: Args) -> FlowState:
        """Returns the change by viscosity and diffusion, with zero at the sides."""
        del args
        p = self.flow.in_dtype_of(y)
        velocity = projection(p.velocity)(viscous(p.velocity, p.viscosity, y.velocity))
        return FlowState(velocity, _diffused(p, y))

    def rest(self, t: RealScalarLike, y: FlowState, args: Args) -> FlowState:
        """Returns everything else."""
        self.flow.check_state(y)
        p = self.flow.in_dtype_of(y)
        stiff = viscous(p.velocity, p.viscosity, y.velocity)
        explicit = tuple(a - b for a, b in zip(p.momentum(t, y, args), stiff, strict=True))
        velocity, _ = p.accelerate(explicit, jnp.zeros((), stiff[0].dtype), t, y, args)
        diffused = _diffused(p, y)
        velocity = p.velocity.unknown(velocity)
        return FlowState(velocity, {name: p.carry(name, t, y, args) - diffused[name] for name in y.carried})

    def solve_shifted(self, shift: RealScalarLike, right: FlowState, args: Args) -> FlowState:
        r"""Returns the solution of $(1 - \tau A) y = r$; NaN if it is not found."""
        del args
        p, shift = self.flow.in_dtype_of(right), jnp.asarray(shift, right.velocity[0].dtype)
        carried = {}
        for name, r in right.carried.items():
            one = p.carried[name]
            carried[name] = solve_diffusion(Laplacian(p.grid, one.boundary), one.diffusivity, shift, r)
        velocity = solve_stokes(p.velocity, p.viscosity, shift, right.velocity)
        return FlowState(p.velocity.unknown(velocity), carried)

    def crossing_rate(self, t: RealScalarLike, y: FlowState, args: Args) -> Float[Array, ""]:
        """Returns the number of cells that the flow crosses per unit of time, plus half of the decay rate of forces."""
        return self.flow.flow_rate(t, y, args) + self.flow.decay_rate(y) / 2

    def spectrum(self, t: RealScalarLike, y: FlowState, args: Args) -> Array:
        """Returns bounds on the eigenvalues of the Jacobian, for explicit methods."""
        return self.flow.spectrum(t, y, args)

    def spectral_radius(self, t: RealScalarLike, y: FlowState, args: Args) -> Array:
        """Returns a bound on the modulus of the eigenvalues of the Jacobian."""
        return self.flow.spectral_radius(t, y, args)


def _diffused(p: IncompressibleFlow, y: FlowState) -> dict[str, Array]:
    found = {}
    for name, c in y.carried.items():
        one = p.carried[name]
        found[name] = one.diffusivity * Laplacian(p.grid, one.boundary.homogeneous())(c)
    return found
