"""The one compiled step of a training: a batch, a gradient, an update of an optax optimiser."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..._same_code import filter_jit, first_of_same_code
from ..._types import Key
from .._selection import ParameterSelection
from ._placement import MeshPlacement

_STEADY = 1000
"""After how many finite gradients the factor of a loss in float16 is doubled."""

_LARGEST_SCALE = 2.0**15
"""The largest power of two in float16."""


class LossScale(NamedTuple):
    """The factor of a loss in float16, so that its gradient does not underflow.

    Attributes:
        factor: A power of two. It is halved where a gradient overflows, and doubled after many that do not.
        steady: How many steps have had finite gradients since it changed.
    """

    factor: Float[Array, ""]
    steady: Int[Array, ""]

    @classmethod
    def first(cls) -> "LossScale":
        """Returns the record of the first step."""
        return cls(jnp.float32(2.0**15), jnp.int32(0))

    def after(self, finite: Bool[Array, ""]) -> "LossScale":
        """Returns the record of the next step."""
        steady = jnp.where(finite, self.steady + 1, 0)
        grown = jnp.minimum(self.factor * 2, _LARGEST_SCALE)
        factor = jnp.where(finite, jnp.where(steady == _STEADY, grown, self.factor), jnp.maximum(self.factor / 2, 1))
        return LossScale(factor, jnp.where(steady == _STEADY, 0, steady))


class Weights(NamedTuple):
    """The part of a model that changes from step to step.

    Attributes:
        free: The free variables, as leaves of the model.
        carried: The arrays of its `eqx.nn.State`, such as running means; empty where it has none.
    """

    free: PyTree
    carried: tuple[Array, ...] = ()


class StepState(NamedTuple):
    """All that one step hands to the next.

    Attributes:
        free: The free variables, as leaves of the model.
        optimiser: The state of the optimiser.
        average: The moving average of the free variables, or None.
        step: The number of steps taken, those that changed nothing included.
        updates: The number of steps that changed the weights.
        bad_in_a_row: How many steps before this one gave NaN or infinity.
        halted: Whether these were too many; no step changes anything from then on.
        scaling: The factor of the loss, if it is computed in float16; otherwise None.
        carried: The arrays of the model's `eqx.nn.State`.
    """

    free: PyTree
    optimiser: PyTree
    average: PyTree
    step: Int[Array, ""]
    updates: Int[Array, ""]
    bad_in_a_row: Int[Array, ""]
    halted: Bool[Array, ""]
    scaling: LossScale | None = None
    carried: tuple[Array, ...] = ()

    @property
    def last(self) -> Weights:
        """The weights as the last step left them."""
        return Weights(self.free, self.carried)

    @property
    def judged(self) -> Weights:
        """The weights that are validated and handed back: their average, where there is one."""
        return self.last if self.average is None else Weights(self.average, self.carried)


class StepReport(NamedTuple):
    """The values of a step that the host receives.

    Attributes:
        numbers: The loss where the step began, the norm of its gradient, then the metrics of the loss in their order.
        finite: Whether the loss is finite, then the update, then the gradient by each trained leaf.
        taken: Whether this step was one: not after a halt.
    """

    numbers: Float[Array, " numbers"]
    finite: Bool[Array, " parts"]
    taken: Bool[Array, ""]


class Recipe(eqx.Module):
    """The static definition of a step, and the arrays that no step changes.

    Attributes:
        rest: The model without its trained leaves.
        selection: The trained leaves and their constraints.
        loss: `loss(model, batch, key)`, a number or a number and a dictionary of further ones.
        transformation: The optimiser.
        sample: `sample(key)` makes the batch within the step; None where the host brings it.
        placement: Over which devices a batch is spread.
        decay: Of the moving average of weights, or None.
        compute_dtype: The dtype of the model and of the batch in the loss, or None for their own.
        allowed: How many steps in a row may give NaN or infinity.
        layout: The placement of each array of the state, or None on one device.
        carries: The structure of the model's `eqx.nn.State`, or None without one.
    """

    rest: PyTree
    selection: ParameterSelection
    loss: Callable
    transformation: Any
    sample: Callable | None
    placement: MeshPlacement = eqx.field(static=True)
    decay: float | None = eqx.field(static=True)
    compute_dtype: Any = eqx.field(static=True)
    allowed: int = eqx.field(static=True)
    layout: Any = eqx.field(static=True, default=None)
    carries: Any = eqx.field(static=True, default=None)

    def model(self, weights: Weights) -> PyTree:
        """Returns the model with its trained leaves and its state."""
        model = self.selection.joined(self.rest, weights.free)
        return model if self.carries is None else with_state(model, jax.tree.unflatten(self.carries, weights.carried))

    def loss_of(self, model: PyTree, batch: PyTree, key: Key) -> tuple[Any, Any, Any]:
        """Returns the loss of a model, in float32 at least, its metrics, and the model's next state or None."""
        if self.compute_dtype is not None:
            model, batch = in_dtype((model, batch), self.compute_dtype)
        value, metrics, state = read_loss(self.loss(model, batch, key))
        if isinstance(value, float | np.generic | np.ndarray | jax.Array):
            value = jnp.asarray(value)
            value = value.astype(_of_32_bits(value.dtype))
        return value, metrics, state


def read_loss(out: Any) -> tuple[Any, Any, Any]:
    """Returns the loss, the metrics and the state from the result of a loss function."""
    parts, state = (list(out) if isinstance(out, tuple) else [out]), None
    if len(parts) > 1 and isinstance(parts[-1], eqx.nn.State):
        state = parts.pop()
    if len(parts) == 1:
        return parts[0], {}, state
    return (*parts, state) if len(parts) == 2 else (out, {}, state)


class _StatePlace(eqx.Module):
    """The position of an `eqx.nn.State` in a model."""


def without_state(model: PyTree) -> tuple[PyTree, Any]:
    """Returns a model with a placeholder instead of its `eqx.nn.State`, and that state, or None.

    Raises:
        ValueError: If it has several.
    """
    is_state = lambda x: isinstance(x, eqx.nn.State)  # noqa: E731
    found = [x for x in jax.tree.leaves(model, is_leaf=is_state) if is_state(x)]
    if len(found) > 1:
        raise ValueError(
            f"`train`: the model contains {len(found)} `eqx.nn.State` objects, but at most one is supported."
        )
    if not found:
        return model, None
    return jax.tree.map(lambda x: _StatePlace() if is_state(x) else x, model, is_leaf=is_state), found[0]


def with_state(model: PyTree, state: Any) -> PyTree:
    """Returns a model with its state in its place."""
    is_place = lambda x: isinstance(x, _StatePlace)  # noqa: E731
    return jax.tree.map(lambda x: state if is_place(x) else x, model, is_leaf=is_place)


def _of_32_bits(dtype: Any) -> Any:
    """Returns a floating-point dtype of at least 32 bits."""
    narrow = jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32
    return jnp.dtype(jnp.float32) if narrow else jnp.dtype(dtype)


def in_dtype(tree: PyTree, dtype: Any) -> PyTree:
    """Returns a PyTree whose real floating-point arrays have a dtype."""

    def cast(x: Any) -> Any:
        return x.astype(dtype) if eqx.is_array(x) and jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(cast, tree)


@filter_jit
def initial_state(recipe: Recipe, model: PyTree, carried: tuple[Array, ...]) -> StepState:
    """Returns the state before the first step."""
    free = recipe.selection.free(model)
    average = None
    if recipe.decay is not None:  # a weight of few bits does not notice a thousandth
        average = jax.tree.map(lambda x: x.astype(_of_32_bits(x.dtype)), free)
    optimiser = jax.tree.map(jnp.asarray, recipe.transformation.init(free))
    zero = jnp.int32(0)
    scaling = LossScale.first() if recipe.compute_dtype == jnp.float16 else None
    # copies, since a step is given its state's memory, and the model is the user's
    start = StepState(free, optimiser, average, zero, zero, zero, jnp.asarray(False), scaling, carried)
    return jax.tree.map(jnp.copy, start)


def one_step(recipe: Recipe, batch: PyTree, key: Key, state: StepState) -> tuple[StepState, StepReport]:
    """Takes one step."""
    import optax

    sample_key, loss_key = jax.random.split(jax.random.fold_in(key, state.step))
    if recipe.sample is not None:
        batch = recipe.placement.constrained(recipe.sample(sample_key))

    def objective(free):
        value, metrics, after = recipe.loss_of(recipe.model(Weights(free, state.carried)), batch, loss_key)
        return value, (metrics, state.carried if after is None else tuple(jax.tree.leaves(after)))

    value, (metrics, carried), gradient = _graded(objective, state)
    gradient = jax.tree.map(jnp.conj, gradient)  # by a complex number, JAX gives the conjugate of the way up
    update = optax.with_extra_args_support(recipe.transformation).update
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax mixes integers and floats
        extra = dict(value=value, grad=gradient, value_fn=lambda free: objective(free)[0])
        updates, optimiser = update(gradient, state.optimiser, state.free, **extra)
    moved = optax.apply_updates(state.free, updates)
    parts = [value, jax.tree.leaves(moved), *jax.tree.leaves(gradient)]
    finite = jnp.stack([_all_finite(part) for part in parts])
    good = jnp.all(finite) & ~state.halted

    def chosen(new, old):
        return jax.tree.map(lambda a, b: jnp.where(good, a.astype(b.dtype), b), new, old)

    free = chosen(moved, state.free)
    average = state.average
    if recipe.decay is not None:
        # the start counts less and less, so that no bias is left to correct (as TensorFlow's moving average does)
        count = state.updates.astype(jnp.result_type(float))
        decay = jnp.minimum(recipe.decay, (1 + count) / (10 + count))
        average = chosen(jax.tree.map(lambda a, x: _mixed(a, x, decay), average, free), average)
    scaling, forgiven = state.scaling, jnp.asarray(False)
    if scaling is not None:  # a gradient that overflows for its factor alone is tried again with half of it
        scaling, forgiven = scaling.after(jnp.all(finite[2:])), finite[0] & (scaling.factor > 1)
    bad_in_a_row = jnp.where(jnp.all(finite) | forgiven, 0, state.bad_in_a_row + 1)
    new = StepState(
        free=free,
        optimiser=chosen(optimiser, state.optimiser),
        average=average,
        step=state.step + (~state.halted).astype(jnp.int32),
        updates=state.updates + good.astype(jnp.int32),
        bad_in_a_row=jnp.where(state.halted, state.bad_in_a_row, bad_in_a_row),
        halted=state.halted | (bad_in_a_row > recipe.allowed),
        scaling=scaling,
        carried=chosen(jax.lax.stop_gradient(carried), state.carried),
    )
    if recipe.layout is not None:
        new = jax.lax.with_sharding_constraint(new, jax.tree.unflatten(jax.tree.structure(new), recipe.layout))
    dtype = max((jnp.finfo(x.dtype) for x in (value, *jax.tree.leaves(gradient))), key=lambda info: info.bits).dtype
    norm = jnp.sqrt(sum(jnp.sum(jnp.abs(x).astype(dtype) ** 2) for x in jax.tree.leaves(gradient)))
    numbers = jnp.stack([jnp.asarray(x).astype(dtype) for x in (value, norm, *metrics.values())])
    return new, StepReport(numbers, finite, ~state.halted)


def _graded(objective: Callable, state: StepState) -> tuple[Array, Any, PyTree]:
    """Returns the loss, what else the objective returns, and the gradient."""
    if state.scaling is None:
        (value, others), gradient = jax.value_and_grad(objective, has_aux=True)(state.free)
        return value, others, gradient
    factor = state.scaling.factor

    def scaled(free: PyTree) -> tuple[Array, tuple]:
        value, others = objective(free)
        return value * factor.astype(value.dtype), (value, others)

    (_, (value, others)), gradient = jax.value_and_grad(scaled, has_aux=True)(state.free)
    return value, others, jax.tree.map(lambda x: x / factor.astype(x.real.dtype), gradient)


def _mixed(average: Array, x: Array, decay: Array) -> Array:
    decay = decay.astype(average.dtype)
    return decay * average + (1 - decay) * x.astype(average.dtype)


def _all_finite(tree: PyTree) -> Bool[Array, ""]:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))


class _Static:
    """The parts of a recipe and a state that are not arrays, with a hash that is computed once for all calls."""

    def __init__(self, recipe: Recipe, treedef: Any):
        self.treedef = treedef
        leaves, self.rest = jax.tree.flatten(recipe)
        self.leaves = tuple(leaves)
        self._hash = hash((self.treedef, self.rest, self.leaves))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, _Static) or self._hash != other._hash:
            return False
        return (self.treedef, self.rest, self.leaves) == (other.treedef, other.rest, other.leaves)


def _flat_step(static: _Static, leaves: list, arrays: PyTree, batch: PyTree, key: Key) -> tuple[list, StepReport]:
    recipe = eqx.combine(arrays, jax.tree.unflatten(static.rest, static.leaves))
    state, report = one_step(recipe, batch, key, jax.tree.unflatten(static.treedef, leaves))
    return jax.tree.leaves(state), report


_jitted = jax.jit(_flat_step, static_argnums=0, donate_argnums=1)


class CompiledStep:
    """One step, compiled. It takes and returns states as lists of arrays, which costs Python the least time.

    Args:
        recipe: The definition of the step.
        state: A state, for its structure.
        key: Of all steps.
    """

    def __init__(self, recipe: Recipe, state: StepState, key: Key):
        self._arrays, static = eqx.partition(first_of_same_code(recipe), eqx.is_array)
        self._static = _Static(static, jax.tree.structure(state))
        self._key = key

    def __call__(self, batch: PyTree, leaves: list) -> tuple[list, StepReport]:
        """Takes a step; its results reuse the memory of `leaves`."""
        return _jitted(self._static, leaves, self._arrays, batch, self._key)

    def program(self, batch: PyTree, leaves: list) -> str:
        """Returns the text of the program, for a batch of which shapes are enough."""
        return _jitted.lower(self._static, leaves, self._arrays, batch, self._key).as_text()

    def state(self, leaves: list) -> StepState:
        """Returns a state of its arrays."""
        return jax.tree.unflatten(self._static.treedef, leaves)


@filter_jit
def evaluated(recipe: Recipe, batch: PyTree, key: Key, weights: Weights) -> Float[Array, ""]:
    """Returns the loss of a model in inference mode: without dropout, for instance."""
    return recipe.loss_of(eqx.nn.inference_mode(recipe.model(weights)), batch, key)[0]


@eqx.filter_jit
def copied(tree: PyTree) -> PyTree:
    """Returns new arrays of the same values, which no step is given the memory of."""
    return jax.tree.map(jnp.copy, tree)
