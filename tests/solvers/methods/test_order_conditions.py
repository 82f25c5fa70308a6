"""The coefficients of methods, by the conditions for their order; no equation is solved."""

import diffrax
import numpy as np
import pytest

from sciml.solvers.methods.explicit._rock import rock_table
from sciml.solvers.methods.explicit._runge_kutta import from_diffrax
from tests import families
from tests.registry_solvers import METHODS

from .trees import accelerations, residuals, residuals_of_second_order, rooted

EXPLICIT = [m for m in METHODS if isinstance(m.solver, type) and issubclass(m.solver, diffrax.AbstractERK)]


def filled(rows):
    return np.array([[*row, *(0.0,) * (len(rows) - len(row))] for row in rows])


def test_the_numbers_of_trees():
    assert [len(rooted(n)) for n in range(1, 9)] == [1, 1, 2, 4, 9, 20, 48, 115]
    assert [len(accelerations(n)) for n in range(1, 9)] == [1, 1, 2, 3, 6, 10, 20, 36]


@pytest.mark.parametrize("method", EXPLICIT, ids=lambda method: method.name)
def test_explicit_methods(method):
    """The method has its order and no more; the solution that its error is estimated by has one less."""
    found = from_diffrax(method.solver())
    matrix = filled(found.rows)
    for order in range(1, method.order + 1):
        assert residuals(matrix, found.weights, order) < 60, order
    assert residuals(matrix, found.weights, method.order + 1) > 1e6
    if found.error_weights is not None and method.solver.__name__.startswith(("Vern", "SSP")):
        embedded = np.subtract(found.weights, found.error_weights)
        for order in range(1, method.order):
            assert residuals(matrix, embedded, order) < 60, order
        assert residuals(matrix, embedded, method.order) > 1e6


@pytest.mark.parametrize("solver, embedded", [(families.Nystrom4, 3), (families.Nystrom6, 4), (families.Nystrom8, 6)])
def test_methods_for_equations_of_second_order(solver, embedded):
    tableau = solver().stepper(None).tableau
    matrix = filled(tableau.rows)
    weights = np.array([matrix[-1], tableau.weights])
    check = lambda *weights, **o: residuals_of_second_order(tableau.nodes, matrix, *weights, **o)  # noqa: E731
    for order in range(1, tableau.order + 1):
        assert check(*weights, order=order) < 60, order
    assert check(*weights, order=tableau.order + 1) > 1e6
    lower = weights - np.array(tableau.errors)
    for order in range(1, embedded + 1):
        assert check(*lower, order=order) < 200, order
    assert check(*lower, order=embedded + 1) > 1e6
    if tableau.between is not None:
        for theta in (0.3, 0.8):  # a local error of the order: it does not add up over steps
            at = theta ** np.arange(len(tableau.between[0]))
            between = np.array(tableau.between) @ at * theta**2, np.array(tableau.between_velocities) @ at * theta
            for order in range(1, tableau.order):
                assert check(*between, order=order, theta=theta) < 200, (order, theta)


def written_out(table, place, order):
    """A method of the ROCK family: matrix, weights and weights of the error; the last stage is at the step's end."""
    degree, start = table.degrees[place], table.starts[place]
    recurrence, size = table.recurrence[start:], degree + order
    unit = np.eye(size + 1)
    matrix, sums = np.zeros((size + 1, size + 1)), [np.zeros(size + 1), recurrence[0] * unit[0]]
    for j in range(1, degree):
        matrix[j] = sums[-1]
        mu, kappa = recurrence[2 * j - 1], recurrence[2 * j]
        sums.append(mu * unit[j] + (1 + kappa) * sums[-1] - kappa * sums[-2])
    matrix[degree:] = sums[-1]
    matrix[degree:, degree:size] += table.rows[place, :, :order]
    errors = np.zeros(size + 1)
    errors[degree:] = table.errors[place]
    return matrix, matrix[size], errors


@pytest.mark.parametrize("order", [2, 4])
def test_the_tables_of_rock(order):
    """Order and stability of every method, by its coefficients."""
    table = rock_table(order)
    for place in (*range(0, len(table.degrees), 5), len(table.degrees) - 1):
        degree = table.degrees[place]
        matrix, weights, errors = written_out(table, place, order)
        for n in range(1, order + 1):
            assert residuals(matrix, weights, n) < 60
            assert n == order or residuals(matrix, weights - errors, n) < 200
        if place % 8 == 0:
            # 1 + z b (1 - z A)^-1 1, stage by stage
            z = -np.linspace(1e-3, 0.99, 400) * table.reach[place]
            stages = np.zeros((len(weights), z.size))
            for i, row in enumerate(matrix):
                stages[i] = 1 + z * (row[:i] @ stages[:i])
            growth = np.abs(1 + z * (weights @ stages))
            assert (
                growth.max() < 1 + 1e-8 and table.reach[place] > (0.23 if order == 4 else 0.68) * (degree + order) ** 2
            )
