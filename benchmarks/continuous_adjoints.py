"""A stiff network as vector field and its gradient by the weights: Gauss beside Backsolve, Checkpointed and diffrax."""

import functools
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import sciml
from sciml.solvers import Rodas5P

from ._harness import Candidate, Group, in_float64, jitted

RTOL, ATOL = 1e-6, 1e-8
SAVES = 64
# Backsolve sets the state right at saved times; between two of them its error grows by exp(rate / SAVES)
MILD, STIFF = (1.0, 20.0, 300.0), (1.0, 100.0, 1e5)


class Network(eqx.Module):
    """A perceptron with two hidden layers plus a linear decay at three different rates."""

    layers: eqx.nn.MLP
    rates: tuple[float, float, float] = eqx.field(static=True)

    def __init__(self, width: int, rates: tuple[float, float, float]):
        self.layers = eqx.nn.MLP(3, 3, width, 2, activation=jnp.tanh, dtype=jnp.float64, key=jax.random.key(0))
        self.rates = rates

    def __call__(self, t: Any, y: jax.Array, args: Any) -> jax.Array:
        del t, args
        return 10 * self.layers(y) - jnp.asarray(self.rates, y.dtype) * y


def _ours(network: Network, ts: jax.Array, rtol: float = RTOL, atol: float = ATOL, **options: Any) -> jax.Array:
    y0 = jnp.asarray([1.0, -0.5, 0.3], jnp.float64)
    sol = sciml.solve(network, y0, t0=0.0, t1=1.0, saveat=ts, rtol=rtol, atol=atol, throw=False, **options)
    return jnp.sum(sol.ys**2)


def _theirs(network: Network, ts: jax.Array, solver: Any, adjoint: Any) -> jax.Array:
    sol = diffrax.diffeqsolve(
        diffrax.ODETerm(network), solver, 0.0, 1.0, None, jnp.asarray([1.0, -0.5, 0.3], jnp.float64),
        saveat=diffrax.SaveAt(ts=ts), stepsize_controller=diffrax.PIDController(rtol=RTOL, atol=ATOL),
        adjoint=adjoint, max_steps=16_384, throw=False,
    )  # fmt: skip
    assert sol.ys is not None
    return jnp.sum(sol.ys**2)


def _group(
    width: int, rates: tuple[float, float, float], saves: int, also: dict[str, Callable[..., jax.Array]], note: str = ""
) -> Group:
    with jax.enable_x64(True):
        ts = jnp.linspace(0.0, 1.0, saves + 1)[1:]
        weights, shape = eqx.partition(Network(width, rates), eqx.is_inexact_array)
        count = sum(x.size for x in jax.tree.leaves(weights))

        def gradient(solve: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
            return lambda w: ravel_pytree(jax.grad(lambda w: solve(eqx.combine(w, shape), ts))(w))[0]

        precise = functools.partial(_ours, rtol=1e-10, atol=1e-12, solver=Rodas5P())
        reference = np.asarray(jax.jit(gradient(precise))(weights))

    def error(out: Any) -> float:
        return float(np.max(np.abs(np.asarray(out) - reference)) / np.max(np.abs(reference)))

    solves: dict[str, Callable[..., jax.Array]] = {
        "Gauss, Rodas5P": functools.partial(_ours, solver=Rodas5P(), adjoint=sciml.adjoints.Gauss()),
        "Checkpointed, Rodas5P": functools.partial(_ours, solver=Rodas5P()),
        **also,
    }
    solve = in_float64(jitted(lambda w: _ours(eqx.combine(w, shape), ts, solver=Rodas5P()), weights))
    rows = [Candidate("the solve alone, Rodas5P", solve)]
    for label, fn in solves.items():
        against = "the solve alone, Rodas5P" if label.startswith("Gauss") else "Gauss, Rodas5P"
        rows.append(Candidate(label, in_float64(jitted(gradient(fn), weights)), against, error))
    title = (
        f"Gradient by {count} weights of a network of three components with decay rates {rates}, {saves} saved "
        f"times in (0, 1], float64, rtol {RTOL:g}, atol {ATOL:g}{note}"
    )
    return Group(title, rows, repeats=3)


def groups() -> list[Group]:
    backsolve = functools.partial(_ours, solver=Rodas5P(), adjoint=sciml.adjoints.Backsolve())
    explicit = functools.partial(_ours, adjoint=sciml.adjoints.Backsolve())
    diffrax_explicit = functools.partial(_theirs, solver=diffrax.Tsit5(), adjoint=diffrax.BacksolveAdjoint())
    diffrax_implicit = functools.partial(_theirs, solver=diffrax.Kvaerno5(), adjoint=diffrax.BacksolveAdjoint())
    without = {"Backsolve, Tsit5": explicit, "diffrax BacksolveAdjoint, Tsit5": diffrax_explicit}
    implicit = {"Backsolve, Rodas5P": backsolve, "diffrax BacksolveAdjoint, Kvaerno5": diffrax_implicit}
    # with ten thousand weights Rodas5P would factorise matrices of 800 MB in every step of Backsolve
    return [
        _group(28, MILD, SAVES, implicit),
        _group(96, MILD, SAVES, without, "; Backsolve by Rodas5P is left out: its matrices have 1e8 entries"),
        _group(96, STIFF, 1, {"Backsolve, Tsit5": explicit}, "; Backsolve cannot follow it"),
    ]
