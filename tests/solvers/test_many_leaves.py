"""States of many small leaves: the same solutions, by programs that grow no faster than the number of leaves."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml.adjoints import Backsolve, Checkpointed

from .common import close

COUNT = 36
RATES = np.linspace(0.1, 2.0, COUNT)


def state(large=True, dtype=float):
    """Scalars, vectors of two in another precision, a complex number, and an array that is not small."""
    leaves = {f"{i:02d}": jnp.asarray(1.0 + i / 10, dtype) for i in range(COUNT)}
    leaves["02"] = jnp.asarray([1.0, 3.0], jnp.float32)
    leaves["05"] = jnp.asarray(1.0 + 2.0j)
    leaves["07"] = [leaves["07"], (leaves["08"][None, None],)]
    if large:
        leaves["09"] = jnp.linspace(0.0, 1.0, 20, dtype=dtype)
    return leaves


def decay(rate, y):
    def scaled(name, x):
        return -jnp.asarray(rate).astype(x.dtype) * jnp.asarray(RATES[int(name)], x.dtype) * x

    return {name: jax.tree.map(lambda x, n=name: scaled(n, x), part) for name, part in y.items()}


def exact(y, t, rate=1.0):
    def scaled(name, x):
        return x * jnp.exp(-rate * t * RATES[int(name)]).astype(x.dtype)

    return {name: jax.tree.map(lambda x, n=name: scaled(n, x), part) for name, part in y.items()}


def solve(y0, rate=1.0, **options):
    options = dict(rtol=1e-6, atol=1e-8) | options
    return sciml.solve(lambda t, y, args: decay(rate, y), y0, t0=0.0, t1=1.0, **options)


def operations(jaxpr):
    found = 0
    for eqn in jaxpr.eqns:
        found += 1
        for parameter in jax.tree.leaves(eqn.params, is_leaf=lambda x: hasattr(x, "jaxpr") or hasattr(x, "eqns")):
            inner = getattr(parameter, "jaxpr", parameter)
            found += operations(inner) if hasattr(inner, "eqns") else 0
    return found


@pytest.mark.parametrize("many", [False, True], ids=["one member", "members"])
def test_programs_grow_with_the_number_of_leaves_and_no_faster(many):
    def sizes(count):
        field = lambda t, y, args: {k: -v * (1 + 0.01 * int(k)) for k, v in y.items()}  # noqa: E731
        run = lambda y0: sciml.solve(field, y0, t0=0.0, t1=1.0).ys  # noqa: E731
        y0 = {f"{i:03d}": jnp.ones((3,) if many else ()) for i in range(count)}
        traced = jax.jit(jax.vmap(run) if many else run).trace(y0)
        return np.array([operations(traced.jaxpr.jaxpr), traced.lower().as_text().count("\n")])

    half, whole = sizes(36), sizes(72)
    assert np.all(whole < 2.1 * half), (half, whole)
    assert np.all(whole < 200 * 72)  # 500 of each leaf where each is an array of its own


def test_a_gradient_adds_no_padded_array_for_each_leaf():
    y0 = {f"{i:03d}": jnp.ones(()) for i in range(COUNT)}
    end = lambda y0: sciml.solve(lambda t, y, args: jax.tree.map(jnp.negative, y), y0, t0=0.0, t1=1.0, dt=0.5).ys  # noqa: E731
    total = lambda y0: sum(jnp.sum(x) for x in jax.tree.leaves(end(y0)))  # noqa: E731
    assert jax.jit(jax.grad(total)).lower(y0).as_text().count("stablehlo.pad") < COUNT // 4


@pytest.mark.x64
@pytest.mark.parametrize("options", [{}, {"dt": 0.05}, {"rtol": None, "atol": None}], ids=["control", "steps", "trees"])
def test_solutions_are_the_exact_ones(options):
    y0 = state()
    if "rtol" in options:
        options = dict(rtol=1e-6, atol=jax.tree.map(lambda x: jnp.full(x.shape, 1e-8), y0))
    if "dt" in options:
        options = options | dict(rtol=None, atol=None)
    sol = solve(y0, saveat=jnp.array([0.3, 1.0]), **options)
    assert jax.tree.structure(sol.ys) == jax.tree.structure(y0)
    for t, i in ((0.3, 0), (1.0, 1)):
        found = jax.tree.map(lambda x, i=i: x[i], sol.ys)
        jax.tree.map(lambda a, b: close(a, b, atol=2e-6), found, exact(y0, t))
    kinds = lambda tree: [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]  # noqa: E731
    assert kinds(jax.tree.map(lambda x: x[0], sol.ys)) == kinds(y0)


@pytest.mark.x64
@pytest.mark.parametrize("adjoint", [Checkpointed(), Backsolve()], ids=lambda a: type(a).__name__)
def test_derivatives(adjoint):
    y0 = state(large=False)
    total = lambda y: sum(jnp.sum(jnp.real(x)).astype(float) for x in jax.tree.leaves(y))  # noqa: E731
    end = lambda rate: total(jax.tree.map(lambda x: x[-1], solve(y0, rate, adjoint=adjoint).ys))  # noqa: E731
    np.testing.assert_allclose(jax.grad(end)(0.5), jax.grad(lambda rate: total(exact(y0, 1.0, rate)))(0.5), rtol=1e-5)


def coupled(t, y, args):
    """A field of single numbers that read each other, whose parameters are single numbers of Python's, too."""
    names = list(y)
    before = dict(zip(names, names[-1:] + names[:-1]))
    return {x: args["in"][x] * y[before[x]] / (1 + y[x] ** 2) - args["out"] * y[x] for x in names}


@pytest.mark.parametrize("dtype", [pytest.param(float, marks=pytest.mark.x64), jnp.float32])
def test_arguments_of_many_leaves(dtype):
    """The solution and its derivatives are those of one array."""
    y0 = {f"{i:02d}": jnp.asarray(1.0 + i / 10, dtype) for i in range(COUNT)}
    args = {"in": dict(zip(y0, RATES.tolist())), "out": 0.5}
    options = dict(t0=0.0, t1=1.0, dt=0.1)

    def of_leaves(args, y0):
        return jnp.stack(list(sciml.solve(coupled, y0, args=args, **options).ys.values()))[:, 0]

    def of_array(args, y0):
        rates, out = jnp.asarray(list(args["in"].values()), dtype), jnp.asarray(args["out"], dtype)
        field = lambda t, y, args: rates * jnp.roll(y, 1) / (1 + y**2) - out * y  # noqa: E731
        return sciml.solve(field, jnp.stack(list(y0.values())), **options).ys[0]

    tol = 1e-12 if dtype is float else 1e-5
    np.testing.assert_allclose(of_leaves(args, y0), of_array(args, y0), rtol=tol)
    arrays = jax.tree.map(lambda x: jnp.asarray(x, dtype), args)
    found, expected = (jax.grad(lambda a, f=f: jnp.sum(f(*a) ** 2))((arrays, y0)) for f in (of_leaves, of_array))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=100 * tol), found, expected)


@pytest.mark.x64
@pytest.mark.parametrize("solver", [sciml.solvers.Rodas5P(), diffrax.Kvaerno5()], ids=lambda x: type(x).__name__)
def test_stiff_methods_take_many_leaves_as_one_array(solver):
    y0 = {f"{i:02d}": jnp.asarray(1.0 + i / 10) for i in range(COUNT)}
    args = {"in": dict(zip(y0, 100 * jnp.asarray(RATES))), "out": jnp.asarray(50.0)}

    def of_leaves(args):
        found = sciml.solve(coupled, y0, t0=0.0, t1=1.0, args=args, solver=solver)
        return jnp.sum(jnp.stack(list(found.ys.values())) ** 2)

    def of_array(args):
        rates, out = jnp.stack(list(args["in"].values())), args["out"]
        field = lambda t, y, args: rates * jnp.roll(y, 1) / (1 + y**2) - out * y  # noqa: E731
        return jnp.sum(sciml.solve(field, jnp.stack(list(y0.values())), t0=0.0, t1=1.0, solver=solver).ys ** 2)

    (value, found), (as_array, expected) = (jax.value_and_grad(f)(args) for f in (of_leaves, of_array))
    np.testing.assert_allclose(value, as_array, rtol=1e-8)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8), found, expected)
    sizes = [operations(jax.make_jaxpr(f)(args).jaxpr) for f in (of_leaves, of_array)]
    assert sizes[0] < 2 * sizes[1]


def test_a_field_of_another_structure_is_refused_in_the_words_of_the_state():
    y0 = state()
    with pytest.raises(ValueError, match="The vector field must return the structure of `y0`, {'00': float"):
        sciml.solve(lambda t, y, args: list(y.values()), y0, t0=0.0, t1=1.0)
    with pytest.raises(ValueError, match=r"\['00'\] has shape \(\), but its rate has shape \(1,\)"):
        sciml.solve(lambda t, y, args: y | {"00": y["00"][None]}, y0, t0=0.0, t1=1.0)


def test_many_leaves_on_several_devices():
    """Inside of `shard_map`, and as members that are sharded."""
    mesh = jax.make_mesh((2,), ("members",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:2])
    y0 = {f"{i:02d}": jnp.ones(2) * (1 + i) for i in range(COUNT)}
    run = lambda y0: sciml.solve(lambda t, y, args: jax.tree.map(jnp.negative, y), y0, t0=0.0, t1=0.5, dt=0.25).ys  # noqa: E731
    spec = jax.sharding.PartitionSpec("members")
    within = jax.shard_map(lambda y0: jax.vmap(run)(y0), mesh=mesh, in_specs=spec, out_specs=spec)
    sharded = jax.device_put(y0, jax.sharding.NamedSharding(mesh, spec))
    for found in (jax.jit(within)(y0), jax.jit(jax.vmap(run))(sharded)):
        np.testing.assert_allclose(found["35"][:, 0], 36 * np.exp(-0.5), rtol=1e-4)
