"""What eddies that the grid does not resolve do to those that it does."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from ..._parameters import Parameter, parameter
from ...spatial import Grid
from ...spatial.staggered._friction import magnitude
from ...spatial.staggered._velocity import StaggeredVelocity


class AbstractEddyViscosity(eqx.Module):
    """A viscosity that stands for eddies below the size of a cell, from how the flow deforms.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import AbstractEddyViscosity, IncompressibleFlow
        from sciml.spatial import Grid, Periodic

        class WhereItStretches(AbstractEddyViscosity):
            def __call__(self, velocity, strain):
                return 0.01 * jnp.maximum(strain[0, 0], 0.0)

        flow = IncompressibleFlow(Grid((8, 8)), Periodic(), eddies=WhereItStretches())
        assert jnp.all(flow(0.0, flow.start((1.0, 0.0)), None).velocity[0] == 0)
        ```
    """

    @abc.abstractmethod
    def __call__(self, velocity: StaggeredVelocity, strain: dict[tuple[int, int], Array]) -> Float[Array, "..."]:
        """Returns the viscosity at the centres of cells.

        Args:
            velocity: The faces.
            strain: How the flow deforms, the symmetric part of its gradient.
        """


class Smagorinsky(AbstractEddyViscosity):
    r"""Smagorinsky's viscosity of eddies, $\nu_t = (C \Delta)^2 |S|$, with $|S| = \sqrt{2 S_{ij} S_{ij}}$.

    $\Delta$ is the size of a cell, the root of its volume.

    Attributes:
        constant: $C$: 0.17 for isotropic turbulence, 0.1 where the mean flow shears.

    Source:
        J. Smagorinsky, Mon. Weather Rev. 91:99, 1963; D. K. Lilly, Proc. IBM Scientific Computing Symposium on
        Environmental Sciences, 1967, for the constant.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import IncompressibleFlow, Smagorinsky
        from sciml.spatial import Grid, Periodic

        grid = Grid((16, 16))
        flow = IncompressibleFlow(grid, Periodic(), viscosity=0.0, eddies=Smagorinsky(0.17))
        shear = flow.start(lambda x, y: (jnp.sin(2 * jnp.pi * y) + 0 * x, 0 * x * y))
        rate = flow(0.0, shear, None).velocity[0]
        assert jnp.sum(rate * shear.velocity[0]) < 0  # eddies take energy out
        ```
    """

    constant: Parameter = eqx.field(default=0.17, converter=parameter)

    def __call__(self, velocity: StaggeredVelocity, strain: dict[tuple[int, int], Array]) -> Float[Array, "..."]:
        """Returns the viscosity at the centres of cells."""
        grid = velocity.grid
        volume = grid.volume if isinstance(grid, Grid) else grid.volumes().astype(self.constant.dtype)
        return (self.constant * volume ** (1 / grid.ndim)) ** 2 * magnitude(velocity, strain)
