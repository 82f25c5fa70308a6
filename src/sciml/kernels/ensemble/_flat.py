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
                "the model places arrays on a mesh of devices (`reshard`), for example for a NamedSharding of "
                "members. Map the members over devices with `jax.shard_map(..., check_vma=False)`, or use "
                "`sciml.kernels.use('xla')`"
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
        """Raises an error that names the missing operations."""
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


# Operations that a compiler lacks, composed of operations that every compiler has.
#
# Accuracy is the accuracy of the dtype, a few units in the last place, except for `pow`, whose relative error is about
# $|b \log a|$ units for $a^b$, and for `erfc`, which is absent because its small values would be lost.


# The inverse of the error function by polynomials, which no compiler of kernels has.
#
# It is $x \, p(w)$ with $w = -\log(1 - x^2)$, for each range of $w$ a polynomial in $w$ or $\sqrt w$ about its centre.
# The relative error is some units in the last place, and as many more as $1 - x^2$ is rounded by; XLA's polynomials are
# the same.
#
# Source:
#     M. Giles, Approximating the erfinv function, GPU Computing Gems Jade Edition (2012) 109.
class _Piece(NamedTuple):
    """A polynomial for a range of `w`; its coefficients begin with the highest power."""

    end: float
    of_root: bool
    centre: float
    coefficients: tuple[float, ...]


# fmt: off
_PIECES = {
    "float32": (
        _Piece(
            5.0, False, 2.5, (
                2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
                -0.00417768164, 0.246640727, 1.50140941,
            ),
        ),
        _Piece(
            math.inf, True, 3.0, (
                -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
                0.00943887047, 1.00167406, 2.83297682,
            ),
        ),
    ),
    "float64": (
        _Piece(
            6.25, False, 3.125, (
                -3.6444120640178196996e-21, -1.685059138182016589e-19, 1.2858480715256400167e-18,
                1.115787767802518096e-17, -1.333171662854620906e-16, 2.0972767875968561637e-17,
                6.6376381343583238325e-15, -4.0545662729752068639e-14, -8.1519341976054721522e-14,
                2.6335093153082322977e-12, -1.2975133253453532498e-11, -5.4154120542946279317e-11,
                1.051212273321532285e-09, -4.1126339803469836976e-09, -2.9070369957882005086e-08,
                4.2347877827932403518e-07, -1.3654692000834678645e-06, -1.3882523362786468719e-05,
                0.0001867342080340571352, -0.00074070253416626697512, -0.0060336708714301490533,
                0.24015818242558961693, 1.6536545626831027356,
            ),
        ),
        _Piece(
            16.0, True, 3.25, (
                2.2137376921775787049e-09, 9.0756561938885390979e-08, -2.7517406297064545428e-07,
                1.8239629214389227755e-08, 1.5027403968909827627e-06, -4.013867526981545969e-06,
                2.9234449089955446044e-06, 1.2475304481671778723e-05, -4.7318229009055733981e-05,
                6.8284851459573175448e-05, 2.4031110387097893999e-05, -0.0003550375203628474796,
                0.00095328937973738049703, -0.0016882755560235047313, 0.0024914420961078508066,
                -0.0037512085075692412107, 0.005370914553590063617, 1.0052589676941592334, 3.0838856104922207635,
            ),
        ),
        _Piece(
            math.inf, True, 5.0, (
                -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,
                -3.7894654401267369937e-09, 7.6157012080783393804e-09, -1.4960026627149240478e-08,
                2.9147953450901080826e-08, -6.7711997758452339498e-08, 2.2900482228026654717e-07,
                -9.9298272942317002539e-07, 4.5260625972231537039e-06, -1.9681778105531670567e-05,
                7.5995277030017761139e-05, -0.00021503011930044477347, -0.00013871931833623122026,
                1.0103004648645343977, 4.8499064014085844221,
            ),
        ),
    ),
}
# fmt: on


def erf_inv(x: Array) -> Array:
    """Returns the inverse of the error function, for float32 and float64."""
    w = -jnp.log1p(-x * x)
    found, start = None, 0.0
    for piece in _PIECES[x.dtype.name]:
        at = (jnp.sqrt(w) if piece.of_root else w) - piece.centre
        value = jnp.full_like(x, piece.coefficients[0])
        for coefficient in piece.coefficients[1:]:
            value = coefficient + value * at
        found = value if found is None else jnp.where(w < start, found, value)
        start = piece.end
    return jnp.where(jnp.abs(x) == 1, x * jnp.full_like(x, np.inf), found * x)


_ONE_VANISHES_FROM = 1e8  # whose square is the same with one added
_LOG_2 = math.log(2)


def _like(x: Array, value: float) -> Array:
    return jnp.full_like(x, value)


def _is_finite(x: Array) -> Array:
    return jnp.abs(x) < _like(x, np.inf)


def _sqrt(x: Array, **_: Any) -> Array:
    inverse = jax.lax.rsqrt(x)
    root = x * inverse
    root = root + 0.5 * inverse * (x - root * root)  # hardware's inverse root is not correctly rounded
    return jnp.where((x == 0) | (x == np.inf), x, root)


def _log1p(x: Array, **_: Any) -> Array:
    near = jnp.abs(x) < 0.5
    ratio = x / jnp.where(near, 2 + x, _like(x, 1))  # log(1 + x) = 2 artanh(x / (2 + x))
    square = ratio * ratio
    terms = 17 if x.dtype == np.float64 else 8
    total = _like(x, 1 / (2 * terms + 1))
    for k in reversed(range(terms)):
        total = 1 / (2 * k + 1) + square * total
    return jnp.where(near, 2 * ratio * total, jnp.log(1 + x))


def _expm1(x: Array, **_: Any) -> Array:
    up = jnp.exp(x)
    known = (up == 1) | (up == 0)
    small = (up - 1) * (x / jnp.log(jnp.where(known, _like(x, 2), up)))
    small = jnp.where(up == 1, x, jnp.where(up == 0, _like(x, -1), small))
    return jnp.where(x > 1, up - 1, small)


def _pow(x: Array, y: Array) -> Array:
    if jnp.issubdtype(y.dtype, jnp.integer):
        odd = jax.lax.rem(y, _int(y, 2)) != 0
        y, whole = y.astype(x.dtype), y == y
    else:
        floor = _floor(y)
        whole, odd = floor == y, _floor(0.5 * y) * 2 != y
    size = jnp.exp(y * jnp.log(jnp.abs(x)))
    size = jnp.where(y == 0, _like(x, 1), size)
    signed = jnp.where(whole, jnp.where(odd, -size, size), _like(x, np.nan))
    return jnp.where(x < 0, signed, size)


def _int(like: Array, value: int) -> Array:
    return jnp.full_like(like, value)


def _truncated(x: Array) -> Array:
    def cut(x: Array) -> Array:
        return x.astype(np.int32).astype(x.dtype)

    small = jnp.abs(x) < 2.0 ** jnp.finfo(x.dtype).nmant  # what is larger has no fraction
    inside = jnp.where(small, x, _like(x, 0))
    if x.dtype == np.float32:
        return jnp.where(small, cut(inside), x)
    high = cut(inside * 2.0**-26) * 2.0**26
    return jnp.where(small, high + cut(inside - high), x)


def _floor(x: Array) -> Array:
    cut = _truncated(x)
    return cut - jnp.where(cut > x, _like(x, 1), _like(x, 0))


def _ceil(x: Array) -> Array:
    return -_floor(-x)


def _rem(x: Array, y: Array) -> Array:
    return x - y * _truncated(x / y)


def _sinh(x: Array) -> Array:
    grown = jnp.expm1(jnp.abs(x))
    rest = jnp.where(grown > 1, 1 - 1 / (grown + 1), grown / (1 + jnp.where(grown > 1, _like(x, 0), grown)))
    return jnp.sign(x) * 0.5 * (grown + rest)


def _cosh(x: Array) -> Array:
    grown = jnp.exp(jnp.abs(x))
    return 0.5 * (grown + 1 / grown)


def _asinh(x: Array) -> Array:
    size = jnp.abs(x)
    small = jnp.where(size > _ONE_VANISHES_FROM, _like(x, 1), size)
    near = jnp.log1p(small + small * small / (1 + jnp.sqrt(small * small + 1)))
    return jnp.sign(x) * jnp.where(size > _ONE_VANISHES_FROM, jnp.log(size) + _LOG_2, near)


def _acosh(x: Array) -> Array:
    small = jnp.where(x > _ONE_VANISHES_FROM, _like(x, 1), x)
    near = jnp.log1p((small - 1) + jnp.sqrt((small - 1) * (small + 1)))
    return jnp.where(x > _ONE_VANISHES_FROM, jnp.log(x) + _LOG_2, near)


def _asin(x: Array, **_: Any) -> Array:
    return jnp.atan2(x, jnp.sqrt((1 - x) * (1 + x)))


def _acos(x: Array, **_: Any) -> Array:
    return jnp.atan2(jnp.sqrt((1 - x) * (1 + x)), x)


def _cbrt(x: Array, **_: Any) -> Array:
    size = jnp.where(x == 0, _like(x, 1), jnp.abs(x))
    root = jnp.exp(jnp.log(size) * (1 / 3))
    root = root - (root - size / (root * root)) * (1 / 3)
    return jnp.where(x == 0, x, jnp.sign(x) * root)


def _round(x: Array, rounding_method: Any) -> Array:
    near = _floor(x + 0.5) if rounding_method == jax.lax.RoundingMethod.TO_NEAREST_EVEN else _floor(jnp.abs(x) + 0.5)
    if rounding_method != jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        return jnp.sign(x) * near
    tie = (near - x == 0.5) & (_floor(0.5 * near) * 2 != near)  # half way, and up to an odd number
    return jnp.where(tie, near - 1, near)


POLYFILLS: dict[str, Callable[..., Array]] = {
    "acos": _acos,
    "acosh": _acosh,
    "add_any": jnp.add,
    "asin": _asin,
    "asinh": _asinh,
    "atan": lambda x, **_: jnp.atan2(x, _like(x, 1)),
    "atanh": lambda x: 0.5 * (jnp.log1p(x) - jnp.log1p(-x)),
    "cbrt": _cbrt,
    "ceil": _ceil,
    "cosh": _cosh,
    "erf_inv": erf_inv,
    "expm1": _expm1,
    "floor": _floor,
    "is_finite": _is_finite,
    "log1p": _log1p,
    "pow": _pow,
    "rem": _rem,
    "round": _round,
    "sign": lambda x: jnp.where(x > 0, _like(x, 1), jnp.where(x < 0, _like(x, -1), x)),
    "sinh": _sinh,
    "sqrt": _sqrt,
    "tan": lambda x, **_: jnp.sin(x) / jnp.cos(x),
}
"""For each primitive a function that computes it; may use others of these."""
