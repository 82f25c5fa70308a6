"""What an equation conserves, kept by every step: `project`."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.solvers import Rodas5P

from ...common import close

MODEL = sciml.models.Kepler()
Y0 = np.array([0.7, 0.0, 0.0, np.sqrt(1.3 / 0.7)])


def invariants(y):
    """Energy and angular momentum of an orbit."""
    return {"energy": MODEL.energy(y), "momentum": y[0] * y[3] - y[1] * y[2]}


def drift(y):
    change = jax.tree.map(lambda a, b: np.abs(np.asarray(a - b)), invariants(y), invariants(jnp.asarray(Y0, y.dtype)))
    return max(jax.tree.leaves(change))


run = ft.partial(sciml.solve, MODEL, t0=0.0)


@pytest.mark.x64
@pytest.mark.parametrize("solver", [diffrax.Tsit5(), diffrax.Bosh3(), Rodas5P()], ids=lambda s: type(s).__name__)
def test_an_orbit(solver):
    options = dict(y0=Y0, t1=100.0, rtol=1e-5, atol=1e-7, solver=solver, max_steps=100_000)
    free, kept = run(**options), run(**options, project=invariants)
    exact = run(Y0, t1=100.0, rtol=1e-12, atol=1e-13).ys[-1]
    assert drift(free.ys[-1]) > 1e-6 and drift(kept.ys[-1]) < 1e-13
    assert np.abs(kept.ys[-1] - exact).max() < 0.5 * np.abs(free.ys[-1] - exact).max()


def test_float32():
    y0 = jnp.asarray(Y0, jnp.float32)
    assert drift(run(y0, t1=50.0, rtol=1e-4, atol=1e-5, project=invariants).ys[-1]) < 2e-5


@pytest.mark.x64
def test_keeps_the_order():
    exact = run(Y0, t1=2.0, rtol=1e-12, atol=1e-13).ys[-1]

    def error(steps):
        return np.abs(run(Y0, t1=2.0, dt=2.0 / steps, project=invariants).ys[-1] - exact).max()

    assert np.log2(error(32) / error(64)) > 4.8


@pytest.mark.x64
@pytest.mark.parametrize("adjoint", ["Checkpointed", "Direct", "Forward"])
def test_gradients(adjoint):
    def loss(scale):
        sol = run(scale * Y0, t1=2.0, dt=0.1, project=invariants, adjoint=getattr(sciml.adjoints, adjoint)())
        return jnp.sum(jnp.sin(sol.ys))

    step = 1e-6
    derivative = jax.jacfwd(loss) if adjoint == "Direct" else jax.grad(loss)
    close(derivative(1.0), (loss(1 + step) - loss(1 - step)) / (2 * step), rtol=1e-6)


@pytest.mark.x64
def test_ensembles_and_their_gradients():
    def loss(scale):
        return jnp.sum(jnp.sin(run(scale * Y0, t1=2.0, rtol=1e-6, atol=1e-8, project=invariants).ys))

    scales = jnp.array([0.9, 1.0, 1.1])
    alone = jax.jit(jax.grad(loss))
    each = jnp.stack([alone(s) for s in scales])
    close(jax.jit(jax.vmap(jax.grad(loss)))(scales), each, rtol=1e-8)
    close(jax.jit(jax.grad(lambda s: jax.vmap(loss)(s).sum()))(scales), each, rtol=1e-8)


@pytest.mark.x64
def test_with_what_must_stay_positive():
    """A closed chain of reactions conserves its total, but for what is clipped."""

    def chain(t, y, args):
        return jnp.stack([-50 * y[0], 50 * y[0] - y[1], y[1]])

    sol = sciml.solve(
        chain, jnp.array([1.0, 0.0, 0.0]), t0=0.0, t1=10.0, rtol=1e-4, atol=1e-4, positive=True, project=jnp.sum
    )
    assert np.all(np.asarray(sol.ys) >= 0)
    assert abs(sol.ys[-1].sum() - 1) < 1e-2


def test_bad_arguments():
    with pytest.raises(TypeError, match="project"):
        run(Y0, t1=1.0, project=3.0)
    with pytest.raises(ValueError, match="from one to 8 conserved quantities, but returns 9"):
        run(Y0, t1=1.0, project=lambda y: jnp.zeros(9))
    with pytest.raises(TypeError, match="must return real numbers, but returns int"):
        run(Y0, t1=1.0, project=lambda y: jnp.zeros(1, int))
    with pytest.raises(ValueError, match="diffrax runs this one"):
        run(Y0, t1=1.0, project=invariants, solver=diffrax.ImplicitEuler())
    algebraic = Rodas5P(mass=np.diag([1.0, 0.0]))
    with pytest.raises(ValueError, match="`positive` and `project` together do not support a mass matrix"):
        sciml.solve(
            lambda t, y, args: jnp.stack([-y[0], y[0] + y[1] - 1]), jnp.array([0.7, 0.3]),
            t0=0.0, t1=1.0, solver=algebraic, positive=True, project=jnp.sum,
        )  # fmt: skip


def test_a_method_of_a_model_says_what_is_conserved():
    model, y0 = sciml.models.HarmonicOscillator(), jnp.array([1.0, 0.3])

    def drift(**options):
        return abs(
            model.energy(sciml.solve(model, y0, t0=0.0, t1=3.0, dt=0.6, **options).ys[-1]) / model.energy(y0) - 1
        )

    assert drift(project=model.energy) < 10 * jnp.finfo(y0.dtype).eps
    assert drift() > 2e-6


def test_what_depends_on_a_traced_parameter_is_for_direct():
    def end(omega, adjoint):
        model = sciml.models.HarmonicOscillator(omega=omega)
        options = dict(project=lambda y: model.energy(y), adjoint=adjoint)
        return sciml.solve(model, jnp.array([1.0, 0.3]), t0=0.0, t1=0.5, dt=0.25, **options).ys[-1, 0]

    with pytest.raises(TypeError, match=r"`project` depends on values that JAX traces.*adjoint=sciml.adjoints.Direct"):
        jax.grad(end)(1.3, sciml.adjoints.Checkpointed())
    direct = sciml.adjoints.Direct()
    around = (end(1.3 + 1e-2, direct) - end(1.3 - 1e-2, direct)) / 2e-2
    np.testing.assert_allclose(jax.grad(end)(1.3, direct), around, rtol=1e-3)


def _pendulum(t, y, length):
    """In Cartesian coordinates: the tension follows from the second derivative of the constraint."""
    q, v = y
    gravity, normal = jnp.array([0.0, -9.81]), jax.grad(lambda q: (q @ q - length**2) / 2)
    turn = jax.jvp(normal, (q,), (v,))[1]
    tension = (normal(q) @ gravity + v @ turn) / (normal(q) @ normal(q))
    return v, gravity - tension * normal(q)


@pytest.mark.x64
def test_a_pendulum_in_cartesian_coordinates():
    """A constraint of index three, reduced and held over 50 swings."""

    def swing(length, **options):
        start = jnp.stack([length, 0 * length]), jnp.zeros(2)
        return sciml.solve(
            _pendulum, start, t0=0.0, t1=100.0, args=length, rtol=1e-10, atol=1e-10, solver=diffrax.Dopri8(),
            project=lambda y: jnp.stack([y[0] @ y[0], y[0] @ y[1]]), max_steps=4096, **options,
        )  # fmt: skip

    sol = swing(jnp.array(1.0), saveat=diffrax.SaveAt(steps=True))
    q, v = (x[: sol.stats.accepted] for x in sol.ys)
    np.testing.assert_allclose(jnp.sum(q**2, axis=1), 1, atol=1e-10)
    np.testing.assert_allclose(jnp.sum(q * v, axis=1), 0, atol=1e-10)
    np.testing.assert_allclose(jnp.sum(v**2, axis=1) / 2 + 9.81 * q[:, 1], 0, atol=1e-6)

    def end(length):
        return swing(length).ys[0][-1, 0]

    h = 1e-5  # shorter ones show the noise of the steps
    differences = (end(jnp.array(1 + h)) - end(jnp.array(1 - h))) / (2 * h)
    np.testing.assert_allclose(jax.grad(end)(jnp.array(1.0)), differences, rtol=1e-5)
