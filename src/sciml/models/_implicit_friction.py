"""Incompressible flow whose viscosity is taken implicitly."""

from typing import Any

import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float

from .._checks import check_real
from .._model import AbstractSplit
from .._parameters import with_dtype
from .._types import Args, RealScalarLike
from ..spatial import ImplicitDiffusion, Laplacian, Projection
from ..spatial.staggered._velocity import Velocity
from ._incompressible_flow import Flow, IncompressibleFlow


class ImplicitFriction(AbstractSplit):
    r"""An `IncompressibleFlow` for implicit-explicit methods: $\dot u = P \nu \nabla^2 u + N(t, u)$.

    Viscosity, and the diffusion of what is carried, are the stiff part, so that they do not limit the steps; transport
    and forces are the rest. $(1 - \tau P \nu \nabla^2 P)\, u = r$, a problem of Stokes, is solved among velocities
    without divergence by conjugate gradients, with the projected solves of $1 - \tau \nu \nabla^2$ by transforms as
    preconditioner. Between periodic sides that is exact after one step, with walls a few are needed, fewer the smaller
    $\tau \nu / h^2$ is.

    With `solve(cfl=...)` the steps follow the flow alone. `sciml.solvers.CrankNicolson` and `ARS222` are of second
    order, `ARK324` of third, with error control.

    Attributes:
        flow: The flow, whose viscosity is a number.

    Raises:
        ValueError: If its viscosity is an array.

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
        """Refuses a viscosity that varies."""
        if self.flow.viscosity.ndim:
            raise ValueError(
                "`ImplicitFriction` is for a viscosity that is a number, but that of its flow has the shape "
                f"{self.flow.viscosity.shape}: solve it explicitly, or add what varies as `eddies`."
            )

    def __call__(self, t: RealScalarLike, y: Flow, args: Args) -> Flow:
        """Returns the time derivative."""
        for x in jax.tree.leaves(y):
            check_real(x, self)
        return self.flow(t, y, args)

    def stiff(self, y: Flow, args: Args) -> Flow:
        """Returns what viscosity and diffusion change, with zero at the sides."""
        del args
        p = with_dtype(self.flow, y.velocity[0].dtype)
        return Flow(Projection(p.velocity).linear(_viscous(p, y.velocity)), _diffused(p, y))

    def rest(self, t: RealScalarLike, y: Flow, args: Args) -> Flow:
        """Returns everything else."""
        p = with_dtype(self.flow, y.velocity[0].dtype)
        p.check_state(y)
        explicit = tuple(a - b for a, b in zip(p.momentum(t, y, args), _viscous(p, y.velocity), strict=True))
        velocity, _ = Projection(p.velocity).accelerate(explicit, t=t, args=args)
        diffused = _diffused(p, y)
        return Flow(velocity, {name: p.carry(name, t, y, args) - diffused[name] for name in y.carried})

    def solve_shifted(self, shift: RealScalarLike, right: Flow, args: Args) -> Flow:
        r"""Returns the solution of $(1 - \tau A) y = r$; NaN where it is not found."""
        del args
        dtype = right.velocity[0].dtype
        p, shift = with_dtype(self.flow, dtype), jnp.asarray(shift, dtype)
        carried = {}
        for name, r in right.carried.items():
            one = p.carried[name]
            carried[name] = ImplicitDiffusion(Laplacian(p.grid, one.boundary), one.diffusivity).solve(shift, r)
        return Flow(_solve_stokes(p, shift, right.velocity), carried)

    def crossing_rate(self, t: RealScalarLike, y: Flow, args: Args) -> Float[Array, ""]:
        """Returns how many cells the flow crosses in a unit of time, and half of what forces bring to rest in it."""
        return self.flow.flow_rate(t, y, args) + self.flow.decay_rate(y) / 2

    def spectrum(self, t: RealScalarLike, y: Flow, args: Args) -> Array:
        """Returns bounds on the eigenvalues of the Jacobian, for explicit methods."""
        return self.flow.spectrum(t, y, args)

    def spectral_radius(self, t: RealScalarLike, y: Flow, args: Args) -> Array:
        """Returns a bound on the modulus of the eigenvalues of the Jacobian."""
        return self.flow.spectral_radius(t, y, args)


def _closed(p: IncompressibleFlow) -> list[Laplacian]:
    """The Laplacians of the components, with zero at the sides."""
    return [Laplacian(p.grid, p.velocity.component(i).homogeneous()) for i in range(p.grid.ndim)]


def _viscous(p: IncompressibleFlow, u: Velocity) -> Velocity:
    return tuple(p.viscosity * operator(part) for operator, part in zip(_closed(p), u))


def _diffused(p: IncompressibleFlow, y: Flow) -> dict[str, Array]:
    found = {}
    for name, c in y.carried.items():
        one = p.carried[name]
        found[name] = one.diffusivity * Laplacian(p.grid, one.boundary.homogeneous())(c)
    return found


def _solve_stokes(p: IncompressibleFlow, shift: Array, right: Velocity) -> Velocity:
    r"""Solves $(1 - \tau P L)\, u = r$.

    What of $r$ has divergence, $q = r - P r$, the operator leaves as it is. The rest solves
    $(1 - \tau P L P)\, z = P (r + \tau L q)$, which is symmetric in the sum over faces with their volumes: faces on a
    side have one half. Conjugate gradients take it in variables that are multiplied by the roots of these.
    """
    project, dtype = Projection(p.velocity).linear, right[0].dtype
    roots = _roots_of_volumes(p, dtype)
    scaled = lambda u: tuple(a * b for a, b in zip(roots, u))  # noqa: E731
    unscaled = lambda u: tuple(b / a for a, b in zip(roots, u))  # noqa: E731
    solves = [ImplicitDiffusion(operator, p.viscosity) for operator in _closed(p)]

    def shifted(v: Velocity) -> Velocity:
        u = unscaled(v)
        return scaled(tuple(a - shift * b for a, b in zip(u, project(_viscous(p, project(u))))))

    def nearly(v: Velocity) -> Velocity:
        u = project(unscaled(v))
        return scaled(project(tuple(one.solve(shift, part) for one, part in zip(solves, u))))

    kept = project(right)
    rough = tuple(a - b for a, b in zip(right, kept))
    moved = project(_viscous(p, rough))
    b = scaled(tuple(a + shift * c for a, c in zip(kept, moved)))
    found = conjugate_gradients(shifted, nearly, b)
    return tuple(a + c for a, c in zip(project(unscaled(found)), rough))


def conjugate_gradients(operator: Any, preconditioner: Any, b: Velocity) -> Velocity:
    """Returns the solution of a positive definite system, NaN where it is not found."""
    structure = jax.eval_shape(lambda: b)
    tag = lx.positive_semidefinite_tag
    small = 1e-11 if jnp.finfo(b[0].dtype).bits == 64 else 1e-6
    size = jnp.sqrt(sum(jnp.sum(x**2) for x in jax.tree.leaves(jax.lax.stop_gradient(b))))
    one = jnp.where(size > 0, size, jnp.ones_like(size))
    found = lx.linear_solve(
        lx.FunctionLinearOperator(operator, structure, tag),
        tuple(x / one for x in b),
        lx.CG(rtol=small, atol=small * 1e-3, max_steps=500),
        options={"preconditioner": lx.FunctionLinearOperator(preconditioner, structure, tag)},
        throw=False,
    )
    good = found.result == lx.RESULTS.successful
    return tuple(jnp.where(good, x * one, jnp.nan) for x in found.value)


def _roots_of_volumes(p: IncompressibleFlow, dtype: Any) -> list[Array]:
    """The roots of the volumes of the unknown faces, over that of a cell."""
    found = []
    for i in range(p.grid.ndim):
        at_all = tuple("node" if axis == i else "center" for axis in range(p.grid.ndim))
        share = p.grid.volumes(at_all) / p.grid.volume
        if p.velocity.pressure.periodic[i]:
            share = jnp.ones_like(share)
        found.append(jnp.sqrt(p.velocity.to_unknown(share, i)).astype(dtype))
    return found
