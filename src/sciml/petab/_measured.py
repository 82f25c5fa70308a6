"""Measurements: observables and their noise as functions of states, and the probability of the data."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..models.networks._formulas import Formula, names_in, renamed, suggestion
from ..models.networks._parse import parse_text
from ..models.networks._program import FormulaProgram, needed, ordered, taken_from
from ..models.networks._sbml_equations import sbml_equations
from ..models.networks._sbml_math import TIME
from ._parameters_of import Conditions, Pool
from ._tables import Observable, Tables

_PLACEHOLDER = re.compile(r"(observable|noise)Parameter(\d+)_(\w+)")


class MeasuredObservable(NamedTuple):
    """All measurements of one observable.

    Attributes:
        observable: Its row in the table.
        rows: The indices of these measurements.
        program: Of a row of states, the time, constants, parameters, and what stands for its own parameters.
        slots: The positions of prediction and noise among the results.
        places: The positions of its own parameters in the problem's vector, of shape `(measurements, parameters)`.
    """

    observable: Observable
    rows: np.ndarray
    program: FormulaProgram
    slots: np.ndarray
    places: np.ndarray


class Predicted(NamedTuple):
    """Predictions for measurements.

    Attributes:
        value: The prediction of the model.
        noise: The scale of the noise.
    """

    value: Float[Array, " measurements"]
    noise: Float[Array, " measurements"]


def measured(tables: Tables, conditions: Conditions, pool: Pool) -> list[MeasuredObservable]:
    """Returns the measurements by their observables.

    Raises:
        ValueError: If a formula names what there is not, or a measurement gives too few parameters.
    """
    found = []
    for name, observable in tables.observables.items():
        rows = [i for i, m in enumerate(tables.measurements) if m.observable == name]
        if rows:
            found.append(_one(tables, conditions, pool, observable, np.array(rows)))
    known = set(tables.observables)
    if wrong := [m.observable for m in tables.measurements if m.observable not in known]:
        raise ValueError(
            f"a measurement refers to `{wrong[0]}`, which is not an observable.{suggestion(wrong[0], known)}"
        )
    return found


def _one(
    tables: Tables, conditions: Conditions, pool: Pool, observable: Observable, rows: np.ndarray
) -> MeasuredObservable:
    name = observable.name
    model, formulas = conditions.model, sbml_equations(conditions.model._static).formulas
    prediction = _read(observable.formula, f"the observable `{name}`")
    noise = _read(observable.noise, f"the noise of `{name}`")
    inputs = [*model.states, TIME, *conditions.constants]
    known = {*inputs, *formulas}
    if name not in known:
        noise = renamed(noise, {name: prediction})  # noise may be a share of what is observed
    own = [n for n in dict.fromkeys([*names_in(prediction), *names_in(noise)]) if _is_own(n, name)]
    used = {*names_in(prediction), *names_in(noise)}
    parameters = [n for n in pool.places if n not in known and n in used]
    for formula, what in ((prediction, "observable"), (noise, "noise of the observable")):
        for other in names_in(formula):
            if other not in known and other not in own and other not in parameters:
                names = [*known, *pool.places]
                raise ValueError(
                    f"the {what} `{name}` contains `{other}`, which is not part of the model or the parameters."
                    f"{suggestion(other, names)}"
                )
    places = np.zeros((len(rows), len(own)), np.int64)
    for j, placeholder in enumerate(own):
        kind, number = _PLACEHOLDER.fullmatch(placeholder).group(1, 2)  # type: ignore[union-attr]
        for i, row in enumerate(rows):
            measurement = tables.measurements[row]
            values = measurement.parameters if kind == "observable" else measurement.noise
            if len(values) < int(number):
                raise ValueError(f"a measurement of `{name}` does not provide a value for `{placeholder}`.")
            places[i, j] = pool.place(values[int(number) - 1], f"`{placeholder}`")
    results: dict[str, Formula] = {"the prediction": ("*", prediction, 1.0), "the noise": ("*", noise, 1.0)}
    used = needed(results.values(), formulas)
    program = FormulaProgram([*inputs, *parameters, *own], ordered(used | results))
    return MeasuredObservable(observable, rows, program, program.slots(list(results)), places)


def _read(text: str, what: str) -> Formula:
    return renamed(parse_text(text, what), {"time": TIME})


def _is_own(name: str, observable: str) -> bool:
    found = _PLACEHOLDER.fullmatch(name)
    return found is not None and found[3] == observable


def predicted(
    observables: Sequence[MeasuredObservable],
    states: Float[Array, "measurements n"],
    times: Float[np.ndarray, " measurements"],
    constants: Float[Array, "measurements constants"],
    values: Float[Array, " pool"],
    parameters: Sequence[str],
) -> Predicted:
    """Returns predictions for all measurements, in their order."""
    results, order = [], []
    place = {name: i for i, name in enumerate(parameters)}
    for one in observables:
        count = len(one.rows)
        first = states.shape[1] + 1 + constants.shape[1]
        names = one.program.inputs[first : len(one.program.inputs) - one.places.shape[1]]
        shared = taken_from(values, np.array([place[name] for name in names], np.int64))
        at = jnp.asarray(np.where(np.isfinite(times[one.rows]), times[one.rows], 0.0), states.dtype)
        inputs = jnp.concatenate(
            [
                states[one.rows],
                at[:, None],
                constants[one.rows],
                jnp.broadcast_to(shared[None], (count, len(names))),
                values[one.places],
            ],
            axis=1,
        )
        results.append(jax.vmap(lambda row, one=one: taken_from(one.program(row), one.slots))(inputs))
        order.append(one.rows)
    back = np.argsort(np.concatenate(order))
    found = jnp.concatenate(results)[back]
    return Predicted(found[:, 0], found[:, 1])


class Noise(NamedTuple):
    """The noise of each measurement.

    Attributes:
        scale: 0 for noise on the quantity, 1 on its logarithm, 2 on that to base ten.
        laplace: Whether it is Laplace's.
    """

    scale: np.ndarray
    laplace: np.ndarray


def noise_of(tables: Tables) -> Noise:
    """Returns which noise the measurements have."""
    rows = [tables.observables[m.observable] for m in tables.measurements]
    scale = np.array([("lin", "log", "log10").index(o.scale) for o in rows])
    return Noise(scale, np.array([o.distribution == "laplace" for o in rows]))


def log_probability(
    noise: Noise, prediction: Predicted, data: Float[Array, " measurements"]
) -> Float[Array, " measurements"]:
    r"""Returns the logarithm of the density of each measurement.

    $$-\tfrac12 \log(2 \pi \sigma^2) - \tfrac12 \left(\frac{g(d) - g(m)}{\sigma}\right)^2 + \log g'(d), \qquad
    -\log(2 \sigma) - \left|\frac{g(d) - g(m)}{\sigma}\right| + \log g'(d)$$

    with $g$ the scale on which there is noise.
    """
    distance = residual(noise, prediction, data)
    sigma = prediction.noise
    normal = -0.5 * math.log(2 * math.pi) - jnp.log(sigma) - 0.5 * distance**2
    laplace = -jnp.log(2 * sigma) - jnp.abs(distance)
    found = jnp.where(noise.laplace, laplace, normal) if noise.laplace.any() else normal
    if not noise.scale.any():
        return found
    known = jnp.where(noise.scale > 0, data, jnp.ones_like(data))
    return found - jnp.log(known) - jnp.where(noise.scale == 2, math.log(math.log(10.0)), 0.0).astype(found.dtype)


def residual(noise: Noise, prediction: Predicted, data: Float[Array, " measurements"]) -> Array:
    """Returns the difference between each measurement and the model's prediction, in units of its noise."""
    difference = on_scale(noise, data) - on_scale(noise, prediction.value)
    return difference / prediction.noise


def on_scale(noise: Noise, values: Float[Array, " measurements"]) -> Array:
    """Returns values on the scale on which they have noise."""
    if not noise.scale.any():
        return values
    logarithmic = noise.scale > 0
    # the logarithm of what needs none must not make derivatives NaN
    logs = jnp.log(jnp.where(logarithmic, values, jnp.ones_like(values)))
    factor = jnp.asarray(np.where(noise.scale == 2, 1 / math.log(10.0), 1.0), values.dtype)
    return jnp.where(logarithmic, logs * factor, values)
