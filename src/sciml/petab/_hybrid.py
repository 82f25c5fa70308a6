r"""Neural networks in a PEtab problem: the extension SciML.

The outputs of a network are names that formulas of the model, of its start and of observables may contain. A network
that is evaluated before simulations gives constants of each condition; any other is a part of the formulas.
The numbers of its arrays are parameters of the problem, `net.parameters[layer].array[0,1]`, as the format names them.
"""

import itertools
import math
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..models.networks._formulas import Formula, names_in, renamed
from ..models.networks._parse import parse_text
from ..models.networks._program import Block, FormulaProgram, taken_from
from ..models.networks._sbml_description import sbml_described
from ..models.networks._sbml_equations import sbml_equations
from ..models.networks._sbml_math import TIME
from ..models.networks._sbml_model import SBMLModel
from ._network import read_arrays, read_network
from ._parameters_of import Conditions, Pool
from ._priors import truncated_prior
from ._tables import EstimatedParameter, HybridNetwork, NetworkInput, Tables

_ENTITY = re.compile(r"(\w+)\.(inputs|outputs)\[(\d+)\](?:\[([\d, ]+)\])?")
_PARAMETERS = re.compile(r"(\w+)\.parameters(?:\[([\w.]+)\](?:\.(\w+)(?:\[([\d, ]+)\])?)?)?")


def parameter_of(row: Any) -> EstimatedParameter:
    """Returns a row of the table of parameters; without a prior if it is not estimated, or has no bounds."""
    lower, upper = (default if x is None else float(x) for x, default in ((row.lb, -math.inf), (row.ub, math.inf)))
    nominal, prior = row.nominal_value, None
    if row.estimate and (row.prior_distribution or math.isfinite(upper - lower)):
        kind, numbers = str(row.prior_distribution or "uniform"), tuple(row.prior_parameters) or (lower, upper)
        prior = truncated_prior(kind, numbers, lower, upper)
    nominal = math.nan if nominal is None or nominal == "array" else float(nominal)
    return EstimatedParameter(row.id, "lin", lower, upper, nominal, row.estimate, prior)


def named_arrays(module: Any) -> list[tuple[str, str, Array]]:
    """Returns the arrays of a network, each with the names of its layer and of itself.

    These are the last name on the way to it, and all before: `layers.0` and `weight`.
    """
    found = []
    for path, value in jax.tree.leaves_with_path(eqx.filter(module, eqx.is_inexact_array)):
        names = [str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", "")))) for key in path]
        names = names[1:] if names[0] == "parameters" and len(names) > 2 else names
        found.append((".".join(names[:-1]), names[-1], value))
    return found


def with_values(module: Any, values: Array) -> Any:
    """Returns a network whose arrays have other numbers, from one vector."""
    arrays, rest = eqx.partition(module, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(arrays)
    ends = np.cumsum([x.size for x in leaves])[:-1]
    parts = [part.reshape(x.shape) for part, x in zip(jnp.split(values, ends), leaves)]
    return eqx.combine(jax.tree.unflatten(structure, parts), rest)


def _called(network: HybridNetwork) -> Callable[[Array], Array]:
    """Returns a network as a function of one vector, its inputs and then its weights, with all results in one."""

    def call(values: Array) -> Array:
        sizes = [math.prod(x.shape) for x in network.inputs]
        *inputs, weights = jnp.split(values, np.cumsum(sizes))
        inputs = [x.reshape(one.shape) for x, one in zip(inputs, network.inputs)]
        found = with_values(network.module, weights)(*inputs)
        return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(found)])

    return call


def _indices(text: str) -> tuple[int, ...]:
    return tuple(int(x) for x in text.split(","))


def _element(name: str, index: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """The name of an element of an array; the order of these names is the order of elements."""
    return f"{name}[{','.join(str(i).zfill(len(str(n - 1))) for i, n in zip(index, shape))}]"


class Hybridization:
    """The networks of a problem as tables; names of their inputs and outputs become parameters of its SBML model.

    Attributes:
        networks: The networks.
        rows: A row of the table of parameters for each number of their arrays.
    """

    def __init__(self, problem: Any, sciml: Mapping[str, Any], folder: pathlib.Path, networks: Mapping[str, Any]):
        import pandas

        self.problem, self.folder = problem, folder
        entries: dict[str, Any] = sciml["neural_networks"]
        if unknown := set(networks) - set(entries):
            raise ValueError(f"`networks` has {', '.join(sorted(unknown))}, but the problem {', '.join(entries)}.")
        files = [pandas.read_csv(folder / name, sep="\t", dtype=str) for name in sciml.get("hybridization_files") or []]
        pairs = [pair for file in files for pair in zip(file["targetId"], file["targetValue"])]
        self.hybrid = {str(target).strip(): str(value).strip() for target, value in pairs}
        # the modules that are given bring their own arrays
        names = sciml.get("array_files") or []
        self.arrays: dict[str, Any] = {}
        if set(networks) != set(entries) or "array" in self.hybrid.values():
            for group, name in itertools.product(("inputs", "parameters"), names):
                self.arrays.setdefault(group, {}).update(read_arrays(folder / name).get(group, {}))
        self.mapped = {str(x.petab_id): str(x.model_id) for x in problem.mappings}
        self.table: dict[str, dict[tuple, Any]] = {}
        self._take_rows()
        self.first = {x.id: x.sorted_periods[0].condition_ids for x in problem.experiments}
        self.rows: tuple[EstimatedParameter, ...] = ()
        self.networks = tuple(self._network(name, entries[name], networks.get(name)) for name in entries)
        self._add_to_model()

    def _take_rows(self) -> None:
        """Takes the rows of networks out of the tables of parameters and of names."""
        for table in self.problem.parameter_tables:
            kept = []
            for row in table.elements:
                found = _PARAMETERS.fullmatch(self.mapped.get(row.id, ""))
                if found is None:
                    kept.append(row)
                    continue
                name, layer, array, index = found.groups()
                key = tuple(x for x in (layer, array, index and _indices(index)) if x is not None)
                self.table.setdefault(name, {})[key] = row
            table.elements = kept
        for table in self.problem.mapping_tables:
            table.elements = [x for x in table.elements if "." not in str(x.model_id)]

    def _network(self, name: str, entry: Mapping[str, Any], given: Any) -> HybridNetwork:
        module = given
        if module is None:
            if str(entry["format"]).lower() != "yaml":
                raise ValueError(
                    f"the network `{name}` has the format `{entry['format']}`; pass it as an Equinox module, "
                    f"`networks={{{name!r}: module}}`."
                )
            module = read_network(self.folder / str(entry["location"]))
        before = bool(entry["pre_initialization"])
        own = {x: _ENTITY.fullmatch(text) for x, text in self.mapped.items() if text.startswith(f"{name}.")}
        inputs = self._inputs(name, module, {x: m for x, m in own.items() if m and m[2] == "inputs"})
        results = jax.eval_shape(module, *(jax.ShapeDtypeStruct(x.shape, jnp.result_type(float)) for x in inputs))
        shapes = [x.shape for x in jax.tree.leaves(results)]
        starts = np.cumsum([0, *map(math.prod, shapes)])
        outputs = {}
        for x, found in own.items():
            if found and found[2] == "outputs":
                number, index = int(found[3]), _indices(found[4] or "0")
                shape = shapes[number] if number < len(shapes) else ()
                shape = shape[len(shape) - len(index) :] if math.prod(shape[: -len(index)]) == 1 else shape
                if len(index) != len(shape) or not np.all(np.less(index, shape)):
                    raise ValueError(f"`{x}` is `{self.mapped[x]}`, but the outputs have the shapes {shapes}.")
                outputs[x] = int(starts[number] + np.ravel_multi_index(index, shape))
        elements = [x for one in inputs for x in one.names]
        formulas = {x: self.hybrid[x] for x in elements if x in self.hybrid}
        targets = {target: value for target, value in self.hybrid.items() if value in outputs}
        rows = self._rows(name, module, given is not None)
        self.rows += rows
        weights = tuple(row.name for row in rows)
        return HybridNetwork(name, module, before, weights, inputs, outputs, formulas, targets)

    def _inputs(self, name: str, module: Any, own: Mapping[str, Any]) -> tuple[NetworkInput, ...]:
        """Returns the arguments of a network."""
        elements: dict[int, dict[tuple[int, ...], str]] = {}
        direct = enumerate(getattr(module, "inputs", ()))
        whole: dict[int, str] = {i: x for i, x in direct if self.hybrid.get(x) == "array"}
        for x, found in own.items():
            if found[4] is None:
                whole[int(found[3])] = x
            else:
                elements.setdefault(int(found[3]), {})[_indices(found[4])] = x
        result = []
        for number in range(max([*elements, *whole], default=-1) + 1):
            if number in whole:
                result.append(self._array(whole[number]))
                continue
            known = elements.get(number, {})
            shape = tuple(int(n) + 1 for n in np.max(list(known), axis=0)) if known else (0,)
            missing = [index for index in np.ndindex(shape) if index not in known]
            if missing or not known:
                raise ValueError(f"the mapping table does not have `{name}.inputs[{number}]{missing[:1]}`.")
            result.append(NetworkInput(shape, tuple(known[index] for index in np.ndindex(shape)), {}))
        return tuple(result)

    def _array(self, name: str) -> NetworkInput:
        """Returns an argument whose values are arrays."""
        files = self.arrays.get("inputs", {}).get(name, {})
        by_condition = {one: array for names, array in files.items() for one in names.split(";")}
        arrays: dict[str, np.ndarray] = {"": by_condition["0"]} if "0" in by_condition else {}
        for experiment, conditions in self.first.items():
            found = [by_condition[x] for x in (*conditions, "0") if x in by_condition]
            if not found:
                raise ValueError(f"the array files do not have the input `{name}` for the experiment `{experiment}`.")
            arrays[experiment] = found[0]
        for experiment in self.problem.experiments:
            later = {x for period in experiment.sorted_periods[1:] for x in period.condition_ids}
            if later & set(by_condition):
                raise ValueError(f"the array `{name}` changes within `{experiment.id}`, which is not supported.")
        shape = next(iter(arrays.values())).shape
        return NetworkInput(shape, tuple(_element(name, index, shape) for index in np.ndindex(shape)), arrays)

    def _rows(self, name: str, module: Any, given: bool) -> tuple[EstimatedParameter, ...]:
        """Returns a row for each number of a network's arrays, copied from the row of the most specific identifier."""
        table, known = self.table.get(name, {}), self.arrays.get("parameters", {}).get(name, {})
        parsed = {key: parameter_of(row) for key, row in table.items()}
        every, rows = named_arrays(module), []
        there = {(), *((layer,) for layer, *_ in every), *((layer, array) for layer, array, _ in every)}
        there |= {(layer, array, index) for layer, array, x in every for index in np.ndindex(x.shape)}
        if unknown := [row.id for key, row in table.items() if key not in there]:
            raise ValueError(
                f"`{unknown[0]}` is `{self.mapped[unknown[0]]}`, but the arrays of `{name}` are "
                f"{', '.join(f'[{layer}].{array} of shape {x.shape}' for layer, array, x in every)}."
            )
        for layer, array, value in every:
            found = np.asarray(value)
            if not given and array in known.get(layer, {}):
                found = known[layer][array]
            if np.shape(found) != value.shape:
                raise ValueError(
                    f"the array `{name}/{layer}/{array}` must have shape {value.shape}, not {found.shape}."
                )
            for index in np.ndindex(value.shape):
                keys = [x for x in ((layer, array, index), (layer, array), (layer,), ()) if x in table]
                if not keys:
                    raise ValueError(
                        f"the table of parameters does not have `{name}.parameters`, by the mapping table."
                    )
                row, number = parsed[keys[0]], float(found[index])
                element = _element(f"{name}.parameters[{layer}].{array}", index, value.shape)
                missing = table[keys[0]].nominal_value == "array" and math.isnan(number)
                if missing or (not row.estimated and math.isnan(number) and math.isnan(row.nominal)):
                    raise ValueError(f"the array files do not have `parameters/{name}/{layer}/{array}`.")
                rows.append(row._replace(name=element, nominal=number if math.isnan(row.nominal) else row.nominal))
        return tuple(rows)

    def _add_to_model(self) -> None:
        """Adds the names of inputs and outputs to the SBML model, and conditions that only arrays name."""
        import petab.v2

        model = self.problem.model.sbml_model
        for network in self.networks:
            scalars = [x for one in network.inputs if not one.arrays for x in one.names]
            for name in (*scalars, *network.outputs):
                if model.getElementBySId(name) is None:
                    parameter = model.createParameter()
                    parameter.setId(name)
                    parameter.setConstant(False)
                    parameter.setValue(0.0)
        known = {x.id for x in self.problem.conditions}
        for name in {x for e in self.problem.experiments for p in e.periods for x in p.condition_ids} - known:
            self.problem += petab.v2.Condition(id=name, changes=[])

    def add_arrays(self, conditions: dict[str, dict[str, float | str]]) -> None:
        """Sets the arrays of networks in the model, as numbers in each condition."""
        for network in self.networks:
            for one in network.inputs:
                for condition, changes in conditions.items():
                    if one.arrays and not network.before:
                        changes |= zip(one.names, _of_condition(one, condition).ravel().tolist())


def _of_condition(one: NetworkInput, condition: str) -> np.ndarray:
    """The array of a condition, which may be one before another."""
    name = condition if condition in one.arrays else condition.removesuffix(" before")
    if name not in one.arrays and "" not in one.arrays:
        raise ValueError("a measurement without an experiment needs an input array for all conditions, named `0`.")
    return one.arrays.get(name, one.arrays.get(""))  # type: ignore[return-value]


def with_networks(model: SBMLModel, tables: Tables) -> SBMLModel:
    """Returns a model with the networks of a problem in its formulas.

    Raises:
        ValueError: If a network determines a variable that it cannot.
    """
    description, values = sbml_described(model._static), dict(model.parameters)
    known = {row.name for row in tables.parameters}

    def set_formula(name: str, formula: Formula, among: dict[str, Formula]) -> None:
        for other in (values, description.initial, description.assignments):
            other.pop(name, None)  # type: ignore[arg-type]
        among[name] = formula

    for network in tables.networks:
        for name, text in network.formulas.items():
            formula = renamed(parse_text(text, f"the input `{name}` of `{network.name}`"), {"time": TIME})
            values |= {x: jnp.nan for x in names_in(formula) if x not in description.names and x in known}
            set_formula(name, formula, description.initial if network.before else description.assignments)
        inputs = [x for one in network.inputs for x in one.names]
        if not network.before:
            block = Block(_called(network))
            values |= {x: jnp.nan for one in network.inputs if one.arrays for x in one.names}
            values |= dict.fromkeys(network.weights, jnp.nan)
            for output, number in network.outputs.items():
                set_formula(output, (block, number, *inputs, *network.weights), description.assignments)
        for target, output in network.targets.items():
            if target in description.rates or (target in description.states and not network.before):
                if not network.before:
                    raise ValueError(f"`{target}` is a state of the model; it cannot be `{output}` at all times.")
                description.initial[target] = output
            elif target in description.names:
                set_formula(target, output, description.assignments)
            else:
                raise ValueError(f"the network `{network.name}` sets `{target}`, which is not part of the model.")
    return SBMLModel(description, values) if tables.networks else model


def start_ranges(tables: Tables) -> dict[str, tuple[float, float]]:
    """Returns the ranges of starts for parameters of networks."""
    nominal = {row.name: row.nominal for row in tables.parameters}
    found = {}
    for network in tables.networks:
        names = iter(network.weights)
        for _, _, array in named_arrays(network.module):
            for name in itertools.islice(names, array.size):
                middle = 0.0 if array.ndim > 1 or math.isnan(nominal[name]) else nominal[name]
                width = 1 / math.sqrt(math.prod(array.shape[1:])) if array.ndim > 1 else 0.0
                found[name] = (middle - width, middle + width)
    return found


class EvaluatedBefore(NamedTuple):
    """A network whose outputs are constants of each condition.

    Attributes:
        function: The network, of one vector.
        weights: The places of its weights among the numbers of the problem.
        start: Of the constants of a condition, the values at the start.
        inputs: For each argument the places of its elements in these, or its arrays of all conditions.
        results: The numbers of its results that are used.
        places: Their places among the constants.
    """

    function: Callable[[Array], Array]
    weights: np.ndarray
    start: FormulaProgram
    inputs: list[np.ndarray]
    results: np.ndarray
    places: np.ndarray

    def __call__(
        self, values: Float[Array, " pool"], constants: Float[Array, "conditions p"]
    ) -> Float[Array, "conditions p"]:
        """Returns the constants of each condition with the outputs."""
        weights = taken_from(values, self.weights)

        def one(constants: Array, *arrays: Array) -> Array:
            start, rest = self.start(constants), iter(arrays)
            inputs = [taken_from(start, x) if x.ndim == 1 else next(rest) for x in self.inputs]
            found = taken_from(self.function(jnp.concatenate([*inputs, weights])), self.results)
            return constants.at[self.places].set(found)

        return jax.vmap(one)(constants, *(jnp.asarray(x, values.dtype) for x in self.inputs if x.ndim == 2))


def evaluated_before(tables: Tables, conditions: Conditions, pool: Pool) -> list[EvaluatedBefore]:
    """Returns the networks that are evaluated before simulations."""
    found = []
    for network in (x for x in tables.networks if x.before):
        start = sbml_equations(conditions.model._static).initial
        inputs = [
            np.stack([_of_condition(one, name).ravel() for name in conditions.numbers]) if one.arrays
            else start.slots(one.names)
            for one in network.inputs
        ]  # fmt: skip
        used = [x for x in network.outputs if x in conditions.constants]
        found.append(
            EvaluatedBefore(
                _called(network), np.array([pool.places[x] for x in network.weights]), start, inputs,
                np.array([network.outputs[x] for x in used]), np.array([conditions.constants.index(x) for x in used]),
            )
        )  # fmt: skip
    return found
