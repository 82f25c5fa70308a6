"""The known answers are right: exact solutions solve their equations, published values are reached."""

import importlib
import inspect
import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp

import sciml
from sciml import verify
from sciml.verify import _lookup
from sciml.verify._lookup import EXACT_PROBLEMS, REFERENCE_PROBLEMS, WAVE_PROBLEMS
from sciml.verify.problems._exact import prothero_robinson
from sciml.verify.problems._references import (
    arenstorf,
    brusselator,
    chemical_akzo_nobel,
    hires,
    lotka_volterra,
    oregonator,
    pollution,
    robertson,
    van_der_pol,
    van_der_pol_unscaled,
)

each_exact = pytest.mark.parametrize("make", EXACT_PROBLEMS, ids=lambda make: make.__name__)
each_reference = pytest.mark.parametrize("make", REFERENCE_PROBLEMS, ids=lambda make: make.__name__)
each_problem = pytest.mark.parametrize("make", EXACT_PROBLEMS + REFERENCE_PROBLEMS, ids=lambda make: make.__name__)

# Other parameters than the defaults, which might hide a factor of one.
VARIANTS = [
    lambda: verify.problem("exponential_decay", rate=3.0, t1=1.0),
    lambda: verify.problem("harmonic_oscillator", omega=3.0, zeta=0.0),
    lambda: verify.problem("harmonic_oscillator", omega=3.0, zeta=0.7),
    lambda: verify.problem("logistic", rate=0.5, capacity=3.0),
    lambda: verify.problem("kepler", eccentricity=0.0),
    lambda: verify.problem("kepler", eccentricity=0.9, t1=20.0),
    lambda: eqx.tree_at(lambda p: p.model.mu, verify.problem("kepler", eccentricity=0.3), 1.7),
    # Not from the pericentre, and falling.
    lambda: eqx.tree_at(lambda p: p.y0, verify.problem("kepler"), jnp.asarray([0.8, 0.5, -0.6, 0.7])),
    lambda: verify.problem("cosine_growth", rate=2.0),
    lambda: verify.problem("polynomial", degree=0),
    lambda: verify.problem("prothero_robinson", rate=5.0),
    # Started off the sine, and late.
    lambda: eqx.tree_at(
        lambda p: (p.y0, p.t0), verify.problem("prothero_robinson", rate=5.0), (jnp.asarray([2.0]), 0.25)
    ),
    lambda: eqx.tree_at(lambda p: p.t0, verify.problem("cosine_growth"), 0.5),
    lambda: eqx.tree_at(lambda p: p.t0, verify.problem("linear_system"), 0.5),
]


def solves_its_equation(problem):
    """The exact solution starts at y0, and its derivative is the vector field."""

    @jax.jit
    def both(t):
        y, slope = jax.jvp(problem.solution, (t,), (jnp.ones_like(t),))
        return y, slope, problem.model(t, y, None)

    start = problem.solution(problem.t0)
    for got, want in zip(jax.tree.leaves(start), jax.tree.leaves(problem.y0), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-14)
    assert jax.tree.structure(start) == jax.tree.structure(problem.y0)
    for t in np.linspace(problem.t0, problem.t1, 9)[1:]:
        _, slope, field = both(jnp.asarray(t))
        size = max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(field))
        # The stiff problem subtracts numbers 1000 times as large.
        atol = 1e-11 * max(size, 1.0)
        for got, want in zip(jax.tree.leaves(slope), jax.tree.leaves(field), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=atol)


@pytest.mark.x64
@each_exact
def test_exact_solution_solves_its_equation(make):
    solves_its_equation(make())


@pytest.mark.x64
@pytest.mark.parametrize("make", VARIANTS)
def test_exact_solution_for_other_parameters(make):
    solves_its_equation(make())


@pytest.mark.x64
@pytest.mark.parametrize("make", [m for m in EXACT_PROBLEMS if m is not prothero_robinson])
def test_exact_gradient(make):
    """`end()` is a differentiable function of the model and of y0: SciPy's end state says the same."""
    problem = make()

    @jax.jit
    def total(p):
        return sum(jnp.sum(leaf * jnp.arange(1.0, leaf.size + 1).reshape(leaf.shape)) for leaf in jax.tree.leaves(p))

    verify.check_gradient(lambda p: total(p.end()), problem, rtol=1e-6, atol=1e-7)
    # Its own differences could share an error in y0's or a parameter's place; the equation knows better.
    gradient = eqx.filter_grad(lambda p: total(p.end()))(problem)
    flat, unravel = ravel_pytree(problem.y0)
    by = 1e-6 * jnp.arange(1.0, flat.size + 1)
    change = float(total(end_by_scipy(problem, flat + by)) - total(end_by_scipy(problem, flat - by)))
    slope, _ = ravel_pytree(gradient.y0)
    np.testing.assert_allclose(change, 2 * jnp.dot(slope, by), rtol=1e-5)


def end_by_scipy(problem, y0, method="DOP853", rtol=1e-12, atol=1e-12):
    _, unravel = ravel_pytree(problem.y0)

    @jax.jit
    def field(t, flat):
        return ravel_pytree(problem.model(t, unravel(flat), None))[0]

    jacobian = jax.jit(jax.jacfwd(field, argnums=1))
    options = {"jac": lambda t, y: np.asarray(jacobian(t, y))} if method == "Radau" else {}
    solution = solve_ivp(
        lambda t, y: np.asarray(field(t, y)),
        (problem.t0, problem.t1),
        np.asarray(y0),
        method=method,
        rtol=rtol,
        atol=atol,
        t_eval=[problem.t1],
        **options,
    )
    assert solution.success
    return unravel(jnp.asarray(solution.y[:, -1]))


@pytest.mark.x64
@pytest.mark.parametrize("rho", [0, 7, 14, 21, 28])
def test_lorenz63_reference(rho):
    problem = verify.problem("lorenz63", rho=rho)
    # With rho=0 the end value is 1e-4 of the initial one.
    assert problem.error(end_by_scipy(problem, problem.y0, atol=1e-16)) < 1e-10


@pytest.mark.x64
@pytest.mark.parametrize(
    ("make", "bound"),
    [
        # The orbit multiplies SciPy's errors by about 1e5.
        (arenstorf, 1e-6),
        (brusselator, 1e-10),
        (lotka_volterra, 1e-10),
    ],
)
def test_nonstiff_reference(make, bound):
    problem = make()
    assert problem.error(end_by_scipy(problem, problem.y0)) < bound


STIFF = [
    # (problem, rtol, atol, bound on the error of every component)
    (robertson, 1e-7, 1e-18, 1e-5),
    (hires, 1e-7, 1e-10, 1e-5),
    (oregonator, 1e-7, 1e-10, 1e-4),
    (van_der_pol, 1e-7, 1e-10, 1e-4),
    (van_der_pol_unscaled, 1e-7, 1e-10, 1e-4),
    (pollution, 1e-7, 1e-16, 1e-5),
    (chemical_akzo_nobel, 1e-7, 1e-10, 1e-5),
]


@pytest.mark.x64
@pytest.mark.parametrize(("make", "rtol", "atol", "bound"), STIFF)
def test_stiff_reference(make, rtol, atol, bound):
    """A few hundred steps of Radau: enough to see a wrong digit of a coefficient."""
    problem = make()
    end = end_by_scipy(problem, problem.y0, method="Radau", rtol=rtol, atol=atol)
    assert problem.error(end, componentwise=True) < bound


def test_registry_is_complete():
    """Every function that makes a problem or returns a known result can be found by its name."""
    made, known = set(), set()
    for path in sorted(pathlib.Path(verify.__file__).parent.glob("*/_*.py")):
        module = importlib.import_module(f"sciml.verify.{path.parent.name}.{path.stem}")
        for name, value in vars(module).items():
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
                makes = inspect.signature(value).return_annotation is verify.Problem
                (made if makes else known).add(name)
    assert made - {"manufactured"} == set(verify.problem_names())
    assert not known & set(verify.problem_names()) and set(_lookup._MODULES) <= known
    listed = EXACT_PROBLEMS + REFERENCE_PROBLEMS + WAVE_PROBLEMS
    assert set(verify.problem_names("published")) == {make.__name__ for make in REFERENCE_PROBLEMS}
    assert len(set(listed)) == len(listed)
    assert all(make().exact is not None for make in EXACT_PROBLEMS + WAVE_PROBLEMS)
    assert all(make().reference is not None for make in REFERENCE_PROBLEMS)


def test_names_are_found_or_refused():
    assert verify.problem("exponential_decay", 2.0, t1=1.0).t1 == 1.0
    assert verify.reference("couette", jnp.array(1.0), 1e3, viscosity=0.3, height=2.0).shape == ()
    with pytest.raises(ValueError, match="there is no problem 'robertsen': did you mean 'robertson'"):
        verify.problem("robertsen")
    with pytest.raises(ValueError, match=r"'sedov' is not a problem: write `verify.reference\('sedov'\)`"):
        verify.problem("sedov")
    with pytest.raises(ValueError, match=r"'hires' is not a reference: write `verify.problem\('hires'\)`"):
        verify.reference("hires")
    with pytest.raises(ValueError, match=r"there is no reference 'xyzzy': `help\(sciml.verify.reference\)` lists them"):
        verify.reference("xyzzy")
    with pytest.raises(ValueError, match="`kind` must be"):
        verify.problem_names("stiff")


@each_problem
def test_dtype_is_kept(make, dtype):
    problem = make(dtype=dtype)
    states = [problem.y0, problem.end(), problem.model(problem.t0, problem.y0, None)]
    states.append(problem.model(jnp.asarray(problem.t0), problem.y0, None))
    assert {leaf.dtype for state in states for leaf in jax.tree.leaves(state)} == {dtype}
    assert problem.name and problem.source
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for state in states for leaf in jax.tree.leaves(state))


@each_exact
def test_solution_over_times_and_under_jit(make):
    problem = make()
    times = jnp.linspace(problem.t0, problem.t1, 4)
    batched = jax.jit(lambda p: jax.vmap(p.solution)(times))(problem)
    one = problem.solution(times[2])
    for got, want in zip(jax.tree.leaves(batched), jax.tree.leaves(one), strict=True):
        np.testing.assert_allclose(got[2], want, rtol=2e-5, atol=2e-5)


def test_error():
    problem = verify.Problem(
        model=verify.problem("robertson").model, y0=jnp.ones(2), t0=0.0, t1=1.0, reference=jnp.asarray([1.0, 100.0])
    )
    y = jnp.asarray([1.5, 101.0])
    np.testing.assert_allclose(problem.error(y), 0.01, rtol=1e-5)
    np.testing.assert_allclose(problem.error(y, componentwise=True), 0.5, rtol=1e-5)
    assert jnp.isnan(problem.error(jnp.asarray([jnp.nan, 100.0])))
    assert problem.error(problem.end()) == 0.0


def test_errors_of_solutions_are_those_at_their_own_end():
    problem = verify.problem("exponential_decay", rate=2.0)
    middle = (problem.t0 + problem.t1) / 3
    sol = sciml.solve(problem.model, problem.y0, t0=problem.t0, t1=middle)
    assert problem.error(sol) < 1e-2 < problem.error(sol.ys[-1])
    known = verify.Problem(problem.model, problem.y0, problem.t0, problem.t1, reference=problem.end())
    with pytest.raises(ValueError, match="known at t1=.* but the given solution ends at"):
        known.error(sol)
    assert jnp.isnan(jax.jit(lambda sol: known.error(sol))(sol))
    assert known.error(sciml.solve(problem.model, problem.y0, t0=problem.t0, t1=problem.t1)) < 1e-2


def test_problem_needs_one_answer():
    model, y0 = verify.problem("logistic").model, jnp.ones(1)
    with pytest.raises(ValueError, match="either `exact` or `reference`, but got neither"):
        verify.Problem(model=model, y0=y0, t0=0.0, t1=1.0)
    with pytest.raises(ValueError, match="but got both"):
        verify.Problem(model=model, y0=y0, t0=0.0, t1=1.0, reference=y0, exact=lambda p, t: p.y0)


def test_solution_of_a_reference_problem():
    with pytest.raises(ValueError, match="only known at t1"):
        verify.problem("hires").solution(1.0)


def test_bad_arguments():
    with pytest.raises(ValueError, match="`rho` must be one of"):
        verify.problem("lorenz63", rho=20.0)
    with pytest.raises(ValueError, match="`eccentricity` must be between"):
        verify.problem("kepler", eccentricity=1.0)
    with pytest.raises(ValueError, match="`degree` must be at least 0"):
        verify.problem("polynomial", degree=-1)


def test_van_der_pol_references_agree():
    """They are the same orbit in other units."""
    scaled, unscaled = verify.problem("van_der_pol"), verify.problem("van_der_pol_unscaled")
    np.testing.assert_allclose(scaled.end()[0], unscaled.end()[0], rtol=1e-6)
    np.testing.assert_allclose(scaled.end()[1], 1000 * unscaled.end()[1], rtol=1e-6)
