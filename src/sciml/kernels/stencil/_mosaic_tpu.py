r"""Several steps for each pass over memory, on a TPU, in two dimensions.

A kernel takes a strip of `rows` rows and the whole width, with 8 more rows on either side, and keeps it in vector
memory for $k$ steps of radius $r$, $k r \le 8$. The strip, the rows above and the rows below are three
block-aligned views of one array, whose index wraps; neighbours come by rotations, so that all shapes stay the
same, and what is wrong at the ends of the strip moves inwards by $r$ rows a step and is not written.

Rotations make both axes periodic. Where the field does not fill whole tiles, or has walls, XLA first puts it into an
array that does: the field first, its upper ghost cells behind it, its lower ones at the very end, where rotations find
them. Ghost cells of walls are made anew before every step, where a mask says.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.experimental.pallas as pl
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, PyTree

from ..._loops import scan
from ..._vma import struct, vma_of
from ._held import check_held
from ._numbers import Numbers
from ._update import Fields, StencilUpdate
from ._walls import NotForKernelsError, Rule, Sides, rules_of

HALO = 8
"""Rows above and below a strip: the height of a TPU's tile."""

TAKES_TURNS = True
"""It runs updates whose functions take turns."""

LANES = 128
"""The width of a TPU's tile."""

VECTOR_BYTES = 8 * 2**20
"""Vector memory that a strip may take, with all its copies; half of the smallest there is."""


class Plan(NamedTuple):
    """How a field is cut into strips.

    Attributes:
        shape: The rows and columns of the field.
        radius: The radius of the update.
        steps: The steps for each pass.
        rows: The rows of a strip.
        physical: The shape of the global arrays; that of the field where it fills whole strips periodically.
    """

    shape: tuple[int, int]
    radius: int
    steps: int
    rows: int
    physical: tuple[int, int]


def plan(update: StencilUpdate, params: PyTree, shape: tuple[int, ...], dtype: Any, steps: int | None) -> Plan:
    """Returns how the kernel would run an update.

    Raises:
        NotForKernelsError: If it cannot.
    """
    rules = check_held(update, params, shape, dtype, "mosaic_tpu", ("float32",))
    steps = max(1, HALO // update.radius) if steps is None else steps
    if steps * update.radius > HALO:
        raise NotForKernelsError(
            f"{steps} steps of radius {update.radius} for each pass reach further than {HALO} cells"
        )
    walls = [any(side[axis] is not None for side in rules) for axis in (0, 1)]
    width = shape[1]
    if walls[1] or width % LANES:
        width = -(-(width + 2 * HALO) // LANES) * LANES
    arrays, fit = 4 * (len(update.fields) + len(update.coefficients) + len(update.inner)), []
    for rows in (128, 64, 32, 16, 8):
        height = shape[0]
        if walls[0] or height % rows:
            height = -(-(height + 2 * HALO) // rows) * rows
        if arrays * (rows + 2 * HALO) * width * 4 <= VECTOR_BYTES:
            fit.append((height, rows))
    if not fit:
        raise NotForKernelsError(f"a strip of {shape[1]} columns does not fit into vector memory")
    height, rows = min(fit, key=lambda pair: (pair[0] * (1 + 2 * HALO / pair[1]), -pair[1]))
    return Plan((shape[0], shape[1]), update.radius, steps, rows, (height, width))


def advance(
    update: StencilUpdate,
    params: PyTree,
    state: Fields,
    coefficients: Fields,
    n_steps: int,
    plan: Plan,
    interpret: Any = False,
) -> Fields:
    """Returns the state after a number of steps.

    Args:
        update: The update.
        params: The parameters.
        state: The fields.
        coefficients: The coefficients.
        n_steps: The number of steps.
        plan: What `plan` returned.
        interpret: False; True to run the body without a TPU; or JAX's parameters of its interpreter of TPUs.
    """
    passes, rest = divmod(n_steps, plan.steps)
    rules = rules_of(update, 2, state[0].dtype)
    numbers = Numbers(((update.fn, params), rules), state[0].dtype, LANES)
    fixed = tuple(_laid_out(x, plan, _periodic(update, None)) for x in coefficients)
    ways = [_periodic(update, side) for side in rules]

    def one_pass(state: Fields, steps: int) -> Fields:
        laid = tuple(_laid_out(x, plan, way) for x, way in zip(state, ways))
        found = _launch(update, plan._replace(steps=steps), numbers, (*laid, *fixed), interpret)
        return tuple(x[: plan.shape[0], : plan.shape[1]] for x in found)

    if passes:
        like = (numbers.rows, fixed)
        state, _ = scan(lambda s, _: (one_pass(s, plan.steps), None), state, length=passes, like=like)
    return one_pass(state, rest) if rest else state


def _periodic(update: StencilUpdate, side: Sides | None) -> tuple[bool, bool]:
    """Along which axes a field, or without sides a coefficient, is continued periodically."""
    if side is None:
        down, across = getattr(update.boundaries[0], "periodic", (True, True))
        return down, across
    return side[0] is None, side[1] is None


def _laid_out(x: Array, plan: Plan, periodic: tuple[bool, bool]) -> Array:
    """A field in an array of whole strips: the field, its upper ghost cells, and at the end its lower ones."""
    for axis in (0, 1):
        n, size = plan.shape[axis], plan.physical[axis]
        if size == n:
            continue
        index = np.arange(size, dtype=np.int32)
        index = np.where(index < size - HALO, index, index - size)  # the last ones are left of the first
        index = index % n if periodic[axis] else np.clip(index, 0, n - 1)
        x = jnp.take(x, index, axis=axis)
    return x


def _launch(update: StencilUpdate, plan: Plan, numbers: Numbers, arrays: Fields, interpret: Any) -> Fields:
    (height, width), rows = plan.physical, plan.rows
    blocks, ratio = height // HALO, rows // HALO
    above = pl.BlockSpec((HALO, width), lambda i: ((i * ratio - 1 + blocks) % blocks, 0))
    middle = pl.BlockSpec((rows, width), lambda i: (i, 0))
    below = pl.BlockSpec((HALO, width), lambda i: ((i + 1) * ratio % blocks, 0))
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
        return jnp.roll(x, shift, axis) if interpreted else pltpu.roll(x, np.int32(shift), axis)  # type: ignore[arg-type]

    walls = _Walls(plan, rules, values[0], turn)
    names, count = names + update.inner, len(update.fields)
    values += [jnp.zeros_like(values[0])] * len(update.inner)
    for s in range(plan.steps):
        values[:count] = [walls.applied(f, x) for f, x in enumerate(values[:count])]

        def nb(name: str, *shift: int, values: list = values) -> Array:
            dy, dx = update.check_shift(name, shift, 2)
            return turn(turn(values[names.index(name)], dy, 0), dx, 1)

        new, kept = update.turn(s).new_values(nb, params, values[0]), values[count : len(values) - len(update.inner)]
        values = [*new[:count], *kept, *new[count:]]
    for f in range(count):
        outs[f][...] = values[f][HALO : HALO + plan.rows]


class _Walls:
    """Makes the ghost cells of a strip."""

    def __init__(self, plan: Plan, rules: tuple[Sides, ...], like: Array, turn: Any):
        self.plan, self.rules, self.turn = plan, rules, turn
        if any(rule is not None for side in rules for rule in side):
            first = pl.program_id(0) * plan.rows - HALO + plan.physical[0]
            row = jax.lax.broadcasted_iota(jnp.int32, like.shape, 0) + first
            height = jnp.asarray(plan.physical[0], row.dtype)
            self.place = (jax.lax.rem(row, height), jax.lax.broadcasted_iota(jnp.int32, like.shape, 1))

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
                terms = [
                    rule.weights[q, m] * self.turn(x, inwards * (m + q + 1), axis) for m in range(rule.weights.shape[1])
                ]
                out = jnp.where(self.place[axis] == place(q), sum(terms, rule.constant[q]), out)
            return out

        return fill
