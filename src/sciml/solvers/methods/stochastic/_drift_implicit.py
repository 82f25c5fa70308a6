r"""The methods of Euler and Maruyama and of Milstein with an implicit drift.

Source:
    P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), section 12.2.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._types import Args, RealScalarLike, Y
from ...linear._structured_field import BoundStructuredField
from ...noise._closed_noise import BoundNoisyField, NoisyField
from .._ravel import flattened, unflattened
from .._stepper import Step
from ..implicit._collocation import AbstractCollocation, Collocation, Made, collocation
from ._abstract import AbstractStochasticStepper, plus, scaled


class _BackwardEuler(AbstractCollocation):
    """The implicit method of Euler, where asked for with an estimate of the error of a step that noise has led into.

    Attributes:
        noise_error: The known error of the noise, from the step's increment, in addition to the error of the drift;
            None for no estimate.
        between: Half of the difference between the noise of the first and the second half of the step.
    """

    noise_error: Callable[[Y], Y] | None = None
    between: Y = None
    order: ClassVar[int] = 1
    evaluations: ClassVar[int] = -1
    has_error: ClassVar[bool] = False
    method: ClassVar[Collocation] = collocation((1.0,), ((1.0,),), (1.0,))

    def finished(self, made: Made) -> Step:
        """Returns the step, with its error estimate if there is one."""
        step = super().finished(made)
        if self.noise_error is None:
            return step
        h, increment = made.h.astype(made.x.dtype), made.stages[0]
        _, met = jax.jvp(lambda y: made.field(made.t, y), (unflattened(made.x, made.y),), (self.between,))
        own = 0.5 * (increment - h * made.slope) + h * flattened(met)
        off = own + flattened(self.noise_error(unflattened(increment, made.y)))
        error = unflattened(made.structures[0].substitute(made.factors[0], off), made.y)
        return step._replace(error=jax.lax.stop_gradient(error))


class _AbstractDriftImplicit(AbstractStochasticStepper):
    """A method for stiff drifts, which solves for the end of each step."""

    evaluations: ClassVar[int] = -1
    # as of other methods that iterate
    traits = AbstractStochasticStepper.traits._replace(elementwise=False, batched_vjp=False, costly="large")

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns drift, diffusion and increments as closed functions, with their operands."""
        field, operands = super().close(model, t, y, args, h)
        structures = _BackwardEuler().structures(lambda t, y: model(t, y, args), t, y)
        return NoisyField(field.functions, field.noise, field.is_elementwise, structures), operands

    @abc.abstractmethod
    def step(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, Y | None]:
        """Returns the state after a step and the estimate of its error."""
        step = self.step(field, t, h, y, None)
        return step.y1, step.error


class DriftImplicitEuler(_AbstractDriftImplicit):
    r"""The Euler-Maruyama method with an implicit drift, for stiff drifts: strong order 1/2, 1 with additive noise.

    $$y_1 = y + h f(t + h, y_1) + g(t, y) \, \Delta W$$

    The interpretation is Ito. Steps are as long as accuracy asks for, however fast the drift pulls back; what is faster
    than a step has less variance than it should, $1 / (1 + \lambda h / 2)$ of it. $y_1$ is solved for by Newton's
    iteration with the structure of the drift's Jacobian, as in `Radau5`. For a drift with a linear stiff part, as
    diffusion on a grid, `SemiImplicitEuler` and `StochasticETD1` cost less.

    Source:
        P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), (12.2.2).

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        stiff = sciml.Stochastic(lambda t, y, args: 1e4 * (jnp.cos(t) - y), lambda t, y, args: 1.0, noise="additive")
        sol = sciml.solve(
            stiff, 1.0, t0=0.0, t1=1.0, dt=0.02, key=jax.random.key(0), solver=sciml.solvers.DriftImplicitEuler()
        )
        assert abs(sol.ys[-1] - jnp.cos(1.0)) < 0.05
        ```
    """

    def step(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`: a step of the implicit method from the state reached by the noise."""
        noise = field.times(field.diffusion(t, y), field.increment(t, h).w)
        drift = BoundStructuredField(field, field.structures)
        step = _BackwardEuler().step(drift, jnp.asarray(t), jnp.asarray(h), plus(y, noise), None)
        return Step(step.y1, memory=memory, solvable=step.solvable)


class DriftImplicitMilstein(_AbstractDriftImplicit):
    r"""The Milstein method with an implicit drift, for stiff drifts: strong order 1, with an estimate of its error.

    $$y_1 = y + h f(t + h, y_1) + g \, \Delta W + \tfrac12 g' g \, (\Delta W^2 - h)$$

    For noise that is additive, scalar, or diagonal with elements that each depend only on their own element of the
    state. The interpretation is Ito. With `dt` steps are fixed; with `rtol` and `atol` they follow an estimate of the
    terms that a step neglects: the terms of order $h^{3/2}$ of the noise, from its space-time Levy area $H$, and the
    terms of order $h^2$ of the drift,

    $$(1 - h f')^{-1} \big[\tfrac{h}{2} (f_1 - f) + (h f' g - \Delta g) (\tfrac12 \Delta W - H)
    - \tfrac16 \Delta(g' g) (\Delta W^2 - 3 h)\big],$$

    where the factor in front bounds it for what is stiff: steps may be far longer than explicit ones, but the noise of
    a step, $g \sqrt{h / 12}$, has to be within the tolerance, even where the drift takes it back at once. $y_1$ is
    solved for by Newton's iteration with the structure of the drift's Jacobian, as in `Radau5`.

    Source:
        P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), (12.2.9);
        the terms that are left out: section 5.5.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        stiff = sciml.Stochastic(lambda t, y, args: 1e4 * (jnp.cos(t) - y), lambda t, y, args: 0.1 * y)
        sol = sciml.solve(
            stiff, 1.0, t0=0.0, t1=1.0, key=jax.random.key(0), rtol=1e-2, atol=1e-2,
            solver=sciml.solvers.DriftImplicitMilstein(),
        )
        assert abs(sol.ys[-1] - jnp.cos(1.0)) < 0.05 and sol.stats.accepted < 500
        ```
    """

    with_area: ClassVar[bool] = True
    traits = _AbstractDriftImplicit.traits._replace(error_order=1.5)

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return True

    def check(self, field: NoisyField) -> None:
        """Checks that the noise is additive, or acts on each element by itself."""
        if not field.noise.additive and (field.noise.kind == "general" or not field.is_elementwise()):
            raise ValueError(
                "`solver=DriftImplicitMilstein()` supports additive and scalar noise, and diagonal noise whose "
                "elements each depend only on their own element of the state. Use `DriftImplicitEuler()` with `dt` "
                "instead."
            )

    def step(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`: a step of the implicit method from the state reached by the noise."""
        w, area = field.increment(t, h)
        g = field.diffusion(t, y)
        noise = field.times(g, w)
        between = jax.tree.map(lambda w, area: w / 2 - area, w, area)
        moved, second = plus(y, noise), None
        if not field.noise.additive:
            second = self._own(field, t, y, g)
            square = jax.tree.map(lambda w: (w**2 - jnp.asarray(h, w.dtype)) / 2, w)
            moved = plus(moved, field.times(second, square))

        def noise_error(increment: Y) -> Y:
            change = plus(field.diffusion(t + h, plus(y, increment)), scaled(-1.0, g))
            error = scaled(-1.0, field.times(change, between))
            if second is None:
                return error
            there = plus(y, noise)
            changes = plus(self._own(field, t, there, field.diffusion(t, there)), scaled(-1.0, second))
            cubic = jax.tree.map(lambda w: (3 * jnp.asarray(h, w.dtype) - w**2) / 6, w)
            return plus(error, field.times(changes, cubic))

        drift = BoundStructuredField(field, field.structures)
        method = _BackwardEuler(noise_error, field.times(g, between))
        step = method.step(drift, jnp.asarray(t), jnp.asarray(h), moved, None)
        return Step(step.y1, step.error, memory=memory, solvable=step.solvable)

    def _own(self, field: BoundNoisyField, t: RealScalarLike, y: Y, g: PyTree) -> PyTree:
        """Returns the derivative of the diffusion along itself."""
        return jax.jvp(lambda y: field.diffusion(t, y), (y,), (g,))[1]
