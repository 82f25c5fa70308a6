"""States that a solution may have: not below zero, or within a domain; steps that leave it are clipped or rejected.

An element that must not be negative and is, by no more than the estimated error of the step, is set to zero, which is
as good an approximation; by more, or outside of the domain, the step is rejected and tried again with a shorter length.
An element that comes to rest at zero, such as a tank that runs dry, may also be below zero by the absolute tolerance:
next to an infinite slope error estimates vanish, and the step would be repeated forever. With fixed steps every such
element is set to zero. A small positive element is never changed, however uncertain: a population that is nearly
extinct may grow again.

Source:
    L. F. Shampine, S. Thompson, J. A. Kierzenka, G. D. Byrne, Non-negative solutions of ODEs, Appl. Math. Comput. 170:1
    (2005).
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from ...._checks import check_function_of_state
from ...._structure_words import first_difference, structure_words
from ...._types import BoolScalarLike, RealScalarLike, Y
from ...control._criterion import Criterion
from ...control._pid import spread
from .._capabilities import Hooks
from .._stepper import AbstractStepper, BoundField, Step, step_for_vjp
from ._wrapped import AbstractWrappedStepper, judged


@dataclass(frozen=True)
class Admissible:
    """The admissible states.

    Attributes:
        positive: For each leaf of the state which of its elements must not be negative, shape and bytes of an array of
            booleans; None where none has to.
        domain: Whether a state is admissible in other respects, or None.
    """

    positive: tuple[tuple[tuple[int, ...], bytes] | None, ...]
    domain: Callable[[Y], BoolScalarLike] | None

    def flags(self) -> list[np.ndarray | None]:
        """Returns which elements must not be negative, for each leaf."""
        return [x if x is None else np.frombuffer(x[1], bool).reshape(x[0]) for x in self.positive]

    def clipped(self, y: Y) -> Y:
        """Returns a state, or several along leading axes, without negative elements."""
        leaves, treedef = jax.tree.flatten(y)
        return jax.tree.unflatten(
            treedef, [x if f is None else _nonnegative(x, f) for x, f in zip(leaves, self.flags(), strict=True)]
        )

    def below(self, y: Y, by: Y | None = None) -> Bool[Array, ""]:
        """Returns whether an element is negative, by more than `by`."""
        outside = jnp.zeros((), bool)
        allowed = [None] * len(self.positive) if by is None else jax.tree.leaves(by)
        for x, flag, most in zip(jax.tree.leaves(y), self.flags(), allowed, strict=True):
            if flag is not None:
                least = jnp.zeros_like(x) if most is None else -jnp.abs(most)
                outside = outside | jnp.any(jnp.broadcast_to(flag, x.shape) & (x < least))
        return outside

    def holds(self, y: Y) -> Bool[Array, ""]:
        """Returns whether a state without negative elements is within the domain."""
        return jnp.ones((), bool) if self.domain is None else jnp.asarray(self.domain(y), bool)


def _nonnegative(x: Array, flag: np.ndarray) -> Array:
    # not the larger of both, whose derivative at zero is one half
    return jnp.where((x < 0) & jnp.broadcast_to(flag, x.shape), jnp.zeros_like(x), x)


class Within(AbstractWrappedStepper):
    """A method whose steps end at admissible states.

    Attributes:
        base: The method.
        admissible: The admissible states.
        rejects: Whether a step that ends elsewhere can be rejected.
        atol: The absolute tolerances of a step, where they are known.
    """

    base: AbstractStepper
    admissible: Admissible = eqx.field(static=True)
    rejects: bool = eqx.field(static=True)
    atol: PyTree | None = None

    @property
    def hooks(self) -> Hooks:
        """The hooks of the method, with steps in gradients."""
        return super().hooks._replace(judged=self.judged, step_for_vjp=self.step_for_vjp)

    def judged(self, criterion: Criterion) -> "Within":
        """Returns the method for one step under error control."""
        return dataclasses.replace(self, base=judged(self.base, criterion), atol=criterion.tolerances[1])

    @property
    def evaluations(self) -> int:
        """Evaluations of the vector field per step: where a step reuses the end of the last, it is evaluated there."""
        return self.base.evaluations if self.base.evaluations < 0 else self.base.evaluations + self.base.traits.fsal

    def step(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        return self._within(field, t, h, y, self.base.step(field, t, h, y, memory))

    def step_for_vjp(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y) -> Step:
        """Repeats a step such that JAX can differentiate it in reverse mode."""
        return self._within(field, t, h, y, step_for_vjp(self.base, field, t, h, y))

    def _within(self, field: BoundField, t: RealScalarLike, h: RealScalarLike, y: Y, step: Step) -> Step:
        y1 = self.admissible.clipped(step.y1)
        inside = self.admissible.holds(y1)
        if self.rejects:
            inside = inside & ~self.admissible.below(step.y1, self._tolerated(y, step.error))
        # a gradient makes the memory anew from the state, and so do its steps
        again = self.base.traits.fsal and not self.base.traits.history
        memory = self.base.init(field, t + h, y1) if again else step.memory
        at_rest = self.base.hooks.at_rest
        if at_rest is not None and step.error is not None:
            memory = at_rest(memory, step.y1, _at_rest(step.y1, step.error))
        factor = step.factor
        if factor is not None:  # what a method says itself of a step that it takes for a good one
            factor = jnp.where(inside, factor, jnp.minimum(factor, 0.5))
        return step._replace(y1=y1, memory=memory, admissible=inside, factor=factor)

    def _tolerated(self, y: Y, error: Y | None) -> Y | None:
        """By how much each element may be below zero after a step from `y`; what starts there does not come to rest."""
        if error is None or self.atol is None:
            return error
        leaves, treedef = jax.tree.flatten(y)

        def of_leaf(x: Array, error: Array, atol: Any) -> Array:
            resting = jnp.where(x.real > 0, jnp.asarray(atol, error.real.dtype), 0)
            return jnp.maximum(jnp.abs(error), resting)

        return jax.tree.unflatten(treedef, map(of_leaf, leaves, jax.tree.leaves(error), spread(self.atol, treedef)))


def _at_rest(y1: Y, error: Y) -> Y:
    """A state with those elements set to zero that are below it by more than their errors: they came to rest there."""
    return jax.tree.map(lambda x, e: jnp.where(x.real < -jnp.abs(e), jnp.zeros_like(x), x), y1, error)


def read_admissible(positive: Any, domain: Any, y0: Y) -> Admissible | None:
    """Returns which states are admissible, None for all.

    Args:
        positive: True for all elements, or a PyTree like the state of booleans or arrays of booleans.
        domain: A function of a state, or None.
        y0: A state.

    Raises:
        ValueError: If `positive` does not fit the state, or `domain` does not return one boolean.
        TypeError: If one has the wrong type.
    """
    if domain is not None:
        domain = check_function_of_state(domain, "domain", "the state that returns whether it is admissible")
        _check_says_one_thing(domain, y0)
    leaves = jax.tree.leaves(y0)
    nothing = positive is None or positive is False
    given = [None] * len(leaves) if nothing else _flags_of(positive, y0)
    if domain is None and all(x is None for x in given):
        return None
    wrong = [x.dtype.name for x, f in zip(leaves, given) if f is not None and jnp.iscomplexobj(x)]
    if wrong:
        raise TypeError(f"`positive` requires real elements, but `y0` has a leaf of {wrong[0]} there.")
    return Admissible(tuple(given), domain)


def _check_says_one_thing(domain: Any, y0: Y) -> None:
    try:
        out = jax.eval_shape(domain, y0)
    except jax.errors.TracerBoolConversionError as error:
        raise TypeError(
            "`domain` converts a traced value to a Python boolean, as `and`, `or`, `not`, `if` and chained comparisons "
            "do. Combine conditions with `&`, `|` and `~`: `lambda y: (y[0] < 1) & (y[1] < 1)`."
        ) from error
    found = jax.tree.leaves(out)
    if len(found) == 1 and found[0].shape == () and found[0].dtype == bool:
        return
    if len(found) != 1:
        got, right = f"{len(found)} values", "Combine conditions with `&`: `lambda y: (y[0] < 1) & (y[1] < 1)`"
    elif found[0].dtype == bool:
        got, right = (
            f"an array of booleans of shape {found[0].shape}",
            "Combine them: `lambda y: jnp.all(y < 1)`",
        )
    else:
        got = f"{found[0].dtype.name} of shape {found[0].shape}"
        right = "Return a comparison: `lambda y: y[0] < 1`, or `jnp.all(y < 1)` for the whole state"
    raise ValueError(f"`domain` must return one boolean for the whole state, but returns {got}. {right}.")


class _Known:
    """Flags of an array that stay known where JAX traces."""

    def __init__(self, flags: Any):
        self._flags = np.asarray(flags)
        self.dtype, self._key = self._flags.dtype, (self._flags.shape, self._flags.dtype, self._flags.tobytes())

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self._flags, dtype)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Known) and self._key == other._key


def known_flags(positive: Any) -> Any:
    """Returns `positive` without arrays, which would be traced where a solution takes its steps again."""
    return jax.tree.map(lambda x: _Known(x) if isinstance(x, np.ndarray | jax.Array) else x, positive)


def _flags_of(positive: Any, y0: Y) -> list[tuple[tuple[int, ...], bytes] | None]:
    flags, leaves = jax.tree.leaves(positive), jax.tree.leaves(y0)
    plain = not hasattr(positive, "dtype") and jax.tree_util.all_leaves([positive])
    if isinstance(positive, bool | np.bool_):
        flags = [positive] * len(leaves)
    elif plain:
        raise TypeError(
            f"`positive` must be True, False or a PyTree like `y0` of booleans, but is {positive!r:.60}, "
            f"{type(positive).__name__}."
        )
    elif jax.tree.structure(positive) != jax.tree.structure(y0):
        single = isinstance(positive, list) and jax.tree_util.all_leaves([y0])
        raise ValueError(
            f"`positive` must be True or a PyTree like `y0`, {structure_words(y0)}, of booleans, but is "
            f"{structure_words(positive)}.{first_difference(y0, positive)}"
            + (f" For the elements of one array write `np.array({positive})`." if single else "")
        )
    found: list[tuple[tuple[int, ...], bytes] | None] = []
    for flag, leaf in zip(flags, leaves, strict=True):
        flag = np.asarray(flag)
        if flag.dtype != bool:
            raise TypeError(f"`positive` must hold booleans, but holds {flag.dtype.name}.")
        if flag.shape not in ((), leaf.shape):
            raise ValueError(
                f"`positive` must hold a boolean for each leaf of `y0`, or an array of its shape {leaf.shape}, but "
                f"holds one of shape {flag.shape}."
            )
        whole = np.broadcast_to(flag, leaf.shape)
        found.append((whole.shape, whole.tobytes()) if whole.any() else None)
    return found
