"""Models that are stencils by the kernels, interpreted, against the same solves by XLA."""

import logging

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

import sciml
from sciml import kernels
from sciml.models import Acoustic, AllenCahn, Diffusion, FisherKPP, GrayScott, KleinGordon, Wave
from sciml.solvers import VelocityVerlet
from sciml.solvers.integrate import _stencil_kernel
from sciml.spatial import Dirichlet, Extrapolate, Grid, Neumann, Periodic, Robin

from ...kernels.running import believe, running

SHAPE = (12, 21)
GRID = Grid(SHAPE, 0.0, SHAPE)
WALLS = {"x-": Dirichlet(0.3), "x+": Neumann(0.2), "y-": Robin(1.0, 0.4, 0.2), "y+": Extrapolate()}
MIXED = {"x": Periodic(), "y-": Dirichlet(0.1), "y+": Neumann(0.0)}
PERIODIC = Periodic()


def field(seed=0, shape=SHAPE):
    return jnp.asarray(np.random.default_rng(seed).random(shape), jnp.float32)


def sound(**options):
    model = Acoustic(GRID, 1.0 + field(7), 0.5 + field(8), **options)
    return model, model.rest(field()), diffrax.Bosh3(), 0.1


def cases(name):
    """A model, a state, a method and a step."""
    u, v = field(), 0.1 * field(1)
    if name == "acoustic":
        return sound(boundary="periodic")
    if name == "acoustic between walls":
        return sound(boundary={"x-": "rigid", "x+": "free", "y-": "free", "y+": "rigid"}, layers={"x": 3, "y-": 2})
    return {
        "diffusion": lambda: (Diffusion(GRID, WALLS, 0.7), u, diffrax.Euler(), 0.2),
        "diffusion of order 4": lambda: (Diffusion(GRID, PERIODIC, 0.7, order=4), u, diffrax.Heun(), 0.2),
        "varying diffusion": lambda: (Diffusion(GRID, WALLS, 0.2 + field(3)), u, diffrax.Ralston(), 0.1),
        "wave": lambda: (Wave(GRID, MIXED, 0.3 + 0.3 * field(4)), jnp.stack([u, v]), None, 0.1),
        "gray-scott": lambda: (
            GrayScott(GRID, MIXED, diffusivity_u=0.16, diffusivity_v=0.08), jnp.stack([u, v]), diffrax.Heun(), 0.5
        ),
        "allen-cahn": lambda: (AllenCahn(GRID, PERIODIC, 0.6), u, diffrax.Bosh3(), 0.2),
        "fisher-kpp": lambda: (FisherKPP(GRID, MIXED, 0.4), u, diffrax.Midpoint(), 0.2),
        "sine-gordon": lambda: (  # with a sum of slopes
            KleinGordon(GRID, WALLS, 0.5 + field(5), potential=lambda u: 1 - jnp.cos(u) + 0.1 * u * u),
            (u, v), VelocityVerlet(), 0.3
        ),
    }[name]()  # fmt: skip


NAMES = ["diffusion", "varying diffusion", "wave", "gray-scott", "allen-cahn", "fisher-kpp", "sine-gordon", "acoustic"]
NAMES += ["acoustic between walls", "diffusion of order 4"]


def close(found, expected, tolerance):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(float(jnp.max(jnp.abs(b))), 1e-30))


@pytest.fixture
def launched(monkeypatch):
    """How many steps kernels are traced to take, by this test: what another one traced is forgotten."""
    jax.clear_caches()
    steps = []
    advance = _stencil_kernel.StencilSteps.advance

    def seen(self, *args):
        steps.append(args[-1])
        return advance(self, *args)

    monkeypatch.setattr(_stencil_kernel.StencilSteps, "advance", seen)
    return steps


def end(name, steps=8, **options):
    model, y0, solver, dt = cases(name)

    def run(model, y0):
        t1 = steps * dt
        return sciml.solve(model, y0, t0=0.0, t1=t1, dt=dt, solver=solver, throw=False, **options)

    return run, model, y0


def by(impl, run, *args):
    with running(impl):
        return run(*args)


@pytest.mark.parametrize("machine", ["gpu", "tpu"])
@pytest.mark.parametrize("name", [n if n == "wave" else n for n in NAMES])
@pytest.mark.x64
def test_a_solve_by_a_kernel_agrees_with_xla(name, machine, launched):
    if machine == "gpu" and name.startswith("acoustic"):
        pytest.skip("three stages of four fields, of radius two, do not fit into the shared memory of its tiles")
    run, model, y0 = end(name)
    expected = run(model, y0)
    assert not launched
    found = by(f"interpret_{machine}", run, model, y0)
    assert launched and found.status == 0 and found.stats.accepted == expected.stats.accepted
    close(found.ys, expected.ys, 1e-6)


@pytest.mark.parametrize("name", [n if n == "diffusion" else n for n in NAMES])
@pytest.mark.x64
def test_the_gradient_of_steps_by_a_kernel(name, launched):
    run, model, y0 = end(name)
    loss = lambda pair: sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(run(*pair).ys))  # noqa: E731
    expected = eqx.filter_grad(loss)((model, y0))
    found = by("interpret_tpu", eqx.filter_grad(loss), (model, y0))
    assert launched
    close(found, expected, 1e-5)


@pytest.mark.x64
def test_all_derivatives_go_through():
    """By the steps that XLA runs: forward mode, forward over reverse, and reverse mode of a loop as it is."""
    direct, model, y0 = end("diffusion", adjoint=sciml.adjoints.Direct())
    replayed, _, _ = end("diffusion")

    def loss(run):
        return lambda rate: jnp.sum(run(eqx.tree_at(lambda m: m.diffusivity, model, rate), y0).ys ** 2)

    rate = jnp.float32(0.7)
    expected = jax.grad(loss(replayed))(rate), jax.jacfwd(jax.grad(loss(replayed)))(rate)
    with running("interpret_tpu"):
        found = jax.grad(loss(replayed))(rate), jax.jacfwd(jax.grad(loss(replayed)))(rate)
        others = [mode(loss(direct))(rate) for mode in (jax.jacfwd, jax.grad)]
    close(found, expected, 1e-5)
    close(others, [expected[0]] * 2, 1e-5)


@pytest.mark.parametrize("machine", ["gpu", "tpu"])
@pytest.mark.x64
def test_members_and_their_gradients(machine, launched):
    run, model, _ = end("diffusion")
    rates, states = jnp.array([0.2, 0.5, 0.7], jnp.float32), jnp.stack([field(seed) for seed in range(3)])

    def ends(rates, states):
        one = lambda rate, y: run(eqx.tree_at(lambda m: m.diffusivity, model, rate), y).ys  # noqa: E731
        return jax.vmap(one)(rates, states)

    def both(rates, states):
        return ends(rates, states), jax.grad(lambda r: jnp.sum(ends(r, states) ** 2))(rates)

    expected = both(rates, states)
    found = by(f"interpret_{machine}", both, rates, states)
    assert launched
    close(found, expected, 1e-6)


@pytest.mark.x64
def test_members_split_over_devices(launched):
    run, model, _ = end("diffusion")
    mesh = Mesh(np.array(jax.devices()[:2]), ("members",))

    def both(states):
        def one(y):
            ends = lambda y: run(model, y).ys[-1]  # noqa: E731
            return ends(y[0])[None], jax.grad(lambda y: jnp.sum(ends(y) ** 2))(y[0])[None]

        specs = dict(in_specs=P("members"), out_specs=P("members"))
        return jax.shard_map(one, mesh=mesh, check_vma=not launched_by_interpreter, **specs)(states)

    states = jnp.stack([field(seed) for seed in range(2)])
    launched_by_interpreter = False
    expected = jax.jit(both)(states)
    with running("mosaic_tpu"):  # a kernel itself passes the checks
        text = jax.jit(lambda s: both(s)).trace(states).lower(lowering_platforms=("tpu",)).as_text()
    assert launched and "tpu_custom_call" in text
    launched_by_interpreter = True  # JAX's own interpreter does not
    close(by("interpret_tpu", jax.jit(lambda s: both(s)), states), expected, 1e-6)


@pytest.mark.x64
def test_states_saved_at_the_ends_of_steps_and_their_gradient(launched):
    model, y0, solver, dt = cases("diffusion")
    ts = [0.0, 2 * dt, 4 * dt, 6 * dt, 7 * dt]

    def states(y):
        return sciml.solve(model, y, t0=0.0, t1=8.5 * dt, dt=dt, solver=solver, saveat=ts)

    def both(y):
        sol, gradient = states(y), jax.grad(lambda y: jnp.sum(states(y).ys ** 2))(y)
        return sol.ys, sol.status, sol.stats.accepted, sol.t_reached, gradient

    expected = both(y0)
    assert not launched
    close(by("interpret_tpu", both, y0), expected, 1e-6)
    assert set(launched) == {1, 2}


@pytest.mark.x64
def test_a_shorter_last_step_is_taken_by_xla(launched):
    model, y0, solver, dt = cases("allen-cahn")
    run = lambda y: sciml.solve(model, y, t0=0.0, t1=4.5 * dt, dt=dt, solver=solver).ys  # noqa: E731
    close(by("interpret_tpu", run, y0), run(y0), 1e-6)
    assert launched


@pytest.mark.x64
def test_a_failed_run_says_how_far_it_came():
    model, y0, solver, dt = cases("diffusion")
    run = lambda y: sciml.solve(model, y, t0=0.0, t1=8 * dt, dt=dt, solver=solver, throw=False)  # noqa: E731
    found = by("interpret_tpu", run, y0.at[0, 0].set(jnp.inf))
    assert found.status == int(sciml.Status.nonfinite) and jnp.all(jnp.isnan(found.ys))


REFUSED = [
    ("are adaptive", dict(solver=diffrax.Tsit5(), rtol=1e-4)),
    ("explicit Runge-Kutta or Verlet", dict(dt=0.1)),
    ("Reversible", dict(dt=0.1, solver=diffrax.Heun(), adjoint=sciml.adjoints.Reversible())),
    ("diffrax runs it", dict(dt=0.1, solver=diffrax.ImplicitEuler())),
    ("between steps", dict(dt=0.1, solver=diffrax.Heun(), saveat=[0.05])),
]


@pytest.mark.parametrize("reason, options", REFUSED)
@pytest.mark.x64
def test_what_no_kernel_runs_is_refused_where_one_is_asked_for(reason, options):
    model, y0, _, _ = cases("diffusion")
    with kernels.use("pallas", interpret=True), pytest.raises(ValueError, match=reason):
        sciml.solve(model, y0, t0=0.0, t1=0.2, **options)


@pytest.mark.parametrize(
    "reason, model",
    [
        ("function of time", Diffusion(GRID, Dirichlet(lambda t, args: t))),
        ("tensor", Diffusion(GRID, PERIODIC, jnp.eye(2))),
        ("varies along its side", AllenCahn(GRID, {"x": Dirichlet(field(0, (21,))), "y": PERIODIC})),
        ("order is 4", Diffusion(GRID, PERIODIC, field(), order=4)),
        ("function of time", Acoustic(GRID, source=lambda t, args: field())),
    ],
)
@pytest.mark.x64
def test_models_that_no_kernel_supports_are_refused(reason, model):
    y0 = model.rest() if isinstance(model, Acoustic) else field()
    with kernels.use("pallas", interpret=True), pytest.raises(ValueError, match=reason):
        sciml.solve(model, y0, t0=0.0, t1=0.02, dt=0.01, solver=diffrax.Bosh3())


@pytest.mark.x64
def test_on_a_machine_of_its_own_a_model_falls_back_with_one_line(monkeypatch, caplog):
    believe(monkeypatch, True)
    model, y0, _, _ = cases("diffusion")
    with caplog.at_level(logging.INFO, "sciml.kernels"):
        for _ in range(2):
            sciml.solve(model, y0, t0=0.0, t1=0.02, solver=diffrax.Euler(), dt=0.01, saveat=[0.013])
            moving = Diffusion(GRID, Neumann(lambda t, args: t))
            sciml.solve(moving, y0, t0=0.0, t1=0.02, dt=0.01, solver=diffrax.Euler())
    assert [(r.levelname, r.getMessage().partition(": ")[2]) for r in caplog.records] == [
        ("INFO", "Diffusion: it saves between steps, or at too many different intervals"),
        ("WARNING", "Diffusion: a boundary value is a function of time"),
    ]


@pytest.mark.x64
def test_use_ends_with_its_block_and_knows_what_there_is():
    run, model, y0 = end("diffusion")
    with pytest.raises(ValueError, match="must be one of"), kernels.use("metal"):
        pass
    with kernels.use("pallas"):
        with kernels.use("xla"):
            run(model, y0)
        with pytest.raises(ValueError, match="requires a GPU or a TPU"):
            run(model, y0)
    run(model, y0)
