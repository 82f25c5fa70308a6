"""Flows on blocks with one exchange for all stages of a step: the numbers of one device, and the messages they take."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import sciml
from sciml import inspect, parallel
from sciml.models import CompressibleNavierStokes, Euler, InviscidBurgers, ShallowWater
from sciml.spatial import WENO5Z, Grid, Inflow, MovingWall, Muscl, NoSlipWall, Outflow, Periodic, Reflecting, Sides

from ...kernels.running import solve

pytestmark = pytest.mark.x64

LINE, BOX = Grid(40), Grid((24, 14), upper=(2.0, 1.0))
DT = 2e-3


def waves(grid):
    return sum((jnp.sin(2 * jnp.pi * (k + 1) * c + k) for k, c in enumerate(grid.centers)), jnp.zeros(grid.shape))


def gusts(t, args):
    """What flows in along a side: stronger in the middle, and with time."""
    profile = 1 + 0.3 * jnp.sin(jnp.pi * BOX.centers[1][0])
    return jnp.stack([profile, (1 + t) * profile, 0 * profile, profile])


SIDES = {
    "periodic": Periodic(),
    "tunnel": {"x-": Inflow(gusts), "x+": Outflow(), "y-": Reflecting(), "y+": Outflow()},
    "tube": {"x-": MovingWall(0.3), "x+": Outflow()},
    "basin": Reflecting(),
    "belt": {"x-": Inflow(gusts), "x+": Outflow(), "y-": NoSlipWall(jnp.array([0.3, 0.0]), 1.2), "y+": NoSlipWall()},
}


def gas(grid, boundary, **options):
    law, w = Euler(grid, boundary, **options), 0.2 * waves(grid)
    return law, law.conserved(jnp.stack([1 + w, *[w * (k + 1) for k in range(grid.ndim)], 1 - w]))


def viscous_gas(grid, boundary):
    return CompressibleNavierStokes(grid, boundary, 0.01, exponent=0.7), gas(grid, boundary)[1]


def water(grid, boundary):
    """Over hills, some of them dry."""
    bed = 0.4 * jnp.exp(-20 * sum((c - 0.5) ** 2 for c in grid.centers)) + 0.05 * waves(grid)
    depth = jnp.maximum(0.3 + 0.1 * waves(grid) - bed, 0.0)
    return ShallowWater(grid, boundary, bed), jnp.stack([depth, *[0.1 * depth] * grid.ndim])


def one_quantity(grid, boundary):
    return InviscidBurgers(grid, boundary), 1 + 0.3 * waves(grid)


CASES = {
    "gas in a tube": (ft.partial(gas, reconstruction=WENO5Z()), LINE, "tube", {"x": 2}),
    "gas in a tunnel": (ft.partial(gas, reconstruction=Muscl()), BOX, "tunnel", {"x": 4, "y": 2}),
    "viscous gas along a belt": (viscous_gas, BOX, "belt", {"x": 4, "y": 2}),
    "water in a basin": (water, LINE, "basin", {"x": 4}),
    "Burgers in a box": (one_quantity, BOX, "periodic", {"x": 2, "y": 2}),
}


def setting(case, exchange="step"):
    """A law on the whole grid, the same on one that is split, its domain, and a state."""
    make, grid, sides, counts = CASES[case]
    devices = int(np.prod(list(counts.values())))
    mesh = parallel.mesh(member=1, **counts, devices=jax.devices()[:devices])
    axes = ("x", "y")[: grid.ndim]
    domain = parallel.Domain(axes, boundary=Sides(grid, SIDES[sides]), mesh=mesh, exchange=exchange)
    whole, y = make(grid, SIDES[sides])
    return whole, make(grid, domain)[0], domain, y


def end_of(law, y, **how):
    return sciml.solve(law, y, t0=0.1, t1=0.1 + 5 * DT, **({"dt": DT} | how)).ys[-1]


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_of_one_device(case):
    whole, split, domain, y = setting(case)
    found = jax.jit(lambda y: domain.run(lambda y: end_of(split, y), y))(y)
    expected = jax.jit(lambda y: end_of(whole, y))(y)
    assert jnp.max(jnp.abs(expected - y)) > 1e-3
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_steps_that_follow_the_waves_are_the_same():
    whole, split, domain, y = setting("Burgers in a box")

    def solved(law, y):
        sol = sciml.solve(law, y, t0=0.0, t1=0.1, norm=domain.rms)
        return sol.ys[-1], sol.stats.accepted

    found, steps = jax.jit(lambda y: domain.run(lambda y: solved(split, y), y))(y)
    expected, expected_steps = jax.jit(lambda y: solved(whole, y))(y)
    assert steps == expected_steps > 3
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_derivatives_are_those_of_one_device():
    whole, split, domain, y = setting("gas in a tube")
    expected = jax.jit(jax.grad(lambda y: jnp.sum(end_of(whole, y) ** 2)))(y)
    found = jax.jit(jax.grad(lambda y: jnp.sum(domain.run(lambda y: end_of(split, y), y) ** 2)))(y)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("case, axes", [("gas in a tube", 1), ("Burgers in a box", 2)])
def test_a_step_sends_once(case, axes, choose):
    """Once to each neighbour along each axis for a step, or for each of its three stages, here written one by one."""
    choose({"fields.stages_in_loop_from": 10**9})

    def sent(exchange):
        _, split, domain, y = setting(case, exchange)
        found = inspect.collectives(lambda y: domain.run(lambda y: end_of(split, y), y), y)
        assert {message.kind for message in found if message.in_loop} == {"collective-permute"}
        return sum(message.in_loop for message in found)

    assert sent("step") == 2 * axes and sent("stage") == 3 * 2 * axes


def test_a_kernel_on_blocks():
    """Interpreted, where `shard_map` does not check what varies."""
    whole, split, domain, y = setting("gas in a tube")
    spec = PartitionSpec(None, "x")

    def blocks(y):
        return solve(split, y, t0=0.1, t1=0.1 + 2 * DT, dt=DT, impl="interpret").ys[-1]

    run = jax.shard_map(blocks, mesh=domain.mesh, in_specs=spec, out_specs=spec, check_vma=False)
    expected = solve(whole, y, t0=0.1, t1=0.1 + 2 * DT, dt=DT, impl="xla").ys[-1]
    np.testing.assert_allclose(jax.jit(run)(y), expected, rtol=1e-12, atol=1e-13)


def test_what_is_refused():
    # annotations are checked first, in the legs of the tests that check them
    refused = "'stage' or 'step', but is 'never'|'exchange'.*'never'"
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=f"(?s){refused}"):
        parallel.Domain(("x",), exchange="never")
    _, split, domain, y = setting("gas in a tube")
    with pytest.raises(ValueError, match="explicit Runge-Kutta method .* but got Tsit5"):
        domain.run(lambda y: end_of(split, y, solver=diffrax.Tsit5()), y)
    make, grid, sides, _ = CASES["gas in a tube"]
    narrow = parallel.Domain(("x",), boundary=domain.boundary, mesh=parallel.mesh(member=1, x=8), exchange="step")
    with pytest.raises(ValueError, match="A halo of width 9 is wider than the 5 cells"):
        narrow.run(lambda y: end_of(make(grid, narrow)[0], y), y)
