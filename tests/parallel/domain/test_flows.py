"""Conservation laws on a grid that is split over devices: the numbers of one device, and the messages they take."""

import collections
import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import inspect, parallel
from sciml.models import Euler, InviscidBurgers, ShallowWater
from sciml.spatial import (
    WENO5Z,
    Boundaries,
    Constant,
    Dirichlet,
    Grid,
    Inflow,
    MovingWall,
    Neumann,
    Outflow,
    Periodic,
    Reflecting,
    Rusanov,
    Sides,
)

pytestmark = pytest.mark.x64

LINE, BOX = Grid(32), Grid((16, 16), upper=(2.0, 1.0))


@pytest.fixture(scope="module")
def mesh():
    return parallel.mesh(member=1, x=4, y=2)


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
}


def gas(grid, boundary, **options):
    law = Euler(grid, boundary, **options)
    w = 0.2 * waves(grid)
    return law, law.conserved(jnp.stack([1 + w, *[w * (k + 1) for k in range(grid.ndim)], 1 - w]))


def water(grid, boundary):
    bed = 0.4 * jnp.exp(-20 * sum((c - 0.5) ** 2 for c in grid.centers)) + 0.05 * waves(grid)
    depth = jnp.maximum(0.3 + 0.1 * waves(grid) - bed, 0.0)
    law = ShallowWater(grid, boundary, bed, reconstruction=Constant(), flux=Rusanov())
    return law, jnp.stack([depth, *[0.1 * depth] * grid.ndim])


def one_quantity(grid, boundary):
    return InviscidBurgers(grid, boundary), 1 + waves(grid)


CASES = {
    "Burgers on a line": (one_quantity, LINE, "periodic"),
    "Burgers in a box": (one_quantity, BOX, "periodic"),
    "gas in a tube": (ft.partial(gas, reconstruction=WENO5Z()), LINE, "tube"),
    "gas in a tunnel": (ft.partial(gas, reconstruction=WENO5Z()), BOX, "tunnel"),
}


def both(case, mesh):
    """A law on the whole grid, the same on one that is split, its domain, and a state."""
    make, grid, sides = CASES[case]
    axes = ("x", "y")[: grid.ndim]
    domain = parallel.Domain(axes, boundary=Sides(grid, SIDES[sides]), mesh=mesh)
    whole, y = make(grid, SIDES[sides])
    return whole, make(grid, domain)[0], domain, y


def looked_at(law, y):
    return law(0.5, y, None), law.crossing_rate(0.5, y, None), law.admissible(y)


@pytest.mark.parametrize("case", list(CASES)[1:])
def test_rates_are_the_same_on_many_devices(mesh, case):
    """And the fastest wave, and whether all is admissible, which all devices know."""
    whole, split, domain, y = both(case, mesh)
    found = domain.run(lambda y: looked_at(split, y), y)
    expected = jax.jit(lambda y: looked_at(whole, y))(y)
    assert found[1] == expected[1] and found[2] == expected[2] == True  # noqa: E712
    assert jnp.max(jnp.abs(expected[0])) > 0.1
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12, atol=1e-12)


def test_steps_that_follow_the_waves_are_the_same(mesh):
    """Where one device's block has the fastest wave, or a state that may not be, all devices take another step."""
    whole, split, domain, y = both("Burgers on a line", mesh)

    def solved(law, y):
        sol = sciml.solve(law, y, t0=0.0, t1=0.1, norm=domain.rms, throw=False)
        return sol.ys[-1], sol.status, sol.stats.accepted

    run = jax.jit(lambda y: domain.run(lambda y: solved(split, y), y))
    end, status, steps = run(y)
    expected, _, expected_steps = jax.jit(lambda y: solved(whole, y))(y)
    assert status == 0 and steps == expected_steps > 3
    np.testing.assert_allclose(end, expected, rtol=1e-13)
    _, status, _ = run(y.at[3].set(jnp.nan))
    assert status != 0


def test_a_flow_over_devices_has_gradients(mesh):
    """Water over hills and dry land: by the state, by the bed, and by what flows in."""
    sides = {"x-": Inflow(jnp.array([0.5, 0.2])), "x+": Outflow()}
    domain = parallel.Domain(("x",), boundary=Sides(LINE, sides), mesh=mesh)

    def loss(law_and_state, run):
        rates = run(*law_and_state)
        return jnp.sum(rates**2), rates

    def over_devices(law, y):
        return domain.run(lambda y, law: law(0.0, y, None), y, law)

    gradient = eqx.filter_jit(eqx.filter_grad(loss, has_aux=True))
    found = gradient(water(LINE, domain), over_devices)
    expected = gradient(water(LINE, sides), lambda law, y: law(0.0, y, None))
    found, expected = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(found) == len(expected) and sum(bool(jnp.any(x != 0)) for x in found) >= 5
    for a, b in zip(found, expected):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * float(jnp.max(jnp.abs(b))))


def test_a_stage_sends_what_its_reconstruction_reads(mesh):
    """Once to each neighbour along each axis, all components together."""
    _, split, domain, y = both("Burgers in a box", mesh)
    found = inspect.collectives(lambda y: domain.run(lambda y: split(0.0, y, None), y), y)
    assert collections.Counter(message.kind for message in found) == {"collective-permute": 4}


def test_what_does_not_fit_a_domain_is_refused(mesh):
    fields = parallel.Domain(("x", "y"), boundary=Boundaries(BOX, {"x": Dirichlet(0.0), "y": Neumann(0.0)}), mesh=mesh)
    with pytest.raises(TypeError, match="boundary=Sides"):
        Euler(BOX, fields)
    flows = parallel.Domain(("x", "y"), boundary=Sides(BOX, Reflecting()), mesh=mesh)
    with pytest.raises(TypeError, match="a field needs `Boundaries`"):
        flows.pad(jnp.ones((16, 16)), 1)
    with pytest.raises(ValueError, match="belongs to another grid"):
        Euler(Grid((8, 16)), flows)
    with pytest.raises(ValueError, match="for each axis of the grid"):
        Euler(LINE, flows)
    narrow = parallel.Domain(("x", None), mesh=mesh)
    law = Euler(Grid((8, 4)), narrow, reconstruction=WENO5Z())
    with pytest.raises(ValueError, match="A halo of width 3 is wider than the 2 cells"):
        narrow.run(lambda y: law(0.0, y, None), jnp.ones((4, 8, 4)))
    with pytest.raises(ValueError, match=r"must end with the axes \(2, 4\) \(a device's block\) of Grid"):
        narrow.run(lambda y: law(0.0, y, None), jnp.ones((4, 16, 4)))
