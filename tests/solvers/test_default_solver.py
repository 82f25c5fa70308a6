"""Without a method `solve` takes one for stiff equations where these are, and says so."""

import functools as ft
import logging
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers import ARK, BDF, Rodas5P, _stiff_method as stiff_method
from sciml.solvers._request import Request
from sciml.solvers._stiff_choice import method_before
from sciml.spatial import Dirichlet, Grid, Neumann, Robin, pulse

from .common import close


def robertson(t, y, rates):
    """A plain function, which says nothing of itself."""
    a, b, c = y
    slow, fast, back = rates[0] * a, rates[1] * b * b, rates[2] * b * c
    return jnp.stack([back - slow, slow - back - fast, fast])


def brusselator(t, y, feed):
    u, v = y
    product = u * u * v
    return jnp.stack([1 + product - 4 * u, feed * u - product])


def hires(t, y, scale):
    return scale * sciml.models.HIRES()(t, y, None)


def van_der_pol(t, y, mu):
    return sciml.models.VanDerPol(mu=mu)(t, y, None)


def lorenz(t, y, rho):
    return sciml.models.Lorenz63(rho=rho)(t, y, None)


def recurrent(t, y, weights):
    """A dense Jacobian, with eigenvalues from one to a million."""
    rates = jnp.logspace(0, 6, y.size, dtype=y.dtype)
    return rates * (jnp.tanh(weights @ y) - y)


# the model, its parameters, its start and end, and the method that is to be found; stiff from the start, from soon on,
# at times, and not at all
CASES = {
    "Robertson": (robertson, [0.04, 3e7, 1e4], [1.0, 0.0, 0.0], 1e4, "Rodas5P"),
    "HIRES": (hires, 100.0, [1.0, 0, 0, 0, 0, 0, 0, 0.0057], 321.8122, "Rodas5P"),
    "Van der Pol, stiff": (van_der_pol, 1e3, [2.0, 0.0], 700.0, "Rodas5P"),
    "Van der Pol": (van_der_pol, 0.1, [2.0, 0.0], 10.0, "Tsit5"),
    "Brusselator": (brusselator, 3.0, [1.5, 3.0], 10.0, "Tsit5"),
    "Lorenz": (lorenz, 28.0, [1.0, 0.0, 0.0], 3.0, "Tsit5"),
}  # fmt: skip
each = pytest.mark.parametrize("case", CASES)


def solve(case, args=None, dtype=float, **options):
    model, known, y0, t1, _ = CASES[case]
    args = jnp.asarray(known, dtype) if args is None else args
    return sciml.solve(model, jnp.asarray(y0, dtype), t0=0.0, t1=t1, args=args, **options)


@pytest.mark.x64
@each
def test_it_is_found_and_reaches_the_end(case):
    sol = solve(case)
    assert sol.solver == CASES[case][-1]
    exact = solve(case, solver=Rodas5P(), rtol=1e-10, atol=1e-13).ys
    np.testing.assert_allclose(sol.ys, exact, rtol=1e-3, atol=1e-8)


@each
def test_float32(case):
    sol = solve(case, dtype=np.float32)
    assert sol.solver == CASES[case][-1] and sol.status == 0
    exact = solve(case, solver=Rodas5P(), dtype=np.float32, rtol=1e-5, atol=1e-9).ys
    np.testing.assert_allclose(sol.ys, exact, rtol=2e-2, atol=1e-5)


@pytest.mark.x64
@each
def test_its_gradient(case):
    """Outside of `jax.jit`, where the numbers are known while it is differentiated."""
    args = jnp.asarray(CASES[case][1], float)

    def loss(args, **options):
        return jnp.sum(solve(case, args, **options).ys[-1][:2])

    got = jax.grad(loss)(args)
    tight = ft.partial(loss, solver=Rodas5P(), rtol=1e-10, atol=1e-13)
    step = 1e-5 * args  # of all parameters together, each by a part of itself
    close(jnp.vdot(got, args), (tight(args + step) - tight(args - step)) / 2e-5, rtol=2e-3, atol=1e-7)


@pytest.mark.x64
def test_a_model_may_say_it():
    """Inside of `jax.jit`, and of many members each with its own rates."""
    model, y0 = sciml.models.Robertson(), jnp.array([1.0, 0.0, 0.0])

    def end(k1, solver=None):
        return sciml.solve(sciml.models.Robertson(k1=k1), y0, t0=0.0, t1=1e3, solver=solver).ys[-1, 0]

    rates = jnp.array([0.03, 0.04, 0.05])
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(end)))(rates)
    named = ft.partial(end, solver=Rodas5P())
    exact = jax.jit(jax.vmap(jax.value_and_grad(named)))(rates)
    assert np.array_equal(values, exact[0]) and np.array_equal(slopes, exact[1])  # it is the same program
    assert sciml.solve(model, y0, t0=0.0, t1=1.0, dt=0.1, throw=False).solver == "Rodas5P"
    run = sciml.simulate(model, y0, t0=0.0, t1=1e3)
    np.testing.assert_allclose(run.y, sciml.solve(model, y0, t0=0.0, t1=1e3).ys[-1], rtol=1e-9)


@pytest.mark.x64
def test_dense_output_is_that_of_the_method_that_was_taken():
    import diffrax

    sol = solve("Robertson", saveat=diffrax.SaveAt(steps=True, dense=True))
    assert sol.solver == "Rodas5P"
    ts = 10.0 ** np.arange(-3, 4)
    exact = solve("Robertson", solver=Rodas5P(), rtol=1e-10, atol=1e-13, saveat=ts)
    np.testing.assert_allclose(jax.vmap(sol.evaluate)(ts), exact.ys, rtol=1e-3, atol=1e-7)


def network(size, dtype=float):
    weights = np.random.default_rng(0).normal(size=(size, size)) / np.sqrt(size)
    return jnp.asarray(weights, dtype), jnp.ones(size, dtype)


@pytest.mark.x64
def test_large_and_dense_takes_backward_differences():
    weights, y0 = network(256)
    sol = sciml.solve(recurrent, y0, t0=0.0, t1=0.1, args=weights)
    assert sol.solver == "BDF"
    exact = sciml.solve(recurrent, y0, t0=0.0, t1=0.1, args=weights, solver=BDF(), rtol=1e-8, atol=1e-11).ys
    np.testing.assert_allclose(sol.ys, exact, rtol=1e-3, atol=1e-4)


@pytest.mark.x64
def test_the_gradient_of_a_large_and_dense_one():
    weights, y0 = network(256)

    def loss(y0, **options):
        return jnp.sum(sciml.solve(recurrent, y0, t0=0.0, t1=1e-3, args=weights, **options).ys ** 2)

    direction = jnp.cos(jnp.arange(256.0))
    got = jnp.vdot(jax.grad(loss)(y0), direction)
    tight = ft.partial(loss, solver=BDF(), rtol=1e-9, atol=1e-12)
    step = 1e-4
    close(got, (tight(y0 + step * direction) - tight(y0 - step * direction)) / (2 * step), rtol=1e-3)


def chain(t, y, args):
    return 1e5 * (jnp.pad(y, 1)[2:] - 2 * y + jnp.pad(y, 1)[:-2])


def plane(t, y, args):
    return 1e5 * (jnp.sum(y) - y * y.size)


def field(t, y, args):
    side = round(y.size**0.5)
    wide = jnp.pad(y.reshape(side, side), 1, mode="edge")
    around = wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2] - 4 * wide[1:-1, 1:-1]
    return 4e4 * around.reshape(-1) + y - y**3


@pytest.mark.x64
@pytest.mark.parametrize(
    "model, size, solver",
    [
        (chain, 300, Rodas5P),
        (plane, 300, BDF),
        (plane, 150, Rodas5P),
        (robertson, 3, Rodas5P),
        (plane, 5000, None),
        (field, 529, Rodas5P),
        (field, 625, BDF),
    ],
)
def test_structure_and_size_say_which(model, size, solver):
    found = stiff_method.stiff_method(model, 0.0, jnp.zeros(size), jnp.ones(3))
    assert (type(found.solver) if found.feasible else None) is solver
    assert str(size) in found.why


class BelowZero:
    stiff = True

    def __call__(self, t, y, args):
        return jnp.stack([-1e3 * y[0] - 1e3 * y[1], 0.1 * y[1]])


@pytest.mark.x64
def test_a_state_that_runs_away_below_zero_is_warned_of():
    model = BelowZero()
    with pytest.warns(RuntimeWarning, match="`positive=True`"):
        away = sciml.solve(model, jnp.array([1.0, 1.0]), t0=0.0, t1=60.0)
    assert away.solver == "Rodas5P" and away.ys[-1, 0] < -100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sciml.solve(model, jnp.array([1.0, 1.0]), t0=0.0, t1=20.0)  # not far
        sciml.solve(model, jnp.array([-1.0, 1.0]), t0=0.0, t1=60.0)  # it began there
        sciml.solve(model, jnp.array([1.0, 1.0]), t0=0.0, t1=60.0, solver=Rodas5P())


@pytest.mark.x64
def test_a_large_field_takes_backward_differences():
    """As its gradient does, also of steps so long that diffusion leaves nothing but the mean."""
    x = jnp.linspace(0.0, 1.0, 25)
    y0 = jnp.outer(jnp.cos(3 * x), jnp.cos(2 * x)).reshape(-1)
    direction = jnp.sin(jnp.arange(625.0))

    def end(y0, **options):
        return sciml.solve(field, y0, t0=0.0, t1=3.0, **options)

    def loss(y0, **options):
        return jnp.sum(end(y0, **options).ys ** 2)

    assert end(y0).solver == "BDF"
    tight = jax.jit(ft.partial(loss, solver=Rodas5P(), rtol=1e-8, atol=1e-11))
    close(loss(y0), tight(y0), rtol=1e-4)
    step = 1e-4
    exact = (tight(y0 + step * direction) - tight(y0 - step * direction)) / (2 * step)
    close(jnp.vdot(jax.grad(loss)(y0), direction), exact, rtol=1e-3)


@pytest.mark.x64
def test_what_is_asked_before():
    """Of large states, where every number is known, and nothing else has been asked for."""
    given = Request(t0=0.0, t1=1.0)
    y0 = jnp.ones(300)
    assert isinstance(method_before(chain, y0, given), Rodas5P)
    for other in (dict(t1=1e-3), dict(max_steps=10**7), dict(dt=0.1), dict(adjoint=sciml.adjoints.Gauss())):
        assert method_before(chain, y0, given._replace(**other)) is None
    assert method_before(chain, y0[:100], given) is None
    assert method_before(lambda t, y, args: -y, y0, given) is None
    seen = []
    jax.jit(lambda y: seen.append(method_before(chain, y, given)))(y0)
    jax.grad(lambda y: (seen.append(method_before(chain, y, given)), jnp.sum(y))[1])(y0)
    assert seen[0] is None and isinstance(seen[1], Rodas5P)


@pytest.mark.x64
def test_diffusion_that_only_multigrid_solves():
    """A stabilised method, unless steps are fixed, or too many by the eigenvalues at the start."""
    grid = Grid((8, 8))
    walls = {"x-": Dirichlet(1.0), "x+": Robin(a=1.0, b=0.5, c=0.0), "y": Neumann(0.0)}
    model, y0 = sciml.models.Diffusion(grid, walls, 1.0 + pulse(grid)), pulse(grid)

    def taken(model=model, y0=y0, **options):
        return sciml.solve(model, y0, **(dict(t0=0.0, t1=0.01) | options)).solver

    assert taken() == "ROCK(order=4)" and taken(y0=y0.astype(jnp.float32)) == "RKC2"
    assert taken(dt=5e-3) == taken(sciml.models.Diffusion(grid, Neumann(0.0))) == "ARK(order=3)"
    given = Request(t0=0.0, t1=1.0)
    assert method_before(model, y0, given) is None
    assert isinstance(method_before(model, y0, given._replace(t1=1e5)), ARK)
    stiff = sciml.models.Diffusion(grid, walls, 1e6 * (1.0 + pulse(grid)))
    assert isinstance(method_before(stiff, y0, given._replace(t1=100.0)), ARK)
    names = []
    jax.jit(lambda model: names.append(taken(model, throw=False)))(model)
    assert names == ["ROCK(order=4)"]  # by the type, where no number is known


def test_it_is_logged(caplog):
    stiff_method._log_once.cache_clear()
    with caplog.at_level(logging.INFO, "sciml.solvers"):
        solve("Van der Pol, stiff")
        solve("Van der Pol, stiff")
    assert [r.getMessage() for r in caplog.records if r.name == "sciml.solvers"] == [
        "No `solver` was given, and van_der_pol took `Tsit5` too many steps: using Rodas5P for 2 unknowns."
    ]


def test_a_limit_that_was_asked_for_is_one():
    with pytest.raises(sciml.SolveError, match="status `stiff`"):
        with sciml.kernels.use("xla"):  # a kernel does not ask why steps are short
            solve("Robertson", dtype=np.float32, max_steps=100)
