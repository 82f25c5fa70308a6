"""Preconditioners for iterative linear solvers: matrices near the Jacobian's that are easy to solve."""

import abc
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._checks import check_function
from ..._choices import choices
from ..._types import Y
from ._blocks import Blocks
from ._colouring import Colouring, colour
from ._incomplete_lu import IncompleteLU, groups_of
from ._sparse import SparseArray, sp
from ._structure import AbstractStructure


class Unknowns(NamedTuple):
    """The meaning of the unknowns of a system in the state.

    Attributes:
        points: The number of the point of each; see `points_of`.
        of_vectors: Makes of a function of a number and a state, which returns a state, one of a number and a vector.
    """

    points: np.ndarray
    of_vectors: Callable[[Callable], Callable]


class AbstractPreconditioner(eqx.Module):
    """A matrix near $M - s J$ that is easy to solve with, created again in each step.

    Attributes:
        reads_pattern: Whether it needs the possible entries of the Jacobian.
    """

    reads_pattern: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def near(self, pattern: SparseArray, mass: SparseArray, unknowns: Unknowns) -> AbstractStructure:
        """Returns the structure of such matrices.

        Args:
            pattern: The possible entries of the Jacobian.
            mass: $M$.
            unknowns: The meaning of the unknowns in the state.

        Raises:
            ValueError: If there is none.
        """


class BlockJacobi(AbstractPreconditioner):
    """The blocks on the diagonal: the processes at each point, without exchange between points.

    For reactions that are far stiffer than the transport between their cells. The unknowns of a block are read from the
    state: elements at the same place of all leaves if these have one shape, or elements along the shortest axis of an
    array, if that has no more than eight; in a vector each unknown is its own block. Its blocks are eliminated at once.

    Attributes:
        blocks: The number of the block of each unknown, in the order of the leaves of the state, or None to read it
            from the state.

    Raises:
        ValueError: If `blocks` does not fit the state, or has blocks of more than eight unknowns.

    Example:
        ```python
        import jax.numpy as jnp
        import lineax
        import sciml

        def model(t, y, args):  # two species in 64 cells
            u, v = y
            spread = jnp.roll(y, 1, axis=1) - 2 * y + jnp.roll(y, -1, axis=1)
            return spread + 1e3 * jnp.stack([v - u, u - v])

        solver = sciml.solvers.Rodas5P(
            linear_solver=lineax.GMRES(rtol=1e-3, atol=1e-6), preconditioner=sciml.solvers.BlockJacobi()
        )
        y0 = jnp.stack([jnp.linspace(0.0, 1.0, 64), jnp.ones(64)])
        sol = sciml.solve(model, y0, t0=0.0, t1=1.0, rtol=1e-4, atol=1e-6, solver=solver)
        assert abs(sol.ys[-1, 0] - sol.ys[-1, 1]).max() < 1e-3
        ```
    """

    blocks: tuple[int, ...] | None = eqx.field(
        default=None,
        static=True,
        converter=lambda x: x if x is None else tuple(int(i) for i in np.ravel(np.asarray(x))),
    )
    reads_pattern: ClassVar[bool] = True

    def near(self, pattern: SparseArray, mass: SparseArray, unknowns: Unknowns) -> AbstractStructure:
        """Returns the blocks."""
        n, labels = pattern.shape[0], unknowns.points
        if self.blocks is not None:
            if len(self.blocks) == 0 or n % len(self.blocks):
                raise ValueError(
                    f"`BlockJacobi(blocks=...)` must have a number for each of the {n} unknowns, but has "
                    f"{len(self.blocks)}."
                )
            labels = np.tile(np.asarray(self.blocks), n // len(self.blocks))
        labels = np.unique(labels, return_inverse=True)[1].reshape(-1)
        largest, most = np.bincount(labels).max(), choices().linear.small_at_most
        if largest > 2 * most:
            raise ValueError(f"`BlockJacobi` has blocks of up to {most} unknowns, but one has {largest}.")
        colouring = colour(pattern, np.arange(n))
        own = _within(pattern, labels)
        pivot = bool((mass != sp.eye_array(n, format="csr")).nnz)
        return Blocks(labels, Colouring(own, colouring.colours, colouring.directions), _within(mass, labels), pivot)


class ILU0(AbstractPreconditioner):
    """The incomplete factorisation without fill-in, of a Jacobian that is computed by its colours.

    For anything sparse: diffusion, transport and reactions on grids and networks. One product with it takes as many
    steps as there are colours, two or three on a grid.

    Raises:
        ValueError: If more than 40 unknowns are all linked with one another.

    Example:
        ```python
        import jax.numpy as jnp
        import lineax
        import sciml

        def heat(t, u, args):
            wide = jnp.pad(u, 1)
            around = wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2]
            return 400.0 * (around - 4 * u)

        solver = sciml.solvers.Rodas5P(
            linear_solver=lineax.GMRES(rtol=1e-3, atol=1e-6), preconditioner=sciml.solvers.ILU0()
        )
        sol = sciml.solve(heat, jnp.ones((20, 20)), t0=0.0, t1=1.0, rtol=1e-4, atol=1e-6, solver=solver)
        assert sol.stats.accepted < 100
        ```
    """

    reads_pattern: ClassVar[bool] = True

    def near(self, pattern: SparseArray, mass: SparseArray, unknowns: Unknowns) -> AbstractStructure:
        """Returns the factorisation."""
        del unknowns
        groups, most = groups_of(pattern, mass), choices().linear.colours_at_most
        if (count := int(groups.max()) + 1) > most:
            raise ValueError(
                f"`preconditioner=ILU0()` would have to eliminate {count} groups of coupled unknowns one after "
                f"another, more than the limit {most}. Use `BlockJacobi()`, or leave out `linear_solver` for a dense "
                "matrix."
            )
        return IncompleteLU(colour(pattern, np.arange(pattern.shape[0])), mass, groups)


class ShiftedInverse(AbstractPreconditioner):
    r"""A custom function that approximately solves $(M - s J)\, x = b$, for example by transforms or multigrid.

    On grids it only solves the stiff part: the models of fields provide it as `solve_shifted`. It need not be exact,
    nor depend on time and state, but should be linear, and symmetric for gradients, which also use it for the
    transposed system.

    Attributes:
        solve: `solve(s, b) -> x`, with `b` and `x` like the state. It is a constant of the program: derivatives do not
            include the values that it reads.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import lineax
        import sciml

        grid = sciml.spatial.Grid((32, 32), 0.0, 1.0)
        model = sciml.models.GrayScott(grid, sciml.spatial.Periodic())
        spots = sciml.spatial.random_spots(grid, 4, radius=0.1, key=jax.random.key(0))
        y0 = jnp.stack([1.0 - 0.5 * spots, 0.25 * spots])
        solver = sciml.solvers.Rodas5P(
            linear_solver=lineax.GMRES(rtol=1e-3, atol=1e-6),
            preconditioner=sciml.solvers.ShiftedInverse(lambda s, b: model.solve_shifted(s, b, None)),
        )
        sol = sciml.solve(model, y0, t0=0.0, t1=20.0, rtol=1e-3, atol=1e-5, solver=solver)
        assert sol.stats.accepted < 60
        ```
    """

    solve: Callable = eqx.field(static=True)
    reads_pattern: ClassVar[bool] = False

    def __check_init__(self):
        check_function(self.solve, "ShiftedInverse(solve=...)", "the shift and a right-hand side like the state")

    def near(self, pattern: SparseArray, mass: SparseArray, unknowns: Unknowns) -> AbstractStructure:
        """Returns the function as a structure."""
        del pattern
        return _ByFunction(unknowns.of_vectors(self.solve), mass.shape[0])


class _ByFunction(AbstractStructure):
    """A matrix that is known by a function that solves with it."""

    def __init__(self, function: Callable, size: int):
        self._function, self.size = function, size

    def assemble(self, along: Callable[[Array], Array], x: Float[Array, " n"], scale: Array) -> Array:
        """Returns the shift."""
        del along, x
        return scale

    def factorise(self, matrix: Array) -> Array:
        """Returns the same."""
        return matrix

    def times(self, matrix: Array, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Refuses: nothing multiplies with it."""
        raise NotImplementedError

    def substitute(self, factors: Array, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves a system."""
        return self._function(factors, b)

    def substitute_transposed(self, factors: Array, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Solves the same system, which is taken to be symmetric."""
        return self.substitute(factors, b)

    def is_singular(self, matrix: Array, factors: Array) -> Bool[Array, ""]:
        """Whether it is not finite."""
        return ~jnp.isfinite(factors) & jnp.isfinite(matrix)

    @property
    def words(self) -> str:
        """A description for people."""
        return "a function"


def points_of(y: Y) -> np.ndarray:
    """Returns at which point each number of a state is; see `BlockJacobi`."""
    leaves = jax.tree.leaves(y)
    shapes = {x.shape for x in leaves}
    if len(shapes) == 1 and len(leaves) > 1 and len(leaves) <= choices().linear.small_at_most:
        places = [np.arange(x.size) for x in leaves]
    else:
        places, start = [], 0
        for x in leaves:
            mine = _points_of_array(x.shape)
            places.append(start + mine)
            start += int(mine.max(initial=-1)) + 1
    # of a complex element the imaginary part stands next to the real one
    return np.concatenate([np.repeat(p, 2 if jnp.iscomplexobj(x) else 1) for p, x in zip(places, leaves)])


def _points_of_array(shape: Sequence[int]) -> np.ndarray:
    size = int(np.prod(shape))
    if len(shape) < 2 or not 1 < min(shape) <= choices().linear.small_at_most or min(shape) == max(shape):
        return np.arange(size)
    axis = int(np.argmin(shape))
    rest = [n for i, n in enumerate(shape) if i != axis]
    numbers = np.expand_dims(np.arange(size // shape[axis]).reshape(rest), axis)
    return np.broadcast_to(numbers, shape).reshape(-1)


def _within(matrix: SparseArray, labels: np.ndarray) -> SparseArray:
    """Only the entries within blocks."""
    entries = matrix.tocoo()
    inside = labels[entries.row] == labels[entries.col]
    return sp.csr_array((entries.data[inside], (entries.row[inside], entries.col[inside])), shape=matrix.shape)
