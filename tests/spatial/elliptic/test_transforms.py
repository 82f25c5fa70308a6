"""Poisson and Helmholtz by fast transforms."""

import itertools

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
import scipy.fft
from jax.test_util import check_grads

from sciml.spatial import (
    Boundaries,
    Dirichlet,
    EllipticOperator,
    FastTransform,
    Grid,
    Helmholtz,
    Laplacian,
    Neumann,
    Periodic,
    Poisson,
    Robin,
    _sines_cosines as trig,
    solve_elliptic,
)

DTYPE = jnp.result_type(float)
EPS = float(jnp.finfo(DTYPE).eps)
WALLS = [Dirichlet(0.7), Neumann(-0.4)]
PAIRS = [(Periodic(), Periodic()), *itertools.product(WALLS, WALLS)]


def random(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), DTYPE)


@pytest.mark.x64
@pytest.mark.parametrize("n", [1, 2, 7, 8])
@pytest.mark.parametrize("kind", ["dct", "dst"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_transforms_are_those_of_scipy(kind, number, n):
    if (kind, number, n) == ("dct", 1, 1):
        return
    x = np.random.default_rng(0).normal(size=(3, n, 2))
    forward, backward = getattr(trig, f"{kind}{number}"), getattr(trig, f"i{kind}{number}")
    expected = getattr(scipy.fft, kind)(x, type=number, axis=1)
    assert np.allclose(forward(jnp.asarray(x), 1), expected, rtol=0, atol=1e-13)
    assert np.allclose(backward(jnp.asarray(expected), 1), x, rtol=0, atol=1e-13)
    both = forward(jnp.asarray(x + 2j * x), 1)
    assert np.allclose(both, expected + 2j * expected, rtol=0, atol=1e-13)


def test_the_factors_of_a_transform_are_known_numbers():
    """Where they are worked out, a solve takes up to 64 of them apart, and each becomes a few operations to compile."""
    for name in ("dct2", "idct2", "dct4", "dst1", "dst2", "idst2"):
        program = jax.make_jaxpr(lambda x, name=name: getattr(trig, name)(x, 1))(jnp.ones((3, 64)))
        found = {equation.primitive.name for equation in program.eqns}
        assert "fft" in str(program) and not found & {"exp", "cos", "sin", "iota"}


@pytest.mark.parametrize("at", ["center", "node"])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "-".join(type(side).__name__ for side in pair))
@pytest.mark.parametrize("cells", [8, pytest.param(9, marks=pytest.mark.x64)])
def test_the_laplacian_gives_the_right_hand_side_back(pair, at, cells):
    grid = Grid((cells, 6), 0.0, (1.0, 2.0))
    boundary = Boundaries(grid, {"x-": pair[0], "x+": pair[1], "y": Dirichlet(0.3)}, at)
    f = random(boundary.shape)
    u = Poisson(boundary)(f)
    size = float(jnp.max(jnp.abs(u))) * 4 * cells**2
    assert jnp.max(jnp.abs(Laplacian(grid, boundary)(u) - f)) < 20 * EPS * size


@pytest.mark.x64
@pytest.mark.parametrize("order", [2, 4, 8])
def test_every_order_and_complex_fields_along_periodic_axes(order):
    boundary = Boundaries(Grid((12, 15, 10)), Periodic())
    f = jax.lax.complex(random((2, 12, 15, 10)), random((2, 12, 15, 10), 1))
    u = Helmholtz(boundary, 2.5, order)(f)
    assert jnp.allclose(Laplacian(boundary.grid, boundary, order)(u) + 2.5 * u, f, rtol=0, atol=1e-11)


@pytest.mark.x64
def test_walls_without_a_value_fix_the_mean():
    grid = Grid((8, 9), 0.0, (1.0, 2.0))
    for at in ("center", "node"):
        boundary = Boundaries(grid, {"x": Neumann(0.5), "y-": Neumann(-0.25), "y+": Neumann(0.0)}, at)
        f = random(boundary.shape)
        f = f - grid.integrate(f, boundary.location) / 2.0 + (2 * 0.5 * 2.0 - 0.25 * 1.0) / 2.0
        u = Poisson(boundary)(f)
        assert jnp.allclose(Laplacian(grid, boundary)(u), f, rtol=0, atol=1e-12)
        assert abs(grid.integrate(u, boundary.location)) < 1e-13


@pytest.mark.x64
def test_solutions_are_of_second_order():
    """u = exp(x) cos(2 y + 1) + t, with a value, a slope and a value that is a function of time at the walls."""

    def error(h):
        grid = Grid((round(1 / h), round(1.5 / h)), 0.0, (1.0, 1.5))
        (_, yc), (x, y) = grid.centers, grid.centers
        exact = lambda x, y: jnp.exp(x) * jnp.cos(2 * y + 1) + 3.0  # noqa: E731
        boundary = Boundaries(
            grid,
            {
                "x-": Dirichlet(exact(0.0, yc[0])),
                "x+": Neumann(jnp.exp(1.0) * jnp.cos(2 * yc[0] + 1)),
                "y-": Neumann(2 * jnp.exp(x[:, 0]) * jnp.sin(1.0)),
                "y+": Dirichlet(lambda t, args: jnp.exp(x[:, 0]) * jnp.cos(4.0) + t),
            },
        )
        u = Poisson(boundary)(-3 * jnp.exp(x) * jnp.cos(2 * y + 1), t=3.0)
        return float(jnp.max(jnp.abs(u - exact(x, y))))

    assert abs(np.log2(error(1 / 16) / error(1 / 32)) - 2) < 0.1


@pytest.mark.x64
def test_gradients_are_those_of_finite_differences():
    grid = Grid((6, 5))
    f, weights = random((6, 5)), random((6, 5), 1)

    def loss(p):
        boundary = Boundaries(grid, {"x-": Dirichlet(p[0]), "x+": Neumann(p[1]), "y": Periodic()})
        return jnp.sum(weights * Helmholtz(boundary, p[2])(p[3] * f))

    p = jnp.array([0.3, -0.2, -1.5, 0.8])
    check_grads(jax.jit(loss), (p,), 2, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("inverted", [False, True])
def test_the_lineax_solver_takes_sums_and_multiples(inverted):
    boundary = Boundaries(Grid((8, 6)), {"x": Dirichlet(0.0), "y": Neumann(0.0)})
    operator = EllipticOperator(boundary, k=(jnp.asarray(2.0, DTYPE), 1.0), c=0.5)
    eye = lx.IdentityLinearOperator(operator.in_structure())
    whole = -(operator * 0.1) / 2.0 - eye if inverted else eye + lx.TaggedLinearOperator(operator, ()) * 0.05
    f = random((8, 6))
    u = lx.linear_solve(whole, f, FastTransform()).value
    assert jnp.allclose(whole.mv(u), f, rtol=0, atol=100 * EPS)


@pytest.mark.x64
def test_solve_elliptic_agrees_with_poisson_and_maps_over_leading_axes():
    boundary = Boundaries(Grid((8, 6)), {"x": Dirichlet(1.0), "y": Neumann(0.5)})
    f = random((2, 8, 6))
    u = solve_elliptic(EllipticOperator(boundary), -f)
    assert jnp.allclose(u, Poisson(boundary)(f), rtol=0, atol=1000 * EPS)


def test_bad_input_is_named():
    grid = Grid((8, 6))
    free = Boundaries(grid, {"x": Neumann(0.5), "y": Periodic()})
    with pytest.raises(ValueError, match="incompatible.*mean over the box is 0.*Subtract the mean"):
        Poisson(free)(jnp.zeros((8, 6), DTYPE) + 0.1)
    with pytest.raises(ValueError, match="incompatible"):
        solve_elliptic(EllipticOperator(free), jnp.ones((8, 6), DTYPE))
    mixed = Boundaries(grid, {"x-": Robin(1.0, 1.0), "x+": Dirichlet(0.0), "y": Periodic()})
    with pytest.raises(ValueError, match="along x fast transforms do not support Robin and Dirichlet.*Multigrid"):
        Poisson(mixed)
    with pytest.raises(ValueError, match=r"`f` must end with the axes \(8, 6\)"):
        Poisson(free)(jnp.ones((6, 8), DTYPE))
    with pytest.raises(ValueError, match="order=4.*requires periodic axes"):
        Poisson(free, order=4)
    with pytest.raises(ValueError, match="must be a number.*Multigrid"):
        Helmholtz(free, jnp.ones((8, 6), DTYPE))
    with pytest.raises(ValueError, match="`k` is a field of shape .*Multigrid"):
        operator = EllipticOperator(free, jnp.ones((8, 6), DTYPE))
        lx.linear_solve(operator, jnp.ones((8, 6), DTYPE), FastTransform())
    with pytest.raises(TypeError, match="boundary"):
        Poisson(grid)
