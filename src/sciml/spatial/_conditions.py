"""The condition at one side of the box, and the ghost values that follow from it."""

import abc
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Inexact

from .._parameters import parameter
from .._types import Args, RealScalarLike
from . import _weights

SideValue: TypeAlias = ArrayLike | Callable[[RealScalarLike, Args], Array]
"""A value at a side: a number, an array over the side, or a function `(t, args)` that returns one."""


def side_value(name: str) -> Callable[[Any], Any]:
    """The converter of a value at a side, the argument that is named."""

    def convert(value: Any) -> Any:
        if not callable(value):
            return parameter(value)
        try:
            signature = inspect.signature(value)
        except (TypeError, ValueError):  # some builtins have none
            return value
        try:
            signature.bind(0.0, None)
        except TypeError as error:
            raise TypeError(
                f"`{name}` must be a number, an array or a function `(t, args)`, such as `lambda t, args: 2 * t`, but "
                f"the function has the signature {signature}."
            ) from error
        return value

    return convert


def evaluated(value: Any, t: RealScalarLike | None, args: Args) -> Any:
    if not callable(value):
        return value
    if t is None:
        raise ValueError("a boundary value is a function of time, but no `t` was given. Call with `t=...`.")
    return value(t, args)


class Periodic(eqx.Module):
    """The outflow through one end of an axis enters through the other.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Boundaries, Grid, Periodic

        boundary = Boundaries(Grid(3), Periodic())
        assert jnp.all(boundary.pad(jnp.array([1.0, 2.0, 3.0]), 1) == jnp.array([3.0, 1.0, 2.0, 3.0, 1.0]))
        ```
    """

    def homogeneous(self) -> "Periodic":
        """Returns itself."""
        return self


class AbstractWall(eqx.Module):
    """A condition at a side that does not look at the opposite side.

    Its leaves are its values: numbers, arrays over the side, or functions `(t, args)`. They can be differentiated and
    swept. A custom condition derives from this class and defines `points`, `ghosts` and `homogeneous`.
    """

    @abc.abstractmethod
    def points(self, offset: float, accuracy: int) -> int:
        """Returns how many layers of unknowns the ghost values are made from.

        Args:
            offset: The distance of the first unknown from the wall, in units of the spacing: 0, 1/2 or 1.
            accuracy: The order of the error of the ghost values.
        """

    @abc.abstractmethod
    def ghosts(
        self, layers: Inexact[Array, "..."], width: int, *, axis: int, spacing: float, offset: float, accuracy: int = 2
    ) -> Inexact[Array, "..."]:
        """Returns ghost layers from the layers nearest to the wall.

        Layers and ghosts are both ordered away from the wall, nearest first.

        Args:
            layers: At least `points(offset, accuracy)` layers along `axis`.
            width: How many ghost layers.
            axis: The axis across the wall.
            spacing: The distance between unknowns.
            offset: The distance of the first unknown from the wall, in units of the spacing: 0, 1/2 or 1.
            accuracy: The order of the error of the ghost values.
        """

    @abc.abstractmethod
    def homogeneous(self) -> "AbstractWall":
        """Returns the condition of the linear part: the same kind with the value zero."""

    def at(self, t: RealScalarLike | None = None, args: Args = None) -> "AbstractWall":
        """Returns the condition with its functions evaluated at a time, so that its leaves are arrays."""
        return jax.tree.map(lambda value: evaluated(value, t, args), self, is_leaf=callable_leaf)


def callable_leaf(x: Any) -> bool:
    """Whether a part of a condition is one of its values that is a function, possibly with leaves."""
    return callable(x) and not isinstance(x, AbstractWall)


def _along(weights: np.ndarray, layers: Array, axis: int) -> Array:
    """Static weights of shape `(width,)`, along `axis` of `layers`."""
    shape = [1] * layers.ndim
    shape[axis] = len(weights)
    return jnp.asarray(weights.reshape(shape), layers.dtype)


def _combine(weights: np.ndarray, layers: Array, axis: int) -> Array:
    """Weights of shape `(width, points)` times the first layers along `axis`."""
    total = None
    for j in range(weights.shape[1]):
        layer = jax.lax.slice_in_dim(layers, j, j + 1, axis=axis)
        term = _along(weights[:, j], layers, axis) * layer
        total = term if total is None else total + term
    assert total is not None
    return total


def _like(value: Any, layers: Array, name: str) -> Array:
    if jnp.iscomplexobj(value) and not jnp.iscomplexobj(layers):
        raise TypeError(f"the value of `{name}` is complex, but the field has dtype {layers.dtype}.")
    return jnp.asarray(value, layers.dtype)


def _points_of_slope(offset: float, accuracy: int) -> int:
    # Halfway between unknowns the slope of a polynomial through them is right to one order more.
    return max(1, accuracy - 1) if offset == 0.5 else accuracy


class Dirichlet(AbstractWall):
    """The field has a given value at the wall, $u = g$.

    Attributes:
        value: $g$: a number, an array over the side (it broadcasts against the field without the axis across the
            side), or a function `(t, args)` that returns one.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Boundaries, Dirichlet, Grid

        boundary = Boundaries(Grid(4), {"x-": Dirichlet(1.0), "x+": Dirichlet(lambda t, args: 2 * t)})
        padded = boundary.pad(jnp.ones(4), 1, t=3.0)
        assert padded[0] == 1.0 and padded[-1] == 11.0  # the mean of the last two values is 6
        ```
    """

    value: SideValue = eqx.field(default=0.0, converter=side_value("Dirichlet(value=...)"))

    @staticmethod
    def linear(width: int, offset: float, accuracy: int) -> np.ndarray:
        """Returns the weights of the layers in the ghosts, of shape `(width, points)`."""
        w = _weights.wall(offset, max(1, accuracy - 1), width)
        return w.ghosts - np.outer(w.omega, w.value) / w.omega_value

    def points(self, offset: float, accuracy: int) -> int:
        """Returns `accuracy - 1`: the value at the wall is one more."""
        if offset == 0:
            raise ValueError(
                "`Dirichlet` sets the value at the wall, so no unknown may be there. Use the location "
                "'inner', 'lower' or 'upper' (`Boundaries(..., at='node')` selects it)."
            )
        return max(1, accuracy - 1)

    def ghosts(
        self, layers: Inexact[Array, "..."], width: int, *, axis: int, spacing: float, offset: float, accuracy: int = 2
    ) -> Inexact[Array, "..."]:
        """Returns the values of the polynomial through the wall's value and the layers."""
        w = _weights.wall(offset, self.points(offset, accuracy), width)
        outer = _along(w.omega / w.omega_value, layers, axis)
        return _combine(self.linear(width, offset, accuracy), layers, axis) + outer * _like(
            self.value, layers, "Dirichlet"
        )

    def homogeneous(self) -> "Dirichlet":
        """Returns `Dirichlet(0.0)`."""
        return Dirichlet(0.0)


class Neumann(AbstractWall):
    r"""The field has a given slope at the wall, $\partial u / \partial n = s$ along the normal that points outwards.

    Attributes:
        slope: $s$: a number, an array over the side, or a function `(t, args)` that returns one.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Boundaries, Grid, Neumann

        boundary = Boundaries(Grid(4, 0.0, 2.0), Neumann(3.0))
        padded = boundary.pad(jnp.ones(4), 1)
        assert padded[0] == padded[-1] == 1.0 + 0.5 * 3.0
        ```
    """

    slope: SideValue = eqx.field(default=0.0, converter=side_value("Neumann(slope=...)"))

    @staticmethod
    def linear(width: int, offset: float, accuracy: int) -> np.ndarray:
        """Returns the weights of the layers in the ghosts, of shape `(width, points)`."""
        w = _weights.wall(offset, _points_of_slope(offset, accuracy), width)
        return w.ghosts - np.outer(w.omega, w.slope) / w.omega_slope

    def points(self, offset: float, accuracy: int) -> int:
        """Returns `accuracy`, or one less halfway between unknowns, where the slope is worth one order more."""
        return _points_of_slope(offset, accuracy)

    def ghosts(
        self, layers: Inexact[Array, "..."], width: int, *, axis: int, spacing: float, offset: float, accuracy: int = 2
    ) -> Inexact[Array, "..."]:
        """Returns the values of the polynomial with the wall's slope through the layers."""
        w = _weights.wall(offset, self.points(offset, accuracy), width)
        outer = _along(-spacing * w.omega / w.omega_slope, layers, axis)
        return _combine(self.linear(width, offset, accuracy), layers, axis) + outer * _like(
            self.slope, layers, "Neumann"
        )

    def homogeneous(self) -> "Neumann":
        """Returns `Neumann(0.0)`."""
        return Neumann(0.0)


class Robin(AbstractWall):
    r"""A mixed condition at the wall, $a u + b\, \partial u / \partial n = c$, along the normal that points outwards.

    It is well-posed if $a$ and $b$ have the same sign. With `a = 1, b = 0` it is `Dirichlet(c)`, with `a = 0, b = 1`
    it is `Neumann(c)`; arrays choose between them along the side or by component.

    Attributes:
        a: The weight of the value.
        b: The weight of the slope, a length times the unit of `a`.
        c: The right-hand side. All three are numbers, arrays over the side, or functions `(t, args)`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Boundaries, Grid, Robin

        boundary = Boundaries(Grid(4), Robin(a=2.0, b=1.0, c=6.0))
        padded = boundary.pad(jnp.full(4, 3.0), 1)  # the field that satisfies it without a slope
        assert jnp.allclose(padded, 3.0)
        ```
    """

    a: SideValue = eqx.field(converter=side_value("Robin(a=...)"))
    b: SideValue = eqx.field(converter=side_value("Robin(b=...)"))
    c: SideValue = eqx.field(default=0.0, converter=side_value("Robin(c=...)"))

    def points(self, offset: float, accuracy: int) -> int:
        """Returns `accuracy`, or one less halfway between unknowns."""
        return _points_of_slope(offset, accuracy)

    def ghosts(
        self, layers: Inexact[Array, "..."], width: int, *, axis: int, spacing: float, offset: float, accuracy: int = 2
    ) -> Inexact[Array, "..."]:
        """Returns the values of the polynomial that satisfies the condition, through the layers."""
        w = _weights.wall(offset, self.points(offset, accuracy), width)
        a, b, c = (_like(value, layers, "Robin") for value in (self.a, self.b, self.c))
        value = _combine(w.value[None], layers, axis)
        slope = _combine(-w.slope[None] / spacing, layers, axis)  # outwards, against the distance from the wall
        # The polynomial is the one through the layers plus a multiple of omega, which vanishes at all of them.
        factor = (c - a * value - b * slope) / (a * w.omega_value - b * (w.omega_slope / spacing))
        return _combine(w.ghosts, layers, axis) + _along(w.omega, layers, axis) * factor

    def homogeneous(self) -> "Robin":
        """Returns the condition with `c = 0`."""
        return Robin(self.a, self.b, 0.0)


class Extrapolate(AbstractWall):
    """Nothing is known at the wall: the field is extrapolated from within, for example if a flow leaves the box.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Boundaries, Extrapolate, Grid

        boundary = Boundaries(Grid(3), Extrapolate())
        assert jnp.allclose(boundary.pad(jnp.array([1.0, 2.0, 3.0]), 1), jnp.arange(5.0))
        ```
    """

    @staticmethod
    def linear(width: int, offset: float, accuracy: int) -> np.ndarray:
        """Returns the weights of the layers in the ghosts, of shape `(width, points)`."""
        del offset
        return _weights.wall(0.0, accuracy, width).ghosts

    def points(self, offset: float, accuracy: int) -> int:
        """Returns `accuracy`."""
        return accuracy

    def ghosts(
        self, layers: Inexact[Array, "..."], width: int, *, axis: int, spacing: float, offset: float, accuracy: int = 2
    ) -> Inexact[Array, "..."]:
        """Returns the values of the polynomial through the layers."""
        return _combine(self.linear(width, offset, accuracy), layers, axis)

    def homogeneous(self) -> "Extrapolate":
        """Returns itself."""
        return self


Condition: TypeAlias = Periodic | AbstractWall
"""A condition at a side."""
