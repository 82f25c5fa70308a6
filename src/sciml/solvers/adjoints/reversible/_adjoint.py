"""`Reversible`: reverse mode in constant memory, by a method that runs backwards."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._checkpoint_levels import NOTHING
from ...._jax._loops import scan_to_end, while_loop
from ...._jax._vma import promote
from ....kernels._lanes import Lanes, Unbatched
from ...integrate._abstract import AbstractLoop, FixedSteps
from ...integrate._fixed_steps import result_of_steps
from ...integrate._integrator import Integrator, Operands, known
from ...integrate._result import Cotangents, Result, Saves
from ...methods._stepper import AbstractStepper
from ...methods.explicit._runge_kutta import RungeKutta
from .. import _discrete_rule
from .._abstract import AbstractAdjoint
from .._no_length import with_rates_by_times
from ._adaptive import ReversibleAdaptiveLoop
from ._backward import BackwardPass, BackwardStart, Instant, saved_in_step, step_of
from ._fixed_steps import AbstractReversibleLoop, ReversibleLoop, warn_of_coupling
from ._stepper import Pair, ReversibleStepper, SymmetricStepper


class _Progress(NamedTuple):
    """The carry of a member in the forward pass.

    Attributes:
        number: The number of steps taken.
        pair: The state, finite.
        failed: Whether the next step is not finite.
    """

    number: Array
    pair: Pair
    failed: Array


class ReversibleSavingLoop(AbstractReversibleLoop):
    """A fixed number of steps of a reversible method over lanes, with saved times, which may differ between members.

    Attributes:
        integrator: How one member is advanced; its method is a `ReversibleStepper` or a `SymmetricStepper`.
        lanes: The engine.
        count: The number of steps of length `dt`.
        tail: Whether a shorter step follows, which ends at the end time.
        slopes: Whether saved times are differentiated.
    """

    integrator: Integrator
    lanes: Lanes | Unbatched
    count: int = eqx.field(static=True)
    tail: bool = eqx.field(static=True)
    slopes: bool = eqx.field(static=True)

    @property
    def fixed(self) -> FixedSteps:
        """The steps that it takes."""
        return FixedSteps(self.count, self.tail)

    @property
    def max_steps(self) -> int:
        """The number of steps that it takes at most."""
        return self.count + 1

    def forward(self, y0: PyTree, operands: Operands, saves: Saves | None) -> Result:
        """Takes all steps; `y0` and `operands` are lane values."""
        return self._forward(y0, operands, saves)[0]

    def forward_recorded(
        self, y0: PyTree, operands: Operands, saves: Saves | None
    ) -> tuple[Result, BackwardStart, None]:
        """Takes all steps and returns what `backward` needs; warns if that will not lead back."""
        assert isinstance(self.integrator.stepper, ReversibleStepper | SymmetricStepper)
        warn_of_coupling(self.integrator.stepper.coupling, self.count, y0)
        return *self._forward(y0, operands, saves), None

    def backward(
        self,
        cotangent: Cotangents,
        residuals: BackwardStart,
        common: None,
        operands: Operands,
        saves: Saves | None,
        differentiable: PyTree,
    ) -> tuple[PyTree, PyTree, PyTree]:
        """Carries the cotangents of the saved states back; see `AbstractLoop.backward`."""
        del common
        back = BackwardPass(self.integrator, self.lanes, self.slopes)
        return back.run(cotangent.ys, residuals, operands, saves, differentiable, self._look_up)

    def errors(self, y0: PyTree, operands: Operands) -> tuple[Result, PyTree[Array]]:
        """Returns the result, and how far the backward pass misses the initial state; saved times change no step."""
        return ReversibleLoop(self.integrator, self.lanes, self.count, self.tail).errors(y0, operands)

    def _look_up(self, number: PyTree, operands: Operands) -> Instant:
        return self.lanes.call(_instant, number, operands)

    def _forward(self, y0: PyTree, operands: Operands, saves: Saves | None) -> tuple[Result, BackwardStart]:
        assert saves is not None  # the loop is for saved times
        lanes = self.lanes

        def until(progress, target):
            def pending(progress):
                return lanes.any(lanes.call(_is_pending, progress, target))

            def iterate(progress):
                return lanes.carry(lanes.call(self._advance, progress, target, operands))

            return while_loop(pending, iterate, progress, like=(operands, target))

        def step_with(time, beyond):
            return lanes.carry(lanes.call(self._step_with, lanes.enter(time, saves.batched), operands, beyond))

        def advance(carry, time, beyond):
            progress, last = carry
            beyond = lanes.enter(beyond, False)
            number = step_with(time, beyond)
            progress = until(progress, number)
            return progress, lanes.carry(lanes.call(_last_reached, progress, number, last, beyond))

        def save(carry, time):
            inside = step_with(time, lanes.enter(jnp.zeros((), bool), False))
            y = lanes.call(self._saved, carry[0], inside, lanes.enter(time, saves.batched), operands)
            return lanes.leave(y), lanes.leave(inside)

        progress = lanes.carry(lanes.call(_begin, y0))
        carry, (ys, saved_in) = scan_to_end(advance, save, (progress, progress), saves.times, like=operands)
        progress, last = carry
        result = Result(*lanes.leave(lanes.call(self._result, progress, operands)))
        end, number, y0 = lanes.leave((last.pair, last.number, lanes.carry(y0)))
        return result._replace(ys=ys), BackwardStart(end, number, y0, saved_in, None)

    # what follows is of one member

    def _step_with(self, time, operands, beyond):
        """Returns the number of the step that a saved time lies in, or ends; beyond, the number of all steps."""
        eps, total = jnp.finfo(time.dtype).eps, self.count + self.tail
        # a time that is the end of a step but for rounding is within that step, not the next
        number = jnp.ceil(time / operands.dt * (1 - 4 * eps)).astype(jnp.int32) - 1
        return jnp.where(beyond, total, jnp.clip(number, 0, total - 1))

    def _advance(self, progress, target, operands):
        """Takes a step of a member that is to take one."""
        number, pair, failed = progress
        field, t, h = step_of(self.integrator, _instant(number, operands), operands)
        new = self.integrator.stepper.step(field, t, h, pair, None).y1
        finite = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(new)]).all()
        active = _is_pending(progress, target)
        moves = active & finite
        pair = jax.tree.map(lambda a, b: jnp.where(moves, a, b), new, pair)
        return _Progress(number + moves.astype(jnp.int32), pair, failed | (active & ~finite))

    def _saved(self, progress, inside, time, operands):
        number, pair, failed = progress
        y = saved_in_step(self.integrator, pair, time, _instant(number, operands), operands)
        finite = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(y)]).all()
        return known(y, ~failed & (number == inside) & finite)

    def _result(self, progress, operands):
        return result_of_steps(progress.pair.y, progress.number, self.count + self.tail, operands)


def _instant(number: Array, operands: Operands) -> Instant:
    """Returns a step by its number, so that time does not drift."""
    assert operands.dt is not None  # fixed steps have their size
    elapsed = number.astype(operands.dt.dtype) * operands.dt
    return Instant(elapsed, jnp.zeros_like(elapsed), operands.dt)


def _begin(y0: PyTree) -> _Progress:
    return _Progress(jnp.zeros((), jnp.int32), Pair(y0, y0), jnp.zeros((), bool))


def _last_reached(progress: _Progress, inside: Array, last: _Progress, beyond: Array) -> _Progress:
    """Returns where a member is if it has come to the step of a saved time, or where it was at the last it came to."""
    there = (progress.number == inside) & ~beyond
    return jax.tree.map(lambda a, b: jnp.where(there, a, b), progress, last)


def _is_pending(progress: _Progress, target: Array) -> Array:
    return (progress.number < target) & ~progress.failed


class Reversible(AbstractAdjoint):
    r"""Reverse mode in memory that does not depend on the number of steps.

    The explicit Runge-Kutta method $y_{n+1} = y_n + \Psi_h(t_n, y_n)$ becomes a reversible one of the
    same order (McCallum and Foster 2024): two copies of the state are advanced one after the other,

    $$y_{n+1} = \lambda y_n + (1 - \lambda) z_n + \Psi_h(t_n, z_n), \qquad
      z_{n+1} = z_n - \Psi_{-h}(t_{n+1}, y_{n+1}).$$

    The backward pass undoes the steps from the end state and recomputes every state, so that none is recorded. A step
    costs two of the base method, forwards and backwards. The gradient is exact for the computed solution, as far as
    rounding lets the states be recomputed.

    **Where it loses accuracy.** With $N$ steps the backward pass multiplies rounding errors by $\lambda^{-N}$, and by
    $e^{\mu T}$ if the solution forgets its past at a rate $\mu$: damped components cannot be recomputed. Forwards, the
    difference between the copies grows by $\lambda^N e^{\mu T}$. So it suits many steps over few time constants, waves
    and oscillations, and not stiff or strongly damped systems. `sciml.solvers.reversal_error` measures the loss. A
    gradient warns during tracing if $\lambda^{-N}$ is too large by itself. It is NaN if the recomputed initial state
    differs from the known one by more than the cube root of the dtype's precision (6e-6 of the largest value of its
    leaf in float64, 5e-3 in float32): `reversal_error` returns it. Below that bound, the error of a gradient may be
    tens of times this error if the solution is sensitive.

    A symmetric method, `sciml.solvers.VelocityVerlet` or `Yoshida`, is its own reverse: one copy of the state, and
    only rounding limits its accuracy.

    Saved states cost an evaluation of the method each, and no more memory than they take themselves: their cotangents
    are added when the backward pass reaches them.

    With fixed steps, `t0` and `t1` known when traced, nothing is recorded. Any other loop, such as one with error
    control, records three numbers for each of `max_steps` steps: its start, the rounding error of the start, and its
    length. A smaller `max_steps` takes less memory. With `batching="refill"` the solve runs in lockstep, as gradients
    always do. Implicit methods are refused when traced. Forward mode needs `Forward` or `Direct`.

    **The forward pass also differs from the base method.** Error control only measures the base method's error, not the
    difference between the copies, which may exceed the tolerances many times if they are loose or solutions are damped.
    `reversal_error` does not show it: compare the end state with a solve by `Checkpointed`.

    Attributes:
        coupling: $\lambda$, between 0 and 1. Closer to 1 the reversal is more accurate over many steps, and
            less damping is tolerated: $h \mu < 1 - \lambda$ is stable over any time.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def end(stiffness, adjoint):
            swing = lambda t, y, args: jnp.stack([y[1], -stiffness * jnp.sin(y[0])])
            return sciml.solve(swing, jnp.array([1.0, 0.0]), t0=0.0, t1=5.0, dt=0.01, adjoint=adjoint).ys[-1, 0]

        reversible = jax.grad(end)(jnp.array(2.0), sciml.adjoints.Reversible())
        checkpointed = jax.grad(end)(jnp.array(2.0), sciml.adjoints.Checkpointed())
        assert abs(float(reversible - checkpointed)) < 1e-4
        ```
    """

    changes_method: ClassVar[bool] = True
    coupling: float = eqx.field(static=True, default=0.999)

    def __check_init__(self):
        if not isinstance(self.coupling, float) or not 0 < self.coupling < 1:
            raise ValueError(f"`Reversible(coupling=...)` must be between 0 and 1, but is {self.coupling!r}.")

    def method(self, stepper: AbstractStepper) -> AbstractStepper:
        """Returns the reversible method of a Runge-Kutta method; a symmetric method is its own."""
        if stepper.traits.symmetric:
            return SymmetricStepper(stepper)
        if not isinstance(stepper, RungeKutta):
            raise TypeError(
                "`adjoint=Reversible()` requires an explicit Runge-Kutta method as `solver`. Use a method such as "
                "`diffrax.Tsit5()`, or `sciml.adjoints.Checkpointed()`. A custom method must be a diffrax method with "
                "a tableau, or have `Traits(symmetric=True)`."
            )
        return ReversibleStepper(stepper, self.coupling)

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop with the reversible method and its custom rule of reverse mode."""
        there = reversible_loop(self, loop, differentiate_times)
        result = _discrete_rule.run(there, y0, operands, differentiate_times, NOTHING)
        return result if operands.saves is not None else with_rates_by_times(loop, operands, result)


class Retraced(AbstractAdjoint):
    """Runs a reversible solve to its end and back, and returns its distance from the start afterwards."""

    changes_method: ClassVar[bool] = True
    coupling: float = eqx.field(static=True)

    def method(self, stepper: AbstractStepper) -> AbstractStepper:
        """Returns the reversible method of a Runge-Kutta method."""
        return Reversible(self.coupling).method(stepper)

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop forwards and backwards; a number for each leaf of the state takes the place of the state."""
        del differentiate_times
        y0, operands = promote((y0, operands))
        operands = operands._replace(saves=None)  # saved times change no step
        there = reversible_loop(Reversible(self.coupling), loop).over(Unbatched(), 1, NOTHING)
        result, errors = there.errors(y0, operands)
        return result._replace(ys=errors)


def reversible_loop(adjoint: Reversible, loop: AbstractLoop, times: bool = False) -> AbstractReversibleLoop:
    """Returns a loop that steps with the reversible method.

    Args:
        adjoint: The adjoint.
        loop: The loop of the method itself.
        times: Whether saved times are differentiated.
    """
    stepper = adjoint.method(loop.integrator.stepper)
    integrator = eqx.tree_at(lambda m: m.stepper, loop.integrator, stepper)
    if loop.fixed is None or (integrator.dense and not stepper.traits.dense):  # whose steps end at saved times
        return ReversibleAdaptiveLoop(integrator, loop.lanes, loop.max_steps, times)
    if integrator.dense:
        return ReversibleSavingLoop(integrator, loop.lanes, *loop.fixed, times)
    return ReversibleLoop(integrator, loop.lanes, *loop.fixed)
