"""Stencils on fields that are sharded over devices: one exchange for several steps, and the answer of one device."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from sciml import parallel
from sciml.inspect import collectives
from sciml.kernels import select
from sciml.kernels.stencil import StencilUpdate
from sciml.models import GrayScott, Wave
from sciml.spatial import Boundaries, Dirichlet, Grid, Neumann, Periodic

from ..running import evolve, solve
from .stencil_cases import PEARSON, acoustic, field, gray_scott, laplacian

SHAPE = (16, 12)
SIDES = {
    "periodic": Periodic(),
    "along": {"x": Periodic(), "y-": Dirichlet(0.3), "y+": Neumann(0.1)},
    "across": {"x-": Dirichlet(0.3), "x+": Neumann(0.1), "y": Periodic()},
    "around": {"x-": Dirichlet(0.3), "x+": Neumann(0.1), "y-": Neumann(-0.2), "y+": Dirichlet(0.2)},
}


def setting(name, kind, axes=("x", None), dtype=None):
    """An update with the boundary of the whole field, the same with a domain, and what they start from."""
    boundaries = Boundaries(Grid(SHAPE), SIDES[kind])
    count = {2: {"x": 4}, 4: {"x": 2, "y": 2}}[2 * sum(map(bool, axes))]
    mesh = parallel.mesh(member=1, **count, devices=jax.devices()[:4])
    domain = parallel.Domain(axes, boundary=boundaries, mesh=mesh)
    dtype = dtype or jnp.result_type(float)
    u, v, c = (field(SHAPE, dtype, seed) for seed in range(3))
    one = gray_scott() if name == "gray_scott" else acoustic(2, 2)
    params, rest = (PEARSON, {}) if name == "gray_scott" else (0.02, {"c": c})

    def with_boundary(boundary):
        return StencilUpdate(
            one.fn, fields=one.fields, radius=one.radius, boundary=boundary, coefficients=one.coefficients
        )

    return domain, with_boundary(boundaries), with_boundary(domain), (u, v), params, rest


def sharded(domain, update, params, n_steps, **how):
    """The function `(state, coefficients) -> state` on whole arrays."""

    def local(fields):
        state, rest = fields
        return evolve(update, state, n_steps, params, coefficients=rest, **how)

    spec = PartitionSpec(*domain.axes)
    return jax.jit(lambda state, rest: domain.run(local, (state, rest), out_specs=spec))


@pytest.mark.parametrize(
    "name, kind, axes",
    [
        ("acoustic", "across", ("x", None)),
        ("acoustic", "periodic", ("x", "y")),
        ("gray_scott", "along", ("x", None)),
        ("gray_scott", "across", ("x", "y")),
    ],
)
@pytest.mark.x64
def test_several_steps_for_each_exchange(name, kind, axes):
    domain, whole, split, state, params, rest = setting(name, kind, axes)
    expected = jax.jit(lambda s: evolve(whole, s, 5, params, coefficients=rest))(state)
    for impl in ("auto", "xla"):
        run = sharded(domain, split, params, 5, steps_per_pass=2, impl=impl)
        for a, b in zip(run(state, rest), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14)


@pytest.mark.x64
def test_messages_are_sent_once_for_several_steps():
    """Two for each field, one each way, and none of them in a loop where one exchange serves all steps."""
    domain, _, split, state, params, rest = setting("gray_scott", "periodic", dtype=jnp.float32)

    def sent(n_steps, k):
        found = collectives(sharded(domain, split, params, n_steps, steps_per_pass=k), state, rest)
        assert {c.kind for c in found} == {"collective-permute"}
        return len(found), sum(c.in_loop for c in found)

    assert sent(4, 4) == (4, 0)
    assert sent(8, 4) == (4, 4) and sent(10, 4) == (8, 4)


@pytest.mark.parametrize("kind, axes", [("around", ("x", "y")), ("along", ("x", None))])
@pytest.mark.x64
def test_one_exchange_for_the_stages_of_a_step(kind, axes):
    """Heun's method, whose second stage reads what the first one passes on."""

    def first(nb, rate):
        slope = rate * nb("c", 0, 1) * laplacian(nb, "u", 2)
        return nb("u") + slope, nb("u") + slope / 2

    def second(nb, rate):
        slope = rate * nb("c", 0, 1) * laplacian(nb, "u", 2)
        return nb("kept") + slope / 2, nb("kept")

    domain, whole, split, (u, _), _, rest = setting("acoustic", kind, axes)
    made = {
        which: StencilUpdate((first, second), inner=("kept",), coefficients=("c",), boundary=one.boundary)
        for which, one in {"whole": whole, "split": split}.items()
    }
    expected = jax.jit(lambda u: evolve(made["whole"], u, 5, 0.1, coefficients=rest))(u)

    def run(steps, k):
        return sharded(domain, made["split"], 0.1, steps, steps_per_pass=k, impl="xla")

    for k in (1, 2):
        np.testing.assert_allclose(run(5, k)(u, rest), expected, rtol=1e-13, atol=1e-14)
    ways = 2 * sum(map(bool, axes))
    for k, exchanges in ((None, 2), (1, 1), (2, 1)):
        found = [message for message in collectives(run(6, k), u, rest) if message.in_loop]
        assert len(found) == ways * exchanges  # for one step, or for two


@pytest.mark.x64
def test_gradients_through_several_steps_for_each_exchange():
    domain, whole, split, state, params, rest = setting("gray_scott", "across")

    def loss(end):
        return sum(jnp.sum(x**2) for x in end)

    expected = jax.jit(jax.grad(lambda s, p: loss(evolve(whole, s, 5, p)), argnums=(0, 1)))(state, params)
    for impl in ("auto", "xla"):
        found = jax.jit(
            jax.grad(
                lambda s, p, impl=impl: loss(
                    domain.run(
                        lambda s, p: evolve(split, s, 5, p, steps_per_pass=2, impl=impl),
                        s,
                        p,
                        out_specs=PartitionSpec("x"),
                    )
                ),
                argnums=(0, 1),
            )
        )(state, params)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    "name, kind, axes, target",
    [
        ("acoustic", "along", ("x", None), "tpu"),
        ("gray_scott", "across", ("x", None), "gpu"),
        ("gray_scott", "around", ("x", "y"), "tpu"),
        ("acoustic", "across", ("x", None), "tpu"),
        ("acoustic", "around", ("x", "y"), "gpu"),
        ("acoustic", "periodic", ("x", "y"), "gpu"),
        ("gray_scott", "along", ("x", None), "gpu"),
        ("gray_scott", "periodic", ("x", None), "tpu"),
    ],
)
@pytest.mark.x64
def test_kernels_on_blocks_with_the_layers_of_their_neighbours(name, kind, axes, target):
    """Interpreted, and so without the checks that JAX's interpreter does not pass."""
    domain, whole, split, state, params, rest = setting(name, kind, axes, dtype=jnp.float32)
    expected = jax.jit(lambda s: evolve(whole, s, 5, params, coefficients=rest, impl="xla"))(state)

    def local(state, rest):
        return evolve(split, state, 5, params, coefficients=rest, impl=f"interpret_{target}", steps_per_pass=2)

    spec = PartitionSpec(*axes)
    run = jax.shard_map(local, mesh=domain.mesh, in_specs=(spec, spec), out_specs=spec, check_vma=False)
    for a, b in zip(jax.jit(run)(state, rest), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * jnp.max(jnp.abs(b)))


@pytest.mark.parametrize("kernel, platform, call", [("gpu", "cuda", "mosaic_gpu"), ("tpu", "tpu", "tpu_custom_call")])
@pytest.mark.x64
def test_kernels_on_blocks_lower_with_all_checks(kernel, platform, call):
    domain, _, split, state, params, rest = setting("gray_scott", "around", dtype=jnp.float32)
    run = sharded(domain, split, params, 4, steps_per_pass=4, impl=f"mosaic_{kernel}")
    text = run.trace(state, rest).lower(lowering_platforms=(platform,)).as_text()
    assert text.count("collective_permute") >= 4 and call in text


@pytest.mark.parametrize(
    "name, sides, axes, target",
    [
        ("gray_scott", "across", ("x", None), "tpu"),
        ("gray_scott", "around", ("x", "y"), "gpu"),
        ("wave", "around", ("x", "y"), "tpu"),
    ],
)
@pytest.mark.x64
def test_models_on_a_sharded_field(name, sides, axes, target):
    """Methods of several stages, with as many layers as all of them read."""
    domain, _, _, (u, v), _, _ = setting("gray_scott", sides, axes, jnp.float32)
    grid = domain.boundary.grid

    def run(boundary, impl):
        def end(rate, y):
            if name == "wave":
                model, solver = Wave(grid, boundary, speed=rate), None
            else:
                model, solver = GrayScott(grid, boundary, diffusivity_u=rate, diffusivity_v=0.01), diffrax.Heun()
            return solve(model, y, t0=0.0, t1=0.04, dt=0.01, solver=solver, impl=impl).ys[-1]

        return end

    def of_blocks(rate, y):
        spec = PartitionSpec(None, *axes)
        specs = dict(in_specs=(PartitionSpec(), spec), out_specs=spec, check_vma=False)
        return jax.shard_map(run(domain, f"interpret_{target}"), mesh=domain.mesh, **specs)(rate, y)

    rate, y = jnp.float32(0.02), jnp.stack((u, v))
    expected = jax.jit(run(domain.boundary, "xla"))(rate, y)
    found = jax.jit(of_blocks)(rate, y)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * jnp.max(jnp.abs(expected)))


@pytest.mark.x64
def test_a_pass_has_as_many_steps_as_one_neighbour_has_layers_for():
    """Blocks of four cells: four steps by default where eight would be the kernel's choice, and never five."""
    domain, _, split, state, params, rest = setting("gray_scott", "across", dtype=jnp.float32)
    found = []

    def look(state):
        found.append(select(split, state, params, impl="mosaic_tpu"))
        with pytest.raises(ValueError, match="a pass needs 5 layers of its neighbours, but a device has 4"):
            select(split, state, params, impl="mosaic_tpu", steps_per_pass=5)
        return state

    jax.eval_shape(lambda state: domain.run(look, state), state)
    assert found[0].steps_per_pass == 4
    assert select(split, state, params, impl="mosaic_tpu").steps_per_pass == 8  # on one device


@pytest.mark.x64
def test_the_interpreter_says_where_it_cannot_run():
    domain, _, split, state, params, rest = setting("gray_scott", "along", dtype=jnp.float32)
    with pytest.raises(ValueError, match=r"Call `jax.shard_map\(..., check_vma=False\)`"):
        jax.eval_shape(sharded(domain, split, params, 4, impl="interpret_tpu"), state, rest)
