"""Branches of large steady states, by factors of their sparse Jacobian: against dense matrices and published values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import bifurcation
from sciml.bifurcation import Kind

SQUARE = 6.808124423  # where the steady states of Bratu's problem on the unit square end
WALL = 50  # points of fields in one dimension


def around(u):
    """The sum of the four neighbours of each inner point minus four times the point."""
    return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]


def at_corners(u):
    return u[:-2, :-2] + u[2:, 2:] + u[2:, :-2] + u[:-2, 2:] - 4 * u[1:-1, 1:-1]


def square(t, u, args):
    """Bratu's problem on the unit square, of fourth order: Mehrstellen by L. Collatz."""
    h = 1 / (len(u) + 1)
    u = jnp.pad(u, 1)
    heat = args["rate"] * jnp.exp(args["a"] * u)
    return (4 * around(u) + at_corners(u)) / (6 * h**2) + heat[1:-1, 1:-1] + around(heat) / 12


def line(t, u, args):
    """The same between two walls, with a wind, by which the Jacobian is not symmetric."""
    h = 1 / (len(u) + 1)
    u = jnp.pad(u, 1)
    slope, bend = (u[2:] - u[:-2]) / (2 * h), (u[2:] - 2 * u[1:-1] + u[:-2]) / h**2
    return bend + 5 * slope + args["rate"] * jnp.exp(args["a"] * u[1:-1])


def of_model(model, shape, rate=0.0, a=1.0, dtype=None, **options):
    dtype = dtype or jnp.result_type(float)
    args = {"rate": jnp.asarray(rate, dtype), "a": jnp.asarray(a, dtype)}
    options = {"bounds": (rate, 8.0), "points": 25, "special": 1, "max_step": 0.3, "eigenvalues": 3} | options
    return bifurcation.continuation(
        model, jnp.zeros(shape, dtype), args=args, where=lambda args: args["rate"], throw=False, **options
    )


def used(branch):
    return np.isfinite(np.asarray(branch.parameter))


def exact_eigenvalues(model, branch, row, count):
    args, u = {"rate": branch.parameter[row], "a": 1.0}, branch.ys[row]
    matrix = jax.jacfwd(lambda x: model(0.0, x.reshape(u.shape), args).reshape(-1))(u.reshape(-1))
    found = np.linalg.eigvals(matrix)
    return found[np.argsort(-found.real)][:count]


@pytest.mark.x64
def test_the_branch_and_its_fold_are_those_of_dense_matrices():
    branch = of_model(square, (15, 15))
    dense = of_model(square, (15, 15), eigenvalues=False)
    there = used(branch)
    np.testing.assert_array_equal(there, used(dense))
    np.testing.assert_allclose(branch.parameter[there], dense.parameter[there], rtol=1e-9)
    np.testing.assert_allclose(branch.ys[there], dense.ys[there], atol=1e-9)
    np.testing.assert_allclose(branch.tangent[0][there], dense.tangent[0][there], atol=1e-8)
    assert branch.special.kind[0] == dense.special.kind[0] == Kind.fold
    np.testing.assert_allclose(branch.special.parameter[0], SQUARE, atol=5e-5)
    np.testing.assert_allclose(branch.special.parameter, dense.special.parameter, rtol=1e-11)
    np.testing.assert_allclose(branch.special.y, dense.special.y, atol=1e-9)
    ways = [x.special.direction[0][0] / x.special.direction[0][0, 7, 7] for x in (branch, dense)]
    np.testing.assert_allclose(*ways, atol=1e-8)
    for row in np.flatnonzero(there)[::4]:  # with pairs of equal eigenvalues, as the square has symmetries
        exact = exact_eigenvalues(square, branch, row, 3)
        np.testing.assert_allclose(branch.eigenvalues[row], exact, rtol=1e-7)
        assert branch.stable[row] == (exact[0].real < 0)


@pytest.mark.x64
def test_the_fold_of_a_fine_square():
    branch = of_model(square, (128, 128), rate=6.5, points=12, max_step=0.5)
    assert branch.special.kind[0] == Kind.fold
    np.testing.assert_allclose(branch.special.parameter[0], SQUARE, atol=1e-7)
    there = used(branch)
    first = branch.eigenvalues[there, 0].real
    turned = np.cumsum(branch.tangent[1][there] < 0) > 0  # beyond the fold
    np.testing.assert_array_equal(first > 0, turned)


@pytest.mark.x64
def test_narrow_bands_and_all_derivatives():
    def run(a, eigenvalues):
        branch = of_model(line, (WALL,), a=a, eigenvalues=eigenvalues, max_step=0.1)
        return branch.parameter, branch.ys, branch.tangent, branch.eigenvalues[:, :3], branch.special.parameter

    a = jnp.asarray(1.1)
    found, dense = (jax.jvp(lambda a, e=e: run(a, e), (a,), (jnp.ones_like(a),)) for e in (3, True))
    for part in range(2):  # values and derivatives
        for x, y in zip(*map(jax.tree.leaves, (found[part], dense[part]))):
            there = np.isfinite(y)
            np.testing.assert_array_equal(np.isfinite(x), there)
            np.testing.assert_allclose(x[there], y[there], rtol=1e-6, atol=1e-6)
    back = jax.grad(lambda a: jnp.nansum(run(a, 3)[3].real[:, 1]))(a)
    np.testing.assert_allclose(back, jnp.nansum(found[1][3].real[:, 1]), rtol=1e-6)


def fold_of_square(a, n=7, **options):
    return of_model(square, (n, n), a=a, rate=5.0, points=12, **options).special.parameter[0]


def test_derivatives_of_the_fold():
    """The state times `a` solves the problem with the rate times `a`."""
    a = jnp.asarray(1.0)
    fold = fold_of_square(a)
    tolerance = 1e-7 if a.dtype == np.float64 else 1e-3
    np.testing.assert_allclose(jax.grad(fold_of_square)(a), -fold, rtol=tolerance)
    np.testing.assert_allclose(jax.jacfwd(fold_of_square)(a), -fold, rtol=tolerance)


@pytest.mark.x64
def test_derivatives_of_the_fold_by_a_wide_band():
    a = jnp.asarray(1.0)
    fold, slope = jax.value_and_grad(lambda a: fold_of_square(a, 15))(a)
    np.testing.assert_allclose(slope, -fold, rtol=1e-7)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        jax.hessian(fold_of_square)(a)


@pytest.mark.x64
def test_members_have_branches_of_their_own():
    a = jnp.asarray([1.0, 1.2])
    exact = fold_of_square(jnp.asarray(1.0)) / a
    np.testing.assert_allclose(jax.vmap(fold_of_square)(a), exact, rtol=1e-9)
    np.testing.assert_allclose(jax.vmap(jax.grad(fold_of_square))(a), -exact / a, rtol=1e-7)
    whole = jax.grad(lambda a: jnp.sum(jax.vmap(fold_of_square)(a)))(a)
    np.testing.assert_allclose(whole, -exact / a, rtol=1e-7)


def test_float32():
    branch = of_model(square, (15, 15), rate=6.0, dtype=np.float32)
    assert branch.parameter.dtype == np.float32 and branch.eigenvalues.dtype == np.complex64
    np.testing.assert_allclose(branch.special.parameter[0], SQUARE, rtol=1e-4)


def reaction(t, y, args):
    """Two substances between walls that hold them at rest: oscillations begin at b = 1 + a^2 + 2 d pi^2."""
    x, z = (jnp.pad(v, 1, constant_values=c) for v, c in zip(y, (args["a"], args["b"] / args["a"])))
    h, x0, z0 = 1 / (y.shape[1] + 1), x[1:-1], z[1:-1]
    bend = [0.02 * (v[2:] - 2 * v[1:-1] + v[:-2]) / h**2 for v in (x, z)]
    return jnp.stack([args["a"] - (args["b"] + 1) * x0 + x0**2 * z0 + bend[0], args["b"] * x0 - x0**2 * z0 + bend[1]])


def of_reaction(eigenvalues):
    args = {"a": jnp.asarray(1.0), "b": jnp.asarray(2.0)}
    y0 = jnp.stack([jnp.ones(WALL), jnp.full(WALL, 2.0)])
    return bifurcation.continuation(
        reaction,
        y0,
        args=args,
        where=lambda args: args["b"],
        bounds=(2.0, 2.8),
        points=30,
        special=2,
        eigenvalues=eigenvalues,
    )


@pytest.mark.x64
def test_a_hopf_point_is_detected_but_not_located():
    branch, dense = of_reaction(4), of_reaction(True)
    np.testing.assert_array_equal(branch.special.kind, [Kind.hopf, Kind.none])
    np.testing.assert_array_equal(branch.special.kind, dense.special.kind)
    np.testing.assert_array_equal(branch.special.status, [sciml.Status.diverged, sciml.Status.successful])
    assert np.isnan(branch.special.parameter[0])
    there = used(branch)
    np.testing.assert_array_equal(branch.stable[there], dense.stable[there])
    change = np.flatnonzero(np.diff(branch.stable[there]))
    assert branch.parameter[there][change] < dense.special.parameter[0] < branch.parameter[there][change + 1]
    np.testing.assert_allclose(branch.eigenvalues[there, :2].real, dense.eigenvalues[there, :2].real, atol=1e-7)
    np.testing.assert_allclose(abs(branch.eigenvalues[there, 0].imag), abs(dense.eigenvalues[there, 0].imag), atol=1e-7)


@pytest.mark.x64
def test_a_branch_point_is_detected_but_not_located():
    def steps(t, u, rate):
        v, h = jnp.pad(u, 1), 1 / (len(u) + 1)
        return (v[2:] - 2 * u + v[:-2]) / h**2 + rate * (u - u**3)

    options = dict(args=5.0, bounds=(5.0, 50.0), special=4, points=40)
    branch = bifurcation.continuation(steps, jnp.zeros(WALL), eigenvalues=3, **options)
    np.testing.assert_array_equal(branch.special.kind, [Kind.branch_point, Kind.branch_point, Kind.none, Kind.none])
    there = used(branch)
    parameter = branch.parameter[there]
    exact = (2 * (WALL + 1) * np.sin(np.pi / (2 * (WALL + 1)))) ** 2
    np.testing.assert_array_equal(branch.stable[there], parameter < exact)
    # with one eigenvalue, which is positive, nothing is known of others
    one = bifurcation.continuation(steps, jnp.zeros(WALL), eigenvalues=1, **options)
    np.testing.assert_array_equal(one.special.kind, 4 * [Kind.none])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(eigenvalues=0), ValueError, r"`continuation\(eigenvalues=...\)` must be a positive integer, but is 0"),
        (dict(eigenvalues=26), ValueError, "`eigenvalues` must be at most 25, the number of unknowns, but is 26"),
        (dict(conserved=jnp.sum), ValueError, "`eigenvalues=3`, a number, .* `conserved` makes the Jacobian dense"),
        (
            dict(boundary=lambda *ends: ends, ts=jnp.arange(5.0)),
            ValueError,
            "`eigenvalues=3`, a number, .* a boundary value problem has no eigenvalues",
        ),
    ],
)
def test_what_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        of_model(square, (5, 5), **options)


def test_special_points_and_cycles_are_refused():
    def beam(t, y, load):
        return load * y - y**3

    options = dict(args=-0.5, bounds=(-0.5, 1.0))
    straight = bifurcation.continuation(beam, jnp.zeros(1), **options)
    with pytest.raises(ValueError, match="`eigenvalues=1`, a number, .* `y0` is a special point"):
        bifurcation.continuation(beam, jax.tree.map(lambda x: x[0], straight.special), eigenvalues=1, **options)
