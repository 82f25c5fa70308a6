"""What holds for every operator of tests/registry_operators.py."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.spatial import Boundaries, Dirichlet, Grid, Neumann, Periodic, Robin
from tests.registry_operators import CASES, over, vector

LOWER, UPPER = (0.1, -0.2), (0.9, 0.7)


def field(x, y):
    return jnp.sin(2 * x + 0.3) * jnp.exp(0.5 * y) + 0.3 * x * y**2


def waves(x, y):
    """Periodic over the box of length 2 pi."""
    return jnp.sin(x + 0.3) * jnp.cos(y) + 0.5 * jnp.cos(x - y)


def sides(f, grid, kinds):
    """Conditions of the given kinds at x-, x+, y-, y+, with the values of a function."""
    found = {}
    for name, kind in zip(("x-", "x+", "y-", "y+"), kinds):
        axis, high = "xy".index(name[0]), name[1] == "+"
        wall = (UPPER if high else LOWER)[axis]
        along = jnp.ravel(grid.centers[1 - axis])
        point = (lambda s: (wall, s)) if axis == 0 else (lambda s: (s, wall))
        value = jax.vmap(lambda s: f(*point(s)))(along)
        slope = (1 if high else -1) * jax.vmap(lambda s: jax.grad(f, axis)(*point(s)))(along)
        found[name] = {
            "D": lambda: Dirichlet(value),
            "N": lambda: Neumann(slope),
            "R": lambda: Robin(2.0, 0.5, 2.0 * value + 0.5 * slope),
        }[kind]()
    return found


def boundary_of(case, grid, kinds):
    if kinds == "periodic":
        return Periodic()
    if not case.vector:
        return sides(field, grid, kinds)
    return [Boundaries(grid, sides(f, grid, kinds)) for f in vector(field)]


def matrix_of(operator, shape):
    """A linear operator as a matrix."""
    eye = jnp.eye(int(np.prod(shape))).reshape(-1, *shape)
    zero = operator(jnp.zeros(shape))
    return jax.vmap(lambda u: operator(u) - zero)(eye).reshape(len(eye), -1).T


def error(case, kinds, order, n):
    lower, upper = (0.0, 2 * np.pi) if kinds == "periodic" else (LOWER, UPPER)
    grid = Grid((n, n + 2), lower, upper)
    f = waves if kinds == "periodic" else field

    def measure():
        operator = case.make(grid, boundary_of(case, grid, kinds), order)
        u = jnp.stack([over(grid, g) for g in vector(f)]) if case.vector else over(grid, f)
        exact = over(grid, case.exact(f))
        if order not in case.solved or kinds == "periodic":
            return jnp.max(jnp.abs(operator(u) - exact))
        # The solution of the equation with these boundary values; a constant is free if all are slopes.
        matrix = matrix_of(operator, grid.shape)
        right = jnp.ravel(exact - operator(jnp.zeros(grid.shape)))
        weight = jnp.full((1, matrix.shape[1]), 1.0 if kinds == "NNNN" else 0.0)
        matrix = matrix + jnp.ones((matrix.shape[0], 1)) * weight
        solution = jnp.linalg.solve(matrix, right).reshape(grid.shape)
        difference = solution - u
        return jnp.max(jnp.abs(difference - (jnp.mean(difference) if kinds == "NNNN" else 0.0)))

    return float(jax.jit(measure)())


SIZES = {1: (96, 192), 2: (16, 32), 3: (24, 48), 4: (24, 48), 5: (32, 64), 6: (24, 40), 7: (24, 40), 8: (20, 28)}
PERIODIC_SIZES = SIZES | {1: (96, 192), 2: (48, 96), 7: (32, 48), 8: (24, 32)}
EACH = [(case, order) for case in CASES for order in case.orders]
each = pytest.mark.parametrize("case, order", EACH, ids=[f"{case.name}-{order}" for case, order in EACH])
KINDS = ("periodic", "DNRD", "RDNR", "NNNN")


def observed(case, kinds, order):
    sizes = PERIODIC_SIZES if kinds == "periodic" else SIZES
    coarse, fine = (error(case, kinds, order, n) for n in sizes[order])
    # Along y there are two unknowns more, which the exact ratio of the spacings leaves out.
    ratio = sizes[order][1] / sizes[order][0]
    return np.log(coarse / fine) / np.log(ratio)


def test_every_operator_is_registered():
    """By its own name, or within the case that makes it."""
    source = inspect.getsource(inspect.getmodule(type(CASES[0])))
    for name in ("Laplacian", "VariableLaplacian", "AnisotropicLaplacian", "Derivative", "Gradient", "Divergence"):
        assert f"spatial.{name}" in source
    for name in ("Curl", "Upwind", "StaggeredGradient", "StaggeredDivergence"):
        assert f"spatial.{name}" in source


QUICK = {("Laplacian", 2), ("Laplacian", 8), ("VariableLaplacian", 2), ("VariableLaplacian", 4), ("Curl", 6)}
QUICK |= {("Gradient", 2), ("Upwind", 3), ("AnisotropicLaplacian", 2)}


@pytest.mark.x64
@pytest.mark.parametrize(
    "case, order, kinds",
    [
        pytest.param(
            case,
            order,
            kinds,
            id=f"{case.name}-{order}-{kinds}",
            marks=[] if kinds == "DNRD" and (case.name, order) in QUICK else pytest.mark.slow,
        )
        for case, order in EACH
        for kinds in KINDS
    ],
)
def test_observed_order(case, order, kinds):
    assert observed(case, kinds, order) > order - 0.1
