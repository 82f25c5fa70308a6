r"""Several steps for each pass over memory, on a TPU, in one dimension.

The field is folded into rows of 128 cells, one after the other. A kernel takes a strip of `rows` rows with 8 more on
either side and keeps it in vector memory for $k$ steps of radius $r$. A neighbour is the strip, rotated along its rows,
with the cells that leave a row taken from the next one. What is wrong at the ends of the strip moves inwards by $r$
cells a step and is not written.

Rotations make the field periodic. Where it does not fill whole strips, or has walls, XLA first puts it into an array
that does: the field first, its upper ghost cells behind it, its lower ones at the very end.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.experimental.pallas as pl
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, PyTree

from ...._jax._loops import scan
from ...._jax._vma import struct, vma_of
from .._ghost_weights import NotForKernelsError, Rule, rules_of
from .._update import Fields, StencilUpdate
from ._check_supported import check_held
from ._packed_operands import Numbers

TAKES_TURNS = True
"""It runs updates whose functions take turns."""

LANES = 128
"""Cells of a row: the width of a TPU's tile."""

HALO = 8
"""Rows above and below a strip: the height of a TPU's tile."""

REACH = 64
"""Cells that stand in for those beyond either end, and the furthest that a pass may reach."""

SIZES = (128, 64, 32, 16, 8)
"""The rows of a strip."""

VECTOR_BYTES = 8 * 2**20
"""Vector memory that a strip may take, with all its copies; half of the smallest there is."""


class Plan(NamedTuple):
    """How a field is cut into strips.

    Attributes:
        shape: The number of cells.
        radius: The radius of the update.
        steps: The steps for each pass.
        rows: The rows of a strip.
        cells: The cells of the global arrays; those of the field where it fills whole strips periodically.
    """

    shape: tuple[int]
    radius: int
    steps: int
    rows: int
    cells: int


def plan(
    update: StencilUpdate,
    params: PyTree,
    shape: tuple[int, ...],
    dtype: Any,
    steps: int | None,
    rows: int | None = None,
) -> Plan:
    """Returns how the kernel would run an update; see `_tpu.plan`.

    Raises:
        NotForKernelsError: If it cannot.
    """
    rules = check_held(update, params, shape, dtype, "mosaic_tpu", ("float32",), 1)
    r, n = update.radius, shape[0]
    steps = max(1, 8 // r) if steps is None else steps
    if steps * r > REACH:
        raise NotForKernelsError(f"{steps} steps of radius {r} for each pass reach further than {REACH} cells")
    walls = any(side[0] is not None for side in rules)
    arrays, fit = 4 * (len(update.fields) + len(update.coefficients) + len(update.inner)), []
    for size in SIZES if rows is None else (rows,):
        unit = size * LANES
        cells = -(-(n + 2 * REACH) // unit) * unit if walls or n % unit else n
        if arrays * (size + 2 * HALO) * LANES * 4 <= VECTOR_BYTES:
            fit.append((cells, size))
    if not fit:
        raise NotForKernelsError(f"strips of {len(update.fields)} fields do not fit into vector memory")
    cells, size = min(fit, key=lambda pair: (pair[0] * (1 + 2 * HALO / pair[1]), -pair[1]))
    return Plan((n,), r, steps, size, cells)


def advance(
    update: StencilUpdate,
    params: PyTree,
    state: Fields,
    coefficients: Fields,
    n_steps: int,
    plan: Plan,
    interpret: Any = False,
) -> Fields:
    """Returns the state after a number of steps; see `_gpu_2d.advance`."""
    passes, rest = divmod(n_steps, plan.steps)
    rules = tuple(side[0] for side in rules_of(update, 1, state[0].dtype))
    numbers = Numbers(((update.fn, params), rules), state[0].dtype, LANES)
    fixed = tuple(_folded(x, plan, rules[0] is None) for x in coefficients)

    def one_pass(state: Fields, steps: int) -> Fields:
        laid = tuple(_folded(x, plan, rule is None) for x, rule in zip(state, rules))
        found = _launch(update, plan._replace(steps=steps), numbers, (*laid, *fixed), interpret)
        return tuple(x.reshape(-1)[: plan.shape[0]] for x in found)

    if passes:
        like = (numbers.rows, fixed)
        state, _ = scan(lambda s, _: (one_pass(s, plan.steps), None), state, length=passes, like=like)
    return one_pass(state, rest) if rest else state


def _folded(x: Array, plan: Plan, periodic: bool) -> Array:
    """A field in rows: the field, its upper ghost cells, and at the end its lower ones."""
    n, size = plan.shape[0], plan.cells
    if size != n:
        index = np.arange(size, dtype=np.int32)
        index = np.where(index < size - REACH, index, index - size)  # the last ones are left of the first
        x = jnp.take(x, index % n if periodic else np.clip(index, 0, n - 1))
    return x.reshape(size // LANES, LANES)


def _launch(update: StencilUpdate, plan: Plan, numbers: Numbers, arrays: Fields, interpret: Any) -> Fields:
    height, count = plan.cells // LANES, len(update.fields)
    blocks, ratio = height // HALO, plan.rows // HALO
    above = pl.BlockSpec((HALO, LANES), lambda i: ((i * ratio - 1 + blocks) % blocks, 0))
    middle = pl.BlockSpec((plan.rows, LANES), lambda i: (i, 0))
    below = pl.BlockSpec((HALO, LANES), lambda i: ((i + 1) * ratio % blocks, 0))
    packed = pl.BlockSpec(numbers.rows.shape, lambda i: (0, 0))
    return pl.pallas_call(
        lambda *refs: _body(update, plan, numbers, interpret is True, refs),
        out_shape=(struct((height, LANES), arrays[0].dtype, vma_of((arrays, numbers.rows))),) * count,
        grid=(height // plan.rows,),
        in_specs=[above, middle, below] * len(arrays) + [packed],
        out_specs=(middle,) * count,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(*(x for x in arrays for _ in range(3)), numbers.rows)


def _body(update: StencilUpdate, plan: Plan, numbers: Numbers, interpreted: bool, refs: Any) -> None:
    names, count = update.fields + update.coefficients, len(update.fields)
    parts, packed, outs = refs[: 3 * len(names)], refs[3 * len(names)], refs[3 * len(names) + 1 :]
    (fn, params), rules = numbers.unpack(lambda row: packed[row, 0])
    update = eqx.tree_at(lambda u: u.fn, update, fn)
    values = [jnp.concatenate([x[...] for x in parts[3 * f : 3 * f + 3]], axis=0) for f in range(len(names))]
    lane = jax.lax.broadcasted_iota(jnp.int32, values[0].shape, 1)

    def rolled(x: Array, by: int, axis: int) -> Array:
        by = by % x.shape[axis]
        return jnp.roll(x, by, axis) if interpreted else pltpu.roll(x, np.int32(by), axis)  # type: ignore[arg-type]

    def turn(x: Array, by: int) -> Array:
        """The strip, with what stands `by` cells further on in the place of each cell."""
        if not by:
            return x
        x = rolled(x, -by, 1)
        inside = lane < LANES - by if by > 0 else lane >= -by
        return jnp.where(inside, x, rolled(x, -1 if by > 0 else 1, 0))

    def with_ghosts(x: Array, pair: tuple[Rule, Rule] | None) -> Array:
        if pair is None:
            return x
        row = jax.lax.broadcasted_iota(jnp.int32, x.shape, 0) + pl.program_id(0) * plan.rows - HALO
        cell = row * LANES + lane
        out, n = x, plan.shape[0]
        for q in range(plan.radius):
            lower = pair[0].ghost(q, lambda m: turn(x, m + q + 1))  # noqa: B023
            upper = pair[1].ghost(q, lambda m: turn(x, -(m + q + 1)))  # noqa: B023
            out = jnp.where(cell == -1 - q, lower, jnp.where(cell == n + q, upper, out))
        return out

    values += [jnp.zeros_like(values[0])] * len(update.inner)
    names = names + update.inner
    for s in range(plan.steps):
        values[:count] = [with_ghosts(x, rule) for x, rule in zip(values[:count], rules)]

        def nb(name: str, *shift: int, values: list = values) -> Array:
            return turn(values[names.index(name)], update.check_shift(name, shift, 1)[0])

        new, kept = update.turn(s).new_values(nb, params, values[0]), values[count : len(values) - len(update.inner)]
        values = [*new[:count], *kept, *new[count:]]
    for f in range(count):
        outs[f][...] = values[f][HALO : HALO + plan.rows]
