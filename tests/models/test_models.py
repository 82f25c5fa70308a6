"""Every model: registered, equal to its formula, and well behaved under JAX's transforms."""

import dataclasses
import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from sciml import AbstractConservationLaw, AbstractSemilinear, models, verify
from tests import registry_fields
from tests.conftest import CHECK_TYPES
from tests.registry_models import EVERY, Parts

# Compiled once for each model and dtype, which is faster than operation by operation.
FIELD = jax.jit(lambda model, y: model(0.0, y, None))
JACOBIAN = jax.jit(jax.jacfwd(lambda model, y: model(0.0, y, None)))

each_case = pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)


def lorenz96(y, f):
    n = len(y)
    return [(y[(i + 1) % n] - y[i - 2]) * y[i - 1] - y[i] + f for i in range(n)]


def three_body(y, mu):
    x1, x2, v1, v2 = y
    d1 = ((x1 + mu) ** 2 + x2**2) ** 1.5
    d2 = ((x1 - (1 - mu)) ** 2 + x2**2) ** 1.5
    a1 = x1 + 2 * v2 - (1 - mu) * (x1 + mu) / d1 - mu * (x1 - (1 - mu)) / d2
    a2 = x2 - 2 * v1 - (1 - mu) * x2 / d1 - mu * x2 / d2
    return [v1, v2, a1, a2]


def hires(y):
    """With the numbers of the Test Set for IVP Solvers, not with its rate constants."""
    y1, y2, y3, y4, y5, y6, y7, y8 = y
    return [
        -1.71 * y1 + 0.43 * y2 + 8.32 * y3 + 0.0007,
        1.71 * y1 - 8.75 * y2,
        -10.03 * y3 + 0.43 * y4 + 0.035 * y5,
        8.32 * y2 + 1.71 * y3 - 1.12 * y4,
        -1.745 * y5 + 0.43 * y6 + 0.43 * y7,
        -280 * y6 * y8 + 0.69 * y4 + 1.71 * y5 - 0.43 * y6 + 0.69 * y7,
        280 * y6 * y8 - 1.81 * y7,
        -280 * y6 * y8 + 1.81 * y7,
    ]


# The formulas once more, in NumPy and with the numbers written out, for the values in the registry.
FORMULAS = {
    "BirthDeath": lambda y: [1.0, 0.1 * y[0]],
    "BouncingBall": lambda y: [y[1], -9.81],
    "Brusselator": lambda y: [1 + y[0] ** 2 * y[1] - 4 * y[0], 3 * y[0] - y[0] ** 2 * y[1]],
    "FitzHughNagumo": lambda y: [
        y[0] - y[0] ** 3 / 3 - y[1] + 0.5,
        0.08 * (y[0] + 0.7 - 0.8 * y[1]),
    ],
    "GeometricBrownian": lambda y: [0.15 * y[0], 0.3 * y[1]],
    "HIRES": hires,
    "HarmonicOscillator": lambda y: [y[1], -4 * y[0] - 0.4 * y[1]],
    "IntegrateAndFire": lambda y: [(-65.0 - y[0] + 20.0) / 10.0],
    "Kepler": lambda y: [y[2], y[3], *(-np.array(y[:2]) / np.hypot(y[0], y[1]) ** 3)],
    "Linear": lambda y: [-y[0] + 4 * y[1], -4 * y[0] - y[1]],
    "Logistic": lambda y: [v * (1 - v) for v in y],
    "Lorenz63": lambda y: [10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]],
    "Lorenz96": lambda y: lorenz96(y, 8.0),
    "LotkaVolterra": lambda y: [
        0.545 * y[0] - 0.028 * y[0] * y[1],
        0.024 * y[0] * y[1] - 0.803 * y[1],
    ],
    "MackeyGlass": lambda y: [0.2 * y[1] / (1 + y[1] ** 10) - 0.1 * y[0], 1.2, 17.0],
    "OrnsteinUhlenbeck": lambda y: [0.1779 * (0.0866 - y[0]), 0.02],
    "Oregonator": lambda y: [
        77.27 * (y[1] + y[0] * (1 - 8.375e-6 * y[0] - y[1])),
        (y[2] - (1 + y[0]) * y[1]) / 77.27,
        0.161 * (y[0] - y[2]),
    ],
    "Pendulum": lambda y: [y[1], -9.81 * np.sin(y[0]) - 0.2 * y[1]],
    "RestrictedThreeBody": lambda y: three_body(y, 0.012277471),
    "Robertson": lambda y: [
        -0.04 * y[0] + 1e4 * y[1] * y[2],
        0.04 * y[0] - 1e4 * y[1] * y[2] - 3e7 * y[1] ** 2,
        3e7 * y[1] ** 2,
    ],
    "Schnakenberg": lambda y: [2 * (0.1 - y[0] + y[0] ** 2 * y[1]), 2 * (0.9 - y[0] ** 2 * y[1])],
    "Schloegl": lambda y: [
        0.015 * y[0] * (y[0] - 1),
        1e-4 * y[0] * (y[0] - 1) * (y[0] - 2) / 6,
        200.0,
        3.5 * y[0],
    ],
    "SIR": lambda y: [
        -1.66 * y[0] * y[1] / sum(y),
        1.66 * y[0] * y[1] / sum(y) - 0.44 * y[1],
        0.44 * y[1],
    ],
    "TwoCompartment": lambda y: [
        -8.64 * y[0],
        8.64 * y[0] + y[3] - (3.87 + 0.0375) / 39.6 * y[1] + 0.0375 / 1.65 * y[2],
        0.0375 / 39.6 * y[1] - 0.0375 / 1.65 * y[2],
        0.0,
    ],
    "VanDerPol": lambda y: [y[1], (1 - y[0] ** 2) * y[1] - y[0]],
    "VanDerPolScaled": lambda y: [y[1], 100 * ((1 - y[0] ** 2) * y[1] - y[0])],
}


def states(case, count=5):
    """The initial state, and others around it that leave no term of the equation at zero."""
    rng = np.random.default_rng(7)
    base = np.asarray(case.state)
    return [base, *(base * rng.uniform(0.5, 1.5, base.shape) + rng.uniform(0.1, 0.5, base.shape) for _ in range(count))]


def whose(case):
    """The model that a case is about."""
    model = case.make()
    return model.model if isinstance(model, Parts) else model


def test_every_model_is_registered():
    fields = {case.name for case in registry_fields.CASES}  # tests/models/fields/test_fields.py
    every = {name: value for name, value in vars(models).items() if inspect.isclass(value)}
    periodic = {name for name, value in every.items() if issubclass(value, AbstractSemilinear)}  # tests/solvers
    laws = {name for name, value in every.items() if issubclass(value, AbstractConservationLaw)}  # own file
    public = set(every) - fields - periodic - laws - {"Darcy", "FokkerPlanck", "KleinGordon"}  # own files
    public -= registry_fields.FLOWS | registry_fields.WAVES
    public -= {"ReactionNetwork", "Arrhenius"}  # networks/
    public -= {"Acoustic", "Sound", "PointSources", "Ricker", "Sampled"}  # test_acoustic.py
    assert {case.name for case in EVERY} == public == set(FORMULAS)
    assert len(EVERY) == len(public)
    assert all(type(whose(case)).__name__ == case.name for case in EVERY)


@each_case
def test_field_is_its_formula(case, dtype):
    model = case.make()
    for state in states(case):
        y = jnp.asarray(state, dtype)
        # In NumPy and in full precision, from the state as it was rounded.
        want = np.asarray(FORMULAS[case.name](np.asarray(y, np.float64)))
        np.testing.assert_allclose(
            np.asarray(FIELD(model, y), np.float64),
            want,
            rtol=50 * float(jnp.finfo(dtype).eps),
            # Terms that nearly cancel keep their rounding.
            atol=50 * float(jnp.finfo(dtype).eps) * np.abs(want).max(),
        )


@each_case
def test_dtype_shape_and_structure_are_kept(case, dtype):
    model, y0 = case.make(), case.y0(dtype)
    for t in (0.0, jnp.asarray(0.0), jnp.asarray(0.0, jnp.float32)):
        out = eqx.filter_eval_shape(model, t, y0, None)
        assert (out.shape, out.dtype) == (y0.shape, y0.dtype)
    strong = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(float)), model)
    assert eqx.filter_eval_shape(strong, 0.0, y0, None).dtype == y0.dtype


@each_case
def test_every_parameter_is_a_leaf_that_matters(case):
    """A parameter that no derivative sees is a typing error in the equation, or in its events."""
    model = case.make()
    y = jnp.asarray(states(case)[1])
    jacobian = JACOBIAN(model, y)
    if case.beside is not None:
        of_events = jax.jit(jax.jacfwd(case.beside))(model, y)
        jacobian = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), jacobian, of_events)
    names = [x.name for x in dataclasses.fields(whose(case)) if not x.metadata.get("static", False)]
    leaves = jax.tree.leaves(jacobian)
    assert len(leaves) == len(names)
    for name, leaf in zip(names, leaves, strict=True):
        assert np.any(np.asarray(leaf) != 0) and np.all(np.isfinite(leaf)), name


@pytest.mark.x64
@each_case
def test_gradient_by_parameters_and_state(case):
    y = jnp.asarray(states(case)[1])
    weights = jnp.arange(1.0, y.size + 1)

    @jax.jit
    def fn(inputs):
        model, y = inputs
        return jnp.dot(weights, model(0.0, y, None))

    out = float(np.abs(fn((case.make(), y))))
    # Differences of a large value are rounded at its size: Robertson's rates reach 1e7.
    verify.check_gradient(fn, (case.make(), y), rtol=1e-6, atol=1e-8 * max(1.0, out))


@each_case
def test_vmap_over_states_and_models(case):
    model = case.make()
    ys = jnp.stack([jnp.asarray(state) for state in states(case, 2)])
    each = np.stack([FIELD(model, y) for y in ys])
    # Vectorised and scalar code may differ in the last bits, also where terms nearly cancel.
    tolerance = 50 * float(jnp.finfo(ys.dtype).eps)
    close = dict(rtol=tolerance, atol=tolerance * float(np.abs(each).max()))
    np.testing.assert_allclose(jax.vmap(FIELD, in_axes=(None, 0))(model, ys), each, **close)

    factors = jnp.asarray([0.5, 1.0, 2.0])
    scaled = jax.jit(jax.vmap(lambda f: jax.tree.map(lambda leaf: leaf * f, model)))(factors)
    batch = np.asarray(jax.vmap(FIELD)(scaled, ys))
    np.testing.assert_allclose(batch[1], each[1], **close)
    assert np.any(batch[2] != each[2])


@each_case
def test_the_contract_of_models(case):
    verify.check_model(case.make(), jnp.asarray(states(case)[1]))


@pytest.mark.x64
@each_case
def test_trajectory_against_scipy(case):
    """The model inside SciPy's Radau against the formula inside SciPy's other methods."""
    model = case.make()
    method = "LSODA" if case.stiff else "DOP853"
    options = dict(rtol=1e-9, atol=1e-12)
    want = solve_ivp(lambda t, y: FORMULAS[case.name](y), (0, case.t1), case.state, method=method, **options)
    got = solve_ivp(
        lambda t, y: np.asarray(FIELD(model, y)),
        (0, case.t1),
        case.state,
        method="Radau",
        **dict(rtol=1e-8, atol=1e-11),
    )
    assert want.success and got.success
    scale = np.abs(want.y).max()
    np.testing.assert_allclose(got.y[:, -1], want.y[:, -1], rtol=1e-6, atol=1e-7 * scale)


INVARIANTS = [
    ("LotkaVolterra", "invariant"),
    ("Robertson", "total"),
    ("SIR", "total"),
    ("SIR", "invariant"),
    ("Kepler", "energy"),
    ("Kepler", "angular_momentum"),
    ("Kepler", "eccentricity_vector"),
    ("RestrictedThreeBody", "jacobi_constant"),
    ("HIRES", "bound"),
]


@pytest.mark.x64
@pytest.mark.parametrize(("name", "method"), INVARIANTS)
def test_invariant_has_no_derivative_along_the_field(name, method):
    """dQ/dt = Q'(y) f(y) must vanish at any state, which needs no solver."""
    case = next(case for case in EVERY if case.name == name)
    model = case.make()

    @jax.jit
    def derivatives(model, y, f):
        quantity = getattr(model, method)
        return *jax.jvp(quantity, (y,), (f,)), jax.jacfwd(quantity)(y)

    for state in states(case)[1:]:
        y = jnp.asarray(state)
        f = FIELD(model, y)
        value, slope, gradient = derivatives(model, y, f)
        size = jnp.abs(gradient) @ jnp.abs(f)
        assert jnp.all(size > 0), "the test would pass for a constant"
        assert jnp.all(jnp.abs(slope) < 1e-13 * size)
        assert value.dtype == y.dtype


@pytest.mark.x64
@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (models.Pendulum(length=0.5), lambda m, y: 0.0 * y[0]),
        (models.Pendulum(length=0.5, damping=0.3), lambda m, y: -0.3 * (0.5 * y[1]) ** 2),
        (models.HarmonicOscillator(omega=3.0), lambda m, y: 0.0 * y[0]),
        (models.HarmonicOscillator(omega=3.0, zeta=0.2), lambda m, y: -2 * 0.2 * 3.0 * y[1] ** 2),
    ],
)
def test_energy_falls_by_friction_alone(model, loss):
    y = jnp.asarray([0.7, -1.2])
    _, slope = jax.jvp(model.energy, (y,), (model(0.0, y, None),))
    np.testing.assert_allclose(slope, loss(model, y), atol=1e-13)


def test_energy_of_a_small_swing_keeps_its_digits():
    """1 - cos(angle) would be zero in float32."""
    energy = models.Pendulum(gravity=10.0).energy(jnp.asarray([1e-5, 0.0], jnp.float32))
    np.testing.assert_allclose(energy, 5e-10, rtol=1e-5)


def test_kepler_constants_of_an_ellipse():
    e = 0.3
    y = jnp.asarray([1 - e, 0.0, 0.0, ((1 + e) / (1 - e)) ** 0.5])
    kepler = models.Kepler()
    np.testing.assert_allclose(kepler.energy(y), -0.5, rtol=1e-6)
    np.testing.assert_allclose(kepler.angular_momentum(y), (1 - e**2) ** 0.5, rtol=1e-6)
    np.testing.assert_allclose(kepler.eccentricity_vector(y), [e, 0.0], rtol=1e-5, atol=1e-6)


def test_van_der_pol_forms_agree():
    """(x, v) at time t in one form is (x, mu v) at time t / mu in the other."""
    mu = 20.0
    x, v = 1.5, 0.25
    own = models.VanDerPol(mu=mu)(0.0, jnp.asarray([x, v]), None)
    scaled = models.VanDerPolScaled(epsilon=mu**-2)(0.0, jnp.asarray([x, mu * v]), None)
    np.testing.assert_allclose(scaled, [mu * own[0], mu**2 * own[1]], rtol=1e-5)


def test_lorenz96_needs_four_sites():
    with pytest.raises(ValueError, match="at least four sites"):
        models.Lorenz96()(0.0, jnp.ones(3), None)


@pytest.mark.skipif(not CHECK_TYPES, reason="the annotations refuse it, which are not checked here")
def test_wrong_state_is_refused():
    with pytest.raises(Exception, match="y"):
        models.Lorenz63()(0.0, jnp.ones(4), None)
