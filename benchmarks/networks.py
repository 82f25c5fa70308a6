"""Networks as vector fields with states saved along the way: forward, and the gradient by the weights.

Every cell of models, steps, members and saved times, beside diffrax; the last line of each table says in how many cells
sciml is at least as fast, and by how much in the median.
"""

import statistics
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sciml

from ._harness import Candidate, Group, Measured, jitted
from ._problems import lorenz

TOL = 1e-4
END = 2.0
MEMBERS = (1, 8, 32, 512)
SAVED = (1, 11, 41, 200)
SIZES = {"2-16-2": (2, 16, 1), "3-32-32-3": (3, 32, 2), "64-256-256-64": (64, 256, 2)}


def _network(inputs: int, width: int, depth: int) -> Any:
    return eqx.nn.MLP(inputs, inputs, width, depth, activation=jnp.tanh, key=jax.random.key(0))


def _models() -> dict[str, tuple[Callable, Any, int]]:
    """For each a vector field `f(t, y, parameters)`, its parameters, and the size of its state."""
    found: dict[str, tuple[Callable, Any, int]] = {}
    for name, (inputs, width, depth) in SIZES.items():
        weights, rest = eqx.partition(_network(inputs, width, depth), eqx.is_inexact_array)
        found[f"perceptron {name}"] = (lambda t, y, w, rest=rest: eqx.combine(w, rest)(y), weights, inputs)
    weights, rest = eqx.partition(_network(2, 16, 2), eqx.is_inexact_array)

    def predator_prey(t: Any, y: jax.Array, w: Any) -> jax.Array:
        known = jnp.stack([1.3 * y[0], -1.8 * y[1]])
        return 0.3 * (known + eqx.combine(w, rest)(y))

    found["universal differential equation"] = (predator_prey, weights, 2)
    found["Lorenz"] = (lorenz, jnp.asarray(28.0), 3)
    return found


def _ours(field: Callable, saved: np.ndarray, fixed: bool) -> Callable[[Any, jax.Array], jax.Array]:
    steps: dict[str, Any] = dict(dt=END / 100) if fixed else dict(rtol=TOL, atol=TOL)
    return lambda w, y: sciml.solve(field, y, t0=0.0, t1=END, args=w, saveat=saved, throw=False, **steps).ys


def _theirs(field: Callable, saved: np.ndarray, fixed: bool, gradient: bool) -> Callable[[Any, jax.Array], jax.Array]:
    controller = diffrax.ConstantStepSize() if fixed else diffrax.PIDController(TOL, TOL)
    adjoint: Any = diffrax.RecursiveCheckpointAdjoint() if gradient else diffrax.ForwardMode()

    def solve(w: Any, y: jax.Array) -> jax.Array:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, END, END / 100 if fixed else None, y, w,
            saveat=diffrax.SaveAt(ts=saved), stepsize_controller=controller, adjoint=adjoint, throw=False,
            max_steps=101 if fixed else 256,
        )  # fmt: skip
        assert solution.ys is not None
        return solution.ys

    return solve


def _of_members(solve: Callable, gradient: bool) -> Callable:
    def batch(w: Any, y0: jax.Array) -> jax.Array:
        return jax.vmap(lambda y: solve(w, y))(y0)

    return jax.grad(lambda w, y0: jnp.mean(batch(w, y0) ** 2)) if gradient else batch


def _summary(rows: list[Measured]) -> str | None:
    times = {row.label: row.median for row in rows if row.times}
    ratios = [times[x.replace("sciml", "diffrax")] / times[x] for x in times if x.startswith("sciml")]
    good = sum(ratio >= 1 for ratio in ratios)
    print(
        f"at least as fast as diffrax in {good} of {len(ratios)} cells; median {statistics.median(ratios):.2f} times\n"
    )
    return None


def _group(name: str, model: tuple[Callable, Any, int], fixed: bool, gradient: bool) -> Group:
    field, parameters, size = model
    rows = []
    for members in MEMBERS:
        y0 = jax.random.normal(jax.random.key(1), (members, size))
        for count in SAVED:
            saved = np.linspace(0.0, END, count) if count > 1 else np.array([END])
            pair = {
                "sciml": _ours(field, saved, fixed),
                "diffrax": _theirs(field, saved, fixed, gradient),
            }
            labels = {who: f"{who}, {members} members, {count} times" for who in pair}
            rows += [
                Candidate(
                    labels[who], jitted(_of_members(solve, gradient), parameters, y0),
                    None if who == "sciml" else labels["sciml"],
                )
                for who, solve in pair.items()
            ]  # fmt: skip
    steps = "100 fixed steps" if fixed else f"rtol = atol = {TOL:g}"
    what = "gradient by the parameters" if gradient else "forward"
    return Group(f"{name}, {what}, {steps}, t in [0, {END:g}], float32, Tsit5", rows, repeats=5, finish=_summary)


def groups() -> list[Group]:
    return [
        _group(name, model, fixed, gradient)
        for name, model in _models().items()
        for fixed in (False, True)
        for gradient in (False, True)
    ]
