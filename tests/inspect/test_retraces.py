"""The trace counter agrees with what the function's own Python body saw."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml import inspect


def counted(jit):
    """A function that counts how often its body runs, and the same wrapped by `retraces`."""
    runs = []

    def body(x, scale):
        runs.append(0)
        return x * scale

    return inspect.retraces(jit(body)), runs


@pytest.mark.parametrize("jit", [lambda f: f, eqx.filter_jit, jax.jit], ids=["plain", "filter_jit", "jax.jit"])
def test_count_matches_the_body(jit):
    fn, runs = counted(jit)
    scale = jnp.asarray(2.0, jnp.float32)
    for n in (3, 3, 4, 3, 4, 5):
        out = fn(jnp.ones(n, jnp.float32), scale)
        assert out.shape == (n,)
    assert (fn.calls, fn.traces) == (6, len(runs)) == (6, 3)
    assert fn.changes == [
        ["x: float32[3] -> float32[4]"],
        ["x: float32[4] -> float32[5]"],
    ]


def test_dtype_and_static_changes():
    fn, runs = counted(eqx.filter_jit)
    fn(jnp.ones(2, jnp.float32), 2)
    fn(jnp.ones(2, jnp.int32), 2)
    fn(jnp.ones(2, jnp.int32), 3)
    assert fn.traces == len(runs) == 3
    assert fn.changes == [["x: float32[2] -> int32[2]"], ["scale: 2 -> 3"]]
    assert "3 traces in 3 calls" in str(fn)
    assert "scale: 2 -> 3" in str(fn) and "jnp.asarray(x)" in str(fn) and "astype" in str(fn)


def test_a_static_argument_of_a_jitted_function():
    fn, runs = counted(lambda f: jax.jit(f, static_argnums=1))
    for scale in (1, 2, 2):
        fn(jnp.ones(2, jnp.int32), scale)
    assert fn.traces == len(runs) == 2
    assert fn.changes == [["scale: 1 -> 2"]]


def test_weak_types_keywords_and_paths():
    fn = inspect.retraces(lambda x, *, model: x * model["rate"])
    x = jnp.ones(2, jnp.float32)
    fn(x, model={"rate": jnp.asarray(1.0, jnp.float32)})
    fn(x, model={"rate": jax.lax.full((), 1.0)})  # a Python number's dtype is weak
    weak = f"{jax.dtypes.canonicalize_dtype(float)}[], weakly typed"
    assert fn.changes == [[f"model['rate']: float32[] -> {weak}"]]


def test_a_static_field_that_changed():
    class Power(eqx.Module):
        n: int = eqx.field(static=True)

    fn = inspect.retraces(lambda x, power: x**power.n)
    fn(jnp.ones(2), Power(2))
    fn(jnp.ones(2), Power(3))
    assert fn.changes == [["power.n: 2 -> 3"]]


def test_a_function_that_is_made_anew():
    fn = inspect.retraces(lambda x, model: model(x))
    for _ in range(2):
        fn(jnp.ones(2), lambda x: 2 * x)
    ((line,),) = fn.changes
    assert line.startswith("model: function `test_a_function_that_is_made_anew") and line.endswith(
        "a new object with the same name"
    )
    assert "create the function once" in str(fn)


def test_a_structure_that_changed():
    fn = inspect.retraces(lambda tree: jax.tree.leaves(tree)[0])
    fn([jnp.ones(2)])
    fn((jnp.ones(2),))
    ((line,),) = fn.changes
    assert line.startswith("structure or static field:") and "always pass the same tree structure" in str(fn)


def test_numpy_and_jax_arrays_share_a_trace():
    fn, runs = counted(jax.jit)
    fn(np.ones(2, np.float32), np.float32(1))
    fn(jnp.ones(2, jnp.float32), jnp.float32(1))
    assert fn.traces == len(runs) == 1


def test_a_cleared_cache_is_not_blamed_on_an_argument():
    fn, _ = counted(jax.jit)
    fn(jnp.ones(2), jnp.ones(2))
    jax.clear_caches()
    fn(jnp.ones(2), jnp.ones(2))
    ((line,),) = fn.changes
    assert line.startswith("not an argument")


def test_rejects_what_is_not_callable():
    with pytest.raises(Exception, match=r"callable|Callable"):
        inspect.retraces(3)
