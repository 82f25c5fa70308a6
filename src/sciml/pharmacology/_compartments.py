"""Drugs in compartments: linear ones, saturable elimination, and binding to a target."""

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._checks import concrete
from .._interfaces._model import AbstractModel
from .._parameters import Parameter, parameter, with_dtype
from .._types import Args, RealScalarLike

if TYPE_CHECKING:  # type checkers do not know the abstract kind
    from typing import ClassVar as AbstractVar
else:
    from equinox import AbstractVar


class AbstractDrug(AbstractModel):
    """A model of amounts in compartments, of which one is the central one. `solve_doses` gives it doses."""

    is_linear: ClassVar[bool] = False
    """Whether it has `rates`, for a solution in closed form."""

    names: AbstractVar[tuple[str, ...]]
    """The names of its compartments, in the order of the state; compartment 1 of `Doses` is the first."""

    @abc.abstractmethod
    def initial(self, dtype: DTypeLike | None = None) -> Float[Array, " n"]:
        """Returns the state without any dose."""

    @abc.abstractmethod
    def concentration(self, y: Float[Array, "*times n"]) -> Float[Array, "*times"]:
        """Returns the concentration in the central compartment, of one state or of many."""

    def cmt(self, name: str) -> int:
        """Returns the number of a compartment, from 1, for `Doses(cmt=)`.

        Raises:
            ValueError: If there is no such compartment.
        """
        if name not in self.names:
            raise ValueError(f"{name!r} is not a compartment of this model, which has {', '.join(self.names)}.")
        return self.names.index(name) + 1


def check_signs(model: Any, positive: Sequence[str], not_negative: Sequence[str]) -> None:
    """Checks the signs of known parameters.

    Raises:
        ValueError: If one is wrong.
    """
    for name in (*positive, *not_negative):
        value = getattr(model, name)
        if value is None or not concrete(value):
            continue
        least = np.min(np.asarray(value))
        if least < 0 or (least == 0 and name in positive):
            wanted = "be positive" if name in positive else "not be negative"
            raise ValueError(
                f"`{name}` of `{type(model).__name__}` must {wanted}, but is {least:g}. To estimate it, write "
                "`jnp.exp` of a free parameter."
            )


def _optional(value: Any) -> Array | None:
    return None if value is None else parameter(value)


class Compartments(AbstractDrug):
    r"""One to three compartments with linear elimination, absorption and transit compartments, and a metabolite.

    $$\dot d = -k_a d, \qquad
    \dot c = k_a d - (C\!L + Q + Q_3) \frac{c}{V_1} + Q \frac{p}{V_2} + Q_3 \frac{p_3}{V_3}, \qquad
    \dot p = Q \Big(\frac{c}{V_1} - \frac{p}{V_2}\Big), \qquad
    \dot p_3 = Q_3 \Big(\frac{c}{V_1} - \frac{p_3}{V_3}\Big)$$

    The state has the amounts in the compartments that the parameters imply, in the order of `names`: dose and transit
    compartments, depot, central, peripheral, second peripheral, metabolite. Doses into the central compartment of a
    model with a depot need `cmt=drug.cmt("central")`.

    With `transits` $= n$ a dose $D$ passes from a dose compartment $a_0$ through $n$ transit compartments to the depot,

    $$\dot a_0 = -k_{tr} a_0, \qquad \dot a_i = k_{tr} (a_{i - 1} - a_i), \qquad \dot d = k_{tr} a_n - k_a d, \qquad
    k_{tr} = (n + 1) / M\!T\!T$$

    The rate into the depot is $k_{tr} a_n = D\, k_{tr} (k_{tr} t)^n e^{-k_{tr} t} / n!$, as in rxode2's
    `transit(n, mtt)`.

    A fraction $f_m$ of the eliminated drug becomes a metabolite, $\dot m = f_m\, C\!L\, c / V_1 - C\!L_m\, m / V_m$.

    `solve_doses` evaluates the solution in closed form, with derivatives of all orders, also where rates are equal. As
    a model for `sciml.solve` it has the same parameters.

    Units: any consistent ones, such as mg, litres and hours: clearances in l/h, rates in 1/h.

    Attributes:
        cl: $C\!L$, the clearance.
        v1: $V_1$, the volume of the central compartment.
        q: $Q$, the clearance between the central and the peripheral compartment; None for one compartment.
        v2: $V_2$, the volume of the peripheral compartment.
        q3: $Q_3$, of a second peripheral compartment.
        v3: $V_3$.
        ka: $k_a$, the rate of absorption from the depot; None without a depot.
        mtt: $M\!T\!T$, the mean time from the dose to the depot, if `transits` is positive.
        ktr: $k_{tr}$, instead of `mtt`.
        transits: The number $n$ of transit compartments, besides the dose compartment.
        clm: $C\!L_m$, the clearance of the metabolite; None without a metabolite.
        vm: $V_m$.
        fm: $f_m$.

    Raises:
        ValueError: If parameters that need each other are not given together, or a known one has the wrong sign.

    Source:
        M. Gibaldi and D. Perrier, Pharmacokinetics, 2nd edition, 1982. Transit compartments: R. M. Savic and others,
        J. Pharmacokinet. Pharmacodyn. 34:711, 2007.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml import pharmacology

        drug = pharmacology.Compartments(cl=3.0, v1=30.0, q=2.0, v2=50.0, ka=1.0)
        assert drug.names == ("depot", "central", "peripheral")
        dose, ts = pharmacology.Doses(0.0, 100.0), jnp.linspace(0.0, 24.0, 25)

        def last(drug):
            return drug.concentration(pharmacology.solve_doses(drug, dose, ts))[-1]

        assert jax.grad(last)(drug).cl < 0  # a larger clearance leaves less
        ```
    """

    is_linear: ClassVar[bool] = True

    cl: Parameter = eqx.field(converter=parameter)
    v1: Parameter = eqx.field(converter=parameter)
    q: Parameter | None = eqx.field(default=None, converter=_optional)
    v2: Parameter | None = eqx.field(default=None, converter=_optional)
    q3: Parameter | None = eqx.field(default=None, converter=_optional)
    v3: Parameter | None = eqx.field(default=None, converter=_optional)
    ka: Parameter | None = eqx.field(default=None, converter=_optional)
    mtt: Parameter | None = eqx.field(default=None, converter=_optional)
    ktr: Parameter | None = eqx.field(default=None, converter=_optional)
    transits: int = eqx.field(default=0, static=True)
    clm: Parameter | None = eqx.field(default=None, converter=_optional)
    vm: Parameter | None = eqx.field(default=None, converter=_optional)
    fm: Parameter = eqx.field(default=1.0, converter=parameter)

    def __check_init__(self):
        for one, other in (("q", "v2"), ("q3", "v3"), ("clm", "vm")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                missing = one if getattr(self, one) is None else other
                raise ValueError(
                    f"`{one}` and `{other}` of `Compartments` belong together, but `{missing}` is missing."
                )
        if self.q3 is not None and self.q is None:
            raise ValueError("`q3` and `v3` of `Compartments` describe a third compartment; pass `q` and `v2` as well.")
        if isinstance(self.transits, bool) or not isinstance(self.transits, int) or self.transits < 0:
            raise ValueError(
                f"`transits` of `Compartments` must be the number of transit compartments, but is {self.transits!r}."
            )
        given = [x for x in ("mtt", "ktr") if getattr(self, x) is not None]
        if self.transits and (self.ka is None or len(given) != 1):
            raise ValueError("`transits` of `Compartments` require `ka` of the depot, and either `mtt` or `ktr`.")
        if given and not self.transits:
            raise ValueError(f"`{given[0]}` of `Compartments` requires a number of `transits`, which is 0.")
        if self.vm is None and concrete(self.fm) and np.any(np.asarray(self.fm) != 1):
            raise ValueError("`fm` of `Compartments` is the fraction of a metabolite; pass `clm` and `vm` as well.")
        check_signs(self, ("v1", "v2", "v3", "vm", "mtt"), ("cl", "q", "q3", "ka", "ktr", "clm", "fm"))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the compartments, in the order of the state."""
        given = (
            ("depot", self.ka),
            ("central", self.v1),
            ("peripheral", self.v2),
            ("peripheral 2", self.v3),
            ("metabolite", self.vm),
        )
        return self._chain() + tuple(name for name, x in given if x is not None)

    def _chain(self) -> tuple[str, ...]:
        """Returns the names of the compartments before the depot."""
        return ("dose", *(f"transit {i + 1}" for i in range(self.transits))) if self.transits else ()

    def initial(self, dtype: DTypeLike | None = None) -> Float[Array, " n"]:
        """Returns zeros."""
        return jnp.zeros(len(self.names), dtype)

    def concentration(self, y: Float[Array, "*times n"]) -> Float[Array, "*times"]:
        """Returns the concentration in the central compartment, of one state or of many."""
        return y[..., self.names.index("central")] / self.v1.astype(y.dtype)

    def metabolite_concentration(self, y: Float[Array, "*times n"]) -> Float[Array, "*times"]:
        """Returns the concentration of the metabolite, of one state or of many.

        Raises:
            ValueError: If the model has no metabolite.
        """
        if self.vm is None:
            raise ValueError("this model has no metabolite; pass `clm` and `vm`.")
        return y[..., self.names.index("metabolite")] / self.vm.astype(y.dtype)

    def _flows(self) -> list[tuple[str, str | None, Array]]:
        """Returns the rates of flow in proportion to an amount: from where, to where or out, and the rate."""
        out, found = self.cl / self.v1, []
        if self.ka is not None:
            chain = (*self._chain(), "depot")
            speed = self.ktr
            if self.mtt is not None:
                speed = (self.transits + 1) / self.mtt
            found += [(a, b, speed) for a, b in zip(chain, chain[1:], strict=False)]
            found.append(("depot", "central", self.ka))
        for name, q, v in (("peripheral", self.q, self.v2), ("peripheral 2", self.q3, self.v3)):
            if q is not None and v is not None:
                found += [("central", name, q / self.v1), (name, "central", q / v)]
        if self.clm is None or self.vm is None:
            return [*found, ("central", None, out)]
        found += [("central", "metabolite", self.fm * out), ("central", None, (1 - self.fm) * out)]
        return [*found, ("metabolite", None, self.clm / self.vm)]

    def rates(self, dtype: DTypeLike | None = None) -> Float[Array, "n n"]:
        r"""Returns the matrix $K$ of $\dot y = K y$."""
        p = self if dtype is None else with_dtype(self, dtype)
        n, place = len(self.names), {name: i for i, name in enumerate(self.names)}
        entries: dict[tuple[int, int], Any] = {}
        for source, target, rate in p._flows():
            i = place[source]
            entries[i, i] = entries.get((i, i), 0.0) - rate
            if target is not None:
                entries[place[target], i] = entries.get((place[target], i), 0.0) + rate
        zero = jnp.zeros_like(p.cl)
        return jnp.stack([jnp.stack([entries.get((i, j), zero) for j in range(n)]) for i in range(n)])

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, " n"]:
        """Returns the rates of change of the amounts; `t` and `args` are not used."""
        del t, args
        place = {name: i for i, name in enumerate(self.names)}
        change: list[Any] = [jnp.zeros_like(y[0])] * len(place)
        for source, target, rate in with_dtype(self, y.dtype)._flows():
            flow = rate * y[place[source]]
            change[place[source]] = change[place[source]] - flow
            if target is not None:
                change[place[target]] = change[place[target]] + flow
        return jnp.stack(change)


class MichaelisMenten(AbstractDrug):
    r"""A drug with saturable elimination from its central compartment, in addition to its linear clearance.

    $$\dot c = \ldots - \frac{V_{\max}\, C}{K_m + C}, \qquad C = c / V_1$$

    For saturable elimination only, the drug has `cl=0`. The state is the state of the drug.

    Attributes:
        drug: The drug with linear elimination.
        vmax: $V_{\max}$, the largest rate of elimination, amount/time.
        km: $K_m$, the concentration of half this rate.

    Raises:
        ValueError: If `km` is not positive, or `vmax` is negative.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import pharmacology

        linear = pharmacology.Compartments(cl=0.0, v1=50.0, ka=1.0)
        drug = pharmacology.MichaelisMenten(linear, vmax=20.0, km=5.0)
        ts = jnp.linspace(0.0, 48.0, 49)
        states = pharmacology.solve_doses(drug, pharmacology.Doses(0.0, 400.0), ts)
        assert drug.concentration(states)[-1] < 1.0
        ```
    """

    drug: Compartments
    vmax: Parameter = eqx.field(converter=parameter)
    km: Parameter = eqx.field(converter=parameter)

    def __check_init__(self):
        check_signs(self, ("km",), ("vmax",))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the compartments, in the order of the state."""
        return self.drug.names

    def initial(self, dtype: DTypeLike | None = None) -> Float[Array, " n"]:
        """Returns zeros."""
        return self.drug.initial(dtype)

    def concentration(self, y: Float[Array, "*times n"]) -> Float[Array, "*times"]:
        """Returns the concentration in the central compartment, of one state or of many."""
        return self.drug.concentration(y)

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, " n"]:
        """Returns the rates of change of the amounts; `t` and `args` are not used."""
        p, level = with_dtype(self, y.dtype), self.concentration(y)
        lost = p.vmax * level / (p.km + level)
        return self.drug(t, y, args).at[self.cmt("central") - 1].add(-lost)


class TargetMediated(AbstractDrug):
    r"""Target-mediated drug disposition (TMDD): a drug that binds a target, with which it is eliminated.

    $$\dot c = \ldots - V_1 b, \qquad \dot R = k_{syn} - k_{deg} R - b, \qquad \dot P = b - k_{int} P, \qquad
    b = k_{on} C R - k_{o\!f\!f} P$$

    The state has the amounts of the free drug, and then the concentrations of the free target $R$ and of the complex
    $P$, in the units of $C = c / V_1$. The target starts with $k_{syn} / k_{deg}$. Binding is usually much faster than
    elimination; the model is stiff then, and `solve_doses` accepts a `solver` such as `sciml.solvers.Rodas5P()`.

    Attributes:
        drug: The drug without a target.
        kon: $k_{on}$, 1/(concentration time).
        koff: $k_{o\!f\!f}$, 1/time.
        kint: $k_{int}$, the rate of elimination of the complex, 1/time.
        ksyn: $k_{syn}$, the production of the target, concentration/time.
        kdeg: $k_{deg}$, the rate of degradation of the free target, 1/time.

    Raises:
        ValueError: If `kdeg` is not positive, or another parameter is negative.

    Source:
        D. E. Mager and W. J. Jusko, General pharmacokinetic model for drugs exhibiting target-mediated drug
        disposition, J. Pharmacokinet. Pharmacodyn. 28:507, 2001.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import pharmacology

        antibody = pharmacology.Compartments(cl=0.2, v1=3.0, q=0.5, v2=3.0)
        drug = pharmacology.TargetMediated(antibody, kon=1.0, koff=0.1, kint=0.5, ksyn=1.0, kdeg=0.2)
        states = pharmacology.solve_doses(drug, pharmacology.Doses(0.0, 100.0), jnp.linspace(0.0, 14.0, 15))
        assert jnp.allclose(states[0, -2:], jnp.array([5.0, 0.0])) and states[1, -2] < 1.0
        ```
    """

    drug: Compartments
    kon: Parameter = eqx.field(converter=parameter)
    koff: Parameter = eqx.field(converter=parameter)
    kint: Parameter = eqx.field(converter=parameter)
    ksyn: Parameter = eqx.field(converter=parameter)
    kdeg: Parameter = eqx.field(converter=parameter)

    def __check_init__(self):
        check_signs(self, ("kdeg",), ("kon", "koff", "kint", "ksyn"))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the compartments, in the order of the state."""
        return (*self.drug.names, "target", "complex")

    def initial(self, dtype: DTypeLike | None = None) -> Float[Array, " n"]:
        """Returns the state without any dose: the target in balance."""
        amounts = self.drug.initial(dtype)
        p = with_dtype(self, amounts.dtype)
        return jnp.concatenate([amounts, jnp.stack([p.ksyn / p.kdeg, jnp.zeros_like(p.ksyn)])])

    def concentration(self, y: Float[Array, "*times n"]) -> Float[Array, "*times"]:
        """Returns the concentration of the free drug in the central compartment, of one state or of many."""
        return self.drug.concentration(y)

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, " n"]:
        """Returns the rates of change of amounts and concentrations; `t` and `args` are not used."""
        p, level, target, complex_ = with_dtype(self, y.dtype), self.concentration(y), y[-2], y[-1]
        binds = p.kon * level * target - p.koff * complex_
        amounts = self.drug(t, y[:-2], args).at[self.cmt("central") - 1].add(-p.drug.v1 * binds)
        of_target = p.ksyn - p.kdeg * target - binds
        return jnp.concatenate([amounts, jnp.stack([of_target, binds - p.kint * complex_])])
