"""The rule of reverse mode of the continuous adjoints, over one member or many."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._ad_modes import forward_only, reverse_only
from ...._jax._checkpoint_levels import NOTHING
from ...._jax._vma import match, promote
from ....kernels._lanes import Lanes, Unbatched
from ...events._event import resolution_of
from ...events._sides import BEYOND
from ...integrate._abstract import AbstractLoop
from ...integrate._batching import Batch
from ...integrate._integrator import Integrator, Operands
from ...integrate._result import Result
from ...methods.around._admissible import Within
from ...methods.around._history import WithHistory
from ...methods.around._projection import Projected
from ...methods.implicit._esdirk import ESDIRK
from ...methods.implicit._rosenbrock import Rosenbrock
from ...terms._split_field import SplitField
from .._discrete_rule import (
    IN_FORWARD_MODE,
    REVERSE_TWICE,
    asked_for,
    asked_parts,
    differentiable_parts,
    enter,
    instantiated,
    members_of_loop,
    without_unreached,
)
from ._backward import AdjointProblem, Backward, Variant, dense_stepping


def run(
    loop: AbstractLoop,
    y0: PyTree,
    operands: Operands,
    times: bool,
    variant: Variant,
    rtol: float | None,
    atol: float | None,
    memory: int,
    name: str,
) -> Result:
    """Runs an integration with the rule of a continuous adjoint.

    Args:
        loop: The loop to run; its `lanes` are replaced by the number of members.
        y0: The initial state.
        operands: The inputs of the integration.
        times: Whether t0, t1 and saved times are differentiated.
        variant: The quantity integrated backwards.
        rtol: The relative tolerance of the backward pass; None for the tolerance of the solve.
        atol: The absolute tolerance, likewise.
        memory: About how many bytes a record of all members may take.
        name: The adjoint, for messages.

    Raises:
        ValueError: If the adjoint does not fit the solve.
    """
    integrator = loop.integrator
    _check(integrator, operands, variant, rtol, atol, name)
    possible = differentiable_parts(operands, times)
    member = jax.eval_shape(lambda: (y0, operands))
    state_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(member[0]))

    members = members_of_loop(loop, y0)

    @members
    def plain(batch, flags, tree):
        here, y0, operands, saves = enter(loop, _engine(batch), flags, tree, state_bytes, NOTHING)
        # over lanes everything varies by device, and one member must not differ from that
        return match(here.forward(y0, operands, saves), tree)

    def reverse(spec, batch, flags, problem):
        engine = _engine(batch)
        here = dense_stepping(integrator, engine)
        back = Backward(here, variant, (spec.field, spec.t0), rtol, atol, batch.share(memory), loop.max_steps)
        like = AdjointProblem(None, None, None, None, member[0], None)  # pyright: ignore[reportArgumentType]
        return back.run(engine.enter(problem, jax.tree.leaves(flags)), like)

    @jax.custom_vjp
    def solve(inputs):
        return plain(inputs)

    def forward(inputs):
        # `asked` as shapes: JAX keeps one structure of what a rule leaves for all gradients, see `_static_flags`
        inputs, asked = asked_for(inputs, possible)
        result = plain(forward_only(inputs, REVERSE_TWICE))
        return result, (result, inputs, asked)

    def backward(kept, cotangent):
        *kept, asked = kept
        ys_bar = instantiated(cotangent.ys, kept[0].ys)
        (result, inputs), ys_bar = forward_only((kept, ys_bar), REVERSE_TWICE)
        y0, operands = inputs
        ys_bar, unreached = without_unreached(ys_bar, result)
        single = operands.saves is None
        saves = operands.span[None] if single else operands.saves
        ys, bars = result.ys, ys_bar
        if single:
            ys, bars = jax.tree.map(lambda x: x[None], (ys, bars))
        problem = AdjointProblem(bars, saves, ys, result.elapsed, y0, operands._replace(saves=None))
        back = members(partial(reverse, asked_parts(asked, possible)))
        y_bar, (field_bar, t0_bar) = back(promote(problem))
        bar = jax.tree.map(lambda x: None, operands)._replace(field=field_bar, t0=t0_bar)
        if times:
            along = _along(integrator, bars, ys, saves, operands)
            bar = bar._replace(span=along[0]) if single else bar._replace(saves=along)
        y_bar, bar = jax.tree.map(lambda x: jnp.where(unreached, jnp.full_like(x, jnp.nan), x), (y_bar, bar))
        return ((y_bar, bar),)

    solve.defvjp(forward, backward, symbolic_zeros=True)
    # promoted outside the rule, so that the promotion's transpose adds up what devices contribute
    return solve(promote(reverse_only((y0, operands), IN_FORWARD_MODE)))


def _engine(batch: Batch) -> Lanes | Unbatched:
    """Returns lanes, or for one member functions as they are, which compile faster than scattered ones."""
    return Lanes(batch.lanes) if batch.lanes is not None else Unbatched()


def _along(integrator: Integrator, bars: PyTree, ys: PyTree, saves: Array, operands: Operands) -> Array:
    """Returns the cotangents of the saved times: the product of each state's with the vector field there.

    A solve may begin and end at events, see `_between_events`: there the field is the field within the solve.
    """
    least = BEYOND * resolution_of(operands.t0, operands.t0 + operands.direction * operands.span)
    most = jnp.maximum(operands.span - least, least)

    def one(bar, y, s):
        slope = integrator.field(operands.t0 + operands.direction * jnp.clip(s, least, most), y, operands.field)
        zero = jnp.zeros_like(s)  # a state that is missing has no cotangent
        products = [
            jnp.sum(jnp.where(b == 0, zero.astype(b.real.dtype), jnp.real(b * k))).astype(s.dtype)
            for b, k in zip(jax.tree.leaves(bar), jax.tree.leaves(slope))
        ]
        return operands.direction * sum(products, zero)

    return jax.vmap(one)(bars, ys, saves)


def _check(integrator: Integrator, operands: Operands, variant: Variant, rtol: Any, atol: Any, name: str) -> None:
    if integrator.control is None and (rtol is not None or atol is not None):
        raise ValueError(
            f"`{name}(rtol=..., atol=...)` requires a solve with error control, but this one has fixed steps, which "
            "the backward pass also uses. Pass `rtol` or `atol` to `solve`, or leave them out here."
        )
    if isinstance(integrator.stepper, WithHistory):
        raise TypeError(
            f"`adjoint={name}()` integrates an adjoint equation from the end, where a multistep method such as "
            f"{type(integrator.stepper.base).__name__} has no earlier steps. "
            "Use `adjoint=sciml.adjoints.Checkpointed()`, or a Runge-Kutta method."
        )
    if isinstance(integrator.stepper, Within | Projected):
        raise ValueError(
            f"`adjoint={name}()` integrates an adjoint equation, which does not account for the changes that "
            "`positive`, `domain` or `project` made to the solution. Use `adjoint=sciml.adjoints.Checkpointed()`."
        )
    if isinstance(integrator.field, SplitField):
        raise TypeError(
            f"`adjoint={name}()` integrates an adjoint equation, which lacks the structure that the solver requires. "
            "Use `adjoint=sciml.adjoints.Checkpointed()`, or a Runge-Kutta method."
        )
    if not variant.state and not integrator.stepper.traits.dense:
        raise TypeError(
            f"`adjoint={name}()` requires dense output, but {type(integrator.stepper).__name__} does not interpolate "
            "(`dense = False`). Use `adjoint=sciml.adjoints.Checkpointed()`."
        )
    if not isinstance(integrator.stepper, Rosenbrock | ESDIRK):
        return
    if integrator.stepper.mass is not None:
        raise ValueError(
            f"`adjoint={name}()` does not support the mass matrix of the solver. "
            "Use `adjoint=sciml.adjoints.Checkpointed()`."
        )
    complex_operands = [x for x in operands.field if jnp.iscomplexobj(x)]
    if variant.parameters and complex_operands:
        raise ValueError(
            f"`adjoint={name}()` integrates the cotangents of the parameters, which implicit methods do not support "
            "for complex parameters. Use `adjoint=sciml.adjoints.Gauss()`, or pass the real and imaginary parts as "
            "parameters."
        )
