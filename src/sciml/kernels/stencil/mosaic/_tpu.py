r"""Several steps for each pass over memory, on a TPU, in two and three dimensions.

A kernel takes a strip of `rows` rows and the whole width, with `halo` more rows on either side, and keeps it in vector
memory for $k$ steps of radius $r$, $k r \le$ `halo` $\le 8$. The strip, the rows above and the rows below are three
block-aligned views of one array, whose index wraps; neighbours come by rotations, so that all shapes stay the
same, and what is wrong at the ends of the strip moves inwards by $r$ rows a step and is not written. In three
dimensions the rows are planes, of which a halo may have fewer than 8.

Rotations make all axes periodic. Where the field does not fill whole tiles, or has walls, XLA first puts it into an
array that does: the field first, its upper ghost cells behind it, its lower ones at the very end, where rotations find
them. Ghost cells of walls are made anew before every step, where a mask says.
"""

import math
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
from .._ghost_weights import NotForKernelsError, Rule, Sides, rules_of
from .._update import Fields, StencilUpdate
from ._check_supported import check_held
from ._packed_operands import Numbers

HALO = 8
"""Cells that stand in for those beyond the sides, and rows above and below a strip: the height of a TPU's tile."""

TAKES_TURNS = True
"""It runs updates whose functions take turns."""

LANES = 128
"""The width of a TPU's tile."""

SIZES = (128, 64, 32, 16, 8, 4, 2, 1)
"""The rows of a strip."""

VECTOR_BYTES = 8 * 2**20
"""Vector memory that a strip may take, with all its copies; half of the smallest there is."""


class Plan(NamedTuple):
    """How a field is cut into strips.

    Attributes:
        shape: The shape of the field.
        radius: The radius of the update.
        steps: The steps for each pass.
        rows: The rows of a strip.
        halo: The rows above and below it.
        physical: The shape of the global arrays; that of the field where it fills whole strips periodically.
    """

    shape: tuple[int, ...]
    radius: int
    steps: int
    rows: int
    halo: int
    physical: tuple[int, ...]


def plan(
    update: StencilUpdate,
    params: PyTree,
    shape: tuple[int, ...],
    dtype: Any,
    steps: int | None,
    rows: int | None = None,
) -> Plan:
    """Returns how the kernel would run an update; see `_gpu_2d.plan`, with `rows` those of a strip.

    Raises:
        NotForKernelsError: If it cannot.
    """
    ndim = 3 if len(shape) == 3 else 2
    rules = check_held(update, params, shape, dtype, "mosaic_tpu", ("float32",), ndim)
    steps = max(1, (HALO if ndim == 2 else 2) // update.radius) if steps is None else steps
    if steps * update.radius > HALO:
        raise NotForKernelsError(
            f"{steps} steps of radius {update.radius} for each pass reach further than {HALO} cells"
        )
    halo = HALO if ndim == 2 else next(n for n in (1, 2, 4, 8) if n >= steps * update.radius)

    def physical(axis: int, unit: int) -> int:
        walls = any(side[axis] is not None for side in rules)
        return -(-(shape[axis] + 2 * HALO) // unit) * unit if walls or shape[axis] % unit else shape[axis]

    rest = tuple(physical(axis, LANES if axis == ndim - 1 else HALO) for axis in range(1, ndim))
    arrays, fit = 4 * (len(update.fields) + len(update.coefficients) + len(update.inner)), []
    for size in SIZES if rows is None else (rows,):
        if size >= halo and arrays * (size + 2 * halo) * math.prod(rest) * 4 <= VECTOR_BYTES:
            fit.append((physical(0, size), size))
    if not fit:
        raise NotForKernelsError(f"a strip of a field of shape {shape} does not fit into vector memory")
    height, size = min(fit, key=lambda pair: (pair[0] * (1 + 2 * halo / pair[1]), -pair[1]))
    return Plan(shape, update.radius, steps, size, halo, (height, *rest))


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
    rules = rules_of(update, state[0].ndim, state[0].dtype)
    numbers = Numbers(((update.fn, params), rules), state[0].dtype, LANES)
    first = getattr(update.boundaries[0], "periodic", (True,) * state[0].ndim)
    fixed = tuple(_laid_out(x, plan, first) for x in coefficients)
    ways = [tuple(pair is None for pair in sides) for sides in rules]

    def one_pass(state: Fields, steps: int) -> Fields:
        laid = tuple(_laid_out(x, plan, way) for x, way in zip(state, ways))
        found = _launch(update, plan._replace(steps=steps), numbers, (*laid, *fixed), interpret)
        return tuple(x[tuple(slice(n) for n in plan.shape)] for x in found)

    if passes:
        like = (numbers.rows, fixed)
        state, _ = scan(lambda s, _: (one_pass(s, plan.steps), None), state, length=passes, like=like)
    return one_pass(state, rest) if rest else state


def _laid_out(x: Array, plan: Plan, periodic: tuple[bool, ...]) -> Array:
    """A field in an array of whole strips: the field, its upper ghost cells, and at the end its lower ones."""
    for axis in range(x.ndim):
        n, size = plan.shape[axis], plan.physical[axis]
        if size == n:
            continue
        index = np.arange(size, dtype=np.int32)
        index = np.where(index < size - HALO, index, index - size)  # the last ones are left of the first
        index = index % n if periodic[axis] else np.clip(index, 0, n - 1)
        x = jnp.take(x, index, axis=axis)
    return x


def _launch(update: StencilUpdate, plan: Plan, numbers: Numbers, arrays: Fields, interpret: Any) -> Fields:
    (height, *rest), rows, halo = plan.physical, plan.rows, plan.halo
    blocks, ratio, zeros = height // halo, rows // halo, (0,) * len(rest)
    above = pl.BlockSpec((halo, *rest), lambda i: ((i * ratio - 1 + blocks) % blocks, *zeros))
    middle = pl.BlockSpec((rows, *rest), lambda i: (i, *zeros))
    below = pl.BlockSpec((halo, *rest), lambda i: ((i + 1) * ratio % blocks, *zeros))
    count = len(update.fields)
    packed = pl.BlockSpec(numbers.rows.shape, lambda i: (0, 0))
    return pl.pallas_call(
        lambda *refs: _body(update, plan, numbers, interpret is True, refs),
        out_shape=(struct(plan.physical, arrays[0].dtype, vma_of((arrays, numbers.rows))),) * count,
        grid=(height // rows,),
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

    def turn(x: Array, shift: int, axis: int) -> Array:
        shift = -shift % x.shape[axis]
        if not shift:
            return x
        if x.ndim == 3 and axis == 0:  # whole tiles change places
            return jnp.concatenate([x[-shift:], x[:-shift]], axis=0)
        return jnp.roll(x, shift, axis) if interpreted else pltpu.roll(x, np.int32(shift), axis)  # type: ignore[arg-type]

    walls = _Walls(plan, rules, values[0], turn)
    names, count = names + update.inner, len(update.fields)
    values += [jnp.zeros_like(values[0])] * len(update.inner)
    for s in range(plan.steps):
        values[:count] = [walls.applied(f, x) for f, x in enumerate(values[:count])]

        def nb(name: str, *shift: int, values: list = values) -> Array:
            value = values[names.index(name)]
            for axis, by in enumerate(update.check_shift(name, shift, value.ndim)):
                value = turn(value, by, axis)
            return value

        new, kept = update.turn(s).new_values(nb, params, values[0]), values[count : len(values) - len(update.inner)]
        values = [*new[:count], *kept, *new[count:]]
    for f in range(count):
        outs[f][...] = values[f][plan.halo : plan.halo + plan.rows]


class _Walls:
    """Makes the ghost cells of a strip."""

    def __init__(self, plan: Plan, rules: tuple[Sides, ...], like: Array, turn: Any):
        self.plan, self.rules, self.turn = plan, rules, turn
        if any(rule is not None for side in rules for rule in side):
            first = pl.program_id(0) * plan.rows - plan.halo + plan.physical[0]
            row = jax.lax.broadcasted_iota(jnp.int32, like.shape, 0) + first
            height = jnp.asarray(plan.physical[0], row.dtype)
            others = (jax.lax.broadcasted_iota(jnp.int32, like.shape, axis) for axis in range(1, like.ndim))
            self.place = (jax.lax.rem(row, height), *others)

    def applied(self, f: int, x: Array) -> Array:
        """Returns a field with new ghost cells, axis by axis, so that those in corners are right as well."""
        for axis, pair in enumerate(self.rules[f]):
            if pair is not None:
                n, size = self.plan.shape[axis], self.plan.physical[axis]
                lower = self._beyond(x, axis, pair[0], lambda q: size - 1 - q, 1)  # noqa: B023
                upper = self._beyond(x, axis, pair[1], lambda q: n + q, -1)  # noqa: B023
                x = upper(lower(x))
        return x

    def _beyond(self, x: Array, axis: int, rule: Rule, place: Any, inwards: int) -> Any:
        def fill(out: Array) -> Array:
            for q in range(self.plan.radius):
                made = rule.ghost(q, lambda m: self.turn(x, inwards * (m + q + 1), axis))  # noqa: B023
                out = jnp.where(self.place[axis] == place(q), made, out)
            return out

        return fill
