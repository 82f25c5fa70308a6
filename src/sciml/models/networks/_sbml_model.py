"""`read_sbml`: models that others wrote in SBML."""

import math
import os
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._event_system import AbstractEventSystem
from ..._events import Event, Schedule
from ..._model import AbstractModel
from ..._parameters import Parameter, parameter
from ..._types import Args, RealScalarLike
from ._formulas import suggestion
from ._program import StaticContent, check_real, scalars, taken_from
from ._sbml_description import SBMLDescription, read_description, sbml_described
from ._sbml_equations import sbml_equations
from ._sbml_event_system import SBMLEventSystem
from ._sbml_events import EventChange, EventRoot
from ._with_parameters import with_parameters


class SBMLModel(AbstractModel):
    r"""A model that was written in SBML, the Systems Biology Markup Language; what `read_sbml` returns.

    $$\dot y = f(t, y, p)$$

    The state is an array of what reactions, rate rules and events change, in the order of `states`; a species is there
    as the amount or the concentration that the model has it as. The constants $p$, with the sizes of compartments and
    species that nothing changes, are leaves.

    Attributes:
        parameters: The constants by their identifiers, leaves that can be differentiated, batched and fitted. A value
            that the file does not give is NaN.

    Source:
        M. Hucka et al., Bioinformatics 19:524, 2003.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        text = '''<?xml version="1.0"?>
        <sbml xmlns="http://www.sbml.org/sbml/level3/version2/core" level="3" version="2">
          <model id="decay">
            <listOfParameters>
              <parameter id="x" value="2" constant="false"/> <parameter id="k" value="0.5" constant="true"/>
            </listOfParameters>
            <listOfRules>
              <rateRule variable="x"><math xmlns="http://www.w3.org/1998/Math/MathML">
                <apply><minus/><apply><times/><ci>k</ci><ci>x</ci></apply></apply>
              </math></rateRule>
            </listOfRules>
          </model>
        </sbml>'''
        try:
            model = sciml.models.read_sbml(text)
        except ImportError as error:  # without the extra
            assert "sciml-jax[sbml]" in str(error)
        else:
            sol = sciml.solve(model, model.y0, t0=0.0, t1=1.0)
            assert abs(sol.ys[-1, model.index("x")] - 2 * jnp.exp(-0.5)) < 1e-4
        ```
    """

    parameters: dict[str, Parameter]
    _static: StaticContent = eqx.field(static=True)

    def __init__(self, description: Any, parameters: dict[str, Any] | None = None):
        if not isinstance(description, SBMLDescription):
            raise TypeError("an `SBMLModel` is made by `sciml.models.read_sbml`.")
        values = description.constants if parameters is None else parameters
        self.parameters = {name: parameter(values[name]) for name in sorted(values)}
        description.constants = dict.fromkeys(self.parameters, math.nan)
        self._static = description.static()

    def __call__(self, t: RealScalarLike, y: Float[Array, " n"], args: Args) -> Float[Array, " n"]:
        """Returns the time derivative of the state; `args` is not used."""
        del args
        return sbml_equations(self._static).sums(self.values(t, y))

    @property
    def name(self) -> str:
        """The name of the model."""
        return self._static.content[0]

    @property
    def states(self) -> tuple[str, ...]:
        """The identifiers of what the state consists of."""
        return self._static.content[1]

    @property
    def reactions(self) -> tuple[str, ...]:
        """The identifiers of the reactions, whose rates `value` returns."""
        return self._static.content[7]

    @property
    def y0(self) -> Float[Array, " n"]:
        """The state at the start, of the default dtype; parameters that it depends on are differentiated."""
        return self.state()

    def state(self, **values: RealScalarLike) -> Float[Array, " n"]:
        """Returns the state at the start with some of it replaced: `model.state(S=2.0)`.

        Raises:
            ValueError: If nothing of that name is part of the state.
        """
        dtype = jnp.result_type(float)
        places = {name: self.index(name) for name in values}
        equations = sbml_equations(self._static)
        found = equations.initial(scalars(list(self.parameters.values()), dtype))
        found = taken_from(found, equations.initial_slots)
        for name, value in values.items():
            found = found.at[places[name]].set(jnp.asarray(value, dtype))
        return found

    def index(self, name: str) -> int:
        """Returns where in the state something stands.

        Raises:
            ValueError: If it is no part of it.
        """
        if name not in self.states:
            raise ValueError(f"`{name}` is no part of the state of `{self.name}`.{suggestion(name, self.states)}")
        return self.states.index(name)

    def value(self, name: str, t: RealScalarLike, y: Float[Array, " n"]) -> Float[Array, ""]:
        """Returns anything by its identifier: a state, a constant, what a rule assigns, the rate of a reaction.

        Raises:
            ValueError: If there is nothing of that name.
        """
        return self.values(t, y)[self.place(name)]

    def place(self, name: str) -> int:
        """Returns the place of anything among `values`, by its identifier.

        Raises:
            ValueError: If there is nothing of that name.
        """
        places = sbml_equations(self._static).program.places
        if name not in places:
            raise ValueError(f"there is no `{name}` in `{self.name}`.{suggestion(name, places)}")
        return places[name]

    def values(self, t: RealScalarLike, y: Float[Array, " n"]) -> Float[Array, " m"]:
        """Returns all that `value` returns single ones of, in an order of its own."""
        equations = sbml_equations(self._static)
        if jnp.shape(y) != (len(self.states),):
            raise ValueError(f"the state must have shape ({len(self.states)},), as `model.y0` has, not {jnp.shape(y)}.")
        check_real(self.parameters, y.dtype)
        return equations.program(jnp.concatenate([y, scalars([t, *self.parameters.values()], y.dtype)]))

    def events(self, pending: int = 8) -> list[Event | Schedule | AbstractEventSystem]:
        """Returns the events of the model, for `solve(..., events=)`.

        The list also has the times at which a `piecewise` of the time jumps: steps end there. An event that no other
        event can influence, without a delay and with one comparison for its trigger, is a `Schedule` if that compares
        the time with constants, and an `Event` otherwise. All others are one item, the last: they follow the rules of
        SBML for triggers, priorities, delays and persistence, and `sol.events` has one row for all of them that happen
        at one time.

        Args:
            pending: The number of executions of one event that may be pending at one time. If there are more,
                the solve ends with `Status.pending_events`.

        Raises:
            ValueError: If `pending` is not a positive integer.
        """
        if isinstance(pending, bool) or not isinstance(pending, int) or pending < 1:
            raise ValueError(f"`pending` must be a positive integer, but is {pending!r}.")
        equations = sbml_equations(self._static)
        found: list[Event | Schedule | AbstractEventSystem] = []
        if equations.jumps or equations.scheduled:
            values = equations.times(scalars(list(self.parameters.values()), jnp.result_type(float)))
            if equations.jumps:
                found.append(Schedule(_ascending(taken_from(values, equations.times.slots(equations.jumps)))))
            for number, time in equations.scheduled:
                event = sbml_described(self._static).events[number]
                at = values[equations.times.places[time]]
                if not event.at_start:  # what holds at the start has not become true there
                    at = jnp.where(at <= 0, jnp.inf, at)
                found.append(Schedule(at[None], EventChange(self.parameters, self._static, number)))
        for number in equations.sought:
            root = EventRoot(self.parameters, self._static, number)
            found.append(Event(root, EventChange(self.parameters, self._static, number), direction=1))
        if equations.together:
            found.append(SBMLEventSystem(self.parameters, self._static, pending))
        return found

    def with_parameters(self, **values: Any) -> "SBMLModel":
        """Returns the model with other values of some parameters: `model.with_parameters(k1=0.5)`.

        Everything else stays: the state at the start and rules, which follow, and the compiled programs.

        Raises:
            ValueError: If a name is not a parameter, or a value has another shape.
            TypeError: If a value is complex.
        """
        description = sbml_described(self._static)
        return with_parameters(self, values, {*description.initial, *description.assignments}, self.states)

    def with_initial_parameters(self, *names: str) -> "SBMLModel":
        """Returns the model with something that a formula gives at the start made a parameter.

        A constant with an initial assignment becomes a parameter of its name. A state `S` gets the parameter `S(0)`,
        its value at the start. Their values are those that the formulas give now.

        Raises:
            ValueError: If nothing of that name has a formula at the start.
        """
        description = sbml_described(self._static)
        equations = sbml_equations(self._static)
        start = equations.initial(scalars(list(self.parameters.values()), jnp.result_type(float)))
        values: dict[str, Any] = dict(self.parameters)
        for name in names:
            if name not in description.initial:
                raise ValueError(f"`{name}` has no formula for its start in `{self.name}`, or is a parameter already.")
            if name in description.states:
                description.initial[name] = f"{name}(0)"
                values[f"{name}(0)"] = start[equations.initial.places[name]]
            else:
                del description.initial[name]
                values[name] = start[equations.initial.places[name]]
        return SBMLModel(description, values)


def _ascending(times: Float[Array, " n"]) -> Float[Array, " n"]:
    """Times in their order, each once, and infinite ones behind."""
    times = jnp.sort(times)
    again = jnp.concatenate([jnp.zeros(1, bool), times[1:] <= times[:-1]])
    return jnp.sort(jnp.where(again, jnp.inf, times))


def read_sbml(source: str | os.PathLike) -> SBMLModel:
    """Reads a model that was written in SBML, of any level, by sbmlode.

    Supported are compartments, species, parameters, reactions, function definitions, assignment and rate rules, initial
    assignments, conversion factors, `piecewise`, and events with delays and priorities. Refused by name are algebraic
    rules, the function `delay`, fast reactions, and triggers that compare numbers for equality.

    Args:
        source: The file, or SBML as text.

    Raises:
        ImportError: If sbmlode is not installed: `pip install 'sciml-jax[sbml]'`.
        FileNotFoundError: If there is no such file.
        ValueError: If it is no SBML, or has what is not supported.

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
    sbml_equations(description.static())  # so that wrong formulas are refused here
    return SBMLModel(description)
