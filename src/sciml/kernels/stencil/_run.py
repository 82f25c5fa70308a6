r"""`StencilRun`: a number of steps by XLA or a kernel, with a rule of reverse mode.

Forwards it keeps the states at the starts of segments, about as many as there are steps in one. Backwards it runs each
segment again, step by step by the reference, and derives each step by a stencil over the cotangents (see `_adjoint`).
If the adjoint reads no state, it keeps none and runs nothing again.

The derivative of one step, as a separate stencil.

With the update $u'_i = f(u_{i+s} : s \in S)$ and cotangents $\bar u'$ of the new values, the cotangents of the padded
fields are

$$\bar u_j = \sum_{s \in S} \frac{\partial f}{\partial u_{i+s}}\bigg|_{i = j - s} \bar u'_{j-s}:$$

every cell reads the cotangents of its neighbours and, where $f$ is not linear, the fields around them, up to twice as
far away. JAX's own transpose of a read is a sum into a shifted array instead, one for each read, which costs several
times as much. The cotangents of ghost cells then go back to what the ghost cells were made of: periodic axes read
the cotangents periodically in the first place, and any other boundary is transposed by JAX.

Beyond the ghost cells a field is continued by its last value, because its derivative there is multiplied by a cotangent
that is zero and must be finite.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._jax._checkpointed_scan import checkpointed_scan
from ..._jax._loops import scan
from ..._jax._static_flags import as_shapes, of_shapes
from ..._jax._vma import promote
from ..._jax.programs import used_inputs
from .._backends import XLA, KernelRequest
from .._use import requested
from ._closure import closure_converted
from ._ghost_weights import NotForKernelsError
from ._kernel import AbstractStencilKernel
from ._reference import behind_barriers, named, padded, reader, step, window
from ._select import StencilSelection, choose, first_plan
from ._sharded import HaloBlock, is_sharded, several_steps, several_steps_by_kernel
from ._update import Fields, StencilUpdate, as_params, without_periodic, wrap
from .mosaic._sums import with_plain_sums


def adjoint_step(
    update: StencilUpdate, state: Fields, params: PyTree, coefficients: Fields, cotangent: Fields, wanted: Any
) -> tuple[Fields, Any]:
    """Returns the cotangents of a step's inputs.

    Args:
        update: The update.
        state: The state before the step.
        params: The parameters.
        coefficients: The coefficients.
        cotangent: The cotangents of the state after the step.
        wanted: A pair of booleans: whether the cotangents of parameters and of coefficients are needed, or are zero.

    Returns:
        The cotangents of the state, of the leaves of `(update, params)`, and of the coefficients.
    """
    shape, r = state[0].shape, update.radius
    if update.stages > 1:
        return _by_transposition(update, state, params, coefficients, cotangent)
    of_parameters, of_coefficients = wanted
    reads = update.reads(len(shape), state[0].dtype, params)
    names = update.fields + (update.coefficients if of_coefficients else ())
    by_cell = adjoint_of(update, reads, names)
    leaves, static = eqx.partition((update, params), eqx.is_inexact_array)
    zero = jax.tree.map(jnp.zeros_like, leaves)

    def ghosts(leaves: Any, state: Fields, coefficients: Fields) -> Fields:
        return padded(eqx.combine(leaves, static)[0], state, coefficients)

    if all(b is None for b in update.boundaries):
        # a neighbour's cotangent, r cells away, is multiplied by a derivative that reads r cells around that neighbour
        wide = behind_barriers(tuple(wrap(x, 2 * r) for x in state + coefficients))
        padded_cotangents = behind_barriers(tuple(wrap(x, r) for x in cotangent))
        new = by_cell(_both(update, wide, padded_cotangents, 2 * r, r, shape), params)
        of_leaves, (of_state, of_coefs) = zero, _split(new, state, coefficients)
    else:
        arrays, back = jax.vjp(ghosts, leaves, state, coefficients)
        # the last value goes on, whose derivative is finite; it is multiplied by a cotangent of zero
        wide = behind_barriers(tuple(jnp.pad(x, 2 * r, mode="edge") for x in arrays))
        padded_cotangents = behind_barriers(tuple(jnp.pad(x, 2 * r) for x in cotangent))
        new = by_cell(_both(update, wide, padded_cotangents, 2 * r, r, tuple(n + 2 * r for n in shape)), params)
        new = sum(_split(new, arrays[: len(state)], arrays[len(state) :]), ())
        of_leaves, of_state, of_coefs = back(new)
    if of_parameters:  # every cell adds to these, so they come from a sum over the field and no stencil
        arrays = behind_barriers(padded(update, state, coefficients))

        def by_parameters(leaves: Any) -> Fields:
            moved, params = eqx.combine(leaves, static)
            return moved.new_values(reader(update, named(update, arrays), (r,) * len(shape), shape), params, state[0])

        of_leaves = jax.tree.map(jnp.add, of_leaves, jax.vjp(by_parameters, leaves)[1](cotangent)[0])
    return of_state, (of_leaves, of_coefs)


def _by_transposition(
    update: StencilUpdate, state: Fields, params: PyTree, coefficients: Fields, cotangent: Fields
) -> tuple[Fields, Any]:
    """The cotangents of a step in several stages, by JAX's transpose of its reads."""
    leaves, static = eqx.partition((update, params), eqx.is_inexact_array)

    def run(leaves: Any, state: Fields, coefficients: Fields) -> Fields:
        moved, params = eqx.combine(leaves, static)
        return step(moved, state, params, coefficients)

    of_leaves, of_state, of_coefficients = jax.vjp(run, leaves, state, coefficients)[1](cotangent)
    return of_state, (of_leaves, of_coefficients)


def bar(name: str) -> str:
    """Returns the name of a field's cotangent."""
    return f"bar {name}"


def adjoint_of(update: StencilUpdate, reads: dict, names: tuple[str, ...]) -> Callable[[Any, PyTree], tuple]:
    """Returns the adjoint of an update's function, a function of the same kind.

    It reads the cotangent of a field by `nb(bar(field), ...)` and fields as before, and returns the cotangents of
    `names`; None for one that is never read.
    """

    def by_cell(nb: Callable[..., Array], params: PyTree) -> tuple:
        total: dict[str, Any] = dict.fromkeys(names)
        for shift, read in reads.items():
            mine = [name for name in read if name in names]
            if not mine:
                continue
            back = tuple(-s for s in shift)
            cotangent = tuple(nb(bar(name), *back) for name in update.fields)

            def new(values: dict, shift: tuple = shift) -> tuple:
                def neighbour(name: str, *where: int) -> Array:
                    where = update.check_shift(name, where, len(shift))
                    same = where == shift and name in values  # the one read that this derivative is by
                    return values[name] if same else nb(name, *(w - s for w, s in zip(where, shift)))

                return update.new_values(neighbour, params, cotangent[0])

            values = {name: nb(name, *(0,) * len(shift)) for name in mine}
            for name, term in jax.vjp(new, values)[1](cotangent)[0].items():
                total[name] = term if total[name] is None else total[name] + term
        return tuple(total.values())

    return by_cell


class _Transposed(eqx.Module):
    """The function of a linear update's transpose, with the leaves of the update."""

    update: StencilUpdate
    reads: tuple = eqx.field(static=True)

    def __call__(self, nb: Callable[..., Array], params: PyTree) -> tuple:
        leaves, static = eqx.partition((self.update, params), eqx.is_array)
        zeros = (0,) * len(self.reads[0][0]) if self.reads else ()

        def whole(leaves: PyTree, read: Callable[..., Array]) -> tuple:
            update, params = eqx.combine(leaves, static)

            def of_cotangents(name: str, *shift: int) -> Array:
                if name in update.fields:  # its derivatives do not depend on them
                    return jnp.zeros_like(read(bar(name), *zeros))
                return read(name, *shift)

            found = adjoint_of(update, dict(self.reads), update.fields)(of_cotangents, params)
            return tuple(0.0 if x is None else x for x in found)

        like, read = jnp.zeros_like(nb(bar(self.update.fields[0]), *zeros)), {}

        def record(name: str, *shift: int) -> Array:
            read[name, shift] = True
            return like

        jax.eval_shape(lambda leaves: whole(leaves, record), leaves)

        def from_values(leaves: PyTree, values: list) -> tuple:
            known = dict(zip(read, values))
            return whole(leaves, lambda name, *shift: known[name, shift])

        return with_plain_sums(from_values, leaves, [nb(name, *shift) for name, shift in read])


def transposed(update: StencilUpdate, ndim: int, dtype: Any, params: PyTree) -> StencilUpdate:
    """Returns the transpose of an update that is linear in its fields and periodic, an update of their cotangents."""
    fn = _Transposed(update, tuple(update.reads(ndim, dtype, params).items()))

    def with_radius(radius: int) -> StencilUpdate:
        fields = tuple(map(bar, update.fields))
        return StencilUpdate(fn, fields=fields, coefficients=update.coefficients, radius=radius)

    widest = with_radius(2 * update.radius)
    furthest = max((abs(s) for shift in widest.reads(ndim, dtype, params) for s in shift), default=1)
    return with_radius(max(1, furthest))


def reads_state(update: StencilUpdate, ndim: int, dtype: Any, params: PyTree) -> bool:
    """Returns whether the adjoint reads fields, which it does unless the update is linear in them.

    The adjoint of an update of several stages counts as if it did.
    """
    if update.stages > 1:
        return True
    reads = update.reads(ndim, dtype, params)
    by_cell = adjoint_of(update, reads, update.fields)
    keys = [(name, shift) for shift, read in reads.items() for name in read if name in update.fields]
    # the adjoint is traced for one cell, and reads fields if they are used for what it returns
    leaves, static = eqx.partition(params, eqx.is_array)

    def cell(values: dict, rest: dict, leaves: PyTree) -> tuple:
        def nb(name: str, *shift: int) -> Array:
            return values[name] if name in values else rest[name]

        found = by_cell(nb, eqx.combine(leaves, static))
        return tuple(x for x in found if x is not None)

    one = jax.ShapeDtypeStruct((), dtype)
    rest = {name: one for name in (*map(bar, update.fields), *update.coefficients)}
    values = {name: one for name, _ in keys}
    jaxpr = jax.make_jaxpr(cell)(values, rest, leaves).jaxpr
    return any(used_inputs(jaxpr)[: len(values)])


def _both(
    update: StencilUpdate, wide: Fields, padded_cotangents: Fields, at: int, at_cotangents: int, shape: tuple
) -> Any:
    """`nb` that reads fields and cotangents; `at` and `at_cotangents` are where the first cell stands in each."""
    arrays = named(update, wide)
    cotangents = {bar(name): x for name, x in zip(update.fields, padded_cotangents)}

    def nb(name: str, *shift: int) -> Array:
        if name in cotangents:
            return window(cotangents[name], tuple(at_cotangents + s for s in shift), shape)
        return window(arrays[name], tuple(at + s for s in shift), shape)

    return nb


def _split(new: tuple, state: Fields, coefficients: Fields) -> tuple[Fields, Fields]:
    """The cotangents of fields and coefficients, zero where there are none."""
    likes = state + coefficients
    found = [jnp.zeros_like(x) if i >= len(new) or new[i] is None else new[i] for i, x in enumerate(likes)]
    return tuple(found[: len(state)]), tuple(found[len(state) :])


class _Residuals(NamedTuple):
    """The values that the backward pass needs from the forward pass.

    Attributes:
        leaves: The leaves of update and parameters.
        starts: The states at the starts of segments, for each kind of segment; without any where none is needed.
        like: A state.
        rest: The coefficients.
        flags: Whether leaves and coefficients are differentiated, and whether the adjoint reads no state.
    """

    leaves: Any
    starts: list
    like: Fields
    rest: Fields
    flags: Any


class StencilRun(NamedTuple):
    """A number of steps of an update; it has no arrays.

    Attributes:
        static: The parts of update and parameters that are not floating-point arrays.
        n_steps: The number of steps.
        chosen: The backend.
    """

    static: Any
    n_steps: int
    chosen: StencilSelection

    def differentiable(self) -> Callable[[Any, Fields, Fields], Fields]:
        """Returns the function `(leaves, fields, coefficients) -> fields` with its rule for reverse mode."""

        @jax.custom_vjp
        def run(leaves: Any, state: Fields, rest: Fields) -> Fields:
            return self.steps(leaves, state, rest, self.n_steps)

        def forward(leaves: Any, state: Any, rest: Any) -> Any:
            # with symbolic zeros JAX says of every input whether it is differentiated at all
            flags = [any(x.perturbed for x in jax.tree.leaves(tree, is_leaf=_is_primal)) for tree in (leaves, rest)]
            leaves, state, rest = jax.tree.map(lambda x: x.value, (leaves, state, rest), is_leaf=_is_primal)
            update, params = self.whole(leaves)
            if any(flags) or reads_state(update, state[0].ndim, state[0].dtype, params):
                end, starts = self.segments(leaves, state, rest)
                return end, _Residuals(leaves, starts, state, rest, as_shapes((*flags, False)))
            none = [jax.tree.map(lambda x: x[None][:0], state) for _ in _segments(self.n_steps)]
            return run(leaves, state, rest), _Residuals(leaves, none, state, rest, as_shapes((False, False, True)))

        run.defvjp(forward, self.backward, symbolic_zeros=True)
        return run

    def whole(self, leaves: Any) -> tuple[StencilUpdate, PyTree]:
        """Returns update and parameters."""
        return eqx.combine(leaves, self.static)

    def steps(self, leaves: Any, state: Fields, rest: Fields, n: int) -> Fields:
        """Returns the state some steps on."""
        (update, params), chosen = self.whole(leaves), self.chosen
        if chosen.kernel is not None and not is_sharded(update):
            stages = n * update.stages
            found = chosen.kernel.advance(update, params, state, rest, stages, chosen.plan, chosen.interpreted)
            return _checked(found, state, type(chosen.kernel).__name__)
        for passes, k, one in passes_of(update, params, state[0], rest, n, chosen):
            state, _ = scan(lambda s, _, one=one, k=k: (one(s, k), None), state, length=passes, like=(leaves, rest))
        return state

    def segments(self, leaves: Any, state: Fields, rest: Fields) -> tuple[Fields, list]:
        """Returns the state after all steps, and those at the starts of segments."""
        starts = []
        for count, size in _segments(self.n_steps):

            def segment(s: Fields, _: None, size: int = size) -> tuple[Fields, Fields]:
                return self.steps(leaves, s, rest, size), s

            state, start = scan(segment, state, length=count, like=(leaves, rest))
            starts.append(start)
        return state, starts

    def backward(self, kept: _Residuals, cotangent: Any) -> Any:
        """Returns the cotangents of leaves, state and coefficients."""
        leaves, starts, like, rest, flags = kept
        *wanted, frozen = of_shapes(flags)
        update, params = self.whole(leaves)
        cotangent = tuple(
            jnp.zeros_like(x) if isinstance(c, jax.custom_derivatives.SymbolicZero) else c
            for c, x in zip(cotangent, like)
        )
        total = jax.tree.map(jnp.zeros_like, (leaves, rest))  # zero to the end where they are not wanted

        def back(carry: Any, state: Fields) -> tuple[Any, None]:
            cotangent, total = carry
            cotangent, more = adjoint_step(update, state, params, rest, cotangent, wanted=tuple(wanted))
            return (cotangent, jax.tree.map(jnp.add, total, more)), None

        def segment(carry: Any, start: Fields, size: int) -> tuple[Any, None]:
            def once(s: Fields, _: None) -> tuple[Fields, Fields]:
                return step(update, s, params, rest), s

            # the reference runs them, whatever ran them forwards: its derivatives belong to these states
            states = scan(once, start, length=size, like=(leaves, rest))[1]
            return scan(back, carry, states, reverse=True, like=(leaves, rest))

        carry = (cotangent, total)
        by_kernel = _transpose_by_kernel(self.chosen, update, params, cotangent, rest, self.n_steps) if frozen else None
        if by_kernel is not None:
            carry = by_kernel, total
        elif frozen:  # any state will do where none is read
            carry, _ = scan(lambda c, _: back(c, like), carry, length=self.n_steps, like=(leaves, rest, like))
        else:
            for (_, size), start in reversed(list(zip(_segments(self.n_steps), starts))):
                carry, _ = scan(
                    lambda c, s, size=size: segment(c, s, size), carry, start, reverse=True, like=(leaves, rest)
                )
        cotangent, (of_leaves, of_rest) = carry
        return of_leaves, cotangent, of_rest


def passes_of(
    update: StencilUpdate, params: PyTree, like: Array, rest: Fields, n_steps: int, chosen: StencilSelection
) -> list[tuple[int, int, Callable[[Fields, int], Fields]]]:
    """Returns passes of several steps: their number, their steps, and the function `(state, steps) -> state` of one."""
    k, kernel = chosen.steps_per_pass, chosen.kernel
    if kernel is not None:
        wide = tuple(map(HaloBlock(update, like.shape, chosen.plan.steps * update.radius).padded, rest))

        def one(state: Fields, steps: int) -> Fields:
            plan, interpreted = chosen.plan, chosen.interpreted
            return several_steps_by_kernel(update, state, params, wide, steps, plan, kernel, interpreted)
    elif not chosen.one_exchange:

        def one(state: Fields, steps: int) -> Fields:
            return step(update, state, params, rest)
    else:
        wide = tuple(update.boundary.extend(c, k * update.stages * update.radius) for c in rest)

        def one(state: Fields, steps: int) -> Fields:
            return several_steps(update, state, params, wide, steps)

    whole, left = divmod(n_steps, k)
    return [(count, steps, one) for count, steps in ((whole, k), (1, left)) if count and steps]


def _transpose_by_kernel(
    chosen: StencilSelection, update: StencilUpdate, params: PyTree, cotangent: Fields, rest: Fields, n_steps: int
) -> Fields | None:
    """The cotangents before the steps of a linear update, by the kernel that ran it; None where it cannot."""
    like = cotangent[0]
    if chosen.kernel is None or any(b is not None for b in update.boundaries):
        return None
    back = transposed(update, like.ndim, like.dtype, params)
    try:  # what suits one direction suits the other, where it fits
        plan = first_plan(chosen.kernel, back, params, like, (chosen.plan.steps, chosen.plan.rows), (None,))
    except NotForKernelsError:
        return None
    return chosen.kernel.advance(back, params, cotangent, rest, n_steps, plan, chosen.interpreted)


def _is_primal(x: Any) -> bool:
    return hasattr(x, "perturbed")


def _segments(n_steps: int) -> list[tuple[int, int]]:
    """The number and the length of the segments of a run: equal ones, and one of what remains."""
    if n_steps == 0:
        return []
    size = max(1, math.isqrt(n_steps))
    whole, rest = divmod(n_steps, size)
    return [(whole, size)] + ([(1, rest)] if rest else [])


def _checked(found: Any, state: Fields, kernel: str) -> Fields:
    """Returns what a kernel returned.

    Raises:
        TypeError: If it is not like the fields that it was given.
    """
    got, right = ([(jnp.shape(x), jnp.result_type(x).name) for x in jax.tree.leaves(tree)] for tree in (found, state))
    if not isinstance(found, tuple | list) or got != right:
        what = f"{got} in a {type(found).__name__}" if isinstance(found, tuple | list) else type(found).__name__
        raise TypeError(f"`{kernel}.advance` must return a tuple of fields like `state`, {right}, but returns {what}.")
    return tuple(found)


# `evolve`: many steps of a stencil update, by XLA or the kernel that `select` chooses, and with a gradient.


def evolve(
    update: StencilUpdate,
    state: PyTree,
    n_steps: int,
    params: PyTree = None,
    *,
    coefficients: Mapping[str, Any] | None = None,
    impl: str | AbstractStencilKernel | None = None,
    interpret: bool = False,
    steps_per_pass: int | None = None,
) -> PyTree:
    r"""Runs an update over a number of steps.

    Reverse mode has a custom rule. It keeps about $2 \sqrt n$ states of $n$ steps, the starts of segments and the
    states of one segment at a time, runs every segment twice, and differentiates each step by a stencil over the
    cotangents, which XLA runs. If the update is linear in the fields and neither parameters nor coefficients are
    differentiated, it keeps no states and runs nothing twice; if all axes are also periodic, a kernel that can run the
    transpose is used backwards as well as forwards.

    Args:
        update: The update.
        state: The fields, with one to three axes, the axes of the grid: an array for one field, otherwise a tuple in
            the order of `update.fields`, or a mapping by name. `jax.vmap` runs members.
        n_steps: The number of steps.
        params: The second argument of `update.fn`, a PyTree. Its floating-point numbers take the dtype of the fields.
        coefficients: The fields named in `update.coefficients`, by name.
        impl: The backend: `"auto"`, `"xla"`, `"pallas"` or a custom kernel, see `select`; by default the setting of the
            block of `kernels.use`. `"xla"` is the reference without a custom rule: slower in reverse mode, but it
            supports forward mode and derivatives of higher order.
        interpret: Whether the kernel runs in JAX's interpreter, on any machine and slowly, to check it.
        steps_per_pass: The number of steps of a kernel per pass over memory; without it, the kernel chooses. XLA
            computes one at a time. If the boundary is a `sciml.parallel.Domain`, this number of steps, with all their
            stages, is taken for each exchange between devices; the default is one stage, or the kernel's choice.

    Returns:
        The state after the steps, in the form it came in.

    Raises:
        ValueError: If the state does not fit the update, or a number of steps is negative, or the kernel that `impl`
            requests cannot run the update.
        TypeError: If the number of steps is not a known integer, or `update` is not a `StencilUpdate`.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        from sciml.kernels.stencil import StencilUpdate, evolve

        def gray_scott(nb, p):
            def laplacian(field):
                around = nb(field, -1, 0) + nb(field, 1, 0) + nb(field, 0, -1) + nb(field, 0, 1)
                return around - 4 * nb(field)

            u, v = nb("u"), nb("v")
            reaction = u * v * v
            return {
                "u": u + p["Du"] * laplacian("u") - reaction + p["F"] * (1 - u),
                "v": v + p["Dv"] * laplacian("v") + reaction - (p["F"] + p["k"]) * v,
            }

        update = StencilUpdate(gray_scott, fields=("u", "v"))
        state = {"u": jnp.ones((32, 32)), "v": jnp.zeros((32, 32)).at[12:20, 12:20].set(0.5)}
        params = {"Du": 0.16, "Dv": 0.08, "F": 0.035, "k": 0.065}
        end = evolve(update, state, 50, params)
        grad = jax.grad(lambda p: jnp.sum(evolve(update, state, 50, p)["v"]))(params)
        assert end["v"].shape == (32, 32) and set(grad) == set(params)
        ```
    """
    if isinstance(n_steps, bool) or not isinstance(n_steps, int | np.integer):
        raise TypeError(f"`evolve(n_steps=...)` must be a constant integer, but is {n_steps!r}.")
    if n_steps < 0:
        raise ValueError(f"`evolve(n_steps=...)` must not be negative, but is {n_steps}.")
    if not isinstance(update, StencilUpdate):
        raise TypeError(f"`evolve(update=...)` must be a `StencilUpdate`, but is a {type(update).__name__}.")
    request = requested(impl, interpret)
    return evolve_by(request, update, state, int(n_steps), params, coefficients, steps_per_pass)


def evolve_by(
    request: KernelRequest,
    update: StencilUpdate,
    state: PyTree,
    n_steps: int,
    params: PyTree = None,
    coefficients: Mapping[str, Any] | None = None,
    steps_per_pass: int | None = None,
) -> PyTree:
    """Returns the state some steps later, with the requested backend; see `evolve`."""
    fields, rest = update.arrays_of(state, coefficients)
    update = without_periodic(update, fields[0].shape)
    params = as_params(params, fields[0].dtype)
    update.reads(fields[0].ndim, fields[0].dtype, params)  # for its errors
    update = closure_converted(update, fields[0].ndim, fields[0].dtype, params)
    chosen = choose(request, update, fields, params, coefficients=coefficients, steps_per_pass=steps_per_pass)
    if request == XLA:
        found = fields
        for passes, k, one in passes_of(update, params, fields[0], rest, n_steps, chosen):
            found, _ = checkpointed_scan(lambda s, _, one=one, k=k: (one(s, k), None), found, length=passes)
        return update.as_state(found, state)
    leaves, static = eqx.partition((update, params), eqx.is_inexact_array)
    leaves, fields, rest = promote((leaves, fields, rest))
    fields = StencilRun(static, n_steps, chosen).differentiable()(leaves, fields, rest)
    return update.as_state(fields, state)
