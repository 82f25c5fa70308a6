"""Equations that are driven by a given path."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._checks import check_call, no_instance
from .._types import Args, RealScalarLike, Y
from ._model import AbstractModel


class Controlled(AbstractModel):
    r"""A controlled equation, $dy = g(t, y) \, dX(t)$, for a path $X$ with a derivative.

    It is the model $\dot y = g(t, y) \, \dot X(t)$, which all methods, adjoints and transformations take. A path that
    is interpolated linearly has a derivative that jumps at its points: with `events=sciml.Schedule(ts)` steps end
    there.

    Attributes:
        field: $g$, a function `field(t, y, args)` that returns a PyTree like `y` whose leaves have one axis more, the
            last, over the channels of the path; like `y` itself if the path is a scalar.
        control: The path, an object with a method `derivative(t)` that returns an array of shape `(channels,)`, or a
            scalar: an interpolation of diffrax, such as `diffrax.CubicInterpolation`, or a custom one.

    Raises:
        TypeError: If the field is not a function, or the path has no method `derivative`.
        ValueError: If the result of the field has no axis for the channels.

    Example:
        ```python
        import diffrax
        import jax.numpy as jnp
        import sciml

        ts = jnp.linspace(0.0, 1.0, 11)
        path = diffrax.CubicInterpolation(ts, diffrax.backward_hermite_coefficients(ts, jnp.stack([ts, ts**2], -1)))
        model = sciml.Controlled(lambda t, y, args: jnp.stack([jnp.ones(()), y]), path)
        sol = sciml.solve(model, 0.0, t0=0.0, t1=1.0)
        assert sol.ys.shape == (1,)
        ```
    """

    field: Callable[[RealScalarLike, Y, Args], PyTree]
    control: Any

    def __check_init__(self):
        if not callable(self.field):
            raise TypeError(f"`field` must be a function `field(t, y, args)`, but {no_instance(self.field)}.")
        check_call(self.field, "field(t, y, args)", "`field`")
        if not callable(getattr(self.control, "derivative", None)):
            raise TypeError(
                "`control` must have a method `derivative(t)`, like the interpolations of diffrax, but "
                f"{no_instance(self.control)}."
            )

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        """Returns the field times the derivative of the path."""
        rate = jnp.asarray(self.control.derivative(t))

        def of_leaf(x: Array, g: Array) -> Array:
            if jnp.shape(g) != (*jnp.shape(x), *rate.shape):
                raise ValueError(
                    f"`field` must return an array of shape {(*jnp.shape(x), *rate.shape)} for a leaf of shape "
                    f"{jnp.shape(x)} and a path of shape {rate.shape}, but it returned {jnp.shape(g)}."
                )
            channels = tuple(range(jnp.ndim(x), jnp.ndim(g)))
            return jnp.sum(g * rate.astype(g.dtype).reshape((1,) * jnp.ndim(x) + rate.shape), axis=channels)

        return jax.tree.map(of_leaf, y, self.field(t, y, args))
