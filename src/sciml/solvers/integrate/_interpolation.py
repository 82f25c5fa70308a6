"""The interpolation of a method as polynomials: what makes it cheap at many times within one step."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._jax._shards import on_no_mesh
from ..methods._stepper import AbstractStepper

_HIGHEST_DEGREE = 12
_EXACT = 1e-11


class StepPolynomial(NamedTuple):
    r"""$y(\theta) = \sum_p \theta^p \sum_j M_{jp}\, x_j$, where $x$ are start, end and stages of a step.

    Attributes:
        matrix: $M$.
        by_length: The $x_j$ that are multiplied by the length of the step.
    """

    matrix: tuple[tuple[float, ...], ...]
    by_length: tuple[bool, ...]

    def powers(self, length: Array, *x: Array) -> tuple[Array, ...]:
        r"""Returns $\sum_j M_{jp}\, x_j$ for each power, given the length of the step, with its sign."""
        terms = [a * length.astype(a.dtype) if by else a for a, by in zip(x, self.by_length)]
        return tuple(_weighted(column, terms) for column in zip(*self.matrix))

    def weights(self, places: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        r"""Returns $\sum_p \theta^p M_{jp}$, times the length of the step where $x_j$ is multiplied by it.

        Args:
            places: Any number of $\theta$.
            lengths: The lengths of the steps that they are in, with their signs.

        Returns:
            The weights, of shape `(places, terms)`.
        """
        powers = np.vander(places, len(self.matrix[0]), increasing=True)
        return powers @ np.asarray(self.matrix).T * np.where(self.by_length, lengths[:, None], 1.0)


def interpolation_of(stepper: AbstractStepper) -> StepPolynomial | None:
    """Returns the interpolation of a method, or None if it has none of these forms."""
    if not stepper.traits.elementwise_dense:
        return None
    try:
        return _known(stepper)
    except TypeError:  # it holds an array, and so has no hash
        return _found(stepper)


def _found(stepper: AbstractStepper) -> StepPolynomial | None:
    """Finds the polynomials by their values, in double precision whatever JAX's is."""
    count = 2 + len(jax.eval_shape(lambda: stepper.empty_dense(jnp.zeros(()))))
    places = 0.5 - 0.5 * np.cos(np.pi * (np.arange(2 * _HIGHEST_DEGREE) + 0.5) / (2 * _HIGHEST_DEGREE))

    def at(length, theta):
        y0, y1, *stages = jnp.eye(count)
        return stepper.interpolate(theta, length, y0, y1, tuple(stages))

    # In a block of its own, on the processor: what a user computes in is untouched.
    processor = jax.local_devices(backend="cpu")[0]
    with on_no_mesh(), jax.enable_x64(True), jax.ensure_compile_time_eval(), jax.default_device(processor):
        lengths, thetas = np.repeat([1.0, 2.0], len(places)), np.tile(places, 2)
        once, twice = np.split(np.asarray(jax.jit(jax.vmap(at))(lengths, thetas)), 2)
    by_length = tuple(bool(np.allclose(b, 2 * a) and not np.allclose(a, 0)) for a, b in zip(once.T, twice.T))
    if not all(by or np.allclose(a, b) for by, a, b in zip(by_length, once.T, twice.T)):
        return None
    for degree in range(1, _HIGHEST_DEGREE + 1):
        powers = np.vander(places, degree + 1, increasing=True)
        matrix = np.linalg.lstsq(powers, once, rcond=None)[0]
        if np.max(np.abs(powers @ matrix - once)) < _EXACT * np.max(np.abs(matrix)):
            whole = np.round(matrix)  # a factor of zero or one costs nothing
            matrix = np.where(np.abs(matrix - whole) < _EXACT * np.max(np.abs(matrix)), whole, matrix)
            return StepPolynomial(tuple(map(tuple, matrix.T.tolist())), by_length)
    return None


def _weighted(weights: tuple[float, ...], terms: list[Array]) -> Array:
    parts = [x if w == 1 else jnp.asarray(w, x.dtype) * x for w, x in zip(weights, terms) if w]
    return sum(parts[1:], parts[0]) if parts else jnp.zeros_like(terms[0])


_known = functools.lru_cache(maxsize=64)(_found)
