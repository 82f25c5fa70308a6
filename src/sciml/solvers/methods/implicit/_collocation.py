"""Implicit Runge-Kutta methods whose stages are collocation points of a polynomial and are solved together."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ...._choices import choices
from ...._types import Args, RealScalarLike, Y
from ...linear._choose import LinearChoice, structure_of
from ...linear._structure import AbstractStructure
from ...linear._structured_field import BoundStructuredField, StructuredField
from .._capabilities import Coordinates, Traits
from .._ravel import flattened, unflattened
from .._stepper import AbstractStepper, BoundField, Step
from ._known_root import MOST_NEWTON, known_root
from ._linear_options import unknowns_of
from ._newton import Ending, Frozen, by_rounding, newton


class Collocation(NamedTuple):
    r"""The matrix of a collocation method, and what block-diagonalises it: $A = S\, T\, S^{-1}$.

    A real eigenvalue has a block of one row, a complex pair one of two, so that nothing is complex.

    Attributes:
        nodes: The nodes $c_i$.
        matrix: $A$.
        ends: The $d = A^{-T} b$, the weights of the stages' increments in the increment of the step.
        blocks: The diagonal blocks of $T$.
        into: $S^{-1}$.
        back: $S$.
    """

    nodes: tuple[float, ...]
    matrix: np.ndarray
    ends: tuple[float, ...]
    blocks: tuple[np.ndarray, ...]
    into: np.ndarray
    back: np.ndarray


@functools.cache
def collocation(
    nodes: tuple[float, ...], rows: tuple[tuple[float, ...], ...], weights: tuple[float, ...]
) -> Collocation:
    """Returns the blocks of a method.

    Args:
        nodes: Its nodes.
        rows: Its matrix.
        weights: Its weights.
    """
    matrix = np.array(rows)
    values, vectors = np.linalg.eig(matrix)
    blocks, columns = [], []
    for value, vector in sorted(zip(values, vectors.T), key=lambda pair: abs(pair[0].imag)):
        if value.imag < 0:
            continue
        a, b = value.real, value.imag
        blocks.append(np.array([[a]]) if b == 0 else np.array([[a, b], [-b, a]]))
        columns += [vector.real] if b == 0 else [vector.real, vector.imag]
    back = np.stack(columns, axis=1)
    ends = np.linalg.solve(matrix.T, np.array(weights))
    if weights == rows[-1]:  # the last stage is the end
        ends = np.eye(len(nodes))[-1]
    return Collocation(nodes, matrix, tuple(ends.tolist()), tuple(blocks), np.linalg.inv(back), back)


class AbstractCollocation(AbstractStepper):
    r"""A method of $s$ stages at the points $t + c_i h$, for states of any structure.

    The increments $Z_i$ of the stages solve

    $$Z_i = h \sum_j a_{ij} f(t + c_j h,\; y + Z_j), \qquad y_1 = y + \sum_i d_i Z_i,$$

    by Newton's iteration with the Jacobian $J$ at the start of the step. Its matrix $1 - h A \otimes J$ falls into one
    block for each real eigenvalue of $A$ and one of twice the size for each complex pair, which are factorised once a
    step. The iteration continues until its corrections are below rounding, or no longer shrink, so that steps of Gauss
    are symmetric, and symplectic for any Hamiltonian, to rounding; other methods may end it before. If it does not
    converge, the step has no solution.

    Derivatives follow from the implicit function theorem, for any number of iterations.

    Attributes:
        method: The coefficients.
    """

    method: eqx.AbstractVar[Collocation]
    # element by element its iterations take three times as long to compile
    traits: ClassVar[Traits] = Traits(elementwise=False, costly="large")

    @property
    def coordinates(self) -> Coordinates:
        """The functions of the state, with the structures of its systems."""
        return super().coordinates._replace(close=self.close)

    @property
    def linear(self) -> LinearChoice:
        """How its linear systems are to be solved."""
        return LinearChoice()

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the model as a field with the structures of its systems, with its operands."""
        field, operands = super().coordinates.close(model, t, y, args, h)
        if self.linear.solver is None and sum(x.size for x in jax.tree.leaves(y)) <= choices().linear.small_at_most:
            return field, operands
        return StructuredField(field, self.structures(lambda t, y: model(t, y, args), t, y)), operands

    def structures(self, field: BoundField, t: RealScalarLike, y: Y) -> tuple[AbstractStructure, ...]:
        """Returns the structure of the system of each block."""
        if isinstance(field, BoundStructuredField):
            assert isinstance(field.structure, tuple)
            return field.structure
        x = flattened(y)

        def of(block: np.ndarray) -> AbstractStructure:
            def slope(x: Array) -> Array:
                parts = [flattened(field(t, unflattened(part, y))) for part in jnp.split(x, len(block))]
                return times_small(block, jnp.stack(parts)).reshape(-1)

            twice = jnp.concatenate([x] * len(block))
            return structure_of(slope, twice, None, self.linear, unknowns_of(y, len(block)))

        return tuple(map(of, self.method.blocks))

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        del memory
        method, t, h = self.method, jnp.asarray(t), jnp.asarray(h)
        x = flattened(y)
        length = h.astype(x.dtype)
        start = jnp.asarray(t, h.dtype)

        def slope_at(t: Array, x: Array) -> Array:
            return flattened(field(t, unflattened(x, y)))

        def residual(stages: Float[Array, "s n"]) -> Float[Array, "s n"]:
            times = start + jnp.asarray(method.nodes, h.dtype) * h
            return stages - length * times_small(method.matrix, jax.vmap(slope_at)(times, x[None] + stages))

        first, tangent = jax.linearize(lambda x: slope_at(start, x), x)
        structures = self.structures(field, t, y)
        factors, regular = [], []
        for block, structure in zip(method.blocks, structures):

            def along(v: Array, block: np.ndarray = block) -> Array:
                return times_small(block, jax.vmap(tangent)(v.reshape(len(block), -1))).reshape(-1)

            twice = jnp.concatenate([x] * len(block))
            matrix = jax.lax.stop_gradient(structure.assemble(along, twice, length))
            factors.append(structure.factorise(matrix))
            regular.append(~structure.is_singular(matrix, factors[-1]))

        systems = BlockSystems(method, structures)
        factors = jax.lax.stop_gradient(tuple(factors))
        nothing = jnp.zeros((len(method.nodes), *x.shape), x.dtype)
        start_of = jax.lax.stop_gradient((first, h))
        ending = self.ending(jax.lax.stop_gradient(x), *start_of, structures, factors)
        stages, converged, *_ = newton(Frozen.of(residual, nothing), nothing, systems.divide, factors, ending)
        stages = known_root(
            residual, stages, systems.divide, systems.divide_transposed, factors_at=lambda _: factors, exact=False
        )
        y1 = x + times_small(np.array([method.ends]), stages)[0]
        solvable = functools.reduce(jnp.logical_and, regular, converged)
        return self.finished(Made(field, t, h, y, x, y1, first, stages, solvable, structures, factors))

    def ending(
        self, x: Float[Array, " n"], slope: Float[Array, " n"], h: Array, structures: tuple, factors: tuple
    ) -> Ending:
        """Returns where the iteration of a step ends.

        Args:
            x: The state at its start.
            slope: The vector field there.
            h: Its length.
            structures: Of the systems of the blocks.
            factors: Their factors.
        """
        del slope, h, structures, factors
        return by_rounding(x, MOST_NEWTON)

    def finished(self, made: "Made") -> Step:
        """Returns the step from the solution."""
        return Step(unflattened(made.y1, made.y), solvable=made.solvable)


class Made(NamedTuple):
    """The computed values of a step; see `AbstractCollocation`.

    Attributes:
        field: The vector field.
        t: The time at its start.
        h: Its length.
        y: The state at its start.
        x: The same as one vector.
        y1: The vector at its end.
        slope: The vector field at the start.
        stages: The increments.
        solvable: Whether the iteration converged.
        structures: Of the systems of the blocks.
        factors: Their factors.
    """

    field: BoundField
    t: Array
    h: Array
    y: Y
    x: Array
    y1: Array
    slope: Array
    stages: Array
    solvable: Bool[Array, ""]
    structures: tuple[AbstractStructure, ...]
    factors: tuple[Any, ...]


class BlockSystems(NamedTuple):
    """The linear systems of an iteration."""

    method: Collocation
    structures: tuple[AbstractStructure, ...]

    def divide(self, factors: tuple, right: Float[Array, "s n"]) -> Float[Array, "s n"]:
        r"""Returns $(1 - h A \otimes J)^{-1}$ times something."""
        return self._through(self.method.into, self.method.back, factors, right, "substitute")

    def divide_transposed(self, factors: tuple, right: Float[Array, "s n"]) -> Float[Array, "s n"]:
        """Returns the transposed inverse times something."""
        return self._through(self.method.back.T, self.method.into.T, factors, right, "substitute_transposed")

    def _through(self, into: np.ndarray, back: np.ndarray, factors: tuple, right: Array, solve: str) -> Array:
        rows, solved, first = times_small(into, right), [], 0
        for block, structure, of in zip(self.method.blocks, self.structures, factors):
            mine = rows[first : first + len(block)]
            solved.append(getattr(structure, solve)(of, mine.reshape(-1)).reshape(mine.shape))
            first += len(block)
        return times_small(back, jnp.concatenate(solved))


def times_small(matrix: np.ndarray, rows: Float[Array, "s n"]) -> Float[Array, "m n"]:
    """The product with a small known matrix; by no product of matrices, whose precision depends on the device."""
    return jnp.sum(jnp.asarray(matrix, rows.dtype)[:, :, None] * rows[None], axis=1)
