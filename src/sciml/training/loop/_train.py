"""`train`: chosen leaves of a model by any loss, over batches of data."""

import contextlib
import dataclasses
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import PyTree

from ..._checks import check_count, check_key
from ..._interfaces._horizon import Horizon
from ..._option_names import knows_other_names
from ..._progress import ProgressOption, check_progress, reporting
from ..._status import SolveError, Status
from ..._types import Key
from ..._warn import warn
from ...stores._abstract import AbstractStore
from ...stores._fingerprint import Part, program
from .._gradients_reach import HorizonOption, check_horizon, reach, status_within, warned_at_start
from .._selection import select
from ._batches import AbstractBatches, LoadedBatches, batches_of, is_loader, steps_in
from ._checkpoints import Checkpoints, Saved, store_of
from ._history import HistoryWriter, TrainingHistory
from ._placement import MeshPlacement, placement_of
from ._run import Ended, Host, TrainingPlan
from ._step import CompiledStep, Recipe, StepState, initial_state, without_state
from ._validation import Best, Validator


class Trained(eqx.Module):
    """A trained model; returned by `sciml.training.train`.

    Attributes:
        model: The model to use: the one with the lowest validation loss, or without validation, the one after the last
            step. With `average=` its weights are the averaged ones.
        last_model: The model after the last step, its weights not averaged.
        best_step: The number of steps after which `model` was taken.
        history: The losses of all steps and of all validations.
        status: `Status.successful`; `Status.nonfinite` where NaN or infinity ended it; `Status.beyond_horizon` where
            gradients do not reach to the end of the solution.
        n_steps: The number of steps taken.
        message: How it ended, in words.
        horizon: The time up to which gradients through the solution of `model` are meaningful, if it was requested;
            otherwise None.

    Example:
        ```python
        import jax.numpy as jnp
        import optax
        from sciml import training

        x = jnp.linspace(0.0, 1.0, 20)

        def loss(model, batch, key):
            x, y = batch
            return jnp.mean((model[0] + model[1] * x - y) ** 2)

        found = training.train(
            jnp.zeros(2), loss, (x, 1.0 + 2.0 * x), steps=300, optimiser=optax.adam(0.1), progress=False
        )
        print(found.message)
        assert found.history.loss[-1] < 0.01 * found.history.loss[0]
        ```
    """

    model: PyTree
    last_model: PyTree
    best_step: int = eqx.field(static=True)
    history: TrainingHistory
    status: Status = eqx.field(static=True)
    n_steps: int = eqx.field(static=True)
    message: str = eqx.field(static=True)
    horizon: Horizon | None = None

    def __str__(self) -> str:
        losses = self.history.loss
        if not len(losses):
            return self.message
        return f"loss {losses[0]:.6g} in the first step, {losses[-1]:.6g} in the last of {len(losses)}\n{self.message}"


def check_loss(loss: Any) -> None:
    """Checks that a loss can be called as it will be.

    Raises:
        TypeError: If not.
    """
    if not callable(loss):
        raise TypeError(
            f"`loss`, the second argument of `train`, must be a function `loss(model, batch, key)`, got "
            f"{type(loss).__name__}."
        )
    try:
        inspect.signature(loss).bind(None, None, None)
    except TypeError as error:
        raise TypeError(
            f"`loss` is called as `loss(model, batch, key)`, but its signature does not allow this: {error}. `batch` "
            "is None if `train` got no data, and a deterministic loss may ignore `key`."
        ) from None
    except ValueError:  # no signature to be had
        return


def check_outside(*trees: Any) -> None:
    """Checks that nothing is traced.

    Raises:
        TypeError: If something is.
    """
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees)):
        raise TypeError(
            "`train` was called under a JAX transform, but it is a host loop around a compiled step: call it outside "
            "of `jit`, `vmap` and `grad`."
        )


def as_transformation(optimiser: Any) -> Any:
    """Returns an optax optimiser; Adam where none is given.

    Raises:
        TypeError: If it is not one.
    """
    import optax  # takes a tenth of a second, which `import sciml` need not pay

    if optimiser is None:
        return optax.adam(1e-3)
    if isinstance(optimiser, optax.MultiSteps):
        return optimiser.gradient_transformation()
    if not isinstance(optimiser, optax.GradientTransformation):
        raise TypeError(f"`optimiser` must be an optax optimiser such as `optax.adam(1e-3)`, but got {optimiser!r}.")
    return optimiser


def metrics_of(loss_of: Callable, model: PyTree, state: Any, batch: PyTree, key: Any) -> tuple[str, ...]:
    """Returns the names of the values that the loss returns in addition to the loss.

    Args:
        loss_of: `loss(model, batch, key)`.
        model: The model.
        state: Its `eqx.nn.State`, or None.
        batch: A batch, of arrays or of their shapes.
        key: A key.

    Raises:
        TypeError: If it does not return a real number, or a pair of one and a dictionary of numbers; or no state where
            the model has one.
    """
    batch = jax.tree.map(_shape, batch)
    found, metrics, after = eqx.filter_eval_shape(loss_of, model, batch, key)
    wants = "It must return one real number, or a pair of one real number and a dictionary of metrics."
    if (after is None) != (state is None) or jax.tree.structure(after) != jax.tree.structure(state):
        holds = "holds no `eqx.nn.State`" if state is None else "holds an `eqx.nn.State`"
        raise TypeError(
            f"`loss` returned {'no state or a different one' if state is not None else 'an `eqx.nn.State`'}, but the "
            f"model {holds}. For a model with a state, a loss must return the next state last: `(value, state)` or "
            "`(value, metrics, state)`."
        )
    if not _is_number(found):
        raise TypeError(
            f"`loss` returned {_described(found)}. {wants} A mean over the batch is usual: `jnp.mean(...)`."
        )
    if not isinstance(metrics, dict) or not all(isinstance(name, str) for name in metrics):
        raise TypeError(f"`loss` returned a pair whose second part is {_described(metrics)}. {wants}")
    for name, value in metrics.items():
        if not _is_number(value, integers=True):
            raise TypeError(f"`loss` returned {_described(value)} for its metric `{name}`. {wants}")
    return tuple(metrics)


def _shape(x: Any) -> jax.ShapeDtypeStruct:
    on_host = isinstance(x, np.ndarray | np.generic)  # where there may be dtypes that JAX does without
    return jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype) if on_host else x.dtype)


def _is_number(x: Any, integers: bool = False) -> bool:
    if isinstance(x, bool | int | float):
        return isinstance(x, float) or integers
    if not isinstance(x, jax.ShapeDtypeStruct) or x.shape != ():
        return False
    return jnp.issubdtype(x.dtype, jnp.floating) or (integers and not jnp.issubdtype(x.dtype, jnp.complexfloating))


def _described(x: Any) -> str:
    if isinstance(x, jax.ShapeDtypeStruct):
        return f"an array of shape {x.shape} and dtype {x.dtype}"
    return f"a {type(x).__name__}"


def check_decay(average: Any) -> float | None:
    """Returns the decay of a moving average.

    Raises:
        ValueError: If it is not between 0 and 1.
    """
    if average is None:
        return None
    if isinstance(average, bool) or not isinstance(average, int | float) or not 0 < average < 1:
        raise ValueError(f"`average` must be a decay between 0 and 1, such as 0.999, but got {average!r}.")
    return float(average)


def check_compute_dtype(dtype: Any) -> Any:
    """Returns a dtype to compute losses in.

    Raises:
        ValueError: If it is not a floating-point dtype.
    """
    if dtype is None:
        return None
    try:
        found = jnp.dtype(dtype)
    except TypeError:
        raise ValueError(
            f"`compute_dtype` must be a floating-point dtype such as `jnp.bfloat16`, but got {dtype!r}."
        ) from None
    if not jnp.issubdtype(found, jnp.floating):
        raise ValueError(f"`compute_dtype` must be a floating-point dtype such as `jnp.bfloat16`, but got {found}.")
    return found


def check_length(steps: Any, epochs: Any) -> None:
    """Checks that exactly one of `steps` and `epochs` sets the length of the training.

    Raises:
        ValueError: If none does, or both do.
        TypeError: If it is not an integer.
    """
    if (steps is None) == (epochs is None):
        got = "neither" if steps is None else f"steps={steps!r} and epochs={epochs!r}"
        raise ValueError(f"`train` requires either `steps` or `epochs`, the length of the training, but got {got}.")
    for name, value in (("steps", steps), ("epochs", epochs)):
        if value is not None:
            check_count(value, name, "train")


def check_patience(patience: Any, validation: Any) -> int | None:
    """Returns the patience.

    Raises:
        ValueError: If there is nothing to validate on.
    """
    if patience is None:
        return None
    if validation is None:
        raise ValueError(
            "`patience` stops a training by its validation loss and requires `validation`, such as held-out data."
        )
    return check_count(patience, "patience", "train")


def check_callbacks(callbacks: Any) -> tuple[Callable, ...]:
    """Returns the callbacks.

    Raises:
        TypeError: If they are not a sequence of functions.
    """
    if callable(callbacks) or not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise TypeError(
            f"`callbacks` must be a sequence of functions of a record of the training, but got {callbacks!r}."
        )
    return tuple(callbacks)


@knows_other_names
def train(
    model: PyTree,
    loss: Callable[..., Any],
    data: Any = None,
    *,
    optimiser: Any = None,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    key: Key | None = None,
    where: Callable[[Any], Any] | None = None,
    positive: bool | Callable[[Any], Any] | None = None,
    bounds: Sequence = (),
    transforms: Sequence = (),
    validation: Any = None,
    check_every: int | None = None,
    patience: int | None = None,
    callbacks: Sequence[Callable] = (),
    skip_nonfinite: int = 0,
    average: float | None = None,
    compute_dtype: Any = None,
    mesh: Mesh | None = None,
    checkpoints: str | os.PathLike | AbstractStore | None = None,
    checkpoint_every: float = 60.0,
    resume: bool = True,
    horizon: HorizonOption = None,
    progress: ProgressOption = True,
    throw: bool = True,
) -> Trained:
    """Trains selected leaves of a model with an optax optimiser and any loss.

    `train` is for neural networks, neural differential equations and other problems that are not least-squares problems
    with few parameters, which `sciml.fit` solves in fewer steps. It is a host loop around one compiled step: call it
    outside of `jit` and `vmap`. A step updates its state in place, and the next batch is loaded while a step runs.

    The random key of step $s$, and its batch unless a loader provides it, depend only on `key` and $s$. Therefore
    results do not depend on interruptions, and on the number of devices only through rounding.

    Args:
        model: The model: any PyTree, such as an `eqx.Module` or a tuple of a module and an initial state.
        loss: `loss(model, batch, key)`, which returns one real number, or a pair of one real number and a dictionary of
            metrics for the history. The key is for random parts of the loss, such as dropout. If the model contains an
            `eqx.nn.State`, as a pair of a network and its state, the loss returns the next state last.
        data: A PyTree of arrays with equal first axes, whose rows are shuffled in every epoch and split into batches
            (without `batch_size` every batch is all data, which may then contain scalars); a function `data(key)` that
            returns a batch and is compiled into the step; or a loader, an iterable of batches (PyTrees of arrays),
            which is iterated once per epoch. None if `loss` needs no data.
        optimiser: An optax optimiser, `optax.adam(1e-3)` by default. It gets the gradient with respect to the free
            variables, as a PyTree like the model with None for leaves that are not trained. Use optax for schedules,
            gradient clipping (`optax.clip_by_global_norm`), weight decay, gradient accumulation (`optax.MultiSteps`)
            and line searches.
        steps: The number of steps.
        epochs: The number of passes over the data, instead of `steps`.
        batch_size: The number of rows in a batch; None uses all rows.
        key: A random key; `jax.random.key(0)` by default.
        where: Selects the leaves (or subtrees) to train, as in `eqx.tree_at`. None trains every floating-point array,
            including complex ones.
        positive: Selects the trained leaves that must stay positive, or True for all of them. The optimiser works on
            their logarithms.
        bounds: Tuples `(selector, lower, upper)`, as for `sciml.fit`.
        transforms: Tuples `(selector, transform)`, as for `sciml.fit`.
        validation: Validation data: like `data`, split into pieces of `batch_size`, or a loader. The validation loss is
            the loss of `eqx.nn.inference_mode(model)` with one key for all pieces. It may also be a function
            `validation(model)` that returns a number and is called from Python.
        check_every: The number of steps between two checks, which validate the model and call the callbacks. The
            default is one epoch, or a hundredth of all steps if that is more. The last step is always checked.
        patience: Early stopping: the training ends when this number of validations in a row did not improve on the
            best.
        callbacks: Functions of a `TrainingRecord`, called from Python at every check. A callback that
            returns True ends the training. `sciml.training.CSVLog` and `TensorBoardLog` are such functions.
        skip_nonfinite: The number of steps in a row that may give NaN or infinity in the loss, its gradient or the
            update. Such a step changes nothing, and the next batch is tried. One more of them ends the training.
        average: The decay of a moving average of the free variables, such as 0.999. The averaged model is validated and
            returned. In the first steps the decay is smaller, $(1 + s)/(10 + s)$.
        compute_dtype: The dtype of the floating-point arrays of the model and the batch within the loss, such as
            `jnp.bfloat16`. Weights, optimiser state and loss keep their dtypes. With `jnp.float16`, whose range is 6e-8
            to 65504, the loss is scaled by a power of two before differentiation. The scale is halved when a gradient
            overflows (that step changes nothing) and doubled after a thousand steps without overflow.
        mesh: Devices, such as `sciml.parallel.mesh()`. Batches are split over its first axis, whose size must divide
            `batch_size`. Weights are replicated, unless they are already sharded on this mesh. The default is the mesh
            set by `jax.set_mesh`, the mesh of sharded weights or data, or one device.
        checkpoints: A folder for checkpoints, or a store, such as `sciml.stores.OrbaxStore(path)` for sharded weights.
            Repeating the same call resumes from the last checkpoint with bitwise identical results (up to rounding on
            other devices). A call with more steps or epochs continues the finished training.
        checkpoint_every: The seconds between two checkpoints; 0 for one after every step. The end is always stored.
        resume: Whether to continue the training in the store. If False, a store that already contains a training raises
            an error.
        horizon: A function of the model that returns `sciml.inspect.horizon(...)` of its solution, over the interval
            that the loss uses. It is evaluated before the first and after the last step; `train` warns if gradients
            become meaningless before the end of the solution.
        progress: Whether to show a progress bar, or a function that is called with a `Progress` twice a second.
        throw: Whether to raise an error if NaN or infinity ends the training; otherwise check `Trained.status`.

    Returns:
        A `Trained`: the best model, the last model, and the history.

    Raises:
        ValueError: If nothing is selected, an initial value is outside of its range, the shapes of the data do not
            fit the batches or devices, or an argument is invalid.
        TypeError: If an argument has the wrong type, `loss` does not return a number, or `train` is called under a
            transform.
        StoreError: If checkpoints cannot be written, or belong to another training; the message lists the differences.
        SolveError: If NaN or infinity ends the training and `throw` is set; the message names the step and the cause.

    Warns:
        UserWarning: If the solution extends beyond its `horizon`.

    Source:
        The averaged weights: B. T. Polyak and A. B. Juditsky, SIAM J. Control Optim. 30:838, 1992. Constrained leaves
        are changes of variables, as in `sciml.fit`.

    Example:
        ```python
        import equinox as eqx
        import jax
        import jax.numpy as jnp
        import optax
        from sciml import training

        x = jnp.linspace(-1.0, 1.0, 64)[:, None]
        model = eqx.nn.MLP(1, 1, 16, 1, activation=jnp.tanh, key=jax.random.key(0))

        def loss(model, batch, key):
            x, y = batch
            return jnp.mean((jax.vmap(model)(x) - y) ** 2)

        found = training.train(
            model, loss, (x, x**2), optimiser=optax.adam(1e-2), epochs=100, batch_size=16, progress=False
        )
        assert found.n_steps == 400 and found.history.loss[-1] < 0.1 * found.history.loss[0]
        ```
    """
    check_loss(loss)
    check_progress(progress, where="train")
    check_horizon(horizon, "train")
    check_outside(model, None if is_loader(data) else data, key)
    check_length(steps, epochs)
    callbacks = check_callbacks(callbacks)
    warned_at_start(horizon, model, "train")
    root: Any = jax.random.key(0) if key is None else check_key(key, "train")
    size = None if batch_size is None else check_count(batch_size, "batch_size", "train")
    placement = placement_of(mesh, model, None if is_loader(data) else data)
    with _on_mesh(placement), contextlib.ExitStack() as locks:
        given, model, root = model, jax.tree.map(_as_array, placement.weights(model)), placement.weights(root)
        whole, (model, stateful) = model, without_state(model)
        model, selection = select(model, where, positive, bounds, transforms, kinds="complex")
        data_key, step_key, validation_key = (jax.random.fold_in(root, i) for i in range(3))
        source = batches_of(data, size, epochs, data_key, placement.parts)
        total = steps if steps is not None else steps_in(int(epochs or 0), source)
        recipe = Recipe(
            rest=selection.rest(model),
            selection=selection,
            loss=loss,
            transformation=as_transformation(optimiser),
            sample=source.sample,
            placement=placement,
            decay=check_decay(average),
            compute_dtype=check_compute_dtype(compute_dtype),
            allowed=_check_allowed(skip_nonfinite),
            carries=None if stateful is None else jax.tree.structure(stateful),
        )
        plan = TrainingPlan(
            total, _cadence(check_every, source, total), check_patience(patience, validation), callbacks
        )
        metrics = metrics_of(recipe.loss_of, whole, stateful, source.example(), root)
        parts = ("the loss", "the update", *(f"the gradient with respect to `{path}`" for path in selection.paths))
        history = HistoryWriter(metrics, parts)
        recipe, state = _started(recipe, model, tuple(jax.tree.leaves(stateful)))
        saved, writer = Saved(state, Best(), None), None
        if checkpoints is not None:
            depends_on = dict(
                model=whole, loss=loss, data=_identity(data), optimiser=recipe.transformation, batch_size=size,
                key=root, transforms=selection, validation=_identity(validation), check_every=check_every,
                skip_nonfinite=recipe.allowed, average=recipe.decay, compute_dtype=str(recipe.compute_dtype),
            )  # fmt: skip
            compiled = _program(recipe, source, state, step_key)
            writer = Checkpoints(store_of(checkpoints), _check_seconds(checkpoint_every), resume, depends_on, compiled)
            is_over = lambda saved: plan.left(saved, history.steps) == 0  # noqa: E731
            saved = writer.resumed(state, state.judged, history, locks, is_over) or saved
        validator = Validator(recipe, validation, size, validation_key)
        with reporting(progress, total, unit="step", name="train", done=history.steps) as report:
            try:
                ended = Host(recipe, source, step_key, plan, validator, history, writer, report).run(saved)
            except KeyboardInterrupt as stop:
                if writer is not None and (kept := writer.kept()):
                    stop.add_note(kept)
                raise
        found = _result(recipe, ended, plan, history, given, data, throw)
        return found if horizon is None else _within(horizon, found)


def _as_array(leaf: Any) -> Any:
    numeric = isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "biufc"
    return jnp.asarray(leaf) if numeric else leaf


def _identity(data: Any) -> Any:
    """Returns the identity of data in a checkpoint: of a loader its class's name, since it may read large files."""
    return type(data).__qualname__ if is_loader(data) else data


def _program(recipe: Recipe, source: AbstractBatches, state: StepState, key: Key) -> Part:
    """Returns the program of a step as a part of the fingerprint; a loader may begin with a batch of another shape."""
    batch = None if recipe.sample is not None else jax.tree.map(_shape_of, source.example())
    text = CompiledStep(recipe, state, key).program(batch, jax.tree.leaves(state))
    return program(text, shapes=str(jax.tree.leaves(batch)) if isinstance(source, LoadedBatches) else "")


def _shape_of(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, jax.dtypes.canonicalize_dtype(x.dtype)) if isinstance(x, np.ndarray) else x


@contextlib.contextmanager
def _on_mesh(placement: MeshPlacement) -> Iterator[None]:
    """Within `jax.set_mesh`, the mesh with its axes automatic; otherwise the placement follows from the arrays."""
    if placement.mesh is None or jax.sharding.get_abstract_mesh().empty:
        yield
        return
    with jax.set_mesh(placement.mesh):
        yield


def _started(recipe: Recipe, model: PyTree, carried: tuple) -> tuple[Recipe, StepState]:
    """Returns the state before the first step, and the recipe with the placement of its arrays."""
    state = initial_state(recipe, model, carried)
    if recipe.placement.mesh is None:
        return recipe, state
    layout = recipe.placement.layout(state, recipe.selection.picked(model))
    state = jax.device_put(state, layout)
    shardings = tuple(jax.tree.leaves(layout))
    return Recipe(**{**vars(recipe), "layout": shardings}), state


def _check_allowed(skip_nonfinite: Any) -> int:
    if isinstance(skip_nonfinite, bool) or not isinstance(skip_nonfinite, int) or skip_nonfinite < 0:
        raise ValueError(f"`skip_nonfinite` must be a nonnegative number of steps, but got {skip_nonfinite!r}.")
    return skip_nonfinite


def _check_seconds(checkpoint_every: Any) -> float:
    if not checkpoint_every >= 0:
        raise ValueError(f"`checkpoint_every` must be a nonnegative number of seconds, but is {checkpoint_every}.")
    return float(checkpoint_every)


def _cadence(check_every: Any, source: AbstractBatches, total: int | None) -> int:
    """Returns the number of steps between two checks."""
    if check_every is not None:
        return check_count(check_every, "check_every", "train")
    epoch = round(source.epoch_steps or 1)
    return max(1, epoch, (total or 10_000) // 100)


def _result(
    recipe: Recipe,
    ended: Ended,
    plan: TrainingPlan,
    history: HistoryWriter,
    given: PyTree,
    data: Any,
    throw: bool,
) -> Trained:
    state, best = ended.state, ended.best
    halted, n = bool(state.halted), history.steps
    status = Status.nonfinite if halted else Status.successful
    message = _message(ended, plan, history, halted) + (_missing(data) if halted else "")
    if halted and throw:
        raise SolveError(f"`train`: {message}", np.asarray(int(status)))
    weights = state.judged if best.weights is None else best.weights
    return Trained(
        model=recipe.placement.returned(recipe.model(weights), given),
        last_model=recipe.placement.returned(recipe.model(state.last), given),
        best_step=n if best.weights is None else best.step,
        history=history.history(),
        status=status,
        n_steps=n,
        message=message,
    )


def _within(horizon: HorizonOption, trained: Trained) -> Trained:
    """Returns the result, with whether gradients reach to the end of the solution."""
    found, beyond = reach(horizon, trained.model, "train")
    if beyond:
        warn(f"`train`: {beyond}")
    message = f"{trained.message} {beyond}" if beyond else trained.message
    return dataclasses.replace(trained, horizon=found, message=message, status=status_within(found, trained.status))


def _missing(data: PyTree) -> str:
    """Returns how many numbers of arrays are NaN, in words."""
    arrays = [] if is_loader(data) or callable(data) else jax.tree.leaves(data)
    counts = [int(jnp.sum(jnp.isnan(x))) for x in arrays if eqx.is_inexact_array_like(x)]
    count = sum(counts)
    return f" The data contain {count} NaN: mask missing values in `loss` with `jnp.where`." if count else ""


def _message(ended: Ended, plan: TrainingPlan, history: HistoryWriter, halted: bool) -> str:
    n, best = history.steps, ended.best
    skipped = len(history.skipped)
    if halted:
        rows = "" if skipped == 1 else f", and {skipped - 1} of the steps before"
        return (
            f"Step {n - 1} gave NaN or infinity in {history.blame()}{rows}; the returned weights are from before this "
            "step. Lower the learning rate, clip gradients (`optax.clip_by_global_norm`), constrain parameters with "
            "`positive` or `bounds`, or skip such steps (`skip_nonfinite`)."
        )
    if ended.stopped:
        words = f"A callback ended the training after {n} steps."
    elif plan.out_of_patience(best):
        words = f"The training ended after {n} steps, since the last {best.stale} validations did not improve."
    elif plan.steps is not None and n < plan.steps:
        words = f"The loader ended after {n} of {plan.steps} steps."
    else:
        words = f"Took {n} steps."
    if best.weights is not None:
        words += f" The lowest validation loss, {best.value:.6g}, was reached after {best.step} steps."
    if skipped:
        shown = ", ".join(map(str, history.skipped[:5])) + (", ..." if skipped > 5 else "")
        words += (
            f" {skipped} steps were skipped because of NaN or infinity, the last one in {history.blame()}: {shown}."
        )
    return words
