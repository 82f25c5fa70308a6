"""hlo, jaxpr, loops, memory and cost on functions whose answer is known."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from sciml import inspect


class Scale(eqx.Module):
    factor: jax.Array
    power: int = eqx.field(static=True)

    def __call__(self, x):
        return self.factor * x**self.power


def decay(y):
    return jax.lax.scan(lambda y, _: (y * 0.5, None), y, length=100)[0]


def test_hlo_stages():
    x = jnp.ones(8, jnp.float32)
    before = inspect.hlo(jnp.sin, x, stage="stablehlo")
    after = inspect.hlo(jnp.sin, x)
    assert "stablehlo.sine" in before
    assert after.startswith("HloModule") and "sine(" in after


def test_hlo_rejects_an_unknown_stage():
    with pytest.raises(ValueError, match='stage must be "optimized" or "stablehlo"'):
        inspect.hlo(jnp.sin, jnp.ones(2), stage="llvm")


def test_not_callable():
    with pytest.raises(Exception, match=r"callable|Callable"):
        inspect.hlo(3, jnp.ones(2))


def test_memory_counts_arguments_and_outputs():
    x = jax.ShapeDtypeStruct((1000,), jnp.float32)
    report = inspect.memory(lambda x: (x, x + 1), x)
    assert report.arguments == 4000
    assert report.outputs >= 8000  # a tuple of results carries a small table of pointers
    assert report.total >= 12000
    assert "arguments 3.9 KiB" in str(report)


def test_memory_of_a_gradient_grows_with_the_saved_states():
    def loss(y):
        return jnp.sum(jax.lax.scan(lambda y, _: (jnp.sin(y), None), y, length=50)[0])

    y = jax.ShapeDtypeStruct((1000,), jnp.float32)
    assert inspect.memory(jax.grad(loss), y).temporaries >= 50 * 4000
    assert inspect.memory(loss, y).temporaries < 10 * 4000


def test_a_module_is_an_argument_not_a_constant():
    model = Scale(jnp.ones(1000, jnp.float32), 2)
    assert inspect.memory(model, jnp.ones(1000, jnp.float32)).arguments == 8000


def test_donation_of_a_jitted_function_counts():
    x = jax.ShapeDtypeStruct((1000,), jnp.float32)
    assert inspect.memory(jax.jit(lambda x: x + 1, donate_argnums=0), x).aliased == 4000
    assert inspect.memory(lambda x: x + 1, x).aliased == 0


@pytest.mark.parametrize(
    "jit", [lambda f: f, eqx.filter_jit, lambda f: jax.jit(f, static_argnums=1)], ids=["plain", "filter_jit", "jax.jit"]
)
def test_every_kind_of_callable(jit):
    fn = jit(lambda x, n: jnp.sum(x) * n)
    x = jnp.ones(64, jnp.float32)
    assert "HloModule" in inspect.hlo(fn, x, 3)
    assert inspect.cost(fn, x, 3).flops >= 63
    assert inspect.memory(fn, x, 3).arguments == 256
    assert inspect.collectives(fn, x, 3) == []
    assert inspect.loops(fn, x, 3) == []


def test_cost_of_a_matrix_product():
    a, b = jnp.ones((32, 64), jnp.float32), jnp.ones((64, 16), jnp.float32)
    work = inspect.cost(jnp.matmul, a, b)
    assert work.flops >= 2 * 32 * 64 * 16
    assert work.bytes_accessed >= 4 * (32 * 64 + 64 * 16 + 32 * 16)
    assert inspect.cost(jnp.exp, a).transcendentals >= 32 * 64


def test_loops_of_a_scan():
    (loop,) = inspect.loops(decay, jnp.ones(1000, jnp.float32))
    assert loop.trips == 100
    assert loop.loop_depth == 0
    assert "f32[1000]" in loop.carry
    assert loop.operations["fusion"] >= 1
    assert not set(loop.operations) & {"parameter", "tuple", "get-tuple-element"}
    assert "while" in loop.source


def test_loops_nested_and_of_unknown_length():
    def nested(y):
        return jax.lax.while_loop(lambda y: jnp.max(y) > 1e-3, decay, y)

    outer, inner = sorted(inspect.loops(nested, jnp.ones(100)), key=lambda loop: loop.loop_depth)
    assert (outer.loop_depth, outer.trips) == (0, None)
    assert (inner.loop_depth, inner.trips) == (1, 100)
    assert outer.operations["while"] == 1
