"""The way back of the continuous adjoints: the adjoint equation marched from the end to the start.

The library's own march runs backwards in time over the costate (see `_adjoint_equation`), each member with its own
steps. It stops where the cotangent jumps, at the saved times, and where the table of the solution
ends (see `_dense_output`). The rule of reverse mode around it stands in `_rule`.
"""

import dataclasses
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._loops import while_loop
from ...._jax._vma import match, to_varying, vma_of
from ...._status import Status
from ....kernels.lanes import Lanes, Member
from ...control._pid import Tolerances, scaled_error
from ...integrate._integrator import March, Operands, State
from ...integrate._while_loop import Loop
from ._adjoint_equation import Costate, Ground, blank_mu, costate_tolerances, rates
from ._dense_output import Recorder, Table
from ._quadrature import Nodes, nodes_of_step, quadrature, room

_MOST_STEPS = 10
"""How many times as many steps as the solve the way back may take."""


class Kind(NamedTuple):
    """What a continuous adjoint integrates, besides the cotangent of the state.

    Attributes:
        state: The state, which is read from a record otherwise.
        parameters: The cotangents of the parameters, which are summed up by quadrature otherwise.
    """

    state: bool
    parameters: bool


class Task(NamedTuple):
    """What the way back is asked for: of one member, or lane values.

    Attributes:
        cotangents: Of the saved states, time first.
        saves: The saved times as elapsed times.
        ys: The saved states, time first.
        reached: The elapsed time that the member reached.
        y0: The initial state.
        operands: Of the march forwards.
    """

    cotangents: PyTree
    saves: Array
    ys: PyTree
    reached: Array
    y0: PyTree
    operands: Operands


class Course(NamedTuple):
    """What stays the same on the way back, of one member.

    Attributes:
        start: The elapsed time at which it starts: the last saved time that the loss looks at.
        begin: The elapsed time at which the table begins, or 0.
        scale: What the cotangents are divided by, so that tolerances are relative to the largest of them.
        bars: The scaled cotangents, time first.
        used: Whether any of the cotangents is not zero.
        task: Where this comes from.
    """

    start: Array
    begin: Array
    scale: Array
    bars: PyTree
    used: Array
    task: Task


class Sweep(NamedTuple):
    """What the way back carries of every member.

    Attributes:
        state: The march.
        left: The number of saved times that are ahead.
    """

    state: State
    left: Array


class Backward(eqx.Module):
    """The way back over lanes.

    Attributes:
        loop: The march forwards, over lanes, with dense output.
        kind: What is integrated.
        spec: Which of the field's operands and t0 are differentiated, a PyTree of booleans.
        rtol: The relative tolerance of the way back, or None for the solve's.
        atol: The absolute tolerance, likewise.
        memory: About how many bytes a record may take.
    """

    loop: Loop
    kind: Kind = eqx.field(static=True)
    spec: PyTree = eqx.field(static=True)
    rtol: float | None = eqx.field(static=True)
    atol: float | None = eqx.field(static=True)
    memory: int = eqx.field(static=True)

    @property
    def lanes(self) -> Lanes | Member:
        """The engine."""
        return self.loop.lanes

    @property
    def march(self) -> March:
        """The march of the costate."""
        field = self.loop.march.field

        def costate_rates(s, x, grounds):
            return rates(field, s, x, grounds[0])

        return March(costate_rates, self.loop.march.stepper, self.loop.march.control, not self.kind.parameters)

    def run(self, task: Task, like: Task) -> tuple[PyTree, PyTree]:
        """Returns the cotangents of the initial state and of the differentiated operands, members last.

        Args:
            task: Lane values.
            like: One member's arrays or their shapes.
        """
        lanes = self.lanes
        course = lanes.carry(lanes.call(self._course, task))
        if self.kind.state:
            sweep = lanes.carry(lanes.call(self._start, course, None))
            sweep, mu = self._sweep(sweep, course, None, None, like)
        else:
            recorder = Recorder.of(self.loop, like.y0, self.memory)
            stretches = recorder.record(task.y0, task.operands, course.start)
            sweep = lanes.carry(lanes.call(self._start, course, self._enter(stretches.table)))
            mu = None if self.kind.parameters else lanes.carry(lanes.call(self._blank_mu, course))

            def back(carry):
                number, stretches, sweep, mu = carry
                here = lanes.carry(lanes.call(_position, sweep, course))
                stretches, reached = recorder.reload(stretches, number, task.operands, here)
                sweep = lanes.carry(lanes.call(_unless_short, sweep, here, reached))
                begins = jax.tree.map(lambda x: jnp.where(number == 0, jnp.zeros_like(x), x), stretches.begin)
                part = course._replace(begin=begins)
                sweep, mu = self._sweep(sweep, part, stretches.table, mu, like)
                return number - 1, stretches, sweep, mu

            carry = (stretches.number - 1, stretches, sweep, mu)
            _, _, sweep, mu = while_loop(lambda c: c[0] >= 0, back, carry, like=(course, task))
        y_bar, moved_bar = lanes.call(self._finish, sweep, mu, course)
        return lanes.leave(y_bar), lanes.leave(moved_bar)

    def _sweep(
        self, sweep: Sweep, course: Course, table: Table | None, mu: PyTree | None, like: Task
    ) -> tuple[Sweep, PyTree | None]:
        """Marches every member back to where the table begins."""
        lanes, inputs = self.lanes, self._enter(table)

        def active(sweep):
            return lanes.any(lanes.call(_is_active, sweep, course))

        def arrived(sweep):
            return lanes.any(lanes.call(_has_arrived, sweep, course))

        def turn(sweep):
            jump = lambda s: lanes.carry(lanes.call(self._jump, s, course, inputs))  # noqa: E731
            sweep = while_loop(arrived, jump, sweep, like=(course, table))
            sweep, accepted = lanes.call(self._turn, sweep, course, inputs)
            return lanes.carry(sweep), accepted

        if mu is None:
            sweep = while_loop(active, lambda s: turn(s)[0], sweep, like=(course, table))
            return sweep, None

        def gather(carry):
            sweep, nodes, filled = carry
            sweep, accepted = turn(sweep)
            item = lanes.leave(lanes.call(self._nodes, sweep, accepted, course, inputs))
            nodes = jax.tree.map(lambda b, x: jax.lax.dynamic_update_index_in_dim(b, x, filled, 0), nodes, item)
            return sweep, nodes, filled + lanes.any(accepted).astype(jnp.int32)

        steps = room(like.y0, lanes.count or 1, self.loop.march.stepper.order)

        def batch(carry):
            sweep, nodes, mu = carry
            nodes = nodes._replace(bar=jax.tree.map(jnp.zeros_like, nodes.bar))
            filled = jnp.zeros((), jnp.int32)
            sweep, nodes, _ = while_loop(
                lambda c: active(c[0]) & (c[2] < steps), gather, (sweep, nodes, filled), like=(course, table)
            )
            values = lanes.enter(nodes, lanes.count is not None)
            mu = lanes.carry(lanes.call(self._quadrature, values, mu, course, inputs))
            return sweep, nodes, mu

        def spare(course):
            none = jnp.zeros((self.loop.march.stepper.order // 2 + 1,), course.start.dtype)
            y = jax.tree.map(lambda y: jnp.broadcast_to(y, none.shape + y.shape), course.task.y0)
            return Nodes(none, y, jax.tree.map(jnp.zeros_like, y))

        item = lanes.leave(lanes.call(spare, course))
        nodes = jax.tree.map(lambda x: jnp.broadcast_to(x, (steps, *x.shape)), item)
        carry = to_varying((sweep, nodes, mu), vma_of((sweep, course, table)))
        sweep, _, mu = while_loop(lambda c: active(c[0]), batch, carry, like=(course, table))
        return sweep, mu

    def _enter(self, table: Table | None) -> Any:
        if table is None:
            return None
        leaves = len(jax.tree.leaves(table))
        batched = self.lanes.count is not None
        return self.lanes.enter(table, [batched] * (leaves - 1) + [False])

    # what follows is of one member

    def _course(self, task: Task) -> Course:
        count = task.saves.shape[0]
        leaves = [x.reshape(count, -1) for x in jax.tree.leaves(task.cotangents)]
        sizes = jnp.stack([jnp.max(jnp.abs(x), axis=1, initial=0.0).astype(task.saves.dtype) for x in leaves]).max(0)
        scale = jnp.max(sizes)
        scale = jnp.where(scale > 0, scale, jnp.ones_like(scale))
        bars = jax.tree.map(lambda c: c / scale.astype(c.dtype), task.cotangents)
        saves = jnp.clip(task.saves, jnp.zeros_like(task.reached), task.reached)
        start = jnp.max(jnp.where(sizes > 0, saves, jnp.zeros_like(saves)))
        return Course(start, jnp.zeros_like(start), scale, bars, jnp.any(sizes > 0), task._replace(saves=saves))

    def _ground(self, course: Course, table: Table | None) -> Ground:
        operands = course.task.operands
        moved, held = eqx.partition((operands.field, operands.t0), self.spec)
        return Ground(moved, held, operands.direction, table)

    def _operands(self, course: Course, table: Table | None, x: Costate, end: Array) -> Operands:
        """Returns what the march backwards depends on: time runs down from `course.start`."""
        operands = course.task.operands
        tolerances = operands.tolerances
        if tolerances is not None:
            own = (self.rtol, self.atol)
            chosen = (old if new is None else jnp.asarray(new, course.start.dtype) for old, new in zip(tolerances, own))
            tolerances = costate_tolerances(Tolerances(*chosen), x)
        return Operands(
            field=cast(Any, [self._ground(course, table)]),
            t0=course.start,
            span=end,
            saves=None,
            direction=-jnp.ones_like(course.start),
            tolerances=tolerances,
            dt=operands.dt if self.loop.march.control is None else None,
            max_steps=_MOST_STEPS * jnp.minimum(operands.max_steps, 2**31 // (2 * _MOST_STEPS))
            + course.task.saves.size,
        )

    def _start(self, course: Course, table: Table | None) -> Sweep:
        left = jnp.sum(course.task.saves <= course.start, dtype=jnp.int32)
        bar, y = _at(course.bars, left - 1), None
        bar = jax.tree.map(lambda x: jnp.where(left > 0, x, jnp.zeros_like(x)), bar)
        if self.kind.state:
            there = (left > 0) & course.used
            y = jax.tree.map(lambda a, b: jnp.where(there, a, b), _at(course.task.ys, left - 1), course.task.y0)
        mu = self._blank_mu(course) if self.kind.parameters else None
        x = Costate(y, bar, mu)
        span = jnp.where(course.start > 0, course.start, jnp.ones_like(course.start))
        state = self.march.start(x, self._operands(course, table, x, span))
        return Sweep(state, jnp.maximum(left - 1, 0))

    def _blank_mu(self, course: Course) -> PyTree:
        return blank_mu(self._ground(course, None).moved, course.start.dtype)

    def _turn(self, sweep: Sweep, course: Course, table: Table | None) -> tuple[Sweep, Array]:
        """Tries a step towards the next stop."""
        state, left = sweep
        target = _stop(sweep, course)
        operands = self._operands(course, table, state.restart.y, target)
        new, outcome = self.march.attempt(state, operands, target)
        # a step cut short by a stop says little of the next one
        cut = outcome.accepted & (new.restart.elapsed >= target)
        h = jnp.where(cut, jnp.maximum(new.restart.h, state.restart.h), new.restart.h)
        return Sweep(new._replace(restart=new.restart._replace(h=h)), left), outcome.accepted

    def _jump(self, sweep: Sweep, course: Course, table: Table | None) -> Sweep:
        """Adds the cotangent of a saved time at which the member has arrived."""
        (state, left), there = sweep, _has_arrived(sweep, course)
        x, status = state.restart.y, state.restart.status
        bar = jax.tree.map(lambda a, b: jnp.where(there, a + b, a), x.bar, _at(course.bars, left - 1))
        y = x.y
        if y is not None:
            known = _at(course.task.ys, left - 1)
            used = there & _any_used(_at(course.bars, left - 1))  # what the loss does not look at may be missing
            status = jnp.where(used & self._is_lost(y, known, course), int(Status.diverged), status).astype(jnp.int8)
            y = jax.tree.map(lambda a, b: jnp.where(used, b, a), y, known)
        x = Costate(y, bar, x.mu)
        operands = self._operands(course, table, x, course.start)
        memory = self.march.stepper.first(self.march.bound(operands), _position(sweep, course), x)
        memory = jax.tree.map(lambda a, b: jnp.where(there, a, b), memory, state.memory)
        restart = state.restart._replace(y=x, status=status)
        return Sweep(state._replace(restart=restart, memory=memory), left - there.astype(jnp.int32))

    def _is_lost(self, y: PyTree, known: PyTree, course: Course) -> Array:
        """Whether a state integrated backwards is far from what it was forwards: half of its digits are gone."""
        tolerances = course.task.operands.tolerances
        if tolerances is None:  # fixed steps ask for no accuracy: a tenth of the state
            states = jax.tree.leaves((known, course.task.ys))  # a state may be zero at one time, or missing
            sizes = [jnp.nanmax(jnp.abs(x), initial=0.0).astype(course.start.dtype) for x in states]
            tenth = match(jnp.full_like(course.start, 0.1), states)
            loose = Tolerances(tenth, tenth * jnp.stack(sizes).max())
        else:
            digits = jax.tree.map(jnp.sqrt, tolerances.rtol)
            least = jnp.min(jnp.stack([jnp.min(x) for x in jax.tree.leaves(digits)]))
            loose = Tolerances(digits, jax.tree.map(lambda a: a / least, tolerances.atol))
        error = jax.tree.map(jnp.subtract, y, known)
        return ~(scaled_error(error, known, known, loose) <= 1)

    def _nodes(self, sweep: Sweep, accepted: Array, course: Course, table: Table) -> Nodes:
        ground = self._ground(course, table)
        return nodes_of_step(self.loop.march.stepper, sweep.state, accepted, course.start, course.task.y0, ground)

    def _quadrature(self, nodes: Nodes, mu: PyTree, course: Course, table: Table) -> PyTree:
        return quadrature(self.loop.march.field, nodes, mu, self._ground(course, table))

    def _finish(self, sweep: Sweep, mu: PyTree | None, course: Course) -> tuple[PyTree, PyTree]:
        """Returns the cotangents, NaN where the way back failed, and zero where there was none to go."""
        x, status = sweep.state.restart.y, sweep.state.restart.status
        good = (status == int(Status.successful)) & (sweep.state.restart.elapsed >= course.start) & (sweep.left == 0)
        if x.y is not None:
            good = good & ~self._is_lost(x.y, course.task.y0, course)

        def result(x, like):
            x = (x * course.scale.astype(x.dtype)).astype(like.dtype)
            x = jnp.where(good, x, jnp.full_like(x, jnp.nan))
            return jnp.where(course.used, x, jnp.zeros_like(x))

        moved = self._ground(course, None).moved
        mu = x.mu if mu is None else mu
        return jax.tree.map(result, x.bar, course.task.y0), jax.tree.map(result, mu, moved)


def _at(tree: PyTree, index: Array) -> PyTree:
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, jnp.maximum(index, 0), 0, False), tree)


def _any_used(tree: PyTree) -> Array:
    return jnp.stack([jnp.any(x != 0) for x in jax.tree.leaves(tree)]).any()


def _next_save(sweep: Sweep, course: Course) -> Array:
    save = _at(course.task.saves, sweep.left - 1)
    return jnp.where(sweep.left > 0, save, -jnp.ones_like(save))


def _stop(sweep: Sweep, course: Course) -> Array:
    """Returns how far from the start of the way back the next stop is."""
    return course.start - jnp.maximum(_next_save(sweep, course), course.begin)


def _has_arrived(sweep: Sweep, course: Course) -> Array:
    """Whether the member stands at a saved time whose cotangent has yet to be added."""
    save = _next_save(sweep, course)
    good = sweep.state.restart.status == int(Status.successful)
    return good & (save >= course.begin) & (sweep.state.restart.elapsed >= course.start - save)


def _is_active(sweep: Sweep, course: Course) -> Array:
    """Whether the member has yet to reach the beginning of the table, or to add a cotangent."""
    good = sweep.state.restart.status == int(Status.successful)
    ahead = sweep.state.restart.elapsed < course.start - course.begin
    return (good & ahead) | _has_arrived(sweep, course)


def _position(sweep: Sweep, course: Course) -> Array:
    """Returns the elapsed time at which the member stands."""
    elapsed, lost = sweep.state.restart.elapsed, sweep.state.restart.lost
    return jnp.maximum((course.start - elapsed) + lost, jnp.zeros_like(elapsed))


def _unless_short(sweep: Sweep, needed: Array, reached: Array) -> Sweep:
    """Marks a member whose table ends before it stands: what ran again took other steps."""
    restart = sweep.state.restart
    slack = 8 * jnp.finfo(needed.dtype).eps * needed
    status = jnp.where(reached + slack < needed, int(Status.diverged), restart.status).astype(jnp.int8)
    return sweep._replace(state=sweep.state._replace(restart=restart._replace(status=status)))


def dense_loop(march: March, lanes: Lanes | Member, max_steps: int) -> Loop:
    """Returns a march forwards over lanes that keeps the last step's dense output."""
    return Loop(dataclasses.replace(march, dense=True), lanes, max_steps, False)
