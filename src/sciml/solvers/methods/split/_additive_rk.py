"""Implicit-explicit Runge-Kutta steps: a stiff linear part by solves with it, the rest explicitly."""

import functools as ft
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._interfaces._model import AbstractSemilinear, AbstractSplit
from ...._jax._loops import scan
from ...._jax._vma import match
from ...._types import Args, RealScalarLike, Y
from ...control._pid import FirstStep, initial_step
from ...terms._split_field import Functions, close_split_field
from .._capabilities import Limits, Traits
from .._stepper import Step
from ._modal import AbstractModalStepper, dtype_in, is_modal, measured, modal_functions, needs, starting_step, times

Rows = tuple[tuple[float, ...], ...]


class Additive(NamedTuple):
    r"""The coefficients of a method; see `ImplicitExplicit`.

    Attributes:
        nodes: The nodes $c_i$.
        explicit: The rows $\hat a_i$, row $i$ with $i$ entries.
        implicit: The rows $a_i$, likewise.
        diagonal: The $a_{ii}$; the first is zero, the others are not.
        weights: The weights $b_i$ of both parts, or None where the last stage is the result.
        error: The weights of the error estimate, or None.
        order: The order of the method.
        error_order: The power of the step size that the error estimate is proportional to.
    """

    nodes: tuple[float, ...]
    explicit: Rows
    implicit: Rows
    diagonal: tuple[float, ...]
    weights: tuple[float, ...] | None
    error: tuple[float, ...] | None
    order: int
    error_order: int


class ImplicitExplicit(AbstractModalStepper):
    r"""An additive Runge-Kutta method for $\dot y = A y + N(t, y)$.

    $$(1 - h a_{ii} A)\, Y_i = y + h \sum_{j<i} \hat a_{ij} N(t + c_j h, Y_j) + h \sum_{j<i} a_{ij} A Y_j, \qquad
      y_1 = y + h \sum_i b_i \big(N(t + c_i h, Y_i) + A Y_i\big).$$

    $A Y_i$ follows from the solve and is not computed again. To $A y$ a constant may be added. The part $A$ is a
    model's own, or the diagonal linear part of a semilinear one, whose modes the loop then runs in.

    Attributes:
        tableau: The coefficients.
        name: The solver's name, for messages.
    """

    tableau: Additive = eqx.field(static=True)
    name: str = eqx.field(static=True)

    @property
    def traits(self) -> Traits:
        """It may run in modes, and its steps end at saved times."""
        return Traits(elementwise=False, transforms_state=True, knows_within=True, error_order=self.tableau.error_order)

    @property
    def limits(self) -> Limits:
        """By the waves of the rest, which is explicit."""
        return Limits(by_waves=True)

    @property
    def order(self) -> int:
        """The order of the method."""
        return self.tableau.order

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return self.tableau.error is not None

    @property
    def evaluations(self) -> int:
        """Evaluations of the rest per step."""
        return len(self.tableau.nodes) - (self.tableau.weights is None)

    def functions(self, model: Callable, t: RealScalarLike, y: Y, args: Args) -> Functions:
        """Returns the functions of a model that the steps need: the rest, the stiff part, and solves with it."""
        if isinstance(model, AbstractSemilinear):
            functions = modal_functions(model, t, y, args)
            modes = functions["field"][1][1]
            return functions | {
                "explicit": functions["rest"],
                "stiff": (_diagonal, (modes,)),
                "solve": (_diagonal_solve, (t, modes)),
            }
        if not isinstance(model, AbstractSplit):
            raise needs(self.name, AbstractSplit, model, "a model with a stiff linear part")
        return {
            "field": (lambda model, args, t, y: model(t, y, args), (t, y)),
            "explicit": (lambda model, args, t, y: model.rest(t, y, args), (t, y)),
            "stiff": (lambda model, args, y: model.stiff(y, args), (y,)),
            "solve": (lambda model, args, shift, right: model.solve_shifted(shift, right, args), (t, y)),
        }

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the model's functions with their operands."""
        del h
        return close_split_field(model, args, self.functions(model, t, y, args))

    def starting_step(self, field: Any, start: FirstStep) -> Array:
        """Returns a first step size."""
        if is_modal(field):
            return starting_step(field, start, self.order)
        return initial_step(field["explicit"], start, self.order)

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances `y` from `t` to `t + h`."""
        del memory
        tableau, h = self.tableau, jnp.asarray(h)
        if is_modal(field):
            point, slopes, stiff_terms = self._each_stage(field, t, h, y)
        else:
            point, slopes, stiff_terms = self._looped_stages(field, t, h, y)
        if tableau.weights is None:
            return Step(point, None, (), None)
        y1 = _sum(y, h, tableau.weights, slopes, tableau.weights, stiff_terms)
        if tableau.error is None:
            return Step(y1, None, (), None)
        error = _sum(None, h, tableau.error, slopes, tableau.error, stiff_terms)
        return Step(y1, error, (), None, measured=measured(field, error, y1) if is_modal(field) else None)

    def _each_stage(self, field: Any, t: RealScalarLike, h: Array, y: Y) -> tuple[Y, list[Y], list[Y]]:
        """Returns the last stage, and the rest and the stiff part at every stage; unrolled."""
        tableau = self.tableau
        slopes, stiff_terms = [field["explicit"](t, y)], [field["stiff"](y)]
        point = y
        last = len(tableau.nodes) - 1
        for i in range(1, last + 1):
            right = _sum(y, h, tableau.explicit[i], slopes, tableau.implicit[i], stiff_terms)
            shift = tableau.diagonal[i] * h
            point = field["solve"](shift, right)
            if i == last and tableau.weights is None:
                break
            stiff_terms.append(_over(shift, point, right))
            slopes.append(field["explicit"](t + tableau.nodes[i] * h, point))
        return point, slopes, stiff_terms

    def _looped_stages(self, field: Any, t: RealScalarLike, h: Array, y: Y) -> tuple[Y, list[Y], list[Y]]:
        """The same in a loop over stages: a solve is a large program, and is compiled once, not for each stage.

        A constant in the stiff part, such as what flows in at walls, is taken implicitly with it.
        """
        tableau = self.tableau
        count = len(tableau.nodes)
        looped = count - (tableau.weights is None)
        constant = field["stiff"](jax.tree.map(jnp.zeros_like, y))

        def solve(shift, right):
            moved = jax.tree.map(lambda r, c: r + shift.astype(r.dtype) * c, right, constant)
            return field["solve"](shift, moved)

        def stage(carry, x):
            slopes, stiff_terms, _ = carry
            i, node, diagonal, explicit, implicit = x
            right = jax.tree.map(lambda y, k, a: y + h.astype(y.dtype) * (_rows(explicit, k) + _rows(implicit, a)),
                                 y, slopes, stiff_terms)  # fmt: skip
            shift = diagonal.astype(h.dtype) * h
            point = solve(shift, right)
            put = ft.partial(jax.tree.map, lambda stack, x: jax.lax.dynamic_update_index_in_dim(stack, x, i, 0))
            stiff_terms = put(stiff_terms, _over(shift, point, right))
            slopes = put(slopes, field["explicit"](t + node.astype(h.dtype) * h, point))
            return (slopes, stiff_terms, point), None

        def stacked(first):
            return jax.tree.map(lambda x: jnp.concatenate([x[None], jnp.zeros((looped - 1, *x.shape), x.dtype)]), first)

        first = field["explicit"](t, y), field["stiff"](y)
        carry = (*map(stacked, first), y)
        # the loop needs rows of one length: what is behind a row's end is zero
        square = lambda rows: np.array([[*row, *[0.0] * (looped - len(row))] for row in rows[1:looped]])  # noqa: E731
        xs = (
            np.arange(1, looped),
            np.array(tableau.nodes[1:looped]),
            np.array(tableau.diagonal[1:looped]),
            square(tableau.explicit),
            square(tableau.implicit),
        )
        like = (t, h, y, first, constant)
        xs = match(jax.tree.map(jnp.asarray, xs), like)
        (slopes, stiff_terms, point), _ = scan(stage, carry, xs, like=like)
        slopes, stiff_terms = (
            [jax.tree.map(lambda x, i=i: x[i], stack) for i in range(looped)] for stack in (slopes, stiff_terms)
        )
        if looped < count:
            right = _sum(y, h, tableau.explicit[-1], slopes, tableau.implicit[-1], stiff_terms)
            point = solve(jnp.asarray(tableau.diagonal[-1], h.dtype) * h, right)
        return point, slopes, stiff_terms

    def within(self, field: Any, t: Array, h: Array, y: Y, step: Step) -> Callable[[Array], Y]:
        """Returns the solution within a step, by which events are found.

        It is the parabola through both ends with the slope at the last one: stiff components have decayed there, while
        the slope at the first one may be very large.
        """
        last = field(t + h, step.y1)

        def path(place: Array) -> Y:
            def of_leaf(a: Array, b: Array, f: Array) -> Array:
                real = jnp.finfo(a.dtype).dtype
                back, rise = (place - 1).astype(real), h.astype(real) * f
                return b + back * (rise + back * (a - b + rise))

            return jax.tree.map(of_leaf, y, step.y1, last)

        return path


def _diagonal(model, args, modes):
    return jax.tree.map(lambda a, u: times(a.astype(dtype_in(a, u)), u), model.linear(args), modes)


def _diagonal_solve(model, args, shift, right):
    def solve(a, u):
        a = a.astype(dtype_in(a, u))
        return times(1 / (1 - jnp.asarray(shift, a.dtype) * a), u)

    return jax.tree.map(solve, model.linear(args), right)


def _over(shift: Array, point: Y, right: Y) -> Y:
    """The stiff part at a stage, as it follows from the solve."""
    return jax.tree.map(lambda a, b: (a - b) / shift.astype(a.dtype), point, right)


def _rows(weights: Array, stack: Array) -> Array:
    """The sum of weights times stages, by products and sums: a product of matrices may be less precise."""
    weights = weights.astype(jnp.finfo(stack.dtype).dtype).reshape(-1, *[1] * (stack.ndim - 1))
    return jnp.sum(weights * stack, 0)


def _sum(y: Y | None, h: Array, explicit: tuple, slopes: list, implicit: tuple, stiff_terms: list) -> Y:
    terms = [(w, k) for row, stages in ((explicit, slopes), (implicit, stiff_terms)) for w, k in zip(row, stages) if w]

    def combine(*leaves):
        total = terms[0][0] * leaves[0]
        for (w, _), k in zip(terms[1:], leaves[1:]):
            total = total + w * k
        return h.astype(total.dtype) * total

    rise = jax.tree.map(combine, *(k for _, k in terms))
    return rise if y is None else jax.tree.map(jnp.add, y, rise)
