"""Every structure of a matrix factorises it, solves with it and its transpose, and knows a singular one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from sciml._choices import choices
from sciml.solvers.linear._bands import BlockTridiagonal, WideBand
from sciml.solvers.linear._blocks import Blocks
from sciml.solvers.linear._choose import structure_of_pattern
from sciml.solvers.linear._colouring import colour
from sciml.solvers.linear._entries import DenseMatrix
from sciml.solvers.linear._structure import products, solve
from sciml.solvers.linear._written_out import WrittenOut

from ..common import close


def block_pattern(sizes, seed=0):
    """Blocks of these sizes whose unknowns are shuffled."""
    order = np.random.default_rng(seed).permutation(sum(sizes))
    dense = np.equal.outer(*(np.repeat(np.arange(len(sizes)), sizes),) * 2)
    return dense[np.ix_(order, order)]


def band_pattern(n, width, periodic=False, shuffled=False):
    distance = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    dense = (np.minimum(distance, n - distance) if periodic else distance) <= width
    order = np.random.default_rng(1).permutation(n) if shuffled else np.arange(n)
    return dense[np.ix_(order, order)]


def grid_pattern(rows, columns):
    """Every point with those around it, of a grid in two dimensions."""
    i, j = np.divmod(np.arange(rows * columns), columns)
    return np.abs(np.subtract.outer(i, i)) + np.abs(np.subtract.outer(j, j)) <= 1


# patterns, and the structure that is chosen for them
CASES = {
    "written out": (band_pattern(12, 1, periodic=True), WrittenOut),
    "blocks of few entries": (np.kron(np.eye(5, dtype=bool), band_pattern(6, 1, periodic=True)), Blocks),
    "three blocks": (block_pattern([3, 2, 3, 1, 3, 3, 3]), Blocks),
    "unknowns alone": (np.eye(40, dtype=bool), Blocks),
    "tridiagonal": (band_pattern(21, 1), BlockTridiagonal),
    "one of two blocks filled up": (band_pattern(33, 2), BlockTridiagonal),
    "wide": (band_pattern(64, 5), BlockTridiagonal),
    "periodic": (band_pattern(32, 1, periodic=True), BlockTridiagonal),
    "shuffled": (band_pattern(40, 2, shuffled=True), BlockTridiagonal),
    "long": (band_pattern(804, 1, periodic=True), BlockTridiagonal),
    "long, of large blocks": (band_pattern(1011, 5), BlockTridiagonal),
    "grid": (grid_pattern(15, 18), WideBand),
    "bordered": (band_pattern(30, 1) | (np.arange(30) == 0) | (np.arange(30) == 0)[:, None], DenseMatrix),
    "full": (np.ones((20, 20), bool), DenseMatrix),
}


def matrices(pattern, seed=2):
    """A Jacobian with the pattern such that 1 - 0.1 J is far from singular, and that matrix."""
    n = len(pattern)
    jacobian = np.where(pattern, np.random.default_rng(seed).standard_normal((n, n)), 0.0)
    jacobian -= np.diag(np.abs(jacobian).sum(1))
    return jacobian, np.eye(n) - 0.1 * jacobian


def chosen(pattern):
    n = len(pattern)
    if n <= choices().linear.sparse_at_most:
        return WrittenOut(np.eye(n), False, pattern)
    return structure_of_pattern(sp.csr_array(pattern), sp.eye_array(n, format="csr"), False)


@pytest.mark.x64
@pytest.mark.parametrize("case", CASES)
def test_solves_and_its_derivatives(case):
    pattern, kind = CASES[case]
    structure = chosen(pattern)
    assert isinstance(structure, kind)
    jacobian, dense = matrices(pattern)
    b = np.sin(1.0 + np.arange(len(pattern)))

    @jax.jit
    def run(jacobian, b):
        matrix = structure.assemble(lambda v: jnp.where(pattern, jacobian, 0.0) @ v, b, jnp.asarray(0.1))
        factors = structure.factorise(jax.lax.stop_gradient(matrix))
        return solve(structure, matrix, factors, b), structure.times(matrix, b), structure.is_singular(matrix, factors)

    x, product, is_singular = run(jacobian, b)
    close(x, np.linalg.solve(dense, b), rtol=1e-11)
    close(product, dense @ b, rtol=1e-11)
    assert not is_singular
    # the transposed solve and the product, by the gradients with respect to right-hand side and matrix
    weights = np.cos(np.arange(len(pattern)))
    by_jacobian, by_b = jax.jit(jax.grad(lambda j, b: weights @ run(j, b)[0], argnums=(0, 1)))(jacobian, b)
    back = np.linalg.solve(dense.T, weights)
    close(by_b, back, rtol=1e-11)
    close(by_jacobian, np.where(pattern, 0.1 * np.outer(back, np.linalg.solve(dense, b)), 0.0), rtol=1e-10)
    _, forward = jax.jvp(lambda b: run(jacobian, b)[0], (b,), (weights,))
    close(forward, np.linalg.solve(dense, weights), rtol=1e-11)


@pytest.mark.x64
@pytest.mark.parametrize("case", ["written out", "blocks of few entries", "tridiagonal", "long", "grid", "full"])
def test_members_of_a_batch(case):
    pattern, _ = CASES[case]
    structure = chosen(pattern)
    jacobian, _ = matrices(pattern)
    scales = jnp.array([0.01, 0.1, 1.0])
    b = jnp.asarray(np.sin(1.0 + np.arange(len(pattern))))

    def run(scale):
        matrix = structure.assemble(lambda v: jacobian @ v, b, scale)
        return solve(structure, matrix, structure.factorise(matrix), b)

    expected = np.stack([np.linalg.solve(np.eye(len(b)) - s * jacobian, b) for s in np.asarray(scales)])
    close(jax.jit(jax.vmap(run))(scales), expected, rtol=1e-11)


@pytest.mark.x64
@pytest.mark.parametrize("case", [c for c in CASES if c != "long, of large blocks"])
def test_a_singular_matrix_is_known(case):
    """Where the Jacobian is the identity, 1 - J has no inverse."""
    structure = chosen(CASES[case][0])

    @jax.jit
    def run(x):
        matrix = structure.assemble(lambda v: v, x, jnp.asarray(1.0))
        return structure.is_singular(matrix, structure.factorise(matrix))

    assert run(jnp.ones(structure.size))


@pytest.mark.x64
def test_a_mass_matrix_is_part_of_the_structure():
    """Unknowns that only the mass matrix couples are in one block."""
    n = 24
    mass = np.eye(n) + np.kron(np.eye(n // 2), np.array([[0, 0.5], [0.25, 0]]))
    structure = structure_of_pattern(sp.eye_array(n, format="csr", dtype=bool), sp.csr_array(mass), True)
    assert isinstance(structure, Blocks) and structure.members.shape == (2, n // 2)
    rates = -np.arange(1.0, n + 1)
    matrix = structure.assemble(lambda v: rates * v, jnp.ones(n), jnp.asarray(0.3))
    x = structure.substitute(structure.factorise(matrix), jnp.arange(1.0, n + 1))
    close(x, np.linalg.solve(mass - 0.3 * np.diag(rates), np.arange(1.0, n + 1)), rtol=1e-12)


@pytest.mark.x64
def test_small_matrices_exchange_rows_where_asked():
    matrix = [[jnp.asarray(v) for v in row] for row in ([0.0, 2.0], [3.0, 1.0])]
    structure = WrittenOut(np.zeros((2, 2)), pivot=True)
    close(structure.substitute(structure.factorise(matrix), jnp.array([2.0, 4.0])), jnp.ones(2), rtol=1e-14)


@pytest.mark.parametrize("case", ["written out", "blocks of few entries"])
def test_what_is_known_to_be_zero_takes_no_products(case):
    """Of a periodic tridiagonal matrix of n rows the factors have 5 n - 6 entries, n of them pivots."""
    structure = chosen(CASES[case][0])
    n = structure.size if case == "written out" else structure.members.shape[0]

    def run(jacobian, b):
        matrix = structure.assemble(lambda v: jacobian @ v, b, jnp.asarray(0.1, b.dtype))
        factors = structure.factorise(matrix)
        _, factors, b = structure.computed_once(matrix, factors, b)
        return factors, (structure.substitute(factors, b), structure.substitute_transposed(factors, b))

    given = jnp.zeros((structure.size, structure.size)), jnp.zeros(structure.size)
    factors, _ = jax.eval_shape(run, *given)
    assert len(jax.tree.leaves(factors)) == 5 * n - 6
    solves = jax.make_jaxpr(lambda f, b: (structure.substitute(f, b), structure.substitute_transposed(f, b)))
    products = [e for e in solves(jax.tree.map(lambda x: jnp.zeros(x.shape), factors), given[1]).eqns]
    assert sum(e.primitive.name == "mul" for e in products) == 2 * (5 * n - 6)


@pytest.mark.parametrize("case", CASES)
def test_no_row_has_two_entries_in_one_colour(case):
    pattern = CASES[case][0]
    colouring = colour(sp.csr_array(pattern), np.arange(len(pattern)))
    assert np.all(pattern.astype(int) @ colouring.directions.T <= 1)
    assert colouring.directions.sum() == len(pattern)


def test_a_band_takes_as_many_directions_as_a_row_has_entries():
    pattern = band_pattern(60, 2)
    assert len(colour(sp.csr_array(pattern), np.arange(60)).directions) == 5


def test_many_directions_are_taken_in_turn():
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(530, 530)))
    directions = np.eye(530)[:-7]  # their number has no divisors that would do
    linear = functools.partial(jnp.matmul, matrix, precision="highest")
    text = str(jax.make_jaxpr(lambda x: products(linear, x, directions))(matrix[0]))
    assert "scan" in text and "[530,523]" in text
    np.testing.assert_allclose(products(linear, matrix[0], directions), matrix[:, :-7], rtol=1e-12)
