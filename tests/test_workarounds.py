"""What JAX and XLA do that files of sciml work around, by a small program each: where it is right, the file can go.

The tests fail on the newest JAX when a workaround has come to its end.
"""

import pathlib
import time
import tomllib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import serialize_executable

import sciml
from sciml.inspect import _environment

SRC = pathlib.Path(sciml.__file__).parent


def compiled(fn: Callable, *args) -> str:
    return jax.jit(fn).lower(*args).compile().as_text()


def fastest(fn: Callable, *args) -> float:
    jax.block_until_ready(fn(*args))
    found = []
    for _ in range(20):
        start = time.perf_counter()
        jax.block_until_ready(fn(*args))
        found.append(time.perf_counter() - start)
    return min(found)


def one_result_a_fusion() -> bool:
    """A sine of which two results are made is computed twice."""
    x = jnp.ones(10_000, jnp.float32)
    return compiled(lambda x: (jnp.sin(x) + x, jnp.sin(x) * x), x).count(" sine(") > 1


def dropped_barrier() -> bool:
    """So it is behind a barrier, before JAX 0.12."""

    def two(x):
        y = jax.lax.optimization_barrier(jnp.sin(x))
        return y + x, y * x

    return oldest_jax() or compiled(two, jnp.ones(10_000, jnp.float32)).count(" sine(") > 1


def product_by_columns() -> bool:
    """A product that reads a matrix by columns transposes it in every iteration of a loop."""

    def loop(first: Callable, product: Callable) -> Callable:
        def run(matrix, x):
            matrix = first(matrix)
            return jax.lax.fori_loop(0, 100, lambda _, x: jnp.tanh(product(matrix, x)), x)

        return jax.jit(run)

    matrix, x = jnp.full((256, 256), 0.01, jnp.float32), jnp.ones((256, 4), jnp.float32)
    by_columns = loop(lambda a: a, lambda a, x: jax.lax.dot_general(a, x, (((0,), (0,)), ((), ()))))
    by_rows = loop(lambda a: jax.lax.optimization_barrier(a.T), jnp.matmul)
    return fastest(by_columns, matrix, x) > 1.5 * fastest(by_rows, matrix, x)


@jax.tree_util.register_pytree_node_class
class _Flagged:
    def __init__(self, arrays, flags):
        self.arrays, self.flags = arrays, flags

    def tree_flatten(self):
        return (self.arrays,), self.flags

    @classmethod
    def tree_unflatten(cls, flags, children):
        return cls(*children, flags)


def flags_of_another_pass() -> bool:
    """The backward pass gets truth values of the forward pass that was traced last."""

    @jax.custom_vjp
    def product(a, b):
        return a * b

    def forward(a, b):
        return a.value * b.value, _Flagged((a.value, b.value), (a.perturbed, b.perturbed))

    def backward(kept, g):
        (a, b), (left, right) = kept.arrays, kept.flags
        return (g * b if left else None), (g * a if right else None)

    product.defvjp(forward, backward, symbolic_zeros=True)
    run = jax.jit(product)
    _, left = jax.vjp(lambda a: run(a, 3.0), 2.0)
    jax.vjp(lambda b: run(2.0, b), 3.0)
    return left(1.0)[0] != 3.0


def compiled_for_each_device() -> bool:
    """JAX reads no program for another device than that which it was compiled for."""
    first, other = jax.devices()[0], jax.devices()[-1]
    x = jax.device_put(np.ones(3, np.float32), first)
    written = serialize_executable.serialize(jax.jit(lambda x: x + 1).lower(x).compile())
    try:
        serialize_executable.deserialize_and_load(*written, backend=other.client, execution_devices=[other])
    except KeyError:
        return True
    return False


def oldest_jax() -> bool:
    """Before jaxlib 0.12 calls of LAPACK may wait for each other for ever, which no program should try."""
    project = tomllib.loads((SRC.parents[1] / "pyproject.toml").read_text())["project"]
    (bound,) = [x for x in project["dependencies"] if x.startswith("jax>=")]
    return tuple(map(int, bound.removeprefix("jax>=").split(",")[0].split(".")[:2])) < (0, 12)


class Workaround(NamedTuple):
    """A file that works around what JAX or XLA does.

    Attributes:
        file: The file.
        needed: Whether they do it still.
    """

    file: str
    needed: Callable[[], bool]


WORKAROUNDS = (
    Workaround("kernels/_lanes/_fusion.py", one_result_a_fusion),
    Workaround("kernels/_lanes/_fusion.py", lambda: not _environment._hoisted_loop()),
    Workaround("_jax/_barrier.py", dropped_barrier),
    Workaround("_jax/_shifted_updates.py", lambda: not _environment._shifted_update()),
    Workaround("_jax/_matrix_products.py", product_by_columns),
    Workaround("_jax/_static_flags.py", flags_of_another_pass),
    Workaround("_jax/_executables.py", compiled_for_each_device),
    Workaround("parallel/_lapack.py", oldest_jax),
)


@pytest.mark.optimised
@pytest.mark.parametrize("case", WORKAROUNDS, ids=lambda case: case.file)
def test_a_workaround_is_needed(case):
    if tuple(jax.__version_info__) < (0, 12):
        pytest.skip("an older JAX tells nothing of whether a workaround can go")
    assert (SRC / case.file).exists()
    assert case.needed(), f"{case.file} works around what is right by now: remove it, or what of it that was for"
