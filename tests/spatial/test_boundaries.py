"""Grids and the ghost cells of boundary conditions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import verify
from sciml.spatial import Boundaries, Dirichlet, Extrapolate, Grid, Neumann, Periodic, Robin

DTYPE = jnp.result_type(float)


def polynomial(degree):
    c = np.random.default_rng(degree).uniform(0.5, 1.5, degree + 1)
    return lambda x: sum(a * x**k for k, a in enumerate(c)), lambda x: sum(
        k * a * x ** (k - 1) for k, a in enumerate(c) if k
    )


def wall(kind, p, dp, x, outwards):
    if kind == "Dirichlet":
        return Dirichlet(p(x))
    if kind == "Neumann":
        return Neumann(outwards * dp(x))
    if kind == "Robin":
        return Robin(2.0, 0.5, 2.0 * p(x) + 0.5 * outwards * dp(x))
    return Extrapolate()


def ghosts_of(grid, width, location):
    """Coordinates along x with the ghost points."""
    x = np.ravel(grid.coordinates(location)[0])
    h = grid.spacing[0]
    return np.concatenate([x[0] - h * np.arange(width, 0, -1), x, x[-1] + h * np.arange(1, width + 1)])


@pytest.mark.x64
@pytest.mark.parametrize("kind", ["Dirichlet", "Neumann", "Robin", "Extrapolate"])
@pytest.mark.parametrize("at", ["center", "node"])
@pytest.mark.parametrize("accuracy", [2, 4, 6, 10])
def test_ghost_values_are_those_of_a_polynomial(kind, at, accuracy):
    grid, width = Grid(12, -0.5, 0.7), accuracy // 2
    p, dp = polynomial(accuracy - 1)
    boundary = Boundaries(grid, {"x-": wall(kind, p, dp, -0.5, -1), "x+": wall(kind, p, dp, 0.7, 1)}, at)
    padded = boundary.pad(p(boundary.coordinates[0]), width, accuracy=accuracy)
    assert np.allclose(padded, p(ghosts_of(grid, width, boundary.location)), rtol=0, atol=2e-9)


def test_second_order_ghosts_are_reflections():
    grid = Grid(4, 0.0, 2.0)
    u = jnp.array([1.0, 2.0, 4.0, 8.0], DTYPE)
    assert jnp.allclose(Boundaries(grid, Dirichlet(3.0)).pad(u, 1)[jnp.array([0, -1])], jnp.array([5.0, -2.0], DTYPE))
    assert jnp.allclose(Boundaries(grid, Neumann(3.0)).pad(u, 1)[jnp.array([0, -1])], jnp.array([2.5, 9.5], DTYPE))
    nodes = jnp.array([1.0, 2.0, 4.0, 8.0, 16.0], DTYPE)
    padded = Boundaries(grid, Neumann(3.0), at="node").pad(nodes, 1)
    assert jnp.allclose(padded[jnp.array([0, -1])], jnp.array([2.0 + 3.0, 8.0 + 3.0], DTYPE))


def test_location_of_nodes_leaves_out_given_values():
    grid = Grid((4, 4, 4))
    sides = {"x": Periodic(), "y": Dirichlet(0.0), "z-": Neumann(), "z+": Dirichlet(0.0)}
    boundary = Boundaries(grid, sides, at="node")
    assert boundary.location == ("lower", "inner", "lower") and boundary.shape == (4, 3, 4)
    assert [boundary.offsets(axis) for axis in range(3)] == [(0.0, 1.0), (1.0, 1.0), (0.0, 1.0)]


@pytest.mark.x64
def test_corners_and_values_over_a_side():
    """A product of polynomials in three dimensions, with arrays over every side."""
    grid, width, accuracy = Grid((6, 7, 5), (0.0, 1.0, 0.0), (1.0, 2.0, 2.0)), 2, 4

    def u(x, y, z):
        return (1 + x + x**3) * (2 - y**2 + y**3) * (1 + z - 0.2 * z**3)

    x, y, z = grid.centers
    low, high = grid.lower, grid.upper
    sides = {
        "x-": Dirichlet(u(low[0], y, z)[0]),
        "x+": Neumann((4 * u(1.0, y, z) / 3)[0]),
        "y-": Robin(1.0, 0.5, (u(x, 1.0, z) - 0.5 * u(x, 1.0, z) / 2)[:, 0]),
        "y+": Dirichlet(u(x, high[1], z)[:, 0]),
        "z-": Dirichlet(u(x, y, low[2])[:, :, 0]),
        "z+": Dirichlet(lambda t, args: t * args * u(x, y, high[2])[:, :, 0]),
    }
    padded = Boundaries(grid, sides).pad(u(x, y, z), width, accuracy=accuracy, t=0.5, args=2.0)
    points = [
        (low[a] + (np.arange(-width, n + width) + 0.5) * h).reshape([-1 if a == b else 1 for b in range(3)])
        for a, (n, h) in enumerate(zip(grid.shape, grid.spacing))
    ]
    assert np.allclose(padded, u(*points), atol=1e-11)


def test_components_and_members_stand_in_front():
    grid = Grid((4, 5))
    boundary = Boundaries(
        grid, {"x": Periodic(), "y": Robin(jnp.array([[1.0], [0.0]]), jnp.array([[0.0], [1.0]]), 2.0)}
    )
    u = jax.random.normal(jax.random.key(0), (3, 2, 4, 5), DTYPE)
    padded = boundary.pad(u, 1)
    sides = {0: Dirichlet(2.0), 1: Neumann(2.0)}
    for component, side in sides.items():
        alone = jax.vmap(lambda v: Boundaries(grid, {"x": Periodic(), "y": side}).pad(v, 1))(u[:, component])
        assert jnp.allclose(padded[:, component], alone, atol=1e-6)


@pytest.mark.x64
def test_gradients_by_values_and_field():
    grid = Grid((4, 5))
    u = jax.random.normal(jax.random.key(1), grid.shape, DTYPE)
    sides = {
        "x-": Dirichlet(jnp.linspace(0.0, 1.0, 5)),
        "x+": Robin(1.0, 0.3, 0.5),
        "y-": Neumann(2.0),
        "y+": Dirichlet(1.0),
    }
    weights = jax.random.normal(jax.random.key(2), (8, 9), DTYPE)

    def loss(x):
        boundary, u = x
        return jnp.sum(weights * boundary.pad(u, 2, accuracy=4) ** 2)

    verify.check_gradient(loss, (Boundaries(grid, sides), u), rtol=1e-6, atol=1e-6)


def test_homogeneous_is_the_linear_part():
    grid = Grid(6)
    boundary = Boundaries(grid, {"x-": Robin(1.0, 0.5, 3.0), "x+": Neumann(lambda t, args: t)})
    u, v = jax.random.normal(jax.random.key(1), (2, 6), DTYPE)
    difference = boundary.pad(u + v, 2, accuracy=4, t=1.0) - boundary.pad(u, 2, accuracy=4, t=1.0)
    assert jnp.allclose(difference, boundary.homogeneous().pad(v, 2, accuracy=4), atol=1e-4)


def test_extend_is_periodic_or_extrapolates():
    boundary = Boundaries(Grid((3, 3)), {"x": Periodic(), "y": Dirichlet(7.0)})
    field = jnp.arange(9.0, dtype=DTYPE).reshape(3, 3)
    extended = boundary.extend(field, 1)
    assert jnp.allclose(extended[1, :], jnp.array([-1.0, 0.0, 1.0, 2.0, 3.0], DTYPE))
    assert jnp.allclose(extended[:, 1], jnp.array([6.0, 0.0, 3.0, 6.0, 0.0], DTYPE))


def test_grid_integrates_and_is_hashable():
    grid = Grid((8, 4), (0.0, 1.0), (1.0, 3.0))
    assert grid == Grid((8, 4), (0.0, 1.0), (1.0, 3.0)) and grid != Grid((8, 4)) and hash(grid) != hash(Grid((8, 4)))
    assert not jax.tree.leaves(grid)
    for at in ("center", "node", ("node", "center")):
        x, y = grid.coordinates(at)
        assert abs(grid.integrate((2 * x * y).astype(DTYPE), at) - 4.0) < 1e-5
    assert grid.integrate(jnp.ones((3, 8, 4), jnp.complex64)).shape == (3,)


def test_a_boundary_is_an_argument_of_compiled_functions():
    boundary = Boundaries(Grid(4), Dirichlet(1.0))
    padded = jax.jit(lambda b, u: b.pad(u, 1))(boundary, jnp.ones(4, jnp.float32))
    assert padded.dtype == jnp.float32
    swept = jax.vmap(lambda g: eqx.tree_at(lambda b: b.sides[0][0].value, boundary, g).pad(jnp.zeros(4), 1))(
        jnp.arange(3.0)
    )
    assert jnp.allclose(swept[:, 0], 2 * jnp.arange(3.0))


GRID = Grid((4, 3))
U = np.ones((4, 3), np.float32)


@pytest.mark.parametrize(
    "error, message, fn",
    [
        (ValueError, "one to three axes", lambda: Grid((2, 2, 2, 2))),
        (ValueError, "positive numbers of cells", lambda: Grid((4, 0))),
        (ValueError, "lower < upper, but along y", lambda: Grid((4, 4), 0.0, (1.0, -1.0))),
        (ValueError, "finite number, or one for each of 2 axes", lambda: Grid((4, 4), (0.0, 0.0, 0.0))),
        (ValueError, "`at` must be one of", lambda: GRID.coordinates("edge")),
        (ValueError, "`u` must end with the axes", lambda: GRID.integrate(jnp.ones((3, 4)))),
        (ValueError, r"lacks 'y-', 'y\+'", lambda: Boundaries(GRID, {"x": Periodic()})),
        (ValueError, "contains z", lambda: Boundaries(GRID, {"x": Periodic(), "y": Periodic(), "z": Periodic()})),
        (ValueError, "has both 'x' and 'x-'", lambda: Boundaries(GRID, {"x": Neumann(), "x-": Neumann()})),
        (ValueError, "one end is periodic", lambda: Boundaries(Grid(4), {"x-": Periodic(), "x+": Neumann()})),
        (TypeError, "must be Periodic", lambda: Boundaries(GRID, 1.0)),
        (
            ValueError,
            r"across x must broadcast to \(3,\)",
            lambda: Boundaries(GRID, Neumann(jnp.ones(4))).pad(jnp.asarray(U), 1),
        ),
        (ValueError, r"must end with the axes \(4, 3\)", lambda: Boundaries(GRID, Neumann()).pad(jnp.asarray(U.T), 1)),
        (
            ValueError,
            "at least 7 unknowns along x",
            lambda: Boundaries(GRID, Neumann()).pad(jnp.asarray(U), 1, accuracy=8),
        ),
        (
            ValueError,
            "at a Periodic side require at least 5",
            lambda: Boundaries(GRID, Periodic()).pad(jnp.asarray(U), 5),
        ),
        (TypeError, r"`Dirichlet\(value=...\)`.*`\(t, args\)`.*signature \(t\)", lambda: Dirichlet(lambda t: t)),
        (TypeError, r"`Robin\(c=...\)`.*signature \(\)", lambda: Robin(1.0, 1.0, lambda: 1.0)),
        (ValueError, "no `t` was given", lambda: Boundaries(GRID, Neumann(lambda t, args: t)).pad(jnp.asarray(U), 1)),
        (
            ValueError,
            "no unknown may be there",
            lambda: Boundaries(Grid(4), Dirichlet(), at="lower").pad(jnp.ones(4), 1),
        ),
        (TypeError, "is complex", lambda: Boundaries(GRID, Dirichlet(1j)).pad(jnp.asarray(U), 1)),
    ],
)
def test_bad_input(error, message, fn):
    with pytest.raises(error, match=message):
        fn()
