"""`read_antimony`: models in Antimony, the text language of Tellurium."""

import os
import pathlib

from ._read_sbml import read_sbml
from ._sbml_delayed_model import DelayedSBMLModel
from ._sbml_model import SBMLModel


def read_antimony(source: str | os.PathLike) -> SBMLModel | DelayedSBMLModel:
    """Reads a model in Antimony, which the package antimony translates to SBML; see `read_sbml`.

    Args:
        source: The file, or Antimony as text: a string with a line break or a semicolon is text.

    Raises:
        ImportError: If antimony or sbmlode is not installed: `pip install 'sciml-jax[sbml,antimony]'`.
        FileNotFoundError: If there is no such file.
        ValueError: If it is not Antimony, or uses an unsupported feature.

    Example:
        ```python
        import sciml

        try:
            decay = sciml.models.read_antimony("A -> ; k*A; k = 2; A = 1")
        except ImportError as error:  # without the extra
            assert "sciml-jax[sbml,antimony]" in str(error)
        else:
            assert decay(0.0, decay.y0, None)[0] == -2
        ```
    """
    try:
        import antimony  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError("reading Antimony requires antimony: `pip install 'sciml-jax[sbml,antimony]'`.") from error
    text = source if isinstance(source, str) and (";" in source or "\n" in source) else _text_of(pathlib.Path(source))
    antimony.clearPreviousLoads()
    if antimony.loadAntimonyString(text) < 0:
        raise ValueError(f"the Antimony cannot be read: {' '.join(antimony.getLastError().split())}")
    return read_sbml(antimony.getSBMLString(antimony.getMainModuleName()))


def _text_of(path: pathlib.Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}.")
    return path.read_text()
