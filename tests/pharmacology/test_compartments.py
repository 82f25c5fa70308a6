"""Compartments in closed form beside formulas and integrators, steady states beside repeated doses, and responses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

from sciml import pharmacology as pk, verify
from sciml.pharmacology._linear import propagators

from ..conftest import X64

EXACT = 1e-10 if X64 else 2e-5

THREE = pk.Compartments(cl=3.0, v1=30.0, q=2.0, v2=50.0, q3=1.0, v3=20.0, ka=1.0)
MANY = pk.Compartments(
    cl=3.0, v1=30.0, q=2.0, v2=50.0, ka=1.0, mtt=1.5, transits=3, clm=2.0, vm=15.0, fm=0.7
)  # fmt: skip
SATURABLE = pk.MichaelisMenten(pk.Compartments(cl=1.0, v1=30.0, ka=1.0), vmax=20.0, km=2.0)


def test_names_are_those_that_the_parameters_imply():
    assert pk.Compartments(cl=1.0, v1=1.0).names == ("central",)
    assert THREE.names == ("depot", "central", "peripheral", "peripheral 2")
    chain = ("dose", "transit 1", "transit 2", "transit 3")
    assert MANY.names == (*chain, "depot", "central", "peripheral", "metabolite")
    assert MANY.cmt("central") == 6
    with pytest.raises(ValueError, match="'gut' is not a compartment of this model, which has depot, central"):
        THREE.cmt("gut")


@pytest.mark.parametrize("drug", [THREE, MANY], ids=["three", "many"])
def test_the_field_is_the_matrix_of_rates(drug):
    y = jnp.arange(1.0, 1.0 + len(drug.names))
    np.testing.assert_allclose(drug(0.0, y, None), drug.rates() @ y, rtol=1e-5)
    # nothing appears: all but the eliminated amounts are kept
    out = 0.1 * y[drug.cmt("central") - 1]
    if drug is MANY:
        out = 0.3 * out + 2.0 / 15.0 * y[-1]
    np.testing.assert_allclose(-jnp.sum(drug(0.0, y, None)), out, rtol=1e-5)


@pytest.mark.x64
def test_exponentials_of_rates():
    """Beside SciPy's, from short times to long ones; each small entry has its digits."""
    rates, times = np.asarray(MANY.rates()), np.array([0.0, 1e-3, 0.7, 24.0, 300.0, 1e6])
    decay, mass = jax.jit(propagators)(rates[..., None], times)
    n = rates.shape[0]
    for i, t in enumerate(times[:-1]):
        both = scipy.linalg.expm(np.block([[rates * t, t * np.eye(n)], [np.zeros((n, 2 * n))]]))
        np.testing.assert_allclose(decay[..., i], both[:n, :n], rtol=1e-11, atol=1e-16)
        np.testing.assert_allclose(mass[..., i], both[:n, n:], rtol=1e-11, atol=1e-16)
    assert np.all(decay[..., :-1] >= 0)
    assert np.all(np.isnan(decay[..., -1])), "beyond the longest interval"


def test_one_compartment_is_its_formula():
    """Bolus, oral dose and infusion of one compartment, with bioavailability and lag."""
    ts, k = jnp.linspace(0.0, 24.0, 13), 0.2
    oral = pk.Compartments(cl=2.0, v1=10.0, ka=1.3)
    states = pk.solve_doses(oral, pk.Doses(0.0, 100.0).modified(f=0.5, lag=1.0, cmt=1), ts)
    late = np.maximum(np.asarray(ts) - 1.0, 0.0)
    wanted = 5.0 * 1.3 / 1.1 * (np.exp(-k * late) - np.exp(-1.3 * late))
    np.testing.assert_allclose(oral.concentration(states), wanted, rtol=EXACT, atol=EXACT)
    vein = pk.Compartments(cl=2.0, v1=10.0)
    doses = pk.Doses(jnp.array([0.0, 2.0]), jnp.array([100.0, 60.0]), duration=jnp.array([0.0, 3.0]))
    end, begin = np.maximum(np.asarray(ts) - 5.0, 0.0), np.maximum(np.asarray(ts) - 2.0, 0.0)
    wanted = 100 * np.exp(-k * np.asarray(ts)) + 20.0 / k * (np.exp(-k * end) - np.exp(-k * begin))
    np.testing.assert_allclose(pk.solve_doses(vein, doses, ts)[:, 0], wanted, rtol=EXACT, atol=EXACT)


@pytest.mark.x64
def test_transit_compartments_are_a_gamma_density():
    """The rate into the depot of Savic and others (2007), whose mean time is `mtt`; the same by `ktr`."""
    ts, n, ktr = np.array([0.25, 1.0, 3.0, 8.0]), 3, 4 / 2.0
    drug = pk.Compartments(cl=2.0, v1=20.0, ka=1.0, transits=n, mtt=2.0)
    rate = lambda t: 100 * ktr * (ktr * t) ** n * np.exp(-ktr * t) / 6  # noqa: E731
    field = lambda t, y: [rate(t) - y[0], y[0] - 0.1 * y[1]]  # noqa: E731
    exact = scipy.integrate.solve_ivp(field, (0.0, 8.0), [0.0, 0.0], "DOP853", ts, rtol=1e-12, atol=1e-13).y
    states = pk.solve_doses(drug, pk.Doses(0.0, 100.0), ts)
    np.testing.assert_allclose(states[:, -2:].T, exact, rtol=1e-9)
    np.testing.assert_allclose(drug.concentration(states)[1], 0.152, atol=5e-4)
    by_ktr = pk.Compartments(cl=2.0, v1=20.0, ka=1.0, transits=n, ktr=ktr)
    np.testing.assert_allclose(pk.solve_doses(by_ktr, pk.Doses(0.0, 100.0), ts), states, rtol=1e-12)
    before_depot = -np.linalg.inv(np.asarray(drug.rates())[: n + 1, : n + 1])
    np.testing.assert_allclose(before_depot[:, 0].sum(), 2.0, rtol=1e-12)


@pytest.mark.x64
@pytest.mark.parametrize("drug", [THREE, MANY], ids=["three", "many"])
def test_doses_of_every_kind_beside_an_integrator(drug):
    """Boluses, infusions that overlap, lags, and a reset that ends an infusion; records in any order."""
    central = drug.cmt("central")
    doses = pk.Doses(
        np.array([0.0, 5.0, 8.0, 6.0, 14.0]),
        np.array([100.0, 50.0, 30.0, 40.0, 25.0]),
        cmt=np.array([1, central, central, central, 1]),
        rate=np.array([0.0, 12.5, 0.0, 4.0, 0.0]),
        lag=np.array([0.5, 0.0, 0.0, 0.3, 0.0]),
        reset=np.array([0, 0, 0, 0, 1]),
    )
    ts = np.array([20.0, 1.0, 0.2, 5.0, 6.2, 9.5, 8.0, 13.0, 14.0, 24.0])
    rates = np.asarray(drug.rates())
    parts = [(0.5, 0, 100.0, 0.0), (5.0, central - 1, 0.0, 12.5), (9.0, central - 1, 0.0, -12.5)]
    parts += [(8.0, central - 1, 30.0, 0.0), (6.3, central - 1, 0.0, 4.0)]
    x, flow, t, found = np.zeros(len(rates)), np.zeros(len(rates)), 0.0, {}
    for until in sorted({*ts, *(at for at, *_ in parts), 14.0}):
        if until > t:
            field = lambda t, y, flow=flow.copy(): rates @ y + flow  # noqa: E731
            x = scipy.integrate.solve_ivp(field, (t, until), x, "DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
            t = until
        for at, place, amount, rate in parts:
            if at == until:
                x[place] += amount
                flow[place] += rate
        if until == 14.0:
            x, flow = np.zeros(len(rates)), np.zeros(len(rates))
            x[0] = 25.0
        found[until] = x.copy()
    states = pk.solve_doses(drug, doses, ts)
    np.testing.assert_allclose(states, [found[s] for s in ts], rtol=EXACT, atol=EXACT)


@pytest.mark.x64
def test_derivatives_of_all_orders_where_rates_are_equal():
    """Absorption as fast as elimination: $D k t e^{-kt}$, and its derivatives by the rate of absorption."""
    t = 3.0

    def level(ka):
        drug = pk.Compartments(cl=0.4, v1=1.0, ka=ka)
        return pk.solve_doses(drug, pk.Doses(0.0, 1.0), jnp.array([t]))[0, 1]

    def exact(s):  # the divided difference of exp(-x t) at k and k + s, times k + s, as a series in s
        terms = [(-s) ** n * t ** (n + 1) / np.prod(np.arange(1.0, n + 2)) for n in range(8)]
        return (0.4 + s) * jnp.exp(-0.4 * t) * sum(terms)

    slope, bend = jax.grad(level), jax.grad(jax.grad(level))
    np.testing.assert_allclose(level(jnp.array(0.4)), exact(0.0), rtol=1e-13)
    np.testing.assert_allclose(slope(jnp.array(0.4)), jax.grad(exact)(0.0), rtol=1e-12)
    np.testing.assert_allclose(bend(jnp.array(0.4)), jax.grad(jax.grad(exact))(0.0), rtol=1e-12)


@pytest.mark.x64
def test_derivatives_over_subjects():
    """`vmap` of a gradient by all parameters, times and amounts, of tables of unequal length; equal peripherals."""
    start = pk.Compartments(cl=2.0, v1=10.0, q=1.0, v2=10.0, q3=1.0, v3=10.0, ka=0.9)

    def total(drug, times, amounts):
        doses = pk.Doses(times, amounts, duration=jnp.array([0.0, 2.0, 0.0]), lag=0.2)
        return jnp.sum(drug.concentration(pk.solve_doses(drug, doses, jnp.array([1.0, 7.0, 20.0]))) ** 2)

    times, amounts = jnp.array([[0.0, 3.0, 8.0], [0.0, 5.0, jnp.inf]]), jnp.array([[50.0, 40.0, 30.0]] * 2)
    found = jax.jit(jax.vmap(jax.grad(total, (0, 1, 2)), (None, 0, 0)))(start, times, amounts)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(found))
    assert found[1][1, 2] == 0 and found[2][1, 2] == 0
    value = jax.jit(total)
    for member in range(2):
        for i in range(2):
            step = np.zeros(3)
            step[i] = 1e-5
            ends = [float(value(start, times[member] + s * step, amounts[member])) for s in (1, -1)]
            np.testing.assert_allclose(found[1][member, i], (ends[0] - ends[1]) / 2e-5, rtol=1e-6)
        for name in ("cl", "q3", "ka"):
            at = lambda m, name=name: getattr(m, name)  # noqa: E731
            ends = [
                float(value(eqx.tree_at(at, start, at(start) + s * 1e-5), times[member], amounts[member]))
                for s in (1, -1)
            ]
            np.testing.assert_allclose(getattr(found[0], name)[member], (ends[0] - ends[1]) / 2e-5, rtol=1e-6)


@pytest.mark.x64
@pytest.mark.parametrize("duration, lag", [(0.0, 0.0), (3.0, 2.0), (30.0, 0.0), (25.0, 7.0)])
def test_a_steady_state_is_a_thousand_doses(duration, lag):
    """Also with infusions that are longer than the dosing interval, and with lags."""
    at = jnp.array([0.0, 1.0, 5.0, 11.9, 30.0])
    options = dict(duration=duration, lag=lag, ii=12.0, cmt=2)
    once = pk.solve_doses(THREE, pk.Doses(0.0, 100.0, ss=True, **options), at)
    often = pk.solve_doses(THREE, pk.Doses(0.0, 100.0, addl=1000, **options), at + 12.0 * 1000)
    np.testing.assert_allclose(once, often, rtol=1e-10, atol=1e-12)


@pytest.mark.x64
@pytest.mark.parametrize("duration, lag", [(0.0, 2.0), (30.0, 7.0)])
def test_a_steady_state_is_added_to_earlier_doses(duration, lag):
    """With SS=2 amounts are the sum of those of the doses before, which go on, and of the steady state."""
    at = jnp.array([0.0, 4.0, 5.0, 11.9, 30.0, 70.0])
    before = {"times": 1.0, "amounts": 70.0, "duration": 20.0, "cmt": 1, "lag": 0.0, "ii": 24.0, "addl": 2}
    steady = {"times": 4.0, "amounts": 100.0, "duration": duration, "cmt": 2, "lag": lag, "ii": 12.0, "addl": 1}
    both = {name: np.array([before[name], steady[name]]) for name in before}
    found = pk.solve_doses(THREE, pk.Doses(**both, ss=np.array([0, 2])), at)
    alone = pk.solve_doses(THREE, pk.Doses(**before), at), pk.solve_doses(THREE, pk.Doses(**steady, ss=True), at)
    np.testing.assert_allclose(found, alone[0] + alone[1], rtol=1e-10, atol=1e-12)


@pytest.mark.x64
def test_a_model_that_is_solved_agrees_with_the_closed_form():
    """With a steady state of long infusions, a lag, a reset, and a record before its dose."""
    doses = pk.Doses(
        np.array([0.0, 14.0, 20.0]),
        np.array([100.0, 50.0, 30.0]),
        cmt=np.array([2, 1, 2]),
        duration=np.array([25.0, 0.0, 0.0]),
        ss=np.array([1, 0, 0]),
        ii=12.0,
        lag=np.array([7.0, 0.0, 0.0]),
        reset=np.array([0, 0, 1]),
    )
    ts, before = np.array([0.0, 5.0, 14.0, 14.0, 20.0, 26.0]), np.array([0, 0, 1, 0, 0, 0], bool)
    linear = pk.Compartments(cl=3.0, v1=30.0, q=2.0, v2=50.0, ka=1.0)
    solved = pk.MichaelisMenten(linear, vmax=0.0, km=1.0)

    @jax.jit
    def both():
        options = dict(before=before, rtol=1e-9, atol=1e-11, throw=False)
        return pk.solve_doses(linear, doses, ts, **options), pk.solve_doses(solved, doses, ts, **options)

    closed, followed = both()
    np.testing.assert_allclose(followed, closed, atol=2e-7, rtol=0)
    np.testing.assert_allclose(closed[3] - closed[2], [50.0, 0.0, 0.0], atol=1e-10)


@pytest.mark.x64
def test_a_steady_state_of_a_saturable_drug():
    """The root of the period's map is where many doses lead, and it is differentiated."""
    options = dict(rtol=1e-9, atol=1e-11, throw=False)

    @jax.jit
    def after(n, vmax):
        drug = eqx.tree_at(lambda m: m.vmax, SATURABLE, vmax)
        ss = pk.solve_doses(drug, pk.Doses(0.0, 100.0, ss=True, ii=12.0), jnp.array([0.0, 12.0]), **options)
        once = lambda x: pk.solve_doses(  # noqa: E731
            drug, pk.Doses(0.0, 100.0), jnp.array([12.0]), y0=x, **options
        )[0]
        return ss, jax.lax.fori_loop(0, n, lambda _, x: once(x), drug.initial(float))

    ss, many = after(1000, jnp.array(20.0))
    np.testing.assert_allclose(ss[1], many, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(ss[0], many + np.array([100.0, 0.0]), rtol=1e-8)


def test_precision_follows_doses_and_times():
    ts = jnp.array([0.0, 2.0], jnp.float32)
    states = pk.solve_doses(THREE, pk.Doses(jnp.zeros(1, jnp.float32), 1.0, ss=True, ii=12.0), ts)
    assert states.dtype == jnp.float32 and np.all(np.isfinite(states))


def test_covariates_change_parameters_in_steps():
    """A clearance that jumps at five hours, exactly; and a time-varying one by interpolation, which is solved."""
    import diffrax

    import sciml

    steps = sciml.Held(jnp.array([0.0, 5.0]), {"clcr": jnp.array([1.0, 3.0])})
    of = lambda values: pk.Compartments(cl=values["clcr"], v1=10.0)  # noqa: E731
    found = pk.solve_doses(of, pk.Doses(0.0, 10.0), jnp.array([4.0, 9.0]), covariates=steps)[:, 0]
    np.testing.assert_allclose(found, 10 * np.exp([-0.4, -0.5 - 1.2]), rtol=EXACT)
    path = diffrax.LinearInterpolation(jnp.array([0.0, 10.0]), {"clcr": jnp.array([1.0, 3.0])})
    found = pk.solve_doses(of, pk.Doses(0.0, 10.0), jnp.array([10.0]), covariates=path)[:, 0]
    np.testing.assert_allclose(found, 10 * np.exp(-2.0), rtol=1e-3)


def test_an_initial_state_is_of_the_first_time():
    """Before a lagged dose and after covariates that began earlier."""
    import sciml

    steps = sciml.Held(jnp.array([0.0, 6.0]), jnp.array([1.0, 3.0]))
    found = pk.solve_doses(
        lambda clcr: pk.Compartments(cl=clcr, v1=10.0),
        pk.Doses(5.0, 2.0, lag=2.0),
        jnp.array([8.0]),
        covariates=steps,
        y0=jnp.array([10.0]),
    )
    np.testing.assert_allclose(found[0, 0], 10 * np.exp(-0.1 - 0.6) + 2 * np.exp(-0.3), rtol=EXACT)


# --- fields of models that are not linear


@pytest.mark.x64
@pytest.mark.parametrize(
    "drug",
    [
        MANY,
        pk.TargetMediated(pk.Compartments(cl=0.6, v1=3.0), kon=2.0, koff=0.1, kint=0.5, ksyn=1.0, kdeg=0.2),
        pk.IndirectResponse(SATURABLE, kin=5.0, kout=0.5, effect=pk.Emax(emax=1.0, ec50=2.0, hill=1.7), kind=2),
        pk.EffectCompartment(pk.Compartments(cl=1.0, v1=10.0), ke0=0.5),
    ],
    ids=lambda drug: type(drug).__name__,
)
def test_fields_are_models(drug):
    verify.check_model(drug, jnp.arange(1.0, 1.0 + len(drug.names)))


def test_saturable_elimination():
    y = jnp.array([10.0, 60.0])
    wanted = [-10.0, 10.0 - 2.0 - 20.0 * 2.0 / (2.0 + 2.0)]
    np.testing.assert_allclose(SATURABLE(0.0, y, None), wanted, rtol=1e-5)


def test_target_mediated_disposition():
    drug = pk.TargetMediated(pk.Compartments(cl=0.6, v1=3.0), kon=2.0, koff=0.1, kint=0.5, ksyn=1.0, kdeg=0.2)
    np.testing.assert_allclose(drug.initial(), [0.0, 5.0, 0.0])
    assert drug.names == ("central", "target", "complex")
    binds = 2.0 * 2.0 * 4.0 - 0.1 * 3.0
    wanted = [-1.2 - 3 * binds, 1.0 - 0.8 - binds, binds - 1.5]
    np.testing.assert_allclose(drug(0.0, jnp.array([6.0, 4.0, 3.0]), None), wanted, rtol=1e-5)
    np.testing.assert_allclose(drug(0.0, drug.initial(), None), np.zeros(3), atol=1e-6)


@pytest.mark.parametrize(
    "kind, wanted",
    [(1, 5.0 * 0.5 - 0.5 * 8), (2, 5.0 - 0.5 * 0.5 * 8), (3, 5.0 * 1.5 - 0.5 * 8), (4, 5.0 - 0.5 * 1.5 * 8)],
)
def test_indirect_responses(kind, wanted):
    effect = pk.Emax(emax=1.0, ec50=2.0, hill=1.7)
    drug = pk.IndirectResponse(pk.Compartments(cl=1.0, v1=10.0), kin=5.0, kout=0.5, effect=effect, kind=kind)
    np.testing.assert_allclose(drug.initial(), [0.0, 10.0])
    np.testing.assert_allclose(drug(0.0, jnp.array([20.0, 8.0]), None), [-2.0, wanted], rtol=1e-5)
    at_rest = pk.IndirectResponse(pk.Compartments(cl=1.0, v1=10.0), kin=5.0, kout=0.5)
    np.testing.assert_allclose(at_rest(0.0, jnp.array([20.0, 8.0]), None), [-2.0, 1.0], rtol=1e-5)


def test_effects_of_concentrations():
    effect = pk.Emax(emax=3.0, ec50=2.0, hill=0.7, e0=1.0)
    c = jnp.array([-1.0, 0.0, 1e-30, 0.5, 2.0, 1e30])
    wanted = 1 + 3 * np.maximum(c, 0) ** 0.7 / (2**0.7 + np.maximum(c, 0) ** 0.7)
    np.testing.assert_allclose(effect(c), wanted, rtol=1e-5)
    by_c, by_hill = jax.vmap(jax.grad(lambda c, h: pk.Emax(3.0, 2.0, h)(c), (0, 1)), (0, None))(c, jnp.array(1.5))
    assert np.all(np.isfinite(by_c)) and np.all(np.isfinite(by_hill))
    drug = pk.EffectCompartment(pk.Compartments(cl=1.0, v1=10.0), ke0=0.5)
    np.testing.assert_allclose(drug(0.0, jnp.array([20.0, 0.5]), None), [-2.0, 0.75], rtol=1e-5)


# --- what is refused


@pytest.mark.parametrize(
    "given, message",
    [
        (dict(q=1.0), "`q` and `v2` of `Compartments` belong together, but `v2` is missing"),
        (dict(q3=1.0, v3=1.0), "pass `q` and `v2` as well"),
        (dict(transits=2, ka=1.0), "require `ka` of the depot, and either `mtt` or `ktr`"),
        (dict(mtt=1.0), "`mtt` of `Compartments` requires a number of `transits`"),
        (dict(ka=1.0, ktr=1.0), "`ktr` of `Compartments` requires a number of `transits`"),
        (dict(fm=0.5), "`fm` of `Compartments` is the fraction of a metabolite"),
        (dict(transits=-1), "must be the number of transit compartments, but is -1"),
    ],
)
def test_parameters_that_belong_together(given, message):
    with pytest.raises(ValueError, match=message):
        pk.Compartments(cl=1.0, v1=1.0, **given)


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: pk.Compartments(cl=-1.0, v1=1.0),
            "`cl` of `Compartments` must not be negative, but is -1. To estimate",
        ),
        (lambda: pk.Compartments(cl=1.0, v1=0.0), "`v1` of `Compartments` must be positive, but is 0"),
        (
            lambda: pk.Compartments(cl=1.0, v1=1.0, ka=1.0, transits=1, mtt=0.0),
            "`mtt` of `Compartments` must be positive",
        ),
        (lambda: pk.MichaelisMenten(THREE, vmax=1.0, km=0.0), "`km` of `MichaelisMenten` must be positive"),
        (lambda: pk.TargetMediated(THREE, 1.0, -1.0, 1.0, 1.0, 1.0), "`koff` of `TargetMediated` must not be negative"),
        (lambda: pk.Emax(1.0, ec50=-2.0), "`ec50` of `Emax` must be positive, but is -2"),
        (lambda: pk.EffectCompartment(THREE, ke0=-1.0), "`ke0` of `EffectCompartment` must not be negative"),
        (lambda: pk.IndirectResponse(THREE, kin=1.0, kout=0.0), "`kout` of `IndirectResponse` must be positive"),
    ],
)
def test_signs_of_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_parameters_may_be_zero_or_traced():
    assert pk.Compartments(cl=0.0, v1=1.0, ka=0.0).names == ("depot", "central")
    assert jax.jit(lambda cl: pk.Compartments(cl=cl, v1=1.0).cl)(-1.0) == -1


def test_bad_doses_are_named():
    with pytest.raises(ValueError, match="`ss` of `Doses` must be 0, 1 or 2, but is 3"):
        pk.Doses(0.0, 1.0, ss=3, ii=12.0)
    with pytest.raises(ValueError, match="to amounts that `reset` removes. Use `ss=1`"):
        pk.Doses(0.0, 1.0, ss=2, ii=12.0, reset=True)
    with pytest.raises(ValueError, match=r"`Doses\(ss=2\)`, SS=2 of a table, .* requires `Compartments`"):
        pk.solve_doses(SATURABLE, pk.Doses(0.0, 1.0, ss=2, ii=12.0), jnp.array([1.0]))
    with pytest.raises(ValueError, match="`rate` of `Doses` must not be negative, but is -2. For RATE=-1"):
        pk.Doses(0.0, 1.0, rate=-2)
    with pytest.raises(
        ValueError, match=r"A constant infusion to steady state is not supported; write `Doses\(t, rate"
    ):
        pk.Doses(0.0, 0.0, rate=10.0, ss=True, ii=24.0)
    assert pk.Doses(0.0, 0.0, rate=10.0).durations is None  # a placebo
    with pytest.raises(TypeError, match=r"but is 'central'. Write `cmt=drug.cmt\('central'\)`"):
        pk.Doses(0.0, 1.0, cmt="central")
    with pytest.raises(TypeError, match=r"Write `cmt=drug.cmt\('depot'\)`"):
        pk.Doses(0.0, 1.0).modified(cmt="depot", f=0.5)
    with pytest.raises(ValueError, match="`kind` of `IndirectResponse` must be 1"):
        pk.IndirectResponse(THREE, kin=1.0, kout=1.0, kind=5)
    with pytest.raises(ValueError, match="`rate` and `duration` of `Doses` determine each other"):
        pk.Doses(0.0, 1.0, rate=1.0, duration=1.0)
    with pytest.raises(ValueError, match="`amounts` of `Doses` must be a number or have one row for each of the 2"):
        pk.Doses([0.0, 1.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="require `ii`"):
        pk.Doses(0.0, 1.0, addl=2)
    with pytest.raises(ValueError, match="`ii` of `Doses` must be positive"):
        pk.Doses(0.0, 1.0, ss=True, ii=0.0)
    with pytest.raises(TypeError, match="`addl` of `Doses` sets the number of rows"):
        jax.jit(lambda n: pk.Doses(0.0, 1.0, addl=n, ii=1.0).times)(3)
    with pytest.raises(TypeError, match="`addl` of `Doses` must be integers"):
        pk.Doses(0.0, 1.0, addl=1.5, ii=1.0)
    with pytest.raises(ValueError, match="duration that is not negative"):
        pk.Doses(0.0, 1.0, duration=-1.0)
    with pytest.raises(ValueError, match="these doses have no infusions"):
        pk.Doses(0.0, 1.0).modified(duration=1.0)
    with pytest.raises(ValueError, match="`cmt` of `Doses` must be between 1 and 4 for this model, but is 5"):
        pk.solve_doses(THREE, pk.Doses(0.0, 1.0, cmt=5), jnp.array([1.0]))
    with pytest.raises(ValueError, match="requires `y0`"):
        pk.solve_doses(lambda t, y, args: -y, pk.Doses(0.0, 1.0), jnp.array([1.0]))
    with pytest.raises(ValueError, match="`ts` must have shape"):
        pk.solve_doses(THREE, pk.Doses(0.0, 1.0), 1.0)


def test_modelled_durations_and_rates():
    """As `RATE=-2` and `RATE=-1` of a table; and F multiplies the duration of an infusion given by its rate."""
    waiting = pk.Doses(np.zeros(2), 100.0, duration=np.array([np.nan, 4.0]))
    np.testing.assert_allclose(waiting.modified(duration=2.5).durations, [2.5, 4.0])
    np.testing.assert_allclose(waiting.modified(f=0.5, rate=10.0).durations, [5.0, 4.0])
    by_rate = pk.Doses(0.0, 100.0, rate=50.0).modified(f=0.5)
    np.testing.assert_allclose(by_rate.durations, 1.0)


def test_a_duration_of_the_model_must_be_set():
    """Known, in a batch, and for each compartment."""
    doses, ts = pk.Doses([0.0, 1.0], 10.0, cmt=[1, 2], duration=jnp.nan), jnp.array([4.0])
    for run in (lambda: pk.solve_doses(THREE, doses, ts), lambda: jax.jit(pk.solve_doses)(THREE, doses, ts)):
        with pytest.raises(ValueError, match="infusions into compartment 1 have no duration: it is NaN"):
            run()
    half = doses.modified(cmt=1, duration=2.0)
    both = pk.Doses.stack([half, pk.Doses(0.0, 1.0)])
    with pytest.raises(ValueError, match=r"infusions into compartment 2 .*`doses.modified\(duration=...\)`"):
        jax.vmap(lambda doses: pk.solve_doses(THREE, doses, ts))(both)
    full = jax.vmap(lambda doses: pk.solve_doses(THREE, doses.modified(cmt=2, rate=5.0), ts))(both)
    assert np.all(np.isfinite(full))


def test_infusions_without_gaps_are_a_constant_infusion():
    drug = pk.Compartments(cl=2.0, v1=20.0)
    usual = pk.Doses(0.0, 10.0 * 24.0, duration=24.0, ss=True, ii=24.0)
    levels = drug.concentration(pk.solve_doses(drug, usual, jnp.array([0.0, 12.0, 23.9])))
    np.testing.assert_allclose(levels, 5.0, rtol=1e-5)


ONE = pk.Compartments(cl=2.0, v1=10.0)


def own_model(t, y, args):
    return -0.2 * y


@pytest.mark.parametrize("solves", [False, True], ids=["closed form", "solve"])
def test_traced_numbers_out_of_range_give_nan(solves):
    """Not the states of the doses that are left: a row whose time is NaN sorts behind the last record."""
    model, more = (own_model, {"y0": jnp.zeros(1)}) if solves else (ONE, {})

    def states(time, lag, duration, cmt):
        doses = pk.Doses(jnp.stack([0 * time, time]), 100.0, cmt=cmt, duration=jnp.stack([0 * lag, duration]), lag=lag)
        return pk.solve_doses(model, doses, jnp.array([1.0, 4.0]), throw=False, **more)

    good, wrong = (2.0, 0.5, 1.0, 1), [(0, np.nan), (1, -0.5), (1, np.nan), (2, -1.0), (2, np.inf), (3, 0)]
    rows = [good, *(tuple(x if k != place else value for k, x in enumerate(good)) for place, value in wrong)]
    found = jax.jit(jax.vmap(states))(*(jnp.asarray(x) for x in map(np.array, zip(*rows))))
    first, second = 100 * np.exp(-0.2 * (4 - 0.5)), 100 / 0.2 * (np.exp(-0.2 * 0.5) - np.exp(-0.2 * 1.5))
    np.testing.assert_allclose(found[0, 1], first + second, rtol=1e-3)
    assert np.isnan(found[1:]).all()
    dose = jax.jit(jax.vmap(lambda x: pk.solve_doses(ONE, pk.Doses(jnp.array([0.0, jnp.inf]), x), jnp.ones(1))))
    found = dose(jnp.array([[9.0, -1.0], [-9.0, 0.0], [np.inf, 0.0]]))
    assert np.isfinite(found[0]).all() and np.isnan(found[1:]).all()
    period = jax.jit(lambda ii: pk.solve_doses(ONE, pk.Doses(0.0, 9.0, addl=2, ii=ii), jnp.ones(1)))
    assert np.isnan(period(-1.0)).all() and np.isfinite(period(1.0)).all()


def test_known_numbers_out_of_range_are_named():
    ts, amounts = jnp.array([1.0]), "`amounts` of `Doses` must be finite and not negative"
    for make, message in (
        (lambda: pk.Doses([0.0, np.nan], 9.0), "`times` of `Doses` must not be NaN or -inf, but one is nan"),
        (lambda: pk.Doses(0.0, 9.0, lag=-1.0), "`lag` of `Doses` must not be negative, but one is -1"),
        (lambda: pk.Doses(0.0, 9.0).modified(lag=-1.0), "`lag` of `Doses` must not be negative, but one is -1"),
        (lambda: pk.Doses(0.0, 9.0, duration=np.inf), "`duration` of `Doses` must be finite, but one is inf"),
        (lambda: pk.Doses([0.0, 1.0], [9.0, -1.0]), f"{amounts}, but one is -1"),
        (lambda: pk.Doses(0.0, -9.0, rate=3.0), f"{amounts}, but one is -9"),
        (lambda: pk.Doses(0.0, np.inf), f"{amounts}, but one is inf"),
        (lambda: pk.Doses(0.0, 9.0).modified(f=-0.5), amounts),
    ):
        with pytest.raises(ValueError, match=message):
            pk.solve_doses(ONE, make(), ts)
    with pytest.raises(ValueError, match="`ts` must be finite, but one is inf"):
        pk.solve_doses(ONE, pk.Doses(0.0, 9.0), jnp.array([1.0, jnp.inf]))
    with pytest.raises(TypeError, match="`cmt` of `Doses` must be an integer, but is 1.5"):
        pk.Doses(0.0, 9.0, cmt=1.5)
    with pytest.raises(TypeError, match="`solve_doses` sets `resume` of `sciml.solve` itself"):
        pk.solve_doses(ONE, pk.Doses(0.0, 9.0), ts, resume=None)
    with pytest.raises(TypeError, match="`solve_doses` has no option `rtoll`"):
        pk.solve_doses(ONE, pk.Doses(0.0, 9.0), ts, rtoll=1e-3)


def test_no_doses_at_all():
    nothing, ts = pk.Doses(np.zeros(0), 9.0), jnp.array([0.0, 2.0])
    for model in (ONE, own_model):
        states = pk.solve_doses(model, nothing, ts, y0=jnp.ones(1))
        np.testing.assert_allclose(states[:, 0], np.exp(-0.2 * np.array([0.0, 2.0])), rtol=1e-3)


def test_the_only_time_is_that_of_an_infusion():
    """Its interval has no length, in which a traced table still has to switch the infusion on."""
    level = jax.jit(lambda t: pk.solve_doses(own_model, pk.Doses(t, 9.0, duration=4.0), t[None], y0=jnp.ones(1)))
    np.testing.assert_allclose(level(2.0), 1.0, rtol=1e-5)


def test_infusions_that_time_does_not_resolve_are_boluses():
    """Their rates are so large that the shortest step of the solve would give many times the amount."""
    resolution = float(jnp.finfo(jnp.result_type(float)).eps)
    ts = jnp.array([0.5, 4.0])
    level = jax.jit(lambda d: pk.solve_doses(own_model, pk.Doses(0.0, 100.0, duration=d), ts, y0=jnp.zeros(1))[:, 0])
    for duration in (1.0, 10.0, 100.0, 1e3):
        np.testing.assert_allclose(level(duration * resolution), 100 * np.exp(-0.2 * ts), rtol=1e-3)
