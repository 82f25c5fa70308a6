"""Cycles: the orders in which the levels of a multigrid hierarchy are visited."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..._choices import choices
from ..._jax._loops import scan
from ._coarsening import AbstractCoarsening, AbstractTransfer, axes_to_coarsen, prolong, restrict
from ._couplings import AbstractCouplings
from ._smoothers import AbstractSmoother


class Level(eqx.Module):
    """One level and its transfers to the next.

    Attributes:
        operator: The operator.
        smoother: What the smoother prepared.
        transfers: The interpolation from the next level, for each axis along which it is coarser.
    """

    operator: AbstractCouplings
    smoother: Any
    transfers: tuple[AbstractTransfer, ...]


class Hierarchy(eqx.Module):
    """All levels, from the finest.

    Attributes:
        levels: All but the coarsest.
        coarsest: The coarsest operator.
        inverse: The inverse of its matrix; where the constants are its kernel, one that takes a right-hand side
            without a mean to a solution without one.
    """

    levels: tuple[Level, ...]
    coarsest: AbstractCouplings
    inverse: Array

    @property
    def finest(self) -> AbstractCouplings:
        """The finest operator."""
        return self.levels[0].operator if self.levels else self.coarsest


@eqx.filter_jit
def build(
    finest: AbstractCouplings,
    spacing: tuple[float, ...],
    coarsening: AbstractCoarsening,
    smoother: AbstractSmoother,
    singular: bool,
) -> Hierarchy:
    """Returns the hierarchy below an operator.

    Args:
        finest: The finest operator.
        spacing: The distance between its unknowns along each axis.
        coarsening: How the next level is made.
        smoother: The smoother of all levels.
        singular: Whether the constants are its kernel.
    """
    levels, operator, direct = [], finest, choices().elliptic.direct_at_most
    while _size(operator.shape) > direct and (axes := axes_to_coarsen(operator.shape, spacing)):
        coarse, transfers = coarsening.coarsen(operator, axes)
        levels.append(Level(operator, smoother.prepare(operator), transfers))
        spacing = tuple(2 * h if axis in axes else h for axis, h in enumerate(spacing))
        operator = coarse
    matrix = operator.matrix()
    if singular:
        # The constants get an eigenvalue of their own, which changes nothing for right-hand sides without a mean.
        matrix = matrix + jnp.max(jnp.abs(matrix)) / matrix.shape[0]
    return Hierarchy(tuple(levels), operator, jnp.linalg.inv(matrix))


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


class Cycle(eqx.Module):
    """One pass through the levels: an approximation to the inverse of the finest operator.

    Attributes:
        kind: `"V"`, `"W"` or `"F"`; see `Multigrid`.
        smoother: The smoother.
        pre: The sweeps on every level on the way down.
        post: The sweeps on every level on the way up.
    """

    kind: str = eqx.field(static=True)
    smoother: AbstractSmoother
    pre: int = eqx.field(static=True)
    post: int = eqx.field(static=True)

    def _below(self, levels: Sequence[Level], hierarchy: Hierarchy, f: Array) -> Array:
        """Returns the correction from the levels below one.

        Args:
            levels: These levels but the coarsest.
            hierarchy: The whole hierarchy.
            f: The right-hand side of the first of these levels.
        """
        if self.kind == "V" or not levels:  # the coarsest system is solved exactly: once is enough
            return self._descend(levels, hierarchy, f)
        if self.kind == "F":
            u = self._descend(levels, hierarchy, f)
            return Cycle("V", self.smoother, self.pre, self.post)._again(levels, hierarchy, f, u)

        def iterate(u: Array, _: None) -> tuple[Array, None]:
            return self._again(levels, hierarchy, f, u), None

        return scan(iterate, jnp.zeros_like(f), length=2, like=hierarchy)[0]  # a loop, so the program is no longer

    def _descend(self, levels: Sequence[Level], hierarchy: Hierarchy, f: Array) -> Array:
        """Returns an approximate solution on the first of some levels, from zero."""
        if not levels:
            return (hierarchy.inverse @ f.reshape(-1)).reshape(f.shape)
        level = levels[0]
        u = self.smoother.smooth(level.operator, level.smoother, jnp.zeros_like(f), f, self.pre, False)
        residual = restrict(f - level.operator(u), level.transfers)
        u = u + prolong(self._below(levels[1:], hierarchy, residual), level.transfers)
        # in the opposite order, the transpose of the sweeps on the way down: with as many, the cycle is symmetric
        return self.smoother.smooth(level.operator, level.smoother, u, f, self.post, True)

    def _again(self, levels: Sequence[Level], hierarchy: Hierarchy, f: Array, u: Array) -> Array:
        """Returns the field after one more cycle from these levels down."""
        return u + self._descend(levels, hierarchy, f - levels[0].operator(u))

    def __call__(self, hierarchy: Hierarchy, f: Array) -> Array:
        """Returns an approximate solution on the finest level."""
        return self._descend(hierarchy.levels, hierarchy, f)
