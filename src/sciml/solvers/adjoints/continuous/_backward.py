r"""The backward pass of the continuous adjoints: the adjoint equation integrated from the end to the start.

The library's own integration runs backwards in time over the costate (see `_adjoint_equation`), each member
with its own steps. It stops where the cotangent jumps, at the saved times, and where the table of the
solution ends (see `_dense_output`). The rule of reverse mode around it is in `_rule`.

The integral of $\lambda^T g_p$ along the backward pass, by Gauss-Legendre quadrature over each step.

A rule of $k$ nodes is exact for polynomials of degree $2k - 1$, so that a method of order $q$ keeps its order with
$k = \lfloor q/2 \rfloor + 1$. The nodes of many steps are gathered, and their parameter products are computed at once:
one matrix product instead of a sum of outer products for each node.
"""

import dataclasses
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._choices import choices
from ...._jax._loops import while_loop
from ...._jax._shards import parts_of_members
from ...._jax._vma import match, to_varying, vma_of
from ...._status import Status
from ...._types import RealScalarLike, Y
from ....kernels._lanes import Lanes, Unbatched
from ...control._pid import Tolerances, scaled_error, spread
from ...integrate._integrator import Integrator, Operands, State
from ...integrate._lane_integrator import LaneIntegrator
from ...methods._stepper import AbstractStepper
from ...terms._field import AbstractField, ClosedField
from ._dense_output import Recorder, Table, state_at

# The adjoint equation, as a vector field that the library's own methods integrate.
#
# Time is the time $s$ elapsed since t0, in which the solution obeys $dy/ds = g(s, y, p)$, with
# $g = \pm f(t_0 \pm s, y, p)$ for the two directions of time. A loss depends on the solution at times
# $s_i$, with cotangents $c_i = \partial L / \partial y(s_i)$. A change of the solution carries on by
# $d \delta/ds = g_y \delta + g_p \, dp$. For any $\lambda$ with
#
# $$\frac{d\lambda}{ds} = -g_y^T \lambda, \qquad \lambda \to \lambda + c_i \text{ at } s = s_i,$$
#
# run from later to earlier times, which vanishes after the last $s_i$,
#
# $$\frac{d}{ds}(\lambda^T \delta) = \lambda^T g_p \, dp$$
#
# between the jumps. Adding that up over $[0, s_n]$ leaves
#
# $$dL = \sum_i c_i^T \delta(s_i) = \lambda(0)^T dy_0 + \Big( \int_0^{s_n} \lambda^T g_p \, ds \Big) dp .$$
#
# t0 is one of the parameters $p$ through $t = t_0 \pm s$. A state's own time moves it along the
# solution: $dL/ds_i = c_i^T g(s_i, y(s_i))$. Products of cotangents are JAX's, which transpose and do
# not conjugate, so that all of this is true for complex states too.


class Costate(NamedTuple):
    r"""The variables of the backward integration.

    Attributes:
        y: The state, or None where it is read from a record.
        lam: $\lambda$, like the state.
        mu: The integral of $\lambda^T g_p$ so far, like the differentiated operands; None where it is left to
            a quadrature.
    """

    y: Y | None
    lam: Y
    mu: PyTree | None


class AdjointOperands(NamedTuple):
    """The inputs of the adjoint equation.

    Attributes:
        diff: The field's operands and t0 that are differentiated, None for the others.
        constant: The others.
        direction: 1 forwards in time, -1 backwards.
        table: The solution, or None where it is integrated too.
    """

    diff: PyTree
    constant: PyTree
    direction: Array
    table: Table | None


def forward_rhs(field: AbstractField, s: RealScalarLike, y: Y, diff: PyTree, operands: AdjointOperands) -> Y:
    """Returns g, the right-hand side of the equation forwards: the derivative of the state by the elapsed time."""
    values, t0 = eqx.combine(diff, operands.constant)
    out = field(t0 + operands.direction * s, y, values)
    return jax.tree.map(lambda k: k * operands.direction.astype(k.dtype), out)


def adjoint_rhs(field: AbstractField, s: RealScalarLike, x: Costate, operands: AdjointOperands) -> Costate:
    """Returns the right-hand side of the adjoint equation. Without `mu` no product by a parameter is made."""
    if operands.table is None:
        assert x.y is not None  # what is not recorded is integrated
        y = x.y
    else:
        y = state_at(operands.table, s)
    if x.mu is None:  # a quadrature makes it, see `_quadrature`
        _, pull = jax.vjp(lambda y: forward_rhs(field, s, y, operands.diff, operands), y)
        return Costate(None, _negative(pull(x.lam)[0]), None)
    out, pull = jax.vjp(lambda y, diff: forward_rhs(field, s, y, diff, operands), y, operands.diff)
    lam, mu = pull(x.lam)
    mu = jax.tree.map(lambda new, like: -new.astype(like.dtype), mu, x.mu)
    return Costate(None if x.y is None else out, _negative(lam), mu)


def blank_mu(diff: PyTree, dtype: Any) -> PyTree:
    """Returns zeros like the differentiated operands, with no more precision than time has."""

    def zeros(x):
        narrow = jnp.finfo(x.dtype).bits > jnp.finfo(dtype).bits
        variant = (jnp.complex64 if jnp.finfo(dtype).bits <= 32 else jnp.complex128) if jnp.iscomplexobj(x) else dtype
        return jnp.zeros(x.shape, variant if narrow else x.dtype)

    return jax.tree.map(zeros, diff)


def costate_tolerances(tolerances: Tolerances | None, x: Costate) -> Tolerances | None:
    """Returns the state's tolerances for what is integrated: `lam` has the state's, `mu` the tightest of them."""
    if tolerances is None:
        return None
    treedef = jax.tree.structure(x.lam)

    def extended(tolerance):
        leaves = jax.tree.leaves(tolerance)
        if len(leaves) == 1 and leaves[0].ndim == 0:
            return tolerance
        own = jax.tree.unflatten(treedef, spread(tolerance, treedef))
        least = jnp.min(jnp.stack([jnp.min(leaf) for leaf in leaves]))
        return Costate(None if x.y is None else own, own, jax.tree.map(lambda _: least, x.mu))

    return Tolerances(*map(extended, tolerances))


def _negative(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.negative, tree)


class Nodes(NamedTuple):
    r"""Nodes of a quadrature, the step and the node first.

    Attributes:
        s: The elapsed times.
        y: The states there.
        lam: The values of $\lambda$ there times the weights; zero at unused nodes.
    """

    s: Array
    y: PyTree
    lam: PyTree


def rule(order: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns nodes and weights on [0, 1] for a method of that order."""
    x, w = np.polynomial.legendre.leggauss(order // 2 + 1)
    return (x + 1) / 2, w / 2


def capacity(y: PyTree, members: int, order: int) -> int:
    """Returns how many steps' nodes are gathered, given one member's state as arrays or shapes."""
    size = members * (order // 2 + 1) * sum(8 + 2 * x.size * x.dtype.itemsize for x in jax.tree.leaves(y))
    return max(1, min(choices().checkpoints.nodes_steps_at_most, choices().checkpoints.nodes // size))


def nodes_of_step(
    stepper: AbstractStepper, state: State, taken: Array, start: Array, filler: PyTree, operands: AdjointOperands
) -> Nodes:
    """Returns the nodes of the last step backwards.

    Args:
        stepper: The method, the same forwards and backwards.
        state: The integration backwards after the step, with dense output.
        taken: Whether there was a step.
        start: The elapsed time at which the integration backwards started.
        filler: A state for unused nodes.
        operands: The inputs of the adjoint equation.
    """
    dense = state.dense
    assert dense is not None  # the integration keeps it
    table = operands.table
    assert table is not None  # a quadrature needs the solution on record

    def node(x, weight):
        costate: Costate = stepper.interpolate(x, -dense.h, dense.y0, state.checkpoint.y, dense.stages)
        s = jnp.maximum(start - (dense.elapsed + x * dense.h), jnp.zeros_like(start))
        y = state_at(table, s)
        length = weight * dense.h
        lam = jax.tree.map(lambda x: jnp.where(taken, x * length.astype(x.dtype), jnp.zeros_like(x)), costate.lam)
        y = jax.tree.map(lambda a, b: jnp.where(taken, a, b), y, filler)
        return Nodes(jnp.where(taken, s, jnp.zeros_like(s)), y, lam)

    points, weights = (match(jnp.asarray(x, start.dtype), (dense, operands)) for x in rule(stepper.order))
    return jax.vmap(node)(points, weights)


def quadrature(field: AbstractField, nodes: Nodes, mu: PyTree, operands: AdjointOperands) -> PyTree:
    """Returns `mu` with the products of the nodes added."""
    flat: Nodes = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), nodes)

    def slopes(diff):
        return jax.vmap(lambda s, y: forward_rhs(field, s, y, diff, operands))(flat.s, flat.y)

    _, pull = jax.vjp(slopes, operands.diff)
    (more,) = pull(flat.lam)
    return jax.tree.map(lambda a, b: a + b.astype(a.dtype), mu, more)


_MOST_STEPS = 10
"""How many times as many steps as the solve the backward pass may take."""


class Variant(NamedTuple):
    """The quantity that a continuous adjoint integrates, besides the cotangent of the state.

    Attributes:
        state: The state, which is read from a record otherwise.
        parameters: The cotangents of the parameters, which are summed up by quadrature otherwise.
    """

    state: bool
    parameters: bool


class AdjointProblem(NamedTuple):
    """The inputs of the backward pass: of one member, or lane values.

    Attributes:
        cotangents: Of the saved states, time first.
        saves: The saved times as elapsed times.
        ys: The saved states, time first.
        reached: The elapsed time that the member reached.
        y0: The initial state.
        operands: Of the integration forwards.
    """

    cotangents: PyTree
    saves: Array
    ys: PyTree
    reached: Array
    y0: PyTree
    operands: Operands


class AdjointSetup(NamedTuple):
    r"""The constants of the backward pass, of one member.

    Attributes:
        start: The elapsed time at which it starts: the last saved time that the loss depends on.
        begin: The elapsed time at which the table begins, or 0.
        scale: The divisor of the cotangents, which makes tolerances relative to the largest of them.
        jumps: The scaled cotangents, by which $\lambda$ jumps at the saved times, time first.
        used: Whether any of the cotangents is not zero.
        problem: The forward problem.
    """

    start: Array
    begin: Array
    scale: Array
    jumps: PyTree
    used: Array
    problem: AdjointProblem


class AdjointState(NamedTuple):
    """The carry of the backward pass for every member.

    Attributes:
        state: The integration.
        left: The number of saved times that are ahead.
    """

    state: State
    left: Array


class Backward(eqx.Module):
    """The backward pass over lanes.

    Attributes:
        stepping: The integration forwards, over lanes, with dense output.
        variant: The integrated quantity.
        spec: The differentiated parts of the field's operands and t0, a PyTree of booleans.
        rtol: The relative tolerance of the backward pass, or None for the solve's.
        atol: The absolute tolerance, likewise.
        memory: About how many bytes a record may take.
        max_steps: The limit on attempted steps of the solve.
    """

    stepping: LaneIntegrator
    variant: Variant = eqx.field(static=True)
    spec: PyTree = eqx.field(static=True)
    rtol: float | None = eqx.field(static=True)
    atol: float | None = eqx.field(static=True)
    memory: int = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)

    @property
    def lanes(self) -> Lanes | Unbatched:
        """The engine."""
        return self.stepping.lanes

    @property
    def integrator(self) -> Integrator:
        """The integration of the costate."""
        field = self.stepping.integrator.field

        def rhs(s, x, all_operands):
            return adjoint_rhs(field, s, x, all_operands[0])

        return Integrator(
            ClosedField(rhs),
            self.stepping.integrator.stepper,
            self.stepping.integrator.control,
            not self.variant.parameters,
        )

    def run(self, problem: AdjointProblem, like: AdjointProblem) -> tuple[PyTree, PyTree]:
        """Returns the cotangents of the initial state and of the differentiated operands, members last.

        Args:
            problem: Lane values.
            like: One member's arrays or their shapes.
        """
        lanes = self.lanes
        setup = lanes.carry(lanes.call(self._setup, problem))
        if self.variant.state:
            adjoint = lanes.carry(lanes.call(self._start, setup, None))
            adjoint, mu = self._integrate_back(adjoint, setup, None, None, like)
        else:
            recorder = Recorder.of(self.stepping, like.y0, self.memory, self.max_steps)
            segments = recorder.record(problem.y0, problem.operands, setup.start)
            adjoint = lanes.carry(lanes.call(self._start, setup, self._enter(segments.table)))
            mu = None if self.variant.parameters else lanes.carry(lanes.call(self._blank_mu, setup))

            def back(carry):
                number, segments, adjoint, mu = carry
                here = lanes.carry(lanes.call(_position, adjoint, setup))
                segments, reached = recorder.recompute(segments, number, problem.operands, here)
                adjoint = lanes.carry(lanes.call(_unless_short, adjoint, here, reached))
                begins = jax.tree.map(lambda x: jnp.where(number == 0, jnp.zeros_like(x), x), segments.begin)
                part = setup._replace(begin=begins)
                adjoint, mu = self._integrate_back(adjoint, part, segments.table, mu, like)
                return number - 1, segments, adjoint, mu

            carry = (segments.number - 1, segments, adjoint, mu)
            _, _, adjoint, mu = while_loop(lambda c: c[0] >= 0, back, carry, like=(setup, problem))
        y_bar, diff_bar = lanes.call(self._finish, adjoint, mu, setup)
        return lanes.leave(y_bar), lanes.leave(diff_bar)

    def _integrate_back(
        self, adjoint: AdjointState, setup: AdjointSetup, table: Table | None, mu: PyTree | None, like: AdjointProblem
    ) -> tuple[AdjointState, PyTree | None]:
        """Integrates every member back to where the table begins."""
        lanes, inputs = self.lanes, self._enter(table)

        def active(adjoint):
            return lanes.any(lanes.call(_is_active, adjoint, setup))

        def arrived(adjoint):
            return lanes.any(lanes.call(_has_arrived, adjoint, setup))

        def iterate(adjoint):
            jump = lambda s: lanes.carry(lanes.call(self._jump, s, setup, inputs))  # noqa: E731
            adjoint = while_loop(arrived, jump, adjoint, like=(setup, table))
            adjoint, accepted = lanes.call(self._iterate, adjoint, setup, inputs)
            return lanes.carry(adjoint), accepted

        if mu is None:
            adjoint = while_loop(active, lambda s: iterate(s)[0], adjoint, like=(setup, table))
            return adjoint, None

        def gather(carry):
            adjoint, nodes, filled = carry
            adjoint, accepted = iterate(adjoint)
            item = lanes.leave(lanes.call(self._nodes, adjoint, accepted, setup, inputs))
            nodes = jax.tree.map(lambda b, x: jax.lax.dynamic_update_index_in_dim(b, x, filled, 0), nodes, item)
            # where no lane accepted its step, the next iteration overwrites these nodes
            return adjoint, nodes, filled + lanes.any(accepted).astype(jnp.int32)

        steps = capacity(like.y0, (lanes.count or 1) * parts_of_members(), self.stepping.integrator.stepper.order)

        def fill_batch(carry):
            adjoint, nodes, mu = carry
            # what is left of the batch before counts for nothing
            nodes = nodes._replace(lam=jax.tree.map(jnp.zeros_like, nodes.lam))
            filled = jnp.zeros((), jnp.int32)
            adjoint, nodes, _ = while_loop(
                lambda c: active(c[0]) & (c[2] < steps), gather, (adjoint, nodes, filled), like=(setup, table)
            )
            values = lanes.enter(nodes, lanes.count is not None)
            mu = lanes.carry(lanes.call(self._quadrature, values, mu, setup, inputs))
            return adjoint, nodes, mu

        def filler(setup):
            none = jnp.zeros((self.stepping.integrator.stepper.order // 2 + 1,), setup.start.dtype)
            y = jax.tree.map(lambda y: jnp.broadcast_to(y, none.shape + y.shape), setup.problem.y0)
            return Nodes(none, y, jax.tree.map(jnp.zeros_like, y))

        item = lanes.leave(lanes.call(filler, setup))
        nodes = jax.tree.map(lambda x: jnp.broadcast_to(x, (steps, *x.shape)), item)
        carry = to_varying((adjoint, nodes, mu), vma_of((adjoint, setup, table)))
        adjoint, _, mu = while_loop(lambda c: active(c[0]), fill_batch, carry, like=(setup, table))
        return adjoint, mu

    def _enter(self, table: Table | None) -> Any:
        if table is None:
            return None
        leaves = len(jax.tree.leaves(table))
        batched = self.lanes.count is not None
        return self.lanes.enter(table, [batched] * (leaves - 1) + [False])

    # what follows is of one member

    def _setup(self, problem: AdjointProblem) -> AdjointSetup:
        count = problem.saves.shape[0]
        leaves = [x.reshape(count, -1) for x in jax.tree.leaves(problem.cotangents)]
        sizes = jnp.stack([jnp.max(jnp.abs(x), axis=1, initial=0.0).astype(problem.saves.dtype) for x in leaves]).max(0)
        scale = jnp.max(sizes)
        scale = jnp.where(scale > 0, scale, jnp.ones_like(scale))
        jumps = jax.tree.map(lambda c: c / scale.astype(c.dtype), problem.cotangents)
        # a member that failed starts from where it was: what it did not reach has no cotangent
        saves = jnp.clip(problem.saves, jnp.zeros_like(problem.reached), problem.reached)
        there = sizes != 0  # true for NaN, which the gradient shows
        start = jnp.max(jnp.where(there, saves, jnp.zeros_like(saves)))
        return AdjointSetup(start, jnp.zeros_like(start), scale, jumps, jnp.any(there), problem._replace(saves=saves))

    def _adjoint_operands(self, setup: AdjointSetup, table: Table | None) -> AdjointOperands:
        operands = setup.problem.operands
        diff, constant = eqx.partition((operands.field, operands.t0), self.spec)
        return AdjointOperands(diff, constant, operands.direction, table)

    def _operands(self, setup: AdjointSetup, table: Table | None, x: Costate, end: Array) -> Operands:
        """Returns what the integration backwards depends on: time runs down from `setup.start`."""
        operands = setup.problem.operands
        tolerances = operands.tolerances
        if tolerances is not None:
            own = (self.rtol, self.atol)
            chosen = (old if new is None else jnp.asarray(new, setup.start.dtype) for old, new in zip(tolerances, own))
            tolerances = costate_tolerances(Tolerances(*chosen), x)
        return Operands(
            field=cast(Any, [self._adjoint_operands(setup, table)]),
            t0=setup.start,
            span=end,
            saves=None,
            direction=-jnp.ones_like(setup.start),
            tolerances=tolerances,
            dt=operands.dt if self.stepping.integrator.control is None else None,
            # within 32 bits, and one step more for every saved time
            max_steps=_MOST_STEPS * jnp.minimum(operands.max_steps, 2**31 // (2 * _MOST_STEPS))
            + setup.problem.saves.size,
        )

    def _start(self, setup: AdjointSetup, table: Table | None) -> AdjointState:
        left = jnp.sum(setup.problem.saves <= setup.start, dtype=jnp.int32)
        lam, y = _at(setup.jumps, left - 1), None
        lam = jax.tree.map(lambda x: jnp.where(left > 0, x, jnp.zeros_like(x)), lam)
        if self.variant.state:
            there = (left > 0) & setup.used
            y = jax.tree.map(lambda a, b: jnp.where(there, a, b), _at(setup.problem.ys, left - 1), setup.problem.y0)
        mu = self._blank_mu(setup) if self.variant.parameters else None
        x = Costate(y, lam, mu)
        span = jnp.where(setup.start > 0, setup.start, jnp.ones_like(setup.start))
        state = self.integrator.start(x, self._operands(setup, table, x, span))
        return AdjointState(state, jnp.maximum(left - 1, 0))

    def _blank_mu(self, setup: AdjointSetup) -> PyTree:
        return blank_mu(self._adjoint_operands(setup, None).diff, setup.start.dtype)

    def _iterate(self, adjoint: AdjointState, setup: AdjointSetup, table: Table | None) -> tuple[AdjointState, Array]:
        """Tries a step towards the next stop."""
        state, left = adjoint
        target = _stop(adjoint, setup)
        operands = self._operands(setup, table, state.checkpoint.y, target)
        new, step_record = self.integrator.attempt(state, operands, target)
        # a step cut short by a stop says little of the next one
        cut = step_record.accepted & (new.checkpoint.elapsed >= target)
        h = jnp.where(cut, jnp.maximum(new.checkpoint.h, state.checkpoint.h), new.checkpoint.h)
        return AdjointState(new._replace(checkpoint=new.checkpoint._replace(h=h)), left), step_record.accepted

    def _jump(self, adjoint: AdjointState, setup: AdjointSetup, table: Table | None) -> AdjointState:
        """Adds the cotangent of a saved time at which the member has arrived."""
        (state, left), there = adjoint, _has_arrived(adjoint, setup)
        x, status = state.checkpoint.y, state.checkpoint.status
        lam = jax.tree.map(lambda a, b: jnp.where(there, a + b, a), x.lam, _at(setup.jumps, left - 1))
        y = x.y
        if y is not None:
            known = _at(setup.problem.ys, left - 1)
            used = there & _any_used(_at(setup.jumps, left - 1))  # what the loss does not depend on may be missing
            status = jnp.where(used & self._has_diverged(y, known, setup), int(Status.diverged), status).astype(
                jnp.int8
            )
            y = jax.tree.map(lambda a, b: jnp.where(used, b, a), y, known)
        x = Costate(y, lam, x.mu)
        operands = self._operands(setup, table, x, setup.start)
        # what the method reuses of its last step belongs to the costate before the jump
        memory = self.integrator.stepper.init(self.integrator.bound(operands), _position(adjoint, setup), x)
        memory = jax.tree.map(lambda a, b: jnp.where(there, a, b), memory, state.memory)
        checkpoint = state.checkpoint._replace(y=x, status=status)
        return AdjointState(state._replace(checkpoint=checkpoint, memory=memory), left - there.astype(jnp.int32))

    def _has_diverged(self, y: PyTree, known: PyTree, setup: AdjointSetup) -> Array:
        """Whether a state integrated backwards is far from what it was forwards: half of its digits are gone."""
        tolerances = setup.problem.operands.tolerances
        if tolerances is None:  # fixed steps ask for no accuracy: a tenth of the state
            states = jax.tree.leaves((known, setup.problem.ys))  # a state may be zero at one time, or missing
            sizes = [jnp.nanmax(jnp.abs(x), initial=0.0).astype(setup.start.dtype) for x in states]
            tenth = match(jnp.full_like(setup.start, 0.1), states)
            loose = Tolerances(tenth, tenth * jnp.stack(sizes).max())
        else:
            digits = jax.tree.map(jnp.sqrt, tolerances.rtol)
            least = jnp.min(jnp.stack([jnp.min(x) for x in jax.tree.leaves(digits)]))
            loose = Tolerances(digits, jax.tree.map(lambda a: a / least, tolerances.atol))
        error = jax.tree.map(jnp.subtract, y, known)
        return ~(scaled_error(error, known, known, loose) <= 1)

    def _nodes(self, adjoint: AdjointState, accepted: Array, setup: AdjointSetup, table: Table) -> Nodes:
        operands = self._adjoint_operands(setup, table)
        return nodes_of_step(
            self.stepping.integrator.stepper, adjoint.state, accepted, setup.start, setup.problem.y0, operands
        )

    def _quadrature(self, nodes: Nodes, mu: PyTree, setup: AdjointSetup, table: Table) -> PyTree:
        return quadrature(self.stepping.integrator.field, nodes, mu, self._adjoint_operands(setup, table))

    def _finish(self, adjoint: AdjointState, mu: PyTree | None, setup: AdjointSetup) -> tuple[PyTree, PyTree]:
        """Returns the cotangents, NaN where the backward pass failed, and zero where the loss uses no saved state."""
        x, status = adjoint.state.checkpoint.y, adjoint.state.checkpoint.status
        good = (
            (status == int(Status.successful)) & (adjoint.state.checkpoint.elapsed >= setup.start) & (adjoint.left == 0)
        )
        if x.y is not None:
            good = good & ~self._has_diverged(x.y, setup.problem.y0, setup)

        def result(x, like):
            x = (x * setup.scale.astype(x.dtype)).astype(like.dtype)
            x = jnp.where(good, x, jnp.full_like(x, jnp.nan))
            return jnp.where(setup.used, x, jnp.zeros_like(x))

        diff = self._adjoint_operands(setup, None).diff
        mu = x.mu if mu is None else mu
        return jax.tree.map(result, x.lam, setup.problem.y0), jax.tree.map(result, mu, diff)


def _at(tree: PyTree, index: Array) -> PyTree:
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, jnp.maximum(index, 0), 0, False), tree)


def _any_used(tree: PyTree) -> Array:
    return jnp.stack([jnp.any(x != 0) for x in jax.tree.leaves(tree)]).any()


def _next_save(adjoint: AdjointState, setup: AdjointSetup) -> Array:
    save = _at(setup.problem.saves, adjoint.left - 1)
    # past the first save: a time before the start, at which nothing arrives
    return jnp.where(adjoint.left > 0, save, -jnp.ones_like(save))


def _stop(adjoint: AdjointState, setup: AdjointSetup) -> Array:
    """Returns how far from the start of the backward pass the next stop is."""
    return setup.start - jnp.maximum(_next_save(adjoint, setup), setup.begin)


def _has_arrived(adjoint: AdjointState, setup: AdjointSetup) -> Array:
    """Whether the member is at a saved time whose cotangent has yet to be added."""
    save = _next_save(adjoint, setup)
    good = adjoint.state.checkpoint.status == int(Status.successful)
    return good & (save >= setup.begin) & (adjoint.state.checkpoint.elapsed >= setup.start - save)


def _is_active(adjoint: AdjointState, setup: AdjointSetup) -> Array:
    """Whether the member has yet to reach the beginning of the table, or to add a cotangent."""
    good = adjoint.state.checkpoint.status == int(Status.successful)
    ahead = adjoint.state.checkpoint.elapsed < setup.start - setup.begin
    return (good & ahead) | _has_arrived(adjoint, setup)


def _position(adjoint: AdjointState, setup: AdjointSetup) -> Array:
    """Returns the elapsed time at which the member is."""
    elapsed, compensation = adjoint.state.checkpoint.elapsed, adjoint.state.checkpoint.compensation
    return jnp.maximum((setup.start - elapsed) + compensation, jnp.zeros_like(elapsed))


def _unless_short(adjoint: AdjointState, needed: Array, reached: Array) -> AdjointState:
    """Marks a member whose table ends before the time that it is at: the second run took other steps."""
    checkpoint = adjoint.state.checkpoint
    slack = 8 * jnp.finfo(needed.dtype).eps * needed
    status = jnp.where(reached + slack < needed, int(Status.diverged), checkpoint.status).astype(jnp.int8)
    return adjoint._replace(state=adjoint.state._replace(checkpoint=checkpoint._replace(status=status)))


def dense_stepping(integrator: Integrator, lanes: Lanes | Unbatched) -> LaneIntegrator:
    """Returns an integration forwards over lanes that keeps the last step's dense output."""
    return LaneIntegrator(dataclasses.replace(integrator, dense=True), lanes)
