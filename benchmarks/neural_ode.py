"""A network as vector field, the same for thousands of members: forward, and the gradient by its weights."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sciml

from ._harness import Candidate, Group, jitted
from ._problems import diffrax_end

N = 4_096
TOL = 1e-4


class Network(eqx.Module):
    """A multilayer perceptron 3-32-32-3 as a vector field."""

    layers: eqx.nn.MLP

    def __call__(self, t: Any, y: jax.Array, args: Any) -> jax.Array:
        del t, args
        return self.layers(y)


def ours(network: Network, y0: jax.Array) -> jax.Array:
    return sciml.solve(network, y0, t0=0.0, t1=1.0, rtol=TOL, atol=TOL).ys[-1]


def theirs(network: Network, y0: jax.Array, adjoint: Any) -> jax.Array:
    options: dict[str, Any] = dict(solver=diffrax.Tsit5(), rtol=TOL, atol=TOL, adjoint=adjoint, max_steps=64)
    return diffrax_end(network, y0, 0.0, 1.0, **options)


def groups() -> list[Group]:
    layers = eqx.nn.MLP(3, 3, 32, 2, activation=jnp.tanh, key=jax.random.key(0))
    network = Network(layers)
    starts = jax.random.normal(jax.random.key(1), (N, 3))
    weights, shape = eqx.partition(network, eqx.is_inexact_array)
    with jax.enable_x64(True):
        precise = jax.tree.map(lambda x: x.astype(jnp.float64), weights)

        def exact(y0: jax.Array) -> jax.Array:
            model = eqx.combine(precise, shape)
            return sciml.solve(model, y0, t0=0.0, t1=1.0, rtol=1e-10, atol=1e-10).ys[-1]

        reference = np.asarray(jax.jit(jax.vmap(exact))(starts[:16].astype(jnp.float64)))

    def error(out: Any) -> float:
        return float(np.max(np.abs(np.asarray(out, np.float64)[:16] - reference)))

    def batch(solve: Any) -> Any:
        return lambda w, y0s: jax.vmap(lambda y0: solve(eqx.combine(w, shape), y0))(y0s)

    def by_weights(solve: Any) -> Any:
        return jax.grad(lambda w, y0s: jnp.sum(batch(solve)(w, y0s) ** 2))

    forward_mode = lambda network, y0: theirs(network, y0, diffrax.ForwardMode())  # noqa: E731
    reverse_mode = lambda network, y0: theirs(network, y0, diffrax.RecursiveCheckpointAdjoint())  # noqa: E731
    rows = [
        Candidate("sciml", jitted(batch(ours), weights, starts), error=error),
        Candidate("diffrax", jitted(batch(forward_mode), weights, starts), "sciml", error),
        Candidate("sciml, gradient", jitted(by_weights(ours), weights, starts), "sciml"),
        Candidate("diffrax, gradient", jitted(by_weights(reverse_mode), weights, starts), "sciml, gradient"),
    ]
    setting = f"t in [0, 1], float32, Tsit5, rtol = atol = {TOL:g}, end state"
    return [Group(f"Neural ODE, perceptron 3-32-32-3, {N} members, {setting}", rows, repeats=15)]
