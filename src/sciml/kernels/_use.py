"""`use`: how everything that has kernels runs, for a block of code."""

import contextlib
import contextvars
from collections.abc import Iterator

from .._checks import no_instance
from ._backends import AUTO, IMPLS, KERNELS, AbstractKernel, KernelRequest

USED = contextvars.ContextVar("sciml.kernels.use", default=AUTO)


@contextlib.contextmanager
def use(impl: str | AbstractKernel, *, interpret: bool = False) -> Iterator[None]:
    """Sets, for a block of code, whether XLA or a kernel runs `sciml.solve` and `sciml.simulate`.

    `kernels.stencil.evolve`, `tune` and `kernels.select` follow it as well, unless they are given their own `impl=`. An
    inner block counts more than an outer one. Outside of any block it is `"auto"`: a kernel where its trial went well
    (`kernels.qualify`), else XLA. With `"xla"` no kernel runs.

    The members of a `jax.vmap` have a kernel that integrates a block of them as a whole, with their states in registers
    (`kernels.select`), and with `adjoint=sciml.adjoints.Forward()` its columns too; XLA computes other derivatives, and
    solves of one member. Models that are stencils have kernels for fixed steps, and conservation laws one for their
    rates.

    With `"pallas"` a kernel must: models that are stencils, conservation laws and the members of a `jax.vmap` then run
    with one, or raise an error with the reason. Computations that never have a kernel, such as one member of another
    model, run with XLA as before; but on a machine without kernels, `"pallas"` is an error for them as well, unless it
    is interpreted. The request is read when a solve is traced: a function that `jax.jit` has compiled before does not
    change.

    Args:
        impl: `"auto"`, `"xla"`, `"pallas"`, or a custom stencil kernel.
        interpret: Whether the kernel runs in JAX's interpreter, on any machine and slowly, to check it.

    Raises:
        ValueError: If there is no such `impl`, or `interpret` goes with another than a kernel.

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
        with kernels.use("pallas", interpret=True):
            sol = sciml.solve(model, u, **how)
        assert jnp.allclose(sol.ys, sciml.solve(model, u, **how).ys, atol=1e-6)
        ```
    """
    with using(requested(impl, interpret)):
        yield


@contextlib.contextmanager
def using(request: KernelRequest) -> Iterator[None]:
    """Within its block, calls that are given no `impl` run as requested, by any kernel of any name."""
    token = USED.set(request)
    try:
        yield
    finally:
        USED.reset(token)


def requested(impl: str | AbstractKernel | None, interpret: bool = False, by_name: bool = False) -> KernelRequest:
    """Returns the request of a call: its argument, or else the setting of its block.

    Args:
        impl: The argument.
        interpret: Whether to interpret a kernel.
        by_name: Whether it may request one of the library's kernels by its name.

    Raises:
        ValueError: If there is no such `impl`, or `interpret` goes with another than a kernel.
    """
    request = USED.get() if impl is None else KernelRequest(impl)
    names = IMPLS + KERNELS if by_name else IMPLS
    if impl is not None and not isinstance(impl, AbstractKernel) and impl not in names:
        raise ValueError(f"`impl` must be one of {', '.join(map(repr, names))}, but {no_instance(impl)}.")
    if not isinstance(interpret, bool):
        raise ValueError(f"`interpret` must be True or False, but is {interpret!r}.")
    if interpret and request.impl in ("auto", "xla"):
        raise ValueError(
            f"`interpret=True` runs a kernel in JAX's interpreter, so `impl` must be 'pallas', but is {request.impl!r}."
        )
    return KernelRequest(request.impl, interpret or request.interpret)
