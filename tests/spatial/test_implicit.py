"""Diffusion as an implicit part: solved with for every kind of wall, order and coefficient; and its modes."""

import types

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest

from sciml.spatial import (
    Dirichlet,
    EllipticOperator,
    Extrapolate,
    Grid,
    ImplicitDiffusion,
    Laplacian,
    Neumann,
    Periodic,
    Robin,
    VariableLaplacian,
)
from sciml.spatial._diffusion import arithmetic_mean
from tests.gradients import check_gradient

ROBIN = Robin(a=1.0, b=0.5, c=2.0)
MIXED = {"x": Periodic(), "y-": Dirichlet(1.0), "y+": Neumann(2.0)}
LINE, PLANE, BOX = Grid(20), Grid((12, 18), 0.0, (1.0, 2.0)), Grid((6, 7, 8))
TENSOR = jnp.array([[1.0, 0.4], [0.4, 2.0]])


def _field(grid):
    return 1.0 + sum((i + 1.0) * x**2 for i, x in enumerate(grid.centers))


def _jump(grid):
    return jnp.where(grid.centers[0] + grid.centers[1] > 1.1, 100.0, 1.0)


CASES = {
    "separable": (PLANE, MIXED, 2, lambda grid: 0.7),
    "periodic-8": (PLANE, Periodic(), 8, lambda grid: 0.7),
    "box": (BOX, Neumann(1.0), 2, lambda grid: 0.7),
    "line": (LINE, {"x-": ROBIN, "x+": Dirichlet(1.0)}, 2, _field),
    "ring": (LINE, Periodic(), 2, _field),
    "line-4": (LINE, {"x-": Dirichlet(1.0), "x+": Neumann(1.0)}, 4, lambda grid: 0.7),
    "robin": (PLANE, {"x": ROBIN, "y": Neumann(0.0)}, 2, lambda grid: 0.7),
    "variable": (PLANE, MIXED, 2, _field),
    "jump": (PLANE, MIXED, 2, _jump),
    "walls-6": (PLANE, MIXED, 6, lambda grid: 0.7),
    "variable-4": (PLANE, Dirichlet(0.0), 4, _field),
    "tensor": (PLANE, Dirichlet(0.0), 2, lambda grid: TENSOR),
    "outflow": (PLANE, {"x-": Dirichlet(0.0), "x+": Extrapolate(), "y": Periodic()}, 2, lambda grid: 0.7),
}


@pytest.mark.x64
@pytest.mark.parametrize("name", CASES)
def test_the_solution_solves_it(name):
    grid, sides, order, coefficient = CASES[name]
    operator = ImplicitDiffusion(Laplacian(grid, sides, order), coefficient(grid))
    right = jax.random.normal(jax.random.key(0), (2, *grid.shape))

    @jax.jit
    def residual(shift):
        y = operator.solve(shift, right)
        return jnp.max(jnp.abs(y - shift * operator(y) - right))

    assert residual(0.01) < 1e-9 and residual(1.0) < 1e-8


@pytest.mark.parametrize("dtype", [pytest.param("float64", marks=pytest.mark.x64), "float32"])
def test_over_short_steps(dtype):
    """There the preconditioner solves it to rounding, and an iteration that went on would divide zero by zero."""
    operator = ImplicitDiffusion(Laplacian(LINE, Dirichlet(0.0), 4), 1.0)
    right = jnp.sin(LINE.centers[0]).astype(dtype)

    @jax.jit
    def off(shift):
        y = operator.solve(shift, right)
        return jnp.max(jnp.abs(y - shift * operator(y) - right))

    shifts = jnp.concatenate([jnp.zeros(1), jnp.geomspace(1e-18, 1e-2, 65)]).astype(dtype)
    assert max(off(shift) for shift in shifts) < (1e-9 if dtype == "float64" else 1e-5)


@pytest.mark.x64
def test_gradients_by_a_short_step():
    """Over one for which the preconditioner alone is taken: the derivative is that of the system."""
    operator = ImplicitDiffusion(Laplacian(LINE, Dirichlet(0.0), 4), 1.0)
    right = jnp.sin(LINE.centers[0])
    slope = jax.jit(jax.jacfwd(operator.solve))(jnp.asarray(1e-14), right)
    np.testing.assert_allclose(slope, operator(right), rtol=1e-9, atol=1e-9)


@pytest.mark.x64
def test_the_modes_diagonalise_it():
    for grid, sides, order in ((PLANE, MIXED, 2), (LINE, Dirichlet(1.0), 2), (PLANE, Periodic(), 4)):
        operator = ImplicitDiffusion(Laplacian(grid, sides, order), 0.7)
        assert operator.separable
        u = jax.random.normal(jax.random.key(0), (3, *grid.shape))
        modes = operator.transform(u)
        assert jnp.allclose(operator.inverse(modes), u, atol=1e-12)
        assert jnp.allclose(
            operator.inverse(operator.eigenvalues().astype(modes.dtype)[None] * modes), operator(u), atol=1e-9
        )
    assert not ImplicitDiffusion(Laplacian(LINE, ROBIN), 1.0).separable
    assert not ImplicitDiffusion(Laplacian(LINE, Dirichlet(0.0), 4), 1.0).separable


@pytest.mark.x64
@pytest.mark.parametrize("name", ["separable", "line", "variable", "walls-6"])
def test_gradients_by_right_hand_side_coefficient_and_shift(name):
    grid, sides, order, coefficient = CASES[name]
    weights, right = jax.random.normal(jax.random.key(0), (2, *grid.shape))

    def loss(x):
        shift, d, right = x
        return jnp.sum(weights * ImplicitDiffusion(Laplacian(grid, sides, order), d).solve(shift, right))

    check_gradient(loss, (jnp.array(0.02), jnp.asarray(coefficient(grid)), right), rtol=1e-6, atol=1e-7)


@pytest.mark.x64
@pytest.mark.parametrize("sides", [MIXED, {"x": ROBIN, "y": Dirichlet(2.0)}], ids=["mixed", "robin"])
def test_the_elliptic_operator_with_arithmetic_means_is_the_variable_laplacian(sides):
    """The values at the walls too, which the right-hand side takes."""
    k = _jump(PLANE)
    difference = VariableLaplacian(PLANE, sides, k)
    operator = EllipticOperator(difference.boundary, k, mean=arithmetic_mean)
    u = jax.random.normal(jax.random.key(0), PLANE.shape)
    assert np.allclose(operator.source() - operator.mv(u), difference(u), atol=1e-8)


def test_an_iteration_that_only_claims_to_have_converged(monkeypatch):
    claimed = types.SimpleNamespace(result=lx.RESULTS.successful, value=jnp.zeros(PLANE.shape))
    monkeypatch.setattr(lx, "linear_solve", lambda *args, **options: claimed)
    diffusion = ImplicitDiffusion(Laplacian(PLANE, Dirichlet(0.0)), TENSOR)
    assert jnp.isnan(diffusion.solve(0.1, jnp.ones(PLANE.shape))).all()
    assert (diffusion.solve(0.1, jnp.zeros(PLANE.shape)) == 0).all()
