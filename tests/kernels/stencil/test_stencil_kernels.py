"""The kernels of stencils: interpreted against the reference, lowered for GPU and TPU, and what they refuse."""

import importlib
import logging
from typing import ClassVar

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu as plgpu

import sciml
from sciml import kernels
from sciml.kernels import select, stencil
from sciml.kernels.stencil import (
    AbstractStencilKernel,
    NotForKernelsError,
    StencilUpdate,
    Tiling,
    _select,
    tune,
)
from sciml.models import Diffusion
from sciml.spatial import AbstractWall, Boundaries, Dirichlet, Grid, Neumann, Periodic

from ..running import believe, evolve
from .stencil_cases import (
    KINDS,
    PEARSON,
    acoustic,
    boundaries,
    corners,
    field,
    gray_scott,
    heat,
    nonlinear_diffusion,
    wave,
)

SHAPE = (19, 131)  # no tile divides it


def case(name, radius=1, kind="periodic", shape=SHAPE, dtype=jnp.float32):
    boundary, ndim = None if kind == "periodic" else boundaries(kind, shape), len(shape)
    u, v, c = (field(shape, dtype, seed) for seed in range(3))
    if name == "heat":
        return heat(ndim, radius, boundary), (u,), 0.1 / ndim, {}
    if name == "wave":
        return wave(ndim, radius, boundary), (u, v), 0.05, {}
    if name == "acoustic":
        return acoustic(ndim, radius, boundary), (u, v), 0.04 / ndim, {"c": c}
    if name == "corners":
        return corners(boundary), (u,), 0.1, {}
    return gray_scott(ndim, boundary), (u, v), PEARSON, {}


def check(name, impl, steps, k, tolerance=1e-6, **how):
    update, state, params, coefficients = case(name, **how)
    rest = {"coefficients": coefficients}
    run = jax.jit(lambda s: evolve(update, s, steps, params, **rest, impl=impl, steps_per_pass=k))
    reference = jax.jit(lambda s: evolve(update, s, steps, params, **rest, impl="xla"))
    for a, b in zip(run(state), reference(state), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * jnp.max(jnp.abs(b)))


BOX = (5, 6, 130)
TARGETS = ["gpu", "tpu"]
CASES = [
    ("heat", 3, 2, 1, "periodic"),
    ("heat", 3, 2, 1, "walls"),
    ("gray_scott", 3, 2, 1, "walls"),
    *(("heat", 2 * k + 1, k, 1, "periodic") for k in (1, 4, 8)),
    *(("heat", 3, 2, 1, kind) for kind in KINDS),
    *(("acoustic", 3, 1, radius, "walls") for radius in (2, 3, 4)),
    ("acoustic", 5, 2, 2, "mixed"),
    ("gray_scott", 9, 8, 1, "mixed"),
]


@pytest.mark.parametrize("name, steps, k, radius, kind", CASES)
@pytest.mark.parametrize("target", ["gpu", "tpu"])
@pytest.mark.x64
def test_interpreted_kernels_agree_with_the_reference(target, name, steps, k, radius, kind):
    check(name, f"interpret_{target}", steps, k, radius=radius, kind=kind)


@pytest.mark.parametrize(
    "name, steps, k, radius, kind, shape",
    [
        ("heat", 3, 2, 1, "walls", (5, 6, 7)),
        *(("heat", k + 1, k, 1, "periodic", BOX) for k in (1, 4, 8)),
        *(("corners", 3, 2, 1, kind, (5, 6, 7)) for kind in ("periodic", "walls")),
        ("wave", 3, 2, 2, "mixed", BOX),
        ("acoustic", 2, 1, 3, "walls", BOX),
        ("acoustic", 2, 1, 4, "walls", (70, 9, 20)),
        ("gray_scott", 3, 2, 1, "walls", BOX),
    ],
)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.x64
def test_interpreted_kernels_of_three_dimensions(target, name, steps, k, radius, kind, shape):
    check(name, f"interpret_{target}", steps, k, radius=radius, kind=kind, shape=shape)


@pytest.mark.parametrize("kind", ["periodic", "walls"])
@pytest.mark.parametrize("shape", [(40,), (9, 20), (5, 6, 7)])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.x64
def test_a_last_pass_of_several_steps_that_is_shorter_than_the_others(target, shape, kind):
    check("heat", f"interpret_{target}", 7, 4, kind=kind, shape=shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.x64
def test_every_boundary_in_three_dimensions(kind):
    check("heat", "interpret_gpu", 2, 2, kind=kind, shape=(5, 6, 7))


@pytest.mark.parametrize("target", ["gpu", "tpu"])
@pytest.mark.optimised
@pytest.mark.x64
def test_each_field_has_its_own_boundary(target):
    wet, dry = boundaries("walls", SHAPE), boundaries("dirichlet", SHAPE)
    update = gray_scott(2, {"u": wet, "v": dry})
    state = (field(SHAPE, jnp.float32), field(SHAPE, jnp.float32, 1))
    found, expected = (
        jax.jit(lambda s, impl=impl: evolve(update, s, 3, PEARSON, impl=impl, steps_per_pass=k))(state)
        for impl, k in ((f"interpret_{target}", 2), ("xla", None))
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    update = gray_scott(2, {"u": wet, "v": boundaries("mixed", SHAPE)})
    with pytest.raises(ValueError, match="along axis 1 some fields are periodic and some have walls"):
        evolve(update, state, 3, PEARSON, impl=f"interpret_{target}")


@pytest.mark.parametrize("shape", [(64, 256), (5, 9), (70, 400)])
@pytest.mark.parametrize("target", ["gpu", "tpu"])
@pytest.mark.x64
def test_sizes_with_and_without_whole_tiles(target, shape):
    check("heat", f"interpret_{target}", 5, 4, shape=shape)
    check("gray_scott", f"interpret_{target}", 3, 2, shape=shape, kind="walls")


@pytest.mark.x64
def test_the_gpu_kernel_takes_float64():
    check("gray_scott", "interpret_gpu", 5, 2, 1e-14, kind="walls", dtype=jnp.float64)
    with pytest.raises(
        ValueError, match="float64, but the kernel supports float32"
    ):  # Mosaic copies none of it in bulk
        check("wave", "interpret_gpu", 3, 2, 1e-14, kind="walls", dtype=jnp.float64, shape=(5, 6, 7))


@pytest.mark.parametrize("shape, kind", [((8, 100), "periodic"), ((8, 100), "walls"), ((3, 4, 20), "periodic")])
@pytest.mark.x64
def test_the_interpreter_of_gpus_agrees(shape, kind, choose):
    """Tile by tile as a GPU runs it, with a watch on data races."""
    # each warpgroup is a thread that waits for the others: more than there are processors may wait for ever
    choose({"kernels.gpu_warpgroups": 2})
    params = getattr(plgpu, "InterpretGPUParams", None)
    if params is None:
        params = importlib.import_module("jax._src.pallas.mosaic_gpu.interpret.params").InterpretGPUParams
    update, state, number, _ = case("heat", shape=shape, kind=kind)
    number = jnp.float32(number)
    kernel = _select.kernel_of("mosaic_gpu", len(shape))
    plan = kernel.plan(update, number, shape, jnp.float32, 2)
    found = kernel.advance(update, number, state, (), 2, plan, params(detect_races=True))
    np.testing.assert_allclose(found[0], evolve(update, state, 2, number, impl="xla")[0], rtol=1e-6)


@pytest.mark.parametrize("kernel, platform, call", [("gpu", "cuda", "mosaic_gpu"), ("tpu", "tpu", "tpu_custom_call")])
@pytest.mark.parametrize(
    "name, kind, k, shape",
    [
        ("heat", "periodic", 4, SHAPE),
        ("heat", "periodic", 1, (16, 16, 128)),
        ("acoustic", "walls", 2, SHAPE),
        ("acoustic", "walls", 2, BOX),
        ("corners", "walls", 2, BOX),
    ],
)
@pytest.mark.x64
def test_kernels_lower_without_their_machine(kernel, platform, call, name, kind, k, shape):
    update, state, params, coefficients = case(name, kind=kind, shape=shape)

    def run(state):
        return evolve(
            update, state, 2 * k, params, coefficients=coefficients, impl=f"mosaic_{kernel}", steps_per_pass=k
        )

    assert call in jax.jit(run).trace(state).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.x64
def test_a_linear_periodic_update_lowers_backwards():
    """The GPU's kernel runs the transpose, too."""
    update, state, params, _ = case("heat")
    run = jax.jit(
        jax.grad(lambda s: jnp.sum(evolve(update, s, 8, params, impl="mosaic_gpu", steps_per_pass=4)[0] ** 2))
    )
    text = run.trace(state).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("@mosaic_gpu") == 2


def exact_gradient(update, state, params, loss):
    """The gradient in float64 by fields and parameters, and for each parameter the sum of the magnitudes of its terms.

    A parameter's derivative is a sum over cells that may cancel: float32 can keep no more than its share of the terms.
    """
    numbers, treedef = jax.tree.flatten(params)
    names = tuple(f"p{i}" for i in range(len(numbers)))
    by_cell = StencilUpdate(
        lambda nb, _: update.fn(nb, jax.tree.unflatten(treedef, list(map(nb, names)))),
        fields=update.fields,
        boundary=update.boundary,
        coefficients=names,
    )
    state = tuple(x.astype(jnp.float64) for x in state)
    fields = {name: jnp.full(state[0].shape, x, jnp.float64) for name, x in zip(names, numbers)}
    of_state, of_fields = jax.jit(
        jax.grad(lambda s, c: loss(evolve(by_cell, s, 5, coefficients=c, impl="xla")), argnums=(0, 1))
    )(state, fields)
    return (*of_state, *(of_fields[n].sum() for n in names)), [jnp.abs(of_fields[n]).sum() for n in names]


@pytest.mark.parametrize("name", ["heat", "gray_scott"])
@pytest.mark.x64
def test_gradients_with_kernels_are_exact(name):
    update, state, params, _ = case(name, kind="walls", shape=(9, 20))
    params = jax.tree.map(jnp.float32, params)

    def loss(end):
        return sum(jnp.sum(jnp.sin(x)) for x in end)

    expected, terms = exact_gradient(update, state, params, loss)
    terms = [0.0] * len(state) + terms
    for target in ("gpu", "tpu"):
        found = jax.jit(
            jax.grad(lambda s, p, m=target: loss(evolve(update, s, 5, p, impl=f"interpret_{m}")), argnums=(0, 1))
        )(state, params)
        for a, b, scale in zip(jax.tree.leaves(found), expected, terms, strict=True):
            bound = 1e-5 * float(jnp.max(jnp.abs(b))) + jnp.finfo(jnp.float32).eps * float(scale)
            np.testing.assert_allclose(a, b, rtol=0, atol=bound)


@pytest.mark.parametrize("target", ["gpu", "tpu"])
@pytest.mark.x64
def test_a_linear_periodic_update_runs_backwards_by_the_kernel(target, monkeypatch):
    update, state, params, _ = case("heat")
    weights = field(SHAPE, jnp.float32, 5)
    kernel, runs = type(_select.kernel_of(f"mosaic_{target}", 2)), []
    advance = kernel.advance
    monkeypatch.setattr(kernel, "advance", lambda *given: runs.append(given[1].fields) or advance(*given))

    def total(impl, s):
        return jnp.sum(weights * evolve(update, s, 3, params, impl=impl)[0])

    found = jax.grad(lambda s: total(f"interpret_{target}", s))(state)
    expected = jax.grad(lambda s: total("xla", s))(state)
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=1e-6 * jnp.max(jnp.abs(expected[0])))
    assert runs[0] == ("u",) and ("bar u",) in runs


@pytest.mark.parametrize("target", ["gpu", "tpu"])
@pytest.mark.x64
def test_members_by_vmap(target):
    update, state, _, _ = case("heat", shape=(9, 20))
    many, rates = jnp.stack([state[0], state[0] ** 2]), jnp.asarray([0.1, 0.2], jnp.float32)

    def run(impl):
        return jax.jit(jax.vmap(lambda u, rate: evolve(update, u, 3, rate, impl=impl)))(many, rates)

    np.testing.assert_allclose(run(f"interpret_{target}"), run("auto"), rtol=1e-6)


class Sponge(AbstractWall):
    """Ghost values that are not a weighted sum of the layers."""

    def points(self, offset, accuracy):
        return 1

    def ghosts(self, layers, width, *, axis, spacing, offset, accuracy=2):
        return jnp.repeat(jax.lax.slice_in_dim(layers, 0, 1, axis=axis) ** 2, width, axis)

    def homogeneous(self):
        return self


def good(nb, p):
    return nb("u", 1, 0) + p


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda u: (StencilUpdate(good), u.astype(jnp.float16), 0.1), "float16"),
        (lambda u: (StencilUpdate(good), u, jnp.ones(3, u.dtype)), "a parameter has dtype"),
        (lambda u: (StencilUpdate(lambda nb, p: jnp.cbrt(nb("u"))), u, None), "`fn` uses cbrt"),
        (
            lambda u: (StencilUpdate(good, boundary=Boundaries(Grid(u.shape), Sponge())), u, 0.1),
            "not a weighted sum of the layers",
        ),
        (
            lambda u: (StencilUpdate(good, boundary=Boundaries(Grid(u.shape), Neumann(u[0]))), u, 0.1),
            "varies along its side",
        ),
        (
            lambda u: (StencilUpdate(good, boundary=Boundaries(Grid(u.shape), Dirichlet()), accuracy=4), u, 0.1),
            "reads 3 layers",
        ),
        (
            lambda u: (nonlinear_diffusion(boundaries("walls", u.shape)), {"u": u, "c": u}, 0.1),
            "the coefficient 'c' is read at neighbours",
        ),
    ],
)
@pytest.mark.x64
def test_a_kernel_that_is_forced_says_what_it_cannot_do(make, words):
    update, state, params = make(jnp.ones((8, 8), jnp.float32))
    rest = {name: state.pop(name) for name in update.coefficients}
    with pytest.raises(ValueError, match=words) as caught:
        select(update, state, params, coefficients=rest, impl="pallas", interpret=True)
    assert "supports float32 fields" in str(caught.value)
    assert select(update, state, params, coefficients=rest).backend == "xla"


@pytest.mark.x64
def test_select_says_what_runs_and_why(monkeypatch, caplog):
    u = jnp.ones((8, 8), jnp.float32)
    update = StencilUpdate(good)
    assert select(update, u, 0.1) == ("xla", "there is no kernel for 'cpu'", 1, False, None, None, False)
    assert select(update, u, 0.1, impl="pallas", interpret=True, steps_per_pass=2)[:4] == (
        "mosaic_gpu",
        "`impl='pallas', interpret=True` requests it",
        2,
        True,
    )
    with pytest.raises(ValueError, match="requires a GPU or a TPU"):
        select(update, u, 0.1, impl="pallas")
    with pytest.raises(ValueError, match="reach further than"):
        select(update, u, 0.1, impl="mosaic_tpu", steps_per_pass=9)
    believe(monkeypatch, False, "it is slower")
    with caplog.at_level(logging.INFO, "sciml.kernels"):
        for _ in range(2):
            assert "it is slower" in select(update, u, 0.1).reason
        believe(monkeypatch, True)
        assert select(update, u, 0.1).backend == "mosaic_gpu"
        assert "`fn` uses cbrt" in select(StencilUpdate(lambda nb, p: jnp.cbrt(nb("u"))), u).reason
    assert [r.message.split(": ")[0] for r in caplog.records] == ["a stencil runs with XLA, without a kernel"] * 2


def test_select_answers_for_the_steps_of_a_model_that_is_a_stencil():
    grid = Grid((64, 48))
    model, u = Diffusion(grid, Neumann(0.0)), jnp.ones(grid.shape, jnp.float32)
    assert select(model, 0.0, u, None) == ("xla", "there is no kernel for 'cpu'", 1, False, None, None, False)
    chosen = select(model, 0.0, u, None, impl="mosaic_gpu")
    assert isinstance(chosen, _select.StencilSelection) and chosen.backend == "mosaic_gpu"
    tensor = Diffusion(grid, Neumann(0.0), jnp.eye(2))
    assert select(tensor, 0.0, u, None).reason == "the diffusivity is a tensor"
    with pytest.raises(ValueError, match="cannot run `Diffusion`: the diffusivity is a tensor"):
        select(tensor, 0.0, u, None, impl="mosaic_gpu")


def test_boundaries_that_are_periodic_need_no_walls():
    update = StencilUpdate(good, boundary=Boundaries(Grid((8, 8)), Periodic()))
    assert select(update, jnp.ones((8, 8), jnp.float32), 0.1, impl="pallas", interpret=True).backend == "mosaic_gpu"


class Rolled(AbstractStencilKernel):
    """A kernel of one's own, of periodic updates: a neighbour is the whole field, rolled."""

    name: ClassVar[str] = "rolled"
    sizes: ClassVar[tuple[int, ...]] = (1,)

    def plan(self, update, params, shape, dtype, steps=None, rows=None):
        if any(boundary is not None for boundary in update.boundaries):
            raise NotForKernelsError("it takes periodic fields alone")
        return Tiling(steps or 1, rows or 1)

    def advance(self, update, params, state, coefficients, n_stages, plan, interpret=False):
        for _ in range(n_stages):
            arrays = dict(zip(update.fields + update.coefficients, state + coefficients))

            def nb(name, *shift, arrays=arrays):
                return jnp.roll(arrays[name], [-s for s in shift], range(len(shift)))

            state = update.new_values(nb, params, state[0])
        return state


def test_a_kernel_of_ones_own_with_its_gradient():
    update, state, params, rest = case("acoustic", shape=(16, 12), dtype=float)
    expected, found = (
        jax.grad(lambda s, impl=impl: jnp.sum(evolve(update, s, 5, params, coefficients=rest, impl=impl)[0] ** 2))(
            state
        )
        for impl in ("xla", Rolled())
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    how = dict(coefficients=rest, impl=Rolled())
    assert select(update, state, params, steps_per_pass=3, **how)[:3] == ("rolled", "`impl=Rolled()` requests it", 3)
    walled, *_ = case("acoustic", shape=(16, 12), kind="walls")
    with pytest.raises(ValueError, match="cannot run this update: it takes periodic fields alone"):
        select(walled, state, params, **how)
    several = StencilUpdate((good, good))
    with pytest.raises(ValueError, match="its steps have several stages"):
        evolve(several, state[0], 1, 0.1, impl=Rolled())


def test_models_and_tune_take_a_kernel_of_ones_own(tmp_path):
    model = Diffusion(Grid((16, 12)), Periodic(), diffusivity=0.1)
    u = field((16, 12), float, 0)
    how = dict(t0=0.0, t1=0.05, dt=0.01, solver=diffrax.Euler())
    with kernels.use(Rolled()):
        found = sciml.solve(model, u, **how)
        many = jax.vmap(lambda y: sciml.solve(lambda t, y, args: -y, y, t0=0.0, t1=1.0).ys)(jnp.ones((3, 2)))
    np.testing.assert_allclose(found.ys, sciml.solve(model, u, **how).ys, rtol=1e-5, atol=1e-6)
    assert many.shape == (3, 1, 2)  # members of another model run by XLA
    with pytest.raises(ValueError, match="between steps"), kernels.use(Rolled()):
        sciml.solve(model, u, saveat=[0.013], **how)
    few = dict(steps_per_pass=(1, 2), n_steps=2, repeats=1, cache=tmp_path / "plans.json")
    assert {t.steps_per_pass for t in tune(heat(2), u, 0.1, impl=Rolled(), **few)} == {1, 2}
    assert "rolled" in (tmp_path / "plans.json").read_text()


class Torn(Rolled):
    """One that returns a field in place of the fields."""

    def advance(self, update, params, state, coefficients, n_stages, plan, interpret=False):
        return state[0]


def test_a_kernel_that_returns_something_else():
    u = jnp.ones((8, 8))
    with pytest.raises(TypeError, match=r"`Torn.advance` must return a tuple of fields .*\(8, 8\).*, but returns"):
        evolve(heat(2), u, 1, 0.1, impl=Torn())
    with pytest.raises((TypeError, ValueError), match="Rolled is a class: make an instance|Type-check error"):
        stencil.evolve(heat(2), u, 1, 0.1, impl=Rolled)


def test_interpret_goes_with_a_kernel():
    u = jnp.ones((8, 8))
    with pytest.raises(ValueError, match="`interpret=True` runs a kernel in JAX's interpreter.*but is 'auto'"):
        select(StencilUpdate(good), u, 0.1, interpret=True)
    with pytest.raises(ValueError, match="but is 'xla'"):
        stencil.evolve(StencilUpdate(good), u, 1, 0.1, impl="xla", interpret=True)
    with pytest.raises((TypeError, ValueError), match="interpret"):  # TypeError where annotations are checked
        stencil.evolve(StencilUpdate(good), u, 1, 0.1, impl="pallas", interpret=1)
    with pytest.raises(ValueError, match="must be one of 'auto', 'xla', 'pallas', but is 'mosaic_gpu'"):
        stencil.evolve(StencilUpdate(good), u, 1, 0.1, impl="mosaic_gpu")
    with kernels.use("pallas", interpret=True):
        assert select(StencilUpdate(good), u.astype(jnp.float32), 0.1).interpreted
        assert select(StencilUpdate(good), u, 0.1, impl="auto").backend == "xla"
