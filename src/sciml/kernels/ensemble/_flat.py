"""A member's function as a program on arrays that are all alike: a lane for each member, only elementwise work.

A kernel keeps a member's state in registers, one element in each, and cannot index, stack or reduce there.
`kernels._lanes` takes these apart when the function is traced; what it leaves is rewritten for one kind of device:
calls are opened, integers have 32 bits, the device's own branch is taken where a program has one for each, and
what the device's compiler lacks is composed of what it has.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._jax._interpreters import ClosedJaxpr, Jaxpr
from ..._jax._vma import struct
from ..._jax.programs import _names as names, evaluate, without_unused
from .._lanes._interpret import evaluate as evaluate_over_lanes, is_value, trace
from .._lanes._values import Unstacked, object_array
from .._lowered import LOWERED
from ._polyfills import POLYFILLS

_COUNT = 128  # lanes to trace with; the program is then rewritten for the shape that a kernel has

_PLATFORMS = {"mosaic_gpu": "cuda", "mosaic_tpu": "tpu"}

_FLOATS = {"mosaic_gpu": ("float32", "float64"), "mosaic_tpu": ("float32",)}

_CALLS = ("jaxpr", "call_jaxpr")

_SAME = names.IDENTITIES | {"optimization_barrier", "stop_gradient"}
"""Primitives that change nothing in a kernel."""


_COMPOSED = {"mosaic_gpu": frozenset(), "mosaic_tpu": frozenset(("sign",))}
"""Primitives that are lowered and composed of others all the same: JAX 0.12 asks for these which TPU there is."""


class NotSupportedError(ValueError):
    """Says what of a member's function a kernel does not support."""


class Flat(NamedTuple):
    """A function of one member over lanes, called with its arguments' elements in order, each an array of lanes.

    Attributes:
        jaxpr: The program.
        out: Shapes and dtypes of the member's results.
    """

    jaxpr: ClosedJaxpr
    out: PyTree

    def __call__(self, *elements: Array, pin: Callable[[Array], Array]) -> list[Array]:
        """Returns the elements of the results; `pin` is applied to arrays of constants."""

        def pinned(eqn: Any, inputs: list[Any]) -> list[Any]:
            out = eqn.primitive.bind(*inputs, **eqn.params)
            return [pin(out) if eqn.primitive.name == "broadcast_in_dim" else out]

        return evaluate(self.jaxpr.jaxpr, elements, pinned, _number)


def flatten(
    function: Callable, *args: PyTree, lanes: tuple[int, ...], kernel: str, axes: frozenset = frozenset()
) -> Flat:
    """Returns a member's function as a kernel's program.

    Args:
        function: A function of one member's arrays.
        args: Its arguments' shapes and dtypes.
        lanes: The shape of lanes in the kernel.
        kernel: The kernel's name.
        axes: The manual mesh axes over which members vary, for which the model may have been traced.

    Raises:
        NotSupportedError: If the kernel does not support it.
    """
    found: dict[str, Any] = {}
    reasons: dict[str, str] = {}

    def member(*elements: Array) -> list[Array]:
        rest = iter(elements)
        values = jax.tree.map(
            lambda s: Unstacked(object_array([next(rest) for _ in range(math.prod(s.shape))], s.shape), s.dtype), args
        )
        program, structure = trace(function, *values)
        out = evaluate_over_lanes(program, jax.tree.leaves(values, is_leaf=is_value), _COUNT, reasons.__setitem__)
        found["out"] = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in out])
        values = [v for v in out if isinstance(v, Unstacked)]
        if "reshard" in reasons:
            raise NotSupportedError(
                "the model places arrays on a mesh of devices (`reshard`), as for a NamedSharding of members. Map the "
                "members over devices by `jax.shard_map(..., check_vma=False)`, or use `impl='xla'`"
            )
        if reasons or len(values) < len(out):
            said = ", ".join(f"{name} ({reason})" for name, reason in sorted(reasons.items()))
            raise NotSupportedError(f"the model uses {said or 'arrays too large to take apart element by element'}")
        return [jnp.broadcast_to(jnp.asarray(x, v.dtype), (_COUNT,)) for v in values for x in v.elements.reshape(-1)]

    given = elements_of(args)
    traced = jax.make_jaxpr(member)(*(struct((_COUNT,), dtype, axes) for dtype in given))
    # what no result needs may use what the kernel does not support
    used = without_unused(traced.jaxpr)
    rewriting = _Rewriting(kernel, lanes)
    inputs = [jax.ShapeDtypeStruct(lanes, rewriting.dtype(dtype)) for dtype in given]
    rewriting.check()
    closed = jax.make_jaxpr(lambda *xs: rewriting.run(used, traced.consts, xs))(*inputs)
    rewriting.check()
    return Flat(closed, found["out"])


def _number(literal: Any) -> Any:
    return np.asarray(literal.val, literal.aval.dtype)[()]


def elements_of(tree: PyTree) -> list[Any]:
    """Returns the dtype of every element of the leaves in order."""
    return [leaf.dtype for leaf in jax.tree.leaves(tree) for _ in range(math.prod(leaf.shape))]


def kernel_dtype(kernel: str, dtype: Any) -> np.dtype | None:
    """Returns the dtype that a kernel has for numbers of a dtype; None where it has none."""
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return None
    dtype = np.dtype(dtype)
    if dtype in (np.bool_, np.uint32) or dtype.name in _FLOATS[kernel]:
        return dtype
    return np.dtype(np.int32) if np.issubdtype(dtype, np.signedinteger) else None


class _Rewriting:
    """Runs a program over lanes by what one kind of device can do."""

    def __init__(self, kernel: str, lanes: tuple[int, ...]):
        self.kernel, self.lanes = kernel, lanes
        self.missing: set[str] = set()
        self._filled: dict[tuple[str, bytes], Any] = {}

    def check(self) -> None:
        """Raises an error that names what was missing."""
        if self.missing:
            uses = ", ".join(sorted(self.missing))
            raise NotSupportedError(f"the model uses {uses}, which the kernel does not support")

    def dtype(self, dtype: Any) -> np.dtype:
        """Returns the dtype that the kernel has for numbers of a dtype."""
        found = kernel_dtype(self.kernel, dtype)
        if found is None:
            self.missing.add(f"numbers of dtype {dtype}")
        return np.dtype(np.float32) if found is None else found

    def run(self, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        """Returns the program's results, each over all lanes."""
        return [self._spread(x) for x in self._run(jaxpr, consts, args)]

    def _run(self, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        values = [*map(self._constant, consts), *args]
        return evaluate(jaxpr, values, self._equation, lambda literal: self._constant(_number(literal)))

    def _constant(self, value: Any) -> Any:
        if np.ndim(value):
            self.missing.add(f"an array of shape {np.shape(value)}")
            value = np.asarray(value).reshape(-1)[0]
        return self.dtype(value.dtype).type(value)

    def _spread(self, x: Any) -> Any:
        if np.ndim(x):
            return x
        key = x.dtype.name, x.tobytes()
        if key not in self._filled:
            self._filled[key] = jax.lax.full(self.lanes, x, x.dtype)
        return self._filled[key]

    def _equation(self, eqn: Any, inputs: list[Any]) -> list[Any]:
        name, params = eqn.primitive.name, eqn.params
        if name in _SAME:
            return inputs
        if name == "platform_index":
            return [np.int32(0)]  # its branch is told by its name
        if name == "cond" and params.get("branches_platforms"):
            branches = dict(
                (platform, branch)
                for platforms, branch in zip(params["branches_platforms"], params["branches"])
                for platform in (platforms or (None,))
            )
            chosen = branches.get(_PLATFORMS[self.kernel], branches.get(None))
            if chosen is not None:
                return self._run(chosen.jaxpr, chosen.consts, inputs[1:])
        inner = next((params[key] for key in _CALLS if key in params), None)
        if inner is not None and name not in ("while", "scan"):
            closed = isinstance(inner, ClosedJaxpr)
            return self._run(inner.jaxpr if closed else inner, inner.consts if closed else (), inputs)
        if name == "broadcast_in_dim":  # numbers stay numbers until they meet lanes
            return inputs[:1]
        if name == "convert_element_type":
            return [jax.lax.convert_element_type(inputs[0], self.dtype(params["new_dtype"]))]
        if name == "not" and self.kernel == "mosaic_gpu" and eqn.outvars[0].aval.dtype == np.bool_:
            return [jax.lax.bitwise_xor(self._spread(inputs[0]), self._spread(np.bool_(True)))]  # its rule fails
        if name in LOWERED[self.kernel] - _COMPOSED[self.kernel]:
            return [eqn.primitive.bind(*map(self._spread, inputs), **params)]
        if name in POLYFILLS:
            arrays = list(map(self._spread, inputs))
            closed = jax.make_jaxpr(lambda *xs: POLYFILLS[name](*xs, **params))(*arrays)
            return self._run(closed.jaxpr, closed.consts, arrays)
        self.missing.add(name)
        return [jax.lax.full(self.lanes, 0, self.dtype(v.aval.dtype)) for v in eqn.outvars]
