"""Branches of solutions of boundary value problems, against exact and published values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ellipk

import sciml
from sciml import bifurcation, plot
from sciml.bifurcation import Kind

FOLD = 3.513830719125162  # of Bratu's problem in one dimension
SQUARE = 6.808124423  # and on the unit square


def bratu(t, y, args):
    return jnp.stack([y[1], -args["mu"] * jnp.exp(args["a"] * y[0])])


def walls(start, end, args):
    return jnp.stack([start[0] - args["wall"], end[0]])


def of_bratu(a=1.0, wall=0.0, nodes=21, dtype=None, boundary=walls, **options):
    dtype = dtype or jnp.result_type(float)
    args = {"mu": jnp.asarray(0.1, dtype), "a": jnp.asarray(a, dtype), "wall": jnp.asarray(wall, dtype)}
    options = {"ts": jnp.linspace(0.0, 1.0, nodes, dtype=dtype), "bounds": (0.0, 4.0), "max_step": 0.2} | options
    return bifurcation.continuation(
        bratu,
        jnp.zeros((nodes, 2), dtype),
        where=lambda args: args["mu"],
        args=args,
        boundary=boundary,
        points=40,
        special=1,
        throw=False,
        **options,
    )


def fold(a, wall):
    return of_bratu(a, wall).special.parameter[0]


def test_the_fold_of_bratu_has_the_order_of_the_method():
    errors = [abs(of_bratu(nodes=n).special.parameter[0] - FOLD) for n in (21, 41)]
    assert errors[1] < 5e-7
    np.testing.assert_allclose(errors[0] / errors[1], 16, rtol=0.05)


def test_each_point_is_a_solution():
    branch = of_bratu()
    assert branch.special.kind[0] == Kind.fold and branch.eigenvalues is None
    row = int(jnp.nanargmax(branch.parameter)) + 4  # beyond the fold
    args = {"mu": branch.parameter[row], "a": 1.0, "wall": 0.0}
    sol = sciml.solve_bvp(bratu, walls, np.linspace(0.0, 1.0, 21), branch.ys[row], args=args, rtol=1.0)
    np.testing.assert_allclose(branch.ys[row], sol.ys, atol=1e-6)
    with pytest.raises(ValueError, match="Solutions of a boundary value problem have none"):
        _ = branch.stable


def test_float32():
    branch = of_bratu(dtype=jnp.float32)
    assert branch.special.parameter.dtype == jnp.float32
    np.testing.assert_allclose(branch.special.parameter[0], FOLD, rtol=1e-4)


def test_derivatives_of_the_fold():
    found, (by_a, by_wall) = jax.value_and_grad(fold, (0, 1))(1.0, 0.0)
    np.testing.assert_allclose(by_a, -found, rtol=1e-6)  # mu exp(a u) with the solution u / a
    step = 1e-4
    np.testing.assert_allclose(by_wall, (fold(1.0, step) - fold(1.0, -step)) / (2 * step), rtol=1e-6)

    def closed(wall):  # the conditions close over a traced number
        return of_bratu(boundary=lambda start, end, args: jnp.stack([start[0] - wall, end[0]])).special.parameter[0]

    np.testing.assert_allclose(jax.grad(closed)(0.0), by_wall, rtol=1e-9)


def test_members_have_branches_of_their_own():
    a = jnp.array([1.0, 1.25])
    folds = jax.vmap(fold, (0, None))(a, 0.0)
    np.testing.assert_allclose(folds * a, folds[0], rtol=1e-8)
    slopes = jax.vmap(jax.grad(fold), (0, None))(a, 0.0)
    np.testing.assert_allclose(slopes, -folds / a, rtol=1e-6)
    of_sum = jax.grad(lambda a: jnp.sum(jax.vmap(fold, (0, None))(a, 0.0)))(a)
    np.testing.assert_allclose(of_sum, slopes, rtol=1e-8)


def test_a_beam_buckles():
    """Euler's elastica, with the state as a PyTree: it buckles at pi^2, to an exact shape."""

    def beam(t, y, load):
        return {"angle": y["slope"], "slope": -load * jnp.sin(y["angle"])}

    options = dict(
        args=5.0, boundary=lambda start, end, load: [start["angle"], end["angle"]], ts=jnp.linspace(0.0, 1.0, 41)
    )
    flat = {"angle": jnp.zeros(41), "slope": jnp.zeros(41)}
    straight = bifurcation.continuation(beam, flat, bounds=(5.0, 20.0), special=1, **options)
    point = jax.tree.map(lambda x: x[0], straight.special)
    assert point.kind == Kind.branch_point
    np.testing.assert_allclose(point.parameter, np.pi**2, rtol=1e-6)
    buckled = bifurcation.continuation(beam, point, bounds=(5.0, 20.0), special=1, **options)
    np.testing.assert_array_equal(buckled.status, 0)
    there = np.isfinite(buckled.parameter)
    largest = np.max(np.abs(buckled.ys["angle"][there]), axis=1)
    exact = (2 * ellipk(np.sin(largest / 2) ** 2)) ** 2
    np.testing.assert_allclose(buckled.parameter[there], exact, rtol=1e-6)
    ax = plot.bifurcation([straight, buckled], y=lambda y: jnp.max(jnp.abs(y["angle"])), parameter="load")
    assert ax.get_ylim()[1] > largest.max()


def test_the_fold_of_bratu_on_a_square():
    """A field by even polynomials on a quarter of the square."""
    n = 17
    x = np.cos(np.pi * np.arange(n + 1) / n)
    c = np.r_[2, np.ones(n - 1), 2] * (-1) ** np.arange(n + 1)
    matrix = np.outer(c, 1 / c) / (x[:, None] - x[None] + np.eye(n + 1))
    matrix -= np.diag(matrix.sum(1))
    second, half = matrix @ matrix, (n + 1) // 2
    even = jnp.asarray(4 * (second[:half, :half] + second[:half, ::-1][:, :half])[1:, 1:])

    def model(t, u, mu):
        return even @ u + u @ even.T + mu * jnp.exp(u)

    u0 = jnp.zeros((half - 1, half - 1))
    options = dict(bounds=(0.0, 8.0), max_step=0.2, points=40, special=1, eigenvalues=False)
    branch = bifurcation.continuation(model, u0, args=0.0, **options)
    np.testing.assert_allclose(branch.special.parameter[0], SQUARE, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(boundary=None), "`ts` was given without `boundary`"),
        (dict(ts=None), "`boundary` was given without `ts`"),
        (dict(t=1.0), "`t` is for steady states"),
        (dict(conserved=lambda y: y[0]), "`conserved` is for steady states"),
        (dict(boundary=lambda start, end, args: start[0]), "one number for each of the 2 state elements"),
        (dict(ts=jnp.linspace(0.0, 1.0, 5)), "a state for each of the 5 nodes"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        of_bratu(**options)


def test_conditions_that_are_no_function():
    with pytest.raises(TypeError, match="boundary"):
        of_bratu(boundary=1.0)
