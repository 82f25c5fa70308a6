"""Pharmacodynamics: Emax, effect compartments, turnover and indirect responses."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._parameters import Parameter, parameter, with_dtype
from .._types import Args, RealScalarLike
from ._compartments import AbstractDrug, check_signs


class Emax(eqx.Module):
    r"""The sigmoid Emax model, also known as the Hill equation: an effect of a concentration.

    $$E(C) = E_0 + E_{\max} \frac{C^\gamma}{E\!C_{50}^\gamma + C^\gamma}$$

    Concentrations that are not positive have the effect $E_0$. For `IndirectResponse` it is the fraction of inhibition
    or the relative stimulation.

    Attributes:
        emax: $E_{\max}$, the largest effect; at most 1 for an inhibition.
        ec50: $E\!C_{50}$, the concentration of half the effect; the IC50 of an inhibition.
        hill: $\gamma$, the Hill coefficient.
        e0: $E_0$, the effect without the drug.

    Raises:
        ValueError: If `ec50` is not positive.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import pharmacology

        effect = pharmacology.Emax(emax=1.0, ec50=2.0, hill=1.5)
        assert jnp.allclose(effect(jnp.array([0.0, 2.0])), jnp.array([0.0, 0.5]))
        assert jax.grad(lambda c: effect(c))(0.0) == 0.0
        ```
    """

    emax: Parameter = eqx.field(converter=parameter)
    ec50: Parameter = eqx.field(converter=parameter)
    hill: Parameter = eqx.field(default=1.0, converter=parameter)
    e0: Parameter = eqx.field(default=0.0, converter=parameter)

    def __check_init__(self):
        check_signs(self, ("ec50",), ())

    def __call__(self, concentration: Float[Array, "..."] | float) -> Float[Array, "..."]:
        """Returns the effect of a concentration, elementwise."""
        c = jnp.asarray(concentration)
        p, positive = with_dtype(self, c.dtype), c > 0
        share = jax.nn.sigmoid(p.hill * (jnp.log(jnp.where(positive, c, 1)) - jnp.log(p.ec50)))
        return p.e0 + p.emax * jnp.where(positive, share, 0)


class EffectCompartment(AbstractDrug):
    r"""A drug with an effect compartment (link model), whose concentration follows the central one with a delay.

    $$\dot C_e = k_{e0} (C - C_e)$$

    The state is the state of the drug, and then $C_e$; its effect is for example `Emax(...)(states[..., -1])`.

    Attributes:
        drug: The drug.
        ke0: $k_{e0}$, 1/time.

    Raises:
        ValueError: If `ke0` is negative.

    Source:
        L. B. Sheiner and others, Simultaneous modeling of pharmacokinetics and pharmacodynamics: application to
        d-tubocurarine, Clin. Pharmacol. Ther. 25:358, 1979.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import pharmacology

        drug = pharmacology.EffectCompartment(pharmacology.Compartments(cl=1.0, v1=10.0), ke0=0.5)
        states = pharmacology.solve_doses(drug, pharmacology.Doses(0.0, 100.0), jnp.linspace(0.0, 10.0, 11))
        assert states[0, -1] == 0 and jnp.argmax(states[:, -1]) == 4  # the peak of the effect is late
        ```
    """

    drug: AbstractDrug
    ke0: Parameter = eqx.field(converter=parameter)

    def __check_init__(self):
        check_signs(self, (), ("ke0",))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the compartments, in the order of the state."""
        return (*self.drug.names, "effect")

    def initial(self, dtype: DTypeLike | None = None) -> Float[Array, " n"]:
        """Returns the state without any dose."""
        of_drug = self.drug.initial(dtype)
        return jnp.append(of_drug, self.drug.concentration(of_drug))

    def concentration(self, y: Float[Array, "*times n"]) -> Float[Array, "*times"]:
        """Returns the concentration in the central compartment, of one state or of many."""
        return self.drug.concentration(y[..., :-1])

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, " n"]:
        """Returns the rates of change of the state; `t` and `args` are not used."""
        follows = self.ke0.astype(y.dtype) * (self.concentration(y) - y[-1])
        return jnp.append(self.drug(t, y[:-1], args), follows)


class IndirectResponse(AbstractDrug):
    r"""An indirect response: a drug that inhibits or stimulates production or loss of a response. Without: turnover.

    $$\dot R = k_{in} P(C) - k_{out} L(C)\, R, \qquad R(0) = k_{in} / k_{out}$$

    | `kind` | The drug | $P$ | $L$ |
    | --- | --- | --- | --- |
    | 1 | inhibits production | $1 - E$ | 1 |
    | 2 | inhibits loss | 1 | $1 - E$ |
    | 3 | stimulates production | $1 + E$ | 1 |
    | 4 | stimulates loss | 1 | $1 + E$ |

    $E$ is the `effect` of the concentration $C$ in the central compartment. The state consists of the drug's state and
    $R$.

    Attributes:
        drug: The drug.
        kin: $k_{in}$, the production of the response.
        kout: $k_{out}$, the rate of its loss, 1/time.
        effect: $E$, a function of the concentration such as `Emax`; None for turnover without an effect.
        kind: The kind, 1 to 4.

    Raises:
        ValueError: If `kind` is not 1, 2, 3 or 4, `kout` is not positive, or `kin` is negative.

    Source:
        N. L. Dayneka, V. Garg and W. J. Jusko, Comparison of four basic models of indirect pharmacodynamic responses,
        J. Pharmacokinet. Biopharm. 21:457, 1993.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import pharmacology

        warfarin = pharmacology.Compartments(cl=0.134, v1=8.11, ka=0.57)
        effect = pharmacology.Emax(emax=1.0, ec50=1.5)
        drug = pharmacology.IndirectResponse(warfarin, kin=5.0, kout=0.05, effect=effect, kind=1)
        states = pharmacology.solve_doses(drug, pharmacology.Doses(0.0, 100.0), jnp.linspace(0.0, 48.0, 49))
        assert states[0, -1] == 100.0 and states[-1, -1] < 40.0  # prothrombin complex activity
        ```
    """

    drug: AbstractDrug
    kin: Parameter = eqx.field(converter=parameter)
    kout: Parameter = eqx.field(converter=parameter)
    effect: eqx.Module | None = None
    kind: int = eqx.field(default=1, static=True)

    def __check_init__(self):
        if isinstance(self.kind, bool) or self.kind not in (1, 2, 3, 4):
            raise ValueError(
                f"`kind` of `IndirectResponse` must be 1 (inhibits production), 2 (inhibits loss), 3 (stimulates "
                f"production) or 4 (stimulates loss), but is {self.kind!r}."
            )
        check_signs(self, ("kout",), ("kin",))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the compartments, in the order of the state."""
        return (*self.drug.names, "response")

    def initial(self, dtype: DTypeLike | None = None) -> Float[Array, " n"]:
        """Returns the state without any dose: the response in balance."""
        of_drug = self.drug.initial(dtype)
        return jnp.append(of_drug, (self.kin / self.kout).astype(of_drug.dtype))

    def concentration(self, y: Float[Array, "*times n"]) -> Float[Array, "*times"]:
        """Returns the concentration in the central compartment, of one state or of many."""
        return self.drug.concentration(y[..., :-1])

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, " n"]:
        """Returns the rates of change of the state; `t` and `args` are not used."""
        p = with_dtype(self, y.dtype)
        factor = jnp.ones_like(y[-1])
        if self.effect is not None:
            effect = cast(Any, p.effect)(self.concentration(y))
            factor = 1 - effect if self.kind <= 2 else 1 + effect
        produced, lost = p.kin, p.kout * y[-1]
        change = produced * factor - lost if self.kind in (1, 3) else produced - lost * factor
        return jnp.append(self.drug(t, y[:-1], args), change)
