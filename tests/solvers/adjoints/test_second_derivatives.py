"""Second derivatives: forward mode through gradients, the step sizes held."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import sciml
from sciml._jax.programs import programs_within
from tests.solvers.test_shard_map import mesh as mesh

pytestmark = pytest.mark.x64

LOOPS = {
    "scan": {"dt": 0.05},
    "fixed_saves": {"dt": 0.06, "saveat": jnp.array([0.5, 2.0])},
    "adaptive": {"rtol": 1e-5, "atol": 1e-5},
    "adaptive_saves": {"rtol": 1e-5, "atol": 1e-5, "saveat": jnp.array([0.5, 2.0])},
    "stiff": {"dt": 0.1, "solver": sciml.solvers.Rosenbrock23()},
}
each_loop = pytest.mark.parametrize("loop", [x if x in ("scan",) else x for x in LOOPS])
ADJOINTS = {
    "checkpointed": sciml.adjoints.Checkpointed(),
    "little_memory": sciml.adjoints.Checkpointed(memory=1),
    "forward": sciml.adjoints.Forward(),
}
X = jnp.array([2.0, 1.0, 0.3])
V = jnp.array([0.3, -1.0, 0.5])


def fn(loop, adjoint, x, **options):
    """By a parameter and the initial state."""

    def swing(t, y, args):
        return jnp.stack([y[1], -x[0] * jnp.sin(y[0]) + 0.1 * jnp.cos(t)])

    options = {"solver": diffrax.Bosh3(), "adjoint": adjoint, "throw": False, **LOOPS[loop], **options}
    return jnp.sum(jnp.sin(sciml.solve(swing, x[1:], t0=0.0, t1=2.0, **options).ys ** 2))


@ft.cache
def reference(loop):
    """Forward mode twice through plain loops."""
    return jax.jit(jax.jacfwd(jax.jacfwd(ft.partial(fn, loop, sciml.adjoints.Direct()))))(X)


@pytest.mark.parametrize(
    "name, loop",
    [("checkpointed", loop) for loop in LOOPS]
    + [(name, loop) for name in ("forward", "little_memory") for loop in ("scan", "adaptive_saves")],
)
def test_hessian(name, loop):
    """`jax.hessian` is forward over reverse; all hold the step sizes, so they agree to rounding."""
    found = jax.jit(jax.hessian(ft.partial(fn, loop, ADJOINTS[name])))(X)
    np.testing.assert_allclose(found, reference(loop), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("solver", [sciml.solvers.Radau5(), sciml.solvers.BDF(), diffrax.Kvaerno5()])
def test_hessian_of_an_implicit_method(solver):
    """The fusions of a CPU have rules of their own, and forward mode runs through these a second time."""

    def gradient(k):
        def end(k):
            return sciml.solve(
                lambda t, y, k: jnp.stack([-k * y[0], k * y[0] - y[1] ** 2]),
                jnp.array([1.0, 0.2]),
                t0=0.0,
                t1=1.0,
                args=k,
                solver=solver,
                rtol=1e-9,
                atol=1e-10,
                saveat=jnp.array([1.0]),
            ).ys[0, 1]

        return jax.grad(end)(k)

    step, k = 1e-4, jnp.array(1.0)
    found = jax.jit(jax.vmap(lambda k: jax.jvp(gradient, (k,), (1.0,))))(jnp.stack([k, k + step, k - step]))
    difference = (found[0][1] - found[0][2]) / (2 * step)
    np.testing.assert_allclose(found[1][0], difference, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(lambda k: jax.jvp(gradient, (k,), (1.0,)))(k)[1], found[1][0], rtol=1e-6)


def test_hessian_of_a_reversible_solve():
    found = jax.jit(jax.hessian(ft.partial(fn, "scan", sciml.adjoints.Reversible())))(X)
    gradient = jax.jit(jax.grad(ft.partial(fn, "scan", sciml.adjoints.Reversible())))
    step = 1e-5
    rows = [(gradient(X.at[i].add(step)) - gradient(X.at[i].add(-step))) / (2 * step) for i in range(3)]
    np.testing.assert_allclose(found, np.stack(rows), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("loop", ["scan", "adaptive_saves"])
def test_product_agrees_with_differences_of_the_gradient(loop):
    """With tight tolerances what the chosen steps do to differences is small."""
    tight = {"rtol": 1e-10, "atol": 1e-10, "solver": diffrax.Tsit5()} if loop != "scan" else {}
    gradient = jax.jit(jax.grad(ft.partial(fn, loop, sciml.adjoints.Checkpointed(), **tight)))
    product = jax.jit(lambda x, v: jax.jvp(gradient, (x,), (v,))[1])(X, V)
    step = 1e-4
    np.testing.assert_allclose(
        product, (gradient(X + step * V) - gradient(X - step * V)) / (2 * step), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("loop", ["scan", "adaptive_saves"])
def test_members(loop):
    xs = jnp.stack([X, 1.1 * X, 0.9 * X])
    f = ft.partial(fn, loop, sciml.adjoints.Checkpointed())
    each = jax.jit(jax.hessian(f))
    expected = np.stack([each(x) for x in xs])
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.hessian(f)))(xs), expected, rtol=1e-6, atol=1e-7)
    product = jax.jit(jax.vmap(lambda x: jax.jvp(jax.grad(f), (x,), (V,))[1]))(xs)
    np.testing.assert_allclose(product, expected @ V, rtol=1e-6, atol=1e-7)
    total = jax.jit(
        lambda xs: jax.jvp(jax.grad(lambda xs: jnp.sum(jax.vmap(f)(xs))), (xs,), (jnp.broadcast_to(V, xs.shape),))[1]
    )(xs)
    np.testing.assert_allclose(total, expected @ V, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("loop", ["scan", "adaptive_saves", "stiff"])
def test_hessian_through_a_scan_of_solves(loop):
    """There forward mode meets the program of a solve that is batched already, by the gradient's own `jax.vmap`."""

    def cycles(adjoint, x):
        return jnp.sum(jax.lax.scan(lambda x, _: (x + 0.1 * fn(loop, adjoint, x), None), x, None, length=2)[0] ** 2)

    found = jax.jit(jax.hessian(ft.partial(cycles, sciml.adjoints.Checkpointed())))(X)
    expected = jax.jit(jax.jacfwd(jax.jacfwd(ft.partial(cycles, sciml.adjoints.Direct()))))(X)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_tangents_share_one_solve():
    """The loop of a Hessian of one member carries one primal, whatever the number of tangents."""
    f = ft.partial(fn, "scan", sciml.adjoints.Checkpointed())
    programs = (jax.hessian(f), lambda x: jax.jvp(jax.grad(f), (x,), (V,))[1])
    counts = [waves(jax.make_jaxpr(program)(X).jaxpr) for program in programs]
    assert counts[0] < 2 * counts[1]


def waves(program):
    """How many sines and cosines a program has, each as often as it has elements."""
    here = sum(e.outvars[0].aval.size for e in program.eqns if e.primitive.name in ("sin", "cos"))
    return here + sum(waves(inner) for e in program.eqns for inner in programs_within(e))


@pytest.mark.parametrize("name", ["checkpointed", "forward"])
def test_reverse_over_reverse_is_refused(name):
    f = ft.partial(fn, "scan", ADJOINTS[name])
    for twice in (
        lambda: jax.grad(lambda x: jnp.sum(jax.grad(f)(x) ** 2))(X),
        lambda: jax.jit(jax.vmap(jax.jacrev(jax.grad(f))))(X[None]),
        lambda: jax.linearize(jax.grad(f), X),
    ):
        with pytest.raises(TypeError, match=r"can only be differentiated again in forward mode.*jax.hessian"):
            twice()


def test_inside_shard_map(mesh):  # noqa: F811
    xs = jnp.stack([X * (1 + 0.05 * i) for i in range(8)])
    f = jax.vmap(lambda x: jax.jvp(jax.grad(ft.partial(fn, "scan", sciml.adjoints.Checkpointed())), (x,), (V,))[1])
    sharded = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("members"), out_specs=P("members")))
    np.testing.assert_allclose(sharded(xs), jax.jit(f)(xs), rtol=1e-9)


@jax.custom_jvp
def _sine(x):
    return jax.lax.stop_gradient(jnp.sin(x))


_sine.defjvp(lambda primals, tangents: (_sine(primals[0]), jnp.cos(primals[0]) * tangents[0]))


@pytest.mark.parametrize("solver", [diffrax.Heun(), sciml.solvers.Rosenbrock23()], ids=["explicit", "stiff"])
def test_a_rule_of_the_field_is_that_of_second_derivatives_too(solver):
    """The function itself has no derivative: what is written out of it must keep the rule."""

    def end(function, rate):
        def field(t, y, rate):
            return -rate * function(y)

        return sciml.solve(field, jnp.ones(1), t0=0.0, t1=1.0, dt=0.25, args=rate, solver=solver).ys[-1, 0]

    found, expected = (
        jax.jit(jax.vmap(jax.hessian(ft.partial(end, f))))(jnp.array([1.0, 2.0])) for f in (_sine, jnp.sin)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-10)
