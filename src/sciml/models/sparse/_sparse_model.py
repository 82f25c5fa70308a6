"""An equation of few terms."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._interfaces._model import AbstractModel
from ..._parameters import with_dtype
from ..._types import Args, RealScalarLike, Y
from ._libraries import AbstractLibrary


class SparseModel(AbstractModel):
    r"""An equation whose right-hand side is a sum of few terms, $\dot y_j = \sum_i c_{ij} \, \theta_i(y)$.

    `sciml.training.sindy` finds them. The coefficients that are not zero are its only leaves: `sciml.fit` refines
    them, and `jax.vmap` and `jax.grad` take it as any model. `print(model)` shows the equation.

    Attributes:
        library: The terms $\theta$, as functions of all numbers of the state.
        coefficients: Those that are not zero, shape `(count,)`.
        places: Term and output that each belongs to.
        inputs: The names of the numbers of the state.
        outputs: The names of what comes out, such as "dx/dt".

    Args:
        library: The terms.
        coefficients: $c$, zeros included, shape `(terms, outputs)`.
        inputs: The names of the numbers of the state.
        outputs: The names of what comes out; by default rates of the inputs.
        like: A PyTree of arrays with the structure and shapes of what comes out; by default a vector.

    Raises:
        ValueError: If coefficients or names are of another number than terms and outputs.

    Source:
        S. L. Brunton, J. L. Proctor and J. N. Kutz, Discovering governing equations from data by sparse identification
        of nonlinear dynamical systems, PNAS 113:3932, 2016.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models.sparse import Polynomials
        from sciml.models.sparse._sparse_model import SparseModel

        coefficients = jnp.array([[0.0, 0.0], [0.0, -4.0], [1.0, 0.0]])  # of 1, x and v
        spring = SparseModel(Polynomials(1), coefficients, ("x", "v"))
        assert str(spring) == "dx/dt = v\ndv/dt = -4 x"
        assert jnp.allclose(spring(0.0, jnp.array([0.5, 2.0]), None), jnp.array([2.0, -2.0]))
        ```
    """

    library: AbstractLibrary
    coefficients: Float[Array, " count"]
    places: tuple[tuple[int, int], ...] = eqx.field(static=True)
    inputs: tuple[str, ...] = eqx.field(static=True)
    outputs: tuple[str, ...] = eqx.field(static=True)
    structure: Any = eqx.field(static=True)

    def __init__(
        self,
        library: AbstractLibrary,
        coefficients: Any,
        inputs: Sequence[str],
        outputs: Sequence[str] | None = None,
        *,
        like: PyTree = None,
    ):
        table = np.asarray(coefficients)
        names = library.names(tuple(inputs))
        self.library, self.inputs = library, tuple(inputs)
        self.outputs = tuple(f"d{name}/dt" for name in inputs) if outputs is None else tuple(outputs)
        if table.shape != (len(names), len(self.outputs)):
            raise ValueError(
                f"`coefficients` must have a row for each of the {len(names)} terms and a column for each of the "
                f"{len(self.outputs)} outputs, but have shape {table.shape}."
            )
        leaves, treedef = jax.tree.flatten(np.zeros(len(self.outputs)) if like is None else like)
        shapes = tuple(np.shape(x) for x in leaves)
        if sum(int(np.prod(shape)) for shape in shapes) != len(self.outputs):
            raise ValueError(f"`like` must contain {len(self.outputs)} numbers, but has shapes {shapes}.")
        self.structure = (treedef, shapes)
        self.places = tuple((int(i), int(j)) for j, i in np.argwhere(table.T != 0))
        self.coefficients = jnp.asarray([table[place] for place in self.places], jnp.result_type(float))

    @property
    def table(self) -> np.ndarray:
        """All coefficients, zeros included, shape `(terms, outputs)`."""
        full = np.zeros((len(self.library.names(self.inputs)), len(self.outputs)))
        for place, value in zip(self.places, np.asarray(self.coefficients), strict=True):
            full[place] = value
        return full

    def equations(self, digits: int = 4) -> tuple[str, ...]:
        """Returns the equation of each output, as text."""
        names = self.library.names(self.inputs)
        sums: list[list[str]] = [[] for _ in self.outputs]
        for (i, j), value in zip(self.places, np.asarray(self.coefficients).tolist(), strict=True):
            size = f"{abs(value):.{digits}g}"
            term = size if names[i] == "1" else names[i] if size == "1" else f"{size} {names[i]}"
            sign = ("-" if value < 0 else "") if not sums[j] else "- " if value < 0 else "+ "
            sums[j].append(sign + term)
        return tuple(f"{name} = {' '.join(terms) or '0'}" for name, terms in zip(self.outputs, sums, strict=True))

    def __str__(self) -> str:
        """The equations, one a line."""
        return "\n".join(self.equations())

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> PyTree:
        """Returns what the sums give; `t` and `args` are not used."""
        del t, args
        x = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(y)])
        if len(x) != len(self.inputs):
            raise ValueError(
                f"the state must contain {len(self.inputs)} numbers, {self.inputs}, but contains {len(x)}."
            )
        p = with_dtype(self, x.dtype)
        terms = p.library(x)
        sums = [jnp.zeros((), x.dtype)] * len(self.outputs)
        for k, (i, j) in enumerate(self.places):
            sums[j] = sums[j] + p.coefficients[k] * terms[i]
        treedef, shapes = self.structure
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes]).tolist()
        leaves = [
            jnp.stack(sums[end - int(np.prod(shape)) : end]).reshape(shape)
            for shape, end in zip(shapes, ends, strict=True)
        ]
        return jax.tree.unflatten(treedef, leaves)
