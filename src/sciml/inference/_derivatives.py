"""Gradients and Hessians of a function of a vector, by whichever mode the function allows."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._jax._members_apart import members_apart
from .._same_code import filter_jit


def _refused(trace: Callable[[], Any]) -> Exception | None:
    """Returns None if `trace` can be traced, and the error otherwise."""
    try:
        jax.eval_shape(trace)
    except (TypeError, ValueError, NotImplementedError) as error:
        return error
    return None


def needs_forward_rule(function: Callable[[Array], Array], z: Array) -> bool:
    """Whether a function can only be differentiated in forward mode."""
    return _refused(lambda: jax.grad(function)(z)) is not None and _refused(lambda: jax.jacfwd(function)(z)) is None


def with_forward_rule(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    r"""Returns the same function, whose gradient in any mode is computed in forward mode.

    With $g = \nabla f(z)$ by one forward pass for each variable the tangent is $\dot f = g \cdot \dot z$, whose
    transpose is $\bar z = g \bar f$. Derivatives of $g$ are again of forward mode. Value and gradient are one program
    of each member, which a device runs for its own where members are sharded.
    """
    return lambda z: _by_forward_mode(eqx.filter_closure_convert(function, z), z)


@eqx.filter_custom_jvp
def _by_forward_mode(function: Callable[[Array], Array], z: Float[Array, " p"]) -> Float[Array, ""]:
    return members_apart(lambda function, z: function(z))(function, z)


@_by_forward_mode.def_jvp
def _by_forward_mode_jvp(primals: tuple, tangents: tuple) -> tuple:
    (function, z), (along, dz) = primals, tangents

    def twice(z: Array, function: Callable) -> tuple[Array, Array]:
        value = function(z)
        return value, value

    gradient, value = members_apart(jax.jacfwd(twice, has_aux=True))(z, function)
    rate = jnp.zeros_like(value) if dz is None else gradient @ dz
    if jax.tree.leaves(along):  # what the function closes over
        rate = rate + eqx.filter_jvp(lambda function: function(z), (function,), (along,))[1]
    return value, rate


def gradient_of(function: Callable[[Array], Array], z: Array) -> Callable[[Array], Array]:
    """Returns the gradient of a function, in reverse mode if the function supports it, otherwise in forward mode.

    Raises:
        ValueError: If the function can be differentiated in neither.
    """
    reverse = _refused(lambda: jax.grad(function)(z))
    if reverse is None:
        return jax.grad(function)
    forward = _refused(lambda: jax.jacfwd(function)(z))
    if forward is None:
        return jax.jacfwd(function)
    reasons = (f"{type(error).__name__}: {error}".splitlines()[0] for error in (forward, reverse))
    raise ValueError(
        "the density can be differentiated neither in forward nor in reverse mode.\n"
        "  forward: {}\n  reverse: {}".format(*reasons)
    ) from reverse


def hessian_of(function: Callable[[Array], Array], z: Array) -> Callable[[Array], Array]:
    """Returns the Hessian of a function: a forward pass of the gradient for each variable, as lanes.

    Raises:
        ValueError: If no order of modes works.
    """
    orders = [lambda z: jax.jacfwd(jax.grad(function))(z), lambda z: jax.jacfwd(jax.jacfwd(function))(z)]
    errors = []
    for order in orders:
        error = _refused(lambda order=order: order(z))
        if error is None:
            return lambda z: _symmetric(order(z))
        errors.append(f"{type(error).__name__}: {error}".splitlines()[0])
    raise ValueError(
        "the second derivatives of the density cannot be computed: its solve requires an adjoint that can be "
        f"differentiated again, such as `sciml.adjoints.Checkpointed()` or `Direct()`. {errors[0]}"
    )


def _symmetric(h: Float[Array, "p p"]) -> Float[Array, "p p"]:
    return 0.5 * (h + h.T)


@filter_jit
def expansion(function: Callable[[Array], Array], z: Float[Array, " p"]) -> tuple[Array, Array, Array]:
    """Returns value, gradient and Hessian, compiled."""
    return function(z), gradient_of(function, z)(z), hessian_of(function, z)(z)


@filter_jit
def values(function: Callable[[Array], Array], zs: Float[Array, "n p"]) -> Float[Array, " n"]:
    """Returns the values at several vectors, as lanes, compiled."""
    return jax.vmap(function)(zs)
