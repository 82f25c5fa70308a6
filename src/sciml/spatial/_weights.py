"""Weights of finite differences and of extrapolation, exact to rounding in float64."""

import functools
from fractions import Fraction
from typing import NamedTuple

import numpy as np


@functools.cache
def difference(points: tuple[float, ...], derivative: int, at: float = 0.0) -> np.ndarray:
    """Returns the weights that give a derivative at a place of the polynomial through values at points.

    Args:
        points: The positions of the values, in units of the spacing.
        derivative: The order of the derivative; 0 interpolates.
        at: The position of the result.

    Source:
        B. Fornberg, Math. Comp. 51:699, 1988; here by the Lagrange polynomials in rational arithmetic.
    """
    return np.array([float(_derivative(basis, derivative, at)) for basis in _lagrange(points)])


def _lagrange(points: tuple[float, ...]) -> list[list[Fraction]]:
    """The coefficients of the Lagrange polynomials, lowest power first."""
    nodes = [Fraction(p) for p in points]
    found = []
    for j, node in enumerate(nodes):
        basis = [Fraction(1)]
        for k, other in enumerate(nodes):
            if k != j:
                basis = _times(basis, other, node - other)
        found.append(basis)
    return found


def _times(polynomial: list[Fraction], root: Fraction, scale: Fraction) -> list[Fraction]:
    """`polynomial * (x - root) / scale`."""
    shifted = [Fraction(0), *polynomial]
    return [(a - root * b) / scale for a, b in zip(shifted, [*polynomial, Fraction(0)])]


def _derivative(polynomial: list[Fraction], derivative: int, at: float) -> Fraction:
    for _ in range(derivative):
        polynomial = [k * c for k, c in enumerate(polynomial)][1:]
    return sum((c * Fraction(at) ** k for k, c in enumerate(polynomial)), Fraction(0))


@functools.cache
def central(order: int, derivative: int) -> np.ndarray:
    """Returns the central weights of an even order, for unit spacing."""
    radius = (order + derivative - 1) // 2
    return difference(tuple(range(-radius, radius + 1)), derivative)


@functools.cache
def midway(order: int, derivative: int) -> np.ndarray:
    """Returns the weights at the middle of an even number of points, for unit spacing."""
    half = order // 2
    return difference(tuple(k + 0.5 for k in range(-half, half)), derivative)


class Wall(NamedTuple):
    r"""The polynomials with given values at the first points inside of a wall.

    All of them are $p(d) = \sum_j u_j L_j(d) + \lambda \omega(d)$ with $\omega(d) = \prod_j (d - d_j)$ in the
    distance $d$ from the wall, in units of the spacing; the condition at the wall sets $\lambda$.

    Attributes:
        ghosts: $L_j$ at the ghost points, of shape `(width, points)`.
        omega: $\omega$ at the ghost points, of shape `(width,)`.
        value: $L_j(0)$.
        slope: $L_j'(0)$.
        omega_value: $\omega(0)$.
        omega_slope: $\omega'(0)$.
    """

    ghosts: np.ndarray
    omega: np.ndarray
    value: np.ndarray
    slope: np.ndarray
    omega_value: float
    omega_slope: float


@functools.cache
def wall(offset: float, points: int, width: int) -> Wall:
    """Returns the polynomials for unknowns that begin at a distance from the wall."""
    inside = tuple(offset + j for j in range(points))
    outside = [offset - 1 - k for k in range(width)]
    omega = [Fraction(1)]
    for node in inside:
        omega = _times(omega, Fraction(node), Fraction(1))
    return Wall(
        ghosts=np.array([difference(inside, 0, d) for d in outside]).reshape(width, points),
        omega=np.array([float(_derivative(omega, 0, d)) for d in outside]),
        value=difference(inside, 0, 0.0),
        slope=difference(inside, 1, 0.0),
        omega_value=float(_derivative(omega, 0, 0.0)),
        omega_slope=float(_derivative(omega, 1, 0.0)),
    )
