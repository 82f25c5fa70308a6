"""Stencil updates run by the reference: values, gradients, transformations, and what is refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from sciml import parallel
from sciml.kernels import stencil
from sciml.kernels.stencil import StencilUpdate
from sciml.models import GrayScott
from sciml.spatial import Boundaries, Dirichlet, Grid, Laplacian, Neumann, Periodic

from ..running import evolve
from .stencil_cases import (
    KINDS,
    PEARSON,
    SECOND,
    acoustic,
    boundaries,
    field,
    gray_scott,
    heat,
    nonlinear_diffusion,
    wave,
)

SHAPES = {1: (11,), 2: (9, 7), 3: (5, 6, 7)}


def rolled_laplacian(u, radius):
    weights = SECOND[radius]
    total = u.ndim * weights[0] * u
    for axis, j in itertools.product(range(u.ndim), range(1, radius + 1)):
        total = total + weights[j] * (np.roll(u, j, axis) + np.roll(u, -j, axis))
    return total


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("radius", [1, 4])
def test_periodic_steps_are_those_of_numpy(ndim, radius, dtype):
    u, before, c = (field(SHAPES[ndim], dtype, seed) for seed in range(3))
    expected, last = np.asarray(u, np.float64), np.asarray(before, np.float64)
    for _ in range(5):
        expected, last = 2 * expected - last + 0.05 * np.asarray(c) * rolled_laplacian(expected, radius), expected
    update = acoustic(ndim, radius)
    found = jax.jit(lambda s: evolve(update, s, 5, 0.05, coefficients={"c": c}))({"u": u, "before": before})
    assert found["u"].dtype == dtype
    np.testing.assert_allclose(found["u"], expected, rtol=0, atol=20 * jnp.finfo(dtype).eps)
    np.testing.assert_allclose(found["before"], last, rtol=0, atol=20 * jnp.finfo(dtype).eps)


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.x64
def test_every_boundary_is_that_of_spatial(kind, ndim):
    shape = SHAPES[ndim]
    boundary = boundaries(kind, shape)
    spacing = boundary.grid.spacing
    u = field(shape, jnp.float64)

    def fn(nb, rate):
        total = 0.0
        for axis in range(ndim):
            ahead = tuple(int(a == axis) for a in range(ndim))
            behind = tuple(-s for s in ahead)
            total = total + (nb("u", *ahead) + nb("u", *behind) - 2 * nb("u")) / spacing[axis] ** 2
        return nb("u") + rate * total

    @jax.jit
    def by_spatial(u):
        operator = Laplacian(boundary.grid, boundary)
        for _ in range(3):
            u = u + 0.002 * operator(u)
        return u

    expected = by_spatial(u)
    found = jax.jit(lambda u: evolve(StencilUpdate(fn, boundary=boundary), u, 3, 0.002))(u)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.x64
def test_each_field_has_its_own_boundary_and_higher_accuracy():
    grid = Grid((8, 9))
    one, two = Boundaries(grid, Dirichlet(1.0)), Boundaries(grid, Neumann(0.0))
    update = StencilUpdate(
        lambda nb, _: {"u": nb("u", -1, 0) + nb("v", 0, 2), "v": nb("v", 2, 2)},
        fields=("u", "v"),
        radius=2,
        boundary={"u": one, "v": two},
        accuracy=4,
    )
    u, v = field(grid.shape, jnp.float64), field(grid.shape, jnp.float64, 1)
    found = jax.jit(lambda s: evolve(update, s, 1))({"u": u, "v": v})
    up, vp = jax.jit(lambda u, v: (one.pad(u, 2, accuracy=4), two.pad(v, 2, accuracy=4)))(u, v)
    np.testing.assert_allclose(found["u"], up[1:-3, 2:-2] + vp[2:-2, 4:], rtol=1e-13)
    np.testing.assert_allclose(found["v"], vp[4:, 4:], rtol=1e-13)


def test_a_model_by_explicit_euler_is_an_update(dtype):
    grid = Grid((16, 12), 0.0, 1.0)
    model = GrayScott(grid, Periodic())
    h = grid.spacing
    update = StencilUpdate(
        lambda nb, p: tuple(
            nb(name)
            + d * ((nb(name, 1, 0) + nb(name, -1, 0) - 2 * nb(name)) / h[0] ** 2)
            + d * ((nb(name, 0, 1) + nb(name, 0, -1) - 2 * nb(name)) / h[1] ** 2)
            + sign * nb("u") * nb("v") ** 2
            + source
            for name, d, sign, source in (
                ("u", p[0], -1, p[2] * (1 - nb("u"))),
                ("v", p[1], 1, -(p[2] + p[3]) * nb("v")),
            )
        ),
        fields=("u", "v"),
    )

    @jax.jit
    def by_model(y):
        for _ in range(3):
            y = y + model(0.0, y, None)
        return y

    y = jnp.stack([field(grid.shape, dtype), field(grid.shape, dtype, 1)])
    expected = by_model(y)
    found = jax.jit(lambda s: evolve(update, s, 3, (2e-5, 1e-5, 0.03, 0.062)))((y[0], y[1]))
    few = 20 * jnp.finfo(dtype).eps
    np.testing.assert_allclose(jnp.stack(found), expected, rtol=few, atol=few)


def loss_of(update, n, coefficients=None, impl="auto"):
    def loss(state, params, boundary, coefficients):
        moved = StencilUpdate(
            update.fn,
            fields=update.fields,
            radius=update.radius,
            boundary=boundary,
            coefficients=update.coefficients,
        )
        end = evolve(moved, state, n, params, coefficients=coefficients, impl=impl)
        return sum(jnp.sum(jnp.sin((i + 1) * x)) for i, x in enumerate(jax.tree.leaves(end)))

    return loss


GRADIENTS = [
    ("heat", 2, "periodic"),
    ("heat", 2, "walls"),
    ("heat", 3, "mixed"),
    ("acoustic", 1, "robin"),
    ("acoustic", 2, "mixed"),
    ("gray_scott", 2, "periodic"),
    ("gray_scott", 2, "dirichlet"),
    ("nonlinear", 2, "periodic"),
    ("nonlinear", 2, "walls"),
]


def case(name, ndim, kind, dtype=None, shape=None):
    dtype = dtype or jnp.result_type(float)
    shape = shape or SHAPES[ndim]
    boundary = boundaries(kind, shape)
    u, v, c = (field(shape, dtype, seed) for seed in range(3))
    if name == "heat":
        return heat(ndim, boundary=boundary), (u,), 0.1, {}
    if name == "acoustic":
        return acoustic(ndim, boundary=boundary), {"u": u, "before": v}, 0.1, {"c": c}
    if name == "gray_scott":
        return gray_scott(ndim, boundary=boundary), (u, v), PEARSON, {}
    return nonlinear_diffusion(boundary=boundary), u, 0.7, {"c": c}


@pytest.mark.parametrize("name, ndim, kind", GRADIENTS)
@pytest.mark.x64
def test_the_gradient_is_that_of_the_reference(name, ndim, kind):
    """With respect to fields, parameters, values at walls and coefficients together."""
    update, state, params, coefficients = case(name, ndim, kind)
    inputs = (state, params, update.boundary, coefficients)
    found = jax.jit(jax.grad(loss_of(update, 7), argnums=(0, 1, 2, 3)))(*inputs)
    expected = jax.jit(jax.grad(loss_of(update, 7, impl="xla"), argnums=(0, 1, 2, 3)))(*inputs)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    if name != "heat":
        return
    alone = jax.jit(jax.grad(loss_of(update, 7)))(*inputs)  # linear, and keeps no states
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(expected[0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.x64
def test_what_was_asked_for_before_does_not_matter():
    """By the rate states are kept, by the state none is."""
    update = heat(2)

    @jax.jit
    def loss(rate, u):
        return jnp.sum(evolve(update, {"u": u}, 7, rate)["u"] ** 2)

    rate, u = jnp.array(0.1), field(SHAPES[2], jnp.float64, 0)
    members = jax.grad(lambda rate: jnp.sum(jax.vmap(loss, in_axes=(None, 0))(rate, jnp.stack([u, u]))))(rate)
    by_state = jax.jit(jax.grad(loss, argnums=1))(rate, u)
    by_rate = jax.jit(jax.grad(loss))(rate, u)
    np.testing.assert_allclose(members, 2 * by_rate, rtol=1e-10)
    np.testing.assert_allclose(jnp.vdot(by_state, u), 2 * loss(rate, u), rtol=1e-10)


@pytest.mark.x64
def test_the_gradient_is_that_of_finite_differences():
    update, state, params, coefficients = case("nonlinear", 2, "walls")

    def loss(state, params):
        return loss_of(update, 5)(state, params, update.boundary, coefficients)

    for argnum, argument in enumerate((state, params)):

        def alone(x, argnum=argnum):
            return loss(*(x if i == argnum else y for i, y in enumerate((state, params))))

        argument = jnp.asarray(argument)
        direction = field(argument.shape, jnp.float64, 9)
        step = 1e-6
        central = (alone(argument + step * direction) - alone(argument - step * direction)) / (2 * step)
        found = jnp.vdot(jax.grad(alone)(argument), direction)
        assert abs(found - central) < 1e-7 * abs(central)


@pytest.mark.x64
def test_a_linear_update_keeps_no_states_for_its_gradient():
    u = field((16, 16), jnp.float64)

    def kept(update, params, state):
        _, back = jax.vjp(lambda s: evolve(update, s, 100, params), state)
        return sum(x.size for x in jax.tree.leaves(back))

    assert kept(heat(2), 0.1, u) < 2 * u.size
    assert kept(gray_scott(), PEARSON, (u, u)) < 25 * u.size


@pytest.mark.x64
def test_vmap_and_grad_in_either_order():
    update, state, params, _ = case("gray_scott", 2, "mixed")
    many = jax.tree.map(lambda x: jnp.stack([x, 0.5 * x, x * x]), state)

    def loss(s):
        return jnp.sum(evolve(update, s, 4, params)[1] ** 2)

    gradient = jax.jit(jax.grad(loss))
    one_by_one = [gradient(jax.tree.map(lambda x, i=i: x[i], many)) for i in range(3)]
    expected = jax.tree.map(lambda *x: jnp.stack(x), *one_by_one)
    inside = jax.jit(jax.vmap(jax.grad(loss)))(many)
    outside = jax.jit(jax.grad(lambda s: jnp.sum(jax.vmap(loss)(s))))(many)
    for found in (inside, outside):
        for a, b in zip(found, expected):
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14)
    rates = jnp.asarray([0.1, 0.2])
    swept = jax.vmap(lambda rate: evolve(heat(2), state[0], 3, rate))(rates)
    np.testing.assert_allclose(swept[1], evolve(heat(2), state[0], 3, rates[1]), rtol=1e-14)


@pytest.mark.x64
def test_forward_mode_and_higher_orders_go_through_the_reference():
    update, state, params, coefficients = case("nonlinear", 2, "walls")

    def loss(x):
        return loss_of(update, 3, impl="xla")(x, params, update.boundary, coefficients)

    direction = field(state.shape, jnp.float64, 5)
    value = jax.jvp(loss, (state,), (direction,))[1]
    np.testing.assert_allclose(value, jnp.vdot(jax.grad(loss)(state), direction), rtol=1e-10)
    hessian = jax.jvp(jax.grad(loss), (state,), (direction,))[1]
    step = 1e-5
    central = (jax.grad(loss)(state + step * direction) - jax.grad(loss)(state - step * direction)) / (2 * step)
    np.testing.assert_allclose(hessian, central, rtol=1e-5, atol=1e-8)


@pytest.mark.x64
@pytest.mark.parametrize("name", ["heat", "gray_scott"])
def test_a_split_field_with_its_gradient(name):
    """A `Domain` is a boundary: ghost cells come from the neighbour, inside of `shard_map` with all its checks."""
    shape = (16, 6)
    conditions = Boundaries(Grid(shape), {"x-": Dirichlet(0.3), "x+": Neumann(0.1), "y": Periodic()})
    domain = parallel.Domain(
        ("x", None), boundary=conditions, mesh=parallel.mesh(member=1, x=4, devices=jax.devices()[:4])
    )
    split, state, params, _ = case(name, 2, "mixed", shape=shape)
    whole = StencilUpdate(split.fn, fields=split.fields, boundary=conditions)
    split = StencilUpdate(split.fn, fields=split.fields, boundary=domain)
    state = tuple(state)

    def local(state, params):
        end = evolve(split, state, 5, params)
        return sum(domain.sum(x**2) for x in end), end

    def loss(state, params):
        return domain.run(local, state, params, out_specs=(PartitionSpec(), PartitionSpec("x")))[0]

    def expected(state, params):
        return sum(jnp.sum(x**2) for x in evolve(whole, state, 5, params))

    found = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(state, params)
    reference = jax.jit(jax.value_and_grad(expected, argnums=(0, 1)))(state, params)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(reference), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


def good(nb, p):
    return nb("u", 1, 0) + p


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda u: StencilUpdate(good, fields="u"), "must be names"),
        (lambda u: StencilUpdate(good, fields=("u",), coefficients=("u",)), "a different name"),
        (lambda u: StencilUpdate(good, radius=0), "positive integer"),
        (lambda u: StencilUpdate(good, boundary=Periodic()), "sciml.spatial.Boundaries"),
        (lambda u: StencilUpdate(good, boundary={"x": None}), "one entry for each"),
        (lambda u: evolve(StencilUpdate(good), (u, u), 1, 0.0), "has 2 arrays"),
        (lambda u: evolve(StencilUpdate(good), {"v": u}, 1, 0.0), "must have the fields"),
        (lambda u: evolve(StencilUpdate(good), u.astype(int), 1, 0.0), "floating-point"),
        (lambda u: evolve(StencilUpdate(good), u[None, None], 1, 0.0), "one to three axes"),
        (lambda u: evolve(StencilUpdate(good, radius=9), u, 1, 0.0), "requires at least"),
        (lambda u: evolve(StencilUpdate(good), u, -1, 0.0), "must not be negative"),
        (lambda u: stencil.evolve(StencilUpdate(good), u, 1, 0.0, impl="cuda"), "must be one of"),
        (lambda u: evolve(StencilUpdate(good), u, 1, 0.0, coefficients={"c": u}), "must be a mapping with"),
        (lambda u: evolve(StencilUpdate(lambda nb, p: nb("v")), u, 1), "does not name a field"),
        (lambda u: evolve(StencilUpdate(lambda nb, p: nb("u", 1)), u, 1), "one integer shift for each of 2 axes"),
        (lambda u: evolve(StencilUpdate(lambda nb, p: nb("u", 2, 0)), u, 1), "reads further than `radius=1`"),
        (lambda u: evolve(StencilUpdate(lambda nb, p: nb("u") + u), u, 1), "element by element"),
        (lambda u: evolve(StencilUpdate(lambda nb, p: (nb("u"), 0.0)), u, 1), "one new value for each"),
        (lambda u: evolve(StencilUpdate(lambda nb, p: None), u, 1), "returned 0 of them"),
        (lambda u: evolve(StencilUpdate(lambda nb, p: {"w": nb("u")}), u, 1), "must return all of"),
        (lambda u: evolve(StencilUpdate(lambda nb, p: nb("u").astype(complex)), u, 1), "must keep the dtype"),
        (lambda u: evolve(good, u, 1, 0.0), "StencilUpdate`, but is a function|Expected type: .*StencilUpdate"),
        *(
            (
                lambda u, walls=walls, impl=impl: evolve(
                    StencilUpdate(good, boundary=Boundaries(Grid((4, 4)), walls)), u, 1, 0.0, impl=impl
                ),
                "the grid of their boundary has shape",
            )
            for walls in (Periodic(), Dirichlet(1.0))
            for impl in ("xla", "interpret_gpu", "interpret_tpu")
        ),
        (
            lambda u: evolve(
                StencilUpdate(good, boundary=Boundaries(Grid((8, 8)), Dirichlet(lambda t, args: t))), u, 1, 0.0
            ),
            "a function of time",
        ),
    ],
)
@pytest.mark.x64
def test_bad_input_is_named(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make(jnp.ones((8, 8)))


def test_zero_steps_return_the_state_in_its_form(dtype):
    u = field((4, 4), dtype)
    assert isinstance(evolve(wave(2), [u, u], 0, 0.1), list)
    assert set(evolve(wave(2), {"u": u, "before": u}, 0, 0.1)) == {"u", "before"}
    np.testing.assert_array_equal(evolve(heat(2), u, 0, 0.1), u)
    np.testing.assert_array_equal(jax.grad(lambda u: evolve(heat(2), u, 0, 0.1).sum())(u), jnp.ones_like(u))


@pytest.mark.x64
def test_leaves_of_the_function_have_gradients():
    update = StencilUpdate(jax.tree_util.Partial(lambda k, nb, _: k * nb("u", 1, 0), jnp.asarray(3.0)))
    u = field((4, 4), jnp.float64)
    found = jax.grad(lambda update: evolve(update, u, 2).sum(), allow_int=True)(update)
    np.testing.assert_allclose(found.fn.args[0], 6 * u.sum())


def test_an_error_of_the_function_says_how_it_was_called():
    with pytest.raises(IndexError) as caught:
        evolve(StencilUpdate(lambda nb, p: nb("u")[0]), jnp.zeros((4, 4)), 1)
    assert "act element by element" in caught.value.__notes__[0]


@pytest.mark.x64
@pytest.mark.parametrize("impl", ["auto", "xla", *(pytest.param(f"interpret_{m}", id=m) for m in ("gpu", "tpu"))])
@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_what_the_function_closes_over_is_as_a_parameter(impl, ndim):
    """Numbers, and for XLA arrays of which it takes elements; under `jit`, `grad` and `vmap` they are tracers."""
    dtype = jnp.float32 if impl == "interpret_tpu" else jnp.float64
    u, shape = field(SHAPES[ndim], dtype), (1,) + (0,) * (ndim - 1)

    def end(rate, pair, by_parameters):
        def fn(nb, p):
            rate_, (low, high) = p if by_parameters else (rate, pair)
            return jnp.clip(nb("u") + rate_ * (nb("u", *shape) - nb("u")), low, high)

        numbers = rate, (pair[0], pair[1])
        return jnp.sum(evolve(StencilUpdate(fn), u, 3, numbers if by_parameters else None, impl=impl) ** 2)

    rates, pair = jnp.asarray([0.1, 0.3], dtype), jnp.asarray([-0.5, 0.6], dtype)

    def run(by_parameters):
        of_one = jax.value_and_grad(lambda rate, pair: end(rate, tuple(pair), by_parameters), argnums=(0, 1))
        return jax.jit(jax.vmap(of_one, in_axes=(0, None)))(rates, pair)

    for found, expected in zip(jax.tree.leaves(run(False)), jax.tree.leaves(run(True)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=20 * jnp.finfo(dtype).eps)
    given = tuple(pair) if impl.startswith("interpret") else pair
    np.testing.assert_allclose(end(rates[0], given, False), end(rates[0], tuple(pair), True), rtol=1e-6)
