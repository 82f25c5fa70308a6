"""Exponential and symplectic methods on equations with known answers, and the functions they are made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import sciml
from sciml import verify
from sciml.models import IntegralKuramotoSivashinsky, KortewegDeVries, KuramotoSivashinsky
from sciml.solvers import ETDRK, RKC2, RKL2, VelocityVerlet, Yoshida
from sciml.solvers.methods.split._phi_functions import phi
from sciml.verify.problems._physics import (
    ginzburg_landau_wave,
    kdv_soliton,
    kdv_two_solitons,
    schroedinger_soliton,
    taylor_green_vortex,
)


@pytest.mark.x64
@pytest.mark.parametrize("kind", ["real", "complex", "float32"])
def test_phi_functions(kind):
    """Against the exponential of a matrix that holds them, near and far from zero and on both sides of the change."""
    sizes = np.array([0.0, 1e-8, 1e-3, 0.3, 1.0, 1.99, 2.01, 5.0, 30.0])
    z = np.concatenate([-sizes, sizes[:-1]]) if kind != "complex" else np.concatenate([sizes * 1j, -sizes * np.exp(1j)])
    values = phi(jnp.asarray(z, jnp.float32 if kind == "float32" else None), 3)
    for i, x in enumerate(z.astype(np.float32).astype(float) if kind == "float32" else z):
        matrix = np.diag(np.ones(3, complex), 1)
        matrix[0, 0] = x
        exact = expm(matrix)[0]  # exp(x), phi_1, phi_2, phi_3
        rtol = 2e-6 if kind == "float32" else 2e-14
        np.testing.assert_allclose([v[i] for v in values], exact if kind == "complex" else exact.real, rtol=rtol)


@pytest.mark.x64
def test_phi_functions_are_differentiated_at_zero():
    slopes = [jax.grad(lambda z, k=k: phi(z, 3)[k])(0.0) for k in range(4)]
    np.testing.assert_allclose(slopes, [1, 1 / 2, 1 / 6, 1 / 24], rtol=1e-14)


def kassam_trefethen(dt=None, t1=10.0, **options):
    model = KuramotoSivashinsky(points=128, length=32 * np.pi, dealiased=False)
    x = jnp.asarray(32 * np.pi * np.arange(1, 129) / 128)
    y0 = jnp.cos(x / 16) * (1 + jnp.sin(x / 16))
    return sciml.solve(model, y0, t0=0.0, t1=t1, dt=dt, **options)


@pytest.mark.x64
def test_kuramoto_sivashinsky_at_one_point():
    sol = kassam_trefethen(1 / 16)
    assert sol.solver == "ETDRK(order=4)" and abs(float(sol.ys[-1, 0]) - 0.6214230666127) < 1e-6


@pytest.mark.x64
def test_kuramoto_sivashinsky_error_table():
    """Largest errors at t = 10 of the problem of Kassam and Trefethen, and a value of the solution."""
    finest = kassam_trefethen(1 / 64).ys[-1]
    assert abs(float(finest[0]) - 0.6214230666127) < 1e-11
    for dt, error in ((1 / 4, 1.6e-5), (1 / 8, 2.8e-6), (1 / 16, 4.4e-7), (1 / 32, 4.5e-8)):
        sol = kassam_trefethen(dt)
        np.testing.assert_allclose(np.max(np.abs(sol.ys[-1] - finest)), error, rtol=0.02)
    adaptive = kassam_trefethen(rtol=1e-6, atol=1e-6, solver=ETDRK(order=4))
    assert np.max(np.abs(adaptive.ys[-1] - finest)) < 1e-4 and int(adaptive.stats.accepted) < 100


@pytest.mark.x64
def test_kuramoto_sivashinsky_energy_balance():
    r"""d/dt \int u^2/2 = \int u_x^2 - u_xx^2: the product moves energy and makes none."""
    model = KuramotoSivashinsky(points=64, length=22.0)
    ts = np.linspace(30.0, 34.0, 129)
    y0 = 0.1 * jnp.sin(2 * jnp.pi * model.x() / 22)
    ys = sciml.solve(model, y0 + 0.01 * jnp.cos(4 * jnp.pi * model.x() / 22), t0=0.0, t1=34.0, dt=1 / 32, saveat=ts).ys
    modes = np.fft.rfft(np.asarray(ys)) / 64
    k = 2 * np.pi * np.fft.rfftfreq(64, 22 / 64)
    weight = np.where(np.arange(33) % 32 == 0, 1.0, 2.0)
    energy = (weight * np.abs(modes) ** 2).sum(1) / 2
    produced = (weight * (k**2 - k**4) * np.abs(modes) ** 2).sum(1)
    change = (produced[:-2:2] + 4 * produced[1:-1:2] + produced[2::2]).sum() * (ts[1] - ts[0]) / 3
    assert energy[-1] > 0.1
    np.testing.assert_allclose(energy[-1] - energy[0], change, rtol=1e-5)


WAVES = [
    (kdv_soliton, 400, 1e-6),
    (kdv_two_solitons, 1700, 1e-5),
    (schroedinger_soliton, 100, 2e-7),
    (ginzburg_landau_wave, 100, 3e-7),
    (taylor_green_vortex, 4, 1e-12),
]


@pytest.mark.x64
@pytest.mark.parametrize("make, steps, most", WAVES, ids=lambda x: getattr(x, "__name__", ""))
def test_exact_waves(make, steps, most):
    problem = make()
    sol = sciml.solve(problem.model, problem.y0, t0=0.0, t1=problem.t1, dt=problem.t1 / steps)
    assert float(problem.error(sol.ys[-1])) < most
    for name in ("mass", "momentum", "energy"):
        if hasattr(problem.model, name) and make is not taylor_green_vortex:  # which decays
            quantity = getattr(problem.model, name)
            np.testing.assert_allclose(quantity(sol.ys[-1]), quantity(problem.y0), rtol=1e-4)


@pytest.mark.x64
def test_the_faster_soliton_is_ahead_after_overtaking():
    problem = verify.problem("kdv_two_solitons", t1=2.2)
    x = problem.model.x() - 20
    ahead = float(x[np.argmax(problem.solution(2.2))])
    alone = -7.0 + 9 * 2.2
    np.testing.assert_allclose(ahead - alone, np.log((4.5 / 1.5) ** 2) / 3.0, atol=40 / 256)


@pytest.mark.x64
def test_the_height_is_the_integral_of_the_other_form():
    shape, length = (64,), 22.0
    height = IntegralKuramotoSivashinsky(shape=shape, length=length)
    slope = KuramotoSivashinsky(points=64, length=length)
    x = slope.x()
    h0 = jnp.cos(2 * jnp.pi * x / length)
    h = sciml.solve(height, h0, t0=0.0, t1=8.0, dt=0.05).ys[-1]
    u = sciml.solve(slope, -2 * jnp.pi / length * jnp.sin(2 * jnp.pi * x / length), t0=0.0, t1=8.0, dt=0.05).ys[-1]
    k = 2 * np.pi * np.fft.rfftfreq(64, length / 64)
    np.testing.assert_allclose(np.fft.irfft(1j * k * np.fft.rfft(h)), u, atol=1e-5)


@pytest.mark.x64
def test_the_height_in_two_dimensions_agrees_with_a_runge_kutta_method():
    model = IntegralKuramotoSivashinsky(shape=(12, 16), length=jnp.array([10.0, 14.0]))
    x, y = np.meshgrid(np.arange(12) / 12, np.arange(16) / 16, indexing="ij")
    h0 = jnp.asarray(np.cos(2 * np.pi * x) + np.sin(2 * np.pi * (x + y)))
    ours = sciml.solve(model, h0, t0=0.0, t1=0.5, dt=0.01)
    import diffrax

    theirs = sciml.solve(model, h0, t0=0.0, t1=0.5, rtol=1e-9, atol=1e-9, solver=diffrax.Tsit5())
    np.testing.assert_allclose(ours.ys, theirs.ys, atol=1e-6)


def test_a_field_of_another_grid_is_refused():
    with pytest.raises(ValueError, match=r"`inverse\(transform\(y\)\)` must have the structure of `y0`.*32.*but has"):
        sciml.solve(KortewegDeVries(points=16, length=1.0), jnp.ones(32), t0=0.0, t1=1.0, dt=0.1)


class Orbit(sciml.AbstractSecondOrder):
    def acceleration(self, t, q, args):
        return -q / jnp.sum(q**2) ** 1.5


@pytest.mark.x64
def test_the_energy_of_an_orbit_does_not_drift():
    start = (jnp.array([0.7, 0.0]), jnp.array([0.0, 1.3627702877384937]))
    ts = np.arange(0.0, 400.1, 2.0)
    sol = sciml.solve(Orbit(), start, t0=0.0, t1=400.0, dt=0.02, saveat=ts)
    assert sol.solver == "VelocityVerlet"
    q, v = sol.ys
    energy = np.asarray(jnp.sum(v**2, 1) / 2 - 1 / jnp.sqrt(jnp.sum(q**2, 1)))
    swing = np.abs(energy - energy[0])
    assert swing.max() < 1e-3 and abs(swing[-50:].mean() - swing[:50].mean()) < 1e-5
    back = sciml.solve(
        Orbit(), jax.tree.map(lambda x: x[-1], sol.ys), t0=400.0, t1=0.0, dt=-0.02, solver=VelocityVerlet()
    )
    np.testing.assert_allclose(back.ys[0][-1], start[0], atol=1e-8)


def heat(t, u, args):
    """Zero at both ends of cells of width 1/n."""
    wide = jnp.concatenate([-u[:1], u, -u[-1:]])
    return u.shape[0] ** 2 * (wide[2:] - 2 * u + wide[:-2])


@pytest.mark.parametrize("solver", [RKC2, RKL2])
@pytest.mark.parametrize("stages", ["few", "many"])
def test_diffusion_by_few_steps_of_many_stages(solver, stages, dtype):
    """The smooth part is right, and the roughest does not grow. The radius is given, or estimated."""
    n = 32 if stages == "few" else 256
    radius = {"few": None, "many": 4.0 * n**2}[stages]
    x = (np.arange(n) + 0.5) / n
    u0 = jnp.asarray(np.sin(np.pi * x) + 0.1 * (-1.0) ** np.arange(n), dtype)
    sol = sciml.solve(heat, u0, t0=0.0, t1=0.1, dt=0.01, solver=solver(spectral_radius=radius))
    rate = (2 * n * np.sin(np.pi / (2 * n))) ** 2
    off = np.asarray(sol.ys[-1], float) - np.exp(-rate * 0.1) * np.sin(np.pi * x)
    assert abs(2 / n * np.sum(off * np.sin(np.pi * x))) < 2e-3 and np.max(np.abs(off)) < 0.06
    assert sol.ys.dtype == dtype and int(sol.stats.evaluations) == -1


def test_too_few_stages():
    u0 = jnp.ones(64)
    run = lambda **options: sciml.solve(  # noqa: E731
        heat, u0, t0=0.0, t1=0.1, solver=RKC2(spectral_radius=4 * 64**2, max_stages=12), throw=False, **options
    )
    with pytest.raises(ValueError, match="`dt`=0.05 is too long for .* at most 0.00"):
        run(dt=0.05)
    assert jax.jit(lambda dt: run(dt=dt).status)(0.05) == sciml.Status.invalid_argument
    sol = run(rtol=1e-3, atol=1e-3)  # shortens the steps
    assert sol.status == 0 and sol.stats.rejected < 3
    with pytest.raises(ValueError, match="at least 3"):
        RKC2(max_stages=2)
    with pytest.raises(ValueError, match="spectral_radius"):
        RKL2(spectral_radius=-1.0)


@pytest.mark.parametrize("points", [40, 128, 250])
def test_programs_do_not_grow_with_the_modes(points):
    """A few modes were written out one by one, with every term of the series: that compiled for half a minute."""
    problem = sciml.verify.problem("kdv_soliton", points=points)

    def end(y):
        return jnp.sum(sciml.solve(problem.model, y, t0=0.0, t1=0.5, rtol=1e-3, atol=1e-4).ys[-1])

    one, many = problem.y0, jnp.stack([problem.y0] * 3)
    for fn, y0, most in ((end, one, 2000), (jax.grad(end), one, 6000), (jax.vmap(end), many, 3000)):
        assert len(jax.jit(fn).lower(y0).as_text().splitlines()) < most


FLAT = {
    "Kepler": (sciml.models.Kepler(), [1.0, 0.0, 0.0, 1.2]),
    "Pendulum": (sciml.models.Pendulum(), [1.0, 0.0]),
    "Pendulum with damping": (sciml.models.Pendulum(damping=0.3), [1.0, 0.0]),
    "HarmonicOscillator": (sciml.models.HarmonicOscillator(zeta=0.2), [1.0, 0.0]),
}


@pytest.mark.x64
@pytest.mark.parametrize("model, y0", FLAT.values(), ids=FLAT)
def test_symplectic_methods_solve_models_whose_state_is_one_array(model, y0):
    """With friction at their order, too, and between steps."""
    y0, saves = jnp.array(y0), jnp.array([1.105, 2.0])
    exact = sciml.solve(model, y0, t0=0.0, t1=2.0, rtol=1e-10, atol=1e-10, saveat=saves).ys

    @jax.jit
    def error(dt):
        return jnp.max(
            jnp.abs(sciml.solve(model, y0, t0=0.0, t1=2.0, dt=dt, saveat=saves, solver=Yoshida(order=4)).ys - exact)
        )

    coarse, fine = error(0.02), error(0.01)
    assert fine < 1e-6 and 14 < coarse / fine < 18
    assert sciml.solve(model, y0, t0=0.0, t1=0.1, dt=0.1).solver == "Tsit5"  # as before


@pytest.mark.x64
def test_gradients_by_friction():
    def end(damping, **options):
        model = sciml.models.Pendulum(damping=damping)
        return sciml.solve(model, jnp.array([1.0, 0.0]), t0=0.0, t1=1.0, **options).ys[-1, 0]

    exact = jax.grad(end)(0.0, rtol=1e-10, atol=1e-10)
    for adjoint in (sciml.adjoints.Checkpointed(), sciml.adjoints.Reversible()):
        found = jax.grad(end)(0.0, dt=0.01, solver=Yoshida(order=4), adjoint=adjoint)
        np.testing.assert_allclose(found, exact, rtol=1e-6)
    many = jax.vmap(lambda damping: end(damping, dt=0.01, solver=Yoshida(order=4)))(jnp.array([0.0, 0.5]))
    np.testing.assert_allclose(many[1], end(0.5, rtol=1e-10, atol=1e-10), rtol=1e-6)


def test_what_symplectic_methods_refuse():
    pendulum, y0 = sciml.models.Pendulum(), jnp.array([1.0, 0.0])
    with pytest.raises(
        TypeError, match="does not support friction, but `Pendulum` has a method `friction`. Use `VelocityVerlet"
    ):
        sciml.solve(pendulum, y0, t0=0.0, t1=1.0, dt=0.1, solver=sciml.solvers.Nystrom(order=6))
    with pytest.raises(TypeError, match="a model with accelerations"):
        sciml.solve(lambda t, y, args: -y, y0, t0=0.0, t1=1.0, dt=0.1, solver=VelocityVerlet())

    class Falling(sciml.AbstractModel):
        def __call__(self, t, y, args):
            return -y

        def acceleration(self, t, q, args):
            return -q

    with pytest.raises(ValueError, match=r"one array of positions followed by velocities, but `y0` is float\d\d\[3\]"):
        sciml.solve(Falling(), jnp.ones(3), t0=0.0, t1=1.0, dt=0.1, solver=VelocityVerlet())
