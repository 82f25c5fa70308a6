"""`use`: how everything that has kernels runs, for a block of code."""

import contextlib
import contextvars
from collections.abc import Iterator

from ._backends import check_way

_USED = contextvars.ContextVar("sciml.kernels.use", default="auto")


@contextlib.contextmanager
def use(impl: str) -> Iterator[None]:
    """Within its block, every call that takes `impl=` and is given none runs in this way.

    These are `sciml.solve`, `sciml.simulate`, `kernels.stencil.evolve`, and `select` of stencils and of ensembles. What
    is given to a call counts more than its block, an inner block more than an outer one, and outside of any it is
    `"auto"`: a kernel where one is tested, else XLA. With `"xla"` no kernel runs. With any other way of `select` a
    kernel must: models that are stencils and the members of a `jax.vmap` then run by one, or are an error that says why
    not. What never has a kernel, such as one member of a model that is no stencil, runs by XLA as ever; but where a
    machine has no kernels, `"pallas"` is an error for it too. The way is read when a solve is traced: a function that
    `jax.jit` has compiled before goes on as it was.

    Args:
        impl: One of the ways of `kernels.stencil.select`.

    Raises:
        ValueError: If there is no such way.

    Example:
        ```python
        import diffrax
        import jax.numpy as jnp
        import sciml
        from sciml import kernels
        from sciml.models import AllenCahn
        from sciml.spatial import Grid, Periodic

        model = AllenCahn(Grid((16, 24)), Periodic(), width=0.1)
        u = jnp.zeros((16, 24)).at[:8].set(0.5)
        how = dict(t0=0.0, t1=0.05, dt=0.01, solver=diffrax.Heun())
        with kernels.use("interpret_gpu"):
            sol = sciml.solve(model, u, **how)
        assert jnp.allclose(sol.ys, sciml.solve(model, u, impl="interpret_gpu", **how).ys)
        ```
    """
    token = _USED.set(check_way(impl))
    try:
        yield
    finally:
        _USED.reset(token)


def asked(impl: str | None) -> str:
    """Returns the way that a call runs in: what it is given, or else what its block says.

    Raises:
        ValueError: If there is no such way.
    """
    return _USED.get() if impl is None else check_way(impl)
