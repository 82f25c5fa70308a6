"""Branches of steady states: against exact ones, with stability and special points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

import sciml
from sciml import bifurcation
from sciml.bifurcation import Kind

from .common import FOLD, Brusselator, bratu, brusselator, cusp, rest, tolerance


def used(branch):
    return np.isfinite(np.asarray(branch.parameter))


def of_cusp(a=1.0, b=-1.0, y=-1.3, dtype=None, **options):
    dtype = dtype or jnp.result_type(float)
    args = {"a": jnp.asarray(a, dtype), "b": jnp.asarray(b, dtype)}
    options = {"bounds": (-1.0, 1.0), "where": lambda args: args["b"]} | options
    return bifurcation.continuation(cusp, jnp.asarray([y], dtype), args=args, throw=False, **options)


def test_the_branch_passes_both_folds(dtype):
    branch = of_cusp(dtype=dtype)
    there = used(branch)
    y, b = branch.ys[there, 0], branch.parameter[there]
    assert branch.parameter.dtype == dtype and branch.ys.dtype == dtype
    np.testing.assert_allclose(b, y**3 - y, atol=tolerance(dtype))
    assert b[0] == -1 and b[-1] == 1 and (np.diff(y) > 0).all() and np.diff(y).max() < 0.1
    np.testing.assert_array_equal(branch.status, 0)
    np.testing.assert_array_equal(branch.special.kind, [Kind.fold, Kind.fold] + 6 * [Kind.none])
    np.testing.assert_allclose(branch.special.parameter[:2], [FOLD, -FOLD], atol=1e-10 if dtype == np.float64 else 1e-5)
    np.testing.assert_allclose(branch.special.y[:2, 0], [-(3**-0.5), 3**-0.5], atol=tolerance(dtype))
    assert np.isnan(branch.special.parameter[2:]).all()
    np.testing.assert_array_equal(branch.stable[there], np.abs(y) > 3**-0.5)
    np.testing.assert_allclose(branch.eigenvalues[there, 0].real, 1 - 3 * y**2, atol=10 * tolerance(dtype))
    # the tangent is the derivative of the branch
    dy, db = branch.tangent[0][there, 0], branch.tangent[1][there]
    np.testing.assert_allclose(db, (3 * y**2 - 1) * dy, atol=10 * tolerance(dtype))
    assert (dy > 0).all()


def test_it_goes_in_both_directions_from_the_start():
    branch = of_cusp(b=0.0, y=0.0)  # the middle, from which b grows towards smaller states
    there = used(branch)
    assert branch.ys[99, 0] == 0 and there[98] and there[100]
    ends = np.asarray(branch.parameter)[there]
    assert ends[0] == 1.0 and ends[-1] == -1.0
    assert len(np.unique(branch.ys[there])) == there.sum()


def test_the_start_is_improved_and_lies_on_the_bound():
    branch = of_cusp(y=-1.0)
    assert not used(branch)[:99].any()
    np.testing.assert_allclose(branch.ys[99, 0], -1.3247179572447460, rtol=1e-6)


def test_hopf_points_and_their_derivatives(dtype):
    a = jnp.asarray(1.1, dtype)
    branch = brusselator(a, dtype)
    special = branch.special
    np.testing.assert_array_equal(special.kind[:2], [Kind.hopf, Kind.none])
    np.testing.assert_allclose(special.parameter[0], 1 + a**2, rtol=tolerance(dtype))
    np.testing.assert_allclose(special.frequency[0], a, rtol=tolerance(dtype))
    np.testing.assert_allclose(special.y["x"][0], a, rtol=tolerance(dtype))
    there = used(branch)
    np.testing.assert_array_equal(branch.stable[there], branch.parameter[there] < 1 + a**2)

    def onset(a):
        return brusselator(a, dtype).special.parameter[0]

    np.testing.assert_allclose(jax.jit(jax.grad(onset))(a), 2 * a, rtol=tolerance(dtype))
    np.testing.assert_allclose(jax.jit(jax.jacfwd(onset))(a), 2 * a, rtol=tolerance(dtype))


def test_members_have_branches_of_their_own():
    a = jnp.asarray([0.8, 1.1, 1.4])

    def onset(a):
        return brusselator(a).special.parameter[0]

    branches = jax.vmap(brusselator)(a)
    np.testing.assert_allclose(branches.special.parameter[:, 0], 1 + a**2, rtol=tolerance(a.dtype))
    one = brusselator(a[1])
    np.testing.assert_allclose(branches.parameter[1], one.parameter, rtol=1e-3)
    np.testing.assert_allclose(jax.vmap(jax.grad(onset))(a), 2 * a, rtol=tolerance(a.dtype))
    whole = jax.grad(lambda a: jnp.sum(jax.vmap(onset)(a)))(a)
    np.testing.assert_allclose(whole, 2 * a, rtol=tolerance(a.dtype))


@pytest.mark.x64
@pytest.mark.parametrize("axis", [AxisType.Auto, AxisType.Explicit])
def test_members_on_many_devices(axis):
    mesh = jax.make_mesh((8,), ("members",), axis_types=(axis,))
    a = jnp.linspace(0.8, 1.4, 8)
    split = jax.device_put(a, NamedSharding(mesh, P("members")))
    with jax.set_mesh(mesh):
        found = jax.jit(jax.vmap(lambda a: brusselator(a, points=30).special.parameter[0]))(split)
    assert found.sharding.spec == P("members")
    np.testing.assert_allclose(found, 1 + a**2, rtol=1e-8)


@pytest.mark.x64
def test_members_in_a_shard_map():
    mesh = Mesh(np.array(jax.devices()), ("members",))
    a = jnp.linspace(0.8, 1.4, 8)
    one = jax.vmap(lambda a: brusselator(a, points=30).special.parameter[0])
    run = jax.shard_map(one, mesh=mesh, in_specs=P("members"), out_specs=P("members"))
    np.testing.assert_allclose(jax.jit(run)(a), 1 + a**2, rtol=1e-8)


def test_points_move_at_right_angles_to_the_branch():
    """At a fold, too, where a state at a given parameter would have an infinite derivative."""

    def gap(a):
        branch = of_cusp(a)
        return branch.ys[:, 0], branch.parameter

    a = jnp.asarray(1.0)
    y, b = gap(a)
    there = np.isfinite(b)
    dy, db = jax.jacfwd(gap)(a)
    np.testing.assert_allclose((db + y * 1 + (a - 3 * y**2) * dy)[there], 0, atol=10 * tolerance(a.dtype))
    assert np.isfinite(dy[there]).all() and np.abs(dy[there]).max() < 2
    back = jax.grad(lambda a: jnp.nansum(gap(a)[1]))(a)
    np.testing.assert_allclose(back, np.sum(db[there]), rtol=1e-4)


@pytest.mark.x64
def test_bratu():
    model, u = bratu()
    branch = bifurcation.continuation(model, u, args=0.0, bounds=(0.0, 4.0), max_step=0.1)
    np.testing.assert_array_equal(branch.special.kind[:2], [Kind.fold, Kind.none])
    np.testing.assert_allclose(branch.special.parameter[0], 3.513830719, atol=1e-9)
    assert (np.sum(branch.eigenvalues[used(branch)].real > 0, axis=1) <= 1).all()


@pytest.mark.x64
def test_lorenz():
    """The fixed points turn unstable by a Hopf bifurcation, and meet at the origin in a pitchfork."""
    model = sciml.models.Lorenz63(sigma=10.0, rho=10.0, beta=8 / 3)
    y0 = sciml.steady_state(model, jnp.asarray([5.0, 5.0, 9.0])).ys[0]
    branch = bifurcation.continuation(model, y0, where=lambda model: model.rho, bounds=(0.0, 40.0))
    exact = 10 * (10 + 8 / 3 + 3) / (10 - 8 / 3 - 1)
    np.testing.assert_array_equal(branch.special.kind[:4], [Kind.hopf, Kind.branch_point, Kind.hopf, Kind.none])
    np.testing.assert_allclose(branch.special.parameter[:3], [exact, 1, exact], atol=1e-6)


@pytest.mark.parametrize(
    "model, start, at",
    [(lambda t, y, p: p * y - y**2, -0.5, 0.0), (lambda t, y, p: p * y - y**3, -0.5, 0.0)],
    ids=["transcritical", "pitchfork"],
)
def test_branch_points_on_a_trivial_branch(model, start, at):
    branch = bifurcation.continuation(model, jnp.zeros(1), args=start, bounds=(-1.0, 1.0))
    np.testing.assert_array_equal(branch.special.kind[:2], [Kind.branch_point, Kind.none])
    np.testing.assert_allclose(branch.special.parameter[0], at, atol=1e-6)
    np.testing.assert_array_equal(branch.ys[used(branch)], 0)
    there = used(branch)
    np.testing.assert_array_equal(branch.stable[there], branch.parameter[there] < 0)


def test_a_conserved_total_keeps_its_value():
    """An enzyme in two forms, of which one promotes itself: bistable only with the total that the start has."""

    def switch(t, y, rate):
        active = rate * y[0] * (0.05 + y[1] ** 2)
        return jnp.stack([y[1] - active, active - y[1]])

    y0 = sciml.steady_state(switch, jnp.asarray([3.0, 0.0]), args=0.2).ys[0]
    branch = bifurcation.continuation(switch, y0, args=0.2, bounds=(0.1, 1.5))
    there = used(branch)
    np.testing.assert_allclose(branch.ys[there].sum(axis=1), 3, rtol=1e-5)
    np.testing.assert_array_equal(branch.special.kind[:3], [Kind.fold, Kind.fold, Kind.none])
    given = bifurcation.continuation(
        switch, y0, args=0.2, bounds=(0.1, 1.5), conserved=lambda y: jnp.stack([y[0] + y[1]])
    )
    np.testing.assert_allclose(given.special.parameter[:2], branch.special.parameter[:2], rtol=1e-4)


def test_a_quantity_that_is_conserved_by_chance_at_the_start_is_not_held():
    branch = bifurcation.continuation(
        lambda t, y, p: jnp.stack([p - p * y[0], y[0] - y[1]]), jnp.ones(2), args=0.0, bounds=(0.0, 1.0), throw=False
    )
    assert branch.status[1] == sciml.Status.diverged or np.isfinite(branch.parameter).sum() > 5


def test_one_direction_may_fail():
    """The states end at p = 0, where the square root has no derivative."""
    branch = bifurcation.continuation(
        lambda t, y, p: jnp.sqrt(p) - y, jnp.ones(1), args=1.0, bounds=(-1.0, 2.0), throw=False
    )
    np.testing.assert_array_equal(branch.status, [sciml.Status.diverged, sciml.Status.successful])
    assert np.nanmax(branch.parameter) == 2 and 0 <= np.nanmin(branch.parameter) < 0.05


def test_a_start_that_is_no_steady_state():
    def never(t, y, p):
        return p + y**2

    with pytest.raises(sciml.SolveError, match="`continuation` failed with status `diverged`"):
        bifurcation.continuation(never, jnp.ones(1), args=1.0, bounds=(0.5, 2.0))
    branch = bifurcation.continuation(never, jnp.ones(1), args=1.0, bounds=(0.5, 2.0), throw=False)
    assert (branch.status != 0).all() and not used(branch).any()


def test_points_may_be_used_up():
    branch = of_cusp(points=10)
    assert used(branch).sum() == 10 and branch.status.tolist() == [0, sciml.Status.max_steps_reached]


def test_without_eigenvalues():
    branch = of_cusp(eigenvalues=False)
    assert branch.eigenvalues is None and (branch.special.kind[:2] == Kind.fold).all()
    with pytest.raises(ValueError, match="eigenvalues=True"):
        branch.stable


def test_the_parameter_is_selected_from_the_model_or_args_or_both():
    y0, bounds = rest(1.0), (0.5, 4.0)
    by_model = brusselator(1.0, points=20)
    both = bifurcation.continuation(
        Brusselator(1.0, 1.0), y0, where=lambda model, args: model.b, args=3.0, bounds=bounds, points=20
    )
    np.testing.assert_array_equal(both.parameter, by_model.parameter)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"where": None}, ValueError, r"`where` must select the parameter, because `args` is not one number"),
        ({"where": "b"}, TypeError, "`where` must be a function"),
        ({"where": lambda args: args["c"]}, ValueError, "`where` could not be applied"),
        ({"where": lambda args: args}, ValueError, "`where` must select one scalar"),
        ({"bounds": (1.0, -1.0)}, ValueError, r"`bounds` must be finite and ascending, but is \(1.0, -1.0\)"),
        ({"bounds": (0.0, float("inf"))}, ValueError, "`bounds` must be finite"),
        ({"bounds": 1.0}, TypeError, "`bounds` must be a pair"),
        ({"bounds": (0.0, 1.0)}, ValueError, "`bounds` must contain the value of the parameter in the model, -1"),
        ({"points": 0}, ValueError, r"`continuation\(points=...\)` must be a positive integer"),
        ({"points": 1}, ValueError, r"`continuation\(points=...\)` must be at least 2"),
        ({"max_step": 0.0}, ValueError, "`max_step` must be between 0 and 1"),
        ({"ds": 0.1}, TypeError, "`continuation` has no option `ds`: it is `max_step=`"),
        ({"conserved": 1.0}, TypeError, "`conserved` must be a function"),
    ],
)
def test_bad_input(options, error, message):
    options = {"where": lambda args: args["b"], "bounds": (-1.0, 1.0)} | options
    with pytest.raises(error, match=message):
        bifurcation.continuation(cusp, jnp.zeros(1), args={"a": 1.0, "b": -1.0}, **options)


def test_bad_states():
    with pytest.raises(TypeError, match="`y0` must be real"):
        bifurcation.continuation(lambda t, y, p: p - y, jnp.zeros(1, complex), args=0.5, bounds=(0.0, 1.0))
    with pytest.raises(ValueError, match="must return the shapes of `y0`"):
        bifurcation.continuation(lambda t, y, p: p - y[:1], jnp.zeros(2), args=0.5, bounds=(0.0, 1.0))
    with pytest.raises(TypeError, match="model"):
        bifurcation.continuation(1.0, jnp.zeros(2), args=0.5, bounds=(0.0, 1.0))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_starts_that_are_not_finite(wrong):
    rate, bounds = lambda t, y, p: p - y, (0.0, 1.0)
    y0 = {"x": jnp.array([0.5, wrong])}
    each = lambda t, y, p: {"x": rate(t, y["x"], p)}  # noqa: E731
    calls = {
        "continuation": lambda y0, p: bifurcation.continuation(each, y0, args=p, bounds=bounds, throw=False),
        "locate": lambda y0, p: bifurcation.locate(each, y0, args=p, kind="fold", throw=False),
        "limit_cycle": lambda y0, p: bifurcation.limit_cycle(each, y0, args=p, period=1.0, throw=False),
        "steady_states": lambda y0, p: bifurcation.steady_states(each, y0, args=p),
        "steady_state": lambda y0, p: sciml.steady_state(each, y0, args=p, throw=False),
    }
    for call in calls.values():
        with pytest.raises(ValueError, match=rf"`y0\['x'\]\[1\]` is {wrong}, but a start needs finite numbers"):
            call(y0, 0.5)
    for name in ("continuation", "locate"):
        with pytest.raises(ValueError, match=f"`args` must be a finite number, .* but found {wrong}"):
            calls[name]({"x": jnp.ones(2)}, wrong)
    with pytest.raises(ValueError, match="`period` must be positive and finite"):
        bifurcation.limit_cycle(rate, jnp.ones(1), args=0.5, period=wrong)
    with pytest.raises(ValueError, match=rf"`ys\[1, 0\]` is {wrong}, but a start needs finite numbers"):
        sciml.solve_bvp(rate, lambda a, b, p: a, jnp.array([0.0, 1.0]), jnp.array([[0.0], [wrong]]), args=0.5)
    status = jax.jit(lambda x: bifurcation.continuation(rate, x, args=0.5, bounds=bounds, points=2).status)
    assert (status(jnp.array([wrong])) == sciml.Status.diverged).all()


def first_point(branch):
    return jax.tree.map(lambda x: x[0], branch.special)


@pytest.mark.parametrize("power", [2, 3], ids=["transcritical", "pitchfork"])
def test_the_other_branch_is_followed_from_a_branch_point(power, dtype):
    def model(t, y, p):
        return p * y - y**power

    options = {"args": jnp.asarray(-0.5, dtype), "bounds": (-1.0, 1.0)}
    trivial = bifurcation.continuation(model, jnp.zeros(1, dtype), **options)
    other = bifurcation.continuation(model, first_point(trivial), **options)
    there = used(other)
    y, p = other.ys[there, 0], other.parameter[there]
    np.testing.assert_allclose(p, y ** (power - 1), atol=tolerance(dtype))
    assert y.min() < -0.9 and y.max() > 0.9 and (np.diff(y) > 0).all() and (other.status == 0).all()
    assert (other.special.kind == Kind.none).all()
    away = np.abs(y) > 1e-3
    np.testing.assert_array_equal(other.stable[there][away], p[away] > 0)


@pytest.mark.x64
def test_a_switched_branch_has_derivatives():
    def height(a):
        args = {"a": a, "p": jnp.asarray(-0.5)}
        where = lambda args: args["p"]  # noqa: E731
        options = {"args": args, "where": where, "bounds": (-1.0, 1.0), "throw": False}
        model = lambda t, y, args: args["p"] * y - args["a"] * y**3  # noqa: E731
        point = first_point(bifurcation.continuation(model, jnp.zeros(1), **options))
        side = bifurcation.continuation(model, point, **options)
        at_bound = jnp.nanargmax(jnp.where(side.ys[:, 0] > 0, side.parameter, jnp.nan))
        return jnp.stack([side.ys[at_bound, 0], side.parameter[at_bound]])

    a = jnp.asarray(2.0)
    (y, p), (dy, dp) = height(a), jax.jacrev(height)(a)
    assert y > 0.6 and p > 0.9
    np.testing.assert_allclose(dp * y + p * dy - y**3 - 3 * a * y**2 * dy, 0, atol=1e-8)


def test_a_point_that_is_no_branch_point_is_refused():
    branch = of_cusp()
    args, where = {"a": 1.0, "b": -1.0}, lambda args: args["b"]
    nowhere = jax.tree.map(lambda x: x[-1], branch.special)
    with pytest.raises(ValueError, match=r"`y0.y\[0\]` is nan"):
        bifurcation.continuation(cusp, nowhere, args=args, where=where, bounds=(-1.0, 1.0))
    with pytest.raises(ValueError, match=r"`point.y\[0\]` is nan"):
        bifurcation.locus(
            cusp, nowhere, args=args, where=where, bounds=(-1.0, 1.0), along=lambda args: args["a"], kind="fold"
        )
    with pytest.raises(ValueError, match="`y0` must be one special point, but holds an axis of 8"):
        bifurcation.continuation(cusp, branch.special, args=args, where=where, bounds=(-1.0, 1.0))
    with pytest.raises(ValueError, match="No branch begins at a special point of kind `fold`.*Pass its state, `y0.y`"):
        bifurcation.continuation(cusp, first_point(branch), args=args, where=where, bounds=(-1.0, 1.0))


def test_an_isola_is_closed(dtype):
    """Steady states on a circle, from which no bound is reached."""
    start = jnp.asarray([1.0], dtype)
    branch = bifurcation.continuation(
        lambda t, y, p: 1 - p**2 - y**2, start, args=0.0, bounds=(-2.0, 2.0), max_step=0.2
    )
    there = used(branch)
    y, p = branch.ys[there, 0], branch.parameter[there]
    assert branch.closed and (branch.status == 0).all()
    np.testing.assert_allclose(y**2 + p**2, 1, atol=tolerance(dtype))
    np.testing.assert_array_equal([y[0], p[0]], [y[-1], p[-1]])
    angles = np.unwrap(np.arctan2(y, p))
    np.testing.assert_allclose(np.abs(angles[-1] - angles[0]), 2 * np.pi, atol=1e-5)  # once around
    np.testing.assert_array_equal(branch.special.kind[:3], [Kind.fold, Kind.fold, Kind.none])
    np.testing.assert_allclose(np.sort(branch.special.parameter[:2]), [-1, 1], atol=tolerance(dtype))


def test_an_end_that_is_not_at_a_bound_is_reported():
    branch = of_cusp(points=5)
    np.testing.assert_array_equal(branch.status, [0, sciml.Status.max_steps_reached])
    assert not branch.closed
