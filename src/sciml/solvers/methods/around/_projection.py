r"""Steps that preserve conserved quantities.

A step that ends at $y$ is projected, at right angles to the surfaces of constant invariants $g$, to the point with the
invariants of its start $y_0$: Newton's method for $g(y + G^T \lambda) = g(y_0)$ with $G = g'(y)$. The change is of the
size of the local error, so the method keeps its order, and its steps are differentiated with it.

Source:
    E. Hairer, C. Lubich, G. Wanner, Geometric Numerical Integration, section IV.4.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...._checks import check_function_of_state
from ...._jax._vma import match
from ...._types import RealScalarLike, Y
from ...linear._written_out import factorised, substituted
from .._capabilities import Hooks
from .._ravel import flattened, unflattened
from .._stepper import AbstractStepper, BoundField, Step, step_for_vjp
from ._wrapped import AbstractWrappedStepper

_NEWTON_ITERATIONS = 2  # from a state within the local error of the surface, whose square is far below rounding
_MOST_NUMBERS = 8


class Projected(AbstractWrappedStepper):
    """A method whose steps preserve the invariants.

    Attributes:
        base: The method.
        invariants: They, a function of the state.
    """

    base: AbstractStepper
    invariants: Callable[[Y], PyTree] = eqx.field(static=True)

    @property
    def hooks(self) -> Hooks:
        """The hooks of the method, with steps in gradients."""
        return super().hooks._replace(step_for_vjp=self.step_for_vjp)

    @property
    def evaluations(self) -> int:
        """Evaluations of the vector field per step: where a step reuses the end of the last, it is evaluated there."""
        return self.base.evaluations if self.base.evaluations < 0 else self.base.evaluations + self.base.traits.fsal

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        return self._projected(field, t, h, y, self.base.step(field, t, h, y, memory))

    def step_for_vjp(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y) -> Step:
        """Repeats a step such that JAX can differentiate it in reverse mode."""
        return self._projected(field, t, h, y, step_for_vjp(self.base, field, t, h, y))

    def _projected(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, step: Step) -> Step:
        y1 = project(self.invariants, y, step.y1)
        again = self.base.traits.fsal and not self.base.traits.history
        memory = self.base.init(field, t + h, y1) if again else step.memory
        return step._replace(y1=y1, memory=memory, error=_at_least(step.error, step.y1, y1))


def _at_least(error: Y | None, y: Y, moved: Y) -> Y | None:
    """Returns the error of a step, of each element at least the distance by which the projection moved it.

    An element at rest has no error, and `positive` would refuse the rounding of the projection.
    """
    if error is None:
        return None
    return jax.tree.map(lambda e, a, b: jnp.where(jnp.abs(b - a) > jnp.abs(e), b - a, e), error, y, moved)


def project(invariants: Callable[[Y], PyTree], y0: Y, y: Y) -> Y:
    """Returns the state near `y` with the invariants of `y0`."""

    def values(x: Array) -> Array:
        leaves = jax.tree.leaves(invariants(unflattened(x, y)))
        return jnp.concatenate([jnp.asarray(v, x.dtype).reshape(-1) for v in leaves])

    x = flattened(y)
    wanted = values(flattened(y0))
    for _ in range(_NEWTON_ITERATIONS):
        now, back = jax.vjp(values, x)
        units = match(jnp.eye(wanted.shape[0], dtype=x.dtype), now)
        normals = [back(unit)[0] for unit in units]
        matrix = [[jnp.sum(a * b) for b in normals] for a in normals]
        multipliers = substituted(factorised(matrix, pivot=len(normals) > 1), list(wanted - now))
        x = x + sum((m * normal for m, normal in zip(multipliers[1:], normals[1:])), multipliers[0] * normals[0])
    return unflattened(x, y)


def check_invariants(invariants: Any, y0: Y) -> Callable[[Y], PyTree]:
    """Checks that invariants are a function of the state that gives a few real numbers, and returns it with a hash.

    Raises:
        ValueError: If there are none, or too many.
        TypeError: If it is not a hashable function, or returns other values.
    """
    invariants = check_function_of_state(invariants, "project", "the state, `project(y)`")
    found = jax.tree.leaves(jax.eval_shape(invariants, y0))
    count = sum(x.size for x in found)
    if not 0 < count <= _MOST_NUMBERS:
        raise ValueError(
            f"`project` must return from one to {_MOST_NUMBERS} conserved quantities, but returns {count}."
        )
    wrong = [x.dtype.name for x in found if not jnp.issubdtype(x.dtype, jnp.floating)]
    if wrong:
        raise TypeError(f"`project` must return real numbers, but returns {wrong[0]}.")
    return invariants
