"""From one level of a multigrid hierarchy to the next."""

import abc
from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ._couplings import AbstractCouplings, cut

Couplings = TypeVar("Couplings", bound=AbstractCouplings)


class AbstractTransfer(eqx.Module):
    """The interpolation along one axis from coarse cells to twice as many, and its transpose."""

    @abc.abstractmethod
    def prolong(self, u: Array) -> Array:
        """Returns a field of the coarse level on the fine one."""

    @abc.abstractmethod
    def restrict(self, r: Array) -> Array:
        """Returns the transpose of `prolong` applied to a residual of the fine level."""


class AbstractCoarsening(eqx.Module):
    """How a coarse level is made from a finer one: its operator, and the transfers between both."""

    @abc.abstractmethod
    def coarsen_axis(self, fine: AbstractCouplings, axis: int) -> tuple[AbstractCouplings, AbstractTransfer]:
        """Returns the operator on half as many unknowns along an axis, rounded up, and the interpolation from them.

        Args:
            fine: The operator of the finer level.
            axis: The axis.
        """

    def coarsen(
        self, fine: AbstractCouplings, axes: tuple[int, ...]
    ) -> tuple[AbstractCouplings, tuple[AbstractTransfer, ...]]:
        """Returns the operator of the next level, and the transfers along each of the axes in their order."""
        level, transfers = fine, []
        for axis in axes:
            level, transfer = self.coarsen_axis(level, axis)
            transfers.append(transfer)
        return level, tuple(transfers)


def prolong(u: Array, transfers: tuple[AbstractTransfer, ...]) -> Array:
    """Returns a field of the coarse level on the fine one."""
    for transfer in reversed(transfers):
        u = transfer.prolong(u)
    return u


def restrict(r: Array, transfers: tuple[AbstractTransfer, ...]) -> Array:
    """Returns the transpose of `prolong` applied to a residual."""
    for transfer in transfers:
        r = transfer.restrict(r)
    return r


def axes_to_coarsen(shape: tuple[int, ...], spacing: tuple[float, ...]) -> tuple[int, ...]:
    """Returns the axes along which the unknowns are close together, for there the coupling is strong."""
    able = [axis for axis, n in enumerate(shape) if n > 2]
    if not able:
        return ()
    finest = min(spacing[axis] for axis in able)
    return tuple(axis for axis in able if spacing[axis] < 1.5 * finest)


def split(x: Array, axis: int) -> tuple[Array, Array]:
    """Returns the even and the odd cells along an axis, with a zero for an odd one that is missing."""
    n = x.shape[axis]
    even = cut(x, axis, 0, n, 2)
    odd = cut(x, axis, 1, n, 2) if n > 1 else jnp.zeros_like(even)
    if n > 1 and n % 2:
        odd = jnp.concatenate([odd, jnp.zeros_like(cut(x, axis, 0, 1))], axis)
    return even, odd


def merge(even: Array, odd: Array, axis: int, n: int) -> Array:
    """Returns the first `n` cells whose even and odd ones are given."""
    shape = (*even.shape[:axis], 2 * even.shape[axis], *even.shape[axis + 1 :])
    return cut(jnp.stack([even, odd], axis + 1).reshape(shape), axis, 0, n)
