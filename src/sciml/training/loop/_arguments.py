"""Checks of what `train` is given."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from ..._checks import check_count


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
            f"`loss` is called as `loss(model, batch, key)`, which this function does not allow: {error}. `batch` is "
            "None where `train` was given no data, and a loss that draws nothing ignores `key`."
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
        TypeError: If it is none.
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
    """Returns the names of what the loss returns beside itself.

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
    wants = "It must return one real number, or a pair of it and a dictionary of further ones."
    if (after is None) != (state is None) or jax.tree.structure(after) != jax.tree.structure(state):
        holds = "holds no `eqx.nn.State`" if state is None else "holds an `eqx.nn.State`"
        raise TypeError(
            f"`loss` returned {'none or another one' if state is not None else 'an `eqx.nn.State`'}, but the model "
            f"{holds}. Of a model with a state a loss returns the next one last: `(value, state)` or `(value, "
            "metrics, state)`."
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
    """Checks that one of `steps` and `epochs` says how long to train.

    Raises:
        ValueError: If none does, or both do.
        TypeError: If it is no integer.
    """
    if (steps is None) == (epochs is None):
        got = "neither" if steps is None else f"steps={steps!r} and epochs={epochs!r}"
        raise ValueError(f"`train` needs `steps` or `epochs`, which say how long to train, but got {got}.")
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
            "`patience` ends a training by its validation loss: give `validation`, such as data held back."
        )
    return check_count(patience, "patience", "train")


def check_callbacks(callbacks: Any) -> tuple[Callable, ...]:
    """Returns the callbacks.

    Raises:
        TypeError: If they are no sequence of functions.
    """
    if callable(callbacks) or not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise TypeError(
            f"`callbacks` must be a sequence of functions of a `sciml.training.TrainingRecord`, but got {callbacks!r}."
        )
    return tuple(callbacks)
