"""Order conditions of Runge-Kutta methods, one for each rooted tree, and of those for equations of second order.

A tree is the tuple of its root's subtrees, in the order of their text. Of an equation of second order, a root is an
acceleration, and its subtrees are the positions that it was computed from: None for a velocity, else the acceleration
by which that changes.
"""

import functools
import math

import numpy as np


@functools.cache
def rooted(order):
    """All trees of so many nodes."""
    return sorted({tuple(sorted(subtrees, key=repr)) for subtrees in _forests(order - 1, rooted, order - 1)}, key=repr)


@functools.cache
def accelerations(order):
    """All trees of equations of second order whose root is an acceleration, of so many nodes."""

    def positions(size):
        return [None] if size == 1 else accelerations(size - 1)

    return sorted({tuple(sorted(s, key=repr)) for s in _forests(order - 1, positions, order - 1)}, key=repr)


def _forests(size, kinds, largest):
    if size == 0:
        return [()]
    return [
        (first, *rest)
        for n in range(1, min(size, largest) + 1)
        for first in kinds(n)
        for rest in _forests(size - n, kinds, n)
    ]


def _size(tree):
    return 1 if tree is None else 1 + sum(map(_size, tree))


def _size_of_second_order(tree):
    return 1 + sum(1 if s is None else 1 + _size_of_second_order(s) for s in tree)


def residuals(matrix, weights, order):
    """By how much a method misses the conditions of an order, each in roundings of its terms; the largest."""
    matrix, weights = np.array(matrix, np.longdouble), np.array(weights, np.longdouble)

    @functools.cache
    def of(tree):
        values, sizes = np.ones_like(weights), np.ones_like(weights)
        for subtree in tree:
            value, size = of(subtree)
            values, sizes = values * (matrix @ value), sizes * (abs(matrix) @ size)
        return values, sizes

    def density(tree):
        return _size(tree) * math.prod(map(density, tree))

    return max(_miss(weights, *of(tree), density(tree)) for tree in rooted(order))


def residuals_of_second_order(nodes, matrix, positions, velocities, order, theta=1.0):
    """The same of a method for equations of second order, at a fraction of the step."""
    nodes, matrix, positions, velocities = (np.array(x, np.longdouble) for x in (nodes, matrix, positions, velocities))

    @functools.cache
    def of(tree):
        values, sizes = np.ones_like(nodes), np.ones_like(nodes)
        for subtree in tree:
            value, size = (nodes, nodes) if subtree is None else (matrix @ of(subtree)[0], abs(matrix) @ of(subtree)[1])
            values, sizes = values * value, sizes * size
        return values, sizes

    def density(tree):
        factors = (1 if s is None else (1 + _size_of_second_order(s)) * density(s) for s in tree)
        return _size_of_second_order(tree) * math.prod(factors)

    found = [_miss(velocities, *of(tree), density(tree) / theta**order) for tree in accelerations(order)]
    if order > 1:
        found += [_miss(positions, *of(t), density(t) * order / theta**order) for t in accelerations(order - 1)]
    return max(found)


def _miss(weights, values, sizes, density):
    wanted = 1 / np.longdouble(density)
    return float(abs(weights @ values - wanted) / (abs(weights) @ sizes + wanted) / np.finfo(float).eps)
