"""Rosenbrock methods: orders, references, mass matrices, derivatives, and every way to run them."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from scipy.integrate import solve_ivp

import sciml
from sciml import verify
from sciml.kernels import _lanes as lanes
from sciml.models import HIRES, Robertson
from sciml.solvers import Rodas5P, Rosenbrock23
from sciml.verify.measures._finite_difference import finite_difference_gradient
from sciml.verify.problems._references import hires, oregonator, robertson, van_der_pol

from ...common import close, same_bits

METHODS = {
    "Rodas5P": (Rodas5P, 5, (16, 32, 64)),
    "Rosenbrock23": (Rosenbrock23, 2, (64, 128, 256)),
}
each = pytest.mark.parametrize("solver, order, steps", METHODS.values(), ids=METHODS)
each_solver = pytest.mark.parametrize("solver", [Rodas5P, Rosenbrock23])


def slope(steps, errors):
    return -np.polyfit(np.log(steps), np.log(errors), 1)[0]


def within_steps(t1, count):
    """Times inside all of `count` steps, and the end."""
    h = t1 / count
    return np.append((np.arange(count)[:, None] * h + np.array([0.13, 0.37, 0.61, 0.83]) * h).reshape(-1), t1)


def errors_at_end_and_within(solve, exact, t1, count):
    ts = within_steps(t1, count)
    errors = np.abs(np.asarray(solve(ts, t1 / count).ys) - exact(ts))
    return errors[-1].max(), errors.max(axis=0)


@pytest.mark.x64
@each
def test_order_also_between_the_steps(solver, order, steps):
    """On a problem that depends on time: a method that forgets the derivative by time has order one."""
    problem = verify.problem("cosine_growth", rate=2.0)

    def solve(ts, h):
        return sciml.solve(problem.model, problem.y0, t0=0.0, t1=2.0, dt=h, solver=solver(), saveat=ts)

    end, within = zip(
        *(errors_at_end_and_within(solve, lambda ts: np.exp(2 * np.sin(ts))[:, None], 2.0, n) for n in steps)
    )
    assert abs(slope(steps, end) - order) < 0.15, end
    assert abs(slope(steps, np.array(within)[:, 0]) - order) < 0.15, within


def algebraic(t, y, args):
    """x' = (z - x) x, 0 = g(t, x, z), with x = exp(sin t), z = x + cos t."""
    x, z = y[0], y[1]
    gap = z - x - jnp.cos(t)
    return jnp.stack([(z - x) * x, jnp.sin(gap) + 0.3 * gap * jnp.cos(t)])


def algebraic_solution(ts):
    return np.stack([np.exp(np.sin(ts)), np.exp(np.sin(ts)) + np.cos(ts)], axis=-1)


@pytest.mark.x64
@each
def test_order_with_a_singular_mass_matrix(solver, order, steps):
    def solve(ts, h):
        mass = np.diag([1.0, 0.0])
        return sciml.solve(algebraic, jnp.array([1.0, 2.0]), t0=0.0, t1=2.0, dt=h, solver=solver(mass=mass), saveat=ts)

    end, within = zip(*(errors_at_end_and_within(solve, algebraic_solution, 2.0, n) for n in steps))
    assert abs(slope(steps, end) - order) < 0.15, end
    # the dense output of Rodas5P has order four, which shows in the algebraic variable
    for column, expected in zip(np.array(within).T, (order, min(order, 4))):
        assert slope(steps, column) > expected - 0.15, within


@pytest.mark.x64
@each_solver
def test_a_mass_matrix_is_what_multiplies_the_derivative(solver):
    """Also one that must be pivoted, and with no zero on its diagonal's place."""
    mass = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 3.0]])

    def multiplied(t, y, args):
        return jnp.asarray(mass) @ pull(t, y, args)

    run = ft.partial(sciml.solve, y0=jnp.array([1.0, 0.5, -1.0]), t0=0.0, t1=1.0, dt=0.1)
    close(run(multiplied, solver=solver(mass=mass)).ys, run(pull, solver=solver()).ys, rtol=1e-12)


def pull(t, y, args):
    return jnp.stack([y[1], -y[0] * y[2], jnp.cos(t) - y[2]])


@pytest.mark.x64
@each_solver
def test_very_stiff_components_die_out_in_one_step(solver):
    sol = sciml.solve(lambda t, y, args: -1e10 * y, jnp.ones(2), t0=0.0, t1=1.0, dt=1.0, solver=solver())
    assert np.max(np.abs(sol.ys)) < 1e-8
    problem = verify.problem("prothero_robinson", rate=1e6)
    sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=1.0, dt=0.1, solver=solver())
    assert problem.error(sol.ys[-1]) < (1e-4 if solver is Rodas5P else 1e-3)


REFERENCES = [
    (robertson, 1e-20),
    (hires, 1e-11),
    (oregonator, 1e-11),
    (van_der_pol, 1e-11),
]


@pytest.mark.x64
@pytest.mark.parametrize("make, atol", REFERENCES, ids=lambda x: getattr(x, "__name__", ""))
@pytest.mark.parametrize("solver, rtol, most", [(Rodas5P, 1e-8, 3e-8), (Rosenbrock23, 1e-4, 3e-2)])
def test_published_values(make, atol, solver, rtol, most):
    problem = make()
    sol = sciml.solve(
        problem.model, problem.y0, t0=problem.t0, t1=problem.t1, rtol=rtol, atol=atol * rtol / 1e-8, solver=solver()
    )
    assert problem.error(sol.ys[-1], componentwise=True) < most


@pytest.mark.x64
def test_robertson_agrees_with_scipy():
    model, y0 = Robertson(), jnp.array([1.0, 0.0, 0.0])
    fn = jax.jit(lambda t, y, args: model(t, y, args))
    expected = solve_ivp(
        lambda t, y: np.asarray(fn(0.0, y, None)), (0, 1e5), np.asarray(y0), method="Radau", rtol=1e-10, atol=1e-14
    )
    sol = sciml.solve(model, y0, t0=0.0, t1=1e5, rtol=1e-9, atol=1e-13, solver=Rodas5P())
    np.testing.assert_allclose(sol.ys[-1], expected.y[:, -1], rtol=2e-8)
    assert abs(model.total(sol.ys[-1]) - 1) < 1e-11


def e5(t, y, args):
    p1, p2 = 7.89e-10 * y[0], 1.1e7 * y[0] * y[2]
    p3, p4 = 1.13e9 * y[1] * y[2], 1.13e3 * y[3]
    return jnp.stack([-p1 - p2, p1 - p3, (p1 - p3) - (p2 - p4), p2 - p4])


@pytest.mark.x64
def test_e5():
    """Later, y2 and y3 are what cancellation leaves of y2 - y3 - y4 = 0, and the published values have three digits."""
    y0 = jnp.array([1.76e-3, 0.0, 0.0, 0.0])
    ts = jnp.array([1e5, 1e7])
    sol = sciml.solve(e5, y0, t0=0.0, t1=1e7, saveat=ts, rtol=1e-8, atol=1e-24, dt0=1e-3, solver=Rodas5P())
    expected = [[7.4813208224e-6, 2.373478156121e-12, 2.212358668959e-12]]
    expected += [[4.715033363e-10, 1.818889586081e-14, 1.818881237678e-14]]
    np.testing.assert_allclose(sol.ys[:, :3], expected, rtol=1e-6)


def akzo_nobel(t, y, args):
    y1, y2, y3, y4, y5, y6 = (y[i] for i in range(6))
    root = jnp.sqrt(y2)
    r1, r2, r3 = 18.7 * y1**4 * root, 0.58 * y3 * y4, 0.58 / 34.4 * y1 * y5
    r4, r5 = 0.09 * y1 * y4**2, 0.42 * y6**2 * root
    inflow = 3.3 * (0.9 / 737.0 - y2)
    return jnp.stack(
        [
            -2 * r1 + r2 - r3 - r4,
            -0.5 * r1 - r4 - 0.5 * r5 + inflow,
            r1 - r2 + r3,
            -r2 + r3 - 2 * r4,
            r2 - r3 + r5,
            115.83 * y1 * y4 - y6,
        ]
    )


AKZO_NOBEL = [
    0.1150794920661702,
    0.1203831471567715e-2,
    0.1611562887407974,
    0.3656156421249283e-3,
    0.1708010885264404e-1,
    0.4873531310307455e-2,
]


@pytest.mark.x64
@pytest.mark.parametrize("solver, rtol, most", [(Rodas5P, 1e-8, 1e-8), (Rosenbrock23, 1e-5, 1e-4)])
def test_chemical_akzo_nobel_as_a_dae(solver, rtol, most):
    """From a wrong value of the algebraic variable, which is found at the start."""
    y0 = jnp.array([0.444, 0.00123, 0.0, 0.007, 0.0, 10.0])
    sol = sciml.solve(
        akzo_nobel, y0, t0=0.0, t1=180.0, rtol=rtol, atol=1e-4 * rtol,
        solver=solver(mass=np.diag([1.0, 1, 1, 1, 1, 0])), saveat=[0.0, 180.0],
    )  # fmt: skip
    np.testing.assert_allclose(sol.ys[-1], AKZO_NOBEL, rtol=most)
    np.testing.assert_allclose(sol.ys[0], [0.444, 0.00123, 0, 0.007, 0, 115.83 * 0.444 * 0.007], rtol=1e-14)


@pytest.mark.x64
@pytest.mark.parametrize("make", [sciml.solvers.Rodas5P, sciml.solvers.BDF])
def test_a_mass_matrix_that_is_a_function_is_refused(make):
    with pytest.raises(TypeError, match="`mass` must be a constant matrix of shape .n, n., but is a function"):
        make(mass=lambda t, y, args: jnp.eye(2))


def test_a_singular_mass_matrix_without_zero_rows():
    """x + z moves, x - z follows from the difference of the equations."""

    def field(t, y, args):
        x, z = y[0], y[1]
        return jnp.stack([-(x + z) / 2, -(x + z) / 2 + z**3 + z - x])

    mass = np.array([[0.5, 0.5], [0.5, 0.5]])
    sol = sciml.solve(
        field, jnp.array([2.5, 0.5]), t0=0.0, t1=1.0, rtol=1e-9, atol=1e-9, solver=Rodas5P(mass=mass), saveat=[0.0, 1.0]
    )
    np.testing.assert_allclose(sol.ys[0], [2.0, 1.0], rtol=1e-12)
    np.testing.assert_allclose(sol.ys[1].sum(), 3 * np.exp(-1), rtol=1e-8)
    np.testing.assert_allclose(sol.ys[1, 0], sol.ys[1, 1] ** 3 + sol.ys[1, 1], rtol=1e-7)


def test_an_inconsistent_start_is_reported():
    def field(t, y, args):
        return jnp.stack([-y[0], y[1] ** 2 + 1 + y[0] ** 2])  # no real solution

    run = ft.partial(sciml.solve, field, jnp.array([1.0, 1.0]), t0=0.0, t1=1.0)
    for options in ({}, {"dt": 0.1}):
        sol = run(solver=Rodas5P(mass=np.diag([1.0, 0.0])), throw=False, **options)
        assert sol.status == sciml.Status.inconsistent_start
        assert np.all(np.isnan(sol.ys))
    with pytest.raises(sciml.SolveError, match="algebraic equations"):
        run(solver=Rodas5P(mass=np.diag([1.0, 0.0])))


@pytest.mark.x64
@each_solver
@pytest.mark.parametrize("mass", [None, np.diag([1.0, 0.0])], ids=["ode", "dae"])
def test_steps_are_those_of_the_system_with_time_as_an_unknown(solver, mass):
    """The estimate of the error, too, knows how the equations depend on time."""

    def field(t, y, args):
        return jnp.stack([jnp.cos(t) - y[0], jnp.sin(2 * t) + 2 * y[0] - y[1]])

    def with_time(t, y, args):
        return jnp.concatenate([field(y[2], y[:2], args), jnp.ones_like(y[2:])])

    y0, options = jnp.array([1.0, 2.0]), dict(t0=0.0, t1=3.0, rtol=1e-5, atol=1e-6)
    wide = None if mass is None else np.diag([*np.diagonal(mass), 1.0])
    found = sciml.solve(field, y0, solver=solver(mass=mass), **options)
    unknowns = jnp.append(y0, 0.0)
    norm = _rms_without_last
    expected = sciml.solve(with_time, unknowns, solver=solver(mass=wide), norm=norm, **options)
    assert found.stats.accepted == expected.stats.accepted and found.stats.rejected == expected.stats.rejected
    np.testing.assert_allclose(found.ys, expected.ys[:, :2], rtol=1e-9)


def _rms_without_last(ratios):
    return jnp.sqrt(jnp.mean(ratios[:-1] ** 2))


def test_equations_that_do_not_determine_the_algebraic_variables_are_reported():
    run = ft.partial(
        sciml.solve, lambda t, y, args: jnp.stack([y[1], y[0] - 1]),
        jnp.array([1.0, 1.0]), t0=0.0, t1=1.0, solver=Rodas5P(mass=np.diag([1.0, 0.0])),
    )  # fmt: skip
    assert run(throw=False).status == sciml.Status.inconsistent_start
    with pytest.raises(sciml.SolveError, match=r"do not determine `y0\[1\]`.*index is greater than one.*`project=`"):
        run()


def test_a_step_whose_system_is_always_singular_fails():
    field = lambda t, y, args: jnp.stack([y[0] + y[1], y[0] + y[1] + 1 / (t - 0.5)])  # noqa: E731
    sol = sciml.solve(field, jnp.ones(2), t0=0.0, t1=1.0, solver=Rodas5P(), throw=False)
    assert sol.status in (sciml.Status.nonfinite, sciml.Status.step_too_small)


@each_solver
@pytest.mark.parametrize(
    "options", [{"rtol": 1e-5, "atol": 1e-5}, {"dt": 0.01, "saveat": [1.0]}], ids=["adaptive", "fixed"]
)
def test_algebraic_equations_that_cease_to_determine_their_variable(solver, options):
    def field(t, y, args):
        return jnp.stack([-y[0], jnp.where(t < 0.5, y[1] - y[0], jnp.zeros_like(y[0]))])

    def run(y0):
        method = solver(mass=np.diag([1.0, 0.0]))
        return sciml.solve(field, jnp.stack([y0, y0]), t0=0.0, t1=3.0, solver=method, throw=False, **options)

    sol = jax.jit(jax.vmap(run))(jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(sol.status, int(sciml.Status.singular))
    np.testing.assert_array_less(0.45, sol.t_reached)
    np.testing.assert_array_less(sol.t_reached, 1.5)  # one step may reach beyond
    with pytest.raises(sciml.SolveError, match="2 with status `singular`.*every step size"):
        sol.raise_if_failed()


def test_mass_matrices_that_do_not_fit_are_refused():
    run = ft.partial(sciml.solve, lambda t, y, args: -y, t0=0.0, t1=1.0)
    with pytest.raises(
        ValueError, match=r"must have shape \(3, 3\), since the state has 3 elements, but has shape \(2, 2\)"
    ):
        run(jnp.ones(3), solver=Rodas5P(mass=np.eye(2)))
    with pytest.raises(ValueError, match=r"square matrix of shape \(n, n\).*has shape \(3,\)"):
        Rodas5P(mass=np.ones(3))
    with pytest.raises(ValueError, match="finite"):
        Rosenbrock23(mass=np.full((2, 2), np.nan))
    with pytest.raises(TypeError, match="must be a real matrix"):
        Rodas5P(mass=1j * np.eye(2))
    with pytest.raises(TypeError, match="`mass` must be constant"):
        jax.jit(lambda m: run(jnp.ones(2), solver=Rodas5P(mass=m)).ys)(jnp.eye(2))


def turning(t, y, rate):
    """A decaying phase and what it drives, of complex and of real numbers; stiff by one eigenvalue."""
    z, x, t = y["z"], y["x"], jnp.asarray(t)
    stiff = jnp.asarray(np.array([-1e4 + 2e3j, -1 + 5j]), z.dtype) * rate
    return {"z": stiff * (z - jax.lax.complex(jnp.cos(t), jnp.sin(t))), "x": jnp.abs(z[1:]) ** 2 - rate.real * x}


TURNING = {"z": jnp.array([1 + 0.5j, 0.2 - 1j]), "x": jnp.ones(1)}


@pytest.mark.x64
@each_solver
def test_complex_states_agree_with_a_peer(solver):
    def field(t, parts):
        z = jax.lax.complex(parts[:2], parts[2:4])
        out = turning(t, {"z": z, "x": parts[4:]}, jnp.asarray(1 + 0j))
        return np.concatenate([out["z"].real, out["z"].imag, out["x"]])

    start = np.concatenate([TURNING["z"].real, TURNING["z"].imag, TURNING["x"]])
    expected = solve_ivp(field, (0, 0.5), start, "Radau", rtol=1e-9, atol=1e-11).y[:, -1]
    y0 = jax.tree.map(lambda x: x.astype(complex if jnp.iscomplexobj(x) else float), TURNING)
    sol = sciml.solve(turning, y0, t0=0.0, t1=0.5, args=jnp.asarray(1 + 0j), rtol=1e-6, atol=1e-8, solver=solver())
    assert sol.ys["z"].dtype == complex and sol.ys["x"].dtype == float
    np.testing.assert_allclose(sol.ys["z"][-1], expected[:2] + 1j * expected[2:4], rtol=1e-4)
    np.testing.assert_allclose(sol.ys["x"][-1], expected[4:], rtol=1e-4)
    assert sol.stats.accepted < 600  # an explicit method is held to 5000 by stability


@pytest.mark.x64
def test_gradients_of_complex_states():
    y0 = jax.tree.map(lambda x: x.astype(complex if jnp.iscomplexobj(x) else float), TURNING)

    def loss(rate):
        sol = sciml.solve(turning, y0, t0=0.0, t1=0.2, dt=0.02, args=jax.lax.complex(rate, 0.1), solver=Rodas5P())
        return jnp.sum(sol.ys["z"].real + 2 * sol.ys["z"].imag) + jnp.sum(sol.ys["x"])

    rates = jnp.array([0.7, 1.0])
    step = 1e-5
    both = jax.jit(jax.vmap(jax.value_and_grad(loss)))
    expected = (both(rates + step)[0] - both(rates - step)[0]) / (2 * step)
    close(both(rates)[1], expected, rtol=1e-6)
    close(jax.jit(jax.grad(lambda r: jax.vmap(loss)(r).sum()))(rates), expected, rtol=1e-6)


@pytest.mark.x64
def test_a_mass_matrix_multiplies_real_and_imaginary_parts_alike():
    """The matrix is singular: the second element is twice the first, whatever its guess."""

    def field(t, y, args):
        return jnp.stack([jnp.asarray(-1 + 2j, y.dtype) * y[0], y[1] - 2 * y[0]])

    y0 = jnp.array([1 + 1j, 0.3 + 0j])
    solver = Rodas5P(mass=np.diag([2.0, 0.0]))
    sol = sciml.solve(field, y0, t0=0.0, t1=1.0, rtol=1e-8, atol=1e-10, solver=solver)
    first = (1 + 1j) * np.exp((-1 + 2j) / 2)
    np.testing.assert_allclose(sol.ys[-1], [first, 2 * first], rtol=1e-6)


@pytest.mark.x64
def test_many_complex_unknowns():
    """Schroedinger's equation on a line: of neighbours that are complex the parts give a band, too."""
    points = 40
    x = jnp.linspace(-5, 5, points)
    y0 = jnp.exp(-(x**2) / 2).astype(complex)

    def field(t, y, args):
        bend = jnp.pad(y, 1)[2:] - 2 * y + jnp.pad(y, 1)[:-2]
        return 1j * (bend * 15.21 / 2 - (x**2 / 2).astype(complex) * y)

    assert sciml.inspect.jacobian(field, y0).structure.startswith("banded")
    sol = sciml.solve(field, y0, t0=0.0, t1=1.0, rtol=1e-7, atol=1e-9, solver=Rodas5P())
    matrix = np.diag(-15.21 - np.asarray(x) ** 2 / 2) + 15.21 / 2 * (np.eye(points, k=1) + np.eye(points, k=-1))
    values, vectors = np.linalg.eigh(matrix)
    expected = vectors @ (np.exp(1j * values) * (vectors.T @ np.asarray(y0)))
    np.testing.assert_allclose(sol.ys[-1], expected, atol=1e-5)


def robertson(rates, adjoint=None, solver=None, **options):
    model = Robertson(*(rates[i] for i in range(3)))
    y0 = jnp.array([1.0, 0.0, 0.0], rates.dtype)
    options = {"rtol": 1e-6, "atol": 1e-9, "t1": 100.0, **options}
    return sciml.solve(model, y0, t0=0.0, solver=solver or Rodas5P(), adjoint=adjoint, throw=False, **options)


RATES = np.array([0.04, 3e7, 1e4])


@pytest.mark.x64
@pytest.mark.parametrize(
    "solver, saveat",
    [
        pytest.param(Rodas5P(), [0.3, 1.7, 1.9], id="Rodas5P"),
        pytest.param(Rosenbrock23(), [0.3, 1.9], id="Rosenbrock23"),
        pytest.param(Rodas5P(mass=np.diag([1.0, 2.0, 3.0])), None, id="mass"),
    ],
)
def test_gradient_agrees_with_finite_differences_and_forward_mode(solver, saveat):
    def loss(x, adjoint):
        options = {"dt": 0.17, "saveat": saveat, "adjoint": adjoint, "args": x["p"]}

        def field(t, y, p):
            return jnp.stack([p[0] * y[1] * y[2], -5 * y[1] + jnp.cos(p[1] * t), p[2] - y[0] * y[2]])

        ys = sciml.solve(field, x["y0"], t0=x["t0"], t1=2.0, solver=solver, **options).ys
        return jnp.sum(jnp.sin(ys * jnp.arange(1.0, ys.size + 1).reshape(ys.shape)))

    x = {"y0": jnp.array([1.0, 0.3, 0.6]), "p": jnp.array([2.0, 3.0, 0.7]), "t0": jnp.array(0.1)}
    both = jax.jit(jax.value_and_grad(ft.partial(loss, adjoint=sciml.adjoints.Checkpointed())))
    reverse = both(x)[1]
    close(reverse, jax.jit(jax.jacfwd(ft.partial(loss, adjoint=sciml.adjoints.Direct())))(x), rtol=1e-11, atol=1e-12)
    # central differences themselves are good to 1e-9 of the gradient's size
    close(reverse, finite_difference_gradient(lambda x: both(x)[0], x), rtol=1e-8, atol=2e-8)


@pytest.mark.x64
def test_gradient_through_the_consistent_start():
    """Of first and second order, by the implicit function."""
    mass = np.diag([1.0, 0.0])

    def start(p, adjoint):
        def field(t, y, args):
            return jnp.stack([-y[0] * y[1], y[1] ** 3 + p * y[1] - 2 * y[0]])

        y0 = jnp.array([1.0, 0.5])
        return sciml.solve(
            field, y0, t0=0.0, t1=1.0, dt=0.25, solver=Rodas5P(mass=mass), saveat=[0.0], adjoint=adjoint
        ).ys[0, 1]

    p = jnp.array(1.0)  # z = 1, and 3 z^2 z' + z + p z' = 0
    np.testing.assert_allclose(
        jax.grad(ft.partial(start, adjoint=sciml.adjoints.Checkpointed()))(p), -1 / 4, rtol=1e-12
    )
    second = jax.jacfwd(jax.jacfwd(ft.partial(start, adjoint=sciml.adjoints.Direct())))(p)
    np.testing.assert_allclose(second, -(6 / 16 - 2 / 4) / 4, rtol=1e-10)


@pytest.mark.x64
def test_members_of_a_batch():
    """Each as alone, with the gradient of the sum; one that fails disturbs no other."""
    rates = jnp.asarray(RATES * (1 + 0.1 * np.random.default_rng(0).random((5, 3))))
    solves = jax.jit(jax.vmap(robertson))
    many = solves(rates)
    alone = [jax.jit(robertson)(r) for r in rates]
    for i, one in enumerate(alone):
        close(many.ys[i], one.ys, rtol=1e-9)
    one_loss = lambda r: jnp.sum(robertson(r).ys[-1] * jnp.array([1.0, 1e4, 2.0]))  # noqa: E731
    summed = jax.jit(jax.grad(lambda r: jnp.sum(jax.vmap(one_loss)(r))))(rates)
    gradients = jax.jit(jax.vmap(jax.grad(one_loss)))
    each_own = gradients(rates)
    close(summed, each_own, rtol=1e-12)
    close(each_own[2], jax.jit(jax.grad(one_loss))(rates[2]), rtol=1e-7)

    broken = rates.at[0].set(jnp.nan)  # the first lane, at which the engine may look
    again = solves(broken)
    assert again.status[0] != 0 and not np.any(again.status[1:])
    same_bits(again.ys[1:], many.ys[1:])
    gradient = gradients(broken)
    same_bits(gradient[1:], each_own[1:])


@pytest.mark.parametrize("solver", [Rosenbrock23, Rodas5P])
def test_shard_map_with_checked_types(solver):
    rates = jnp.asarray(RATES * np.linspace(1.0, 1.1, 4)[:, None], jnp.result_type(float))
    mesh = jax.make_mesh((2,), ("members",), devices=jax.devices()[:2], axis_types=(jax.sharding.AxisType.Auto,))
    run = lambda r: robertson(r, solver=solver(), rtol=1e-3, atol=1e-6, t1=1.0).ys  # noqa: E731
    gradient = jax.vmap(jax.value_and_grad(lambda r: jnp.sum(run(r)[-1, :2])))
    for fn in (jax.vmap(run), gradient) if solver is Rosenbrock23 else (gradient,):
        sharded = jax.shard_map(fn, mesh=mesh, in_specs=P("members"), out_specs=P("members"))
        expected = jax.jit(fn)(rates)
        close(jax.jit(sharded)(rates), expected, rtol=1e-3, atol=1e-6)


@each_solver
def test_shard_map_of_a_dae_and_of_a_large_state(solver):
    mesh = jax.make_mesh((2,), ("members",), devices=jax.devices()[:2], axis_types=(jax.sharding.AxisType.Auto,))

    def small(p):
        field = lambda t, y, args: jnp.stack([-y[0] * p, y[1] - y[0]])  # noqa: E731
        return sciml.solve(field, jnp.ones(2), t0=0.0, t1=1.0, dt=0.1, solver=solver(mass=np.diag([1.0, 0.0]))).ys

    def large(p):
        # `sum` adds to 0, a number that is the same on all devices
        return sciml.solve(lambda t, y, args: sum([-p * y]), jnp.ones(20), t0=0.0, t1=1.0, dt=0.1, solver=solver()).ys

    p = jnp.array([0.5, 1.0, 1.5, 2.0])
    for run in (small, large):
        fn = jax.shard_map(jax.vmap(run), mesh=mesh, in_specs=P("members"), out_specs=P("members"))
        ys = jax.jit(fn)(p)[:, -1]
        np.testing.assert_allclose(ys, np.exp(-p)[:, None] * np.ones(ys.shape), rtol=1e-2)


def test_float32():
    sol = robertson(jnp.asarray(RATES, jnp.float32), rtol=1e-4, atol=1e-8, t1=4e3)
    assert sol.ys.dtype == jnp.float32
    assert sol.status == 0
    expected = [0.18320214, 8.94236e-07, 0.81679697]  # in float64 at 1e-9
    np.testing.assert_allclose(sol.ys[-1], expected, rtol=2e-3)


@pytest.mark.x64
@pytest.mark.parametrize("backwards", [False, True])
@each_solver
def test_inside_diffrax(solver, backwards):
    t0, t1 = (1.0, 0.0) if backwards else (0.0, 1.0)
    problem = verify.problem("cosine_growth", rate=2.0)
    ts = jnp.linspace(t0, t1, 7)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(problem.model), solver(), t0, t1, (t1 - t0) / 10, problem.y0, saveat=diffrax.SaveAt(ts=ts)
    )
    ours = sciml.solve(problem.model, problem.y0, t0=t0, t1=t1, dt=(t1 - t0) / 10, solver=solver(), saveat=ts)
    close(solution.ys, ours.ys, rtol=1e-12)
    if not backwards:
        controller = diffrax.PIDController(rtol=1e-5, atol=1e-7)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(Robertson()), solver(), 0.0, 100.0, None, jnp.array([1.0, 0.0, 0.0]),
            stepsize_controller=controller, saveat=diffrax.SaveAt(t1=True, dense=True),
        )  # fmt: skip
        expected = robertson(jnp.asarray(RATES), rtol=1e-9, atol=1e-12).ys
        np.testing.assert_allclose(solution.ys, expected, rtol=1e-3)
        np.testing.assert_allclose(solution.evaluate(100.0), expected[-1], rtol=1e-3)


@pytest.mark.x64
@pytest.mark.parametrize("solver", [Rosenbrock23, Rodas5P])
def test_states_of_several_leaves_and_dtypes(solver):
    def flat(t, y, args):
        return jnp.stack([-y[0] * y[1], y[0] - 10 * y[1], jnp.cos(t) * y[2], y[3] * y[0] - y[3] ** 2])

    def nested(t, y, args):
        d = flat(t, jnp.concatenate([y["a"][None], y["b"].reshape(-1), y["c"].astype(float)]), args)
        return {"a": d[0], "b": d[1:3].reshape(2, 1), "c": d[3:].astype(y["c"].dtype)}

    run = ft.partial(sciml.solve, t0=0.0, t1=1.0, dt=0.05, solver=solver(), saveat=[0.33, 1.0])
    expected = run(flat, jnp.array([1.0, 0.5, 2.0, 0.3])).ys
    y0 = {"a": jnp.array(1.0), "b": jnp.array([[0.5], [2.0]]), "c": jnp.array([0.3], jnp.float32)}
    ys = run(nested, y0).ys
    assert ys["b"].shape == (2, 2, 1) and ys["c"].dtype == jnp.float32
    np.testing.assert_allclose(ys["a"], expected[:, 0], rtol=1e-5)
    np.testing.assert_allclose(ys["b"][..., 0], expected[:, 1:3], rtol=1e-5)
    np.testing.assert_allclose(ys["c"], expected[:, 3:], rtol=1e-5)


def diffusion(t, y, rate):
    """Diffusion and logistic growth on cells of width 1/n, with no flux at the ends."""
    wide = jnp.concatenate([y[:1], y, y[-1:]])
    return rate * y.shape[0] ** 2 * (wide[2:] - 2 * y + wide[:-2]) + y * (1 - y)


@pytest.mark.x64
@pytest.mark.parametrize("mass", [True, False])
def test_states_too_large_to_write_out(mass):
    n = 20
    y0 = jnp.asarray(0.1 + 0.4 * np.linspace(0, 1, n) ** 2)
    model = diffusion
    matrix = np.eye(n) + np.diag(np.full(n - 1, 0.2), 1)
    if mass:
        model = lambda t, y, rate: jnp.asarray(matrix) @ diffusion(t, y, rate)  # noqa: E731
    solver = Rodas5P(mass=matrix if mass else None)

    def end(rate, adjoint=None):
        return sciml.solve(
            model, y0, t0=0.0, t1=1.0, args=rate, rtol=1e-9, atol=1e-9, solver=solver, adjoint=adjoint
        ).ys[-1]

    expected = solve_ivp(
        lambda t, y: np.asarray(diffusion(t, y, 0.5)), (0, 1), y0, method="Radau", rtol=1e-10, atol=1e-11
    )
    np.testing.assert_allclose(end(jnp.array(0.5)), expected.y[:, -1], rtol=1e-7)
    rates = jnp.array([0.25, 0.5])
    close(jax.vmap(end)(rates)[1], end(rates[1]), rtol=1e-9)
    loss = lambda rate, adjoint=None: jnp.sum(jnp.sin(3 * end(rate, adjoint)))  # noqa: E731
    reverse = jax.jit(jax.vmap(jax.grad(loss)))(rates)
    forward = jax.jit(jax.jacfwd(ft.partial(loss, adjoint=sciml.adjoints.Direct())))(rates[1])
    np.testing.assert_allclose(reverse[1], forward, rtol=1e-5)


def test_a_step_runs_element_by_element():
    """Nothing of a small step falls back to a plain vmap, nor of its derivative."""

    def step(y, model, mass):
        h = jnp.full((), 0.1, y.dtype)
        stepper = Rosenbrock23(mass).stepper(y)
        return stepper.step(lambda t, y: model(t, y, None), jnp.zeros_like(h), h, y, None).y1

    assert lanes.fallbacks(lambda y: step(y, HIRES(), None), jnp.ones(8)) == {}
    assert lanes.fallbacks(lambda y: step(y, Robertson(), np.diag([1.0, 1.0, 0.0])), jnp.ones(3)) == {}
    assert lanes.fallbacks(jax.grad(lambda y: jnp.sum(step(y, Robertson(), None))), jnp.ones(3)) == {}


@pytest.mark.parametrize("differentiate", [False, True])
def test_entries_that_are_always_zero_cost_nothing(differentiate):
    """The Jacobian of a chain has two diagonals: one twice as long takes twice as many operations, not four times."""

    def decays(t, y, rate):
        return rate * jnp.concatenate([-y[:1], y[:-1] - y[1:] ** 2])

    def of(length):
        def end(rate):
            y0 = jnp.ones(length).at[1:].set(0.0)
            return sciml.solve(decays, y0, t0=0.0, t1=1.0, args=rate, dt=0.1, solver=Rosenbrock23()).ys.sum()

        run = jax.vmap(jax.grad(end) if differentiate else end)
        return jax.jit(run).lower(jnp.ones(3)).as_text().count(" = ")

    few, some, many = map(of, (2, 4, 8))
    assert many - some < 2.6 * (some - few)
