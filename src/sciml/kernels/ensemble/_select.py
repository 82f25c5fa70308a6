"""The backend of an ensemble, and the reason."""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._backends import KernelRequest, kernel_for, log_once, log_refused
from ._flat import NotSupportedError, flatten
from ._run import launcher_of
from ._trial import trial

_WHAT = "an ensemble"

HOLDS = (
    "The kernel supports models that act element by element on small real states (float32, on GPUs also float64), "
    "with constant indices and no loops of unknown length; explicit Runge-Kutta, Rosenbrock and fixed-step "
    "stochastic methods; and the adjoints `Checkpointed` and `Forward`. `impl='auto'` and `'xla'` support "
    "everything."
)


class EnsembleSelection(NamedTuple):
    """The backend of an ensemble.

    Attributes:
        backend: `"xla"`, `"mosaic_gpu"` or `"mosaic_tpu"`.
        reason: Why, in words.
        interpreted: Whether the kernel runs in JAX's interpreter instead of being compiled.
        body: The kernel; None for `"xla"`.
    """

    backend: str
    reason: str
    interpreted: bool = False
    body: Any = None


def select_ensemble(model: Callable[..., PyTree], *args: PyTree, request: KernelRequest) -> EnsembleSelection:
    """Returns what runs a model of one member under `vmap`; see `kernels.select`."""
    numbers, rest = eqx.partition((model, args), _is_number)
    numbers = jax.tree.map(_struct, numbers)

    def function(numbers):
        model, args = eqx.combine(numbers, rest)
        return model(*args)

    def build(kernel: str) -> Any:
        return flatten(function, numbers, lanes=launcher_of(kernel).lanes, kernel=kernel)

    return choose(build, request)


def choose(build: Callable[[str], Any], request: KernelRequest) -> EnsembleSelection:
    """Returns what runs, of kernels that `build(name)` makes or refuses by a `NotSupportedError`."""
    kernel, reason = kernel_for(request, trial)
    if kernel is None:
        log_refused(_WHAT, request, reason)
        return EnsembleSelection("xla", reason)
    try:
        body = build(kernel)
    except NotSupportedError as error:
        if request.impl != "auto":
            raise ValueError(f"`{request}` cannot run this ensemble: {error}. {HOLDS}") from error
        log_once(_WHAT, str(error), logging.WARNING)
        return EnsembleSelection("xla", str(error))
    return EnsembleSelection(kernel, reason, request.interpret, body)


def wanted(request: KernelRequest) -> bool:
    """Returns whether a kernel is requested, or used on this machine.

    Raises:
        ValueError: If there is none for this machine.
    """
    return kernel_for(request, trial)[0] is not None


def _is_number(x: Any) -> bool:
    return isinstance(x, float | complex) or hasattr(x, "dtype")


def _struct(x: Any) -> jax.ShapeDtypeStruct:
    x = x if hasattr(x, "dtype") else jnp.asarray(x)
    return jax.ShapeDtypeStruct(x.shape, x.dtype)
