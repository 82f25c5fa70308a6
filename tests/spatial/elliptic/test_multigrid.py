"""Geometric multigrid: exact, as fast on every grid, differentiable."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest

import sciml
from sciml import SolveError, Status
from sciml.spatial import (
    Boundaries,
    ChebyshevSmoother,
    Dirichlet,
    EllipticOperator,
    Extrapolate,
    FastTransform,
    Grid,
    Lines,
    Multigrid,
    Neumann,
    Periodic,
    RedBlack,
    Robin,
    solve_elliptic,
)
from sciml.spatial.elliptic._coarsening import Galerkin, axes_to_coarsen, prolong, restrict
from sciml.spatial.elliptic._solve import default_solver

DTYPE = jnp.result_type(float)
MIXED = {"x-": Dirichlet(0.4), "x+": Robin(2.0, 1.0, 0.3), "y": Neumann(-0.2)}


def random(shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), DTYPE)


def jumping(shape):
    """Four decades across the faces of a box that no coarse cell fits."""
    places = np.stack([i / n for i, n in zip(np.indices(shape), shape)])
    return jnp.asarray(np.where(np.all(np.abs(places - 0.45) < 0.17, axis=0), 1e4, 1.0), DTYPE)


@functools.partial(jax.jit, static_argnums=2)
def _solve(operator, f, solver):
    solution = lx.linear_solve(operator, f, solver, throw=False)
    return solution.value, solution.stats["num_steps"]


def factor(operator, f, solver=Multigrid()):
    """The mean factor by which a cycle reduces the residual."""
    u, steps = _solve(operator, f, solver)
    residual = jnp.linalg.norm(jnp.ravel(operator.mv(u) - f)) / jnp.linalg.norm(jnp.ravel(f))
    return float(residual) ** (1 / int(steps))


@pytest.mark.parametrize(
    "conditions",
    [Periodic(), Dirichlet(0.0), MIXED],
    ids=["periodic", "Dirichlet", "mixed"],
)
def test_it_solves_the_operator(conditions):
    """On an odd number of cells, with coefficients that differ by cell and by axis."""
    boundary = Boundaries(Grid((15, 8), 0.0, (1.0, 0.7)), conditions)
    k = (jnp.exp(0.5 * random((15, 8))), jnp.exp(0.5 * random((15, 8), 1)))
    operator = EllipticOperator(boundary, k, c=jnp.abs(random((15, 8), 2)))
    matrix = np.asarray(operator.as_matrix(), np.float64)
    assert np.allclose(matrix, matrix.T) and np.linalg.eigvalsh(matrix).min() > 0
    f = random((15, 8))
    u = solve_elliptic(operator, f, Multigrid())
    expected = np.linalg.solve(matrix, np.ravel(f + operator.source())).reshape(15, 8)
    assert np.allclose(u, expected, rtol=0, atol=(1e-8 if DTYPE == jnp.float64 else 1e-4) * np.abs(expected).max())


@pytest.mark.x64
def test_the_solution_holds_in_one_and_three_dimensions():
    for shape, conditions in [((100,), MIXED | {"y": None}), ((6, 7, 5), Periodic())]:
        conditions = {key: value for key, value in conditions.items() if value} if len(shape) == 1 else conditions
        boundary = Boundaries(Grid(shape), conditions)
        operator = EllipticOperator(boundary, jumping(shape), c=1.0)
        f = random(shape)
        u, right = solve_elliptic(operator, f, Multigrid()), f + operator.source()
        assert jnp.allclose(operator.mv(u), right, rtol=0, atol=1e-8 * float(jnp.max(jnp.abs(right))))


@pytest.mark.x64
@pytest.mark.parametrize(
    "conditions, kind",
    [
        (Periodic(), "smooth"),
        (Dirichlet(0.0), "smooth"),
        (Neumann(0.0), "smooth"),
        (Dirichlet(0.0), "jumping"),
    ],
)
def test_a_cycle_divides_the_residual_by_ten(conditions, kind):
    boundary = Boundaries(Grid((24, 20)), conditions)
    f = random((24, 20))
    operator = EllipticOperator(boundary, 1.0 if kind == "smooth" else jumping((24, 20)))
    assert factor(operator, f - jnp.mean(f)) < 0.1


@pytest.mark.x64
@pytest.mark.parametrize("shape", [(32, 32), (512, 512), (300, 77), (16, 16, 16), (64, 64, 64)])
def test_the_factor_does_not_depend_on_the_size(shape):
    f = random(shape)
    f = f - jnp.mean(f)
    for conditions in (Periodic(), Dirichlet(0.0), Neumann(0.0)):
        assert factor(EllipticOperator(Boundaries(Grid(shape), conditions)), f) < 0.1
    assert factor(EllipticOperator(Boundaries(Grid(shape), Dirichlet(0.0)), jumping(shape)), f) < 0.1


@pytest.mark.x64
@pytest.mark.parametrize(
    "shape, conditions",
    [
        ((9, 12), {"x": Periodic(), "y": Robin(2.0, 1.0)}),
        ((13, 8), Periodic()),
        ((5, 6, 7), {"x": Dirichlet(), "y": Neumann(), "z": Periodic()}),
    ],
    ids=["mixed", "periodic", "three dimensions"],
)
def test_galerkin_levels_are_products_of_their_transfers(shape, conditions):
    """On odd and even numbers of cells, twice in a row; and a sweep updates one colour after the other."""
    operator = EllipticOperator(Boundaries(Grid(shape), conditions), jnp.exp(2 * random(shape)), c=0.1)
    fine, spacing = operator.faces(), operator.boundary.grid.spacing
    for _ in range(2):
        coarse, transfers = eqx.filter_jit(Galerkin().coarsen)(fine, axes_to_coarsen(fine.shape, spacing))
        units = jnp.eye(int(np.prod(coarse.shape))).reshape(-1, *coarse.shape)
        product = lambda u: restrict(fine(prolong(u, transfers)), transfers)  # noqa: B023, E731
        found, expected = (jax.jit(jax.vmap(f))(units) for f in (coarse, product))
        assert jnp.allclose(found, expected, rtol=0, atol=1e-12 * float(jnp.max(expected)))
        matrix = coarse.matrix()
        assert jnp.allclose(matrix, matrix.T) and float(jnp.linalg.eigvalsh(matrix)[0]) > 0

        colour, colours = coarse.colours(tuple(range(coarse.ndim)))
        u, f = random(coarse.shape), random(coarse.shape, 1)
        swept = jax.jit(lambda u, f: coarse.relax(coarse.relaxation(), u, f, 1.2, 1, False))(u, f)  # noqa: B023
        for now in range(colours):
            u = jnp.where(colour == now, u + 1.2 * (f - coarse(u)) / coarse.diagonal(), u)
        assert jnp.allclose(swept, u, rtol=0, atol=1e-12 * float(jnp.max(jnp.abs(u))))
        fine = coarse


@pytest.mark.x64
@pytest.mark.parametrize("shape", [(96, 96), (24, 24, 24)])
def test_channels_and_inclusions_need_galerkin_levels(shape):
    """Five decades in thin layers, and in one cell of ten."""
    f = random(shape)
    layers = np.ones(shape)
    for axis, start in enumerate((5, 11, 17)[: len(shape)]):
        layers[(slice(None),) * axis + (slice(start, start + 2),)] = 1e5
    scattered = np.where(np.random.default_rng(1).random(shape) < 0.1, 1e-5, 1.0)
    for k in (layers, scattered):
        operator = EllipticOperator(Boundaries(Grid(shape), Dirichlet(0.0)), jnp.asarray(k))
        assert factor(operator, f) < 0.2
    operator = EllipticOperator(Boundaries(Grid(shape), Dirichlet(0.0)), jnp.asarray(layers))
    assert factor(operator, f, Multigrid(coarsening="resistors")) > 0.4


@pytest.mark.x64
@pytest.mark.parametrize(
    "options",
    [
        {"cycle": "W"},
        {"cycle": "F"},
        {"smoother": ChebyshevSmoother()},
        {"smoother": RedBlack(1.1)},
        {"smoother": Lines(), "pre": 1, "post": 1},
        {"pre": 1, "post": 2},
    ],
    ids=["W", "F", "Chebyshev", "relaxed", "lines", "unsymmetric"],
)
def test_every_cycle_and_smoother_converges(options):
    boundary = Boundaries(Grid((37, 24)), {"x": Periodic(), "y": Dirichlet(0.0)})
    operator = EllipticOperator(boundary, jnp.exp(0.3 * random((37, 24))))
    for coarsening in ("galerkin", "resistors"):
        assert factor(operator, random((37, 24)), Multigrid(**options, coarsening=coarsening)) < 0.2


@pytest.mark.x64
def test_anisotropy_of_the_grid_is_coarsened_away_and_that_of_the_coefficient_smoothed_by_lines():
    f = random((64, 64))
    flat = EllipticOperator(Boundaries(Grid((64, 64), 0.0, (1.0, 0.05)), Dirichlet(0.0)))
    assert factor(flat, f) < 0.12
    for conditions in (Dirichlet(0.0), Periodic()):
        layered = EllipticOperator(Boundaries(Grid((64, 64)), conditions), (1.0, 1e-3))
        assert factor(layered, f - jnp.mean(f), Multigrid(smoother=Lines(), pre=1, post=1)) < 0.1
    assert factor(layered, f - jnp.mean(f), Multigrid(max_steps=10)) > 0.3


@pytest.mark.x64
def test_gradients_are_those_of_finite_differences():
    grid = Grid((10, 9))
    f, weights = random((10, 9)), random((10, 9), 1)

    def loss(p):
        boundary = Boundaries(grid, {"x-": Dirichlet(p["wall"]), "x+": Robin(p["a"], 1.0, 0.3), "y": Neumann(0.1)})
        operator = EllipticOperator(boundary, jnp.exp(p["log k"]), p["c"])
        return jnp.sum(weights * solve_elliptic(operator, f, Multigrid(rtol=1e-12)))

    def dense(p):
        boundary = Boundaries(grid, {"x-": Dirichlet(p["wall"]), "x+": Robin(p["a"], 1.0, 0.3), "y": Neumann(0.1)})
        operator = EllipticOperator(boundary, jnp.exp(p["log k"]), p["c"])
        right = jnp.ravel(f + operator.source())
        return jnp.sum(weights * jnp.linalg.solve(operator.as_matrix(), right).reshape(10, 9))

    p = {"wall": jnp.asarray(0.7), "a": jnp.asarray(1.5), "log k": 0.5 * random((10, 9), 2), "c": jnp.asarray(0.2)}
    gradient, expected = jax.jit(jax.grad(loss))(p), jax.jit(jax.grad(dense))(p)
    for key, value in expected.items():
        assert np.allclose(gradient[key], value, rtol=1e-8, atol=1e-8 * float(jnp.max(jnp.abs(value))))
    direction = jax.tree.map(lambda x: random(x.shape, 3), p)
    tangent = jax.jit(lambda p, v: jax.jvp(loss, (p,), (v,))[1])(p, direction)
    assert np.isclose(tangent, sum(jax.tree.leaves(jax.tree.map(jnp.vdot, expected, direction))), rtol=1e-8)


@pytest.mark.x64
def test_the_gradient_of_a_singular_problem():
    boundary = Boundaries(Grid((10, 9)), Periodic())
    f, weights = random((10, 9)), random((10, 9), 1)
    f = f - jnp.mean(f)

    def loss(k, f):
        return jnp.sum(weights * solve_elliptic(EllipticOperator(boundary, k), f, Multigrid(rtol=1e-12)))

    k, v, w = jnp.exp(0.5 * random((10, 9), 2)), random((10, 9), 3), random((10, 9), 4)
    w = w - jnp.mean(w)
    by_k, by_f = jax.jit(jax.grad(loss, (0, 1)))(k, f)
    slope = jax.jit(lambda h: loss(k + h * v, f + h * w))
    central = (8 * (slope(1e-3) - slope(-1e-3)) - slope(2e-3) + slope(-2e-3)) / 12e-3
    assert np.isclose(jnp.vdot(by_k, v) + jnp.vdot(by_f, w), central, rtol=1e-8)


@pytest.mark.x64
def test_it_runs_under_vmap_and_shard_map():
    boundary = Boundaries(Grid((12, 10)), {"x": Dirichlet(0.0), "y": Periodic()})
    fields = jnp.exp(0.3 * random((4, 12, 10)))
    f = random((12, 10))

    def loss(k):
        return jnp.sum(solve_elliptic(EllipticOperator(boundary, k), f, Multigrid()) ** 2)

    value, gradient = jax.jit(jax.vmap(jax.value_and_grad(loss)))(fields)
    total = jax.jit(jax.grad(lambda ks: jnp.sum(jax.vmap(loss)(ks))))(fields)
    rtol = 1e-6 if DTYPE == jnp.float64 else 1e-3
    assert np.allclose(gradient, total, rtol=rtol, atol=rtol * float(jnp.max(jnp.abs(gradient))))

    mesh = jax.make_mesh((2,), ("members",), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:2])
    spec = jax.P("members")
    apart = jax.shard_map(jax.vmap(jax.value_and_grad(loss)), mesh=mesh, in_specs=spec, out_specs=spec)
    there, slope = jax.jit(apart)(fields)
    assert np.allclose(there, value, rtol=rtol)
    assert np.allclose(slope, gradient, rtol=rtol, atol=rtol * float(jnp.max(jnp.abs(gradient))))


@pytest.mark.x64
def test_it_preconditions_conjugate_gradients():
    boundary = Boundaries(Grid((32, 32)), Dirichlet(0.0))
    operator, f = EllipticOperator(boundary, jumping((32, 32))), random((32, 32))
    with jax.numpy_dtype_promotion("standard"):
        plain = lx.linear_solve(operator, f, lx.CG(rtol=1e-8, atol=1e-8))
        options = {"preconditioner": Multigrid().preconditioner(operator)}
        helped = lx.linear_solve(operator, f, lx.CG(rtol=1e-8, atol=1e-8), options=options)
    assert jnp.allclose(plain.value, helped.value, rtol=0, atol=1e-6 * float(jnp.max(jnp.abs(plain.value))))
    assert int(helped.stats["num_steps"]) < int(plain.stats["num_steps"]) / 4


@pytest.mark.x64
def test_an_implicit_step_and_a_complex_right_hand_side():
    boundary = Boundaries(Grid((24, 20)), {"x": Neumann(0.0), "y": Dirichlet(0.0)})
    operator = EllipticOperator(boundary, 1.0 + random((24, 20)) ** 2)
    implicit = lx.IdentityLinearOperator(operator.in_structure()) + operator * 0.01
    f = random((24, 20))
    u = jax.jit(lambda f: lx.linear_solve(implicit, f, Multigrid()).value)(f)
    assert jnp.allclose(implicit.mv(u), f, rtol=0, atol=1e-8)
    u = solve_elliptic(operator, jax.lax.complex(f, 2 * f), Multigrid())
    assert jnp.allclose(u.imag, 2 * u.real, rtol=1e-7)


class Heat(sciml.AbstractSplit):
    operator: EllipticOperator
    solver: Multigrid

    def stiff(self, y, args):
        return -self.operator.mv(y)

    def rest(self, t, y, args):
        return self.operator.source() + 0 * y

    def solve_shifted(self, shift, right, args):
        boundary = self.operator.boundary.homogeneous()
        return solve_elliptic(EllipticOperator(boundary, shift * self.operator.k, c=1.0), right, self.solver)


@pytest.mark.x64
def test_implicit_steps_of_diffusion_by_multigrid():
    k = jnp.exp(random((9, 8)))
    operator = EllipticOperator(Boundaries(Grid((9, 8)), {"x": Dirichlet(1.0), "y": Neumann(0.0)}), k)
    sol = sciml.solve(
        Heat(operator, Multigrid()), jnp.zeros((9, 8)), t0=0.0, t1=0.02, dt=2e-4, solver=sciml.solvers.ARS(order=2)
    )
    values, vectors = np.linalg.eigh(operator.as_matrix())
    steady = np.linalg.solve(operator.as_matrix(), np.ravel(operator.source()))
    exact = steady - vectors @ (np.exp(-0.02 * values) * (vectors.T @ steady))
    assert np.allclose(np.ravel(sol.ys[-1]), exact, rtol=0, atol=1e-4)


@pytest.mark.x64
def test_solutions_across_a_jump_are_of_second_order():
    """-(k u')' = 1 with k = 1 and 10 in the halves: between layers the harmonic mean is the flux itself."""

    def exact(x):
        a, b = 1.0, 10.0  # -k u' = x - s, u(0) = u(1) = 0
        s = (1 / (8 * a) + 3 / (8 * b)) / (1 / (2 * a) + 1 / (2 * b))
        left = (s * x - x**2 / 2) / a
        right = (s * (x - 1) - (x**2 - 1) / 2) / b
        return np.where(x < 0.5, left, right)

    def error(h):
        grid = Grid((round(1 / h), 2))
        x, _ = grid.centers
        k = jnp.broadcast_to(jnp.where(x < 0.5, 1.0, 10.0), grid.shape)
        boundary = Boundaries(grid, {"x": Dirichlet(0.0), "y": Periodic()})
        u = solve_elliptic(EllipticOperator(boundary, k), jnp.ones(grid.shape), Multigrid(rtol=1e-12))
        return float(np.max(np.abs(u - exact(np.asarray(x)))))

    assert abs(np.log2(error(1 / 16) / error(1 / 32)) - 2) < 0.1


@pytest.mark.x64
def test_a_solution_that_is_not_found_is_an_error_or_nan():
    boundary = Boundaries(Grid((9, 8)), Dirichlet(0.0))
    operator = EllipticOperator(boundary, jnp.ones((9, 8), DTYPE))
    solver, f = Multigrid(max_steps=1), random((9, 8))
    with pytest.raises(SolveError, match="Multigrid did not converge within max_steps=1") as caught:
        solve_elliptic(operator, f, solver)
    assert caught.value.status == Status.diverged
    assert jnp.all(jnp.isnan(solve_elliptic(operator, f, solver, throw=False)))
    assert jnp.all(jnp.isnan(jax.jit(lambda f: solve_elliptic(operator, f, solver))(f)))


@pytest.mark.x64
def test_the_error_of_a_solution_that_is_not_found_says_why():
    boundary = Boundaries(Grid((9, 8)), Dirichlet(0.0))
    k, f = jnp.ones((9, 8), DTYPE), random((9, 8))
    several = jnp.stack([f, f.at[3, 4].set(jnp.nan), 2 * f])
    with pytest.raises(SolveError, match="for 1 of 3 right-hand sides. The right-hand side, or a value") as caught:
        solve_elliptic(EllipticOperator(boundary, k), several)
    assert caught.value.status.tolist() == [0, Status.nonfinite, 0]
    found = solve_elliptic(EllipticOperator(boundary, k), several, throw=False)
    assert jnp.all(jnp.isfinite(found[0])) and jnp.all(jnp.isnan(found[1]))
    with pytest.raises(SolveError, match="`k` must be positive or zero everywhere"):
        solve_elliptic(EllipticOperator(boundary, k.at[4, 4].set(jnp.nan)), f)


@pytest.mark.parametrize("given", [{"coarsening": "Galerkin"}, {"cycle": "V-cycle"}, {"smoother": Lines}])
def test_parts_that_there_are_not_are_refused(given):
    (name,) = given
    with pytest.raises((TypeError, ValueError), match=rf"`Multigrid\({name}=...\)` must be |parameter '{name}'"):
        Multigrid(**given)


def test_the_solver_is_chosen_by_the_operator():
    walls = Boundaries(Grid((8, 6)), Dirichlet(0.0))
    assert isinstance(default_solver(EllipticOperator(walls)), FastTransform)
    assert isinstance(default_solver(EllipticOperator(walls, jnp.ones((8, 6), DTYPE))), Multigrid)
    assert isinstance(default_solver(EllipticOperator(Boundaries(Grid((8, 6)), Robin(1.0, 1.0)))), Multigrid)


def test_bad_input_is_named():
    grid = Grid((8, 6))
    walls = Boundaries(grid, Dirichlet(0.0))
    operator = EllipticOperator(walls)
    with pytest.raises(ValueError, match=r"`k` must be a number or a field of shape \(8, 6\)"):
        EllipticOperator(walls, jnp.ones((6, 8), DTYPE))
    with pytest.raises(ValueError, match="one coefficient for each of 2 axes"):
        EllipticOperator(walls, (1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="along y, Extrapolate does not give a symmetric"):
        EllipticOperator(Boundaries(grid, {"x": Dirichlet(0.0), "y": Extrapolate()}))
    with pytest.raises(ValueError, match="along x unknowns are on a wall"):
        EllipticOperator(Boundaries(grid, Neumann(0.0), at="node"))
    with pytest.raises(ValueError, match="along x, the weights `a` and `b` of Robin are functions"):
        EllipticOperator(Boundaries(grid, {"x": Robin(lambda t, args: t, 1.0), "y": Periodic()}))
    with pytest.raises(TypeError, match="boundary"):
        EllipticOperator(grid)
    with pytest.raises(ValueError, match=r"`f` must end with the axes \(8, 6\)"):
        solve_elliptic(operator, jnp.ones((6, 8), DTYPE))
    with pytest.raises(TypeError, match="`f` must have the dtype of the operator"):
        solve_elliptic(operator, jnp.ones((8, 6), jnp.float16))
    with pytest.raises(ValueError, match="must be an `EllipticOperator`.*is MatrixLinearOperator"):
        lx.linear_solve(lx.MatrixLinearOperator(jnp.eye(4, dtype=DTYPE)), jnp.ones(4, DTYPE), Multigrid())
    with pytest.raises(ValueError, match="two elliptic operators"):
        Multigrid().init(operator + operator, {})
    with pytest.raises(ValueError, match="a preconditioner must be symmetric.*cycle='F'"):
        Multigrid("F").preconditioner(operator)
    with pytest.raises(ValueError, match="at least one sweep"):
        Multigrid(pre=0, post=0)
    with pytest.raises(ValueError, match="two or three axes"):
        line = EllipticOperator(Boundaries(Grid(100), Dirichlet(0.0)))
        Multigrid(smoother=Lines()).init(line, {})
    with pytest.raises(ValueError, match="`max_steps` must be a positive integer"):
        Multigrid(max_steps=0)


def test_a_residual_is_that_of_the_solution():
    """In float32 and on many cells the recurrence meets tolerances that rounding does not allow the solution."""
    n = 1024
    operator = EllipticOperator(Boundaries(Grid((n,)), Dirichlet(0.0)), dtype=jnp.float32)
    f = jnp.asarray(np.random.default_rng(0).normal(size=n), jnp.float32)

    def residual(u):
        return float(jnp.linalg.norm(f - operator.mv(u)) / jnp.linalg.norm(f))

    with pytest.raises(SolveError, match="rounding prevents a smaller residual") as caught:
        solve_elliptic(operator, f, Multigrid(rtol=1e-6))
    assert caught.value.status == Status.stagnated
    result = lx.linear_solve(operator, f, Multigrid(rtol=1e-6), throw=False)
    assert result.result == lx.RESULTS.stagnation and result.stats["num_steps"] < 40
    u = solve_elliptic(operator, f, Multigrid())  # by default as small as rounding allows
    bound = jnp.linalg.norm(jnp.abs(u)) * 4 * n**2 * 4 * jnp.finfo(jnp.float32).eps / jnp.linalg.norm(f)
    assert 1e-5 < residual(u) <= bound
    assert residual(solve_elliptic(operator, f, Multigrid(rtol=float(bound)))) <= bound * 1.01
    with pytest.raises(SolveError, match="did not converge within max_steps=2"):  # two cycles are no rounding
        solve_elliptic(operator, f, Multigrid(max_steps=2))
