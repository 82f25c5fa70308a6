"""The equations of a steady state and a parameter, as a function of one vector."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Real

from .._checks import check_start, concrete, time_dtype
from .._parameters import indices_of
from .._types import Args, Y
from ..solvers.linear._structure import AbstractStructure
from ..solvers.methods._ravel import flattened, unflattened
from ..solvers.roots._boundary_values import check_conditions, collocation
from ..solvers.roots._conserved import check_conserved, conserved_quantities
from ..solvers.terms._explain import check_callable
from ..solvers.terms._field import arrays_of, check_like, close_field, literals_as_arrays
from ..solvers.terms._suits import check_suits
from ._bordered import structure_of_jacobian

Equations = Callable[..., Float[Array, " n"]]
"""`equations(u, constants, *near)`, $n$ numbers that vanish on curves in the space of the $m = n + 1$ unknowns `u`; of
limit cycles they also depend on a cycle nearby."""


class Equilibria(NamedTuple):
    """A model whose steady states, or solutions of a boundary value problem, depend on one parameter, or on two.

    Attributes:
        equations: The vector field as a function of the state, followed by the parameters, and of `constants`.
        constants: All other values that it depends on, which may be differentiated.
        start: The state and the parameters, without derivatives.
        like: A state, for its structure; of a boundary value problem the states at all nodes.
        nodes: The number of nodes of a boundary value problem, or 1.
        near: Nothing: see `Orbits`, which has the same methods.
        structure: The format in which the Jacobian of a large state is factorised; None for a dense one.
    """

    equations: Equations
    constants: Any
    start: Float[Array, " m"]
    like: Y
    nodes: int = 1
    near: tuple = ()
    structure: AbstractStructure | None = None

    def state(self, u: Float[Array, " m"], near: tuple = ()) -> Y:
        """Returns the state of a vector of unknowns, or of a tangent."""
        return unflattened(u, self.like)

    def sizes(self, x: Float[Array, " k"]) -> Float[Array, " k"]:
        """Returns the size of each unknown but the parameter: of a component the largest value over the nodes."""
        if self.nodes == 1:
            return jnp.abs(x)
        largest = jax.tree.map(lambda y: jnp.broadcast_to(jnp.max(jnp.abs(y), 0), y.shape), self.state(x))
        return flattened(largest)

    def error(self, u: Float[Array, " m"], constants: Any, near: tuple) -> Float[Array, ""]:
        """Returns an estimate of the relative error of a state, which is zero."""
        return jnp.zeros_like(u[0])

    def renewed(self, u: Float[Array, " m"], constants: Any, near: tuple) -> tuple:
        """Returns what the next state is near to."""
        return near

    def moved(self, v: Float[Array, " m"], near: tuple, to: tuple) -> Float[Array, " m"]:
        """Returns unknowns, or a tangent, as they are near to another state."""
        return v


class Arguments(NamedTuple):
    """Checked arguments that all functions of this package share; `leaves` are the positions of the parameters."""

    model: Callable
    y0: Y
    args: Args
    leaves: tuple[int, ...]


def checked(model: Any, y0: Any, args: Args, conserved: Any, name: str = "y0", **selected: Any) -> Arguments:
    """Checks the model, the state, and the selections of parameters by `where` and `along`, if any.

    Args:
        model: The model.
        y0: The state.
        args: The third argument of the model.
        conserved: Its conserved quantities.
        name: The name of the state in messages.
        **selected: `where`, `along`, or both.

    Raises:
        TypeError: If the state is complex, or an argument has the wrong type.
        ValueError: If a known number of the state is not finite, or `where` or `along` does not select one real number,
            which is finite.
    """
    y0 = check_start(y0, name)
    check_callable(model)
    check_suits(model, y0, "`jax.vmap` of this")
    check_conserved(conserved, y0)
    args = arrays_of(args)
    leaves = [_selected(model, args, choose, name) for name, choose in selected.items()]
    if len(set(leaves)) < len(leaves):
        raise ValueError("`along` must select another parameter than `where`, but selects the same one.")
    return Arguments(model, y0, args, tuple(leaves))


def _selected(model: Any, args: Args, where: Any, name: str) -> int:
    """Returns the position of the parameter among the leaves of `(model, args)`."""
    if where is None:
        if jax.tree.structure(args) != jax.tree.structure(0):
            raise ValueError(
                f"`{name}` must select the parameter, because `args` is not one number: `{name}=lambda model: "
                f"model.rate` selects it from the model, `{name}=lambda args: args['rate']` from `args`."
            )
        where = _the_args
    if not callable(where):
        raise TypeError(f"`{name}` must be a function such as `lambda model: model.rate`, but is {where!r:.60}.")
    try:
        count = len(inspect.signature(where).parameters)
    except (TypeError, ValueError):
        count = 1
    choose = (lambda pair: where(*pair)) if count == 2 else (lambda pair: where(pair[args is not None]))
    indices = indices_of((model, args), choose, name)
    leaves = jax.tree.leaves((model, args))
    if len(indices) != 1 or jnp.shape(leaves[indices[0]]) != ():
        shapes = ", ".join(str(jnp.shape(leaves[i])) for i in indices)
        raise ValueError(
            f"`{name}` must select one scalar, but selects leaves of shape {shapes}. Make the parameter a leaf of its "
            "own, and build arrays from it in the model."
        )
    leaf = leaves[indices[0]]
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic | float) or not jnp.issubdtype(
        jnp.result_type(leaf), jnp.floating
    ):
        if where is _the_args:
            raise TypeError(f"`args` must be a real floating-point number, such as 1.0 and not 1, but is {leaf!r:.60}.")
        raise TypeError(f"`{name}` must select a real floating-point array, but selects {leaf!r:.60}.")
    if concrete(leaf) and not np.isfinite(leaf):
        what = "`args` must be" if where is _the_args else f"`{name}` must select"
        raise ValueError(f"{what} a finite number, the first value of the parameter, but found {leaf}.")
    return indices[0]


def _the_args(args: Args) -> Args:
    return args


def check_bounds(bounds: Any, dtype: Any, value: Any) -> tuple[Array, Array]:
    """Returns both ends of the range of a parameter, which holds its value in the model.

    Raises:
        TypeError: If it is not a pair.
        ValueError: If an end is not finite, they are not in order, or the value is outside.
    """
    if not isinstance(bounds, tuple | list | np.ndarray | jax.Array) or len(bounds) != 2:
        raise TypeError(f"`bounds` must be a pair `(low, high)` of the parameter, but is {bounds!r:.60}.")
    low, high = bounds
    if all(map(concrete, (low, high))) and not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"`bounds` must be finite and ascending, but is ({low}, {high}).")
    low, high = jnp.asarray(low, dtype), jnp.asarray(high, dtype)
    if all(map(concrete, (value, low, high))) and not low <= jnp.asarray(value, dtype) <= high:
        raise ValueError(
            f"`bounds` must contain the value of the parameter in the model, {float(value):g}, but is "
            f"({float(low):g}, {float(high):g})."
        )
    return low, high


class _WithParameters(eqx.Module):
    """A model whose state holds some of its parameters, too, which do not change.

    Attributes:
        inner: The model and its args.
        chosen: The positions of the parameters among their leaves.
    """

    inner: tuple
    chosen: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, t: Any, pair: tuple, args: Args) -> tuple:
        del args
        y, parameters = pair
        model, args = _substituted(self.inner, self.chosen, parameters)
        out = literals_as_arrays(model(t, y, args), y)
        check_like(y, jax.tree.map(jnp.asarray, out))
        return out, jnp.zeros_like(parameters)


def _substituted(inner: tuple, chosen: tuple[int, ...], parameters: Array) -> tuple:
    """Returns a model and its args with other values of some leaves."""
    leaves, structure = jax.tree.flatten(inner)
    for leaf, parameter in zip(chosen, parameters):
        old = leaves[leaf]
        weak = not hasattr(old, "dtype") or getattr(old, "weak_type", False)
        leaves[leaf] = parameter if weak else parameter.astype(old.dtype)
    return jax.tree.unflatten(structure, leaves)


class _Ends(eqx.Module):
    """The conditions at both ends, in the form of a vector field of both states and the parameters."""

    boundary: Callable
    inner: tuple
    chosen: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, t: Any, ends: tuple, args: Args) -> tuple:
        del t, args
        first, last, parameters = ends
        _, args = _substituted(self.inner, self.chosen, parameters)
        found = flattened(jax.tree.map(jnp.asarray, self.boundary(first, last, args)))
        check_conditions(found.size, flattened(first).size)
        return unflattened(found, first), jax.tree.map(jnp.zeros_like, last), jnp.zeros_like(parameters)


def closed_between(given: Arguments, boundary: Callable, ts: Real[Array, " nodes"]) -> Equilibria:
    """Returns the equations of a boundary value problem by collocation on fixed nodes; see `solve_bvp`.

    Args:
        given: The model, the states at the nodes, and the selection of the parameter.
        boundary: The conditions at the ends.
        ts: The nodes.
    """
    ys, dtype = given.y0, time_dtype(given.y0)
    like, inner = jax.tree.map(lambda x: jax.lax.stop_gradient(x[0]), ys), (given.model, given.args)
    parameters = jnp.stack([jnp.asarray(jax.tree.leaves(inner)[leaf], dtype) for leaf in given.leaves])
    field, of_field = close_field(_WithParameters(inner, given.leaves), ts[0], (like, parameters), None)
    ends, of_ends = close_field(_Ends(boundary, inner, given.leaves), ts[0], (like, like, parameters), None)
    count, size = len(ts), flattened(ys).size

    def equations(u: Float[Array, " m"], constants: tuple) -> Float[Array, " n"]:
        ts, of_field, of_ends = constants
        x, parameters = jax.vmap(flattened)(unflattened(u[:size], ys)), u[size:]

        def rate(t: Array, x: Array) -> Array:
            return flattened(field(t, (unflattened(x, like), parameters), of_field)[0])

        def at_ends(first: Array, last: Array) -> Array:
            return flattened(ends(ts[0], (unflattened(first, like), unflattened(last, like), parameters), of_ends)[0])

        return collocation(rate, at_ends, ts, x).reshape(-1).astype(u.dtype)

    x0 = flattened(ys)
    start = jax.lax.stop_gradient(jnp.append(x0, parameters.astype(x0.dtype)))
    return Equilibria(equations, (ts, of_field, of_ends), start, jax.lax.stop_gradient(ys), nodes=count)


def closed(given: Arguments, t: Any, conserved: Any, elsewhere: Any = None, large: bool = False) -> Equilibria:
    """Returns the equations of a model, traced once.

    Args:
        given: The model, its state, and the selection of the parameters.
        t: The time at which the model is evaluated.
        conserved: Conserved quantities as a function of the state, or None to find linear ones.
        elsewhere: A value of the last parameter at which conserved quantities are sought; by default its own. At its
            own a quantity may be conserved by chance, as by a rate constant of zero.
        large: Whether the Jacobian is to be factorised by its sparsity pattern, and quantities are not held.
    """
    y0, dtype = given.y0, time_dtype(given.y0)
    leaves = jax.tree.leaves((given.model, given.args))
    parameters = [jnp.asarray(leaves[leaf], dtype) for leaf in given.leaves]
    parameters = jnp.stack(parameters) if parameters else jnp.zeros(0, dtype)
    extended = _WithParameters((given.model, given.args), given.leaves)
    field, operands = close_field(extended, t, (y0, parameters), None)

    def rates(y: Y, parameters: Array, t: Array, operands: list) -> Float[Array, " n"]:
        return flattened(field(t, (y, parameters), operands)[0])

    there = parameters if elsewhere is None else parameters.at[-1].set(elsewhere)
    quantities = None if large else conserved_quantities(lambda y: field(t, (y, there), operands)[0], y0, conserved)
    numbers, rest = eqx.partition(quantities, eqx.is_array)
    x0 = flattened(y0)

    def equations(u: Float[Array, " m"], constants: tuple) -> Float[Array, " n"]:
        t, operands, numbers, held = constants
        slopes = rates(unflattened(u, y0), u[x0.size :], t, operands)
        if large:
            return slopes
        return slopes - eqx.combine(numbers, rest).term(u[: x0.size], held).astype(u.dtype)

    start = jax.lax.stop_gradient(jnp.append(x0, parameters.astype(x0.dtype)))
    constants = t, operands, numbers, x0
    found = Equilibria(equations, constants, start, jax.lax.stop_gradient(y0))
    if not large:
        return found
    return found._replace(
        structure=structure_of_jacobian(lambda x: equations(jnp.append(x, start[-1]), constants), start[:-1])
    )
