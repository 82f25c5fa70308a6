"""Reconstructions, numerical fluxes and sides, each by what it promises."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.models import Euler, InviscidBurgers, Traffic, Transport
from sciml.spatial import (
    HLL,
    HLLC,
    PPM,
    TENO5,
    WENO3,
    WENO5,
    WENO5Z,
    Characteristic,
    Constant,
    FiniteVolumes,
    Grid,
    Inflow,
    LaxWendroff,
    MovingWall,
    Muscl,
    Outflow,
    Periodic,
    PositivityLimiter,
    Reflecting,
    Roe,
    Rusanov,
    Sides,
)
from sciml.spatial.finite_volumes._reconstruction import minmod, monotonized_central, van_leer
from sciml.spatial.finite_volumes._variables import Componentwise

LIMITERS = (minmod, van_leer, monotonized_central)
RECONSTRUCTIONS = (Constant(), *map(Muscl, LIMITERS), PPM(), WENO3(), WENO5(), WENO5Z(), TENO5())
FLUXES = (Rusanov(), HLL(), HLLC(), Roe())


def name(x):
    return type(x).__name__


def gases(ndim, count, seed=0):
    """Random primitive states of a gas."""
    draw = np.random.default_rng(seed)
    density, pressure = 10 ** draw.uniform(-1, 1, (2, 1, count))
    return jnp.asarray(np.concatenate([density, draw.normal(size=(ndim, count)), pressure]))


def gas(ndim):
    return Euler(Grid((8,) * ndim), Outflow(), 1.3)


# --- reconstructions


@pytest.mark.x64
@pytest.mark.parametrize("reconstruction", RECONSTRUCTIONS, ids=name)
def test_the_order_of_a_value_at_a_face(reconstruction):
    """Of smooth data away from extrema: means for the first ones, values at centres where fluxes are corrected."""
    reach = reconstruction.radius - 1
    expected = {"Constant": 1, "Muscl": 2, "PPM": 3, "WENO3": 3}.get(name(reconstruction), 5)
    errors = []
    for h in (0.04, 0.02):
        points = 0.4 + h * np.arange(-reach, reach + 1)
        values = np.exp(np.sin(points))
        if not reconstruction.correction:  # means, by Gauss's rule
            nodes = points[:, None] + h / 2 * np.array([-1, 1]) / np.sqrt(3)
            values = np.exp(np.sin(nodes)).mean(1)
        found = reconstruction.at_face([jnp.asarray(v) for v in values])
        errors.append(abs(float(found) - np.exp(np.sin(0.4 + h / 2))))
    order = np.log2(errors[0] / errors[1])
    assert order > expected - 0.35, (errors, order)


@pytest.mark.x64
@pytest.mark.parametrize("reconstruction", RECONSTRUCTIONS, ids=name)
def test_a_smooth_field_is_continued_by_the_weights_that_are_said(reconstruction):
    """The derivative at data on a line; the stable steps follow from these weights."""
    count = 2 * reconstruction.radius - 1
    cells = 1.0 + 1e-4 * jnp.arange(float(count))
    slopes = jax.jit(jax.grad(lambda c: reconstruction.at_face(list(c))))(cells)
    if name(reconstruction) == "Muscl" and reconstruction.limiter is minmod:  # has a kink there
        return
    np.testing.assert_allclose(slopes, reconstruction.linear, atol=2e-2)


@pytest.mark.parametrize("reconstruction", [r for r in RECONSTRUCTIONS if name(r) in ("Muscl", "PPM")], ids=name)
def test_no_new_extrema(reconstruction):
    draw = np.random.default_rng(0)
    cells = [jnp.asarray(draw.normal(size=4000)) for _ in range(2 * reconstruction.radius - 1)]
    middle = reconstruction.radius - 1
    here, ahead, face = cells[middle], cells[middle + 1], reconstruction.at_face(cells)
    slack = 1e-5
    assert jnp.all((face >= jnp.minimum(here, ahead) - slack) & (face <= jnp.maximum(here, ahead) + slack))
    assert jnp.mean(jnp.abs(face - here)) > 0.05


@pytest.mark.parametrize("reconstruction", [WENO3(), WENO5(), WENO5Z(), TENO5()], ids=name)
def test_weights_ignore_what_is_beyond_a_jump(reconstruction):
    """And neither size nor units of the field matter; a field of zeros has a derivative."""
    cells = [jnp.zeros(())] * reconstruction.radius + [jnp.ones(())] * (reconstruction.radius - 1)
    for scale in (1e-6, 1.0, 1e6):
        assert abs(reconstruction.at_face([scale * c for c in cells])) < 2e-3 * scale
    slopes = jax.grad(lambda c: reconstruction.at_face(list(c)))(jnp.zeros(len(cells)))
    np.testing.assert_allclose(slopes, reconstruction.linear, atol=1e-5)


# --- fluxes


@pytest.mark.x64
@pytest.mark.parametrize("flux", (*FLUXES, LaxWendroff(0.3)), ids=name)
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_the_flux_between_equal_states_is_their_own(flux, ndim):
    law, w = gas(ndim), gases(ndim, 50)
    for axis in range(ndim):
        np.testing.assert_allclose(flux(law, w, w, axis), law.flux(w, axis), rtol=1e-12, atol=1e-12)


@pytest.mark.x64
@pytest.mark.parametrize("flux", FLUXES, ids=name)
def test_a_mirror_turns_the_flux(flux):
    law, (left, right) = gas(2), (gases(2, 50), gases(2, 50, 1))
    zero = jnp.zeros(())
    for axis in range(2):
        seen = flux(law, law.mirrored(right, axis, zero), law.mirrored(left, axis, zero), axis)
        np.testing.assert_allclose(
            -law.mirrored(seen, axis, zero), flux(law, left, right, axis), rtol=1e-10, atol=1e-10
        )


@pytest.mark.x64
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_waves_are_those_of_roe(ndim):
    """Projecting and combining are inverse, and the waves carry the difference of fluxes."""
    law, (left, right) = gas(ndim), (gases(ndim, 50), gases(ndim, 50, 1))
    jump = law.conserved(right) - law.conserved(left)
    for axis in range(ndim):
        waves = law.waves(left, right, axis)
        amounts = waves.project(jump)
        np.testing.assert_allclose(waves.combine(amounts), jump, atol=1e-11 * float(jnp.max(jnp.abs(jump))))
        carried = waves.combine(waves.speeds * amounts)
        expected = law.flux(right, axis) - law.flux(left, axis)
        np.testing.assert_allclose(carried, expected, atol=1e-11 * float(jnp.max(jnp.abs(expected))))


@pytest.mark.x64
def test_single_waves_are_exact():
    """A contact and a shear layer at rest by HLLC and Roe, a steady shock by Roe; Rusanov smears them all."""
    law = Euler(Grid((8, 8)), Outflow())
    layer = jnp.array([1.0, 0.0, 3.0, 2.0]), jnp.array([0.1, 0.0, -1.0, 2.0])
    for flux, error in ((HLLC(), 0.0), (Roe(0.0), 0.0), (HLL(), 0.5), (Rusanov(), 0.5)):
        found = jnp.max(jnp.abs(flux(law, *layer, 0) - law.flux(layer[0], 0)))
        assert (found < 1e-12) == (error == 0.0), name(flux)
    mach = 2.0  # by Rankine and Hugoniot, at rest with the shock
    before = jnp.array([1.0, mach * 1.4**0.5, 0.0, 1.0])
    ratio, pressure = 2.4 * mach**2 / (0.4 * mach**2 + 2), 1 + 2.8 / 2.4 * (mach**2 - 1)
    after = jnp.array([ratio, before[1] / ratio, 0.0, pressure])
    np.testing.assert_allclose(law.flux(before, 0), law.flux(after, 0), rtol=1e-12)
    np.testing.assert_allclose(Roe(0.0)(law, before, after, 0), law.flux(after, 0), rtol=1e-12)


def test_the_fix_of_the_entropy_lets_a_jump_spread():
    grid = Grid(20, -1.0, 1.0)
    jump = jnp.where(grid.centers[0] < 0, -1.0, 1.0)
    stays, spreads = (
        InviscidBurgers(grid, Outflow(), reconstruction=Constant(), flux=Roe(fix))(0.0, jump, None)
        for fix in (0.0, 0.5)
    )
    assert jnp.all(stays == 0) and spreads[9] > 0 > spreads[10]


def test_a_linear_law_is_upwind():
    law = Transport(Grid((6, 5)), Periodic(), jnp.array([2.0, -3.0]), reconstruction=Constant())
    y = jnp.asarray(np.random.default_rng(0).normal(size=(6, 5)))
    expected = -2 * (y - jnp.roll(y, 1, 0)) * 6 + 3 * (jnp.roll(y, -1, 1) - y) * 5
    np.testing.assert_allclose(law(0.0, y, None), expected, rtol=1e-4, atol=1e-4)


# --- sides


def swirl(ndim, cells=8):
    """A conserved state that varies, of moderate speed."""
    grid = Grid((cells,) * ndim)
    waves = [jnp.sin(2 * jnp.pi * c + k) for k, c in enumerate(grid.centers)]
    mixed = sum(waves[1:], waves[0])
    w = jnp.stack([1 + 0.2 * mixed / ndim, *[0.3 * (mixed + w) / ndim for w in waves], 1 - 0.2 * mixed / ndim])
    return grid, w


@pytest.mark.x64
@pytest.mark.parametrize("reconstruction", [Muscl(), WENO5Z()], ids=name)
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_closed_box_keeps_mass_and_energy(reconstruction, ndim):
    """And a periodic one momentum too, to rounding."""
    grid, w = swirl(ndim)
    for side in (Reflecting(), Periodic()):
        law = Euler(grid, side, reconstruction=reconstruction)
        total = grid.integrate(jax.jit(lambda y, law=law: law(0.0, y, None))(law.conserved(w)))
        kept = total if isinstance(side, Periodic) else jnp.stack([total[0], total[-1]])
        assert jnp.max(jnp.abs(kept)) < 1e-13


@pytest.mark.x64
def test_what_flows_in_is_what_is_given():
    """Supersonic flow through a tube: what enters at one end leaves at the other; along a side, and in time."""
    grid, w = swirl(2)
    wind = jnp.array([1.0, 5.0, 0.0, 1.0])
    profile = wind[:, None] * jnp.linspace(1.0, 1.2, 8)[None]
    for state in (wind, profile, lambda t, args: t * args * wind):
        law = Euler(grid, {"x-": Inflow(state), "x+": Outflow(), "y": Reflecting()}, reconstruction=Constant())
        t = 2.0
        u = law.conserved(w.at[1].add(4.0))
        total = grid.integrate(jax.jit(lambda u, a, law=law: law(t, u, a))(u, jnp.asarray(0.5)))[0]
        entering = jnp.mean(law.flux(jnp.asarray(profile if state is profile else wind), 0)[0])
        leaving = jnp.mean(u[1, -1])
        assert abs(total - (entering - leaving)) < 1e-12


def test_leaves_of_sides_are_differentiated():
    grid, w = swirl(1)
    law = Euler(grid, {"x-": Inflow(jnp.array([1.0, 0.5, 1.0])), "x+": MovingWall(-0.2)}, limiter=None)
    y = law.conserved(w)
    slopes = jax.jit(jax.grad(lambda law: jnp.sum(law(0.0, y, None)[2])))(law)
    ((low, high),) = slopes.volumes.sides.pairs
    assert low.state.shape == (3,) and jnp.all(low.state != 0) and high.velocity != 0


@pytest.mark.x64
def test_positive_stays_positive():
    """After Euler steps of the Courant number 1/2 from states next to a vacuum, with fluxes that would not do so."""
    draw = np.random.default_rng(0)
    density, pressure = 10 ** draw.uniform(-4, 1, (2, 300, 20))
    w = jnp.asarray(np.stack([density, 4 * draw.normal(size=(300, 20)), pressure], axis=1))
    least = []
    for limiter in (None, PositivityLimiter()):
        law = Euler(Grid(20), Periodic(), reconstruction=WENO5(), limiter=limiter)

        @jax.jit
        @jax.vmap
        def step(w, law=law):
            y = law.conserved(w)
            return jnp.stack(law.positive(y + 0.5 / law.crossing_rate(0.0, y, None) * law(0.0, y, None)))

        least.append(float(jnp.nanmin(step(w))))
    assert least[0] < 0 < least[1]


@pytest.mark.x64
def test_the_limiter_leaves_smooth_flow_alone():
    grid, w = swirl(2, 16)
    free, limited = (
        Euler(grid, Periodic(), reconstruction=WENO5Z(), limiter=limiter) for limiter in (None, PositivityLimiter())
    )
    y = free.conserved(w)
    np.testing.assert_allclose(
        *(jax.jit(lambda y, law=law: law(0.0, y, None))(y) for law in (limited, free)), atol=1e-12
    )


@pytest.mark.x64
def test_characteristic_variables_of_one_wave_are_those_of_the_wave():
    """In a simple wave both ways agree to their order; across a contact the waves keep the pressure."""
    grid = Grid(40)
    (x,) = grid.centers
    w = jnp.stack([jnp.where(x < 0.5, 1.0, 0.1), 0.5 + 0 * x, 1.0 + 0 * x])
    law = Euler(grid, Outflow(), reconstruction=WENO5Z(), variables=Characteristic(), limiter=None)
    y = law.conserved(w)
    rates = jax.jit(lambda y: law(0.0, y, None))(y)
    pressure = jax.jvp(lambda y: law.primitive(y)[2], (y,), (rates,))[1]
    assert jnp.max(jnp.abs(pressure)) < 1e-10 and jnp.max(jnp.abs(rates[0])) > 1.0


# --- bad input


def test_what_does_not_fit_is_refused():
    grid = Grid((8, 8))
    with pytest.raises(ValueError, match="lacks 'y"):
        Sides(grid, {"x": Periodic()})
    with pytest.raises(TypeError, match="must be Periodic"):
        Euler(grid, sciml.spatial.Neumann(0.0))
    with pytest.raises(ValueError, match="reads 3 cells on either side of a face, but the grid has 2 along y"):
        Euler(Grid((8, 2)), Periodic(), reconstruction=WENO5())
    with pytest.raises(ValueError, match="a grid of one axis"):
        Traffic(grid, Periodic())
    with pytest.raises(ValueError, match="velocity"):
        Transport(grid, Periodic(), 1.0)
    law = Euler(grid, Inflow(jnp.ones((4, 2, 2, 2))))
    with pytest.raises(ValueError, match="Inflow"):
        law(0.0, jnp.ones((4, 8, 8)), None)
    with pytest.raises(ValueError, match="components"):
        law(0.0, jnp.ones((3, 8, 8)), None)
    for wrong, said in (
        (1.0, r"4 primitive .* has shape \(\)"),
        (jnp.ones(3), r"4 primitive"),
        (jnp.ones((4, 3)), r"\(4, 8\)"),
    ):
        with pytest.raises(ValueError, match=said):
            Euler(grid, Inflow(wrong))(0.0, jnp.ones((4, 8, 8)), None)
    with pytest.raises(TypeError, match="no method `waves`"):
        Fluxless(FiniteVolumes(Grid(8), Periodic(), flux=Roe()))(0.0, jnp.ones(8), None)


@pytest.mark.parametrize("wrong", [dict(reconstruction=1), dict(flux="HLL"), dict(variables=None), dict(limiter=0)])
def test_parts_of_another_kind_are_refused_by_name(wrong):
    with pytest.raises(TypeError, match=next(iter(wrong))):
        FiniteVolumes(Grid(8), Periodic(), **wrong)


class Fluxless(sciml.AbstractConservationLaw):
    """A law that says the least."""

    volumes: FiniteVolumes

    def flux(self, w, axis):
        return w

    def speeds(self, w, axis):
        return jnp.ones_like(w), jnp.ones_like(w)


def test_parts_are_leaves_or_static():
    law = Euler(Grid(8), Inflow(jnp.ones(3)), flux=Roe(), variables=Componentwise())
    shapes = sorted(x.shape for x in jax.tree.leaves(eqx.filter(law, eqx.is_array)))
    assert shapes == [(), (), (3,), (3,)]  # gamma, the fix, both sides
