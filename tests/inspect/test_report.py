"""Planted faults are named with their cure, and what a report counts agrees with what is known."""

import xml.etree.ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import sciml
from sciml import inspect
from sciml.inspect import _make_report
from sciml.inspect._rates import Rates
from tests.conftest import X64

RATES = Rates(
    device="a machine of round numbers",
    products=1e11,
    flops=5e10,
    transcendentals=1e9,
    periodic=5e8,
    transforms=1e10,
    shuffles=1e9,
    copies=((1e5, 1e11), (1e8, 1e10)),
    new=((1e6, 1e10), (1e8, 1e9)),
    operation=1e-9,
    launch=5e-7,
    iteration=5e-9,
    call=1e-5,
)


@pytest.fixture(autouse=True)
def known_rates(monkeypatch):
    """What a test says of a prediction shall not depend on what else the machine does."""
    monkeypatch.setattr(_make_report, "rates", lambda: RATES)


def mesh(kind):
    if jax.device_count() < 4:
        pytest.skip("needs four devices")
    return jax.make_mesh((4,), ("x",), axis_types=(kind,), devices=jax.devices()[:4])


def unrolled():
    def fn(y):
        for _ in range(40):
            y = y - 0.01 * y
        return y

    return fn, (jnp.ones(8, jnp.float32),)


def retraced():
    def fn(y):
        return jax.jit(lambda y: 2 * y)(y)

    return fn, (jnp.ones(8, jnp.float32),)


def widened():
    table = np.linspace(0.0, 1.0, 8)

    def fn(y):
        with jax.numpy_dtype_promotion("standard"):
            return y * table

    return fn, (jnp.ones(8, jnp.float32),)


def weak():
    return jax.jit(lambda y, dt: y + dt * y), (jnp.ones(8, jnp.float32), jax.lax.full((), 0.1))


def gathered_transform():
    x = jax.device_put(jnp.ones((64, 64), jnp.complex64), NamedSharding(mesh(AxisType.Auto), P("x", None)))
    return jax.jit(lambda x: jnp.fft.fft(x, axis=0)), (x,)


def callback():
    def fn(y):
        def body(i, y):
            jax.debug.callback(lambda i: None, i)
            return 0.9 * y

        return jax.lax.fori_loop(0, 3, body, y)

    return jax.jit(fn), (jnp.ones(8, jnp.float32),)


def decay(t, y, args):
    return -args * y


def gathered_sweep():
    on = mesh(AxisType.Explicit)
    rates = jax.device_put(jnp.linspace(0.5, 2.0, 8, dtype=jnp.float32), NamedSharding(on, P("x")))

    def end(rate):
        y0 = jnp.ones(2, jnp.float32)
        return sciml.solve(decay, y0, t0=0.0, t1=1.0, dt=0.1, args=rate, throw=False).ys[-1]

    return jax.jit(lambda rates: jax.vmap(end)(jax.sharding.reshard(rates, NamedSharding(on, P())))), (rates,)


def sorts(t, y, args):
    return -jnp.sort(y)


def fallback():
    def end(y0):
        return sciml.solve(sorts, y0, t0=0.0, t1=1.0, dt=0.1, throw=False).ys[-1]

    return jax.jit(jax.vmap(end)), (jnp.ones((16, 3), jnp.float32),)


def not_donated():
    return jax.jit(lambda y: y + 1), (jnp.ones(2**19, jnp.float32),)


def memory_bound():
    return jax.jit(lambda y: jax.lax.fori_loop(0, 4, lambda _, y: 0.5 * (y + y[::-1]), y)), (
        jnp.ones(2**21, jnp.float32),
    )


FAULTS = {
    "unrolled loop": (unrolled, "`jax.lax.fori_loop`", "y = y - 0.01 * y"),
    "traced at every call": (retraced, "outside of the call", ""),
    "float64 leak": (widened, "`jnp.asarray(c, y.dtype)`", "return y * table"),
    "weak type": (weak, "`jnp.asarray(x, dtype)`", ""),
    "all-gather in an FFT": (gathered_transform, "`sciml.parallel.Domain`", ""),
    "callback in a loop": (callback, "`saveat`", "jax.debug.callback(lambda i: None, i)"),
    "gathered on all devices": (gathered_sweep, "`sciml.parallel.ensemble`", "jax.sharding.reshard"),
    "fallback from lanes": (fallback, "`jnp.minimum` and `jnp.maximum`", "return -jnp.sort(y)"),
    "missing donation": (not_donated, "`jax.jit(f, donate_argnums=...)`", ""),
    "memory bound": (memory_bound, "float32", ""),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault(name, capsys):
    plant, cure, line = FAULTS[name]
    if name == "float64 leak" and not X64:
        pytest.skip("without x64 there is no float64")
    fn, args = plant()
    found = inspect.report(fn, *args)
    (finding,) = (f for f in found.findings if f.name == name)
    assert cure in finding.cure and line in finding.where
    assert str(finding) in capsys.readouterr().out


def test_what_is_right_has_no_findings():
    y = jnp.ones((64, 64), jnp.float32)
    found = inspect.report(jax.jit(lambda y: jax.lax.fori_loop(0, 9, lambda _, y: jnp.tanh(y @ y), y)), y)
    assert not {f.name for f in found.findings} & set(FAULTS)
    assert found.cost.flops >= 9 * 2 * 64**3 and found.cost.transcendentals >= 9 * 64 * 64
    assert found.measured is not None and found.measured > 0 and found.times.uncompiled is None
    assert found.compiled.loops[0].trips == 9 and found.program.primitives["dot_general"] == 1


def test_iterations_are_counted_where_the_compiler_does_not_know_them():
    def fn(y):
        def outer(c):
            y, n = c
            y = jax.lax.while_loop(lambda y: jnp.sum(y) > n, lambda y: 0.9 * jnp.matmul(y, y, precision="highest"), y)
            return y + jnp.eye(16, dtype=y.dtype), n + 1

        return jax.lax.while_loop(lambda c: c[1] < 4.5, outer, (y, jnp.zeros((), y.dtype)))[0]

    y = jnp.full((16, 16), 0.06, jnp.float32)
    runs = [0, 0]
    n, x = 0, np.asarray(y)
    while n < 4.5:
        runs[0] += 1
        while x.sum() > n:
            x, runs[1] = np.float32(0.9) * (x @ x), runs[1] + 1
        x, n = x + np.eye(16, dtype=x.dtype), n + 1
    found = inspect.report(jax.jit(fn), y)
    assert max(found.compiled.trips.values()) == pytest.approx(runs[1] / runs[0])
    products = sum(k.products * k.times for k in found.compiled.kernels)
    assert products == runs[1] * 2 * 16**3 and found.predicted is not None
    assert "(counted)" in str(found)


def test_shapes_alone_are_enough():
    y = jax.ShapeDtypeStruct((2**20,), jnp.float32)
    found = inspect.report(lambda y: jax.lax.while_loop(lambda y: y[0] > 1, lambda y: 0.5 * y, y), y)
    assert found.measured is None and found.predicted is None and found.compiled.uncounted > 0
    assert "not run" in str(found) and "unknown length" in str(found)
    found = inspect.report(lambda y: 0.5 * y, y)
    assert found.measured is None and found.predicted.total > 2**22 / 1e10
    assert found.cost.flops == 2**20 and found.cost.bytes_accessed == 2**23


@pytest.mark.parametrize("jit", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_a_large_constant(jit):
    table = jnp.linspace(0.0, 1.0, 2**18, dtype=jnp.float32)
    found = inspect.report(jit(lambda i: jnp.sum(table) + i), jnp.float32(1))
    (finding,) = (f for f in found.findings if f.name == "large constant")
    assert "1.0 MiB" in finding.says and "as arguments" in finding.cure


def test_devices_that_wait_for_each_other():
    x = jax.device_put(jnp.arange(8.0, dtype=jnp.float32), NamedSharding(mesh(AxisType.Auto), P("x")))
    found = inspect.report(
        jax.jit(jax.vmap(lambda x: jax.lax.while_loop(lambda x: x < 9, lambda x: 1.5 * x + 1, x))), x
    )
    assert "devices wait in a loop" in {f.name for f in found.findings} and found.devices[0] == 4
    (collective,) = found.compiled.collectives
    assert collective.in_loop and collective.bytes == 1  # a truth value


def test_what_a_call_may_overwrite_is_copied():
    y = jnp.ones(2**19, jnp.float32)
    found = inspect.report(jax.jit(lambda y: y + 1, donate_argnums=0), y)
    assert found.donated == y.nbytes and not found.donatable
    assert float(y[0]) == 1.0  # it is still there


def test_a_call_that_fails_is_reported():
    def blows_up(y0):
        return sciml.solve(lambda t, y, args: y**2, y0, t0=0.0, t1=2.0).ys

    found = inspect.report(blows_up, jnp.ones(1))
    (finding,) = (f for f in found.findings if f.name == "an error")
    assert "SolveError" in finding.says and "first_nan" in finding.cure


def test_lanes_and_members_one_by_one():
    def end(y0):
        return sciml.solve(decay, y0, t0=0.0, t1=1.0, dt=0.25, args=jnp.float32(1), throw=False).ys[-1]

    small, large = jnp.ones((12, 2), jnp.float32), jnp.ones((3, 2048), jnp.float32)
    assert inspect.report(jax.jit(jax.vmap(end)), small).program.ways == ("12 members over lanes",)
    assert inspect.report(jax.jit(jax.vmap(end)), large).program.ways == ("3 members one after another",)
    alone = inspect.report(jax.jit(lambda y0: sciml.solve(sorts, y0, t0=0.0, t1=1.0, dt=0.5, throw=False).ys), small[0])
    assert not alone.program.ways and not alone.program.fallbacks  # one member has no lanes to leave


@pytest.mark.parametrize("n", [1, 7])
def test_counts_by_opcode(n):
    """Counts from the program's text, beside numbers known by hand."""
    x = jnp.ones((n, 32), jnp.float32)
    assert inspect.report(lambda x: x @ x.T, x).cost.flops == 2 * n * n * 32
    assert inspect.report(lambda x: jnp.sum(x, axis=1), x).cost.flops == pytest.approx(n * 32, rel=0.2)
    assert inspect.report(jnp.exp, x).cost.transcendentals == n * 32
    fft = inspect.report(jnp.fft.fft, x.astype(jnp.complex64)).cost.flops
    assert fft == pytest.approx(5 * n * 32 * 5)
    row = inspect.report(lambda x, i: jax.lax.dynamic_index_in_dim(x, i, 0, False), jnp.ones((1000, 32)), 3)
    assert row.cost.bytes_accessed <= 4 * 32 * 8  # of a slice the part counts


def test_rates_in_a_second():
    inspect.rates()
    found = inspect.rates()
    assert found is inspect.rates()  # measured once
    assert found.products > 1e8 and found.bandwidth > 1e7 and 0 < found.iteration < found.call < 1
    assert found.copied(2e5) >= found.copied(2e7) and "GB/s" in str(found)


def test_page(tmp_path):
    fn, args = unrolled()
    found = inspect.report(fn, *args)
    page = found.html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
    tree = xml.etree.ElementTree.fromstring(
        page.partition("\n")[2].replace('<meta charset="utf-8">', "").replace("<br>", "")
    )
    assert tree.find(".//svg") is not None and len(tree.findall(".//circle")) >= 2
    assert "unrolled loop" in page and "fori_loop" in page and "y = y - 0.01 * y" in page
    assert "http" not in page.replace("http://www.w3.org", "")  # nothing is fetched


def test_diff(capsys):
    fn, args = unrolled()
    by_jax = jax.jit(lambda y: jax.lax.fori_loop(0, 40, lambda _, y: y - 0.01 * y, y))
    found = inspect.diff(inspect.report(jax.jit(fn), *args), inspect.report(by_jax, *args))
    assert "unrolled loop" in [f.name for f in found.gone]
    rows = {name: factor for name, _, _, factor in found.rows}
    assert rows["equations"] < 0.5 and "gone: unrolled loop" in capsys.readouterr().out
    same = inspect.report(by_jax, *args)
    assert str(inspect.diff(same, same)) == "no figure has changed"
