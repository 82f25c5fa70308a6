"""Stabilised explicit steps: the number of stages follows the stiffness of a diffusion."""

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._jax._loops import scan, while_loop
from ...._jax._vma import match
from ...._types import Args, RealScalarLike, Y
from ...control._stability import estimated_radius, of_real_interval, spectrum_of
from ...terms._split_field import Functions, close_split_field
from .._capabilities import Coordinates, Hooks, Limits, Traits
from .._cubic import cubic
from .._stepper import Step
from .._structured_solver import AbstractStructuredStepper


class Stage(NamedTuple):
    r"""The coefficients of one stage; see `Stabilised`."""

    mu: Array
    nu: Array
    slope: Array
    start: Array
    node: Array


class AbstractFamily(eqx.Module):
    """A family of recurrences, one for each number of stages."""

    @abc.abstractmethod
    def stages(self, stiffness: Array) -> Array:
        """Returns how many stages are stable for a step size times spectral radius."""

    @abc.abstractmethod
    def reach(self, stages: int) -> float:
        """Returns the step size times spectral radius for which a number of stages is stable."""

    @abc.abstractmethod
    def first(self, stages: Array) -> Array:
        """Returns the coefficient and node of the first of a number of stages."""

    @abc.abstractmethod
    def stage(self, number: Array, stages: Array) -> Stage:
        """Returns the coefficients of the stage of a number from 2."""


def radius_at(field: Any, t: RealScalarLike, y: Y) -> Array:
    """Returns the spectral radius, computed even if it is a number, which no loop carries within `jax.shard_map`."""
    radius = field["radius"](t, y)
    return jnp.where(jnp.isfinite(jnp.asarray(t)), radius, jnp.full_like(radius, jnp.nan))


class AbstractStabilised(AbstractStructuredStepper):
    r"""An explicit method with as many stages as the step needs to be stable, most of which are a recurrence.

    A step runs a loop of as many iterations. To differentiate it in reverse mode, it is run again as a loop over the
    largest number of iterations, of which the last ones do nothing.

    Attributes:
        radius: The spectral radius: a number, `radius(t, y, args)`, or None for the model's value, or an estimate.
    """

    traits: ClassVar[Traits] = Traits(fsal=True, dense=True)
    radius: eqx.AbstractVar[float | Callable | None]

    @property
    @abc.abstractmethod
    def reach(self) -> float:
        """The step size times spectral radius for which the largest number of stages is stable."""

    @property
    @abc.abstractmethod
    def longest_recurrence(self) -> int:
        """The largest number of stages of the recurrence."""

    @abc.abstractmethod
    def advanced(
        self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree, run: Callable[..., Any]
    ) -> Step:
        """Returns a step.

        Args:
            field: Vector field and spectral radius.
            t: The time.
            h: The length.
            y: The state.
            memory: Slope and spectral radius at the start.
            run: `run(iterate, carry, stages, like)` runs the recurrence from stage 2 on.
        """

    def functions(self, model: Callable, t: RealScalarLike, y: Y, args: Args) -> Functions:
        """Returns the vector field and its spectral radius."""
        return {
            "field": (lambda model, args, t, y: model(t, y, args), (t, y)),
            "radius": (self._radius, (t, y)),
        }

    @property
    def limits(self) -> Limits:
        """By the largest number of stages and the spectral radius."""
        return Limits(
            stability=lambda: of_real_interval(self.reach),
            says_spectrum=self.radius is not None,
            spectrum=self.spectrum,
            longest=self.longest,
        )

    @property
    def coordinates(self) -> Coordinates:
        """The coordinates of the state, with its spectral radius."""
        return super().coordinates._replace(close=self.close)

    @property
    def hooks(self) -> Hooks:
        """Steps in gradients."""
        return Hooks(step_for_vjp=self.step_for_vjp)

    def spectrum(self, model: Callable, t: Array, y: Y, args: Args) -> Array:
        """Returns the end of the spectrum, from the solver or the model."""
        if self.radius is None and not hasattr(model, "spectral_radius"):
            return spectrum_of(model, t, y, args)
        return -jnp.ravel(self._radius(model, args, t, y))

    def _radius(self, model, args, t, y):
        if isinstance(self.radius, float):
            found = self.radius
        elif self.radius is not None:
            found = self.radius(t, y, args)
        elif hasattr(model, "spectral_radius"):
            found = model.spectral_radius(t, y, args)
        else:
            found = estimated_radius(lambda y: model(t, y, args), y)
        return jax.lax.stop_gradient(jnp.asarray(found, jnp.asarray(t).dtype))

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns vector field and spectral radius with their operands."""
        del h
        return close_split_field(model, args, self.functions(model, t, y, args))

    def longest(self, memory: PyTree) -> Array:
        """Returns the longest step for which the largest number of stages is stable."""
        _, radius = memory
        return self.reach / jnp.maximum(radius, jnp.finfo(radius.dtype).tiny)

    def init(self, field: Any, t: RealScalarLike, y: Y) -> PyTree:
        """Returns slope and spectral radius at the start."""
        return field(t, y), radius_at(field, t, y)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns slopes of zero."""
        return (jax.tree.map(jnp.zeros_like, y),) * 2

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        step = self.advanced(field, t, h, y, memory, self._until)
        _, radius = step.memory
        # without a radius the next step has no length, and would be tried for ever
        known = jnp.isfinite(radius)
        return step._replace(y1=jax.tree.map(lambda x: jnp.where(known, x, jnp.full_like(x, jnp.nan)), step.y1))

    def step_for_vjp(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y) -> Step:
        """Repeats a step such that JAX can differentiate it in reverse mode."""
        return self.advanced(field, t, h, y, self.init(field, t, y), self._up_to_the_most)

    def _until(self, iterate, carry, stages, like):
        def body(carry):
            number, carry = carry
            return number + 1, iterate(number, carry)

        start = (match(jnp.full_like(stages, 2), (stages, like)), carry)
        return while_loop(lambda c: c[0] <= stages, body, start, like=(stages, like))[1]

    def _up_to_the_most(self, iterate, carry, stages, like):
        def one(carry, number):
            # under `jax.vmap` a conditional computes both branches
            return jax.lax.cond(number <= stages, lambda c: iterate(number, c), lambda c: c, carry), None

        def some(carry, numbers):
            run = lambda c: scan(jax.checkpoint(one, prevent_cse=False), c, numbers, like=(stages, like))[0]  # noqa: E731
            return jax.lax.cond(numbers[0] <= stages, run, lambda c: c, carry), None

        # the states of stages are kept in two levels, and a group of stages that a step does not need is left out
        size = math.isqrt(self.longest_recurrence)
        numbers = jnp.arange(2, 2 + size * math.ceil((self.longest_recurrence - 1) / size), dtype=stages.dtype)
        numbers = match(numbers.reshape(-1, size), (stages, like))
        return scan(jax.checkpoint(some, prevent_cse=False), match(carry, (stages, like)), numbers)[0]

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns the state at `t + theta * h` by the cubic polynomial of both ends' states and slopes."""
        return cubic(theta, h, y0, y1, *dense)


class Stabilised(AbstractStabilised):
    r"""An explicit method of order two with as many stages $s$ as the step needs to be stable.

    With $D_j$ what stage $j$ adds to the state and $F_0 = f(t, y)$,

    $$D_0 = 0, \qquad D_1 = h \tilde\mu_1 F_0, \qquad
      D_j = \mu_j D_{j-1} + \nu_j D_{j-2} + h \tilde\mu_j f(t + c_{j-1} h, y + D_{j-1}) + h \tilde\gamma_j F_0,$$

    $y_1 = y + D_s$. The coefficients come from Chebyshev or Legendre polynomials, so that the method is stable for
    eigenvalues on the negative real axis up to about $s^2/2$ over $h$. The error is estimated by
    $\frac45 (y - y_1) + \frac25 h (F_0 + F_1)$. In the published form $D_j + y$ is carried along, whose
    rounding the recurrence multiplies by $s^2$.

    Attributes:
        family: The coefficients.
        radius: The spectral radius: a number, `radius(t, y, args)`, or None for the model's value, or an estimate.
        most: The largest number of stages.
    """

    family: AbstractFamily
    radius: float | Callable | None = eqx.field(static=True)
    most: int = eqx.field(static=True)
    order: int = eqx.field(static=True, default=2)
    has_error: bool = eqx.field(static=True, default=True)
    evaluations: int = eqx.field(static=True, default=-1)
    traits: ClassVar[Traits] = AbstractStabilised.traits._replace(error_order=3)

    @property
    def reach(self) -> float:
        """The step size times spectral radius for which the largest number of stages is stable."""
        return self.family.reach(self.most)

    @property
    def longest_recurrence(self) -> int:
        """The largest number of stages."""
        return self.most

    def advanced(
        self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree, run: Callable[..., Any]
    ) -> Step:
        """Returns a step of as many stages as it needs."""
        t, h = jnp.asarray(t), jnp.asarray(h)
        memory, radius = memory
        stiffness = jax.lax.stop_gradient(jnp.abs(h) * radius)
        wanted = self.family.stages(stiffness)
        stages = jnp.clip(wanted, 2, self.most)

        def iterate(number, carry):
            last, before, node = carry
            # the number of stages has no derivative, and so neither have its coefficients
            c = jax.tree.map(jax.lax.stop_gradient, self.family.stage(number.astype(h.dtype), stages.astype(h.dtype)))
            point = jax.tree.map(jnp.add, y, last)
            slope = field(t + node * h, point)

            def advance(last, before, slope, start):
                mu, nu, a, b = (x.astype(last.dtype) for x in (c.mu, c.nu, h * c.slope, h * c.start))
                return mu * last + nu * before + (a * slope + b * start)

            return jax.tree.map(advance, last, before, slope, memory), last, c.node

        node = self.family.first(stages.astype(h.dtype))
        last = jax.tree.map(lambda k: (h * node).astype(k.dtype) * k, memory)
        carry = (last, jax.tree.map(jnp.zeros_like, last), node)
        rise, _, _ = run(iterate, carry, stages, (t, h, y, memory))
        # a step that the largest number of stages does not stabilise is rejected
        y1 = jax.tree.map(lambda y, d: jnp.where(wanted <= self.most, y + d, jnp.full_like(y, jnp.nan)), y, rise)
        slope = field(t + h, y1)
        error = jax.tree.map(lambda d, a, b: h.astype(d.dtype) * (a + b) * 0.4 - 0.8 * d, rise, memory, slope)
        return Step(y1, error, (memory, slope), (slope, radius_at(field, t + h, y1)))


def check_radius(radius: Any, name: str) -> None:
    """Checks the spectral radius given to a solver.

    Raises:
        ValueError: If it is not a nonnegative number, a function or None.
    """
    if not (radius is None or callable(radius) or (isinstance(radius, float) and 0 <= radius < math.inf)):
        raise ValueError(
            f"`{name}(spectral_radius=...)` must be a nonnegative number, a function (t, y, args), or None, but is "
            f"{radius!r}. Pass a traced value through `args` and a function."
        )
