r"""The custom rules: derivatives of an integration by running its steps again, over one member or many.

An integration is a composition of steps $y_{n+1} = \Phi_{h_n}(t_n, y_n, p)$ whose sizes $h_n$ the controller
chose. With constant sizes, the derivative of a function $L$ of the result follows from the chain rule
from last step to first,

$$\bar y_n = \Big(\frac{\partial \Phi_{h_n}}{\partial y}\Big)^{*} \bar y_{n+1}, \qquad
  \bar p \mathrel{+}= \Big(\frac{\partial \Phi_{h_n}}{\partial p}\Big)^{*} \bar y_{n+1},$$

exactly, to rounding: it is the derivative of the computed solution and not of the differential equation. Only the last
step's size depends on the end time. A state saved within a step is linear in the step's two states and its stages, and
its cotangent joins theirs.

Both passes are plain loops, which forward mode can differentiate once more: the result is the derivative of
this gradient, with constant step sizes there too. Reverse mode would have to record these loops.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ..._choices import choices_of_one
from ..._jax._ad_modes import forward_only, not_differentiated, reverse_only
from ..._jax._batched import merging
from ..._jax._checkpoint_levels import Budget
from ..._jax._differentiable import adding_up
from ..._jax._marks import over_lanes as over_lanes_mark
from ..._jax._shards import members_alike, over_shards, shardable
from ..._jax._static_flags import as_shapes, of_shapes
from ..._jax._vma import match, promote
from ...kernels._backends import XLA
from ...kernels._lanes import Lanes, Unbatched, differentiable
from ..events._event_state import EventState
from ..integrate._abstract import AbstractLoop
from ..integrate._batching import (
    Batch,
    Function,
    members_of,
    one_by_one,
    over_lanes,
    pad_against_aliasing,
    pad_to_vector,
    repeated,
)
from ..integrate._integrator import Operands
from ..integrate._result import Cotangents, KeptCotangent, Result, Saves


def differentiable_parts(operands: Operands, times: bool) -> Operands:
    """Returns which of the operands are differentiated, as `Operands` of booleans.

    Args:
        operands: The operands, as arrays.
        times: Whether t0, t1 and the saved times are. A saved state depends on its own time, also at the
            end, and so not on the end time.
    """
    inexact = [jax.dtypes.issubdtype(x.dtype, jnp.inexact) for x in operands.field]
    spec = jax.tree.map(lambda _: False, operands)
    return spec._replace(field=inexact, t0=times, span=times and operands.saves is None)


def without_saves(operands: Operands) -> Operands:
    """Returns operands, or what there is for each of them, without saved times and what is known of these."""
    return operands._replace(saves=None, rows=None)


def asked_for(inputs: tuple, possible: Operands) -> tuple[tuple, tuple[Array, ...]]:
    """Returns the values of what a rule with symbolic zeros is given, and by what a gradient is asked for.

    Args:
        inputs: The initial state and the operands, every leaf with the mark that JAX puts on it.
        possible: `Operands` of booleans: by which a gradient can be asked for.

    Returns:
        The values, and a truth value for each leaf of the operands that are not saved times; see `as_shapes`.
    """

    def marked(x: Any) -> bool:
        return hasattr(x, "perturbed")

    values = jax.tree.map(lambda x: x.value, inputs, is_leaf=marked)
    found = jax.tree.map(lambda x: x.perturbed, without_saves(inputs[1]), is_leaf=marked)
    flags = jax.tree.map(lambda a, b: a and b, without_saves(possible), found)
    return values, as_shapes(jax.tree.leaves(flags))


def asked_parts(asked: tuple[Array, ...], possible: Operands) -> Operands:
    """Returns by what a gradient is asked for as `Operands` of booleans."""
    return jax.tree.unflatten(jax.tree.structure(without_saves(possible)), of_shapes(asked))


def instantiated(cotangent: PyTree, like: PyTree) -> PyTree[jax.Array]:
    """Returns cotangents as arrays, those too that JAX knows to be zero."""
    leaves = jax.tree.leaves(cotangent, is_leaf=_is_symbolic)
    arrays = [jnp.zeros_like(x) if _is_symbolic(c) else c for c, x in zip(leaves, jax.tree.leaves(like), strict=True)]
    return jax.tree.unflatten(jax.tree.structure(like), arrays)


def _is_symbolic(x: Any) -> bool:
    return isinstance(x, jax.custom_derivatives.SymbolicZero)


def run(
    loop: AbstractLoop,
    y0: PyTree,
    operands: Operands,
    times: bool,
    budget: Budget,
) -> Result:
    """Runs an integration with a reverse-mode rule; under `jax.vmap`, over lanes.

    Args:
        loop: The loop to run; its `lanes` are replaced by the number of members.
        y0: The initial state.
        operands: The inputs of the integration.
        times: Whether t0, t1 and saved times are differentiated.
        budget: How much may be recorded.
    """
    integrator = loop.integrator
    possible = differentiable_parts(operands, times)
    if integrator.constant:
        possible = possible._replace(field=[False for _ in operands.field])
    state_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(y0))

    by_kernel = loop.by_stencil_kernel
    members = one_by_one if by_kernel else members_of_loop(loop, y0)
    loop_of_one, (_, table_of_one) = loop if by_kernel else loop.of_one(), loop.integrator.of_one()
    # what is recorded has one structure for one member and over lanes: `jax.vmap` of a member's gradient needs it
    table_of_record = partial(choices_of_one, False)
    leaves, treedef = jax.tree.flatten((y0, operands))

    def unpack(batch: Batch, flags: Any, tree: PyTree, shared_cotangents: bool = False) -> tuple:
        # what JAX is to see as it is, a kernel, stays out of lanes
        engine = Unbatched() if by_kernel else Lanes(batch.lanes, reverse=False, shared_cotangents=shared_cotangents)
        own = loop if batch.lanes is not None else loop_of_one
        return enter(own, engine, flags, tree, state_bytes, budget._replace(memory=batch.share(budget.memory)))

    def of_one(fn: Function, table: Callable = table_of_record) -> Callable[[PyTree], PyTree]:
        def one(batch, flags, tree):
            with contextlib.nullcontext() if by_kernel or batch.lanes is not None else table():
                return fn(batch, flags, tree)

        return members(one)

    def plain(batch, flags, tree):
        here, y0, operands, saves = unpack(batch, flags, tree)
        return here.forward(y0, operands, saves)

    def recorded(batch, flags, tree):
        here, y0, operands, saves = unpack(batch, flags, tree)
        result, residuals, numbers = here.forward_recorded(y0, operands, saves)
        # all that leaves a function over lanes has members last, and `numbers` belong to the loop as a whole
        return result, residuals, jax.tree.map(lambda x: _with_lanes(x, batch.lanes), numbers)

    def reverse(spec, shared_cotangents, batch, flags, tree):
        *_, inputs = tree
        count = batch.lanes
        here, _, operands, saves = unpack(batch, flags[-1], inputs, shared_cotangents)
        # what all members share, every member gets as its own
        arrays, flags = jax.tree.flatten(tree[:-1])[0], jax.tree.leaves(flags[:-1])
        arrays = [x if flag else _with_lanes(x, count) for x, flag in zip(arrays, flags)]
        cotangent, residuals, numbers = jax.tree.unflatten(jax.tree.structure(tree[:-1]), arrays)
        if count is not None:
            # The largest: members that took the other branch of a `cond` have something else in the place of theirs.
            numbers = jax.tree.map(lambda x: jnp.max(x, axis=-1, initial=0), numbers)
        return here.backward(cotangent, residuals, numbers, operands, saves, spec)

    itemsize = max(x.dtype.itemsize for x in jax.tree.leaves(y0))

    def make(count: int | None, flags: tuple[bool, ...]) -> Callable[..., Result]:
        run = (
            _OneMember(of_one, partial(of_one, table=table_of_one))
            if count is None
            else _OverLanes(count, jax.tree.unflatten(treedef, flags), itemsize)
        )
        solve = _rule(
            run.of(plain), run.recorded(recorded), partial(run.backward_pass, reverse), possible, run.unreached
        )
        return lambda *leaves: solve(jax.tree.unflatten(treedef, leaves))

    # promoted outside the rule, so that the promotion's transpose adds up what devices contribute
    leaves = promote(reverse_only(leaves, IN_FORWARD_MODE))
    return differentiable(make)(*leaves) if members is over_lanes else make(None, (False,) * len(leaves))(*leaves)


class _OneMember:
    """How the parts of a rule run for one member.

    Attributes:
        members: How the members of a batch run that JAX makes of the recorded solve and of the backward pass.
        of: How the members of a solve without a record run.
    """

    def __init__(self, members: Callable, of: Callable):
        self.recorded = self.members = members
        self.of = of

    def unreached(self, ys_bar: PyTree, result: Result) -> tuple[PyTree, jax.Array]:
        """Removes the cotangents of what was not reached; see `without_unreached`."""
        return without_unreached(ys_bar, result)

    def backward_pass(self, reverse: Callable, spec: Operands, tree: tuple, unreached: jax.Array) -> tuple:
        """Returns the cotangents of initial state, operands and saved times; see `_OverLanes.backward_pass`."""
        bars = self.members(partial(reverse, spec, False))(promote(tree))
        return jax.tree.map(lambda x: jnp.where(unreached, jnp.full_like(x, jnp.nan), x), bars)


class _OverLanes:
    """How the parts of a rule run over lanes.

    Attributes:
        count: The number of members.
        flags: The leaves of the inputs that have lanes.
        lanes: The number of lanes where much is kept of every step; see `pad_against_aliasing`.
        fewer: The number of lanes where nothing is; see `pad_to_vector`.
    """

    def __init__(self, count: int, flags: PyTree[bool], itemsize: int):
        self.count, self.flags = count, flags
        # each device stores the records of its own members, so the shares are not added up
        self.lanes = self.fewer = count
        if not shardable():
            self.lanes, self.fewer = pad_against_aliasing(count, itemsize), pad_to_vector(count, itemsize)

    def of(self, fn: Function) -> Callable[[PyTree], PyTree]:
        """Returns a function of the inputs."""

        def run(inputs):
            inputs = repeated(inputs, self.flags, self.fewer)
            return jax.tree.map(self._members, self._merging(fn, self.fewer, self.flags, inputs))

        return run

    def recorded(self, fn: Function) -> Callable[[PyTree], PyTree]:
        """Returns a function of the inputs: the members' result first, then what `backward_pass` takes."""

        def run(inputs):
            result, *kept = self._merging(fn, self.lanes, self.flags, repeated(inputs, self.flags, self.lanes))
            return jax.tree.map(self._members, result), *kept

        return run

    def unreached(self, ys_bar: PyTree, result: Result) -> tuple[PyTree, jax.Array]:
        """Removes the cotangents of what was not reached; see `without_unreached`."""
        return jax.vmap(without_unreached, in_axes=-1, out_axes=-1)(*members_alike((ys_bar, result), last=True))

    def backward_pass(self, reverse: Callable, spec: Operands, tree: tuple, unreached: jax.Array) -> tuple:
        """Returns the cotangents of initial state, operands and saved times; one for all members of what they share.

        Args:
            reverse: `reverse(spec, shared_cotangents, batch, flags, tree)`.
            spec: By what a gradient is asked for.
            tree: The cotangents of the states and what the rule has kept, of which the inputs come last.
            unreached: Whether a loss depends on values that were not reached, which are NaN.
        """
        cotangent, *kept, inputs = promote(tree)
        width = self.lanes - self.count  # the added lanes contribute nothing
        cotangent = jax.tree.map(lambda x: jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width)]), cotangent)
        kept, inputs = (cotangent, *kept), repeated(inputs, self.flags, self.lanes)
        flags = (*jax.tree.map(lambda _: True, kept), self.flags)
        leaves, treedef = jax.tree.flatten((*kept, inputs))
        asked = (self.flags[0], eqx.filter(without_saves(self.flags[1]), spec), self.flags[1].saves)

        def summed(x: jax.Array, like: jax.Array, has_lanes: bool) -> jax.Array:
            return x if has_lanes or x.ndim == like.ndim else jnp.sum(x, axis=-1)

        def added_up(out: tuple, inputs: tuple) -> tuple:
            y0, operands = inputs
            like = (y0, eqx.filter(without_saves(operands), spec), operands.saves)
            return tuple(None if x is None else jax.tree.map(summed, x, *more) for x, *more in zip(out, like, asked))

        def of_lanes(lanes: int) -> Callable[..., tuple]:
            def run(*leaves):
                tree = jax.tree.unflatten(treedef, leaves)
                return added_up(reverse(spec, True, Batch(lanes), flags, tree), tree[-1])

            return run

        def have_lanes(out: tuple) -> tuple:
            return tuple(None if x is None else flag for x, flag in zip(out, asked))

        def at_once(*leaves):
            return over_shards(of_lanes, self.lanes, jax.tree.leaves(flags), have_lanes, *leaves, sums=True)

        def apart(*leaves):
            tree = jax.tree.unflatten(treedef, leaves)
            return added_up(self._merging(partial(reverse, spec, False), self.lanes, flags, tree), tree[-1])

        def without(x: jax.Array, has_lanes: bool) -> jax.Array:
            x = self._members(x) if has_lanes else x
            where = jnp.broadcast_to(unreached, x.shape) if has_lanes else jnp.any(unreached)
            return jnp.where(where, jnp.full_like(x, jnp.nan), x)

        # what members share has one cotangent in `at_once`; `jax.vmap` and forward mode need `apart`, which adds it up
        bars = adding_up(at_once, apart)(*leaves)
        return tuple(None if x is None else jax.tree.map(without, x, flag) for x, flag in zip(bars, asked))

    def _members(self, x: jax.Array) -> jax.Array:
        return x[..., : self.count]

    def _merging(self, fn: Function, lanes: int, flags: PyTree[bool], tree: PyTree) -> PyTree:
        leaves, treedef = jax.tree.flatten(tree)

        def flat(count, flags, *leaves):
            return fn(Batch(count), jax.tree.unflatten(treedef, flags), jax.tree.unflatten(treedef, leaves))

        with over_lanes_mark(self.count):
            return merging(flat, lanes, tuple(jax.tree.leaves(flags)))(*leaves)


def _rule(
    plain: Callable, recorded: Callable, backward_pass: Callable, possible: Operands, without: Callable
) -> Callable:
    """Returns the solve `inputs -> Result` with its rule of reverse mode.

    Args:
        plain: `inputs -> Result`.
        recorded: `inputs -> (Result, residuals, numbers)`.
        backward_pass: `(spec, tree, unreached) -> cotangents`.
        possible: `Operands` of booleans: by which a gradient can be asked for.
        without: As `without_unreached`.
    """

    @jax.custom_vjp
    def solve(inputs):
        return plain(inputs)

    def forward(inputs):
        # `asked` as shapes: JAX keeps one structure of what a rule leaves for all gradients, see `_static_flags`
        inputs, asked = asked_for(inputs, possible)
        result, residuals, numbers = recorded(forward_only(inputs, REVERSE_TWICE))
        return result, (residuals, numbers, result, inputs, asked)

    def backward(kept, cotangent):
        *kept, asked = kept
        ys_bar = instantiated(cotangent.ys, kept[2].ys)
        (residuals, numbers, result, inputs), ys_bar = forward_only((kept, ys_bar), REVERSE_TWICE)
        restart_bar = _of_restart(cotangent, result)
        if (
            isinstance(ys_bar, EventState) and inputs[1].saves is not None
        ):  # their places within steps are constant here
            ys_bar, residuals, inputs = not_differentiated((ys_bar, residuals, inputs), SAVED_TWICE)
        # states that were not reached leave the pass; if the loss depends on one, the gradient is NaN at its end
        ys_bar, unreached = without(ys_bar, result)
        tree = (Cotangents(ys_bar, restart_bar), residuals, numbers, inputs)
        y_bar, diff_bar, saves_bar = backward_pass(asked_parts(asked, possible), tree, unreached)
        operands = inputs[1]
        zeros = jax.tree.map(lambda x: None, operands)  # None is a cotangent of zero that costs nothing
        operands_bar = eqx.combine(diff_bar, without_saves(zeros))._replace(saves=zeros.saves, rows=zeros.rows)
        if operands.saves is not None:
            operands_bar = operands_bar._replace(saves=saves_bar)
        # an array without elements gets a cotangent of zero that varies over no axis of a mesh
        return (jax.tree.map(_like_primal, (y_bar, operands_bar), inputs, is_leaf=_is_none),)

    solve.defvjp(forward, backward, symbolic_zeros=True)
    return solve


def _is_none(x: Any) -> bool:
    return x is None


def _like_primal(bar: Any, x: Any) -> Any:
    return None if bar is None else match(bar, x)


def _of_restart(cotangent: Result, result: Result) -> KeptCotangent | None:
    """Returns the cotangent of the state that a later solve goes on from; None where it is not kept or is zero."""
    if result.kept is None:
        return None
    y = result.kept.checkpoint.y
    y_bar = cotangent.kept.checkpoint.y
    # most gradients do not ask for it, and JAX then knows that it is zero: the loop carries no cotangent of it
    if all(map(_is_symbolic, jax.tree.leaves(y_bar, is_leaf=_is_symbolic))):
        return None
    return KeptCotangent(forward_only(instantiated(y_bar, y), REVERSE_TWICE), result.kept.passed)


def members_of_loop(loop: AbstractLoop, y0: PyTree) -> Callable:
    """Returns how the members of a batch run a loop; members with a requested kernel do not run one after another."""
    return members_of(loop.integrator.stepper, y0 if loop.impl == XLA else None)


def enter(
    loop: AbstractLoop, engine: Lanes | Unbatched, flags: Any, tree: PyTree, state_bytes: int, budget: Budget
) -> tuple:
    """Returns the loop over the lanes of an engine, and its start.

    Args:
        loop: The loop.
        engine: The lanes.
        flags: The leaves of `tree` that have lanes.
        tree: The initial state and the operands, as arrays.
        state_bytes: The size of one member's state.
        budget: How much may be recorded.

    Returns:
        The loop, and initial state, operands and saves as lane values.
    """
    y0, operands = tree
    y0_flags, operand_flags = flags
    saves = None
    if operands.saves is not None:
        saves = Saves(operands.saves, operand_flags.saves)
    operands, operand_flags = operands._replace(saves=None), operand_flags._replace(saves=None)
    values = engine.enter(operands, jax.tree.leaves(operand_flags))
    here = loop.over(engine, state_bytes, budget)
    return here, engine.enter(y0, jax.tree.leaves(y0_flags)), values, saves


def _with_lanes(x: jax.Array, count: int | None) -> jax.Array:
    """Gives an array a lane axis, last."""
    return x if count is None else jnp.broadcast_to(x[..., None], x.shape + (count,))


def without_unreached(cotangent: PyTree, result: Result) -> tuple[PyTree, jax.Array]:
    """Removes the cotangents of states that a failed member did not reach.

    Returns:
        The other cotangents, and whether the loss depends on such a state: then the gradient is NaN. A
        loss that leaves them out has the gradient of the rest.
    """
    leaves, treedef = jax.tree.flatten(cotangent)
    missing = [jnp.isnan(y) & (result.status != 0) for y in jax.tree.leaves(result.ys)]
    unreached = jnp.stack([jnp.any(m & (c != 0)) for c, m in zip(leaves, missing)]).any()
    kept = [jnp.where(m, jnp.zeros_like(c), c) for c, m in zip(leaves, missing)]
    return jax.tree.unflatten(treedef, kept), unreached


IN_FORWARD_MODE = (
    "this `adjoint` does not support forward mode (`jax.jvp`, `jax.jacfwd`), because it has a custom reverse-mode "
    "rule, like the default `sciml.adjoints.Checkpointed()`. Use `adjoint=sciml.adjoints.Direct()`, or "
    "`sciml.adjoints.Forward()` for many members."
)

SAVED_TWICE = (
    "With `events`, a gradient of saved states by `sciml.adjoints.Checkpointed()` cannot be differentiated again. "
    "Use `adjoint=sciml.adjoints.Forward()` with `jax.hessian`, or `Direct()` with `jax.jacfwd(jax.jacfwd(f))`."
)

REVERSE_TWICE = (
    "A gradient through an `adjoint` with a custom reverse-mode rule, such as the default "
    "`sciml.adjoints.Checkpointed()`, can only be differentiated again in forward mode. Use `jax.jacfwd(jax.grad(f))` "
    "or `jax.hessian(f)`, and `jax.jvp(jax.grad(f), (x,), (v,))` for a product with a vector."
)
