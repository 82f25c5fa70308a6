"""What models of fields say of their eigenvalues, and the steps that `solve` takes from it."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import models, solvers
from sciml.solvers.control._stability import says_spectrum, spectrum_of
from sciml.spatial import Dirichlet, Grid, Neumann, Periodic
from tests import families
from tests.registry_fields import CASES
from tests.registry_pdes import CASES as ALL

GRID = Grid((8, 6), 0.0, 0.02)  # so small that no reaction matters


def said(model, y):
    """The eigenvalues that a model says, as `solve` reads them."""
    return spectrum_of(model, 0.0, y, None)


@pytest.mark.x64
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("method", [diffrax.Tsit5, diffrax.Euler], ids=lambda m: m.__name__)
def test_the_longest_step_is_that_of_the_jacobian(case, method):
    """Not longer than the eigenvalues of the Jacobian allow, up to what is left to walls; nor much shorter."""
    if case.name == "Wave" and method is diffrax.Euler:
        pytest.skip("waves grow under Euler's method")
    model, y = case.make(GRID, Periodic()), case.y0(GRID)
    if case.name in ("Advection", "Burgers") and method is diffrax.Euler:
        pytest.skip("these differences need a method that is stable for waves")
    jacobian = jax.jit(jax.jacfwd(lambda y: model(0.0, y, None)))(y).reshape(y.size, y.size)
    values = np.linalg.eigvals(np.asarray(jacobian))
    stability = solvers.stability(method())
    # modes that hardly move or grow slowly by the reaction are no matter of stability
    values = values[values.real <= -1e-3 * np.max(np.abs(values))] if case.name != "Wave" else values
    exact = float(stability.longest_step(jnp.asarray(values)))
    found = float(stability.longest_step(said(model, y)))
    assert 0.4 * exact < found < 1.05 * exact


@pytest.mark.parametrize(
    "name, real, imaginary",
    [
        ("Euler", 2.0, 0.0),
        ("Heun", 2.0, 0.0),
        ("Bosh3", 2.5127453266183286, 3**0.5),
        ("Tsit5", 3.5068469938, 0.4779788689),
        ("Dopri5", 3.3065678927, 0.9971890087),
    ],
)
def test_intervals_of_explicit_methods(name, real, imaginary):
    """Against the stability polynomial, here the step of the method itself on y' = z y."""
    solver = getattr(diffrax, name)()
    stability = solvers.stability(solver)
    assert abs(stability.real - real) < 1e-7 and abs(stability.imaginary - imaginary) < 1e-7

    @jax.jit
    def growth(z):
        rotation = lambda t, y, z: jnp.stack([z[0] * y[0] - z[1] * y[1], z[1] * y[0] + z[0] * y[1]])  # noqa: E731
        sol = sciml.solve(rotation, jnp.array([1.0, 0.0]), t0=0.0, t1=1.0, dt=1.0, args=z, solver=solver)
        return jnp.hypot(*sol.ys[-1])

    small = 1e-3 if jnp.zeros(()).dtype == jnp.float32 else 1e-6
    assert growth(jnp.array([-real, 0.0])) < 1 + small and growth(jnp.array([-1.02 * real, 0.0])) > 1 + small
    if imaginary:
        assert growth(jnp.array([0.0, imaginary])) < 1 + small
        assert growth(jnp.array([0.0, max(1.6 * imaginary, 1.45)])) > 1 + 1e-3
    angle = 0.75 * np.pi
    reach = stability.reach[90]
    inside, outside = (x * reach * jnp.array([np.cos(angle), np.sin(angle)]) for x in (0.99, 1.02))
    assert growth(inside) < 1.001 < growth(outside)


def test_intervals_of_structured_methods():
    """Verlet's by a spring that swings and one that does not; the stabilised ones by many steps at their limit."""
    for method, limit in ((solvers.VelocityVerlet, 2.0), (families.Yoshida4, 1.5734)):
        assert abs(solvers.stability(method()).imaginary - limit) < 1e-4

        @jax.jit
        def swing(frequency, method=method):
            spring = Spring(frequency)
            start = (jnp.ones(1), jnp.zeros(1))
            return jnp.abs(sciml.solve(spring, start, t0=0.0, t1=200.0, dt=1.0, solver=method()).ys[0][-1, 0])

        assert swing(0.99 * limit) < 100.0 and not swing(1.02 * limit) < 100.0
    for method in (solvers.RKC2, solvers.RKL2):
        solver = method(max_stages=9)
        reach = solvers.stability(solver).real
        rates = jnp.linspace(0.0, 1.0, 50) * reach
        decay = lambda t, y, rates: -rates * y  # noqa: E731
        solver = method(spectral_radius=reach, max_stages=9)
        sol = sciml.solve(decay, jnp.ones(50), t0=0.0, t1=40.0, dt=1.0, args=rates, solver=solver)
        assert jnp.max(jnp.abs(sol.ys)) <= 1.0
    for solver in (solvers.ETDRK(order=4), solvers.CrankNicolson(), solvers.ARK(order=3), diffrax.Kvaerno5()):
        assert solvers.stability(solver) is None


class Spring(sciml.AbstractSecondOrder):
    """A harmonic oscillator that says nothing of its spectrum."""

    frequency: jax.Array

    def acceleration(self, t, q, args):
        return -(self.frequency**2) * q


class Membrane(sciml.AbstractSecondOrder):
    """A model of a user's own, which says its spectral radius."""

    laplacian: sciml.spatial.Laplacian

    def acceleration(self, t, q, args):
        return self.laplacian(q)

    def spectral_radius(self, t, y, args):
        return self.laplacian.spectral_radius**0.5


class Rates(sciml.AbstractSemilinear):
    """Modes of which one decays fast."""

    def transform(self, y):
        return y

    def inverse(self, modes):
        return modes

    def linear(self, args):
        return -jnp.array([1.0, 1000.0])

    def rest(self, t, modes, args):
        return jnp.zeros_like(modes)


HEAT = models.Diffusion(Grid(16), Dirichlet(0.0))
BUMP = jnp.sin(jnp.pi * Grid(16).centers[0])


def test_no_dt_is_a_stable_step():
    """Where the method has no error estimate, or steps are to be constant; of equal steps, close to the limit."""
    limit = 2 / HEAT.spectral_radius(0.0, BUMP, None)
    for options in (
        dict(solver=diffrax.Euler()),
        dict(solver=diffrax.Tsit5(), stepsize_controller=diffrax.ConstantStepSize()),
    ):
        sol = sciml.solve(HEAT, BUMP, t0=0.0, t1=0.2, **options)
        reach = solvers.stability(options["solver"]).real / 2
        assert abs(0.2 / (0.9 * reach * limit) - float(sol.stats.accepted)) < 1.1
        assert jnp.max(jnp.abs(sol.ys[-1] - jnp.exp(-0.2 * jnp.pi**2) * BUMP)) < 2e-3


def test_no_dt_where_the_parameter_is_traced():
    traced = jax.jit(lambda y, d: sciml.solve(models.Diffusion(Grid(16), Dirichlet(0.0), d), y, t0=0.0, t1=0.2,
                                              solver=diffrax.Euler()))  # fmt: skip
    one, three = traced(BUMP, 1.0), traced(BUMP, 3.0)
    assert three.status == 0 and abs(float(three.stats.accepted) - 3 * float(one.stats.accepted)) < 4
    several = jax.vmap(traced, in_axes=(None, 0))(BUMP, jnp.array([1.0, 3.0]))
    assert several.stats.accepted.tolist() == [int(one.stats.accepted), int(three.stats.accepted)]


def test_no_dt_for_waves():
    grid = Grid((6, 5))
    drum = Membrane(sciml.spatial.Laplacian(grid, Dirichlet(0.0)))
    q = jnp.ones(grid.shape)
    sol = sciml.solve(drum, (q, 0 * q), t0=0.0, t1=2.0, solver=solvers.VelocityVerlet())
    radius = drum.laplacian.spectral_radius
    assert abs(float(sol.stats.accepted) - 2.0 / (0.9 * 2.0 / radius**0.5)) < 1.1
    assert jnp.max(jnp.abs(sol.ys[0])) < 10.0


@pytest.mark.x64
def test_the_gradient_through_a_step_that_was_chosen():
    """The step is chosen, not differentiated: the gradient is that of the solution with it."""

    def loss(d, dt=None):
        model = models.Diffusion(Grid(16), Dirichlet(0.0), d)
        return jnp.sum(sciml.solve(model, BUMP, t0=0.0, t1=0.05, dt=dt, solver=diffrax.Euler()).ys[-1])

    steps = sciml.solve(HEAT, BUMP, t0=0.0, t1=0.05, solver=diffrax.Euler()).stats.accepted
    assert abs(jax.grad(loss)(1.0) - jax.grad(loss)(1.0, 0.05 / int(steps))) < 2e-3 * abs(jax.grad(loss)(1.0))


@pytest.mark.parametrize(
    "model, y0, options",
    [
        (HEAT, BUMP, dict(dt=0.01, solver=diffrax.Tsit5())),
        (HEAT, BUMP, dict(dt=0.01, solver=diffrax.Euler())),
        (HEAT, BUMP, dict(dt=5.0, solver=solvers.RKC2(max_stages=5))),
        (models.Wave(Grid(16), Neumann(0.0)), jnp.stack([BUMP, BUMP]), dict(dt=0.1, solver=diffrax.Tsit5())),
        (models.Advection(Grid(16), Periodic(), 2.0), BUMP, dict(dt=0.1, solver=diffrax.Bosh3())),
        (Rates(), jnp.ones(2), dict(dt=0.01, solver=diffrax.Tsit5())),
        (lambda t, y, args: -1e3 * y, BUMP, dict(dt=5.0, solver=solvers.RKC2(max_stages=5, spectral_radius=1e3))),
    ],
)
def test_a_step_that_is_too_long_names_the_limit(model, y0, options):
    """Known: an error when traced. Traced: `invalid_argument` and NaN. And right below the limit it runs."""
    with pytest.raises(ValueError, match=r"`dt`=.* is too long for `solver=.*\(\)` to be stable.*at most") as error:
        sciml.solve(model, y0, t0=0.0, t1=1.0, **options)
    limit = float(str(error.value).split("at most ")[1].split(". ")[0])
    assert limit < options["dt"]
    traced = jax.jit(lambda dt: sciml.solve(model, y0, t0=0.0, t1=4 * limit, **{**options, "dt": dt}))
    wrong, right = traced(1.01 * limit), traced(0.99 * limit)
    assert wrong.status == sciml.Status.invalid_argument and jnp.all(jnp.isnan(wrong.ys))
    assert right.status == 0 and jnp.all(jnp.isfinite(right.ys))
    if model is HEAT:
        with pytest.raises(ValueError, match="at most"):  # the field is traced, but what limits the step is known
            jax.jit(lambda y: sciml.solve(model, y, t0=0.0, t1=1.0, **options).ys)(y0)


def test_backwards_and_adaptive_steps_are_not_refused():
    """Backwards a diffusion grows, at any step; and with tolerances the steps are the controller's."""
    sol = sciml.solve(HEAT, BUMP, t0=0.01, t1=0.0, dt=-0.001, solver=diffrax.Tsit5())
    assert jnp.all(jnp.isfinite(sol.ys))
    assert sciml.solve(HEAT, BUMP, t0=0.0, t1=0.1, dt0=0.1, rtol=1e-3, atol=1e-4, solver=diffrax.Tsit5()).status == 0
    with pytest.raises(ValueError, match="require `dt`.*spectrum"):
        sciml.solve(lambda t, y, a: -y, BUMP, t0=0.0, t1=1.0, stepsize_controller=diffrax.ConstantStepSize())
    with pytest.raises(ValueError, match="does not estimate errors.*spectrum"):
        sciml.solve(lambda t, y, a: -y, BUMP, t0=0.0, t1=1.0, solver=diffrax.Euler())
    with pytest.raises(ValueError, match="must end with the axes"):  # the model's own words
        sciml.solve(HEAT, jnp.ones(5), t0=0.0, t1=1.0, dt=0.1, solver=diffrax.Tsit5())


def test_simulate_takes_and_refuses_the_same_steps():
    options = dict(t0=0.0, t1=0.1, solver=diffrax.Euler(), progress=False, save_every=0.05)
    assert sciml.simulate(HEAT, BUMP, **options).finished
    with pytest.raises(ValueError, match="is too long for"):
        sciml.simulate(HEAT, BUMP, dt=0.01, **options)


@pytest.mark.x64
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_every_model_of_fields_is_asked_as_solvers_ask(case):
    """No method of a model's own has the name of what solvers ask for."""
    model, y = case.make(), case.state(float)
    if says_spectrum(model):
        assert jnp.all(jnp.isfinite(said(model, y)))
