"""Checks of arguments while JAX traces. Each returns the checked and converted value."""

import decimal
import inspect
import numbers
from collections.abc import Callable, Collection
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree

from ._structure_words import first_difference, structure_words


def concrete(x: Any) -> bool:
    """Whether a value is known now, not traced."""
    return not isinstance(x, Tracer)


def check_state(y0: PyTree, name: str = "y0") -> PyTree[Array]:
    """Returns a state as arrays.

    Raises:
        ValueError: If it has no leaves, or no numbers in them.
        TypeError: If a leaf is not a floating-point or complex array.
    """
    if not jax.tree.leaves(y0):
        raise ValueError(f"`{name}` must hold at least one array, but it is {y0!r}.")

    if isinstance(y0, list) and all(isinstance(x, int | float | complex) for x in y0):
        raise TypeError(f"`{name}` is a list of numbers; for a vector write `jnp.array({y0})`.")

    def convert(path, x):
        where = f"`{name}{jax.tree_util.keystr(path)}`"
        try:
            x = jnp.asarray(x)
        except TypeError as error:
            got = f"an array of dtype {x.dtype}" if isinstance(x, np.ndarray) else f"{x!r:.60}, {type(x).__name__}"
            raise TypeError(f"{where} must be an array of numbers, but is {got}.") from error
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            raise TypeError(
                f"{where} must be floating-point or complex, but has dtype {x.dtype}. "
                f"Write 1.0 instead of 1, or convert it with `.astype(float)`."
            )
        return jax.lax.convert_element_type(x, x.dtype)  # strongly typed

    state = jax.tree_util.tree_map_with_path(convert, y0)
    if not any(x.size for x in jax.tree.leaves(state)):
        raise ValueError(
            f"`{name}` must hold at least one number, but its shapes are {jax.tree.map(jnp.shape, state)}."
        )
    return state


def check_start(y0: PyTree, name: str = "y0") -> PyTree[Array]:
    """Returns a real state with finite numbers, from which something starts, as arrays.

    Raises:
        ValueError: If it has no leaves, or no numbers in them, or a known number is not finite.
        TypeError: If a leaf is not a floating-point array.
    """
    state = check_state(y0, name)
    if any(jnp.iscomplexobj(x) for x in jax.tree.leaves(state)):
        raise TypeError(f"`{name}` must be real, but has a complex leaf. Use its real and imaginary parts.")
    check_finite(state, name)
    return state


def check_finite(tree: PyTree, name: str) -> None:
    """Checks that the numbers of a start, as far as they are known, are finite.

    Raises:
        ValueError: If one is not.
    """
    if (found := first_not_finite(tree, name)) is not None:
        raise ValueError(f"{found}, but a start needs finite numbers.")


def first_not_finite(tree: PyTree, name: str) -> str | None:
    """Returns where the first known number is that is not finite, such as "`y0[1]` is nan"; None if all are finite."""
    for path, x in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if not known_numbers(x) or np.all(finite := np.isfinite(np.asarray(x))):
            continue
        place, value = first_place(~finite, x)
        return f"`{name}{jax.tree_util.keystr(path)}{place}` is {value}"
    return None


def known_numbers(x: Any) -> bool:
    """Whether a leaf is of floating-point or complex numbers that are all known to this process now."""
    if isinstance(x, float | complex):
        return True
    numbers = isinstance(x, np.ndarray | np.generic | jax.Array) and jnp.issubdtype(x.dtype, jnp.inexact)
    return numbers and concrete(x) and getattr(x, "is_fully_addressable", True)


def first_place(wrong: Any, x: Any) -> tuple[str, Any]:
    """Returns the place of the first element that is wrong, as an index, and its value."""
    x = np.asarray(x)
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if x.ndim else ()
    return (f"[{', '.join(map(str, at))}]" if at else ""), x[at].item()


def check_real(y: Any, model: Any) -> None:
    """Checks that a state is real, for a model of real fields.

    Raises:
        TypeError: If it is complex.
    """
    if jnp.iscomplexobj(y):
        raise TypeError(
            f"`{type(model).__name__}` is a model of real fields, but the state has dtype {y.dtype}. Pass the real "
            "and the imaginary part separately, or use a model of complex fields."
        )


def time_dtype(y0: PyTree[Array | jax.ShapeDtypeStruct]) -> np.dtype:
    """Returns the real dtype of a state's time, the widest of its leaves' dtypes."""
    return max((jnp.finfo(x.dtype) for x in jax.tree.leaves(y0)), key=lambda info: info.bits).dtype


def check_time(value: Any, name: str, dtype: Any) -> Array:
    """Returns a time as a scalar array.

    Raises:
        TypeError: If it is not a real scalar.
        ValueError: If it is known and not finite.
    """
    if not isinstance(value, int | float | np.generic | np.ndarray | jax.Array) or isinstance(value, bool):
        raise TypeError(f"`{name}` must be a real number, but is {type(value).__name__}.")
    if np.ndim(value) != 0:
        raise ValueError(f"`{name}` must be a scalar, but has shape {np.shape(value)}.")
    if not isinstance(value, int | float) and jnp.iscomplexobj(value):
        raise TypeError(f"`{name}` must be real, but has dtype {value.dtype}.")
    if concrete(value) and not np.isfinite(value):
        raise ValueError(f"`{name}` must be finite, but is {float(value)}.")
    return jnp.asarray(value, dtype)


def check_step(dt: Any, forwards: bool | None, dtype: Any, name: str = "dt") -> Array:
    """Returns a step size as a scalar array, with its sign.

    Args:
        dt: The step size, with the sign of `t1 - t0`.
        forwards: Whether `t1 > t0`; None where that is not known yet.
        dtype: The dtype of time.
        name: The name of the argument.

    Raises:
        ValueError: If it is known and zero, not finite, or of the wrong sign.
    """
    step = check_time(dt, name, dtype)
    if concrete(dt):
        if float(dt) == 0:
            raise ValueError(f"`{name}` must not be zero.")
        if forwards is not None and (float(dt) > 0) != forwards:
            direction = "positive, because t1 > t0" if forwards else "negative, because t1 < t0"
            raise ValueError(f"`{name}` must be {direction}, but is {float(dt)}.")
    return step


def no_instance(value: Any) -> str:
    """Returns the end of an error message for a value that should be an instance of something else."""
    return f"{value.__name__} is a class: make an instance" if isinstance(value, type) else f"is {value!r}"


def check_call(function: Callable, call: str, what: str) -> None:
    """Checks that a function takes as many arguments as it will be given.

    Args:
        function: The function.
        call: How it is called, such as `"condition(t, y, args)"`.
        what: The name of the function at the start of the message.

    Raises:
        TypeError: If it takes another number.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(*[None] * (call.count(",") + 1))
    except TypeError as error:
        raise TypeError(f"{what} must be callable as `{call}`, but its signature is {signature}.") from error


def check_function(value: Any, name: str, of: str) -> Any:
    """Checks a function that programs are compiled for, and returns it.

    Args:
        value: The function.
        name: The argument's name.
        of: The argument of the function, for the message.

    Raises:
        TypeError: If it is not a function or cannot be hashed.
    """
    if not callable(value):
        raise TypeError(f"`{name}` must be a function of {of}, but is {value!r}.")
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"`{name}` must be hashable, like a plain function, but is {value!r}.") from None
    return value


def check_function_of_state(value: Any, name: str, of: str) -> Any:
    """Checks a function of the state that programs are compiled for, and returns it with a hash.

    A method of a model, such as `model.energy`, has no hash, and gets one from the model's numbers.

    Args:
        value: The function.
        name: The argument's name.
        of: The argument of the function, for the message.

    Raises:
        TypeError: If it is not a function of one argument, or cannot be hashed because it holds traced values.
    """
    if callable(value):
        check_call(value, f"{name}(y)", f"`{name}`")
    arrays, static = eqx.partition(value, eqx.is_array)
    if callable(value) and jax.tree.leaves(arrays) and all(map(concrete, jax.tree.leaves(arrays))):
        return _FunctionOfNumbers(value, static, arrays)
    return check_function(value, name, of)


def check_closed(value: Callable, name: str, y0: PyTree[Array]) -> None:
    """Checks that a function of the state depends on no other value that JAX traces.

    Raises:
        TypeError: If it does.
    """
    if not all(map(concrete, jax.make_jaxpr(value)(y0).consts)):
        raise TypeError(
            f"`{name}` depends on values that JAX traces, such as a model's parameters under `jax.grad` or `jax.jit`, "
            "and custom derivative rules cannot access them. Use `adjoint=sciml.adjoints.Direct()`, with which JAX "
            f"differentiates the steps themselves, or make `{name}` depend only on the state and on constants."
        )


class _FunctionOfNumbers:
    """A function that holds known arrays, equal to others that hold the same."""

    def __init__(self, function: Any, static: PyTree, arrays: PyTree):
        self._function = function
        leaves, treedef = jax.tree.flatten(arrays)
        numbers = tuple((x.shape, x.dtype.name, np.asarray(x).tobytes()) for x in leaves)
        self._key = (jax.tree.structure(static), tuple(jax.tree.leaves(static)), treedef, numbers)

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _FunctionOfNumbers) and self._key == other._key


def least_rtol(dtype: Any) -> float:
    """Returns the smallest relative tolerance that a dtype can resolve."""
    return 2 * float(jnp.finfo(dtype).eps)


def check_tolerance(value: Any, name: str, y0: PyTree[Array], dtype: Any) -> PyTree[Array]:
    """Returns a tolerance as arrays: one that serves all leaves of the state, or one for each.

    Raises:
        ValueError: If it is known and negative or not finite, or below the resolution of the dtype, or does not fit the
            structure or shape of the state.
        TypeError: If it contains values that are not numbers.
    """
    leaves = jax.tree.leaves(value)
    states = jax.tree.leaves(y0)
    one = jax.tree_util.all_leaves([value])
    if not one and jax.tree.structure(value) != jax.tree.structure(y0):
        raise ValueError(
            f"`{name}` must be a number, an array, or a PyTree with the structure of `y0`, "
            f"{structure_words(y0)}, but is {structure_words(value)}.{first_difference(y0, value)}"
        )
    for tolerance, state in zip(leaves * len(states) if one else leaves, states):
        shape = np.shape(tolerance)
        if not hasattr(tolerance, "dtype") and not isinstance(tolerance, int | float):
            raise TypeError(f"`{name}` must be a number, an array, or a PyTree of them, but is {tolerance!r}.")
        if shape != () and shape != state.shape:
            raise ValueError(
                f"`{name}` must be a scalar or have the state's shape {state.shape}, but has shape {shape}."
            )
        if not concrete(tolerance):
            continue
        tolerance = np.asarray(tolerance)  # JAX would trace `np.min` of an array of its own in a loop
        smallest = float(np.min(tolerance))
        if not np.all(np.isfinite(tolerance)) or smallest < 0:
            raise ValueError(f"`{name}` must be finite and not negative, but is {tolerance}.")
        finfo = jnp.finfo(state.dtype)
        least = least_rtol(state.dtype)
        if name == "rtol" and smallest < least:
            wider = ", or compute in float64 (`jax.config.update('jax_enable_x64', True)`)"
            helps = smallest >= least_rtol(jnp.float64)
            raise ValueError(
                f"`rtol` is {smallest:.3g}, below what {state.dtype} can resolve: at least {least:.2g}. "
                f"Loosen it{wider if helps else ''}."
            )
        if name == "atol" and 0 < smallest < float(finfo.tiny):
            raise ValueError(
                f"`atol` is {smallest:.3g}, below what {state.dtype} can resolve: at least {float(finfo.tiny):.2g}, "
                "or 0."
            )
    if name == "atol":
        # an element that is zero exactly, and stays so, has no error: 0 / 0 must not be one
        value = jax.tree.map(lambda x: _at_least(x, float(jnp.finfo(dtype).tiny) ** 0.5), value)
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), value)


def _at_least(x: Any, least: float) -> Any:
    return np.where(np.asarray(x) == 0, least, x) if concrete(x) else jnp.where(x == 0, least, x)


def known_times(ts: Any) -> np.ndarray:
    """Returns times that are known, an array or a list of numbers, in float64 on the host."""
    return np.asarray([np.float64(t) for t in ts] if isinstance(ts, list | tuple) else ts, np.float64)


_AS_TIMES = (
    "an array or a list of real numbers, such as `saveat=[0.5]` or `saveat=jnp.linspace(t0, t1, 11)`, or a "
    "`diffrax.SaveAt`, such as `SaveAt(steps=True)` for each step"
)


def _check_are_times(ts: Any) -> None:
    """Checks that these are real numbers, and more than one number.

    Raises:
        ValueError: If it is a number by itself.
        TypeError: If it is neither an array nor a list of real numbers.
    """
    if _is_real(ts):
        got, one = (f"the number {ts}", ts) if concrete(ts) else ("a traced number", "t")
        raise ValueError(
            f"`saveat` must be times of shape (times,), but is {got}. Write `saveat=[{one}]` for that single time, or "
            "an array of times such as `saveat=jnp.linspace(t0, t1, 11)`."
        )
    if isinstance(ts, list | tuple) or (isinstance(ts, np.ndarray) and ts.dtype == object and ts.ndim == 1):
        for i, t in enumerate(ts):
            if not _is_real(t):
                raise TypeError(f"`saveat[{i}]` must be a time, one real number, but is {t!r:.60}.")
    elif not isinstance(ts, range) and not (hasattr(ts, "__array__") and _holds_reals(ts)):
        got = f"an array of dtype {ts.dtype}" if isinstance(ts, jax.Array | np.ndarray) else f"{ts!r:.60}"
        raise TypeError(f"`saveat` must be {_AS_TIMES}, but is {got}.")


def _is_real(x: Any) -> bool:
    if hasattr(x, "dtype"):
        return np.ndim(x) == 0 and _holds_reals(x)
    return isinstance(x, numbers.Real | decimal.Decimal) and not isinstance(x, bool)


def _holds_reals(x: Any) -> bool:
    dtype = x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
    return any(jnp.issubdtype(dtype, kind) for kind in (np.integer, np.floating))


def check_saved_times(ts: Any, t0: Any, t1: Any, dtype: Any) -> Array:
    """Returns saved times as an array of shape `(times,)`.

    Raises:
        ValueError: If they are empty, not one-dimensional, or known and not finite, not sorted in the
            direction of time, or outside of `[t0, t1]`.
        TypeError: If they are not real numbers.
    """
    _check_are_times(ts)
    if isinstance(ts, list | tuple):
        known = all(map(concrete, ts))
        ts = known_times(ts) if known or not ts else jnp.stack([jnp.asarray(t, dtype) for t in ts])
    elif not hasattr(ts, "dtype") or ts.dtype == object:
        ts = known_times(ts)
    shape = np.shape(ts)
    if len(shape) != 1 or shape[0] == 0:
        flat = "; write `saveat=ts.reshape(-1)`" if len(shape) > 1 else ""
        raise ValueError(f"`saveat` must have shape (times,) with at least one time, but has shape {shape}{flat}.")
    if all(map(concrete, (ts, t0, t1))):
        times, start, end = np.asarray(ts, np.float64), float(t0), float(t1)
        if not np.all(np.isfinite(times)):
            raise ValueError("`saveat` must be finite, but contains NaN or infinity.")
        slack = 4 * float(jnp.finfo(dtype).eps) * max(abs(start), abs(end))
        low, high = min(start, end), max(start, end)
        if times.min() < low - slack or times.max() > high + slack:
            raise ValueError(
                f"`saveat` must be within [t0, t1] = [{start}, {end}], but ranges from {times.min()} to {times.max()}."
            )
        if np.any(back := np.diff(times) * (1 if end > start else -1) < 0):
            order = "ascending" if end > start else "descending, because t1 < t0"
            i = int(np.argmax(back))
            raise ValueError(f"`saveat` must be sorted, {order}, but {times[i]:g} comes before {times[i + 1]:g}.")
    return jnp.asarray(ts, dtype)


def check_max_steps(max_steps: Any) -> int:
    """Returns the limit on steps.

    Raises:
        ValueError: If it is not a positive integer.
    """
    if isinstance(max_steps, bool) or not isinstance(max_steps, int | np.integer) or max_steps <= 0:
        raise ValueError(f"`max_steps` must be a positive integer, but is {max_steps!r}.")
    return int(max_steps)


def check_key(key: Any, where: str) -> Array:
    """Returns a random key as an array.

    Raises:
        TypeError: If it is not one.
    """
    is_array = isinstance(key, jax.Array | np.ndarray)
    if not is_array or not (jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.dtype == np.uint32):
        raise TypeError(
            f"`{where}`: `key` must be a random key such as `jax.random.key(0)`, but is {key!r}"
            + (f": did you mean `jax.random.key({key})`?" if isinstance(key, int) else ".")
        )
    return jnp.asarray(key)


def check_count(value: Any, name: str, where: str) -> int:
    """Returns a positive number of things, the argument `name` of `where`.

    Raises:
        TypeError: If it is not an integer.
        ValueError: If it is not positive.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"`{where}({name}=...)` must be a positive integer, but is {value!r}.")
    if value <= 0:
        raise ValueError(f"`{where}({name}=...)` must be a positive integer, but is {value}.")
    return int(value)


def check_order(order: Any, allowed: Collection[int], name: str) -> int:
    """Returns an order of accuracy, the argument `order` of `name`.

    Raises:
        ValueError: If it is not one of those allowed.
    """
    if order not in allowed:
        raise ValueError(f"`{name}(order=...)` must be one of {', '.join(map(str, allowed))}, but is {order!r}.")
    return int(order)
