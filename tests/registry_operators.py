"""One case for every operator: how it is made, and what it makes of a smooth field.

A suite that should hold for every operator is parametrised over `CASES`. A case acts on fields of two dimensions; its
`exact` takes a function of `x` and `y` and returns the function that the operator stands for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sciml import spatial


class Case(NamedTuple):
    """An operator; `solved` says that its order is that of solutions, because its ghost cells reflect.

    `derivatives` is the order of the derivatives that it takes, `inner` is the operator whose result has conditions of
    its own, `nodes` says that it takes unknowns at nodes, and `walls` which of its orders are for walls.
    """

    name: str
    make: Callable[[spatial.Grid, Any, int], Any]
    exact: Callable[[Callable], Callable]
    derivatives: int = 1
    orders: tuple[int, ...] = (2, 4, 6, 8)
    vector: bool = False
    solved: tuple[int, ...] = ()
    conserves: tuple[int, ...] = ()
    inner: Callable[[Callable], Callable] | None = None
    nodes: bool = False
    walls: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)


def d(f, axis):
    return jax.grad(f, argnums=axis)


def coefficient(x, y):
    return 1.5 + 0.5 * jnp.sin(2 * x + y)


def tensor(x, y):
    return jnp.array([[2.0 + 0.0 * x, 0.4 * jnp.cos(x)], [0.4 * jnp.cos(x), 1.0 + 0.3 * jnp.sin(y)]])


def over(grid, f, points=None):
    """A function of a point, at the centres of a grid or at other points; its own axes stand in front."""
    x, y = jnp.broadcast_arrays(*(grid.centers if points is None else points))
    return jax.vmap(jax.vmap(f, out_axes=-1), out_axes=-1)(x.T, y.T)


def laplacian(f):
    return lambda x, y: d(d(f, 0), 0)(x, y) + d(d(f, 1), 1)(x, y)


def flux(f, k):
    """The divergence of a tensor times the gradient."""

    def component(i):
        return lambda x, y: sum(k(x, y)[i, j] * d(f, j)(x, y) for j in range(2))

    return lambda x, y: d(component(0), 0)(x, y) + d(component(1), 1)(x, y)


def isotropic(x, y):
    return coefficient(x, y) * jnp.eye(2)


def vector(f):
    """A field of vectors made from one function."""
    return [f, lambda x, y: f(y, x)]


def divergence(f):
    u, v = vector(f)
    return lambda x, y: d(u, 0)(x, y) + d(v, 1)(x, y)


def curl(f):
    u, v = vector(f)
    return lambda x, y: d(v, 0)(x, y) - d(u, 1)(x, y)


class Advection(NamedTuple):
    """`Upwind` with a velocity that turns, as an operator on one field."""

    upwind: spatial.Upwind

    @property
    def boundary(self):
        return self.upwind.boundary

    @property
    def radius(self):
        return self.upwind.radius

    @property
    def sparsity(self):
        return self.upwind.sparsity

    def __call__(self, u, *, t=None, args=None):
        velocity = over(self.upwind.grid, velocity_at).astype(u.dtype)
        return self.upwind(u, velocity, t=t, args=args)


def velocity_at(x, y):
    return jnp.stack([jnp.sin(3 * y) + 0.2, -jnp.cos(2 * x)])


def advected(f):
    return lambda x, y: velocity_at(x, y)[0] * d(f, 0)(x, y) + velocity_at(x, y)[1] * d(f, 1)(x, y)


def plate(grid, boundary, order):
    """`Biharmonic` with one boundary for both Laplacians, or with one for each."""
    both = boundary if isinstance(boundary, tuple) else (boundary,)
    return spatial.Biharmonic(grid, *both, order=order)


def there_and_back(grid, boundary, order):
    gradient = spatial.StaggeredGradient(grid, boundary, order)
    divergence = gradient.divergence
    return lambda u, *, t=None, args=None: divergence(gradient(u, t=t, args=args))


CASES = (
    Case("Laplacian", spatial.Laplacian, laplacian, 2, solved=(2,), conserves=(2,), nodes=True),
    Case(
        "Biharmonic",
        plate,
        lambda f: laplacian(laplacian(f)),
        4,
        solved=(2,),
        conserves=(2,),
        inner=laplacian,
        nodes=True,
        walls=(2, 4, 6),
    ),
    Case(
        "VariableLaplacian",
        lambda grid, boundary, order: spatial.VariableLaplacian(grid, boundary, over(grid, coefficient), order),
        lambda f: flux(f, isotropic),
        2,
        solved=(2,),
        conserves=(2,),
    ),
    Case(
        "AnisotropicLaplacian",
        lambda grid, boundary, order: spatial.AnisotropicLaplacian(grid, boundary, over(grid, tensor)),
        lambda f: flux(f, tensor),
        2,
        orders=(2,),
        solved=(2,),
    ),
    Case(
        "Derivative",
        lambda grid, boundary, order: spatial.Derivative(grid, boundary, "y", order=order),
        lambda f: d(f, 1),
        nodes=True,
    ),
    Case(
        "third Derivative",
        lambda grid, boundary, order: spatial.Derivative(grid, boundary, "x", 3, order),
        lambda f: d(d(d(f, 0), 0), 0),
        3,
        nodes=True,
    ),
    Case("Gradient", spatial.Gradient, lambda f: lambda x, y: jnp.stack([d(f, 0)(x, y), d(f, 1)(x, y)]), nodes=True),
    Case("Divergence", spatial.Divergence, divergence, vector=True),
    Case("Curl", spatial.Curl, curl, vector=True),
    Case(
        "Upwind",
        lambda grid, boundary, order: Advection(spatial.Upwind(grid, boundary, order)),
        advected,
        orders=(1, 3, 5, 7),
    ),
    Case("staggered", there_and_back, laplacian, 2, orders=(2, 4), solved=(2, 4), conserves=(2,)),
)
