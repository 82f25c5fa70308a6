"""`adjoint_memory` against what the compiler plans for the gradient itself."""

import functools as ft

import diffrax
import jax
import jax.numpy as jnp
import pytest

import sciml
from sciml import inspect


def reaction(t, y, args):
    """Two substances that react and diffuse on a periodic grid."""
    u, v = y
    spread = [jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1) - 4 * x for x in y]
    return 0.16 * spread[0] - u * v * v + args * (1 - u), 0.08 * spread[1] + u * v * v - (args + 0.06) * v


GRID = (jax.ShapeDtypeStruct((256, 256), jnp.float32),) * 2
STATE = 2 * 256 * 256 * 4
ARGS = jax.ShapeDtypeStruct((), jnp.float32)
table = ft.cache(
    lambda steps, budget=None: inspect.adjoint_memory(
        reaction, GRID, args=ARGS, t0=0.0, t1=float(steps), dt=1.0, solver=diffrax.Euler(), budget=budget
    )
)


def planned(fn, y0, **options):
    """What the compiler plans for the gradient of a solve."""

    def loss(y0, args):
        ys = sciml.solve(fn, y0, args=args, t0=0.0, throw=False, **options).ys
        return sum(jnp.sum(y[-1] ** 2) for y in jax.tree.leaves(ys))

    return inspect.memory(jax.grad(loss, argnums=(0, 1)), y0, ARGS).temporaries


@pytest.mark.parametrize(
    "steps, levels",
    [
        pytest.param(1_000, (1, 2), marks=pytest.mark.slow),
        (10_000, (2,)),
        pytest.param(9_973, (3,), marks=pytest.mark.slow),
    ],
)
def test_the_prediction_for_checkpoints_of_a_pde(steps, levels):
    found = {row.adjoint: row.bytes for row in table(steps).rows}
    for number in levels:
        adjoint = sciml.Checkpointed(levels=number)
        expected = planned(reaction, GRID, t1=float(steps), dt=1.0, solver=diffrax.Euler(), adjoint=adjoint)
        assert abs(found[adjoint] - expected) < 0.02 * expected  # 15% are promised
        assert found[adjoint] > 20 * STATE


@pytest.mark.slow
def test_a_step_that_ends_early_and_direct():
    found = {row.adjoint: row.bytes for row in table(60.5).rows}
    for adjoint in (sciml.Direct(), sciml.Checkpointed(levels=2)):
        expected = planned(reaction, GRID, t1=60.5, dt=1.0, solver=diffrax.Euler(), adjoint=adjoint)
        assert abs(found[adjoint] - expected) < 0.15 * expected


@pytest.mark.slow
def test_the_record_of_a_loop_with_error_control():
    y0 = jax.ShapeDtypeStruct((40_000,), jnp.float32)

    def field(t, y, args):
        return -args * y

    found = inspect.adjoint_memory(field, y0, args=ARGS, t0=0.0, t1=1.0, solver=diffrax.Bosh3(), max_steps=500)
    for row in found.rows:
        expected = planned(field, y0, t1=1.0, solver=diffrax.Bosh3(), max_steps=500, adjoint=row.adjoint)
        assert abs(row.bytes - expected) < 0.15 * expected
    assert found.rows[-1].bytes < 0.8 * found.rows[0].bytes


@pytest.mark.slow
def test_members_take_their_multiple():
    y0 = jax.ShapeDtypeStruct((4096,), jnp.float32)
    one, many = (
        inspect.adjoint_memory(lambda t, y, args: -y, y0, t0=0.0, t1=1.0, dt=0.01, solver=diffrax.Euler(), members=n)
        for n in (1, 5)
    )
    for row, rows in zip(one.rows, many.rows, strict=True):
        assert row.adjoint == rows.adjoint
        assert 4 < rows.bytes / row.bytes < 6.5  # besides the states there is what a step works with


def test_the_recommendation_is_the_cheapest_that_fits():
    assert table(1_000, 10_000 * STATE).recommended == sciml.Checkpointed(levels=1)
    assert table(1_000, 200 * STATE).recommended == sciml.Checkpointed(levels=2)
    assert table(1_000, 50 * STATE).recommended == sciml.Checkpointed(levels=3)
    with pytest.raises(ValueError, match=r"`budget` is 1.0 MiB, but the gradient takes at least .* with `Checkpointed"):
        table(1_000, 2**20).recommended


def test_the_table_prints():
    text = str(table(1_000, 200 * STATE))
    line = next(line for line in text.splitlines() if line.startswith("*"))
    assert line.split()[1] == "Checkpointed(levels=2)" and line.endswith("65 states of 1000")
    assert text.endswith("* recommended within 100.0 MiB")
    assert str(table(1_000, 2**20)).endswith("none within 1.0 MiB")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"solver": diffrax.Kvaerno5()}, "would run through diffrax"),
        ({"members": 0}, r"`adjoint_memory\(members=...\)` must be a positive integer, but is 0"),
        ({"budget": -1}, r"`adjoint_memory\(budget=...\)` must be a positive integer, but is -1"),
        ({"dt": -0.1}, "`dt` must be positive"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        inspect.adjoint_memory(reaction, GRID, t0=0.0, t1=1.0, **options)
