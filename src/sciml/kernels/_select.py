"""`select`: what runs a stencil or an ensemble, and why."""

from collections.abc import Callable, Mapping
from typing import Any

from jaxtyping import PyTree

from ._use import requested
from .ensemble._select import EnsembleSelection, select_ensemble
from .stencil._kernel import AbstractStencilKernel
from .stencil._select import StencilSelection, choose, choose_for_model
from .stencil._update import StencilUpdate


def select(
    what: StencilUpdate | Callable[..., PyTree],
    *args: PyTree,
    coefficients: Mapping[str, Any] | None = None,
    impl: str | AbstractStencilKernel | None = None,
    interpret: bool = False,
    steps_per_pass: int | None = None,
) -> StencilSelection | EnsembleSelection:
    """Returns whether a kernel or XLA runs an update, a model or the members of an ensemble, and the reason.

    It runs nothing. A kernel of stencils runs `evolve` with the same arguments, or the steps of a model that has a
    method `stencil`: the answer is for steps of one stage, such as `diffrax.Euler()`. A kernel of ensembles runs any
    other model in `solve` under `vmap`: it keeps each number of a member in a register for the whole integration, so
    the model must come down to operations on single numbers.

    | `impl` | program |
    |---|---|
    | `"auto"` | the kernel for this machine's platform, if it is correct and faster than XLA; else XLA |
    | `"xla"` | XLA; for an update without a rule for reverse mode |
    | `"pallas"` | the kernel for this machine's platform |
    | `"mosaic_gpu"`, `"mosaic_tpu"` | this kernel, on any machine; to see its limits |
    | an `AbstractStencilKernel` | your own kernel, for an update |

    The first time that `"auto"` could take a kernel it tries it, see `sciml.kernels.qualify`. If it refuses one on a
    machine that the kernel is for, the logger `sciml.kernels` gives the reason in one line: a warning that names the
    unsupported feature, or at the level `INFO` the result of the trial.

    Args:
        what: A `StencilUpdate`, or a model or function of one member, such as `f(t, y, args)`.
        args: The fields and the parameters of the update, or the arguments of the function; or their shapes and dtypes
            (`jax.ShapeDtypeStruct`).
        coefficients: The coefficients of an update by name.
        impl: See the table; by default the setting of the enclosing block of `kernels.use`, else "auto".
        interpret: Whether the kernel runs in JAX's interpreter, on any machine and slowly, to check it.
        steps_per_pass: The number of steps of a stencil kernel per pass over memory; without it, what `tune`
            found for such an update, or else the kernel's choice.

    Raises:
        ValueError: If there is no such `impl`, or a requested kernel cannot run it; the message lists what it supports.
        TypeError: If options of updates are given for an ensemble.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml import kernels

        chosen = kernels.select(sciml.models.Lorenz63(), 0.0, jnp.ones(3, jnp.float32), None)
        print(chosen.backend, "because", chosen.reason)

        update = kernels.stencil.StencilUpdate(lambda nb, p: nb("u") + p * (nb("u", 1, 0) - nb("u")))
        print(kernels.select(update, jnp.zeros((64, 64)), 0.1).backend)
        ```
    """
    request = requested(impl, interpret, by_name=True)
    if isinstance(what, StencilUpdate):
        state, params = (*args, None)[:2]
        return choose(request, what, state, params, coefficients=coefficients, steps_per_pass=steps_per_pass)
    if coefficients is not None or steps_per_pass is not None:
        raise TypeError("`coefficients` and `steps_per_pass` are options of a `StencilUpdate`, but got a function.")
    if callable(getattr(what, "stencil", None)):
        _, y, *_ = args
        return choose_for_model(request, what, y)
    return select_ensemble(what, *args, request=request)
