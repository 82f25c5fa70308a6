"""`use`: how models that are stencils run, for a block of code."""

import contextlib
import contextvars
from collections.abc import Iterator

from .._ways import check_way

_USED = contextvars.ContextVar("sciml.kernels.stencil.use", default="auto")


@contextlib.contextmanager
def use(impl: str) -> Iterator[None]:
    """Within its block, `sciml.solve` and `sciml.simulate` run models that are stencils in a given way.

    Without it they run as with `"auto"`: by a kernel where one is tested, else by XLA. With `"xla"` no kernel runs.
    With any other way of `select` a kernel must: where the model is a stencil and the solve is none that a kernel can
    run, that is an error that says why. Models that are none run as ever. The way is read when a solve is traced: a
    function that `jax.jit` has compiled before goes on as it was.

    Args:
        impl: One of the ways of `select`.

    Raises:
        ValueError: If there is no such way.

    Example:
        ```python
        import diffrax
        import jax.numpy as jnp
        import sciml
        from sciml.kernels import stencil
        from sciml.models import AllenCahn
        from sciml.spatial import Grid, Periodic

        model = AllenCahn(Grid((16, 24)), Periodic(), width=0.1)
        u = jnp.zeros((16, 24)).at[:8].set(0.5)
        with stencil.use("interpret_gpu"):
            sol = sciml.solve(model, u, t0=0.0, t1=0.05, dt=0.01, solver=diffrax.Heun())
        assert sol.ys.shape == (1, 16, 24)
        ```
    """
    token = _USED.set(check_way(impl))
    try:
        yield
    finally:
        _USED.reset(token)


def used() -> str:
    """Returns the way of the block that runs."""
    return _USED.get()
