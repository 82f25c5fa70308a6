"""Methods for stiff equations with noise: an implicit or exponential linear part, or an implicit drift."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._checks import concrete
from ...._types import Args, BoolScalarLike, RealScalarLike, Y
from ...control._pid import FirstStep
from ...linear._structure import DerivativeAlong
from ...linear._structured_field import BoundStructuredField
from ...noise._closed_noise import (
    BoundNoisyField,
    ModelWithNoise,
    NoisyField,
    close_noise,
    is_elementwise,
    own_derivative,
    shape_of,
)
from ...terms._split_field import Functions, with_tables
from .._capabilities import Coordinates, Traits
from .._ravel import flattened, unflattened
from .._stepper import Step
from ..implicit._collocation import AbstractCollocation, Collocation, Made, collocation
from ..split._additive_rk import Additive, ImplicitExplicit
from ..split._etdrk import ETD1
from ..split._exponential_rk import Exponential
from ..split._modal import dtype_in, times
from ..split._phi_functions import phi
from ._abstract import AbstractStochasticStepper, plus, scaled


class AbstractStructuredNoiseStepper(AbstractStochasticStepper):
    """A method that runs in the modes of a drift, where it has them, with steps that are given."""

    traits = AbstractStochasticStepper.traits._replace(elementwise=False, batched_vjp=False, transforms_state=True)

    @property
    def coordinates(self) -> Coordinates:
        """The state, or its modes."""
        return super().coordinates._replace(prepare=self.prepare, finish=self.finish)

    def prepare(self, field: Any, t: RealScalarLike, y: Y) -> tuple[PyTree, BoolScalarLike | None]:
        """Returns the initial state, or its modes."""
        del t
        return (field["transform"](y) if "transform" in field else y), None

    def finish(self, field: Any, y: PyTree) -> Y:
        """Returns the state, transformed back from its modes."""
        return state_of(field, y)

    def starting_step(self, field: Any, start: FirstStep) -> Array:
        """Returns the length of the interval; steps are given."""
        del field
        return start.span


def close_structured_noise(
    model: Callable, t: Array, y: Y, args: Args, functions_of: Callable[..., Functions]
) -> tuple[NoisyField, list[Array]]:
    """Returns a model with noise as closed functions, including the functions of its drift, with their operands.

    For a Stratonovich model there is one more, `correction`: the drift correction to Ito.

    Args:
        model: The model with the path of its noise.
        t: A time, for its dtype.
        y: A state, for its structure, shapes and dtypes.
        args: The third argument of the model.
        functions_of: From the drift, a time, a state and args to the functions that a method without noise needs.

    Raises:
        TypeError: If the model has no noise, or its drift not the structure.
    """
    if not isinstance(model, ModelWithNoise):
        raise TypeError("A method for stochastic equations requires a model with noise, a `sciml.Stochastic`.")
    functions = {
        name: (_of_drift(function), inputs)
        for name, (function, inputs) in functions_of(model.model.without_noise, t, y, args).items()
    }
    shape = shape_of(model.model, t, y, args)
    if model.model.interpretation == "stratonovich" and not shape.additive:
        elementwise = is_elementwise(model.model, shape, t, y, args)

        def correction(model, args, t, y):
            return jax.tree.map(lambda x: 0.5 * x, own_derivative(model.model, shape, elementwise, t, y, args))

        functions["correction"] = (correction, (t, y))
    return close_noise(model, t, y, args, "ito", False, functions)


def rest_with_correction(field: BoundNoisyField, name: str, t: RealScalarLike, x: PyTree, y: Y) -> PyTree:
    """Returns the part of a drift that is not stiff, in the sense of Ito.

    Args:
        field: The functions.
        name: The name of that part.
        t: The time.
        x: The state in the variables of the method.
        y: The state.
    """
    rest = field[name](t, x)
    if "correction" not in field:
        return rest
    more = field["correction"](t, y)
    return plus(rest, field["transform"](more) if "transform" in field else more)


def state_of(field: BoundNoisyField, x: PyTree) -> Y:
    """Returns the state of one in the variables of the method."""
    return field["inverse"](x) if "inverse" in field else x


def noise_of(field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> PyTree:
    """Returns diffusion times increment over a step, in the variables of the method."""
    noise = field.times(field.diffusion(t, y), field.increment(t, h).w)
    return field["transform"](noise) if "transform" in field else noise


def _of_drift(function: Callable) -> Callable:
    """Returns a function of a model without noise as one of a model with noise."""

    def run(model, args, *inputs):
        return function(model.model.without_noise, args, *inputs)

    return run


# The Euler-Maruyama method with an implicit linear part.
#
# Source:
#     G. J. Lord, C. E. Powell, T. Shardlow, An Introduction to Computational Stochastic PDEs, Cambridge (2014), section
#     10.5.


_EULER = Additive(
    nodes=(0.0, 1.0), explicit=((), (1.0,)), implicit=((), (0.0,)), diagonal=(0.0, 1.0), weights=None, error=None,
    order=1, error_order=1,
)  # fmt: skip


class SemiImplicitEuler(AbstractStructuredNoiseStepper):
    r"""The Euler-Maruyama method with an implicit linear part, for diffusion with noise: strong order 1/2 or 1.

    For a drift $A y + N(t, y)$, an `sciml.AbstractSplit` such as `sciml.models.AllenCahn`, or an
    `sciml.AbstractSemilinear`,

    $$y_1 = y + h A ((1 - \theta) y + \theta y_1) + h N(t, y) + g(t, y) \, \Delta W,$$

    one solve a step by whatever is fastest for the model, and steps as long as $N$ and $g$ allow. In the sense of Ito;
    the order is 1 with additive noise. For a linear equation, a mode that decays at the rate $\lambda$ has at rest
    $1 / (1 + (\theta - \tfrac12) \lambda h)$ of its variance: all of it with $\theta = \tfrac12$, which does not damp
    what is faster than a step, but flips its sign. `StochasticETD1` is exact there, for drifts that have modes.

    Attributes:
        theta: $\theta$, from 1/2 to 1.

    Raises:
        ValueError: If it is not.

    Source:
        G. J. Lord, C. E. Powell, T. Shardlow, An Introduction to Computational Stochastic PDEs, Cambridge (2014),
        section 10.5.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        grid = sciml.spatial.Grid(64)
        phases = sciml.models.AllenCahn(grid, sciml.spatial.Neumann(), width=0.1)
        noisy = sciml.Stochastic(phases, lambda t, u, args: 0.05, noise=sciml.spatial.WhiteNoise(grid))
        sol = sciml.solve(
            noisy, jnp.ones(64), t0=0.0, t1=1.0, dt=0.02, key=jax.random.key(0),
            solver=sciml.solvers.SemiImplicitEuler(),
        )
        assert abs(sol.ys[-1].mean() - 1.0) < 0.2
        ```
    """

    theta: float = eqx.field(static=True, default=1.0)
    evaluations: ClassVar[int] = 1
    any_driver: ClassVar[bool] = True

    def __check_init__(self):
        number = concrete(self.theta) and isinstance(self.theta, int | float) and not isinstance(self.theta, bool)
        if not number or not 0.5 <= self.theta <= 1:
            raise ValueError(f"`theta` of `SemiImplicitEuler` must be a number from 0.5 to 1, but is {self.theta!r}.")

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the parts of the drift, the diffusion and increments as closed functions, with their operands."""
        del h
        return close_structured_noise(model, t, y, args, self._without_noise.functions)

    @property
    def _without_noise(self) -> ImplicitExplicit:
        return ImplicitExplicit(_EULER, "SemiImplicitEuler")

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y) -> tuple[Y, None]:
        """Returns the state after a step."""
        h, state = jnp.asarray(h), state_of(field, y)
        parts = [rest_with_correction(field, "explicit", t, y, state)]
        if self.theta < 1:
            parts.append(scaled(1 - self.theta, field["stiff"](y)))
        if "inverse" not in field:  # a constant in the linear part, such as what flows in at walls, is taken whole
            parts.append(scaled(self.theta, field["stiff"](jax.tree.map(jnp.zeros_like, y))))
        right = plus(y, scaled(h, plus(*parts)), noise_of(field, t, h, state))
        return field["solve"](self.theta * h, right), None


# The exponential Euler method for equations with noise: the linear part is exact, including its noise.
#
# Of a mode with $d\hat u = L \hat u \, dt + \hat g \, d\hat W$ a step adds $\int_0^h e^{(h - s) L} \hat g \, d\hat
# W_s$, which has the variance
#
# $$|\hat g|^2 \int_0^h |e^{s L}|^2 \, ds = |\hat g|^2 h \varphi_1(2 h \operatorname{Re} L).$$
#
# It is taken as $\sqrt{\varphi_1(2 h \operatorname{Re} L)} \, e^{i h \operatorname{Im} L / 2} \hat g \, \Delta \hat W$,
# which has this variance, and is near the integral on the same path: it differs from that in order $h^{3/2}$.
#
# Source:
#     G. J. Lord, J. Rougemont, A numerical scheme for stochastic PDEs with Gevrey regularity, IMA Journal of Numerical
#     Analysis 24 (2004) 587.
#     A. Jentzen, P. E. Kloeden, Overcoming the order barrier in the numerical approximation of stochastic partial
#     differential equations with additive space-time noise, Proceedings of the Royal Society A 465 (2009) 649.


class StochasticETD1(AbstractStructuredNoiseStepper):
    r"""The exponential Euler method for equations with noise, exact for linear equations with additive noise.

    For a drift $L \hat u + N(t, \hat u)$ with $L$ diagonal in some modes, an `sciml.AbstractSemilinear` such as
    `sciml.models.KuramotoSivashinsky`, or an `sciml.AbstractSplit` that has them, such as `sciml.models.Diffusion`
    between alike sides,

    $$\hat u_1 = e^{h L} \hat u + h \varphi_1(h L) N(t, \hat u) + \int_t^{t + h} e^{(t + h - s) L} \hat g \, d\hat W_s$$

    where the integral has, for each mode, its exact variance, with $g$ at the start of the step. So the law of a linear
    equation with white noise, or with noise that is independent in these modes like a `sciml.spatial.ColouredNoise` on
    a periodic grid, is exact at the ends of steps of any length. In the sense of Ito; strong order 1 with additive
    noise, else 1/2.

    Source:
        G. J. Lord, J. Rougemont, IMA Journal of Numerical Analysis 24 (2004) 587; A. Jentzen, P. E. Kloeden,
        Proceedings of the Royal Society A 465 (2009) 649.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        grid = sciml.spatial.Grid(64)
        heat = sciml.models.Diffusion(grid, sciml.spatial.Periodic(), 0.1)
        noisy = sciml.Stochastic(heat, lambda t, u, args: 0.1, noise=sciml.spatial.WhiteNoise(grid))
        sol = sciml.solve(
            noisy, jnp.zeros(64), t0=0.0, t1=1.0, dt=0.25, key=jax.random.key(0), solver=sciml.solvers.StochasticETD1()
        )  # an explicit method has to take steps of 1e-3
        assert sol.ys.shape == (1, 64)
        ```
    """

    evaluations: ClassVar[int] = 1

    @property
    def _without_noise(self) -> Exponential:
        return Exponential(ETD1, "StochasticETD1")

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the model's functions, and where all steps are alike their coefficients as tables."""
        field, operands = close_structured_noise(model, t, y, args, self._without_noise.functions)
        if h is None:
            return field, operands
        bound = field.bind(operands)
        modes = jax.eval_shape(bound["transform"], y)
        functions, operands = with_tables(field.functions, operands, _tables(bound, h, modes, wide=True))
        return NoisyField(functions, field.noise, field.is_elementwise), operands

    def advance(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: PyTree) -> tuple[PyTree, None]:
        """Returns the modes after a step."""
        tables = _tables(field, h, y) if field.tables is None else field.tables
        state = state_of(field, y)
        rest, noise = rest_with_correction(field, "rest", t, y, state), noise_of(field, t, h, state)
        leaves, structure = jax.tree.flatten(y)
        rest, noise = (structure.flatten_up_to(x) for x in (rest, noise))
        moved = [
            times(table["decay"], u) + times(table["rest"], n) + times(table["noise"], w)
            for table, u, n, w in zip(tables, leaves, rest, noise)
        ]
        return jax.tree.unflatten(structure, moved), None


def _tables(field: Any, h: RealScalarLike, modes: PyTree, wide: bool = False) -> list[dict[str, Array]]:
    """Returns for each leaf of the modes the factors of a step for them, the rest and the noise."""

    def of(linear: Array, mode: Any) -> dict[str, Array]:
        narrow = dtype_in(linear, mode)
        # computed once, they may have all the precision there is
        dtype = np.promote_types(linear.dtype, jnp.zeros(()).dtype) if wide else narrow
        length = jnp.asarray(h, jnp.finfo(dtype).dtype)
        z = length.astype(dtype) * linear.astype(dtype)
        decay, first = phi(z, 1)
        size = jnp.sqrt(phi(2 * jnp.real(z), 1)[1])
        noise = size
        if jnp.iscomplexobj(z):
            half = jnp.imag(z) / 2
            noise = jax.lax.complex(size * jnp.cos(half), size * jnp.sin(half))
        found = {"decay": decay, "rest": length.astype(dtype) * first, "noise": noise}
        return {name: x.astype(narrow) for name, x in found.items()}

    leaves, structure = jax.tree.flatten(field["linear"]())
    return [of(*pair) for pair in zip(leaves, structure.flatten_up_to(modes))]


# The methods of Euler and Maruyama and of Milstein with an implicit drift.
#
# Source:
#     P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), section 12.2.


class _BackwardEuler(AbstractCollocation):
    """The implicit Euler method, optionally with an estimate of the error of a step that noise has led into.

    Attributes:
        noise_error: The known error of the noise, from the step's increment, in addition to the error of the drift;
            None for no estimate.
        between: Half of the difference between the noise of the first and the second half of the step.
        newton: Whether Newton's iteration solves for the end; otherwise its first correction is the step.
    """

    noise_error: Callable[[Y], Y] | None = None
    between: Y = None
    newton: bool = True
    order: ClassVar[int] = 1
    evaluations: ClassVar[int] = -1
    has_error: ClassVar[bool] = False
    method: ClassVar[Collocation] = collocation((1.0,), ((1.0,),), (1.0,))

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        if self.newton:
            return super().step(field, t, h, y, memory)
        t, h, x = jnp.asarray(t), jnp.asarray(h), flattened(y)

        def slope_at(x: Array) -> Array:
            return flattened(field(t + h, unflattened(x, y)))

        slope, tangent = jax.linearize(slope_at, x)
        (structure,), length = self.structures(field, t, y), h.astype(x.dtype)
        matrix = structure.assemble(DerivativeAlong(tangent, slope_at), x, length)
        # derivatives are those of `solve`, which uses the factors again
        factors = structure.factorise(jax.lax.stop_gradient(matrix))
        matrix, factors, slope = structure.computed_once(matrix, factors, slope)
        change = structure.solve(matrix, factors, length * slope)
        solvable, first = ~structure.is_singular(matrix, factors), flattened(field(t, y))
        made = Made(field, t, h, y, x, x + change, first, change[None], solvable, (structure,), (factors,))
        return self.finished(made)

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
    newton: eqx.AbstractVar[bool]

    @property
    def traits(self) -> Traits:
        """As of other methods that solve systems, and of those that iterate if it does."""
        return AbstractStochasticStepper.traits._replace(
            elementwise=not self.newton, batched_vjp=False, costly="large", error_order=1.5
        )

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

    Attributes:
        newton: False for linearly implicit steps; see `DriftImplicitMilstein`.

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

    newton: bool = eqx.field(static=True, default=True)
    any_driver: ClassVar[bool] = True

    def step(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`: a step of the implicit method from the state reached by the noise."""
        noise = field.times(field.diffusion(t, y), field.increment(t, h).w)
        drift = BoundStructuredField(field, field.structures)
        step = _BackwardEuler(newton=self.newton).step(drift, jnp.asarray(t), jnp.asarray(h), plus(y, noise), None)
        return Step(step.y1, memory=memory, solvable=step.solvable)


class DriftImplicitMilstein(_AbstractDriftImplicit):
    r"""The Milstein method with an implicit drift, for stiff drifts: strong order 1, with an estimate of its error.

    $$y_1 = y + h f(t + h, y_1) + g \, \Delta W + \tfrac12 g' g \, (\Delta W^2 - h)$$

    The interpretation is Ito. For noise that does not commute, the last term is
    $\sum_{rj} (\partial_y g_j) g_r \int W_r \, dW_j$ with the Levy areas of the path. With `dt` steps are fixed; with
    `rtol` and `atol` they follow an estimate of the terms that a step neglects: the terms of order $h^{3/2}$ of the
    noise, from its space-time Levy area $H$, and the terms of order $h^2$ of the drift,

    $$(1 - h f')^{-1} \big[\tfrac{h}{2} (f_1 - f) + (h f' g - \Delta g) (\tfrac12 \Delta W - H)
    - \tfrac16 \Delta(g' g) (\Delta W^2 - 3 h)\big],$$

    where the factor in front bounds it for stiff components: steps may be far longer than explicit ones, but the noise
    of a step, $g \sqrt{h / 12}$, must be within the tolerance, even if the drift takes it back at once. For noise that
    does not commute, $H$ is left out, and a third of the change of the last term estimates its error. $y_1$ is solved
    for by Newton's iteration with the structure of the drift's Jacobian, as in `Radau5`.

    With `newton=False` steps are linearly implicit, a Rosenbrock method: from the state $y_\star$ reached by the noise,

    $$y_1 = y_\star + h \, (1 - h f'(t + h, y_\star))^{-1} f(t + h, y_\star).$$

    The order, the estimate and the stability for linear drifts are the same; a step solves one linear system.

    Attributes:
        newton: Whether Newton's iteration solves for the end of a step. False is 2x faster for drifts that are not
            linear.

    Source:
        P. E. Kloeden, E. Platen, Numerical Solution of Stochastic Differential Equations, Springer (1992), (12.2.9);
        the terms that are left out: section 5.5. Linearly implicit steps: G. N. Milstein, M. V. Tretyakov, Stochastic
        Numerics for Mathematical Physics, Springer (2004), section 1.3.

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

    newton: bool = eqx.field(static=True, default=True)
    with_area: ClassVar[bool] = True
    with_levy: ClassVar[bool] = True

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return True

    def step(self, field: BoundNoisyField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`: a step of the implicit method from the state reached by the noise."""
        increment = field.increment(t, h)
        w, area, levy = increment
        g = field.diffusion(t, y)
        noise = field.times(g, w)
        between = jax.tree.map(lambda w: w / 2, w) if area is None else jax.tree.map(lambda w, a: w / 2 - a, w, area)
        moved, own = plus(y, noise), []
        integrals = [jax.tree.map(lambda w: (w**2 - jnp.asarray(h, w.dtype)) / 2, w)]
        if levy is not None:
            integrals = field.noise.integrals(increment, h)
        if not field.noise.additive:
            own = self._own(field, t, y, g, levy is not None)
            moved = plus(moved, *map(field.times, own, integrals))

        def noise_error(increment: Y) -> Y:
            change = plus(field.diffusion(t + h, plus(y, increment)), scaled(-1.0, g))
            error = scaled(-1.0, field.times(change, between))
            if not own:
                return error
            there = plus(y, noise)
            moved = self._own(field, t, there, field.diffusion(t, there), levy is not None)
            thirds = [scaled(-1 / 3, x) for x in integrals]
            if levy is None:
                thirds = [jax.tree.map(lambda w: (3 * jnp.asarray(h, w.dtype) - w**2) / 6, w)]
            changes = [plus(a, scaled(-1.0, b)) for a, b in zip(moved, own)]
            return plus(error, *map(field.times, changes, thirds))

        drift = BoundStructuredField(field, field.structures)
        method = _BackwardEuler(noise_error, field.times(g, between), self.newton)
        step = method.step(drift, jnp.asarray(t), jnp.asarray(h), moved, None)
        return Step(step.y1, step.error, memory=memory, solvable=step.solvable)

    def _own(self, field: BoundNoisyField, t: RealScalarLike, y: Y, g: PyTree, each: bool) -> list[PyTree]:
        """Returns the derivative of the diffusion along itself, or along the part of each Brownian motion."""
        along = [field.noise.column(g, r) for r in range(field.noise.count)] if each else [g]
        return [jax.jvp(lambda y: field.diffusion(t, y), (y,), (x,))[1] for x in along]
