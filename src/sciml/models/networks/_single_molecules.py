"""A network's reactions among counted molecules."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._parameters import Parameter, parameter
from ..._reactions import AbstractReactions
from ..._types import Args
from ._description import TIME, Description, Reaction, depends_on, described, equations_of, rate_name
from ._formulas import Formula, product_of, renamed
from ._program import FormulaProgram, StaticContent, check_real, scalars, taken_from

_VOLUME = "the volume"  # no text can have this name


class SingleMolecules(AbstractReactions):
    """What `ReactionNetwork.single_molecules` returns.

    Attributes:
        parameters: Those of the network.
        volume: What counts are divided by to give amounts.
    """

    parameters: dict[str, Parameter]
    volume: Parameter = eqx.field(converter=parameter)
    _static: StaticContent = eqx.field(static=True)

    def __check_init__(self):
        _propensities_of(self._static)

    @property
    def stoichiometry(self) -> Any:
        """By how much each reaction changes each count."""
        return equations_of(self._static).stoichiometry

    @property
    def species(self) -> tuple[str, ...]:
        """The names of the species, in the order of the counts."""
        return self._static.content[0]

    def propensities(self, x: Array, args: Args) -> Float[Array, " reactions"]:
        """Returns how often each reaction happens; `args` is not used."""
        del args
        found = _propensities_of(self._static)
        check_real(self.parameters, x.dtype)
        rest = scalars([self.volume, *self.parameters.values()], x.dtype)
        return taken_from(found.program(jnp.concatenate([x, rest])), found.slots)


class _Propensities(NamedTuple):
    program: FormulaProgram
    slots: np.ndarray


@functools.lru_cache(maxsize=64)
def _propensities_of(static: StaticContent) -> _Propensities:
    network = described(static)
    concentrations: dict[str, Formula] = {name: ("/", name, _VOLUME) for name in network.species}
    derived = {name: renamed(formula, concentrations) for name, formula in network.derived.items()}
    rates: dict[str, Formula] = {}
    for i, reaction in enumerate(network.reactions):
        if depends_on(reaction.rate, {TIME}, network.derived):
            raise ValueError(
                f"the rate of `{reaction}` depends on the time, but single molecules react at rates that stay as they "
                "are until the next reaction."
            )
        rates[rate_name(i)] = _propensity(reaction, network, concentrations)
    program = FormulaProgram([*network.species, _VOLUME, *network.parameters], derived | rates)
    return _Propensities(program, program.slots(list(rates)))


def _propensity(reaction: Reaction, network: Description, concentrations: dict[str, Formula]) -> Formula:
    whole = all(float(count).is_integer() for _, count in (*reaction.reactants, *reaction.products))
    if not whole:
        raise ValueError(f"`{reaction}` takes or makes a part of a molecule, which single molecules cannot.")
    law = renamed(reaction.law, concentrations)
    if not reaction.mass_action:
        for species, count in reaction.reactants:
            law = ("where", (">=", species, float(count)), law, 0.0)
        return ("*", _VOLUME, law)
    factors: list[Formula] = [law]
    order = 0
    for species, count in reaction.reactants:
        if species in network.fixed:  # there is always as much of it: no molecule of it is one less
            factors += [concentrations[species]] * int(count)
            continue
        order += int(count)
        factors += [species if k == 0 else ("-", species, float(k)) for k in range(int(count))]
    if order != 1:
        factors.append(("^", _VOLUME, float(1 - order)))
    # a bare name would be no result of its own
    product = product_of(*factors)
    return ("*", product, 1.0) if isinstance(product, str) else product
