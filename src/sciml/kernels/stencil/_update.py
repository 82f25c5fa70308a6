"""An update of a grid: a function of the neighbours of one cell, and the conditions at the sides."""

import functools as ft
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact, PyTree

from ..._checks import check_count
from ..._parameters import with_dtype

Fields = tuple[Array, ...]
"""The arrays of a state, in the order of the update's fields."""


class StencilUpdate(eqx.Module):
    r"""One step of a grid in which every cell looks at its neighbours.

    $$u^{n+1}_i = f\big(u^n_{i + s} : s \in S;\ p\big)$$

    `fn(nb, params)` is written for one cell: `nb(field, dy, dx)` is a neighbour's value, `nb(field)` the cell's own,
    and `fn` returns the new values. It is called with arrays of any shape instead of numbers, so it must consist of
    operations that act element by element. `evolve` runs it over many steps.

    Attributes:
        fn: `fn(nb, params) -> new`: an array for one field, else a tuple in the order of `fields` or a
            mapping by their names. Differentiated values go through `params`, are leaves of `fn` if it is a PyTree, or
            are arrays that `fn` closes over. Or several such functions in a tuple, the stages of a step: one after the
            other, each with the ghost cells of the previous result.
        fields: The names of the fields.
        radius: How many cells away along each axis `fn` reads.
        boundary: The source of the ghost cells: None for periodic axes, a `sciml.spatial.Boundaries` or any object with
            its methods `pad` and `extend`, or a mapping from every field to one of these. Its values are leaves.
        coefficients: The names of fields that `fn` reads and that do not change. Beyond walls without a condition,
            values are extrapolated from the two nearest cells: for a coefficient that jumps there, read it at the cell
            itself, or pass means of neighbours as separate coefficients.
        accuracy: The order of the error of the ghost values at walls.
        inner: The names of values that stages pass on within a step, which `fn` only reads at the cell itself. New
            values of these follow the new values of the fields. They are not part of the state.

    Raises:
        ValueError: If names are missing, repeated or no names, or a boundary is given for something else.
        TypeError: If `fn` is not a function or a boundary has no `pad`.

    Example:
        ```python
        import jax.numpy as jnp
        from sciml.kernels.stencil import StencilUpdate, evolve

        def heat(nb, rate):
            around = nb("u", -1, 0) + nb("u", 1, 0) + nb("u", 0, -1) + nb("u", 0, 1)
            return nb("u") + rate * (around - 4 * nb("u"))

        update = StencilUpdate(heat, fields=("u",), radius=1)
        u = jnp.zeros((16, 16)).at[8, 8].set(1.0)
        after = evolve(update, u, 10, 0.2)
        assert jnp.allclose(after.sum(), 1.0)
        ```
    """

    fn: Callable | tuple[Callable, ...]
    fields: tuple[str, ...] = eqx.field(static=True)
    radius: int = eqx.field(static=True)
    boundary: Any
    coefficients: tuple[str, ...] = eqx.field(static=True)
    accuracy: int = eqx.field(static=True)
    inner: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        fn: Callable | tuple[Callable, ...],
        *,
        fields: Sequence[str] = ("u",),
        radius: int = 1,
        boundary: Any = None,
        coefficients: Sequence[str] = (),
        accuracy: int = 2,
        inner: Sequence[str] = (),
    ):
        if not (callable(fn) or (isinstance(fn, tuple) and fn and all(map(callable, fn)))):
            raise TypeError(
                "`StencilUpdate(fn=...)` must be a function `fn(nb, params)`, or a tuple of such functions, but is "
                f"{fn!r}."
            )
        self.fn = fn
        self.fields = _names(fields, "fields")
        self.coefficients = _names(coefficients, "coefficients")
        self.inner = _names(inner, "inner")
        names = self.fields + self.coefficients + self.inner
        if not self.fields or len(set(names)) < len(names):
            raise ValueError(
                "`StencilUpdate` requires at least one field, and a different name for every field and coefficient, "
                f"but got fields={self.fields}, coefficients={self.coefficients} and inner={self.inner}."
            )
        self.radius = check_count(radius, "radius", "StencilUpdate")
        self.accuracy = check_count(accuracy, "accuracy", "StencilUpdate")
        if isinstance(boundary, Mapping) and set(boundary) != set(self.fields):
            raise ValueError(
                f"`StencilUpdate(boundary=...)` is a mapping, so it must have one entry for each of {self.fields}, but "
                f"has {tuple(boundary)}. For conditions by side use `sciml.spatial.Boundaries`."
            )
        self.boundary = boundary
        for one in self.boundaries:
            if one is not None and not hasattr(one, "pad"):
                raise TypeError(
                    "`StencilUpdate(boundary=...)` must be None, a `sciml.spatial.Boundaries`, or another object with "
                    f"the methods `pad` and `extend`, but is {one!r}."
                )

    @property
    def boundaries(self) -> tuple[Any, ...]:
        """The boundary of each field."""
        if isinstance(self.boundary, Mapping):
            return tuple(self.boundary[name] for name in self.fields)
        return (self.boundary,) * len(self.fields)

    @property
    def stages(self) -> int:
        """How many functions make one step."""
        return len(self.fn) if isinstance(self.fn, tuple) else 1

    def stage(self, number: int) -> "StencilUpdate":
        """Returns the update by one of the stages, counted from 0 and on from step to step."""
        if not isinstance(self.fn, tuple):
            return self
        rest = {"radius": self.radius, "boundary": self.boundary, "accuracy": self.accuracy, "inner": self.inner}
        return StencilUpdate(self.fn[number % self.stages], fields=self.fields, coefficients=self.coefficients, **rest)

    def arrays_of(self, state: PyTree, coefficients: Mapping[str, Any] | None) -> tuple[Fields, Fields]:
        """Returns the arrays of a state and of the coefficients, checked.

        Raises:
            ValueError: If some are missing, or shapes or numbers of axes are wrong.
            TypeError: If dtypes differ or are not floating.
        """
        if isinstance(state, Mapping):
            if set(state) != set(self.fields):
                raise ValueError(f"`state` must have the fields {self.fields}, but has {tuple(state)}.")
            found = [state[name] for name in self.fields]
        else:
            found = list(state) if isinstance(state, tuple | list) else [state]
        if len(found) != len(self.fields):
            raise ValueError(
                f"`state` must be the fields {self.fields}, as a tuple in this order or a mapping by name, but has "
                f"{len(found)} arrays."
            )
        extra = dict(coefficients or {})
        if set(extra) != set(self.coefficients):
            raise ValueError(f"`coefficients` must be a mapping with {self.coefficients}, but has {tuple(extra)}.")
        arrays = [jnp.asarray(x) for x in found]
        first = arrays[0]
        if not 1 <= first.ndim <= 3 or not jnp.issubdtype(first.dtype, jnp.inexact):
            raise ValueError(
                "fields must be floating-point arrays with one to three axes, the axes of the grid, but "
                f"{self.fields[0]!r} has dtype {first.dtype} and shape {first.shape}. Use `jax.vmap` for members."
            )
        arrays += [jnp.asarray(extra[name], first.dtype) for name in self.coefficients]
        for name, x in zip(self.fields + self.coefficients, arrays):
            if x.shape != first.shape or x.dtype != first.dtype:
                raise ValueError(
                    f"{name!r} must have the shape {first.shape} and dtype {first.dtype} of {self.fields[0]!r}, but "
                    f"has {x.shape} and {x.dtype}."
                )
        if min(first.shape) < self.radius:
            raise ValueError(
                f"a stencil of radius {self.radius} requires at least {self.radius} cells along every axis, but the "
                f"fields have shape {first.shape}."
            )
        return tuple(arrays[: len(self.fields)]), tuple(arrays[len(self.fields) :])

    def as_state(self, arrays: Fields, like: PyTree) -> PyTree:
        """Returns the arrays of a state in the form of another."""
        if isinstance(like, Mapping):
            return dict(zip(self.fields, arrays))
        if isinstance(like, tuple | list):
            return tuple(arrays) if isinstance(like, tuple) else list(arrays)
        return arrays[0]

    def new_values(self, nb: Callable[..., Array], params: PyTree, like: Any) -> Fields:
        """Returns the results of `fn`, in the order of the fields and of the values passed on.

        All stages of an update are called.

        Args:
            nb: Returns neighbours.
            params: The parameters.
            like: An array of the shape and dtype that new values have.
        """
        if isinstance(self.fn, tuple):
            # all are called, so that a recorder of the reads sees the reads of each
            return [self.stage(k).new_values(nb, params, like) for k in range(self.stages)][-1]
        names = self.fields + self.inner
        try:
            new = self.fn(nb, params)
        except Exception as error:
            error.add_note(
                f"`StencilUpdate.fn` raised this when it was called with values of shape {like.shape} instead of "
                "numbers of shape () to find its reads. It must act element by element: select with `jnp.where`, and "
                "do not reduce over an axis."
            )
            raise
        if isinstance(new, Mapping):
            if set(new) != set(names):
                raise ValueError(f"`fn` must return all of {names}, but returned {tuple(new)}.")
            new = [new[name] for name in names]
        new = list(new) if isinstance(new, tuple | list) else [] if new is None else [new]
        if len(new) != len(names):
            raise ValueError(f"`fn` must return one new value for each of {names}, but returned {len(new)} of them.")
        return tuple(_as_value(x, like, name) for x, name in zip(new, names))

    def check_shift(self, name: str, shift: tuple[int, ...], ndim: int) -> tuple[int, ...]:
        """Returns the shift of a read, one number for each axis.

        Raises:
            ValueError: If there is no such field, or the shift has a wrong length or leaves the radius.
        """
        names = self.fields + self.coefficients + self.inner
        if name not in names:
            raise ValueError(f"`nb({name!r}, ...)` does not name a field of this update; the fields are {names}.")
        if name in self.inner and any(shift):
            raise ValueError(f"`nb({name!r}, ...)` reads a neighbour of an `inner` field. Move it to `fields`.")
        shift = shift or (0,) * ndim  # `nb(name)` is the cell itself
        if len(shift) != ndim or not all(isinstance(s, int | np.integer) for s in shift):
            raise ValueError(
                f"`nb({name!r}, {', '.join(map(str, shift))})` must have one integer shift for each of {ndim} axes, "
                "or no shift for the cell itself."
            )
        if max(map(abs, shift)) > self.radius:
            raise ValueError(
                f"`nb({name!r}, {', '.join(map(str, shift))})` reads further than `radius={self.radius}`. Raise "
                "`radius`."
            )
        return tuple(map(int, shift))

    def reads(self, ndim: int, dtype: Any, params: PyTree) -> dict[tuple[int, ...], tuple[str, ...]]:
        """Returns which fields are read at which shifts.

        Raises:
            ValueError: If `fn` does not act element by element.
        """
        found: dict[tuple[int, ...], dict[str, None]] = {}
        cell = jax.ShapeDtypeStruct((), dtype)

        def trace(value: Array, params: PyTree) -> Fields:
            def nb(name: str, *shift: int) -> Array:
                found.setdefault(self.check_shift(name, shift, ndim), {})[name] = None
                return value

            return self.new_values(nb, params, cell)

        jax.eval_shape(trace, cell, params)
        return {shift: tuple(names) for shift, names in found.items()}


def _names(names: Any, which: str) -> tuple[str, ...]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"`StencilUpdate({which}=...)` must be names, such as ('u', 'v'), but is {names!r}.")
    return tuple(names)


def _as_value(x: Any, like: Any, name: str) -> Array:
    x = jnp.asarray(x)
    if x.shape not in ((), like.shape):
        raise ValueError(
            f"`fn` must act element by element, but for {name!r} it returns shape {x.shape} from cells of shape "
            f"{like.shape}. To read arrays over the grid, add them to `coefficients` and use `nb`."
        )
    # Python's numbers are weak, and take the dtype of the field, unless that makes a complex one real
    if x.dtype != like.dtype and not (x.weak_type and not jnp.iscomplexobj(x)):
        raise TypeError(f"`fn` must keep the dtype {like.dtype}, but returns {x.dtype} for {name!r}.")
    return jnp.broadcast_to(x.astype(like.dtype), like.shape)


def as_params(params: PyTree, dtype: Any) -> PyTree:
    """Returns parameters as arrays in the precision of the fields, except values that are not floating-point."""

    def convert(x: Any) -> Any:
        # integers of Python stay static, as exponents for instance have to be
        number = isinstance(x, float | complex | np.ndarray | np.generic | jax.Array)
        return jnp.asarray(x) if number else x

    return with_dtype(jax.tree.map(convert, params), dtype)


def without_periodic(update: StencilUpdate, shape: tuple[int, ...]) -> StencilUpdate:
    """Returns an update with None for every boundary that is periodic along all axes.

    Raises:
        ValueError: If a boundary is one of another grid, has cells that differ or a body, or depends on time.
    """

    def plain(boundary: Any) -> Any:
        if any(map(callable, jax.tree.leaves(boundary))):
            raise ValueError(
                "a value of `StencilUpdate(boundary=...)` is a function of time, but `evolve` has no time. Pass "
                "numbers or arrays, or solve a model with the same boundary with `sciml.solve`."
            )
        if not getattr(boundary, "uniform", True):
            raise ValueError(
                "`StencilUpdate(boundary=...)` must belong to a `sciml.spatial.Grid` without a body. Solve a model "
                "with this boundary with `sciml.solve`."
            )
        if boundary is not None and hasattr(boundary, "sides") and boundary.shape != shape:
            raise ValueError(
                f"the fields have shape {shape}, but the grid of their boundary has shape {boundary.shape}."
            )
        # a field that is split over devices is periodic as a whole, and its blocks are not
        return None if hasattr(boundary, "sides") and all(boundary.periodic) else boundary

    boundaries = tuple(map(plain, update.boundaries))
    same = not isinstance(update.boundary, Mapping)
    return eqx.tree_at(
        lambda u: u.boundary,
        update,
        boundaries[0] if same else dict(zip(update.fields, boundaries)),
        is_leaf=lambda x: x is None,
    )


def pad(boundary: Any, u: Inexact[Array, "..."], width: int, accuracy: int) -> Inexact[Array, "..."]:
    """Returns a field with ghost cells."""
    return wrap(u, width) if boundary is None else boundary.pad(u, width, accuracy=accuracy)


def extend(boundary: Any, u: Inexact[Array, "..."], width: int) -> Inexact[Array, "..."]:
    """Returns a coefficient, which is subject to no condition, with ghost cells."""
    return wrap(u, width) if boundary is None else boundary.extend(u, width)


def wrap(u: Inexact[Array, "..."], width: int) -> Inexact[Array, "..."]:
    """Returns a field with ghost cells from its opposite side."""
    for axis, n in enumerate(u.shape):
        cut = ft.partial(jax.lax.slice_in_dim, u, axis=axis)
        u = jnp.concatenate([cut(n - width, n), u, cut(0, width)], axis=axis)
    return u
