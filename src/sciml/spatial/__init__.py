"""Space: grids, boundary conditions and operators on fields.

A field is a plain array whose last axes are those of the grid; the geometry lives in a `Grid`, and what happens at its
sides in `Boundaries`.

Grids
    `Grid`
Boundary conditions
    `Boundaries`, of `Periodic`, `Dirichlet`, `Neumann`, `Robin`, `Extrapolate`, or an `AbstractWall` of your own

Example:
    ```python
    import jax.numpy as jnp
    from sciml.spatial import Boundaries, Dirichlet, Grid

    grid = Grid(8)
    (x,) = grid.centers
    padded = Boundaries(grid, Dirichlet(0.0)).pad(jnp.sin(jnp.pi * x), 1)
    assert padded.shape == (10,)
    ```
"""

from ._boundaries import Boundaries as Boundaries
from ._conditions import (
    AbstractWall as AbstractWall,
    Dirichlet as Dirichlet,
    Extrapolate as Extrapolate,
    Neumann as Neumann,
    Periodic as Periodic,
    Robin as Robin,
)
from ._grid import Grid as Grid
