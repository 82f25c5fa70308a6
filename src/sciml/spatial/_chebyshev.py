"""Chebyshev polynomials between two walls: derivatives without error for smooth fields."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact


class Chebyshev(eqx.Module):
    r"""A field on an interval as a polynomial through the Chebyshev points, $x_j = m - r \cos(\pi j / N)$.

    The $N + 1$ points include both ends and are denser towards them. Derivatives and integrals are exact for the
    polynomial, so that their error decreases faster than any power of $N$ for a smooth field.

    Attributes:
        n: $N$, one less than the number of points.
        lower: The lower end.
        upper: The upper end.

    Raises:
        ValueError: If there are fewer than two points, or the ends are not in order.

    Source:
        L. N. Trefethen, Spectral Methods in MATLAB, SIAM, 2000, chapters 6 and 12.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.spatial import Chebyshev

        line = Chebyshev(16, 0.0, 2.0)
        u = jnp.exp(line.points)
        assert jnp.allclose(line.derivative(u), u, rtol=1e-4)
        assert abs(line.integrate(u) - (jnp.exp(2.0) - 1)) < 1e-4
        ```
    """

    n: int = eqx.field(static=True)
    lower: float = eqx.field(static=True)
    upper: float = eqx.field(static=True)

    def __init__(self, n: int, lower: float = -1.0, upper: float = 1.0):
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise ValueError(f"`Chebyshev(n=...)` must be a positive integer, but is {n!r}.")
        if not lower < upper:
            raise ValueError(f"`Chebyshev` requires lower < upper, but they are {lower} and {upper}.")
        self.n, self.lower, self.upper = int(n), float(lower), float(upper)

    def _points(self) -> np.ndarray:
        # sin is odd about the middle to the last bit, which the cosine of the same angles is not.
        middle, radius = (self.upper + self.lower) / 2, (self.upper - self.lower) / 2
        return middle + radius * np.sin(np.pi * (2 * np.arange(self.n + 1) - self.n) / (2 * self.n))

    @property
    def points(self) -> Array:
        """The points, ascending, of shape `(n + 1,)`."""
        return jnp.asarray(self._points(), jnp.result_type(float))

    def _matrix(self) -> np.ndarray:
        x = self._points()
        weights = np.ones(self.n + 1)
        weights[[0, -1]] = 2.0
        weights = weights * (-1.0) ** np.arange(self.n + 1)
        differences = x[:, None] - x[None, :] + np.eye(self.n + 1)
        matrix = np.outer(weights, 1 / weights) / differences
        np.fill_diagonal(matrix, 0.0)
        return matrix - np.diag(matrix.sum(axis=1))  # rows that sum to nothing, so that constants have no slope

    def matrix(self, derivative: int = 1) -> Array:
        """Returns a derivative as a matrix of shape `(n + 1, n + 1)`, for linear solves and eigenvalues."""
        return jnp.asarray(np.linalg.matrix_power(self._matrix(), derivative), jnp.result_type(float))

    def derivative(self, u: Inexact[Array, "..."], axis: int = -1, derivative: int = 1) -> Array:
        """Returns a derivative of the polynomial at the points.

        Args:
            u: Values at the points along `axis`.
            axis: The axis of the array.
            derivative: The order of the derivative.

        Raises:
            ValueError: If the array does not have `n + 1` values along `axis`.
        """
        self._check(u, axis)
        matrix = jnp.asarray(np.linalg.matrix_power(self._matrix(), derivative), u.dtype)
        return jnp.moveaxis(
            jnp.einsum("ij,...j->...i", matrix, jnp.moveaxis(u, axis, -1), precision="highest"), -1, axis
        )

    def integrate(self, u: Inexact[Array, "..."], axis: int = -1) -> Array:
        """Returns the integral of the polynomial (Clenshaw and Curtis).

        Args:
            u: Values at the points along `axis`.
            axis: The axis of the array.

        Raises:
            ValueError: If the array does not have `n + 1` values along `axis`.
        """
        self._check(u, axis)
        degrees = np.arange(self.n + 1)
        moments = np.where(degrees % 2 == 0, 2.0 / (1.0 - np.where(degrees % 2 == 0, degrees, 0) ** 2.0), 0.0)
        angles = np.pi * (self.n - degrees) / self.n
        weights = np.linalg.solve(np.cos(np.outer(degrees, angles)), moments) * (self.upper - self.lower) / 2
        return jnp.moveaxis(u, axis, -1) @ jnp.asarray(weights, u.dtype)

    def _check(self, u: Array, axis: int) -> None:
        if u.shape[axis] != self.n + 1:
            raise ValueError(f"`u` must have {self.n + 1} values along axis {axis}, but has shape {u.shape}.")
