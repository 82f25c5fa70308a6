r"""The derivative of one step, as a stencil of its own.

With the update $u'_i = f(u_{i+s} : s \in S)$ and cotangents $\bar u'$ of the new values, those of the padded fields are

$$\bar u_j = \sum_{s \in S} \frac{\partial f}{\partial u_{i+s}}\bigg|_{i = j - s} \bar u'_{j-s}:$$

every cell reads the cotangents of its neighbours and, where $f$ is not linear, the fields around them, up to twice as
far away. JAX's own transpose of a read is a sum into a shifted array instead, one for each read, which costs several
times as much. The cotangents of ghost cells then go back to what the ghost cells were made of: periodic axes read
the cotangents periodically in the first place, and any other boundary is transposed by JAX.

Beyond the ghost cells a field is continued by its last value, because its derivative there is multiplied by a cotangent
that is zero and must be finite.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval
from jaxtyping import Array, PyTree

from ._reference import behind_barriers, named, padded, reader, step, window
from ._update import Fields, StencilUpdate, wrap
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
        wanted: A pair of truth values: whether those of parameters and of coefficients are wanted, or are zero.

    Returns:
        The cotangents of the state, and those of the leaves of `(update, params)` and of the coefficients.
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
    """The function of a linear update's transpose; its leaves are those of the update."""

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
    _, used = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return any(used[: len(values)])


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
