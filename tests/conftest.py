"""JAX as the tests want it: strict, eight CPU devices, one compilation cache for all workers, annotations checked."""

import gc
import os
import pathlib
import resource
import zlib

# A collective that some device never reaches would hang; XLA ends the process instead.
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_cpu_collective_call_warn_stuck_timeout_seconds=30",
        "--xla_cpu_collective_call_terminate_timeout_seconds=60",
    ]
).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")

import jax
import jax.numpy as jnp
import jaxtyping
import pytest

# What tracing makes is seldom garbage: looking for it as often as Python does takes a fifth of the time of the tests.
gc.set_threshold(50_000, 20, 50)

X64 = os.environ.get("SCIML_X64", "1") != "0"
SPARING = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS", "") not in ("", "0")
CHECK_TYPES = X64 and os.environ.get("SCIML_CHECK_TYPES", "1") != "0"
ROOT = pathlib.Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "sciml"

# Annotations are checked on the float64 leg of the quick suite; elsewhere the code runs as it does for its users. Two
# packages are left to pyright: the evaluation of jaxprs calls itself half a million times in one file of tests.
UNCHECKED = {"sciml.kernels", "sciml.kernels._lanes"}
if CHECK_TYPES:
    jaxtyping.install_import_hook(
        [
            module
            for folder in (SRC, SRC / "kernels")
            for path in sorted(folder.iterdir())
            if not path.stem.startswith("__")
            and (module := ".".join(("sciml", *path.relative_to(SRC).with_suffix("").parts))) not in UNCHECKED
        ],
        # By PEP 484 an int is a float.
        "beartype.beartype(conf=beartype.BeartypeConf(strategy=beartype.BeartypeStrategy.On, is_pep484_tower=True))",
    )

jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_enable_x64", X64)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_traceback_in_locations_limit", 0)  # nobody reads what programs say of the source
jax.config.update("jax_compilation_cache_dir", str(ROOT / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def pytest_report_header() -> str:
    return f"jax {jax.__version__}, x64 {'on' if X64 else 'off'}, annotations {'' if CHECK_TYPES else 'not '}checked"


SLOW = {line for line in (ROOT / "tests" / "slow.txt").read_text().splitlines() if not line.startswith("#")}

# What the quick suite sees in float64 alone, since little of it depends on the precision: marked `wide` here.
WIDE = ("inspect", "kernels", "parallel", "plot", "runs", "spatial", "training", "verify")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is too slow for the quick suite; skip what is marked `x64` on the float32 leg."""
    skip = pytest.mark.skip(reason="needs float64, and SCIML_X64=0")
    for item in items:
        place = item.path.relative_to(ROOT / "tests").parts[0] if item.path.is_relative_to(ROOT / "tests") else ""
        if item.nodeid in SLOW or item.nodeid.partition("::")[0] in SLOW:
            item.add_marker(pytest.mark.slow)
        if place in WIDE:
            item.add_marker(pytest.mark.wide)
        if not X64 and item.get_closest_marker("x64"):
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Compiles with all optimisations what is marked so; see the Makefile."""
    if not SPARING or item.get_closest_marker("optimised") is None:
        return (yield)
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        return (yield)
    finally:
        jax.config.update("jax_disable_most_optimizations", True)


_grown = 0.0


def pytest_runtest_teardown() -> None:
    """Forgets what JAX compiled each time that a worker has grown by 2 GB."""
    global _grown
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # of kilobytes
    if peak > _grown + 2:
        _grown = peak
        jax.clear_caches()


@pytest.fixture
def getkey(request: pytest.FixtureRequest):
    """A function that returns a new PRNG key at each call, the same ones in every run of a test."""
    key = jax.random.key(zlib.crc32(request.node.name.encode()))
    count = 0

    def next_key() -> jax.Array:
        nonlocal count
        count += 1
        return jax.random.fold_in(key, count)

    return next_key


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> jnp.dtype:
    """Both floating types; float64 is skipped when x64 is off."""
    if request.param == "float64" and not X64:
        pytest.skip("needs float64, and SCIML_X64=0")
    return jnp.dtype(request.param)
