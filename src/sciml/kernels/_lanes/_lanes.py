"""`Lanes`: the interface that loops use to run a member's function over lanes."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from ._fusion import fused_over_lanes
from ._interpret import constant, evaluate, is_value, trace, unstack_small
from ._values import Stacked, Value, map_lanes, over_all_lanes, put, shared, stack, take


class Lanes(eqx.Module):
    """Runs functions of one member over `count` members side by side.

    A loop keeps its carry as lane values, made by `enter`, advances it with `call` and hands it back
    through `leave`. With `count=None` the same loop runs one member without a lane axis.

    Attributes:
        count: The number of lanes, or None for one member.
        reverse: Whether reverse mode may go through what is called; where not, forward mode is faster.
        shared_cotangents: Whether a backward pass over these lanes returns, where it can, one cotangent in all of what
            members share.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.kernels._lanes import Lanes

        many = Lanes(4)
        y = many.enter(jnp.arange(8.0).reshape(2, 4), True)  # states of shape (2,), four members
        out = many.leave(many.call(lambda y: jnp.stack([y[1], -y[0]]), y))
        assert out.shape == (2, 4) and float(out[0, 3]) == 7.0
        ```
    """

    count: int | None = eqx.field(static=True)
    reverse: bool = eqx.field(static=True, default=True)
    shared_cotangents: bool = eqx.field(static=True, default=False)

    def enter(self, tree: PyTree[Array], batched: bool | Sequence[bool]) -> PyTree:
        """Returns arrays as lane values.

        Args:
            tree: Arrays, those that differ between members with members in the last axis.
            batched: Whether they have that axis, for all or for each leaf.
        """
        leaves, treedef = jax.tree.flatten(tree)
        flags = [batched] * len(leaves) if isinstance(batched, bool) else batched
        values = [
            unstack_small(Stacked(x, x.ndim - 1)) if b else constant(x) for x, b in zip(leaves, flags, strict=True)
        ]
        return jax.tree.unflatten(treedef, values)

    def leave(self, tree: PyTree) -> PyTree[Array]:
        """Returns lane values as arrays, members last on every leaf."""
        return jax.tree.map(lambda v: stack(over_all_lanes(v, self.count), self.count).array, tree, is_leaf=is_value)

    def carry(self, tree: PyTree) -> PyTree:
        """Returns lane values such that a loop's carry keeps its type."""
        return jax.tree.map(lambda v: over_all_lanes(v, self.count), tree, is_leaf=is_value)

    def whole(self, tree: PyTree) -> PyTree:
        """Returns lane values, each as one array over all lanes, as `put` and `jax.lax.scatter` need them."""

        def of(v: Value) -> Value:
            return stack(over_all_lanes(v, self.count), self.count)

        return jax.tree.map(of, tree, is_leaf=is_value)

    def call(self, fn: Callable[..., PyTree[Array]], *trees: PyTree) -> PyTree:
        """Evaluates a member's function over lanes.

        Args:
            fn: A function of one member's arrays; must not close over traced values.
            trees: Its arguments, PyTrees of lane values.

        Returns:
            The member's result, a PyTree of lane values.
        """
        closed, out_structure = trace(fn, *trees)
        values = jax.tree.leaves(trees, is_leaf=is_value)
        lanes = () if self.count is None else (self.count,)
        out = fused_over_lanes(lambda values: evaluate(closed, values, self.count), values, lanes, reverse=self.reverse)
        return jax.tree.unflatten(out_structure, out)

    def take(self, tree: PyTree, members: Int[Array, " lanes"]) -> PyTree:
        """Returns the lane values of some members, for an engine with as many lanes.

        Args:
            tree: Lane values.
            members: The numbers of the members, in any order; one out of range stands for the nearest.
        """
        return jax.tree.map(lambda v: take(v, members), tree, is_leaf=is_value)

    def put(self, tree: PyTree, members: Int[Array, " lanes"], new: PyTree) -> PyTree:
        """Returns lane values with the values of some members replaced.

        Args:
            tree: Lane values over all lanes.
            members: The numbers of the members, ascending, each once; one out of range stands for none.
            new: Their lane values, in the same form.
        """
        return jax.tree.map(lambda v, n: put(v, members, n), tree, new, is_leaf=is_value)

    def leave_shared(self, tree: PyTree) -> PyTree[Array]:
        """Returns lane values as arrays, members last on every leaf but those that all members share."""

        def array(value: Value) -> Array:
            count = None if shared(value) else self.count
            return stack(over_all_lanes(value, count), count).array

        return jax.tree.map(array, tree, is_leaf=is_value)

    def where(self, mask: Bool[Array, " lanes"], tree: PyTree, otherwise: Callable[[Array], Array]) -> PyTree:
        """Returns lane values that are others on some lanes.

        Args:
            mask: On which lanes they stay as they are.
            tree: Lane values.
            otherwise: The replacement of an array with members last; its result broadcasts to that array.
        """

        def choose(x: Array) -> Array:
            return jnp.where(jnp.broadcast_to(mask, x.shape), x, otherwise(x))

        return jax.tree.map(lambda v: map_lanes(choose, v), tree, is_leaf=is_value)

    def any(self, condition: PyTree) -> Array:
        """Returns whether a member's truth value, a lane value of shape `()`, holds for any member."""
        return jnp.any(stack(condition, self.count).array)


class Unbatched(eqx.Module):
    """The interface of `Lanes` for one member as it is: functions run unchanged, open to every transformation.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.kernels._lanes import Unbatched

        assert float(Unbatched().call(jnp.sum, jnp.ones(3))) == 3.0
        ```
    """

    count: None = eqx.field(static=True, default=None)

    def enter(self, tree: PyTree[Array], batched: bool | Sequence[bool]) -> PyTree:
        """Returns the arrays as they are."""
        del batched
        return tree

    def leave(self, tree: PyTree) -> PyTree[Array]:
        """Returns the arrays as they are."""
        return tree

    def carry(self, tree: PyTree) -> PyTree:
        """Returns the arrays as they are."""
        return tree

    def whole(self, tree: PyTree) -> PyTree:
        """Returns the arrays as they are."""
        return tree

    def call(self, fn: Callable[..., PyTree[Array]], *trees: PyTree) -> PyTree:
        """Calls the function."""
        return fn(*trees)

    def any(self, condition: Array) -> Array:
        """Returns the truth value as it is."""
        return condition


def fallbacks(fn: Callable[..., Any], *args: PyTree, count: int = 2) -> dict[str, str]:
    """Says which primitives of a member's function run as a plain `vmap` over lanes, and why.

    Args:
        fn: A function of one member's arrays.
        args: One member's arguments, PyTrees of arrays and numbers: of a vector field, `t, y, args`.
        count: The number of lanes to try with.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml import inspect

        assert inspect.fallbacks(lambda y: y[::-1] * 2.0, jnp.ones(3)) == {}
        assert "sort" in inspect.fallbacks(lambda y: jnp.sort(y), jnp.ones(3))
        ```
    """
    reasons: dict[str, str] = {}

    def run(*arrays):
        engine = Lanes(count)
        values = engine.enter(arrays, True)
        closed, _ = trace(lambda *leaves: fn(*jax.tree.unflatten(structure, leaves)), *values)
        evaluate(closed, values, count, reasons.__setitem__)

    leaves, structure = jax.tree.flatten(args)
    jax.eval_shape(run, *(jnp.broadcast_to(jnp.asarray(x)[..., None], jnp.shape(x) + (count,)) for x in leaves))
    return reasons
