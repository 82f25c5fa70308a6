"""Which JAX on which machine, how it is set, and what it is known or found to do wrong."""

import os
import platform
from importlib.metadata import version
from typing import NamedTuple

import jax

from .._installation import faults_of_versions
from ._canaries import Canary, run_canaries

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
    """What a program runs on; made by `environment`, and printed as a report.

    Attributes:
        versions: Of Python, JAX and the packages that sciml is built on.
        devices: How many devices there are of each kind, such as `{"cpu": 8}`.
        settings: Of JAX, what changes numbers or speed, such as `jax_enable_x64`.
        variables: What of `XLA_FLAGS`, `JAX_*` and the like is set in the process's environment.
        cache: Folder of the compilation cache; None where programs are compiled anew in each process.
        known: What is known to be wrong with these versions.
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
        """A report; what is wrong comes last."""
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
    """What this process runs on, and whether it is known or found to compute anything wrong.

    Runs small programs, canaries, which some versions of XLA make wrong or slow, on the default device; that takes
    about a second. Append the printed report when you ask about a number or a time that you do not believe. What is
    wrong in a canary is wrong in programs of that form alone, and sciml has none of them; a model of yours may.

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
