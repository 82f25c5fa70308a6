"""`checkpointed_scan`: a scan whose gradient keeps as many states as you choose."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import PyTree

from . import _checkpoint_levels
from ._loops import scan
from ._vma import closed_over

_Carry = TypeVar("_Carry")


def checkpointed_scan(
    step: Callable[[_Carry, PyTree], tuple[_Carry, PyTree]],
    carry: _Carry,
    xs: PyTree = None,
    *,
    length: int | None = None,
    memory: int | None = None,
    levels: int | None = None,
    segments: int | None = None,
    store: Any = jax.memory.Space.Device,
    reverse: bool = False,
) -> tuple[_Carry, PyTree]:
    r"""`jax.lax.scan` whose reverse-mode gradient keeps as many carries as you choose.

    The gradient of `jax.lax.scan` stores the values that the derivative of every step needs. This one keeps carries
    only, $c_1$ of them evenly spread over the scan, and runs the steps between two of them again when it comes to them,
    keeping $c_2$ of these carries, and so on over $L$ levels:

    $$n = c_1 c_2 \cdots c_L \text{ steps}, \qquad c_1 + \dots + c_L \approx L\, n^{1/L} \text{ carries kept},
      \qquad L - 1 \text{ more forward passes}.$$

    Values equal the values of `jax.lax.scan` bitwise, unless XLA unrolls a loop of few steps and rounds differently;
    gradients agree to rounding. Intermediate values of the steps are never stored but computed again, step by step. The
    program has as many nested loops as levels and grows no further with the number of steps. All of JAX's
    transformations apply, in any order: it is made of `jax.lax.scan` and `jax.checkpoint` (Griewank and Walther,
    *Evaluating Derivatives*, 2008, chapter 12, for the scheme).

    At most one of `memory`, `levels` and `segments` is given; without any there are two levels.

    Args:
        step: `step(carry, x) -> (carry, y)`, as for `jax.lax.scan`; may close over traced values, and the
            gradient with respect to them is right too.
        carry: The initial carry, any PyTree of arrays.
        xs: Inputs with the loop's axis first on every leaf, or None.
        length: The number of steps; needed where `xs` is None.
        memory: How many bytes the kept carries may take, of one member under `jax.vmap`. Takes the fewest levels
            that fit.
        levels: The number of levels; 1 keeps every carry.
        segments: The number of segments of a scan of two levels: one carry is kept for each, and the
            carries within one at a time.
        store: The memory in which the outermost level keeps its carries. `jax.memory.Space.Host`, instead of
            `jax.memory.Space.Device`, moves them to the host's memory while the steps run, and back when the gradient
            needs them; the carries of inner levels stay on the device. On a CPU, whose memory is the host's, nothing
            moves.
        reverse: Whether to run from the last input to the first.

    Returns:
        The last carry, and the stacked results of the steps.

    Raises:
        ValueError: If more than one policy is given, if one is not positive, if no number of levels fits
            `memory`, or if the inputs do not agree on the number of steps.
        TypeError: If a policy or the length is not an integer, or `store` is not a `jax.memory.Space`.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def heat(u, _):
            return u + 0.2 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)) - 0.01 * u**3, None

        def loss(u):
            u, _ = sciml.checkpointed_scan(heat, u, length=1000, memory=40 * u.nbytes)
            return jnp.sum(u**2)

        u = jnp.sin(jnp.linspace(0.0, 6.0, 256))
        gradient = jax.grad(loss)(u)
        kept = sciml.inspect.memory(jax.grad(loss), u).temporaries / u.nbytes
        assert kept < 60  # of 1000 states
        ```
    """
    steps = _count_steps(xs, length)
    _checkpoint_levels.check_policy(memory, levels, segments, "checkpointed_scan")
    if not isinstance(store, jax.memory.Space) or store is jax.memory.Space.Any:
        raise TypeError(
            "`store` of `checkpointed_scan` must be `jax.memory.Space.Device` or `jax.memory.Space.Host`, but is "
            f"{store!r}."
        )
    counts = _counts(steps, carry, memory, levels, segments)
    like = closed_over(lambda carry, xs: step(carry, jax.tree.map(lambda x: x[0], xs)), carry, xs) if steps else ()

    def run(carry, xs, counts, policy=None):
        inner = step if len(counts) == 1 else lambda carry, xs: run(carry, xs, counts[1:])
        body = inner if policy is None else lambda carry, xs: inner(_named(carry), xs)
        # Within a loop XLA cannot merge the recomputed steps with the original ones, so no barrier is needed.
        body = jax.checkpoint(body, prevent_cse=False, policy=policy)
        return scan(body, carry, xs, length=counts[0], reverse=reverse, like=like)

    # Steps that the counts do not divide run in shorter pieces of their own, rather than as padding.
    found = []
    for start, counts in _checkpoint_levels.pieces(steps, counts):
        size = math.prod(counts)
        begin = steps - start - size if reverse else start
        here = jax.tree.map(lambda x: x[begin : begin + size].reshape(counts + x.shape[1:]), xs)  # noqa: B023
        carry, ys = run(carry, here, counts, _TO_HOST if store is jax.memory.Space.Host else None)
        found.append(jax.tree.map(lambda y: y.reshape((size,) + y.shape[len(counts) :]), ys))  # noqa: B023
    if not found:
        return scan(step, carry, xs, length=0)
    found = found[::-1] if reverse else found
    return carry, found[0] if len(found) == 1 else jax.tree.map(lambda *ys: jnp.concatenate(ys), *found)


_KEPT = "sciml.checkpointed_scan"
_TO_HOST = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[], names_which_can_be_offloaded=[_KEPT], offload_src="device", offload_dst="pinned_host"
)


def _named(carry: _Carry) -> _Carry:
    """Names the arrays of a carry for `_TO_HOST`; keys of random numbers stay where they are."""

    def name(x: Any) -> Any:
        return x if jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended) else checkpoint_name(x, _KEPT)

    return jax.tree.map(name, carry)


def _counts(steps: int, carry: PyTree, memory: Any, levels: Any, segments: Any) -> tuple[int, ...]:
    if memory is not None:
        size = bytes_of(carry)
        counts = _checkpoint_levels.fit(steps, memory // size) if size else (steps,)
        if counts is None:
            least = sum(_checkpoint_levels.deepest(steps))
            raise ValueError(
                f"`memory` of `checkpointed_scan` must hold at least {least} carries of {size} bytes for {steps} "
                f"steps, {least * size} bytes, but is {memory}."
            )
        return counts
    if segments is not None:
        return _checkpoint_levels.segmented(steps, segments)
    return _checkpoint_levels.split(steps, 2 if levels is None else levels)


def bytes_of(tree: PyTree) -> int:
    """Returns how many bytes the arrays of a tree, or their shapes, take."""
    leaves = [x if hasattr(x, "dtype") else jnp.asarray(x) for x in jax.tree.leaves(tree)]
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in leaves)


def _count_steps(xs: PyTree, length: int | None) -> int:
    if length is not None and (isinstance(length, bool) or not isinstance(length, int)):
        raise TypeError(f"`length` of `checkpointed_scan` must be an integer, but is {length!r}.")
    if length is not None and length < 0:
        raise ValueError(f"`length` of `checkpointed_scan` must not be negative, but is {length}.")
    found = set()
    for path, x in jax.tree_util.tree_leaves_with_path(xs):
        if jnp.ndim(x) == 0:
            raise ValueError(f"`xs{jax.tree_util.keystr(path)}` must have the loop's axis first, but is a scalar.")
        found.add(jnp.shape(x)[0])
    if length is not None:
        found.add(length)
    if not found:
        raise ValueError("`checkpointed_scan` needs `length` if `xs` contains no array.")
    if len(found) > 1:
        raise ValueError(
            f"`xs` and `length` of `checkpointed_scan` must agree on the number of steps, but have {sorted(found)}."
        )
    return found.pop()
