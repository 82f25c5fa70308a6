"""`first_nan`: the first number that is not finite, with its step, member, leaf and line, forwards and backwards."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._jax._interpreters import ClosedJaxpr, jaxpr_as_fun
from .._jax._marks import LANES, ONE_BY_ONE
from ._flat_program import FlatProgram, bad_in
from ._lower import of_arrays
from ._origin import Origin, Search
from ._programs import places


class NonFinite(NamedTuple):
    """The first number of a function that is not finite; made by `first_nan`, and printed in words.

    Attributes:
        value: "nan", "inf" or "-inf".
        backward: Whether it is only in a derivative.
        operation: The primitive of JAX that made it, such as `log`; or the input that was not finite from the start.
        operands: Up to three of the numbers that it was made of, as text.
        where: The user's line of the operation; empty if JAX does not know it.
        step: The number of the step, from 0; in a loop that is not sciml's, the iteration; None outside of loops. In a
            backward pass it is the step that is differentiated, where the loop goes back over steps.
        loops: The iteration of every loop around it, the outermost first.
        member: The index of the member of a `jax.vmap`; None without members.
        leaf: The part of the result that it gets to.
        entry: The indices of the first number in that part that is not finite.
        device: The place in the mesh of the device that made it, within a `jax.shard_map`; None outside,
            and where a member is named.
    """

    value: str
    backward: bool
    operation: str
    operands: str
    where: str
    step: int | None
    loops: tuple[int, ...]
    member: int | None
    leaf: str
    entry: tuple[int, ...]
    device: dict[str, int] | None = None

    def __str__(self) -> str:
        """Some lines."""
        at = [] if self.step is None else [f"step {self.step}"]
        at += [] if self.member is None else [f"member {self.member}"]
        place = ", ".join(f"{axis} = {index}" for axis, index in (self.device or {}).items())
        at += [] if self.device is None else [f"device {place}"]
        made = f"`{self.operation}`" + (f" of {self.operands}" if self.operands else "")
        lines = [
            f"first {self.value} in the {'backward' if self.backward else 'forward'} pass"
            + (f", {', '.join(at)}" if at else "")
        ]
        lines += [f"  made by {made}", f"  at {self.where or 'an unknown line'}"]
        place = f"[{', '.join(map(str, self.entry))}]" if self.entry else ""
        lines.append(f"  reaches {self.leaf}{place}")
        if len(self.loops) > 1:
            lines.append(f"  in iterations {', '.join(map(str, self.loops))} of the enclosing loops")
        return "\n".join(lines)


def first_nan(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> NonFinite | None:
    """Finds the first number of `fn(*args, **kwargs)` that is not finite, and its origin.

    Values of the result that are not finite are traced back, through all loops, `jax.vmap`, `jax.jit`, `jax.shard_map`
    and derivative rules, to the operation that made them from finite numbers. If the function returns one finite real
    number, its gradient with respect to all floating-point arguments is inspected in the same way: pass a loss, or
    `jax.grad(loss)` to inspect only the gradient. Loops run compiled, so that a solve of ten thousand steps takes
    seconds.

    In a solve that fails, sciml writes NaN for values that were not reached. There the operation is named that made the
    last step fail, if one did.

    Args:
        fn: Any callable, jitted or not.
        *args: Its positional arguments, with values.
        **kwargs: Its keyword arguments.

    Returns:
        A `NonFinite`; None if everything is finite.

    Raises:
        ValueError: If an argument is a `jax.ShapeDtypeStruct`: there are no numbers to look at.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml
        from sciml import inspect

        def falls(t, y, args):
            return -jnp.sqrt(y)  # of what is below zero, NaN

        def loss(y0):
            return sciml.solve(falls, y0, t0=0.0, t1=3.0, dt=0.1, throw=False).ys[-1].sum()

        found = inspect.first_nan(loss, jnp.array([9.0, 1.0]))
        assert found.operation == "sqrt" and found.step > 0 and not found.backward
        print(found)
        ```
    """
    args, kwargs = jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, float) else x, (args, kwargs))
    run, dynamic = of_arrays(fn, args, kwargs)
    leaves = jax.tree.leaves(dynamic)
    if any(isinstance(x, jax.ShapeDtypeStruct) for x in leaves):
        raise ValueError("`first_nan` runs the function: its arguments must be arrays, not `jax.ShapeDtypeStruct`s.")
    found = _look(run, dynamic)
    if found is not None:
        return found
    loss = _scalar_of(run, dynamic)
    if loss is None:
        return None
    numbers, rest = _by_kind(dynamic)
    if not numbers:
        return None

    def gradient(given):
        numbers, rest = given
        return jax.grad(lambda numbers: loss(_joined(numbers, rest, dynamic)))(numbers)

    named = _names(dynamic)
    names = [n for n, x in named if _is_float(x)] + [n for n, x in named if not _is_float(x)]
    return _look(gradient, (numbers, rest), names)


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _by_kind(tree: Any) -> tuple[list, list]:
    leaves = jax.tree.leaves(tree)
    return [x for x in leaves if _is_float(x)], [x for x in leaves if not _is_float(x)]


def _joined(numbers: Sequence[Any], rest: Sequence[Any], like: Any) -> Any:
    floats, others = iter(numbers), iter(rest)
    leaves, treedef = jax.tree.flatten(like)
    return jax.tree.unflatten(treedef, [next(floats) if _is_float(x) else next(others) for x in leaves])


def _scalar_of(run: Callable, dynamic: Any) -> Callable | None:
    """Returns a function's only result, if it is one real number."""
    shapes = jax.tree.leaves(jax.eval_shape(run, dynamic))
    if len(shapes) != 1 or shapes[0].shape != () or not _is_float(shapes[0]):
        return None
    return lambda dynamic: jax.tree.leaves(run(dynamic))[0]


def _names(dynamic: Any) -> list[tuple[str, Any]]:
    """Returns the leaves of function and arguments, with the user's words for them."""
    function, args, kwargs = dynamic
    tree = {"the function": function} | {f"argument {i}": value for i, value in enumerate(args)} | kwargs
    order = {id(x): i for i, x in enumerate(jax.tree.leaves(dynamic))}
    found = []
    for (key, *rest), leaf in jax.tree_util.tree_leaves_with_path(tree):
        found.append((key.key + jax.tree_util.keystr(tuple(rest)), leaf))
    return sorted(found, key=lambda x: order.get(id(x[1]), 0))


def _look(run: Callable, dynamic: Any, names: list[str] | None = None) -> NonFinite | None:
    closed, shape = jax.make_jaxpr(run, return_shape=True)(dynamic)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(shape)]
    inputs = [x if isinstance(x, jax.Array) else jnp.asarray(x) for x in (*closed.consts, *jax.tree.leaves(dynamic))]

    @jax.jit
    def compiled(inputs):
        consts = inputs[: len(closed.consts)]
        return jaxpr_as_fun(ClosedJaxpr(closed.jaxpr, consts))(*inputs[len(consts) :])

    results = compiled(inputs)
    which = next((i for i, x in enumerate(results) if bool(bad_in(x))), None)
    if which is None:
        return None
    index = tuple(int(i) for i in np.argwhere(~np.isfinite(np.asarray(results[which])))[0])
    member, inputs = _alone(closed, compiled, inputs, results, which)
    leaf = f"the gradient with respect to {names[which]}" if names else f"the result{paths[which]}"
    origin = Search(FlatProgram(closed.jaxpr)).origin(inputs, which)
    if not isinstance(origin, Origin):
        known = [f"an array of shape {np.shape(x)} that the function closes over" for x in closed.consts]
        known += names or [name for name, _ in _names(dynamic)]
        which = 0 if origin is None else origin.numbers[0]
        value = _first_value(inputs[which])
        return NonFinite(value, False, f"{known[which]}, which is not finite", "", "", None, (), member, leaf, index)
    return _described(origin, bool(names), member, leaf, index)


def _first_value(x: Any) -> str:
    entry = np.asarray(x)[~np.isfinite(np.asarray(x))][0]
    return "nan" if np.isnan(entry) else "inf" if np.real(entry) > 0 else "-inf"


def _described(origin: Origin, gradient: bool, member: int | None, leaf: str, index: tuple[int, ...]) -> NonFinite:
    eqn, line = origin.place.eqn, origin.place.line
    bad, value = None, "nan"
    for x in origin.results:
        if jnp.issubdtype(x.dtype, jnp.inexact) and not bool(np.all(np.isfinite(x))):
            bad = np.argwhere(~np.isfinite(np.asarray(x)))[0]
            value = _first_value(x)
            break
    shown = [_entry(x, bad) for x in origin.operands if jnp.issubdtype(x.dtype, jnp.number)]
    step = origin.step if origin.step is not None else (origin.loops[-1] if origin.loops else None)
    where = "" if line is None else f"{line}{', in a step of sciml' if line.internal else ''}"
    return NonFinite(
        value,
        gradient or origin.transposed,
        "NaN, written for times that were not reached," if origin.written else eqn.primitive.name,
        "" if origin.written else " and ".join(shown[:3]),
        where,
        step,
        origin.loops,
        member,
        leaf,
        index,
        origin.coordinates if member is None else None,  # to look at a member alone, all devices were given it
    )


def _entry(x: Any, at: np.ndarray | None) -> str:
    """Returns the entry of an operand that belongs to one of the result, or its shape where that is not known."""
    x = np.asarray(x)
    if x.size == 1:
        return f"{x.reshape(-1)[0]:.6g}"
    if at is not None and x.ndim == len(at) and all(i < n for i, n in zip(at, x.shape)):
        return f"{x[tuple(at)]:.6g}"
    return f"{x.dtype}{list(x.shape)}"


# which member it is


def _alone(
    closed: ClosedJaxpr, compiled: Callable, inputs: list, results: Sequence[Any], which: int
) -> tuple[int | None, list]:
    """Returns the first member from which a result is not finite, and inputs in which every member is that one.

    A member is a row of the inputs. If rows are exchanged, the result must change like the result of a `jax.vmap`: rows
    of results become equal, or only some rows make it not finite. If none of this holds there are no members.
    """
    text = " ".join({place.scope for place in places(closed.jaxpr)})
    if "vmap(" not in text:
        return None, inputs
    counts = {int(n) for n in re.findall(rf"(?:{LANES}|{ONE_BY_ONE}):(\d+)", text)}
    sizes = list(dict.fromkeys(x.shape[0] for x in inputs if x.ndim > 0 and x.shape[0] > 1))

    def of(members: Sequence[int], size: int) -> list:
        rows = np.asarray(members)[np.arange(size) % len(members)]
        return [x[rows] if x.ndim > 0 and x.shape[0] == size else x for x in inputs]

    def bad(members: Sequence[int], size: int) -> bool:
        return bool(bad_in(compiled(of(members, size))[which]))

    result = np.asarray(results[which])
    for size in sorted(sizes, key=lambda n: n not in counts):
        if result.ndim and result.shape[0] == size:
            first = int(np.argwhere(~np.isfinite(result))[0][0])
            new = np.asarray(compiled(of([first], size))[which])
            if all(_same(row, new[0]) for row in new) and not np.all(np.isfinite(new)):
                return first, of([first], size)
    for size in sorted(sizes, key=lambda n: n not in counts):
        members = list(range(size))
        while len(members) > 1:
            half = members[: len(members) // 2]
            members = half if bad(half, size) else members[len(half) :]
        known = size in counts or len(sizes) == 1
        if known and bad(members, size):
            return members[0], of(members, size)
    return None, inputs


def _same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b, equal_nan=True))
