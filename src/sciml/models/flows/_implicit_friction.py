"""Incompressible flow whose viscosity is taken implicitly."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_real
from ..._interfaces._model import AbstractSplit
from ..._types import Args, RealScalarLike
from ...spatial import Grid, Laplacian
from ...spatial.elliptic._separable import separate
from ...spatial.staggered._stokes import projection, solve_diffusion, solve_stokes, viscous
from ._incompressible_flow import FlowState, IncompressibleFlow


class ImplicitFriction(AbstractSplit):
    r"""An `IncompressibleFlow` for implicit-explicit methods: $\dot u = P \nu \nabla^2 u + N(t, u)$.

    Viscosity, and the diffusion of what is carried, are the stiff part, so that they do not limit the steps; transport
    and forces are the rest. $(1 - \tau P \nu \nabla^2 P)\, u = r$, a problem of Stokes, is solved among velocities
    without divergence by conjugate gradients, with the projected solves of $1 - \tau \nu \nabla^2$ by transforms as
    preconditioner. Between periodic sides that is exact after one step, with walls a few are needed, fewer the smaller
    $\tau \nu / h^2$ is.

    With `solve(cfl=...)` the steps follow the flow alone; a fluid at rest that a force sets in motion gives no hint of
    how long the first may be, so there give `dt`, or tolerances too. `sciml.solvers.CrankNicolson` and `ARS222` are of
    second order, `ARK324` of third, with error control.

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
        sol = sciml.solve(model, cavity.start(), t0=0.0, t1=0.5, dt=0.05, solver=sciml.solvers.ARS222())
        end = jax.tree.map(lambda x: x[-1], sol.ys)
        assert jnp.max(jnp.abs(model(0.0, end, None).velocity[0])) < 1e-2  # an explicit step is 0.002 at most
        ```
    """

    flow: IncompressibleFlow

    def __check_init__(self):
        """Refuses a viscosity that varies, and cells that differ."""
        if not isinstance(self.flow.grid, Grid):
            raise ValueError(
                "`ImplicitFriction` needs a `Grid`, whose cells are all alike, for its transforms: on an "
                "`OrthogonalGrid` solve the flow explicitly, as by `sciml.solvers.RKC2()` where viscosity limits the "
                "steps."
            )
        if self.flow.blocks is not None:
            self._check_transforms()
        if self.flow.viscosity.ndim:
            raise ValueError(
                "`ImplicitFriction` is for a viscosity that is a number, but that of its flow has the shape "
                f"{self.flow.viscosity.shape}: solve it explicitly, or add what varies as `eddies`."
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
                    f"`ImplicitFriction` of a flow that a `Domain` splits needs fast transforms of all that diffuses, "
                    f"but `{name}` has none: {error}"
                ) from error

    def __call__(self, t: RealScalarLike, y: FlowState, args: Args) -> FlowState:
        """Returns the time derivative."""
        for x in jax.tree.leaves(y):
            check_real(x, self)
        return self.flow(t, y, args)

    def stiff(self, y: FlowState, args: Args) -> FlowState:
        """Returns what viscosity and diffusion change, with zero at the sides."""
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
        r"""Returns the solution of $(1 - \tau A) y = r$; NaN where it is not found."""
        del args
        p, shift = self.flow.in_dtype_of(right), jnp.asarray(shift, right.velocity[0].dtype)
        carried = {}
        for name, r in right.carried.items():
            one = p.carried[name]
            carried[name] = solve_diffusion(Laplacian(p.grid, one.boundary), one.diffusivity, shift, r)
        velocity = solve_stokes(p.velocity, p.viscosity, shift, right.velocity)
        return FlowState(p.velocity.unknown(velocity), carried)

    def crossing_rate(self, t: RealScalarLike, y: FlowState, args: Args) -> Float[Array, ""]:
        """Returns how many cells the flow crosses in a unit of time, and half of what forces bring to rest in it."""
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
