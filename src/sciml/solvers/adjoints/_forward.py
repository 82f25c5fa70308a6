r"""`Forward`: the derivatives by a few parameters, computed alongside the solution.

The rule of `Forward`: the Jacobian of an integration, column by column, and its products.

Let $S = \partial y / \partial x$ be the derivatives of all saved states by the numbers $x$ that have a tangent. Its
columns are tangents of the loop itself, pushed along unit vectors while the loop runs once; the columns of saved times
are the slopes of the solution there. JAX then sees a linear map $\dot y = S \dot x$ with a known matrix, whose
transpose $\bar x = S^T \bar y$ it finds itself. Rows of states that a failed member did not reach are special: $\dot y$
is NaN there, and $\bar x$ is NaN only where $\bar y$ is not zero.
"""

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero, zero_from_primal
from jaxtyping import Array, PyTree

from ..._checks import check_count
from ..._jax._ad_modes import forward_only
from ..._jax._checkpoint_levels import NOTHING
from ..._jax._interpreters import Primitive, ad, batching, mlir
from ..._jax._vma import match, promote
from ...kernels._lanes import Lanes, Unbatched, batched
from ..events._event_state import joined, saved_part
from ..integrate._abstract import AbstractLoop
from ..integrate._integrator import Operands
from ..integrate._result import Result, states_of, with_states
from ._abstract import AbstractAdjoint
from ._discrete_rule import differentiable_parts, enter
from ._no_length import with_rates_by_times


def without_unreached(rate: Array, unreached: Array) -> Array:
    """Returns a tangent, NaN in unreached states; its transpose is NaN where such a state is used, else zero."""
    rate, unreached = promote((rate, unreached))
    return _without_unreached.bind(rate, unreached)


def _nan_where(rate, unreached):
    return jnp.where(unreached, jnp.full_like(rate, jnp.nan), rate)


def _jvp_without(primals, tangents):
    rate, unreached = primals
    rate_dot, _ = tangents
    zero = type(rate_dot) is ad.Zero
    return _without_unreached.bind(rate, unreached), rate_dot if zero else _without_unreached.bind(rate_dot, unreached)


def _transpose_without(cotangent, rate, unreached):
    if type(cotangent) is ad.Zero:
        return [None, None]
    used = jnp.where(cotangent != 0, jnp.full_like(cotangent, jnp.nan), jnp.zeros_like(cotangent))
    return [jnp.where(unreached, used, cotangent), None]


def _batch_without(args, dims):
    size = next(x.shape[d] for x, d in zip(args, dims) if d is not None)
    first = [jnp.broadcast_to(x, (size, *x.shape)) if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(args, dims)]
    return _without_unreached.bind(*promote(first)), 0


# a primitive, because its transpose differs from the transpose of the `jnp.where` that it computes: see
# `_transpose_without`
_without_unreached = Primitive("without_unreached")
_without_unreached.def_impl(_nan_where)
_without_unreached.def_abstract_eval(lambda rate, unreached: rate)
ad.primitive_jvps[_without_unreached] = _jvp_without
ad.primitive_transposes[_without_unreached] = _transpose_without
batching.primitive_batchers[_without_unreached] = _batch_without
mlir.register_lowering(_without_unreached, mlir.lower_fun(_nan_where, multiple_results=False))


def run_with_sensitivities(loop: AbstractLoop, y0: PyTree, operands: Operands, times: bool, limit: int) -> Result:
    """Runs an integration whose derivatives are computed alongside; under `jax.vmap`, over lanes.

    Args:
        loop: The loop to run.
        y0: The initial state.
        operands: The inputs of the integration.
        times: Whether t0, t1 and saved times are differentiated.
        limit: The most columns.

    Raises:
        ValueError: If more numbers than that are differentiated.
    """
    setting = _Setting.of(loop, y0, operands, times)

    @jax.custom_jvp
    def solve(*leaves):
        return setting.over_members(setting.plain)(*leaves)

    def jvp(leaves, tangents):
        given = tuple(type(t) is not SymbolicZero for t in tangents)
        perturbed = tuple(f and g for f, g in zip(setting.free, given))
        total = sum(_count(x.shape, x.dtype) for x, m in zip(leaves, perturbed) if m)
        if total > limit:
            raise ValueError(
                f"`adjoint=Forward()` carries a column for each differentiated parameter, here {total}, more than "
                f"`limit`={limit}. Use `sciml.adjoints.Checkpointed()` instead."
            )
        sloped = times and any(s and g for s, g in zip(setting.is_saves, given))
        columns = setting.over_members(_Columns(setting, perturbed, sloped).run)
        (result, slopes), matrix = columns(*forward_only(leaves, _REVERSE_TWICE))
        rates, kept = jax.tree.map(jnp.zeros_like, states_of(result))
        if total:
            v = [_reals(t) for t, m in zip(tangents, perturbed) if m]
            rates, kept = jax.tree.map(lambda s: _product(v, s), matrix)
        unreached = jax.tree.map(lambda y: jnp.isnan(y) & (result.status != 0), result.ys)
        if sloped:
            (time,) = (t for t, s in zip(tangents, setting.is_saves) if s)
            slopes = jax.tree.map(lambda s, m: jnp.where(m, jnp.zeros_like(s), s), slopes, saved_part(unreached))
            rates = joined(jax.tree.map(lambda r, s: r + _along(time, s), *promote((saved_part(rates), slopes))), rates)
        rates = jax.tree.map(without_unreached, rates, unreached)
        # only the states of a result have a derivative: counts, status and the time reached have none
        zeros = jax.tree.map(lambda x: zero_from_primal(x, symbolic_zeros=True), result)
        return result, with_states(zeros, (rates, kept))

    solve.defjvp(jvp, symbolic_zeros=True)
    return solve(*promote(jax.tree.leaves((y0, operands))))


class _Setting(NamedTuple):
    """The values that do not depend on the differentiated parameters.

    Attributes:
        loop: The loop, for any number of lanes.
        treedef: The structure of the initial state and the operands, whose leaves the functions take.
        free: The leaves with respect to which a derivative can be requested.
        is_saves: The leaf that holds the saved times.
        shapes: The shapes of one member's leaves.
        state_bytes: The size of one member's state.
    """

    loop: AbstractLoop
    treedef: Any
    free: list[bool]
    is_saves: list[bool]
    shapes: list[tuple[int, ...]]
    state_bytes: int

    @classmethod
    def of(cls, loop: AbstractLoop, y0: PyTree, operands: Operands, times: bool) -> "_Setting":
        """Returns the setting of a solve."""
        leaves, treedef = jax.tree.flatten((y0, operands))
        free = jax.tree.leaves((jax.tree.map(lambda _: True, y0), differentiable_parts(operands, times)))
        nothing = jax.tree.map(lambda _: False, (y0, operands))
        saves = None if operands.saves is None else True
        is_saves = jax.tree.leaves((nothing[0], nothing[1]._replace(saves=saves)))
        state_bytes = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(y0))
        return cls(loop, treedef, free, is_saves, [x.shape for x in leaves], state_bytes)

    def enter(self, loop: AbstractLoop, count: int | None, flags: Any, leaves: Any) -> tuple:
        """Returns a loop over lanes, and initial state, operands and saves as lane values."""
        inputs, flags = jax.tree.unflatten(self.treedef, leaves), jax.tree.unflatten(self.treedef, flags)
        engine = Unbatched() if self.keeps_rules else Lanes(count)
        return enter(loop, engine, flags, inputs, self.state_bytes, NOTHING)

    @property
    def keeps_rules(self) -> bool:
        """Whether the members are left to JAX, which knows the derivative rules that functions of the model have.

        Over lanes those functions are taken apart into their arithmetic, whose derivative may be another.
        """
        return self.loop.integrator.field.has_rules

    def over_members(self, fn: Callable) -> Callable:
        """Returns `fn(count, flags, *leaves)` as a function of one member's leaves, which `jax.vmap` runs for many."""
        if not self.keeps_rules:
            return batched(fn)
        return lambda *leaves: fn(None, (False,) * len(leaves), *leaves)

    def plain(self, count: int | None, flags: Any, *leaves: Array) -> Result:
        """Returns the result, as members share the loop."""
        here, *values = self.enter(self.loop, count, flags, leaves)
        return here.forward(*values)


class _Columns(NamedTuple):
    """The result, the matrix's columns, and the slopes at the saved times.

    Attributes:
        setting: The solve.
        perturbed: By which leaves it is differentiated (JAX's word).
        sloped: Whether to differentiate with respect to the saved times as well.
    """

    setting: _Setting
    perturbed: tuple[bool, ...]
    sloped: bool

    def run(self, count: int | None, flags: Any, *leaves: Array) -> tuple:
        """Returns `((result, slopes), matrix)`."""
        if not any(self.perturbed):
            return self._integrate(count, flags, leaves), None
        if count is not None and self._alongside(leaves):
            found = self._of_members(count, flags, leaves)
            if found is not None:
                return found
        return self._by_columns(count, flags, leaves)

    def _alongside(self, leaves: Any) -> bool:
        # all that steps are made from is constant there, but for the state and the vector field's operands, and each
        # column belongs to a real number
        _, operands = jax.tree.unflatten(self.setting.treedef, self.perturbed)
        others = jax.tree.leaves(operands._replace(field=None, saves=None))
        refused = self.setting.keeps_rules or self.sloped or any(others)
        return not refused and not any(map(jnp.iscomplexobj, [x for x, m in zip(leaves, self.perturbed) if m]))

    def _enter(self, count: int | None, flags: Any, leaves: Any) -> tuple:
        return self.setting.enter(self.setting.loop.lockstep, count, flags, leaves)

    def _integrate(self, count: int | None, flags: Any, leaves: Any) -> tuple[Result, PyTree]:
        here, *values = self._enter(count, flags, leaves)
        return here.forward_with_slopes(*values) if self.sloped else (here.forward(*values), None)

    def _by_columns(self, count: int | None, flags: Any, leaves: Any) -> tuple:
        """Pushes the loop forward along every unit vector."""
        perturbed = self.perturbed

        def push(number):
            units, first = [], 0
            for leaf, flag in ((x, f) for x, f, m in zip(leaves, flags, perturbed) if m):
                shape = leaf.shape[:-1] if flag else leaf.shape
                unit = _unit(number - first, shape, leaf.dtype)
                unit = jnp.broadcast_to(unit[..., None], leaf.shape) if flag else unit
                units.append(match(unit, leaf))
                first += _count(shape, leaf.dtype)
            (result, slopes), (rates, _) = jax.jvp(integrated, [x for x, m in zip(leaves, perturbed) if m], units)
            return (result, slopes), states_of(rates)

        def integrated(*xs):
            rest = iter(xs)
            return self._integrate(count, flags, [next(rest) if m else x for x, m in zip(leaves, perturbed)])

        total = sum(_count(shape, x.dtype) for x, shape, m in zip(leaves, self.setting.shapes, perturbed) if m)
        # the result is the same for every column, so it is computed once
        return jax.vmap(push, out_axes=(None, 0))(jnp.arange(total))

    def _of_members(self, count: int | None, flags: Any, leaves: Any) -> tuple | None:
        """The same, all columns within the steps, in the kernel that integrates if there is one; None where not."""
        y0_perturbed, operands_perturbed = jax.tree.unflatten(self.setting.treedef, self.perturbed)
        own = tuple(jax.tree.leaves((y0_perturbed, operands_perturbed._replace(saves=None))))
        here, *values = self._enter(count, flags, leaves)
        found = here.forward_with_columns(*values, own)
        if found is None:
            return None

        @jax.custom_jvp
        def solved(*leaves):
            _, *values = self._enter(count, flags, leaves)
            return found(*values)

        def reference(*leaves):
            (result, _), (matrix, _) = self._by_columns(count, flags, leaves)
            return result, matrix

        # second derivatives use the loop: a kernel has none, and here step sizes must not have any
        solved.defjvp(lambda primals, tangents: jax.jvp(reference, primals, tangents))
        result, matrix = solved(*leaves)
        return (result, None), (matrix, None)


_REVERSE_TWICE = (
    "A gradient through `adjoint=sciml.adjoints.Forward()` can only be differentiated again in forward mode. Use "
    "`jax.hessian(f)` or `jax.jacfwd(jax.grad(f))`."
)


def _count(shape: tuple[int, ...], dtype: Any) -> int:
    """Returns how many real numbers an array holds."""
    return math.prod(shape) * (2 if jnp.issubdtype(dtype, jnp.complexfloating) else 1)


def _unit(number: Array, shape: tuple[int, ...], dtype: Any) -> Array:
    """Returns an array whose real number at this position is one and the others zero; all zero if there is none."""
    is_one = (jnp.arange(_count(shape, dtype)) == number).astype(jnp.finfo(dtype).dtype)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        real, imag = is_one.reshape(2, *shape)
        return jax.lax.complex(real, imag)
    return is_one.reshape(shape)


def _reals(x: Array) -> Array:
    """Returns the real numbers of an array in the order of `_unit`."""
    parts = [x.real, x.imag] if jnp.iscomplexobj(x) else [x]
    return jnp.concatenate([part.reshape(-1) for part in parts])


def _product(v: list[Array], matrix: Array) -> Array:
    """Returns the sum of the matrix's columns, in its first axis, weighted by the numbers of `v` in their order."""
    total, first = [], 0
    for part in v:
        block = jax.lax.slice_in_dim(matrix, first, first + part.size)
        weights, block = promote((part.astype(matrix.dtype), block))
        total.append(jnp.tensordot(weights, block, axes=1, precision="highest"))
        first += part.size
    return sum(total[1:], total[0])


def _along(time: Array, slopes: Array) -> Array:
    """Returns slopes, the saved times first, each times the tangent of its time."""
    time, slopes = promote((time.reshape(-1, *[1] * (slopes.ndim - 1)).astype(slopes.dtype), slopes))
    return time * slopes


class Forward(AbstractAdjoint):
    r"""Forward sensitivity analysis for few parameters: forward and reverse mode through any loop.

    Let $x$ be all differentiated numbers. The columns of $S_n = \partial y_n / \partial x$ are carried along with the
    state, step by step, with constant step sizes,

    $$S_{n+1} = \frac{\partial \Phi_{h_n}}{\partial y} S_n + \frac{\partial \Phi_{h_n}}{\partial x},$$

    and a gradient is $S^T \bar y$. It costs one solve and one tangent for each number in $x$, for any number of steps,
    and agrees with `Checkpointed` to rounding. Other values are not carried. The memory consists of the columns
    at the saved times. Under `jax.vmap` the columns run over lanes with their members, in one pass for a short step. If
    `solve` uses a kernel, they run in it, unless times are differentiated. Forward mode also computes all columns: for
    one tangent in many parameters use `Direct`.

    Attributes:
        limit: The maximum number of columns; with more, an error is raised when the solve is traced.

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml

        def end(rate):
            field = lambda t, y, args: -rate * y
            return sciml.solve(field, jnp.ones(()), t0=0.0, t1=1.0, rtol=1e-5, adjoint=sciml.adjoints.Forward()).ys[-1]

        rate = jnp.array(2.0)
        assert abs(float(jax.grad(end)(rate)) + 0.1353353) < 1e-3
        assert abs(float(jax.jacfwd(end)(rate)) + 0.1353353) < 1e-3
        assert abs(float(jax.hessian(end)(rate)) - 0.1353353) < 1e-3
        ```
    """

    runs_in_kernel: ClassVar[bool] = True
    repeats_steps: ClassVar[bool] = True
    limit: int = eqx.field(static=True, default=1000)

    def __check_init__(self):
        check_count(self.limit, "limit", "Forward")

    def run(self, loop: AbstractLoop, y0: PyTree, operands: Operands, differentiate_times: bool) -> Result:
        """Runs a loop together with the requested columns."""
        result = run_with_sensitivities(loop, y0, operands, differentiate_times, self.limit)
        return result if operands.saves is not None else with_rates_by_times(loop, operands, result)
