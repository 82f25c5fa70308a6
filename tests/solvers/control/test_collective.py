"""Devices that hold parts of one state: the same steps as one device takes, or a refusal."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import inspect, parallel

pytestmark = pytest.mark.x64

RATE = jnp.asarray(0.3)


@pytest.fixture(scope="module")
def domain():
    return parallel.Domain(("x", "y"), mesh=parallel.mesh(member=1, x=4, y=2))


def start():
    return jnp.asarray(np.random.default_rng(0).normal(size=(16, 8)))


def allen_cahn(domain, t, u, rate):
    p = domain.pad(u, 1)
    return rate * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u) + u - u**3


def run(domain, options, u, rate):
    """Two stages: what XLA compiles for more takes long, and shows no more."""
    options = {"solver": diffrax.Heun(), "norm": domain.rms, **options}
    sol = sciml.solve(ft.partial(allen_cahn, domain), u, t0=0.0, t1=1.0, args=rate, throw=False, **options)
    return sol.ys[-1], (sol.status, sol.stats.accepted, sol.stats.rejected, sol.stats.evaluations, sol.t_reached)


CASES = {
    "adaptive": dict(rtol=1e-4, atol=1e-6),
    "saves": dict(rtol=1e-4, atol=1e-6, saveat=jnp.linspace(0.0, 1.0, 3)),
    "fixed": dict(dt=0.05),
    "traced dt": dict(dt=jnp.asarray(0.05)),
    "controller": dict(norm=None),
}


def options(domain, name):
    found = CASES[name]
    if name == "controller":
        found = dict(
            found, stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6, pcoeff=0.2, norm=domain.rms)
        )
    return found


@pytest.mark.parametrize("adjoint", [sciml.adjoints.Checkpointed(), sciml.adjoints.Direct()])
@pytest.mark.parametrize("name", CASES)
def test_same_steps_as_one_device(domain, name, adjoint):
    """What is returned as one number is proved to be one: the loop iterates equally often everywhere."""
    fn = ft.partial(run, domain, dict(options(domain, name), adjoint=adjoint))
    (one, numbers), (many, theirs) = fn(start(), RATE), domain.run(fn, start(), RATE)
    assert int(theirs[0]) == 0 and [float(x) for x in numbers] == [float(x) for x in theirs]
    np.testing.assert_allclose(many, one, rtol=1e-12, atol=1e-13)


def test_messages_of_a_step(domain):
    """Four for each evaluation, one for the error, one for whether to go on; nothing is gathered."""
    fn = ft.partial(run, domain, CASES["adaptive"])
    found = inspect.collectives(lambda u: domain.run(fn, u, RATE), start())
    assert {c.kind for c in found} == {"all-reduce", "collective-permute"}
    kinds = [c.kind for c in found if c.in_loop]
    assert kinds.count("all-reduce") == 2 and kinds.count("collective-permute") in (4, 8)


@pytest.mark.parametrize("name", CASES)
def test_gradient(domain, name):
    def loss(split, u, rate):
        fn = ft.partial(run, domain, options(domain, name))
        return jnp.sum((domain.run(fn, u, rate) if split else fn(u, rate))[0] ** 3)

    found, expected = (jax.jit(jax.grad(ft.partial(loss, s), argnums=(0, 1)))(start(), RATE) for s in (True, False))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12), found, expected)


def test_forward_mode(domain):
    def end(split, rate):
        fn = ft.partial(run, domain, dict(CASES["adaptive"], adjoint=sciml.adjoints.Direct()))
        return (domain.run(fn, start(), rate) if split else fn(start(), rate))[0]

    found, expected = (jax.jit(jax.jacfwd(ft.partial(end, s)))(RATE) * RATE for s in (True, False))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["adaptive", "fixed", "traced dt"])
def test_a_failure_is_everybodys(domain, name):
    status = domain.run(lambda u: run(domain, options(domain, name), u, RATE)[1][0], start().at[3, 3].set(1e200))
    assert sciml.Status(int(status)) is sciml.Status.nonfinite


def test_members_that_span_devices():
    domain, mesh = parallel.Domain(("x", "y")), parallel.mesh(member=2, x=2, y=2)
    scales = jnp.linspace(0.5, 1.5, 4)

    def end(scale, rate):
        return domain.run(ft.partial(run, domain, CASES["adaptive"]), scale * start(), rate)[0]

    def plain(scale, rate):
        return run(domain, CASES["adaptive"], scale * start(), rate)[0]

    def total(rate, split):
        ends = parallel.ensemble(end, scales, rate, mesh=mesh) if split else [plain(s, rate) for s in scales]
        return jnp.sum(jnp.stack(list(ends)) ** 3)

    fn = jax.jit(jax.value_and_grad(total), static_argnums=1)
    (found, slope), (expected, by_hand) = (fn(RATE, s) for s in (True, False))
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    np.testing.assert_allclose(slope, by_hand, rtol=1e-9)


def test_refusals(domain):
    def solve(**options):
        fn = ft.partial(allen_cahn, domain)
        return lambda u: sciml.solve(fn, u, t0=0.0, t1=1.0, args=RATE, throw=False, **options).ys[-1]

    with pytest.raises(ValueError, match=r"communicates along the mesh axes \['x', 'y'\].*norm=domain.rms"):
        domain.run(solve(), start())
    with pytest.raises(ValueError, match=r"`adjoint=Gauss\(\)` does not support a state that is split"):
        domain.run(solve(norm=domain.rms, adjoint=sciml.adjoints.Gauss()), start())

    controller = diffrax.PIDController(rtol=1e-4, atol=1e-6, norm=domain.rms)
    with pytest.raises(ValueError, match="either as `norm` or in `stepsize_controller`"):
        solve(norm=domain.rms, stepsize_controller=controller)(start())


def test_norms_on_one_device():
    """The largest element in place of the mean: more steps, and diffrax's own number of them."""

    def largest(y):
        return jnp.max(jnp.abs(y))

    def field(t, y, args):
        return jnp.stack([y[1], -y[0]])

    options = dict(t0=0.0, t1=6.0, rtol=1e-6, atol=1e-6)
    mean = sciml.solve(field, jnp.array([1.0, 0.0]), **options)
    sol = sciml.solve(field, jnp.array([1.0, 0.0]), norm=largest, **options)
    assert sol.stats.accepted > mean.stats.accepted
    controller = diffrax.PIDController(rtol=1e-6, atol=1e-6, norm=largest)
    term = diffrax.ODETerm(field)
    peer = diffrax.diffeqsolve(
        term, diffrax.Tsit5(), 0.0, 6.0, 0.1, jnp.array([1.0, 0.0]), stepsize_controller=controller
    )
    ours = sciml.solve(field, jnp.array([1.0, 0.0]), t0=0.0, t1=6.0, dt0=0.1, stepsize_controller=controller)
    assert int(ours.stats.accepted) == int(peer.stats["num_accepted_steps"])
    np.testing.assert_allclose(ours.ys[-1], peer.ys[-1], rtol=1e-5)
    with pytest.raises(TypeError, match="`norm` must be hashable"):
        sciml.solve(field, jnp.array([1.0, 0.0]), t0=0.0, t1=1.0, norm=Unhashable())


class Unhashable:
    __hash__ = None

    def __call__(self, y):
        return jnp.max(y)
