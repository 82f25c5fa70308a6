"""Ensembles in one kernel: interpreted against XLA over lanes, lowered for GPU and TPU, and what they refuse."""

import dataclasses
import importlib
import logging

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.sharding import Mesh, PartitionSpec as P

import sciml
from sciml import kernels
from sciml.kernels.ensemble import _flat, _run
from sciml.kernels.ensemble._member import Members, UntilDone
from sciml.solvers.integrate import _ensemble_kernel

from ..running import believe, solve

COUNT = 150  # no block divides it


def lotka_volterra(t, y, p):
    return jnp.stack([p * y[0] - y[0] * y[1], y[0] * y[1] - y[1]])


def lorenz(t, y, p):
    return jnp.stack([p[0] * (y[1] - y[0]), y[0] * (p[1] - y[2]) - y[1], y[0] * y[1] - p[2] * y[2]])


def robertson(t, y, k):
    slow, fast, rest = k[0] * y[0], k[1] * y[1] * y[2], k[2] * y[1] ** 2
    return jnp.stack([-slow + fast, slow - fast - rest, rest])


def rates(count=COUNT, dtype=jnp.float32):
    return jnp.linspace(0.5, 2.0, count, dtype=dtype)


def run(impl, model=lotka_volterra, y0=(1.0, 2.0), params=None, t1=1.0, **how):
    params = rates() if params is None else params
    start = jnp.asarray(y0, jax.tree.leaves(params)[0].dtype)

    def member(p):
        return solve(model, start, t0=0.0, t1=t1, args=p, impl=impl, **how)

    return jax.jit(jax.vmap(member))(params)


def check(impl, tolerance=1e-5, **how):
    found, expected = run(impl, **how), run("xla", **how)
    np.testing.assert_array_equal(found.stats.accepted, expected.stats.accepted)
    np.testing.assert_array_equal(found.stats.rejected, expected.stats.rejected)
    np.testing.assert_array_equal(found.status, expected.status)
    np.testing.assert_array_equal(found.t_reached, expected.t_reached)
    np.testing.assert_allclose(found.ys, expected.ys, rtol=tolerance, atol=tolerance * float(jnp.nanmax(expected.ys)))
    return found, expected


WITHIN = dict(rtol=1e-4, atol=1e-6, solver=diffrax.Bosh3())
FINE = dict(rtol=1e-5, atol=1e-5)
LORENZ = dict(model=lorenz, y0=(1.0, 0.0, 0.0))


def lorenz_parameters(count=COUNT, dtype=jnp.float32):
    columns = jnp.full(count, 10.0, dtype), jnp.linspace(0, 28, count, dtype=dtype), jnp.full(count, 8 / 3, dtype)
    return jnp.stack(columns, -1)


@pytest.mark.parametrize("target", ["gpu", "tpu"])
@pytest.mark.x64
def test_the_steps_are_those_of_xla(target):
    found, _ = check(f"interpret_{target}", saveat=jnp.array([0.0, 0.3, 1.0]), **WITHIN)
    assert found.ys.shape == (COUNT, 3, 2) and len(set(np.asarray(found.stats.accepted))) > 1
    assert np.all(found.t_reached == 1)


@pytest.mark.parametrize("target", ["gpu", "tpu"])
@pytest.mark.x64
def test_fixed_steps_with_a_shorter_last_one(target):
    found, _ = check(f"interpret_{target}", dt=0.03, solver=diffrax.Heun())
    assert np.all(found.stats.accepted == 34)


@pytest.mark.parametrize("target, saves", [("gpu", None), ("tpu", 5)])
@pytest.mark.optimised
@pytest.mark.x64
def test_tsit5(target, saves):
    how = dict(params=lorenz_parameters(300), saveat=None if saves is None else jnp.linspace(0.0, 1.0, saves), **LORENZ)
    found, _ = check(f"interpret_{target}", **how, **FINE)
    assert int(found.stats.accepted.min()) < int(found.stats.accepted.max())


@pytest.mark.parametrize("target, solver", [("gpu", "Rodas5P"), ("tpu", "Rosenbrock23")])
@pytest.mark.x64
def test_stiff_methods(target, solver):
    # what is left of an error estimate after cancellation decides steps in float32, so XLA's differ by code as well
    wide = target == "gpu"
    k = jnp.array([0.04, 1e4, 3e7], jnp.float64 if wide else jnp.float32)
    params = jnp.outer(jnp.linspace(1, 1.5, COUNT, dtype=k.dtype), k)
    how = dict(model=robertson, y0=(1.0, 0.0, 0.0), params=params, t1=10.0, solver=getattr(sciml.solvers, solver)())
    if wide:
        check("interpret_gpu", 1e-9, rtol=1e-6, atol=1e-10, **how)
        return
    found, expected = (run(impl, rtol=1e-4, atol=1e-7, **how) for impl in ("interpret_tpu", "xla"))
    assert np.all(found.status == 0) and np.all(found.t_reached == 10)
    np.testing.assert_allclose(found.ys, expected.ys, rtol=1e-3, atol=1e-6)
    assert float(jnp.mean(jnp.abs(found.stats.accepted - expected.stats.accepted))) < 2


@pytest.mark.x64
def test_the_gpu_kernel_takes_float64_and_states_that_are_pytrees():
    def pendulum(t, y, args):
        return {"angle": y["rate"], "rate": -args["g"] * jnp.sin(y["angle"]) + 0.1 * jnp.cos(t)}

    def member(g, angle, impl):
        y0 = {"angle": angle, "rate": jnp.zeros(())}
        return solve(pendulum, y0, t0=1.0, t1=-1.0, args={"g": g}, rtol=1e-8, atol=1e-10, impl=impl)

    given = jnp.linspace(1.0, 9.0, COUNT), jnp.float64(0.5)
    found, expected = (
        jax.jit(jax.vmap(lambda g, a, impl=impl: member(g, a, impl), (0, None)))(*given)
        for impl in ("interpret_gpu", "xla")
    )
    np.testing.assert_array_equal(found.stats.accepted, expected.stats.accepted)
    for a, b in zip(jax.tree.leaves(found.ys), jax.tree.leaves(expected.ys), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)


@pytest.mark.x64
def test_members_that_fail_are_known_and_the_others_come_through():
    def field(t, y, p):
        return jnp.where(p < 1, y * y / p, -p * y)  # infinite at t = p, or stiff

    params = jnp.concatenate([jnp.linspace(0.1, 0.9, 100), jnp.linspace(1, 500, 100)]).astype(jnp.float32)
    how = dict(model=field, y0=1.0, params=params, saveat=jnp.linspace(0, 1, 4), **WITHIN)
    found, expected = (run(impl, max_steps=100, **how) for impl in ("interpret", "xla"))
    # a kernel does not ask why steps were short
    stiff = expected.status == int(sciml.Status.stiff)
    assert np.sum(stiff) > 10
    status = jnp.where(stiff, int(sciml.Status.max_steps_reached), expected.status)
    expected = dataclasses.replace(expected, status=status)
    assert {int(s) for s in np.unique(found.status)} == {int(s) for s in np.unique(expected.status)}
    assert np.mean(found.status != expected.status) < 0.02  # near infinity rounding decides
    good = np.asarray((found.status == 0) & (expected.status == 0))
    assert good.sum() > 20 and (~good).sum() > 100
    np.testing.assert_allclose(found.ys[good], expected.ys[good], rtol=1e-3, atol=1e-5)
    assert np.all(np.isnan(found.ys[found.status != 0, -1]))


@pytest.mark.x64
def test_times_and_states_of_ones_own():
    def member(p, y0, t1, times, impl):
        return solve(lotka_volterra, y0, t0=0.0, t1=t1, args=p, saveat=times, impl=impl, **WITHIN)

    ends = jnp.linspace(0.5, 1.5, COUNT, dtype=jnp.float32)
    starts = jnp.stack([rates(), rates()[::-1]], -1)
    given = rates(), starts, ends, jnp.outer(ends, jnp.array([0.1, 0.7, 1.0], jnp.float32))
    found, expected = (
        jax.jit(jax.vmap(lambda *x, impl=impl: member(*x, impl)))(*given) for impl in ("interpret_gpu", "xla")
    )
    np.testing.assert_array_equal(found.stats.accepted, expected.stats.accepted)
    np.testing.assert_array_equal(found.t_reached, ends)
    np.testing.assert_allclose(found.ys, expected.ys, rtol=1e-5)


@pytest.mark.parametrize("adjoint", ["Checkpointed", "Forward"])
@pytest.mark.x64
def test_gradients_are_those_of_xla(adjoint):
    y0 = jnp.array([1.0, 2.0], jnp.float32)

    def end(p, impl):
        how = dict(adjoint=getattr(sciml.adjoints, adjoint)(), impl=impl, rtol=1e-3, atol=1e-5, solver=diffrax.Bosh3())
        return solve(lotka_volterra, y0, t0=0.0, t1=1.0, args=p, **how).ys[-1, 0]

    def total(p, impl):
        return jnp.sum(jax.vmap(lambda p: end(p, impl))(p) ** 2)

    found, expected = (
        jax.jit(jax.grad(lambda p, impl=impl: total(p, impl)))(rates(20)) for impl in ("interpret", "xla")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.fixture
def bodies(monkeypatch):
    """The kernels that are launched."""
    found = []
    launch = _ensemble_kernel.run

    def seen(body, *args):
        found.append(body)
        return launch(body, *args)

    monkeypatch.setattr(_ensemble_kernel, "run", seen)
    return found


FORWARDS = {
    "fixed": dict(dt=0.25, solver=diffrax.Heun()),
    "adaptive": dict(rtol=1e-3, atol=1e-5, solver=diffrax.Bosh3()),
    "saves": dict(rtol=1e-3, atol=1e-5, solver=diffrax.Bosh3(), saveat=np.array([0.0, 0.3, 1.0])),
}


def sum_of_squares(p, y0, impl, how):
    def end(p, y0):
        return solve(
            lotka_volterra, y0, t0=0.0, t1=1.0, args=p, impl=impl, adjoint=sciml.adjoints.Forward(), **FORWARDS[how]
        ).ys

    return jnp.sum(jax.vmap(end, (0, None))(p, y0) ** 2)


@pytest.mark.parametrize("how, target", [("fixed", "tpu"), ("adaptive", "gpu"), ("saves", "tpu")])
@pytest.mark.x64
def test_columns_of_forward_run_in_the_same_kernel(how, target, bodies):
    given = rates(20), jnp.array([1.0, 2.0], jnp.float32)
    found, expected = (
        jax.jit(jax.grad(lambda p, y0, impl=impl: sum_of_squares(p, y0, impl, how), argnums=(0, 1)))(*given)
        for impl in (f"interpret_{target}", "xla")
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert bodies[-1].kernel == f"mosaic_{target}"
    # states of two numbers and three columns, and the time reached
    written = bodies[-1].saved if how == "saves" else bodies[-1].results
    assert written.count(np.dtype(np.float32)) == 2 + 3 * 2 + (how != "saves")


@pytest.mark.x64
def test_second_derivatives_with_columns_in_a_kernel(bodies):
    given = rates(5), jnp.array([1.0, 2.0], jnp.float32)
    found, expected = (
        jax.jit(jax.hessian(lambda p, impl=impl: sum_of_squares(p, given[1], impl, "fixed")))(given[0])
        for impl in ("interpret_tpu", "xla")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel, platform, call", [("gpu", "cuda", "mosaic_gpu"), ("tpu", "tpu", "tpu_custom_call")])
@pytest.mark.x64
def test_columns_lower_without_their_machine(kernel, platform, call):
    run = jax.jit(jax.grad(lambda p: sum_of_squares(p, jnp.ones(2, jnp.float32), f"mosaic_{kernel}", "adaptive")))
    text = run.trace(rates()).lower(lowering_platforms=(platform,)).as_text()
    assert text.count(f"@{call}") == 1


@pytest.mark.x64
def test_columns_that_a_kernel_cannot_hold_are_xlas(caplog, bodies):
    """The solution is the kernel's all the same."""

    def field(t, y, p):
        return -p[:8] * y

    def end(p):
        how = dict(
            t0=0.0, t1=1.0, dt=0.5, solver=diffrax.Heun(), adjoint=sciml.adjoints.Forward(), impl="interpret_tpu"
        )
        return solve(field, jnp.ones(8, jnp.float32), args=p, **how).ys.sum()

    with caplog.at_level(logging.INFO, "sciml.kernels"):
        jax.eval_shape(jax.grad(lambda p: jnp.sum(jax.vmap(end)(p))), jnp.ones((3, 40), jnp.float32))
    assert "a derivative of an ensemble runs with XLA, without a kernel: " in caplog.text
    assert "too large to take apart element by element" in caplog.text
    assert bodies and all(body.results.count(np.dtype(np.float32)) == 8 + 1 for body in bodies)


def decay() -> UntilDone:
    """Euler steps of one half, as a loop that knows no solver."""
    return UntilDone(
        start=lambda inputs: (inputs["y"], jnp.zeros_like(inputs["y"])),
        end=lambda inputs: inputs["end"],
        pending=lambda state, target: state[1] < target,
        advance=lambda state, inputs, target: jax.tree.map(
            lambda a, b: jnp.where(state[1] < target, a, b), (state[0] * 0.5, state[1] + 0.5), state
        ),
        saved=lambda state, inputs, target: state[0],
        result=lambda state, inputs: {"y": state[0], "t": state[1]},
    )


@pytest.mark.x64
def test_the_interpreter_of_gpus_agrees():
    params = getattr(plgpu, "InterpretGPUParams", None)
    if params is None:
        params = importlib.import_module("jax._src.pallas.mosaic_gpu.interpret.params").InterpretGPUParams
    inputs = {"y": jnp.ones((), jnp.float32), "end": jnp.arange(5, dtype=jnp.float32)}
    members = Members(inputs, (True, False), 5)  # in the order of the keys
    body = _run.build(decay(), members, "mosaic_gpu")
    for interpret in (True, params(detect_races=True)):
        result, saved, iterations = _run.run(body, members, interpret)
        np.testing.assert_array_equal(result["y"], 0.25 ** np.arange(5))
        assert saved is None and np.all(iterations == 8)


METHODS = {
    "tsit5": dict(rtol=1e-5, atol=1e-5),
    "saves": dict(saveat=np.linspace(0.0, 1.0, 3), **WITHIN),
    "fixed": dict(dt=0.01),
    "Rosenbrock23": dict(rtol=1e-4, atol=1e-6, solver=sciml.solvers.Rosenbrock23()),
    "Rodas5P": dict(rtol=1e-4, atol=1e-6, solver=sciml.solvers.Rodas5P()),
}


@pytest.mark.parametrize("kernel, platform, call", [("gpu", "cuda", "mosaic_gpu"), ("tpu", "tpu", "tpu_custom_call")])
@pytest.mark.parametrize("method", [name if name == "fixed" else name for name in METHODS])
@pytest.mark.x64
def test_kernels_lower_without_their_machine(kernel, platform, call, method):
    def member(p):
        y0 = jnp.array([1.0, 0.0, 0.0], jnp.float32)
        return solve(lorenz, y0, t0=0.0, t1=1.0, args=p, impl=f"mosaic_{kernel}", **METHODS[method])

    lowered = jax.jit(jax.vmap(member)).trace(lorenz_parameters()).lower(lowering_platforms=(platform,))
    assert call in lowered.as_text()


@pytest.mark.parametrize("kernel, platform, call", [("gpu", "cuda", "mosaic_gpu"), ("tpu", "tpu", "tpu_custom_call")])
@pytest.mark.x64
def test_kernels_lower_inside_shard_map_with_all_checks(kernel, platform, call):
    def member(p):
        how = dict(dt=0.25, solver=diffrax.Heun(), impl=f"mosaic_{kernel}")
        return solve(lotka_volterra, jnp.ones(2, jnp.float32), t0=0.0, t1=1.0, args=p, **how).ys

    mesh = Mesh(np.array(jax.devices()[:2]), ("member",))
    run = jax.shard_map(jax.vmap(member), mesh=mesh, in_specs=P("member"), out_specs=P("member"))
    assert call in jax.jit(run).trace(rates(256)).lower(lowering_platforms=(platform,)).as_text()


def test_the_interpreter_is_refused_inside_shard_map_by_name_whatever_the_model_makes():
    def member(a):
        def field(t, y, a):
            return jnp.full_like(y, 0.3) - a * y

        how = dict(dt=0.5, solver=diffrax.Heun(), impl="interpret")
        return solve(field, jnp.ones(2, jnp.float32), t0=0.0, t1=1.0, args=a, **how).ys

    mesh = Mesh(np.array(jax.devices()[:2]), ("member",))
    run = jax.shard_map(jax.vmap(member), mesh=mesh, in_specs=P("member"), out_specs=P("member"))
    with pytest.raises(ValueError, match="shard_map"):
        jax.jit(run)(jnp.ones(2, jnp.float32))


class Network(sciml.AbstractModel):
    """A small one, with operations that a GPU's compiler lacks."""

    weights: jax.Array
    out: jax.Array

    def __call__(self, t, y, args):
        hidden = jax.nn.softplus(self.weights @ y)
        return self.out @ jnp.sqrt(1 + hidden) - jnp.expm1(jnp.abs(y)) ** 1.5


@pytest.mark.parametrize("kernel, platform", [("gpu", "cuda"), ("tpu", "tpu")])
@pytest.mark.x64
def test_what_a_compiler_lacks_is_composed_of_what_it_has(kernel, platform):
    key = jax.random.key(0)
    model = Network(jax.random.normal(key, (3, 2), jnp.float32), jax.random.normal(key, (2, 3), jnp.float32))
    starts = jax.random.normal(key, (20, 2), jnp.float32)

    def solved(impl):
        def member(model, y0):
            return solve(model, y0, t0=0.0, t1=0.5, dt=0.125, solver=diffrax.Heun(), impl=impl)

        return jax.jit(jax.vmap(member, (None, 0)))

    found, expected = (solved(impl)(model, starts) for impl in (f"interpret_{kernel}", "xla"))
    np.testing.assert_allclose(found.ys, expected.ys, rtol=1e-5, atol=1e-5)
    solved(f"mosaic_{kernel}").trace(model, starts).lower(lowering_platforms=(platform,))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.x64
def test_polyfills_are_as_accurate_as_the_dtype(dtype):
    xs = np.concatenate(
        [np.linspace(-5, 5, 101), 10.0 ** np.linspace(-12, 8, 50), -(10.0 ** np.linspace(-9, -0.1, 30))]
    )
    xs = xs.astype(dtype)
    names = dict(zip(("acos", "acosh", "asin", "asinh", "atan", "atanh"), ("arccos", "arccosh", "arcsin", "arcsinh",
                                                                           "arctan", "arctanh")))  # fmt: skip
    unary = [name for name in _flat.POLYFILLS if name not in ("add_any", "erf_inv", "is_finite", "pow", "rem", "round")]

    def all_of(x):
        return {name: _flat.POLYFILLS[name](x) for name in unary}

    for name, found in jax.jit(all_of)(xs).items():
        with np.errstate(all="ignore"):
            expected = getattr(np, names.get(name, name))(xs.astype(np.longdouble)).astype(dtype)
        np.testing.assert_allclose(found, expected, rtol=64 * float(jnp.finfo(dtype).eps), err_msg=name)
    bases, powers = (np.array(x, dtype) for x in ([2, -2, -2, 0, 0, 0, 3, 9], [0.5, 3, 2, 2, 0, -1, -2.5, 1]))
    with np.errstate(all="ignore"):
        expected = bases**powers
    found = _flat.POLYFILLS["pow"](jnp.asarray(bases), jnp.asarray(powers))
    np.testing.assert_allclose(found, expected, rtol=16 * float(jnp.finfo(dtype).eps))
    assert _flat.POLYFILLS["rem"](dtype(-7.5), dtype(2)) == -1.5
    inside = np.concatenate([np.linspace(-0.99, 0.99, 199), 1 - 10.0 ** np.linspace(-6, -1, 20)]).astype(dtype)
    found, expected = jax.jit(_flat.POLYFILLS["erf_inv"])(inside), scipy.special.erfinv(inside)
    conditioned = float(jnp.finfo(dtype).eps) * (16 + 2 / (1 - np.abs(inside)))  # the square is rounded near one
    assert np.all(np.abs(found - expected) <= conditioned * np.abs(expected))
    np.testing.assert_array_equal(_flat.POLYFILLS["erf_inv"](jnp.asarray([-1, 1], dtype)), [-np.inf, np.inf])
    halves = np.array([-2.5, -1.5, -0.4, 0.5, 1.5, 2.5, 2.6, 1e6], dtype)
    for rounding in jax.lax.RoundingMethod.TO_NEAREST_EVEN, jax.lax.RoundingMethod.AWAY_FROM_ZERO:
        found = _flat.POLYFILLS["round"](jnp.asarray(halves), rounding_method=rounding)
        np.testing.assert_array_equal(found, jax.lax.round(halves, rounding))
    np.testing.assert_array_equal(_flat.POLYFILLS["is_finite"](jnp.array([1, jnp.inf, jnp.nan], dtype)), [1, 0, 0])


def sorts(t, y, rate):
    return -rate.astype(y.dtype) * jnp.sort(y)


@pytest.mark.parametrize(
    "model, y0, how, words",
    [
        (sorts, np.ones(3), {}, "the model uses sort"),
        (
            lambda t, y, p: p.astype(y.dtype) * jax.lax.lgamma(y),
            np.ones(3),
            {},
            "uses lgamma, which the kernel does not support",
        ),
        (lambda t, y, p: -p.astype(y.dtype) * y, np.ones(2, np.complex64), {}, "complex64"),
        (lambda t, y, p: -p.astype(y.dtype) * y, np.ones(200), {}, "supports arrays of up to 128"),
        (lotka_volterra, np.ones(2), {"adjoint": sciml.adjoints.Direct()}, "`adjoint=Direct\\(\\)` runs by XLA"),
        (lotka_volterra, np.ones(2), {"batching": "refill"}, "`batching='refill'` runs by XLA"),
        (lotka_volterra, np.ones(2), {"solver": diffrax.ImplicitEuler()}, "diffrax runs this solve"),
    ],
)
@pytest.mark.x64
def test_a_kernel_that_is_forced_says_what_it_cannot_do(model, y0, how, words):
    y0 = y0 if y0.dtype == np.complex64 else y0.astype(np.float32)

    def member(p):
        return solve(model, y0, t0=0.0, t1=1.0, args=p, rtol=1e-3, impl="interpret", **how)

    with pytest.raises(ValueError, match=words) as caught:
        jax.eval_shape(jax.vmap(member), rates(3))
    assert "The kernel supports models that act element by element" in str(caught.value)


@pytest.mark.x64
def test_select_says_what_runs_and_why(monkeypatch, caplog):
    y = jnp.ones(2, jnp.float32)
    assert kernels.select(lotka_volterra, 0.0, y, 1.0) == ("xla", "there is no kernel for 'cpu'", False, None)
    y, p = y.astype(jnp.float32), jnp.float32(1)
    chosen = kernels.select(lotka_volterra, p, y, p, impl="mosaic_tpu", interpret=True)
    assert chosen[:3] == ("mosaic_tpu", "`impl='mosaic_tpu', interpret=True` requests it", True)
    with pytest.raises(ValueError, match="requires a GPU or a TPU"):
        kernels.select(lotka_volterra, p, y, p, impl="pallas")
    with pytest.raises(ValueError, match="`impl` must be one of"):
        with kernels.use("cuda"):
            pass
    believe(monkeypatch, False, "it is slower")
    with caplog.at_level(logging.INFO, "sciml.kernels"):
        for _ in range(2):
            assert "it is slower" in kernels.select(lotka_volterra, p, y, p).reason
        believe(monkeypatch, True)
        assert kernels.select(lotka_volterra, p, y, p).backend == "mosaic_gpu"
        assert "the model uses sort" in kernels.select(sorts, p, y, p).reason
    assert [r.message.split(": ")[0] for r in caplog.records] == ["an ensemble runs with XLA, without a kernel"] * 2


@pytest.mark.x64
def test_one_member_runs_by_xla():
    sol = solve(lambda t, y, args: -y, jnp.ones(2), t0=0.0, t1=1.0, dt=0.1, impl="interpret")
    np.testing.assert_allclose(sol.ys[-1], np.exp(-1), rtol=1e-6)
