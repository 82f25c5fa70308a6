"""Equations of few terms, and the libraries of terms that they are sums of."""

import abc
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._checks import check_count, check_function
from ..._interfaces._model import AbstractModel
from ..._parameters import with_dtype
from ..._types import Args, RealScalarLike, Y


class AbstractLibrary(eqx.Module):
    """Functions of a vector that may be terms of an equation; libraries add up, `Polynomials(2) + Trigonometric()`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models.sparse._sparse_model import AbstractLibrary

        class Saturating(AbstractLibrary):
            def __call__(self, x):
                return x / (1 + x)

            def names(self, inputs):
                return tuple(f"{name}/(1 + {name})" for name in inputs)

        assert Saturating().names(("s",)) == ("s/(1 + s)",)
        ```
    """

    @abc.abstractmethod
    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " terms"]:
        """Returns the values of the terms."""

    @abc.abstractmethod
    def names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Returns the names of the terms of named inputs."""

    def __add__(self, other: "AbstractLibrary") -> "Libraries":
        """Returns the terms of both."""
        if not isinstance(other, AbstractLibrary):
            return NotImplemented
        return Libraries((self, other))


class Libraries(AbstractLibrary):
    """The terms of several libraries, one after another.

    Attributes:
        parts: The libraries.

    Example:
        ```python
        from sciml.models.sparse import Polynomials, Trigonometric

        both = Polynomials(1) + Trigonometric()
        assert both.names(("x",)) == ("1", "x", "sin(x)", "cos(x)")
        ```
    """

    parts: tuple[AbstractLibrary, ...]

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " terms"]:
        """Returns the values of the terms."""
        return jnp.concatenate([part(x) for part in self.parts])

    def names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Returns the names of the terms of named inputs."""
        return tuple(name for part in self.parts for name in part.names(inputs))


class Polynomials(AbstractLibrary):
    r"""All products of up to `degree` inputs: $1, x, y, x^2, x y, y^2, \ldots$.

    Attributes:
        degree: The largest number of factors.
        constant: Whether 1 is among them.

    Raises:
        ValueError: If `degree` is not a positive number.

    Example:
        ```python
        from sciml.models.sparse import Polynomials

        assert Polynomials(2).names(("x", "y")) == ("1", "x", "y", "x^2", "x y", "y^2")
        ```
    """

    degree: int = eqx.field(default=2, static=True)
    constant: bool = eqx.field(default=True, static=True)

    def __check_init__(self):
        check_count(self.degree, "degree", "Polynomials")

    def _factors(self, count: int) -> list[tuple[int, ...]]:
        """Returns which inputs each term is the product of."""
        degrees = range(0 if self.constant else 1, self.degree + 1)
        return [f for d in degrees for f in itertools.combinations_with_replacement(range(count), d)]

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " terms"]:
        """Returns the values of the terms."""
        products: dict[tuple[int, ...], Array] = {(): jnp.ones((), x.dtype)}
        for factors in self._factors(len(x)):
            if factors:
                last = x[factors[-1]]
                products[factors] = products[factors[:-1]] * last if len(factors) > 1 else last
        return jnp.stack([products[factors] for factors in self._factors(len(x))])

    def names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Returns the names of the terms of named inputs."""
        return tuple(_product(inputs, factors) for factors in self._factors(len(inputs)))


def _product(inputs: Sequence[str], factors: tuple[int, ...]) -> str:
    powers = [(inputs[i], len(list(group))) for i, group in itertools.groupby(factors)]
    return " ".join(name if power == 1 else f"{name}^{power}" for name, power in powers) or "1"


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(map(float, values))


class Trigonometric(AbstractLibrary):
    r"""Sines and cosines of each input, $\sin \omega x$ and $\cos \omega x$.

    Attributes:
        frequencies: The values of $\omega$.

    Example:
        ```python
        from sciml.models.sparse import Trigonometric

        assert Trigonometric((1.0, 2.0)).names(("q",)) == ("sin(q)", "cos(q)", "sin(2 q)", "cos(2 q)")
        ```
    """

    frequencies: tuple[float, ...] = eqx.field(default=(1.0,), static=True, converter=_floats)

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " terms"]:
        """Returns the values of the terms."""
        return jnp.concatenate([jnp.concatenate([jnp.sin(w * x), jnp.cos(w * x)]) for w in self.frequencies])

    def names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Returns the names of the terms of named inputs."""
        found = []
        for w in self.frequencies:
            factor = "" if w == 1 else f"{w:g} "
            found += [f"{f}({factor}{name})" for f in ("sin", "cos") for name in inputs]
        return tuple(found)


class Terms(AbstractLibrary):
    """Custom functions, with their names.

    Args:
        functions: By name, functions of the vector of inputs that return a number.

    Raises:
        TypeError: If one of them is not a function.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models.sparse import Terms

        drag = Terms({"v |v|": lambda x: x[1] * jnp.abs(x[1])})
        assert drag(jnp.array([0.0, -2.0])) == -4.0
        ```
    """

    functions: tuple[Callable, ...] = eqx.field(static=True)
    labels: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, functions: Mapping[str, Callable[[Array], Any]]):
        self.labels = tuple(functions)
        self.functions = tuple(check_function(fn, f"functions[{name!r}]", "x") for name, fn in functions.items())

    def __call__(self, x: Float[Array, " inputs"]) -> Float[Array, " terms"]:
        """Returns the values of the terms."""
        values = [jnp.asarray(fn(x), x.dtype) for fn in self.functions]
        for name, value in zip(self.labels, values, strict=True):
            if np.shape(value) != ():
                raise ValueError(f"the term {name!r} must be a number, but has shape {np.shape(value)}.")
        return jnp.stack(values)

    def names(self, inputs: Sequence[str]) -> tuple[str, ...]:
        """Returns the names that were given."""
        del inputs
        return self.labels


class SparseModel(AbstractModel):
    r"""An equation whose right-hand side is a sum of few terms, $\dot y_j = \sum_i c_{ij} \, \theta_i(y)$.

    `sciml.training.sindy` finds them. The coefficients that are not zero are its only leaves: `sciml.fit` refines
    them, and `jax.vmap` and `jax.grad` take it as any model. `print(model)` shows the equation.

    Attributes:
        library: The terms $\theta$, as functions of all numbers of the state.
        coefficients: Those that are not zero, shape `(count,)`.
        places: Term and output that each belongs to.
        inputs: The names of the numbers of the state.
        outputs: The names of the outputs, such as "dx/dt".

    Args:
        library: The terms.
        coefficients: $c$, zeros included, shape `(terms, outputs)`.
        inputs: The names of the numbers of the state.
        outputs: The names of the outputs; by default rates of the inputs.
        like: A PyTree of arrays with the structure and shapes of the outputs; by default a vector.

    Raises:
        ValueError: If coefficients or names are of another number than terms and outputs.

    Source:
        S. L. Brunton, J. L. Proctor and J. N. Kutz, Discovering governing equations from data by sparse identification
        of nonlinear dynamical systems, PNAS 113:3932, 2016.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import training
        from sciml.models.sparse import Polynomials

        xv = jnp.array([[0.5, 2.0], [1.0, -1.0], [-0.3, 0.7], [0.2, 0.1]])
        rates = jnp.stack([xv[:, 1], -4 * xv[:, 0]], axis=1)  # of a spring
        spring = training.sindy(Polynomials(1), xv, derivatives=rates, names=("x", "v")).model
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
        """Returns the values of the sums; `t` and `args` are not used."""
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
