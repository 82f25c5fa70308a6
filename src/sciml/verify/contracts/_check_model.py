"""Checks of the requirements of `sciml.solve` on a model."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._types import Args, RealScalarLike, Y
from ...kernels.stencil import NotForKernelsError, evolve
from ...kernels.stencil._rates import rates_of, update_by
from ...solvers.terms._explain import check_callable
from ...solvers.terms._field import check_like
from ._contract import check, check_close, converted, counted, perturbed, stacked


def check_model(model: Callable, y0: Y, *, args: Args = None, t: RealScalarLike = 0.0, rtol: float = 1e-6) -> None:
    """Checks that a model satisfies the requirements of `sciml.solve`; for custom models.

    The checks: rates have the structure, shapes and dtypes of the state, in float32 and in float64; they are finite,
    and do not depend on compilation; another state and other parameters do not trace again; members that differ in
    everything have, under `jax.vmap`, the rates of each; derivatives with respect to the state, every leaf of the model
    and `args` agree with finite differences, and reverse mode agrees with forward mode. If the model has a method
    `stencil`, its rates agree with the rates of the model, also at another time and with other `args`.

    Args:
        model: `f(t, y, args) -> dy/dt`, a module or a function.
        y0: A state at which it is smooth.
        args: Its third argument.
        t: A time.
        rtol: How far derivatives may be off, relative to the largest element of the rates.

    Raises:
        AssertionError: If the model breaks a rule, which the message names with numbers.
        TypeError: If it cannot be called as `model(t, y, args)`.

    Example:
        ```python
        import jax.numpy as jnp
        import sciml

        sciml.verify.check_model(sciml.models.LotkaVolterra(), jnp.array([34.0, 5.9]))
        ```
    """
    check_callable(model)
    name = type(model).__name__ if isinstance(model, eqx.Module) else getattr(model, "__name__", type(model).__name__)
    y0, args = jax.tree.map(jnp.asarray, y0), jax.tree.map(_array_of_number, args)
    _check_rates(model, t, y0, args, f"`{name}`")
    for dtype in (jnp.float32, jnp.float64):
        with jax.enable_x64(dtype == jnp.float64):
            own = converted((model, y0, args), dtype)
            _check_rates(own[0], t, *own[1:], f"`{name}` in {jnp.dtype(dtype)}")
    _check_traced_once(model, t, y0, args, name)
    with jax.enable_x64(True):
        wide = converted((model, y0, args), jnp.float64)
        _check_members(wide, t, name)
        _check_stencil(wide, t, name)
        _check_derivatives(wide, t, rtol, name)


def _array_of_number(x: Any) -> Any:
    return jnp.asarray(x) if isinstance(x, float | complex | np.ndarray | np.generic) else x


def _check_rates(model: Any, t: Any, y: Any, args: Any, name: str) -> None:
    shapes = jax.eval_shape(lambda y: model(t, y, args), y)
    try:
        check_like(y, shapes)
    except ValueError as error:
        raise AssertionError(f"{name}: {error}") from error
    rates = model(t, y, args)
    for (path, x), like in zip(jax.tree_util.tree_leaves_with_path(rates), jax.tree.leaves(y), strict=True):
        where = jax.tree_util.keystr(path)
        check(bool(jnp.all(jnp.isfinite(x))), f"the rates of {name} at `y0` are not finite: rates{where} is {x}")
        check(
            jnp.asarray(x).dtype == like.dtype,
            f"the rates of {name} must have the dtype of the state, {like.dtype}, but rates{where} has {x.dtype}",
        )
    tolerance = 100 * max(float(jnp.finfo(x.dtype).eps) for x in jax.tree.leaves(y))
    compiled = jax.jit(lambda y: model(t, y, args))(y)
    check_close(compiled, rates, tolerance, f"the compiled rates of {name}", "the uncompiled ones", atol=tolerance)


def _check_traced_once(model: Any, t: Any, y: Any, args: Any, name: str) -> None:
    """Checks that parameters are arrays: a Python number that changes would trace the model again."""
    dynamic, static = eqx.partition((model, args), eqx.is_array)
    count, calls = counted(lambda t, y, both: both[0](t, y, both[1]))

    @jax.jit
    def rates(t, y, dynamic):
        return count(t, y, eqx.combine(dynamic, static))

    for factor in (1.0, 0.9):
        moved = jax.tree.map(lambda x, f=factor: _scaled(x, f), (y, dynamic))
        rates(jnp.asarray(t, jnp.result_type(float)), *moved)
    check(calls() == 1, f"`{name}` is traced {calls()} times for two states, but must be traced once")


def _scaled(x: Any, factor: float) -> Any:
    return jnp.asarray(factor, x.real.dtype).astype(x.dtype) * x if eqx.is_inexact_array(x) else x


def _rates_of(static: Any, t: Any) -> Callable[[PyTree], PyTree]:
    def rates(dynamic):
        model, y, args = eqx.combine(dynamic, static)
        return model(t, y, args)

    return rates


def _check_members(inputs: Any, t: Any, name: str) -> None:
    dynamic, static = eqx.partition(inputs, eqx.is_inexact_array)
    rates = _rates_of(static, t)
    batch = perturbed(dynamic, 2)
    each = stacked([rates(jax.tree.map(lambda x, i=i: x[i], batch)) for i in range(2)])
    check_close(jax.jit(jax.vmap(rates))(batch), each, 1e-10, f"`vmap` of `{name}`", "the rates of each member")


def _check_stencil(inputs: Any, t: Any, name: str) -> None:
    """Compares the rates that a kernel computes from `stencil` with the rates of the model."""
    model, y, args = inputs
    if not callable(getattr(model, "stencil", None)):
        return
    draw = np.random.default_rng(0)

    def rough(x: Array) -> Array:  # a uniform state has the same rates at many kinds of walls
        size = 1e-3 * max(float(jnp.max(jnp.abs(x))), 0.1)
        return x + jnp.asarray(size * draw.normal(size=x.shape)).astype(x.dtype)

    y = jax.tree.map(lambda x: rough(x) if eqx.is_inexact_array(x) else x, y)
    try:
        rates = rates_of(model, y)
    except NotForKernelsError:  # XLA runs the steps of such a model by its `__call__`
        return
    check_close(rates.state_of(rates.fields_of(y), y), y, 1e-12, f"`join` of `split` of `{name}.stencil`", "the state")
    update = update_by(rates, rates.fn)
    found = evolve(update, rates.fields_of(y), 1, rates.params, coefficients=rates.coefficients, impl="xla")
    found = rates.fields_of(rates.state_of(found, y))  # without cells that are not part of the state
    later, other_args = t + 1e-3 * max(abs(t), 1), jax.tree.map(lambda x: _scaled(x, 0.9), args)
    for where, *at in (("", t, args), (" at another time", later, args), (" with other `args`", t, other_args)):
        expected = rates.fields_of(model(at[0], y, at[1]))
        largest = max(float(jnp.max(jnp.abs(x))) for x in expected)
        for field, a, b in zip(rates.fields, found, expected, strict=True):
            allowed = 1e-9 * float(jnp.max(jnp.abs(b))) + 1e-12 * largest
            by_stencil = f"the rate of {field!r} by `{name}.stencil`"
            check_close(a, b, 0.0, by_stencil, f"the rate by `{name}.__call__`{where}", atol=allowed)


def _check_derivatives(inputs: Any, t: Any, rtol: float, name: str) -> None:
    """Compares derivatives along a random direction of each leaf with differences of fourth order."""
    dynamic, static = eqx.partition(inputs, eqx.is_inexact_array)
    rates = jax.jit(_rates_of(static, t))
    draw = np.random.default_rng(0)
    leaves, structure = jax.tree.flatten(dynamic)
    names = [_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(dynamic)]
    out = rates(dynamic)
    weights = jax.tree.map(lambda x: jnp.asarray(draw.normal(size=x.shape)), out)

    def product(out: Any) -> Array:
        """A number of the rates that depends on all of them, and on both parts of complex ones."""
        parts = jax.tree.map(lambda x, w: jnp.sum(w * (jnp.real(x) + 0.7 * jnp.imag(x))), out, weights)
        return sum(jax.tree.leaves(parts), jnp.zeros(()))

    @jax.jit
    def slopes(dynamic, along):
        fn = lambda d: product(rates(d))  # noqa: E731
        return jax.jvp(fn, (dynamic,), (along,))[1], jax.grad(fn)(dynamic)

    for i, (leaf, where) in enumerate(zip(leaves, names, strict=True)):
        size = max(float(jnp.max(jnp.abs(leaf))), 0.1) if leaf.size else 0.1
        v = jnp.asarray(draw.normal(size=leaf.shape) * size).astype(leaf.dtype)
        along = jax.tree.unflatten(structure, [v if j == i else jnp.zeros_like(x) for j, x in enumerate(leaves)])
        forward, gradient = slopes(dynamic, along)

        def at(s, along=along):
            moved = jax.tree.map(lambda x, v: x + jnp.asarray(s).astype(x.dtype) * v, dynamic, along)
            return float(product(rates(moved)))

        h = 1e-3
        central = (8 * (at(h) - at(-h)) - at(2 * h) + at(-2 * h)) / (12 * h)
        scale = max(abs(central), float(jnp.abs(product(jax.tree.map(jnp.abs, out)))), 1e-3)
        for value, mode in (
            (float(forward), "forward"),
            (float(jnp.sum(jnp.real(jax.tree.leaves(gradient)[i] * v))), "reverse"),
        ):
            check(
                abs(value - central) <= rtol * scale,
                f"the derivative of `{name}` with respect to {where} in {mode} mode is {value} along a direction, but "
                f"{central} by finite differences",
            )


def _name(path: Any) -> str:
    root, *rest = path
    part = ("the model", "the state", "`args`")[root.idx]
    return part + (f" (`{jax.tree_util.keystr(tuple(rest))}`)" if rest else "")
