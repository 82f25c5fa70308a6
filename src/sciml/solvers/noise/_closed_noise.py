"""A model with noise as closed functions: its drift in the sense that a method needs, its diffusion, its increments."""

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..._choices import choices
from ..._interfaces._field_noise import AbstractFieldNoise
from ..._interfaces._stochastic import AbstractStochastic, at_past
from ..._jax._shards import traced_on_no_mesh
from ..._jax.programs import depend_on
from ..._structure_words import first_difference, structure_words
from ..._types import Args, RealScalarLike, Y
from ..linear._dependencies import pattern_of
from ..methods._ravel import elements_of, flattened, unflattened
from ..terms._barrier import stage_barrier
from ..terms._explain import explained
from ..terms._field import AbstractField, check_like, literals_as_arrays
from ..terms._split_field import BoundSplitField, SplitField, close_split_field
from ._brownian import AbstractBrownian
from ._increment import Increment, NoiseShape


class ModelWithNoise(eqx.Module):
    """A model with the path of its noise.

    Attributes:
        model: The model.
        path: The Brownian motions.
    """

    model: AbstractStochastic
    path: AbstractBrownian

    def __call__(self, t: RealScalarLike, y: Y, args: Args) -> Y:
        """Returns the drift."""
        return self.model.drift(t, y, args)


def diffusion_of(model: AbstractStochastic, t: RealScalarLike, y: Y, args: Args) -> PyTree:
    """Returns the diffusion, where one number stands for a whole leaf as an array like that.

    For field noise it is the noise of Brownian motions of variance one at each point.
    """
    found = model.diffusion(t, y, args)
    of_field = isinstance(model.noise, AbstractFieldNoise)
    if of_field and jax.tree.structure(found) == jax.tree.structure(0) != jax.tree.structure(y):
        found = jax.tree.map(lambda x: found, y)  # one number for all leaves
    found = literals_as_arrays(found, y)
    if jax.tree.structure(found) != jax.tree.structure(y) or model.noise == "general":
        return found
    found = jax.tree.map(lambda x, g: jnp.broadcast_to(g, x.shape) if jnp.ndim(g) == 0 else g, y, found)
    if not of_field:
        return found
    return jax.tree.map(lambda g: g * _over_field(model.noise.size, g), found)


def _over_field(size: Any, g: Array) -> Array:
    """Returns the size of the noise of a field's points in the rank and precision of a diffusion."""
    size = jnp.asarray(size, jnp.finfo(g.dtype).dtype).astype(g.dtype)
    fits = size.ndim <= g.ndim and all(m in (1, n) for m, n in zip(size.shape[::-1], g.shape[::-1]))
    if not fits:
        raise ValueError(
            f"The noise belongs to a field of shape {size.shape}, which the last axes of the state must match, but "
            f"the state has shape {g.shape}."
        )
    return size.reshape((1,) * (g.ndim - size.ndim) + size.shape)


def shape_of(model: AbstractStochastic, t: Array, y: Y, args: Args) -> NoiseShape:
    """Returns the number of Brownian motions, and the kind of their noise.

    Raises:
        ValueError: If the diffusion does not have the shape required by the kind of noise.
        TypeError: If it is of another dtype than the state.
    """

    def diffusion(y):
        return diffusion_of(model, t, y, args)

    with explained():
        closed, out = traced_on_no_mesh(diffusion, y)
    leaves = jax.tree.leaves(y)
    additive = not any(depend_on(closed.jaxpr, [True] * len(closed.jaxpr.invars)))
    if model.noise == "additive" and not additive:
        raise ValueError(
            '`noise="additive"` requires a diffusion that does not depend on the state, but it does. Use "diagonal", '
            '"scalar" or "general".'
        )
    if jax.tree.structure(out) != jax.tree.structure(y):
        raise ValueError(
            f"The diffusion must return the structure of `y0`, {structure_words(y)}, but it returned "
            f"{structure_words(out)}.{first_difference(y, out)}"
        )
    found = jax.tree.leaves(out)
    kind = "diagonal" if isinstance(model.noise, AbstractFieldNoise) else model.noise
    if kind == "additive":
        kind = "diagonal" if all(jnp.shape(a) == b.shape for a, b in zip(leaves, found)) else "general"
    for (path, x), g in zip(jax.tree_util.tree_leaves_with_path(y), found):
        where = jax.tree_util.keystr(path) or "the state"
        if g.dtype not in (x.dtype, jnp.finfo(x.dtype).dtype):
            raise TypeError(
                f"The diffusion must return {x.dtype} for {where}, the dtype of `y0`, but returned {g.dtype}."
            )
        axes = x.ndim + (kind == "general")
        if g.ndim != axes or g.shape[: x.ndim] != x.shape:
            wanted = f"{x.shape} plus one axis over the Brownian motions" if kind == "general" else f"{x.shape}"
            named = f'"{model.noise}"' if isinstance(model.noise, str) else f"{type(model.noise).__name__}(...)"
            raise ValueError(
                f"With `noise={named}` the diffusion must return for {where} an array of shape {wanted}, but it "
                f"returned {g.shape}."
            )
    count = 1
    if kind == "diagonal":
        count = sum(x.size for x in leaves)
    elif kind == "general":
        counts = {g.shape[-1] for g in found}
        if len(counts) != 1:
            raise ValueError(f"The diffusion has leaves for different numbers of Brownian motions: {sorted(counts)}.")
        count = counts.pop()
    dtypes = tuple(np.dtype(jnp.finfo(x.dtype).dtype) for x in leaves)
    return NoiseShape(kind, count, jax.tree.structure(y), tuple(x.shape for x in leaves), dtypes, additive)


def is_elementwise(model: AbstractStochastic, shape: NoiseShape, t: Array, y: Y, args: Args) -> bool:
    """Returns whether the noise of each element of the state depends only on that element."""
    if shape.kind != "diagonal":
        return shape.kind == "scalar"
    if shape.additive:
        return True

    def flat(x):
        return flattened(diffusion_of(model, t, unflattened(x, y), args))

    leaves = jax.tree.leaves(y)
    if sum(x.size for x in leaves) <= 1:
        return True
    if len({x.dtype for x in leaves}) > 1:
        return False
    pattern = pattern_of(flat, flattened(y))
    if pattern is None:
        return False
    elements, _ = elements_of(y)
    rows, columns = pattern.tocoo().coords
    return bool(np.all(elements[rows] == elements[columns]))


def own_derivative(
    model: AbstractStochastic, shape: NoiseShape, elementwise: bool, t: RealScalarLike, y: Y, args: Args
) -> Y:
    r"""Returns $\sum_j (\partial_y g_j) g_j$, twice the difference of the drift between the two interpretations."""
    g = diffusion_of(model, t, y, args)

    def along(direction: Y) -> PyTree:
        return jax.jvp(lambda y: diffusion_of(model, t, y, args), (y,), (direction,))[1]

    if elementwise:
        return along(g)
    if shape.kind == "general":
        columns = [jax.tree.map(lambda x, j=j: x[..., j], g) for j in range(shape.count)]
        moved = [jax.tree.map(lambda x, j=j: x[..., j], along(column)) for j, column in enumerate(columns)]
        return functools.reduce(lambda a, b: jax.tree.map(jnp.add, a, b), moved)
    if any(jnp.iscomplexobj(x) for x in jax.tree.leaves(y)):
        raise ValueError(
            "A complex diagonal diffusion that depends on other elements of the state requires the same "
            "`interpretation` (Ito or Stratonovich) as the method."
        )
    flat = flattened(g)
    units = jnp.eye(flat.shape[0], dtype=flat.dtype)
    rows = [jnp.sum(unit * flattened(along(unflattened(unit * flat, y)))) for unit in units]
    return unflattened(jnp.stack(rows), y)


def drift_for(
    model: AbstractStochastic, shape: NoiseShape, interpretation: str, t: Array, y: Y, args: Args
) -> Callable[[AbstractStochastic, RealScalarLike, Y, Args], Y]:
    """Returns the drift of such a model in one of the two senses, `(model, t, y, args)`.

    Args:
        model: The model.
        shape: The kind of its noise.
        interpretation: "ito" or "stratonovich".
        t: A time, for its dtype.
        y: A state, for its structure, shapes and dtypes.
        args: The third argument of the model.
    """

    def own(model: AbstractStochastic, t: RealScalarLike, y: Y, args: Args) -> Y:
        return literals_as_arrays(model.drift(t, y, args), y)

    if model.interpretation == interpretation or shape.additive:
        return own
    sign = 0.5 if interpretation == "ito" else -0.5
    elementwise = is_elementwise(model, shape, t, y, args)

    def other(model: AbstractStochastic, t: RealScalarLike, y: Y, args: Args) -> Y:
        more = own_derivative(model, shape, elementwise, t, y, args)
        return jax.tree.map(lambda a, b: a + sign * b, own(model, t, y, args), more)

    return other


def close_noise(
    model: Callable,
    t: Array,
    y: Y,
    args: Args,
    interpretation: str,
    with_area: bool,
    more: dict[str, tuple[Callable, tuple]] | None = None,
    with_levy: bool = False,
    past: tuple[Y, ...] = (),
) -> tuple["NoisyField", list[Array]]:
    """Returns drift, diffusion and increments as closed functions, with their operands.

    Args:
        model: A model with the path of its noise.
        t: A time, for its dtype.
        y: A state, for its structure, shapes and dtypes.
        args: The third argument of the model.
        interpretation: In which sense the method solves.
        with_area: Whether it takes space-time Levy areas.
        more: Further functions that the method needs, by name; see `close_split_field`.
        with_levy: Whether it takes the Levy areas of pairs of Brownian motions where noise may not commute.
        past: The past states that drift and diffusion get, one for each delay, for their structure.

    Raises:
        TypeError: If the model has no noise.
        ValueError: If it takes Levy areas of noise of a field.
    """
    if not isinstance(model, ModelWithNoise):
        raise TypeError("A method for stochastic equations requires a model with noise, a `sciml.Stochastic`.")
    equation = at_past(model.model, past)
    shape = shape_of(equation, t, y, args)
    in_sense = drift_for(equation, shape, interpretation, t, y, args)

    def drift(model, args, t, *past_and_y):
        *past, y = past_and_y
        return in_sense(at_past(model.model, tuple(past)), t, y, args)

    def diffusion(model, args, t, *past_and_y):
        *past, y = past_and_y
        return diffusion_of(at_past(model.model, tuple(past)), t, y, args)

    each_its_own = functools.cache(partial(is_elementwise, equation, shape, t, y, args))
    with_levy = with_levy and not shape.additive and not each_its_own()
    if with_levy and isinstance(model.model.noise, AbstractFieldNoise):
        raise ValueError(
            "Levy areas are not available for field noise: a diffusion must depend on each point's own state only, or "
            "use `diffrax.Euler()` or `diffrax.SPaRK()`."
        )
    if with_levy:
        model = ModelWithNoise(model.model, model.path.for_levy(shape.count, shape.dtype))

    def increment(model, args, t, h):
        del args
        if with_levy:
            numbers, levy = model.path.with_levy(t, h, shape.count, shape.dtype)
            return Increment(shape.shaped(numbers), levy=levy)
        numbers, areas = model.path.over(t, h, shape.count, shape.dtype, with_area)
        if shape.count >= choices().fields.barrier_from:
            numbers, areas = stage_barrier((numbers, areas), t)
        shaped = Increment(shape.shaped(numbers), None if areas is None else shape.shaped(areas))
        noise = model.model.noise
        return jax.tree.map(noise.correlated, shaped) if isinstance(noise, AbstractFieldNoise) else shaped

    with explained():
        rate = jax.eval_shape(lambda y: drift(model, args, t, *past, y), y)
    check_like(y, rate)
    functions: dict[str, tuple[Callable, tuple]] = {
        "field": (drift, (t, *past, y)),
        "diffusion": (diffusion, (t, *past, y)),
        "increment": (increment, (t, t)),
        "aligned": (lambda model, args, t, h: model.path.aligned(t, h), (t, t)),
        "rest": (lambda model, args, t, h: model.path.rest(t, h), (t, t)),
    }
    field, operands = close_split_field(model, args, functions | (more or {}))
    return NoisyField(field, shape, each_its_own), operands


class NoisyField(AbstractField):
    """The closed functions of a model with noise, and the static description of the noise.

    Attributes:
        functions: Drift, diffusion and increments.
        noise: The number of Brownian motions, and the kind of their noise.
        is_elementwise: Returns whether each element of the diffusion depends only on that element of the state; it must
            be called while the model is closed.
        structures: Of the linear systems of a method that solves with the drift, or None.
    """

    def __init__(
        self, functions: SplitField, noise: NoiseShape, is_elementwise: Callable[[], bool], structures: Any = None
    ):
        self.functions, self.noise, self.is_elementwise, self.structures = functions, noise, is_elementwise, structures
        self.reads_time, self.has_rules = functions.reads_time, functions.has_rules

    def __call__(self, t: RealScalarLike, y: Y, operands: list) -> Y:
        """Returns the drift."""
        return self.functions(t, y, operands)

    def bind(self, operands: list, whole: bool = True) -> "BoundNoisyField":
        """Returns the functions with their operands."""
        return BoundNoisyField(self.functions.bind(operands, whole), self.noise, self.structures)


class BoundNoisyField:
    """Drift, diffusion and increments with their operands; called as the drift.

    Attributes:
        noise: The number of Brownian motions, and the kind of their noise.
        structures: Of the linear systems of a method that solves with the drift, or None.
        past: The past states at a time, one for each delay.
    """

    def __init__(
        self,
        functions: BoundSplitField,
        noise: NoiseShape,
        structures: Any = None,
        past: Callable[[RealScalarLike], tuple[Y, ...]] = lambda t: (),
    ):
        self._functions, self.noise, self.structures, self.past = functions, noise, structures, past

    def __call__(self, t: RealScalarLike, y: Y) -> Y:
        """Returns the drift."""
        return self._functions["field"](t, *self.past(t), y)

    def with_past(self, past: Callable[[RealScalarLike], tuple[Y, ...]]) -> "BoundNoisyField":
        """Returns the same functions with past states."""
        return BoundNoisyField(self._functions, self.noise, self.structures, past)

    def __getitem__(self, name: str) -> Callable:
        """Returns a function by its name."""
        return self._functions[name]

    def __contains__(self, name: str) -> bool:
        """Returns whether there is a function of such a name."""
        return name in self._functions.functions

    @property
    def tables(self) -> PyTree:
        """The tables computed before the loops, if all steps have one length; otherwise None."""
        return self._functions.tables

    def diffusion(self, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the diffusion."""
        return self._functions["diffusion"](t, *self.past(t), y)

    def increment(self, t: RealScalarLike, h: RealScalarLike) -> Increment:
        """Returns the noise over a step."""
        return self._functions["increment"](t, h)

    def aligned(self, t: RealScalarLike, h: Array) -> Array:
        """Returns the length of a step, near a given one, that ends where the path has a point."""
        return self._functions["aligned"](t, h)

    def rest(self, t: RealScalarLike, h: Array) -> Array:
        """Returns the length of a fixed step: what is left of one that an event has cut."""
        return self._functions["rest"](t, h)

    def times(self, diffusion: PyTree, increment: PyTree) -> Y:
        """Returns a diffusion times an increment, a state."""
        return self.noise.product(diffusion, increment)
