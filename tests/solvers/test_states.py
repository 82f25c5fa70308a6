"""States of every form: scalars, PyTrees, complex numbers, both precisions."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

LOOPS = {
    "scan": {"dt": 0.02},
    "fixed": {"dt": 0.02, "saveat": [0.5, 1.0]},
    "adaptive": {},
    "saves": {"saveat": [0.5, 1.0]},
}
each_loop = pytest.mark.parametrize("loop", LOOPS)


def solve(field, y0, loop, **options):
    return sciml.solve(field, y0, **{"t0": 0.0, "t1": 1.0, **LOOPS[loop], **options})


@each_loop
def test_times_come_first_and_dtypes_are_kept(loop, dtype):
    count = 2 if "saveat" in LOOPS[loop] else 1
    y0 = {"a": jnp.ones((2, 3), dtype), "b": (jnp.zeros((), dtype), jnp.ones(1, dtype))}
    sol = solve(lambda t, y, args: jax.tree.map(jnp.cos, y), y0, loop)
    assert jax.tree.structure(sol.ys) == jax.tree.structure(y0)
    jax.tree.map(lambda y, start: (y.shape, y.dtype) == ((count, *start.shape), dtype) or pytest.fail(), sol.ys, y0)
    assert sol.ts.shape == (count,) and sol.ts.dtype == dtype and sol.t_reached.dtype == dtype
    assert sol.status.dtype == np.int32 and sol.status.shape == ()
    assert all(x.dtype == np.int32 and x.shape == () for x in sol.stats)


@each_loop
def test_scalar_state(loop):
    for y0 in (1.0, np.float32(1.0), jnp.ones(())):
        sol = solve(lambda t, y, args: -y, y0, loop)
        assert sol.ys.shape == sol.ts.shape
        np.testing.assert_allclose(sol.ys, np.exp(-sol.ts), rtol=2e-4)


@each_loop
def test_complex_state(loop):
    sol = solve(
        lambda t, y, args: jax.lax.complex(0.0, 3.0).astype(y.dtype) * y, jnp.array([1.0 + 0j, 1j], np.complex64), loop
    )
    assert sol.ys.dtype == np.complex64 and sol.ts.dtype == np.float32
    expected = np.exp(3j * np.asarray(sol.ts))[:, None] * np.array([1, 1j])
    np.testing.assert_allclose(sol.ys, expected, atol=2e-3)


@each_loop
def test_real_and_complex_leaves_together(loop):
    def field(t, y, args):
        return {"x": -y["x"], "z": jax.lax.complex(jnp.zeros_like(y["x"]), y["x"]) * y["z"]}

    y0 = {"x": jnp.ones(1, np.float32), "z": jnp.ones(1, np.complex64)}
    sol = solve(field, y0, loop)
    ts = np.asarray(sol.ts)[:, None]
    np.testing.assert_allclose(sol.ys["z"], np.exp(1j * (1 - np.exp(-ts))), atol=1e-3)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("solver", [diffrax.Tsit5(), sciml.solvers.Rosenbrock23()], ids=["tsit5", "rosenbrock23"])
@pytest.mark.parametrize("loop", ["adaptive", "saves"])
def test_half_precision(loop, solver, dtype):
    """With tolerances by default. An element of zero is scaled by `atol` alone, whose inverse squared overflows."""

    def end(y0, rate):
        sol = solve(lambda t, y, rate: jnp.stack([y[1], -rate * y[0]]), y0, loop, args=rate, solver=solver)
        return sol.ys[-1], sol.status

    y0, rates = jnp.array([[1, 0], [0, 1]], dtype), jnp.ones(2, dtype)
    ends, status = jax.vmap(end)(y0, rates)
    gradient = jax.grad(lambda rates: jnp.sum(jax.vmap(end)(y0, rates)[0][:, 0]))(rates)
    # the relative tolerance is 1e-2 by default, and steps add rounding errors to that
    c, s, bound = np.cos(1), np.sin(1), max(1e-2, 8 * float(jnp.finfo(dtype).eps))
    assert ends.dtype == gradient.dtype == dtype and status.tolist() == [0, 0]
    np.testing.assert_allclose(np.asarray(ends, float), [[c, -s], [s, c]], atol=bound)
    np.testing.assert_allclose(np.asarray(gradient, float), [-s / 2, (c - s) / 2], atol=bound)


@pytest.mark.x64
@each_loop
def test_leaves_of_both_precisions(loop):
    y0 = {"low": jnp.ones(2, np.float32), "high": jnp.ones(2, np.float64)}
    sol = solve(lambda t, y, args: jax.tree.map(jnp.negative, y), y0, loop)
    assert sol.ys["low"].dtype == np.float32 and sol.ys["high"].dtype == np.float64 == sol.ts.dtype
    np.testing.assert_allclose(sol.ys["high"][-1], np.exp(-1.0), rtol=1e-5)


@pytest.mark.parametrize(
    "size, loop",
    [(17, "scan"), (300, "scan"), (130, "saves")]
    + [pytest.param(*case) for case in ((5, "scan"), (130, "scan"), (5, "saves"), (300, "saves"))],
)
def test_states_of_any_size(loop, size):
    """Small states are unstacked, large ones stacked; see `kernels._lanes`."""
    y0 = np.linspace(0.5, 1.5, size).astype(np.float32)

    def end(y0):
        return solve(lambda t, y, args: jnp.roll(y, 1) - y, y0, loop).ys[-1]

    one = end(y0)
    np.testing.assert_allclose(jnp.sum(one), np.sum(y0), rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(end)(np.stack([y0, 2 * y0])), np.stack([one, 2 * one]), rtol=1e-4)


def test_args_of_every_kind():
    """Leaves that are not differentiated: numbers, strings, None, functions, integers, truth values, keys."""
    key = jax.random.key(3)
    args = {
        "rate": 2.0, "name": "decay", "none": None, "fn": jnp.negative, "power": 1, "index": jnp.array([1, 0]),
        "on": jnp.array(True), "key": key, "raw": jax.random.key_data(key), "table": np.arange(3.0, dtype=np.float32),
    }  # fmt: skip

    def field(t, y, args):
        assert args["name"] == "decay" and args["none"] is None and args["power"] == 1
        noise = jax.random.normal(args["key"], y.shape, y.dtype)
        moved = y[args["index"]] * args["rate"].astype(y.dtype)
        return jnp.where(args["on"], args["fn"](moved), noise) + 0 * noise + 0 * args["table"][0]

    def end(y0, args):
        return sciml.solve(field, y0, t0=0.0, t1=1.0, dt=0.05, args=args).ys[-1]

    y0 = jnp.array([1.0, 0.5], np.float32)
    expected = np.array([0.5 * np.exp(-2) * 1.5 - 0.5 * np.exp(2) * -0.5, 0.0])
    exact = 0.75 * np.exp(-2.0) * np.ones(2) + 0.25 * np.exp(2.0) * np.array([1, -1])
    del expected
    np.testing.assert_allclose(end(y0, args), exact, rtol=1e-4)
    gradient = jax.grad(lambda y0: jnp.sum(end(y0, args)))(y0)
    np.testing.assert_allclose(gradient, np.full(2, np.exp(-2.0)), rtol=1e-4)
    keys = jax.random.split(key, 3)
    batch = jax.vmap(lambda key, on: end(y0, args | {"key": key, "on": on}))(keys, jnp.array([True, False, True]))
    np.testing.assert_allclose(batch[0], exact, rtol=1e-4)
    np.testing.assert_allclose(batch[1], y0 + jax.random.normal(keys[1], (2,), np.float32), rtol=1e-4)


def test_keys_and_integers_do_not_disturb_the_gradient():
    def loss(rate, key, index):
        def field(t, y, args):
            return -rate * y[args[1]] * jnp.exp(0 * jax.random.uniform(args[0], dtype=y.dtype))

        return jnp.sum(sciml.solve(field, jnp.ones(2), t0=0.0, t1=1.0, args=(key, index), rtol=1e-5).ys)

    key, index = jax.random.key(0), jnp.array([0, 1])
    found = jax.vmap(jax.grad(loss), in_axes=(0, 0, None))(jnp.array([1.0, 2.0]), jax.random.split(key, 2), index)
    np.testing.assert_allclose(found, -2 * np.exp([-1.0, -2.0]), rtol=1e-4)


COMPLEX = {
    "BDF": dict(solver=sciml.solvers.BDF()),
    "Radau5": dict(solver=sciml.solvers.Radau5()),
    "event": dict(events=sciml.Event(lambda t, y, args: y[0].real, lambda t, y, args: 2 * y)),
    "delays": {},
}


@pytest.mark.parametrize("case", COMPLEX)
def test_complex_states_between_steps(case):
    """An interpolation weighs complex states with real times, which strict promotion does not multiply."""
    y0 = jnp.ones(1, jnp.result_type(1j))
    ts = jnp.array([0.3, 0.77, 2.0])

    def states(rate):
        field = lambda t, y, rate: 1j * rate.astype(y.dtype) * y  # noqa: E731
        model = sciml.Delayed(lambda t, y, past, a: field(t, y, a) + 0 * past, 0.5, history=y0)
        options = dict(t0=0.0, t1=2.0, args=rate, saveat=ts, rtol=1e-5, atol=1e-6) | COMPLEX[case]
        return sciml.solve(model if case == "delays" else field, y0, **options).ys[:, 0]

    rate = jnp.array(1.3)
    passed = np.array([1.0, 1.0, 2.0 if case == "event" else 1.0])  # at 1.208
    np.testing.assert_allclose(states(rate), passed * np.exp(1.3j * np.asarray(ts)), atol=2e-4)
    if case == "event":
        slope = jax.grad(lambda rate: states(rate)[-1].real)(rate)
        np.testing.assert_allclose(slope, -4 * np.sin(2.6), rtol=2e-3)
