"""JAX as the tests want it: strict, eight CPU devices, one compilation cache for all workers, annotations checked."""

import collections
import contextlib
import ctypes
import gc
import json
import math
import os
import pathlib
import resource
import sys
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


# Of the cases of each test `make test` runs the quickest, up to so many seconds of the processor together.
SLOW = 0.5

# `make test-all` runs those up to so many seconds together, and of each test one at least, but none that takes longer
# than `LONG`; `make test-rest` runs the others.
RARE = 2.0
LONG = 20.0

# What tests took when they were last measured, in seconds by node id; `make durations` writes those of 0.2 and more.
# None is a test that is known to be slow and was not measured yet. What is not here is quick, or new: it runs.
DURATIONS_FILE = ROOT / "tests" / "durations.json"
DURATIONS: dict[str, float | None] = json.loads(DURATIONS_FILE.read_text())


def test_of(nodeid: str) -> str:
    """The test that this is a case of; each example of the documentation is a test of its own."""
    return nodeid if nodeid.startswith("tests/test_docs.py") else nodeid.partition("[")[0]


def cases_beyond(durations: dict[str, float | None], limit: float, longest: float) -> set[str]:
    """The cases of each test but the quickest: the first, if it takes no longer than that, and those up to a limit."""
    cases = collections.defaultdict(list)
    for nodeid, seconds in durations.items():
        cases[test_of(nodeid)].append((math.inf if seconds is None else seconds, nodeid))
    beyond = set()
    for those_of_one in cases.values():
        total = 0.0
        for number, (seconds, nodeid) in enumerate(sorted(those_of_one)):
            total += seconds
            if total > (longest if number == 0 else limit):
                beyond.add(nodeid)
    return beyond


def slow_cases(durations: dict[str, float | None]) -> set[str]:
    """What `make test` leaves out."""
    return cases_beyond(durations, SLOW, SLOW)


def rare_cases(durations: dict[str, float | None]) -> set[str]:
    """What `make test-all` leaves out, too."""
    known = {nodeid: RARE if seconds is None else seconds for nodeid, seconds in durations.items()}
    return cases_beyond(known, RARE, LONG)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--measure", action="store_true", help=f"write what each test takes to {DURATIONS_FILE.name}")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is slow, and skips what is marked as the other leg's."""
    markers = [(slow_cases(DURATIONS), pytest.mark.slow), (rare_cases(DURATIONS), pytest.mark.rare)]
    for item in items:
        for cases, marker in markers:
            if item.nodeid in cases and item.get_closest_marker("always") is None:
                item.add_marker(marker)
        if item.get_closest_marker("float32" if X64 else "x64"):
            item.add_marker(pytest.mark.skip(reason=f"not for SCIML_X64={int(X64)}"))


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


STATM = pathlib.Path("/proc/self/statm")
LIMIT = 1.5  # GB; the largest tests add half a GB
_known_peak = 0.0


def peak() -> float:
    """The most memory that this process ever held, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**30 if sys.platform == "darwin" else 2**20)


def memory() -> float:
    """What this process holds now, in GB; where the system does not say, how far the peak has risen since `forget`."""
    try:
        return int(STATM.read_text().split()[1]) * resource.getpagesize() / 2**30
    except FileNotFoundError:
        return peak() - _known_peak


def forget() -> None:
    """Drops what JAX compiled, and gives back its memory, half of which glibc would keep for later."""
    global _known_peak
    _known_peak = peak()
    jax.clear_caches()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def processor_seconds() -> float:
    """What this process and those that it started took until now; other processes change it less than the clock."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


STARTED = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[STARTED] = processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item):
    """Notes what the test took, and forgets what JAX compiled where that has become much."""
    try:
        return (yield)
    finally:
        if STARTED in item.stash and item.get_closest_marker("skip") is None:
            item.user_properties.append(("seconds", processor_seconds() - item.stash[STARTED]))
        if memory() > LIMIT:
            forget()


MEASURED: dict[str, float] = {}  # filled where the reports come together: with xdist, not in the workers


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        MEASURED.update((report.nodeid, seconds) for name, seconds in report.user_properties if name == "seconds")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the measurements of this run, if asked for, beside those of tests that it left out."""
    if session.config.getoption("measure") and MEASURED and not hasattr(session.config, "workerinput"):
        found = {name: seconds for name, seconds in (DURATIONS | MEASURED).items() if exists(name)}
        kept = {name: found[name] and round(found[name], 1) for name in sorted(found)}
        kept = {name: seconds for name, seconds in kept.items() if seconds is None or seconds >= 0.2}
        DURATIONS_FILE.write_text(json.dumps(kept, indent=0) + "\n")


def exists(nodeid: str) -> bool:
    """Whether a file has a test of this name, be its parameters as they may."""
    path, _, name = nodeid.partition("::")
    function = name.partition("[")[0].rpartition("::")[2]
    return (ROOT / path).is_file() and f"def {function}(" in (ROOT / path).read_text()


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


@pytest.fixture
def choose():
    """`choose({"group.entry": value})` changes the table of choices for the rest of a test."""
    from sciml import inspect  # once annotations are checked

    with contextlib.ExitStack() as stack:
        yield lambda changes: stack.enter_context(inspect.choose(changes))


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> jnp.dtype:
    """Both floating types; float64 is skipped when x64 is off."""
    if request.param == "float64" and not X64:
        pytest.skip("needs float64, and SCIML_X64=0")
    return jnp.dtype(request.param)
