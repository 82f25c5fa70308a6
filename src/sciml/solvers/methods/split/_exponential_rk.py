"""Exponential Runge-Kutta steps: the linear part exactly, the rest by quadrature."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ...._interfaces._model import AbstractSemilinear, AbstractSplit
from ...._types import Args, RealScalarLike, Y
from ...control._pid import FirstStep
from ...terms._split_field import BoundSplitField, Functions, close_split_field, with_tables
from .._capabilities import Traits
from .._stepper import Step
from ._modal import AbstractModalStepper, dtype_in, measured, modal_functions, needs, starting_step, times
from ._phi_functions import phi

Row = tuple[tuple[int, float, str], ...]
"""A sum over stages: for each its number, a factor, and the name of its coefficient."""


class Scheme(NamedTuple):
    r"""The coefficients of a method; see `Exponential`.

    Attributes:
        coefficients: From $z = h L$, the functions $a_{ij}(z)$, $b_i(z)$ and $e^{c_i z}$ by name.
        nodes: The nodes $c_i$ of the stages after the first.
        decays: The names of $e^{c_i z}$ of these stages.
        rows: Their $a_{ij}$.
        weights: The $b_i$; the name of $e^z$ is "exp".
        error: The weights of the error estimate, which may use the rest at the end of the step as the last stage; or
            None.
        order: The order of the method.
        error_order: The power of the step size that the error estimate is proportional to.
    """

    coefficients: Callable[[Array], dict[str, Array]]
    nodes: tuple[float, ...]
    decays: tuple[str, ...]
    rows: tuple[Row, ...]
    weights: Row
    error: Row | None
    order: int
    error_order: int


class Exponential(AbstractModalStepper):
    r"""An exponential Runge-Kutta method for $\dot u = L u + N(t, u)$ with diagonal $L$.

    With $z = h L$,

    $$U_i = e^{c_i z} u + h \sum_{j<i} a_{ij}(z)\, N(t + c_j h, U_j), \qquad
      u_1 = e^z u + h \sum_i b_i(z)\, N(t + c_i h, U_i).$$

    The rest at the end of a step is the first stage of the next.

    Attributes:
        scheme: The coefficients.
        name: The solver's name, for messages.
    """

    scheme: Scheme = eqx.field(static=True)
    name: str = eqx.field(static=True)

    @property
    def traits(self) -> Traits:
        """It runs in modes, and its steps end at saved times."""
        return Traits(
            fsal=True, elementwise=False, transforms_state=True, knows_within=True, error_order=self.scheme.error_order
        )

    @property
    def order(self) -> int:
        """The order of the method."""
        return self.scheme.order

    @property
    def has_error(self) -> bool:
        """Whether its steps estimate their error."""
        return self.scheme.error is not None

    @property
    def evaluations(self) -> int:
        """Evaluations of the rest per step."""
        return 1 + len(self.scheme.nodes)

    def functions(self, model: Callable, t: RealScalarLike, y: Y, args: Args) -> Functions:
        """Returns the functions of a model that the steps need."""
        if isinstance(model, AbstractSplit) and model.modal(y) is not None:
            return modal_functions(model, t, y, args, lambda model: model.modal(y))
        if isinstance(model, AbstractSplit):
            name = type(model).__name__
            raise TypeError(
                f"`solver={self.name}()` requires a diagonal linear part, but the stiff part of this {name} has no "
                "modes: diffusion has modes if its coefficient is a number and every side is Periodic, or with "
                "`order=2` Dirichlet or Neumann. Use `sciml.solvers.ARK()` (the default of `solve`), `ARS()` or "
                "`CrankNicolson()`, which solve linear systems; or, if the model has `spectral_radius`, `RKC2` or "
                "`RKL2`, which do not."
            )
        if not isinstance(model, AbstractSemilinear):
            raise needs(self.name, AbstractSemilinear, model, "a model with a diagonal linear part")
        return modal_functions(model, t, y, args)

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns the model's functions, and where all steps are alike their coefficients as tables."""
        field, operands = close_split_field(model, args, self.functions(model, t, y, args))
        if h is None:
            return field, operands
        bound = field.bind(operands)
        modes = jax.eval_shape(bound["transform"], y)
        return with_tables(field, operands, self._tables(bound, h, modes, wide=True))

    def _tables(self, field: BoundSplitField, h: RealScalarLike, modes: PyTree, wide: bool = False) -> PyTree:
        """Returns the coefficients for each leaf of the modes, times h where they multiply the rest."""

        def of(linear, mode):
            narrow = dtype_in(linear, mode)
            # computed once, they may have all the precision there is
            dtype = np.promote_types(linear.dtype, jnp.zeros(()).dtype) if wide else narrow
            length = jnp.asarray(h, jnp.finfo(dtype).dtype)
            found = self.scheme.coefficients(length.astype(dtype) * linear.astype(dtype))
            scaled = {name: x if name.startswith("exp") else length.astype(dtype) * x for name, x in found.items()}
            return {name: x.astype(narrow) for name, x in scaled.items()}

        leaves, structure = jax.tree.flatten(field["linear"]())
        return [of(*pair) for pair in zip(leaves, structure.flatten_up_to(modes))]

    def starting_step(self, field: Any, start: FirstStep) -> Array:
        """Returns a first step size, from how the rest moves the state."""
        return starting_step(field, start, self.order)

    def init(self, field: Any, t: RealScalarLike, y: Y) -> PyTree:
        """Returns the rest at the start."""
        return field["rest"](t, y)

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances modes from `t` to `t + h`."""
        scheme, rest = self.scheme, field["rest"]
        tables = self._tables(field, h, y) if field.tables is None else field.tables
        stages = [memory]
        for node, decay, row in zip(scheme.nodes, scheme.decays, scheme.rows):
            stages.append(rest(t + node * h, self._sum(tables, decay, y, row, stages)))
        y1 = self._sum(tables, "exp", y, scheme.weights, stages)
        stages.append(rest(t + h, y1))  # also the first stage of the next step
        if scheme.error is None:
            return Step(y1, None, (), stages[-1])
        error = self._sum(tables, None, y, scheme.error, stages)
        return Step(y1, error, (), stages[-1], measured=measured(field, error, y1))

    def within(self, field: Any, t: Array, h: Array, y: Y, step: Step) -> Callable[[Array], Y]:
        """Returns the solution within a step, by which events are found.

        The linear part is exact, however stiff it is, and the rest is interpolated linearly between its values at both
        ends; the difference at the end is added with the square of the place.
        """
        first, last = field["rest"](t, y), step.memory
        leaves, structure = jax.tree.flatten(y)
        linear, first, last, ends = (
            structure.flatten_up_to(x) for x in (field["linear"](), first, last, step.y1)
        )  # fmt: skip

        def on_line(place: Array, a: Array, u: Array, n0: Array, n1: Array) -> Array:
            dtype = dtype_in(a, u)
            length = (place * h).astype(jnp.finfo(dtype).dtype).astype(dtype)
            e, p1, p2 = phi(length * a.astype(dtype), 2)
            part = place.astype(jnp.finfo(dtype).dtype).astype(dtype)
            return times(e, u) + times(length * p1, n0) + times(length * part * p2, n1 - n0)

        def path(place: Array) -> Y:
            one, found = jnp.ones_like(place), []
            for a, u, n0, n1, end in zip(linear, leaves, first, last, ends):
                square = jnp.square(place).astype(jnp.finfo(u.dtype).dtype)
                missing = end - on_line(one, a, u, n0, n1)
                found.append(on_line(place, a, u, n0, n1) + times(square, missing))
            return jax.tree.unflatten(structure, found)

        return path

    def _sum(self, tables, decay, y, row, stages):
        leaves, structure = jax.tree.flatten(y)
        stages = [structure.flatten_up_to(stage) for stage in stages]
        out = []
        for number, (table, u) in enumerate(zip(tables, leaves)):
            terms = [] if decay is None else [times(table[decay], u)]
            for stage, factor, name in row:
                term = times(table[name], stages[stage][number])
                terms.append(term if factor == 1 else factor * term)
            out.append(sum(terms[1:], terms[0]))
        return jax.tree.unflatten(structure, out)
