"""What float32 costs a gradient, for every adjoint: its error against the same gradient in float64."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sciml

from ._harness import Candidate, Group, jitted, max_error

ADJOINTS: dict[str, sciml.adjoints.AbstractAdjoint] = {
    "Checkpointed()": sciml.adjoints.Checkpointed(),
    "Checkpointed(memory=1)": sciml.adjoints.Checkpointed(memory=1),
    "Direct()": sciml.adjoints.Direct(),
    "Forward()": sciml.adjoints.Forward(),
    "Reversible()": sciml.adjoints.Reversible(),
    "Reversible(coupling=0.99)": sciml.adjoints.Reversible(coupling=0.99),
    "Backsolve()": sciml.adjoints.Backsolve(),
    "Interpolating()": sciml.adjoints.Interpolating(),
    "Gauss()": sciml.adjoints.Gauss(),
}
"""Adding an adjoint is adding a line; one that does not run a loop backwards shows the error it gives there."""

END = 20.0
LOOPS: dict[str, dict[str, Any]] = {
    "200 fixed steps": {"dt": END / 200},
    "2000 fixed steps": {"dt": END / 2_000},
    "10,000 fixed steps": {"dt": END / 10_000},
    "adaptive, rtol = atol = 1e-5": {"rtol": 1e-5, "atol": 1e-5},
}
FIELDS: dict[str, Callable[..., jax.Array]] = {
    "A pendulum": lambda t, y, p: jnp.stack([y[1], -p[0] * jnp.sin(y[0])]),
    "A damped pendulum": lambda t, y, p: jnp.stack([y[1], -p[0] * jnp.sin(y[0]) - p[1] * y[1]]),
}


def _gradient(field: Callable[..., jax.Array], adjoint: Any, steps: dict[str, Any]) -> Callable[[jax.Array], jax.Array]:
    """By a frequency, a damping and the initial state."""

    def loss(p: jax.Array) -> jax.Array:
        return jnp.sum(sciml.solve(field, p[2:], t0=0.0, t1=END, args=p, adjoint=adjoint, **steps).ys[-1])

    return jax.grad(loss)


def _candidate(label: str, field: Callable[..., jax.Array], adjoint: Any, steps: dict[str, Any]) -> Candidate:
    gradient = _gradient(field, adjoint, steps)
    numbers = [1.7, 0.5, 1.2, 0.1]

    def error(found: Any) -> float:
        if not np.isfinite(found).all():
            raise FloatingPointError("the gradient is NaN: the backward pass missed the start")
        with jax.enable_x64(True):
            exact = np.asarray(jax.jit(gradient)(jnp.asarray(numbers, jnp.float64)))
        return max_error(exact, relative=True)(found)

    return Candidate(label, jitted(gradient, jnp.asarray(numbers, jnp.float32)), error=error)


def groups() -> list[Group]:
    return [
        Group(
            f"{what}, t in [0, {END:g}], Tsit5, {how}: gradient in float32, its error against float64",
            [_candidate(label, field, adjoint, steps) for label, adjoint in ADJOINTS.items()],
            repeats=3,
        )
        for what, field in FIELDS.items()
        for how, steps in LOOPS.items()
    ]
