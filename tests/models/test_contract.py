"""What every model of fields must show, in whatever way it is solved, differentiated and batched."""

import functools as ft
import subprocess
import sys
import textwrap

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml
from sciml import inspect
from sciml.spatial import Dirichlet, Grid, Neumann
from tests.conftest import ROOT
from tests.registry_fields import CASES as ON_GRIDS
from tests.registry_pdes import CASES, HOMOGENEOUS

each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def made(case):
    """Model and state in float64, with no leaf that would change its type when it is moved."""
    strong = lambda v: jax.lax.convert_element_type(v, v.dtype) if eqx.is_inexact_array(v) else v  # noqa: E731
    return jax.tree.map(strong, (case.make(), case.state(float)))


def flat(tree):
    """A state, of one array or several, as a vector."""
    return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(tree)])


def normal(like, seed):
    """A random state."""
    draw = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)).astype(x.dtype), like)


@ft.cache
def weights(shape):
    return np.random.default_rng(3).normal(size=shape)


def functional(case, steps=2):
    """A number made of the solution after some steps, a function of model and state.

    Where any method serves, steps of two evaluations, whose programs are small. `test_implicit.py` compares the
    gradients of the methods that models with diffusion have by default.
    """
    model, y = case.make(), case.state(jnp.result_type(float))
    dt = case.step(model, y)
    takes_its_own = isinstance(model, (sciml.AbstractSemilinear, sciml.AbstractSecondOrder, sciml.AbstractPartitioned))
    solver = None if takes_its_own else diffrax.Heun()

    def loss(x):
        model, y = x
        end = flat(sciml.solve(model, y, t0=0.0, t1=steps * dt, dt=dt, solver=solver).ys)
        w = jnp.asarray(weights(end.shape), end.real.dtype)
        return jnp.sum(w * (end.real + (jnp.sin(end.imag) if jnp.iscomplexobj(end) else 0 * w)))

    return loss


def arrays(tree):
    """The leaves that can be differentiated, with their names."""
    found = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_inexact_array))
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in found]


@pytest.mark.x64
@each_case
def test_gradients_of_a_solution_by_everything(case):
    """By every parameter, boundary value and the initial field, each along a random direction."""
    x = made(case)
    both = eqx.filter_jit(eqx.filter_value_and_grad(functional(case)))  # one program compiles sooner than two
    gradient = both(x)[1]
    leaves, tree = jax.tree.flatten(x)
    slopes = jax.tree.leaves(gradient)
    where = [i for i, leaf in enumerate(leaves) if eqx.is_inexact_array(leaf)]
    assert len(where) == len(slopes) == len(arrays(x))
    for i, slope, (name, leaf) in zip(where, slopes, arrays(x), strict=True):
        along = np.random.default_rng(i).normal(size=leaf.shape) * max(float(jnp.max(jnp.abs(leaf))), 0.1)

        def at(s, i=i, leaf=leaf, along=along):
            moved = leaf + jnp.asarray(s * along, leaf.dtype)
            return float(both(jax.tree.unflatten(tree, [*leaves[:i], moved, *leaves[i + 1 :]]))[0])

        h = 1e-3
        central = (8 * (at(h) - at(-h)) - at(2 * h) + at(-2 * h)) / (12 * h)
        got = float(np.sum(np.real(np.asarray(slope) * along)))
        assert abs(got - central) < 1e-7 * abs(central) + 1e-8, (name, got, central)


FLOWS = ("Transport", "Euler", "ShallowWater", "ImplicitFriction", "NavierStokes3D")
WAVES = ("Maxwell", "ElasticWave", "Acoustic")
OTHERS = ("Diffusion", "Wave", "Burgers", "CahnHilliard", "KellerSegel")


@pytest.mark.x64
@pytest.mark.parametrize("case", [c for c in CASES if c.name in FLOWS + WAVES + OTHERS], ids=lambda case: case.name)
def test_vmap_on_either_side_of_grad(case):
    """Members that differ in every parameter, boundary value and field, each as alone."""
    loss = functional(case)
    x, static = eqx.partition(made(case), eqx.is_inexact_array)
    one = lambda x: loss(eqx.combine(x, static))  # noqa: E731
    members = jax.tree.map(lambda leaf: jnp.stack([leaf, 1.05 * leaf]), x)
    alone = jax.jit(jax.grad(one))
    each = [alone(jax.tree.map(lambda leaf, i=i: leaf[i], members)) for i in range(2)]
    within = jax.jit(jax.vmap(jax.grad(one)))(members)
    around = jax.jit(jax.grad(lambda xs: jnp.sum(jax.vmap(one)(xs))))(members)
    for leaf, *others in zip(*map(jax.tree.leaves, (within, around, *each)), strict=True):
        batched, *singles = others
        size = float(jnp.max(jnp.abs(leaf))) + 1e-12
        np.testing.assert_allclose(leaf, batched, atol=1e-11 * size, rtol=0)
        np.testing.assert_allclose(leaf, jnp.stack(singles), atol=1e-11 * size, rtol=0)


@each_case
def test_a_solve_keeps_the_dtype_and_is_traced_once(case):
    """In float32; parameters and fields that change do not make JAX trace again."""
    model, y = case.make(), case.state(jnp.float32)
    dt = case.step(model, y)
    last = lambda ys: jax.tree.map(lambda x: x[-1], ys)  # noqa: E731
    kinds = sciml.AbstractSemilinear, sciml.AbstractSplit, sciml.AbstractSecondOrder, sciml.AbstractPartitioned
    structured = isinstance(model, kinds)
    options = dict(dt=dt, solver=None if structured else diffrax.Heun())  # any method serves where none is its own
    run = inspect.retraces(lambda model, y: last(sciml.solve(model, y, t0=0.0, t1=2 * dt, **options).ys))
    for factor in (1.0, 0.9, 1.1):
        changed = jax.tree.map(lambda v, f=factor: v * f if eqx.is_inexact_array(v) else v, model)
        start = jax.tree.map(lambda x, f=factor: jnp.asarray(f, x.real.dtype).astype(x.dtype) * x, y)
        end = run(changed, start)
        for got, given in zip(jax.tree.leaves(end), jax.tree.leaves(y), strict=True):
            assert got.dtype == given.dtype and got.shape == given.shape
        assert bool(jnp.all(jnp.isfinite(jnp.abs(flat(end)))))
    assert run.traces == 1, run.changes


def inner(a, b):
    """The real inner product."""
    a, b = flat(a), flat(b)
    return float(jnp.sum(a.real * b.real + a.imag * b.imag))


@pytest.mark.x64
@each_case
def test_tangents_and_cotangents_are_adjoint(case):
    """<F' v, w> = <v, F'* w> of the vector field at a state."""
    model, y = made(case)
    v, w = normal(y, 0), normal(y, 1)
    field = lambda y: model(0.0, y, None)  # noqa: E731
    forward = jax.jit(lambda v: jax.jvp(field, (y,), (v,))[1])(v)
    conj = ft.partial(jax.tree.map, jnp.conj)
    back = conj(jax.jit(lambda w: jax.vjp(field, y)[1](w)[0])(conj(w)))
    size = float(jnp.linalg.norm(flat(forward)) * jnp.linalg.norm(flat(w)))
    assert abs(inner(forward, w) - inner(v, back)) < 1e-12 * size


@pytest.mark.x64
@pytest.mark.parametrize("case", HOMOGENEOUS, ids=lambda case: case.name)
def test_a_linear_model_is_linear_and_its_solve_has_an_adjoint(case):
    """<F x, w> = <x, F* w>, where F leads from the initial field to the end of a solve."""
    model = case.make()
    x, w = (jnp.asarray(np.random.default_rng(i).normal(size=case.state(float).shape)) for i in (0, 1))
    dt = case.step(model, x)
    solve = lambda x: sciml.solve(model, x, t0=0.0, t1=3 * dt, dt=dt).ys[-1]  # noqa: E731

    @jax.jit
    def both(x, w):
        end, pull = jax.vjp(solve, x)
        return end, pull(w)[0]

    end, back = both(x, w)
    size = float(jnp.linalg.norm(end) * jnp.linalg.norm(w))
    assert abs(inner(end, w) - inner(x, back)) < 1e-12 * size
    np.testing.assert_allclose(both(x - 2 * w, w)[0], end - 2 * both(w, w)[0], atol=1e-12 * size)


# --- bad input


@pytest.mark.x64
@each_case
def test_a_field_of_another_shape_is_refused(case):
    model, y = case.make(), case.state(jnp.float32)
    shorter = lambda y: y[..., :-1]  # noqa: E731
    turned = lambda y: jnp.swapaxes(y, -1, -2) if y.ndim > 1 else y[:-2]  # noqa: E731
    for wrong in (jax.tree.map(shorter, y), jax.tree.map(turned, y)):
        with pytest.raises((ValueError, TypeError), match="shape|structure"):
            sciml.solve(model, wrong, t0=0.0, t1=1e-3, dt=1e-3)


@pytest.mark.x64
@pytest.mark.parametrize("case", [c for c in CASES if c.field == "real"], ids=lambda case: case.name)
def test_a_complex_field_is_refused(case):
    with pytest.raises(TypeError):
        case.make()(0.0, jax.tree.map(lambda x: x.astype(jnp.complex64), case.state(jnp.float32)), None)


def test_the_refusal_of_complex_fields_is_named_without_type_checks():
    """As users run it, where no annotation is checked."""
    code = """
        import jax, jax.numpy as jnp
        from tests.registry_pdes import CASES

        for case in CASES:
            if case.field == "real":
                try:
                    state = jax.tree.map(lambda x: x.astype(jnp.complex64), case.state(jnp.float32))
                    case.make()(0.0, state, None)
                except TypeError as error:
                    assert f"`{case.name}` is a model of real fields" in str(error), error
                else:
                    raise AssertionError(case.name)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, cwd=ROOT, timeout=300)


@pytest.mark.x64
@pytest.mark.parametrize("case", ON_GRIDS, ids=lambda case: case.name)
def test_conditions_that_do_not_fit_are_refused(case):
    sides = {"x": Dirichlet(0.0), "y-": Neumann(0.0)}
    with pytest.raises(ValueError, match=r"lacks 'y\+'"):
        case.make(Grid((9, 8)), sides)
    with pytest.raises(TypeError, match="must be Periodic"):
        case.make(Grid((9, 8)), 0.0)
    # one value for each place along the side, not one for another number of places
    model = case.make(Grid((9, 8)), {"x": Dirichlet(jnp.ones(9)), "y": Neumann(0.0)})
    with pytest.raises(ValueError, match=r"across x must broadcast to .*8.*but has shape"):
        model(0.0, case.y0(Grid((9, 8))), None)
