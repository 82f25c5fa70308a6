"""The installation: the name of the distribution, a package of the same name, and versions with known faults."""

import importlib.metadata
import warnings
from collections.abc import Mapping

DISTRIBUTION = "sciml-jax"
"""The name for pip; the name `sciml` belongs to another project, whose package is also imported as `sciml`."""


def warn_of_namesake() -> None:
    """Warns where the other project is installed too, since pip writes both into one folder.

    Only files that a distribution named `sciml` has written count, by its own record. An editable install of this
    project under that name, as it was called before, has written nothing there.
    """
    for other in importlib.metadata.distributions(name="sciml"):
        if any(path.parts[0] == "sciml" for path in other.files or ()):
            warnings.warn(
                f"The distribution `sciml` {other.version} is also installed, and its files overwrite the files of "
                f"`{DISTRIBUTION}`. Remove both with `pip uninstall sciml {DISTRIBUTION}`, and install one again.",
                stacklevel=3,
            )
            return


_SLOW_ROWS = (
    "on CPUs, loops that write rows are thousands of times slower (jax-ml/jax#40101), which affects saved times "
    "and gradients; install another version, 0.11.2 or 0.12"
)

FAULTS = {("jaxlib", "0.11.1"): _SLOW_ROWS}
"""Known faults of a version of a package, for any model."""


def faults_of_versions(versions: Mapping[str, str]) -> tuple[str, ...]:
    """The known faults of these versions, each a sentence."""
    return tuple(
        f"{name} {number}: {fault}." for (name, number), fault in FAULTS.items() if versions.get(name) == number
    )


def warn_of_versions() -> None:
    """Warns where jaxlib is a version that pip would not have installed with sciml."""
    for fault in faults_of_versions({"jaxlib": importlib.metadata.version("jaxlib")}):
        warnings.warn(fault, stacklevel=3)


def version() -> str:
    """Returns the version of the distribution; a source tree that is not installed has none."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"
