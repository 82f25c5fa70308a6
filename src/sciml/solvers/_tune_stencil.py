"""`tune_stencil`: the tiles in which a kernel runs the steps of a model fastest."""

from typing import Any

import diffrax
import jax.numpy as jnp

from .._types import Y
from ..kernels.stencil import NotForKernelsError, tune
from ..kernels.stencil._tune import Timing
from ._plan import default_solver
from ._read_diffrax import stepper_of
from ._request import Request
from .integrate._stencil_kernel import step_of
from .integrate._stencil_stages import OTHER_METHOD


def tune_stencil(
    model: Any, y0: Y, *, solver: diffrax.AbstractSolver | None = None, **options: Any
) -> tuple[Timing, ...]:
    """Times the tilings of a model's fields that a kernel can use, and keeps the fastest for later runs.

    It runs the steps that `sciml.solve` and `sciml.simulate` take with a fixed `dt`. Their length is zero here, which
    takes as long as any other. See `sciml.kernels.stencil.tune` for the stored results and their location.

    Args:
        model: A model that is a stencil: one with a method `stencil(y)`.
        y0: A state of it.
        solver: The method; by default the one that `sciml.solve` takes for such a model and a fixed `dt`.
        options: The keyword arguments `impl`, `interpret`, `steps_per_pass`, `rows`, `n_steps`, `repeats` and `cache`
            of `sciml.kernels.stencil.tune`.

    Returns:
        The tried tilings, the fastest first.

    Raises:
        TypeError: If the model is not a stencil, or this is called in a function that JAX transforms.
        ValueError: If the method has no kernel, or the kernel cannot run the model, or nothing is left to try.
        RuntimeError: If no tried tiling runs.

    Example:
        ```python
        import diffrax
        import jax.numpy as jnp
        import sciml
        from sciml.spatial import Grid, Periodic

        model = sciml.models.Diffusion(Grid((16, 16)), Periodic(), diffusivity=0.1)
        few = dict(steps_per_pass=(1, 2), rows=(8,), n_steps=2, cache="plans.json")
        u = jnp.ones((16, 16), jnp.float32)
        tried = sciml.solvers.tune_stencil(model, u, solver=diffrax.Euler(), impl="pallas", interpret=True, **few)
        assert {timing.steps_per_pass for timing in tried} == {1, 2}
        ```
    """
    if not callable(getattr(model, "stencil", None)):
        raise TypeError(f"`model` must have a method `stencil(y)`, but `{type(model).__name__}` does not.")
    solver = default_solver(model, Request(t0=0.0, t1=1.0, dt=1.0, solver=solver), y0)
    stepper = stepper_of(solver, y0)
    try:
        if stepper is None:
            raise NotForKernelsError(OTHER_METHOD)
        rates, update, rest = step_of(stepper, model, y0, jnp.zeros(()))
    except NotForKernelsError as error:
        raise ValueError(
            f"kernels do not support `{type(model).__name__}` with {type(solver).__name__}: {error}. A supported "
            "method is `solver=diffrax.Heun()`."
        ) from error
    return tune(update, rates.fields_of(y0), **rest, **options)
