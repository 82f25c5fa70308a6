"""What is true of a model whatever its weights are."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import sciml
from sciml import models
from sciml.models import neural
from sciml.models.neural._latent_ode import Posterior
from sciml.models.neural._universal import NeuralTerm
from sciml.spatial import Grid, Periodic, Rusanov

KEY = jax.random.key(5)
SMALL = dict(width=6, depth=1)


def eps():
    return float(jnp.finfo(jnp.result_type(float)).eps)


def rate_of(energy, model, y):
    return jax.jvp(energy, (y,), (model(0.0, y, None),))[1]


def test_a_symplectic_method_keeps_the_energy_of_a_learnt_potential():
    """Its error neither grows with time nor depends on it, and falls as the square of the step."""
    model = neural.PotentialNetwork(2, mass=(1.0, 0.5), **SMALL, key=KEY)
    start = jnp.array([1.0, -0.5]), jnp.array([0.3, 0.2])

    @jax.jit
    def errors(dt):
        """Over 400 units of time, dozens of oscillations."""
        ts = jnp.linspace(0.0, 400.0, 401)
        ys = sciml.solve(model, start, t0=0.0, t1=400.0, dt=dt, saveat=ts, solver=sciml.solvers.VelocityVerlet()).ys
        energies = jax.vmap(model.energy)(ys)
        return jnp.abs(energies - energies[0]) / jnp.ptp(jax.vmap(model.potential)(ys[0]))

    coarse, fine = errors(0.5), errors(0.25)
    assert coarse[-100:].max() < 2 * coarse[:100].max() < 0.1
    assert 3 < coarse.max() / fine.max() < 5


def test_the_energy_of_hamiltonian_and_lagrangian_networks_is_constant_along_their_fields():
    for model in (neural.HamiltonianNetwork(2, **SMALL, key=KEY), neural.LagrangianNetwork(2, **SMALL, key=KEY)):
        y = jnp.array([0.3, -0.7, 0.2, 1.1])
        size = jnp.abs(jax.grad(model.energy)(y)) @ jnp.abs(model(0.0, y, None))
        assert abs(rate_of(model.energy, model, y)) < 20 * eps() * size and size > 0.01


def test_projection_keeps_the_energy_of_a_hamiltonian_network():
    model = neural.HamiltonianNetwork(1, **SMALL, key=KEY)
    y0 = jnp.array([0.8, 0.3])
    options = dict(t0=0.0, t1=5.0, dt=0.5, solver=diffrax.Heun())
    plain, kept = (sciml.solve(model, y0, **options, project=p).ys[-1] for p in (None, lambda y: model.energy(y)))
    off = [float(abs(model.energy(y) - model.energy(y0))) for y in (plain, kept)]
    assert off[1] < 30 * eps() < off[0]


@pytest.mark.parametrize("size", [1, 3, 5])  # by elimination, and by LAPACK
def test_the_acceleration_solves_the_euler_lagrange_equations(size):
    model = neural.LagrangianNetwork(size, **SMALL, scale=2.0, key=KEY)
    q, v = jnp.cos(jnp.arange(1.0, size + 1)), jnp.sin(jnp.arange(1.0, size + 1))

    @jax.jit
    def both(q, v):
        of = model.lagrangian
        inertia = jax.hessian(of, 1)(q, v)
        mixed = jax.jacfwd(jax.grad(of, 1), 0)(q, v)
        wanted = jnp.linalg.solve(inertia, jax.grad(of, 0)(q, v) - mixed @ v)
        return inertia, wanted, model(0.0, jnp.concatenate([q, v]), None)

    inertia, wanted, found = both(q, v)
    assert np.linalg.eigvalsh(inertia).min() > 0
    np.testing.assert_array_equal(found[:size], v)
    np.testing.assert_allclose(found[size:], wanted, rtol=1e3 * eps(), atol=1e3 * eps())


@pytest.mark.parametrize("size", [1, 3])
def test_a_port_hamiltonian_network_balances_its_power(size):
    model = neural.PortHamiltonian(size, 2, **SMALL, scale=1.5, key=KEY)
    x, u = jnp.cos(jnp.arange(1.0, size + 1)), jnp.array([0.4, -1.2])

    @jax.jit
    def parts(x):
        rate = jax.jvp(model.energy, (x,), (model(0.0, x, u),))[1]
        closed = jax.jvp(model.energy, (x,), (model(0.0, x, None),))[1]
        return *model.matrices(x), rate, closed, model.output(x) @ u, model.dissipation(x), jax.grad(model.energy)(x)

    skew, losses, ports, rate, closed, supplied, lost, gradient = parts(x)
    np.testing.assert_array_equal(skew, -skew.T)
    assert ports.shape == (size, 2) and np.linalg.eigvalsh(losses).min() > -10 * eps()
    assert lost > 0 and abs(lost - gradient @ losses @ gradient) < 50 * eps()
    assert abs(rate - (supplied - lost)) < 50 * eps() and abs(closed + lost) < 50 * eps()
    held = sciml.Held(jnp.array([0.0, 1.0]), jnp.stack([u, -u]))
    np.testing.assert_array_equal(model(1.5, x, held), model(1.5, x, -u))
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        model(0.0, x, jnp.ones(3))


def test_the_closure_conserves_what_fields_hold():
    grid = Grid((6, 5), 0.0, (1.0, 2.0))
    draw = np.random.default_rng(0)
    u = jnp.asarray(draw.normal(size=(2, 6, 5)), jnp.result_type(float))
    model = neural.ConservativeClosure(
        lambda t, y, args: jnp.zeros_like(y), grid, (True, False), components=2, gain=5.0, **SMALL, key=KEY
    )

    @jax.jit
    def of(u):
        one = u.at[:, 0, 0].add(1.0)
        end = sciml.solve(model, u, t0=0.0, t1=3.0, dt=0.3, solver=diffrax.Heun()).ys[-1]
        return end, model.closure(u), model.closure(one), model.closure(jnp.roll(u, 1, axis=1))

    end, rates, moved, rolled = of(u)
    assert jnp.abs(end - u).max() > 0.3
    assert jnp.abs(jnp.sum(end - u, axis=(1, 2))).max() < 300 * eps()
    np.testing.assert_allclose(rolled, jnp.roll(rates, 1, axis=1), atol=50 * eps())  # no cell is another
    # a face sees two cells on either side, so a cell is seen three cells away, around the ring and not through walls
    changed = jnp.any(jnp.abs(moved - rates) > 10 * eps(), axis=0)
    assert changed[2, 0] and changed[4, 0] and changed[0, 2] and not changed[0, 4] and not changed[3, 3]


def test_a_learnt_flux_conserves_and_leaves_constant_states_alone():
    flux = neural.LearnedFlux(Rusanov(), 3, scale=(1.0, 0.5, 1.0), gain=2.0, **SMALL, key=KEY)
    grid = Grid(16)
    (x,) = grid.centers
    gas = models.Euler(grid, Periodic(), flux=flux)
    base = models.Euler(grid, Periodic(), flux=Rusanov())
    w = jnp.stack([1.0 + 0.2 * jnp.sin(2 * jnp.pi * x), 0.3 + 0 * x, 1.0 + 0.1 * jnp.cos(2 * jnp.pi * x)])
    rates, plain = gas(0.0, gas.conserved(w), None), base(0.0, gas.conserved(w), None)
    assert jnp.abs(rates - plain).max() > 1e-2
    assert jnp.abs(jnp.sum(rates, axis=1)).max() < 1e3 * eps()
    still = jnp.stack([jnp.ones(16), 0.3 * jnp.ones(16), jnp.ones(16)])
    assert jnp.abs(gas(0.0, gas.conserved(still), None)).max() < 1e3 * eps()


def test_an_augmented_state_starts_at_zero_and_shows_its_first_part():
    model = neural.AugmentedNeuralODE(2, 3, **SMALL, key=KEY)
    y0 = jnp.array([1.0, 2.0])
    start = model.start(y0)
    np.testing.assert_array_equal(start, [1.0, 2.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(model.observe(start), y0)
    assert model.observe(jnp.ones((7, 5))).shape == (7, 2)
    with pytest.raises(ValueError, match=r"shape \(2,\), but has shape \(3,\)"):
        model.start(jnp.ones(3))


def linear_cde(matrices):
    """A neural CDE of no hidden layers without biases, whose field is linear: dz = sum of A_k z dX_k."""
    size, channels = len(matrices[0]), len(matrices)
    model = neural.NeuralCDE(channels, size, 1, depth=0, bound=lambda x: x, key=KEY)
    weight = jnp.stack(matrices, axis=1).reshape(size * channels, size)
    (layer,) = model.net.layers
    layer = eqx.tree_at(lambda layer: (layer.weight, layer.bias), layer, (weight, jnp.zeros_like(layer.bias)))
    return eqx.tree_at(lambda model: model.net.layers, model, (layer,))


@pytest.mark.parametrize("kind", ["hermite", "linear"])
def test_a_linear_cde_has_its_closed_form(kind):
    """Matrices that commute: z = exp(A (X - X0) + B (t - t0)) z0, whatever the path between; some of it is missing."""
    a = jnp.array([[0.0, 1.0], [-1.0, 0.0]])
    b = -0.3 * jnp.eye(2)
    ts = jnp.array([0.0, 0.4, 1.0, 1.3, 2.0])
    xs = jnp.array([[0.5], [1.5], [jnp.nan], [-0.2], [0.9]])
    path, model, z0 = neural.measured_path(ts, xs, kind), linear_cde([b, a]), jnp.array([1.0, 0.0])
    tolerance = dict(rtol=1e-7, atol=1e-9) if jnp.result_type(float) == jnp.float64 else dict(rtol=1e-5, atol=1e-6)
    options = dict(saveat=ts[jnp.array([1, 3, 4])], events=sciml.Schedule(ts), **tolerance)
    ys = sciml.solve(model, z0, t0=0.0, t1=2.0, args=path, **options).ys
    wanted = [
        expm(np.asarray(a) * (x - 0.5) + np.asarray(b) * t) @ z0 for t, x in ((0.4, 1.5), (1.3, -0.2), (2.0, 0.9))
    ]
    np.testing.assert_allclose(ys, np.stack(wanted), atol=1e-6 if jnp.result_type(float) == jnp.float64 else 1e-4)
    assert model.read_out(ys).shape == (3, 1) and model.start(path).shape == (2,)


@pytest.mark.parametrize("kind", ["hermite", "linear"])
def test_a_channel_is_constant_before_its_first_measurement(kind):
    ts, late = jnp.arange(5.0), jnp.array([[jnp.nan], [jnp.nan], [0.5], [jnp.nan], [1.0]])
    path = neural.measured_path(ts, late, kind)
    np.testing.assert_allclose([path.evaluate(t)[1] for t in (0.0, 1.5, 2.0, 4.0)], [0.5, 0.5, 0.5, 1.0], rtol=1e-6)
    model = sciml.Controlled(lambda t, y, args: jnp.stack([0 * y, y]), path)
    sol = sciml.solve(model, 1.0, t0=0.0, t1=4.0, events=sciml.Schedule(ts[1:4]), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sol.ys[-1], np.exp(0.5), rtol=1e-4)
    with pytest.raises(ValueError, match="channel 0 of `xs` is NaN at all times"):
        neural.measured_path(ts, jnp.full((5, 1), jnp.nan), kind)
    traced = jax.jit(jax.vmap(lambda xs: neural.measured_path(ts, xs, kind).evaluate(1.0)[1]))(
        jnp.stack([late, jnp.nan * late])
    )
    assert traced[0] == 0.5 and jnp.isnan(traced[1])


def test_paths_know_nothing_of_what_comes_later():
    ts = jnp.linspace(0.0, 1.0, 6)
    xs = jnp.sin(5 * ts)[:, None]
    path, other = neural.measured_path(ts, xs), neural.measured_path(ts, xs.at[4:].add(1.0))
    before = jnp.linspace(0.0, 0.6, 7)
    np.testing.assert_array_equal(jax.vmap(path.evaluate)(before), jax.vmap(other.evaluate)(before))
    np.testing.assert_allclose(jax.vmap(path.evaluate)(ts)[:, 1:], xs, atol=1e-6)
    with pytest.raises(ValueError, match="must be ascending"):
        neural.measured_path(ts[::-1], xs)
    with pytest.raises(ValueError, match="shapes"):
        neural.measured_path(ts[:1], xs[:1], "linear")


def test_the_noise_of_a_neural_sde():
    y = jnp.array([0.5, -1.0])
    shapes = {}
    for noise in ("diagonal", "scalar", "additive", "general"):
        brownian = 3 if noise == "general" else None
        model = neural.NeuralSDE(2, noise, brownian=brownian, noise_unit=(0.1, 2.0), **SMALL, key=KEY)
        g = model.diffusion(0.0, y, None)
        shapes[noise] = g.shape
        assert noise in ("general", "scalar") or jnp.all(g > 0)
    assert shapes == {"diagonal": (2,), "scalar": (2,), "additive": (2,), "general": (2, 3)}
    constant = neural.NeuralSDE(2, "additive", noise_unit=0.1, key=KEY).diffusion(0.0, y, None)
    np.testing.assert_allclose(constant, 0.1 * np.log(2), rtol=1e-6)
    with pytest.raises(ValueError, match="is required with"):
        neural.NeuralSDE(2, brownian=3, key=KEY)
    with pytest.raises(ValueError, match="must be one of"):
        neural.NeuralSDE(2, "white", key=KEY)


def test_a_neural_sde_with_the_weights_of_a_known_process_has_its_moments():
    """A linear drift and a constant noise: Ornstein and Uhlenbeck's process."""
    model = neural.NeuralSDE(1, "additive", depth=0, key=KEY)
    (layer,) = model.drift_term.net.layers
    wanted = -2.0 * jnp.ones((1, 1)), 0.6 * jnp.ones(1), jnp.log(jnp.expm1(jnp.full(1, 0.5)))
    where = lambda m: (m.drift_term.net.layers[0].weight, m.drift_term.net.layers[0].bias, m.diffusion_term)  # noqa: E731
    model = eqx.tree_at(where, model, wanted)
    known = models.OrnsteinUhlenbeck(rate=2.0, mean=0.3, volatility=0.5)
    keys = jax.random.split(KEY, 2000)
    end = jax.jit(jax.vmap(lambda key: sciml.solve(model, jnp.ones(1), t0=0.0, t1=0.5, dt=0.05, key=key).ys[-1, 0]))(
        keys
    )
    mean, variance = sciml.verify.reference("ornstein_uhlenbeck_moments", known, 1.0, 0.5)
    assert abs(end.mean() - mean) < 4 * (variance / 2000) ** 0.5 + 0.002
    assert abs(end.var() / variance - 1) < 0.15


def test_the_term_of_a_universal_equation():
    known = models.Lorenz63()
    model = neural.UniversalODE(known, 3, components=(2, 0), unit=(5.0, 1.0), gain=0.0, **SMALL, key=KEY)
    y = jnp.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(model(0.0, y, None), known(0.0, y, None))  # it starts from what is known
    added = model.with_term(lambda t, y, args: jnp.stack([10.0 * y[0], args]))
    np.testing.assert_allclose(added(0.0, y, jnp.array(7.0)) - known(0.0, y, None), [7.0, 0.0, 10.0], rtol=1e-5)
    with pytest.raises(ValueError, match=r"must return an array of shape \(2,\)"):
        model.with_term(lambda t, y, args: y)(0.0, y, None)
    with pytest.raises(ValueError, match="different numbers from 0 to 2"):
        neural.UniversalODE(known, 3, components=(0, 3), key=KEY)
    with pytest.raises(TypeError, match="`known` must be a model"):
        neural.UniversalODE(3.0, 3, key=KEY)


def test_clocks_and_units():
    seasons = neural.Seasons(4.0, harmonics=2)
    np.testing.assert_allclose(seasons(1.0, jnp.float32), [0.0, -1.0, 1.0, 0.0], atol=1e-6)
    term = NeuralTerm(2, 1, **SMALL, clock=seasons, scale=(10.0, 1.0), unit=3.0, key=KEY)
    y = jnp.array([5.0, 0.2])
    wanted = 3.0 * term.net(jnp.concatenate([y / jnp.array([10.0, 1.0]), seasons(0.7, y.dtype)]))
    np.testing.assert_allclose(term(0.7, y, None), wanted, rtol=1e-6)
    np.testing.assert_allclose(term(8.7, y, None), wanted, rtol=1e-4)
    with pytest.raises(ValueError, match="`scale` must be a positive number, or 2 of them"):
        NeuralTerm(2, scale=(1.0, 2.0, 3.0), key=KEY)
    with pytest.raises(ValueError, match="nonnegative number of hidden layers"):
        neural.Network(1, 1, depth=-1, key=KEY)
    with pytest.raises(ValueError, match="vector of shape"):
        neural.NeuralODE(2, key=KEY)(0.0, jnp.ones(3), None)


def test_a_latent_ode_reads_what_is_seen_alone():
    model = neural.LatentODE(2, 3, memory=4, **SMALL, key=KEY)
    ts = jnp.array([0.0, 0.5, 1.5, 2.0, 2.0])
    ys = jnp.stack([jnp.cos(ts), jnp.sin(ts)], axis=1)
    seen = jnp.ones((5, 2), bool).at[1, 0].set(False).at[3:].set(False)
    encode = jax.jit(lambda *given: model.encode(*given))
    one, other = encode(ts, ys, seen), encode(ts, jnp.where(seen, ys, jnp.nan), seen)
    short = encode(ts[:3], ys[:3], seen[:3])
    np.testing.assert_array_equal(one.mean, other.mean)  # what is not seen does not matter
    # the last time is not that of an observation, but how far it is off is told beside the last one
    padded = encode(jnp.array([0.0, 0.5, 1.5, 1.5, 1.5]), ys, seen)
    np.testing.assert_allclose(padded.mean, short.mean, rtol=1e-5)
    assert jnp.any(encode(ts, ys.at[0, 0].add(1.0), seen).mean != one.mean)


@pytest.mark.x64
def test_the_divergence_of_a_posterior_against_an_integral():
    posterior = Posterior(jnp.array([0.7]), jnp.array([-0.4]))
    x = np.linspace(-12.0, 12.0, 200_001)
    deviation = np.exp(-0.4)
    log_q = -0.5 * ((x - 0.7) / deviation) ** 2 - np.log(deviation)
    integral = np.sum(np.exp(log_q) / np.sqrt(2 * np.pi) * (log_q + 0.5 * x**2)) * (x[1] - x[0])
    np.testing.assert_allclose(posterior.divergence(), integral, rtol=1e-9)
    draws = jax.vmap(posterior.sample)(jax.random.split(KEY, 4000))
    assert abs(draws.mean() - 0.7) < 0.05 and abs(draws.std() / deviation - 1) < 0.05


def test_the_spectral_closure_conserves_and_changes_resolved_modes_alone():
    """On two axes, told of vorticity and velocity; moved fields have moved rates, and the flow keeps its mean."""
    coarse = models.Vorticity((12, 10), jnp.array([3.0, 2.0]), viscosity=1e-2)
    told = lambda model, y: jnp.concatenate([y[None], model.velocity(y)])  # noqa: E731
    options = dict(width=5, depth=1, scale=(2.0, 0.3, 0.3), time=0.5, gain=3.0)
    model = neural.SpectralClosure(coarse, 2, told, 3, **options, key=KEY)
    u = jnp.asarray(np.random.default_rng(0).normal(size=(12, 10)), jnp.result_type(float))

    @jax.jit
    def of(u):
        extra = model(0.0, u, None) - coarse(0.0, u, None)
        return extra, model.closure(u), model.closure(jnp.roll(u, (3, -2), (0, 1)))

    extra, rates, rolled = of(u)
    assert jnp.abs(rates).max() > 0.1
    np.testing.assert_allclose(extra, rates, atol=1e3 * eps())
    np.testing.assert_allclose(rolled, jnp.roll(rates, (3, -2), (0, 1)), atol=100 * eps())
    assert abs(rates.mean()) < 10 * eps()
    numbers = np.abs(np.fft.fftfreq(12, 1 / 12))[:, None], np.abs(np.fft.rfftfreq(10, 1 / 10))[None]
    high = (numbers[0] >= 12 / 3) | (numbers[1] >= 10 / 3)
    modes = np.abs(np.fft.rfft2(np.asarray(rates)))
    assert modes[high].max() < 1e3 * eps() and modes[~high].max() > 0.1
    with pytest.raises(TypeError, match="`model` must be an `AbstractSemilinear`"):
        neural.SpectralClosure(lambda t, y, args: y, 2, key=KEY)
    with pytest.raises(ValueError, match="requires `features`"):
        neural.SpectralClosure(coarse, 2, channels=3, key=KEY)
    with pytest.raises(
        ValueError, match=r"must return `channels` fields.*\(2, 12, 10\), but it has shape \(3, 12, 10\)"
    ):
        neural.SpectralClosure(coarse, 2, told, 2, key=KEY).closure(u)
    with pytest.raises(ValueError, match="axes of 3 points or more"):
        neural.ConvolutionalNetwork(1, 1, key=KEY)(jnp.ones((1, 2, 8)))


def test_a_convolutional_network_is_that_of_equinox():
    net = neural.ConvolutionalNetwork(2, 3, 4, 1, radius=1, key=KEY)
    same = [eqx.nn.Conv2d(m, n, 3, padding="SAME", padding_mode="CIRCULAR", key=KEY) for m, n in ((2, 4), (4, 3))]
    for i, layer in enumerate(net.layers):
        weight = layer.weight.reshape(layer.out_features, 3, 3, -1).transpose(0, 3, 1, 2)
        same[i] = eqx.tree_at(lambda c: (c.weight, c.bias), same[i], (weight, layer.bias[:, None, None]))
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 6, 7)), jnp.result_type(float))
    np.testing.assert_allclose(net(x), same[1](jnp.tanh(same[0](x))), atol=100 * eps())


def test_stresses_keep_momentum_and_move_with_the_flow():
    """Forces add up to nothing, are the divergence of a symmetric stress, and move as the flow is moved."""
    shape, shift = (4, 3, 5), (1, 2, 3)
    closure = neural.StressClosure(3, width=3, gain=3.0, scale=0.7, key=KEY)
    flow = models.IncompressibleFlow(Grid(shape, 0.0, 2.0), Periodic(), 0.0, forces=[closure])
    draw, h = np.random.default_rng(0), flow.grid.spacing
    u = tuple(jnp.asarray(draw.normal(size=shape), jnp.result_type(float)) for _ in shape)
    of = jax.jit(lambda u: (closure(flow, 0.0, models.FlowState(u, {}), None), closure.stresses(u)))
    found, stresses = jax.tree.map(np.asarray, of(u))
    moved = of(tuple(jnp.asarray(np.roll(x, shift, (0, 1, 2))) for x in u))[0]
    for f, g in zip(found, moved):
        size = np.abs(f).max()
        assert abs(f.sum()) < 1e3 * eps() * size and size > 0.1
        np.testing.assert_allclose(g, np.roll(f, shift, (0, 1, 2)), atol=1e3 * eps() * size)
    # by parts: the power of the forces is that of the stresses, each pair of axes counted twice
    spent, u = 0.0, tuple(np.asarray(x) for x in u)
    for (i, j), stress in stresses.items():
        if i == j:
            strain = (np.roll(u[i], -1, i) - u[i]) / h[i]
        else:
            strain = (u[i] - np.roll(u[i], 1, j)) / h[j] + (u[j] - np.roll(u[j], 1, i)) / h[i]
        spent += np.sum(stress * strain)
    np.testing.assert_allclose(sum(np.sum(f * x) for f, x in zip(found, u)), -spent, rtol=1e5 * eps())
    with pytest.raises(ValueError, match="requires a flow with 2 axes, all of them periodic, but this one has 3"):
        neural.StressClosure(2, width=3, key=KEY)(flow, 0.0, models.FlowState(u, {}), None)
    walls = models.IncompressibleFlow(Grid(shape), sciml.spatial.NoSlip(), forces=[closure])
    with pytest.raises(ValueError, match="periodic: .*False"):
        closure(walls, 0.0, models.FlowState(u, {}), None)
