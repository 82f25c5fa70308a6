"""Stencils on fields that are divided over devices: one exchange for several steps, and the undivided answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from sciml import parallel
from sciml.inspect import collectives
from sciml.kernels.stencil import StencilUpdate, evolve
from sciml.spatial import Boundaries, Dirichlet, Grid, Neumann, Periodic

from .stencil_cases import PEARSON, acoustic, field, gray_scott

slow = pytest.mark.slow
SHAPE = (16, 12)
SIDES = {
    "periodic": Periodic(),
    "along": {"x": Periodic(), "y-": Dirichlet(0.3), "y+": Neumann(0.1)},
    "across": {"x-": Dirichlet(0.3), "x+": Neumann(0.1), "y": Periodic()},
}


def setting(name, kind, axes=("x", None), dtype=None):
    """An update with the boundary of the undivided field, the same with a domain, and what they start from."""
    boundaries = Boundaries(Grid(SHAPE), SIDES[kind])
    count = {2: {"x": 4}, 4: {"x": 2, "y": 2}}[2 * sum(map(bool, axes))]
    mesh = parallel.mesh(member=1, **count, devices=jax.devices()[:4])
    domain = parallel.Domain(axes, boundaries=boundaries, mesh=mesh)
    dtype = dtype or jnp.result_type(float)
    u, v, c = (field(SHAPE, dtype, seed) for seed in range(3))
    one = gray_scott() if name == "gray_scott" else acoustic(2, 2)
    params, rest = (PEARSON, {}) if name == "gray_scott" else (0.02, {"c": c})

    def with_boundary(boundary):
        return StencilUpdate(
            one.fn, fields=one.fields, radius=one.radius, boundary=boundary, coefficients=one.coefficients
        )

    return domain, with_boundary(boundaries), with_boundary(domain), (u, v), params, rest


def divided(domain, update, params, n_steps, **how):
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
        pytest.param("acoustic", "periodic", ("x", "y"), marks=slow),
        pytest.param("gray_scott", "along", ("x", None), marks=slow),
        pytest.param("gray_scott", "across", ("x", "y"), marks=slow),
    ],
)
@pytest.mark.x64
def test_several_steps_for_each_exchange(name, kind, axes):
    domain, whole, split, state, params, rest = setting(name, kind, axes)
    expected = jax.jit(lambda s: evolve(whole, s, 5, params, coefficients=rest))(state)
    for impl in ("auto", "xla"):
        run = divided(domain, split, params, 5, steps_per_pass=2, impl=impl)
        for a, b in zip(run(state, rest), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14)


@pytest.mark.x64
def test_messages_are_sent_once_for_several_steps():
    """Two for each field, one each way, and none of them in a loop where one exchange serves all steps."""
    domain, _, split, state, params, rest = setting("gray_scott", "periodic", dtype=jnp.float32)

    def sent(n_steps, k):
        found = collectives(divided(domain, split, params, n_steps, steps_per_pass=k), state, rest)
        assert {c.kind for c in found} == {"collective-permute"}
        return len(found), sum(c.in_loop for c in found)

    assert sent(4, 4) == (4, 0)
    assert sent(8, 4) == (4, 4) and sent(10, 4) == (8, 4)


@pytest.mark.slow
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
