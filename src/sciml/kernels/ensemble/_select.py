"""`select`: which way an ensemble runs, and why."""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._backends import INTERPRETED, Tested, kernel_for, log_once, log_untested
from .._use import asked
from ._flat import NotHeldError, flatten
from ._run import launcher_of

TESTED: Tested = {}
"""Where kernels run without being asked; empty as long as no table of `python -m benchmarks.gpu` stands beside it."""

_WHAT = "an ensemble"

HOLDS = (
    "The kernel takes models that act element by element on small real states, float32 and on GPUs float64, with "
    "indices that are known when the model is traced and no loops of unknown length, explicit Runge-Kutta and "
    "Rosenbrock methods, and `Checkpointed` or `Forward` as adjoint; `impl='auto'` and `'xla'` take everything."
)


class Selection(NamedTuple):
    """Which way an ensemble runs.

    Attributes:
        way: `"xla"`, `"mosaic_gpu"` or `"mosaic_tpu"`.
        reason: Why, in words.
        interpreted: Whether the kernel is interpreted by XLA instead of compiled.
        body: The kernel; None for `"xla"`.
    """

    way: str
    reason: str
    interpreted: bool = False
    body: Any = None


def select(model: Callable[..., PyTree], *args: PyTree, impl: str | None = None) -> Selection:
    """Says whether a kernel can hold a model of one member, and which way `solve(impl=...)` would run it under `vmap`.

    It runs nothing. A kernel holds a member's numbers in registers, one in each, and the whole integration of the
    member with them: what the model does must come down to operations on single numbers.

    | `impl` | what runs |
    |---|---|
    | `"auto"` | a kernel where the platform, its kind of device and the version of JAX are tested; else XLA |
    | `"xla"` | XLA |
    | `"pallas"` | the kernel for this machine's platform |
    | `"mosaic_gpu"`, `"mosaic_tpu"` | this kernel, to be compiled for such a machine |
    | `"interpret_gpu"`, `"interpret_tpu"` | the body of this kernel, run by XLA on any machine, to check it |
    | `"interpret"` | `"interpret_gpu"` |

    Where `"auto"` turns a kernel down on a machine that it is for, the logger `sciml.kernels` says so in one line: a
    warning that names the primitive that the kernel cannot hold, or for information that the machine is not tested.

    Args:
        model: A function of one member, such as `f(t, y, args)`.
        args: Its arguments, or their shapes and dtypes (`jax.ShapeDtypeStruct`).
        impl: See the table; without it, what the block of `kernels.use` says that the call stands in, else "auto".

    Raises:
        ValueError: If there is no such `impl`, or a kernel that was asked for cannot hold the model; the message says
            what it can.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml.kernels import ensemble

        chosen = ensemble.select(sciml.models.Lorenz63(), 0.0, jnp.ones(3, jnp.float32), None)
        print(chosen.way, "because", chosen.reason)
        ```
    """
    numbers, rest = eqx.partition((model, args), _is_number)
    numbers = jax.tree.map(_struct, numbers)

    def function(numbers):
        model, args = eqx.combine(numbers, rest)
        return model(*args)

    def build(kernel: str) -> Any:
        return flatten(function, numbers, lanes=launcher_of(kernel).LANES, kernel=kernel)

    return choose(build, asked(impl))


def choose(build: Callable[[str], Any], impl: str) -> Selection:
    """Returns the way for a kernel that `build(name)` makes, or refuses by a `NotHeldError`; see `select`."""
    kernel, reason = kernel_for(impl, TESTED)
    if kernel is None:
        log_untested(_WHAT, impl, reason)
        return Selection("xla", reason)
    try:
        body = build(kernel)
    except NotHeldError as error:
        if impl != "auto":
            raise ValueError(f"`impl={impl!r}` cannot run this ensemble: {error}. {HOLDS}") from error
        log_once(_WHAT, str(error), logging.WARNING)
        return Selection("xla", str(error))
    return Selection(kernel, reason, impl in INTERPRETED, body)


def wanted(impl: str) -> bool:
    """Returns whether a kernel is asked for, or taken on this machine.

    Raises:
        ValueError: If there is no such `impl`, or none for this machine.
    """
    return kernel_for(impl, TESTED)[0] is not None


def _is_number(x: Any) -> bool:
    return isinstance(x, float | complex) or hasattr(x, "dtype")


def _struct(x: Any) -> jax.ShapeDtypeStruct:
    x = x if hasattr(x, "dtype") else jnp.asarray(x)
    return jax.ShapeDtypeStruct(x.shape, x.dtype)
