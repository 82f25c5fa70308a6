"""Bad input to `solve`: what is refused, and that the message says what, why and what would be right."""

import fractions
import inspect
import re

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

Y0 = np.ones(2, np.float32)


def decay(t, y, args):
    return jax.tree.map(jnp.negative, y)


def solve(model=decay, y0=Y0, **options):
    return sciml.solve(model, y0, **{"t0": 0.0, "t1": 1.0, **options})


def refused(error, message, **options):
    with pytest.raises(error, match=message):
        solve(**options)


# --- times


@pytest.mark.parametrize("t1", [np.nan, np.inf, -np.inf, np.float32(np.inf)])
def test_t1_not_finite(t1):
    refused(ValueError, "`t1` must be finite, but is", t1=t1)


def test_t0_not_finite():
    refused(ValueError, "`t0` must be finite, but is nan", t0=np.nan)


def test_t1_not_a_scalar():
    refused((ValueError, TypeError), "t1", t1=np.ones(2))


def test_dt_of_the_wrong_sign():
    refused(ValueError, "`dt` must be positive, because t1 > t0, but is -0.1", dt=-0.1)
    refused(ValueError, "`dt` must be negative, because t1 < t0, but is 0.1", t1=-1.0, dt=0.1)


@pytest.mark.parametrize(
    "dt, message", [(0.0, "must not be zero"), (np.nan, "must be finite"), (np.inf, "must be finite")]
)
def test_dt_zero_or_not_finite(dt, message):
    refused(ValueError, f"`dt` {message}", dt=dt)


def test_dt_takes_more_steps_than_max_steps():
    refused(ValueError, "`dt`=0.01 requires 100 steps, more than `max_steps`=10", dt=0.01, max_steps=10)


@pytest.mark.parametrize("max_steps", [0, -1])
def test_max_steps_not_positive(max_steps):
    refused(ValueError, "`max_steps` must be a positive integer, but is", max_steps=max_steps)


# --- functions of the state


def test_a_domain_says_one_thing_of_the_whole_state():
    refused(ValueError, r"`domain` must return one boolean.*shape \(2,\).*`lambda y: jnp.all", domain=lambda y: y < 5)
    refused(ValueError, "`domain` must return one boolean.*2 values", domain=lambda y: (y[0] < 5, y[1] < 5))
    refused(ValueError, r"but returns float\d\d of shape \(\).*Return a comparison", domain=lambda y: y[0])
    refused(
        TypeError,
        "`domain` converts a traced value.*Combine conditions with `&`",
        domain=lambda y: y[0] < 5 and y[1] < 5,
    )


@pytest.mark.parametrize("name", ["domain", "project"])
def test_functions_of_the_state_take_the_state_alone(name):
    message = rf"`{name}` must be callable as `{name}\(y\)`, but its signature is \(t, y\)"
    refused(TypeError, message, **{name: lambda t, y: y[0] < 5})


# --- saved times


@pytest.mark.parametrize("saveat", [[0.5, 1.5], [-0.5, 0.5]])
def test_saveat_outside_the_span(saveat):
    refused(ValueError, r"`saveat` must be within \[t0, t1\] = \[0.0, 1.0\], but ranges from", saveat=saveat)
    refused(ValueError, "`saveat` must be within", saveat=np.array(saveat))
    refused(ValueError, "`saveat` must be within", saveat=diffrax.SaveAt(ts=saveat))


@pytest.mark.parametrize("options", [{"dt": 0.1}, {}], ids=["fixed", "adaptive"])
def test_traced_saved_times_outside_the_span(options):
    """What cannot be refused beforehand is NaN, with a status, and leaves the rest as it is."""
    code = int(sciml.Status.invalid_argument)
    inside, outside = jnp.array([0.0, 0.5, 1.0]), jnp.array([-0.5, 0.5, 1.5])
    run = jax.jit(lambda ts: solve(saveat=ts, **options))
    right, wrong = run(inside), run(outside)
    assert right.status == 0 and wrong.status == code
    np.testing.assert_array_equal(np.isnan(wrong.ys[:, 0]), [True, False, True])
    np.testing.assert_array_equal(wrong.ys[1], right.ys[1])

    ends = jnp.array([1.0, 0.5])
    members = jax.vmap(lambda t1: solve(t1=t1, saveat=inside, **options))(ends)
    assert members.status.tolist() == [0, code] and members.t_reached.tolist() == ends.tolist()
    np.testing.assert_array_equal(np.isnan(members.ys[..., 0]), [[False] * 3, [False, False, True]])

    def loss(t1, p):
        sol = solve(lambda t, y, p: -p * y, t1=t1, saveat=inside, args=p, **options)
        return jnp.sum(jnp.where(jnp.isnan(sol.ys), 0.0, sol.ys))

    assert np.isfinite(jax.jit(jax.grad(loss, 1))(0.5, jnp.float32(1.0)))


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("options", [{"dt": 0.1}, {}], ids=["fixed", "adaptive"])
def test_traced_saved_times_out_of_order(options, backwards):
    """The solve has gone on when it comes to a time before another: that state is NaN, the others as they are."""
    ends = dict(t0=1.0, t1=0.0) if backwards else dict(t0=0.0, t1=1.0)
    options = jax.tree.map(lambda dt: -dt if backwards else dt, options)
    run = jax.jit(lambda ts: solve(saveat=1.0 - ts if backwards else ts, **ends, **options))
    right, wrong = run(jnp.array([0.25, 0.75, 0.75, 1.0])), run(jnp.array([0.25, 0.75, 0.5, 1.0]))
    assert right.status == 0 and wrong.status == int(sciml.Status.invalid_argument)
    np.testing.assert_array_equal(np.isnan(wrong.ys[:, 0]), [False, False, True, False])
    np.testing.assert_array_equal(wrong.ys[jnp.array([0, 1, 3])], right.ys[jnp.array([0, 1, 3])])


@pytest.mark.parametrize("options", [{}, {"rtol": 1e-3}, {"saveat": [0.5, 1.0]}], ids=["scan", "adaptive", "saves"])
def test_traced_step_of_the_wrong_sign(options):
    name = "dt0" if "rtol" in options else "dt"
    run = jax.jit(lambda step: solve(**{name: step}, **options))
    wrong = run(-0.1)
    assert run(0.1).status == 0 and wrong.status == int(sciml.Status.invalid_argument) and np.isnan(wrong.ys).all()


@pytest.mark.parametrize(
    "options",
    [dict(rtol=-1e-3), dict(rtol=1e-9), dict(rtol=np.nan), dict(atol=-1e-6), dict(atol=np.inf), dict(dt0=0.0)]
    + [
        dict(t1=np.nan),
        dict(t1=np.inf),
        dict(t0=-np.inf),
        dict(dt0=np.nan, rtol=1e-3),
        dict(rtol=np.float32([1e-3, -1])),
    ],
    ids=str,
)
def test_traced_values_that_are_out_of_range(options):
    """A status where nobody can raise; and of the members of an ensemble, that one alone."""
    right = dict(rtol=1e-3, atol=1e-6, dt0=0.1, t0=0.0, t1=1.0)
    run = jax.jit(jax.vmap(lambda options: solve(**options)))
    members = jax.tree.map(
        lambda a, b: jnp.asarray(np.stack([np.broadcast_to(a, np.shape(b)), b])),
        {n: right[n] for n in options},
        options,
    )
    sol = run(jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), members))
    assert sol.status.tolist() == [0, int(sciml.Status.invalid_argument)]
    assert np.all(np.isnan(sol.ys[1])) and sol.stats.accepted[0] > 1 and sol.stats.executed[1] < 100
    np.testing.assert_allclose(sol.ys[0, 0], np.exp(-1), rtol=1e-3)


def test_a_traced_tolerance_of_zero():
    """As where it is known: an element that is zero and stays so has no error."""
    sol = jax.jit(lambda atol: solve(y0=np.float32([1, 0]), atol=atol))(0.0)
    assert sol.status == 0 and sol.ys[0, 1] == 0


def test_more_steps_than_can_be_counted():
    refused(ValueError, r"`dt`=1e-12 requires 1e\+12 steps, more than the maximum", dt=1e-12)


def test_saveat_unsorted():
    refused(ValueError, "`saveat` must be sorted, ascending, but 0.5 comes before 0.2", saveat=[0.5, 0.2])
    refused(ValueError, "`saveat` must be sorted, descending, because t1 < t0", t1=-1.0, saveat=[-0.5, -0.2])


def test_saveat_not_finite():
    refused(ValueError, "`saveat` must be finite, but contains NaN or infinity", saveat=[0.5, np.nan])


@pytest.mark.parametrize("saveat", [[], np.zeros(0), np.zeros((2, 2))])
def test_saveat_empty_or_not_one_dimensional(saveat):
    refused(ValueError, r"`saveat` must have shape \(times,\) with at least one time, but has shape", saveat=saveat)


@pytest.mark.parametrize("saveat", [0.5, 1, np.float32(0.5), np.array(0.5), jnp.array(0.5), np.nan])
def test_saveat_of_one_number(saveat):
    message = rf"`saveat` must be .*but is the number {saveat}. Write `saveat=\[{saveat}\]`.*jnp.linspace\(t0, t1"
    refused(ValueError, message, saveat=saveat)


def test_saveat_of_one_traced_number():
    with pytest.raises(ValueError, match=r"`saveat` must be .*but is a traced number. Write `saveat=\[t\]`"):
        jax.eval_shape(lambda t: solve(saveat=t).ys, 0.5)


@pytest.mark.parametrize(
    "saveat",
    ["0.5", True, np.True_, {"ts": [0.5]}, {0.5}, (t for t in [0.5]), diffrax.SaveAt, diffrax.SubSaveAt(t1=True)]
    + [np.array([False, True]), np.array([0.5j]), np.array(["0.5"]), np.array(["2026-01-01"], "M8[D]")]
    + [jax.random.key(0), jax.random.split(jax.random.key(0), 2), np.array(None)],
    ids=lambda saveat: type(saveat).__name__,
)
def test_saveat_that_is_no_times(saveat):
    message = r"`saveat` must be an array or a list of real numbers, such as `saveat=\[0.5\]`.*SaveAt.*, but is "
    refused(TypeError, message, saveat=saveat)


@pytest.mark.parametrize("wrong", [None, True, "0.5", 0.5j, [0.5], np.ones(1), np.array(True)], ids=repr)
def test_saveat_with_a_place_that_is_no_time(wrong):
    message = r"`saveat\[1\]` must be a time, one real number, but is "
    refused(TypeError, message + re.escape(f"{wrong!r:.60}"), saveat=[0.1, wrong])
    held = np.empty(2, object)
    held[:] = [0.1, wrong]
    refused(TypeError, message, saveat=held)


@pytest.mark.parametrize(
    "saveat",
    [range(2), [0, 1], np.array([0, 1]), np.array([0.0, 1.0], object), [np.float16(0), fractions.Fraction(1)]],
    ids=lambda saveat: type(saveat).__name__,
)
def test_saveat_of_numbers_of_any_kind(saveat):
    assert solve(saveat=saveat, dt=0.5).ts.tolist() == [0.0, 1.0]


# --- the state and the vector field


@pytest.mark.parametrize("y0", [np.array([1, 2]), 1, {"a": np.ones(2, np.float32), "b": np.array(1)}, True])
def test_integer_state(y0):
    refused(TypeError, r"`y0.*` must be floating-point or complex, but has dtype .*Write 1.0 instead of 1", y0=y0)


def test_empty_state():
    refused(ValueError, "`y0` must hold at least one array", y0={})
    refused(ValueError, r"`y0` must hold at least one number, but its shapes are \(0,\)", y0=np.zeros(0))
    solver = sciml.solvers.Rosenbrock23()
    refused(TypeError, "more than 16 unknowns, but `y0` has 20 of float16", y0=np.ones(20, np.float16), solver=solver)


def test_state_that_is_no_array():
    refused(TypeError, "y0", y0={"a": "one"})


def test_vector_field_of_another_structure():
    refused(ValueError, r"must return the structure of `y0`, .*but it returned", model=lambda t, y, args: (y, y))
    refused(ValueError, "must return the structure", model=lambda t, y, args: {"a": y["a"]}, y0={"a": Y0, "b": Y0})


def test_vector_field_of_another_shape():
    refused(
        ValueError, r"must return the shapes of `y0`: the state has shape \(2,\), but its rate has shape \(1,\)",
        model=lambda t, y, args: y[:1],
    )  # fmt: skip
    refused(ValueError, "For a batch of states use `jax.vmap`", model=lambda t, y, args: y[0], y0=jnp.ones((3, 2)))
    refused(
        ValueError, r"\['b'\] has shape \(2,\), but its rate has shape \(\)",
        model=lambda t, y, args: {"a": y["a"], "b": y["b"][0]}, y0={"a": Y0, "b": Y0},
    )  # fmt: skip


def test_vector_field_of_another_dtype():
    message = "must return the dtypes of `y0`: the state has float32, but its rate has .*Convert"
    refused(ValueError, message, model=lambda t, y, args: y.astype(jnp.float16))
    refused(ValueError, message, model=lambda t, y, args: y.astype(jnp.complex64))


@pytest.mark.x64
def test_parameters_of_another_precision():
    refused(ValueError, "its rate has float64", model=lambda t, y, args: y.astype(float) * args, args=np.ones(2))


def test_vector_field_that_returns_nothing():
    refused(ValueError, "must return the structure of `y0`", model=lambda t, y, args: None)


# --- tolerances and steps


@pytest.mark.parametrize("name", ["rtol", "atol"])
@pytest.mark.parametrize("value", [-1e-3, np.nan, np.inf, np.array([1e-3, -1e-3])])
def test_tolerance_negative_or_not_finite(name, value):
    refused(ValueError, f"`{name}` must be finite and not negative, but is", **{name: value})


def test_tolerance_below_the_resolution_of_the_dtype():
    refused(ValueError, "`rtol` is 1e-08, below what float32 can resolve: at least 2.4e-07. Loosen it, or", rtol=1e-8)
    refused(ValueError, "`atol` is 1e-50, below what float32 can resolve", atol=1e-50)
    refused(
        ValueError,
        "`rtol` is 1e-08, below what float32",
        stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-8),
    )
    refused(ValueError, "below what complex64 can resolve", rtol=1e-8, y0=Y0.astype(np.complex64))


@pytest.mark.x64
def test_tolerance_below_the_resolution_of_float64():
    refused(ValueError, "below what float64 can resolve", rtol=1e-16, y0=np.ones(2))
    solve(rtol=1e-8, y0=np.ones(2))


def test_tolerance_of_another_shape_or_structure():
    refused(
        ValueError, r"`atol` must be a scalar or have the state's shape \(2,\), but has shape \(3,\)", atol=np.ones(3)
    )
    refused(ValueError, "`atol` must be .*with the structure of `y0`", atol={"a": 1e-6, "b": 1e-6})


def test_tolerances_given_twice():
    controller = diffrax.PIDController(rtol=1e-3, atol=1e-6)
    refused(
        ValueError,
        "either as `rtol` and `atol` or in `stepsize_controller`, not both",
        stepsize_controller=controller,
        rtol=1e-3,
    )


def test_fixed_steps_without_their_size():
    refused(ValueError, "Fixed steps require `dt`", stepsize_controller=diffrax.ConstantStepSize())


def test_method_without_error_estimate_under_tolerances():
    refused(ValueError, r"`solver=Euler\(\)` does not estimate errors.*: give `dt`, or .*Tsit5", solver=diffrax.Euler())
    refused(ValueError, r"fixed: leave out `rtol` and give `dt`, or .*Tsit5", solver=diffrax.Euler(), rtol=1e-3)
    implicit = sciml.solvers.CrankNicolson()
    refused(
        ValueError, r"leave out `rtol` and `atol` and give `dt`, or .*`sciml.solvers.ARK\(order=3\)`.$",
        solver=implicit, rtol=1e-3, atol=1e-3,
    )  # fmt: skip
    refused(
        ValueError,
        r"leave out `rtol` and give `dt`, or .*ETDRK\(order=4\)",
        solver=sciml.solvers.ETDRK(order=1),
        rtol=1e-3,
    )


def test_little_memory_for_an_adjoint():
    with pytest.raises(ValueError, match=r"`Checkpointed\(memory=...\)` must be a positive integer, but is 0"):
        sciml.adjoints.Checkpointed(memory=0)


def test_two_policies_for_an_adjoint():
    message = r"`Checkpointed` accepts at most one of `memory`, `levels` and `segments`, but got memory=9, levels=2"
    with pytest.raises(ValueError, match=message):
        sciml.adjoints.Checkpointed(memory=9, levels=2)


@pytest.mark.parametrize("options", [{}, {"dt": 0.1, "saveat": np.linspace(0.01, 0.09, 9)}])  # all within one step
def test_levels_of_a_loop_whose_steps_are_not_counted(options):
    message = r"`Checkpointed\(levels=2\)` requires a constant number of steps.* use `memory` or `segments`"
    refused(ValueError, message, adjoint=sciml.adjoints.Checkpointed(levels=2), **options)


def test_levels_of_a_solve_that_diffrax_runs():
    message = r"`Checkpointed\(levels=2\)` requires one of sciml's own loops"
    refused(ValueError, message, adjoint=sciml.adjoints.Checkpointed(levels=2), solver=diffrax.ImplicitEuler())


@pytest.mark.parametrize("value", [(1e-6,), {"x": 1e-6}])
def test_tolerances_that_are_one_leaf_of_another_structure(value):
    refused(ValueError, r"`atol` must be a number, an array, or a PyTree with the structure of `y0`", atol=value)


def test_a_tolerance_that_is_no_number():
    refused(TypeError, r"`rtol` must be a number, an array, or a PyTree of them, but is '1e-3'", rtol="1e-3")


# --- wrong types, as users without the type checker of these tests meet them


def unchecked(**options):
    """Calls `solve` as it is without the checks that the tests' import hook puts around it."""
    plain = inspect.unwrap(sciml.solve)
    arguments = {"model": decay, "y0": Y0, "t0": 0.0, "t1": 1.0, **options}
    return plain(arguments.pop("model"), arguments.pop("y0"), **arguments)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"solver": diffrax.Tsit5}, "`solver` must be a diffrax solver such as .* Tsit5 is a class: make an instance"),
        (
            {"adjoint": sciml.adjoints.Gauss},
            "`adjoint` must be an adjoint such as .* Gauss is a class: make an instance",
        ),
        ({"solver": "tsit5"}, "`solver` must be a diffrax solver such as"),
        ({"model": 3}, "`model` must be callable as `model\\(t, y, args\\)`, but is 3"),
        (
            {"adjoint": diffrax.DirectAdjoint()},
            "`adjoint` must be an adjoint such as `sciml.adjoints.Checkpointed\\(\\)`",
        ),
        ({"adjoint": sciml.adjoints.Direct}, "`adjoint` must be an adjoint such as"),
        ({"stepsize_controller": 1e-3}, "`stepsize_controller` must be a diffrax step size controller, but is 0.001"),
        ({"t0": "now"}, "`t0` must be a real number, but is str"),
        ({"t1": 1j}, "`t1` must be a real number, but is complex"),
        ({"t1": True}, "`t1` must be a real number, but is bool"),
        ({"dt": None, "t1": None}, "`t1` must be a real number, but is NoneType"),
        ({"dt": "small"}, "`dt` must be a real number, but is str"),
    ],
)
def test_wrong_types(options, message):
    with pytest.raises(TypeError, match=message):
        unchecked(**options)


@pytest.mark.parametrize("max_steps", [1.5, True, "many"])
def test_max_steps_not_an_integer(max_steps):
    with pytest.raises((TypeError, ValueError), match="`max_steps` must be a positive integer, but is"):
        unchecked(max_steps=max_steps)


# --- failures at run time


def failure(message, **options):
    with pytest.raises(sciml.SolveError, match=message) as caught:
        solve(**options)
    assert caught.value.status.shape == ()
    sol = solve(throw=False, **options)
    assert int(sol.status) == int(caught.value.status)
    return sol


@pytest.mark.parametrize(
    "options", [{}, {"saveat": [0.5, 1.9, 2.0]}, {"dt": 0.001}, {"dt": 0.001, "saveat": [0.5, 2.0]}]
)
def test_solution_that_blows_up(options):
    """y' = y^2 from 1 is infinite at t = 1."""
    sol = failure(
        "`solve` failed at t = (1|0.9[0-9]*)[0-9.]* with status `", model=lambda t, y, args: y**2, t1=2.0, **options
    )
    assert 0.9 < float(sol.t_reached) < 1.1
    assert np.isnan(sol.ys[-1]).all()
    if "saveat" in options:
        np.testing.assert_allclose(sol.ys[0], 2.0, rtol=1e-3)


@pytest.mark.parametrize("options", [{}, {"dt": 0.1}, {"saveat": [1.0]}])
def test_vector_field_that_returns_nan(options):
    message = "status `nonfinite`. The state or the vector field became NaN or infinite at `Solution.t_reached`"
    sol = failure(message, model=lambda t, y, args: y * jnp.nan, **options)
    assert float(sol.t_reached) == 0.0
    later = failure(message, model=lambda t, y, args: jnp.where(t < 0.5, -y, jnp.nan), **options)
    assert 0.3 < float(later.t_reached) <= 0.5


@pytest.mark.parametrize("y0", [np.array([1.0, np.nan], np.float32), np.array([np.inf, 1.0], np.float32)])
@pytest.mark.parametrize("options", [{}, {"dt": 0.1}])
def test_initial_state_not_finite(y0, options):
    assert np.isnan(failure("status `nonfinite`", y0=y0, **options).ys).all()


def test_a_zero_that_stays_zero_needs_no_absolute_tolerance():
    y0 = np.array([1.0, 0.0], np.float32)
    sol = solve(y0=y0, rtol=1e-4, atol=0.0, throw=True)
    np.testing.assert_allclose(sol.ys[-1], [np.exp(-1.0), 0.0], rtol=1e-3)
    ramp = solve(lambda t, y, args: jnp.ones_like(y) * 2 * t, np.zeros(2, np.float32), rtol=1e-4, atol=0.0)
    np.testing.assert_allclose(ramp.ys[-1], 1.0, rtol=1e-3)


def test_max_steps_reached():
    message = "status `max_steps_reached`. The limit on the number of steps was reached .*raise `max_steps`"

    def fast(t, y, args):
        return 1e3 * jnp.cos(1e3 * t) * jnp.ones_like(y)

    sol = failure(message, model=fast, max_steps=20)
    assert 0 < float(sol.t_reached) < 1 and int(sol.stats.accepted + sol.stats.rejected) == 20
    assert np.isnan(sol.ys).all()
    failure("status `max_steps_reached`", model=fast, max_steps=20, saveat=[0.5])


def test_max_steps_reached_for_stability():
    failure(
        "status `stiff`. The problem is stiff: .*Use an implicit method",
        model=lambda t, y, args: -1e4 * y,
        max_steps=20,
    )


def test_max_steps_just_enough():
    needed = solve(throw=True, rtol=1e-4).stats
    total = int(needed.accepted + needed.rejected)
    assert int(solve(rtol=1e-4, max_steps=total).status) == 0
    failure("status `max_steps_reached`", rtol=1e-4, max_steps=total - 1)


def test_step_size_below_its_limit():
    controller = diffrax.PIDController(rtol=1e-4, atol=1e-6, dtmin=0.5, force_dtmin=False)
    failure(
        "status `step_too_small`. The step size fell below",
        model=lambda t, y, args: -100 * y,
        stepsize_controller=controller,
    )


def test_failures_of_other_solvers():
    options = {"model": lambda t, y, args: y**2, "t1": 2.0, "solver": diffrax.ImplicitEuler(), "max_steps": 200}
    assert np.isnan(failure("`solve` failed .*with status `", rtol=1e-4, atol=1e-6, **options).ys).all()


def test_nothing_is_raised_under_transformations():
    """Traced code returns the status; the host may raise afterwards."""

    def run(rate):
        return solve(model=lambda t, y, args: rate * y**2, t1=2.0)

    sol = jax.vmap(run)(jnp.array([0.1, 1.0, 0.2, 5.0], jnp.float32))
    assert (np.asarray(sol.status) != 0).tolist() == [False, True, False, True]
    with pytest.raises(sciml.SolveError, match="2 of 4 members failed") as caught:
        sol.raise_if_failed()
    assert "members 1, 3" in str(caught.value) or (
        "members 1)" in str(caught.value) and "members 3)" in str(caught.value)
    )
    assert caught.value.status.shape == (4,)
    assert int(jax.jit(run)(jnp.float32(1.0)).status) != 0


def test_raising_while_tracing_is_refused():
    def run(y0):
        return solve(y0=y0).raise_if_failed().ys

    with pytest.raises(TypeError, match="needs concrete values but was called under `jax.jit`"):
        jax.jit(run)(Y0)
