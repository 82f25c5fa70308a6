"""Equations that bring their own derivatives, which whoever differentiates an evaluation over lanes must get."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._jax._vma import struct, vma_of
from ..._jax.programs import program_called, run_equation
from ._values import Constant, Stacked, Value, over_all_lanes, stack, unstack

Evaluate = Callable[[Any, Sequence[Any], list[Value]], list[Value]]
"""`evaluate(jaxpr, consts, inputs)`: the results of a member's program over lanes."""


class _Unfilled(NamedTuple):
    """Values without the entries that are not known: JAX keeps what rules close over longer than a trace may live."""

    structure: Any
    known: list

    def values(self, entries: Sequence[Any]) -> list[Value]:
        """Returns the values with other entries."""
        rest = iter(entries)
        return jax.tree.unflatten(self.structure, [next(rest) if x is None else x for x in self.known])

    def tangents(self, entries: Sequence[Any]) -> list[Value]:
        """Returns values of tangents; what is known does not move."""
        rest = iter(entries)
        return jax.tree.unflatten(self.structure, [next(rest) if x is None else np.zeros_like(x) for x in self.known])


def _split(values: list[Value]) -> tuple[_Unfilled, list]:
    """Returns values without the entries that are not known, and these."""
    entries, structure = jax.tree.flatten(values)
    known = [x if isinstance(x, Constant) else None for x in entries]
    return _Unfilled(structure, known), [x for x in entries if not isinstance(x, Constant)]


def custom_jvp_call(eqn: Any, inputs: list[Value], evaluate: Evaluate) -> list[Value]:
    """Evaluates a function of `jax.custom_jvp`, whose rule stays the rule of the evaluation."""
    called = program_called(eqn)
    assert called is not None
    inner, consts = called
    given, entries = _split(inputs)
    if not entries:
        return evaluate(inner, consts, inputs)
    lanes = next((count for v in inputs if (count := _lanes_of(v)) is not None), None)
    moving = [i for i, v in enumerate(eqn.invars) if jnp.issubdtype(v.aval.dtype, jnp.inexact)]

    @jax.custom_jvp
    def run(entries):
        # a result that members share may have a derivative that they do not
        return [_over(lanes, v) for v in evaluate(inner, consts, given.values(entries))]

    def pushed(primals, tangents):
        """The tangents of one member's inexact results, by the rule."""

        def of_moving(*xs):
            every = list(primals)
            for i, x in zip(moving, xs):
                every[i] = x
            out = run_equation(eqn, every)
            return [x for x in out if jnp.issubdtype(x.dtype, jnp.inexact)]

        return jax.jvp(of_moving, tuple(primals[i] for i in moving), tuple(tangents))[1]

    @run.defjvp
    def _(primals, tangents):
        out = run(*primals)
        values, moves = given.values(primals[0]), given.tangents(tangents[0])
        kinds = [struct(v.aval.shape, v.aval.dtype, vma_of(v.aval)) for v in eqn.invars]  # as the rule was traced
        closed = jax.make_jaxpr(pushed)(kinds, [kinds[i] for i in moving])
        rates = iter(evaluate(closed.jaxpr, closed.consts, [*values, *(moves[i] for i in moving)]))
        found = []
        for value, v in zip(out, eqn.outvars):
            rate = next(rates) if jnp.issubdtype(v.aval.dtype, jnp.inexact) else None
            found.append(_like(value, rate))
        return out, found

    return run(entries)


def _lanes_of(value: Value) -> int | None:
    """Returns over how many lanes a value differs; None where all members share it."""
    if isinstance(value, Stacked):
        return value.array.shape[-1] if value.batched else None
    return next((x.shape[0] for x in value.elements.reshape(-1) if np.ndim(x)), None)


def _over(lanes: int | None, value: Value) -> Value:
    return value if lanes is None or _lanes_of(value) is not None else over_all_lanes(value, lanes)


def _like(value: Value, rate: Value | None) -> Value:
    """Returns a tangent in the form of what it is the tangent of, and as large; its own program may give another."""
    entries, structure = jax.tree.flatten(value)
    if rate is None:
        return jax.tree.unflatten(structure, [np.zeros(np.shape(x), jax.dtypes.float0) for x in entries])
    if isinstance(value, Stacked):
        count = value.array.shape[-1] if value.batched else None
        array = stack(rate, count).array
        array = array[..., None] if array.ndim < value.array.ndim else array  # members that move alike
        rates = [array]
    else:
        rates = jax.tree.leaves(unstack(rate))
    return jax.tree.unflatten(
        structure, [jnp.broadcast_to(jnp.asarray(r, x.dtype), np.shape(x)) for r, x in zip(rates, entries, strict=True)]
    )


def linear_solve(eqn: Any, inputs: list[Value], evaluate: Evaluate, count: int | None) -> list[Value]:
    r"""Evaluates the program that solves the system $W x = b$.

    Whoever differentiates the evaluation from outside gets $W \dot x = \dot b - \dot W x$, as the equation promises.
    """
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    matrix = inputs[: lengths.matvec]
    first = lengths.matvec + lengths.vecmat
    given, traced = _split([*matrix, *inputs[first : first + lengths.solve]])

    def run(program, factors, entries, vector):
        values = given.values(entries)
        consts = values[lengths.matvec :] if factors else values[: lengths.matvec]
        return [over_all_lanes(v, count) for v in evaluate(program.jaxpr, program.consts, consts + vector)]

    @jax.custom_jvp
    def solve(entries, b):
        return run(jaxprs.solve, True, entries, b)

    @solve.defjvp
    def _(primals, tangents):
        entries, b = primals
        x = solve(entries, b)
        _, change = jax.jvp(lambda t: run(jaxprs.matvec, False, t, x), (entries,), tangents[:1])
        return x, solve(entries, jax.tree.map(jnp.subtract, tangents[1], change))

    return solve(traced, [over_all_lanes(v, count) for v in inputs[sum(lengths) :]])
