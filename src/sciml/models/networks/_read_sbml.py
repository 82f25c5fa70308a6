"""`read_sbml`: models that others wrote in SBML."""

import os

from ._sbml_delayed_model import DelayedSBMLModel
from ._sbml_description import read_description
from ._sbml_equations import sbml_equations
from ._sbml_model import SBMLModel


def read_sbml(source: str | os.PathLike) -> SBMLModel | DelayedSBMLModel:
    """Reads a model that was written in SBML, of any level, by sbmlode.

    Supported are compartments, species, parameters, reactions, function definitions, assignment and rate rules, initial
    assignments, conversion factors, `piecewise`, and events with delays and priorities. An algebraic rule must be
    linear in the variable that it determines. Lags of the function `delay` must be constant, and events must not
    depend on it; a model with a delayed state is a delay equation, a `DelayedSBMLModel`. Refused by name are other
    delays, fast reactions, and triggers that compare numbers for equality.

    Args:
        source: The file, or SBML as text.

    Raises:
        ImportError: If sbmlode is not installed: `pip install 'sciml-jax[sbml]'`.
        FileNotFoundError: If there is no such file.
        ValueError: If it is not SBML, or uses an unsupported feature.

    Example:
        ```python
        import sciml

        try:
            sciml.models.read_sbml("no_such_model.xml")
        except (FileNotFoundError, ImportError) as error:
            print(error)
        ```
    """
    description = read_description(source)
    equations = sbml_equations(description.static())  # so that wrong formulas are refused here
    if not description.delayed:
        return SBMLModel(description)
    if equations.together:
        name = description.events[equations.together[0]].name
        raise ValueError(
            f"the SBML model uses an unsupported feature: with delayed states, an event (`{name}`) that has a delay or "
            "that other events influence."
        )
    return DelayedSBMLModel(SBMLModel(description))
