"""Equations that do not give the rate of the state explicitly."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._checks import check_call, concrete, no_instance
from .._types import Args, RealScalarLike, Y

HIGHEST_INDEX = 3
"""The highest index of a component."""


class Index(NamedTuple):
    """The indices of the components of a state, hashable; see `DAE`.

    Attributes:
        values: One or several integers for each leaf.
        treedef: The structure, a prefix of the structure of the state.
    """

    values: tuple[Any, ...]
    treedef: Any

    @classmethod
    def of(cls, index: Any) -> "Index":
        """Returns a PyTree of integers, or of arrays of these, as an `Index`.

        Raises:
            ValueError: If there are others than 1, 2 and 3, or they are traced.
        """
        if isinstance(index, Index):
            return index
        leaves, treedef = jax.tree.flatten(index)
        if not all(map(concrete, leaves)):  # `jnp.array` within `jax.jit`
            raise ValueError("`index` must be known when the model is built: pass integers or `np.array([1, 2])`.")
        arrays = [np.asarray(x) for x in leaves]
        for x in arrays:
            if x.dtype.kind not in "iu" or np.any((x < 1) | (x > HIGHEST_INDEX)):
                raise ValueError(f"`index` must consist of the integers 1, 2 and 3, but has {x.tolist()!r}.")
        return cls(tuple(_as_tuple(x.tolist()) for x in arrays), treedef)

    @property
    def highest(self) -> int:
        """The highest index of a component."""
        return max(int(np.max(x)) for x in self.values)

    def of_state(self, y: Y) -> list[np.ndarray]:
        """Returns the index of each element, an array for each leaf of a state.

        Raises:
            ValueError: If it does not fit the state.
        """
        given = jax.tree.unflatten(self.treedef, [_Leaf(x) for x in self.values])
        found: list[np.ndarray] = []

        def of(leaf: Any, part: PyTree) -> None:
            for x in jax.tree.leaves(part):
                found.append(np.broadcast_to(np.asarray(leaf.value), np.shape(x)))

        try:
            jax.tree.map(of, given, y, is_leaf=lambda x: isinstance(x, _Leaf))
        except ValueError as error:
            raise ValueError(
                "`index` must be 1 or a PyTree of integers like `y0`, such as (1, 2, 3) for positions, velocities and "
                f"multipliers, but does not fit `y0`: {error}"
            ) from None
        return found


class _Leaf:
    def __init__(self, value: Any):
        self.value = value


def _as_tuple(x: Any) -> Any:
    return tuple(map(_as_tuple, x)) if isinstance(x, list) else x


class AbstractDAE(eqx.Module):
    r"""A differential-algebraic equation whose parameters are its leaves.

    $$F(t, y, \dot y) = 0$$

    A custom model defines its residual and, if it has a component of index two or three, `index`; `DAE` creates one
    from a function. `sciml.solve(model, y0)` solves it.

    Example:
        ```python
        import equinox as eqx
        import jax
        import jax.numpy as jnp
        import sciml

        class Decay(sciml.AbstractDAE):
            loss: jax.Array = eqx.field(converter=sciml.parameter)

            def residual(self, t, y, rate, args):
                return {"a": rate["a"] + self.loss * y["a"], "b": y["a"] + y["b"] - 1.0}

        sol = sciml.solve(Decay(2.0), {"a": 1.0, "b": 0.5}, t0=0.0, t1=1.0)
        assert abs(sol.ys["b"][-1] - (1 - jnp.exp(-2.0))) < 1e-3
        ```
    """

    @property
    def indices(self) -> Index:
        """The indices of the components, of its attribute `index`; by default one."""
        return Index.of(getattr(self, "index", 1))

    def first_rate(self, t: RealScalarLike, y: Y, args: Args) -> PyTree:
        r"""Returns a guess of $\dot y$ at the start; by default zero."""
        del t, args
        return jax.tree.map(jnp.zeros_like, y)

    @abc.abstractmethod
    def residual(self, t: RealScalarLike, y: Y, rate: Y, args: Args) -> PyTree:
        """Returns $F$, with the structure, shapes and dtypes of `y`."""


class DAE(AbstractDAE):
    r"""A differential-algebraic equation (DAE) of index one to three, $F(t, y, \dot y) = 0$.

    `sciml.solve` supports it by `Radau5`, with adaptive or fixed steps. A mass matrix that depends on time and state is
    the equation $F = M(t, y) \, \dot y - f(t, y)$.

    The initial state has to be consistent. The values of algebraic components, whose rates do not occur in $F$, are
    guesses, which `solve` corrects before the first step. The other components keep their values; rounded values that
    violate a constraint or one of its derivatives (hidden constraints) move to the nearest values that do not. The
    nearest values have the least sum of squared changes, whatever the tolerances: if a constraint holds the sum of an
    amount of 1e6 and one of 1e-3, both change alike. Choose units in which the components have similar sizes. A start
    is refused if a component would change by more than the rounding to the power 1/4, relative to the largest one.

    Attributes:
        equations: $F$, a function `equations(t, y, rate, args)` that returns residuals with the structure and shapes of
            `y`; their order does not matter.
        index: The index of each component, 1, 2 or 3: a PyTree like `y0` of integers or of arrays of these, or 1 for
            all. Components of index one need no derivative of an equation. For a mechanical system with the constraint
            $g(q) = 0$ these are `(1, 2, 3)` for positions, velocities and multipliers. The errors of components of
            index two and three are scaled by the step's length and by its square, and the constraints are
            differentiated once or twice to find consistent initial values.
        rate0: A guess of $\dot y$ at the start, a PyTree like `y0`; by default zero. It selects the solution if $F = 0$
            has several solutions $\dot y$.

    Raises:
        TypeError: If `equations` is not such a function.
        ValueError: If an index is not 1, 2 or 3.

    Source:
        E. Hairer, C. Lubich, M. Roche, The Numerical Solution of Differential-Algebraic Systems by Runge-Kutta Methods
        (1989); E. Hairer, G. Wanner, Solving Ordinary Differential Equations II (1996), chapter VII.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        def pendulum(t, y, rate, args):  # in Cartesian coordinates
            (q, v, tension), (dq, dv, _) = y, rate
            return dq - v, dv + tension * q - jnp.array([0.0, -9.81]), (q @ q - 1) / 2

        y0 = jnp.array([1.0, 0.0]), jnp.zeros(2), jnp.zeros(())
        sol = sciml.solve(sciml.DAE(pendulum, index=(1, 2, 3)), y0, t0=0.0, t1=1.0, rtol=1e-4, atol=1e-4)
        assert abs(jnp.sum(sol.ys[0][-1] ** 2) - 1) < 1e-3
        ```
    """

    equations: Callable[..., PyTree]
    index: Index = eqx.field(default=1, converter=Index.of, static=True)  # pyright: ignore[reportAssignmentType]
    rate0: PyTree = None

    def __check_init__(self):
        if not callable(self.equations):
            raise TypeError(
                f"`equations` must be a function `equations(t, y, rate, args)`, but {no_instance(self.equations)}."
            )
        check_call(self.equations, "equations(t, y, rate, args)", "`equations`")

    def residual(self, t: RealScalarLike, y: Y, rate: Y, args: Args) -> PyTree:
        """Returns $F$."""
        return self.equations(t, y, rate, args)

    def first_rate(self, t: RealScalarLike, y: Y, args: Args) -> PyTree:
        r"""Returns the guess of $\dot y$ at the start."""
        return super().first_rate(t, y, args) if self.rate0 is None else self.rate0
