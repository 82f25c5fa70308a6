"""Grids whose cells differ, in any coordinates, and bodies within a grid: operators and what they conserve."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import sciml
from sciml import models, verify
from sciml.spatial import (
    WENO5,
    Axisymmetric,
    Boundaries,
    Curl,
    Dirichlet,
    Divergence,
    EllipticOperator,
    Extrapolate,
    FiniteVolumes,
    Gradient,
    Grid,
    Immersed,
    Laplacian,
    Multigrid,
    Neumann,
    OrthogonalGrid,
    Periodic,
    Poisson,
    Polar,
    Robin,
    Spectral,
    Spherical,
    Upwind,
    VariableLaplacian,
    clustered_faces,
    solve_elliptic,
    stretched_faces,
)
from sciml.spatial._diffusion import arithmetic_mean, harmonic_mean
from sciml.spatial.geometry._coordinates import AbstractCoordinates
from tests.gradients import check_gradient

CIRCLE = np.linspace(0.0, 2 * np.pi, 9)


def wavy(n, low=0.0, high=1.0):
    """Faces from a smooth mapping, with widths that differ by three."""
    return stretched_faces(n, lambda s: low + (high - low) * (s + 0.08 * np.sin(2 * np.pi * s)))


GRIDS = {
    "stretched": OrthogonalGrid([wavy(8), clustered_faces(7, strength=1.5)]),
    "disc": OrthogonalGrid([wavy(6), CIRCLE], Polar()),
    "sector": OrthogonalGrid([wavy(6, 0.5, 1.5), wavy(5, 0.2, 1.0), wavy(4)], Polar()),
    "cylinder": OrthogonalGrid([wavy(6), wavy(5)], Axisymmetric()),
    "ball": OrthogonalGrid([wavy(9)], Spherical()),
    "square with a body": Grid((8, 7)),
}


def closed(grid):
    """Nothing flows through any side, nor through a body where there is one."""
    if not isinstance(grid, Grid):
        return Boundaries(grid, Neumann(0.0))
    x, y = grid.centers
    return Boundaries(grid, Neumann(0.0), body=Immersed(jnp.hypot(x - 0.4, y - 0.5) - 0.25))


@pytest.mark.parametrize("name", GRIDS)
def test_nothing_is_lost(name, dtype):
    """The integrals of Laplacians and divergences are what flows through the sides, to rounding."""
    grid = GRIDS[name]
    boundary = closed(grid)
    draw = np.random.default_rng(0)
    u, k = (jnp.asarray(draw.uniform(0.5, 1.5, grid.shape)).astype(dtype) for _ in range(2))
    v = jnp.asarray(draw.normal(size=(grid.ndim, *grid.shape))).astype(dtype)
    walls = [
        Boundaries(grid, {x: Periodic() if x == "theta" and grid.turns else Dirichlet(0.0) for x in grid.names}, body=b)
        for b in [None if boundary.body is None else Immersed(boundary.body.levels, Dirichlet(0.0))] * grid.ndim
    ]

    @jax.jit
    def rates(u, v):
        return (
            Laplacian(grid, boundary)(u),
            VariableLaplacian(grid, boundary, k)(u),
            VariableLaplacian(grid, boundary, k, mean=harmonic_mean)(u),
            Divergence(grid, walls)(v),
        )

    for found in rates(u, v):
        assert found.dtype == dtype
        assert abs(grid.integrate(found)) < 16 * jnp.finfo(dtype).eps * grid.integrate(jnp.abs(found))
        if boundary.body is not None:
            assert jnp.all(jnp.where(boundary.body.fluid, 0.0, found) == 0.0)


@pytest.mark.x64
def test_linear_fields_are_exact():
    grid = GRIDS["stretched"]
    x, y = grid.centers
    u = 1 + 2 * x + 3 * y
    sides = {"x-": Dirichlet(1 + 3 * y[0]), "x+": Neumann(2.0), "y-": Robin(1.0, 0.5, 1 + 2 * x[:, 0] - 1.5)}
    sides["y+"] = Extrapolate()
    np.testing.assert_allclose(Laplacian(grid, sides)(u), 0.0, atol=1e-11)
    slopes = Gradient(grid, sides)(u)
    np.testing.assert_allclose(slopes[0], 2.0, atol=1e-12)
    np.testing.assert_allclose(slopes[1], 3.0, atol=1e-12)
    flow = jnp.stack([2 * x + y, x - 5 * y])
    np.testing.assert_allclose(Divergence(grid, Extrapolate())(flow), -3.0, atol=1e-11)
    # around the axis, too, where what turns with the angle is seen from the other side
    disc = GRIDS["disc"]
    r, angle = disc.centers
    ramp = r * jnp.cos(angle)
    outer = {"r": Dirichlet(jnp.cos(angle[0]))}
    radial, around = Gradient(disc, outer)(ramp)
    np.testing.assert_allclose(radial, jnp.broadcast_to(jnp.cos(angle), disc.shape), atol=1e-12)
    step = 2 * np.pi / 8
    np.testing.assert_allclose(around, jnp.broadcast_to(-jnp.sin(angle) * np.sin(step) / step, disc.shape), atol=1e-12)


@eqx.filter_jit
def system(boundary, k, f, mean):
    """The matrix and the right-hand side of an elliptic problem, and the operator."""
    operator = EllipticOperator(boundary, k, mean=mean)
    right = operator.integrated(jnp.broadcast_to(jnp.asarray(f), boundary.shape)) + operator.source()
    return operator.as_matrix(), right.ravel(), operator


def dense(boundary, k=1.0, f=0.0, mean=harmonic_mean):
    """The solution by the dense matrix, and the operator."""
    matrix, right, operator = system(boundary, k, f, mean)
    return jnp.asarray(np.linalg.solve(np.asarray(matrix), np.asarray(right)).reshape(boundary.shape)), operator


def smooth(x, y):
    return jnp.sin(2 * x + 0.3) * jnp.cos(1.5 * y) + x


def coefficient(x, y):
    return 1.5 + jnp.sin(2 * x + y)


@pytest.mark.x64
def test_a_solution_on_a_stretched_grid_is_of_second_order():
    """With a coefficient that varies, and conditions of every kind."""

    def flux(axis):
        return lambda *at: coefficient(*at) * jax.grad(smooth, axis)(*at)

    def source(x, y):
        return -jax.grad(flux(0), 0)(x, y) - jax.grad(flux(1), 1)(x, y)

    def over(fn, x, y):
        return jax.vmap(jax.vmap(fn, (None, 0)), (0, None))(x.ravel(), y.ravel())

    def error(n):
        grid = OrthogonalGrid([wavy(n), clustered_faces(n + 2, strength=1.5)])
        x, y = grid.centers
        ones = jnp.ones(1)
        sides = {
            "x-": Dirichlet(over(smooth, 0 * ones, y)[0]),
            "x+": Neumann(over(jax.grad(smooth), ones, y)[0]),
            "y-": Robin(2.0, 0.5, (2 * over(smooth, x, 0 * ones) - 0.5 * over(jax.grad(smooth, 1), x, 0 * ones))[:, 0]),
            "y+": Dirichlet(over(smooth, x, ones)[:, 0]),
        }
        u, _ = dense(Boundaries(grid, sides), over(coefficient, x, y), over(source, x, y), arithmetic_mean)
        return jnp.max(jnp.abs(u - over(smooth, x, y)))

    assert verify.order_in_space(error, (8, 16)).order > 1.8


MODES = {  # the slowest modes of diffusion, and what kind of grid shows them
    "disc": (lambda n: OrthogonalGrid([wavy(n)], Polar()), special.jn_zeros(0, 1)[0] ** 2),
    "turning disc": (lambda n: OrthogonalGrid([wavy(n), np.linspace(0, 2 * np.pi, n + 1)], Polar()), None),
    "cylinder": (
        lambda n: OrthogonalGrid([wavy(n), wavy(n)], Axisymmetric()),
        special.jn_zeros(0, 1)[0] ** 2 + np.pi**2,
    ),
    "ball": (lambda n: OrthogonalGrid([wavy(n)], Spherical()), np.pi**2),
}


@pytest.mark.x64
@pytest.mark.parametrize("name", MODES)
def test_modes_of_bessel_decay_at_their_rates(name):
    make, exact = MODES[name]
    place = 1 if name == "turning disc" else 0  # the mode that turns once is the second
    exact = special.jn_zeros(1, 1)[0] ** 2 if exact is None else exact

    def error(n):
        grid = make(n)
        sides = {"r": Dirichlet(0.0)} | ({"z": Dirichlet(0.0)} if "z" in grid.names else {})
        matrix = np.asarray(system(Boundaries(grid, sides), 1.0, 0.0, harmonic_mean)[0])
        assert np.allclose(matrix, matrix.T)
        volumes = np.broadcast_to(grid.volumes(), grid.shape).ravel()
        values = np.sort(np.linalg.eigvals(matrix / volumes[:, None]).real)
        bound = Laplacian(grid, sides).spectral_radius
        assert values[-1] <= bound * (1 + 1e-12)
        return abs(values[place] - exact)

    assert verify.order_in_space(error, (8, 16)).order > 1.75


@pytest.mark.x64
def test_heat_leaves_a_ball():
    """Through a model and `solve`: sin(pi r) / r decays as exp(-pi^2 t)."""
    grid = OrthogonalGrid([clustered_faces(40, strength=1.0, widest=0.0)], Spherical())
    (r,) = grid.centers
    mode = jnp.sin(jnp.pi * r) / r
    model = models.Diffusion(grid, Dirichlet(0.0))
    sol = sciml.solve(model, mode, t0=0.0, t1=0.1, dt=0.005)
    assert sol.solver == "ARK(order=3)"
    np.testing.assert_allclose(sol.ys[-1], mode * np.exp(-0.1 * np.pi**2), atol=2e-3)


@pytest.mark.x64
def test_the_profile_of_an_annulus():
    """The logarithm, in the gap between two pipes; what flows is the same at all radii to rounding."""

    def error(n):
        grid = OrthogonalGrid([stretched_faces(n, lambda s: 2.0**s)], Polar())
        (r,) = grid.centers
        u = solve_elliptic(EllipticOperator(Boundaries(grid, {"r-": Dirichlet(1.0), "r+": Dirichlet(0.0)})), 0 * r)
        assert jnp.max(jnp.abs(Laplacian(grid, {"r-": Dirichlet(1.0), "r+": Dirichlet(0.0)})(u))) < 1e-9
        return jnp.max(jnp.abs(u - (1 - jnp.log(r) / jnp.log(2.0))))

    assert abs(verify.order_in_space(error, (16, 32)).order - 2.0) < 0.1


@pytest.mark.x64
def test_multigrid_solves_on_a_disc():
    """With a coefficient that jumps, to its tolerance; without any value the mean is zero."""
    grid = OrthogonalGrid([wavy(12), np.linspace(0, 2 * np.pi, 17)], Polar())
    r, angle = grid.centers
    x, y = grid.cartesian(r, angle)
    k = jnp.where(x > 0.2, 100.0, 1.0)
    boundary = Boundaries(grid, Robin(1.0, 0.2, jnp.cos(angle[0])))
    exact, operator = dense(boundary, k, 1 + y)
    u = jax.jit(lambda f: solve_elliptic(operator, f))(1 + y)
    np.testing.assert_allclose(u, exact, atol=1e-8)
    free = EllipticOperator(Boundaries(grid, Neumann(0.0)), k)
    u = solve_elliptic(free, x * y)
    assert abs(grid.integrate(u)) < 1e-12
    np.testing.assert_allclose(free.per_volume(free.mv(u)), x * y, atol=1e-8)
    with pytest.raises(ValueError, match="incompatible"):
        solve_elliptic(free, 1 + x)


# --- bodies


def hole(n, cells, radius=0.4):
    """A disc in a square, with the logarithm between both; the error of the solution."""
    grid = Grid((n, n), -1.0, 1.0)
    x, y = grid.centers
    edge = jnp.log(jnp.hypot(1.0, x[:, 0]) / radius)
    levels = jnp.hypot(x, y) - radius
    body = Immersed(levels < 0 if cells else levels, Dirichlet(0.0))
    u, operator = dense(Boundaries(grid, Dirichlet(edge), body=body))
    error = jnp.where(body.fluid, u - jnp.log(jnp.hypot(x, y) / radius), 0.0)
    return jnp.sqrt(jnp.mean(error**2))


@pytest.mark.x64
def test_a_disc_in_a_square_against_the_annulus():
    """Where the surface is known, of second order; in stairs of first."""
    assert verify.order_in_space(lambda n: hole(n, False), (12, 24)).order > 1.8
    errors = [hole(n, True) for n in (12, 24)]
    assert 1.5 < errors[0] / errors[1]


@pytest.mark.x64
@pytest.mark.parametrize("kind", [Dirichlet, Neumann, Robin])
def test_a_corner_that_is_cut_out(kind):
    """An L against the same differences, written cell by cell."""
    n, h = 6, 1 / 6
    grid = Grid((n, n))
    solid = jnp.zeros((n, n), bool).at[3:, 3:].set(True)
    a, b, c = {Dirichlet: (1.0, 0.0, 0.7), Neumann: (0.0, 1.0, 0.3), Robin: (2.0, 0.3, 0.5)}[kind]
    condition = Robin(a, b, c) if kind is Robin else kind(c)
    u, operator = dense(Boundaries(grid, Dirichlet(1.0), body=Immersed(solid, condition)), f=2.0)
    places = [(i, j) for i in range(n) for j in range(n) if i < 3 or j < 3]
    matrix, right = np.zeros((len(places),) * 2), np.full(len(places), 2.0)
    for row, (i, j) in enumerate(places):
        for other in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
            if other in places:
                matrix[row, row] += 1 / h**2
                matrix[row, places.index(other)] -= 1 / h**2
            elif min(other) < 0 or max(other) == n:
                matrix[row, row] += 2 / h**2
                right[row] += 2 * 1.0 / h**2
            else:  # out of the cell flows (c - a u) / (b + a h / 2), over its width
                matrix[row, row] += a / (b + a * h / 2) / h
                right[row] += c / (b + a * h / 2) / h
    exact = np.linalg.solve(matrix, right)
    np.testing.assert_allclose([u[place] for place in places], exact, rtol=1e-11)
    assert jnp.all(u[3:, 3:] == 0)
    rates = Laplacian(grid, operator.boundary)(u)
    np.testing.assert_allclose(jnp.where(solid, -2.0, rates), -2.0, atol=1e-10)


@pytest.mark.x64
def test_without_a_cell_in_it_a_body_changes_nothing():
    grid = Grid((6, 7))
    sides = {"x": Periodic(), "y-": Dirichlet(0.3), "y+": Robin(1.0, 0.2, 0.5)}
    u = jax.random.normal(jax.random.key(0), grid.shape)
    empty = Boundaries(grid, sides, body=Immersed(jnp.zeros(grid.shape, bool), Dirichlet(1.0)))
    bare = Boundaries(grid, sides)
    np.testing.assert_allclose(Laplacian(grid, empty)(u), Laplacian(grid, bare)(u), rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(Gradient(grid, empty)(u), Gradient(grid, bare)(u), rtol=1e-12, atol=1e-10)
    found, exact = (VariableLaplacian(grid, b, 2.0)(u) for b in (empty, bare))
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-10)
    found, exact = (EllipticOperator(b, u**2, 0.3).as_matrix() for b in (empty, bare))
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-10)
    # and a stretched grid whose cells are alike is the uniform one
    same = OrthogonalGrid([np.linspace(0, 1, 7), np.linspace(0, 1, 8)])
    np.testing.assert_allclose(Laplacian(same, sides)(u), Laplacian(grid, sides)(u), rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(Gradient(same, sides)(u), Gradient(grid, sides)(u), rtol=1e-12, atol=1e-10)
    found, exact = (EllipticOperator(b, u**2).source() for b in (Boundaries(same, sides), bare))
    np.testing.assert_allclose(found * 42, exact, rtol=1e-12)


@pytest.mark.x64
def test_multigrid_goes_around_bodies():
    """Several levels; without any value, too, where the constants of the fluid alone are the kernel."""
    grid = Grid((20, 16), -1.0, 1.0)
    x, y = grid.centers
    levels = jnp.hypot(x - 0.2, y) - 0.35
    exact, operator = dense(
        Boundaries(grid, Dirichlet(0.2), body=Immersed(levels, Dirichlet(1.0))), 1 + x**2 + 0 * y, 1.0
    )
    u = solve_elliptic(operator, jnp.ones(grid.shape))
    np.testing.assert_allclose(u, exact, atol=1e-9)
    free = EllipticOperator(Boundaries(grid, Neumann(0.0), body=Immersed(levels)))
    fluid = free.boundary.body.fluid
    f = jnp.sin(3 * x) * y
    f = jnp.where(fluid, f - jnp.mean(f, where=fluid), 0.0)
    u = solve_elliptic(free, f)
    np.testing.assert_allclose(free.mv(u), f, atol=1e-8)
    assert abs(jnp.sum(u)) < 1e-10 and jnp.all(jnp.where(fluid, 0.0, u) == 0)


@pytest.mark.x64
def test_derivatives_by_all_that_a_problem_holds():
    """Values at sides and at the body, its shape, the coefficient and the source; members, and members' gradients."""
    grid = Grid((7, 8), -1.0, 1.0)
    x, y = grid.centers
    levels = jnp.hypot(x - 0.1, y) - 0.43
    weights = jax.random.normal(jax.random.key(0), grid.shape)

    def loss(at):
        side, value, shift, k, f = at
        body = Immersed(levels + shift, Dirichlet(value))
        boundary = Boundaries(grid, {"x-": Dirichlet(side), "x+": Neumann(0.1), "y": Robin(1.0, 0.3, 0.2)}, body=body)
        return jnp.sum(weights * solve_elliptic(EllipticOperator(boundary, k), f))

    at = (jnp.linspace(0.0, 1.0, 8), 0.5, 0.01 * weights, 1.5 + 0.5 * jnp.sin(x + y), jnp.cos(x) * y)
    at = jax.tree.map(jnp.asarray, at)
    alone = check_gradient(loss, at, rtol=1e-5, atol=1e-7)
    members = jax.tree.map(lambda leaf: jnp.stack([1.1 * leaf, leaf]), at)
    gradient = jax.jit(jax.vmap(jax.grad(loss)))(members)
    jax.tree.map(lambda many, one: np.testing.assert_allclose(many[1], one, rtol=1e-6, atol=1e-8), gradient, alone)


@pytest.mark.x64
def test_models_run_on_any_geometry():
    """Reaction and diffusion around a body, with both fields' own conditions, and their implicit systems."""
    grid = GRIDS["cylinder"]
    r, z = grid.centers
    body = Immersed(jnp.hypot(r, z - 0.5) - 0.3)
    sides = {"r+": Dirichlet(jnp.array([0.9, 2.8])[:, None]), "z": Neumann(0.0)}
    model = models.ReactionDiffusion(models.Brusselator(), grid, Boundaries(grid, sides, body=body), (0.1, 0.2))
    y = jnp.stack([1 + 0.1 * r * z, 3 + 0.1 * r + 0 * z])

    @jax.jit
    def parts(y):
        found = model.solve_shifted(0.1, y, None)
        return (
            found - 0.1 * model.stiff(found, None),
            model(0.0, y, None),
            model.rest(0.0, y, None) + model.stiff(y, None),
        )

    back, whole, together = parts(y)
    np.testing.assert_allclose(back, y, atol=1e-8)
    np.testing.assert_allclose(together, whole, atol=1e-10)
    react = model._pointwise(0.0, y, None)  # nothing diffuses within the body
    np.testing.assert_allclose(jnp.where(body.fluid, 0.0, (whole - react)[0]), 0.0, atol=1e-12)
    held = models.Darcy(grid, Boundaries(grid, {"r+": Dirichlet(1.0), "z": Neumann(0.0)}, body=body), 1 + r * z)
    steady = held.steady()
    assert jnp.max(jnp.abs(held(0.0, steady, None))) < 1e-7


# --- finite volumes


@pytest.mark.x64
def test_transport_on_a_stretched_grid():
    def error(n):
        grid = OrthogonalGrid([wavy(n)])
        (x,) = grid.centers
        law = models.Transport(grid, Periodic(), jnp.array([1.0]))
        wave = jnp.sin(2 * jnp.pi * x)
        y = sciml.solve(law, wave, t0=0.0, t1=0.5, cfl=0.4).ys[-1]
        assert abs(grid.integrate(y) - grid.integrate(wave)) < 1e-13
        return grid.integrate(jnp.abs(y + wave))

    assert verify.order_in_space(error, (64, 128)).order > 1.7


@pytest.mark.x64
def test_finite_volumes_in_other_coordinates():
    """What turns without divergence stays uniform; what leaves is counted by areas; vectors are refused."""
    grid = GRIDS["disc"]
    law = models.Transport(grid, {"r": sciml.spatial.Outflow()}, jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(law(0.0, jnp.ones(grid.shape), None), 0.0, atol=1e-12)
    swelling = models.Transport(grid, {"r": sciml.spatial.Outflow()}, jnp.array([1.0, 0.0]))
    lost = grid.integrate(swelling(0.0, jnp.ones(grid.shape), None))
    np.testing.assert_allclose(lost, -2 * np.pi, rtol=1e-12)
    tall = OrthogonalGrid([wavy(8)])
    gas = models.Euler(tall, sciml.spatial.Reflecting())
    assert abs(tall.integrate(gas(0.0, 1.0 + jax.random.uniform(jax.random.key(0), (3, 8)), None))[0]) < 1e-13
    with pytest.raises(ValueError, match="rotate with the axes"):
        models.Euler(grid, sciml.spatial.Outflow())(0.0, jnp.ones((4, *grid.shape)), None)
    with pytest.raises(ValueError, match="WENO5"):
        FiniteVolumes(tall, Periodic(), WENO5())


# --- what is refused


REFUSED = {
    "order": (lambda: Laplacian(GRIDS["disc"], Neumann(0.0), 4), "only order 2"),
    "upwind": (lambda: Upwind(GRIDS["stretched"], Neumann(0.0)), "`Upwind` does not support an `OrthogonalGrid`"),
    "curl": (lambda: Curl(GRIDS["stretched"], Neumann(0.0)), "does not support"),
    "body and upwind": (lambda: Upwind(Grid((8, 7)), closed(Grid((8, 7)))), "a body within the grid"),
    "transforms": (lambda: Poisson(closed(Grid((8, 7)))), "fast transforms do not support"),
    "spectral": (lambda: Spectral(GRIDS["stretched"], Periodic()), "`Spectral` requires"),
    "devices": (lambda: sciml.parallel.Domain(("x", None), boundary=closed(Grid((8, 7)))), "without a body"),
    "axis": (lambda: Boundaries(GRIDS["disc"], {"r-": Dirichlet(0.0), "r+": Neumann(0.0)}), "has no condition"),
    "faces": (lambda: OrthogonalGrid([[0.0, 1.0, 1.0]]), "ascending numbers"),
    "one axis": (lambda: OrthogonalGrid([0.0, 1.0, 2.0]), "Write \\[faces\\]"),
    "axes": (lambda: OrthogonalGrid([[0.0, 1.0]] * 2, Spherical()), "one to 1 axes"),
    "radius": (lambda: OrthogonalGrid([[-1.0, 1.0]], Polar()), "must not be negative"),
    "odd": (lambda: OrthogonalGrid([[0.0, 1.0], np.linspace(0, 2 * np.pi, 8)], Polar()), "must be even"),
    "shape": (lambda: Boundaries(Grid(4), Neumann(0.0), body=Immersed(jnp.ones(5))), "grid's shape"),
    "nodes": (lambda: Boundaries(Grid(4), Neumann(0.0), "node", body=Immersed(jnp.ones(4))), "unknowns at centres"),
    "no fluid": (lambda: Immersed(jnp.ones(4, bool)), "no cell outside"),
    "strength": (lambda: clustered_faces(4, strength=0.0), "must be positive"),
    "mapping": (lambda: stretched_faces(4, lambda s: -s), "must increase"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name):
    make, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        make()


def test_wrong_types_are_refused():
    with pytest.raises(TypeError, match="functions of time"):
        Immersed(jnp.ones(4), Dirichlet(lambda t, args: t))
    with pytest.raises(TypeError, match="booleans or real numbers"):
        Immersed(jnp.ones(4, int))
    with pytest.raises(TypeError, match="uniform `Grid`"):
        _ = GRIDS["disc"].spacing
    operator = EllipticOperator(Boundaries(GRIDS["disc"], Dirichlet(0.0)))
    with pytest.raises(ValueError, match="as `c`"):
        Multigrid().init(operator + lx_identity(operator), {})


def lx_identity(operator):
    import lineax as lx

    return lx.IdentityLinearOperator(operator.in_structure())


def test_coordinates_of_your_own():
    """Cells of a duct whose cross-section grows, a system of one axis."""

    class Duct(AbstractCoordinates):
        names = ("x",)
        most_axes = 1

        def measure(self, axis, faces):
            return np.diff(faces + faces**2 / 2)

        def across(self, axis, faces):
            return 1 + faces

        def beside(self, axis, other, faces):
            raise AssertionError

        def scale(self, axis, other, faces):
            raise AssertionError

    grid = OrthogonalGrid([np.linspace(0, 1, 17)], Duct())
    (x,) = grid.centers
    u = solve_elliptic(EllipticOperator(Boundaries(grid, {"x-": Dirichlet(0.0), "x+": Dirichlet(1.0)})), 0 * x)
    assert jnp.allclose(u, jnp.log1p(x) / jnp.log(2.0), atol=1e-3)


def test_pictures_show_cells_where_they_are():
    """A disc as a disc; rows of cells as high as they are."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    disc = GRIDS["disc"]
    (ax,) = sciml.plot.field(disc.centers[0] * jnp.cos(disc.centers[1]), disc)
    corners = ax.collections[0].get_coordinates()
    np.testing.assert_allclose(np.hypot(*np.moveaxis(corners, -1, 0))[:, -1], 1.0, rtol=1e-6)
    assert ax.get_xlabel() == "x" and ax.get_aspect() == 1.0
    layer = GRIDS["stretched"]
    (ax,) = sciml.plot.field(jnp.ones(layer.shape), layer)
    np.testing.assert_allclose(ax.collections[0].get_coordinates()[:, 0, 1], layer.faces[1], rtol=1e-6)
    matplotlib.pyplot.close("all")
