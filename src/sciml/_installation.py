"""How sciml is installed: under which name, and whether a namesake's files lie among its own."""

import importlib.metadata
import warnings

DISTRIBUTION = "sciml-jax"
"""The name that pip knows; the name `sciml` belongs to another project, whose package is imported as `sciml` too."""


def warn_of_namesake() -> None:
    """Warns where the other project is installed too, since pip writes both into one folder.

    What counts is what a distribution named `sciml` has written, by its own record. An editable install of this project
    under that name, as it was called before, has written nothing there.
    """
    for other in importlib.metadata.distributions(name="sciml"):
        if any(path.parts[0] == "sciml" for path in other.files or ()):
            warnings.warn(
                f"The distribution `sciml` {other.version} is installed too, and writes its files where those of "
                f"`{DISTRIBUTION}` are. Remove both, `pip uninstall sciml {DISTRIBUTION}`, and install one again.",
                stacklevel=3,
            )
            return


def version() -> str:
    """Returns the version of the distribution; a source tree that is not installed has none."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "0+unknown"
