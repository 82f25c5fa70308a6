"""Iterations for linear systems: what they find, what helps them, and solves that run on them."""

import functools as ft

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import pytest
import scipy.sparse as sp

import sciml
from sciml import inspect
from sciml.solvers import (
    BDF,
    ESDIRK,
    ILU0,
    BlockJacobi,
    Radau5,
    Rodas5P,
    Rosenbrock23,
    ShiftedInverse,
)
from sciml.solvers.linear._colouring import colour
from sciml.solvers.linear._incomplete_lu import IncompleteLU, groups_of
from sciml.solvers.linear._iterative import Iteration, Iterative, iteration_of
from sciml.solvers.linear._preconditioners import Unknowns, points_of
from tests import families

from ..common import close
from .test_structures import block_pattern, grid_pattern, matrices

CLOSELY = dict(rtol=1e-12, atol=0.0)
GMRES, BICGSTAB = lineax.GMRES(rtol=1e-3, atol=1e-6), lineax.BiCGStab(rtol=1e-3, atol=1e-6)
EXACT = lineax.GMRES(**CLOSELY)


def iterative(pattern, solver, preconditioner):
    """The structure for a pattern, whose unknowns are pairs."""
    n = len(pattern)
    unknowns = Unknowns(np.arange(n) // 2, lambda function: function)
    near = preconditioner and preconditioner.near(sp.csr_array(pattern), sp.eye_array(n, format="csr"), unknowns)
    return Iterative(n, iteration_of(solver, None, False), None, near)


@pytest.mark.x64
@pytest.mark.parametrize(
    "solver, preconditioner",
    [
        (lineax.GMRES(restart=5, **CLOSELY), None),
        (EXACT, ILU0()),
        (EXACT, ShiftedInverse(lambda s, b: b / (1 + 6 * s))),
        (lineax.BiCGStab(**CLOSELY), BlockJacobi()),
    ],
    ids=["GMRES(5)", "ILU0", "a function", "BiCGSTAB, BlockJacobi"],
)
def test_solves_and_its_derivatives(solver, preconditioner):
    pattern = grid_pattern(6, 7)
    structure = iterative(pattern, solver, preconditioner)
    jacobian, dense = matrices(pattern)
    b, weights = np.sin(1.0 + np.arange(len(pattern))), np.cos(np.arange(len(pattern)))

    def run(jacobian, b):
        matrix = structure.assemble(lambda v: jnp.where(pattern, jacobian, 0.0) @ v, b, jnp.asarray(0.1))
        factors = structure.factorise(jax.lax.stop_gradient(matrix))
        return structure.solve(matrix, factors, b), structure.is_singular(matrix, factors)

    @jax.jit
    def all_of_it(jacobian, b):
        x, is_singular = run(jacobian, b)
        slopes = jax.grad(lambda j, b: weights @ run(j, b)[0], argnums=(0, 1))(jacobian, b)
        return x, is_singular, slopes, jax.jvp(lambda b: run(jacobian, b)[0], (b,), (weights,))[1]

    x, is_singular, (by_jacobian, by_b), forward = all_of_it(jacobian, b)
    back = np.linalg.solve(dense.T, weights)
    assert not is_singular
    close(x, np.linalg.solve(dense, b), rtol=1e-9)
    close(by_b, back, rtol=1e-8)
    close(by_jacobian, np.where(pattern, 0.1 * np.outer(back, np.linalg.solve(dense, b)), 0.0), rtol=1e-8, atol=1e-11)
    close(forward, np.linalg.solve(dense, weights), rtol=1e-8)


@pytest.mark.x64
@pytest.mark.parametrize("pattern", [grid_pattern(5, 6), block_pattern([3, 2, 4, 1])], ids=["grid", "blocks"])
def test_an_incomplete_factorisation_is_the_matrix_where_that_has_entries(pattern):
    """Which defines it; where there is no fill-in it is the matrix."""
    n = len(pattern)
    sparse, mass = sp.csr_array(pattern), sp.eye_array(n, format="csr")
    structure = IncompleteLU(colour(sparse, np.arange(n)), mass, groups_of(sparse, mass))
    jacobian, dense = matrices(pattern)

    @jax.jit
    def all_of_it(jacobian):
        matrix = structure.assemble(lambda v: jacobian @ v, jnp.zeros(n), jnp.asarray(0.1))
        factors = structure.factorise(matrix)
        solves = structure.substitute, structure.substitute_transposed
        inverses = [jax.vmap(lambda b, solve=solve: solve(factors, b), out_axes=1)(jnp.eye(n)) for solve in solves]
        return *inverses, structure.times(matrix, jnp.arange(1.0, n + 1))

    inverse, transposed, product = map(np.asarray, all_of_it(jacobian))
    near = np.linalg.inv(inverse)
    there = pattern | np.eye(n, dtype=bool)
    close(near[there], dense[there], rtol=1e-10)
    assert np.abs(near - dense).max() > 0.01 if n == 30 else np.abs(near - dense).max() < 1e-12
    close(transposed, inverse.T, rtol=1e-11, atol=1e-13)
    close(product, dense @ np.arange(1.0, n + 1), rtol=1e-12)


def in_two_stages(pattern, most):
    """An iteration that is given up after so many products, and another with an incomplete factorisation."""
    n = len(pattern)
    sparse, mass = sp.csr_array(pattern), sp.eye_array(n, format="csr")
    near = IncompleteLU(colour(sparse, np.arange(n)), mass, groups_of(sparse, mass))
    return Iterative(n, Iteration(30, 1e-12, 0.0, 300), None, near, Iteration(0, 1e-12, 0.0, most))


@pytest.mark.x64
@pytest.mark.parametrize("most", [2, 60], ids=["both", "the first"])
def test_what_an_iteration_alone_does_not_solve_a_preconditioner_does(most):
    """Also of members of which some need it."""
    pattern = grid_pattern(6, 7)
    structure, n = in_two_stages(pattern, most), len(pattern)
    jacobian, _ = matrices(pattern)
    b, weights = np.sin(1.0 + np.arange(n)), np.cos(np.arange(n))
    scales = np.array([1e-9, 0.1, 5.0])

    def run(scale, b):
        matrix = structure.assemble(lambda v: jacobian @ v, b, scale)
        return structure.solve(matrix, structure.factorise(jax.lax.stop_gradient(matrix)), b)

    dense = np.eye(n) - scales[:, None, None] * jacobian
    x, slope = jax.jit(jax.vmap(jax.value_and_grad(lambda s, b: weights @ run(s, b)), (0, None)))(scales, b)
    solution = np.linalg.solve(dense, np.broadcast_to(b[:, None], (3, n, 1)))[..., 0]
    close(x, solution @ weights, rtol=1e-8, atol=1e-10)
    back = np.linalg.solve(np.swapaxes(dense, 1, 2), np.broadcast_to(weights[:, None], (3, n, 1)))[..., 0]
    close(slope, np.einsum("ki,ij,kj->k", back, jacobian, solution), rtol=1e-8)


@pytest.mark.x64
def test_what_gmres_does_not_solve_closely_bicgstab_does():
    """Diffusion between walls that nothing passes, over a long time, has one eigenvalue far from all others."""
    side, scale = 20, 4e5
    line = np.diag(np.full(side - 1, 1.0), 1) + np.diag(np.full(side - 1, 1.0), -1)
    line -= np.diag(line.sum(axis=0))
    laplacian = np.kron(line, np.eye(side)) + np.kron(np.eye(side), line)
    sparse, mass, n = sp.csr_array(laplacian != 0), sp.eye_array(side**2, format="csr"), side**2
    near = IncompleteLU(colour(sparse, np.arange(n)), mass, groups_of(sparse, mass))
    b, weights = np.sin(1.0 + np.arange(n)) + 0.1, np.cos(np.arange(n))
    dense = np.eye(n) - scale * laplacian
    alone, gmres = Iteration(0, 1e-4, 0.0, 60), Iteration(30, 1e-4, 0.0, 300)
    for first, iteration in ((alone, gmres), (None, gmres), (None, gmres.other)):
        structure = Iterative(n, iteration, None, near, first)
        matrix = structure.assemble(lambda v: jnp.asarray(laplacian) @ v, jnp.asarray(b), jnp.asarray(scale))
        factors = structure.factorise(matrix)
        found = jax.jit(lambda b, s=structure, m=matrix, f=factors: s.derivative(m, f, b))
        close(found(b), np.linalg.solve(dense, b), rtol=1e-7, atol=1e-9)
        close(
            jax.grad(lambda b, run=found: weights @ run(b))(b), np.linalg.solve(dense.T, weights), rtol=1e-7, atol=1e-9
        )
    _, found = gmres.run(
        lambda u: dense @ near.substitute(factors.near, u), jnp.asarray(b), 1e-11 * np.linalg.norm(b), 300, b
    )
    assert not found


@pytest.mark.x64
@pytest.mark.parametrize("solver", [Rodas5P(), BDF()], ids=lambda s: type(s).__name__)
def test_fields_without_a_named_iteration(solver):
    """Of species that differ a millionfold in size: against a narrower choice of methods, and the derivative."""
    small = 1e-6

    def field(t, y, spread):
        u, v = y[0], y[1] / small
        slope = plane(t, jnp.stack([u, v]), spread)
        return jnp.stack([slope[0], small * slope[1]])

    x = jnp.linspace(0, 1, 18)
    y0 = jnp.stack([1 + jnp.outer(x, x), small * (3 - jnp.outer(x, x**2))])
    assert "BiCGSTAB" in inspect.jacobian(field, y0, args=1.0, solver=solver).structure

    def end(spread, solver, factor=1.0):
        tolerances = dict(
            rtol=1e-5 * factor, atol=factor * jnp.broadcast_to(jnp.array([[[1e-7]], [[1e-13]]]), y0.shape)
        )
        return sciml.solve(field, y0, t0=0.0, t1=0.2, args=spread, solver=solver, **tolerances).ys[-1]

    exact = jax.jit(lambda s: end(s, ESDIRK(), 1e-2))(200.0)
    run = jax.jit(jax.value_and_grad(lambda s: jnp.sum(end(s, solver)[1, :3]) / small))
    found = jax.jit(lambda s: end(s, solver))(200.0)
    close(found[0], exact[0], rtol=2e-4)
    close(found[1], exact[1], rtol=2e-4)
    h = 0.5
    fine = jax.jit(lambda s: jnp.sum(end(s, ESDIRK(), 1e-2)[1, :3]) / small)
    close(run(200.0)[1], (fine(200.0 + h) - fine(200.0 - h)) / (2 * h), rtol=1e-2)


def test_points_of_states():
    assert np.array_equal(points_of(jnp.zeros((2, 3, 4))), np.tile(np.arange(12), 2))
    assert np.array_equal(points_of(jnp.zeros((5, 3))), np.repeat(np.arange(5), 3))
    assert np.array_equal(points_of(dict(u=jnp.zeros(3), v=jnp.zeros(3))), [0, 1, 2, 0, 1, 2])
    assert np.array_equal(points_of((jnp.zeros(2), jnp.zeros(3))), np.arange(5))
    assert np.array_equal(points_of(jnp.zeros(2, complex)), [0, 0, 1, 1])


def plane(t, y, spread):
    """Two species on a square between walls that nothing passes."""
    u, v = y
    wide = jnp.pad(y, ((0, 0), (1, 1), (1, 1)), mode="edge")
    around = wide[:, 2:, 1:-1] + wide[:, :-2, 1:-1] + wide[:, 1:-1, 2:] + wide[:, 1:-1, :-2] - 4 * y
    return jnp.stack([1 + u * u * v - 4 * u, 3 * u - u * u * v]) + spread * around


LINE = jnp.linspace(0, 1, 7)
START = jnp.stack([1 + jnp.outer(LINE, LINE), 3 - jnp.outer(LINE, LINE**2)])
run = ft.partial(sciml.solve, plane, START, t0=0.0)


@pytest.mark.x64
@pytest.mark.parametrize(
    "solver, rtol",
    [
        (Rodas5P(linear_solver=GMRES, preconditioner=ILU0()), 1e-6),
        (Rosenbrock23(linear_solver=BICGSTAB), 1e-3),
        (Radau5(linear_solver=GMRES, preconditioner=BlockJacobi()), 1e-6),
        (ESDIRK(linear_solver=GMRES, preconditioner=ILU0()), 1e-6),
    ],
)
def test_steps_are_those_of_a_factorisation(solver, rtol):
    """Systems are solved far more closely than a step is right."""
    options = dict(t1=0.5, args=40.0, rtol=rtol, atol=rtol / 100)
    found, expected = (run(solver=s, **options) for s in (solver, type(solver)()))
    assert abs(int(found.stats.accepted - expected.stats.accepted)) <= 1
    close(found.ys, expected.ys, rtol=rtol / 2)


@pytest.mark.x64
@pytest.mark.parametrize(
    "method, adjoint",
    [
        (Rodas5P, sciml.adjoints.Checkpointed()),
        (Rosenbrock23, sciml.adjoints.Forward()),
        (Radau5, sciml.adjoints.Direct()),
        (ESDIRK, sciml.adjoints.Checkpointed()),
        (families.ImplicitMidpoint, sciml.adjoints.Direct()),
    ],
)
def test_gradients_against_finite_differences(method, adjoint):
    solver = method(linear_solver=EXACT, preconditioner=ILU0())

    def loss(scale):
        options = dict(t1=0.2, dt=0.05, args=40.0 * scale, adjoint=adjoint, solver=solver)
        return jnp.sum(jnp.sin(run(**options).ys))

    step, values = 1e-4, jax.jit(loss)
    expected = (values(1 + step) - values(1 - step)) / (2 * step)
    by = jax.jvp(loss, (1.0,), (1.0,))[1] if isinstance(adjoint, sciml.adjoints.Direct) else jax.grad(loss)(1.0)
    close(by, expected, rtol=1e-6)


@pytest.mark.x64
def test_gradients_of_an_ensemble_on_explicit_axes():
    solver = Rodas5P(linear_solver=GMRES, preconditioner=BlockJacobi())
    mesh = jax.make_mesh((2,), ("members",))
    scales = jax.device_put(jnp.array([5.0, 10.0, 20.0, 40.0]), jax.NamedSharding(mesh, jax.P("members")))

    def end(scale, solver=solver):
        return jnp.sum(jnp.sin(run(t1=0.2, args=scale, rtol=1e-6, atol=1e-8, solver=solver).ys))

    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(end)))(scales)
    assert values.sharding.spec == slopes.sharding.spec == jax.P("members")
    value, slope = jax.value_and_grad(lambda s: end(s, Rodas5P()))(20.0)
    close(np.asarray(values)[2], value, rtol=1e-6)
    close(np.asarray(slopes)[2], slope, rtol=1e-4)


def test_float32_and_under_shard_map():
    solver = Rodas5P(linear_solver=GMRES, preconditioner=ILU0())
    start, scales = START.astype(jnp.float32), jnp.array([5.0, 40.0], jnp.float32)

    def end(scale):
        return sciml.solve(plane, start, t0=0.0, t1=0.5, args=scale, rtol=1e-3, atol=1e-4, solver=solver).ys[-1]

    mesh = jax.make_mesh((2,), ("members",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.shard_map(lambda s: jax.vmap(end)(s), mesh=mesh, in_specs=jax.P("members"), out_specs=jax.P("members"))
    found = jax.jit(split)(scales)
    expected = sciml.solve(plane, start, t0=0.0, t1=0.5, args=scales[1], rtol=1e-3, atol=1e-4, solver=Rodas5P()).ys[-1]
    assert found.dtype == jnp.float32
    close(found[1], expected, rtol=1e-3)


def test_systems_that_are_not_solved_end_a_solve_with_their_status():
    stuck = lineax.GMRES(rtol=1e-3, atol=1e-6, max_steps=1)
    options = dict(dt=0.1, saveat=[0.1, 0.2], throw=False)
    sol = run(t1=0.2, args=1e6, solver=Rosenbrock23(linear_solver=stuck), **options)
    assert int(sol.status) == int(sciml.Status.diverged) and "linear_solver" in sciml.Status.diverged.message


def test_what_was_chosen_is_said():
    def words(**options):
        return inspect.jacobian(plane, START, args=1.0, solver=Rodas5P(**options)).structure

    assert words() == inspect.jacobian(plane, START, args=1.0).structure
    assert words(linear_solver=BICGSTAB) == "by BiCGSTAB, without a preconditioner"
    assert "GMRES(20), preconditioned by an incomplete factorisation" in words(
        linear_solver=GMRES, preconditioner=ILU0()
    )


def test_large_fields_are_left_to_an_iteration():
    """Where a band would be wide; not where it is narrow, or there are blocks, or no method says how closely."""
    words = lambda model, y, s=Rodas5P(): inspect.jacobian(model, y, args=1.0, solver=s).structure  # noqa: E731
    by_steps = "by BiCGSTAB, and if that does not converge by GMRES(30), preconditioned by an incomplete"
    assert by_steps in words(plane, jnp.ones((2, 90, 90)))
    assert by_steps in words(plane, jnp.ones((2, 18, 18)))
    assert by_steps in words(plane, jnp.ones((2, 18, 18)), BDF())
    assert by_steps in words(plane, jnp.ones((2, 18, 18)), None)
    assert "banded" in words(plane, jnp.ones((2, 18, 18)), ESDIRK())
    assert "banded" in words(plane, jnp.ones((2, 16, 16)))
    one_way = lambda t, y, args: jnp.pad(y, ((0, 0), (0, 1), (0, 1)))[:, 1:, :-1] - y  # noqa: E731
    assert "BiCGSTAB" not in words(one_way, jnp.ones((2, 18, 18)))
    assert "banded" in words(lambda t, y, args: jnp.roll(y, 1) - y, jnp.ones(5000))
    assert "blocks" in words(lambda t, y, args: y**2, jnp.ones(5000))


def test_bad_input():
    with pytest.raises(TypeError, match="`linear_solver` must be an iterative solver"):
        Rodas5P(linear_solver=lineax.LU())
    with pytest.raises(TypeError, match="`preconditioner` must be one of sciml's"):
        Rodas5P(linear_solver=GMRES, preconditioner=3)
    with pytest.raises(ValueError, match="also pass `linear_solver`"):
        run(t1=0.1, args=1.0, solver=Rodas5P(preconditioner=ILU0()))
    with pytest.raises(ValueError, match="a number for each of the 98 unknowns"):
        run(t1=0.1, args=1.0, solver=Rodas5P(linear_solver=GMRES, preconditioner=BlockJacobi(blocks=range(97))))
    with pytest.raises(ValueError, match="blocks of up to 8 unknowns"):
        run(t1=0.1, args=1.0, solver=Rodas5P(linear_solver=GMRES, preconditioner=BlockJacobi(blocks=[0] * 98)))
    everything = lambda t, y, args: y * y.sum()  # noqa: E731
    solver = Rodas5P(linear_solver=GMRES, preconditioner=ILU0())
    with pytest.raises(ValueError, match="eliminate 41 groups"):
        sciml.solve(everything, jnp.ones(41), t0=0.0, t1=0.1, solver=solver)
    with pytest.raises(ValueError, match="nearly dense"):
        sciml.solve(everything, jnp.ones(6000), t0=0.0, t1=0.1, solver=solver)
