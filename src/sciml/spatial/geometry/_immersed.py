"""Bodies within a grid: cells that are not part of the field, and the condition on their surface."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._checks import concrete
from .._conditions import Dirichlet, Neumann, Robin

CLOSEST = 0.01
"""A surface counts as no nearer to a centre than this part of the distance to the next one: matrices stay regular."""


class Immersed(eqx.Module):
    r"""A body within a grid, with a condition on its surface.

    A body is given by its cells, an array of truth values, or by a *level set* $\varphi$ at the centres of cells that
    is negative within it, such as the distance from its surface. Its surface passes between two centres, of which one
    is in the body: of cells halfway, of a level set where $\varphi$ vanishes between both. Then values on the surface
    are met where it is, so that solutions with `Dirichlet` are of second order, and the level set is a leaf: a solution
    can be differentiated with respect to the shape of the body.

    A body of cells has the surface of its cells, in stairs, and so has any body under `Neumann` and `Robin`: solutions
    are of first order then, and a slope that is not zero is one through these stairs. The flux through the surface with
    `Neumann(0.0)` is zero to rounding.

    The values of a field in the cells of a body are not read, and their rates are zero.

    Attributes:
        levels: $\varphi$, positive outside of the body: an array over the grid, plus and minus one for cells.
        condition: `Dirichlet`, `Neumann` or `Robin`, with the normal pointing out of the fluid, into the body. Its
            values are numbers, or arrays over the grid, read in the cells at the surface. They are leaves.

    Args:
        body: Truth values, true in the body; or $\varphi$.
        condition: The condition on the surface; None for `Neumann(0.0)`.

    Raises:
        TypeError: If the condition is another, or a function of time.
        ValueError: If there is no fluid.

    Source:
        F. Gibou, R. P. Fedkiw, L.-T. Cheng and M. Kang, J. Comput. Phys. 176:205, 2002.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.spatial import Boundaries, Dirichlet, EllipticOperator, Grid, Immersed, solve_elliptic

        grid = Grid((16, 16), -1.0, 1.0)
        x, y = grid.centers

        def heat(radius):  # that a hot pipe loses to a cold box
            pipe = Immersed(jnp.hypot(x, y) - radius, Dirichlet(1.0))
            boundary = Boundaries(grid, Dirichlet(0.0), body=pipe)
            u = solve_elliptic(EllipticOperator(boundary), jnp.zeros(grid.shape))
            return 2 * jnp.sum(u[0] + u[-1] + u[:, 0] + u[:, -1])

        loss, by_radius = jax.value_and_grad(heat)(0.4)
        assert 5.0 < loss < 7.5 and by_radius > 0  # a wider pipe loses more
        ```
    """

    levels: Float[Array, "..."]
    condition: Dirichlet | Neumann | Robin

    def __init__(self, body: Any, condition: Any = None):
        condition = Neumann(0.0) if condition is None else condition
        if not isinstance(condition, Dirichlet | Neumann | Robin):
            raise TypeError(f"`Immersed(condition=...)` must be Dirichlet, Neumann or Robin, but is {condition!r}.")
        if any(callable(x) for x in jax.tree.leaves(condition, is_leaf=callable)):
            raise TypeError(
                "`Immersed(condition=...)` must have numbers or arrays as values, not functions of time. Pass the "
                "values at one time with `condition.at(t, args)`."
            )
        body = jnp.asarray(body)
        if body.dtype == bool:
            self.levels = jnp.where(body, -1.0, 1.0)
        elif jnp.issubdtype(body.dtype, jnp.floating):
            self.levels = body
        else:
            raise TypeError(f"`Immersed(body=...)` must contain booleans or real numbers, but has dtype {body.dtype}.")
        self.condition = condition
        if concrete(self.levels) and not np.any(np.asarray(self.levels) > 0):
            raise ValueError("`Immersed(body=...)` leaves no cell outside of the body.")

    @property
    def fluid(self) -> Bool[Array, "..."]:
        """The cells outside of the body."""
        return self.levels > 0

    @property
    def insulates(self) -> bool:
        """Whether no value is given on the surface."""
        return isinstance(self.condition, Neumann)

    def homogeneous(self) -> "Immersed":
        """Returns the body with the value zero in its condition."""
        return Immersed(self.levels, self.condition.homogeneous())


class Surface(NamedTuple):
    """The geometry of the faces across an axis of a grid with a body, one more than cells.

    Attributes:
        lower: Whether the cell before the face is fluid.
        upper: Whether the cell after it is.
        share: How far the surface is from the centre in the fluid, over the distance between both centres.
    """

    lower: Bool[Array, "..."]
    upper: Bool[Array, "..."]
    share: Float[Array, "..."]

    @property
    def open(self) -> Bool[Array, "..."]:
        """Whether both cells are fluid."""
        return self.lower & self.upper

    @property
    def met(self) -> Bool[Array, "..."]:
        """Whether the surface passes between both."""
        return self.lower ^ self.upper

    def of_fluid(self, x: Any, periodic: bool, axis: int, ndim: int) -> Any:
        """Returns the values of a field in the fluid cell at each face; numbers are returned unchanged."""
        if jnp.ndim(x) == 0:
            return x
        before, after = beside(x, axis, periodic, ndim)
        return jnp.where(self.lower, before, after)


def surface(body: Immersed, axis: int, periodic: bool, dtype: Any) -> Surface:
    """Returns the geometry of the faces across an axis."""
    before, after = beside(body.levels.astype(dtype), axis, periodic, body.levels.ndim)
    lower, upper = before > 0, after > 0
    fluid, other = jnp.where(lower, before, after), jnp.where(lower, after, before)
    met = lower ^ upper
    share = jnp.where(met, fluid / jnp.where(met, fluid - other, 1.0), 0.5)
    return Surface(lower, upper, jnp.clip(share, CLOSEST, 1.0))


def beside(x: Array, axis: int, periodic: bool, ndim: int) -> tuple[Array, Array]:
    """Returns the values before and after every face across an axis; beyond a wall the cell at it again."""
    at = x.ndim - ndim + axis
    n = x.shape[at]
    first, last = jax.lax.slice_in_dim(x, 0, 1, axis=at), jax.lax.slice_in_dim(x, n - 1, n, axis=at)
    ends = (last, first) if periodic else (first, last)
    return jnp.concatenate([ends[0], x], at), jnp.concatenate([x, ends[1]], at)
