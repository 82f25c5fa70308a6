"""States saved within steps by lanes that run free of each other's saved times, and their gradients."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import adjoints
from sciml.inspect._hlo_text import parse
from sciml.solvers import Rodas5P, Rosenbrock23
from sciml.solvers.integrate import _saved_times, _while_loop
from sciml.solvers.integrate._interpolation import interpolation_of
from sciml.solvers.methods.explicit._runge_kutta import from_diffrax

NET = eqx.nn.MLP(2, 2, 8, 1, jnp.tanh, key=jax.random.key(0))
STARTS = jax.random.normal(jax.random.key(1), (5, 2)) * jnp.linspace(0.1, 3.0, 5)[:, None]
TIMES = np.array([0.0, 0.0, 0.3, 0.31, 0.32, 0.32, 0.9, 1.5, 1.9])
FINE = dict(rtol=1e-5, atol=1e-6)
METHODS = {
    "Heun": diffrax.Heun(),
    "Bosh3": diffrax.Bosh3(),
    "Tsit5": diffrax.Tsit5(),
    "Dopri8": diffrax.Dopri8(),
    "Rosenbrock23": Rosenbrock23(),
    "Rodas5P": Rodas5P(),
}


@pytest.fixture(params=["free", "waiting"])
def how(request, monkeypatch):
    choose(request.param, monkeypatch)
    return request.param


def choose(how, monkeypatch):
    monkeypatch.setattr(_while_loop, "run_free", lambda *args: how == "free")
    jax.clear_caches()


def both(monkeypatch, fn):
    found = []
    for how in ("free", "waiting"):
        choose(how, monkeypatch)
        found.append(fn())
    return found


def field(t, y, net):
    return net(y) - 0.3 * y * jnp.cos(t).astype(y.dtype)


def run(y, net, *, t0=0.0, t1=2.0, saveat=TIMES, **options):
    return sciml.solve(field, y, t0=t0, t1=t1, args=net, saveat=saveat, **FINE | options).ys


def close(a, b, **tolerances):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerances), a, b)


def loss(net, starts, weights, **options):
    ys = eqx.filter_vmap(lambda y: run(y, net, **options))(starts)
    return jnp.sum(weights * ys)


WEIGHTS = jax.random.normal(jax.random.key(2), (5, len(TIMES), 2))
EPS = float(jnp.finfo(STARTS.dtype).eps)


@pytest.mark.parametrize("method", METHODS)
def test_values_and_gradients_are_those_of_members_that_wait(method, monkeypatch):
    options = dict(solver=METHODS[method])

    def compute():
        by_all = eqx.filter_jit(eqx.filter_value_and_grad(lambda both: loss(*both, WEIGHTS, **options)))
        return by_all((NET, STARTS))

    free, waiting = both(monkeypatch, compute)
    close(free, waiting, rtol=2e4 * EPS, atol=2e4 * EPS)


@pytest.mark.parametrize("method", METHODS)
def test_every_member_is_what_it_is_alone(method, how):
    options = dict(solver=METHODS[method])
    many = jax.vmap(lambda y: run(y, NET, **options))(STARTS)
    alone = jnp.stack([run(y, NET, **options) for y in STARTS])
    close(many, alone, rtol=2e4 * EPS, atol=2e4 * EPS)
    np.testing.assert_array_equal(many[:, 0], STARTS)
    np.testing.assert_array_equal(many[:, 4], many[:, 5])


def test_times_of_ones_own_and_backwards_in_time(how):
    times = jnp.sort(jax.random.uniform(jax.random.key(3), (5, 7), STARTS.dtype), axis=1) * 2

    def total(starts, sign):
        own = jax.vmap(lambda y, ts: run(y, NET, t1=2.0 * sign, saveat=sign * ts))
        return jnp.sum(own(starts, times) ** 2)

    for sign in (1.0, -1.0):
        found = jax.jit(jax.grad(total))(STARTS, sign)
        step = 1e-3
        for member in (0, 3):
            shift = jnp.zeros_like(STARTS).at[member, 1].set(step)
            slope = (total(STARTS + shift, sign) - total(STARTS - shift, sign)) / (2 * step)
            np.testing.assert_allclose(found[member, 1], slope, rtol=2e-2, atol=2e-2 if EPS > 1e-10 else 1e-4)


def test_more_steps_than_are_recorded(how, monkeypatch):
    """The backward pass runs the loop again, free of the saved times."""
    options = dict(max_steps=4096, rtol=1e-6, atol=1e-7) if EPS < 1e-10 else dict(max_steps=4096)
    grads = [
        eqx.filter_jit(
            eqx.filter_grad(lambda net: loss(net, STARTS, WEIGHTS, adjoint=adjoint, solver=diffrax.Heun(), **options))
        )(NET)
        for adjoint in (adjoints.Checkpointed(segments=16), adjoints.Checkpointed())
    ]
    close(*grads, rtol=1e-3, atol=1e-3 if EPS > 1e-10 else 1e-8)


@pytest.mark.x64
def test_states_that_are_trees_of_several_dtypes(how):
    def tree(t, y, k):
        return {"a": -k * y["a"], "b": jnp.asarray(1j, y["b"].dtype) * y["b"]}

    def values(k):
        y0 = {"a": jnp.ones((3, 2), jnp.float32), "b": jnp.ones((), jnp.complex128)}
        sol = sciml.solve(
            tree, y0, t0=0.0, t1=1.0, args=k.astype(jnp.float32), saveat=[0.25, 0.5, 1.0], rtol=1e-5, atol=1e-6
        )
        return sol.ys

    rates = jnp.linspace(0.5, 2.0, 4)

    def second(k):
        ys = values(k)
        return jnp.sum(ys["a"][1]).astype(jnp.float64) + jnp.real(ys["b"][2]), ys

    slope, found = jax.jit(jax.vmap(jax.grad(second, has_aux=True)))(rates)
    at = jnp.array([0.25, 0.5, 1.0])
    np.testing.assert_allclose(found["a"][:, :, 2, 1], jnp.exp(-rates[:, None] * at[None]), rtol=1e-4)
    np.testing.assert_allclose(found["b"], np.broadcast_to(np.exp(1j * np.asarray(at)), (4, 3)), rtol=1e-4)
    np.testing.assert_allclose(slope, -0.5 * 6 * jnp.exp(-0.5 * rates), rtol=1e-3)


def test_members_that_fail(how):
    """They are NaN from where they failed, and the others are whole, in value and in gradient."""

    def member(y):
        sol = sciml.solve(
            lambda t, y, a: y**2, y, t0=0.0, t1=1.0, saveat=[0.1, 0.4, 0.9], throw=False, max_steps=200, **FINE
        )
        return sol.ys, sol.status

    starts = jnp.array([0.5, 2.0, 1.0])  # the second one blows up at 0.5
    ys, status = jax.vmap(member)(starts)
    assert (np.asarray(status) != 0).tolist() == [False, True, False]
    exact = starts[:, None] / (1 - starts[:, None] * jnp.array([[0.1, 0.4, 0.9]]))
    np.testing.assert_allclose(ys[jnp.array([0, 2])], exact[jnp.array([0, 2])], rtol=1e-3)
    np.testing.assert_allclose(ys[1, :2], exact[1, :2], rtol=1e-3)
    assert np.isnan(ys[1, 2])
    good = jax.grad(lambda starts: jnp.sum(jax.vmap(member)(starts)[0][jnp.array([0, 2])]))(starts)
    np.testing.assert_allclose(
        good[jnp.array([0, 2])], jnp.sum((exact / starts[:, None]) ** 2, 1)[jnp.array([0, 2])], rtol=1e-3
    )


def test_second_derivatives(how):
    def total(k):
        ys = jax.vmap(
            lambda y: sciml.solve(lambda t, y, k: -k * y, y, t0=0.0, t1=1.0, args=k, saveat=[0.5, 1.0], **FINE).ys
        )
        return jnp.sum(ys(jnp.array([1.0, 2.0])))

    second = jax.jit(jax.jacfwd(jax.grad(total)))(jnp.array(0.7))
    np.testing.assert_allclose(second, 3 * (0.25 * np.exp(-0.35) + np.exp(-0.7)), rtol=1e-3)


def test_nobody_waits():
    """With a network all lanes take the steps of the slowest member, and not those of the slowest in each interval."""
    wide = eqx.nn.MLP(2, 2, 64, 2, activation=jnp.tanh, key=jax.random.key(0))

    def member(rate):
        def stepped(t, y, a):
            return wide(y) * (1 + 20 * jnp.exp(-400 * (t - rate) ** 2))  # where each is slow differs

        options = dict(t0=0.0, t1=2.0, throw=False, **FINE)
        return [sciml.solve(stepped, jnp.ones(2), saveat=ts, **options) for ts in (np.linspace(0, 2, 21), None)]

    many, alone = jax.vmap(member)(jnp.linspace(0.2, 1.8, 8))
    own = np.asarray(alone.stats.accepted + alone.stats.rejected)
    np.testing.assert_array_equal(many.stats.accepted, alone.stats.accepted)
    assert (np.asarray(many.stats.executed) == own.max()).all()


@pytest.mark.parametrize("method", METHODS)
def test_interpolations_are_polynomials(method):
    stepper = METHODS[method]
    stepper = from_diffrax(stepper) or stepper.stepper(jnp.ones(3))
    found = interpolation_of(stepper)
    terms = [x for x in jax.random.normal(jax.random.key(0), (len(found.matrix), 3))]
    scaled = [0.3 * x if by else x for x, by in zip(terms, found.by_length)]
    for theta in (0.0, 0.2, 0.77, 1.0):
        expected = stepper.interpolate(jnp.asarray(theta), jnp.asarray(0.3), terms[0], terms[1], tuple(terms[2:]))
        powers = theta ** np.arange(len(found.matrix[0]))
        np.testing.assert_allclose(
            sum(row @ powers * x for row, x in zip(np.array(found.matrix), scaled)),
            expected,
            rtol=1e3 * EPS,
            atol=1e3 * EPS,
        )


def test_what_runs_free():
    """Small formulas wait for each other, but for few members on what is told of each iteration; networks do not."""
    asked = []
    free = _saved_times.run_free

    def ask(*args):
        asked.append(free(*args))
        return asked[-1]

    def of(model, shape, count):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_while_loop, "run_free", ask)
            jax.clear_caches()
            solve = lambda y: sciml.solve(model, y, t0=0.0, t1=1.0, saveat=np.linspace(0, 1, 9), **FINE).ys  # noqa: E731
            jax.eval_shape(jax.vmap(solve), jax.ShapeDtypeStruct((count, *shape), jnp.float32))
        return asked[-1]

    lorenz = sciml.models.Lorenz63()
    on_cpu = jax.default_backend() == "cpu"
    assert of(lorenz, (3,), 4) != on_cpu and not of(lorenz, (3,), 5000)
    large = jnp.ones((64, 2), jnp.float32)
    assert of(lambda t, y, a: large.T @ jnp.tanh(large @ y), (2,), 5000)


@pytest.mark.optimised
def test_going_back_a_saved_state_adds_to_the_coefficients_of_a_polynomial(monkeypatch):
    """Not to the cotangents of seven stages; and what it reads has the members side by side, as vectors need."""
    choose("waiting", monkeypatch)
    members, numbers = 96, 3

    def total(rates):
        ends = jax.vmap(lambda rate: sciml.solve(lambda t, y, r: -r * y * y, jnp.ones(numbers), t0=0.0, t1=2.0,
                                                 args=rate, saveat=TIMES, **FINE).ys)  # fmt: skip
        return jnp.sum(ends(rates) ** 2)

    module = parse(jax.jit(jax.grad(total)).lower(jnp.linspace(0.5, 1.5, members)).compile().as_text())

    def gathers(body):
        return [x for x in body for name in x.calls for y in module.computations.get(name, ()) if y.opcode == "gather"]

    loops = [body for body in module.computations.values() if any(x.opcode == "custom-call" for x in body)]
    (loop,) = [body for body in loops if gathers(body)]
    assert all(f"[{members}" in x.shape and f",{numbers}" not in x.shape for x in gathers(loop))
    carried = [x for x in loop if x.opcode == "copy" and x.shape.split("{")[0].endswith(f"[{members}]")]
    assert len(carried) <= numbers * (1 + 5) + 1  # the state, five powers, and the place in the saved times
