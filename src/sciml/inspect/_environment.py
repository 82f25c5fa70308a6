"""The JAX version, machine and settings, and known or detected faults."""

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from .._installation import faults_of_versions
from .._jax._platform import default_platform
from ._hlo_text import parse

# Small programs that faults of XLA make wrong or slow, each compared with the correct result.


class Canary(NamedTuple):
    """One small program that was run, and whether its result was correct.

    Attributes:
        name: The operation of the program.
        healthy: Whether it did it right, and in the time that it should take.
        effect: The effect of a fault: `wrong numbers`, `fewer digits` or `slow`.
        source: The report of the fault, such as `openxla/xla#49176`.
        remedy: The remedy for a fault.
    """

    name: str
    healthy: bool
    effect: str
    source: str
    remedy: str

    def __str__(self) -> str:
        """One line; where it is not healthy, with the remedy."""
        if self.healthy:
            return f"{self.name}: right"
        return f"{self.name}: {self.effect.upper()} ({self.source}). {self.remedy}"


def _equal(fn: Callable[..., Any], *args: Any, right: np.ndarray) -> bool:
    return bool(np.array_equal(np.asarray(jax.jit(fn)(*args)), right))


def _shifted_update() -> bool:
    """A fused update in place reads values that it has overwritten."""

    def shift(x):
        base = jnp.asarray(x) + 1
        return base.at[1:].set(base[:-1]).reshape((1, *base.shape))

    x = np.arange(128, dtype=np.int32).reshape(8, 16)
    right = x + 1
    right[1:] = right[:-1].copy()
    return _equal(shift, x, right=right[None])


def _slice_of_slice() -> bool:
    """Two slices become one whose start is not clamped."""

    def window(x, shift, start):
        return jax.lax.dynamic_slice(jnp.roll(x, shift), [start], [4])

    x = np.arange(9, dtype=np.int32)
    return _equal(window, x, np.int32(4), np.int32(12), right=np.roll(x, 4)[5:])


def _sharded_update() -> bool:
    """An update beyond the end of a split axis is dropped."""

    def update(x, new, start):
        return jax.lax.dynamic_update_slice(x, new, [jnp.int32(0), start])

    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,), devices=jax.local_devices()[:2])
    split = NamedSharding(mesh, PartitionSpec(None, "x"))
    x = jax.device_put(np.arange(4, dtype=np.int32).reshape(2, 2), split)
    right = np.array([[0, 99], [2, 99]], np.int32)
    return _equal(update, x, np.full((2, 1), 99, np.int32), np.int32(2), right=right)


def _update_then_roll() -> bool:
    """On GPUs the starts of an update and of a roll change places in one fused kernel."""

    def chain(x, first, second, third, shift):
        total = jnp.flip(jnp.cumsum(jnp.flip(x, 2), axis=2, dtype=jnp.int32), 2)
        part = jax.lax.pad(total, jnp.int32(0), [(-3, -1, 0), (1, 2, 0), (-2, -3, 0)])
        new = jax.lax.dynamic_slice(part, [0, 0, 0], (14, 4, 7)) * 3 - 1
        return jnp.roll(jax.lax.dynamic_update_slice(part, new, [first, second, third]), shift, axis=1)

    x = (np.arange(33 * 7 * 16, dtype=np.int32).reshape(33, 7, 16) * 7919) % 1009
    total = np.flip(np.cumsum(np.flip(x, 2), axis=2, dtype=np.int32), 2)
    part = np.pad(total[3:-1, :, 2:-3], ((0, 0), (1, 2), (0, 0)))
    right = part.copy()
    right[15:29, 5:9, 1:8] = part[:14, :4, :7] * 3 - 1
    starts = [np.int32(i) for i in (20, 5, 1, 3)]
    return _equal(chain, x, *starts, right=np.roll(right, 3, axis=1))


def _clamped_update() -> bool:
    """On GPUs a copy goes to the start as it was given, beyond the end."""

    def update(x):
        part = x[:, 94]
        new = jax.lax.dynamic_slice(part, [0, 0, 0], (1, 1, 8)) * 3 - 1
        return jax.lax.dynamic_update_slice(part, new, [1, 1, 31])

    x = np.arange(3 * 127 * 33, dtype=np.int32).reshape(3, 127, 1, 33)
    right = x[:, 94].copy()
    right[1, 0, 25:33] = x[0, 94, 0, :8] * 3 - 1
    return _equal(update, x, right=right)


def _rows() -> bool:
    """A row that a loop writes costs as much as all rows: then sixteen times the rows cost 256 times as much."""

    def seconds(count: int) -> float:
        @jax.jit
        def rows(y):
            return jax.lax.scan(lambda y, _: (0.5 * y, y), y, None, length=count)[1]

        y = np.ones(3, np.float32)
        rows(y).block_until_ready()
        found = []
        for _ in range(3):
            start = time.perf_counter()
            rows(y).block_until_ready()
            found.append(time.perf_counter() - start)
        return min(found)

    few = max(seconds(500), 2e-5)  # less than a call takes is not resolved
    return seconds(8000) < 80 * few


def _lost_nan() -> bool:
    """A maximum of many numbers passes over NaN."""
    x = np.zeros(5000, np.float32)
    x[7] = np.nan
    return bool(np.isnan(jax.jit(jnp.max)(x)))


def _product(product: Callable[[jax.Array], jax.Array] = lambda x: x @ x) -> bool:
    """GPUs and TPUs round the factors of a product of float32 matrices to 11 or 8 bits by default."""
    x = np.linspace(1.0, 2.0, 64 * 64, dtype=np.float32).reshape(64, 64)
    right = x.astype(np.float64) @ x
    found = np.asarray(jax.jit(product)(x), np.float64)
    return bool(np.max(np.abs(found / right - 1)) < 1e-5)


def _hoisted_loop() -> bool:
    """A loop over members becomes a separate function, in which LLVM does not vectorise a step with many results."""

    def loop(x, y):
        def body(state):
            i, x, y = state
            return i + 1, x + 0.01 * jnp.sin(y), y - 0.01 * jnp.sin(x)

        return jax.lax.while_loop(lambda state: state[0] < 1000, body, (jnp.int32(0), x, y))

    member = jax.ShapeDtypeStruct((10_000,), jnp.float32)
    module = parse(jax.jit(loop).lower(member, member).compile().as_text() or "")
    return any(instruction.opcode == "while" for instruction in module.computations[module.entry])


_UNREPAIRED = "No release of JAX is known to fix it."


class _Test(NamedTuple):
    name: str
    run: Callable[[], bool]
    effect: str
    source: str
    remedy: str
    platforms: tuple[str, ...] = ("cpu", "gpu", "tpu")
    devices: int = 1


_TESTS = (
    _Test(
        "a shifted update of an array, then a reshape",
        _shifted_update,
        "wrong numbers",
        "openxla/xla#49176",
        f"{_UNREPAIRED} Write `jnp.concatenate([b[:1], b[:-1]])` or `jnp.roll` instead of `b.at[1:].set(b[:-1])`.",
    ),
    _Test(
        "a slice of a slice, which starts beyond the end",
        _slice_of_slice,
        "wrong numbers",
        "openxla/xla#49121",
        "Use JAX 0.12, or clip the start of a `dynamic_slice` yourself.",
    ),
    _Test(
        "an update beyond the end of an axis split over devices",
        _sharded_update,
        "wrong numbers",
        "openxla/xla#49118",
        f"{_UNREPAIRED} Clip the start of a `dynamic_update_slice` yourself.",
        devices=2,
    ),
    _Test(
        "an update with traced starts, then a roll",
        _update_then_roll,
        "wrong numbers",
        "openxla/xla#49119",
        f"{_UNREPAIRED} Put `jax.lax.optimization_barrier` between the two.",
        platforms=("gpu",),
    ),
    _Test(
        "an update beyond the end of an array",
        _clamped_update,
        "wrong numbers",
        "openxla/xla#49120",
        f"{_UNREPAIRED} Clip the start of a `dynamic_update_slice` yourself.",
        platforms=("gpu",),
    ),
    _Test(
        "a maximum of thousands of numbers, one of them NaN",
        _lost_nan,
        "wrong numbers",
        "XLA's fusions for YNNPACK",
        f"{_UNREPAIRED} Check `jnp.any(jnp.isnan(x))` in addition to `jnp.max(x)`, for example in a custom norm.",
        platforms=("cpu",),
    ),
    _Test(
        "a product of float32 matrices",
        _product,
        "fewer digits",
        "JAX's default precision on GPUs and TPUs",
        "A rate computed as `matrix @ y` over members has three digits: set `jax_default_matmul_precision` to "
        '"highest", or write `jnp.matmul(matrix, y, precision="highest")`. Products within sciml have full precision.',
        platforms=("gpu", "tpu"),
    ),
    _Test(
        "a loop that writes rows",
        _rows,
        "slow",
        "jax-ml/jax#40101",
        "Writing one row costs as much as writing all rows. Use a jaxlib other than 0.11.1.",
        platforms=("cpu",),
    ),
    _Test(
        "a loop over members as one loop of the program",
        _hoisted_loop,
        "slow",
        "XLA's pass small-while-loop-hoisting",
        "It costs the loops of sciml little. For your own loop, restore the earlier behaviour with "
        '`jax.jit(f, compiler_options={"xla_disable_hlo_passes": "small-while-loop-hoisting"})`.',
        platforms=("cpu",),
    ),
)


def run_canaries() -> tuple[Canary, ...]:
    """Runs on the default device what concerns its platform and as many devices as there are."""
    platform, count = default_platform(), jax.local_device_count()
    return tuple(
        Canary(test.name, test.run(), test.effect, test.source, test.remedy)
        for test in _TESTS
        if platform in test.platforms and count >= test.devices
    )


_PACKAGES = ("jax", "jaxlib", "equinox", "diffrax", "lineax", "optimistix", "numpy")
_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_disable_jit",
    "jax_disable_most_optimizations",
    "jax_debug_nans",
    "jax_threefry_partitionable",
)
_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "CUDA_VISIBLE_DEVICES", "TF_CPP_MIN_LOG_LEVEL")


class Environment(NamedTuple):
    """The environment of a program; made by `environment`, and printed as a report.

    Attributes:
        versions: The versions of Python, JAX and the packages that sciml is built on.
        devices: How many devices there are of each kind, such as `{"cpu": 8}`.
        settings: The settings of JAX that change numbers or speed, such as `jax_enable_x64`.
        variables: The variables `XLA_FLAGS`, `JAX_*` and similar ones in the process's environment.
        cache: Folder of the compilation cache; None if programs are compiled again in each process.
        known: The known faults of these versions.
        canaries: The small programs that were run here.
    """

    versions: dict[str, str]
    devices: dict[str, int]
    settings: dict[str, object]
    variables: dict[str, str]
    cache: str | None
    known: tuple[str, ...]
    canaries: tuple[Canary, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing wrong is known of these versions, and none of the small programs did anything wrong."""
        return not self.known and all(canary.healthy for canary in self.canaries)

    def __str__(self) -> str:
        """A report; faults come last."""
        rows = {
            "versions": ", ".join(f"{name} {number}" for name, number in self.versions.items()),
            "devices": ", ".join(f"{count} x {kind}" for kind, count in self.devices.items()),
            "settings": ", ".join(f"{name.removeprefix('jax_')}={value}" for name, value in self.settings.items()),
            "variables": ", ".join(f"{name}={value}" for name, value in self.variables.items()) or "none set",
            "compilation cache": self.cache or "none: every process compiles again; see jax_compilation_cache_dir",
        }
        lines = [f"{name}: {text}" for name, text in rows.items()]
        lines += sorted((f"canary: {canary}" for canary in self.canaries), key=lambda line: not line.endswith("right"))
        return "\n".join([*lines, *(f"known: {fault}" for fault in self.known)])


def environment() -> Environment:
    """The environment of this process, and whether it is known or found to compute anything wrong.

    Runs small programs, canaries, which some versions of XLA compute incorrectly or slowly, on the default device. This
    takes about a second. Append the printed report to questions about a number or a time. A fault shown by a canary
    only affects programs of that form, and sciml has none of them; a model of yours may.

    Returns:
        An `Environment`: print it, or read `healthy`, `known` and `canaries`.

    Example:
        ```python
        import sciml

        found = sciml.inspect.environment()
        print(found)
        wrong = [canary.source for canary in found.canaries if not canary.healthy]
        ```
    """
    kinds = [device.platform if device.platform == "cpu" else device.device_kind for device in jax.devices()]
    versions = {"python": platform.python_version()} | {name: version(name) for name in _PACKAGES}
    return Environment(
        versions=versions,
        devices={kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        settings={name: jax.config.values[name] for name in _SETTINGS if name in jax.config.values},
        variables={
            name: value for name, value in sorted(os.environ.items()) if name in _VARIABLES or name.startswith("JAX_")
        },
        cache=jax.config.values["jax_compilation_cache_dir"],
        known=faults_of_versions(versions),
        canaries=run_canaries(),
    )
