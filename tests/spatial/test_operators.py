"""What holds for every operator of tests/registry_operators.py."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import spatial, verify
from sciml.spatial import Boundaries, Dirichlet, Extrapolate, Grid, Neumann, Periodic, Robin
from tests.registry_operators import CASES, over, vector

LOWER, UPPER = (0.1, -0.2), (0.9, 0.7)


def field(x, y):
    return jnp.sin(7 * x + 0.3) * jnp.cos(6 * y) + 0.3 * jnp.exp(x * y)


def polynomial(degree):
    """What a formula that is exact below this degree errs in by its leading term alone, at every place."""
    return lambda x, y: (0.9 * x - 0.7 * y + 0.4) ** degree


def waves(x, y):
    """Periodic over the box of length 2 pi."""
    return jnp.sin(x + 0.3) * jnp.cos(y) + 0.5 * jnp.cos(x - 2 * y)


def sides(f, grid, kinds, at="center", a=2.0):
    """Conditions of the given kinds at x-, x+, y-, y+, with the values of a function where the unknowns stand."""
    blank = {"D": Dirichlet(), "N": Neumann(), "R": Robin(a, 0.5), "E": Extrapolate()}
    names = ("x-", "x+", "y-", "y+")
    points = Boundaries(grid, {name: blank[kind] for name, kind in zip(names, kinds)}, at).coordinates
    found = {}
    for name, kind in zip(names, kinds):
        axis, high = "xy".index(name[0]), name[1] == "+"
        wall = (UPPER if high else LOWER)[axis]
        along = jnp.ravel(points[1 - axis])
        point = (lambda s: (wall, s)) if axis == 0 else (lambda s: (s, wall))
        value = jax.vmap(lambda s: f(*point(s)))(along)
        slope = (1 if high else -1) * jax.vmap(lambda s: jax.grad(f, axis)(*point(s)))(along)
        found[name] = {
            "D": lambda: Dirichlet(value),
            "N": lambda: Neumann(slope),
            "R": lambda: Robin(a, 0.5, a * value + 0.5 * slope),
            "E": Extrapolate,
        }[kind]()
    return found


def manufactured(case, kinds, order):
    """A solution that shows the order on grids where rounding does not hide it.

    The errors of one-sided differences of high order follow their leading term late, shortly before rounding.
    """
    if kinds == "periodic":
        return waves
    return polynomial(order + case.derivatives) if order >= 6 and order not in case.solved else field


def boundary_of(case, grid, kinds, at, f):
    if kinds == "periodic":
        return Boundaries(grid, Periodic(), at)
    a = 2.0 if f is field else 1.0  # the leading term shows late where the value weighs much on so coarse grids
    if case.vector:
        return [Boundaries(grid, sides(g, grid, kinds, at, a), at) for g in vector(f)]
    own = Boundaries(grid, sides(f, grid, kinds, at, a), at)
    return (own, Boundaries(grid, sides(case.inner(f), grid, kinds, at, a), at)) if case.inner else own


def matrix_of(operator, shape):
    """A linear operator as a matrix."""
    eye = jnp.eye(int(np.prod(shape))).reshape(-1, *shape)

    @jax.jit
    def rows(eye):
        zero = operator(jnp.zeros(shape))
        return jax.vmap(lambda u: operator(u) - zero)(eye).reshape(len(eye), -1).T

    return rows(eye)


def error(case, kinds, order, n, at="center"):
    lower, upper = (0.0, 2 * np.pi) if kinds == "periodic" else (LOWER, UPPER)
    grid = Grid((n, 5 * n // 4), lower, upper)
    f = manufactured(case, kinds, order)

    def measure():
        boundary = boundary_of(case, grid, kinds, at, f)
        operator = case.make(grid, boundary, order)
        points = jax.tree.leaves(boundary, is_leaf=lambda b: isinstance(b, Boundaries))[0].coordinates
        u = jnp.stack([over(grid, g) for g in vector(f)]) if case.vector else over(grid, f, points)
        exact = over(grid, case.exact(f), points)
        if order not in case.solved or kinds == "periodic":
            return jnp.max(jnp.abs(operator(u) - exact))
        # The solution of the equation with these boundary values; a constant is free if all are slopes.
        matrix = matrix_of(operator, u.shape)
        right = jnp.ravel(exact - operator(jnp.zeros(u.shape)))
        weight = jnp.full((1, matrix.shape[1]), 1.0 if kinds == "NNNN" else 0.0)
        matrix = matrix + jnp.ones((matrix.shape[0], 1)) * weight
        solution = jnp.linalg.solve(matrix, right).reshape(u.shape)
        difference = solution - u
        return jnp.max(jnp.abs(difference - (jnp.mean(difference) if kinds == "NNNN" else 0.0)))

    return float(jax.jit(measure)())


SIZES = {1: (192, 384), 2: (64, 128), 3: (48, 96), 4: (48, 96), 5: (48, 80), 6: (32, 48), 7: (32, 48), 8: (24, 36)}
# where the order shows on finer grids, before rounding hides it
SIZES_OF = {("Curl", 8): (32, 48), ("VariableLaplacian", 8): (40, 56)}
SOLVED_SIZES = {2: (16, 24), 4: (30, 42)}
WALL_SIZES = {6: (12, 20), 8: (12, 16)}  # for polynomials
EACH = [(case, order) for case in CASES for order in case.orders]
each = pytest.mark.parametrize("case, order", EACH, ids=[f"{case.name}-{order}" for case, order in EACH])
KINDS = ("periodic", "DNRD", "RDNR", "NNNN", "EEEE")


def meaningful(case, order, kinds):
    """Not an order that is refused between walls, nor a solution of an equation without conditions.

    Of the two with mixed sides each operator has either, in turn from order to order: each has all conditions.
    """
    mixed = ("DNRD", "RDNR")
    if kinds in mixed and kinds != mixed[(CASES.index(case) + case.orders.index(order)) % 2]:
        return False
    if kinds == "NNNN" and order not in (case.orders[0], *case.solved):
        return False  # each side has the condition among others, too
    return kinds == "periodic" or (order in case.walls and not (kinds == "EEEE" and order in case.solved))


def observed(case, kinds, order, at="center"):
    """The order that is seen."""
    if kinds == "periodic" or order not in (*case.solved, *WALL_SIZES):
        sizes = SIZES_OF.get((case.name, order), SIZES[order])
    else:
        sizes = (SOLVED_SIZES if order in case.solved else WALL_SIZES)[order]
    coarse, fine = (error(case, kinds, order, n, at) for n in sizes)
    return np.log(coarse / fine) / np.log(sizes[1] / sizes[0])


def test_every_operator_is_registered():
    """By its own name, or within the case that makes it."""
    source = inspect.getsource(inspect.getmodule(type(CASES[0])))
    for name in ("Laplacian", "VariableLaplacian", "AnisotropicLaplacian", "Derivative", "Gradient", "Divergence"):
        assert f"spatial.{name}" in source
    for name in ("Biharmonic", "Curl", "Upwind", "StaggeredGradient"):
        assert f"spatial.{name}" in source


@pytest.mark.x64
@pytest.mark.parametrize(
    "case, order, kinds",
    [
        pytest.param(case, order, kinds, id=f"{case.name}-{order}-{kinds}")
        for case, order in EACH
        for kinds in KINDS
        if meaningful(case, order, kinds)
    ],
)
def test_observed_order(case, order, kinds):
    assert observed(case, kinds, order) > order - 0.1


@pytest.mark.x64
@pytest.mark.parametrize("kinds", ["periodic", "DNRD", "RDNR"])
@pytest.mark.parametrize("case, order", [pytest.param(c, o, id=f"{c.name}-{o}") for c, o in EACH if c.nodes])
def test_observed_order_at_nodes(case, order, kinds):
    if not meaningful(case, order, kinds):
        pytest.skip("not for walls")
    assert observed(case, kinds, order, "node") > order - 0.1


LINEAR = [pytest.param(case, case.orders[0], id=case.name) for case in CASES if not case.vector]
WALLS = {"x-": Dirichlet(1.0), "x+": Neumann(0.5), "y-": Robin(1.0, 0.2, 0.3), "y+": Dirichlet(2.0)}


@pytest.mark.x64
@pytest.mark.parametrize("case, order", LINEAR)
@pytest.mark.parametrize("conditions", [Periodic(), WALLS], ids=["periodic", "walls"])
def test_adjoint_and_neighbours(case, order, conditions):
    """<F x, y> = <x, F* y>, and the neighbours are those that `sparsity` names."""
    grid = Grid((6, 7))
    operator = case.make(grid, Boundaries(grid, conditions).homogeneous(), order)
    x = jax.random.normal(jax.random.key(0), grid.shape)
    forward, transpose = jax.jit(lambda u: operator(u)), jax.jit(jax.linear_transpose(lambda u: operator(u), x))
    y = jax.random.normal(jax.random.key(1), forward(x).shape)
    assert abs(jnp.vdot(forward(x), y) - jnp.vdot(x, transpose(y)[0])) < 1e-12 * jnp.linalg.norm(forward(x))
    if isinstance(conditions, Periodic) and hasattr(operator, "sparsity") and operator.radius < 3:
        unit = jnp.zeros(grid.shape).at[3, 3].set(1.0)
        out = forward(unit)
        reached = np.argwhere(np.abs(np.asarray(out).reshape(-1, *grid.shape)).max(axis=0) > 1e-12)
        assert {tuple(3 - p) for p in reached} <= set(operator.sparsity)


SYMBOLS = [p for p in LINEAR if p.id not in ("Upwind", "staggered")]


@pytest.mark.x64
@pytest.mark.parametrize("case, order", SYMBOLS)
def test_symbol_and_spectral_radius(case, order):
    """A plane wave is multiplied by the symbol; no eigenvalue is larger than the spectral radius."""
    grid = Grid((8, 10), 0.0, (2.0, 3.0))
    operator = case.make(grid, Periodic(), order)
    if hasattr(operator, "coefficient"):
        operator = spatial.VariableLaplacian(grid, Periodic(), 1.0, order)
    if hasattr(operator, "tensor"):
        operator = spatial.AnisotropicLaplacian(grid, Periodic(), [[2.0, 0.3], [0.3, 1.0]])
    k = 2 * np.pi * 2 / 2.0, -2 * np.pi * 3 / 3.0
    x, y = grid.centers
    wave = jnp.asarray(np.exp(1j * np.asarray(k[0] * x + k[1] * y)))
    symbol = jnp.asarray(operator.symbol(*map(jnp.asarray, k)))
    expected = jnp.tensordot(symbol.astype(wave.dtype), wave, 0)
    assert jnp.allclose(operator(wave), expected)
    if case.name == "Gradient":
        return
    for conditions in (Periodic(), WALLS):
        walls = Boundaries(grid, conditions)
        operator = case.make(grid, walls, order)
        largest = np.abs(np.linalg.eigvals(matrix_of(operator, grid.shape))).max()
        assert largest <= float(operator.spectral_radius) * (1 + 1e-6)


CONSERVING = [pytest.param(c, order, id=f"{c.name}-{order}") for c in CASES for order in c.conserves]


@pytest.mark.parametrize("case, order", CONSERVING)
def test_conservation(case, order):
    """The integral changes by the flux through the walls alone, to rounding."""
    grid = Grid((8, 6), 0.0, (2.0, 1.0))
    u = jax.random.normal(jax.random.key(2), grid.shape)
    scale = float(jnp.abs(case.make(grid, Periodic(), order)(u)).max())
    eps = float(jnp.finfo(u.dtype).eps)
    for conditions in (Periodic(), Neumann(0.0)):
        assert abs(grid.integrate(case.make(grid, conditions, order)(u))) < 50 * eps * scale


@pytest.mark.x64
def test_the_laplacian_of_order_two_is_symmetric():
    for conditions in (Periodic(), Dirichlet(), Neumann(), Robin(1.0, 0.3)):
        for operator in (
            spatial.Laplacian(Grid((5, 4)), conditions),
            spatial.VariableLaplacian(Grid((5, 4)), conditions, over(Grid((5, 4)), lambda x, y: 1 + x * y)),
        ):
            matrix = matrix_of(operator, (5, 4))
            assert jnp.allclose(matrix, matrix.T, atol=1e-10)


@pytest.mark.x64
@pytest.mark.parametrize("conditions", [Periodic(), Dirichlet(), Neumann()], ids=["periodic", "values", "no flux"])
@pytest.mark.parametrize("order", [2, 4])
def test_staggered_gradient_and_divergence_are_adjoint(conditions, order):
    if order > 2 and not isinstance(conditions, Periodic):
        pytest.skip("at walls for the second order")
    grid = Grid((8, 6), 0.0, (2.0, 1.0))
    boundary = Boundaries(grid, conditions)
    gradient = spatial.StaggeredGradient(grid, boundary, order)
    p = jax.random.normal(jax.random.key(0), grid.shape)
    slopes = gradient(p)
    fluxes = tuple(jax.random.normal(jax.random.key(i), s.shape) for i, s in enumerate(slopes, 1))
    if isinstance(conditions, Neumann):
        fluxes = fluxes[0].at[jnp.array([0, -1])].set(0.0), fluxes[1].at[:, jnp.array([0, -1])].set(0.0)
    left = sum(grid.integrate(s * f, gradient.faces(a)) for a, (s, f) in enumerate(zip(slopes, fluxes)))
    right = -grid.integrate(p * gradient.divergence(fluxes))
    assert abs(left - right) < 1e-12 * abs(left)


@pytest.mark.x64
def test_gradients_by_coefficients_boundary_values_and_field():
    grid = Grid((3, 4))
    k = 1.0 + jax.random.uniform(jax.random.key(0), grid.shape)
    u = jax.random.normal(jax.random.key(1), grid.shape)
    weights = jax.random.normal(jax.random.key(2), grid.shape)
    make = jax.jit(lambda x: jnp.sum(weights * x[0](x[1], t=2.0) ** 2))
    sides = WALLS | {"x-": Dirichlet(jnp.linspace(0.0, 1.0, 4))}
    for operator in (
        spatial.VariableLaplacian(grid, sides, k),
        spatial.AnisotropicLaplacian(grid, sides, [[2.0, 0.3], [0.3, 1.0]]),
    ):
        scale = float(make((operator, u)))
        verify.check_gradient(lambda x: make(x) / scale, (operator, u), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_components_members_and_dtypes(case):
    """Axes in front are independent fields, alone or through `vmap`; float32 stays float32."""
    grid = Grid((9, 10), 0.0, 1.0)
    operator = case.make(grid, Periodic(), case.orders[0])
    lead = (2,) if case.vector else ()
    u = jax.random.normal(jax.random.key(0), (3, *lead, *grid.shape), jnp.float32)
    batched = jax.jit(lambda u: operator(u))(u)
    assert batched.dtype == jnp.float32
    mapped = jax.jit(jax.vmap(lambda u: operator(u)))(u)
    assert jnp.allclose(batched, mapped, rtol=1e-4, atol=1e-2)


def test_harmonic_mean_where_a_coefficient_jumps():
    """Two layers in series: the steady flux is that of their resistances."""
    grid = Grid(8)
    k = jnp.where(grid.centers[0] < 0.5, 1.0, 100.0)
    operator = spatial.VariableLaplacian(grid, {"x-": Dirichlet(0.0), "x+": Dirichlet(1.0)}, k, mean="harmonic")
    flux = 1 / (0.5 / 1.0 + 0.5 / 100.0)
    x = grid.centers[0]
    steady = jnp.where(x < 0.5, flux * x, 1 - flux * (1 - x) / 100.0)
    assert jnp.max(jnp.abs(operator(steady))) < 1e-2


GRID = Grid((6, 6))


@pytest.mark.parametrize(
    "error, message, fn",
    [
        (
            ValueError,
            r"`Laplacian\(order=...\)` must be one of 2, 4, 6, 8",
            lambda: spatial.Laplacian(GRID, Periodic(), 3),
        ),
        (ValueError, "must be one of 1, 3, 5, 7", lambda: spatial.Upwind(GRID, Periodic(), 2)),
        (
            ValueError,
            "requires periodic axes",
            lambda: spatial.Biharmonic(GRID, {"x": Periodic(), "y": Neumann()}, order=8),
        ),
        (ValueError, "at least 9 unknowns along x", lambda: spatial.Laplacian(GRID, Neumann(), 8)),
        (ValueError, "lacks 'y-'", lambda: spatial.Laplacian(GRID, {"x": Periodic()})),
        (ValueError, r"must end with the axes \(6, 6\)", lambda: spatial.Laplacian(GRID, Periodic())(jnp.ones((6, 5)))),
        (
            ValueError,
            r"must have shape \(..., 2, \*grid\)",
            lambda: spatial.Divergence(GRID, Periodic())(jnp.ones((6, 6))),
        ),
        (ValueError, "one for each", lambda: spatial.Divergence(GRID, [Periodic()])),
        (ValueError, "two or three dimensions", lambda: spatial.Curl(Grid(8), Periodic())),
        (ValueError, "must be a number or an array", lambda: spatial.VariableLaplacian(GRID, Periodic(), jnp.ones(6))),
        (ValueError, r"must have shape \(2, 2\)", lambda: spatial.AnisotropicLaplacian(GRID, Periodic(), jnp.ones(2))),
        (ValueError, "`velocity` must have", lambda: spatial.Upwind(GRID, Periodic())(jnp.ones((6, 6)), jnp.ones(3))),
        (ValueError, "must be one of x, y", lambda: spatial.Derivative(GRID, Periodic(), "z")),
        (
            ValueError,
            "must be 2 arrays",
            lambda: spatial.StaggeredGradient(GRID, Periodic()).divergence([jnp.ones((6, 6))]),
        ),
        (TypeError, "must be Periodic", lambda: spatial.Laplacian(GRID, "periodic")),
    ],
)
def test_bad_input(error, message, fn):
    with pytest.raises(error, match=message):
        fn()
