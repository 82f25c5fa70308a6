r"""The method of Radau of order five for $F(t, y, \dot y) = 0$.

With $\dot Y = (A^{-1} \otimes 1) Z / h$, the increments $Z_i$ of the stages solve

$$h \sum_j a_{ij} F(t + c_j h,\; y + Z_j,\; \dot Y_j) = 0,$$

whose matrix $1 \otimes M + h A \otimes K$, with $M = \partial F / \partial \dot y$ and $K = \partial F / \partial y$ at
the start of the step, falls into the same blocks as the matrix for $\dot y = f$. The last stage is the end of the step,
which so satisfies all equations. A component of index $k$ is scaled by $h^{k-1}$: of the rounding of the equations, the
system makes errors of the size of $h^{1-k}$, and its local errors have as many orders less.

Source:
    E. Hairer, G. Wanner, Solving Ordinary Differential Equations II (1996), sections IV.8 and VII.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ...._interfaces._dae import AbstractDAE
from ...._structure_words import first_difference, structure_words
from ...._types import Args, BoolScalarLike, RealScalarLike, Y
from ...control._criterion import Criterion
from ...control._pid import FirstStep, initial_step
from ...linear._choose import structure_of
from ...linear._structure import AbstractStructure
from ...terms._field import literals_as_arrays
from ...terms._split_field import close_split_field
from .._capabilities import Coordinates, Hooks, Traits
from .._ravel import flattened, unflattened
from .._stepper import AbstractStepper, Step, measured_by_state
from ._collocation import BlockSystems, times_small
from ._derivative_array import Consistent, consistent
from ._known_root import MOST_NEWTON, known_root
from ._linear_options import unknowns_of
from ._newton import Ending, Frozen, by_criterion, by_rounding, newton
from ._radau import ERRORS, Radau5

_LEAST_REFINEMENTS = 10
"""Refinements of a derivative that are made even if corrections grow: as many as a system of index three may take."""


class WrappedDAE(eqx.Module):
    """A differential-algebraic equation as the loops pass it on, where a model is a function."""

    model: AbstractDAE

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        """Raises an error: there is no vector field.

        Raises:
            TypeError: Always.
        """
        raise TypeError("A `sciml.DAE` gives no rate explicitly.")


class WithRate(NamedTuple):
    """A state with its rate, from which the iterations of the next step start.

    Attributes:
        y: The state.
        rate: Its rate, by the polynomial of the stages.
    """

    y: Y
    rate: Y


class RadauDAE(AbstractStepper):
    """The method of Radau for a differential-algebraic equation.

    Attributes:
        base: The method for its coefficients and options.
        index: The index of each real number of the state.
        criterion: The norm of the error of a step while it is taken; the loops set it.
    """

    base: Radau5
    index: tuple[int, ...] = eqx.field(static=True)
    criterion: Criterion | None = eqx.field(default=None, kw_only=True)
    order: ClassVar[int] = 5
    evaluations: ClassVar[int] = -1
    has_error: ClassVar[bool] = True
    traits: ClassVar[Traits] = Radau5.traits._replace(
        transforms_state=True,
        field_is_rate=False,
        evens_last_steps=True,  # the rounding of constraints reaches multipliers divided by powers of the length
    )

    @property
    def coordinates(self) -> Coordinates:
        """A state with its rate."""
        return Coordinates(
            self.close,
            self.starting_step,
            prepare=self.prepare,
            finish=lambda field, y: y.y,
            entered=self.entered,
            rate=self.rate,
        )

    @property
    def hooks(self) -> Hooks:
        """Tolerances determine when its iterations end."""
        return Hooks(judged=self.judged)

    def judged(self, criterion: Criterion) -> "RadauDAE":
        """Returns the method for one step under error control."""
        return dataclasses.replace(self, criterion=criterion)

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the equation as closed functions, with their operands.

        Raises:
            ValueError: If the residual has another structure, shape or dtype than the state.
        """
        del h
        assert isinstance(model, WrappedDAE)  # see `_solve`

        def residual(model, args, t, y, rate):
            return literals_as_arrays(model.model.residual(t, y, rate, args), y)

        def first_rate(model, args, t, y):
            return literals_as_arrays(model.model.first_rate(t, y, args), y)

        _check_like(y, jax.eval_shape(lambda y: residual(model, args, t, y, y), y), "residual")
        _check_like(y, jax.eval_shape(lambda y: first_rate(model, args, t, y), y), "first_rate")

        def values(model, args, t, y):
            return WithRate(residual(model, args, t, y.y, y.rate), y.rate)

        functions = {
            "residual": (residual, (t, y, y)),
            "first_rate": (first_rate, (t, y)),
            "field": (values, (t, WithRate(y, y))),  # by which events read where the equations jump
        }
        return close_split_field(model, args, functions)

    def prepare(self, field: Any, t: RealScalarLike, y: Y) -> tuple[WithRate, BoolScalarLike]:
        """Returns a consistent state near a guess, with its rate."""
        t = jnp.asarray(t)
        return self._consistent(field, t, y, field["first_rate"](t, y))

    def entered(self, field: Any, t: RealScalarLike, y: WithRate, state: Y) -> tuple[WithRate, BoolScalarLike]:
        """Returns a consistent state after an event."""
        return self._consistent(field, jnp.asarray(t), state, y.rate)

    def _consistent(self, field: Any, t: Array, y: Y, rate: Y) -> tuple[WithRate, BoolScalarLike]:
        found = consistent(_of_vectors(field["residual"], y), t, flattened(y), flattened(rate), max(self.index) - 1)
        return WithRate(unflattened(found.x, y), unflattened(found.rate, y)), found.found

    def rate(self, field: Any, t: RealScalarLike, y: WithRate) -> WithRate:
        """Returns the rate of a state; the rate itself is only a guess for the next step, and stays."""
        residual, vectors = _of_vectors(field["residual"], y.y), (flattened(y.y), flattened(y.rate))
        found = consistent(residual, jnp.asarray(t), *vectors, max(self.index), fixed=True)
        return WithRate(unflattened(found.rate, y.y), jax.tree.map(jnp.zeros_like, y.rate))

    def starting_step(self, field: Any, start: FirstStep) -> Array:
        """Returns the size of a first step, by the rate of the initial state."""
        y = start.y

        def slope(t: RealScalarLike, x: Y) -> Y:
            del t, x
            return y.rate

        return initial_step(slope, start._replace(y=y.y), self.order)

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: WithRate, memory: PyTree) -> Step:
        """Advances a state with its rate from `t` to `t + h`."""
        del memory
        method, t, h = self.base.method, jnp.asarray(t), jnp.asarray(h)
        equations, x, rate = _of_vectors(field["residual"], y.y), flattened(y.y), flattened(y.rate)
        length, start = h.astype(x.dtype), jnp.asarray(t, h.dtype)
        into = np.linalg.inv(method.matrix)
        # unknowns of the size of what the tolerances measure
        scale = jax.lax.stop_gradient(jnp.minimum(jnp.abs(length), 1) ** (jnp.asarray(self.index, x.dtype) - 1))

        def residual(scaled: Float[Array, "s n"]) -> Float[Array, "s n"]:
            stages = scaled / scale[None]
            times = start + jnp.asarray(method.nodes, h.dtype) * h
            values = jax.vmap(equations)(times, x[None] + stages, times_small(into, stages) / length)
            return length * times_small(method.matrix, values)

        here = jax.lax.stop_gradient((x, rate))
        first, tangent = jax.linearize(lambda x, rate: equations(start, x, rate), *here)
        structures = self._structures(equations, start, y.y, *here)
        factors, regular = [], []
        for block, structure in zip(method.blocks, structures):

            def along(v: Array, block: np.ndarray = block) -> Array:
                parts = v.reshape(len(block), -1) / scale[None]
                return jax.vmap(tangent)(length * times_small(block, parts), parts).reshape(-1)

            matrix = structure.assemble(along, jnp.concatenate([x] * len(block)), -jnp.ones_like(length))
            matrix = jax.lax.stop_gradient(matrix)
            factors.append(structure.factorise(matrix))
            regular.append(~structure.is_singular(matrix, factors[-1]))

        systems, factors = BlockSystems(method, structures), jax.lax.stop_gradient(tuple(factors))
        nodes = jnp.asarray(method.nodes, x.dtype)[:, None]
        guess = jax.lax.stop_gradient(nodes * (length * rate * scale)[None])
        ending = self._ending(y.y, x, rate, length, scale)
        found = newton(Frozen.of(residual, guess), guess, systems.divide, factors, ending)
        # equations have other scales than unknowns, so that corrections of the transposed system may grow at first
        solves = systems.divide, systems.divide_transposed
        scaled = known_root(residual, found.root, *solves, lambda _: factors, exact=False, least=_LEAST_REFINEMENTS)
        stages = scaled / scale[None]
        slopes = times_small(into, stages) / length
        # as of `Radau5`, with the mass matrix at the start
        left, right = jax.lax.stop_gradient((scaled, first))
        weighted = length * rate + sum(e * z for e, z in zip(ERRORS, left / scale[None]))
        gamma = float(method.blocks[0][0, 0])
        right = gamma * (tangent(jnp.zeros_like(x), jax.lax.stop_gradient(weighted)) - length * right)
        error = structures[0].substitute(factors[0], jax.lax.stop_gradient(right))

        def state(stage: int) -> WithRate:
            return WithRate(unflattened(x + stages[stage], y.y), unflattened(slopes[stage], y.y))

        y1 = state(2)
        inner = tuple(jax.tree.map(jnp.subtract, state(i), y) for i in range(2))
        step = Step(
            y1,
            unflattened(error, y.y),
            inner,
            solvable=functools.reduce(jnp.logical_and, regular),
            converged=found.converged,
        )
        return step._replace(measured=measured_by_state(step._replace(y1=y1.y), y.y))

    def _ending(self, y: Y, x: Array, rate: Array, length: Array, scale: Array) -> Ending:
        """Returns where the iteration of a step ends.

        What is left of a constraint reaches multipliers divided by the step's length or its square, and by them the
        derivatives of steps, which a gradient repeats: so constraints of index two and three hold to rounding.
        """
        if self.criterion is None or max(self.index) > 1:
            return by_rounding(x * scale, MOST_NEWTON)
        return by_criterion(self.criterion, y, unflattened(x + length * rate, y), MOST_NEWTON)

    def _structures(self, equations: Callable, t: Array, y: Y, x: Array, rate: Array) -> tuple[AbstractStructure, ...]:
        """Returns the structure of the system of each block."""

        def of(block: np.ndarray) -> AbstractStructure:
            def values(v: Array) -> Array:
                parts = [equations(t, x + part, rate + part) for part in jnp.split(v, len(block))]
                return times_small(block, jnp.stack(parts)).reshape(-1)

            nothing = jnp.zeros_like(jnp.concatenate([x] * len(block)))
            mass = np.zeros((nothing.size, nothing.size))
            return structure_of(values, nothing, mass, self.base.linear, unknowns_of(y, len(block)))

        return tuple(map(of, self.base.method.blocks))

    def interpolate(self, theta: RealScalarLike, h: RealScalarLike, y0: Y, y1: Y, dense: Any) -> Y:
        """Returns state and rate at `t + theta * h` by cubic polynomials."""
        return self.base.interpolate(theta, h, y0, y1, dense)

    def empty_dense(self, y: Y) -> PyTree:
        """Returns increments of zero."""
        return self.base.empty_dense(y)


def _of_vectors(function: Callable, y: Y) -> Callable[[Array, Array, Array], Array]:
    """Returns a residual as a function of vectors."""

    def residual(t: Array, x: Array, rate: Array) -> Array:
        return flattened(function(t, unflattened(x, y), unflattened(rate, y)))

    return residual


def _check_like(y: Y, found: PyTree, name: str) -> None:
    """Checks that a function of an equation returned the structure, shapes and dtypes of the state.

    Raises:
        ValueError: If not.
    """
    if jax.tree.structure(y) == jax.tree.structure(found):
        kinds = [[(jnp.shape(x), jnp.result_type(x).name) for x in jax.tree.leaves(tree)] for tree in (y, found)]
        if kinds[0] == kinds[1]:
            return
    raise ValueError(
        f"`{name}` must return the structure, shapes and dtypes of `y0`, {structure_words(y)}, but returned "
        f"{structure_words(found)}.{first_difference(y, found, arrays=True)}"
    )


def start_of(model: AbstractDAE, t: Array, y: Y, args: Args) -> Consistent:
    """Returns the consistent start of an equation."""

    def residual(t: Array, y: Y, rate: Y) -> Y:
        return literals_as_arrays(model.residual(t, y, rate, args), y)

    rate = literals_as_arrays(model.first_rate(t, y, args), y)
    return consistent(_of_vectors(residual, y), t, flattened(y), flattened(rate), model.indices.highest - 1)
