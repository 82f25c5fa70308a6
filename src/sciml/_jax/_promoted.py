"""Programs whose inputs vary over other axes of a mesh than when they were traced.

JAX writes into a program where its values are promoted, and refuses to promote what varies already.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.extend as jex
import jax.numpy as jnp

from ._jaxprs import is_literal, program_called, programs_within, run_equation, scan_counts
from ._vma import match, promote, struct, to_varying, vma_of


def as_promoted_function(closed: jex.core.ClosedJaxpr) -> Callable[..., list]:
    """Returns a program as a function whose inputs may vary over other axes than when it was traced.

    JAX writes into a program where its values are promoted, and refuses to promote what varies already.
    Here values are promoted to the axes that the inputs vary over now.
    """
    jaxpr = closed.jaxpr

    def run(*args):
        # all to the same axes, for JAX refuses operands of one equation that vary over different ones
        consts, args = promote((list(closed.consts), list(args)))
        axes = vma_of((consts, args))
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args)))

        def read(v):
            return jnp.asarray(v.val, v.aval.dtype) if is_literal(v) else known[v]

        for eqn in jaxpr.eqns:
            if eqn.primitive.name in ("pvary", "pcast"):
                out = [to_varying(read(v), axes) for v in eqn.invars]
            elif eqn.primitive.name in ("jit", "pjit"):
                out = as_promoted_function(eqn.params["jaxpr"])(*map(read, eqn.invars))
            elif eqn.primitive.name in _TRACED_ANEW and not all(_as_then(read(v), v) for v in eqn.invars):
                inputs = to_varying(list(map(read, eqn.invars)), axes)
                out = _TRACED_ANEW[eqn.primitive.name](eqn, inputs, axes, jaxpr.debug_info)
            elif any(programs_within(eqn)):
                out = run_equation(eqn, map(read, eqn.invars), jaxpr.debug_info)
            else:
                # literals, and what `axis_index` makes anew, vary over fewer axes than what was promoted
                made = eqn.primitive.bind(*promote(list(map(read, eqn.invars))), **eqn.params)
                out = made if eqn.primitive.multiple_results else [made]
            known.update(zip(eqn.outvars, out))
        return [read(v) for v in jaxpr.outvars]

    return run


def _as_then(x: Any, atom: Any) -> bool:
    """Whether an operand varies over the axes that it varied over when the program was traced."""
    return is_literal(atom) or vma_of(x) == vma_of(atom.aval)


def _promoted_while(eqn: Any, inputs: list, axes: frozenset, _: Any) -> list:
    params = eqn.params
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    going, body = as_promoted_function(params["cond_jaxpr"]), as_promoted_function(params["body_jaxpr"])
    return jax.lax.while_loop(
        lambda carry: going(*inputs[:first], *carry)[0],
        lambda carry: to_varying(body(*inputs[first:second], *carry), axes),
        inputs[second:],
    )


def _promoted_scan(eqn: Any, inputs: list, axes: frozenset, _: Any) -> list:
    first, carried = scan_counts(eqn)
    second = first + carried
    body = as_promoted_function(eqn.params["jaxpr"])

    def step(carry: list, xs: list) -> tuple[list, list]:
        out = to_varying(body(*inputs[:first], *carry, *xs), axes)
        return out[: len(carry)], out[len(carry) :]

    options = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    carry, ys = jax.lax.scan(step, inputs[first:second], inputs[second:], **options)
    return [*carry, *ys]


def _promoted_cond(eqn: Any, inputs: list, axes: frozenset, _: Any) -> list:
    branches = [as_promoted_function(branch) for branch in eqn.params["branches"]]
    return jax.lax.switch(inputs[0], [lambda *xs, run=run: to_varying(run(*xs), axes) for run in branches], *inputs[1:])


def _promoted_custom_jvp(eqn: Any, inputs: list, axes: frozenset, debug_info: Any) -> list:
    called = program_called(eqn)
    assert called is not None
    moving = [i for i, v in enumerate(eqn.invars) if jnp.issubdtype(v.aval.dtype, jnp.inexact)]

    @jax.custom_jvp
    def run(*xs: Any) -> list:
        return to_varying(run_program(*called, *xs), axes)

    def pushed(primals: list, tangents: list) -> list:
        def of_moving(*xs: Any) -> list:
            rest = iter(xs)
            return run_equation(eqn, [next(rest) if i in moving else x for i, x in enumerate(primals)], debug_info)

        return jax.jvp(of_moving, [primals[i] for i in moving], tangents)[1]

    @run.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple[list, list]:
        then = [struct(v.aval.shape, v.aval.dtype, vma_of(v.aval)) for v in eqn.invars]
        program = jax.make_jaxpr(pushed)(then, [then[i] for i in moving])
        moved = as_promoted_function(program)(*primals, *(tangents[i] for i in moving))
        return run(*primals), to_varying(moved, axes)

    return run(*inputs)


_TRACED_ANEW = {
    "while": _promoted_while,
    "scan": _promoted_scan,
    "cond": _promoted_cond,
    "custom_jvp_call": _promoted_custom_jvp,
}
"""What keeps programs for the axes that their inputs varied over when they were traced."""


def run_program(jaxpr: jex.core.Jaxpr, consts: Iterable[Any], *args: Any) -> list:
    """Runs a program, whose inputs may by now vary over more axes of a mesh than when it was traced."""
    closed = jex.core.ClosedJaxpr(jaxpr, list(consts))
    manual = jax.sharding.get_abstract_mesh().manual_axes
    return (as_promoted_function(closed) if manual else jex.core.jaxpr_as_fun(closed))(*args)


def as_varying(fn: Callable[[Any], Any], x: Any) -> Callable[[Any], Any]:
    """Returns a function of a PyTree to one like it, all of whose closure varies over the axes that its argument does.

    `jax.lax.custom_linear_solve` makes what its functions close over vary so, and keeps the programs it had traced.
    """
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return fn
    program = jax.make_jaxpr(fn)(x)
    consts = match(list(program.consts), x)
    structure = jax.tree.structure(x)
    return lambda x: jax.tree.unflatten(structure, run_program(program.jaxpr, consts, *jax.tree.leaves(x)))
