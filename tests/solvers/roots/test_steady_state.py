"""Steady states and their derivatives: against exact ones, in every mode of differentiation."""

import functools as ft

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

import sciml


def tanks(t, y, k):
    """Two tanks in a row; at rest their levels are 1/k0 and 1/k1."""
    return jnp.stack([1 - k[0] * y[0], k[0] * y[0] - k[1] * y[1]])


def by_time(k, **options):
    options = {"adjoint": sciml.adjoints.Implicit(), "t1": 60.0} | options
    sol = sciml.solve(tanks, jnp.zeros(2, k.dtype), t0=0.0, args=k, throw=False, **options)
    return jnp.sum(sol.ys[-1])


def by_root(k, **options):
    return jnp.sum(sciml.steady_state(tanks, jnp.zeros(2, k.dtype), args=k, throw=False, **options).ys[-1])


each_way = pytest.mark.parametrize("total", [by_time, by_root])


def rates(dtype=None):
    return jnp.asarray([0.7, 1.9], dtype or jnp.result_type(float))


def rough(k):
    return 1e-4 if k.dtype == jnp.float64 else 5e-3


@each_way
def test_derivatives_are_those_of_the_implicit_function(total, dtype):
    k = rates(dtype)
    np.testing.assert_allclose(jax.jit(jax.grad(total))(k), -1 / k**2, rtol=rough(k))
    np.testing.assert_allclose(jax.jit(jax.jacfwd(total))(k), -1 / k**2, rtol=rough(k))


@each_way
def test_second_derivatives_by_every_pair_of_modes(total):
    k = rates()
    expected = np.diag(2 / np.asarray(k) ** 3)
    for outer in (jax.jacfwd, jax.jacrev):
        for inner in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(jax.jit(outer(inner(total)))(k), expected, rtol=rough(k), atol=rough(k))


@each_way
def test_members(total):
    ks = rates()[None] * jnp.asarray([1.0, 1.5, 2.0])[:, None]
    np.testing.assert_allclose(jax.vmap(jax.grad(total))(ks), -1 / ks**2, rtol=rough(ks))
    whole = jax.grad(lambda ks: jnp.sum(jax.vmap(total)(ks)))(ks)
    np.testing.assert_allclose(whole, -1 / ks**2, rtol=rough(ks))


@pytest.mark.parametrize("options", [{"dt": 0.25}, {"solver": sciml.solvers.Rosenbrock23()}], ids=["fixed", "implicit"])
def test_whatever_the_way_there(options):
    k = rates()
    np.testing.assert_allclose(jax.grad(ft.partial(by_time, **options))(k), -1 / k**2, rtol=rough(k))


def test_the_start_does_not_matter():
    def total(y0):
        return jnp.sum(sciml.solve(tanks, y0, t0=0.0, t1=60.0, args=rates(), adjoint=sciml.adjoints.Implicit()).ys)

    np.testing.assert_array_equal(jax.grad(total)(jnp.ones(2)), 0)


def test_what_is_not_at_rest_has_no_derivative():
    ends = jnp.asarray([60.0, 2.0])
    found = jax.vmap(lambda end: jax.grad(lambda k: by_time(k, t1=end))(rates()))(ends)
    np.testing.assert_allclose(found[0], -1 / rates() ** 2, rtol=rough(rates()))
    assert np.isnan(found[1]).all()
    assert np.isfinite(by_time(rates(), t1=2.0))


def test_states_of_any_structure():
    def model(t, y, k):
        return {"a": k[0] - y["a"] ** 2, "b": (y["a"] - k[1] * y["b"][0])[None]}

    def total(k):
        y = sciml.steady_state(model, {"a": jnp.ones(()), "b": jnp.ones(1)}, args=k, throw=False).ys
        return jnp.sum(y["a"]) + jnp.sum(y["b"])

    k = jnp.asarray([4.0, 2.0])  # a = sqrt(k0), b = a / k1
    np.testing.assert_allclose(jax.grad(total)(k), [0.25 * 1.5, -2 / 4], rtol=rough(k))


def test_a_state_of_hundreds():
    size = 300

    def chain(t, y, k):
        return 1 - k * y + 0.1 * (jnp.roll(y, 1) - y)

    def total(k):
        return jnp.mean(
            sciml.solve(chain, jnp.zeros(size), t0=0.0, t1=60.0, args=k, adjoint=sciml.adjoints.Implicit()).ys
        )

    k = jnp.asarray(0.5)
    np.testing.assert_allclose(jax.grad(total)(k), -1 / k**2, rtol=rough(k))


@pytest.mark.x64
def test_on_many_devices():
    mesh = Mesh(np.array(jax.devices()), ("members",))
    ks = rates()[None] * jnp.linspace(1.0, 2.0, 8)[:, None]
    run = jax.shard_map(jax.vmap(by_time), mesh=mesh, in_specs=P("members"), out_specs=P("members"))
    np.testing.assert_allclose(jax.jit(jax.grad(lambda ks: jnp.sum(run(ks))))(ks), -1 / ks**2, rtol=rough(ks))


def test_a_root_that_is_not_found():
    def never(t, y, k):
        return 1 + y**2

    with pytest.raises(sciml.SolveError, match="`steady_state` failed with status `diverged`.*no solution near"):
        sciml.steady_state(never, jnp.ones(1))
    sol = sciml.steady_state(never, jnp.ones(1), throw=False)
    assert sol.status != 0 and np.isnan(sol.ys).all() and np.isnan(sol.t_reached)


def test_other_root_finders():
    found = by_root(rates(), solver=optx.Newton(rtol=1e-5, atol=1e-5))
    np.testing.assert_allclose(found, np.sum(1 / np.asarray(rates())), rtol=1e-4)


def test_bad_input():
    with pytest.raises(ValueError, match="saveat"):
        by_time(rates(), saveat=jnp.asarray([1.0, 2.0]))
    with pytest.raises(TypeError, match="y0"):
        sciml.steady_state(lambda t, y, args: 1j - y, jnp.zeros(1, complex))
    with pytest.raises(TypeError, match="solver"):
        by_root(rates(), solver=sciml.solvers.Rodas5P())


def test_where_a_rate_is_smallest_and_not_zero_is_no_steady_state():
    """There a least-squares solver would stop; `optimistix.root_find` also looks at the rate itself."""
    for solver in (None, optx.Dogleg(rtol=1e-3, atol=1e-3), optx.BFGS(rtol=1e-3, atol=1e-3)):
        none = sciml.steady_state(lambda t, y, args: 1.0 + y**2, jnp.full(1, 0.3), solver=solver, throw=False)
        assert none.status == sciml.Status.diverged and jnp.isnan(none.ys).all()


def exchange(t, y, k):
    return jnp.stack([-k * y[0] + y[1], k * y[0] - y[1]])


def tilted(t, y, k):
    """Conserves `y[0] + k * y[1]`, a sum that depends on the parameter."""
    return jnp.stack([-k * (y[0] - y[1]), y[0] - y[1]])


def first_by_root(model, k, y0, **options):
    return sciml.steady_state(model, y0, args=k, throw=False, **options).ys[-1, 0]


def first_by_time(model, k, y0):
    adjoint = sciml.adjoints.Implicit()
    return sciml.solve(model, y0, t0=0.0, t1=40.0, args=k, adjoint=adjoint, throw=False).ys[-1, 0]


def test_a_sum_keeps_its_value():
    sol = sciml.steady_state(lambda t, y, a: exchange(t, y, 2.0), jnp.asarray([1.0, 0.0]))
    np.testing.assert_allclose(sol.ys[0], [1 / 3, 2 / 3], rtol=1e-5)


@pytest.mark.parametrize("first", [first_by_root, first_by_time])
@pytest.mark.parametrize(
    "model, exact",
    [(exchange, lambda k, y: (y[0] + y[1]) / (1 + k)), (tilted, lambda k, y: (y[0] + k * y[1]) / (1 + k))],
)
def test_derivatives_where_a_sum_is_conserved(first, model, exact, dtype):
    k, y0 = jnp.asarray(2.0, dtype), jnp.asarray([1.0, 3.0], dtype)
    found = jax.jit(jax.value_and_grad(ft.partial(first, model), argnums=(0, 1)))(k, y0)
    expected = jax.value_and_grad(exact, argnums=(0, 1))(k, y0)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        np.testing.assert_allclose(a, b, rtol=rough(k))
    np.testing.assert_allclose(
        jax.jit(jax.hessian(ft.partial(first, model)))(k, y0), jax.hessian(exact)(k, y0), rtol=10 * rough(k)
    )


def test_members_have_sums_of_their_own():
    k, y0 = jnp.asarray([1.0, 2.0, 3.0]), jnp.asarray([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    found = jax.vmap(ft.partial(first_by_root, exchange))(k, y0)
    np.testing.assert_allclose(found, jnp.sum(y0, axis=1) / (1 + k), rtol=1e-4)
    mesh = Mesh(np.array(jax.devices()[:3]), ("members",))
    run = jax.shard_map(
        jax.vmap(ft.partial(first_by_root, exchange)), mesh=mesh, in_specs=P("members"), out_specs=P("members")
    )
    np.testing.assert_allclose(run(k, y0), found, rtol=1e-4)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
def test_members_that_are_sharded(kind):
    mesh = jax.make_mesh((2,), ("members",), axis_types=(kind,), devices=jax.devices()[:2])
    k, y0 = jnp.asarray([1.0, 2.0, 3.0, 4.0]), jnp.asarray([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    k, y0 = (jax.device_put(x, NamedSharding(mesh, P("members"))) for x in (k, y0))
    found, slopes = jax.jit(jax.vmap(jax.value_and_grad(ft.partial(first_by_root, exchange))))(k, y0)
    assert found.sharding.spec == slopes.sharding.spec == P("members")
    total = np.sum(np.asarray(y0), axis=1)
    np.testing.assert_allclose(found, total / (1 + np.asarray(k)), rtol=1e-4)
    np.testing.assert_allclose(slopes, -total / (1 + np.asarray(k)) ** 2, rtol=1e-3)


def test_conserved_quantities_that_are_given():
    def pendulum(t, y, a):  # rates that are proportional: `y[0] - y[1]**2 / 2` keeps its value
        return jnp.stack([y[1], jnp.ones(())]) * (1 - y[0] * y[1])

    def end(start, **options):
        return sciml.steady_state(pendulum, jnp.stack([start, 1.0]), throw=False, **options)

    start = jnp.asarray(0.5)
    assert end(start).status == sciml.Status.undetermined and jnp.isnan(end(start).ys).all()
    given = ft.partial(end, conserved=lambda y: y[0] - y[1] ** 2 / 2)
    # y[0] = y[1]**2 / 2 and y[0] * y[1] = 1
    np.testing.assert_allclose(given(start).ys[0, 1], 2 ** (1 / 3), rtol=1e-4)
    slope = jax.grad(lambda start: given(start).ys[0, 1])(start)
    np.testing.assert_allclose(slope, -1 / (1.5 * 2 ** (1 / 3)), rtol=1e-3)
    assert end(start, conserved=lambda y: y[0]).status == sciml.Status.invalid_argument
    with pytest.raises(TypeError, match="conserved"):  # by the annotation, where these are checked
        end(start, conserved=[1.0, 1.0])


def test_an_epidemic_ends_where_its_path_leads():
    def epidemic(t, y, a):
        return jnp.stack([-y[0] * y[1], y[0] * y[1] - 0.5 * y[1], 0.5 * y[1]])

    y0 = jnp.asarray([0.99, 0.01, 0.0])
    assert sciml.steady_state(epidemic, y0, throw=False).status == sciml.Status.undetermined
    options = dict(t0=0.0, t1=200.0, adjoint=sciml.adjoints.Implicit())
    with pytest.raises(sciml.SolveError, match="`undetermined`.*`conserved=`"):
        sciml.solve(epidemic, y0, **options)


@pytest.mark.parametrize("start", [0.1, 1e-3, pytest.param(1e-12, marks=pytest.mark.x64)])
def test_an_unstable_root_near_the_start_is_left(start):
    """An epidemic is at rest without anyone infected, before it as after it; few infected begin one."""

    def epidemic(t, y, a):
        return jnp.stack([-2 * y[0] * y[1], 2 * y[0] * y[1] - y[1]])

    def left(start):
        y0 = jnp.stack([1 - start, start])
        held = {"conserved": lambda y: y[0] + y[1] - jnp.log(y[0]) / 2}
        return sciml.steady_state(epidemic, y0, throw=False, **held).ys[-1, 0]

    found, slope = jax.value_and_grad(left)(jnp.asarray(start))
    np.testing.assert_allclose(found - np.log(found) / 2, 1 - np.log1p(-start) / 2, rtol=1e-5)
    assert found < 0.5  # the root before the epidemic is above
    np.testing.assert_allclose(slope, 0.5 / (1 - start) / (1 - 0.5 / found), rtol=1e-4)

    logistic = sciml.steady_state(lambda t, y, a: y * (1 - y), jnp.asarray(1e-12))
    np.testing.assert_allclose(logistic.ys, 1, rtol=1e-4)


def test_a_root_that_is_not_reached_is_none_of_given_quantities():
    def growing(t, y, a):  # away from its only root on the curve, at `y[1] = 1`
        return jnp.stack([y[1], jnp.ones(())]) * (y[1] - 1)

    y0 = jnp.asarray([0.0, 1.5])
    held = sciml.steady_state(growing, y0, conserved=lambda y: y[0] - y[1] ** 2 / 2, throw=False)
    assert held.status == sciml.Status.diverged and jnp.isnan(held.ys).all()
    near = sciml.steady_state(lambda t, y, a: y - 1, jnp.asarray(1.5))
    np.testing.assert_allclose(near.ys, 1, rtol=1e-4)


def test_a_singular_jacobian_at_the_start_conserves_nothing():
    def model(t, y, a):
        return jnp.stack([y[1] ** 2 - y[0], 1 - y[1] - y[0] * y[1]])  # no rate of y[1] depends on y[1] at y[0] = -1

    sol = sciml.steady_state(lambda t, y, a: model(t, y, a), jnp.asarray([-1.0, 0.0]))
    root = sol.ys[0, 1]
    np.testing.assert_allclose([root**2, root**3 + root], [sol.ys[0, 0], 1.0], rtol=1e-4)


def test_a_network_keeps_its_totals_and_no_amount_is_negative(dtype):
    network = sciml.models.ReactionNetwork("""
        S + E <-> ES, 1e3, 10.0
        ES -> E + P, 1.0
        P + F <-> PF, 1e3, 10.0
        PF -> F + S, k
        k = 1; E(0) = .1; F(0) = .05; S(0) = 1
    """)
    starts = network.y0[None] * jnp.asarray([[1.0] * 6, [0.3, 2.0, 1.0, 1.0, 5.0, 1.0]])

    def end(network, y0, **options):
        return sciml.solve(network, y0, t0=0.0, t1=1e4, solver=sciml.solvers.Rodas5P(), throw=False, **options).ys[-1]

    found = jax.vmap(lambda y0: sciml.steady_state(network, y0, throw=False))(starts.astype(dtype))
    assert (found.status == 0).all() and (found.ys >= 0).all()
    tight = {"rtol": 1e-6, "atol": 1e-8}
    expected = jax.vmap(lambda y0: end(network, y0, **tight))(starts)
    np.testing.assert_allclose(found.ys[:, 0], expected, atol=2e-3 if dtype == jnp.float32 else 1e-6)


def test_sums_of_a_fast_reaction_in_single_precision():
    """Rates of 1e6 and .1: what holds the sums must not round as the fast rate does."""

    def binding(t, y, a):
        rate = 1e6 * y[0] * y[1] - 0.1 * y[2]
        return jnp.stack([-rate, -rate, rate])

    sol = sciml.steady_state(binding, jnp.ones(3, jnp.float32))
    free = (-0.1 + np.sqrt(0.01 + 4e6 * 0.2)) / 2e6
    np.testing.assert_allclose(sol.ys[0], [free, free, 2 - free], rtol=5e-3)


@pytest.mark.x64
def test_derivatives_of_a_network_are_those_of_a_long_simulation():
    network = sciml.models.ReactionNetwork(
        "E + S <-> C, kon, koff; C -> E + P, kcat; P -> S, v; kon = 2; koff = .5; kcat = 1; v = .1; E(0)=.1; S(0) = 1"
    )

    def product(network, y0):
        return sciml.steady_state(network, y0, throw=False).ys[-1, 3]

    def simulated(network, y0):
        options = dict(solver=sciml.solvers.Rodas5P(), rtol=1e-8, atol=1e-10, throw=False)
        return sciml.solve(network, y0, t0=0.0, t1=500.0, **options).ys[-1, 3]

    found = jax.grad(product, argnums=(0, 1))(network, network.y0)
    expected = jax.grad(simulated, argnums=(0, 1))(network, network.y0)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        np.testing.assert_allclose(a, b, rtol=1e-4)


@pytest.mark.parametrize("start", [[1.0, 1.0], [0.5, 0.0], [1e-3, 2.0]])
def test_a_sum_that_only_seems_conserved_in_float32(start):
    """Rounding of rates of 1e6 hides the inflow of 0.1 at the start, but not where products are small."""
    model = lambda t, y, args: jnp.stack([0.1 - 1e6 * y[0] * y[1], 1e6 * y[0] * y[1] - 0.1 * y[1]])  # noqa: E731
    sol = sciml.steady_state(model, jnp.array(start, jnp.float32), throw=False)
    if start[1]:
        assert sol.status == sciml.Status.successful
        np.testing.assert_allclose(sol.ys[-1], [1e-7, 1.0], rtol=1e-3)
    else:  # the first component grows without bound
        assert sol.status != sciml.Status.successful and np.all(np.isnan(sol.ys))


def test_an_enzyme_with_fast_binding_in_single_precision():
    """Rates of 1e6 and .1 about one conserved sum: rounding of the fast one must not hide the slow ones."""

    def rest(inflow):
        def model(t, y, inflow):
            binding, release = 1e6 * y[0] * y[1] - y[2], y[2]
            return jnp.stack([inflow - binding, release - binding, binding - release, release - 0.1 * y[3]])

        y0 = jnp.array([1.0, 1.0, 0.0, 0.0], jnp.float32)
        return sciml.steady_state(model, y0, args=inflow, throw=False).ys[-1]

    inflow = jnp.array(0.1, jnp.float32)
    np.testing.assert_allclose(rest(inflow), [0.2 / 0.9e6, 0.9, 0.1, 1.0], rtol=1e-3)
    for derivative in (jax.jacrev, jax.jacfwd):  # each to rounding relative to itself: the first is 4e6 times smaller
        np.testing.assert_allclose(derivative(rest)(inflow), [2 / 0.81e6, -1.0, 1.0, 10.0], rtol=1e-3)
