"""A model with noise as diffrax's terms, for its solvers that sciml's own loops have not got."""

from typing import Any

import diffrax
import jax
import lineax as lx
from jaxtyping import Array, PyTree

from ..._interfaces._field_noise import AbstractFieldNoise
from ..._types import Args, RealScalarLike, Y
from ._closed_noise import ModelWithNoise, diffusion_of, drift_for, shape_of


def interpretation_of(solver: Any) -> str | None:
    """Returns in which sense a diffrax solver solves equations with noise; None where it does not."""
    if isinstance(solver, diffrax.AbstractItoSolver):
        return "ito"
    return "stratonovich" if isinstance(solver, diffrax.AbstractStratonovichSolver) else None


def noisy_terms(
    model: ModelWithNoise, solver: Any, t0: Array, t1: Array, tolerance: Array, y0: Y, args: Args
) -> diffrax.AbstractTerm:
    """Returns drift and diffusion as terms, the noise on a `diffrax.VirtualBrownianTree`.

    Args:
        model: The model with the words of its key.
        solver: The solver.
        t0: The start.
        t1: The end.
        tolerance: The length of the lines that the path is made of.
        y0: A state.
        args: The third argument of the model.

    Raises:
        ValueError: If it is noise of a field, or has a driver.
    """
    if isinstance(model.model.noise, AbstractFieldNoise) or model.model.driver is not None:
        raise ValueError(
            f"Field noise, or a `driver`, requires sciml's own loops, but diffrax runs this solve because of its "
            f"`solver={type(solver).__name__}()` or `saveat`. Use `sciml.solvers.SRIW1()`, `diffrax.SRA1()` or "
            "another method that runs in sciml's loops."
        )
    shape, interpretation = shape_of(model.model, t0, y0, args), interpretation_of(solver)
    assert interpretation is not None  # see `with_noisy_solver`
    drift = drift_for(model.model, shape, interpretation, t0, y0, args)
    numbers = jax.eval_shape(shape.shaped, jax.ShapeDtypeStruct((shape.count,), shape.dtype))
    area = diffrax.BrownianIncrement
    least = getattr(solver, "minimal_levy_area", diffrax.AbstractBrownianIncrement)
    if issubclass(diffrax.AbstractSpaceTimeTimeLevyArea, least) and least is not diffrax.AbstractBrownianIncrement:
        time_time = least is diffrax.AbstractSpaceTimeTimeLevyArea
        area = diffrax.SpaceTimeTimeLevyArea if time_time else diffrax.SpaceTimeLevyArea
    key = jax.random.wrap_key_data(model.path.words, impl="threefry2x32")
    tree = diffrax.VirtualBrownianTree(t0, t1, tolerance, numbers, key, area)

    def diffusion(t: RealScalarLike, y: Y, args: Args) -> PyTree:
        g = diffusion_of(model.model, t, y, args)
        return lx.DiagonalLinearOperator(g) if shape.kind == "diagonal" else g

    return diffrax.MultiTerm(
        diffrax.ODETerm(lambda t, y, args: drift(model.model, t, y, args)), diffrax.ControlTerm(diffusion, tree)
    )
