"""What a flow carries."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array

from ..._parameters import Parameter, parameter
from ..._types import Args, RealScalarLike
from ...spatial import Boundaries
from ...spatial._conditions import Condition


class Carried(eqx.Module):
    r"""A temperature, or the concentration of something: $\partial_t c + \nabla \cdot (u c) = \kappa \nabla^2 c + q$.

    Attributes:
        boundary: What holds for it at the sides of the box, `sciml.spatial.Boundaries` or the conditions of one; at an
            outlet `Extrapolate()` or `Neumann(0.0)`.
        diffusivity: $\kappa$, a number.
        source: $q$, a function `(t, c, args)` of the concentration that returns an array over the grid; or None.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models import Carried, IncompressibleFlow
        from sciml.spatial import Grid, Periodic

        grid = Grid((16, 16))
        dye = Carried(Periodic(), diffusivity=1e-3, source=lambda t, c, args: -0.1 * c)
        flow = IncompressibleFlow(grid, Periodic(), carried={"dye": dye})
        y0 = flow.start((1.0, 0.0), {"dye": jnp.ones(grid.shape)})
        assert jnp.allclose(flow(0.0, y0, None).carried["dye"], -0.1)
        ```
    """

    boundary: Any
    diffusivity: Parameter
    source: Callable[[RealScalarLike, Array, Args], Array] | None

    def __init__(
        self,
        boundary: Boundaries | Condition | dict[str, Condition],
        diffusivity: Any = 0.0,
        source: Callable[[RealScalarLike, Array, Args], Array] | None = None,
    ):
        self.boundary, self.diffusivity, self.source = boundary, parameter(diffusivity), source
        if self.diffusivity.ndim:
            raise ValueError(f"`Carried(diffusivity=...)` must be a number, but has shape {self.diffusivity.shape}.")
