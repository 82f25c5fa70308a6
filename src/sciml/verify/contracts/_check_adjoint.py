"""Checks of the contract of `sciml.adjoints.AbstractAdjoint`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._interfaces._model import AbstractModel
from ...solvers._solve import solve
from ...solvers.adjoints._abstract import AbstractAdjoint
from ...solvers.adjoints._checkpointed import Checkpointed
from ..measures._finite_difference import finite_difference_gradient
from ._contract import check_close, perturbed, stacked

_LOOPS = ("steps", "saves", "adaptive")


class _Swing(AbstractModel):
    """A driven pendulum."""

    stiffness: Array
    damping: Array

    def __call__(self, t: Any, y: Float[Array, " 2"], args: Any) -> Float[Array, " 2"]:
        """Returns the rates of angle and velocity."""
        force = args["force"] * jnp.cos(jnp.asarray(t, y.dtype))
        return jnp.stack([y[1], force - self.stiffness * jnp.sin(y[0]) - self.damping * y[1]])


class _SwingInputs(eqx.Module):
    """Everything that the solution depends on; `factor` reaches the vector field by closure."""

    model: _Swing
    y0: Array
    args: dict
    factor: Array
    t0: Array
    t1: Array
    ts: Array


def check_adjoint(
    adjoint: AbstractAdjoint,
    *,
    loops: Sequence[str] = _LOOPS,
    reverse: bool = True,
    forward: bool = False,
    rtol: float = 1e-6,
) -> None:
    """Checks that an adjoint computes the derivatives that `sciml.solve` promises; for custom adjoints.

    Solutions agree with `Checkpointed`. Gradients with respect to parameters, `args`, values that the model closes
    over, the initial state and, if they are traced, the start, the end and the saved times agree with finite
    differences; `vmap(grad)` and `grad` of `vmap` are the gradients of each member. A driven pendulum is solved over
    two units of time, in float64, whether it is on or not.

    Args:
        adjoint: The adjoint.
        loops: The loops to check: "steps", a number of fixed steps that is known when traced; "saves", fixed steps and
            saved times with all times traced; "adaptive", error control and saved times, traced likewise.
        reverse: Whether it has reverse mode.
        forward: Whether it has forward mode.
        rtol: How far solutions and derivatives may be off, relative to the largest element of each leaf; 2e-3 for an
            adjoint that is only as exact as the solve, or takes other steps. With error control it is
            twice as much and 1e-6, the error of finite differences there.

    Raises:
        AssertionError: If the adjoint breaks a promise, which the message names with numbers.
        ValueError: If a loop is not one of these, or neither mode is to be checked.

    Example:
        ```python
        import jax
        import sciml

        class Delegating(sciml.adjoints.AbstractAdjoint):
            def run(self, loop, y0, operands, differentiate_times):
                return sciml.adjoints.Checkpointed().run(loop, y0, operands, differentiate_times)

        sciml.verify.check_adjoint(Delegating(), loops=("steps",))
        ```
    """
    if not set(loops) <= set(_LOOPS):
        raise ValueError(f"`loops` must be some of {_LOOPS}, got {tuple(loops)}.")
    if not (reverse or forward):
        raise ValueError("`reverse` and `forward` are both False, so there is nothing to check.")
    name = type(adjoint).__name__
    with jax.enable_x64(True):
        for loop in loops:
            _check_loop(adjoint, loop, reverse, forward, rtol, name)


def _inputs() -> _SwingInputs:
    numbers = dict(y0=[0.7, -0.3], factor=1.1, t0=0.1, t1=2.05, ts=[0.4, 1.1, 1.9])
    arrays = {name: jnp.asarray(value, jnp.float64) for name, value in numbers.items()}
    model = _Swing(jnp.asarray(1.3, jnp.float64), jnp.asarray(0.2, jnp.float64))
    return _SwingInputs(model=model, args={"force": jnp.asarray(0.4, jnp.float64)}, **arrays)


def _loss(loop: str, adjoint: Any, p: _SwingInputs) -> Array:
    def field(t, y, args):
        return p.factor * p.model(t, y, args)

    run = partial(solve, field, p.y0, args=p.args, adjoint=adjoint, solver=diffrax.Bosh3(), throw=False)
    if loop == "steps":
        ys = run(t0=0.1, t1=2.05, dt=0.05).ys
    elif loop == "saves":  # no saved time is where a step ends
        ys = run(t0=p.t0, t1=p.t1, dt=0.0617, saveat=p.ts).ys
    else:
        ys = run(t0=p.t0, t1=p.t1, rtol=1e-10, atol=1e-10, saveat=p.ts).ys
    return jnp.sum(jnp.sin(ys * jnp.arange(1, ys.size + 1).astype(ys.dtype).reshape(ys.shape)))


def _check_loop(adjoint: AbstractAdjoint, loop: str, reverse: bool, forward: bool, rtol: float, name: str) -> None:
    p, adaptive = _inputs(), loop == "adaptive"
    what = {
        "steps": "fixed steps",
        "saves": "fixed steps and saved times",
        "adaptive": "error control and saved times",
    }[loop]
    plain = jax.jit(partial(_loss, loop, Checkpointed()))
    # error control chooses other steps for every difference: an error of 1e-10 over a step of 1e-4
    expected = finite_difference_gradient(plain, p, step=1e-4 if adaptive else None)
    allowed = 2 * rtol + 1e-6 if adaptive else rtol
    fn = partial(_loss, loop, adjoint)
    if forward:
        where = f"forward mode with `{name}` through {what}"
        _check_forward(fn, p, plain(p), expected, rtol, allowed, where)
    if not reverse:
        return
    gradient = jax.jit(jax.value_and_grad(fn))
    value, alone = gradient(p)
    check_close(value, plain(p), rtol, f"a sum over the solution by `{name}` with {what}", "the one by `Checkpointed`")
    where = f"the gradient with `{name}` through {what}"
    check_close(alone, expected, allowed, where, "finite differences")
    batch = perturbed(p, 2)
    inside = jax.jit(jax.vmap(jax.grad(fn)))(batch)
    each = stacked([gradient(jax.tree.map(lambda x, i=i: x[i], batch))[1] for i in range(2)])
    # lanes round differently from a single member, which moves chosen steps within the tolerance
    check_close(inside, each, 1e-7, f"`vmap` of {where}", "the gradient of each member")
    if not adaptive:  # the same rule, whose program takes longest to compile there
        around = jax.jit(jax.grad(lambda p: jnp.sum(jax.vmap(fn)(p))))(batch)
        check_close(around, inside, 1e-7, f"{where}, around `vmap`,", "`vmap(grad)`")


def _check_forward(
    fn: Callable, p: _SwingInputs, value: Array, expected: Any, rtol: float, allowed: float, where: str
) -> None:
    """Checks the derivative along one direction in which everything moves."""
    draw = np.random.default_rng(0)
    along = jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)), p)
    found, slope = jax.jit(lambda p: jax.jvp(fn, (p,), (along,)))(p)
    check_close(found, value, rtol, f"the value under {where}", "the one by `Checkpointed`")
    products = jax.tree.map(lambda g, v: float(np.sum(g * np.asarray(v))), expected, along)
    check_close(slope, np.asarray(sum(jax.tree.leaves(products))), allowed, where, "finite differences")
