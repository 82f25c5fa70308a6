"""One step of any optimiser, in one form: optax's gradient transformations and optimistix's solvers."""

import abc
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix
from jaxtyping import Array, Bool, Float, Int

from .._status import Status
from ._problem import LeastSquaresProblem

if TYPE_CHECKING:  # type checkers do not know the abstract kind
    from typing import ClassVar as AbstractClassVar
else:
    from equinox import AbstractClassVar


class StepResult(NamedTuple):
    """The result of one step of an optimiser.

    Attributes:
        z: The final point.
        state: The optimiser's next state.
        loss: The loss where it began.
        jacobian: The Jacobian of the residuals where it began, from optimisers that compute it.
        done: Whether the optimiser has met its tolerance.
        code: A code of `Status`.
    """

    z: Float[Array, " p"]
    state: Any
    loss: Float[Array, ""]
    jacobian: Float[Array, "m p"] | None
    done: Bool[Array, ""]
    code: Int[Array, ""]


class AbstractOptimiser(eqx.Module):
    """An optimiser as a pure step; its state holds arrays only."""

    unfinished_is_failure: AbstractClassVar[bool]
    on_divergence: AbstractClassVar[str]

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the optimiser in messages."""

    @property
    @abc.abstractmethod
    def gives_jacobian(self) -> bool:
        """Whether `step` returns the Jacobian of the residuals."""

    @abc.abstractmethod
    def init(self, problem: LeastSquaresProblem, z: Float[Array, " p"], scale: Float[Array, " p"]) -> Any:
        """Returns the state before the first step, for an optimiser that works with `scale * z`."""

    @abc.abstractmethod
    def step(self, problem: LeastSquaresProblem, z: Float[Array, " p"], state: Any) -> StepResult:
        """Takes one step from `z`."""


class OptaxOptimiser(AbstractOptimiser):
    """An `optax.GradientTransformation`, done when the gradient is small compared to the loss."""

    transformation: Any
    rtol: float
    atol: float

    # A fixed number of steps is the usual way to run such an optimiser.
    unfinished_is_failure = False
    on_divergence = "It converged to a point whose loss is larger than at earlier steps. Lower the learning rate."

    @property
    def name(self) -> str:
        """The library's: a transformation has no name."""
        return "optax"

    @property
    def gives_jacobian(self) -> bool:
        """No: only the gradient of the loss is computed."""
        return False

    def init(self, problem: LeastSquaresProblem, z: Float[Array, " p"], scale: Float[Array, " p"]) -> Any:
        """Returns the transformation's state; its learning rate is for `z` as it is."""
        del problem, scale
        return self.transformation.init(z)

    def step(self, problem: LeastSquaresProblem, z: Float[Array, " p"], state: Any) -> StepResult:
        """Takes one step down the gradient."""
        import optax

        loss, grad = jax.value_and_grad(problem.loss)(z)
        update = optax.with_extra_args_support(self.transformation).update
        with jax.numpy_dtype_promotion("standard"):  # optax mixes its integer counter with floats
            updates, state = update(grad, state, z, value=loss, grad=grad, value_fn=problem.loss)
        finite = jnp.isfinite(loss) & jnp.all(jnp.isfinite(grad))
        # How much a relative change of any parameter would change the loss.
        slope = jnp.max(jnp.abs(grad) * jnp.maximum(jnp.abs(z), 1))
        done = slope <= self.atol + self.rtol * loss
        code = jnp.where(finite, jnp.int32(Status.successful), jnp.int32(Status.nonfinite))
        # At a minimum, where a line search has nothing to find, the update may be anything.
        moved: Any = optax.apply_updates(z, updates)
        return StepResult(jnp.where(done, z, moved), state, loss, None, done & finite, code)


class OptimistixOptimiser(AbstractOptimiser):
    """An optimistix least-squares solver or minimiser, done when the solver terminates."""

    solver: Any

    unfinished_is_failure = True
    on_divergence = (
        "Its step could not be computed: the Jacobian may contain NaN, or the problem may be singular. Check the "
        "derivatives of `residuals`, fix some leaves with `where`, or use another `solver`."
    )

    @property
    def name(self) -> str:
        """The solver's."""
        return type(self.solver).__name__

    @property
    def gives_jacobian(self) -> bool:
        """Least-squares solvers do."""
        return takes_jacobians(self.solver)

    def _call(self, problem: LeastSquaresProblem, scale: Float[Array, " p"]) -> tuple:
        def squares(w, args):
            r, jac = problem.residual_and_jacobian(w / scale)
            return r, (0.5 * jnp.sum(r**2), jac)

        def scalar(w, args):
            loss = problem.loss(w / scale)
            return loss, (loss, None)

        # optimistix returns a plain matrix in reverse mode; here it is already known
        return (squares, {"jac": "bwd"}) if self.gives_jacobian else (scalar, {})

    def _init(self, problem: LeastSquaresProblem, w: Float[Array, " p"], scale: Float[Array, " p"]) -> tuple:
        fn, options = self._call(problem, scale)
        f_struct, aux_struct = jax.eval_shape(fn, w, None)
        state = self.solver.init(fn, w, None, options, f_struct, aux_struct, frozenset())
        return fn, options, eqx.partition(state, eqx.is_array)

    def init(self, problem: LeastSquaresProblem, z: Float[Array, " p"], scale: Float[Array, " p"]) -> Any:
        """Returns the scale, and the arrays of the solver's state."""
        return scale, self._init(problem, scale * z, scale)[2][0]

    def step(self, problem: LeastSquaresProblem, z: Float[Array, " p"], state: Any) -> StepResult:
        """Takes one step of the solver, which may be a rejected one."""
        scale, state = state
        w = scale * z
        fn, options, (_, static) = self._init(problem, w, scale)  # only its static half is used
        state = eqx.combine(state, static)
        new_w, state, (loss, jac) = self.solver.step(fn, w, None, options, state, frozenset())
        done, result = self.solver.terminate(fn, w, None, options, state, frozenset())
        failed = result != optimistix.RESULTS.successful
        finite = jnp.all(jnp.isfinite(new_w))
        code = jnp.where(failed, jnp.int32(Status.diverged), jnp.int32(Status.successful))
        code = jnp.where(finite, code, jnp.int32(Status.nonfinite))
        state = (scale, eqx.filter(state, eqx.is_array))
        return StepResult(new_w / scale, state, loss, jac, done & ~failed & finite, code)


def takes_jacobians(solver: Any) -> bool:
    """Returns whether the argument `solver` is a least-squares solver, which needs no gradient of the loss."""
    return solver is None or isinstance(solver, optimistix.AbstractLeastSquaresSolver)


def as_optimiser(solver: Any, rtol: float, atol: float) -> AbstractOptimiser:
    """Returns the optimiser for the argument `solver`.

    Raises:
        TypeError: If it is neither from optax nor from optimistix.
    """
    import optax  # takes a tenth of a second, which `import sciml` need not pay

    if solver is None:
        solver = optimistix.LevenbergMarquardt(rtol, atol)
    if isinstance(solver, optax.GradientTransformation):
        return OptaxOptimiser(solver, rtol, atol)
    if isinstance(solver, optimistix.AbstractLeastSquaresSolver | optimistix.AbstractMinimiser):
        return OptimistixOptimiser(solver)
    raise TypeError(
        "`solver` must be None (Levenberg-Marquardt), an optax optimiser such as `optax.adam(1e-2)`, or an optimistix "
        "least-squares solver or minimiser such as `optimistix.GaussNewton(rtol=1e-8, atol=1e-8)`, but got "
        f"{solver!r}."
    )
