"""Manufactured solutions: any field becomes the exact solution of an equation with the right source."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel, AbstractSplit
from ..._types import Args, RealScalarLike, VectorField, Y
from ...spatial import Boundaries, Dirichlet, Grid, Neumann, Robin
from ..problems._problem import Problem, floating

Field = Callable[..., Any]
"""A function `(t, *x)` of a point in time and space: a number, a vector of components, or a PyTree of numbers."""


def gradient_of(u: Field) -> Field:
    r"""Returns the gradient $\nabla u$ of a function `(t, *x)`, exact, the axis of space in front of components.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        slope = verify.gradient_of(lambda t, x, y: t * x**2 * y)
        assert jnp.all(slope(2.0, 1.0, 3.0) == jnp.array([12.0, 2.0]))
        ```
    """

    def gradient(t, *x):
        return jnp.stack([jax.jacfwd(u, 1 + i)(t, *x) for i in range(len(x))])

    return gradient


def laplacian_of(u: Field) -> Field:
    r"""Returns the Laplacian $\nabla^2 u$ of a function `(t, *x)`, exact, of every component.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify

        laplacian = verify.laplacian_of(lambda t, x, y: jnp.stack([x**2 + y**2, x * y]))
        assert jnp.all(laplacian(0.0, 1.0, 2.0) == jnp.array([4.0, 0.0]))
        ```
    """

    def laplacian(t, *x):
        return sum(jax.jacfwd(jax.jacfwd(u, 1 + i), 1 + i)(t, *x) for i in range(len(x)))

    return laplacian


def manufactured(
    model: VectorField,
    coordinates: Sequence[Float[Array, "..."]],
    solution: Field,
    equation: Callable[[Field], Field],
    *,
    t0: RealScalarLike = 0.0,
    t1: RealScalarLike = 1.0,
    dtype: DTypeLike | None = None,
) -> Problem:
    r"""Returns a problem that a chosen field solves: a model with the source that makes it so.

    For the equation $\partial_t u = F(u)$ that a model discretises and a chosen $u^*$ the source is
    $s = \partial_t u^* - F(u^*)$, with exact derivatives. The problem's model is the model plus $s$, and its solution
    is $u^*$ but for the error of the discretisation, whose order `order_in_space` measures. Give the walls the values
    of $u^*$ by `matching_conditions`. The model of a `sciml.AbstractSplit` is also an `AbstractSplit`, with the source
    in its rest.

    Args:
        model: The model, with its boundary conditions.
        coordinates: The positions of the unknowns, such as `grid.centers`.
        solution: $u^*$, a smooth function `(t, *x)` of a point that returns a number; for a state with components a
            vector of them, for a PyTree a PyTree of numbers.
        equation: $F$, which takes a function `(t, *x)` and returns one, such as
            `lambda u: lambda t, x: laplacian_of(u)(t, x) - u(t, x) ** 3`.
        t0: The initial time.
        t1: The end time.
        dtype: The dtype of the state; the default floating type if None.

    Source:
        P. J. Roache, J. Fluids Eng. 124:4, 2002.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml import verify
        from sciml.models import Diffusion
        from sciml.spatial import Dirichlet, Grid, Neumann


        def chosen(t, x):
            return jnp.cos(t) * jnp.sin(3 * x)


        def error(n):
            grid = Grid(n)
            walls = verify.matching_conditions(grid, chosen, {"x-": Dirichlet(), "x+": Neumann()})
            problem = verify.manufactured(
                Diffusion(grid, walls, 0.3), grid.centers, chosen,
                lambda u: lambda t, x: 0.3 * verify.laplacian_of(u)(t, x), t1=0.1,
            )
            sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=0.1, dt=0.1 / n**2)
            return problem.error(sol.ys[-1])


        assert abs(verify.order_in_space(error, (8, 16)).order - 2) < 0.2
        ```
    """
    points = tuple(jnp.asarray(x, floating(dtype)) for x in coordinates)
    source = _Source(points, solution, equation)
    forced = _ForcedSplit(model, source) if isinstance(model, AbstractSplit) else _Forced(model, source)
    return Problem(
        model=forced, y0=source.at(t0), t0=t0, t1=t1, exact=_exact, name="manufactured solution", source="exact"
    )


def matching_conditions(grid: Grid, solution: Field, conditions: Any, at: Any = "center") -> dict[str, Any]:
    """Returns boundary conditions of given kinds with the values that a chosen field has at the walls.

    Args:
        grid: The grid.
        solution: The field, a function `(t, *x)` of a point; the values follow it in time.
        conditions: The conditions as `sciml.spatial.Boundaries` takes them. `Dirichlet`, `Neumann` and `Robin` keep
            their kind and weights and get the values of the field; others stay as they are.
        at: The positions of the unknowns, as for `Boundaries`.

    Returns:
        The conditions by name of the side.

    Raises:
        ValueError: If a side has no condition, or two, or if the weights of `Robin` are functions.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import verify
        from sciml.spatial import Boundaries, Dirichlet, Grid, Neumann

        grid = Grid((4, 5))
        walls = verify.matching_conditions(grid, lambda t, x, y: t * x * y, {"x": Dirichlet(), "y": Neumann()})
        assert jnp.all(walls["y-"].slope(2.0, None) == -2.0 * jnp.ravel(grid.centers[0]))
        ```
    """
    boundary = Boundaries(grid, conditions, at)
    found: dict[str, Any] = {}
    for axis, (name, pair) in enumerate(zip(grid.names, boundary.sides)):
        others = [c for i, c in enumerate(boundary.coordinates) if i != axis]
        others = tuple(jnp.squeeze(c, axis) for c in others)
        for end, side in zip("-+", pair):
            high = end == "+"
            wall = (grid.upper if high else grid.lower)[axis]

            def value(a: Any, b: Any, wall=wall, high=high, axis=axis, others=others):
                return _AtWall(others, jnp.asarray(a), jnp.asarray(b if high else -b), axis, wall, solution)

            if isinstance(side, Dirichlet):
                side = Dirichlet(value(1.0, 0.0))
            elif isinstance(side, Neumann):
                side = Neumann(value(0.0, 1.0))
            elif isinstance(side, Robin):
                if callable(side.a) or callable(side.b):
                    raise ValueError(f"the weights of `Robin` at {name}{end} must be numbers or arrays, not functions.")
                side = Robin(side.a, side.b, value(side.a, side.b))
            found[name + end] = side
    return found


class _AtWall(eqx.Module):
    """`a u + b du/dx` of a field at a wall, as a value of a condition."""

    others: tuple[Array, ...]
    a: Array
    b: Array
    axis: int = eqx.field(static=True)
    wall: float = eqx.field(static=True)
    solution: Field = eqx.field(static=True)

    def __call__(self, t: RealScalarLike, args: Args) -> Array:
        del args
        dtype = self.others[0].dtype if self.others else floating(None)
        wall = jnp.asarray(self.wall, dtype)
        slope = jax.jacfwd(self.solution, 1 + self.axis)

        def on_wall(fn, t, *along):
            return fn(t, *along[: self.axis], wall, *along[self.axis :])

        value, change = (
            _over(lambda t, *x, fn=fn: on_wall(fn, t, *x), t, self.others) for fn in (self.solution, slope)
        )
        a, b = (jnp.asarray(w, value.dtype) for w in (self.a, self.b))
        return a * value + b * change


class _Source(eqx.Module):
    """The source that makes a chosen field the solution."""

    points: tuple[Array, ...]
    solution: Field = eqx.field(static=True)
    equation: Callable[[Field], Field] = eqx.field(static=True)

    def added(self, rate: Y, t: RealScalarLike) -> Y:
        """Returns a rate of change with the source at a time."""

        def source(t, *x):
            change = jax.jacfwd(self.solution)(t, *x)
            return jax.tree.map(jnp.subtract, change, self.equation(self.solution)(t, *x))

        return jax.tree.map(lambda r, s: r + s.astype(r.dtype), rate, _over(source, t, self.points))

    def at(self, t: RealScalarLike) -> Y:
        """Returns the chosen field at a time."""
        return _over(self.solution, t, self.points)


class _AbstractForced(AbstractModel):
    """A model around another, which gives the eigenvalues of that model where it gives them."""

    model: eqx.AbstractVar[Any]

    def __getattr__(self, name: str) -> Any:
        if name in ("spectrum", "spectral_radius"):
            return getattr(self.model, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class _Forced(_AbstractForced):
    """A model and a source."""

    model: VectorField
    forcing: _Source

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        return self.forcing.added(self.model(t, y, args), t)


class _ForcedSplit(_AbstractForced, AbstractSplit):
    """A model with a stiff part; the source belongs to the rest."""

    model: AbstractSplit
    forcing: _Source

    def stiff(self, y: Y, args: Args) -> Y:
        return self.model.stiff(y, args)

    def rest(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        return self.forcing.added(self.model.rest(t, y, args), t)

    def solve_shifted(self, shift: RealScalarLike, right: Y, args: Args) -> Y:
        return self.model.solve_shifted(shift, right, args)


def _exact(problem: Problem, t: RealScalarLike) -> Y:
    assert isinstance(problem.model, _Forced | _ForcedSplit)
    return jax.tree.map(lambda x, y: x.astype(y.dtype), problem.model.forcing.at(t), problem.y0)


def _over(fn: Field, t: RealScalarLike, points: Sequence[Array]) -> Any:
    """A function of a point over points that broadcast: its own axes come in front of theirs."""
    if not points:
        return fn(jnp.asarray(t, floating(None)))
    whole = jnp.broadcast_arrays(*points)
    flat = [x.reshape(-1) for x in whole]
    time = jnp.asarray(t, flat[0].dtype)
    values = jax.vmap(fn, in_axes=(None, *(0 for _ in flat)), out_axes=-1)(time, *flat)
    return jax.tree.map(lambda v: v.reshape(*v.shape[:-1], *whole[0].shape), values)
