"""What is compiled once and used again: JAX's persistent cache, and exported programs."""

import os
import pathlib
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sciml

ROOT = pathlib.Path(__file__).resolve().parents[1]

PROGRAM = textwrap.dedent("""
    import sys
    import jax
    import jax.numpy as jnp
    import numpy as np
    import sciml

    counts = {"hits": 0, "misses": 0}
    def listen(event, **kwargs):
        if event.startswith("/jax/compilation_cache/cache_"):
            counts[event.rsplit("_", 1)[1]] += 1
    jax.monitoring.register_event_listener(listen)

    jax.config.update("jax_compilation_cache_dir", sys.argv[1])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    model = sciml.models.Lorenz63()
    solve = lambda y0: sciml.solve(model, y0, t0=0.0, t1=1.0, rtol=1e-4, throw=False).ys[-1]
    one = solve(jnp.ones(3))
    many = jax.jit(jax.vmap(solve))(jnp.ones((4, 3)))
    slope = jax.jit(jax.grad(lambda y0: jnp.sum(solve(y0) ** 2)))(jnp.ones(3))
    options = dict(rtol=1e-3, solver=sciml.solvers.Rosenbrock23())
    stiff = sciml.solve(sciml.models.Robertson(), jnp.array([1.0, 0.0, 0.0]), t0=0.0, t1=1.0, **options).ys
    run = sciml.simulate(model, jnp.ones(3), t0=0.0, t1=1.0, rtol=1e-4, save_every=0.1, progress=False)
    print(counts["hits"], counts["misses"])
    values = np.concatenate([np.ravel(x) for x in (one, many, slope, stiff, run.values)])
    print(values.astype(np.float32).tobytes().hex())
""")


@pytest.mark.x64
def test_a_second_process_compiles_nothing_anew(tmp_path):
    def start():
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stderr
        counts, values = done.stdout.splitlines()
        return *map(int, counts.split()), values

    hits, misses, first = start()
    assert misses > 5
    again, more, second = start()
    assert more == 0 and again >= misses + hits
    assert first == second


def exported(fn, *args):
    """`fn` after it was written to bytes and read again, as another process would."""
    data = jax.export.export(jax.jit(fn))(*args).serialize()
    return jax.export.deserialize(data).call


@pytest.mark.x64
@pytest.mark.parametrize(
    "kind",
    [
        "one",
        "fixed",
        "many",
        "gradient",
        "stiff",
    ],
)
def test_a_solve_can_be_exported(kind):
    pytest.importorskip("flatbuffers")
    model, y0 = sciml.models.Lorenz63(), jnp.ones(3)

    def solve(y0, **options):
        options = dict(rtol=1e-5) | options
        sol = sciml.solve(model, y0, t0=0.0, t1=1.0, saveat=jnp.linspace(0.0, 1.0, 5), **options)
        return sol.ys, sol.status

    fn = {
        "one": solve,
        "fixed": lambda y0: sciml.solve(model, y0, t0=0.0, t1=1.0, dt=0.01).ys,
        "many": jax.vmap(solve),
        "gradient": jax.grad(lambda y0: jnp.sum(solve(y0)[0] ** 2)),
        "stiff": lambda y0: solve(y0, solver=sciml.solvers.Rodas5P(), rtol=1e-3),
    }[kind]
    y0 = jnp.stack([y0, 2 * y0]) if kind == "many" else y0
    again = exported(fn, y0)
    for x in (y0, 1.1 * y0):
        jax.tree.map(np.testing.assert_array_equal, again(x), jax.jit(fn)(x))
