"""`Reversible`: reverse mode in constant memory, by a method that runs backwards."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import PyTree

from ...._jax._checkpoint_levels import NOTHING
from ...._jax._vma import promote
from ....kernels._lanes import Unbatched
from ...integrate._abstract import AbstractLoop
from ...integrate._integrator import Operands
from ...integrate._result import Result
from ...methods._runge_kutta import RungeKutta
from ...methods._stepper import AbstractStepper
from .. import _discrete_rule
from .._abstract import AbstractAdjoint
from .._no_length import with_rates_by_times
from ._abstract import AbstractReversibleLoop
from ._adaptive import ReversibleAdaptiveLoop
from ._fixed_steps import ReversibleLoop
from ._fixed_steps_with_saves import ReversibleSavingLoop
from ._stepper import ReversibleStepper
from ._symmetric_stepper import SymmetricStepper


class Reversible(AbstractAdjoint):
    r"""Reverse mode in memory that does not depend on the number of steps.

    The explicit Runge-Kutta method $y_{n+1} = y_n + \Psi_h(t_n, y_n)$ becomes a reversible one of the
    same order (McCallum and Foster 2024): two copies of the state are advanced one after the other,

    $$y_{n+1} = \lambda y_n + (1 - \lambda) z_n + \Psi_h(t_n, z_n), \qquad
      z_{n+1} = z_n - \Psi_{-h}(t_{n+1}, y_{n+1}).$$

    The backward pass undoes the steps from the end state and recomputes every state, so that none
    is recorded. A step costs two of the base method, forwards and backwards. The gradient is
    exact for what was computed, as far as rounding lets the states be recomputed.

    **Where it loses accuracy.** With $N$ steps the backward pass multiplies rounding errors by
    $\lambda^{-N}$, and by $e^{\mu T}$ where the solution forgets its past at a rate $\mu$: what was
    damped away cannot be recomputed. Forwards, the difference between the copies grows by
    $\lambda^N e^{\mu T}$. So it suits many steps over few time constants, waves and oscillations, and not
    stiff or strongly damped systems. `sciml.solvers.reversal_error` measures the loss. A gradient
    warns while it is traced if $\lambda^{-N}$ alone is too large, and is NaN where the recomputed initial
    state differs from the known one by more than the cube root of the dtype's precision (6e-6 of
    the largest value of its leaf in float64, 5e-3 in float32): `reversal_error` says what it was. Below that bound a
    gradient may be wrong by some tens of times this error where the solution is sensitive.

    A symmetric method, `sciml.solvers.VelocityVerlet` or `Yoshida4`, is its own reverse: one copy of the state, and
    only rounding limits its accuracy.

    Saved states cost an evaluation of the method each, and no more memory than they take themselves: their
    cotangents are added where the backward pass comes to them.

    With fixed steps, `t0` and `t1` known when traced, nothing is recorded. Any other loop, such as one with error
    control, records three numbers for each of `max_steps` steps: when it started, what rounding took from that,
    and its length. A smaller `max_steps` takes less memory. With `schedule="refill"` the solve runs in lockstep, as
    gradients always do. Implicit methods are refused when traced. Forward mode needs `Forward` or
    `Direct`.

    **Forwards, too, it is another method than its base.** Error control sees the base method's error and not what the
    difference between the copies adds, which may be many times the tolerances where they are loose or solutions are
    damped, and `reversal_error` does not show it: compare the end state with that of a solve by `Checkpointed`.

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
        if stepper.symmetric:
            return SymmetricStepper(stepper)
        if not isinstance(stepper, RungeKutta):
            raise TypeError(
                "`adjoint=Reversible()` makes explicit Runge-Kutta methods reversible, and `solver` is none of "
                "them. Use `sciml.adjoints.Checkpointed()`, or a method such as `diffrax.Tsit5()`."
            )
        return ReversibleStepper(stepper, self.coupling)

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop with the reversible method and its custom rule of reverse mode."""
        there = reversible_loop(self, loop, differentiate_times)
        result = _discrete_rule.run(there, y0, operands, differentiate_times, NOTHING)
        return result if operands.saves is not None else with_rates_by_times(loop, operands, result)


class Retraced(AbstractAdjoint):
    """Runs a reversible solve to its end and back, and returns by how much it misses the start in place of the end."""

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
    if loop.fixed is None or (integrator.dense and not stepper.dense):  # whose steps end at saved times
        return ReversibleAdaptiveLoop(integrator, loop.lanes, loop.max_steps, times)
    if integrator.dense:
        return ReversibleSavingLoop(integrator, loop.lanes, *loop.fixed, times)
    return ReversibleLoop(integrator, loop.lanes, *loop.fixed)
