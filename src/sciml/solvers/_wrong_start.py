"""Messages about starts that cannot work, and a warning where amounts ran away below zero."""

import contextlib
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._checks import concrete, first_not_finite, first_place, known_numbers
from .._interfaces._conservation_law import AbstractConservationLaw
from .._interfaces._dae import AbstractDAE
from .._parameters import with_dtype
from .._status import Status
from .._types import Y
from .._warn import warn
from ._request import Request
from ._solution import Solution
from .methods._ravel import flattened, unflattened
from .methods.around._admissible import read_admissible
from .methods.implicit._radau_dae import start_of


def wrong_start(sol: Solution, model: Any, y0: Y, request: Request) -> str | None:
    """Returns the fault in the given values of a failed solve of one member; None if it is not known.

    Args:
        sol: The solve.
        model: The model.
        y0: The initial state.
        request: The arguments of `solve`.
    """
    code = int(sol.status) if np.ndim(sol.status) == 0 else None
    if code == Status.invalid_argument:
        return _not_admissible(y0, request)
    if code == Status.inconsistent_start:
        return (_not_consistent if isinstance(model, AbstractDAE) else _not_determined)(model, y0, request)
    if code is None or not concrete(sol.t_reached) or float(sol.t_reached) != float(request.t0):
        return None
    if code == Status.nonfinite:
        for name, tree in (("y0", y0), ("args", request.args), ("model", eqx.filter(model, eqx.is_array))):
            if (found := first_not_finite(tree, name)) is not None:
                return (
                    f"{found}, but a solve needs finite numbers. Likely causes are a division by zero, a logarithm or "
                    "root of a negative number, or missing data."
                )
    return _not_positive(model, y0) if isinstance(model, AbstractConservationLaw) else None


@contextlib.contextmanager
def naming_texts(args: Any) -> Iterator[None]:
    """Adds a note about strings in `args`, if there are some, to an error of the model.

    Raises:
        TypeError: The error of the model.
    """
    try:
        yield
    except TypeError as error:
        for path, x in jax.tree_util.tree_flatten_with_path(args)[0]:
            if isinstance(x, str):
                place = f"`args{jax.tree_util.keystr(path)}`"
                error.add_note(f"sciml: {place} is the string {x!r:.60}, but a model computes with numbers and arrays.")
        raise


def _not_admissible(y0: Y, request: Request) -> str | None:
    if not all(known_numbers(x) for x in jax.tree.leaves(y0)):
        return None
    arrays = jax.tree.map(jnp.asarray, y0)
    admissible = read_admissible(request.positive, request.domain, arrays)
    if admissible is None:
        return None
    paths = jax.tree_util.tree_flatten_with_path(arrays)[0]
    for (path, x), flag in zip(paths, admissible.flags(), strict=True):
        if flag is not None and np.any(wrong := flag & (np.asarray(x) < 0)):
            place, value = first_place(wrong, x)
            return (
                f"`y0{jax.tree_util.keystr(path)}{place}` is {value}, but `positive` requires a state without negative "
                "elements. Start at zero or above, or exclude this element: `positive` accepts a PyTree of booleans "
                "like `y0`."
            )
    if not bool(admissible.holds(arrays)):
        return "`domain(y0)` is False, but the initial state must satisfy `domain` like all later states."
    return None


def _not_positive(law: AbstractConservationLaw, y0: Any) -> str | None:
    """A negative density or pressure makes the speed of sound NaN, and no step is possible."""
    if not known_numbers(y0):
        return None
    y = jnp.asarray(y0)
    for number, x in enumerate(with_dtype(law, y.dtype).positive(y)):
        if np.any(wrong := np.asarray(x) < 0):
            place, value = first_place(wrong, x)
            known = law.primitive_names and number < len(law.positive_components)
            what = law.primitive_names[law.positive_components[number]] if known else f"`positive(y0)[{number}]`"
            each = f" ({', '.join(law.primitive_names)})" if known else ""
            return (
                f"The {what} of `y0` is {value:.6g} in cell {place}, but `{type(law).__name__}` requires a positive "
                f"one. The state has conserved variables; `model.conserved` computes them from primitive ones{each}."
            )
    return None


def _not_determined(model: Any, y0: Y, request: Request) -> str | None:
    """Returns the variables that the algebraic equations of a system with a mass matrix leave undetermined."""
    mass, values = getattr(request.solver, "mass", None), jax.tree.leaves((y0, request.t0))
    if mass is None or not all(known_numbers(x) for x in values) or any(map(np.iscomplexobj, values)):
        return None
    y0 = jax.tree.map(jnp.asarray, y0)
    x = flattened(y0)
    left, right = (jnp.asarray(basis, x.dtype) for basis in mass.null_spaces)

    def algebraic(z: Any) -> Any:
        return left.T @ flattened(model(request.t0, unflattened(x + right @ z, y0), request.args))

    matrix = jax.jacfwd(algebraic)(jnp.zeros(right.shape[1], x.dtype))
    if not np.all(np.isfinite(matrix)):
        return None
    _, sizes, rows = np.linalg.svd(matrix)
    null = rows[sizes <= float(jnp.finfo(x.dtype).eps) ** 0.5 * max(sizes.max(initial=0.0), 1e-300)]
    free = np.max(np.abs(np.asarray(right) @ null.T), axis=1, initial=0.0)
    if not free.any():
        return None
    return (
        f"The algebraic equations do not determine {_names(y0, free > 0.1)}: their derivative with respect to it is "
        "singular at the start, so the index is greater than one. Differentiate the constraints until they determine "
        "it, and hold the original ones by `project=`; or write a `sciml.DAE` with its `index`."
    )


def _not_consistent(model: AbstractDAE, y0: Y, request: Request) -> str | None:
    """Returns the components of a differential-algebraic equation that are not determined, or violate a constraint."""
    values = jax.tree.leaves((y0, request.t0))
    if not all(known_numbers(x) for x in values) or any(map(np.iscomplexobj, values)):
        return None
    y0 = jax.tree.map(jnp.asarray, y0)
    found = start_of(model, jnp.asarray(request.t0), y0, request.args)
    free, wrong = np.asarray(found.is_free), np.asarray(found.is_moved)
    if free.any():
        return (
            f"The equations do not determine {_names(y0, free)} at the start. If the index of this component is higher "
            "than one, pass `sciml.DAE(..., index=...)`, such as `index=(1, 2, 3)` for positions, velocities and "
            "multipliers of a mechanical system; otherwise an equation is missing."
        )
    if wrong.any():
        nearest = np.asarray(found.x)[wrong]
        return (
            f"{_names(y0, wrong)} violates an equation without its rate, or a derivative of one (a hidden constraint). "
            f"The nearest consistent value is {', '.join(f'{x:.6g}' for x in nearest)}."
        )
    return None


def _names(y0: Y, chosen: np.ndarray) -> str:
    """Returns the names of some elements of a state."""
    names = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(y0)[0]:
        part, chosen = np.split(chosen, [leaf.size])
        for at in np.flatnonzero(part):
            place = f"[{', '.join(map(str, np.unravel_index(at, leaf.shape)))}]" if leaf.ndim else ""
            names.append(f"`y0{jax.tree_util.keystr(path)}{place}`")
    return ", ".join(names)


# A warning where a stiff solve without a named method, or one with algebraic equations, ran away below zero.
#
# Reaction rates require amounts that are not below zero. An error within `atol` leads there, and a rate that is
# quadratic in a small amount may then drive the state away from zero ever faster: Robertson's reaction in float32 ends
# at minus ten millions of the whole. Each step on the way is within the tolerances, so that the status is a success.


_FAR = 100.0
"""An element below minus this multiple of the largest initial element is far below zero."""


def warn_of_negative(sol: Solution, model: Any, y0: Y, request: Request) -> None:
    """Warns where a state that began without a negative element ended far below zero.

    Args:
        sol: A solve that succeeded, by a method that `solve` chose or that has a mass matrix.
        model: The model.
        y0: The initial state.
        request: The arguments of `solve`.
    """
    by_residual = isinstance(model, AbstractDAE)
    if by_residual and model.indices.highest > 1:  # the forces of mechanical constraints have any sign and size
        return
    stiff = by_residual or getattr(request.solver, "mass", None) is not None or sol.solver in ("Rodas5P", "BDF")
    if not stiff or request.positive is not None or request.domain is not None:
        return
    starts, ends = jax.tree.leaves(y0), jax.tree.leaves(sol.ys)
    if jax.tree.structure(y0) != jax.tree.structure(sol.ys) or not all(map(_known_here, starts + ends)):
        return
    if any(np.iscomplexobj(x) for x in ends) or any(np.shape(x)[1:] != np.shape(y) for x, y in zip(ends, starts)):
        return
    least = min((float(np.min(x)) for x in starts if np.size(x)), default=-1.0)
    if least < 0:
        return
    most = max(float(np.max(x)) for x in starts if np.size(x))
    lowest = min((float(np.min(np.asarray(x)[-1])) for x in ends if np.size(x)), default=0.0)
    if 0 < _FAR * most < -lowest:
        warn(
            f"The initial state has elements from 0 to {most:.3g}, but the final state has the negative element "
            f"{lowest:.3g}. If the state holds amounts or concentrations, an error within `atol` made one negative, "
            f"and the rates amplified it. {'Set' if by_residual else 'Set `positive=True`, set'} `atol` far below the "
            "smallest amount that matters, or compute in float64.",
            RuntimeWarning,
        )


def _known_here(x: Any) -> bool:
    """Whether a value is known now, and all of it to this process."""
    return concrete(x) and getattr(x, "is_fully_addressable", True)
