"""Exact solutions of flows: published numbers, the equations themselves, and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import verify
from sciml.models import Euler, ShallowWater
from sciml.spatial import Grid, Outflow

# left, right; pressure and velocity between the waves, density on either side of the contact
STARS = [
    ((1.0, 0.0, 1.0), (0.125, 0.0, 0.1), 0.3031302, 0.9274526, 0.4263194, 0.2655737),
    ((0.445, 0.698, 3.528), (0.5, 0.0, 0.571), 2.4660979, 1.5287230, 0.3445685, 1.3040845),
    ((1.0, 0.75, 1.0), (0.125, 0.0, 0.1), 0.4662936, 1.3609055, 0.5798667, 0.3397002),
    ((1.0, -2.0, 0.4), (1.0, 2.0, 0.4), 0.0018939, 0.0, 0.0218521, 0.0218521),
    ((1.0, 0.0, 1000.0), (1.0, 0.0, 0.01), 460.8937875, 19.5974514, 0.5750623, 5.9992407),
]


@pytest.mark.x64
@pytest.mark.parametrize("left, right, pressure, velocity, below, above", STARS)
def test_what_is_between_the_waves(left, right, pressure, velocity, below, above):
    for turned in (False, True):
        states = [jnp.array(s) for s in (left, right)]
        sign, densities = 1.0, (below, above)
        if turned:  # seen in a mirror
            mirror = jnp.array([1.0, -1.0, 1.0])
            states, sign, densities = [mirror * s for s in states[::-1]], -1.0, (above, below)
        at = sign * velocity + jnp.array([-1e-6, 1e-6])
        found = verify.reference("riemann_euler", *states, at)
        np.testing.assert_allclose(found[0], densities, rtol=3e-6)
        np.testing.assert_allclose(found[1], sign * velocity, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(found[2], pressure, rtol=1e-5, atol=1e-7)


@pytest.mark.x64
@pytest.mark.parametrize("case", [*STARS, ((1.0, -20.0, 0.4), (1.0, 20.0, 0.4))], ids=str)
def test_nothing_is_lost(case):
    """The integral over a box changes by what flows through its ends, with shocks, fans and a vacuum between them."""
    left, right = map(jnp.array, case[:2])
    law = Euler(Grid(8), Outflow())
    reach = 60.0
    edges = jnp.linspace(-reach, reach, 400001)
    middles = (edges[1:] + edges[:-1]) / 2
    w = verify.reference("riemann_euler", left, right, middles)
    empty = w[0] == 0
    y = law.conserved(w)
    total = jnp.sum(jnp.where(empty[None], 0.0, y), axis=1) * (2 * reach / 400000)
    states = [law.conserved(s) for s in (left, right)]
    expected = reach * (states[0] + states[1]) + law.flux(left, 0) - law.flux(right, 0)
    np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-3 * float(jnp.max(jnp.abs(expected))))


@pytest.mark.x64
def test_the_exact_solution_is_differentiated():
    speed = jnp.array([-0.5, 0.3, 1.2])

    def states(parameters):
        left, right, gamma = parameters
        return verify.reference("riemann_euler", left, right, speed, gamma)

    parameters = jnp.array([1.0, 0.1, 1.0]), jnp.array([0.125, 0.0, 0.1]), jnp.array(1.4)
    tangent = jnp.array([0.3, -0.2, 0.4]), jnp.array([0.02, 0.3, 0.03]), jnp.array(0.1)
    _, slope = jax.jvp(states, (parameters,), (tangent,))
    moved = [states(jax.tree.map(lambda p, d, s=s: p + s * d, parameters, tangent)) for s in (1e-5, -1e-5)]
    np.testing.assert_allclose(slope, (moved[0] - moved[1]) / 2e-5, rtol=1e-6, atol=1e-8)


@pytest.mark.x64
@pytest.mark.parametrize(
    "depths, depth, velocity, bore",
    [((10.0, 5.0), 7.26920446, 2.91993304, 9.35375839), ((1.0, 0.1), 0.39617482, 2.32135500, 3.10513365)],
)
def test_dams(depths, depth, velocity, bore):
    found = verify.reference("dam_break", jnp.array([velocity, bore - 1e-6, bore + 1e-6]), 1.0, *depths)
    np.testing.assert_allclose(found[:, 0], [depth, velocity], rtol=1e-7)
    np.testing.assert_allclose(found[:, 1], [depth, velocity], rtol=1e-7)
    np.testing.assert_allclose(found[:, 2], [depths[1], 0.0], atol=1e-12)


@pytest.mark.x64
@pytest.mark.parametrize(
    "left, right", [((2.0, 0.5), (0.0, 0.0)), ((0.0, 0.0), (2.0, -1.0)), ((1.0, -9.0), (1.5, 8.0))]
)
def test_no_water_is_lost_on_dry_land(left, right):
    left, right = jnp.array(left), jnp.array(right)
    law = ShallowWater(Grid(8), Outflow())
    reach = 40.0
    middles = (jnp.arange(200000.0) + 0.5) / 200000 * 2 * reach - reach
    depth, velocity = verify.reference("riemann_shallow_water", left, right, middles)
    y = jnp.stack([depth, depth * velocity])
    ends = [jnp.append(s, s[0]) for s in (left, right)]
    expected = reach * (law.conserved(ends[0]) + law.conserved(ends[1])) + law.flux(ends[0], 0) - law.flux(ends[1], 0)
    np.testing.assert_allclose(jnp.sum(y, axis=1) * (2 * reach / 200000), expected, rtol=1e-4, atol=1e-3)
    assert jnp.any(depth == 0) and jnp.all(depth >= 0)


@pytest.mark.x64
def test_the_vortex_solves_the_equations():
    """At a few places, with derivatives by automatic differentiation."""
    law = Euler(Grid((8, 8)), Outflow())

    def state(t, x, y):
        return law.conserved(verify.reference("isentropic_vortex", x, y, t, velocity=(1.0, 0.5), period=20.0))

    for x, y in ((0.3, -0.4), (1.0, 0.7), (-1.5, 2.0)):
        point = jnp.array([0.2]), jnp.array([x]), jnp.array([y])
        unit, zero = jnp.ones(1), jnp.zeros(1)
        rate = jax.jvp(state, point, (unit, zero, zero))[1]
        along = jax.jvp(lambda *p: law.flux(law.primitive(state(*p)), 0), point, (zero, unit, zero))[1]
        across = jax.jvp(lambda *p: law.flux(law.primitive(state(*p)), 1), point, (zero, zero, unit))[1]
        np.testing.assert_allclose(rate + along + across, 0.0, atol=1e-12)
        assert jnp.max(jnp.abs(rate)) > 0.01
