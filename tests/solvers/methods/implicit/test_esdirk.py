"""Kvaerno's and KenCarp's methods: coefficients, diffrax, stiffness, mass matrices, iterations, derivatives."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest
from scipy.integrate import solve_ivp

import sciml
from sciml import verify
from sciml.solvers import ESDIRK

from ...common import close
from ..trees import residuals

SOLVERS = {
    diffrax.Kvaerno3: 3,
    diffrax.Kvaerno4: 3,
    diffrax.Kvaerno5: 4,
    diffrax.KenCarp3: 3,
    diffrax.KenCarp4: 4,
    diffrax.KenCarp5: 4,
}
"""Each with the order of its dense output."""


def by_diffrax(solver):
    """The same method, which diffrax runs for its iteration."""
    return solver(root_finder=optimistix.Newton(rtol=1e-9, atol=1e-9))


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.__name__)
def test_coefficients(solver):
    """By the conditions for their orders; no equation is solved."""
    table, order = ESDIRK(solver()).method, int(solver.__name__[-1])
    nodes = np.array(table.nodes)
    matrix = np.diag([0.0, *[table.gamma] * (len(nodes) - 1)])
    for i, row in enumerate(table.rows):
        matrix[i, :i] = row
    rounding = 1e5 if solver is diffrax.KenCarp5 else 60  # whose coefficients are published with twelve digits
    assert table.order == order and table.dense_order == SOLVERS[solver]
    for n in range(1, order + 1):
        assert residuals(matrix, matrix[-1], n) < rounding, n
    assert residuals(matrix, matrix[-1], order + 1) > 1e6
    # what the stages add for y' = t^k, and for y' of which that with k = 2 is the state
    found = [(matrix @ nodes**k, lambda s, k=k: s ** (k + 1) / (k + 1)) for k in range(4)]
    found = found[: table.dense_order] + [(matrix @ found[2][0], lambda s: s**4 / 12)] * (table.dense_order == 4)
    for k, (rises, exact) in enumerate(found):
        assert k > order - 2 or abs(np.dot(table.error, rises[1:])) < 1e-9
        for s in (0.0, 0.3, 0.7, 1.0):
            bend = sum(s**m * np.dot(row, rises[1:]) for m, row in enumerate(table.dense))
            assert abs(s * rises[-1] + s * (1 - s) * bend - exact(s)) < 1e-9


@pytest.mark.x64
@pytest.mark.parametrize("solver", [diffrax.Kvaerno4, diffrax.KenCarp5], ids=lambda s: s.__name__)
def test_steps_are_those_of_diffrax(solver):
    def field(t, y, args):
        return jnp.stack([y[1], 5.0 * ((1 - y[0] ** 2) * y[1]) - y[0] + jnp.cos(3 * t)])

    y0, term = jnp.array([2.0, 0.0]), diffrax.ODETerm(field)
    if solver is diffrax.KenCarp5:  # of an equation in two parts, of which the explicit one is nothing
        term = diffrax.MultiTerm(diffrax.ODETerm(lambda t, y, args: jnp.zeros_like(y)), term)
    options = dict(t0=0.1, t1=0.6, dt=0.05)
    theirs = sciml.solve(term, y0, solver=by_diffrax(solver), **options)
    ours = sciml.solve(field, y0, solver=solver(), **options)
    np.testing.assert_allclose(ours.ys, theirs.ys, rtol=1e-7)
    assert ours.solver == solver.__name__ and int(ours.stats.accepted) == 10


@pytest.mark.x64
def test_few_steps_are_rejected_where_an_equation_is_very_stiff():
    """A start of the stages' iteration by slopes would be far off: these are large times what is left of transients."""
    problem = verify.problem("robertson")
    sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=1e11, rtol=1e-6, atol=1e-13, solver=diffrax.KenCarp4())
    assert int(sol.stats.accepted) < 260 and int(sol.stats.rejected) < 10
    assert problem.error(sol.ys[-1], componentwise=True) < 1e-3


def test_one_step_of_a_very_stiff_equation(dtype):
    """Nothing of it is left at the end, nor anywhere within the step but near its start."""
    run = ft.partial(sciml.solve, t0=0.0, t1=1.0, dt=1.0, solver=diffrax.Kvaerno5(), saveat=[0.3, 0.6, 1.0])
    ys = run(lambda t, y, args: -jnp.asarray(1e10, dtype) * (y - 1), jnp.array([1.0, 1.001, 2.0], dtype)).ys
    assert ys.dtype == dtype
    np.testing.assert_allclose(ys[:, 0], 1.0, rtol=1e-6)
    np.testing.assert_allclose(ys[:, 1], 1.0, rtol=2e-3)
    np.testing.assert_allclose(ys[-1], 1.0, rtol=1e-6)


@pytest.mark.x64
def test_saved_times_and_gradients_of_an_ensemble():
    def field(t, y, r):
        return jnp.stack([y[1], 30.0 * r * ((1 - y[0] ** 2) * y[1]) - y[0]])

    def saved(rate, **options):
        options = dict(t0=0.0, t1=2.0, args=rate, rtol=1e-8, atol=1e-10, solver=diffrax.KenCarp4()) | options
        return sciml.solve(field, jnp.array([2.0, 0.0]), saveat=ts, **options).ys

    ts = jnp.array([0.3, 1.1, 2.0])
    peer = solve_ivp(lambda t, y: field(t, y, 1.0), (0, 2), [2.0, 0.0], "Radau", ts, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(saved(1.0), peer.y.T, rtol=1e-6)
    rates, step = jnp.array([0.7, 1.3]), 1e-4
    loss = lambda r, **options: jnp.sum(saved(r, **options) ** 2)  # noqa: E731
    run = jax.jit(ft.partial(loss, rtol=1e-10, atol=1e-11))
    expected = np.array([(run(r + step) - run(r - step)) / (2 * step) for r in rates])
    close(jax.jit(jax.vmap(jax.grad(loss)))(rates), expected, rtol=1e-5)
    forwards = jax.vmap(lambda r: jax.jvp(ft.partial(loss, adjoint=sciml.adjoints.Direct()), (r,), (jnp.ones(()),)))
    close(jax.jit(forwards)(rates)[1], expected, rtol=1e-5)


@pytest.mark.x64
def test_second_derivatives():
    def end(rate):
        options = dict(t0=0.0, t1=0.6, dt=0.2, args=rate, solver=diffrax.Kvaerno3())
        return jnp.sum(sciml.solve(lambda t, y, k: k * jnp.cos(y), jnp.array([0.3]), **options).ys ** 2)

    slope, rate, step = jax.jit(jax.grad(end)), jnp.array(0.7), 1e-5
    expected = (slope(rate + step) - slope(rate - step)) / (2 * step)
    np.testing.assert_allclose(jax.hessian(end)(rate), expected, rtol=1e-7)


@pytest.mark.x64
def test_a_mass_matrix_is_what_multiplies_the_derivative():
    mass = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 3.0]])

    def pull(t, y, args):
        return jnp.stack([y[1], -y[0] * y[2], jnp.cos(t) - y[2]])

    run = ft.partial(sciml.solve, y0=jnp.array([1.0, 0.5, -1.0]), t0=0.0, t1=1.0, dt=0.1)
    weighted = run(lambda t, y, args: jnp.asarray(mass) @ pull(t, y, args), solver=ESDIRK(mass=mass))
    close(weighted.ys, run(pull, solver=ESDIRK()).ys, rtol=1e-12)


@pytest.mark.x64
def test_an_algebraic_equation():
    """A start that is made consistent, order, that of the dense output (here three), and derivatives of both."""

    def field(t, y, k):
        return jnp.stack([-k * y[0], y[1] - y[0] ** 2])

    solver = ESDIRK(mass=np.diag([1.0, 0.0]))

    @jax.jit
    @ft.partial(jax.value_and_grad, has_aux=True)
    def run(k, h):
        ts = jnp.array([0.0, 0.43, 1.0])
        ys = sciml.solve(field, jnp.array([1.0, 7.0]), t0=0.0, t1=1.0, dt=h, args=k, saveat=ts, solver=solver).ys
        return jnp.sum(ys), ys

    def errors(h):
        (_, ys), slope = run(2.0, h)
        decays = np.exp(-2 * np.array([0.0, 0.43, 1.0]))
        exact = np.stack([decays, decays**2], axis=1)
        assert abs(ys[0, 1] - 1) < 1e-12
        by_rate = -np.sum(np.array([0.0, 0.43, 1.0])[:, None] * np.array([1, 2]) * exact)
        return np.abs(ys - exact).max(1)[1:].tolist() + [abs(slope - by_rate)]

    coarse, fine = errors(0.1), errors(0.05)
    orders = np.log2(np.divide(coarse, fine))
    assert orders[0] > 2.8 and orders[1] > 4.7 and orders[2] > 2.8, (orders, fine)


def test_what_has_no_solution_is_a_status():
    """Steps so long that the equations of their stages have none."""

    def run(rate, **options):
        options = dict(t0=0.0, t1=0.9, args=rate, solver=diffrax.Kvaerno3(), throw=False) | options
        return sciml.solve(lambda t, y, k: k * y**2, jnp.ones(1), **options).status

    statuses = jax.vmap(ft.partial(run, dt=0.45))(jnp.array([0.5, 4.0])).tolist()
    assert statuses[0] == sciml.Status.successful and statuses[1] in (sciml.Status.diverged, sciml.Status.nonfinite)


def test_what_is_run_by_diffrax():
    """What was given an iteration of its own for its stages, and a pair of terms."""
    run = ft.partial(sciml.solve, lambda t, y, args: -y, jnp.ones(1), t0=0.0, t1=1.0)
    refused = pytest.raises(ValueError, match="diffrax runs this one")
    with refused:
        run(solver=by_diffrax(diffrax.Kvaerno3), positive=True)
    assert int(run(solver=diffrax.Kvaerno3(), positive=True).status) == 0
    with pytest.raises(TypeError, match="`method` must be a diffrax solver that is singly diagonally implicit"):
        ESDIRK(diffrax.Tsit5())
    with pytest.raises(ValueError, match=r"`ESDIRK\(mass=...\)` must have shape \(1, 1\)"):
        run(solver=ESDIRK(mass=np.eye(2)))
