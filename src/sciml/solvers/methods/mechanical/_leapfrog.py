"""Leapfrog: two halves of a state that alternate, each moved by the effect of the other."""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact, PyTree

from ...._interfaces._model import AbstractPartitioned
from ...._types import Args, RealScalarLike, Y
from ...control._stability import Stability, of_frequencies, spectrum_of
from ...terms._split_field import Functions, close_split_field
from .._capabilities import Coordinates, Limits, Traits
from .._stepper import Step
from .._structured_solver import AbstractStructuredSolver, AbstractStructuredStepper
from ..split._modal import needs


class TakingTurns(AbstractStructuredStepper):
    r"""Half a step of the first half, a step of the second, half a step of the first.

    The drive of the first half at the end of a step is that at the start of the next: each is computed once a step.
    """

    order: int = eqx.field(static=True, default=2)
    evaluations: int = eqx.field(static=True, default=1)
    has_error: bool = eqx.field(static=True, default=False)
    traits: ClassVar[Traits] = Traits(fsal=True, symmetric=True, batched_vjp=True)

    @property
    def limits(self) -> Limits:
        """By its stability, for frequencies."""
        return Limits(stability=self.stability, spectrum=self.spectrum)

    @property
    def coordinates(self) -> Coordinates:
        """The functions of the state, with the rates and moves of its halves."""
        return super().coordinates._replace(close=self.close)

    def stability(self) -> Stability:
        """The products of step and frequency for which it is stable: damping belongs to the moves."""
        return of_frequencies(2.0)

    def spectrum(self, model: Callable, t: Array, y: Y, args: Args) -> Inexact[Array, " eigenvalues"]:
        """Returns the frequencies among the eigenvalues: the moves handle the effect of a half on itself."""
        frequencies = jnp.abs(jnp.imag(spectrum_of(model, t, y, args)))
        return jax.lax.complex(jnp.zeros_like(frequencies), frequencies)

    def functions(self, model: Callable, t: RealScalarLike, y: Y, args: Args) -> Functions:
        """Returns the drives and the moves of both halves, and the vector field."""
        if not isinstance(model, AbstractPartitioned):
            raise needs("Leapfrog", AbstractPartitioned, model, "a model with two halves")
        drives = [
            jax.eval_shape(lambda t, y, drive=drive: drive(t, y, args), t, y)
            for drive in (model.first_drive, model.second_drive)
        ]
        return {
            "field": (lambda model, args, t, y: model(t, y, args), (t, y)),
            "first_drive": (lambda model, args, t, y: model.first_drive(t, y, args), (t, y)),
            "second_drive": (lambda model, args, t, y: model.second_drive(t, y, args), (t, y)),
            "move_first": (lambda model, args, h, drive, y: model.move_first(h, y, drive, args), (t, drives[0], y)),
            "move_second": (lambda model, args, h, drive, y: model.move_second(h, y, drive, args), (t, drives[1], y)),
        }

    def close(self, model: Callable, t: Array, y: Y, args: Args, h: Array | None) -> tuple[Any, list[Array]]:
        """Returns these functions with their operands."""
        del h
        return close_split_field(model, args, self.functions(model, t, y, args))

    def init(self, field: Any, t: RealScalarLike, y: Y) -> PyTree:
        """Returns what drives the first half at the start."""
        return field["first_drive"](t, y)

    def step(self, field: Any, t: RealScalarLike, h: RealScalarLike, y: Y, memory: PyTree) -> Step:
        """Advances both halves from `t` to `t + h`."""
        h = jnp.asarray(h)
        y = field["move_first"](h / 2, memory, y)
        y = field["move_second"](h, field["second_drive"](t + h / 2, y), y)
        drive = field["first_drive"](t + h, y)
        return Step(field["move_first"](h / 2, drive, y), None, (), drive)


class Leapfrog(AbstractStructuredSolver):
    r"""Two halves that take turns: explicit, symmetric, of order two, for `sciml.AbstractPartitioned`.

    $$a_{1/2} = a + \tfrac{h}{2} f(t, b), \qquad b_1 = b + h\, g(t + \tfrac{h}{2}, a_{1/2}), \qquad
      a_1 = a_{1/2} + \tfrac{h}{2} f(t + h, b_1)$$

    and the effect of a half on itself by the model's moves. Of the halves inside of a step this is the scheme of Yee,
    and of Virieux for elastic waves: fields at half steps of each other. Here both are known at the end of every step,
    so saved values belong to one time.

    One evaluation of either drive a step, as many as one of the vector field. Stable for $h \omega < 2$ of the highest
    frequency, for any damping. Without losses the energy oscillates by $O(h^2)$ and does not drift over any number
    of steps, and a step back undoes a step: `adjoint=sciml.adjoints.Reversible()` needs no second copy of the state.
    Fixed steps; they end at saved times, so choose these at multiples of `dt`.

    Source:
        K. S. Yee, IEEE Trans. Antennas Propag. 14:302, 1966; E. Hairer, C. Lubich, G. Wanner, Acta Numerica 12 (2003).

    Example:
        ```python
        import jax
        import jax.numpy as jnp
        import sciml
        from sciml.models import Maxwell
        from sciml.spatial import Grid

        cavity = Maxwell(Grid(64), polarization="Ez")
        y0 = cavity.start({"Ez": lambda x: jnp.sin(jnp.pi * x)})
        sol = sciml.solve(cavity, y0, t0=0.0, t1=100.0, solver=sciml.solvers.Leapfrog())  # steps that are stable
        end = jax.tree.map(lambda x: x[-1], sol.ys)
        assert abs(cavity.energy(end) / cavity.energy(y0) - 1) < 1e-3
        ```
    """

    def stepper(self, y0: Y) -> TakingTurns:
        """Returns the one-step method."""
        del y0
        return TakingTurns()
