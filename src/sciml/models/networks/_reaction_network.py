"""`ReactionNetwork`: reactions as text, as a matrix or in a file, and their rate equations."""

import functools
import math
import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import concrete
from ..._interfaces._model import AbstractModel
from ..._interfaces._reactions import AbstractReactions
from ..._parameters import Parameter, parameter
from ..._types import Args, RealScalarLike
from ._arrhenius import Arrhenius
from ._description import TIME, Description, Reaction, depends_on, described, equations_of, program_of_value, rate_name
from ._formulas import Formula, product_of, renamed, suggestion
from ._program import FormulaProgram, StaticContent, check_real, needed, ordered, scalars, taken_from
from ._sbml_export import antimony_text, sbml_document, sbml_text
from ._text import read_net, read_text
from ._with_parameters import with_parameters


def conserved_sums(changes: np.ndarray) -> np.ndarray:
    """Returns a basis of the vectors $w$ with $N w = 0$, whole numbers without a common factor.

    Rows are eliminated exactly, as fractions, and the basis is reduced: each vector has an entry that no other has.

    Args:
        changes: $N$, of shape `(reactions, species)`; its numbers are stoichiometric, such as 1, 2 or 0.5.
    """
    species = changes.shape[1]
    rows: list[dict[int, Fraction]] = []
    pivots: list[int] = []
    for change in changes:
        row = {int(j): Fraction(float(change[j])).limit_denominator(10**6) for j in np.flatnonzero(change)}
        for pivot, other in zip(pivots, rows):
            if pivot in row:
                _subtract(row, other, row[pivot])
        if not row:
            continue
        pivot = min(row)
        scale = row[pivot]
        row = {j: x / scale for j, x in row.items()}
        for other in rows:
            if pivot in other:
                _subtract(other, row, other[pivot])
        rows.append(row)
        pivots.append(pivot)
    free = [j for j in range(species) if j not in set(pivots)]
    found = np.zeros((len(free), species))
    for i, j in enumerate(free):
        law = {j: Fraction(1)} | {p: -row[j] for p, row in zip(pivots, rows) if j in row}
        denominator = math.lcm(*(x.denominator for x in law.values()))
        numbers = {k: int(x * denominator) for k, x in law.items()}
        divisor = math.gcd(*numbers.values())
        sign = -1 if sum(numbers.values()) < 0 else 1
        for k, x in numbers.items():
            found[i, k] = sign * x // divisor
    return found


def _subtract(row: dict[int, Fraction], other: dict[int, Fraction], factor: Fraction) -> None:
    for j, x in other.items():
        value = row.get(j, Fraction(0)) - factor * x
        if value:
            row[j] = value
        else:
            row.pop(j, None)


def description_of(
    reactants: Any, products: Any, constants: Sequence[Formula], species: Sequence[str] | None, initial: Any
) -> Description:
    """Returns the network of two matrices of shape `(reactions, species)`.

    Raises:
        ValueError: If they do not fit one another, or names do not fit them.
    """
    taken, made = _dense(reactants, "reactants"), _dense(products, "products")
    if taken.shape != made.shape:
        raise ValueError(
            f"`reactants` and `products` must have the same shape, but have {taken.shape} and {made.shape}."
        )
    names = [f"X{i}" for i in range(taken.shape[1])] if species is None else list(species)
    if len(names) != taken.shape[1] or len(set(names)) != len(names):
        raise ValueError(
            f"`species` must be {taken.shape[1]} different names, one for each column of `reactants`, not {names}."
        )
    start = np.zeros(len(names)) if initial is None else np.asarray(initial, float)
    if start.shape != (len(names),):
        raise ValueError(f"`initial` must have shape ({len(names)},), one for each species, not {start.shape}.")
    sides = [[[(names[j], float(row[j])) for j in np.flatnonzero(row)] for row in side] for side in (taken, made)]
    reactions = [
        Reaction(str(i + 1), tuple(left), tuple(right), constants[i], True)
        for i, (left, right) in enumerate(zip(*sides, strict=True))
    ]
    amounts: dict[str, Formula] = {name: float(x) for name, x in zip(names, start) if x != 0}
    return Description(names, reactions, [], {}, amounts)


def _dense(matrix: Any, name: str) -> np.ndarray:
    found = np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, float)
    if found.ndim != 2 or 0 in found.shape:
        raise ValueError(f"`{name}` must have shape `(reactions, species)`, but has {found.shape}.")
    if np.any(~(found >= 0)):
        raise ValueError(
            f"`{name}` must not have negative entries. Consumed molecules belong in `reactants`, produced ones in "
            "`products`."
        )
    return found


_VOLUME = "the volume"  # no text can have this name


class SingleMolecules(AbstractReactions):
    """The result of `ReactionNetwork.single_molecules`.

    Attributes:
        parameters: The parameters of the network.
        volume: The divisor of counts that gives amounts.
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
                f"the rate of `{reaction}` depends on time, but stochastic reactions require rates that are constant "
                "between two reactions."
            )
        rates[rate_name(i)] = _propensity(reaction, network, concentrations)
    program = FormulaProgram([*network.species, _VOLUME, *network.parameters], derived | rates)
    return _Propensities(program, program.slots(list(rates)))


def _propensity(reaction: Reaction, network: Description, concentrations: dict[str, Formula]) -> Formula:
    whole = all(float(count).is_integer() for _, count in (*reaction.reactants, *reaction.products))
    if not whole:
        raise ValueError(f"`{reaction}` has a fractional stoichiometry, which stochastic reactions do not support.")
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
    # a bare name would not be a separate result
    product = product_of(*factors)
    return ("*", product, 1.0) if isinstance(product, str) else product


class ReactionNetwork(AbstractModel):
    r"""Chemical reactions, or other conversions of species, with their rate equations.

    $$\dot y_i = \sum_j \nu_{ji} \, v_j(y), \qquad
    v_j = k_j \prod_i y_i^{m_{ji}} \quad \text{by mass action}$$

    Reaction $j$ takes $m_{ji}$ of species $i$ and changes it by $\nu_{ji}$. The state is an array of shape
    `(species,)`, in the order in which the text names them. Text has one reaction, value or initial amount a line:

    - `A + 2 B -> C, k`: by mass action, at the rate $k A B^2$. `0 -> A, k` makes, `A -> 0, k` removes.
    - `A <-> B, k1, k2`: both directions.
    - `S => P, V*S/(K + S)`: the complete rate; `<=>` with two of them.
    - `binding: A + B -> C, k`: with a name.
    - `k = 0.1`: a parameter. `K = k2/k1`: a value that is computed from others, from species, or from the time `t`.
    - `A(0) = 1`: an initial amount, a number or a formula of parameters; zero if there is none.
    - `$X + A -> B, k`, or `$X(0) = 1`: the species `X` is held constant, although reactions consume or produce it.
    - `# a comment`

    Formulas have `+ - * / ^`, comparisons, `&& || !`, `if(condition, a, b)`, `piecewise(a, condition, b)`, `min`,
    `max`, `exp`, `ln` or `log`, `sqrt` and the like, `pi`, and `arrhenius(A, b, E)`, which is
    $A T^b \exp(-E / (R T))$ in J/mol at the temperature `T`, a parameter or a species.

    Rates of one shape are computed together, however many there are, and the Jacobian has the entries of the network,
    so that implicit methods use its sparsity: see `sciml.inspect.jacobian`.

    Args:
        text: The reactions.
        parameters: Values of parameters, in addition to the values in the text or instead of them.

    Attributes:
        parameters: The parameters by name, leaves that can be differentiated, batched and fitted.

    Raises:
        ValueError: If the text cannot be read; the message shows the place. If `parameters` has the name of a species.

    Warns:
        UserWarning: If `parameters` has a name that is not in the text, but nearly one with a number there.

    Source:
        C. M. Guldberg and P. Waage, 1864, for mass action; the arrows follow Catalyst.jl.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        robertson = sciml.models.ReactionNetwork('''
            A -> B, k1
            2 B -> B + C, k2
            B + C -> A + C, k3
            k1 = 0.04; k2 = 3e7; k3 = 1e4
            A(0) = 1
        ''')
        assert robertson.species == ("A", "B", "C")
        assert robertson.conservation_laws().tolist() == [[1.0, 1.0, 1.0]]

        solver = sciml.solvers.Rodas5P()
        sol = sciml.solve(robertson, robertson.y0, t0=0.0, t1=40.0, solver=solver, atol=1e-8)
        assert abs(sol.ys[-1, 0] - 0.7158) < 1e-3

        gradient = jax.grad(lambda m: m.rates(0.0, jnp.array([1.0, 0.5, 0.0]))[0])(robertson)
        assert gradient.parameters["k1"] == 1.0
        ```
    """

    parameters: dict[str, Parameter]
    _static: StaticContent = eqx.field(static=True)

    def __init__(self, text: Any, parameters: Mapping[str, Any] | None = None):
        given = dict(parameters or {})
        if isinstance(text, str):
            description, values = read_text(text, given)
        elif isinstance(text, Description):
            description, values = text, given
        else:
            raise TypeError(f"`text` must be a string of reactions, but is {type(text).__name__}.")
        if wrong := [name for name in values if name in description.species]:
            raise ValueError(f"`parameters` has `{wrong[0]}`, which is a species; its amount is part of the state.")
        self.parameters = {name: parameter(values[name]) for name in sorted(values)}
        description.parameters = [n for name, x in self.parameters.items() for n in _names_of(name, x)]
        self._static = description.static()

    @classmethod
    def from_stoichiometry(
        cls,
        reactants: Any,
        products: Any,
        rates: Any,
        *,
        species: Sequence[str] | None = None,
        initial: Any = None,
    ) -> "ReactionNetwork":
        """Returns a network by mass action from two matrices.

        Args:
            reactants: The number of molecules of each species that each reaction consumes, of shape
                `(reactions, species)`; SciPy's sparse matrices are also supported.
            products: How many it makes, of the same shape.
            rates: Rate constants of shape `(reactions,)`, which become the parameter `rates`, or an `Arrhenius` of
                such arrays, whose fields become parameters.
            species: Names, by default `X0`, `X1` and so on.
            initial: Initial amounts of shape `(species,)`, by default zero.

        Raises:
            ValueError: If shapes do not fit, or a number of molecules is negative.

        Example:
            ```python
            import jax.numpy as jnp
            import sciml

            # A -> B -> C
            taken, made = [[1, 0, 0], [0, 1, 0]], [[0, 1, 0], [0, 0, 1]]
            chain = sciml.models.ReactionNetwork.from_stoichiometry(taken, made, [2.0, 1.0], species="ABC")
            assert jnp.allclose(chain(0.0, jnp.array([1.0, 0.5, 0.0]), None), jnp.array([-2.0, 1.5, 0.5]))
            assert chain.reactions == ("A -> B, rates[0]", "B -> C, rates[1]")
            ```
        """
        constants, values = _rate_constants(rates, np.shape(reactants)[0] if np.ndim(reactants) else 0)
        description = description_of(reactants, products, constants, species, initial)
        return cls(description, values)

    @classmethod
    def from_bionetgen(cls, path: str | os.PathLike) -> "ReactionNetwork":
        """Returns the network of a `.net` file, which BioNetGen's `generate_network` writes.

        Its numeric parameters are parameters here; derived parameters, its functions and the sums of its groups are
        values that `value` returns by name.

        Args:
            path: The file.

        Raises:
            ValueError: If the file cannot be read, or has laws other than elementary ones and functions; the message
                names the line.

        Example:
            ```python
            import pathlib
            import sciml

            pathlib.Path("binding.net").write_text('''
            begin parameters
                1 kon  2.0
                2 koff 0.5*kon
            end parameters
            begin species
                1 L(r)          10
                2 R(l)          1
                3 L(r!1).R(l!1) 0
            end species
            begin reactions
                1 1,2 3 kon
                2 3 1,2 koff
            end reactions
            begin groups
                1 Free 1,2
            end groups
            ''')
            binding = sciml.models.ReactionNetwork.from_bionetgen("binding.net")
            assert (binding.rates(0.0, binding.y0) == 0).sum() == 1
            assert binding.value("Free", 0.0, binding.y0) == 11
            ```
        """
        description, values = read_net(path)
        return cls(description, values)

    def to_sbml(self) -> str:
        """Returns the network as SBML, Level 3 Version 2, for other programs; `read_sbml` reads it back.

        Species are amounts in one compartment of size one, derived values are assignment rules, and rates are written
        in full. Names that SBML does not allow, such as `rates[0]`, get underscores.

        Raises:
            ImportError: If libsbml is not installed: `pip install 'sciml-jax[sbml]'`.
            TypeError: If a parameter is complex.
            ValueError: If a formula has a function that SBML does not have.

        Example:
            ```python
            import sciml

            decay = sciml.models.ReactionNetwork("A -> 0, k; k = 2; A(0) = 1")
            try:
                text = decay.to_sbml()
            except ImportError as error:  # without the extra
                assert "sciml-jax[sbml]" in str(error)
            else:
                again = sciml.models.read_sbml(text)
                assert again(0.0, again.y0, None)[0] == -2
            ```
        """
        return sbml_text(self._document())

    def to_antimony(self) -> str:
        """Returns the network as Antimony text, for Tellurium and other programs.

        Names and formulas are the same as in `to_sbml`; numbers in formulas have 15 digits.

        Raises:
            ImportError: If libsbml is not installed: `pip install 'sciml-jax[sbml]'`.
            TypeError: If a parameter is complex.
            ValueError: If a formula has a function that SBML does not have.

        Example:
            ```python
            import sciml

            decay = sciml.models.ReactionNetwork("A -> 0, k; k = 2; A(0) = 1")
            try:
                assert "reaction_1: A => ; k * A;" in decay.to_antimony()
            except ImportError as error:  # without the extra
                assert "sciml-jax[sbml]" in str(error)
            ```
        """
        return antimony_text(self._document())

    def _document(self) -> Any:
        check_real(self.parameters, float)
        network = described(self._static)
        values = [float(x) for value in self.parameters.values() for x in np.ravel(value)]
        return sbml_document(network, dict(zip(network.parameters, values)))

    def __call__(self, t: RealScalarLike, y: Float[Array, " species"], args: Args) -> Float[Array, " species"]:
        """Returns the time derivative of the amounts; `args` is not used.

        Raises:
            TypeError: If a parameter is complex, and the state is not.
        """
        del args
        return equations_of(self._static).sums(self._values(t, y))

    def rates(self, t: RealScalarLike, y: Float[Array, " species"]) -> Float[Array, " reactions"]:
        """Returns how fast each reaction is."""
        return taken_from(self._values(t, y), equations_of(self._static).rates)

    def value(self, name: str, t: RealScalarLike, y: Float[Array, " species"]) -> Float[Array, ""]:
        """Returns a species, a parameter or a computed value by its name.

        Raises:
            ValueError: If there is none of that name.
        """
        network, program = described(self._static), equations_of(self._static).program
        names = {**network.derived, **{n: None for n in (*network.species, TIME, *network.parameters)}}
        if name not in names:
            raise ValueError(f"there is no `{name}` in the network.{suggestion(name, names)}")
        if name in network.derived:
            program = program_of_value(self._static, name)
        return program(self._inputs(t, y))[program.places[name]]

    def _values(self, t: RealScalarLike, y: Array) -> Array:
        """The values that rates are computed from, and the rates."""
        return equations_of(self._static).program(self._inputs(t, y))

    def _inputs(self, t: RealScalarLike, y: Array) -> Array:
        """The state, the time and the parameters."""
        count = equations_of(self._static).stoichiometry.shape[1]
        shape = y.shape if hasattr(y, "shape") else None
        if shape != (count,):
            found = f"not {shape}" if shape is not None else f"not a {type(y).__name__}; see `state(A=2.0)`"
            raise ValueError(
                f"the state must be an array of shape ({count},), one for each of {_some(self.species)}, {found}."
            )
        check_real(self.parameters, y.dtype)
        return jnp.concatenate([y, scalars([t, *self.parameters.values()], y.dtype)])

    @property
    def species(self) -> tuple[str, ...]:
        """The names of the species, in the order of the state."""
        return self._static.content[0]

    def __str__(self) -> str:
        shown = [f"  {text}" for text in self.reactions[:20]]
        more = len(self.reactions) - len(shown)
        first = f"{len(self.species)} species, {len(self.reactions)} reactions, {len(self.parameters)} parameters"
        return "\n".join([first, *shown] + ([f"  and {more} more"] if more else []))

    @property
    def reactions(self) -> tuple[str, ...]:
        """The reactions as text, one for each direction."""
        network = described(self._static)
        return tuple(reaction.text(network.fixed) for reaction in network.reactions)

    @property
    def reaction_names(self) -> tuple[str, ...]:
        """The names of the reactions, or their numbers."""
        return tuple(reaction.name for reaction in described(self._static).reactions)

    @property
    def stoichiometry(self) -> np.ndarray:
        r"""$\nu$, of shape `(reactions, species)`: by how much each reaction changes each species."""
        return equations_of(self._static).stoichiometry.copy()

    @property
    def y0(self) -> Float[Array, " species"]:
        """The initial amounts, of the default dtype; parameters that they depend on are differentiated."""
        return self.state()

    def state(self, **amounts: RealScalarLike) -> Float[Array, " species"]:
        """Returns the initial amounts with some of them replaced: `network.state(A=2.0)`.

        Raises:
            ValueError: If there is no species of that name.
            TypeError: If an amount is complex.
        """
        if wrong := [name for name in amounts if name not in self.species]:
            raise ValueError(f"there is no species `{wrong[0]}`.{suggestion(wrong[0], self.species)}")
        dtype = jnp.result_type(float)
        check_real(self.parameters, dtype)
        network = described(self._static)
        # what initial amounts are computed from may depend on parameters, never on species
        formulas: dict[str, Formula] = {f"{name}(0)": network.initial.get(name, 0.0) for name in self.species}
        used = needed(formulas.values(), network.derived)
        program = FormulaProgram(network.parameters, ordered(used | formulas))
        values = taken_from(program(scalars(list(self.parameters.values()), dtype)), program.slots(list(formulas)))
        for name, amount in amounts.items():
            if jnp.iscomplexobj(amount):
                raise TypeError(f"the amount of `{name}` must be real, but is {amount!r:.60}.")
            values = values.at[self.species.index(name)].set(jnp.asarray(amount, dtype))
        return values

    def with_parameters(self, **values: Any) -> "ReactionNetwork":
        """Returns the network with other values of some parameters: `network.with_parameters(k1=0.5)`.

        Everything else stays: initial amounts, formulas, which follow, and the compiled programs.

        Raises:
            ValueError: If a name is not a parameter, or a value has another shape.
            TypeError: If a value is complex.

        Example:
            ```python
            import sciml

            binding = sciml.models.ReactionNetwork("A + B <-> C, kon, koff; kon = 2; koff = 1; K = koff/kon; A(0) = 1")
            weaker = binding.with_parameters(koff=5.0)
            assert weaker.value("K", 0.0, weaker.y0) == 2.5
            ```
        """
        return with_parameters(self, values, described(self._static).derived, self.species)

    def index(self, species: str) -> int:
        """Returns the position of a species in the state.

        Raises:
            ValueError: If there is none of that name.
        """
        if species not in self.species:
            raise ValueError(f"there is no species `{species}`.{suggestion(species, self.species)}")
        return self.species.index(species)

    def conservation_laws(self) -> Float[np.ndarray, "laws species"]:
        r"""Returns the conservation laws of the reactions: $w$ with $\sum_i \nu_{ji} w_i = 0$ for all $j$, as integers.

        The rows are a basis of the left null space, so that `laws @ y` is constant in time.
        """
        return _laws_of(self._static).copy()

    def single_molecules(self, volume: RealScalarLike = 1.0) -> AbstractReactions:
        r"""Returns the same reactions among counted molecules, for `sciml.solve(..., key=key)`.

        The amounts are concentrations, of which a count $n$ in a volume $V$ is $n / V$. By mass action the propensity
        of a reaction is $k V^{1 - m} \prod_i n_i (n_i - 1) \cdots (n_i - m_i + 1)$ with $m = \sum_i m_i$, which is $V$
        times the rate for large counts; $k$ is the constant of the rate equations, so that no $m_i!$ appears. A rate
        that is the whole of it becomes $V v(n / V)$, and zero where a reactant lacks.

        Args:
            volume: $V$. A parameter of the model that is returned.

        Raises:
            ValueError: If a number of molecules in a reaction is not whole, or a rate depends on the time.
            TypeError: If a parameter is complex.

        Example:
            ```python
            import jax
            import jax.numpy as jnp
            import sciml

            dimers = sciml.models.ReactionNetwork("2 A <-> D, 1.0, 0.5")
            molecules = dimers.single_molecules(volume=10.0)
            assert (molecules.propensities(jnp.array([4.0, 3.0]), None) == jnp.array([1.2, 1.5])).all()
            sol = sciml.solve(molecules, jnp.array([4.0, 3.0]), t0=0.0, t1=1.0, key=jax.random.key(0))
            assert sol.ys[-1] @ jnp.array([1.0, 2.0]) == 10
            ```
        """
        check_real(self.parameters, float)
        return SingleMolecules(self.parameters, volume, self._static)


@functools.lru_cache(maxsize=64)
def _laws_of(static: StaticContent) -> np.ndarray:
    return conserved_sums(equations_of(static).stoichiometry)


def _names_of(name: str, value: Array) -> list[str]:
    """The names of a parameter's numbers in formulas."""
    return [name] if jnp.ndim(value) == 0 else [f"{name}[{i}]" for i in range(jnp.size(value))]


def _rate_constants(rates: Any, count: int) -> tuple[list[Formula], dict[str, Any]]:
    """The rate constants as formulas of parameters, and these."""
    if isinstance(rates, Arrhenius):
        values = dict(factor=rates.factor, power=rates.power, energy=rates.energy, temperature=rates.temperature)
        names = {name: _names_of(name, x) for name, x in values.items()}
        for name, found in names.items():
            if len(found) not in (1, count):
                raise ValueError(
                    f"`rates` must have an entry for each of {count} reactions, but its `{name}` has {len(found)}."
                )
        rows = [[names[name][min(i, len(names[name]) - 1)] for name in values] for i in range(count)]
        return [("arrhenius", *row) for row in rows], values
    rates = parameter(rates)
    if rates.shape != (count,):
        raise ValueError(f"`rates` must have shape ({count},), one for each row of `reactants`, not {rates.shape}.")
    if concrete(rates) and bool(jnp.any(jnp.isnan(rates))):
        raise ValueError("`rates` must not be NaN.")
    return list(_names_of("rates", rates)), dict(rates=rates)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:6])}, ... {names[-1]}"
