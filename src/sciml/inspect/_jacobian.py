"""The possible entries of the Jacobian of a model, and the linear solver that implicit methods choose."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from .._checks import check_state
from .._choices import choices
from .._types import Args, RealScalarLike, Y
from ..solvers._read_diffrax import stepper_of
from ..solvers.linear._choose import LinearChoice, structure_of
from ..solvers.linear._colouring import colour
from ..solvers.linear._dependencies import pattern_of
from ..solvers.linear._entries import DenseMatrix
from ..solvers.linear._sparse import SparseArray, sp
from ..solvers.methods._ravel import flattened, unflattened
from ..solvers.methods.around._history import WithHistory
from ..solvers.methods.implicit._bdf import BDF
from ..solvers.methods.implicit._collocation import AbstractCollocation
from ..solvers.methods.implicit._esdirk import ESDIRK
from ..solvers.methods.implicit._linear_options import unknowns_of
from ..solvers.methods.implicit._rosenbrock import Rosenbrock

_WIDEST = 48


class Jacobian(NamedTuple):
    r"""The Jacobian of a vector field, $\partial f / \partial y$, as read from its program.

    Attributes:
        pattern: The possible entries, a sparse matrix of booleans of shape `(n, n)`; rows and columns are the elements
            of the state in the order of its leaves, of complex ones the real part, then the imaginary.
        colours: How many derivatives along directions give all entries. If these are many, and the derivative's program
            can be followed, entries are computed one by one; `structure` reports this.
        structure: The linear solver that implicit methods, such as `sciml.solvers.Rodas5P`, use for systems with it.
    """

    pattern: SparseArray
    colours: int
    structure: str

    @property
    def entries(self) -> int:
        """The number of entries."""
        return int(self.pattern.nnz)

    def __str__(self) -> str:
        """The figures, and a picture of the pattern: a dot for each entry, or for each part that has one."""
        n = self.pattern.shape[0]
        share = self.entries / max(n * n, 1)
        head = f"{n} unknowns, {self.entries} entries ({share:.1%}), {self.colours} directions; {self.structure}"
        size = min(n, _WIDEST)
        found = self.pattern.tocoo()
        picture = np.full((size, size), "·")
        picture[found.row * size // max(n, 1), found.col * size // max(n, 1)] = "●"
        return "\n".join([head, *("".join(row) for row in picture)])


def jacobian(model: Callable, y: Y, *, t: RealScalarLike = 0.0, args: Args = None, solver: Any = None) -> Jacobian:
    """Returns the pattern of a model's Jacobian, and how implicit methods solve systems with it.

    The pattern is read from the program that JAX traces, so it holds for every state, time and parameter. It may
    include an entry that is always zero: every element that the program reads counts, and a matrix product by a
    parameter reads all elements, whereas a NumPy array that the model holds counts with its zeros.

    Args:
        model: `f(t, y, args) -> dy/dt`.
        y: A state, for its structure, shapes and dtypes.
        t: A time.
        args: The third argument of the model.
        solver: A method whose `linear_solver` and `preconditioner` are reported, or None.

    Returns:
        A `Jacobian`; print it for a picture.

    Raises:
        TypeError: If the state is not of floating-point or complex arrays.
        ValueError: If the preconditioner of `solver` does not fit.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inspect

        def chain(t, y, args):
            return jnp.pad(y, 1)[2:] - 2 * y + jnp.pad(y, 1)[:-2]

        found = inspect.jacobian(chain, jnp.ones(100))
        assert found.entries == 298 and found.colours == 3
        print(found)
        ```
    """
    y = check_state(y)
    stepper = None if solver is None else stepper_of(solver, y)
    if isinstance(stepper, WithHistory):
        stepper = stepper.base
    choice = stepper.linear if isinstance(stepper, Rosenbrock | AbstractCollocation | ESDIRK | BDF) else LinearChoice()
    if stepper is None or isinstance(stepper, Rosenbrock | BDF):  # under tolerances, which say how closely they solve
        large = flattened(y).size >= choices().linear.iteration_from
        choice = dataclasses.replace(choice, large=large, by_tolerances=True)
    arrays, rest = eqx.partition((model, args), eqx.is_array)
    found: list[Jacobian] = []

    def read(arrays, y):  # parameters have no value, as where a solve reads the program
        model, args = eqx.combine(arrays, rest)
        x = flattened(y)

        def slope(x):
            return flattened(model(t, unflattened(x, y), args))

        pattern, structure = pattern_of(slope, x), structure_of(slope, x, None, choice, unknowns_of(y))
        words = structure.words
        if isinstance(structure, DenseMatrix) and structure.entries(slope, x) is not None:
            words = f"its entries are computed one by one; {words}"
        if pattern is None:
            found.append(Jacobian(sp.csr_array(np.ones((x.size, x.size), bool)), x.size, words))
        else:
            found.append(Jacobian(pattern, len(colour(pattern, np.arange(x.size)).directions), words))

    jax.eval_shape(read, arrays, y)
    return found[0]
