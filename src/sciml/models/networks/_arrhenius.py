"""Rates that depend on temperature."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._parameters import Parameter, parameter
from ._formulas import GAS_CONSTANT


class Arrhenius(eqx.Module):
    r"""Rate constants that depend on temperature, $k = A \, T^b \exp(-E / (R T))$.

    With $R = 8.314462618$ J/(mol K). As `rates` of `ReactionNetwork.from_stoichiometry`; in the text of a network the
    same is `arrhenius(A, b, E)`, at the temperature that is its parameter or species `T`.

    Attributes:
        factor: $A$, in the unit of the rates divided by the unit of $T^b$.
        power: $b$, without a unit.
        energy: $E$, the activation energy in J/mol.
        temperature: $T$ in K.

    Source:
        S. Arrhenius, Z. Phys. Chem. 4:226, 1889; with $T^b$ as in mechanisms of combustion.

    Example:
        ```python
        import jax
        import sciml

        law = sciml.models.Arrhenius(factor=1e13, power=0.0, energy=1e5, temperature=500.0)
        slope = jax.grad(lambda law: law())(law).temperature
        assert abs(slope / (law() * 1e5 / (8.314462618 * 500.0**2)) - 1) < 1e-4
        ```
    """

    factor: Parameter = eqx.field(converter=parameter)
    power: Parameter = eqx.field(converter=parameter, default=0.0)
    energy: Parameter = eqx.field(converter=parameter, default=0.0)
    temperature: Parameter = eqx.field(converter=parameter, default=298.15)

    def __call__(self) -> Float[Array, "..."]:
        """Returns the rate constants."""
        scale = jnp.power(self.temperature, self.power)
        return self.factor * scale * jnp.exp(-self.energy / (GAS_CONSTANT * self.temperature))
