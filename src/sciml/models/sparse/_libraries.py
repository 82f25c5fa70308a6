"""Libraries of terms, of which equations are sums."""

import abc
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import check_count, check_function


class AbstractLibrary(eqx.Module):
    """Functions of a vector that may be terms of an equation; libraries add up, `Polynomials(2) + Trigonometric()`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.models.sparse._libraries import AbstractLibrary

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
    """Functions of one's own, with their names.

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
