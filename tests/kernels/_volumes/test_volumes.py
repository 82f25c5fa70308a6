"""The kernels of finite volumes: interpreted against XLA, lowered for GPU and TPU, and what they refuse."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

from sciml.kernels._backends import KernelRequest
from sciml.kernels._volumes import _trial
from sciml.kernels._volumes._select import kernel_of
from sciml.models import Euler, InviscidBurgers, ShallowWater, Traffic, Transport
from sciml.spatial import (
    HLL,
    PPM,
    TENO5,
    WENO5,
    WENO5Z,
    Characteristic,
    Grid,
    Inflow,
    MovingWall,
    Muscl,
    OrthogonalGrid,
    Outflow,
    Periodic,
    Reflecting,
    Rusanov,
)
from sciml.spatial.finite_volumes._reconstruction import minmod

from ..running import believe, solve

LINE, PLANE, BOX = Grid(131), Grid((11, 125), upper=(1.0, 2.0)), Grid((5, 6, 9))  # no tile divides them


def waves(grid, count, dtype=jnp.float32):
    """A smooth field for each of some components, between -1 and 1."""
    parts = [[jnp.sin((2 + k + a) * jnp.pi * c + k) for a, c in enumerate(grid.centers)] for k in range(count)]
    return jnp.stack([sum(part[1:], part[0]) / len(part) for part in parts]).astype(dtype)


def gas(grid, boundary, dtype=jnp.float32, **options):
    law, w = Euler(grid, boundary, **options), waves(grid, grid.ndim + 2, dtype)
    return law, law.conserved(jnp.concatenate([1 + 0.3 * w[:1], 0.5 * w[1:-1], 1 + 0.3 * w[-1:]]))


def one_quantity(law, dtype=jnp.float32):
    return law, 0.5 + 0.4 * waves(law.volumes.grid, 1, dtype)[0]


def wind(t, args):
    """What flows in along a side, stronger with time."""
    along = PLANE.centers[1][0]
    return jnp.stack([1 + 0 * along, (1 + t) * (1 + along), 0.1 * along, 1 + 0 * along])


SIDES = {"x-": Inflow(wind), "x+": Outflow(), "y-": Reflecting(), "y+": MovingWall(0.3)}

CASES = {
    "Burgers on a line": lambda: one_quantity(InviscidBurgers(LINE, {"x-": Inflow(0.7), "x+": Outflow()})),
    "transport in a plane": lambda: one_quantity(Transport(PLANE, Periodic(), (0.6, -0.8), reconstruction=PPM())),
    "gas in a tunnel": lambda: gas(PLANE, SIDES),
    "gas, WENO5Z": lambda: gas(PLANE, Periodic(), reconstruction=WENO5Z(), limiter=None),
}
MORE = {
    "traffic": lambda: one_quantity(Traffic(LINE, Periodic(), reconstruction=WENO5())),
    "gas on a line": lambda: gas(LINE, Reflecting(), reconstruction=WENO5(), flux=HLL()),
    "gas in a box": lambda: gas(BOX, {"x": Periodic(), "y": Reflecting(), "z": Outflow()}, limiter=None),
    "gas in a tunnel, WENO5Z": lambda: gas(PLANE, SIDES, reconstruction=WENO5Z()),
    "gas, characteristic": lambda: gas(
        PLANE, Outflow(), reconstruction=TENO5(), variables=Characteristic(), flux=Rusanov(), limiter=None
    ),
    "shallow water": lambda: shallow(),
}


def shallow():
    law = ShallowWater(PLANE, Reflecting(), 0.0, reconstruction=Muscl(minmod))
    w = waves(PLANE, 3)
    depth = jnp.maximum(w[:1], 0.0)  # dry where it is less
    return law, jnp.concatenate([depth, 0.3 * depth * w[1:]])


def rates(law, y, impl=None):
    law = law if impl is None else law.with_kernel(y, impl)
    return jax.jit(lambda y: law(0.3, y, None))(y)


def check(case, target, tolerance=1e-5):
    law, y = case
    impl = KernelRequest(f"mosaic_{target}", interpret=True)
    assert law.with_kernel(y, impl).volumes.chosen.backend == f"mosaic_{target}"
    expected = rates(law, y)
    np.testing.assert_allclose(rates(law, y, impl), expected, rtol=0, atol=tolerance * jnp.max(jnp.abs(expected)))


@pytest.mark.parametrize("target", ["gpu", "tpu"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.x64
def test_rates_are_those_of_xla(name, target):
    check(CASES[name](), target)


@pytest.mark.parametrize("target", ["gpu", "tpu"])
@pytest.mark.parametrize("name", MORE)
@pytest.mark.x64
def test_more_rates_are_those_of_xla(name, target):
    check(MORE[name](), target)


@pytest.mark.x64
def test_the_gpu_kernel_takes_float64():
    law, y = gas(LINE, Outflow(), jnp.float64)
    check((law, y), "gpu", 1e-13)
    with pytest.raises(ValueError, match="float64, but the kernel supports float32"):
        law.with_kernel(y, KernelRequest("mosaic_tpu"))


@pytest.mark.x64
def test_solve_and_its_derivatives_by_a_kernel():
    """Derivatives in both modes are those of XLA's rates, by the state and by the values at sides."""
    grid = Grid(40)
    y0 = one_quantity(InviscidBurgers(grid, Periodic()), jnp.float64)[1]

    def loss(given, impl):
        y0, inflow = given
        law = InviscidBurgers(grid, {"x-": Inflow(inflow), "x+": Outflow()})
        return jnp.sum(solve(law, y0, t0=0.0, t1=0.02, dt=0.01, impl=impl).ys ** 2)

    given, ways = (y0, jnp.asarray(0.7)), ("interpret", "xla")
    found, expected = (jax.jit(jax.value_and_grad(lambda g, i=impl: loss(g, i)))(given) for impl in ways)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.x64
def test_steps_that_follow_the_waves_by_a_kernel():
    law, y = gas(Grid(40), Outflow(), jnp.float64)
    found, expected = (solve(law, y, t0=0.0, t1=0.03, impl=impl) for impl in ("interpret", "xla"))
    assert found.stats.accepted == expected.stats.accepted > 1 and found.solver == "SSPRK33"
    np.testing.assert_allclose(found.ys, expected.ys, rtol=1e-12, atol=1e-13)


@pytest.mark.x64
def test_the_interpreter_of_gpus_agrees():
    """Tile by tile as a GPU runs it, two warpgroups for each, with a watch on data races."""
    params = getattr(plgpu, "InterpretGPUParams", None)
    if params is None:
        params = importlib.import_module("jax._src.pallas.mosaic_gpu.interpret.params").InterpretGPUParams
    shape, pressed = (10, 20), jnp.float32(0.5)
    problem, y = _trial._problem(2), _trial._start(shape, jnp.float32)
    kernel = kernel_of("mosaic_gpu")(problem, pressed, shape, jnp.float32, rows=8)
    assert kernel.plan.warpgroups == 2
    found = kernel(y, _trial._ghosts(y, pressed), pressed, params(detect_races=True))
    np.testing.assert_allclose(found, _trial._by_xla(problem, pressed, y), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kernel, platform, call", [("gpu", "cuda", "mosaic_gpu"), ("tpu", "tpu", "tpu_custom_call")])
@pytest.mark.parametrize("name", ["gas in a tunnel", "gas in a box"])
@pytest.mark.x64
def test_kernels_lower_without_their_machine(kernel, platform, call, name):
    law, y = (CASES | MORE)[name]()

    def run(y):
        return law.with_kernel(y, KernelRequest(f"mosaic_{kernel}"))(0.0, y, None)

    assert call in jax.jit(run).trace(y).lower(lowering_platforms=(platform,)).as_text()


def test_what_has_no_kernel_is_refused_in_words():
    line = jnp.ones(64, jnp.float32)
    uneven = OrthogonalGrid((jnp.linspace(0.0, 1.0, 65) ** 1.1,))
    for law, y, why in (
        (ShallowWater(Grid(64), Outflow(), 0.1 * line), jnp.ones((2, 64), jnp.float32), "a single cell"),
        (InviscidBurgers(uneven, Outflow(), reconstruction=Muscl()), line, "the grid is not uniform"),
    ):
        with pytest.raises(ValueError, match=why):
            law.with_kernel(y, KernelRequest("mosaic_gpu"))
        with pytest.raises(ValueError, match="cannot run this conservation law"):
            solve(law, y, t0=0.0, t1=0.01, impl="interpret")


def test_auto_takes_what_it_believes(monkeypatch):
    law, y = one_quantity(InviscidBurgers(Grid(64), Periodic()))
    auto = KernelRequest("auto")
    assert law.with_kernel(y, auto).volumes.chosen is None  # no kernels on this machine
    believe(monkeypatch, True)
    assert law.with_kernel(y, auto).volumes.chosen.backend == "mosaic_gpu"
    believe(monkeypatch, False)
    assert law.with_kernel(y, auto).volumes.chosen is None


@pytest.mark.x64
def test_members_of_an_ensemble():
    law, y = one_quantity(InviscidBurgers(Grid(40), Periodic()))
    many = jnp.stack([y, 1.1 * y])

    def ends(impl):
        return jax.jit(jax.vmap(lambda y: solve(law, y, t0=0.0, t1=0.02, dt=0.01, impl=impl).ys))(many)

    np.testing.assert_allclose(ends("interpret"), ends("xla"), rtol=0, atol=1e-6)
