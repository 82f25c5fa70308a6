"""`evolve`: many steps of a stencil update, by XLA or the kernel that `select` chooses, and with a gradient."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from ..._jax._checkpointed_scan import checkpointed_scan
from ..._jax._vma import promote
from .._backends import XLA, KernelRequest
from .._use import requested
from ._closure import closure_converted
from ._kernel import AbstractStencilKernel
from ._run import StencilRun, passes_of
from ._select import choose
from ._update import StencilUpdate, as_params, without_periodic


def evolve(
    update: StencilUpdate,
    state: PyTree,
    n_steps: int,
    params: PyTree = None,
    *,
    coefficients: Mapping[str, Any] | None = None,
    impl: str | AbstractStencilKernel | None = None,
    interpret: bool = False,
    steps_per_pass: int | None = None,
) -> PyTree:
    r"""Runs an update over a number of steps.

    Reverse mode has a rule of its own. It keeps about $2 \sqrt n$ states of $n$ steps, those at the starts of
    segments and those of one segment at a time, runs every segment twice, and derives each step by a
    stencil over the cotangents, which XLA runs. Where the update is linear in the fields and neither parameters nor
    coefficients are differentiated, it keeps none and runs nothing twice; if all axes are periodic too, a kernel that
    can run the transpose goes backwards as it goes forwards.

    Args:
        update: The update.
        state: The fields, of one to three axes, those of the grid: an array where there is one field, else a tuple in
            the order of `update.fields`, or a mapping by name. `jax.vmap` runs members.
        n_steps: The number of steps.
        params: What `update.fn` takes beside neighbours, a PyTree. Its floating-point numbers take the dtype of the
            fields.
        coefficients: The fields named in `update.coefficients`, by name.
        impl: What runs: `"auto"`, `"xla"`, `"pallas"` or a kernel of one's own, see `select`; without it, what the
            block of `kernels.use` says. `"xla"` is the reference without a rule of its own: slower in reverse mode, and
            open to forward mode and to derivatives of higher order.
        interpret: Whether the kernel runs in JAX's interpreter, on any machine and slowly, to check it.
        steps_per_pass: How many steps a kernel takes for each pass over memory; without it, the kernel chooses. XLA
            takes one at a time. Where the boundary is a `sciml.parallel.Domain`, so many steps, with all their stages,
            are taken for each exchange between devices; without it, one stage, or what the kernel chooses.

    Returns:
        The state after the steps, in the form it came in.

    Raises:
        ValueError: If the state does not fit the update, or a number of steps is negative, or the
            kernel that `impl` asks for cannot run the update.
        TypeError: If the number of steps is no integer known now, or `update` no `StencilUpdate`.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.kernels.stencil import StencilUpdate, evolve

        def gray_scott(nb, p):
            def laplacian(field):
                around = nb(field, -1, 0) + nb(field, 1, 0) + nb(field, 0, -1) + nb(field, 0, 1)
                return around - 4 * nb(field)

            u, v = nb("u"), nb("v")
            reaction = u * v * v
            return {
                "u": u + p["Du"] * laplacian("u") - reaction + p["F"] * (1 - u),
                "v": v + p["Dv"] * laplacian("v") + reaction - (p["F"] + p["k"]) * v,
            }

        update = StencilUpdate(gray_scott, fields=("u", "v"))
        state = {"u": jnp.ones((32, 32)), "v": jnp.zeros((32, 32)).at[12:20, 12:20].set(0.5)}
        params = {"Du": 0.16, "Dv": 0.08, "F": 0.035, "k": 0.065}
        end = evolve(update, state, 50, params)
        grad = jax.grad(lambda p: jnp.sum(evolve(update, state, 50, p)["v"]))(params)
        assert end["v"].shape == (32, 32) and set(grad) == set(params)
        ```
    """
    if isinstance(n_steps, bool) or not isinstance(n_steps, int | np.integer):
        raise TypeError(f"`evolve(n_steps=...)` must be a constant integer, but is {n_steps!r}.")
    if n_steps < 0:
        raise ValueError(f"`evolve(n_steps=...)` must not be negative, but is {n_steps}.")
    if not isinstance(update, StencilUpdate):
        raise TypeError(f"`evolve(update=...)` must be a `StencilUpdate`, but is a {type(update).__name__}.")
    request = requested(impl, interpret)
    return evolve_by(request, update, state, int(n_steps), params, coefficients, steps_per_pass)


def evolve_by(
    request: KernelRequest,
    update: StencilUpdate,
    state: PyTree,
    n_steps: int,
    params: PyTree = None,
    coefficients: Mapping[str, Any] | None = None,
    steps_per_pass: int | None = None,
) -> PyTree:
    """Returns the state some steps on, by what is asked for; see `evolve`."""
    fields, rest = update.arrays_of(state, coefficients)
    update = without_periodic(update, fields[0].shape)
    params = as_params(params, fields[0].dtype)
    update.reads(fields[0].ndim, fields[0].dtype, params)  # for its errors
    update = closure_converted(update, fields[0].ndim, fields[0].dtype, params)
    chosen = choose(request, update, fields, params, coefficients=coefficients, steps_per_pass=steps_per_pass)
    if request == XLA:
        found = fields
        for passes, k, one in passes_of(update, params, fields[0], rest, n_steps, chosen):
            found, _ = checkpointed_scan(lambda s, _, one=one, k=k: (one(s, k), None), found, length=passes)
        return update.as_state(found, state)
    leaves, static = eqx.partition((update, params), eqx.is_inexact_array)
    leaves, fields, rest = promote((leaves, fields, rest))
    fields = StencilRun(static, n_steps, chosen).differentiable()(leaves, fields, rest)
    return update.as_state(fields, state)
