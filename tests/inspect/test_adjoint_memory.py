"""`adjoint_memory` against what the compiler plans for the gradient itself."""

import functools as ft
import math

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import sciml
from sciml import inspect
from sciml.inspect._adjoint_memory import AdjointMemory


def reaction(t, y, args):
    """Two substances that react and diffuse on a periodic grid."""
    u, v = y
    spread = [jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1) - 4 * x for x in y]
    return 0.16 * spread[0] - u * v * v + args * (1 - u), 0.08 * spread[1] + u * v * v - (args + 0.06) * v


GRID = (jax.ShapeDtypeStruct((256, 256), jnp.float32),) * 2
STATE = 2 * 256 * 256 * 4
ARGS = jax.ShapeDtypeStruct((), jnp.float32)
EULER = {"dt": 1.0, "solver": diffrax.Euler()}
COMPARED = (sciml.adjoints.Checkpointed, sciml.adjoints.Forward, sciml.adjoints.Reversible, sciml.adjoints.Backsolve)


@ft.cache
def rows(steps, kinds=COMPARED):
    """The rows of a solve of the grid."""
    times = {"t0": 0.0, "t1": float(steps)}
    return inspect.adjoint_memory(reaction, GRID, args=ARGS, **times, **EULER, adjoints=kinds).rows


def table(steps, budget):
    """The table of a solve for a budget."""
    return AdjointMemory(rows(steps), budget)


def planned(fn, y0, **options):
    """What the compiler plans for the gradient of a solve."""

    def loss(y0, args):
        ys = sciml.solve(fn, y0, args=args, t0=0.0, throw=False, **options).ys
        return sum(jnp.sum(y[-1] ** 2) for y in jax.tree.leaves(ys))

    return inspect.memory(jax.grad(loss, argnums=(0, 1)), y0, ARGS).temporaries


@pytest.mark.parametrize(
    "steps, levels",
    [
        (1_000, (2,)),
        (1_000, (1,)),
        (10_000, (2,)),
        (9_973, (3,)),
    ],
)
def test_the_prediction_for_checkpoints_of_a_pde(steps, levels):
    found = {row.adjoint: row.bytes for row in rows(steps)}
    for number in levels:
        adjoint = sciml.adjoints.Checkpointed(levels=number)
        expected = planned(reaction, GRID, t1=float(steps), adjoint=adjoint, **EULER)
        assert abs(found[adjoint] - expected) < 0.02 * expected  # 15% are promised
        assert found[adjoint] > 20 * STATE


def test_a_step_that_ends_early_and_direct():
    found = {row.adjoint: row.bytes for row in rows(60.5, (sciml.adjoints.Direct, sciml.adjoints.Checkpointed))}
    for adjoint in (sciml.adjoints.Direct(), sciml.adjoints.Checkpointed(levels=2)):
        expected = planned(reaction, GRID, t1=60.5, adjoint=adjoint, **EULER)
        assert abs(found[adjoint] - expected) < 0.15 * expected


@pytest.mark.parametrize("steps", [8, 1_000])
def test_direct_of_a_small_state(steps):
    """What few steps take is no measure of many: other buffers are larger than what they keep."""

    def swing(t, y, rate):
        return jnp.stack([y[1], -rate * jnp.sin(y[0])])

    y0 = jax.ShapeDtypeStruct((2,), jnp.float32)
    options = dict(t1=1.0, dt=1.0 / steps)
    (row,) = inspect.adjoint_memory(swing, y0, args=ARGS, t0=0.0, adjoints=sciml.adjoints.Direct, **options).rows
    assert row.bytes == pytest.approx(planned(swing, y0, adjoint=sciml.adjoints.Direct(), **options), rel=0.15)


class Plain(sciml.adjoints.AbstractAdjoint):
    """A custom adjoint."""

    def run(self, loop, y0, operands, differentiate_times):
        return sciml.adjoints.Direct().run(loop, y0, operands, differentiate_times)


def test_a_custom_adjoint_has_a_row_with_its_memory():
    y0, options = jax.ShapeDtypeStruct((2_000,), jnp.float32), dict(t0=0.0, t1=1.0, dt=0.1, args=ARGS)
    kinds = (Plain(), sciml.adjoints.Checkpointed)
    found = inspect.adjoint_memory(lambda t, y, args: -args * y, y0, adjoints=kinds, **options)
    assert found.rows[0].adjoint == Plain() and found.rows[0].bytes > 8_000 and found.rows[0].solves is None
    assert found.recommended == sciml.adjoints.Checkpointed(levels=1)
    assert "Plain()" in str(found) and "its accuracy is not known" in str(found)
    with pytest.raises(TypeError, match=r"Pass a custom adjoint as an object, such as `MyAdjoint\(\)`"):
        inspect.adjoint_memory(lambda t, y, args: -y, y0, adjoints=Plain, **options)


def test_the_record_of_a_loop_with_error_control():
    y0 = jax.ShapeDtypeStruct((40_000,), jnp.float32)

    def field(t, y, args):
        return -args * y

    found = inspect.adjoint_memory(field, y0, args=ARGS, t0=0.0, t1=1.0, solver=diffrax.Bosh3(), max_steps=500)
    kept = [row for row in found.rows if isinstance(row.adjoint, sciml.adjoints.Checkpointed)]
    for row in kept:
        expected = planned(field, y0, t1=1.0, solver=diffrax.Bosh3(), max_steps=500, adjoint=row.adjoint)
        assert abs(row.bytes - expected) < 0.15 * expected
    assert kept[1].bytes < 0.8 * kept[0].bytes
    assert found.recommended == sciml.adjoints.Checkpointed()
    refused = {type(row.adjoint): row.keeps for row in found.rows if row.bytes is None}
    assert refused.keys() == {sciml.adjoints.Direct, sciml.adjoints.Forward}
    assert "here 40001, more than `limit`=1000" in refused[sciml.adjoints.Forward]


LOOPS = {
    "scan": {"dt": 0.01, "solver": diffrax.Bosh3()},
    "fixed_saves": {"dt": 0.01, "solver": diffrax.Bosh3(), "saveat": jnp.array([1.5, 3.0])},
    "adaptive": {"solver": diffrax.Bosh3()},
    "stiff": {"solver": sciml.solvers.Rosenbrock23()},
}


@pytest.mark.parametrize("loop", LOOPS)
def test_the_prediction_for_adjoints_that_keep_no_states(loop):
    """Of a gradient by three parameters and five numbers of the start, which `Forward` takes too."""
    options = {"t0": 0.0, "t1": 4.0, **LOOPS[loop]}
    model, y0 = sciml.models.Brusselator(), jax.ShapeDtypeStruct((2,), jnp.result_type(float))
    found = [row for row in inspect.adjoint_memory(model, y0, **options).rows if row.bytes is not None]
    kinds = [type(row.adjoint) for row in found]
    for kind in (sciml.adjoints.Forward, sciml.adjoints.Gauss, sciml.adjoints.Interpolating, sciml.adjoints.Backsolve):
        assert kind in kinds
    assert (sciml.adjoints.Reversible in kinds) == (loop != "stiff")
    others = [r for r in found if not isinstance(r.adjoint, (sciml.adjoints.Direct, sciml.adjoints.Checkpointed))]
    for row in others[list(LOOPS).index(loop) % 2 :: 2]:  # each adjoint with every second loop

        def loss(inputs, adjoint=row.adjoint):
            model, y0 = inputs
            return jnp.sum(sciml.solve(model, y0, adjoint=adjoint, throw=False, **options).ys ** 2)

        expected = inspect.memory(eqx.filter_grad(loss), (model, y0)).temporaries
        assert abs(row.bytes - expected) < 0.15 * expected, row


@pytest.mark.parametrize(
    "adjoint",
    [
        sciml.adjoints.Reversible(),
        sciml.adjoints.Backsolve(),
        sciml.adjoints.Gauss(),
        sciml.adjoints.Interpolating(),
    ],
    ids=lambda adjoint: type(adjoint).__name__,
)
def test_the_prediction_of_a_pde_for_adjoints_that_keep_no_states(adjoint):
    kinds = COMPARED if type(adjoint) in COMPARED else (type(adjoint),)
    found = {row.adjoint: row.bytes for row in rows(1_000, kinds)}
    expected = planned(reaction, GRID, t1=1_000.0, adjoint=adjoint, **EULER)
    assert abs(found[adjoint] - expected) < 0.15 * expected


def test_members_take_their_multiple():
    y0 = jax.ShapeDtypeStruct((768,), jnp.float32)  # not so large that members run one after another
    one, many = (
        inspect.adjoint_memory(
            lambda t, y, args: -y * y, y0, t0=0.0, t1=1.0, dt=0.01, solver=diffrax.Euler(), members=n
        )
        for n in (1, 5)
    )
    for row, rows in zip(one.rows, many.rows):
        assert row.adjoint == rows.adjoint
        if isinstance(row.adjoint, (sciml.adjoints.Direct, sciml.adjoints.Checkpointed, sciml.adjoints.Reversible)):
            assert 4 < rows.bytes / row.bytes < 6.5  # besides the states there is what a step works with


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_the_prediction_for_members(levels):
    """Of states so large that a CPU runs members one after another: but the first, levels are kept of one at a time."""
    members, steps = 6, 1_000
    times = {"t0": 0.0, "t1": float(steps)}
    found = inspect.adjoint_memory(
        reaction, GRID, args=ARGS, **times, **EULER, adjoints=[sciml.adjoints.Checkpointed], members=members
    ).rows[levels - 1]
    assert found.adjoint == sciml.adjoints.Checkpointed(levels=levels)

    def loss(y0, args):
        run = lambda y0: sciml.solve(reaction, y0, args=args, **times, **EULER, throw=False, adjoint=found.adjoint).ys  # noqa: E731
        return sum(jnp.sum(y**2) for y in jax.tree.leaves(jax.vmap(run)(y0)))

    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((members, *x.shape), x.dtype), GRID)
    planned = inspect.memory(jax.grad(loss, argnums=(0, 1)), batch, ARGS).temporaries
    assert 0.85 < found.bytes / planned < 1.15


def test_the_recommendation_is_the_cheapest_that_fits():
    assert table(1_000, 10_000 * STATE).recommended == sciml.adjoints.Checkpointed(levels=1)
    assert table(1_000, 200 * STATE).recommended == sciml.adjoints.Checkpointed(levels=2)
    assert table(1_000, 50 * STATE).recommended == sciml.adjoints.Checkpointed(levels=3)
    assert table(1_000, 16 * STATE).recommended == sciml.adjoints.Reversible()  # the first of those with a caveat
    assert table(1_000, 10 * STATE).recommended == sciml.adjoints.Backsolve()
    with pytest.raises(ValueError, match=r"`budget` is 1.0 MiB, but the gradient requires at least .* with `Backsolve"):
        table(1_000, 2**20).recommended


def test_the_recommended_coupling_leads_back():
    """The default one would lose the start over so many steps."""
    options = {"t0": 0.0, "t1": 1e6, "adjoints": [sciml.adjoints.Reversible], **EULER}
    (row,) = inspect.adjoint_memory(lambda t, y, args: -y, jnp.ones(2), **options).rows
    coupling = row.adjoint.coupling
    growth = -0.75 * math.log(float(jnp.finfo(jnp.result_type(float)).eps))  # from rounding to its fourth root
    assert -1e6 * math.log(coupling) < growth < -1e6 * math.log(0.999)


def test_the_table_prints():
    text = str(table(1_000, 200 * STATE))
    line = next(line for line in text.splitlines() if line.startswith("*"))
    assert line.split()[1] == "Checkpointed(levels=2)" and line.endswith("65 states of 1000")
    assert text.endswith("* recommended within 100.0 MiB")
    assert "here 131073" in next(line for line in text.splitlines() if "Forward() " in line)
    assert str(table(1_000, 2**20)).endswith("none within 1.0 MiB")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"solver": diffrax.ImplicitEuler()}, "would run through diffrax"),
        ({"members": 0}, r"`adjoint_memory\(members=...\)` must be a positive integer, but is 0"),
        ({"budget": -1}, r"`adjoint_memory\(budget=...\)` must be a positive integer, but is -1"),
        ({"dt": -0.1}, "`dt` must be positive"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        inspect.adjoint_memory(reaction, GRID, t0=0.0, t1=1.0, **options)


def test_an_adjoint_without_a_row():
    with pytest.raises(TypeError, match="adjoints"):
        inspect.adjoint_memory(reaction, GRID, t0=0.0, t1=1.0, adjoints=[sciml.adjoints.Implicit])


def test_one_class():
    table = inspect.adjoint_memory(
        lambda t, y, args: -y, jnp.ones(3), t0=0.0, t1=1.0, dt=0.1, adjoints=sciml.adjoints.Reversible
    )
    assert [type(row.adjoint) for row in table.rows] == [sciml.adjoints.Reversible]
